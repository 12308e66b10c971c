"""Errors, files, hashes, manifests, progress: what every other room may use. No torch here."""
