"""Scores, masks, interventions and their evaluation, for neuron rows of decoder-only language models."""
