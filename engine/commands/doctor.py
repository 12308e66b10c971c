"""`doctor`: what is installed, which device, does the model fit, which data sets are reachable.

Each line says what was found and, where something is missing, the next step. Exit code 1 if there is a problem; notes
do not count."""

import argparse
import os
import platform
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.table import Table
from rich.text import Text

from engine.commands import common
from engine.records.errors import InputError
from engine.records.hashing import TESTED, installed_version, tested_versions
from engine.records.terminal import shown

GIB = 2**30
_PACKAGES = ("torch", "transformers", "lxt", "datasets", "streamlit", "plotly", "polars", "diskcache")


@dataclass(frozen=True)
class Finding:
    state: Literal["ok", "note", "problem"]
    subject: str
    found: str
    next_step: str | None = None


def examine(
    model_id: str | None, revision: str | None, device: str, dtype: str, store: Path | None
) -> Iterator[Finding]:
    """All findings, in the order in which a person would want them, each as soon as it is known.
    A section that fails in a way nobody thought of is a problem of its own; the others go on."""
    sections: dict[str, Callable[[], Iterable[Finding]]] = {
        "packages": _packages, "plug-ins": _plug_ins, "devices": _devices, "store": lambda: _store(store),
        "hub": _hub, "corpora": _corpora, "downstream": _downstream,
        "model": lambda: _model(model_id, revision, device, dtype),
    }  # fmt: skip
    for name, section in sections.items():
        try:
            yield from section()
        except Exception as error:
            problem = f"could not be examined: {type(error).__name__}: {error}".splitlines()[0]
            yield Finding("problem", name, problem, "the other lines do not depend on it")


