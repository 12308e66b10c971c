"""Models on their way to this machine: one download per model at a time, shared by all sessions. No streamlit here.

A download lives in the server, not in a session: a page that is reloaded or left changes nothing, and nobody who works
with a model that is here waits for one that is not."""

import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from dashboard.state import shipped
from engine.models.downloads import Progress, Transfer
from engine.records.errors import InputError

GRACE_S = 3.0  # from asking a download to stop to leaving it behind: its thread waits longer on a silent line


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
