"""The stages from the command line: one after the other on the shipped model, on CAST, and their clear errors."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from refusal_helpers import count_generations
from stage_options import read_by

from engine.cli import main
from engine.edits.contrasts import load_contrasts
from engine.records.hashing import file_sha256
from engine.records.manifest import read_manifest

PROMPTS = ["--selectors", "lrp,random", "--domains", "hate,crime", "--pairs-per-domain", "4"]
SCORES = ["--samples", "4", "--max-length", "32", "--reply-tokens", "8"]
GRID = ["--lambdas", "0.5", "--ks", "1%,0.03", "--eval-samples", "2", "--eval-length", "64"]
GRID += ["--longer-replies", "1"]  # eight tokens leave much open
HELDOUT = ["--heldout-pairs", "3"]


def answer(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(arguments) == 2
    return capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.long
def test_the_stages_build_on_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    out = tmp_path / "out"
    common = ["demo", *PROMPTS, *SCORES, "--store", str(tmp_path / "store"), "--out", str(out)]
    generated = count_generations(monkeypatch)

    calibrated = answer(["refusal", "calibrate", *common], capsys)
    contrasts, _ = load_contrasts(out / "contrast.safetensors")
    assert len(contrasts) == len(calibrated["contrasts"]) == 4
    assert calibrated["onsets"]["refusal"]["tokens"]
    assert calibrated["pairs"]["hate"]["pairs"] == 4

    swept = answer(["refusal", "sweep", *common, *GRID], capsys)["refusal_sweep"]
    assert len(swept) == 2 * (3 + 3)
    assert {row["k"] for row in swept} == {0.0, 0.01, 0.03}
    after_sweep = sum(generated)
    assert after_sweep == 2 * (1 + 2 + 2)

    selected = answer(["refusal", "select", *common, *GRID], capsys)["operating_points"]
    assert [(one["selector"], one["domain"]) for one in selected] == [
        ("lrp", "hate"), ("random", "hate"), ("lrp", "crime"), ("random", "crime"),
    ]  # fmt: skip
    assert sum(generated) == after_sweep

    controlled = answer(["refusal", "control", *common, *GRID, *HELDOUT, "--seeds", "1,2"], capsys)
    chosen = sum(one["point"] is not None for one in selected)
    assert len(controlled["controls"]) == chosen * 2 * 2
    few = ["--selectors", "lrp", "--domains", "hate", "--draws", "2"]
    drawn = answer(["refusal", "draws", *common, *GRID, *HELDOUT, *few], capsys)
    assert [line["draws"] for line in drawn["specificity"]] == [2]
    assert [line["seed"] for line in drawn["draws"]] == [0, 1]
    evaluated = answer(["refusal", "evaluate", *common, *GRID, *HELDOUT], capsys)
    assert {row["prompts"] for row in evaluated["transfer"]} == {"heldout"}
    assert len(answer(["refusal", "structure", *common], capsys)["signal_density"]) == 4
    stable = answer(["refusal", "stability", *common, *GRID, "--splits", "2"], capsys)["mask_stability"]
    of_pairs = [one for one in selected if one["point"] is not None and one["selector"] != "random"]
    assert len(stable) == 2 * len(of_pairs) > 0
    composed = answer(["refusal", "compose", *common, *GRID, *HELDOUT], capsys)["composed"]
    assert {row["evaluated_domain"] for row in composed} == {"hate", "crime"}

    points = pl.read_parquet(out / "operating_points.parquet")
    for column in ("calibration_malign", "edited_malign", "control_malign", "gain", "neighbour_malign"):
        assert column in points.columns  # each stage kept what the one before had written
    manifest = read_manifest(out)["files"]
    assert set(manifest) == {path.name for path in out.iterdir()} - {"manifest.json"}
    for name, entry in manifest.items():
        assert entry["sha256"] == file_sha256(out / name)
    assert manifest["operating_points.parquet"]["spec"]["control_seeds"] == [1, 2]
    assert "control_seeds" not in manifest["transfer.parquet"]["spec"]
    answer(["refusal", "select", *common, *GRID], capsys)
    assert pl.read_parquet(out / "operating_points.parquet").columns == points.columns
    assert read_manifest(out)["files"]["operating_points.parquet"]["spec"]["control_seeds"] == [1, 2]
    spec = manifest["refusal_sweep.parquet"]["spec"]
    assert (spec["reply_tokens"], spec["judge"]) == (8, "embedded")
    assert str(tmp_path) not in json.dumps(manifest)


@pytest.mark.long
def test_people_get_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    common = ["--selectors", "random", "--domains", "hate", "--pairs-per-domain", "2", *SCORES, *GRID, *HELDOUT]
    store = ["--store", str(tmp_path / "store")]
    for stage, words in (
        ("sweep", "3 cells"),
        ("select", "operating points"),
        ("control", "gain"),
        ("evaluate", "heldout, malign"),
        ("run", "refusal on held-out pairs"),
    ):
        assert main(["refusal", stage, "demo", *read_by(stage, common), *store]) == 0
        assert words in capsys.readouterr().out


def test_wrong_input_is_a_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    store = ["--store", str(tmp_path)]
    assert "give --pairs FILE" in error(["refusal", "sweep", "gpt2", *store], capsys)
    assert "did you mean 'lrp'" in error(["refusal", "sweep", "demo", "--selectors", "lpr", *store], capsys)
    assert "did you mean 'hate'" in error(
        ["refusal", "calibrate", "demo", "--domains", "hat", "--selectors", "random", *store], capsys
    )
    assert "write 0.2,0.5" in error(["refusal", "sweep", "demo", "--lambdas", "a", *store], capsys)
    assert "there is no file" in error(["refusal", "sweep", "demo", "--pairs", "absent.jsonl", *store], capsys)
    assert "unknown utility task" in error(["refusal", "evaluate", "demo", "--utility", "mmlx", *store], capsys)
    for seeds in ("-1", "1,1"):
        message = error(["refusal", "control", "demo", f"--seeds={seeds}", *store], capsys)
        assert "seeds of controls must be 0 or more, each once" in message
    assert "unknown prompt set" in error(["refusal", "evaluate", "demo", "--sets", "mmlx", *store], capsys)
    phrases = tmp_path / "phrases.json"
    for content, message in (("{", "cannot be read as JSON"), ('{"refusal": "x"}', "no two lists")):
        phrases.write_text(content, encoding="utf-8")
        assert message in error(["refusal", "calibrate", "demo", "--phrases", str(phrases), *store], capsys)


def test_phrases_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    phrases = tmp_path / "phrases.json"
    phrases.write_text('{"refusal": ["No"], "compliance": ["Sure", "Yes"]}', encoding="utf-8")
    common = ["demo", "--selectors", "random", "--domains", "hate", "--pairs-per-domain", "2", *SCORES]
    found = answer(["refusal", "calibrate", *common, "--phrases", str(phrases), "--store", str(tmp_path / "s")], capsys)
    assert found["onsets"]["compliance"]["phrases"] == ["Sure", "Yes"]
    assert found["onsets"]["refusal"]["text"] == ["No"]
