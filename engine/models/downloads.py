"""Files of the hub's repositories into its local cache: silence ends, a short fault is tried again, Ctrl-C stops.
A model is named as people paste it: an id, an id with its revision, the address of a page, hf://…
`Transfer`: a download as others see it while it runs: bytes, time left, and a stop."""

import os
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from engine.models import hub_failures

PAUSES_S = (1.0, 4.0)  # before another try, as long as nothing has come
LONGEST_PAUSE_S = 60
Result = TypeVar("Result")
_GRACE_S = 2.0  # for the threads of a download to end by themselves after Ctrl-C
# The storage layer's own settings, unless the user gives them: it would try a blocked host for minutes.
_STORAGE_LAYER = {
    "HF_XET_CLIENT_RETRY_BASE_DELAY": "1s",
    "HF_XET_CLIENT_RETRY_MAX_DURATION": "60s",
    "HF_XET_CLIENT_CONNECT_TIMEOUT": "15s",
    "HF_XET_CLIENT_READ_TIMEOUT": "60s",
}
_unfinished: list[threading.Event] = []  # of stopped downloads, set when their threads have ended
_WINDOW_S = 20.0  # of the pace that the time left is told from
_SAMPLE_S = 0.5
_LEAST_S = 1.0  # before that the pace says little


class Stopped(Exception):
    """Raised in the threads of a download that was stopped."""


class Progress(NamedTuple):
    """Bytes that are on this machine, bytes in all, and seconds until then at the pace of the last 20 s.
    `total` is None before it is known, `seconds_left` in the first second and as long as nothing has come."""

    fetched: int
    total: int | None
    seconds_left: float | None


class Transfer:
    """Given to a download by whoever wants to watch or stop it. Safe to use from several threads."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._fetched = 0
        self._total: int | None = None
        self._samples: deque[tuple[float, int]] = deque()  # when, bytes that had come by then

    def stop(self) -> None:
        """Ask the download to end; it does at its next piece. What has come is kept."""
        self.stopping.set()

    def check(self) -> None:
        """Errors: `Stopped` once it was asked to end."""
        if self.stopping.is_set():
            raise Stopped

    def pause(self, seconds: float) -> None:
        """Sleep, unless it is asked to end. Errors: `Stopped`."""
        if self.stopping.wait(seconds):
            raise Stopped

    def expect(self, total: int, there: int) -> None:
        """Bytes in all, and those of them that are on this machine already."""
        with self._lock:
            self._total, self._fetched = total, there
            self._samples = deque([(time.monotonic(), there)])

    def add(self, count: int) -> None:
        """So many bytes more have come; negative where some have to come again."""
        now = time.monotonic()
        with self._lock:
            self._fetched += count
            if count < 0:
                self._samples.clear()
            if not self._samples or now - self._samples[-1][0] >= _SAMPLE_S:
                self._samples.append((now, self._fetched))
            while len(self._samples) > 2 and now - self._samples[1][0] > _WINDOW_S:
                self._samples.popleft()

    @property
    def progress(self) -> Progress:
        now = time.monotonic()
        with self._lock:
            left = None
            if self._total is not None and self._samples:
                since, before = self._samples[0]
                if self._fetched > before and now - since >= _LEAST_S:
                    left = (now - since) / (self._fetched - before) * max(self._total - self._fetched, 0)
            return Progress(self._fetched, self._total, left)


def size_text(size_bytes: int) -> str:
    """`12.3 MiB`, `1.21 GiB`."""
    return f"{size_bytes / 2**30:.2f} GiB" if size_bytes >= 2**29 else f"{size_bytes / 2**20:.1f} MiB"


def fetch_files(
    repo_id: str,
    patterns: Iterable[str],
    *,
    repo_type: str = "model",
    revision: str | None = None,
    transfer: Transfer | None = None,
) -> Path:
    """The folder of a repository's files in the hub's cache, those that match fetched if need be. patterns: names or
    shell patterns. transfer: may stop it; the terminal then shows no bar. A hub that does not answer within
    HF_HUB_ETAG_TIMEOUT seconds (10) counts as out of reach, and the cache serves. Errors: as they come from the
    libraries (`hub_errors`); `Stopped`."""
    from huggingface_hub import snapshot_download

    outside = ["*/*"] if repo_type == "model" else None
    asked_to_end = threading.Event() if transfer is None else transfer.stopping

    def fetch(stop: threading.Event) -> str:
        return snapshot_download(
            repo_id, repo_type=repo_type, revision=revision, allow_patterns=list(patterns), ignore_patterns=outside,
            tqdm_class=_bar(stop, shown=transfer is None),
        )  # fmt: skip

    def attempt() -> str:
        end_silence()
        return _interruptible(fetch, asked_to_end)

    return Path(patiently(attempt, _pause, time.sleep if transfer is None else transfer.pause))


def patiently(
    action: Callable[[], Result],
    pause_after: Callable[[Exception, float | None], float | None],
    sleep: Callable[[float], object],
    come: Callable[[], int] = lambda: 0,
) -> Result:
    """The action, again after a fault that passes; given up after three in a row in which no byte came. pause_after:
    seconds until another try by the error and the usual pause, None for none. come: bytes that are there."""
    pauses, before = iter(PAUSES_S), come()
    while True:
        try:
            return action()
        except hub_failures.hub_errors() as error:
            if come() > before:
                pauses, before = iter(PAUSES_S), come()
            pause = pause_after(error, next(pauses, None))
            if pause is None:
                raise
        sleep(pause)


def in_the_cache(model_id: str, patterns: Iterable[str], revision: str | None) -> Path | None:
    """The folder of a model in the hub's cache, whatever of it is there; None where nothing is. Asks nobody."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = snapshot_download(model_id, revision=revision, allow_patterns=list(patterns), local_files_only=True)
    except LocalEntryNotFoundError:
        return None
    return Path(folder)


