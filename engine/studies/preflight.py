"""What of a run of studies can be known to be wrong before any weight is fetched."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from engine.models.loading import LoadedModel
from engine.results.store import Store
from engine.run.preflight import LeftOut
from engine.studies.base import GROUPS
from engine.studies.conduct import StudyInputs, possible


class Fit(NamedTuple):
    """What can be done. left_out: selector -> reason. skipped: study -> reason."""

    plan: Any
    studies: list[str]
    left_out: LeftOut
    skipped: dict[str, str]


def fitting(
    kind: type[StudyInputs], sketch: LoadedModel, plan: Any, names: Sequence[str], store: Store, *, named: bool,
    skip: bool = False,
) -> Fit:  # fmt: skip
    """The plan with the selectors that this model allows, and the studies that can be done with these.

    kind: `AuditInputs` or `RefusalInputs`. sketch: the model without its weights (`load_sketch`). named: the selectors
    were asked for by name. skip: leave out studies that cannot be done; else the first one is an error.
    Errors: InputError for that, and where nothing can be done.
    """
    infos = [GROUPS[kind.group].get(name) for name in names]
    plan, left_out = kind.fitting_plan(sketch, plan, named=named)
    inputs = kind.sketched(sketch, plan, store)
    inputs.check(infos)
    left, skipped = possible(inputs, infos, skip=skip)
    return Fit(plan, [info.id for info in left], left_out, skipped)
