"""A model for a page: fetched from the hub if need be, without blocking the page, then taken from the pool.

A download lives in the server, one per model at a time, shared by all sessions: a page that is reloaded or left changes
nothing, and nobody who works with a model that is here waits for one that is not.

What the page was asked to do waits in the session until the model is here: `due` says what to do in this script run,
`model` gives the model or raises `Downloading`, and `under_way` shows how far downloads are, with a Stop for each."""

import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboard.charts import formats
from dashboard.chat import live
from dashboard.chat.live import Entry
from dashboard.show import layout
from dashboard.state import access, shipped_models as shipped
from engine.models.downloads import Progress, Transfer, size_text
from engine.records.errors import InputError, memory_needed

NO_MEMORY = "out of memory on this model's device"
GRACE_S = 3.0  # from asking a download to stop to leaving it behind: its thread waits longer on a silent line
POLL_S = 1.0
PATIENCE_S = 1.0  # for a model whose files turn out to be here
Job = TypeVar("Job")


class Download:
    """A download under way, or how it ended. problem: the line that says why it failed or was stopped."""

    def __init__(self, model: str, fetch: Callable[[str, Transfer], object]) -> None:
        self.model = model
        self.problem = ""
        self._transfer = Transfer()
        self._stopped_s: float | None = None
        self._started_s = time.monotonic()
        self._ended = threading.Event()
        threading.Thread(target=self._run, args=(fetch,), name=f"download {model}", daemon=True).start()

    @property
    def active(self) -> bool:
        """Still under way. One that was stopped and does not end is left behind after `GRACE_S`."""
        return not self._ended.is_set() and not self._left_behind

    @property
    def stopping(self) -> bool:
        return self._stopped_s is not None and self.active

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._started_s

    @property
    def progress(self) -> Progress:
        return self._transfer.progress

    def wait(self, seconds: float) -> bool:
        """Wait for its end, so long at most. returns whether it has ended."""
        return self._ended.wait(seconds) or not self.active

    def stop(self) -> None:
        """Ask it to end. Returns at once; what was fetched is kept."""
        if self._stopped_s is None:
            self._stopped_s = time.monotonic()
            self._transfer.stop()

    def check(self) -> None:
        """Errors: `InputError` where it has ended without the model."""
        if self._left_behind:
            raise InputError(
                f"the download of {self.model} was stopped; what has come of its weights is kept, run again to go on"
            )
        if self.problem:
            raise InputError(self.problem)

    @property
    def _left_behind(self) -> bool:
        since = self._stopped_s
        return since is not None and not self._ended.is_set() and time.monotonic() - since > GRACE_S

    def _run(self, fetch: Callable[[str, Transfer], object]) -> None:
        try:
            fetch(self.model, self._transfer)
        except InputError as error:
            self.problem = str(error)
        except Exception as error:
            traceback.print_exc()
            self.problem = f"the download of {self.model} ended with {type(error).__name__}; the terminal says more"
        finally:
            self._ended.set()


class Downloads:
    """Those of this server. Safe to call from several sessions."""

    def __init__(self, fetch: Callable[[str, Transfer], object]) -> None:
        self._fetch = fetch
        self._lock = threading.Lock()
        self._last: dict[str, Download] = {}

    def start(self, model: str) -> Download:
        """The download of this model that is under way, or a new one; a new one also while one is being stopped."""
        with self._lock:
            known = self._last.get(model)
            if known is None or not known.active or known.stopping:
                known = self._last[model] = Download(model, self._fetch)
            return known

    def under_way(self) -> list[Download]:
        """Those that have not ended, the oldest first."""
        with self._lock:
            return [download for download in self._last.values() if download.active]


def comes_from_a_hub(model: str) -> bool:
    """No shipped model, and no folder or file of this machine."""
    return model not in shipped.TITLES and not Path(model).expanduser().exists()


def _fetch(model: str, transfer: Transfer) -> None:
    from engine.models.loading import fetch_model

    fetch_model(model, transfer=transfer)


DOWNLOADS = Downloads(_fetch)


class Downloading(Exception):
    """The model is not here yet; what was asked for waits in the session."""


class _Waiting(NamedTuple):
    job: Any
    download: Download


def due(key: str, now: Job | None) -> Job | None:
    """What to do in this script run: `now`, or else what waited for a download that has ended. None: nothing."""
    waiting = _waiting(key)
    if now is not None:
        st.session_state.pop(f"waiting-{key}", None)
        return now
    return None if waiting is None or waiting.download.active else waiting.job