def missing_bytes(repo_id: str, names: Iterable[str], folder: Path) -> int | None:
    """Bytes of these files of a model as far as they are not in `folder`, its snapshot; None where nobody tells."""
    sizes = listed_bytes(repo_id, folder.name)
    if sizes is None:
        return None
    return sum(sizes.get(name, 0) for name in names if not (folder / name).is_file())


def listed_bytes(repo_id: str, commit: str) -> dict[str, int] | None:
    """Sizes of a model's files by name, from the listing that was kept with the snapshot, or else from the hub; None
    where none was kept and the hub does not answer."""
    from huggingface_hub import HfApi, get_cached_repo_tree
    from huggingface_hub.errors import CachedRepoTreeNotFoundError

    try:
        with suppress(CachedRepoTreeNotFoundError):
            return {file.path: file.size for file in get_cached_repo_tree(repo_id, revision=commit)}
        end_silence()
        files = HfApi().list_repo_tree(repo_id, revision=commit)
        return {file.path: file.size for file in files if hasattr(file, "size")}
    except hub_failures.hub_errors():
        return None


def no_room(repo_id: str, names: Iterable[str], folder: Path, kept: int = 0) -> hub_failures.Failure | None:
    """The failure of a disk that cannot hold the missing files of a model; None where it can, or nobody tells. kept:
    bytes of them that a stopped download has left."""
    from huggingface_hub import snapshot_download

    wanted = list(names)
    needed, (_, free) = missing_bytes(repo_id, wanted, folder), hub_failures.free_bytes()
    if needed is None or needed - kept <= free:
        return None
    # The cache may hold the same bytes for another commit, which a dry run knows.
    with suppress(*hub_failures.hub_errors()):
        files = snapshot_download(
            repo_id, revision=folder.name, allow_patterns=wanted, dry_run=True, tqdm_class=_bar(shown=False)
        )
        needed = sum(file.file_size or 0 for file in files if file.will_download)
    return hub_failures.disk_full(needed - kept, f"the files of {repo_id}") if needed - kept > free else None


def end_silence() -> None:
    """Give every request of huggingface_hub a time-out (it asks for information and listings without any), and the
    storage layer shorter ones, unless the user sets them."""
    from huggingface_hub import get_session

    for name, value in _STORAGE_LAYER.items():
        os.environ.setdefault(name, value)
    client = get_session()
    hooks = client.event_hooks
    if _bounded not in hooks["request"]:
        client.event_hooks = {**hooks, "request": [*hooks["request"], _bounded]}


