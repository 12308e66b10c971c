"""Models in memory, one at a time, and replies before and after an edit as a stream of events.

The engine (and with it torch) is imported when a model is first wanted, never before.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from engine.records.errors import InputError
from engine.records.locks import POLL_S, OnWait, held, patient
from engine.studies.refusal.dialogue import Outcome, Piece

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.edits.masks import Mask
    from engine.models.loading import LoadedModel

DEMO = "demo"
PRELOAD_DELAY_S = 3.0
SMALL_MODEL_PARAMETERS = 20_000_000

first_page_shown = threading.Event()
Side = Literal["before", "after", "control"]
SIDES: tuple[Side, ...] = ("before", "after", "control")
Event = Piece[Side] | Outcome[Side]


@dataclass
class Entry:
    """A model in memory and what was computed for it. `scores` and `contrasts` are filled by `edits.py`, `effects`, by
    the mask's hash, by `effects.py`."""

    loaded: LoadedModel
    scores: dict[str, Any] = field(default_factory=dict)
    contrasts: dict[tuple[str, str], Any] = field(default_factory=dict)
    effects: dict[str, Any] = field(default_factory=dict)
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
    def use(self, model_id: str, on_wait: Callable[[float], object] = lambda _: None) -> Iterator[Entry]:
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

    def _entry(self, model_id: str, on_wait: Callable[[float], object]) -> Entry:
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

    def _drop_oldest(self, on_wait: Callable[[float], object]) -> None:
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


def _load(model_id: str) -> LoadedModel:
    from engine.models.loading import load_model

    return load_model(model_id)


POOL = ModelPool(_load)


def replies(
    loaded: LoadedModel,
    mask: Mask,
    prompt: str,
    max_new_tokens: int,
    *,
    sides: Sequence[Side] = SIDES[:2],
    control: Mask | None = None,
    margins_along: bool = False,
    on_wait: OnWait = patient,
) -> Generator[Event, None, None]:
    """The replies of the model as it is, with `mask` zeroed, and with `control` zeroed, as they are written: one batch.

    Sessions take turns, one pass each, and none ever sees another's mask. `on_wait(seconds)` is called while another
    one keeps the model for longer; it may raise to give up. Close the generator to stop.
    """
    from engine.edits.edit import UNEDITED, edit_of
    from engine.judges.base import EMBEDDED, open_judges
    from engine.studies.refusal.dialogue import dialogue

    n_rows = loaded.rows.n_rows
    masks = {"before": None, "after": mask, "control": control}
    edits = {side: UNEDITED if (rows := masks[side]) is None else edit_of(rows, n_rows) for side in sides}
    judge = open_judges(EMBEDDED)[0]
    with fitting_threads(loaded):
        yield from dialogue(loaded, prompt, edits, judge, max_new_tokens, margins_along=margins_along, on_wait=on_wait)


class _Threads:
    """How many sessions compute on one thread now, and what the setting was before the first of them."""

    lock = threading.Lock()
    users = 0
    before = 1


@contextmanager
def fitting_threads(loaded: LoadedModel) -> Iterator[None]:
    """One thread for a small model: its steps are too short to share, and on a busy machine threads that
    wait for each other were seen to take 30 times as long (2.4 s against 0.08 s for ten tokens)."""
    import torch

    if sum(parameter.numel() for parameter in loaded.model.parameters()) >= SMALL_MODEL_PARAMETERS:
        yield
        return
    with _Threads.lock:  # the setting is the process's: whoever comes second must not take 1 for what it was
        if not _Threads.users:
            _Threads.before = torch.get_num_threads()
        _Threads.users += 1
    torch.set_num_threads(1)
    try:
        yield
    finally:
        with _Threads.lock:
            _Threads.users -= 1
        torch.set_num_threads(_Threads.before)


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
        import engine.edits.contrasts  # noqa: F401

        gc.collect()
        gc.freeze()  # torch's many objects are here to stay: no collection has to look at them again
    except InputError:
        return  # the live page says what is wrong with it
