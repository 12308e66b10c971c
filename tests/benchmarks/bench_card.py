"""Cells, replies and scores on a card against plain transformers, on random weights in a published model's shape.

    python tests/benchmarks/bench_card.py [1B|8B|tiny] [--only cells,little,replies,scores]

bfloat16. Peers are a loop of transformers at its best batch of 4, 8 and 32 windows with all logits at once, and
`generate` on all prompts in one batch, once for every edit. What is measured is size, not sense. Both sides take turns;
the best of `ROUNDS` counts, the first replies apart. `tiny` tries the script where there is no card.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from rich.console import Console
from torch.nn import functional
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from engine import Cell, LocalRunner, Nll, Store, compute_scores, edit_of
from engine.data.corpora import Windows
from engine.data.prompts import pad_left, prompt_ids
from engine.edits.edit import AnyEdit
from engine.measures.generation import generate_batch, generate_under
from engine.models.loading import LoadedModel
from engine.models.products import without_plans
from engine.models.rows_of_modules import row_index
from engine.records.shipped import demo_model_dir

SHAPES: dict[str, dict[str, Any]] = {  # of the published configurations of Llama-3.2-1B and Llama-3.1-8B
    "1B": {
        "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "tie_word_embeddings": True,
    },
    "8B": {
        "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": False,
    },
    "tiny": {
        "vocab_size": 4096, "hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "tie_word_embeddings": True,
    },
}  # fmt: skip
WINDOWS = {"1B": (256, 512), "8B": (128, 512), "tiny": (8, 64)}
REPLIES = {"1B": (8, 64, 64), "8B": (8, 64, 64), "tiny": (2, 8, 16)}  # edits, prompts, tokens
SCORED = {"1B": (64, 128), "8B": (16, 128), "tiny": (4, 64)}
FLOPS = {"wanda": 2, "mean_activation": 2, "grad_x_input": 4, "lrp": 4, "ig": 64}  # per weight and token
RATES, ROUNDS = (0.002, 0.3, 0.5, 0.7, 0.9), 3
T = TypeVar("T")


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Seconds until the device has done it, and what it gave."""
    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    wait()
    start = time.perf_counter()
    found = work()
    wait()
    return time.perf_counter() - start, found


def size(text: Windows) -> str:
    return " x ".join(map(str, text.input_ids.shape)) + " tokens"


