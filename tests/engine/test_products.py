"""Large float32 products by oneDNN on AMD's processors: the same numbers, only where they are asked for."""

import copy
import threading

import pytest
import torch
from tiny_models import load_tiny
from torch import Tensor, nn
from torch.nn import functional

from engine import Cell, LocalRunner, Nll, Store, edit_of
from engine.interventions.rewrites import make_rewrite, rewritten
from engine.measures.generation import generate_under
from engine.measures.logit_bits import LogitBits
from engine.models import products

BY_ONEDNN = "mkldnn::_linear_pointwise"
SHAPES = [(700, 192, 512), (4, 40, 192, 512), (2, 3, 100, 64, 600), (1, 3000, 4000)]  # tokens ..., inputs, outputs

needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")


@pytest.fixture
def offered(monkeypatch):
    """As on a processor of AMD's, whichever this is."""
    monkeypatch.setattr(products, "_processor", lambda: "vendor_id\t: AuthenticAMD")
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    products.are_offered.cache_clear()
    yield
    products.are_offered.cache_clear()


def linear_of(inputs: int, outputs: int, bias: bool) -> nn.Linear:
    torch.manual_seed(0)
    linear = nn.Linear(inputs, outputs, bias=bias).requires_grad_(False)
    products.offer_faster_products(nn.Sequential(linear))
    return linear


def used(work) -> bool:
    """Does it multiply by oneDNN?"""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        work()
    return any(one.key == BY_ONEDNN for one in seen.key_averages())


@needs_onednn
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_same_products(offered, shape, bias):
    *tokens, inputs, outputs = shape
    linear, given = linear_of(inputs, outputs, bias), torch.randn(*tokens, inputs)
    with products.faster_products():
        assert used(lambda: linear(given))
        found = linear(given)
    exact = functional.linear(given.double(), linear.weight.double(), linear.bias.double() if bias else None)
    assert found.shape == (*tokens, outputs)
    apart = (found.double() - exact).abs().max() / exact.abs().max()
    usual = (functional.linear(given, linear.weight, linear.bias).double() - exact).abs().max() / exact.abs().max()
    assert apart < max(1e-6, 4 * usual)


@needs_onednn
def test_rows_of_zeros_give_zeros_to_the_bit(offered):
    linear, given = linear_of(192, 512, False), torch.randn(400, 192)
    linear.weight[5::7] = 0
    with products.faster_products():
        assert used(lambda: linear(given))
        assert linear(given)[:, 5::7].eq(0).all()


@needs_onednn
@pytest.mark.parametrize(
    "given",
    [torch.randn(2, 192), torch.randn(400, 192, dtype=torch.float64), torch.randn(400, 192).bfloat16()],
    ids=["small", "float64", "bfloat16"],
)
def test_other_products_are_torchs_own(offered, given):
    linear = linear_of(192, 512, True).to(given.dtype)
    with products.faster_products():
        assert not used(lambda: linear(given))
        assert torch.equal(linear(given), functional.linear(given, linear.weight, linear.bias))


@needs_onednn
def test_gradients_are_those_of_torch(offered):
    linear, given = linear_of(192, 512, False), torch.randn(400, 192, requires_grad=True)
    with products.faster_products():
        assert not used(lambda: linear(given))
        (mine,) = torch.autograd.grad(linear(given).square().sum(), given)
    (plain,) = torch.autograd.grad(functional.linear(given, linear.weight).square().sum(), given)
    assert torch.equal(mine, plain)


@needs_onednn
def test_only_inside_and_only_in_the_thread_that_asked(offered):
    linear, given = linear_of(192, 512, False), torch.randn(400, 192)
    plain, elsewhere = functional.linear(given, linear.weight), []

    def another() -> None:
        elsewhere.append(linear(given))

    assert torch.equal(linear(given), plain)
    with products.faster_products():
        thread = threading.Thread(target=another)
        thread.start()
        thread.join()
        with products.faster_products():
            pass
        assert used(lambda: linear(given))
    assert not used(lambda: linear(given))
    assert torch.equal(elsewhere[0], plain)


@needs_onednn
def test_a_copy_of_a_model_multiplies_its_own_weights(offered):
    linear, given = linear_of(192, 512, False), torch.randn(400, 192)
    other = copy.deepcopy(linear)
    other.weight.zero_()
    with products.faster_products():
        assert other(given).eq(0).all()
        assert not linear(given).eq(0).any()


@pytest.mark.parametrize("processor", ["vendor_id\t: GenuineIntel", ""])
def test_other_processors_are_left_as_they_are(monkeypatch, processor):
    monkeypatch.setattr(products, "_processor", lambda: processor)
    products.are_offered.cache_clear()
    try:
        linear = linear_of(192, 512, False)
        assert "forward" not in vars(linear)
    finally:
        products.are_offered.cache_clear()


@needs_onednn
def test_a_runners_cells_take_it_and_say_the_same(offered, tmp_path, tiny_windows, monkeypatch):
    loaded = load_tiny("llama", tmp_path / "model")
    edits = [edit_of(rows, loaded.rows.n_rows) for rows in ([], [3, 40, 41])]

    def measured(least: int) -> Tensor:
        monkeypatch.setattr(products, "LEAST", least)
        with Store(tmp_path / str(least)) as store:
            cells = [Cell(loaded, edit, Nll(tiny_windows)) for edit in edits]
            found = LocalRunner(store).run(cells)
            return torch.tensor([found[cell].window_nats for cell in cells], dtype=torch.float64)

    assert used(lambda: measured(0))
    assert not used(lambda: measured(2**62))
    assert torch.allclose(measured(1), measured(2**61), rtol=1e-6)


@needs_onednn
def test_replies_take_it_and_say_the_same(offered, tmp_path, monkeypatch):
    loaded = load_tiny("llama", tmp_path / "model")
    edits = [edit_of(rows, loaded.rows.n_rows) for rows in ([], [3, 40, 41])]

    def replies(least: int) -> list[list[tuple[int, ...]]]:
        monkeypatch.setattr(products, "LEAST", least)
        return [[reply.ids for reply in some] for some in generate_under(loaded, edits, ["a b c", "d"], 8)]

    assert used(lambda: replies(0))
    assert not used(lambda: replies(2**62))
    assert replies(1) == replies(2**61)


@needs_onednn
def test_bits_are_compared_without_it(offered, tmp_path, tiny_windows, monkeypatch):
    loaded = load_tiny("llama", tmp_path / "model")
    monkeypatch.setattr(products, "LEAST", 0)
    with Store(tmp_path / "store") as store:
        cell = Cell(loaded, edit_of([], loaded.rows.n_rows), LogitBits(tiny_windows))
        assert not used(lambda: LocalRunner(store).run([cell]))
        with rewritten(loaded, make_rewrite("decoys", loaded, seed=0)) as inside:
            decoys = Cell(inside, cell.edit, cell.measure)
            found = LocalRunner(store).run([cell, decoys])
            assert found[decoys].same_function(found[cell])
