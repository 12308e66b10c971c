"""Runs, the tab Import: a folder of this machine, or a zip file from the browser."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from dashboard.pages.runs import importing as runs_import
from dashboard.show import layout, selection
from dashboard.state import results
from engine.records.errors import InputError

FOLDER, ZIP = "A folder on this machine", "A zip file"


def form(top: Path) -> None:
    """Where from, under which name, and the button."""
    st.caption(
        "The files that the manifest lists are copied and checked against their checksums; nothing else is read, and "
        "nothing in them is run."
    )
    kind = selection.switch("From", (FOLDER, ZIP), "import_from", default=FOLDER)
    upload, path = None, ""
    if kind == ZIP:
        upload = st.file_uploader("Zip of one results folder", type="zip", key="import_zip")
        st.caption("Larger ones: unpack the zip on this machine and import the folder.")
    else:
        path = st.text_input("Folder", key="import_path", placeholder="/path/to/results").strip()
    wanted = Path(upload.name).stem if upload is not None else Path(path).name if path else ""
    name = st.text_input("Name", key="import_name", placeholder="the name of the folder or the zip").strip()
    if not st.button("Import", key="import", type="primary", disabled=not wanted):
        return
    try:
        name = name or runs_import.free_name(wanted, top)
        if upload is not None:
            runs_import.import_zip(upload, top, name)
        else:
            runs_import.import_folder(results.folder_of(path), top, name)
    except InputError as error:
        layout.problem(error)
        return
    st.success(f"Imported as {layout.plain(name)}. It stands under “Kept”, and under “My results” on the other pages.")