def _packages() -> Iterator[Finding]:
    yield Finding("ok", "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    found = {name: installed_version(name) for name in _PACKAGES}
    missing = [name for name, version in found.items() if version is None and name != "lxt"]
    versions = ", ".join(f"{name} {version}" for name, version in found.items() if version)
    if missing:
        yield Finding("problem", "packages", versions, f"install {', '.join(missing)}: `uv sync`")
    else:
        yield Finding("ok", "packages", versions)
    here = {name: (installed_version(name) or "").partition("+")[0] for name in tested_versions()}
    differ = {name: version for name, version in tested_versions().items() if here[name] not in ("", version)}
    if differ:
        found_here = ", ".join(f"{name} {here[name]} (with {version})" for name, version in differ.items())
        next_step = f"if something fails: uv pip install -c {TESTED} {' '.join(differ)}"
        yield Finding("note", "versions", f"not those that all tests last passed with: {found_here}", next_step)
    if found["lxt"] is None:
        without = "lxt is not installed: lrp, relp and consensus2 cannot run, everything else can"
        yield Finding("note", "attnlrp", without, "pip install --no-deps 'lxt>=2.1'")
        return
    try:
        from engine.models.attnlrp import rules_load

        rules_load()
        yield Finding("ok", "attnlrp", "lxt's rules load")
    except Exception as error:
        yield Finding("problem", "attnlrp", f"lxt's rules do not load: {error}", "the other selectors still run")


def _plug_ins() -> Iterator[Finding]:
    from engine.selectors.base import broken_plug_ins

    for name, reason in broken_plug_ins().items():
        yield Finding("problem", f"selector {name}", reason, "repair or uninstall the package it comes from")


def _devices() -> Iterator[Finding]:
    import torch

    from engine.models.memory import host_bytes

    yield Finding("ok", "cpu", f"{os.cpu_count() or 1} cores, {host_bytes() / GIB:.0f} GiB of memory; float32")
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            free, total = torch.cuda.mem_get_info(number)
            name = torch.cuda.get_device_name(number)
            yield Finding("ok", f"cuda:{number}", f"{name}, {free / GIB:.0f} of {total / GIB:.0f} GiB free; bfloat16")
    else:
        built = torch.version.cuda
        reason = f"none (this torch is built {'for CUDA ' + built if built else 'without CUDA'})"
        yield Finding("note", "cuda", reason, "small models run on the CPU; larger ones want a CUDA device")


def _store(folder: Path | None) -> Iterator[Finding]:
    from engine.results import damage
    from engine.results.store import Store

    try:
        with Store(folder) as store:
            free = shutil.disk_usage(store.folder).free
            yield Finding("ok", "store", f"{store.folder}: {len(store):,} cells, {free / GIB:.0f} GiB free")
            if aside := damage.set_aside(store.folder):
                yield Finding(
                    "note", "store", f"{aside:,} damaged entries were set aside in {store.folder / damage.FOLDER}",
                    "they are computed again where they are needed; check the disk, then delete that folder",
                )  # fmt: skip
    except InputError as error:
        yield Finding("problem", "store", str(error))


def _hub() -> Iterator[Finding]:
    """Whose token is sent to the hub. Without a token nothing is asked."""
    from huggingface_hub import HfApi

    from engine.models.downloads import end_silence
    from engine.models.hub_failures import explain, hub_errors, token_source

    source = token_source()
    if source is None:
        yield Finding("ok", "hub", "no token; public models and data sets need none")
        return
    try:
        end_silence()
        yield Finding("ok", "hub", f"the token from {source} is {HfApi().whoami()['name']}'s")
    except hub_errors() as error:
        kind, found, next_step = explain(error, "the account")
        if kind == "unreachable":
            yield Finding("note", "hub", f"cannot be reached ({found})", next_step or "what is cached can be used")
        else:
            yield Finding("problem", "hub", found, next_step)


def _corpora() -> Iterator[Finding]:
    from engine.data.texts import available_corpora, reachable

    for name in available_corpora():
        problem = reachable(name)
        if problem is None:
            yield Finding("ok", f"corpus {name}", "reachable")
        else:
            yield Finding("note", f"corpus {name}", problem, "or give a local .txt or .jsonl file: --corpus FILE")


def _downstream() -> Iterator[Finding]:
    version = installed_version("lm_eval")
    if version:
        tasks = f"tasks: demo (shipped: {_shipped_tasks()}), hub (the Hugging Face hub), or a local folder"
        yield Finding("ok", "downstream", f"lm-eval {version}; {tasks}")
    else:
        yield Finding("note", "downstream", "lm-eval is not installed", "pip install 'selector-audit[downstream]'")


def _shipped_tasks() -> str:
    from engine.data.local_tasks import SHIPPED, local_files

    try:
        return ", ".join(local_files(SHIPPED))
    except InputError:
        return "none"


def _model(model_id: str | None, revision: str | None, device: str, dtype: str) -> Iterator[Finding]:
    if model_id is None:
        yield Finding("note", "model", "none given", "name one to check it: selector-audit doctor MODEL")
        return
    from engine.models.loading import load_rows, load_sketch
    from engine.run.run_estimate import fits

    try:
        rows = load_rows(model_id, revision=revision)
    except InputError as error:
        yield Finding("problem", "model", str(error))
        return
    yield Finding("ok", "model", f"{model_id}: {rows.n_rows:,} rows, {len(rows.layers)} layers, {rows.n_blocks} blocks")
    sketch, read = None, list[Finding]()
    try:
        sketch = load_sketch(model_id, revision=revision, device=device, dtype=dtype)
        read = [*_reading(model_id, revision, sketch)]  # before `fits` uses it up
        state, found, next_step = fits(model_id, sketch)
    except InputError as error:
        state, found, next_step = "problem", str(error), None
    yield Finding(state, "fits", found, next_step)
    yield from _download(model_id, revision)
    yield from read if sketch else _reading(model_id, revision)


def _reading(model_id: str, revision: str | None, sketch: Any = None) -> Iterator[Finding]:
    """Do the weight files agree, is the tokenizer the model's, and can the model be asked through its chat template?"""
    from engine.data.chat_template import turn_ends
    from engine.data.prompts import check_chat
    from engine.models.checkpoints import find_checkpoint, weight_names
    from engine.models.loading import load_sketch
    from engine.models.sound import check_stored

    checkpoint = find_checkpoint(model_id, revision, weights=False)
    try:
        sketch = sketch or load_sketch(model_id, revision=revision)
    except InputError as error:
        yield Finding("problem", "tokenizer", str(error))
        return
    if sketch.dequantized_from is not None:
        yield Finding("ok", "packed", f"{sketch.dequantized_from}; loaded as the numbers that it stands for")
    tokenizer = sketch.tokenizer
    yield Finding("ok", "tokenizer", f"{type(tokenizer).__name__} of {len(tokenizer):,} tokens")
    try:
        check_chat(tokenizer)
    except InputError as error:
        yield Finding("problem", "prompts", str(error))
    else:
        ends = tokenizer.convert_ids_to_tokens(sorted(turn_ends(tokenizer)))
        through = f"through the chat template, which ends a turn with {ends[0] if ends else 'no token'}"
        plain = "no chat template: prompts stand as plain text"
        yield Finding("ok", "prompts", through if tokenizer.chat_template else plain)
    if all((checkpoint.folder / name).is_file() for name in weight_names(checkpoint)):
        try:
            check_stored(checkpoint, sketch.model)
        except InputError as error:
            yield Finding("problem", "weights", str(error))


def _download(model_id: str, revision: str | None) -> Iterator[Finding]:
    """What is still to be fetched of a hub model, against the disk of the cache."""
    from engine.models.checkpoints import find_checkpoint, weight_names
    from engine.models.downloads import missing_bytes
    from engine.models.hub_failures import disk_full, free_bytes

    checkpoint = find_checkpoint(model_id, revision, weights=False)
    if checkpoint.revision is None:
        return
    names = weight_names(checkpoint)
    if all((checkpoint.folder / name).is_file() for name in names):
        yield Finding("ok", "download", "all weights are in the local cache")
        return
    needed = missing_bytes(checkpoint.id, names, checkpoint.folder)
    folder, free = free_bytes()
    if needed is None:
        missing = "weights are missing in the local cache, and the hub does not say how large they are"
        yield Finding("note", "download", missing, f"fetch them: selector-audit fetch {model_id}")
    elif needed > free:
        _, missing, next_step = disk_full(needed, "the missing weights")
        yield Finding("problem", "download", missing, next_step)
    else:
        size = f"{needed / GIB:.2f} GiB of weights to fetch, {free / GIB:.0f} GiB free in {folder}"
        yield Finding("ok", "download", size)


_COLOURS = {"ok": "green", "note": "yellow", "problem": "red"}


def add_options(parser: argparse.ArgumentParser) -> None:
    common.add_model(parser, optional=True)
    common.add_run(parser, folder=False)


def run(args: argparse.Namespace) -> int:
    looked_at = examine(args.model, args.revision, args.device, args.dtype, args.store)
    findings = list(looked_at if args.json else _printed(looked_at))
    common.as_json(args, {"findings": [finding.__dict__ for finding in findings]})
    return int(any(finding.state == "problem" for finding in findings))


def _printed(findings: Iterable[Finding]) -> Iterable[Finding]:
    """The findings, each printed as soon as it is there: some take a while."""
    for finding in findings:
        table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
        table.add_column(width=len("problem"))
        table.add_column(width=max(17, len(finding.subject)))
        table.add_column(overflow="fold")
        next_step = f"\n→ {finding.next_step}" if finding.next_step else ""
        state = Text(finding.state, _COLOURS[finding.state])
        table.add_row(state, shown(finding.subject), shown(finding.found + next_step))
        common.out.print(table)
        yield finding
