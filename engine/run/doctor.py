"""What `doctor` examines: each finding says what is there and what to do about what is not."""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine.records.environment import installed_version
from engine.records.errors import InputError

GIB = 2**30
_PACKAGES = ("torch", "transformers", "lxt", "datasets", "streamlit", "plotly", "polars", "diskcache")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    state: Literal["ok", "note", "problem"]
    subject: str
    found: str
    next_step: str | None = None


def examine(model_id: str | None, revision: str | None, device: str, dtype: str, store: Path | None) -> list[Finding]:
    """All findings, in the order in which a person would want them."""
    return [
        *_packages(),
        *_plug_ins(),
        *_devices(),
        _store(store),
        *_corpora(),
        _downstream(),
        *_model(model_id, revision, device, dtype),
    ]


def _packages() -> Iterator[Finding]:
    yield Finding("ok", "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    found = {name: installed_version(name) for name in _PACKAGES}
    missing = [name for name, version in found.items() if version is None]
    versions = ", ".join(f"{name} {version}" for name, version in found.items() if version)
    if missing:
        yield Finding("problem", "packages", versions, f"install {', '.join(missing)}: `uv sync`")
    else:
        yield Finding("ok", "packages", versions)
    try:
        importlib.import_module("engine.models.attnlrp")
        yield Finding("ok", "attnlrp", "lxt's rules load")
    except Exception as error:
        yield Finding("problem", "attnlrp", f"lxt's rules do not load: {error}", "the other selectors still run")


def _plug_ins() -> Iterator[Finding]:
    from engine.selectors.base import broken_plug_ins

    for name, reason in broken_plug_ins().items():
        yield Finding("problem", f"selector {name}", reason, "repair or uninstall the package it comes from")


def _devices() -> Iterator[Finding]:
    import torch

    cores = os.cpu_count() or 1
    yield Finding("ok", "cpu", f"{cores} cores, {_memory_bytes() / GIB:.0f} GiB of memory; float32")
    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            free, total = torch.cuda.mem_get_info(number)
            name = torch.cuda.get_device_name(number)
            yield Finding("ok", f"cuda:{number}", f"{name}, {free / GIB:.0f} of {total / GIB:.0f} GiB free; bfloat16")
    else:
        built = torch.version.cuda
        found = f"none (this torch is built {'for CUDA ' + built if built else 'without CUDA'})"
        yield Finding("note", "cuda", found, "small models run on the CPU; larger ones want a CUDA device")


def _store(folder: Path | None) -> Finding:
    from engine.results.store import Store

    try:
        with Store(folder) as store:
            free = shutil.disk_usage(store.folder).free
            return Finding("ok", "store", f"{store.folder}: {len(store):,} cells, {free / GIB:.0f} GiB free")
    except InputError as error:
        return Finding("problem", "store", str(error))


def _corpora() -> Iterator[Finding]:
    from engine.data.corpora import available_corpora, reachable

    for name in available_corpora():
        problem = reachable(name)
        if problem is None:
            yield Finding("ok", f"corpus {name}", "reachable")
        else:
            yield Finding("note", f"corpus {name}", problem, "or give a local .txt or .jsonl file: --corpus FILE")


def _downstream() -> Finding:
    version = installed_version("lm_eval")
    if version:
        tasks = f"tasks: demo (shipped: {_shipped_tasks()}), hub (the Hugging Face hub), or a local folder"
        return Finding("ok", "downstream", f"lm-eval {version}; {tasks}")
    return Finding("note", "downstream", "lm-eval is not installed", "pip install 'selector-audit[downstream]'")


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
    from engine.models.loading import load_rows
    from engine.run.fits import fits

    try:
        rows = load_rows(model_id, revision=revision)
    except InputError as error:
        yield Finding("problem", "model", str(error))
        return
    yield Finding("ok", "model", f"{model_id}: {rows.n_rows:,} rows, {len(rows.layers)} layers, {rows.n_blocks} blocks")
    try:
        state, found, next_step = fits(model_id, revision, device, dtype)
    except InputError as error:
        state, found, next_step = "problem", str(error), None
    yield Finding(state, "fits", found, next_step)


def _memory_bytes() -> int:
    if sys.platform == "win32":
        return 0
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
