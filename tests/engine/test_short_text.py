"""A text that holds fewer windows than were asked for is said in the output, the manifest and the numbers' foot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dashboard.state.results import describe_run
from engine.cli import main
from engine.models.loading import LoadedModel
from engine.records.manifest import read_manifest, shortfalls

MANY = "99999"


@pytest.fixture
def call(tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Runs a command on the tiny model and text; returns its JSON and what it said on stderr."""

    def run(command: str, *more: str, out: str = "run") -> tuple[dict, str]:
        texts = ("--corpus", str(tiny_text), "--max-length", "16", "--store", str(tmp_path / "store"))
        assert main([command, tiny_llama.id, *more, *texts, "--out", str(tmp_path / out), "--json"]) == 0
        said = capsys.readouterr()
        return json.loads(said.out), said.err

    return run


def test_the_calibration_text_of_scores(call, tiny_text: Path, tmp_path: Path) -> None:
    answer, said = call("score", "--selectors", "wanda", "--samples", MANY)
    entry = read_manifest(tmp_path / "run")["files"]["scores.safetensors"]
    found = entry["spec"]["calibration"]["samples"]
    sentence = f"the calibration text {tiny_text.name} is too short: {found:,} of the 99,999 windows of 16 tokens"
    assert entry["notes"][0].startswith(sentence)
    assert answer["manifest"]["notes"] == entry["notes"]
    assert f"note: {sentence}" in said
    assert sentence in describe_run(read_manifest(tmp_path / "run"), entry)


def test_the_evaluation_text_of_a_sweep_and_of_an_analysis(call, tiny_text: Path) -> None:
    evaluation = ("--eval-corpus", str(tiny_text), "--eval-length", "16", "--eval-samples", MANY)
    few = ("--selectors", "random,magnitude", "--seeds", "42", "--samples", "4", *evaluation)
    for command in (("sweep", "--rates", "0,0.3"), ("analyze", "gap")):
        answer, said = call(*command, *few, out=command[0])
        (note,) = answer["notes"]
        assert note.startswith(f"the evaluation text {tiny_text.name} is too short: ")
        assert f"note: {note}" in said
    assert note.endswith("(read for gap.parquet)")


def test_the_text_behind_a_mask(call) -> None:
    answer, said = call("mask", "--selector", "wanda", "--rate", "0.3", "--samples", MANY, out="mask.safetensors")
    assert "is too short" in answer["notes"][0]
    assert answer["notes"][0] in said


def test_the_language_model_scores_of_a_refusal_run(tiny_text: Path, tmp_path: Path, capsys) -> None:
    few = ["--selectors", "mean_activation", "--domains", "hate", "--pairs-per-domain", "2", "--samples", MANY]
    where = ["--corpus", str(tiny_text), "--max-length", "32", "--out", str(tmp_path), "--store", str(tmp_path / "s")]
    assert main(["refusal", "calibrate", "demo", *few, *where]) == 0
    record = read_manifest(tmp_path)["files"]["contrast.safetensors"]["spec"]["lm_scores"]
    assert record["samples"] < record["samples_requested"] == int(MANY)
    assert f"{record['samples']:,} of the 99,999 windows of 32 tokens" in capsys.readouterr().err.replace("\n", " ")


def test_each_short_text_once_wherever_it_is_recorded() -> None:
    short = {"corpus": "a", "role": "evaluation", "samples": 3, "samples_requested": 8, "length": 16}
    spec = {"scores": {"calibration": {**short, "samples": 8}}, "more": [short, short], "evaluation": short}
    assert shortfalls(spec) == [
        "the evaluation text a is too short: 3 of the 8 windows of 16 tokens that were asked for; give a longer text, "
        "or ask for fewer"
    ]
    assert shortfalls({"evaluation": {"samples": 3, "samples_requested": None}}) == []
