"""Rankings to edits: masks, controls, contrasts, mask files, exported checkpoints with their card."""
