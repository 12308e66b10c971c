"""Passes that begin at the first edited block: the bits of whole passes from fewer blocks, where that is proven."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest
import torch
from tiny_models import load_tiny
from window_nll import window_nll

from engine.edits.edit import UNEDITED, Edit, Steering, edit_of
from engine.interventions import earlier_blocks as earlier_module
from engine.interventions.at_outputs import applied
from engine.interventions.earlier_blocks import FromFirstEdited, first_edited_block, outputs_kept
from engine.measures.nll import Nll
from engine.models.rows_of_modules import decoder_blocks
from engine.models.units import column_index
from engine.results.store import Store
from engine.run import edited_passes
from engine.run.ray_runner import Worker, source_of
from engine.run.runner import Cell, LocalRunner

BLOCKS = 4
OTHERS = ("gpt_neox", "gpt2", "mixtral", "mamba")


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    return load_tiny("llama", tmp_path_factory.mktemp("deep"), num_hidden_layers=BLOCKS)


@pytest.fixture
def runner(tmp_path):
    with Store(tmp_path) as store:
        yield LocalRunner(store)


def of_block(loaded, block, number):
    """An edit of a few rows of this block and the last."""
    frame = loaded.rows.frame()
    rows = frame.filter(block=block)["row_id"].to_numpy()
    chosen = np.random.default_rng(number).choice(rows, 5, replace=False)
    return edit_of([*{*chosen.tolist(), loaded.rows.n_rows - 1 - number}], loaded.rows.n_rows)


class Runs:
    """How often the attention of each block has run, hooks and all that is not the block's own work aside."""

    def __init__(self, loaded):
        self.counts = [0] * len(decoder_blocks(loaded.model))
        layers = {layer.block: layer.name for layer in reversed(loaded.rows.layers)}  # the first Linear of each block
        self._handles = [
            loaded.model.get_submodule(name).register_forward_hook(lambda *_, block=block: self._count(block))
            for block, name in layers.items()
        ]

    def _count(self, block):
        self.counts[block] += 1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for handle in self._handles:
            handle.remove()


def whole(loaded, edit, windows):
    """NLL by a pass through every block."""
    with applied(loaded, edit):
        return tuple(window_nll(loaded.model, windows.input_ids)[0].tolist())


@pytest.mark.parametrize("together", [1, 3])
def test_blocks_before_the_first_edited_one_run_once_for_all_edits(deep, tiny_windows, runner, monkeypatch, together):
    """In the weights and at the outputs, in any order: every result has the bits of a whole pass."""
    monkeypatch.setattr(edited_passes, "EDITS_TOGETHER", together)
    edits = [of_block(deep, block, number) for number in range(3) for block in (3, 1, 2, 0)]
    measure = Nll(tiny_windows, len(tiny_windows.input_ids))
    cells = [Cell(deep, edit, measure) for edit in edits]
    runner.run(cells[:4])  # what each block must prove, it has proven now
    with Runs(deep) as runs:
        results = runner.run(cells)
    alone = [whole(deep, edit, tiny_windows) for edit in edits]
    assert len(set(alone)) == len(edits)
    # In a batch with other sequences a matrix product may sum in another order.
    same = [results[cell].window_nats for cell in cells]
    assert same == alone if together == 1 else np.allclose(same, alone, rtol=1e-6)
    if together == 1:  # of two edits that begin at block b, the second leaves out the blocks before it
        assert runs.counts == [2 + 1 + 1 + 1, 2 + 2 + 1 + 1, 2 + 2 + 2 + 1, 2 + 2 + 2 + 2]


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.long) for name in OTHERS])
def test_other_architectures_give_the_bits_of_whole_passes(name, tmp_path, tiny_windows, runner):
    loaded = load_tiny(name, tmp_path / name)
    edits = [of_block(loaded, 1, number) for number in range(3)]
    cells = [Cell(loaded, edit, Nll(tiny_windows, len(tiny_windows.input_ids))) for edit in edits]
    with Runs(loaded) as runs:
        results = runner.run(cells)
    assert runs.counts[0] < runs.counts[1]
    for cell, edit in zip(cells, edits, strict=True):
        assert np.allclose(results[cell].window_nats, whole(loaded, edit, tiny_windows), rtol=1e-6)


def test_every_family_gives_the_bits_of_whole_passes(tiny_family, tiny_windows):
    edits = [of_block(tiny_family, 1, number) for number in range(3)]
    with outputs_kept(), Runs(tiny_family) as runs:
        for edit in edits:
            with applied(tiny_family, edit):
                passes = FromFirstEdited(tiny_family, [edit])
                before = list(runs.counts)
                with passes.over(tiny_windows.input_ids):
                    found = tuple(window_nll(tiny_family.model, tiny_windows.input_ids)[0].tolist())
                ran = np.subtract(runs.counts, before).tolist()
            assert found == whole(tiny_family, edit, tiny_windows)
            assert ran == ([1, 1] if edit is edits[0] else [0, 1])


def test_a_worker_of_a_cluster_begins_late_too(deep, tiny_windows):
    worker, measure = Worker(source_of(deep)), Nll(tiny_windows, len(tiny_windows.input_ids))
    worker.process()
    loaded = worker._loaded
    with Runs(loaded) as runs:
        for number in range(3):
            edit = of_block(loaded, 3, number)
            _, [stored], _ = worker.measure(0, measure, [edit], {})
            assert tuple(json.loads(stored)["window_nats"]) == whole(deep, edit, tiny_windows)
    ran = np.subtract(runs.counts, runs.counts[0])
    assert ran.tolist() == [0, 0, 0, 2 + 1]  # of three passes, and of the proof that they may begin there


