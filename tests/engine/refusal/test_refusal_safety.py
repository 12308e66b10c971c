"""What is checked so that edits install refusal: at commands, plans, files and the Python API, with a clear message.

The onset lists, the sides of the pairs and the language-model scores at the level of Algorithm 1 are in
test_contrast.py. Nothing here stops code that negates numbers; what it makes is measured, and never chosen.
"""

import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from harmless import harmless
from refusal_helpers import rates, small_run, swept
from safetensors.numpy import load_file, save_file

from engine.cli import main
from engine.data.onsets import ONSET_PHRASES
from engine.edits.contrasts import Contrast, edit_from_contrast, load_contrasts, refusal_mask, refusal_masks, write_mask
from engine.edits.edit import NO_ROWS, Edit, edit_of
from engine.edits.edit_effect import Change, Effect
from engine.edits.exporting import export_masked
from engine.models.checkpoints import find_checkpoint
from engine.models.loading import LoadedModel, load_model
from engine.records.errors import InputError
from engine.results.store import Store
from engine.run.refusal_plan import RefusalPlan
from engine.studies.refusal.grid import grid
from engine.studies.refusal.operating_point import operating_points
from precomputed import demo_dir

pytestmark = pytest.mark.usefixtures("one_parser")

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


SMALL = ["--domains", "hate", "--selectors", "lrp", "--pairs-per-domain", "12", "--samples", "4", "--max-length", "32"]


# --- numbers ---


@pytest.mark.parametrize("stage", ["sweep", "select", "control", "evaluate", "compose"])
@pytest.mark.parametrize("wrong", ["--lambdas=-0.5", "--lambdas=0.5,-0.1", "--lambdas=nan", "--lambdas=5", "--ks=-0.02",
                                   "--ks=0", "--ks=100%", "--ks=-2%"])  # fmt: skip
def test_commands_take_no_negative_lambda_or_k(
    stage: str, wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    message = refused(["refusal", stage, "demo", "--store", str(tmp_path), wrong], capsys)
    assert (INSTALLS_ONLY if wrong != "--lambdas=nan" else "must be a number") in message


@pytest.mark.parametrize("wrong", [{"lambdas": (0.5, -0.5)}, {"ks": (-0.02,)}, {"ks": (1.5,)}])
def test_a_plan_takes_no_negative_lambda_or_k(wrong: dict[str, Any]):
    with pytest.raises(InputError, match=INSTALLS_ONLY):
        RefusalPlan(**wrong)


# --- scores ---


@pytest.mark.parametrize("wrong", [{"c_comply": 2.0}, {"c_comply": np.nan}, {"lm_rank": -0.5}, {"lm_rank": np.inf}])
def test_numbers_that_no_calibration_gives_are_refused(honest: Contrast, wrong: dict[str, float]):
    [(name, value)] = wrong.items()
    changed = getattr(honest, name).copy()
    changed[7] = value
    with pytest.raises(InputError, match=INSTALLS_ONLY):
        dataclasses.replace(honest, **{name: changed})


@pytest.mark.parametrize(("lam", "k"), [(-0.5, 0.02), (1.5, 0.02), (0.5, 0.0), (0.5, -0.02), (0.5, 1.0)])
def test_every_way_to_a_mask_checks_lambda_and_k(demo: LoadedModel, honest: Contrast, lam: float, k: float):
    run: Any = SimpleNamespace(edit=lambda mask: mask)
    ways: list[Callable[[], Any]] = [
        lambda: refusal_mask(honest, lam, k),
        lambda: refusal_masks(honest, lam, [0.01, k]),
        lambda: list(grid(run, honest, [0.2, lam], [0.01, k])),
        lambda: edit_from_contrast(CONTRASTS, "lrp", "hate", lam, k, demo.rows.n_rows, demo.weights_hash),
    ]
    for way in ways:
        with pytest.raises(InputError, match=INSTALLS_ONLY):
            way()


# --- files ---


def test_a_contrast_file_whose_numbers_changed_is_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    from safetensors import safe_open

    with safe_open(CONTRASTS, framework="numpy") as file:
        metadata = file.metadata()
    arrays = load_file(CONTRASTS)
    for name in arrays:
        if name.endswith("c_comply"):
            arrays[name] = -arrays[name]
    negated = tmp_path / "contrast.safetensors"
    save_file(arrays, negated, metadata=metadata)
    with pytest.raises(InputError, match="damage, not forgery.*refusal calibrate"):
        load_contrasts(negated)
    save_file(arrays, negated, metadata={"manifest": metadata["manifest"]})
    with pytest.raises(InputError, match="no contrast file"):
        load_contrasts(negated)
    edit = ["--contrast", str(negated), "--selector", "lrp", "--domain", "hate", "--lambda", "0.5", "--k", "0.02"]
    save_file(arrays, negated, metadata=metadata)
    assert "its numbers do not fit its checksum" in refused(
        ["export", "demo", *edit, "--out", str(tmp_path / "model")], capsys
    )


def test_another_models_contrast_is_refused(demo: LoadedModel):
    n_rows, weights_hash = demo.rows.n_rows, demo.weights_hash
    assert edit_from_contrast(CONTRASTS, "lrp", "hate", 0.5, 0.02, n_rows, weights_hash).size
    for other in ((n_rows, "0" * 64), (n_rows + 1, weights_hash)):
        with pytest.raises(InputError, match="run `refusal calibrate` on this model"):
            edit_from_contrast(CONTRASTS, "lrp", "hate", 0.5, 0.02, *other)


@pytest.mark.long
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
@pytest.mark.parametrize("stage", ["calibrate", pytest.param("sweep", marks=pytest.mark.long)])
def test_swapped_or_equal_sides_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[..., Any], stage: str
):
    pairs = pairs_file(tmp_path, change)
    arguments = ["refusal", stage, "demo", "--pairs", str(pairs), "--store", str(tmp_path / "s"), *SMALL]
    message = refused(arguments, capsys)
    assert INSTALLS_ONLY in message or "have one text for risk and base" in message


