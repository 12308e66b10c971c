"""Where a store lies, and whether a folder is one. Loads next to nothing, for commands that ask before they begin."""

import os
import re
from pathlib import Path

import platformdirs

from engine.records.errors import InputError
from engine.records.files import check_folder_of, what_is
from engine.results.damage import FOLDER

GGUF = "gguf"  # what was read from files of that kind
OWN = ("cells", "arrays", FOLDER, GGUF, "running", "score_files")  # the last: of `engine.selectors.own_scores`
INSIDE = ("cells", "arrays", "results")
_BESIDE = ("file_hashes.json", "replayed")  # of `engine.models.hashes` and `engine.commands.replay`


def default_store_dir() -> Path:
    """`$SELECTOR_AUDIT_STORE`, or `selector-audit` in the user's cache folder."""
    given = os.environ.get("SELECTOR_AUDIT_STORE")
    if given:
        return Path(given).expanduser()
    return platformdirs.user_cache_path("selector-audit", appauthor=False)


def store_folder(folder: Path | str | None) -> Path:
    """The folder of a store that was named, or the default one."""
    return Path(folder).expanduser() if folder else default_store_dir()


def results_dir(store: Path | str | None, model_id: str) -> Path:
    """Default folder for the tables of one model."""
    name = Path(model_id).resolve().name if Path(model_id).exists() else model_id
    slug = re.sub(r"[^A-Za-z0-9._-]+", "--", name).strip("-.") or "model"
    return store_folder(store) / "results" / slug


def check_store(folder: Path) -> None:
    """`InputError` unless the folder is a store, is empty or can be made: no store is begun among other files.
    Hidden files do not count: systems leave some everywhere."""
    if os.path.lexists(folder) and not folder.is_dir():
        raise InputError(f"{folder} is {what_is(folder)}, and a store is a folder; give another --store")
    check_folder_of(folder / "cells", "--store", made=True)
    try:
        names = {name for name in os.listdir(folder) if not name.startswith(".")} if folder.is_dir() else set()
    except OSError as error:
        raise InputError(f"cannot read the store {folder} ({error.strerror}); give another --store") from None
    ours = {*INSIDE, *OWN, *_BESIDE}
    if names - ours and not all((folder / part).is_dir() for part in INSIDE):
        raise InputError(
            f"{folder} is no store, and holds other files ({min(names - ours)}); give a new folder with --store"
        )
    for part in INSIDE:
        if part in names and not (folder / part).is_dir():
            raise InputError(f"{folder / part} is {what_is(folder / part)}, no folder of a store; give another --store")
