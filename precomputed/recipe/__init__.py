"""The recipe of the shipped model: the town of Linden, its texts and tasks, two stages of training, measurements.

`uv run python -m precomputed.recipe` rebuilds all.
"""