@pytest.mark.long
def test_swapped_sides_show_in_the_replies_too(demo: LoadedModel, store: Store):
    """A contrast that was calibrated on right pairs, swept on swapped ones: the unedited model gives them away."""
    run = small_run(demo, store, domains=("hate",), selectors=("lrp",), calibration_pairs=24)
    swapped = {"hate": [pair._replace(risk=pair.base, base=pair.risk) for pair in run.calibration["hate"]]}
    assert rates(run, NO_ROWS, run.calibration["hate"]).malign.mean > 0.3
    with pytest.raises(InputError, match=INSTALLS_ONLY):
        swept(run, run.contrasts, swapped)


def test_swapped_phrase_lists_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    phrases = tmp_path / "phrases.json"
    lists = {"refusal": list(ONSET_PHRASES.compliance), "compliance": list(ONSET_PHRASES.refusal)}
    phrases.write_text(json.dumps(lists), encoding="utf-8")
    arguments = ["refusal", "calibrate", "demo", "--phrases", str(phrases), "--store", str(tmp_path / "s"), *SMALL]
    assert INSTALLS_ONLY in refused(arguments, capsys)


# --- the `mask` command, and what is left ---


@pytest.mark.parametrize("selector", ["lrp/hate", "c_comply", "contrast", "refusal"])
def test_the_mask_command_knows_no_behaviour_score(selector: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    arguments = ["mask", "demo", "--selector", selector, "--order", "morf", "--rate", "2%"]
    message = refused([*arguments, "--out", str(tmp_path / "m"), "--store", str(tmp_path / "s")], capsys)
    assert "unknown selector" in message


@pytest.mark.long
def test_a_reversed_contrast_finds_no_operating_point(demo: LoadedModel, honest: Contrast, store: Store):
    """The last line of defence: numbers negated outside of this software lower refusal, and are never chosen."""
    run = small_run(demo, store, domains=("hate",), calibration_pairs=24, ks=(0.1,), lambdas=(0.5,), reply_tokens=25)
    turned = dataclasses.replace(honest, c_comply=-honest.c_comply)
    pairs = run.calibration["hate"]
    before = rates(run, NO_ROWS, pairs).malign.mean
    assert rates(run, refusal_mask(turned, 0.5, 0.1), pairs).malign.mean < before - 0.2
    table = swept(run, [turned], {"hate": pairs})
    assert not table.filter(table["k"] > 0)["feasible"].any()
    assert operating_points(table) == {("consensus2", "hate"): None}


# --- base prompts that the model refuses ---


def harmful_bases(folder: Path, count: int, among: int) -> Path:
    """Shipped pairs of hate; the base prompts of the first `count` of `among` are risk prompts of crime."""
    entries = [json.loads(line) for line in (demo_dir() / "prompts.jsonl").read_text(encoding="utf-8").splitlines()]
    crime = [one["risk"] for one in entries if one["domain"] == "crime" and one["split"] == "calibration"]
    hate = [one for one in entries if one["domain"] == "hate" and one["split"] == "calibration"][:among]
    for one, risk in zip(hate[:count], crime, strict=False):
        one["base"] = risk
    path = folder / f"harmful-{count}.jsonl"
    path.write_text("\n".join(map(json.dumps, hate)), encoding="utf-8")
    return path


@pytest.mark.parametrize("stage", ["calibrate", pytest.param("sweep", marks=pytest.mark.long)])
def test_base_prompts_that_the_model_refuses_are_no_base_prompts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stage: str
):
    """Hate against crime: the mean margins do not give that arrangement away, the replies do."""
    pairs = harmful_bases(tmp_path, 24, 24)
    arguments = ["refusal", stage, "demo", "--pairs", str(pairs), "--store", str(tmp_path / "s"), *SMALL]
    arguments[arguments.index("--pairs-per-domain") + 1] = "24"
    message = refused(arguments, capsys)
    assert re.search(r"hate: the unedited model itself refuses \d+ of 24 base prompts \(\d+%", message)
    assert message.count("margin ") == 3
    assert INSTALLS_ONLY in message