def test_the_first_edited_block_is_that_of_the_rows(deep):
    assert first_edited_block(deep, []) == first_edited_block(deep, [UNEDITED]) == 0
    frame = deep.rows.frame()
    for row in (0, 57, 200, deep.rows.n_rows - 1):
        edit = edit_of(sorted({row, deep.rows.n_rows - 1}), deep.rows.n_rows)
        assert first_edited_block(deep, [UNEDITED, edit]) == frame.filter(row_id=row)["block"].item()
    assert first_edited_block(deep, [of_block(deep, 3, 0), of_block(deep, 1, 0)]) == 1
    vector = np.ones(deep.model.config.hidden_size, dtype=np.float32)
    assert first_edited_block(deep, [Steering({3: vector, 2: vector}, 1.0)]) == 2
    columns = column_index(deep)
    last = columns.layers[-1]
    assert first_edited_block(deep, [Edit(lambda: np.array([last.start]), 1, side="input")]) == last.block == 3


def later_reads_earlier(loaded, stale):
    """Block 2 adds what block 0 said, from where block 0 has left it; stale: it stays there for the next pass."""
    left = {}

    def leave(_module, _args, output):
        left["of 0"] = output

    def read(_module, _args, output):
        return output + (left["of 0"] if stale else left.pop("of 0"))

    blocks = decoder_blocks(loaded.model)
    return [blocks[0].mlp.register_forward_hook(leave), blocks[2].register_forward_hook(read)]


def first_runs_twice(loaded, _stale):
    """Block 0 runs once more at the end of a pass, on what it was given first."""
    given = {}
    blocks = decoder_blocks(loaded.model)

    def keep(_module, args, more):
        given.setdefault("now", (args, more))

    def once_more(_module, args):
        inputs, more = given["now"]
        again = blocks[0](*inputs, **more)
        given.clear()
        return (args[0] + again, *args[1:])

    return [
        blocks[0].register_forward_pre_hook(keep, with_kwargs=True),
        loaded.model.model.norm.register_forward_pre_hook(once_more),
    ]


@pytest.mark.parametrize("stale", [True, False])
@pytest.mark.parametrize("made", [later_reads_earlier, first_runs_twice])
def test_a_model_that_cannot_begin_late_is_passed_whole(made, stale, tmp_path, tiny_windows, runner):
    loaded = load_tiny("llama", tmp_path / "other", num_hidden_layers=BLOCKS)
    handles = made(loaded, stale)
    edits = [of_block(loaded, 1, number) for number in range(3)]
    try:
        cells = [Cell(loaded, edit, Nll(tiny_windows, len(tiny_windows.input_ids))) for edit in edits]
        results = runner.run(cells)
        for cell, edit in zip(cells, edits, strict=True):
            assert np.allclose(results[cell].window_nats, whole(loaded, edit, tiny_windows), rtol=1e-6)
        with outputs_kept():
            assert FromFirstEdited(loaded, edits)._first == 0
    finally:
        for handle in handles:
            handle.remove()


def test_blocks_are_as_they_were_whatever_ends_a_pass(deep, tiny_windows):
    """Also one that has a forward of its own, as accelerate gives it."""
    blocks, edit = decoder_blocks(deep.model), of_block(deep, 2, 0)

    def interrupted(passes):
        with passes.over(tiny_windows.input_ids):
            assert "forward" in vars(blocks[1])
            assert blocks[0].forward is not own
            raise KeyboardInterrupt

    original = blocks[0].forward
    blocks[0].forward = lambda *args, **more: original(*args, **more)
    own = blocks[0].forward
    try:
        with outputs_kept(), applied(deep, edit):
            passes = FromFirstEdited(deep, [edit])
            with passes.over(tiny_windows.input_ids):
                window_nll(deep.model, tiny_windows.input_ids)
            with pytest.raises(KeyboardInterrupt):
                interrupted(passes)
        assert blocks[0].forward is own
        assert all("forward" not in vars(block) for block in list(blocks)[1:])
    finally:
        del blocks[0].forward


def test_another_thread_passes_through_every_block(deep, tiny_windows):
    edit, ids = of_block(deep, 2, 0), tiny_windows.input_ids
    expected = window_nll(deep.model, ids.flip(0))[0]
    found = []
    with outputs_kept():
        passes = FromFirstEdited(deep, [edit])
        for _ in range(2):
            with passes.over(ids):
                other = threading.Thread(target=lambda: found.append(window_nll(deep.model, ids.flip(0))[0]))
                other.start()
                other.join()
                window_nll(deep.model, ids)
    assert all(torch.equal(one, expected) for one in found)
    assert len(found) == 2


def test_little_is_kept(deep, tiny_windows, monkeypatch):
    """Outputs of one block at a time, and no more bytes than are allowed."""
    ids = tiny_windows.input_ids
    size = ids.numel() * deep.model.config.hidden_size * 4
    half = ids[: len(ids) // 2]
    with outputs_kept():
        kept = earlier_module._here.kept
        for block in (1, 2):
            passes = FromFirstEdited(deep, [of_block(deep, block, 0)])
            for some in (ids, half):
                with passes.over(some):
                    window_nll(deep.model, some)
            assert len(kept._outputs) == 2
        assert (
            kept._bytes
            == sum(one.nbytes for one in kept._outputs.values())
            == size + half.numel() * size // ids.numel()
        )
        monkeypatch.setattr(earlier_module, "KEPT_BYTES", size - 1)
        passes = FromFirstEdited(deep, [of_block(deep, 3, 0)])
        for some in (ids, half):
            with passes.over(some):
                window_nll(deep.model, some)
        assert [one.shape[0] for one in kept._outputs.values()] == [len(half)]
    assert getattr(earlier_module._here, "kept", None) is None
