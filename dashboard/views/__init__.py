"""One file per page; each has `render()`. A page is added with one file here and one line in `app.py`."""
