"""Scores and masks to findings: one analysis per file; `audit.py` holds what they share."""
