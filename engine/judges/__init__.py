"""Does a reply refuse? Judges by name, their quality, and replies written elsewhere."""
