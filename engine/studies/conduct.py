"""A run of several studies: first what all of them read, then all cells, each table written as soon as it is there. And
what they will take, told before they begin: from the model's shapes, or at the pace of a probe."""

from __future__ import annotations

import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from engine.data.corpora import Windows
from engine.models.loading import LoadedModel
from engine.models.memory import release
from engine.records.errors import InputError, is_out_of_memory
from engine.records.hashing import Json
from engine.records.manifest import check_folder
from engine.records.progress import Progress, begin, grower
from engine.records.registry import plug_in_code
from engine.results.folders import with_model_name
from engine.results.store import Arrays, Store
from engine.run.audit_plan import AuditPlan, ScorePlan
from engine.run.refusal_plan import RefusalPlan
from engine.run.run_estimate import SCORE, SWEEP, Estimate, estimate
from engine.run.runner import Cell, Count, LocalRunner, Results, Runner
from engine.run.scoring import LeftOut
from engine.run.share import Measured
from engine.studies.base import GROUPS, Study, StudyInfo, Tables, conduct

Maker = Callable[[Any], Study[Any]]


class Recorded(NamedTuple):
    """Tables that one study made under one plan, as a manifest tells. name: in `replay`; study: its id, "" for what
    comes before all studies."""

    group: str
    name: str
    study: str
    stems: tuple[str, ...]
    spec: Json


class Remaking(NamedTuple):
    """What recorded tables are made again with. parts: all of the folder; texts: files that the run read. known: inputs
    that were made already, by their plan."""

    folder: Path
    parts: Sequence[Recorded]
    loaded: LoadedModel
    store: Store
    runner: LocalRunner
    texts: Sequence[Path]
    progress: Progress | None
    known: dict[Any, Any]


class OtherText(InputError):
    """A text is not the one that the run read."""


class StudyInputs(ABC):
    """One model under one plan: what every study of a group may ask for, and how its tables are written."""

    group: ClassVar[str]
    first: ClassVar[str]  # the part of a run that comes before the studies
    cells_known_early: ClassVar[bool]  # the cells of all studies are asked for before the first is measured
    recorded_by: ClassVar[frozenset[str]]  # entries of the manifest by which a table is of this group
    own_entries: ClassVar[tuple[str, ...]] = ()  # entries of a single study; all else of its record is the run's
    all_replayed: ClassVar[bool]  # the record of every table holds all settings, so that `replay` can make it again

    loaded: LoadedModel
    progress: Progress | None

    @classmethod
    @abstractmethod
    def fitting_plan(cls, sketch: LoadedModel, plan: Any, *, named: bool) -> tuple[Any, LeftOut]:
        """The plan with the selectors that such a model allows, and why not the others. Errors: InputError where one
        was named that is not among them, or none is left."""

    @classmethod
    @abstractmethod
    def sketched(cls, sketch: LoadedModel, plan: Any, store: Store) -> StudyInputs:
        """Inputs whose model has no weights."""

    @classmethod
    @abstractmethod
    def scores_of(cls, plan: Any) -> ScorePlan:
        """The scores of text that `prepare` needs."""

    def draw_scores(self) -> None:  # noqa: B027 - not every group has cells that ask for some
        """Drawn scores in the place of those that a model without weights cannot have."""

    def check(self, infos: Sequence[StudyInfo]) -> None:  # noqa: B027 - not every group has something to check
        """Errors: InputError where what all of these studies read is not there or does not fit. Needs no weights."""

    @abstractmethod
    def prepare(self, infos: Sequence[StudyInfo]) -> None:
        """Computes what all studies read."""

    @abstractmethod
    def write_prepared(self, folder: Path, elapsed_s: float) -> None:
        """Writes what `prepare` computed."""

    @abstractmethod
    def write(
        self, folder: Path, info: StudyInfo, study: Study[Any], tables: Tables, results: Results, elapsed_s: float
    ) -> None:
        """Writes the tables of a study, and its masks, with what the manifest says of them."""

    @property
    @abstractmethod
    def evaluation(self) -> Windows:
        """The evaluation text. Errors: InputError where it cannot be read."""

    @classmethod
    def called(cls, study_id: str) -> str:
        """What a study's tables are called in a replay."""
        return study_id

    @classmethod
    @abstractmethod
    def from_record(cls, part: Recorded, remaking: Remaking) -> tuple[StudyInputs, Sequence[str]]:
        """The inputs that a recorded study had, and what else is to be said of them.
        Errors: InputError where its prompts, texts, judge … are not to be had as they were; OtherText."""

    def arrays(self, folder: Path, part: Recorded) -> Iterator[tuple[str, Arrays]]:
        """What stands beside the tables of a part, by file or in words, to be compared by a replay."""
        return iter(())

    @classmethod
    def files_beside(cls, folder: Path, part: Recorded) -> Iterable[str]:
        """The files of `arrays`."""
        return ()

    def conclude(self, folder: Path) -> Json:
        """Writes what follows from all tables of the folder. returns {file: rows}"""
        return {}


