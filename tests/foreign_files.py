"""Files that no command may write over: those of others, and outputs of ours of each kind."""

import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import save_file

from engine.edits.contrasts import Contrast, save_contrasts, write_mask
from engine.records.progress import ProgressFile
from engine.records.shipped import demo_dir
from engine.results.folders import write_tables

ROOT = Path(__file__).resolve().parents[1]
MODEL = {"id": "tiny", "weights_hash": "0" * 64, "dtype": "float32"}
Put = Callable[[Path], None]


def text(path: Path) -> None:
    path.write_text("a diary\n")


def config(path: Path) -> None:
    path.write_text(json.dumps({"model_type": "llama", "hidden_size": 8}))


def other_manifest(path: Path) -> None:
    path.write_text(json.dumps({"name": "a web page", "icons": [], "files": {"a": 1}}))


def weights(path: Path) -> None:
    save_file({"model.embed_tokens.weight": np.ones((4, 4), np.float32)}, path, metadata={"format": "pt"})


def tensors(path: Path) -> None:
    save_file({"removed": np.arange(3)}, path)


def table(path: Path) -> None:
    pl.DataFrame({"day": [1, 2], "nll": [0.5, 0.25]}).write_parquet(path)


def comma_separated(path: Path) -> None:
    path.write_text("reply,label\nno,refusal\n")


def page(path: Path) -> None:
    path.write_text('<!doctype html>\n<html lang="en"><head><title>Selector audit: my notes</title>')


def read_only(path: Path) -> None:
    OWN["mask"](path)
    path.chmod(0o444)


def folder(path: Path) -> None:
    path.mkdir()
    (path / "note").write_text("inside")


def pipe(path: Path) -> None:
    os.mkfifo(path)


def listening(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # a socket's whole name is short
    try:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(path.name)
    finally:
        os.chdir(here)


def device(path: Path) -> None:
    try:
        os.mknod(path, 0o666 | 0o020000, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root makes devices")


def linked(put: Put) -> Put:
    def link(path: Path) -> None:
        target = path.with_name("what-the-link-leads-to")
        put(target)
        path.symlink_to(target)

    return link


def dangling(path: Path) -> None:
    path.symlink_to(path.with_name("nowhere"))


def own_mask(path: Path) -> None:
    write_mask(path, np.arange(3), MODEL, {"selector": "magnitude"})


def own_progress(path: Path) -> None:
    ProgressFile(path)("sweep", 1, 2)


def own_report(path: Path) -> None:
    template = (ROOT / "dashboard/report/report.html.jinja").read_text(encoding="utf-8")
    path.write_text("\n\n" + template[template.index("<!doctype html>") :], encoding="utf-8")


def own_table(path: Path) -> None:
    scratch = path.with_name("scratch-of-a-table")
    shipped = pl.read_parquet(demo_dir() / "results" / "sweep.parquet")
    write_tables(scratch, {"sweep": shipped}, MODEL, {}, 0.1)
    shutil.move(scratch / "sweep.parquet", path)
    shutil.rmtree(scratch)


def own_contrasts(path: Path) -> None:
    save_contrasts(path, [Contrast("lrp", "hate", np.zeros(4), np.ones(4))], "{}")


def own_scores(path: Path) -> None:
    shutil.copyfile(demo_dir() / "results" / "scores.safetensors", path)


OWN: dict[str, Put] = {
    "mask": own_mask, "progress": own_progress, "report": own_report, "table": own_table,
    "contrasts": own_contrasts, "scores": own_scores,
}  # fmt: skip
FOREIGN: dict[str, Put] = {
    one.__name__: one
    for one in (
        text, config, other_manifest, weights, tensors, table, comma_separated, page, read_only, folder, pipe,
        listening, device, dangling,
    )
} | {f"link to {put.__name__}": linked(put) for put in (text, weights, folder, pipe, device, own_mask)}  # fmt: skip
