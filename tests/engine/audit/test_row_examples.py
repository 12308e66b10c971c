"""Strongest tokens of a row against a loop over windows, layers and positions, for every family."""

import threading

import numpy as np
import pytest
import torch

from engine.data.corpora import windows
from engine.measures.row_examples import SCHEMA, row_examples
from engine.records.errors import InputError

WINDOWS, LENGTH, TOP, CONTEXT = 5, 14, 4, 3


@pytest.fixture
def tokens(tiny_family, tiny_text):
    return windows(str(tiny_text), tiny_family.tokenizer, role="evaluation", samples=WINDOWS, length=LENGTH)


def by_hand(loaded, tokens, row_id):
    """(value, window, position) of every token, strongest first; one window at a time, weights by hand."""
    layer = next(la for la in loaded.rows.layers if la.start <= row_id < la.start + la.rows)
    linear = loaded.model.get_submodule(layer.name)
    inputs = []
    handle = linear.register_forward_pre_hook(lambda _, given: inputs.append(given[0].detach()))
    found = []
    for window, ids in enumerate(tokens.input_ids):
        inputs.clear()
        with torch.no_grad():
            loaded.model(input_ids=ids[None])
        for position, x in enumerate(inputs[0].reshape(LENGTH, -1)):
            i = row_id - layer.start
            h = float((linear.weight[i] * x).sum()) + (0.0 if linear.bias is None else float(linear.bias[i]))
            found.append((h, window, position))
    handle.remove()
    return sorted(found, key=lambda entry: -abs(entry[0]))


@pytest.mark.parametrize("batch_size", [1, 2, "auto"])
def test_strongest_tokens_are_those_of_a_loop(tiny_family, tokens, batch_size):
    layers = tiny_family.rows.layers
    chosen = [layers[-1].start + 1, layers[0].start + 3, layers[0].start, layers[3].start + 2]
    table = row_examples(tiny_family, tokens, chosen, top=TOP, context=CONTEXT, batch_size=batch_size)
    assert dict(table.schema) == SCHEMA
    assert table["row_id"].unique(maintain_order=True).to_list() == sorted(chosen)
    for row_id in chosen:
        mine = table.filter(table["row_id"] == row_id)
        expected = by_hand(tiny_family, tokens, row_id)
        assert mine["place"].to_list() == list(range(1, TOP + 1))
        assert mine["value"].to_list() == pytest.approx([h for h, *_ in expected[:TOP]], rel=1e-4, abs=1e-5)
        if abs(abs(expected[0][0]) - abs(expected[1][0])) > 1e-4:  # else rounding may swap the two
            assert (mine["window"][0], mine["position"][0]) == expected[0][1:]


def test_texts_are_the_tokens_around(tiny_llama, tiny_windows):
    table = row_examples(tiny_llama, tiny_windows, [7], top=30, context=CONTEXT)
    decode = tiny_llama.tokenizer.decode
    for line in table.iter_rows(named=True):
        ids, at = tiny_windows.input_ids[line["window"]].tolist(), line["position"]
        assert line["token"] == decode([ids[at]])
        assert line["before"] == decode([ids[i] for i in range(at - CONTEXT, at) if i >= 0])
        assert line["after"] == decode([ids[i] for i in range(at + 1, at + 1 + CONTEXT) if i < len(ids)])
    assert {0, tiny_windows.input_ids.shape[1] - 1} & set(table["position"])  # an edge was among them


def test_equal_outputs_stay_in_the_order_of_the_text(tiny_llama, tiny_windows):
    linear = tiny_llama.model.get_submodule(tiny_llama.rows.layers[0].name)
    kept = linear.weight[2].clone()
    try:
        linear.weight[2] = 0  # the row is silent: every output is 0
        tables = [row_examples(tiny_llama, tiny_windows, [2], top=5, batch_size=n) for n in (1, 4)]
    finally:
        linear.weight[2] = kept
    for table in tables:
        assert table.select("window", "position").rows() == [(0, i) for i in range(5)]


def test_a_short_text_gives_fewer_and_no_rows_give_none(tiny_llama, tiny_windows):
    one = tiny_windows.first(1)
    assert row_examples(tiny_llama, one, [0, 9], top=500).height == 2 * one.input_ids.shape[1]
    assert row_examples(tiny_llama, one, []).is_empty()


def test_the_model_is_locked_meanwhile_and_no_hook_stays(tiny_llama, tiny_windows):
    free = []

    def other_thread(*_):
        def attempt():
            free.append(tiny_llama.lock.acquire(blocking=False))

        thread = threading.Thread(target=attempt)
        thread.start()
        thread.join()

    handle = tiny_llama.model.register_forward_pre_hook(other_thread)
    try:
        row_examples(tiny_llama, tiny_windows, [1])
    finally:
        handle.remove()
    assert free
    assert not any(free)
    assert all(not module._forward_hooks for module in tiny_llama.model.modules())


@pytest.mark.parametrize(
    ("rows", "more", "said"),
    [([0, 10**6], {}, "1000000"), ([3, 3], {}, "twice"), ([1], {"top": 0}, "top"), ([1], {"context": -1}, "context")],
)  # fmt: skip
def test_wrong_input_is_one_clear_line(tiny_llama, tiny_windows, rows, more, said):
    with pytest.raises(InputError, match=said):
        row_examples(tiny_llama, tiny_windows, np.array(rows), **more)
