"""The guided path in words. `answers` reads off the figures what is right."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Lesson:
    """One step. answers: id -> text. id: part of links, never renamed."""

    id: str
    title: str
    text: str
    question: str
    answers: dict[str, str]


_WORDS = tomllib.loads(Path(__file__).with_name("lessons.toml").read_text("utf-8"))
LESSONS = tuple(Lesson(**one) for one in _WORDS["lesson"])