@contextmanager
def model(
    key: str, model_id: str, job: object, say: Callable[[str], Any], weights_hash: str | None = None
) -> Iterator[Entry]:
    """The model, kept in memory until the `with` ends. job: comes back from `due(key)` after a download.
    Errors: `Downloading` where it has to be fetched first; `InputError` where that failed, those of loading it, where
    its weights are not those with `weights_hash`, for any but the shipped one where the app is limited, and where
    memory runs out, be it inside of the `with`."""
    if model_id not in shipped.TITLES:
        access.need("loading a model other than the shipped one")
    waited = st.session_state.pop(f"waiting-{key}", None)
    if model_id not in live.POOL and comes_from_a_hub(model_id):
        download = waited.download if waited else DOWNLOADS.start(model_id)
        # A click now ends this script run, not the download.
        st.session_state[f"waiting-{key}"] = _Waiting(job, download)
        say("Asking the hub …")
        since = time.monotonic()
        while not download.wait(0.1):
            if download.progress.total is not None or time.monotonic() - since > PATIENCE_S:
                raise Downloading
        del st.session_state[f"waiting-{key}"]
        download.check()
    with memory_needed(_lacking_memory):
        if model_id not in live.POOL:
            live.load_aside(model_id, say)
        with live.POOL.use(model_id, lambda seconds: say(f"Waiting for the model … ({seconds:.0f} s)")) as entry:
            if weights_hash not in (None, entry.loaded.weights_hash):
                raise InputError(
                    f"{model_id} has weights {entry.loaded.weights_hash[:12]}, the scores were computed from "
                    f"{str(weights_hash)[:12]}; compute them again for this model with `selector-audit score`"
                )
            yield entry


def worked(
    key: str, model_id: str, job: object, now: Any, status: DeltaGenerator, stop: DeltaGenerator,
    work: Callable[[Entry], object], weights_hash: str | None = None,
) -> None:  # fmt: skip
    """Does `work` with the model and notes how it ended (`now.ended`, `now.problem`), or leaves the job waiting for a
    download, as `model` does."""
    try:
        with model(key, model_id, job, status.caption, weights_hash) as entry:
            work(entry)
        now.ended = True
    except Downloading:
        pass  # the bar has a Stop of its own
    except InputError as error:
        now.problem, now.ended = str(error), True
    status.empty()
    stop.empty()


def _lacking_memory(error: BaseException) -> InputError:
    """Of passes that no step of the engine does in parts: one line, and the app goes on."""
    reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return InputError(f"{NO_MEMORY} ({reason}); use a shorter prompt or reply, or a smaller model")


def under_way(key: str, place: DeltaGenerator, *, of_all: bool = False) -> bool:
    """Shows the download that `key` waits for, or those of all sessions. returns whether `key` waits for one."""
    waiting = _waiting(key)
    if waiting is not None and not waiting.download.active:
        st.rerun()  # it has just ended: `due` gives what waited
    shown = DOWNLOADS.under_way() if of_all else []
    if waiting is not None and waiting.download not in shown:
        shown.append(waiting.download)
    if shown:
        with place.container():
            st.fragment(_bars, run_every=POLL_S)(key, shown)
    return waiting is not None


def _bars(key: str, shown: Sequence[Download]) -> None:
    if not all(download.active for download in shown):
        st.rerun()  # the whole page: what waited goes on, and polling ends
    for number, download in enumerate(shown):
        with st.container(border=True):
            st.progress(*_told(download))
            st.button("Stop", key=f"{key}-stop-{number}", on_click=download.stop, disabled=download.stopping)
    st.caption("Models that are here answer meanwhile. A download goes on when this page is left; Stop keeps its part.")


def _told(download: Download) -> tuple[float, str]:
    fetched, total, left = download.progress
    name = layout.plain(download.model)
    if download.stopping:
        return (fetched / total if total else 0.0), f"Stopping {name}"
    if not total:
        return 0.0, f"Asking the hub for {name} … ({download.elapsed_s:.0f} s)"
    rest = "" if left is None else f", about {formats.duration(left)} left"
    return min(fetched / total, 1.0), f"Fetching {name}: {size_text(fetched)} of {size_text(total)}{rest}"


def _waiting(key: str) -> _Waiting | None:
    return st.session_state.get(f"waiting-{key}")
