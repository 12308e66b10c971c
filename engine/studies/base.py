"""What a study is: the cells that it wants, and the tables that it makes of their results. Studies by group and name.

A study owns its part of the plan, its tables, and what a command says of it. To add one, write a file with a class and
register it, and its tables with `register_table`:

    @dataclass(frozen=True)
    class GapPlan:
        gap_rates: tuple[float, ...] = option((0.1, 0.3), "rates of `gap`", read=field_types.rates, least=0, most=1)

    @register_study("gap", of=AUDIT, plan=GapPlan, tables=("gap",), title="Is what a selector calls important costly?")
    class Gap(Study):
        def cells(self, audit: AuditInputs, known: Results) -> Iterable[Cell]: ...
        def tables(self, audit: AuditInputs, results: Results) -> dict[str, pl.DataFrame]: ...

`of=AUDIT` is an analysis of `analyze`, `of=REFUSAL` a stage of `refusal`, with a command of its id. The settings of its
plan part are fields of the group's plan (`audit.plan.gap_rates`), options of the command, fields of the form on the
page Runs, and are written into the manifest and read from it by `replay`. In this repository the id goes into
`BUILT_IN`; a package of its own has an entry point of the group `selector_audit.analyses` or `selector_audit.stages`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

import polars as pl

from engine.records.errors import InputError
from engine.records.hashing import Json
from engine.records.registry import Registry
from engine.run.audit_plan import OF_ALL, AuditPlan
from engine.run.field_types import as_type, assembled, settings_of
from engine.run.refusal_plan import RefusalPlan
from engine.run.share import Measured

if TYPE_CHECKING:
    from engine.edits.edit import Edit
    from engine.measures.base import Stored
    from engine.records.progress import SoFar
    from engine.run.runner import Cell, Results, Runner

Inputs = TypeVar("Inputs")
Tables = dict[str, pl.DataFrame]  # file stem -> table
AUDIT, REFUSAL = "audit", "refusal"  # groups of studies


class TextTable(NamedTuple):
    """A table on the terminal. texts: how many of the first columns are no numbers, all for None."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: int | None = None


class Answer(NamedTuple):
    """What a command says of a study: lines and tables, or one JSON object beside the folder."""

    text: Sequence[str | TextTable]
    record: Json


class Expected(NamedTuple):
    """What a study will measure, as far as that can be told before it does. edits: of those that are not known yet, how
    many at most under which measure. more: are there cells beyond these?"""

    cells: Iterable[Cell[Any]] = ()
    edits: Sequence[tuple[Stored[Any], int]] = ()
    more: bool = False


class Study(ABC, Generic[Inputs]):
    """A question: which cells answer it, and what they say. Only `tables` has no default.
    inputs: what every study of the group asks for; a study that builds something of them once does so in `__init__`."""

    masks_of: ClassVar[str] = ""  # the table that the edits of `masks` stand in
    searches: ClassVar[bool] = False  # do results choose further cells?
    replayed: ClassVar[bool] = False  # does the record of its tables tell all that it read? (of a stage)

    def __init__(self, inputs: Inputs | None = None) -> None:
        """Errors: InputError where the study cannot be done with these inputs."""

    @classmethod
    def check(cls, inputs: Inputs) -> None:
        """Raises an InputError where plan, configuration, tokenizer and texts already tell that the study cannot be
        done. It is asked before any weight is fetched, of inputs whose model has none."""

    def before_scores(self, inputs: Inputs) -> None:
        """Work that the audit's own scores fall out of, so that no text is read twice; what it cannot do, `cells`
        says."""

    def cells(self, inputs: Inputs, known: Results) -> Iterable[Cell[Any]]:
        """The cells that are wanted, given those that are known: a stage that depends on results comes once they are.
        Errors: InputError where the study cannot be done with these inputs, before anything is measured."""
        return ()

    @classmethod
    def expected(cls, inputs: Inputs, known: Results) -> Expected:
        """What it will measure, by plan, texts and drawn scores: the model has no weights, and nothing is known."""
        return cls(inputs).at_most(inputs, known)

    def at_most(self, inputs: Inputs, known: Results) -> Expected:
        """What it will measure at most, once what all studies read is there."""
        return Expected(self.cells(inputs, known), more=self.searches)

    @abstractmethod
    def tables(self, inputs: Inputs, results: Results) -> Tables:
        """The tables, from the results of all cells."""

    def so_far(self, inputs: Inputs, results: Results) -> SoFar | None:
        """What the study's table holds already while cells are measured, for whoever watches."""
        return None

    def masks(self, inputs: Inputs, results: Results) -> Sequence[Edit]:
        """The edits that the study ends in, each of which becomes a mask file."""
        return ()

    def record(self, inputs: Inputs) -> Json:
        """What the manifest keeps beside the study's tables of its own."""
        return {}

    def announcement(self, inputs: Inputs) -> str:
        """What is said before the study begins, "" for nothing."""
        return ""

    def line(self, inputs: Inputs, tables: Tables) -> str:
        """What came out, in a few words, as one of several studies."""
        return f"{', '.join(tables)} written"

    @classmethod
    def remade_with(cls, folder: Path, stems: Sequence[str]) -> dict[str, type[Study[Inputs]]]:
        """Further studies, by id, that left columns in these tables of a folder."""
        return {}

    def answer(self, inputs: Inputs, results: Results, tables: Tables, folder: Path) -> Answer:
        """What came out, as a command tells it. folder: where the tables are."""
        return Answer((), dict(tables))


