"""All rows' integrated gradients in one run over the model, against captum's LayerConductance layer by layer.

    python tests/benchmarks/bench_ig.py

42 layers: a random Llama of 6 blocks with 7 Linears each. Both integrate over 16 points of the same path
and explain the same loss. captum's numbers are those of another reading of IG (conductance), so only the
time is compared; that one pass gives the right numbers is what the tests show.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch
from captum.attr import LayerConductance
from rich.console import Console
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from engine.models.rows_of_modules import row_index
from engine.selectors.gradients import IG_STEPS, relevances
from engine.selectors.passes import objective_gradient

AT_LEAST = 20.0  # times faster


def main() -> int:
    """Print both times; exit code 1 if one pass is not `AT_LEAST` times faster."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=2048, hidden_size=128, intermediate_size=384, num_hidden_layers=6, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=True,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval().requires_grad_(False)
    rows = row_index(model)
    input_ids = torch.randint(0, config.vocab_size, (4, 64))
    embeddings = model.get_input_embeddings()(input_ids)

    def all_rows() -> None:
        scores: dict[int, Tensor] = {}
        relevances(
            ["ig"],
            model,
            rows,
            input_ids,
            lambda logits: objective_gradient(logits, input_ids, "loss"),
            lambda _, layer, values: scores.__setitem__(layer, values.abs().mean((0, 1))),
        )
        assert len(scores) == len(rows.layers)

    def loss(given: Tensor) -> Tensor:
        logits = model(inputs_embeds=given, use_cache=False).logits[:, :-1]
        targets = input_ids.repeat(len(given) // len(input_ids), 1)[:, 1:]  # captum stacks the points of the path
        losses = nn.functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
        return losses.sum(-1)

    def layer_by_layer() -> None:
        for layer in rows.layers:
            conductance = LayerConductance(loss, model.get_submodule(layer.name))
            attribution = conductance.attribute(embeddings, n_steps=IG_STEPS, method="riemann_right")
            assert isinstance(attribution, Tensor)
            attribution.abs().mean((0, 1))

    all_rows()  # warm up both code paths' shared parts
    one_pass_s = min(seconds(all_rows) for _ in range(3))
    by_layer_s = seconds(layer_by_layer)
    ratio = by_layer_s / one_pass_s
    out = Console(highlight=False)
    out.print(f"{len(rows.layers)} layers, {rows.n_rows} rows, {IG_STEPS} points, {torch.get_num_threads()} threads")
    out.print(f"all rows in one pass     {one_pass_s:8.2f} s")
    out.print(f"captum layer by layer    {by_layer_s:8.2f} s")
    out.print(f"ratio                    {ratio:8.1f}   (at least {AT_LEAST:g} wanted)")
    return 0 if ratio >= AT_LEAST else 1


def seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
