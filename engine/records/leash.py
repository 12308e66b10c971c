"""A process that ends when whoever started it is gone, also by a kill: its standard input is a pipe that the other one
holds open, and that every system closes with its last holder."""

import _thread
import os
import signal
import threading
import time

GRACE_S = 1.0  # from the interrupt to the end; cells and files are whole at any instant, so that nothing is lost by it


def end_with_stdin() -> None:
    """From now on the end of standard input interrupts this process, and ends it and its group if that does not."""
    threading.Thread(target=_watch, daemon=True).start()


def _watch() -> None:
    try:
        while os.read(0, 1024):  # not through sys.stdin: Python could not end while a thread waits inside of it
            pass
    except OSError:
        pass
    if hasattr(signal, "pthread_kill"):
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)  # ends a wait in the system as well
    else:
        _thread.interrupt_main()
    time.sleep(GRACE_S)
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(130)
