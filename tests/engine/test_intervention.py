"""zeroed(): rows are dead inside and bit-exact outside, whatever ends the block."""

import signal
import sys
import threading
import time

import numpy as np
import pytest
import torch
from same_bits import assert_same_bits, bits

import engine.interventions.in_weights as intervention
from engine.interventions.in_weights import SavedRows, zeroed
from engine.interventions.uninterrupted import Undone, uninterrupted
from engine.models.rows_of_modules import row_index


def some_mask(rows, share=0.3, seed=0):
    generator = np.random.default_rng(seed)
    return np.sort(generator.choice(rows.n_rows, size=round(share * rows.n_rows), replace=False))


def test_rows_are_zero_inside_and_only_those(tiny_family):
    model, rows = tiny_family.model, tiny_family.rows
    before, mask = bits(model), some_mask(tiny_family.rows)
    removed = set(mask.tolist())
    with zeroed(tiny_family, mask):
        for layer in rows.layers:
            linear = model.get_submodule(layer.name)
            for row in range(layer.rows):
                dead = layer.start + row in removed
                weight, old = linear.weight[row], before[f"{layer.name}.weight"][row]
                assert torch.equal(weight, torch.zeros_like(weight) if dead else old)
                if linear.bias is not None:
                    old_bias = before[f"{layer.name}.bias"][row]
                    assert linear.bias[row] == (0 if dead else old_bias)
    assert_same_bits(model, before)


def test_removed_rows_output_exactly_zero(tiny_family):
    """Seen from outside: the Linear's output in those columns is zero for any input, bias included."""
    model, rows = tiny_family.model, tiny_family.rows
    layer = rows.layers[0]
    mask = np.array([layer.start, layer.start + layer.rows - 1])
    linear = model.get_submodule(layer.name)
    with zeroed(tiny_family, mask):
        output = linear(torch.randn(5, linear.in_features, dtype=linear.weight.dtype))
    assert (output[:, [0, -1]] == 0).all()
    assert (output[:, 1:-1] != 0).all()


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_restored_after_whatever_ends_the_block(tiny_llama, error):
    before = bits(tiny_llama.model)
    with pytest.raises(error), zeroed(tiny_llama, some_mask(tiny_llama.rows)):
        raise error
    assert_same_bits(tiny_llama.model, before)
    with zeroed(tiny_llama, [0]):  # and the model can be masked again
        pass


def test_restored_when_zeroing_itself_fails_half_way(tiny_llama, monkeypatch):
    before = bits(tiny_llama.model)
    original, calls = intervention.saved_rows, []

    def failing(*args, **kwargs):
        calls.append(1)
        if len(calls) == 5:
            raise torch.OutOfMemoryError("no room for the fifth copy")
        return original(*args, **kwargs)

    monkeypatch.setattr(intervention, "saved_rows", failing)
    with pytest.raises(torch.OutOfMemoryError), zeroed(tiny_llama, some_mask(tiny_llama.rows)):
        pytest.fail("the block must not run")
    assert_same_bits(tiny_llama.model, before)


@pytest.fixture
def ctrl_c():
    """Sends the signal of Ctrl-C, which raises KeyboardInterrupt in the main thread wherever that is."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda: signal.raise_signal(signal.SIGINT)
    signal.signal(signal.SIGINT, before)


def test_interrupts_during_the_restore_do_not_stop_it(tiny_llama, monkeypatch, ctrl_c):
    before = bits(tiny_llama.model)
    original, sent = SavedRows.put_back, []

    def interrupted(saved):
        if len(sent) < 3:
            sent.append(1)
            ctrl_c()
            time.sleep(0.02)  # the main thread takes it meanwhile
        original(saved)

    monkeypatch.setattr(SavedRows, "put_back", interrupted)
    with pytest.raises(KeyboardInterrupt), zeroed(tiny_llama, some_mask(tiny_llama.rows)):
        pass
    assert len(sent) == 3
    assert_same_bits(tiny_llama.model, before)
    assert tiny_llama.model not in intervention._masked


def test_an_interrupt_at_any_instant_of_the_restore_does_not_stop_it(tiny_llama):
    """Every instruction of the main thread's part in turn, its entry too, raises KeyboardInterrupt once."""
    before, mask = bits(tiny_llama.model), some_mask(tiny_llama.rows)
    codes = {uninterrupted.__code__, Undone.__exit__.__code__}
    countdown = [0]

    def trace(frame, event, _):
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
        countdown[0] = 0
        with zeroed(tiny_llama, mask):
            sys.settrace(trace)  # in peace: Python 3.13.0 tells of every instruction from the second time on
        sys.settrace(own)
        countdown[0] = instant
        try:
            with zeroed(tiny_llama, mask):
                sys.settrace(trace)
        except KeyboardInterrupt:
            interrupted = True
        else:
            interrupted = False
        finally:
            sys.settrace(own)
        assert_same_bits(tiny_llama.model, before)
        assert tiny_llama.model not in intervention._masked
        if not interrupted:
            break
    assert 20 < instant < 999


