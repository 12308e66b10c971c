"""The app as the browser tests serve it: `python served.py PORT STORE`.

Everything is real but the text of two prompts: one whose reply looks like markdown with an image, and one
that is answered slowly enough to be stopped. The log tells when a session waits for another's lock.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from dashboard import live, serve

MARKDOWN_PROMPT, MARKDOWN_REPLY = "reply in markdown", "![pixel](http://example.invalid/pixel.png) **bold**"
WAITED = "a session waits for the model"
SLOW_PROMPT, SLOW_PIECE_S = "reply slowly", 0.15


def prepared_reply(
    loaded: object, side: live.Side, prompt: str, max_new_tokens: int, margins_along: bool = False
) -> Iterator[live.Event]:
    """`live._reply`, but for the two prompts."""
    if prompt == MARKDOWN_PROMPT:
        yield live.Piece(side, MARKDOWN_REPLY)
        yield live.Outcome(side, MARKDOWN_REPLY, 1, 0.0, False, "", 0.0)
        return
    for event in real_reply(loaded, side, prompt, max_new_tokens, margins_along):  # type: ignore[arg-type]
        if prompt == SLOW_PROMPT:
            time.sleep(SLOW_PIECE_S)
        yield event


@dataclass(frozen=True)
class ToldWaiting(live.Waiting):
    """A wait for the lock of a model, told in the log."""

    def __post_init__(self) -> None:
        sys.stderr.write(f"{WAITED}\n")
        sys.stderr.flush()


real_reply = live._reply

if __name__ == "__main__":
    live.Waiting, live.POLL_S = ToldWaiting, 0.01  # type: ignore[misc]
    live._reply = prepared_reply  # type: ignore[assignment]
    serve.main(Path(sys.argv[2]), port=int(sys.argv[1]), open_browser=False, preload_model=False)
