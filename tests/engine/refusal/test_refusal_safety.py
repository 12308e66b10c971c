"""Every route to a reversed mask: refused with a clear message, or without any effect that lowers refusal.

Routes through the onset lists, the sides of the pairs and the language-model scores at the level of Algorithm 1
are in test_contrast.py; here are those through files, commands and the Python API.
"""

from __future__ import annotations

import dataclasses
import json
import operator
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusal_helpers import small_run
from safetensors.numpy import load_file, save_file

from engine.behaviour import measured_scores
from engine.cli import main
from engine.errors import InputError
from engine.masks import removed_rows
from engine.models import LoadedModel
from engine.ranking import removal_order
from engine.refusal.contrast import Contrast, load_contrasts, refusal_mask, refusal_score, save_contrasts
from engine.refusal.grid import sweep_refusal
from engine.refusal.onsets import ONSET_PHRASES
from engine.refusal.operating_point import operating_points
from engine.refusal.plan import RefusalPlan
from engine.refusal.run import UNEDITED
from engine.store import Store
from precomputed import demo_dir

INSTALLS_ONLY = "only installs refusal"
CONTRASTS = demo_dir() / "results" / "contrast.safetensors"


@pytest.fixture(scope="module")
def honest() -> Contrast:
    contrasts, _ = load_contrasts(CONTRASTS)
    return next(one for one in contrasts if (one.selector, one.domain) == ("consensus2", "hate"))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store") as store:
        yield store


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that a command ends with; its exit code must be 2."""
    assert main(arguments) == 2
    return capsys.readouterr().err.strip().splitlines()[-1]


SMALL = [
    "--domains",
    "hate",
    "--selectors",
    "lrp",
    "--pairs-per-domain",
    "12",
    "--samples",
    "4",
    "--max-length",
    "32",
]


# --- numbers ---


@pytest.mark.parametrize("stage", ["sweep", "select", "control", "evaluate", "compose"])
@pytest.mark.parametrize("wrong", ["--lambdas=-0.5", "--lambdas=0.5,-0.1", "--lambdas=nan", "--lambdas=5", "--ks=-0.02",
                                   "--ks=0", "--ks=100%", "--ks=-2%"])  # fmt: skip
def test_commands_take_no_negative_lambda_or_k(
    stage: str, wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    message = refused(["refusal", stage, "demo", "--store", str(tmp_path), wrong], capsys)
    assert INSTALLS_ONLY in message


@pytest.mark.parametrize("wrong", [{"lambdas": (0.5, -0.5)}, {"ks": (-0.02,)}, {"ks": (1.5,)}])
def test_a_plan_takes_no_negative_lambda_or_k(wrong: dict[str, Any]):
    with pytest.raises(InputError, match=INSTALLS_ONLY):
        RefusalPlan(**wrong)


# --- scores ---

REVERSALS: dict[str, Callable[[Any], Any]] = {
    "negated": operator.neg,
    "times minus one": lambda scores: scores * -1,
    "one minus": lambda scores: 1 - scores,
    "in place of a copy": lambda scores: np.negative(scores.copy()),
    "reversed order of rows": lambda scores: scores[::-1],
    "negated as a plain array": lambda scores: -np.asarray(scores),
    "a plain copy": lambda scores: np.array(np.asarray(scores)),
}


@pytest.mark.parametrize("name", REVERSALS)
def test_no_contrast_is_made_from_a_reversed_one(honest: Contrast, name: str):
    reversed_scores = REVERSALS[name](honest.c_comply)
    with pytest.raises(InputError, match=INSTALLS_ONLY):
        dataclasses.replace(honest, c_comply=reversed_scores)
    with pytest.raises(InputError, match=INSTALLS_ONLY):
        Contrast("lrp", "hate", reversed_scores, honest.lm_rank)


@pytest.mark.parametrize("name", ["c_comply", "lm_rank"])
def test_the_scores_cannot_be_written_to(honest: Contrast, name: str):
    values = getattr(honest, name)
    with pytest.raises(ValueError, match="read-only"):
        values[:] = 0
    with pytest.raises(ValueError, match="WRITEABLE"):
        values.setflags(write=True)
    base = values
    while isinstance(base, np.ndarray):
        assert not base.flags.writeable
        base = base.base
    with pytest.raises(dataclasses.FrozenInstanceError):
        honest.c_comply = honest.lm_rank  # type: ignore[misc]


@pytest.mark.parametrize("order", ["morf", "lerf"])
def test_a_behaviour_score_has_no_removal_order(honest: Contrast, order: str):
    scores = [honest.c_comply, -honest.c_comply, refusal_score(honest, 0.5), honest.c_comply[:100]]
    for one in scores:
        with pytest.raises(InputError, match=INSTALLS_ONLY):
            removed_rows(one, order, 0.02)
        with pytest.raises(InputError, match=INSTALLS_ONLY):
            removal_order(one, order)


def test_a_behaviour_score_is_no_protection(honest: Contrast):
    """S = C - lambda r(C), with the contrast itself as what the language model is said to need."""
    with pytest.raises(InputError, match=INSTALLS_ONLY):
        dataclasses.replace(honest, lm_rank=(honest.c_comply + 1) / 2)
    chosen = np.zeros(honest.lm_rank.size, np.float32)  # what is not to be removed would be protected
    with pytest.raises(InputError, match=INSTALLS_ONLY):
        dataclasses.replace(honest, lm_rank=chosen)


def test_measured_values_still_behave_as_numbers(honest: Contrast):
    assert isinstance(honest.c_comply.max(), np.floating)
    assert float(np.abs(honest.c_comply).mean()) > 0
    assert np.asarray(honest.c_comply).dtype == np.float32


# --- files ---


def test_a_contrast_file_with_negated_numbers_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    from safetensors import safe_open

    with safe_open(CONTRASTS, framework="numpy") as file:
        metadata = file.metadata()
    arrays = load_file(CONTRASTS)
    for name in arrays:
        if name.endswith("c_comply"):
            arrays[name] = -arrays[name]
    negated = tmp_path / "contrast.safetensors"
    save_file(arrays, negated, metadata=metadata)
    with pytest.raises(InputError, match=INSTALLS_ONLY):
        load_contrasts(negated)
    save_file(arrays, negated, metadata={"manifest": metadata["manifest"]})
    with pytest.raises(InputError, match="no contrast file"):
        load_contrasts(negated)
    edit = [
        "--contrast",
        str(negated),
        "--selector",
        "lrp",
        "--domain",
        "hate",
        "--lambda",
        "0.5",
        "--k",
        "0.02",
    ]
    save_file(arrays, negated, metadata=metadata)
    assert INSTALLS_ONLY in refused(["export", "demo", *edit, "--out", str(tmp_path / "model")], capsys)


def test_negated_numbers_cannot_be_saved_either(honest: Contrast, tmp_path: Path):
    with pytest.raises(InputError, match=INSTALLS_ONLY):
        save_contrasts(tmp_path / "c", [dataclasses.replace(honest, c_comply=-honest.c_comply)], "{}")


def test_a_changed_array_in_the_store_is_calibrated_again(demo: LoadedModel, store: Store):
    honest = small_run(demo, store, selectors=("lrp",)).contrasts
    for path in (store.folder / "arrays").iterdir():
        arrays = load_file(path)
        if "c_comply" in arrays:
            save_file({**arrays, "c_comply": -arrays["c_comply"]}, path)
    for one, again in zip(honest, small_run(demo, store, selectors=("lrp",)).contrasts, strict=True):
        np.testing.assert_array_equal(one.c_comply, again.c_comply)


def pairs_file(folder: Path, change: Callable[[str, str], tuple[str, str]]) -> Path:
    """Shipped pairs of hate, both splits, with their two sides changed."""
    lines = []
    for line in (demo_dir() / "prompts.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if entry["domain"] == "hate":
            entry["risk"], entry["base"] = change(entry["risk"], entry["base"])
            lines.append(json.dumps(entry))
    path = folder / "pairs.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "change", [lambda risk, base: (base, risk), lambda risk, base: (risk, risk)], ids=["swapped", "same"]
)
@pytest.mark.parametrize("stage", ["calibrate", "sweep", "structure"])
def test_swapped_or_equal_sides_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[..., Any], stage: str
):
    pairs = pairs_file(tmp_path, change)
    arguments = ["refusal", stage, "demo", "--pairs", str(pairs), "--store", str(tmp_path / "s"), *SMALL]
    assert INSTALLS_ONLY in refused(arguments, capsys)


def test_one_swapped_pair_is_refused_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pairs = pairs_file(tmp_path, lambda risk, base: (base, risk))
    arguments = [
        "refusal",
        "calibrate",
        "demo",
        "--pairs",
        str(pairs),
        "--store",
        str(tmp_path / "s"),
        *SMALL,
    ]
    arguments[arguments.index("--pairs-per-domain") + 1] = "1"
    assert "give more pairs" in refused(arguments, capsys)


def test_swapped_sides_show_in_the_replies_too(demo: LoadedModel, store: Store):
    """A contrast that was calibrated on right pairs, swept on swapped ones: the unedited model gives them away."""
    run = small_run(demo, store, domains=("hate",), selectors=("lrp",), calibration_pairs=24)
    swapped = {"hate": [pair._replace(risk=pair.base, base=pair.risk) for pair in run.calibration["hate"]]}
    assert run.rates(UNEDITED, run.calibration["hate"]).malign.mean > 0.3
    with pytest.raises(InputError, match=INSTALLS_ONLY):
        sweep_refusal(run, run.contrasts, swapped)


def test_swapped_phrase_lists_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    phrases = tmp_path / "phrases.json"
    lists = {"refusal": list(ONSET_PHRASES.compliance), "compliance": list(ONSET_PHRASES.refusal)}
    phrases.write_text(json.dumps(lists), encoding="utf-8")
    arguments = [
        "refusal",
        "calibrate",
        "demo",
        "--phrases",
        str(phrases),
        "--store",
        str(tmp_path / "s"),
        *SMALL,
    ]
    assert INSTALLS_ONLY in refused(arguments, capsys)


# --- the `mask` command, and what is left ---


@pytest.mark.parametrize("selector", ["lrp/hate", "c_comply", "contrast", "refusal"])
def test_the_mask_command_knows_no_behaviour_score(
    selector: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    arguments = ["mask", "demo", "--selector", selector, "--order", "morf", "--rate", "2%"]
    message = refused([*arguments, "--out", str(tmp_path / "m"), "--store", str(tmp_path / "s")], capsys)
    assert "unknown selector" in message


def test_a_reversed_contrast_finds_no_operating_point(demo: LoadedModel, honest: Contrast, store: Store):
    """The last line of defence: numbers negated outside of this software lower refusal, and are never chosen."""
    run = small_run(
        demo, store, domains=("hate",), calibration_pairs=24, ks=(0.05,), lambdas=(0.5,), reply_tokens=25
    )
    plain = np.array(np.asarray(honest.c_comply))
    turned = Contrast(
        "consensus2", "hate", measured_scores(-plain), honest.lm_rank
    )  # the seal itself is forged
    pairs = run.calibration["hate"]
    before = run.rates(UNEDITED, pairs).malign.mean
    assert run.rates(refusal_mask(turned, 0.5, 0.05), pairs).malign.mean < before - 0.2
    table = sweep_refusal(run, [turned], {"hate": pairs})
    assert not table.filter(table["k"] > 0)["feasible"].any()
    assert operating_points(table) == {("consensus2", "hate"): None}
