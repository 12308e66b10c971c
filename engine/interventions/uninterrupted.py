"""Work that is brought to its end although somebody presses Ctrl-C meanwhile."""

from _thread import allocate_lock, start_new_thread
from collections.abc import Callable
from functools import partial
from typing import Self


def uninterrupted(work: Callable[[], object]) -> None:
    """Do `work` whole, whatever interrupts arrive meanwhile; then raise its own error, or the last interrupt.

    Signals interrupt the main thread only, so the work is done in another one. The locks are `_thread`'s: the Python
    code of `threading` may itself be interrupted half-way. An interrupt at the very entry comes before the work has
    begun."""
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


class Undone(list[Callable[[], object]]):
    """Ways back, each put here before its change is made; the last is taken first when the block ends.

        with Undone() as steps, steps:
            steps.swap(module, name, value)

    The block is left by an error, an interrupt or a cancelled generator as well, and interrupts do not stop the way
    back. It is entered twice, since one interrupt may come at the very entry of an exit: the outer exit then does what
    the inner one has not begun, and finds nothing to do otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = allocate_lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self:
            uninterrupted(self.take_back)

    def swap(self, target: object, name: str, value: object) -> None:
        """Set an attribute (a module's child, a parameter), its old value here."""
        self.append(partial(setattr, target, name, getattr(target, name)))
        setattr(target, name, value)

    def take_back(self) -> None:
        """Undo the last step first, and drop each once it is undone: a second call finds nothing to do."""
        with self._lock:
            while self:
                self[-1]()
                self.pop()
