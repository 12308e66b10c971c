"""One folder per page, with all of the page in it; its `page.py` has `render()`."""
