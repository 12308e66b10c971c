"""`replay` of refusal tables: the numbers of stages hold, a changed one is named, other prompts or a judge are told."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from manifests import edited, resealed
from stage_options import read_by
from test_refusal_commands import GRID, HELDOUT, PROMPTS, SCORES

from engine.cli import main
from engine.edits.contrasts import read_mask, write_mask
from engine.records.files import write_parquet
from engine.records.manifest import MANIFEST, read_manifest

pytestmark = pytest.mark.long  # replies to every cell of a grid, twice

Call = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small stages on the shipped model, as a person runs them."""
    out, store = tmp_path_factory.mktemp("made"), tmp_path_factory.mktemp("store")
    plan = [*PROMPTS[:2], "--domains", "hate", *PROMPTS[4:], *HELDOUT, *SCORES, *GRID, "--seeds", "1", "--splits", "1"]
    for stage in ("calibrate", "select", "control", "sweep", "structure", "stability"):
        assert main(["refusal", stage, "demo", *read_by(stage, plan), "--store", str(store), "--out", str(out)]) == 0
    return out


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "run")


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    def run(*arguments: Any) -> tuple[int, dict[str, Any], str]:
        capsys.readouterr()
        code = main([*map(str, arguments), "--json"])
        said = capsys.readouterr()
        return code, json.loads(said.out) if said.out.strip() else {}, " ".join(said.err.split())

    return run


def rewritten(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Every spec of a folder, changed."""
    with edited(folder) as manifest:
        for entry in manifest["files"].values():
            change(entry["spec"])


def test_all_stages_hold_and_the_folder_is_left_alone(call: Call, made: Path) -> None:
    before = {path.name: path.read_bytes() for path in made.iterdir()}
    code, found, err = call("replay", made / MANIFEST)
    assert (code, err) == (0, ""), [one["sentences"] for one in found["tables"]]
    assert found["holds"]
    compared = {one["file"] for one in found["tables"]}
    tables = {name for name in before if name.endswith(".parquet")}
    assert compared == tables | {"masks of operating points", "contrast.safetensors"}
    assert {
        "operating_points.parquet", "refusal_sweep.parquet", "refusal_controls.parquet", "mask_stability.parquet",
    } <= (tables)  # fmt: skip
    assert all(one["values"] for one in found["tables"])
    assert found["left_out"] == {}
    assert {path.name: path.read_bytes() for path in made.iterdir()} == before


def test_a_changed_rate_is_found(call: Call, folder: Path) -> None:
    path = folder / "refusal_sweep.parquet"
    table = pl.read_parquet(path)
    place = table["nll"].arg_max()
    assert place is not None
    values = table["nll"].to_list()
    values[place] *= 1.01
    write_parquet(path, table.with_columns(pl.Series("nll", values)))
    resealed(folder, path.name)
    code, found, _ = call("replay", folder, "--only", "refusal_sweep")
    assert code == 1
    (sweep,) = (one for one in found["tables"] if one["file"] == path.name)
    (sentence,) = sweep["sentences"]
    assert f"stored {values[place]}" in sentence
    assert {one["file"] for one in found["tables"]} == {path.name, "contrast.safetensors"}


def test_a_changed_mask_is_found(call: Call, folder: Path) -> None:
    path = sorted(folder.glob("mask-lrp-*.safetensors"))[0]
    rows, manifest = read_mask(path, 10**9)
    write_mask(path, rows + 1, manifest["model"], manifest["spec"])
    code, found, _ = call("replay", folder, "--only", "operating_points")
    assert code == 1
    (masks,) = (one for one in found["tables"] if one["file"] == "masks of operating points")
    assert not masks["holds"]
    assert path.name in masks["sentences"][0]


def test_other_prompts_phrases_or_judges_are_told(call: Call, folder: Path) -> None:
    def other(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
        return lambda spec: spec.update({name: value} if name in spec else {})

    onsets = read_manifest(folder)["files"]["refusal_sweep.parquet"]["spec"]["onset_tokens"]
    rewritten(folder, other("onset_tokens", {**onsets, "refusal": [1, 2]}))
    code, _, err = call("replay", folder, "--only", "refusal_sweep")
    assert code == 2
    assert "onset_tokens is not what it was" in err
    rewritten(folder, other("onset_tokens", onsets))
    rewritten(folder, other("judge_version", "0" * 12))
    code, _, err = call("replay", folder, "--only", "refusal_controls")
    assert code == 2
    assert "another judge's rates say nothing about these" in err
    code, _, err = call("replay", folder)  # everything is left out, for that reason
    assert code == 2
    assert "nothing could be run again" in err
    assert "another judge's" in err
