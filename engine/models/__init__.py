"""Checkpoints, loading, the row index, families: all that knows architectures."""
