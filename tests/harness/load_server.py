"""The app as the load harness serves it: `python load_server.py PORT STORE`.

Everything is real but the pace of one prompt, which is answered slowly enough for its reader to vanish meanwhile. The
log tells when replies begin and end, and nothing else unless something is wrong.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from dashboard import serve
from dashboard.chat import live, tries

SLOW_PROMPT, SLOW_PIECE_S = "reply slowly", 0.15
BEGIN, END = "replies begin", "replies end"
numbers = itertools.count()
real_replies = live.replies


def told_replies(loaded: Any, mask: Any, prompt: str, *given: Any, **more: Any) -> Generator[live.Event, None, None]:
    """`live.replies`, with a line in the log before and after."""
    number = next(numbers)
    sys.stderr.write(f"{BEGIN} {number} {prompt}\n")
    sys.stderr.flush()
    try:
        for event in real_replies(loaded, mask, prompt, *given, **more):
            if prompt == SLOW_PROMPT:
                time.sleep(SLOW_PIECE_S)
            yield event
    finally:
        sys.stderr.write(f"{END} {number} {prompt}\n")
        sys.stderr.flush()


if __name__ == "__main__":
    live.replies = told_replies  # type: ignore[assignment]
    tries.REPLIES_KEPT = 0  # every reply is written
    serve.main(Path(sys.argv[2]), port=int(sys.argv[1]), open_browser=False)