def run_studies(
    inputs: StudyInputs, names: Sequence[str], folder: Path, runner: Runner, *, skip: bool = False,
    makers: Mapping[str, Maker] | None = None, inputs_of: Mapping[str, Any] | None = None,
    begun: Callable[[Study[Any]], None] | None = None,
    finished: Callable[[str, Study[Any] | None, Tables, float], None] | None = None,
) -> Json:  # fmt: skip
    """What all studies read, then the named studies of the group of `inputs`, in the order of the registry (a stage of
    `refusal` in the order of `names`); writes one parquet file per table and a manifest entry for each, and last what
    follows from all tables of the folder. Every result is kept at once.

    skip: leave out a study that cannot be done here (a corpus out of reach, an extra not installed, no memory), and do
    the others. makers, inputs_of: by id, another way to make a study, and the inputs that are its own. begun: called
    with each study before its cells are measured; finished: with name, study (None for the first part), tables and
    seconds. A runner of a share of the cells (`Runner.whole`) writes no file; `Measured` is raised when its share is
    measured.

    returns {"done": {study: seconds}, "skipped": {study: why}, "tables": {file: rows}}
    Errors: InputError for an unknown name, where no study is left and, without `skip`, whatever one cannot do."""
    registry, makers = GROUPS[inputs.group], makers or {}
    for name in names:
        registry.get(name)  # an unknown one is told with the nearest name
    prepares = inputs.cells_known_early or inputs.first in names
    ordered = registry.names() if inputs.cells_known_early else names
    wanted = [registry.get(name) for name in ordered if name in names and name != inputs.first]
    check_folder(folder, inputs.loaded.fingerprint)
    wanted, skipped = possible(inputs, wanted, skip=skip)  # what cannot be read is told before hours of scoring
    if runner.whole:
        folder.mkdir(parents=True, exist_ok=True)
    report: Json = {"done": {}, "skipped": skipped, "tables": {}}
    parts = prepares + len(wanted)

    def ended(name: str, study: Study[Any] | None, tables: Tables, start_s: float) -> None:
        elapsed_s = time.monotonic() - start_s
        report["done"][name] = round(elapsed_s, 1)
        report["tables"] |= {f"{stem}.parquet": table.height for stem, table in tables.items()}
        if finished is not None:
            finished(name, study, tables, elapsed_s)

    if prepares:
        start_s = time.monotonic()
        begin(inputs.progress, inputs.first, 1, parts)
        inputs.prepare(wanted)
        if runner.whole:
            inputs.write_prepared(folder, time.monotonic() - start_s)
            ended(inputs.first, None, {}, start_s)

    def study_of(info: StudyInfo, own: Any) -> Study[Any]:
        with plug_in_code(registry.kind, info.id):
            return makers.get(info.id, info.make)(own)

    ready: dict[str, Study[Any]] = {}  # those whose cells are asked for before the first is measured
    if inputs.cells_known_early:
        ready = _expected(inputs, wanted, study_of, runner, report["skipped"], skip=skip)
        wanted = [info for info in wanted if info.id in ready]
    for number, info in enumerate(wanted, start=1 + prepares):
        begin(inputs.progress, info.id, number, prepares + len(wanted))
        own = (inputs_of or {}).get(info.id, inputs)
        start_s, tables = time.monotonic(), None
        try:
            study = ready[info.id] if info.id in ready else study_of(info, own)
            if begun is not None:
                begun(study)
            with plug_in_code(registry.kind, info.id):
                measured = conduct(study, own, runner)
            tables = {stem: with_model_name(table, inputs.loaded.fingerprint) for stem, table in measured.items()}
        except Measured:
            continue
        except (InputError, RuntimeError, MemoryError) as error:  # of a later stage, or of a measure
            if not skip or not (isinstance(error, InputError) or is_out_of_memory(error)):
                raise
            report["skipped"][info.id] = next(iter(str(error).strip().splitlines()), type(error).__name__)
        if tables is None:
            release()  # here the failed pass's tensors, which the traceback kept, can go
            continue
        own.write(folder, info, study, tables, runner.results, time.monotonic() - start_s)
        ended(info.id, study, tables, start_s)
    if not runner.whole:
        raise Measured(report["skipped"])
    if report["tables"]:
        try:
            report["tables"] |= inputs.conclude(folder)
        except InputError as error:  # a table of an earlier run is damaged: what was measured now is kept all the same
            report["skipped"]["claims"] = str(error)
    return report


