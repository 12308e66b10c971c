"""Scores of a behaviour: high where removing the row installs it. Only that end of them may be removed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from engine.errors import InputError

INSTALLS_ONLY = "this software only installs refusal and never selects rows in order to remove it"


class BehaviourScores(np.ndarray[Any, np.dtype[np.float32]]):
    """float32 [N], read-only. `removal_order` takes no such array, in neither order: `refusal_mask` does.

    What arithmetic makes of one is of this class as well, but is no longer `measured`, so that a negated copy
    can pose neither as scores of the language model nor as a contrast.
    """

    measured: bool

    def __array_finalize__(self, _: object) -> None:
        self.measured = False

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return array[()] if return_scalar else super().__array_wrap__(array, context, return_scalar)


def measured_scores(values: npt.ArrayLike) -> BehaviourScores:
    """Marks values as measured. For calibration, and for files whose checksum fits; nothing else may call it."""
    scores = np.array(values, dtype=np.float32).view(BehaviourScores)
    scores.flags.writeable = False
    scores.measured = True
    return scores


def require_measured(values: object, what: str) -> None:
    """`InputError` unless these are scores as calibration gave them: a plain array could hold them negated."""
    if not (isinstance(values, BehaviourScores) and values.measured):
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
