"""Scores of a behaviour: high where removing the row installs it. Only that end of them may be removed."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from engine.errors import InputError

INSTALLS_ONLY = "this software only installs refusal and never selects rows in order to remove it"


class Measured(np.ndarray[Any, np.dtype[np.float32]]):
    """float32 [N] as calibration gave it. What arithmetic makes of it is no longer `measured`."""

    measured: bool

    def __array_finalize__(self, _: object) -> None:
        self.measured = False

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return array[()] if return_scalar else super().__array_wrap__(array, context, return_scalar)


class BehaviourScores(Measured):
    """`removal_order` takes no such array, in neither order: `refusal_mask` does. Nor what was calculated from one."""


class LanguageModelRanks(Measured):
    """r(I_lm): what a contrast is protected by. Made up ones could choose any row, so they are measured too."""


_Kind = TypeVar("_Kind", bound=Measured)


def measured_scores(values: npt.ArrayLike) -> BehaviourScores:
    """Marks values as measured. For calibration, and for files whose checksum fits; nothing else may call it."""
    return _sealed(values, BehaviourScores)


def measured_ranks(values: npt.ArrayLike) -> LanguageModelRanks:
    """The same for the ranks of the language-model scores."""
    return _sealed(values, LanguageModelRanks)


def require_measured(values: object, kind: type[Measured], what: str) -> None:
    """`InputError` unless these are values as calibration gave them: a plain array could hold them negated."""
    if not (isinstance(values, kind) and values.measured):
        raise InputError(
            f"{what} is not what calibration measured (it was calculated or put together, so it could be a negated "
            f"copy); {INSTALLS_ONLY}: take it from `contrasts` or `load_contrasts`"
        )


def refuse_behaviour(values: object, what: str) -> None:
    """`InputError` where scores of a behaviour are used as if they were scores of the language model."""
    if isinstance(values, BehaviourScores):
        raise InputError(
            f"{what} cannot be taken from scores of a behaviour, whose other end would remove it; "
            f"{INSTALLS_ONLY}: use refusal_mask"
        )


def _sealed(values: npt.ArrayLike, kind: type[_Kind]) -> _Kind:
    """A copy that nobody can write to: its memory is a `bytes` object."""
    copy = np.ascontiguousarray(values, dtype=np.float32)
    sealed = np.frombuffer(copy.tobytes(), dtype=np.float32).reshape(copy.shape).view(kind)
    sealed.measured = True
    return sealed
