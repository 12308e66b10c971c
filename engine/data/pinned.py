"""Data sets of the hub at one commit: named by the user, or looked up once before the download and recorded."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engine.models.downloads import end_silence
from engine.models.hub_failures import hub_errors

_OF_THE_HUB = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")


def commit_of(repository: str, revision: str | None = None) -> str | None:
    """The commit that a revision of a data set stands for now (None: its main branch); of a hub that does not answer
    the one that the local cache last saw there, None where that saw none."""
    from huggingface_hub import HfApi, constants

    if revision and re.fullmatch(r"[0-9a-f]{40}", revision):
        return revision
    named: dict[str, Any] = {"revision": revision} if revision else {}
    try:
        end_silence()
        sha = HfApi().dataset_info(repository, timeout=10, **named).sha
        return str(sha) if sha else None
    except hub_errors():
        pass
    folder = f"datasets--{repository.replace('/', '--')}"
    reference = Path(constants.HF_HUB_CACHE).expanduser() / folder / "refs" / (revision or "main")
    try:
        seen = reference.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    return seen if re.fullmatch(r"[0-9a-f]{40}", seen) else None


def load_pinned(repository: str, config: str | None, *, split: str, revision: str | None = None) -> tuple[Any, str]:
    """A split of a data set, and `repository@commit` of it; the repository alone where nobody tells the commit.
    Errors: as they come from the libraries."""
    from datasets import load_dataset

    commit = commit_of(repository, revision)
    pinned = {"revision": commit or revision} if commit or revision else {}
    data = load_dataset(repository, config, split=split, **pinned)  # nosec B615 # at a commit, in `pinned`
    return data, f"{repository}@{commit}" if commit else repository


@contextmanager
def pinned_loads() -> Iterator[dict[str, str]]:
    """Inside, whatever loads a data set of the hub through `datasets`, naming no revision, gets it at one commit,
    however many parts of it are loaded; gives those commits by the data sets' names."""
    import datasets

    load, commits, asked = datasets.load_dataset, dict[str, str](), set[str]()

    def pinned(path: str, *args: Any, **options: Any) -> Any:
        of_files = any(options.get(name) for name in ("data_files", "revision"))
        if not of_files and isinstance(path, str) and _OF_THE_HUB.fullmatch(path) and not Path(path).exists():
            if path not in asked:
                asked.add(path)
                found = commit_of(path)
                if found:
                    commits[path] = found
            if path in commits:
                options = {**options, "revision": commits[path]}
        return load(path, *args, **options)

    datasets.load_dataset = pinned
    try:
        yield commits
    finally:
        datasets.load_dataset = load
