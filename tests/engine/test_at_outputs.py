"""Edits at the outputs: equal to `zeroed`, each sequence its own, seen by one thread only, and gone afterwards."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from window_nll import window_nll

from engine.data.corpora import Windows
from engine.data.prompts import encode_prompts
from engine.edits.edit import UNEDITED, Edit, edit_of
from engine.interventions import INTERVENTIONS, Intervention, at_outputs, register_intervention
from engine.interventions.at_outputs import applied, edited_outputs, sees_sequences
from engine.interventions.in_weights import zeroed
from engine.interventions.kinds import intervention_record, prepare
from engine.measures.generation import generate_batch, generate_under, stream_replies
from engine.measures.margin import margins, margins_under
from engine.models.loading import LoadedModel, load_model
from engine.models.row_index import Layer
from engine.records.errors import InputError

PROMPTS = [
    "Sure, here it is.", "No way.", "The cat sat on the mat, then it ran. Here you are.", "Ä ☃", "sat on",
    "Here you are, a cat, a mat and more of it", "it ran", "out",
]  # fmt: skip
NEW = 10


def edits_of(loaded: LoadedModel, count: int, intervention: str = "zero") -> list[Edit]:
    """Edits of different sizes, from few rows to most; the first changes one row of one Linear."""
    generator = np.random.default_rng(0)
    n = loaded.rows.n_rows
    sizes = [1, *(round(n * share) for share in np.linspace(0.1, 0.9, count - 1))]
    return [edit_of(generator.choice(n, size, replace=False), n, intervention=intervention) for size in sizes]


def no_hooks(loaded: LoadedModel) -> bool:
    return not any(module._forward_hooks for module in loaded.model.modules())


def texts(replies: Any) -> list[str]:
    return [reply.text for reply in replies]


def test_nll_is_bit_equal_to_zeroed_in_every_family(tiny_family: LoadedModel, tiny_windows: Windows) -> None:
    """The same batch shape, so the same sums in the same order: also where neighbours carry other edits."""
    ids = tiny_windows.input_ids
    edits = edits_of(tiny_family, 3)
    expected = []
    for edit in edits:
        with zeroed(tiny_family, edit.units):
            expected.append(window_nll(tiny_family.model, ids)[0])
    assert not torch.equal(expected[1], expected[2])
    with edited_outputs(tiny_family, [*edits, UNEDITED]) as outputs:
        for number, nats in enumerate(expected):
            with outputs.sequences([number]):
                assert torch.equal(window_nll(tiny_family.model, ids)[0], nats)
        which = [number % 4 for number in range(len(ids))]
        with outputs.sequences(which):
            mixed = window_nll(tiny_family.model, ids)[0]
    expected.append(window_nll(tiny_family.model, ids)[0])
    assert torch.equal(mixed, torch.stack([expected[edit][i] for i, edit in enumerate(which)]))
    assert no_hooks(tiny_family)


def test_nll_of_smaller_matrices_is_close(tiny_family: LoadedModel, tiny_windows: Windows) -> None:
    for edit in edits_of(tiny_family, 3):
        with applied(tiny_family, edit):
            small = window_nll(tiny_family.model, tiny_windows.input_ids)[0]
        with edited_outputs(tiny_family, [edit]) as outputs, outputs.sequences([0]):
            full = window_nll(tiny_family.model, tiny_windows.input_ids)[0]
        # float32 sums of other lengths: a few units of 2^-23 per token
        assert torch.allclose(small, full, rtol=1e-6, atol=0)


def test_replies_and_margins_of_five_edits_to_eight_prompts(tiny_family: LoadedModel) -> None:
    edits = edits_of(tiny_family, 5)
    together = generate_under(tiny_family, edits, PROMPTS, NEW, batch_size=24)
    leanings = margins_under(tiny_family, edits, PROMPTS, batch_size=24)
    seen = set()
    for edit, replies, leaning in zip(edits, together, leanings, strict=True):
        with zeroed(tiny_family, edit.units):
            alone = generate_batch(tiny_family, PROMPTS, NEW)
            assert torch.allclose(leaning, margins(tiny_family, PROMPTS), atol=1e-5)
        assert [(one.text, one.tokens, one.finished) for one in replies] == [
            (one.text, one.tokens, one.finished) for one in alone
        ]
        seen |= {one.text for one in replies}
    assert len(seen) > len(PROMPTS)


def test_streams_of_several_edits_are_the_replies_of_each(tiny_family: LoadedModel) -> None:
    edits = [UNEDITED, *edits_of(tiny_family, 3)]
    pieces: list[list[str]] = [[] for _ in edits]
    ended, order = {}, []
    tokens: list[list[int]] = [[] for _ in edits]
    for number, piece in stream_replies(
        tiny_family, PROMPTS[0], edits, NEW, on_token=lambda edit, token: tokens[edit].append(token)
    ):
        order.append(number)
        if isinstance(piece, str):
            assert number not in ended
            pieces[number].append(piece)
        else:
            ended[number] = piece
    expected = [one for [one] in generate_under(tiny_family, edits, PROMPTS[:1], NEW)]
    assert ["".join(some) for some in pieces] == texts(expected)
    assert [ended[number].text for number in range(4)] == texts(expected)
    assert [ended[number].finished for number in range(4)] == [one.finished for one in expected]
    assert [len(some) for some in tokens] == [one.tokens for one in expected]
    assert order != sorted(order)  # side by side, not one after the other
    assert no_hooks(tiny_family)


def test_many_edits_meet_few_prompts_in_several_groups(
    tiny_llama: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    edits = edits_of(tiny_llama, 7)
    expected = [texts(replies) for replies in generate_under(tiny_llama, edits, PROMPTS[:2], NEW)]
    monkeypatch.setattr(at_outputs, "EDITS_AT_ONCE", 3)
    told = []
    found = generate_under(tiny_llama, edits, PROMPTS[:2], NEW, 3, lambda *done: told.append(done))
    assert [texts(replies) for replies in found] == expected
    assert told[-1] == (14, 14)
    assert generate_under(tiny_llama, [], PROMPTS, NEW) == []
    assert generate_under(tiny_llama, edits[:2], [], NEW) == [[], []]


@pytest.mark.parametrize(("rows_of_masks", "groups"), [(100, [40]), (20, [20, 20]), (0, [16, 16, 8])])
def test_masks_on_the_device_are_bounded(
    tiny_llama: LoadedModel, monkeypatch: pytest.MonkeyPatch, rows_of_masks: int, groups: list[int]
) -> None:
    monkeypatch.setattr(at_outputs, "MASK_BYTES", rows_of_masks * tiny_llama.rows.n_rows)
    edits = edits_of(tiny_llama, 40)
    found = list(at_outputs.edit_batches(tiny_llama, edits, [3], 64))
    assert [len(group) for group, _ in found] == groups
    assert [edit for _, batches in found for batch in batches for edit, _ in batch] == list(range(40))


def test_bfloat16_is_bit_equal_too(tiny_family: LoadedModel, tiny_windows: Windows) -> None:
    """Both ways sum the same numbers in the same order."""
    loaded = load_model(tiny_family.id, dtype="bfloat16", device="cpu")
    for edit in edits_of(loaded, 3):
        with zeroed(loaded, edit.units):
            weights = window_nll(loaded.model, tiny_windows.input_ids)[0]
        with edited_outputs(loaded, [UNEDITED, edit]) as outputs, outputs.sequences([1, 0] * 3):
            outside = window_nll(loaded.model, tiny_windows.input_ids)[0]
        assert torch.equal(weights[::2], outside[::2])
        assert not torch.equal(weights[1::2], outside[1::2])


def forward(loaded: LoadedModel) -> Tensor:
    batch = encode_prompts(loaded.tokenizer, PROMPTS[:2])
    with torch.no_grad():
        logits: Tensor = loaded.model(**batch._asdict(), use_cache=False).logits
    return logits


def test_threads_with_different_edits_never_mix(tiny_llama: LoadedModel) -> None:
    """Two at the outputs, one in the weights, one without an edit: each sees its own in every one of many passes."""
    edits = edits_of(tiny_llama, 4)
    expected = [texts(replies) for replies in generate_under(tiny_llama, edits, PROMPTS[:2], NEW)]
    plain = texts(generate_batch(tiny_llama, PROMPTS[:2], NEW))
    wrong: list[str] = []
    rounds = 6

    def outputs(number: int) -> None:
        for _ in range(rounds):
            [found] = generate_under(tiny_llama, [edits[number]], PROMPTS[:2], NEW)
            if texts(found) != expected[number]:
                wrong.append(f"outputs {number}")

    def weights() -> None:
        for _ in range(rounds):
            with zeroed(tiny_llama, edits[3].units):
                if texts(generate_batch(tiny_llama, PROMPTS[:2], NEW)) != expected[3]:
                    wrong.append("weights")

    def unedited() -> None:
        for _ in range(rounds):
            if texts(generate_batch(tiny_llama, PROMPTS[:2], NEW)) != plain:
                wrong.append("unedited")

    threads = [
        threading.Thread(target=outputs, args=(1,)), threading.Thread(target=outputs, args=(2,)),
        threading.Thread(target=weights), threading.Thread(target=unedited),
    ]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not wrong
    assert no_hooks(tiny_llama)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_no_hook_outlives_the_block(tiny_llama: LoadedModel, error: type[BaseException]) -> None:
    plain = forward(tiny_llama)
    with (
        pytest.raises(error),
        edited_outputs(tiny_llama, edits_of(tiny_llama, 2)) as outputs,
        outputs.sequences([0, 1]),
    ):
        raise error
    assert no_hooks(tiny_llama)
    with outputs.sequences([0, 1]):  # nor does it come back
        assert torch.equal(forward(tiny_llama), plain)


def test_no_hook_outlives_an_abandoned_stream(tiny_llama: LoadedModel) -> None:
    stream = stream_replies(tiny_llama, PROMPTS[0], edits_of(tiny_llama, 2), NEW)
    next(stream)
    assert not no_hooks(tiny_llama)
    del stream
    assert no_hooks(tiny_llama)


def test_an_interrupt_at_any_instant_leaves_no_hook(tiny_llama: LoadedModel) -> None:
    """Every instruction of the main thread's part of putting and removing in turn raises KeyboardInterrupt once."""
    edits = edits_of(tiny_llama, 2)
    codes = {at_outputs.uninterrupted.__code__, at_outputs.Undone.__exit__.__code__}
    countdown = [0]

    def trace(frame: Any, event: str, _: Any) -> Any:
        if frame.f_code not in codes:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event in ("call", "opcode"):
            countdown[0] -= 1
            if countdown[0] == 0:
                raise KeyboardInterrupt
        return trace

    own = sys.gettrace()
    for instant in range(1, 1000):
        countdown[0] = instant
        interrupted = False
        try:
            sys.settrace(trace)
            with edited_outputs(tiny_llama, edits):
                pass
        except KeyboardInterrupt:
            interrupted = True
        finally:
            sys.settrace(own)
        assert no_hooks(tiny_llama)
        if not interrupted:
            break
    assert 40 < instant < 999


