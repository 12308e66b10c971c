"""The runner on a Ray cluster: cells go to whichever worker is free, and this process alone writes the store. Workers
hold a model. They are sent measures and edits as Ray sends Python objects (pickled); results come back as the store
keeps them."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.edits.edit import AnyEdit, Edit
from engine.interventions.earlier_blocks import KeptOutputs, outputs_kept
from engine.interventions.kinds import Given, intervention_info, prepare, prepared_with
from engine.models.loading import LoadedModel, load_model
from engine.records.errors import InputError
from engine.records.progress import Progress
from engine.results.store import Store
from engine.run.runner import Cell, Count, Group, LocalRunner, measured_now

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


def packed(edit: AnyEdit) -> AnyEdit:
    """The edit in a form that is small to send, its units as bits, since what makes them may hold the order of all
    rows; equal content, equal hash."""
    if not isinstance(edit, Edit):
        return edit
    units = edit.units
    mask = np.zeros(int(units.max(initial=-1)) + 1, dtype=np.bool_)
    mask[units] = True
    return replace(edit, make=partial(_unpacked, np.packbits(mask), mask.size))


def _unpacked(bits: npt.NDArray[np.uint8], size: int) -> npt.NDArray[np.int64]:
    return np.flatnonzero(np.unpackbits(bits, count=size)).astype(np.int64)


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
            theirs = loaded.numeric_fingerprint
            for name, expected in source.fingerprint.items():
                if theirs[name] != expected:
                    raise InputError(
                        f"a Ray worker has another model: {name} {theirs[name][:12]}, here it is {expected[:12]}; give "
                        "all machines the same files and versions"
                    )
            self._loaded = loaded
        return self._loaded


TRIES = 3  # of one pass, where its worker is lost under it
# Read when ray is imported or started. Under `uv run` its hook would have every worker resolve the environment anew.
_SETTINGS = {"RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0", "RAY_USAGE_STATS_ENABLED": "0"}
_ALONE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # a cluster of one machine: all of it listens on 127.0.0.1 alone


class RayRunner(LocalRunner):
    """As `local`, but cells of the command's model are measured by workers, one pass at a time, whoever is free. What
    cannot be sent (a measure that cannot be pickled), and cells of another model (rewritten weights), are measured
    here. Of a lost worker Ray repeats the pass, `TRIES` times at most."""

    def __init__(
        self, pool: Pool, loaded: LoadedModel, store: Store, progress: Progress | None = None,
        announce: Callable[[Count], None] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(store, progress, announce)
        self._pool = pool
        self._loaded = loaded
        self._references: dict[str, Any] = {}  # measure -> where it is in the cluster, None for one that stays here

    def _compute_all(self, groups: Iterable[Group], bases: dict[Cell[Any], Cell[Any]]) -> None:
        sent: list[Group] = []
        for group in groups:
            if group[0].loaded is self._loaded and self._reference(group[0]) is not None:
                sent.append(group)
            else:
                super()._compute_all([group], bases)
        for place, stored, seconds in self._pool.measured(len(sent), lambda place: self._task(place, sent[place])):
            measure = sent[place][0].measure
            self.pace.add(measure, len(stored), seconds)
            self._keep_group(sent[place], [measure.decode(json.loads(one)) for one in stored], bases)

    def _reference(self, cell: Cell[Any]) -> Any:
        if cell.measure_key not in self._references:
            try:
                reference = self._pool.put(cell.measure)
            except (TypeError, AttributeError, ValueError):
                reference = None
            self._references[cell.measure_key] = reference
        return self._references[cell.measure_key]

    def _task(self, place: int, group: Group) -> tuple[Any, ...]:
        names = {intervention_info(cell.edit.intervention).id for cell in group if isinstance(cell.edit, Edit)}
        ready = {name: given for name in names if (given := prepared_with(self._loaded, name)) is not None}
        return place, self._reference(group[0]), [packed(cell.edit) for cell in group], ready


class Pool:
    """Workers of a cluster, each with the model: one per card; without cards one per machine, or as many as asked for.
    Errors: InputError where there is no room for them, or one has not the same model."""

    def __init__(self, ray: Any, source: Source, workers: int | None) -> None:
        self._ray = ray
        on_cards = source.device == "cuda"
        what = "GPU" if on_cards else "CPU"
        machines = [one["Resources"] for one in ray.nodes() if one["Alive"] and one["Resources"].get(what)]
        in_all = int(sum(one[what] for one in machines))
        if not in_all:
            raise InputError(f"the Ray cluster has no {what}, and the model is on {source.device}; see --device")
        count = workers or (in_all if on_cards else len(machines))
        if count > in_all:
            raise InputError(f"{count} workers need a {what} each, and the Ray cluster has {in_all}; lower --workers")
        of_each = -(-count // len(machines))  # on one machine
        cores = 1 if on_cards else max(1, int(min(one["CPU"] for one in machines)) // of_each)
        options = {"num_cpus": cores, "num_gpus": int(on_cards), "max_restarts": -1, "max_task_retries": TRIES - 1}
        self._actors = [ray.remote(**options)(Worker).remote(source) for _ in range(count)]
        with _plainly(ray):
            self.processes: list[int] = ray.get([actor.process.remote() for actor in self._actors])

    def put(self, measure: Any) -> Any:
        """Where every worker finds it."""
        return self._ray.put(measure)

    def measured(self, count: int, task: Callable[[int], tuple[Any, ...]]) -> Iterator[Any]:
        """What `Worker.measure` gives for so many tasks, as they are done. task: its arguments, made when sent."""
        from ray.util import ActorPool

        with _plainly(self._ray):
            yield from ActorPool(self._actors).map_unordered(
                lambda actor, place: actor.measure.remote(*task(place)), list(range(count))
            )


@contextmanager
def ray_runner(
    address: str | None, workers: int | None, loaded: LoadedModel, store: Store, progress: Progress | None = None,
    announce: Callable[[Count], None] | None = None,
) -> Iterator[RayRunner]:  # fmt: skip
    """A runner on the cluster at `address`, or on one of this machine's own that ends with it (on 127.0.0.1, no
    dashboard, no statistics). Errors: InputError where the cluster cannot be reached, or `Pool` says so."""
    address = address or os.environ.get("RAY_ADDRESS")
    settings = _SETTINGS if address else _SETTINGS | _ALONE
    os.environ.update({name: os.environ.get(name, value) for name, value in settings.items()})
    import ray

    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if not address:
        cores = max(os.cpu_count() or 1, workers or 1)
        quiet |= {"num_cpus": cores, "include_dashboard": False}
    try:
        ray.init(address or "local", **quiet)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise InputError(f"cannot reach or start the Ray cluster {address or ''} ({reason}); see --runner") from None
    try:
        yield RayRunner(Pool(ray, source_of(loaded), workers), loaded, store, progress, announce)
    finally:
        ray.shutdown()


@contextmanager
def _plainly(ray: Any) -> Iterator[None]:
    """A worker's own error as if it were raised here; a worker that is lost again and again as one line."""
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        cause = getattr(error, "cause", None)
        raise (cause if isinstance(cause, Exception) else RuntimeError(str(error))) from None
    except ray.exceptions.RayActorError:
        raise InputError(
            f"a Ray worker was lost {TRIES} times at the same cells (killed, or out of memory); what was finished is "
            "kept: see the logs of Ray, give fewer --workers, or measure with --runner local"
        ) from None
