"""The recipe of the shipped model: text, training, measurements. `uv run python -m precomputed.recipe` rebuilds all."""
