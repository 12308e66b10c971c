"""Downloads that are watched: bytes and time left, a stop in the middle, and going on from there."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import fake_hub
import pytest
from fake_hub import FakeHub, Fault, Repository

from engine.models import downloads
from engine.models.checkpoints import Checkpoint, find_checkpoint
from engine.models.downloads import Transfer
from engine.records.errors import InputError

WEIGHTS = bytes(range(256)) * 4000  # 1,024,000 bytes
OTHER = bytes(reversed(range(256))) * 2000
SLOW = 200_000  # bytes per second: five seconds for a model


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub with two models, and this process pointed at it."""
    with fake_hub.running() as server:
        fake_hub.go_online(server, tmp_path / "home", monkeypatch)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_ETAG_TIMEOUT", 20)  # a busy machine is silent for long
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DOWNLOAD_TIMEOUT", 20)
        server.repositories = {
            name: Repository({"config.json": b'{"model_type": "llama"}', "model.safetensors": weights})
            for name, weights in (("org/m", WEIGHTS), ("org/other", OTHER))
        }
        yield server
        from huggingface_hub import close_session

        close_session()


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "PAUSES_S", (0.01, 0.01))


class Download:
    """`find_checkpoint` in a thread, as the pages run it."""

    def __init__(self, model: str = "org/m") -> None:
        self.transfer = Transfer()
        self.found: Checkpoint | None = None
        self.error = ""
        self.thread = threading.Thread(target=self._run, args=(model,), daemon=True)
        self.thread.start()

    def _run(self, model: str) -> None:
        try:
            self.found = find_checkpoint(model, transfer=self.transfer)
        except InputError as error:
            self.error = str(error)

    def reach(self, count: int) -> None:
        wait_for(lambda: self.transfer.progress.fetched >= count or not self.thread.is_alive())
        assert self.thread.is_alive(), self.error

    def end(self) -> Download:
        self.thread.join(60)
        assert not self.thread.is_alive()
        return self


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def ranges(hub: FakeHub) -> list[str | None]:
    """The ranges that were asked for of weight files, None for whole ones."""
    return [begun for method, path, begun in hub.asked if method == "GET" and path.startswith("/cdn/")]


def hash_of(content: bytes) -> str:
    return hashlib.sha256(hashlib.sha256(content).hexdigest().encode()).hexdigest()


def left_parts(home: Path) -> list[Path]:
    return sorted(home.rglob("*.part"))


def test_a_stopped_download_goes_on_where_it_was(hub: FakeHub, tmp_path: Path) -> None:
    hub.faults = [Fault("/cdn/", bytes_per_s=SLOW)]
    first = Download()
    first.reach(100_000)
    first.transfer.stop()
    stopped = time.monotonic()
    first.end()
    assert time.monotonic() - stopped < 3  # four seconds were left
    assert first.found is None
    assert first.error.startswith("the download of org/m was stopped at 0.")
    assert first.error.endswith(" of 1.0 MiB; what was fetched is kept, run again to go on from there")
    (part,) = left_parts(tmp_path)
    there = part.stat().st_size
    assert 100_000 <= there < len(WEIGHTS)
    assert part.read_bytes() == WEIGHTS[:there]

    hub.faults = []
    second = Download().end()
    assert ranges(hub) == [None, f"bytes={there}-"]
    assert second.found is not None
    assert second.found.weights_hash() == hash_of(WEIGHTS)
    assert second.transfer.progress[:2] == (len(WEIGHTS), len(WEIGHTS))
    assert left_parts(tmp_path) == []
    hub.asked.clear()
    assert find_checkpoint("org/m").weights_hash() == hash_of(WEIGHTS)
    assert hub.asked == []


@pytest.mark.long
def test_two_models_come_at_once_and_one_can_be_stopped(hub: FakeHub) -> None:
    hub.faults = [Fault("/cdn/", bytes_per_s=SLOW)]
    one, other = Download("org/m"), Download("org/other")
    one.reach(50_000)
    other.reach(50_000)
    one.transfer.stop()
    one.end()
    assert "was stopped" in one.error
    assert other.thread.is_alive()
    found = other.end().found
    assert found is not None
    assert found.weights_hash() == hash_of(OTHER)


def test_who_asks_for_the_same_model_does_not_fetch_it_again(hub: FakeHub) -> None:
    hub.faults = [Fault("/cdn/", bytes_per_s=4 * SLOW)]
    both = [Download(), Download()]
    for one in both:
        found = one.end().found
        assert found is not None, one.error
        assert found.weights_hash() == hash_of(WEIGHTS)
    assert ranges(hub) == [None]


