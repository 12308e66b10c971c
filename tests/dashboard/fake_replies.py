"""Replies with a given text in place of the model's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest


def replies_are(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Under every edit the model now says `text`."""
    from engine.measures.generation import Reply

    def stream(_loaded: Any, _prompt: str, edits: Sequence[Any], *_: Any, **__: Any) -> Iterator[tuple[int, Any]]:
        for number in range(len(edits)):
            yield number, text
            yield number, Reply(text, 1, 0.0, True)

    monkeypatch.setattr("engine.measures.generation.stream_replies", stream)
