"""The language-model audit: one question per file, registered by name."""