class Bench:
    def __init__(self, name: str) -> None:
        self.name, self.device = name, "cuda" if torch.cuda.is_available() else "cpu"
        without_plans(torch.device(self.device))
        torch.manual_seed(0)
        torch.set_default_dtype(torch.bfloat16)
        with torch.device(self.device):
            self.model = LlamaForCausalLM(LlamaConfig(max_position_embeddings=4096, **SHAPES[name]))
        torch.set_default_dtype(torch.float32)
        self.model.eval().requires_grad_(False)
        about = dict.fromkeys(("id", "weights_hash", "config_hash", "tokenizer_hash"), name)
        self.loaded = LoadedModel(
            model=self.model, tokenizer=AutoTokenizer.from_pretrained(demo_model_dir()), rows=row_index(self.model),
            revision=None, dtype="bfloat16", device=self.device, **about,
        )  # fmt: skip
        self.weights = sum(part.weight.numel() for part in self.model.modules() if isinstance(part, torch.nn.Linear))
        self.draws = np.random.default_rng(0)
        self.folder = tempfile.TemporaryDirectory()
        self.runner = LocalRunner(Store(Path(self.folder.name) / "store"))
        self.rate = self._rate()

    def _rate(self) -> float:
        """FLOPs a second of a large matrix product."""
        size = 8192 if self.device == "cuda" else 1024
        one, other = (torch.randn(size, size, device=self.device, dtype=torch.bfloat16) for _ in range(2))
        for _ in range(3):
            one @ other
        return 20 * 2 * size**3 / timed(lambda: [one @ other for _ in range(20)])[0]

    def text(self, windows: int, length: int) -> Windows:
        numbers = torch.Generator().manual_seed(windows)
        ids = torch.randint(0, SHAPES[self.name]["vocab_size"], (windows, length), generator=numbers)
        return Windows(self.name, f"{windows} x {length}", ids, tuple(range(windows)), role="evaluation")

    def edit(self, rate: float) -> AnyEdit:
        """A new one every time, so that no cell is kept."""
        n_rows = self.loaded.rows.n_rows
        return edit_of(np.sort(self.draws.choice(n_rows, max(1, int(rate * n_rows)), replace=False)), n_rows)

    def cell(self, text: Windows, rate: float) -> tuple[float, float]:
        """Seconds and nats."""
        cell = Cell(self.loaded, self.edit(rate), Nll(text))
        seconds, found = timed(lambda: self.runner.run([cell])[cell])
        return seconds, found.nats_per_token

    @torch.no_grad()
    def plain(self, text: Windows, batch: int) -> tuple[float, float]:
        ids = text.input_ids.to(self.device)

        def loop() -> float:
            total = torch.zeros((), device=self.device, dtype=torch.float64)
            for some in ids.split(batch):
                logits = self.model(input_ids=some, use_cache=False).logits[:, :-1].flatten(0, 1).float()
                total += functional.cross_entropy(logits, some[:, 1:].flatten(), reduction="sum").double()
            return total.item() / ids[:, 1:].numel()

        return timed(loop)

    def cells(self, say: Callable[[str], None]) -> None:
        text = self.text(*WINDOWS[self.name])
        self.cell(text, 0.002)
        peer: dict[int, list[tuple[float, float]]] = {batch: [] for batch in (4, 8, 32)}
        found: dict[float, list[tuple[float, float]]] = {rate: [] for rate in RATES}
        for _ in range(ROUNDS):
            for batch, runs in peer.items():
                runs.append(self.plain(text, batch))
            for rate, cells in found.items():
                cells.append(self.cell(text, rate))
        best = {batch: min(runs)[0] for batch, runs in peer.items()}
        loop = min(best.values())
        say(f"plain loop of {size(text)}: " + ", ".join(f"batch {b} {s:.3f} s" for b, s in best.items()))
        tokens = text.input_ids.numel()
        for rate, cells in found.items():
            seconds = min(cells)[0]
            share = 2 * self.weights * tokens / seconds / self.rate
            say(f"cell with {rate:.1%} of the rows removed: {seconds:.3f} s, {loop / seconds:.2f} times as fast, "
                f"{share:.0%} of the rate of a dense pass")  # fmt: skip
        say(f"nats: plain {peer[8][0][1]:.4f}, 0.2% removed {found[RATES[0]][0][1]:.4f}")

    def little(self, say: Callable[[str], None]) -> None:
        """One cell of little text alone."""
        for windows in (1, 4, 16):
            text = self.text(windows, WINDOWS[self.name][1])
            runs = [(self.plain(text, windows)[0], self.cell(text, 0.3)[0]) for _ in range(ROUNDS + 2)][2:]
            plain, ours = (min(side) for side in zip(*runs, strict=True))
            say(f"one cell of {text.input_ids.numel():,} tokens, 30% removed: {ours:.4f} s, plain {plain:.4f} s")

    def replies(self, say: Callable[[str], None]) -> None:
        count, asked, tokens = REPLIES[self.name]
        edits = [self.edit(0.002) for _ in range(count)]
        prompts = [f"Tell me {'very ' * (i % 7)}much about topic number {i} of the list" for i in range(asked)]
        first, replies = timed(lambda: generate_batch(self.loaded, prompts, tokens))
        batch = pad_left([prompt_ids(self.loaded.tokenizer, prompt) for prompt in prompts]).to(
            torch.device(self.device)
        )
        length = batch.input_ids.shape[1]

        def generated() -> torch.Tensor:
            return self.model.generate(
                batch.input_ids, attention_mask=batch.attention_mask, max_new_tokens=tokens, min_new_tokens=tokens,
                do_sample=False, pad_token_id=0,
            )[:, length:]  # fmt: skip

        peer = [timed(generated) for _ in range(ROUNDS)]
        later = min(timed(lambda: generate_batch(self.loaded, prompts, tokens))[0] for _ in range(ROUNDS))
        under_first = timed(lambda: generate_under(self.loaded, edits, prompts, tokens))[0]
        under = min(timed(lambda: generate_under(self.loaded, edits, prompts, tokens))[0] for _ in range(ROUNDS))
        plain = min(peer, key=lambda run: run[0])[0]
        same = np.mean([list(ours.ids) == theirs.tolist() for ours, theirs in zip(replies, peer[0][1], strict=True)])
        say(f"{asked} replies of {tokens} tokens: the first {first:.2f} s, later {later:.2f} s, "
            f"`generate` {plain:.2f} s; {same:.0%} of the replies the same")  # fmt: skip
        say(f"under {count} edits: the first {under_first:.2f} s, later {under:.2f} s "
            f"({count * asked * tokens / under:,.0f} tokens a second), `generate` for each edit {count * plain:.2f} s: "
            f"{count * plain / under:.2f} times as fast")  # fmt: skip

    def scores(self, say: Callable[[str], None]) -> None:
        text = self.text(*SCORED[self.name])
        for selector, flops in FLOPS.items():
            if torch.cuda.is_available():
                torch.cuda.reset_peak_memory_stats()
            runs = [timed(lambda: compute_scores(self.loaded, [selector], text))[0] for _ in range(ROUNDS)]  # noqa: B023
            share = flops * self.weights * text.input_ids.numel() / min(runs) / self.rate
            peak = torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0
            say(f"{selector}, {size(text)}: first {runs[0]:.2f} s, later {min(runs[1:]):.2f} s, "
                f"{share:.0%} of the rate, peak {peak:.1f} GiB")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", nargs="?", default="1B", choices=list(SHAPES))
    parser.add_argument("--only", default="cells,little,replies,scores")
    args = parser.parse_args()
    out, bench = Console(highlight=False, width=140), Bench(args.shape)
    card = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "no card"
    out.print(f"{args.shape}, bfloat16, {card}, {bench.rate / 1e12:.0f} TFLOP/s in a matrix product of 8,192")
    for part in args.only.split(","):
        getattr(bench, part)(out.print)
    return 0


if __name__ == "__main__":
    sys.exit(main())
