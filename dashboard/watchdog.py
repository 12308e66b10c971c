"""Is the app alive? Ends a server that hangs, with its stacks in the log; says so where a part of it does."""

import asyncio
import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import FrameType

import polars as pl
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

BEAT_S = 1.0
HANG_S = 30.0  # a server that stood still for so long, or did not end so long after it was asked to, is ended
ASLEEP_S = 60.0  # pages that wait look around several times a second: one that slept for so long waits for good
POOL_S = 3.0
_HEALTH = "/_stcore/health"
_SCRIPT = "ScriptRunner.scriptThread"  # Streamlit's name for the thread of a page that is being made
_FRAME = pl.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})


class Watchdog:
    def __init__(self) -> None:
        self._ran: dict[int, tuple[str, float]] = {}  # thread of a page -> how often it ran (Linux tells), when last
        self._dumped: set[int] = set()
        self._asked: asyncio.Future[None] | None = None

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """While the server runs: the process ends once its event loop has stood still for HANG_S.
        The clock is C's and needs no interpreter; each beat of the loop winds it up again, and a signal that ends the
        server does so for the last time. Ctrl-Z takes it off. A process that was frozen otherwise (SIGSTOP) ends when
        it goes on."""
        beats = asyncio.create_task(self._beat())
        for number in (signal.SIGTERM, signal.SIGINT):
            handler = signal.getsignal(number)

            def end(number: int, frame: FrameType | None, handler: object = handler) -> None:
                beats.cancel()
                _wind_up()
                if callable(handler):
                    handler(number, frame)

            signal.signal(number, end)
        if hasattr(signal, "SIGTSTP") and signal.getsignal(signal.SIGTSTP) == signal.SIG_DFL:
            signal.signal(signal.SIGTSTP, _stop_at_the_terminal)
        try:
            yield
        finally:
            beats.cancel()
            _wind_up()

    async def _beat(self) -> None:
        while True:
            _wind_up()
            self._look()
            await asyncio.sleep(BEAT_S)

    def _look(self) -> None:
        now, before, self._ran = time.monotonic(), self._ran, {}
        for thread in threading.enumerate():
            if thread.name == _SCRIPT and thread.native_id is not None and thread.ident is not None:
                try:
                    count = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text(encoding="ascii")
                except OSError:  # it has ended, or this is another system
                    continue
                last = before.get(thread.ident)
                self._ran[thread.ident] = last if last is not None and last[0] == count else (count, now)
        if new := {one for one, (_, ran) in self._ran.items() if now - ran > ASLEEP_S} - self._dumped:
            sys.stderr.write(f"warning: a page has waited for {ASLEEP_S:.0f} s without a look around; all stacks:\n")
            faulthandler.dump_traceback(all_threads=True)
            self._dumped |= new
        self._dumped &= self._ran.keys()

    def asleep(self) -> str:
        """What pages wait for without an end, in one line; empty where none does."""
        now, frames = time.monotonic(), sys._current_frames()
        waits = {one: now - ran for one, (_, ran) in self._ran.items() if now - ran > ASLEEP_S and one in frames}
        names = sorted({_of_ours(frames[one]) for one in waits})
        if not waits:
            return ""
        return f"{len(waits)} page(s) have waited for {max(waits.values()):.0f} s without an end, in {', '.join(names)}"

    async def pool(self) -> str:
        """Whether threads of polars, which draw every table, still take work; empty where they do."""
        if self._asked is None or self._asked.done():
            self._asked = asyncio.get_running_loop().create_future()
            threading.Thread(target=_use_the_pool, args=(self._asked,), daemon=True).start()
        try:
            await asyncio.wait_for(asyncio.shield(self._asked), POOL_S)
        except TimeoutError:
            return f"polars' threads have taken no work for {POOL_S:.0f} s"
        return ""


class Health:
    """ASGI middleware: 503 with the reason, where pages cannot be made; else what Streamlit says.
    One page that waits for good keeps no browser out: their own question (marked by them) is whether to connect."""

    def __init__(self, app: ASGIApp, *, watchdog: Watchdog) -> None:
        self.app, self.watchdog = app, watchdog

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        why = ""
        if scope["type"] == "http" and scope["path"].rstrip("/").endswith(_HEALTH):
            by_a_page = "sec-fetch-mode" in Headers(scope=scope)
            why = await self.watchdog.pool() or ("" if by_a_page else self.watchdog.asleep())
        if why:
            await PlainTextResponse(why, 503, headers={"Cache-Control": "no-store"})(scope, receive, send)
        else:
            await self.app(scope, receive, send)


def _wind_up() -> None:
    faulthandler.dump_traceback_later(HANG_S, exit=True)


def _stop_at_the_terminal(_number: int, _frame: FrameType | None) -> None:
    faulthandler.cancel_dump_traceback_later()
    os.kill(os.getpid(), signal.SIGSTOP)  # the next beat after it goes on winds the clock up again


def _use_the_pool(asked: asyncio.Future[None]) -> None:
    _FRAME.select(pl.col("a").sum(), pl.col("b").sum())
    asked.get_loop().call_soon_threadsafe(asked.set_result, None)


def _of_ours(frame: FrameType) -> str:
    """The innermost function of this software, else the outermost of all."""
    while frame.f_back is not None and not str(frame.f_globals.get("__name__")).startswith(("dashboard.", "engine.")):
        frame = frame.f_back
    return f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}"
