"""The recipe of the next shipped model: the town of Linden, its texts and tasks, two stages of training.

The model that ships today is made by `precomputed.recipe`; this one takes its place once two seeds of it pass.
"""
