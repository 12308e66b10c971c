"""Refusal editing: the margin between refusing and complying, and the rows whose removal installs refusal."""
