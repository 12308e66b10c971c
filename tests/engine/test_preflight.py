"""Mistakes are told before any weight is there to read: every folder here has its weights taken away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from tiny_models import save_tiny

from engine.cli import main
from engine.data.onsets import OnsetPhrases
from engine.edits.contrasts import write_mask
from engine.models.loading import load_model, load_sketch
from engine.records.errors import InputError
from engine.results.store import Store
from engine.run.audit_plan import ScorePlan
from engine.run.refusal_plan import RefusalPlan
from engine.run.scoring import impossible
from engine.selectors import compute_scores
from engine.selectors.base import selector_ids
from engine.studies.conduct import fitting as fitting_studies
from engine.studies.refusal.refusal_inputs import RefusalInputs

pytestmark = pytest.mark.usefixtures("one_parser")

SMALL = ["--samples", "3", "--max-length", "16"]
WITHOUT_RULES = {"lrp", "relp", "consensus2"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: save_tiny(name, tmp_path_factory.mktemp(name)) for name in ("llama", "mistral", "olmo")}


@pytest.fixture
def bare(whole: dict[str, Path], tmp_path: Path) -> dict[str, Path]:
    """The same without weights: whatever is told of these is told from configuration and tokenizer."""
    found = {}
    for name, folder in whole.items():
        found[name] = tmp_path / name
        found[name].mkdir()
        for file in folder.iterdir():
            if file.suffix != ".safetensors":
                (found[name] / file.name).write_bytes(file.read_bytes())
    return found


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    lines = [
        {"risk": f"No {word} sat", "base": f"The {word} sat", "domain": domain, "split": split}
        for domain, words in (("hate", "cat dog"), ("crime", "mat out"))
        for word, split in zip(words.split(), ("calibration", "heldout"), strict=True)
    ]
    file = tmp_path / "pairs.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return file


def error(arguments: list[Any], capsys: pytest.CaptureFixture[str], code: int = 2) -> str:
    assert main([str(one) for one in arguments]) == code
    lines = capsys.readouterr().err.strip().splitlines()
    assert "weights; expected" not in lines[-1]
    return lines[-1]


def test_a_sketch_is_the_model_without_its_weights(whole: dict[str, Path], bare: dict[str, Path]) -> None:
    sketch, loaded = load_sketch(str(bare["llama"]), device="cpu"), load_model(str(whole["llama"]), device="cpu")
    assert all(parameter.is_meta for parameter in sketch.model.parameters())
    assert sketch.weights_hash == ""
    for name in ("rows", "config_hash", "tokenizer_hash", "dtype", "device", "architecture"):
        assert getattr(sketch, name) == getattr(loaded, name), name


def test_which_selectors_a_model_allows_is_known_from_its_shapes(
    whole: dict[str, Path], bare: dict[str, Path], tiny_windows: Any
) -> None:
    """Those that are told to be impossible are those that `compute_scores` refuses, and no others."""
    for family in whole:
        told = impossible(load_sketch(str(bare[family]), device="cpu"), selector_ids())
        assert set(told) == (WITHOUT_RULES if family == "olmo" else set())
    gained = compute_scores(load_model(str(whole["mistral"]), device="cpu"), sorted(WITHOUT_RULES), tiny_windows)
    assert all(len(scores) for scores in gained.values())
    loaded = load_model(str(whole["olmo"]), device="cpu")
    for selector in WITHOUT_RULES:
        with pytest.raises(InputError, match="no rules for OlmoForCausalLM"):
            compute_scores(loaded, [selector], tiny_windows)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--selectors", "lrp,wanda"], "lrp cannot be had of this model: lrp has no rules for OlmoForCausalLM"),
        (["--selectors", "magnitude,consensus2"], "; give --selectors magnitude"),
        (["--corpus", "nowhere.txt"], "there is no corpus file nowhere.txt"),
        (["--max-length", "100000"], "fewer than one window of 100000"),
    ],
)
@pytest.mark.parametrize("command", [["score"], ["sweep"], ["analyze", "depth"]])
def test_scores_that_cannot_be_had(
    bare: dict[str, Path], tiny_text: Path, tmp_path: Path, capsys: Any, command: list[str], more: list[str], said: str
) -> None:
    given = [command[0], bare["olmo"], *command[1:], "--corpus", tiny_text, *SMALL, "--store", tmp_path / "s", *more]
    assert said in error(given, capsys)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["sweep", "--eval-corpus", "EMPTY"], "corpus empty.txt is empty"),
        (["sweep", "--eval-length", "100000"], "fewer than one window of 100000"),
        (["analyze", "gap", "--eval-length", "100000"], "fewer than one window of 100000"),
        (["analyze", "controls", "--selectors", "wanda,random"], "this audit has no lrp, no ig, no consensus2"),
        (["analyze", "rank-distribution", "--selectors", "wanda"], "the rank distribution needs"),
        (["analyze", "protocols", "--selectors", "wanda"], "protocols puts selectors in order, got wanda alone"),
        (["analyze", "stability", "--sizes", "3,4"], "stability compares at least 2 calibration sizes"),
        (["analyze", "draws", "--sizes", "900,1000"], "draws"),
        (["analyze", "domain", "--domain-corpus", "EMPTY"], "corpus empty.txt is empty"),
        (["analyze", "downstream", "--downstream-tasks", "FOLDER"], "holds no downstream task"),
        (["analyze", "singles", "--eval-length", "100000"], "fewer than one window"),
        (["mask", "--selector", "random", "--rate", "0.1", "--out", "m", "--seed", "7"], "seed 7 was not scored"),
        (["mask", "--selector", "relp", "--rate", "0.1", "--out", "m"], "relp cannot be had of this model"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_analyses_that_cannot_be_done(
    bare: dict[str, Path], tiny_text: Path, tmp_path: Path, capsys: Any, command: list[str], said: str
) -> None:
    (tmp_path / "empty.txt").write_text(" ")
    (tmp_path / "tasks").mkdir()
    places = {"EMPTY": str(tmp_path / "empty.txt"), "FOLDER": str(tmp_path / "tasks")}
    words = [places.get(word, word) for word in command]
    given = [words[0], bare["olmo"], *words[1:], "--corpus", tiny_text, *SMALL, "--store", tmp_path / "store"]
    assert said in error(given, capsys)


def test_selectors_of_a_default_are_left_out_and_told(
    whole: dict[str, Path], tiny_text: Path, tmp_path: Path, capsys: Any
) -> None:
    out = tmp_path / "out"
    given = ["score", str(whole["olmo"]), "--corpus", str(tiny_text), *SMALL, "--store", str(tmp_path / "store")]
    assert main([*given, "--out", str(out), "--json"]) == 0
    captured = capsys.readouterr()
    assert set(json.loads(captured.out)["left_out"]) == {"lrp", "consensus2"}
    assert "left out lrp: lrp has no rules for OlmoForCausalLM" in captured.err
    assert set(load_file(out / "scores.safetensors")) == {"random", "magnitude", "wanda", "mean_activation", "ig"}


# Refusal


def refusal(model: Path, pairs: Path, text: Path, store: Path, *more: Any) -> list[str]:
    given = [
        *("refusal", "calibrate", model, "--pairs", pairs, "--corpus", text, *SMALL),
        *("--reply-tokens", "4", "--store", store, *more),
    ]
    return [str(one) for one in given]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--pairs", "nowhere.jsonl"], "there is no file nowhere.jsonl"),
        (["--domains", "hat"], "unknown domain 'hat'; did you mean 'hate'"),
        (["--selectors", "ig,lrp"], "lrp cannot be had of this model"),
        (["--corpus", "nowhere.txt"], "there is no corpus file nowhere.txt"),
        (["--reply-tokens", "1000"], "exceed the model's context"),
    ],
)
def test_calibrations_that_cannot_be_done(
    bare: dict[str, Path], pairs: Path, tiny_text: Path, tmp_path: Path, capsys: Any, more: list[str], said: str
) -> None:
    assert said in error(refusal(bare["olmo"], pairs, tiny_text, tmp_path / "store", *more), capsys)


def test_a_text_out_of_reach_stops_what_reads_it_and_not_calibrate(
    bare: dict[str, Path], pairs: Path, tiny_text: Path, tmp_path: Path
) -> None:
    sketch = load_sketch(str(bare["olmo"]), device="cpu")
    scoring = ScorePlan(corpus=str(tiny_text), samples=3, length=16)
    plan = RefusalPlan(pairs=str(pairs), scoring=scoring, eval_corpus="c4", reply_tokens=4)
    with Store(tmp_path / "store") as store:
        found, _, left_out, _ = fitting_studies(RefusalInputs, sketch, plan, ["structure"], store, named=False)
        with pytest.raises(InputError, match="c4"):
            fitting_studies(RefusalInputs, sketch, plan, ["sweep"], store, named=False)
        swapped = RefusalPlan(pairs=str(pairs), scoring=scoring, phrases=OnsetPhrases(["Sure"], ["No"]))
        with pytest.raises(InputError, match="swapped lists"):
            fitting_studies(RefusalInputs, sketch, swapped, ["structure"], store, named=False)
    assert found.selectors == ("ig", "mean_activation", "random")
    assert set(left_out) == {"lrp", "consensus2"}


# Edits from files


@pytest.mark.parametrize("command", [["refusal", "chat"], ["export", "--out", "OUT"]])
@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("nothing", "is not a mask file"),
        ("unsaid", "does not say how its rows were chosen"),
        ("outside", "row"),
        ("refusal", "a refusal edit is measured before it leaves; give --pairs"),
    ],
)
def test_masks_that_cannot_be_carried(
    bare: dict[str, Path], tmp_path: Path, capsys: Any, command: list[str], made: str, said: str
) -> None:
    file = tmp_path / "mask.safetensors"
    model = {"id": "tiny", "weights_hash": "0" * 64}
    specs = {"unsaid": {}, "outside": {"order": "lerf"}}
    cell = {"selector": "ig", "domain": "hate", "lambda": 0.5, "k": 0.01}
    rows = np.array([1, 10**6] if made == "outside" else [1, 2])
    if made == "nothing":
        file.write_bytes(b"not a mask")
    else:
        write_mask(file, rows, model, specs.get(made, cell))
    words = [str(tmp_path / "out") if word == "OUT" else word for word in command]
    split = 2 if command[0] == "refusal" else 1
    given = [*words[:split], bare["llama"], *words[split:], "--mask", file, "--store", tmp_path / "store"]
    assert said in error(given, capsys)
