"""Edits installed and removed again and again; after each, every bit of every weight must be what it was.

    python -m tests.harness cycles --times 1000

Kind of edit, rows or units, rate and end are drawn: a cycle goes to its end, ends with an exception, or with a SIGINT
at a random instant of it, its first and last steps included. Every fourth one has a second thread beside it that edits
the same model. Models: float32 with embeddings tied to the output, bfloat16, columns (Conv1D) instead of rows, routed
experts, and two Linears that share one weight.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import engine.interventions.in_weights as in_weights
from engine.data.corpora import windows
from engine.edits.edit import AnyEdit, Edit, Steering, edit_of, first_of
from engine.interventions.at_outputs import applied, edited_outputs, mixable
from engine.interventions.kinds import prepare
from engine.models.loading import LoadedModel, load_model
from engine.models.rows_of_modules import decoder_blocks
from engine.models.units import heads, neurons

WEIGHTS, OUTPUTS, SEVERAL, STEERING = "zero in the weights", "zero at the outputs", "several at once", "steering"
NEURONS, HEADS = "neurons", "heads"
KINDS = (WEIGHTS, WEIGHTS, OUTPUTS, "mean", "resample", NEURONS, HEADS, STEERING, SEVERAL)
TO_ITS_END, EXCEPTION, SIGINT = "to its end", "exception", "SIGINT"
ENDS = (TO_ITS_END, EXCEPTION, SIGINT, SIGINT)
LENGTH = 16
HANGS_S = 60.0
IDS = torch.arange(20, 20 + LENGTH)[None]  # resample takes passes of the length of what it has read


class Planned(Exception):
    """Ends a cycle."""


@dataclass
class Figures:
    """interrupted: SIGINTs that came while an edit was installed, carried or removed; others came too late."""

    model: str
    cycles: int = 0
    beside: int = 0
    interrupted: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def weights_sha256(model: torch.nn.Module) -> str:
    """SHA-256 over names, types and bytes of all weights and buffers."""
    digest = hashlib.sha256()
    for name, value in model.state_dict().items():
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def hooks_on(model: torch.nn.Module) -> int:
    """Forward hooks of all modules."""
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


def run_cycles(loaded: LoadedModel, name: str, text: Path, times: int, seed: int = 0) -> Figures:
    """`times` cycles on one model, in the main thread; the model is as it was afterwards, or `wrong` says when not."""
    read = windows(str(text), loaded.tokenizer, role="calibration", samples=4, length=LENGTH)
    for intervention in ("mean", "resample"):
        prepare(loaded, intervention, read)
    work = _Work(loaded, random.Random(seed), Figures(name))
    with sigint_as_here():
        for number in range(times):
            work.cycle(number)
            if work.figures.wrong:
                break  # what comes after it is no news
    return work.figures


@contextmanager
def sigint_as_here() -> Iterator[None]:
    before, unraisable = signal.signal(signal.SIGINT, _arrived), sys.unraisablehook

    def swallowed(what: Any) -> None:
        """Python drops a Ctrl-C that comes in a weak reference's callback or in a `__del__`, and only tells of it."""
        if not isinstance(what.exc_value, KeyboardInterrupt):
            unraisable(what)

    sys.unraisablehook = swallowed
    try:
        yield
    finally:
        sys.unraisablehook = unraisable
        signal.signal(signal.SIGINT, before)


_armed = [False]


def _arrived(*_: Any) -> None:
    """Ctrl-C as Python takes it, once for every time it is armed."""
    if _armed[0]:
        _armed[0] = False
        raise KeyboardInterrupt


