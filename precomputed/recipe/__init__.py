"""The recipe of the shipped model: the town of Linden, its texts and tasks, three stages of training, measurements.

`uv run python -m precomputed.recipe` rebuilds all.
"""