def test_a_broken_connection_goes_on_by_itself(hub: FakeHub, no_pauses: None) -> None:
    hub.faults = [Fault("/cdn/", break_after=300_000, times=3)]  # more often than it tries where nothing comes
    found = Download().end().found
    assert found is not None
    assert found.weights_hash() == hash_of(WEIGHTS)
    assert ranges(hub) == [None, "bytes=300000-", "bytes=600000-", "bytes=900000-"]


def test_a_part_that_the_hub_does_not_continue_is_fetched_anew(hub: FakeHub, no_pauses: None) -> None:
    hub.faults = [Fault("/cdn/", break_after=300_000, times=1), Fault("/cdn/", whole=True)]
    done = Download().end()
    assert done.found is not None
    assert done.found.weights_hash() == hash_of(WEIGHTS)
    assert done.transfer.progress.fetched == len(WEIGHTS)


@pytest.mark.parametrize(
    ("faults", "asked", "said"),
    [
        ([Fault("/cdn/", 503, times=2)], 3, ""),
        ([Fault("/cdn/", 503)], 3, "localhost answered 503; try later"),
        ([Fault("/cdn/", 403)], 1, "localhost answered 403; check whether it needs a token"),
        ([Fault("/cdn/", 429, {"Retry-After": "300"})], 1, "limit of requests is reached; it ends in 300 s"),
        ([Fault("/cdn/", break_after=0)], 3, "the connection broke: "),
    ],
)
def test_faults_are_the_lines_that_the_terminal_has(
    hub: FakeHub, faults: list[Fault], asked: int, said: str, no_pauses: None
) -> None:
    hub.faults = faults
    done = Download().end()
    assert said in done.error
    assert bool(said) == bool(done.error)
    assert "\n" not in done.error
    assert len(ranges(hub)) == asked


def test_a_silent_line_can_be_stopped(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DOWNLOAD_TIMEOUT", 1)
    hub.faults = [Fault("/cdn/", silent_s=30)]
    one = Download()
    wait_for(lambda: ranges(hub))
    one.transfer.stop()
    stopped = time.monotonic()
    assert "was stopped at 0.0 MiB of 1.0 MiB" in one.end().error
    assert time.monotonic() - stopped < 5  # a time-out of a second, where three tries would follow


def test_a_model_of_the_newer_storage_layer_goes_on_too(hub: FakeHub) -> None:
    """Announced as such; the storage layer itself is not there."""
    hub.repositories["org/m"].storage_layer = True
    hub.faults = [Fault("/cdn/", bytes_per_s=SLOW)]
    first = Download()
    first.reach(50_000)
    first.transfer.stop()
    first.end()
    hub.faults = []
    found = Download().end().found
    assert found is not None
    assert found.weights_hash() == hash_of(WEIGHTS)
    assert not any("/storage" in path or "xet" in path for _, path, _ in hub.asked)


def test_a_part_is_removed_when_the_file_has_come_in_another_way(hub: FakeHub, tmp_path: Path) -> None:
    hub.faults = [Fault("/cdn/", bytes_per_s=SLOW)]
    first = Download()
    first.reach(50_000)
    first.transfer.stop()
    first.end()
    assert left_parts(tmp_path)
    hub.faults = []
    assert find_checkpoint("org/m").weights_hash() == hash_of(WEIGHTS)
    assert left_parts(tmp_path) == []


def test_a_download_that_is_stopped_before_the_weights(hub: FakeHub) -> None:
    transfer = Transfer()
    transfer.stop()
    with pytest.raises(InputError) as caught:
        find_checkpoint("org/m", transfer=transfer)
    assert str(caught.value) == "the download of org/m was stopped before its weights; run again to start it anew"


def test_a_file_that_cannot_be_had_ends_the_others(hub: FakeHub, tmp_path: Path) -> None:
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    index = str({"weight_map": dict(zip("ab", names, strict=True))}).replace("'", '"').encode()
    files = {"config.json": b"{}", "model.safetensors.index.json": index, names[0]: WEIGHTS, names[1]: OTHER}
    hub.repositories["org/m"] = Repository(files)
    free = threading.Event()
    hub.faults = [Fault(f"/cdn/{hashlib.sha256(OTHER).hexdigest()}", 403, silent_s=1), Fault("/cdn/", until=free)]
    try:
        assert "localhost answered 403" in Download().end().error
        wait_for(lambda: not [thread for thread in threading.enumerate() if thread.name == "download"])
    finally:
        free.set()
    (part,) = left_parts(tmp_path)
    assert WEIGHTS.startswith(part.read_bytes())


def test_a_gated_model_comes_for_who_may_read_it(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.repositories["org/m"].gated = True
    hub.tokens = {"hf_reader": {"org/m"}}
    assert "is gated and no token was sent" in Download().end().error
    monkeypatch.setenv("HF_TOKEN", "hf_reader")
    found = Download().end().found
    assert found is not None
    assert found.weights_hash() == hash_of(WEIGHTS)
