"""The commands of `selector-audit`: one module each, with `add_parser` and `run`."""