def _bounded(request: Any) -> None:
    from huggingface_hub import constants

    given, usual = request.extensions.get("timeout") or {}, constants.HF_HUB_ETAG_TIMEOUT
    limits = {part: given.get(part) or usual for part in ("connect", "read", "write")}
    if request.method == "HEAD":  # asked up to six times, with a minute for each
        limits["read"] = min(limits["read"], usual)
    request.extensions["timeout"] = {**given, **limits}


def leave(code: int) -> None:
    """End this process at once if a stopped download still holds a thread, which Python would wait for; its partial
    files are removed."""

    if all(ended.is_set() for ended in _unfinished):
        return
    for link in Path("/proc/self/fd").glob("*"):
        try:
            file = link.readlink()
            if file.name.endswith(".incomplete"):
                file.unlink()
        except OSError:
            continue
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _interruptible(action: Callable[[threading.Event], str], stop: threading.Event) -> str:
    """The action in a thread of its own, so that Ctrl-C need not wait for the threads that it starts."""
    if threading.current_thread() is not threading.main_thread():
        return action(stop)
    done: list[str] = []
    failed: list[BaseException] = []
    ended = threading.Event()  # `Thread.join` takes an interrupted thread for one that ended (until Python 3.13)

    def work() -> None:
        try:
            done.append(action(stop))
        except BaseException as error:
            failed.append(error)
        finally:
            ended.set()

    threading.Thread(target=work, name="download", daemon=True).start()
    try:
        while not ended.wait(0.5):
            pass
    except BaseException:
        stop.set()
        with suppress(ImportError):  # another huggingface_hub: `leave` ends its threads
            from huggingface_hub.utils._xet import abort_xet_session

            abort_xet_session()
        if not ended.wait(_GRACE_S):
            _unfinished.append(ended)
        raise
    if failed:
        raise failed[0]
    return done[0]


def _bar(stop: threading.Event | None = None, *, shown: bool = True) -> Any:
    """huggingface_hub's progress bar, which every piece of a download passes through, as the place to stop it."""
    from huggingface_hub.utils import tqdm

    class Stoppable(tqdm):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **(options if shown else {**options, "disable": True}))

        def update(self, n: float | None = 1) -> bool | None:
            if stop is not None and stop.is_set():
                raise Stopped
            return super().update(n)

    return Stoppable


def _pause(error: Exception, usual_s: float | None) -> float | None:
    """Seconds until another try, None for none: only busy answers to questions that huggingface_hub asks once."""
    answer = hub_failures.failed_answer(error)
    if usual_s is None or answer is None or answer.response.status_code not in (429, 500, 502, 503, 504):
        return None
    _, path = hub_failures.address_of(answer)
    if not path.startswith("/api/") or "/tree/" in path or "/xet-read-token/" in path:
        return None
    wanted = hub_failures.retry_after(answer.response.headers)
    if wanted is not None and wanted > LONGEST_PAUSE_S:
        return None
    return max(usual_s, wanted or 0.0)


_HOSTS = ("huggingface.co", "www.huggingface.co", "hf.co")
_PARTS_OF_A_PAGE = ("tree", "blob", "resolve", "commit")  # a revision comes after these


class HubName(NamedTuple):
    """An id, as `org/name` or `org/name/file.gguf`, and the revision that was pasted with it."""

    id: str
    revision: str | None = None


def hub_name(pasted: str) -> HubName:
    """The id and the revision in what was pasted; the text as it is where it is neither address nor `id@revision`.
    https://huggingface.co/org/name/tree/v1, hf://org/name@v1, org/name@v1; of addresses only the hub's own."""
    from huggingface_hub import constants

    text = pasted.strip()
    address = urlsplit(text)
    if address.scheme in ("http", "https"):
        if address.netloc not in (*_HOSTS, urlsplit(constants.ENDPOINT).netloc):
            return HubName(pasted)
        parts = [unquote(part) for part in address.path.split("/") if part]
        at = next((n for n, part in enumerate(parts) if n in (1, 2) and part in _PARTS_OF_A_PAGE), None)
        if at is None:
            return HubName("/".join(parts))
        file = parts[at + 2 :] if parts[-1].endswith(".gguf") else []
        return HubName("/".join([*parts[:at], *file]), parts[at + 1] if len(parts) > at + 1 else None)
    text = re.sub(r"^hf://(models/)?", "", text)
    id, _, revision = text.partition("@")
    return HubName(id.rstrip("/"), revision) if revision else HubName(text)
