"""Which results a page shows: the shipped model's, a run of one's own, or the published tables. Bound to the URL."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import polars as pl
from streamlit.delta_generator import DeltaGenerator

import precomputed
from dashboard.show import layout, paper, selection, tools
from dashboard.state import access, missing, results, shipped_models as shipped
from engine.records.errors import InputError
from engine.studies.verdict.judged_selectors import as_judged_now

SHIPPED, MINE, PAPER = shipped.TITLES[shipped.DEMO], "My results", "Paper"


@dataclass
class Source:
    """One model of one source. `provenance` grows by the tables that were read."""

    kind: str
    model: str
    run: Path | None  # None: the paper, which has a folder for each of its models
    stage: DeltaGenerator  # what the page begins with
    bar: DeltaGenerator  # the settings, the picker's first
    _lines: list[str] = field(default_factory=list)

    def hero(self) -> DeltaGenerator:
        """The place of the page's first figure; once on a page."""
        return layout.hero(self.stage)

    def show(self, figure: go.Figure, name: str, **more: Any) -> None:
        """The page's first figure in its place, as `tools.show` takes it."""
        with self.hero():
            tools.show(figure, name, hero=True, **more)

    def drawer(self) -> DeltaGenerator:
        """The settings that are changed less often; once on a page, after those of the bar."""
        return layout.drawer(self.bar)

    @property
    def published(self) -> bool:
        """Published values: some columns are null, and there are no errors of measurement."""
        return self.run is None

    @property
    def folder(self) -> Path:
        return self.run or precomputed.paper_runs_dir() / self.model

    def has(self, stem: str) -> bool:
        """Is there such a table? (It may still be damaged.)"""
        return (self.folder / f"{stem}.parquet").is_file()

    def offer(self, stem: str) -> None:
        """Compute this now, for a table that the page can do without."""
        missing.offer(self.folder, stem)

    def table(self, stem: str) -> pl.DataFrame:
        """The rows of this model, verdicts in today's words.
        `InputError` where the table is missing, damaged or says nothing of the model."""
        frame = self.all_models(stem).filter(pl.col("model") == self.model)
        if stem == "verdicts":
            frame = as_judged_now(frame)
        if frame.is_empty():
            raise InputError(f"{stem} has no values for {self.model}; choose another model or source")
        return frame

    def all_models(self, stem: str) -> pl.DataFrame:
        table = read(self.run, stem)
        self._lines.append(table.provenance)
        return table.frame

    def optional(self, stem: str) -> pl.DataFrame | None:
        """A table that not every folder has; None, and a line where it is damaged."""
        own_lines = None
        if self.has(stem):
            with layout.told():
                own_lines = self.all_models(stem).filter(pl.col("model") == self.model)
        return own_lines

    @property
    def provenance(self) -> list[str]:
        return list(dict.fromkeys(self._lines))


def pick(
    stage: DeltaGenerator, stems: Sequence[str], says_nothing: Callable[[pl.DataFrame], bool] | None = None,
    bar: DeltaGenerator | None = None,
) -> Source | None:  # fmt: skip
    """The picker of a page that shows the tables `stems`, in `bar`, None = a bar of its own below the stage's heading.
    None where nothing can be shown; what to do is then on the page. "Paper" is offered where it printed one of
    the tables; the first of them decides what a page opens on. says_nothing: of it; then not on the shipped model."""
    bar = bar or layout.bar(stage)
    with bar:
        chosen = kind(stems, says_nothing, paper=any(map(results.paper_folders, stems)))
    try:
        with bar:
            known = shipped.folders() | {PAPER: None}
            folder = known[chosen] if chosen in known else own_run("a command", results.find_runs)
        models = _models(folder, stems)
    except InputError as error:
        with stage:
            layout.problem(error)
        return None
    single = len(models) == 1 and chosen in shipped.folders()  # which the results are named after
    model = models[0] if single else selection.choose("Model", models, "model", keep=True, place=bar)
    paper.about(model)
    return Source(chosen, model, folder, stage, bar)


def kind(stems: Sequence[str], says_nothing: Callable[[pl.DataFrame], bool] | None = None, *, paper: bool) -> str:
    """Shipped results, one's own, or (`paper`) those that were published; at first those that have a table."""
    kinds = [*shipped.folders(), MINE, *([PAPER] if paper else [])]
    return selection.choose("Results", kinds, "source", default=_first(kinds, stems, says_nothing), keep=True)


def _first(
    kinds: Sequence[str], stems: Sequence[str], says_nothing: Callable[[pl.DataFrame], bool] | None = None
) -> str:
    if results.STORE_VARIABLE in os.environ:
        with suppress(InputError):  # a store without results says so where My results is chosen
            results.find_runs(results.results_dir())
            return MINE
    for stem in stems:
        for title, folder in shipped.folders().items():
            is_there = (folder / f"{stem}.parquet").is_file()
            if is_there and not (says_nothing and shipped_says_nothing(folder, stems[0], says_nothing)):
                return title
    return PAPER if PAPER in kinds else next(iter(shipped.folders()))


def shipped_says_nothing(folder: Path, stem: str, says_nothing: Callable[[pl.DataFrame], bool]) -> bool:
    """Of a table of shipped results; what cannot be read is told where it is chosen."""
    try:
        return says_nothing(results.read_table(folder, stem).frame)
    except InputError:
        return False


def own_run(writer: str, find: Callable[[Path], list[Path]]) -> Path:
    """One of the user's own runs: the folder to look in, and which one where `find` finds several in it.
    The folder is the store's where the app is limited."""
    about = f"A folder that {writer} wrote with --out, or one that holds such folders."
    default = str(results.store_results_dir())
    typed = default
    if not access.limited():
        typed = selection.text("Folder", "folder", default=default, keep=True, help_text=about)
    folder = results.folder_of(typed)
    runs = {str(run.relative_to(folder)): run for run in find(folder)}
    chosen = selection.choose("Run", list(runs), "run", keep=True) if len(runs) > 1 else next(iter(runs))
    return runs[chosen]


def _models(folder: Path | None, stems: Sequence[str]) -> list[str]:
    """Models of the readable tables; the first problem where none is readable."""
    found, problems = list[str](), list[InputError]()
    for stem in stems:
        try:
            found += read(folder, stem).frame["model"].unique(maintain_order=True).to_list()
        except InputError as error:
            problems.append(error)
    if not found:
        raise (problems[0] if problems else InputError("the tables are empty; run `selector-audit analyze` again"))
    return list(dict.fromkeys(found))


def read(run: Path | None, stem: str) -> results.Table:
    return results.read_published(stem) if run is None else results.read_table(run, stem)