def test_a_model_that_could_not_be_restored_stays_marked(tiny_llama, monkeypatch):
    before, original = bits(tiny_llama.model), SavedRows.put_back
    edit = zeroed(tiny_llama, some_mask(tiny_llama.rows))
    broken = []

    def failing(saved):
        if broken:
            raise RuntimeError("the device is gone")
        original(saved)

    monkeypatch.setattr(SavedRows, "put_back", failing)
    edit.__enter__()
    broken.append(1)
    with pytest.raises(RuntimeError, match="the device is gone"):
        edit.__exit__(None, None, None)
    with pytest.raises(RuntimeError, match="already carries a mask"), zeroed(tiny_llama, [0]):
        pytest.fail("a mask on top of a model that is not whole")
    for name, value in tiny_llama.model.state_dict().items():
        value.copy_(before[name])
    intervention._masked.discard(tiny_llama.model)


def test_bfloat16_comes_back_bit_exactly(tiny_llama):
    model = tiny_llama.model
    lowered = type(model)(model.config).to(torch.bfloat16).eval()
    before = bits(lowered)
    with zeroed(lowered, some_mask(row_index(lowered), share=0.9)):
        pass
    assert_same_bits(lowered, before)


def test_weights_shared_between_layers_come_back(tiny_llama):
    """Two Linears over one parameter, both masked in the same row: the second saves a row already zeroed."""
    model = tiny_llama.model
    first, second = (tiny_llama.rows.layers[i] for i in (4, 11))
    one, two = model.get_submodule(first.name), model.get_submodule(second.name)
    assert one.weight.shape == two.weight.shape
    own = two.weight
    try:
        two.weight = one.weight
        before = bits(model)
        with zeroed(tiny_llama, [first.start + 1, first.start + 2, second.start + 1, second.start + 3]):
            assert (one.weight[1:4] == 0).all()
        assert_same_bits(model, before)
    finally:
        two.weight = own


def test_a_second_mask_inside_the_first_is_an_error(tiny_llama):
    before = bits(tiny_llama.model)
    with zeroed(tiny_llama, [0]), pytest.raises(RuntimeError, match="already carries a mask"), zeroed(tiny_llama, [1]):
        pytest.fail("the inner block must not run")
    with zeroed(tiny_llama.model, [0]), pytest.raises(RuntimeError), zeroed(tiny_llama, [1]):
        pytest.fail("nor through the other way to name the model")
    assert_same_bits(tiny_llama.model, before)


def test_threads_wait_for_each_other(tiny_llama):
    """Each thread sees exactly its own mask, never a mixture."""
    layer = tiny_llama.rows.layers[0]
    weight = tiny_llama.model.get_submodule(layer.name).weight
    before, wrong = bits(tiny_llama.model), []

    def edit(row):
        for _ in range(50):
            with zeroed(tiny_llama, [layer.start + row]):
                dead = (weight == 0).all(dim=1).nonzero().flatten().tolist()
                if dead != [row]:
                    wrong.append((row, dead))

    threads = [threading.Thread(target=edit, args=(row,)) for row in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not wrong
    assert_same_bits(tiny_llama.model, before)
