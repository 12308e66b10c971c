"""Replies with a given text in place of the model's."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest


def replies_are(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Under every edit the model now says `text`."""
    from engine.measures import fluency, replies  # noqa: F401 (they take what is replaced here when they are imported)
    from engine.measures.generation import Reply

    def stream(_loaded: Any, _prompt: str, edits: Sequence[Any], *_: Any, **__: Any) -> Iterator[tuple[int, Any]]:
        for number in range(len(edits)):
            yield number, text
            yield number, Reply(text, 1, 0.0, True)

    def batch(_loaded: Any, edits: Sequence[Any], prompts: Sequence[str], *_: Any, **__: Any) -> list[list[Any]]:
        return [[Reply(text, 1, 0.0, True, (5,)) for _ in prompts] for _ in edits]

    monkeypatch.setattr("engine.measures.generation.stream_replies", stream)
    monkeypatch.setattr("engine.measures.generation.generate_under", batch)
