"""One edit for every sequence, whatever is done to its units."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from engine.edits.edit import AnyEdit, Edit
from engine.interventions.at_outputs import edited_outputs
from engine.interventions.compaction import compacted
from engine.interventions.in_weights import zeroed
from engine.interventions.kinds import intervention_info
from engine.models.loading import LoadedModel


@contextmanager
def applied(loaded: LoadedModel, edit: AnyEdit, *, skip_dead: bool = False) -> Iterator[None]:
    """Inside: this thread's passes are those of the edited model. Outside: the model as it was.

    Zero rows go into the weights; all else is done at the outputs (or inputs). The model's lock is held throughout.
    skip_dead: leave out dead MLP neurons (`compacted`); the last bits may be others."""
    if isinstance(edit, Edit) and goes_into_weights(edit):
        with zeroed(loaded, edit.units), compacted(loaded, edit.units) if skip_dead else nullcontext():
            yield
    else:
        with edited_outputs(loaded, [edit]) as outputs, outputs.sequences([0]):
            yield


def goes_into_weights(edit: AnyEdit) -> bool:
    """Does `applied` change the weights for it?"""
    return isinstance(edit, Edit) and edit.side == "output" and intervention_info(edit.intervention).in_weights
