"""One prompt under several edits: models in memory, edits, replies, tries."""
