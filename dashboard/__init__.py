"""The browser app. Views draw, `results.py` reads, `charts/` makes figures, `live.py` edits models.

Nothing here imports torch at import time: the first chart must be up before a model library is."""
