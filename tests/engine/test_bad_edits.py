"""Masks and contrasts that were tampered with, or are none: one line, and an untouched one passes."""

import json
from pathlib import Path

import numpy as np
import pytest
from bad_inputs import raw_safetensors, refused
from safetensors.numpy import load_file, save, save_file

from engine.edits.contrasts import Contrast, checksum, save_contrasts

pytestmark = pytest.mark.usefixtures("one_parser")

# Masks and contrasts


@pytest.fixture
def mask(tiny_llama, tmp_path):
    """A mask file of the tiny model, and a way to write another one in its place."""
    file = tmp_path / "mask.safetensors"
    spec = {"selector": "random", "seed": 42, "order": "lerf", "rate": 0.1}
    manifest = {"model": tiny_llama.fingerprint, "spec": spec}

    def write(removed=None, change=None, kind=None) -> Path:
        ids = np.arange(28, dtype=np.int64) if removed is None else np.asarray(removed)
        text = json.dumps({**manifest, **(change or {})})
        if kind:
            file.write_bytes(raw_safetensors({"removed": kind}, {"manifest": text}))
        else:
            save_file({"removed": ids}, file, metadata={"manifest": text})
        return file

    return write


MASKS = {
    "ids beyond the rows": {"removed": np.array([1, 288])}, "ids below zero": {"removed": np.array([-1, 2])},
    "ids twice": {"removed": np.array([1, 1, 2])}, "ids as fractions": {"removed": np.array([1.0, 2.5])},
    "ids as truths": {"removed": np.ones(288, dtype=bool)}, "a table of ids": {"removed": np.arange(4).reshape(2, 2)},
    "a giant id": {"removed": np.array([2**62])}, "no ids": {"removed": np.array([], dtype=np.int64)},
    "all rows": {"removed": np.arange(288)},
    "another model": {"change": {"model": {"id": "other", "weights_hash": "0" * 64}}},
    "a model that is a list": {"change": {"model": []}}, "no model": {"change": {"model": None}},
    "a hash that is a number": {"change": {"model": {"id": "x", "weights_hash": 3}}},
    "no spec": {"change": {"spec": None}}, "a spec that is a list": {"change": {"spec": [1]}},
    "an unknown order": {"change": {"spec": {"selector": "random", "order": "odd", "rate": 0.1}}},
    "a lambda below zero": {"change": {"spec": {"selector": "lrp", "domain": "d", "lambda": -1, "k": 0.1}}},
    "a lambda that is a text": {"change": {"spec": {"selector": "lrp", "domain": "d", "lambda": "x", "k": 0.1}}},
    "a k of all": {"change": {"spec": {"selector": "lrp", "domain": "d", "lambda": 0.5, "k": 1}}},
    "eight-bit floats": {"kind": ("F8_E4M3", [4], b"\1\2\3\4")}, "half floats": {"kind": ("BF16", [2], b"\1\2\3\4")},
}  # fmt: skip


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_that_was_tampered_with(name, mask, tiny_llama, tmp_path, capfd):
    out = tmp_path / "out"
    words = ("export", tiny_llama.id, "--mask", mask(**MASKS[name]), "--out", out, "--store", tmp_path / "store")
    refused(capfd, *words)
    assert not out.exists()


NO_MASKS = {
    "empty": b"",
    "text": b"1 2 3",
    "a header of 2^60 bytes": b"\xff" * 7 + b"\x10{}",
    "another tensor": save({"kept": np.arange(3)}, metadata={"manifest": "{}"}),
    "no manifest": save({"removed": np.arange(3)}),
    "a manifest that is no JSON": save({"removed": np.arange(3)}, metadata={"manifest": "{"}),
    "a deep manifest": save({"removed": np.arange(3)}, metadata={"manifest": "[" * 100_000}),
    "a pickle": b"\x80\x04\x95cos\nsystem\n",
}


