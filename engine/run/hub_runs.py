"""Runs on the hub: a results folder as a data set, pushed and fetched.

A data set is one run: its manifest, what the manifest lists (tables, scores, contrasts, masks; nothing else, so that no
weights are among it), a card, and the JSON Schema of manifest and tables. It comes and goes as a whole, in one commit.
"""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from engine.models.downloads import end_silence, fetch_files, hub_name
from engine.models.hub_failures import explain, hub_errors, page_of, push_failure, token_source
from engine.records import bounds
from engine.records.errors import InputError
from engine.records.manifest import MANIFEST, check_same_model, notes_of, read_manifest
from engine.records.model_names import model_name, model_to_type
from engine.records.terminal import as_text
from engine.results.folders import is_published, read_table, verified_entry
from engine.results.tables import TABLES, json_schema

TAG = "selector-audit-run"  # of the card of every data set that `push` writes: by it the next push knows its own
CARD, SCHEMA = "README.md", "schema.json"
_RESULT = re.compile(
    r"[A-Za-z0-9][\w.-]{0,199}\.parquet|(?:scores|contrast|mask-[\w.+-]{1,199})\.safetensors", re.ASCII
)
_ADDRESS = re.compile(r"(?:datasets/)?([\w.-]+/[\w.-]+)", re.ASCII)
_HERE = re.compile(r'"((?:/|[A-Za-z]:\\\\)[^"]*[/\\][^"]*)"')  # a whole path


class Pushed(NamedTuple):
    """page: the data set's; commit: its newest; private: may only those see it whom its owner lets?"""

    page: str
    commit: str
    private: bool


def contents(folder: Path, repo_id: str) -> dict[str, bytes | Path]:
    """What a push of this folder uploads: names, and the files or what will be in them.
    Errors: InputError for a folder without a manifest, published values, a file that is no result, and one that does
    not fit its checksum."""
    listed = _listed(folder)
    if is_published(folder):
        raise InputError(f"{folder} holds values that a paper printed, which no run here made; give a run's folder")
    for name in listed:
        verified_entry(folder / name, "selector-audit analyze MODEL")
    written: dict[str, bytes | Path] = {name: folder / name for name in (MANIFEST, *listed)}
    bounds.need("the run has", sum(size_of(one) for one in written.values()), bounds.MAX_RUN_BYTES, " bytes")
    schema = json.dumps(json_schema(), ensure_ascii=False).encode()
    return {**written, SCHEMA: schema, CARD: card(folder, repo_id).encode()}


def size_of(content: bytes | Path) -> int:
    return len(content) if isinstance(content, bytes) else content.stat().st_size


def places_named(folder: Path) -> list[str]:
    """Paths of this machine that the manifest names, which whoever reads the data set will see."""
    return sorted(set(_HERE.findall(bounds.text_of(folder / MANIFEST, most=bounds.MAX_JSON_BYTES))))


def push(folder: Path, repo_id: str, *, public: bool = False, bars: bool = True) -> Pushed:
    """Upload a run as the data set USER/NAME, which is made where there is none, for others only with `public`. One
    that is there is written over only if a push of the same model made it; what this run has not is removed from it.
    Errors: InputError, also for what the hub refuses."""
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
    from huggingface_hub.utils import disable_progress_bars

    if not bars:  # for good: this is the last thing that a command does
        disable_progress_bars()
    check_name(repo_id)
    uploaded = contents(folder, repo_id)
    if token_source() is None:
        raise InputError("pushing needs a token that may write; set HF_TOKEN, or run `hf auth login`")
    end_silence()
    api = HfApi()
    try:
        info, old = _earlier(api, folder, repo_id)
        if info is None:
            api.create_repo(repo_id, repo_type="dataset", private=not public)
        commit = api.create_commit(
            repo_id,
            [
                *(CommitOperationAdd(name, content) for name, content in uploaded.items()),
                *(CommitOperationDelete(name) for name in sorted(old - uploaded.keys())),
            ],
            commit_message=f"Run of {model_name(read_manifest(folder).get('model') or {})}",
            repo_type="dataset",
            parent_commit=None if info is None else info.sha,
        )
    except InputError:
        raise
    except hub_errors() as error:
        raise push_failure(repo_id, error) from None
    return Pushed(page_of(repo_id, "dataset"), commit.oid, not public if info is None else bool(info.private))


def _earlier(api: Any, folder: Path, repo_id: str) -> tuple[Any, set[str]]:
    """What is known of a data set of this name, None where there is none, and its files of an earlier push."""
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        info = api.dataset_info(repo_id)
    except RepositoryNotFoundError:
        return None, set()
    names = {one.rfilename for one in info.siblings} - {".gitattributes"}
    if not names:
        return info, set()
    if TAG not in (info.tags or ()) or MANIFEST not in names:
        raise InputError(
            f"the data set {repo_id} is there, holds {min(names)} and is no push of ours; give another name with --to"
        )
    manifest = read_manifest(fetch_files(repo_id, [MANIFEST], repo_type="dataset", revision=info.sha))
    check_same_model(Path(repo_id), manifest, read_manifest(folder).get("model") or {})
    return info, names & {*manifest.get("files", {}), SCHEMA}


def check_name(repo_id: str) -> None:
    """`InputError` for what is no USER/NAME."""
    if not re.fullmatch(r"[\w.-]{1,96}/[\w.-]{1,96}", repo_id, re.ASCII):
        raise InputError(f"--to names a data set of the hub, USER/NAME, got {repo_id!r}")


