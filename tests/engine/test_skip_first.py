"""`--skip-first N`: the first N positions of each window are in no mean over tokens, and nothing else changes."""

import json
from pathlib import Path
from typing import Any

import pytest
import reference
import torch
from reference import close
from tiny_models import in_float64

from dashboard.state.results import describe_run
from engine.cli import main
from engine.data.corpora import Windows, windows
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.records.hashing import cache_key
from engine.records.manifest import read_manifest
from engine.results.store import Store
from engine.run.audit_plan import ScorePlan
from engine.run.recorded_plan import score_plan
from engine.run.scoring import score_at_sizes, score_model
from engine.selectors import available_selectors, compute_scores
from engine.selectors.base import formula
from engine.selectors.scoring_run import nested_scores

BY_DATA = [info.id for info in available_selectors() if not info.data_free]
PLAIN = ["wanda", "mean_activation", "activation_std", "flap", "ria"]
BY_GRADIENT = ["grad_x_input", "fisher", "gradient_norm", "lrp", "relp", "ig", "ig_conductance"]
SIGNED = {"taylor": abs, "atp_signed": lambda value: -value}


@pytest.mark.first_run("llama-4")
@pytest.mark.parametrize("skip", [1, 4])
@pytest.mark.parametrize("family", ["llama", pytest.param("qwen3", marks=pytest.mark.long)])
def test_scores_are_the_slow_loops_over_the_other_positions(
    family: str, skip: int, tiny_llama: LoadedModel, tiny_windows: Windows
) -> None:
    loaded, few = in_float64(tiny_llama, family), tiny_windows.first(2)
    given: tuple[Any, ...] = (loaded.model, loaded.rows, few.input_ids)
    scores = compute_scores(loaded, BY_DATA, few, batch_size=1, skip_first=skip)
    for selector in (*PLAIN, *BY_GRADIENT):
        close(scores[selector], getattr(reference, selector)(*given, skip=skip))
    signed = reference.signed(*given, skip=skip)
    for selector, of in SIGNED.items():
        close(scores[selector], [of(value) for value in signed])
    assert {*PLAIN, *BY_GRADIENT, *SIGNED, "consensus2"} == set(BY_DATA)


def test_none_is_what_it_was_and_data_free_scores_never_change(tiny_llama: LoadedModel, tiny_windows: Windows) -> None:
    every = [*BY_DATA, "magnitude", "weight_norm", "random"]
    usual, none = compute_scores(tiny_llama, every, tiny_windows), compute_scores(
        tiny_llama, every, tiny_windows, skip_first=0
    )  # fmt: skip
    skipped = compute_scores(tiny_llama, every, tiny_windows, skip_first=3)
    for name in every:
        assert torch.equal(usual[name], none[name])
        assert torch.equal(usual[name], skipped[name]) is (name not in BY_DATA), name


def plan(text: Path, **changes: Any) -> ScorePlan:
    return ScorePlan(("wanda", "magnitude"), corpus=str(text), samples=4, length=16, **changes)


def test_nested_sizes_are_kept_apart_too(tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path) -> None:
    tokens = windows(str(tiny_text), tiny_llama.tokenizer, role="calibration", samples=4, length=16)
    with Store(tmp_path) as store:
        found = [
            score_at_sizes(
                tiny_llama, plan(tiny_text, skip_first=skip), ["wanda"], tokens, [2, 4], store=store
            )[2]["wanda"]
            for skip in (0, 3, 0)
        ]  # fmt: skip
    assert torch.equal(found[0], found[2])
    assert not torch.equal(found[0], found[1])


def test_the_command_writes_it_down_and_a_record_gives_it_back(
    tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["score", tiny_llama.id, "--selectors", "wanda", "--corpus", str(tiny_text), "--samples", "4",
             "--max-length", "16", "--store", str(tmp_path / "store")]  # fmt: skip
    assert main([*words, "--skip-first", "2", "--out", str(tmp_path / "two")]) == 0
    assert main([*words, "--out", str(tmp_path / "none")]) == 0
    specs = [read_manifest(tmp_path / name)["files"]["scores.safetensors"]["spec"] for name in ("two", "none")]
    assert [spec.get("skip_first") for spec in specs] == [2, None]
    told = [describe_run({}, {"spec": spec}) for spec in (*specs, {"scores": specs[0]})]
    said = "scores without the first 2 positions of each window"
    assert [said in one for one in told] == [True, False, True]
    assert [score_plan(json.loads(json.dumps(spec)), [tiny_text]).skip_first for spec in specs] == [2, 0]
    capsys.readouterr()
    assert main(["replay", str(tmp_path / "two"), "--text", str(tiny_text)]) == 0


@pytest.mark.parametrize("skip", [15, -1])
def test_a_window_of_which_nothing_is_left_is_an_error(
    skip: int, tiny_llama: LoadedModel, tiny_windows: Windows, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    says = "skip at most 14" if skip > 0 else "at least 0"
    with pytest.raises(InputError, match=says):
        compute_scores(tiny_llama, ["wanda"], tiny_windows, skip_first=skip)
    with pytest.raises(InputError, match=says):
        nested_scores(tiny_llama, ["wanda"], tiny_windows, [1, 2], skip_first=skip)
    assert main(["score", tiny_llama.id, "--max-length", "16", f"--skip-first={skip}", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_old_stores_stay_readable_and_keys_differ(tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path) -> None:
    """Of 0 the key is the one of before there was a choice, written out here."""
    tokens = windows(str(tiny_text), tiny_llama.tokenizer, role="calibration", samples=4, length=16)
    before = cache_key("scores", {
        "model": tiny_llama.numeric_fingerprint, "rows": tiny_llama.rows.signature(),
        "selector": formula("wanda")["formulas"], "tokens": tokens.token_hash, "objective": "loss", "batch_size": None,
    })  # fmt: skip
    kept = torch.arange(tiny_llama.rows.n_rows).float()
    with Store(tmp_path) as store:
        store.save_arrays(before, {"scores": kept.numpy()}, {"selector": "wanda"})
        usual = score_model(tiny_llama, plan(tiny_text), store=store)
        skipping = score_model(tiny_llama, plan(tiny_text, skip_first=1), store=store)
        again = score_model(tiny_llama, plan(tiny_text, skip_first=1), store=store)
    assert torch.equal(usual.scores["wanda"], kept)
    assert not torch.equal(skipping.scores["wanda"], kept)
    assert torch.equal(skipping.scores["wanda"], again.scores["wanda"])
    assert "skip_first" not in usual.spec
    assert skipping.spec["skip_first"] == 1
