"""Where results live: the registry of tables, results folders, the store. No torch here."""
