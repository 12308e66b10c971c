"""What a cell asks of a card, counted on a CPU with a card's budgets: hardly more than a plain loop of 32 windows."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaConfig, LlamaForCausalLM

from engine import Cell, LocalRunner, Nll, Store, edit_of
from engine.data.corpora import Windows
from engine.measures import predictions
from engine.models.loading import LoadedModel
from engine.models.rows_of_modules import row_index

pytestmark = pytest.mark.long
VOCABULARY, LENGTH, BLOCKS, BATCH = 128, 512, 16, 32
REAL_VOCABULARY = 128_256
ALLOCATIONS = {"empty", "empty_strided", "empty_like", "new_empty", "new_empty_strided", "_local_scalar_dense"}
WHOLE, COMPOSITE = {"linear", "matmul", "scaled_dot_product_attention"}, "CompositeImplicitAutograd"


class Counting(TorchDispatchMode):
    """Operators that are a kernel on a card; rows of every softmax over the vocabulary; places that wait."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels, self.waits, self.softmax_rows = 0, 0, []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function._overloadpacket.__name__
        if name not in WHOLE and torch._C._dispatch_has_kernel_for_dispatch_key(function.name(), COMPOSITE):
            with self:  # inference mode hands over whole what comes in its parts elsewhere
                return function.decompose(*args, **(kwargs or {}))
        views = any(result.alias_info and not result.alias_info.is_write for result in function._schema.returns)
        self.kernels += not views and name not in {*ALLOCATIONS, "detach", "alias", "_unsafe_view"}
        self.waits += name in {"_local_scalar_dense", "nonzero", "equal", "masked_select"}
        if name == "_log_softmax":
            self.softmax_rows.append(args[0].shape[:-1].numel())
        return function(*args, **(kwargs or {}))


@pytest.fixture
def loaded(monkeypatch):
    """Random weights with the blocks of Llama-3.2-1B, narrow, and with a card's choices at its vocabulary."""
    share = VOCABULARY / REAL_VOCABULARY
    monkeypatch.setitem(predictions.LOGIT_BUDGET, "cpu", int(predictions.LOGIT_BUDGET["cuda"] * share))
    monkeypatch.setitem(predictions.LOGIT_BUDGET, "cuda", int(predictions.LOGIT_BUDGET["cuda"] * share))
    monkeypatch.setitem(predictions.SOFTMAX_BUDGET, "cpu", int(predictions.SOFTMAX_BUDGET["cuda"] * share))
    monkeypatch.setattr(predictions, "LEAST_ROWS", 1)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=256, num_hidden_layers=BLOCKS, num_attention_heads=2,
        num_key_value_heads=1,
    )  # fmt: skip
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).eval().requires_grad_(False)
    about = dict.fromkeys(("id", "weights_hash", "config_hash", "tokenizer_hash"), "random")
    rows = row_index(model)
    return LoadedModel(model=model, tokenizer=None, rows=rows, revision=None, dtype="float32", device="cpu", **about)


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_a_cell_has_hardly_more_kernels_than_a_plain_loop(loaded, rate, tmp_path):
    ids = torch.randint(0, VOCABULARY, (2 * BATCH, LENGTH), generator=torch.Generator().manual_seed(1))
    rows = loaded.rows.n_rows
    gone = np.sort(np.random.default_rng(0).choice(rows, int(rate * rows), replace=False))

    def cell(windows):
        text = Windows("random", f"{windows}", ids[:windows], tuple(range(windows)), role="evaluation")
        return Cell(replace(loaded, device="cuda"), edit_of(gone, rows), Nll(text))

    counts = {}
    with Store(tmp_path / "store") as store:
        runner = LocalRunner(store)
        runner.run([cell(2)])  # what is proven once for a model
        for windows in (1, BATCH, 2 * BATCH):
            with Counting() as counts[windows]:
                runner.run([cell(windows)])
    with Counting() as plain, torch.inference_mode():
        logits = loaded.model(input_ids=ids[:BATCH], use_cache=False).logits[:, :-1]
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:BATCH, 1:].flatten(), reduction="sum").item()
    alone, first, two = counts.values()
    of_eight = first.kernels + 7 * (two.kernels - first.kernels)
    assert of_eight <= 1.2 * 8 * plain.kernels
    assert alone.kernels <= 1.5 * plain.kernels  # which are no more for 32 windows than for one
    assert min(two.softmax_rows) >= LENGTH - 1
    assert two.waits <= 2  # passes: once in each transformers looks whether all positions are read