class _Work:
    def __init__(self, loaded: LoadedModel, drawn: random.Random, figures: Figures) -> None:
        self.loaded, self.drawn, self.figures = loaded, drawn, figures
        self.units = {NEURONS: neurons(loaded), HEADS: heads(loaded)}
        self.width = int(loaded.model.config.get_text_config().hidden_size)
        self.blocks = len(decoder_blocks(loaded.model))
        self.mixed = mixable(loaded, [edit_of([0], loaded.rows.n_rows), edit_of([1], loaded.rows.n_rows)])
        self.sha256, self.hooks = weights_sha256(loaded.model), hooks_on(loaded.model)
        self.usual_s = 0.004  # a cycle takes about so long, running mean

    def cycle(self, number: int) -> None:
        """One edit in and out, and what is left of it."""
        kind, end = self.drawn.choice(KINDS), self.drawn.choice(ENDS)
        edits = self._edits(kind, self.drawn)
        beside = number % 4 == 3
        failed: list[str] = []
        given = (random.Random(self.drawn.random()), failed)
        other = threading.Thread(target=self._beside, args=given, daemon=True)
        if beside:
            other.start()
        start = time.perf_counter()
        try:
            if end == SIGINT:
                self._interrupted(kind, edits, self.drawn.random() * 1.5 * self.usual_s)
            else:
                self._carried(kind, edits, end)
        except Planned:
            pass
        except KeyboardInterrupt:
            self.figures.interrupted += 1
        if beside:
            other.join(HANGS_S)
            if other.is_alive():
                failed.append(f"the thread beside it waits for more than {HANGS_S:.0f} s")
            self.figures.beside += 1
        else:
            self.usual_s = 0.9 * self.usual_s + 0.1 * (time.perf_counter() - start)
        self.figures.cycles += 1
        self.figures.kinds[kind] += 1
        self.figures.ends[end] += 1
        self._check(f"cycle {number}, {kind}, {end}", failed)

    def _interrupted(self, kind: str, edits: list[AnyEdit], delay_s: float) -> None:
        main = threading.main_thread().ident
        assert main is not None
        timer = threading.Timer(delay_s, signal.pthread_kill, (main, signal.SIGINT))
        timer.start()
        _armed[0] = True
        try:
            self._carried(kind, edits, SIGINT)
        finally:
            _armed[0] = False
            timer.cancel()

    def _carried(self, kind: str, edits: list[AnyEdit], end: str) -> None:
        """Install, pass, remove."""
        with torch.no_grad():
            if kind in (OUTPUTS, SEVERAL):
                with edited_outputs(self.loaded, edits) as outputs, outputs.sequences(range(len(edits))):
                    self.loaded.model(input_ids=IDS.expand(len(edits), -1))
                    if end == EXCEPTION:
                        raise Planned
            else:
                with applied(self.loaded, edits[0]):
                    self.loaded.model(input_ids=IDS)
                    if end == EXCEPTION:
                        raise Planned

    def _beside(self, drawn: random.Random, failed: list[str]) -> None:
        """A cycle of another thread, on the same model at the same time."""
        kind = drawn.choice(KINDS)
        try:
            self._carried(kind, self._edits(kind, drawn), TO_ITS_END)
        except BaseException as error:  # a thread's errors are nobody's otherwise
            failed.append(f"beside it {kind}: {type(error).__name__}: {error}")

    def _edits(self, kind: str, drawn: random.Random) -> list[AnyEdit]:
        n_rows = self.loaded.rows.n_rows
        generator = np.random.default_rng(drawn.randrange(2**32))

        def rows(intervention: str) -> Edit:
            count = round(drawn.choice((0.0, 0.01, 0.3, 0.9, 1.0)) * n_rows)
            return edit_of(generator.choice(n_rows, count, replace=False), n_rows, intervention=intervention)

        if kind == STEERING:
            vectors = {drawn.randrange(self.blocks): generator.standard_normal(self.width).astype(np.float32)}
            return [Steering(vectors, drawn.random())]
        if kind in (NEURONS, HEADS) and self.units[kind].count:
            units = self.units[kind]
            order = generator.permutation(units.count)
            return [first_of(order, drawn.randint(1, units.count), ids=units.ids, side=units.side)]
        if kind == SEVERAL and self.mixed:
            return [rows("zero"), rows("mean"), rows("resample")]
        if kind == "resample" and not self.mixed:  # routed experts are given the tokens of all sequences in one
            kind = "mean"
        return [rows(kind if kind in ("mean", "resample") else "zero")]

    def _check(self, when: str, failed: list[str], lock_s: float = 5.0) -> None:
        loaded, wrong = self.loaded, self.figures.wrong
        wrong += [f"{when}: {said}" for said in failed]
        if weights_sha256(loaded.model) != self.sha256:
            wrong.append(f"{when}: other weights")
        if hooks_on(loaded.model) != self.hooks:
            wrong.append(f"{when}: hooks are left")
        if in_weights.is_masked(loaded.model):
            wrong.append(f"{when}: it is still marked as edited")
        free: list[bool] = []

        def take() -> None:  # of another thread: this one could take its own again
            if loaded.lock.acquire(timeout=lock_s):
                loaded.lock.release()
                free.append(True)

        asked = threading.Thread(target=take)
        asked.start()
        asked.join()
        if not free:
            wrong.append(f"{when}: its lock is not free")


def models(folder: Path) -> dict[str, Callable[[], LoadedModel]]:
    """The models by their names, made when they are called for."""
    from tiny_models import load_tiny, save_tiny

    def halved() -> LoadedModel:
        return load_model(str(save_tiny("qwen3", folder / "qwen3")), dtype="bfloat16", device="cpu")

    def shared() -> LoadedModel:
        loaded = load_tiny("mistral", folder / "mistral")
        first, second = (loaded.model.get_submodule(loaded.rows.layers[number].name) for number in (4, 11))
        assert isinstance(first.weight, torch.nn.Parameter)
        second.weight = first.weight
        return loaded

    return {
        "Llama, float32, tied embeddings": lambda: load_tiny("llama", folder / "llama", tie_word_embeddings=True),
        "Qwen3, bfloat16": halved,
        "GPT-2, columns": lambda: load_tiny("gpt2", folder / "gpt2"),
        "Mixtral, experts": lambda: load_tiny("mixtral", folder / "mixtral"),
        "Mistral, a shared weight": shared,
    }


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.harness cycles", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--times", type=int, default=1000, help="cycles in all (1000)")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(words)
    torch.set_num_threads(1)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cycles-") as name:
        from tiny_models import text as some_text

        folder = Path(name)
        text = folder / "text.txt"
        text.write_text(some_text(), encoding="utf-8")
        made = models(folder)
        share = [given.times // len(made) + (number < given.times % len(made)) for number in range(len(made))]
        figures = [
            run_cycles(make(), model, text, count, given.seed + number)
            for number, ((model, make), count) in enumerate(zip(made.items(), share, strict=True))
        ]
    table = Table("model", "cycles", *dict.fromkeys(ENDS), "interrupted", "beside another", "equal")
    for one in figures:
        ends = (one.ends[end] for end in dict.fromkeys(ENDS))
        counts = (
            one.cycles,
            *ends,
            one.interrupted,
            one.beside,
            one.cycles - len({w.split(",")[0] for w in one.wrong}),
        )
        table.add_row(one.model, *map(str, counts))
    out = Console(highlight=False, width=120)
    out.print(table)
    kinds = sum((one.kinds for one in figures), Counter())
    out.print(f"edits: {', '.join(f'{count} {kind}' for kind, count in kinds.most_common())}")
    out.print(f"seed {given.seed}, {time.monotonic() - start:.0f} s")
    for one in figures:
        for line in one.wrong[:20]:
            out.print(f"{one.model}: {line}", markup=False)
    return 1 if any(one.wrong for one in figures) else 0