def conduct(study: Study[Inputs], inputs: Inputs, runner: Runner) -> Tables:
    """All stages of a study, and its tables. Errors: Measured where the runner measures a share of the cells only."""
    while missing := [cell for cell in study.cells(inputs, runner.results) if cell not in runner.results]:
        runner.run(missing)
    if not runner.whole:
        raise Measured
    return study.tables(inputs, runner.results)


@dataclass(frozen=True)
class StudyInfo:
    """What menus, commands and documents say about a study.

    title: the question; description: what `--help` of its command says; tables: stems that it writes. plan: the part
    of the group's plan that is the study's own. reads: further parts that it reads (of a stage). reads_text: it
    measures on the evaluation text. measures: it has cells of edits."""

    id: str
    group: str
    title: str
    tables: tuple[str, ...]
    study: Callable[[], type[Study[Any]]]  # its class
    plan: type[Any] | None = None
    reads: tuple[type[Any], ...] = ()
    description: str = ""
    reads_text: bool = True
    measures: bool = True

    @property
    def settings(self) -> frozenset[str]:
        """The fields of the group's plan that a stage reads."""
        return frozenset(one.name for part in (self.plan, *self.reads) if part is not None for one in fields(part))

    def make(self, inputs: Any) -> Study[Any]:
        return self.study()(inputs)


class Later(NamedTuple):
    """A class that is imported when it is needed, so that a command's help need not wait for torch."""

    module: str
    name: str

    def __call__(self) -> type[Study[Any]]:
        return getattr(import_module(self.module), self.name)


# In the order in which they run: what is cheap or what others reuse comes first.
_ANALYSES = """agreement depth sweep replies budget gap seeds differences rank-distribution controls specific dangerous
 stability draws invariance verdict parts singles joint claims-of protocols domain downstream"""
_FILES = {  # where a file's name is another
    "depth": "agreement", "sweep": "sweeps", "replies": "sweeps", "budget": "sweeps", "gap": "verdicts",
    "seeds": "verdicts", "differences": "verdicts", "verdict": "verdicts", "rank-distribution": "groups",
    "dangerous": "groups", "specific": "controls", "draws": "stability", "parts": "singles", "joint": "singles",
    "claims-of": "claims_of",
}  # fmt: skip
BUILT_IN = {name: f"engine.studies.audit.{_FILES.get(name, name)}" for name in _ANALYSES.split()}
_BY_NAME = ("claims-of",)  # what `all` leaves out: it brings selectors of its own
_STAGES = "calibrate sweep select structure control evaluate compose stability parts baselines draws"
# One module has all of them, without their torch.
BUILT_IN_STAGES = dict.fromkeys(_STAGES.split(), "engine.studies.refusal.stages")
ANALYSES: Registry[StudyInfo] = Registry("analysis", BUILT_IN, group="analyses")
STAGES: Registry[StudyInfo] = Registry("stage", BUILT_IN_STAGES)
GROUPS = {AUDIT: ANALYSES, REFUSAL: STAGES}


def all_analyses() -> list[str]:
    """What `analyze MODEL all` runs."""
    return [name for name in ANALYSES.offered() if name not in _BY_NAME]


_PLANS: dict[str, type[Any]] = {AUDIT: AuditPlan, REFUSAL: RefusalPlan}


def plan_type(group: str) -> type[Any]:
    """The plan of a group: that of the built-in studies, with the parts of those that plug-ins bring. No torch."""
    return assembled(_PLANS[group], tuple(info.plan for info in GROUPS[group].brought() if info.plan is not None))


def analyze_groups() -> list[str]:
    """Groups of the settings of `analyze`: those of every analysis, then those of single ones, by the analysis's id."""
    own = dict.fromkeys(setting.group for setting in settings_of(plan_type(AUDIT)) if setting.option)
    return [*OF_ALL, *(group for group in own if group not in OF_ALL)]


def whole_plan(plan: Any, group: str) -> Any:
    """The plan with the defaults of what plug-ins bring."""
    return as_type(plan, plan_type(group))


_Class = TypeVar("_Class", bound="type[Any] | Later")


def register_study(
    study_id: str, *, of: str, tables: tuple[str, ...], title: str, plan: type[Any] | None = None, **more: Any
) -> Callable[[_Class], _Class]:
    """Class decorator: make the study available to `analyze` (of=AUDIT) or as `refusal ID` (of=REFUSAL).
    The arguments, also those that have a default, are the fields of `StudyInfo`. A class that is no `Study` gets the
    defaults of one.
    Errors: InputError for a taken id, an unknown group, and a setting that another part of the plan has."""
    if of not in GROUPS:
        raise InputError(f"a study is of {' or '.join(GROUPS)}, got {of!r}")
    if plan is not None and study_id not in GROUPS[of].built_in:
        others = [info.plan for info in GROUPS[of].brought() if info.id != study_id and info.plan is not None]
        for other in (_PLANS[of], *others):
            if taken := {one.name for one in fields(plan)} & {one.name for one in fields(other)}:
                raise InputError(f"the setting {min(taken)!r} of {study_id!r} is taken; give it another name")

    def register(cls: _Class) -> _Class:
        if isinstance(cls, Later):
            load: Callable[[], type[Study[Any]]] = cls.__call__
        else:
            study = cls if issubclass(cls, Study) else type(cls.__name__, (cls, Study), {})
            load = lambda: study  # noqa: E731
        GROUPS[of].add(study_id, StudyInfo(study_id, of, title, tables, load, plan, **more), cls)
        return cls

    return register
