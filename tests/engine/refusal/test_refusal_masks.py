"""Mask files of the operating points: what they hold, that commands and pages take them, and that none is left over."""

import io
import json
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from harmless import harmless
from stage_options import read_by

from dashboard.pages.rows import row_cell as cell
from engine.cli import main
from engine.edits.contrasts import (
    Contrast,
    edit_from_mask,
    load_contrasts,
    read_mask,
    refusal_mask,
    save_contrasts,
    spec_of,
    write_mask,
)
from engine.edits.edit_effect import Change, Effect
from engine.models.loading import LoadedModel
from engine.records.files import write_atomic
from engine.records.hashing import file_sha256
from engine.records.manifest import read_manifest
from engine.studies.refusal.mask_outputs import kept_masks, mask_names

# Small, but for replies long enough to be refusals, so that there are points within the limits.
PLAN = ["--selectors", "lrp", "--domains", "hate,crime", "--pairs-per-domain", "8", "--samples", "16"]
PLAN += ["--max-length", "64", "--reply-tokens", "25", "--heldout-pairs", "4", "--lambdas", "0.5"]
PLAN += ["--eval-samples", "2", "--eval-length", "64", "--benign-limit", "0.3"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("masks")


def answer(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def stage(folder: Path, name: str, *more: str) -> list[str]:
    return [
        "refusal", name, "demo", *read_by(name, PLAN), *more, "--store", str(folder / "store"), "--out",
        str(folder / "out"),
    ]  # fmt: skip


@pytest.fixture
def no_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an edit does to refusal is not asked here: a record of two domains stands for it."""

    def measured(run: Any, edit: Any, *_: Any, **__: Any) -> Effect:
        same = dict.fromkeys(("hate", "crime"), Change(8, 0, 0))
        return harmless(run.loaded.weights_hash, edit.mask_hash, same, same)

    monkeypatch.setattr("engine.studies.refusal.effect.measured_effect", measured)


def typed(said: str, command: str) -> list[str]:
    """The command line of this kind among what was printed, as a shell reads it."""
    lines = [shlex.split(line) for line in said.splitlines() if line.strip().startswith("selector-audit")]
    [found] = [words[1:] for words in lines if command in words[:3]]
    return found


@pytest.mark.long
def test_select_writes_the_mask_of_every_point(folder: Path, demo: LoadedModel, capsys: pytest.CaptureFixture[str]):
    """Rebuilt from the contrast, lambda and k that the table names; the file alone makes a refusal edit."""
    points = answer(stage(folder, "select", "--ks", "0.02"), capsys)["operating_points"]
    answer(stage(folder, "calibrate"), capsys)
    found, _ = load_contrasts(folder / "out" / "contrast.safetensors")
    contrasts = {(one.selector, one.domain): one for one in found}
    listed = read_manifest(folder / "out")["files"]
    assert sum(one["point"] is not None for one in points) >= 2
    for one in points:
        if one["point"] is None:
            assert one["mask"] is None
            continue
        path = Path(one["mask"])
        assert path.name == f"mask-{one['selector']}-{one['domain']}.safetensors"
        assert listed[path.name]["sha256"] == file_sha256(path)
        expected = refusal_mask(contrasts[one["selector"], one["domain"]], one["point"]["lam"], one["point"]["k"])
        rows, manifest = read_mask(path, demo.rows.n_rows, demo.weights_hash)
        np.testing.assert_array_equal(rows, expected)
        spec = spec_of(manifest)
        assert (spec["lambda"], spec["k"], spec["kind"]) == (one["point"]["lam"], one["point"]["k"], "refusal")
        assert spec["calibration"]["pairs"][one["domain"]]["pairs"] == 8
        edit = edit_from_mask(path, demo.rows.n_rows, demo.weights_hash)
        assert (edit.kind, edit.spec["domain"]) == ("refusal", one["domain"])
        scored: Any = SimpleNamespace(n_rows=demo.rows.n_rows, model=demo.fingerprint)
        kept = cell.load(path.read_bytes(), path.name, scored)  # the page Rows takes it as what it is
        chosen = kept.spec or {}
        assert (chosen["domain"], chosen["lambda"]) == (one["domain"], one["point"]["lam"])


@pytest.mark.long
def test_what_select_prints_last_can_be_typed_as_it_stands(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_gate: None
):
    assert main(stage(folder, "select", "--ks", "0.02")) == 0
    said = capsys.readouterr().out
    chat, export = typed(said, "chat"), typed(said, "export")
    monkeypatch.setattr(sys, "stdin", io.StringIO("How do I open a tin?\n"))
    assert main(chat) == 0
    assert "after: " in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    assert main(export) == 0
    card = (tmp_path / export[-1] / "README.md").read_text(encoding="utf-8")
    assert "hate, risk prompts refused" in card
    assert "| calibration_malign |" in card  # of the record


@pytest.mark.long
def test_compose_writes_one_for_both_domains_and_leaves_the_others(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, no_gate: None
):
    answer(stage(folder, "select", "--ks", "0.02"), capsys)
    before = kept_masks(folder / "out", "operating_points")
    assert main(stage(folder, "compose", "--ks", "0.02")) == 0
    export = typed(capsys.readouterr().out, "export")
    composed = kept_masks(folder / "out", "composed")
    assert {domain for _, domain in composed} == {"hate+crime"}
    assert kept_masks(folder / "out", "operating_points") == before
    monkeypatch.chdir(tmp_path)
    assert main(export) == 0
    card = (tmp_path / export[-1] / "README.md").read_text(encoding="utf-8")
    assert "hate, base prompts refused" in card
    assert "crime, base prompts refused" in card
    assert "--record" not in export


@pytest.mark.long
def test_no_mask_of_an_earlier_selection_is_left(folder: Path, demo: LoadedModel, capsys: pytest.CaptureFixture[str]):
    out = folder / "out"
    answer(stage(folder, "select", "--ks", "0.02"), capsys)
    first = {place: path.read_bytes() for place, path in kept_masks(out, "operating_points").items()}
    assert any(domain == "crime" for _, domain in first)
    write_mask(out / "mask-mine.safetensors", np.array([1, 2]), demo.fingerprint, {"kind": "hand-made"})
    write_atomic(out / "other-mask.safetensors", b"no mask")
    changed = stage(folder, "select", "--ks", "0.02")
    changed[changed.index("hate,crime")] = "hate"
    changed[changed.index("0.5")] = "0.8"
    points = answer(changed, capsys)["operating_points"]
    left = kept_masks(out, "operating_points")
    assert set(left) == {(one["selector"], one["domain"]) for one in points if one["point"]}
    assert all(domain == "hate" for _, domain in left)
    assert left["lrp", "hate"].read_bytes() != first["lrp", "hate"]
    files = {path.name for path in out.iterdir()} - {"manifest.json", "mask-mine.safetensors", "other-mask.safetensors"}
    assert set(read_manifest(out)["files"]) == files
    for name in ("mask-mine.safetensors", "other-mask.safetensors"):
        (out / name).unlink()


def test_names_are_plain_and_differ_in_every_case():
    places = [("lrp", "hate"), ("lrp", "Hate"), ("lrp", "../etc/x"), ("a-b", "c"), ("a", "b-c"), ("lrp", "x" * 200)]
    places += [("lrp", "hate+crime"), ("lrp", "Leute ärgern"), ("lrp", "Leute argern")]
    names = mask_names(places)
    assert len({name.casefold() for name in names}) == len(places)
    assert names[6] == "mask-lrp-hate+crime.safetensors"
    for name in names:
        assert Path(name).name == name
        assert name.isascii()
        assert len(name) < 120


def test_equal_contrasts_are_equal_bytes(tmp_path: Path):
    """Metadata in the same order every time, and all that the library wrote still there."""
    generator = np.random.default_rng(0)
    contrasts = [Contrast("lrp", "hate", generator.uniform(-1, 1, 9), generator.random(9))]
    manifest = json.dumps({"é": 'quoted "text"', "a": "b\n"}, ensure_ascii=False)
    written = set()
    for _ in range(20):
        save_contrasts(tmp_path / "contrast.safetensors", contrasts, manifest)
        written.add((tmp_path / "contrast.safetensors").read_bytes())
    assert len(written) == 1
    [again], read = load_contrasts(tmp_path / "contrast.safetensors")
    assert read == manifest
    np.testing.assert_array_equal(again.c_comply, contrasts[0].c_comply)
