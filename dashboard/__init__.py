"""The browser app: a reader of results and a place for live edits."""
