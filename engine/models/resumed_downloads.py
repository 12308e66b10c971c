"""Files of a hub's model into its cache in a way that goes on where it was stopped.

huggingface_hub removes what it has of a file when its download ends early. Here the bytes are appended to
`blobs/ETAG.part` of the cache and get the file's name there, `blobs/ETAG`, when all have come; the library then finds
them and links them. Over plain HTTP, also where the hub offers its newer storage layer, which keeps no parts either."""

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue

from engine.models.downloads import LONGEST_PAUSE_S, Stopped, Transfer, end_silence, patiently
from engine.models.hub_failures import failed_answer, retry_after

_AT_ONCE = 4  # files
_LOCK_POLL_S = 0.5


class _Short(OSError):
    """The connection ended without an error before the file did."""


@dataclass(frozen=True)
class _File:
    address: str
    blob: Path
    size: int

    @property
    def part(self) -> Path:
        return self.blob.with_name(f"{self.blob.name}.part")

    @property
    def lock(self) -> Path:
        """huggingface_hub's own for this file, so that no two programs fetch it at once."""
        cache, repository = self.blob.parents[2], self.blob.parents[1].name
        return cache / ".locks" / repository / f"{self.blob.name}.lock"

    def there(self) -> int:
        """Bytes that are on this machine."""
        if self.blob.exists():
            return self.size
        return self.part.stat().st_size if self.part.exists() else 0


def fetch_parts(repo_id: str, names: Iterable[str], folder: Path, transfer: Transfer) -> None:
    """Fetch these files of a model's commit, as far as they are not there. folder: its snapshot in the hub's cache.
    Left to huggingface_hub: a file whose size or name in the cache the hub does not tell, and one larger than it gives
    over plain HTTP (50 GB). Errors: as they come from the libraries (`hub_errors`), and `Stopped`."""
    end_silence()
    files = {found for name in names if (found := _found(repo_id, name, folder, transfer)) is not None}
    transfer.expect(sum(file.size for file in files), sum(file.there() for file in files))
    waiting: SimpleQueue[_File] = SimpleQueue()
    for file in sorted(files, key=lambda file: file.address):
        waiting.put(file)
    failed: list[BaseException] = []

    def check() -> None:
        transfer.check()
        if failed:  # another file cannot be had
            raise Stopped

    def work() -> None:
        try:
            while True:
                _fetch(waiting.get_nowait(), transfer, check)
        except Empty:
            pass
        except BaseException as error:
            failed.append(error)

    # Not an executor: Python would wait for its threads before it ends.
    threads = [threading.Thread(target=work, name="download", daemon=True) for _ in range(min(_AT_ONCE, len(files)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive() and not failed:
            thread.join(0.2)
    if failed:
        raise failed[0]


def kept_bytes(folder: Path) -> int:
    """Bytes of files of a model that have come in part. folder: a snapshot of it."""
    return sum(part.stat().st_size for part in _parts(folder))


def forget_parts(folder: Path) -> None:
    """Remove parts of files that have come whole in another way."""
    for part in _parts(folder):
        if part.with_suffix("").exists():
            part.unlink(missing_ok=True)


def _parts(folder: Path) -> list[Path]:
    return list((folder.parents[1] / "blobs").glob("*.part"))


def _found(repo_id: str, name: str, folder: Path, transfer: Transfer) -> _File | None:
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import EntryNotFoundError

    address = hf_hub_url(repo_id, name, revision=folder.name)
    transfer.check()
    try:
        about = patiently(
            lambda: get_hf_file_metadata(address, timeout=constants.HF_HUB_ETAG_TIMEOUT), _pause, transfer.pause
        )
    except EntryNotFoundError:  # told by whoever looks for the weights
        return None
    if not about.size or not re.fullmatch(r"[\w-]+", about.etag or ""):
        return None
    if about.size > constants.MAX_HTTP_DOWNLOAD_SIZE:
        return None
    return _File(address, folder.parents[1] / "blobs" / str(about.etag), about.size)


def _fetch(file: _File, transfer: Transfer, check: Callable[[], None]) -> None:
    file.blob.parent.mkdir(parents=True, exist_ok=True)
    with _alone(file.lock, check):
        if file.blob.exists():
            return
        if file.there() > file.size:
            transfer.add(-file.there())
            file.part.unlink()
        if file.there() < file.size:
            patiently(lambda: _append(file, transfer, check), _pause, transfer.pause, file.there)
        os.replace(file.part, file.blob)


def _append(file: _File, transfer: Transfer, check: Callable[[], None]) -> None:
    from huggingface_hub import constants, get_session
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

    there = file.there()
    headers = {**build_hf_headers(), "Accept-Encoding": "identity"}
    if there:
        headers["Range"] = f"bytes={there}-"
    limit = constants.HF_HUB_DOWNLOAD_TIMEOUT
    with get_session().stream("GET", file.address, headers=headers, timeout=limit) as response:
        if response.is_error:
            response.read()  # the hub's sentence
        hf_raise_for_status(response)
        with file.part.open("ab") as part:
            if there and response.status_code != 206:  # the whole file comes again
                part.truncate(0)
                transfer.add(-there)
            for piece in response.iter_bytes():  # as they come, so that a stop need not wait for a full one
                check()
                part.write(piece)
                transfer.add(len(piece))
    if file.there() != file.size:
        raise _Short(f"Consistency check failed: {file.there()} of {file.size} bytes came")


def _pause(error: Exception, usual_s: float | None) -> float | None:
    """Seconds until another try, None for none."""
    from huggingface_hub.errors import HTTPError

    if usual_s is None:
        return None
    answer = failed_answer(error)
    if answer is None:
        return usual_s if isinstance(error, HTTPError | _Short) else None
    wanted = retry_after(answer.response.headers) or 0
    passes = answer.response.status_code in (408, 429, 500, 502, 503, 504) and wanted <= LONGEST_PAUSE_S
    return max(usual_s, wanted) if passes else None


@contextmanager
def _alone(lock: Path, check: Callable[[], None]) -> Iterator[None]:
    from huggingface_hub.utils import WeakFileLock

    lock.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        while True:
            check()
            try:
                held.enter_context(WeakFileLock(lock, timeout=_LOCK_POLL_S))
                break
            except TimeoutError:
                continue
        yield