def _expected(
    inputs: StudyInputs, wanted: Sequence[StudyInfo], study_of: Callable[[StudyInfo, Any], Study[Any]], runner: Runner,
    skipped: dict[str, str], *, skip: bool,
) -> dict[str, Study[Any]]:  # fmt: skip
    """The studies that can begin, by id; the runner's bar is over the cells of all of them."""
    cells: list[Cell[Any]] = []
    ready = {}
    for info in wanted:
        try:
            study = study_of(info, inputs)
            with plug_in_code(GROUPS[inputs.group].kind, info.id):
                cells += study.cells(inputs, runner.results)
        except InputError as error:
            if not skip:
                raise
            skipped[info.id] = str(error)
            continue
        ready[info.id] = study
    grow = grower(inputs.progress)
    for study in ready.values():
        if grow is not None and (so_far := study.so_far(inputs, runner.results)) is not None:
            grow(so_far)
    runner.expect(cells)
    return ready


def possible(inputs: StudyInputs, wanted: Sequence[StudyInfo], *, skip: bool) -> tuple[list[StudyInfo], dict[str, str]]:
    """The studies that plan, configuration, tokenizer and texts allow, and of the others why not. Needs no weights.
    Errors: InputError without `skip` for the first that cannot be done, with it where none can."""
    left, reasons = [], {}
    problem = unreadable = None
    if any(info.reads_text for info in wanted):
        try:
            inputs.evaluation  # noqa: B018 - read here or nowhere
        except InputError as error:
            unreadable = error
    for info in wanted:
        try:
            if info.reads_text and unreadable is not None:
                raise unreadable
            with plug_in_code(GROUPS[inputs.group].kind, info.id):
                info.study().check(inputs)
        except InputError as error:
            if not skip:
                raise
            problem, reasons[info.id] = error, str(error)
        else:
            left.append(info)
    if problem is not None and not left:
        raise problem
    return left, reasons


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
    Errors: InputError for that, and where nothing can be done."""
    infos = [GROUPS[kind.group].get(name) for name in names]
    plan, left_out = kind.fitting_plan(sketch, plan, named=named)
    inputs = kind.sketched(sketch, plan, store)
    inputs.check(infos)
    left, skipped = possible(inputs, infos, skip=skip)
    return Fit(plan, [info.id for info in left], left_out, skipped)


@dataclass(frozen=True)
class Forecast:
    """cells: distinct ones. edits: further ones under each measure, at most. of: the work of scores and of all these,
    dead neurons not subtracted, with the memory. skipped: studies that cannot be done, and why.

    partly: studies that take more, which depends on scores of other texts or on results."""

    cells: int
    edits: int
    partly: tuple[str, ...]
    skipped: Mapping[str, str]
    of: Estimate

    def flops(self, stage: str) -> int:
        """Of the scores (SCORE) or of what is measured (SWEEP)."""
        return sum(one.flops for one in self.of.work if one.stage == stage)


def from_shapes(
    kind: type[StudyInputs], sketch: Callable[[], LoadedModel], plan: Any, names: Sequence[str], *, skip: bool = False
) -> Forecast:
    """What these studies take, before any weight is fetched. What the store knows already is counted too.

    kind: `AuditInputs` or `RefusalInputs`. sketch: makes the model without its weights (`load_sketch`), each call a new
    one. Cells are counted under rankings that are drawn, since how many rows a mask removes does not depend on the
    scores. skip: as `fitting`. Errors: InputError where a study cannot be done, or the model cannot be traced by its
    shapes."""
    first = sketch()
    plan, _ = kind.fitting_plan(first, plan, named=False)
    cells: set[Cell[Any]] = set()
    further: dict[int, tuple[Any, int]] = {}  # of measures that several studies take of the same edits once
    partly = dict[str, None]()
    # A store that nobody keeps: what a study computes of a model without numbers is nothing to be kept.
    with tempfile.TemporaryDirectory() as place, Store(Path(place)) as store:
        inputs = kind.sketched(first, plan, store)
        inputs.draw_scores()
        left, skipped = possible(inputs, [info for info in GROUPS[kind.group] if info.id in names], skip=skip)
        for info in left:
            try:
                expected = info.study().expected(inputs, Results())
                partly |= dict.fromkeys([info.id] * expected.more)
                for measure, edits in expected.edits:
                    further[id(measure)] = measure, max(edits, further.get(id(measure), (measure, 0))[1])
                cells.update(cell.base or cell for cell in expected.cells)
            except InputError as error:
                if not skip:
                    raise
                partly.pop(info.id, None)
                skipped[info.id] = str(error)
            except (RuntimeError, TypeError, AttributeError, ValueError, LookupError):
                partly[info.id] = None  # it asks for scores of other texts, which needs numbers, or for earlier results
    alike: dict[str, list[Cell[Any]]] = {}
    for cell in cells:
        alike.setdefault(cell.measure_key, []).append(cell)
    counted = [*((some[0].measure, len(some)) for some in alike.values()), *further.values()]
    scores = AuditPlan(scoring=kind.scores_of(plan), sweep_rates=())
    work = estimate(sketch(), scores, RefusalPlan(), (SCORE, SWEEP), cells=counted)
    return Forecast(len(cells), max((edits for _, edits in further.values()), default=0), tuple(partly), skipped, work)


def at_pace(study: Study[Any], inputs: StudyInputs, runner: LocalRunner) -> tuple[Count, Count]:
    """(cells of edits that are known, those of edits that results choose): counts, and seconds at the pace of a probe.

    The probe is the unedited model's cells among them; there is none where nothing is left to compute. Both are upper
    bounds where results decide (`Study.at_most`); once the first are known, the second are counted stage by stage as
    far as the store knows what a stage depends on."""
    most = study.at_most(inputs, runner.results)
    cells = list(dict.fromkeys(most.cells))
    probe = [cell for cell in cells if not cell.edit.size]
    if runner.count(cells).to_compute:
        runner.probe(probe)
        measures = [measure for measure, edits in most.edits for _ in range(edits)]
        return runner.count(cells), Count(0, len(measures), runner.pace.seconds(measures))
    wanted = dict.fromkeys(cells)
    while new := [cell for cell in study.cells(inputs, runner.results) if cell not in wanted]:
        wanted |= dict.fromkeys(new)
        if runner.count(new).to_compute:
            break
    rest = list(wanted)[len(cells) :]
    if runner.count(rest).to_compute:
        runner.probe(probe)
    return runner.count(cells), runner.count(rest)
