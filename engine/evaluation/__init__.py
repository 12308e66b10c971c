"""What a model does, with or without a mask: perplexity, generation, refusal."""
