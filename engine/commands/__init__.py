"""The commands of `selector-audit`: one module each, with `add_options` and `run`. Its text says, behind the first
paragraph, what `--help` does."""
