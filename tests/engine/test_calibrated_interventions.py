"""Mean and resample, at rows, neurons and heads, against forward hooks written here, in float64; what keys say."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import load_tiny
from torch import Tensor
from window_nll import window_nll

from engine.data.corpora import Windows, windows
from engine.edits.edit import UNEDITED, Edit, edit_of, first_of
from engine.interventions import resample
from engine.interventions.at_outputs import applied, edited_outputs
from engine.interventions.in_weights import zeroed
from engine.interventions.kinds import intervention_of, intervention_record, prepare, seeded
from engine.models.loading import LoadedModel
from engine.models.units import UNITS, Units
from engine.records.errors import InputError

FAMILIES = ("llama", pytest.param("qwen3", marks=pytest.mark.long), "gemma3_text", "gpt_neox")
KINDS = ("zero", "mean", "resample")
Change = Callable[[str, Tensor], Tensor]  # path of a Linear, its output or input -> what it becomes
Texts = tuple[Windows, Windows]


@pytest.fixture(scope="module", params=FAMILIES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """In float64, so that nothing but the arithmetic's order is left."""
    loaded = load_tiny(request.param, tmp_path_factory.mktemp("model"))
    loaded.model.double()
    return replace(loaded, dtype="float64")


@pytest.fixture(scope="module")
def texts(tiny_text: Path, tiny_llama: LoadedModel) -> Texts:
    """Five calibration windows and three others."""
    cut = partial(windows, str(tiny_text), tiny_llama.tokenizer, length=12)
    return cut(role="calibration", samples=5), cut(role="evaluation", samples=3, skip_tokens=60)


def linears(loaded: LoadedModel) -> list[str]:
    return [layer.name for layer in loaded.rows.layers]


@contextmanager
def hooks(loaded: LoadedModel, at_output: Change, at_input: Change) -> Iterator[None]:
    with ExitStack() as stack:
        for name in linears(loaded):
            linear = loaded.model.get_submodule(name)
            after = linear.register_forward_hook(lambda _m, _a, out, name=name: at_output(name, out))
            before = linear.register_forward_pre_hook(lambda _m, args, name=name: (at_input(name, args[0]),))
            stack.callback(after.remove)
            stack.callback(before.remove)
        yield


