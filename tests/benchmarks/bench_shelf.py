"""All selectors in one run against the dearest of them alone, for all of them and for those of each pass.

    python tests/benchmarks/bench_shelf.py [random|MODEL] [ROUNDS]

The shipped model by default; `random` is a random Llama of two blocks, for a quick look. Every member alone and the
whole shelf take turns, so that what else the machine does counts for all; the fastest rounds are compared, and without
a card the processor's seconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace

import torch
from rich.console import Console
from transformers import LlamaConfig, LlamaForCausalLM

from engine.data.corpora import Windows, windows
from engine.models.loading import LoadedModel, load_model
from engine.models.rows_of_modules import row_index
from engine.selectors import available_selectors, compute_scores

SHELVES = {
    "activations": ("wanda", "mean_activation", "activation_std", "flap", "ria"),
    "plain gradients": ("grad_x_input", "fisher", "taylor", "atp_signed", "gradient_norm"),
    "AttnLRP": ("lrp", "relp"),
    "path": ("ig", "ig_conductance"),
    "all": tuple(info.id for info in available_selectors()),
}
AT_MOST = 1.15  # times the dearest member
SIZE, SIZE_RANDOM = (16, 128), (8, 64)  # windows and their tokens
FORWARD = "the forward pass alone"


def main() -> int:
    """Print the fastest of interleaved rounds; exit code 1 if a shelf costs more than `AT_MOST` times its dearest."""
    name, rounds = [*sys.argv[1:3], *("demo", "5")[len(sys.argv) - 1 :]]
    loaded, text = random_llama() if name == "random" else on_text(name)
    ways = {member: scored(loaded, text, (member,)) for members in SHELVES.values() for member in members}
    ways |= {f"all by {shelf}": scored(loaded, text, members) for shelf, members in SHELVES.items()}
    ways[FORWARD] = forward(loaded, text)
    fastest = interleaved(ways, int(rounds))

    count, tokens = text.input_ids.shape
    out = Console(highlight=False, width=120)
    out.print(
        f"{name}: {loaded.rows.n_rows:,} rows, {count} windows of {tokens} tokens, {loaded.dtype} on {loaded.device}"
    )
    out.print(f"{torch.get_num_threads()} threads, fastest of {rounds} rounds; {FORWARD} {fastest[FORWARD]:.3f} s")
    dear = 0
    for shelf, members in SHELVES.items():
        whole, alone = fastest[f"all by {shelf}"], {member: fastest[member] for member in members}
        dearest = max(alone, key=lambda member: alone[member])
        ratio = whole / alone[dearest]
        dear += ratio > AT_MOST
        out.print(
            f"{shelf:16}{len(members):3} selectors {whole:7.3f} s, one by one {sum(alone.values()):7.3f} s, "
            f"{dearest} {alone[dearest]:7.3f} s: {ratio:.3f} of it (at most {AT_MOST:g} wanted)"
        )
    return 1 if dear else 0


def scored(loaded: LoadedModel, text: Windows, selectors: tuple[str, ...]) -> Callable[[], object]:
    return lambda: compute_scores(loaded, selectors, text, batch_size=len(text.input_ids))


def forward(loaded: LoadedModel, text: Windows) -> Callable[[], object]:
    ids = text.input_ids.to(loaded.model.device)
    return torch.no_grad()(lambda: loaded.model(input_ids=ids, use_cache=False))


def interleaved(ways: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Fewest seconds of each way, after one round that is not counted."""
    on_card = torch.cuda.is_available()
    clock = time.perf_counter if on_card else time.process_time
    fastest = dict.fromkeys(ways, float("inf"))
    for count in range(rounds + 1):
        for name, way in ways.items():
            start = clock()
            way()
            if on_card:
                torch.cuda.synchronize()
            if count:
                fastest[name] = min(fastest[name], clock() - start)
    return fastest


def on_text(name: str) -> tuple[LoadedModel, Windows]:
    loaded = load_model(name)
    corpus = "demo" if name == "demo" else "wikitext2"
    return loaded, windows(corpus, loaded.tokenizer, role="calibration", samples=SIZE[0], length=SIZE[1])


def random_llama() -> tuple[LoadedModel, Windows]:
    """Wide enough that matrix products count: on a narrower model a pass is mostly sums over tokens."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=512, hidden_size=256, intermediate_size=704, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval().requires_grad_(False)
    loaded, text = on_text("demo")
    ids = torch.randint(0, config.vocab_size, SIZE_RANDOM)
    rows = row_index(model)
    return replace(loaded, model=model, rows=rows, dtype="float32", device="cpu"), replace(text, input_ids=ids)


if __name__ == "__main__":
    sys.exit(main())
