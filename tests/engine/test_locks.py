"""A lock that is waited for with patience: who waits is told, may give up, and leaves it free whatever comes."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import engine.records.locks as locks
from engine.records.locks import held


def is_free(lock: threading.RLock) -> bool:  # type: ignore[valid-type]
    """For another thread."""
    found: list[bool] = []

    def take() -> None:
        found.append(lock.acquire(timeout=0.05))  # type: ignore[attr-defined]
        if found[0]:
            lock.release()  # type: ignore[attr-defined]

    asked = threading.Thread(target=take)
    asked.start()
    asked.join()
    return found[0]


@contextmanager
def held_elsewhere(lock: threading.RLock) -> Iterator[threading.Event]:  # type: ignore[valid-type]
    """Another thread has it until the event is set."""
    there, over = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:  # type: ignore[attr-defined]
            there.set()
            over.wait(60)

    other = threading.Thread(target=hold)
    other.start()
    there.wait()
    try:
        yield over
    finally:
        over.set()
        other.join()


class Interrupted:
    """An RLock whose taker is interrupted as soon as it has it: at the return of `acquire`."""

    def __init__(self) -> None:
        self.real = threading.RLock()
        self._is_owned = self.real._is_owned  # type: ignore[attr-defined]
        self.release = self.real.release

    def acquire(self, timeout: float) -> bool:
        self.real.acquire(timeout=timeout)
        raise KeyboardInterrupt


def test_an_interrupt_at_the_instant_of_taking_leaves_it_free() -> None:
    lock = Interrupted()
    with pytest.raises(KeyboardInterrupt), held(lock):
        pytest.fail("the block must not run")
    assert is_free(lock.real)


@pytest.mark.parametrize("kind", [threading.Lock, threading.RLock])
def test_an_exception_inside_leaves_it_free(kind: type) -> None:
    lock = kind()
    with pytest.raises(ZeroDivisionError), held(lock):
        1 / (0 if not is_free(lock) else 1)
    assert is_free(lock)


def test_who_waits_is_told_and_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "POLL_S", 0.001)
    lock, told = threading.RLock(), []
    with held_elsewhere(lock) as over:

        def waiting(seconds: float) -> None:
            told.append(seconds)
            if len(told) == 3:
                over.set()

        with held(lock, waiting):
            assert not is_free(lock)
    assert len(told) >= 3
    assert told == sorted(told)
    assert is_free(lock)


def test_who_gives_up_does_not_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "POLL_S", 0.001)
    lock = threading.RLock()

    def waiting(_seconds: float) -> None:
        raise TimeoutError

    with held_elsewhere(lock):
        with pytest.raises(TimeoutError), held(lock, waiting):
            pytest.fail("the block must not run")
        assert not is_free(lock)
    assert is_free(lock)