@pytest.mark.parametrize("name", NO_MASKS)
@pytest.mark.parametrize("option", ["--mask", "--contrast"])
def test_a_file_that_is_no_edit(option, name, tiny_llama, tmp_path, capfd):
    file = tmp_path / "edit.safetensors"
    file.write_bytes(NO_MASKS[name])
    cell = ("--selector", "lrp", "--lambda", "0.5", "--k", "0.1") if option == "--contrast" else ()
    words = ("export", tiny_llama.id, option, file, *cell, "--out", tmp_path / "out", "--store", tmp_path / "store")
    refused(capfd, *words)


@pytest.fixture
def contrast(tiny_llama, tmp_path):
    """The words of an export by a contrast file, which is then spoilt."""
    rows = tiny_llama.rows.n_rows
    random = np.random.default_rng(0)
    numbers = Contrast("lrp", "crime", random.uniform(-1, 1, rows), random.uniform(0, 1, rows))
    file = tmp_path / "contrast.safetensors"
    save_contrasts(file, [numbers], json.dumps({"model": tiny_llama.fingerprint}))
    words = ("export", tiny_llama.id, "--contrast", file, "--out", tmp_path / "out", "--store", tmp_path / "store")
    return file, words


CELLS = (
    ("--lambda", "-0.1"), ("--lambda", "1.1"), ("--lambda", "nan"), ("--lambda", "inf"), ("--lambda", "x"),
    ("--lambda", ""),
    ("--k", "0"), ("--k", "1"), ("--k", "-1"), ("--k", "nan"), ("--k", "x"), ("--k", "30"),
    ("--k", "1e-9"), ("--k", ""), ("--selector", "wnada"), ("--selector", ""), ("--domain", "odd"),
    ("--domain", "crime/x"),
)  # fmt: skip


@pytest.mark.parametrize(("option", "value"), CELLS)
def test_a_cell_that_is_none(option, value, contrast, capfd):
    _, words = contrast
    refused(capfd, *words, "--selector=lrp", "--lambda=0.5", "--k=0.1", f"{option}={value}")


def spoilt(**changes):
    """Numbers, checksum and manifest as they are given."""

    def spoil(file: Path, fingerprint: dict) -> None:
        tensors = load_file(file)
        tensors |= {name: edit(tensors[name]) for name, edit in changes.get("tensors", {}).items()}
        tensors = {name: tensor for name, tensor in tensors.items() if name not in changes.get("without", ())}
        manifest = changes.get("manifest", json.dumps({"model": fingerprint}))
        signed = checksum(tensors) if changes.get("signed", True) else "0" * 64
        save_file(tensors, file, metadata={"manifest": manifest, "sha256": signed})

    return spoil


COMPLY, RANK = "lrp/crime/c_comply", "lrp/lm_rank"
SPOILT = {
    "another checksum": spoilt(signed=False),
    "numbers above one": spoilt(tensors={COMPLY: lambda t: t * 3}),
    "NaN": spoilt(tensors={COMPLY: lambda t: t * np.float32("nan")}),
    "ranks below zero": spoilt(tensors={RANK: lambda t: -t}),
    "half the rows": spoilt(tensors={COMPLY: lambda t: t[:144], RANK: lambda t: t[:144]}),
    "twice the rows": spoilt(tensors={COMPLY: lambda t: np.tile(t, 2), RANK: lambda t: np.tile(t, 2)}),
    "two lengths": spoilt(tensors={RANK: lambda t: t[:7]}),
    "a table": spoilt(tensors={COMPLY: lambda t: t.reshape(2, -1), RANK: lambda t: t.reshape(2, -1)}),
    "no ranks": spoilt(without=(RANK,)),
    "no contrast": spoilt(without=(COMPLY,)),
    "a manifest of nothing": spoilt(manifest="{}"),
    "a manifest that is a list": spoilt(manifest="[]"),
    "a manifest that is no JSON": spoilt(manifest="{"),
    "a deep manifest": spoilt(manifest="[" * 100_000),
    "another model": spoilt(manifest=json.dumps({"model": {"weights_hash": "0" * 64}})),
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_contrast_that_was_tampered_with(name, contrast, tiny_llama, capfd):
    file, words = contrast
    SPOILT[name](file, tiny_llama.fingerprint)
    refused(capfd, *words, "--selector=lrp", "--lambda=0.5", "--k=0.1")
