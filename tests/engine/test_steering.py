"""Steering at the outputs of blocks: what is added and where, each sequence its own, gone afterwards; keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from window_nll import window_nll

from engine.data.corpora import Windows
from engine.data.prompts import pad_left, prompt_ids
from engine.edits.edit import UNEDITED, Steering, edit_of
from engine.interventions.at_outputs import applied, edited_outputs
from engine.measures.condition import block_states
from engine.measures.generation import generate_batch, generate_under
from engine.measures.nll import Nll
from engine.models.loading import LoadedModel
from engine.models.rows_of_modules import decoder_blocks
from engine.records.errors import InputError
from engine.results.store import Store
from engine.run.runner import Cell, LocalRunner

PROMPTS = ["Sure, here it is.", "No way.", "The cat sat on the mat, then it ran. Here you are.", "Ä ☃"]
NEW = 8


def width(loaded: LoadedModel) -> int:
    return int(loaded.model.config.get_text_config().hidden_size)


def steering(loaded: LoadedModel, *blocks: int, coefficient: float = 2.0, seed: int = 0) -> Steering:
    """Random vectors for some blocks."""
    generator = np.random.default_rng(seed)
    return Steering({block: generator.normal(size=width(loaded)) for block in blocks or (0,)}, coefficient)


def no_hooks(loaded: LoadedModel) -> bool:
    return not any(module._forward_hooks for module in loaded.model.modules())


@contextmanager
def added_by_hand(loaded: LoadedModel, steer: Steering) -> Iterator[None]:
    """The slow reference: every block that is steered is called as it is, then the sum is formed in place."""
    blocks = decoder_blocks(loaded.model)
    kept = {block: blocks[block].forward for block in steer.vectors}

    def made(block: int) -> Any:
        def forward(*args: Any, **more: Any) -> Any:
            output = kept[block](*args, **more)
            stream = output[0] if isinstance(output, tuple) else output
            stream += steer.coefficient * torch.from_numpy(steer.vectors[block])
            return output

        return forward

    for block in steer.vectors:
        blocks[block].forward = made(block)
    try:
        yield
    finally:
        for block in steer.vectors:
            del blocks[block].forward


def nats(loaded: LoadedModel, windows: Windows) -> torch.Tensor:
    return window_nll(loaded.model, windows.input_ids)[0]


def test_the_vector_is_added_at_every_position_of_every_family(tiny_family: LoadedModel, tiny_windows: Windows) -> None:
    before = nats(tiny_family, tiny_windows)
    for steer in (steering(tiny_family, 0), steering(tiny_family, 1), steering(tiny_family, 0, 1)):
        with added_by_hand(tiny_family, steer):
            expected = nats(tiny_family, tiny_windows)
        with applied(tiny_family, steer):
            assert torch.equal(nats(tiny_family, tiny_windows), expected)
        assert not torch.equal(expected, before)
    assert torch.equal(nats(tiny_family, tiny_windows), before)
    assert no_hooks(tiny_family)


def test_coefficient_zero_changes_no_bit(tiny_family: LoadedModel, tiny_windows: Windows) -> None:
    before = nats(tiny_family, tiny_windows)
    with applied(tiny_family, steering(tiny_family, 0, 1, coefficient=0.0)):
        assert torch.equal(nats(tiny_family, tiny_windows), before)


def test_sequences_carry_their_own_and_unsteered_ones_keep_their_bits(
    tiny_family: LoadedModel, tiny_windows: Windows
) -> None:
    """Beside a mask of rows, too: each batch has the same shape, so sums have the same order."""
    rows = edit_of(range(0, tiny_family.rows.n_rows, 3), tiny_family.rows.n_rows)
    edits = [UNEDITED, steering(tiny_family, 0), rows, steering(tiny_family, 1, seed=1)]
    alone = []
    with edited_outputs(tiny_family, edits) as outputs:
        for number in range(len(edits)):
            with outputs.sequences([number]):
                alone.append(nats(tiny_family, tiny_windows))
        which = [0, 1, 2, 3, 1, 0]
        with outputs.sequences(which):
            mixed = nats(tiny_family, tiny_windows)
    assert torch.equal(mixed, torch.stack([alone[edit][i] for i, edit in enumerate(which)]))
    assert torch.equal(alone[0], nats(tiny_family, tiny_windows))


def test_replies_with_a_cache_are_those_of_whole_passes(tiny_family: LoadedModel) -> None:
    """Token by token without a cache, each prompt alone, with the sum formed by hand."""
    steer = steering(tiny_family, 1, coefficient=1.0)
    plain, steered = generate_under(tiny_family, [UNEDITED, steer], PROMPTS, NEW, batch_size=5)
    for prompt, reply in zip(PROMPTS, steered, strict=True):
        ids = prompt_ids(tiny_family.tokenizer, prompt)
        start = len(ids)
        with added_by_hand(tiny_family, steer), torch.no_grad():
            while len(ids) < start + reply.tokens:
                ids.append(int(tiny_family.model(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax()))
        assert tiny_family.tokenizer.decode(ids[start:], skip_special_tokens=True) == reply.text
    assert [one.text for one in plain] != [one.text for one in steered]
    with applied(tiny_family, steer):
        assert [one.text for one in generate_batch(tiny_family, PROMPTS, NEW)] == [one.text for one in steered]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, GeneratorExit])
def test_hooks_are_gone_whatever_ends_the_block(
    tiny_llama: LoadedModel, tiny_windows: Windows, error: type[BaseException]
) -> None:
    before = nats(tiny_llama, tiny_windows)
    with pytest.raises(error), applied(tiny_llama, steering(tiny_llama, 0, 1)):
        raise error
    assert no_hooks(tiny_llama)
    assert torch.equal(nats(tiny_llama, tiny_windows), before)


def test_what_is_no_steering_is_refused(tiny_llama: LoadedModel) -> None:
    d = width(tiny_llama)
    for coefficient in (-1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match="0 or more"):
            Steering({0: np.ones(d)}, coefficient)
    for vectors in ({}, {0: np.ones((2, d))}, {0: np.full(d, np.nan)}):
        with pytest.raises(InputError, match="finite vector"):
            Steering(vectors, 1.0)
    with pytest.raises(InputError, match="2 blocks"):
        edited_outputs(tiny_llama, [Steering({2: np.ones(d)}, 1.0)])
    with pytest.raises(InputError, match=f"stream has {d}"):
        edited_outputs(tiny_llama, [Steering({0: np.ones(d + 1)}, 1.0)])


def test_every_field_of_a_steering_is_in_the_key(tiny_llama: LoadedModel, tiny_windows: Windows) -> None:
    d = width(tiny_llama)
    ones = np.ones(d, dtype=np.float32)
    cells = [
        Cell(tiny_llama, edit, Nll(tiny_windows))
        for edit in (
            UNEDITED,
            Steering({0: ones}, 1.0),
            Steering({0: ones}, 2.0),
            Steering({1: ones}, 1.0),
            Steering({0: 2 * ones}, 1.0),
            Steering({0: ones, 1: ones}, 1.0),
        )
    ]
    assert len({cell.key for cell in cells}) == len(cells)
    assert Cell(tiny_llama, Steering({0: np.ones(d)}, 1.0), Nll(tiny_windows)) == cells[1]


def test_the_runner_measures_steerings_and_masks_together(
    tiny_llama: LoadedModel, tiny_windows: Windows, tmp_path: Path
) -> None:
    few = tiny_windows.first(2)
    mask = edit_of([0, 5, 9], tiny_llama.rows.n_rows)
    edits = [UNEDITED, mask, steering(tiny_llama, 0), steering(tiny_llama, 1)]
    with Store(tmp_path) as store:
        cells = [Cell[Any](tiny_llama, edit, Nll(few)) for edit in edits]
        results = LocalRunner(store).run(cells)
        for edit, cell in zip(edits, cells, strict=True):
            with applied(tiny_llama, edit):
                expected = nats(tiny_llama, few)
            # other batch shapes: float32 sums in other orders
            assert results[cell].window_nats == pytest.approx(expected.tolist(), rel=1e-6)
        assert LocalRunner(store).expect(cells).to_compute == 0


def test_states_are_means_of_what_the_blocks_give(tiny_family: LoadedModel) -> None:
    sequences = [prompt_ids(tiny_family.tokenizer, prompt) for prompt in PROMPTS]
    last = [1, 3, len(sequences[2]), 2]
    found = block_states(tiny_family, sequences, last, batch_size=3)
    assert found.shape == (len(PROMPTS), 2, width(tiny_family))
    blocks = decoder_blocks(tiny_family.model)
    for row, (ids, n) in enumerate(zip(sequences, last, strict=True)):
        given: dict[int, torch.Tensor] = {}

        def keep(module: Any, _args: Any, output: Any, given: dict[int, torch.Tensor] = given) -> None:
            given[list(blocks).index(module)] = output[0] if isinstance(output, tuple) else output

        handles = [block.register_forward_hook(keep) for block in blocks]
        with torch.no_grad():
            tiny_family.model(**pad_left([ids])._asdict(), use_cache=False)
        for handle in handles:
            handle.remove()
        for number in range(2):
            mean = sum(given[number][0, -t].double() for t in range(1, n + 1)) / n
            # float32 passes of another batch shape
            assert torch.allclose(found[row, number], mean, rtol=1e-4, atol=1e-5)
    assert no_hooks(tiny_family)
    with pytest.raises(InputError, match="1 token"):
        block_states(tiny_family, sequences, [0, 1, 1, 1])