@torch.no_grad()
def said(loaded: LoadedModel, window: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Output and input [T, d] of every Linear on one window."""
    outputs: dict[str, Tensor] = {}
    inputs: dict[str, Tensor] = {}

    def keep(kept: dict[str, Tensor], name: str, value: Tensor) -> Tensor:
        kept[name] = value[0].clone()
        return value

    with hooks(loaded, partial(keep, outputs), partial(keep, inputs)):
        loaded.model(input_ids=window[None], use_cache=False)
    return outputs, inputs


def inside(loaded: LoadedModel, kind: str, unit: int) -> tuple[str, str, list[int]]:
    """Where a unit is changed: output or input of which Linear, at which channels; by hand, from the configuration."""
    config = loaded.model.config
    layers = list(loaded.rows.layers)
    if kind == "row":
        layer = next(one for one in layers if one.start <= unit < one.start + one.rows)
        return "output", layer.name, [unit - layer.start]
    per_block = config.intermediate_size if kind == "neuron" else config.num_attention_heads
    block, number = divmod(unit, per_block)
    projection = "down_proj" if kind == "neuron" else "o_proj"
    name = next(one.name for one in layers if (one.block, one.projection) == (block, projection))
    size = config.head_dim
    return "input", name, [number] if kind == "neuron" else list(range(number * size, (number + 1) * size))


@torch.no_grad()
def logits_by_hand(
    loaded: LoadedModel, texts: Texts, kind: str, units: list[int], intervention: str, other: list[int]
) -> Tensor:
    """One evaluation window at a time; means by a plain sum over all tokens; other: which window stands for which."""
    calibration, evaluation = texts
    heard = [said(loaded, window) for window in calibration.input_ids]
    places = [inside(loaded, kind, unit) for unit in units]
    found = []
    for number, window in enumerate(evaluation.input_ids):

        def change(side: int, name: str, value: Tensor, number: int = number) -> Tensor:
            value = value.clone()
            for where, linear, channels in places:
                if (where, linear) != (("output", "input")[side], name):
                    continue
                for channel in channels:
                    if intervention == "zero":
                        value[:, :, channel] = 0
                    elif intervention == "mean":
                        tokens = [token for one in heard for token in one[side][name][:, channel].tolist()]
                        value[:, :, channel] = sum(tokens) / len(tokens)
                    else:
                        value[0, :, channel] = heard[other[number]][side][name][:, channel]
            return value

        with hooks(loaded, partial(change, 0), partial(change, 1)):
            found.append(loaded.model(input_ids=window[None], use_cache=False).logits[0])
    return torch.stack(found)


def some_units(units: Units, share: float, seed: int = 0) -> list[int]:
    generator = np.random.default_rng(seed)
    return sorted(generator.choice(units.count, max(1, round(share * units.count)), replace=False).tolist())


def edit_of_units(units: Units, chosen: list[int], intervention: str) -> Edit:
    rest = sorted(set(range(units.count)) - set(chosen))
    return first_of(np.array([*chosen, *rest]), len(chosen), intervention=intervention, ids=units.ids, side=units.side)


@pytest.mark.parametrize("kind", ["row", "neuron", "head"])
def test_every_intervention_at_every_unit_is_what_hooks_do(model: LoadedModel, texts: Texts, kind: str) -> None:
    """Three edits in one pass, each sequence under its own."""
    units = UNITS[kind](model)
    if not units.count:
        assert "gpt_neox" in model.id or "GPTNeoX" in model.architecture
        return
    calibration, evaluation = texts
    chosen = some_units(units, 0.4)
    for name in ("mean", "resample"):
        prepare(model, name, calibration, seed=3)
    made: Any = intervention_of(model, "resample")
    other = made.sources(evaluation.input_ids).tolist()
    edits = [edit_of_units(units, chosen, name) for name in KINDS]
    count = len(evaluation.input_ids)
    with torch.no_grad(), edited_outputs(model, [*edits, UNEDITED]) as outputs:
        with outputs.sequences([edit for edit in range(4) for _ in range(count)]):
            found = model.model(input_ids=evaluation.input_ids.repeat(4, 1), use_cache=False).logits.split(count)
        plain = model.model(input_ids=evaluation.input_ids, use_cache=False).logits
    torch.testing.assert_close(found[3], plain, rtol=0, atol=1e-11)
    for name, logits in zip(KINDS, found, strict=False):
        expected = logits_by_hand(model, texts, kind, chosen, name, other)
        # float64 sums in another order, through two blocks
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-10)
        assert (logits - plain).abs().max() > 1e-2
        with torch.no_grad(), applied(model, edits[KINDS.index(name)]):
            alone = model.model(input_ids=evaluation.input_ids, use_cache=False).logits
        torch.testing.assert_close(alone, expected, rtol=0, atol=1e-10)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.model.modules())


def test_a_neuron_without_its_input_is_one_without_its_rows(model: LoadedModel, texts: Texts) -> None:
    units = UNITS["neuron"](model)
    if not units.count:
        return
    chosen = some_units(units, 0.3)
    _, evaluation = texts
    with zeroed(model, np.sort(units.rows[chosen].reshape(-1))):
        expected = window_nll(model.model, evaluation.input_ids)[0]
    with applied(model, edit_of_units(units, chosen, "zero")):
        assert torch.equal(window_nll(model.model, evaluation.input_ids)[0], expected)


def test_resampled_neurons_say_what_resampled_gate_and_up_rows_make(model: LoadedModel, texts: Texts) -> None:
    """All rows of a window come from one other window; so for resample, and not for mean, both edits are one."""
    units = UNITS["neuron"](model)
    if not units.count:
        return
    calibration, evaluation = texts
    for name in ("mean", "resample"):
        prepare(model, name, calibration)
    chosen, found = some_units(units, 0.3), {}
    for name in ("mean", "resample"):
        rows = edit_of(np.sort(units.rows[chosen].reshape(-1)), model.rows.n_rows, intervention=name)
        for edit in (rows, edit_of_units(units, chosen, name)):
            with torch.no_grad(), applied(model, edit):
                found[name, edit.side] = model.model(input_ids=evaluation.input_ids, use_cache=False).logits
    torch.testing.assert_close(found["resample", "output"], found["resample", "input"], rtol=0, atol=1e-10)
    assert (found["mean", "output"] - found["mean", "input"]).abs().max() > 1e-3


def test_a_further_draw_is_the_one_of_its_seed_and_shares_what_is_kept(tiny_llama: LoadedModel, texts: Texts) -> None:
    calibration, evaluation = texts
    n, other = tiny_llama.rows.n_rows, seeded("resample", 5)
    prepare(tiny_llama, "resample", calibration, seed=5)
    alone: Any = intervention_of(tiny_llama, "resample")
    key = intervention_record(tiny_llama, edit_of([1], n, intervention="resample"))
    expected = logits(tiny_llama, edit_of([1, 40], n, intervention="resample"), evaluation)
    prepare(tiny_llama, "resample", calibration, seed=2, more=(5,))
    first: Any = intervention_of(tiny_llama, "resample")
    made: Any = intervention_of(tiny_llama, other)
    assert made.sources(evaluation.input_ids).tolist() == alone.sources(evaluation.input_ids).tolist()
    edit = edit_of([1], n, intervention=other)
    assert (edit.record() | intervention_record(tiny_llama, edit))["intervention"] == key["intervention"]
    assert intervention_record(tiny_llama, edit) == key
    first.fill(tiny_llama)
    assert made._kept is first._kept
    assert made._kept
    assert torch.equal(logits(tiny_llama, edit_of([1, 40], n, intervention=other), evaluation), expected)


def logits(loaded: LoadedModel, edit: Edit, text: Windows) -> torch.Tensor:
    with torch.no_grad(), applied(loaded, edit):
        return loaded.model(input_ids=text.input_ids).logits


def test_keys_hold_what_replaces(tiny_llama: LoadedModel, texts: Texts) -> None:
    n = tiny_llama.rows.n_rows
    records = []
    for name, text, seed in (
        ("mean", texts[0], 0), ("mean", texts[1], 0), ("resample", texts[0], 0), ("resample", texts[0], 1),
    ):  # fmt: skip
        prepare(tiny_llama, name, text, seed=seed)
        edit = edit_of([1], n, intervention=name)
        records.append(edit.record() | intervention_record(tiny_llama, edit))
    assert len({str(record) for record in records}) == 4
    assert records[0]["replaced_by"] == {"tokens": texts[0].token_hash}
    assert records[3]["replaced_by"] == {"tokens": texts[0].token_hash, "seed": 1}
    row, column = (Edit(lambda: np.array([1]), 1, side=side) for side in ("output", "input"))
    assert row.record() == edit_of([1], n).record()  # keys of masks stay what they were
    assert column.record() != row.record()
    assert Edit(lambda: np.zeros(0, dtype=np.int64), 0, side="input").record() == UNEDITED.record()


def test_what_cannot_be_resampled_is_told(
    tiny_llama: LoadedModel, texts: Texts, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(tiny_llama, "resample", texts[0])
    edit = edit_of([1], tiny_llama.rows.n_rows, intervention="resample")
    short = texts[1].input_ids[:, :7]
    with pytest.raises(InputError, match="windows of 12 tokens, got a pass of 7"), applied(tiny_llama, edit):
        tiny_llama.model(input_ids=short)
    embedded = tiny_llama.model.get_input_embeddings()(short)
    with pytest.raises(InputError, match="given embeddings instead"), applied(tiny_llama, edit):
        tiny_llama.model(inputs_embeds=embedded)
    with monkeypatch.context() as patched:
        patched.setattr(resample, "LARGEST_BYTES", 1000)
        with pytest.raises(InputError, match=r"GiB, more than .*--resample-windows"):
            prepare(tiny_llama, "resample", texts[0])
    prepare(tiny_llama, "mean", texts[0])
    mean = edit_of([1], tiny_llama.rows.n_rows, intervention="mean")
    with zeroed(tiny_llama, [0]), pytest.raises(RuntimeError, match="unedited"), applied(tiny_llama, mean):
        pytest.fail("means of an edited model")


def test_units_of_heads_and_neurons(tiny_family: LoadedModel) -> None:
    """Which rows count for a head: its own of q, and those of its group's k and v in equal parts."""
    units, index = UNITS["head"](tiny_family), tiny_family.rows
    config = tiny_family.model.config.get_text_config()
    grouped = all(any(one.projection == name for one in index.layers) for name in ("q_proj", "k_proj", "v_proj"))
    if not grouped:
        assert units.count == 0
        return
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    group = config.num_attention_heads // config.num_key_value_heads
    assert units.count == config.num_hidden_layers * config.num_attention_heads
    scores = np.random.default_rng(1).normal(size=index.n_rows).astype(np.float32)
    frame = index.frame()
    for unit, found in enumerate(units.scores(scores)):
        block, head = divmod(unit, config.num_attention_heads)
        expected = 0.0
        for projection, number, share in (
            ("q_proj", head, 1.0), ("k_proj", head // group, 1 / group), ("v_proj", head // group, 1 / group),
        ):  # fmt: skip
            rows = frame.filter(block=block, projection=projection)["row_id"].to_list()
            expected += share * sum(float(scores[row]) for row in rows[number * size : (number + 1) * size])
        assert found == pytest.approx(expected, abs=1e-6)
    # The scores of all heads are those of all their rows, each row counted once.
    rows = frame.filter(frame["projection"].is_in(["q_proj", "k_proj", "v_proj"]))["row_id"].to_numpy()
    assert units.scores(scores).sum() == pytest.approx(float(scores[rows].astype(np.float64).sum()), abs=1e-5)
    everything = [UNITS[kind](tiny_family) for kind in ("neuron", "head")]
    ids = np.concatenate([one.ids.reshape(-1) for one in everything])
    assert len(set(ids.tolist())) == ids.size  # no column belongs to two units
