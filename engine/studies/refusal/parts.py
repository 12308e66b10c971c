"""Parts of a refusal edit: which projections and blocks of it install refusal, and which do its harm."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from engine.edits.edit import UNEDITED, Edit
from engine.edits.masks import mask_parts
from engine.measures.margin import Margins
from engine.measures.nll import Nll
from engine.results.tables import frame
from engine.run.cell import Cell
from engine.run.runner import Results
from engine.studies.base import Answer, Tables, TextTable
from engine.studies.refusal.grid import Points
from engine.studies.refusal.inputs import RefusalInputs
from engine.studies.refusal.operating_point import OperatingPoint
from engine.studies.refusal.points import Chosen, edits

WINDOWS = 16  # first evaluation windows, which are read for each part


class _Part(NamedTuple):
    selector: str
    domain: str
    point: OperatingPoint
    part: str
    name: str
    whole: Edit
    alone: Edit
    without: Edit


class Parts(Chosen):
    """`refusal_parts`, one line per projection and block of the edit of every operating point.

    margin_*: mean refusal margin m(x) over the held-out risk prompts, of the whole edit, of the part's rows alone, of
    all other rows, and of the unedited model; nll_* likewise, on the first 16 evaluation windows. margin_lost = (whole
    - without) / (whole - dense): the share of the margin's gain that goes when the part's rows are put back; null
    where the edit gains none. Shares of several parts need not add up to 1. Beyond the paper."""

    masks_of, replayed = "", False

    def of_points(self, run: RefusalInputs, points: Points) -> Iterable[Cell[Any]]:
        for one in _parts(run, points):
            for edit in (UNEDITED, one.whole, one.alone, one.without):
                yield from _cells(run, one.domain, edit)

    def tables(self, run: RefusalInputs, results: Results) -> Tables:
        lines = []
        for one in _parts(run, self.points(run, results)):
            found = [
                [results[cell].value for cell in _cells(run, one.domain, edit)]
                for edit in (one.alone, one.without, one.whole, UNEDITED)
            ]
            margins, nlls = zip(*found, strict=True)
            _, without, whole, dense = margins
            lost = (whole - without) / (whole - dense) if whole > dense else None
            place = (run.loaded.id, one.selector, one.domain, one.point.lam, one.point.k, one.part, one.name)
            lines.append((*place, one.alone.size, *margins, lost, *nlls))
        return {"refusal_parts": frame("refusal_parts", lines)}

    def line(self, run: RefusalInputs, tables: Tables) -> str:
        return f"{tables['refusal_parts'].height} parts of edits measured"

    def answer(self, run: RefusalInputs, results: Results, tables: Tables, folder: Path) -> Answer:
        best = tables["refusal_parts"].sort("margin_lost", descending=True, nulls_last=True, maintain_order=True)
        best = best.unique(["selector", "domain", "part"], keep="first", maintain_order=True)
        columns = ("selector", "domain", "part", "name", "margin", "margin_without", "margin_dense")
        table = TextTable(
            "the part of each edit whose rows carry most of the margin: whole edit, without them, unedited", columns,
            [(*row[:4], *(f"{value:+.2f}" for value in row[4:])) for row in best.select(columns).iter_rows()], 4,
        )  # fmt: skip
        return Answer((table,), dict(tables))


def _cells(run: RefusalInputs, domain: str, edit: Edit) -> tuple[Cell[Any], Cell[Any]]:
    text = run.evaluation
    nll = Nll(text.first(min(WINDOWS, len(text.sample_ids))))
    margins = Margins(tuple(pair.risk for pair in run.heldout[domain]))
    return Cell(run.loaded, edit, margins), Cell(run.loaded, edit, nll)


def _parts(run: RefusalInputs, points: Points) -> Iterator[_Part]:
    for selector, domain, point, edit in edits(run, run.contrasts, points):
        if point is not None:
            for part, name, inside in mask_parts(edit.units, run.loaded.rows):
                alone, without = run.edit(edit.units[inside]), run.edit(edit.units[~inside])
                yield _Part(selector, domain, point, part, name, edit, alone, without)
