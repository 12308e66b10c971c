"""Plans to numbers: cells, the runner that answers them, scores, what `doctor` looks at."""
