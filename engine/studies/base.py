"""What a study is: the cells that it wants, and the tables that it makes of their results. Analyses by name.

To add an analysis, write a file with a class and register it, and its tables with `register_table`:

    @register_analysis("gap", tables=("gap",), title="Is what a selector calls important more costly to remove?")
    class Gap:
        def cells(self, audit: AuditInputs, known: Results) -> Iterable[Cell]: ...
        def tables(self, audit: AuditInputs, results: Results) -> dict[str, pl.DataFrame]: ...

Inside this repository its id goes into `BUILT_IN`; a package of its own has an entry point of the group
`selector_audit.analyses`. `analyze`, the table viewer of the page Runs and the tests over the registry then know it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import polars as pl

from engine.records.registry import Registry
from engine.run.share import Measured

if TYPE_CHECKING:
    from engine.run.cell import Cell
    from engine.run.runner import Results, Runner

Inputs = TypeVar("Inputs", contravariant=True)
Tables = dict[str, pl.DataFrame]  # file stem -> table


class Study(Protocol[Inputs]):
    """A question: which cells answer it, and what they say."""

    def cells(self, inputs: Inputs, known: Results) -> Iterable[Cell[Any]]:
        """The cells that are wanted, given those that are known: a stage that depends on results comes once they are.

        Errors: InputError where the study cannot be done with these inputs, before anything is measured.
        """
        ...

    def tables(self, inputs: Inputs, results: Results) -> Tables:
        """The tables, from the results of all cells."""
        ...

    # A study may also have `record(inputs) -> Json`: what of its own the manifest keeps beside its tables; and
    # `check(inputs)`, which raises an InputError where plan, configuration, tokenizer and texts already tell that it
    # cannot be done: it is asked before any weight is fetched, of inputs whose model has none. `before_scores(inputs)`
    # does work that the audit's own scores fall out of, so that no text is read twice; what it cannot do, `cells` says.
    # `so_far(inputs, results) -> SoFar`: what its table holds already while cells are measured, for whoever watches.


def conduct(study: Study[Inputs], inputs: Inputs, runner: Runner) -> Tables:
    """All stages of a study, and its tables. Errors: Measured where the runner measures a share of the cells only."""
    while missing := [cell for cell in study.cells(inputs, runner.results) if cell not in runner.results]:
        runner.run(missing)
    if not runner.whole:
        raise Measured
    return study.tables(inputs, runner.results)


@dataclass(frozen=True)
class AnalysisInfo:
    """What menus and documents say about an analysis."""

    id: str
    title: str
    tables: tuple[str, ...]  # stems that it writes
    reads_text: bool  # measures on the evaluation text
    make: Callable[[], Study[Any]]


_AUDIT = "engine.studies.audit"
# In the order in which they run: what is cheap or what others reuse comes first.
BUILT_IN = {
    "agreement": f"{_AUDIT}.agreement",
    "depth": f"{_AUDIT}.depth",
    "sweep": f"{_AUDIT}.sweep",
    "replies": f"{_AUDIT}.replies",
    "gap": f"{_AUDIT}.gap",
    "seeds": f"{_AUDIT}.gap",
    "differences": f"{_AUDIT}.differences",
    "rank-distribution": f"{_AUDIT}.groups",
    "controls": f"{_AUDIT}.controls",
    "specific": f"{_AUDIT}.specific",
    "dangerous": f"{_AUDIT}.groups",
    "stability": f"{_AUDIT}.stability",
    "draws": f"{_AUDIT}.draws",
    "invariance": f"{_AUDIT}.invariance",
    "verdict": f"{_AUDIT}.verdicts",
    "singles": f"{_AUDIT}.singles",
    "protocols": f"{_AUDIT}.protocols",
    "domain": f"{_AUDIT}.domain",
    "downstream": f"{_AUDIT}.downstream",
}
ANALYSES: Registry[AnalysisInfo] = Registry("analysis", BUILT_IN, group="analyses")

_Study = TypeVar("_Study", bound=Callable[[], Study[Any]])


def register_analysis(
    analysis_id: str, *, tables: tuple[str, ...], title: str, reads_text: bool = True
) -> Callable[[_Study], _Study]:
    """Class decorator: make the study available to `analyze`. Errors: InputError for a taken id."""

    def register(make: _Study) -> _Study:
        ANALYSES.add(analysis_id, AnalysisInfo(analysis_id, title, tables, reads_text, make), make)
        return make

    return register
