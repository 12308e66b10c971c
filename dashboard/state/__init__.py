"""What a page shows and where that is kept: the address, sources, results, what ships."""
