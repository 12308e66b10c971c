"""Models in memory, one at a time under one lock, and replies before and after an edit as a stream of events.

The engine (and with it torch) is imported when a model is first wanted, never before.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from engine.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.masks import Mask
    from engine.models import LoadedModel

DEMO = "demo"
POLL_S = 0.2
PRELOAD_DELAY_S = 3.0
SMALL_MODEL_PARAMETERS = 20_000_000

first_page_shown = threading.Event()
Side = Literal["before", "after", "control"]


@dataclass
class Entry:
    """A model in memory and what was computed for it. `scores` and `contrasts` are filled by `edits.py`."""

    loaded: LoadedModel
    scores: dict[str, Any] = field(default_factory=dict)
    contrasts: dict[tuple[str, str], Any] = field(default_factory=dict)
    users: int = 0  # sessions that work with it now


class ModelPool:
    """Keeps the last `capacity` models. An old one is dropped before a new one is loaded, never after."""

    def __init__(self, load: Callable[[str], LoadedModel], capacity: int = 1) -> None:
        self._load = load
        self._capacity = capacity
        self._entries: dict[str, Entry] = {}
        self._lock = threading.Lock()
        self._counting = threading.Lock()  # of users; held for a moment only

    @contextmanager
    def use(self, model_id: str, on_wait: Callable[[float], None] = lambda _: None) -> Iterator[Entry]:
        """The model, loaded if need be, and kept until the `with` ends; never one inside another.

        `on_wait(seconds)` is called while another thread loads a model or uses the one to be dropped.
        """
        with held(self._lock, on_wait):
            entry = self._entry(model_id, on_wait)
            self._count(entry, 1)
        try:
            yield entry
        finally:
            self._count(entry, -1)

    def _entry(self, model_id: str, on_wait: Callable[[float], None]) -> Entry:
        if model_id in self._entries:
            self._entries[model_id] = self._entries.pop(model_id)  # most recently used last
            return self._entries[model_id]
        while len(self._entries) >= self._capacity:
            self._drop_oldest(on_wait)
        self._entries[model_id] = Entry(self._load(model_id))
        return self._entries[model_id]

    def _count(self, entry: Entry, change: int) -> None:
        with self._counting:
            entry.users += change

    def _drop_oldest(self, on_wait: Callable[[float], None]) -> None:
        oldest = next(iter(self._entries))
        start = time.monotonic()
        while self._entries[oldest].users:  # they finish first; nobody comes in, the pool is locked
            time.sleep(POLL_S)
            on_wait(time.monotonic() - start)
        del self._entries[oldest]
        gc.collect()
        import torch

        if torch.cuda.is_available():
            torch.cuda.empty_cache()


@contextmanager
def held(lock: Any, on_wait: Callable[[float], None]) -> Iterator[None]:
    """Hold a lock; while it is not free, tell how long we have waited (the teller may raise to give up)."""
    start = time.monotonic()
    while not lock.acquire(timeout=POLL_S):
        on_wait(time.monotonic() - start)
    try:
        yield
    finally:
        lock.release()


def _load(model_id: str) -> LoadedModel:
    from engine.models import load_model

    return load_model(model_id)


POOL = ModelPool(_load)


@dataclass(frozen=True)
class Waiting:
    """Another session holds the model."""

    seconds: float


@dataclass(frozen=True)
class Piece:
    """More text of the reply on one side."""

    side: Side
    text: str


@dataclass(frozen=True)
class Outcome:
    """A finished reply. tokens: decoding steps, the end token included. margin: None where `margin_note` says why.

    along: where asked for, every token of the reply with the margin before it, and the margin after the last one.
    """

    side: Side
    text: str
    tokens: int
    elapsed_s: float
    refusal: bool
    reason: str
    margin: float | None
    margin_note: str = ""
    along: tuple[tuple[str, float], ...] = ()


Event = Waiting | Piece | Outcome


def replies(
    loaded: LoadedModel,
    mask: Mask,
    prompt: str,
    max_new_tokens: int,
    *,
    sides: Sequence[Side] = ("before", "after"),
    control: Mask | None = None,
    margins_along: bool = False,
) -> Generator[Event, None, None]:
    """The reply of the model as it is, with `mask` zeroed, and with `control` zeroed, as they are written.

    The model's lock is held from before the first token to after the last, so that no session ever
    generates under another's mask. Close the generator to stop: the weights are back when `close` returns.
    """
    from engine.intervention import zeroed

    masks = {"before": None, "after": mask, "control": control}
    start = time.monotonic()
    while not loaded.lock.acquire(timeout=POLL_S):
        yield Waiting(time.monotonic() - start)
    try:
        with fitting_threads(loaded):
            for side in sides:
                removed = masks[side]
                with zeroed(loaded, removed) if removed is not None else nullcontext():
                    yield from _reply(loaded, side, prompt, max_new_tokens, margins_along)
    finally:
        loaded.lock.release()


@contextmanager
def fitting_threads(loaded: LoadedModel) -> Iterator[None]:
    """One thread for a small model: its steps are too short to share, and on a busy machine threads that
    wait for each other were seen to take 30 times as long (2.4 s against 0.08 s for ten tokens)."""
    import torch

    threads = torch.get_num_threads()
    if sum(parameter.numel() for parameter in loaded.model.parameters()) < SMALL_MODEL_PARAMETERS:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _reply(
    loaded: LoadedModel, side: Side, prompt: str, max_new_tokens: int, margins_along: bool = False
) -> Generator[Event, None, None]:
    from engine.evaluation.generation import stream_reply
    from engine.evaluation.judge import judge

    margin, note = _margin(loaded, prompt)
    steps = 0
    tokens: list[int] = []

    def count_step() -> bool:
        nonlocal steps
        steps += 1
        return False

    text = ""
    start = time.monotonic()
    for piece in stream_reply(loaded, prompt, max_new_tokens, count_step, tokens.append):
        text += piece
        yield Piece(side, piece)
    elapsed_s = time.monotonic() - start
    verdict = judge(text)
    along = _along(loaded, prompt, tokens) if margins_along and margin is not None else ()
    yield Outcome(side, text, steps, elapsed_s, verdict.refusal, verdict.reason, margin, note, along)


def _along(loaded: LoadedModel, prompt: str, tokens: list[int]) -> tuple[tuple[str, float], ...]:
    """Every token with the margin before it; the last entry, without a token, is what follows the reply."""
    from engine.refusal.margin import reply_margins

    pieces = [str(loaded.tokenizer.decode([token])) for token in tokens]
    return tuple(zip([*pieces, ""], reply_margins(loaded, prompt, tokens).tolist(), strict=True))


def _margin(loaded: LoadedModel, prompt: str) -> tuple[float | None, str]:
    from engine.refusal.margin import margins

    try:
        return float(margins(loaded, [prompt])[0]), ""
    except InputError as error:  # a model whose tokenizer has no onset tokens still replies
        return None, str(error)


def preload_demo() -> None:
    """Load the shipped model once the first page is up, and run it once, so that the first edit is quick."""
    from precomputed import demo_model_dir

    first_page_shown.wait()
    if not demo_model_dir().is_dir():
        return
    time.sleep(PRELOAD_DELAY_S)  # the first chart is drawn by then; importing torch would slow it down
    try:
        import numpy as np

        with POOL.use(DEMO) as entry:
            for _ in replies(entry.loaded, np.zeros(0, dtype=np.int64), "Hello", 2):
                pass
        import engine.refusal.contrast  # noqa: F401

        gc.collect()
        gc.freeze()  # torch's many objects are here to stay: no collection has to look at them again
    except InputError:
        return  # the live page says what is wrong with it
