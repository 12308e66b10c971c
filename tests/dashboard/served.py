"""The app as the browser tests serve it: `python served.py PORT STORE`.

Everything is real but the text of two prompts: one whose reply looks like markdown with an image, and one
that is answered slowly enough to be stopped. The log tells when two sessions write at once.
"""

import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from dashboard import serve
from dashboard.chat import live, tries

MARKDOWN_PROMPT, MARKDOWN_REPLY = "reply in markdown", "![pixel](http://example.invalid/pixel.png) **bold**"
MET = "two sessions write at once"
SLOW_PROMPT, SLOW_PIECE_S = "reply slowly", 0.15
writing: list[object] = []


def prepared_replies(
    loaded: Any, removed: dict[live.Side, Any], prompt: str, tokens: int, **more: Any
) -> Generator[live.Event, None, None]:
    """`live.replies`, but for the two prompts."""
    if prompt == MARKDOWN_PROMPT:
        for side in removed:
            yield live.Piece(side, MARKDOWN_REPLY)
            yield live.Outcome(side, MARKDOWN_REPLY, 1, True, 0.0, False, "", 0.0)
        return
    one = object()
    writing.append(one)
    try:
        for event in real_replies(loaded, removed, prompt, tokens, **more):
            if len(writing) > 1:
                sys.stderr.write(f"{MET}\n")
                sys.stderr.flush()
            if prompt == SLOW_PROMPT:
                time.sleep(SLOW_PIECE_S)
            yield event
    finally:
        writing.remove(one)


real_replies = live.replies

if __name__ == "__main__":
    live.replies = prepared_replies  # type: ignore[assignment]
    tries.REPLIES_KEPT = 0  # every reply is written
    serve.main(Path(sys.argv[2]), port=int(sys.argv[1]), open_browser=False, preload_model=False)