@pytest.mark.long
def test_a_few_of_them_are_left_out_and_the_manifest_says_so(demo: LoadedModel, store: Store, tmp_path: Path):
    crime = small_run(demo, store, domains=("crime",), calibration_pairs=64).calibration["crime"]
    verdicts = rates(small_run(demo, store), NO_ROWS, crime).malign.refused
    harmful = next(pair.risk for pair, verdict in zip(crime, verdicts, strict=True) if verdict)
    run = small_run(demo, store, domains=("hate",), selectors=("lrp",), calibration_pairs=20)
    whole = run.calibration["hate"]
    pairs = [whole[0]._replace(base=harmful), *whole[1:]]
    assert run.self_refused({"hate": pairs}) == {"hate": pairs[:1]}
    [contrast], [expected] = run.contrasts_of({"hate": pairs}), run.contrasts_of({"hate": whole[1:]})
    np.testing.assert_array_equal(contrast.c_comply, expected.c_comply)
    run.calibration = {"hate": pairs}
    assert run.calibration_spec["pairs_left_out"] == {"hate": 1}
    assert "pairs_left_out" not in small_run(demo, store, domains=("hate",)).calibration_spec


# --- what leaves is measured ---


@pytest.fixture(scope="module")
def refusing(demo: LoadedModel, honest: Contrast, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A model that refuses hate: the shipped one with refusal installed, as a checkpoint of its own."""
    edit = edit_of(refusal_mask(honest, 0.8, 0.02), demo.rows.n_rows, kind="refusal", spec={"domain": "hate"})
    out = tmp_path_factory.mktemp("refusing") / "model"
    export_masked(
        find_checkpoint("demo"),
        edit,
        out,
        effect=harmless(demo.weights_hash, edit.mask_hash, benign={"hate": Change(9, 0, 0)}),
    )
    return load_model(str(out), dtype="float32", device="cpu")


@pytest.fixture(scope="module")
def asked_once(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store for all: the edit is the same whatever its file says, and so are the replies under it."""
    return str(tmp_path_factory.mktemp("asked") / "store")


ASKED = ["--pairs", "demo", "--heldout-pairs", "8", "--reply-tokens", "25"]
SPECS: dict[str, dict[str, Any]] = {
    "hand-made": {"kind": "hand-made"},
    "by rate": {"selector": "magnitude", "order": "lerf", "rate": 0.3},
    "refusal": {"selector": "lrp", "domain": "hate", "lambda": 0.2, "k": 0.3},
    "composed": {"selector": "lrp", "domain": "hate+crime", "lambda": 0.2, "k": 0.3},
    "of another domain": {"selector": "lrp", "domain": "legal", "lambda": 0.2, "k": 0.3},
}


@pytest.mark.long  # with what stands in the way of options, in the first run: tests/engine/refusal/test_gate.py
@pytest.mark.parametrize(("command", "made"), [*(("export", one) for one in SPECS), ("refusal chat", "refusal")])
def test_an_edit_that_lowers_refusal_does_not_leave(
    refusing: LoadedModel, honest: Contrast, command: str, made: str, asked_once: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):  # fmt: skip
    """Whatever its file says of how it was made: these rows are those of a contrast of the wrong sign."""
    mask = refusal_mask(dataclasses.replace(honest, c_comply=-honest.c_comply), 0.8, 0.05)
    write_mask(tmp_path / "mask.safetensors", mask, refusing.fingerprint, SPECS[made])
    arguments = [*command.split(), refusing.id, "--mask", str(tmp_path / "mask.safetensors"), *ASKED]
    arguments += ["--out", str(tmp_path / "out")] if command == "export" else []
    message = refused([*arguments, "--store", asked_once], capsys)
    assert re.search(
        r"lowers refusal of risk prompts: shipped prompts, (hate|legal|all) \d+ of \d+, without it \d+", message
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_an_edit_that_raises_it_leaves_and_its_card_says_by_how_much(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    cell = ["--selector", "consensus2", "--domain", "hate", "--lambda", "0.8", "--k", "0.02"]
    more = ["--heldout-pairs", "20", "--benign-limit", "0.2", "--store", str(tmp_path / "s"), "--json"]
    assert main(["export", "demo", *cell, *more, "--out", str(tmp_path / "out")]) == 0
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    found = re.search(r"hate, risk prompts refused \| (\d+) of 20 before, (\d+) of 20 after", card)
    assert found
    assert int(found[2]) > int(found[1])
    assert "hate, base prompts refused" in card
    assert "| split | held-out |" in card
    capsys.readouterr()
    limit = ["--benign-limit", "0"]
    message = refused(["export", "demo", *cell, *more, *limit, "--out", str(tmp_path / "no")], capsys)
    assert "harmless base prompts" in message


def effect(edit: Edit, malign: dict[str, Change], benign: dict[str, Change] | None = None, **more: Any) -> Effect:
    return harmless("w", edit.mask_hash, malign, benign or {}, **more)


def test_a_record_is_of_one_edit_of_one_model_and_of_every_domain():
    edit = edit_of([1, 2], 9, kind="refusal", spec={"domain": "hate+crime"})
    both = {"hate": Change(40, 10, 40), "crime": Change(40, 24, 24)}
    none = {"hate": Change(40, 0, 0), "crime": Change(40, 0, 0)}
    effect(edit, both, none).check(edit, "w")
    with pytest.raises(InputError, match="crime 23 of 40, without it 24"):
        effect(edit, both | {"crime": Change(40, 24, 23)}, none).check(edit, "w")
    hate = {"hate": none["hate"]}  # its own domain: another one may lose where the sum does not
    by_hand = edit_of([1, 2], 9)
    for one, base in ((edit, hate), (by_hand, {})):
        effect(one, both | {"crime": Change(40, 24, 12)}, base).check(one, "w")
        with pytest.raises(InputError, match=": all 63 of 80, without it 64"):
            effect(one, {"hate": Change(40, 40, 40), "crime": Change(40, 24, 23)}, base).check(one, "w")
    with pytest.raises(InputError, match="another model or another mask"):
        effect(edit, both, none).check(edit, "v")
    with pytest.raises(InputError, match="another model or another mask"):
        effect(edit, both, none).check(edit_of([1, 3], 9, kind="refusal"), "w")
    for some in ({}, both):  # nothing asked; only risk prompts asked
        with pytest.raises(InputError, match="too few kinds of prompts"):
            effect(edit, some).check(edit, "w")
    over = {"hate": Change(40, 0, 5)}
    with pytest.raises(InputError, match="more than 10% of harmless base prompts: hate 5 of 40"):
        effect(edit, both, over, benign_limit=0.1).check(edit, "w")
    effect(edit, both, over, benign_limit=0.125).check(edit, "w")