def is_address(text: str) -> bool:
    """May this be a data set of the hub: USER/NAME, USER/NAME@REVISION, hf://datasets/USER/NAME, or its page?"""
    return _ADDRESS.fullmatch(hub_name(text).id) is not None


def fetch_run(address: str) -> Path:
    """The results folder of a run on the hub, in the hub's cache, with its manifest and what that lists and no more.
    Errors: InputError where it cannot be had, is no run, or is larger than is read."""
    name = hub_name(address)
    repo_id = name.id.removeprefix("datasets/")
    try:
        _check_sizes(repo_id, [MANIFEST], name.revision, bounds.MAX_JSON_BYTES)
        folder = fetch_files(repo_id, [MANIFEST], repo_type="dataset", revision=name.revision)
        if not (folder / MANIFEST).is_file():
            raise InputError(f"the data set {repo_id} is no run: it has no {MANIFEST}; give one that `push` uploaded")
        listed = _listed(folder)
        _check_sizes(repo_id, listed, folder.name, bounds.MAX_RUN_BYTES)
        return fetch_files(repo_id, [MANIFEST, *listed], repo_type="dataset", revision=folder.name)
    except InputError:
        raise
    except hub_errors() as error:
        why = explain(error, repo_id, repo_type="dataset", revision=name.revision)
        reason = f"the hub cannot be reached ({why.found})" if why.kind == "unreachable" else why.found
        raise InputError(f"no run {address} can be had: {reason}; {why.next_step or 'go online once'}") from None


def _check_sizes(repo_id: str, names: list[str], revision: str | None, most: int) -> None:
    """`InputError` where these files have more bytes in all. A hub out of reach fetches nothing: the cache serves."""
    from huggingface_hub import HfApi

    end_silence()
    try:
        files = HfApi().get_paths_info(repo_id, names, repo_type="dataset", revision=revision)
    except hub_errors() as error:
        if explain(error, repo_id, repo_type="dataset").kind == "unreachable":
            return
        raise
    bounds.need(f"{repo_id} has", sum(getattr(file, "size", 0) for file in files), most, " bytes of a run")


def _listed(folder: Path) -> list[str]:
    """The files of a run. Errors: InputError for a name that no result has, and for too many."""
    names = sorted(read_manifest(folder).get("files", {}))
    bounds.need(f"{MANIFEST} lists", len(names), bounds.MAX_RUN_FILES, " files")
    if wrong := next((name for name in names if not _RESULT.fullmatch(name)), None):
        raise InputError(f"{MANIFEST} of {folder} lists {wrong[:80]!r}, which is no result; give a folder of results")
    if not names:
        raise InputError(f"{MANIFEST} of {folder} lists no file, so there is no run; give a folder of results")
    return names


def card(folder: Path, repo_id: str) -> str:
    """README.md of the data set: front matter by which the hub shows every table, where it is from, how to go on."""
    from huggingface_hub import DatasetCardData

    manifest = read_manifest(folder)
    model, files = manifest.get("model") or {}, manifest.get("files", {})
    tables = [name for name in _listed(folder) if name.endswith(".parquet")]
    data = DatasetCardData(
        pretty_name=f"Audit of {model_name(model)}",
        tags=["selector-audit", TAG, "diagnostic", "interpretability"],
        configs=[{"config_name": Path(name).stem, "data_files": name} for name in tables],
    )
    environments = [entry.get("environment") or {} for entry in files.values()]
    dates = sorted(str(entry.get("date") or "")[:10] for entry in files.values())
    about = {
        "model": model_name(model), "revision": model.get("revision"), "weights (hash)": model.get("weights_hash"),
        "dtype": model.get("dtype"), "measured": " to ".join(dict.fromkeys((dates[0], dates[-1]))),
        "selector-audit": ", ".join(sorted({str(one.get("selector-audit")) for one in environments})),
        "commit": ", ".join(sorted({str(one["git_commit"]) for one in environments if one.get("git_commit")})),
    }  # fmt: skip
    lines = [f"| {name} | {as_text(str(value))} |" for name, value in about.items() if value]
    shown = "".join(
        f"| `{name}` | {as_text(TABLES.get(Path(name).stem).title) if Path(name).stem in TABLES else ''} |\n"
        for name in tables
    )
    notes = "".join(f"\n- {as_text(note)}" for note in notes_of(manifest))
    verdicts = ""
    if "verdicts.parquet" in tables:
        judged = read_table(folder, "verdicts").select("selector", "validity", "specific", "stability")
        rows = "".join(f"| {' | '.join(as_text(str(one)) for one in row)} |\n" for row in judged.iter_rows())
        verdicts = f"\n## Verdicts\n\n| selector | valid | specific | stable |\n|---|---|---|---|\n{rows}"
    typed = model_to_type(model)
    return f"""---
{data.to_yaml()}
---

# Audit of {as_text(model_name(model))}

**Diagnostic**: rows of the model were removed by scores and its losses measured. No weights are here. What columns mean
stands in `{SCHEMA}`, where every number is from in `{MANIFEST}`.

| | |
|---|---|
{chr(10).join(lines)}
{notes}
{verdicts}
## Tables

| file | |
|---|---|
{shown}
```sh
selector-audit report {repo_id}
selector-audit replay {repo_id}{"" if typed != "MODEL" else " --model MODEL"}
```
"""