@contextmanager
def flattened(loaded: LoadedModel) -> Iterator[None]:
    """MLPs that see the tokens of all sequences in one row, as experts do."""
    for block in loaded.model.model.layers:
        inner = block.mlp.forward
        block.mlp.forward = lambda x, inner=inner: inner(x.flatten(0, 1)).view_as(x)
    yield


def test_linears_that_see_no_sequences_get_one_edit_at_a_time(tmp_path: Path) -> None:
    from tiny_models import load_tiny

    loaded = load_tiny("llama", tmp_path)
    edits = edits_of(loaded, 3)
    expected = [texts(replies) for replies in generate_under(loaded, edits, PROMPTS[:3], NEW)]
    other = load_tiny("llama", tmp_path)
    with flattened(other):
        assert sees_sequences(loaded)
        assert not sees_sequences(other)
        assert [texts(replies) for replies in generate_under(other, edits, PROMPTS[:3], NEW)] == expected
        ended = {
            edit: piece.text
            for edit, piece in stream_replies(other, PROMPTS[0], edits, NEW)
            if not isinstance(piece, str)
        }
        assert [ended[edit] for edit in range(3)] == [replies[0] for replies in expected]
        with (
            edited_outputs(other, edits) as outputs,
            outputs.sequences([1, 2]),
            pytest.raises(InputError, match=r"one edit at a time"),
        ):
            forward(other)
    assert no_hooks(other)


