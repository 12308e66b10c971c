"""Documents that were streamed from a data set of the hub, kept beside its cache for machines without a network."""

import gzip
import json
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from engine.records import bounds
from engine.records.errors import InputError
from engine.records.files import write_atomic


class Kept(NamedTuple):
    """Documents and the commit of the data set that they are from."""

    documents: list[str]
    revision: str


def kept_documents(corpus: str, name: str, revision: str | None) -> Kept | None:
    """The documents kept under this name of that commit, of the latest kept where it is None; None where none are."""
    files = [_file(corpus, name, revision)] if revision else sorted(_folder(corpus).glob(f"*/{name}.json.gz"), key=_age)
    for file in files:
        try:
            documents = bounds.parsed(bounds.unpacked(file))
        except (OSError, EOFError, ValueError, RecursionError):  # absent, or damaged: it is fetched again
            continue
        if isinstance(documents, list) and all(isinstance(document, str) for document in documents):
            return Kept(documents, file.parent.name)
    return None


def keep_documents(corpus: str, name: str, revision: str, documents: list[str]) -> None:
    """Keep documents; a cache that cannot be written keeps none."""
    file = _file(corpus, name, revision)
    with suppress(OSError, InputError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, gzip.compress(json.dumps(documents, ensure_ascii=False).encode(), mtime=0))


def _folder(corpus: str) -> Path:
    """The folder that huggingface_hub gives to other libraries: it moves with HF_HOME."""
    from huggingface_hub import constants

    return Path(constants.HF_ASSETS_CACHE).expanduser() / "selector-audit" / corpus


def _file(corpus: str, name: str, revision: str) -> Path:
    return _folder(corpus) / revision / f"{name}.json.gz"


def _age(file: Path) -> float:
    return -file.stat().st_mtime
