"""The words of a stage of `refusal`: of some options, those that it reads."""

from collections.abc import Sequence

from engine.run.field_types import settings_of
from engine.run.refusal_plan import RefusalPlan
from engine.studies.base import STAGES


def read_by(stage: str, words: Sequence[str]) -> list[str]:
    """words: options of the plan with their values, in turn. A run of all stages reads all."""
    if stage not in STAGES.names():
        return list(words)
    settings = {one.option for one in settings_of(RefusalPlan) if one.path[0] in STAGES.get(stage).settings}
    pairs = zip(words[::2], words[1::2], strict=True)
    return [word for name, value in pairs if name in settings for word in (name, value)]
