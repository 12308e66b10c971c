"""Work that is brought to its end although somebody presses Ctrl-C meanwhile."""

from __future__ import annotations

from _thread import LockType, allocate_lock, start_new_thread
from collections.abc import Callable


def uninterrupted(work: Callable[[], object]) -> None:
    """Do `work` whole, whatever interrupts arrive meanwhile; then raise its own error, or the last interrupt.

    Signals interrupt the main thread only, so the work is done in another one, and the wait for it goes on. The
    locks are `_thread`'s: the Python code of `threading` may itself be interrupted half-way and stay locked.

    An interrupt at the very entry comes before the work has begun. Where it must be done, call again:

        try:
            uninterrupted(work)
        except BaseException:
            uninterrupted(work)
            raise

    with a `work` that holds a lock and finds nothing to do the second time, like `take_back`.
    """
    begun, ended = allocate_lock(), allocate_lock()
    ended.acquire()
    outcome: list[BaseException | None] = []

    def run() -> None:
        if not begun.acquire(blocking=False):
            return
        try:
            work()
            outcome.append(None)
        except BaseException as error:
            outcome.append(error)
        ended.release()

    interrupt: BaseException | None = None
    while not outcome:
        try:
            start_new_thread(run, ())  # again after an interrupt, which may have come before the first
            ended.acquire()
        except RuntimeError:
            run()  # the interpreter is about to end and gives no threads
        except BaseException as error:
            interrupt = error
    raised = outcome[0] or interrupt
    if raised is not None:
        raise raised


def take_back(steps: list[Callable[[], object]], lock: LockType) -> None:
    """Undo the last step first and drop each once it is undone: a second call finds nothing to do."""
    with lock:
        while steps:
            steps[-1]()
            steps.pop()
