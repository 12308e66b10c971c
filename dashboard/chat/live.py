"""Models in memory, one at a time, and replies before and after an edit as a stream of events.

torch is imported when a model is first wanted, never before."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from dashboard.state import shipped_models as shipped
from engine.edits.edit import UNEDITED, edit_of
from engine.edits.masks import Mask
from engine.judges.base import EMBEDDED, open_judges
from engine.records.errors import InputError
from engine.records.locks import POLL_S, OnWait, held, patient
from engine.studies.refusal.dialogue import Outcome, Piece, dialogue

if TYPE_CHECKING:
    from engine.models.loading import LoadedModel

DEMO = shipped.DEMO
PRELOAD_DELAY_S = 3.0
SMALL_MODEL_PARAMETERS = 20_000_000

first_page_shown, wanted = threading.Event(), threading.Event()  # wanted: by who opened Live edit
Side = Literal["before", "after", "control"]
SideName = TypeVar("SideName", bound=str)
SIDES: tuple[Side, ...] = ("before", "after", "control")
Event = Piece[Side] | Outcome[Side]


@dataclass
class Entry:
    """A model in memory and what was computed for it. `scores` and `contrasts` are filled by `edits.py`, `effects`, by
    mask and kind of edit, by `effects.py`, `reference` (one or None, once that is known) by `stamps.py`, `told` by
    `many.py`, `outcomes` and `prompt_limit` (as `reference`) by `writing.py`."""

    loaded: LoadedModel
    scores: dict[str, Any] = field(default_factory=dict)
    contrasts: dict[tuple[str, str], Any] = field(default_factory=dict)
    effects: dict[Any, Any] = field(default_factory=dict)
    reference: list[Any] = field(default_factory=list)
    told: dict[Any, Any] = field(default_factory=dict)
    outcomes: dict[Any, Outcome[Any]] = field(default_factory=dict)
    prompt_limit: list[float | None] = field(default_factory=list)
    users: int = 0  # sessions that work with it now
    leaving: bool = False  # another model waits for its place


class ModelPool:
    """Keeps the last model. An old one is dropped before a new one is loaded, never after.
    The shipped models take no place: they are small, stay, and answer while another one is loaded. Nothing is loaded
    under the pool's lock: a second asker of a model waits for the first one's load, and so does who wants its place;
    whoever else asks does not wait."""

    def __init__(self, load: Callable[[str], LoadedModel]) -> None:
        self._load = load
        self._entries: dict[str, Entry] = {}
        self._lock = threading.Lock()  # of what is in memory and who uses it; held for a moment only
        self._place = threading.Lock()  # held while a place is made free and filled
        self._shipped = {name: threading.Lock() for name in shipped.TITLES}  # each held while that model is loaded

    @contextmanager
    def use(self, model_id: str, on_wait: OnWait = patient) -> Iterator[Entry]:
        """The model, loaded if need be, and kept until the `with` ends; never one inside another.
        `on_wait(seconds)` is called while another thread loads the model or uses the one to be dropped."""
        entry = self._taken(model_id) or self._waited_for(model_id, on_wait)
        try:
            yield entry
        finally:
            with self._lock:
                entry.users -= 1

    def __contains__(self, model_id: str) -> bool:
        with self._lock:
            return model_id in self._entries

    def _taken(self, model_id: str, *, also_leaving: bool = False) -> Entry | None:
        """The model with one user more; None where it is not in memory, or is to be dropped for another."""
        with self._lock:
            entry = self._entries.get(model_id)
            if entry is None or (entry.leaving and not also_leaving):
                return None
            entry.users += 1
            return entry

    def _waited_for(self, model_id: str, on_wait: OnWait) -> Entry:
        if model_id in self._shipped:
            with held(self._shipped[model_id], on_wait):
                return self._taken(model_id) or self._filled(model_id)
        with held(self._place, on_wait):
            entry = self._taken(model_id, also_leaving=True)  # who wanted its place may have given up
            if entry is None:
                self._make_room(on_wait)
                entry = self._filled(model_id)
            return entry

    def _filled(self, model_id: str) -> Entry:
        entry = Entry(self._load(model_id), users=1)
        with self._lock:
            self._entries[model_id] = entry
        return entry

    def _make_room(self, on_wait: OnWait) -> None:
        while (oldest := self._oldest_leaves()) is not None:
            start = time.monotonic()
            try:
                while oldest.users:
                    time.sleep(POLL_S)
                    on_wait(time.monotonic() - start)
            except BaseException:
                oldest.leaving = False
                raise
            with self._lock:
                self._entries = {name: entry for name, entry in self._entries.items() if entry is not oldest}
            del oldest
            _clean_up()

    def _oldest_leaves(self) -> Entry | None:
        """The model to be dropped: its users finish first, and nobody else comes in. None where there is room."""
        with self._lock:
            entry = next((entry for name, entry in self._entries.items() if name not in self._shipped), None)
            if entry is not None:
                entry.leaving = True
            return entry


def _clean_up() -> None:
    gc.collect()
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _load(model_id: str) -> LoadedModel:
    from engine.models.loading import load_model

    def noting(stage: str, done: int, total: int) -> None:
        _LOADING[model_id] = f", {stage} {done / total:.0%}"

    _LOADING[model_id] = ""
    try:
        return load_model(model_id, progress=noting)
    finally:
        _LOADING.pop(model_id, None)


def loading() -> str:
    """That models are on their way into memory, and how far, in words; "" where none is."""
    return "; ".join(f"Loading {model}{how}" for model, how in dict(_LOADING).items())


_LOADING: dict[str, str] = {}  # how far each model on its way into memory is, in words
POOL = ModelPool(_load)


def load_aside(model_id: str, say: Callable[[str], object]) -> None:
    """Load a model into the pool by a thread of its own, while `say` is told how far that is; it may raise to give up.
    Errors: whatever loading it raises."""
    failures: list[BaseException] = []

    def load() -> None:
        try:
            with POOL.use(model_id):
                pass
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=load, name=f"load {model_id}", daemon=True)
    start = time.monotonic()
    thread.start()
    while thread.is_alive():
        say(f"Loading the model{_LOADING.get(model_id, '')} … ({time.monotonic() - start:.0f} s)")
        thread.join(POLL_S)
    if failures:
        raise failures[0]


def replies(
    loaded: LoadedModel, removed: Mapping[SideName, Mask], prompt: str, max_new_tokens: int, *,
    margins_along: bool = False, likelihoods: bool = False, on_wait: OnWait = patient,
) -> Generator[Piece[SideName] | Outcome[SideName], None, None]:  # fmt: skip
    """The replies of the model without these rows, as they are written: one batch.

    margins_along, likelihoods: as in `dialogue`. A chat template's thinking mode is off.

    Sessions take turns, one pass each, and none ever sees another's mask. `on_wait(seconds)` is called while another
    one keeps the model for longer; it may raise to give up. Close the generator to stop."""
    edits = {side: edit_of(rows, loaded.rows.n_rows) if len(rows) else UNEDITED for side, rows in removed.items()}
    judge = open_judges(EMBEDDED)[0]
    with fitting_threads(loaded):
        yield from dialogue(
            loaded, prompt, edits, judge, max_new_tokens,
            margins_along=margins_along, likelihoods=likelihoods, on_wait=on_wait,
        )  # fmt: skip


def keep(event: Event, texts: MutableMapping[Side, str], outcomes: MutableMapping[Side, Outcome[Side]]) -> None:
    if isinstance(event, Piece):
        texts[event.side] += event.text
    else:
        outcomes[event.side] = event


class _Threads:
    """How many sessions compute on one thread now, and what the setting was before the first of them."""

    lock, users, before = threading.Lock(), 0, 1


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


def preload(*, warm: Callable[[], bool]) -> None:
    """Load the app's first model once the first page is up. warm, asked then: is it run once for a quick first edit?"""
    first_page_shown.wait()
    model = shipped.models()[0]
    if not shipped.model_is_there(model):
        return
    wanted.wait(PRELOAD_DELAY_S)  # the first chart is drawn by then; importing torch would slow it down
    try:
        with POOL.use(model) as entry:
            if warm():
                none = np.zeros(0, dtype=np.int64)
                list(replies(entry.loaded, {"before": none, "after": none}, "Hello", 2))
        gc.collect()
        gc.freeze()  # torch's many objects are here to stay: no collection has to look at them again
    except InputError:
        return  # the live page says what is wrong with it
