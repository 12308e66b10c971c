"""Judges by name, each with the id and version that stand beside its verdicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from engine.errors import InputError, unknown
from engine.evaluation.judge import Verdict, embedded_version, judge

EMBEDDED, REJECTION = "embedded", "rejection-model"


class Judge(Protocol):
    """Says of replies whether they refuse. id and version are recorded with every verdict."""

    @property
    def id(self) -> str: ...

    @property
    def version(self) -> str: ...

    def judge(
        self, replies: Sequence[str], progress: Callable[[int, int], None] | None = None
    ) -> list[Verdict]: ...


class EmbeddedJudge:
    """The rules of `engine.evaluation.judge`: no download, the default."""

    id = EMBEDDED

    @property
    def version(self) -> str:
        return embedded_version()

    def judge(
        self, replies: Sequence[str], progress: Callable[[int, int], None] | None = None
    ) -> list[Verdict]:
        verdicts = []
        for reply in replies:
            verdicts.append(judge(reply))
            if progress:
                progress(len(verdicts), len(replies))
        return verdicts


def open_judges(names: str, device: str = "cpu") -> list[Judge]:
    """`embedded`, `rejection-model` or a folder, one or several separated by commas, in that order.

    `InputError` for an unknown name, and for two judges of one id, whose verdicts could not be told apart.
    """
    wanted = list(dict.fromkeys(part.strip() for part in names.split(",") if part.strip()))
    if not wanted:
        raise InputError(f"no judge given; available: {EMBEDDED}, {REJECTION}, or a folder")
    judges = [_open(name, device) for name in wanted]
    ids = [one.id for one in judges]
    twice = next((one for one in ids if ids.count(one) > 1), None)
    if twice is not None:
        raise InputError(f"two judges are called {twice!r}; rename one of the folders")
    return judges


def _open(name: str, device: str) -> Judge:
    if name == EMBEDDED:
        return EmbeddedJudge()
    if name != REJECTION and not Path(name).is_dir():
        raise unknown("judge", name, [EMBEDDED, REJECTION, "FOLDER"])
    from engine.evaluation.rejection_model import REJECTION_MODEL, load_rejection_model

    return load_rejection_model(REJECTION_MODEL if name == REJECTION else name, device=device)