@pytest.fixture
def negate() -> Iterator[str]:
    @register_intervention("negate", title="Negate")
    class Negate(Intervention):
        """y_i = -y_i."""

        def apply(self, output: Tensor, units: Tensor, layer: Layer) -> Tensor:
            return torch.where(units, -output, output)

    yield "negate"
    INTERVENTIONS.remove("negate")


@contextmanager
def negated_weights(loaded: LoadedModel, edit: Edit) -> Iterator[None]:
    """The slow reference: row i of W and b with the other sign."""

    def flip() -> None:
        for row_id in edit.units:
            layer = loaded.rows.layers[int(loaded.rows.layer_of([row_id])[0])]
            linear = loaded.model.get_submodule(layer.name)
            linear.weight[row_id - layer.start] *= -1
            if linear.bias is not None:
                linear.bias[row_id - layer.start] *= -1

    flip()
    yield
    flip()


def test_a_second_intervention_from_one_registration(
    tiny_family: LoadedModel, tiny_windows: Windows, negate: str
) -> None:
    ids = tiny_windows.input_ids
    edit = edits_of(tiny_family, 2, negate)[1]
    plain = window_nll(tiny_family.model, ids)[0]
    with negated_weights(tiny_family, edit):
        expected = window_nll(tiny_family.model, ids)[0]
    with applied(tiny_family, edit):
        assert torch.equal(window_nll(tiny_family.model, ids)[0], expected)
    zero = edit_of(edit.units, tiny_family.rows.n_rows)
    with zeroed(tiny_family, zero.units):
        zeros = window_nll(tiny_family.model, ids)[0]
    with edited_outputs(tiny_family, [UNEDITED, zero, edit]) as outputs, outputs.sequences([0, 1, 2] * 2):
        mixed = window_nll(tiny_family.model, ids)[0]
    assert torch.equal(mixed, torch.stack([(plain, zeros, expected)[i % 3][i] for i in range(6)]))
    assert len({plain[1].item(), zeros[1].item(), expected[1].item()}) == 3


