"""What was uploaded in a session is freed when that is closed for good: two minutes after its last page, in which it
may come back. Streamlit itself does it when the next session comes or goes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

EVERY_S = 20.0


def free_uploads(runtime: Any) -> int:
    """Free the files of sessions that the server no longer has; returns of how many."""
    open_sessions = {one.session.id for one in runtime._session_mgr.list_sessions()}
    closed = [session for session in list(runtime.uploaded_file_mgr.file_storage) if session not in open_sessions]
    for session in closed:
        runtime.uploaded_file_mgr.remove_session_files(session)
    return len(closed)


@asynccontextmanager
async def freeing_uploads() -> AsyncIterator[None]:
    """While inside, uploads of closed sessions are freed within `EVERY_S`."""
    task = asyncio.create_task(_patrol())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _patrol() -> None:
    from streamlit import runtime

    while True:
        await asyncio.sleep(EVERY_S)
        if runtime.exists():
            free_uploads(runtime.get_instance())
