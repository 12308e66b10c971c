"""What a worker of a Ray cluster does: it holds a model, and measures what it is sent."""

import json
import os
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.edits.edit import AnyEdit, Edit
from engine.interventions.earlier_blocks import KeptOutputs, outputs_kept
from engine.interventions.kinds import Given, prepare
from engine.models.loading import LoadedModel, load_model
from engine.records.errors import InputError
from engine.run.cell import Cell
from engine.run.runner import measured_now

Ready = dict[str, Given]  # intervention -> what it was prepared with


class Source(NamedTuple):
    """Where a worker has its model from: as `load_model` takes it, and what it must turn out to be."""

    model: str
    revision: str | None
    dtype: str
    device: str
    fingerprint: dict[str, str]


def source_of(loaded: LoadedModel) -> Source:
    """The model that this process has, for processes that load it themselves."""
    model = os.path.abspath(loaded.id) if os.path.isdir(loaded.id) else loaded.id
    return Source(model, loaded.revision, loaded.dtype, loaded.device.partition(":")[0], loaded.numeric_fingerprint)


class PackedRows:
    """The units of an edit as bits, since what makes them may hold the order of all rows."""

    def __init__(self, units: npt.NDArray[np.int64]) -> None:
        mask = np.zeros(int(units.max(initial=-1)) + 1, dtype=np.bool_)
        mask[units] = True
        self._size, self._bits = mask.size, np.packbits(mask)

    def __call__(self) -> npt.NDArray[np.int64]:
        return np.flatnonzero(np.unpackbits(self._bits, count=self._size)).astype(np.int64)


def packed(edit: AnyEdit) -> AnyEdit:
    """The edit in a form that is small to send; equal content, equal hash."""
    return replace(edit, make=PackedRows(edit.units)) if isinstance(edit, Edit) else edit


class Worker:
    """Loads its model when it is first asked, also after it was started again."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._loaded: LoadedModel | None = None
        self._ready: dict[str, tuple[str, int, tuple[int, ...]]] = {}
        self._kept = KeptOutputs()  # from call to call, since only edits change its model

    def process(self) -> int:
        """Its process id, once the model is there."""
        self._model()
        return os.getpid()

    def measure(self, place: int, measure: Any, edits: list[AnyEdit], ready: Ready) -> tuple[int, list[str], float]:
        """`place` as given, the results as JSON texts, as the store keeps them, and seconds. Cells of one pass."""
        loaded = self._model()
        for intervention, (windows, seed, more) in ready.items():
            told = (windows.token_hash, seed, more)
            if self._ready.get(intervention) != told:
                prepare(loaded, intervention, windows, seed=seed, more=more)
                self._ready[intervention] = told
        with outputs_kept(self._kept):
            found, seconds = measured_now(tuple(Cell(loaded, edit, measure) for edit in edits))
        return place, [json.dumps(measure.encode(result)) for result in found], seconds

    def _model(self) -> LoadedModel:
        """Errors: InputError where it cannot be loaded, or is another one than this process's."""
        if self._loaded is None:
            source = self._source
            try:
                loaded = load_model(source.model, revision=source.revision, dtype=source.dtype, device=source.device)
            except InputError as error:
                raise InputError(f"a Ray worker cannot load the model: {error}") from None
            there = loaded.numeric_fingerprint
            for name, expected in source.fingerprint.items():
                if there[name] != expected:
                    raise InputError(
                        f"a Ray worker has another model: {name} {there[name][:12]}, here it is {expected[:12]}; give "
                        "all machines the same files and versions"
                    )
            self._loaded = loaded
        return self._loaded