def test_calibrated_interventions_are_prepared_once_per_model(tiny_llama: LoadedModel, tiny_windows: Windows) -> None:
    @register_intervention("shift")
    class Shift(Intervention):
        """y_i + a number read from calibration text."""

        by = 0.0
        reads_text = True

        def prepare(self, loaded: LoadedModel, windows: Windows) -> None:
            self.by = float(len(windows.input_ids))

        def record(self) -> dict[str, float]:
            return {"by": self.by}

        def apply(self, output: Tensor, units: Tensor, layer: Layer) -> Tensor:
            return torch.where(units, output + self.by, output)

    edit = edit_of([3], tiny_llama.rows.n_rows, intervention="shift")
    try:
        with pytest.raises(InputError, match="needs calibration text"), applied(tiny_llama, edit):
            pytest.fail("not prepared")
        prepare(tiny_llama, "shift", tiny_windows)
        layer = tiny_llama.rows.layers[0]
        linear = tiny_llama.model.get_submodule(layer.name)
        x = torch.randn(1, 2, linear.in_features)
        with torch.no_grad():
            plain = linear(x)
            with applied(tiny_llama, edit):
                shifted = linear(x)
        plain[:, :, 3] += 6
        assert torch.equal(shifted, plain)
        assert intervention_record(tiny_llama, edit)["by"] == 6
    finally:
        INTERVENTIONS.remove("shift")
