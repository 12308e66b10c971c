"""Texts to token windows, prompts and pairs as the model sees them."""
