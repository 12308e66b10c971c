"""What contrasts and masks are made of: where they lie, which parts of a mask install refusal, and whether other pairs
give the same rows."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from engine.data.corpora import Pair
from engine.edits.contrasts import Contrast, refusal_mask
from engine.edits.control_edits import shuffled
from engine.edits.edit import UNEDITED, Edit
from engine.edits.masks import Mask, mask_parts, removed_count
from engine.measures.margin import Margins
from engine.measures.nll import Nll
from engine.models.row_index import RowIndex
from engine.records.errors import InputError
from engine.results.tables import frame
from engine.run.runner import Cell, Results
from engine.selectors import get_selector
from engine.stats.removal_order import expected_random_jaccard, jaccard, removal_order
from engine.studies.base import Answer, Study, Tables, TextTable
from engine.studies.refusal.algorithm import calibrate
from engine.studies.refusal.grid import Points
from engine.studies.refusal.points import Chosen, edits
from engine.studies.refusal.refusal_inputs import RefusalInputs

DENSE = 0.5  # abs(C_comply) above which a row counts as signal
TOP = 0.01  # share of all rows that stands for a contrast
# Top rows by C_comply are those a mask takes; by abs(C_comply) is how the paper counts depths (appendix E).
RANKED_BY = ("c_comply", "abs_c_comply")
THIRDS = ("early", "mid", "late")


def top_rows(contrast: Contrast, ranked_by: str, top: float = TOP) -> Mask:
    """The `round(top * N)` rows with the largest C_comply or abs(C_comply), ties by row id; to look at only."""
    values = contrast.c_comply
    order = removal_order(np.abs(values) if ranked_by == "abs_c_comply" else values, "morf")
    return np.sort(order[: removed_count(top, order.size)])


def signal_density(model: str, contrasts: Sequence[Contrast]) -> pl.DataFrame:
    """`signal_density`: share of rows with abs(C_comply) > 0.5, per selector and domain."""
    rows = [(model, one.selector, one.domain, float((np.abs(one.c_comply) > DENSE).mean())) for one in contrasts]
    return frame("signal_density", rows)


def overlaps(model: str, contrasts: Sequence[Contrast]) -> pl.DataFrame:
    """`refusal_jaccard`: Jaccard of the top 1% of rows of two contrasts, beside what chance gives.
    comparison `selectors`: two selectors on one domain; `domains`: one selector on two domains."""
    rows: list[tuple[object, ...]] = []
    for ranked_by in RANKED_BY:
        tops = [(one, top_rows(one, ranked_by)) for one in contrasts]
        for (a, rows_a), (b, rows_b) in combinations(tops, 2):
            if (a.selector == b.selector) == (a.domain == b.domain):
                continue
            comparison = "domains" if a.selector == b.selector else "selectors"
            expected = expected_random_jaccard(a.c_comply.size, rows_a.size, rows_b.size)
            pair = (a.selector, a.domain, b.selector, b.domain)
            rows.append((model, comparison, ranked_by, *pair, TOP, jaccard(rows_a, rows_b), expected))
    return frame("refusal_jaccard", rows)


def shares(model: str, contrasts: Sequence[Contrast], rows: RowIndex) -> pl.DataFrame:
    """`refusal_shares`: of the top 1% of rows, the share in each projection and in each third of the blocks.
    part `projection` or `third`; base_rate: the share of all rows of the model there. Block b of B is in third
    floor(3 b / B)."""
    blocks = 1 + max(layer.block for layer in rows.layers)
    parts = {
        "projection": [layer.projection for layer in rows.layers],
        "third": [THIRDS[3 * layer.block // blocks] for layer in rows.layers],
    }
    sizes = np.array([layer.rows for layer in rows.layers])
    starts = [layer.start for layer in rows.layers]
    lines: list[tuple[object, ...]] = []
    for one in contrasts:
        for ranked_by in RANKED_BY:
            top = top_rows(one, ranked_by)
            counts = np.diff(np.append(np.searchsorted(top, starts), top.size))
            for part, names in parts.items():
                for name in dict.fromkeys(names):
                    inside = np.array([other == name for other in names])
                    share, base = _share(counts, inside), _share(sizes, inside)
                    lines.append((model, one.selector, one.domain, ranked_by, part, name, share, base))
    return frame("refusal_shares", lines)


def structure(model: str, contrasts: Sequence[Contrast], rows: RowIndex) -> dict[str, pl.DataFrame]:
    """All tables of the structure of contrasts, by file stem. The paper, section 5.4 and appendix E."""
    return {
        "signal_density": signal_density(model, contrasts),
        "refusal_jaccard": overlaps(model, contrasts),
        "refusal_shares": shares(model, contrasts, rows),
    }


class Structure(Study[RefusalInputs]):
    replayed = True

    def tables(self, run: RefusalInputs, results: Results) -> Tables:
        return structure(run.loaded.id, run.contrasts, run.loaded.rows)

    def line(self, run: RefusalInputs, tables: Tables) -> str:
        density = tables["signal_density"]["density"].to_list()
        return f"{min(density):.2%} to {max(density):.2%} of the rows are signal"

    def answer(self, run: RefusalInputs, results: Results, tables: Tables, folder: Path) -> Answer:
        lines = (
            f"{selector} {domain}: {density:.2%} of the rows are signal"
            for selector, domain, density in tables["signal_density"].select("selector", "domain", "density").rows()
        )
        return Answer(tuple(lines), dict(tables))


def _share(counts: npt.NDArray[np.int64], inside: npt.NDArray[np.bool_]) -> float:
    total = int(counts.sum())
    return float(counts[inside].sum() / total) if total else 0.0


WINDOWS = 16  # first evaluation windows, which are read for each part


class Parts(Chosen):
    """`refusal_parts`, one line per projection and block of the edit of every operating point.

    margin_*: mean refusal margin m(x) over the held-out risk prompts, of the whole edit, of the part's rows alone, of
    all other rows, and of the unedited model; nll_* likewise, on the first 16 evaluation windows. margin_lost = (whole
    - without) / (whole - dense): the share of the margin's gain that goes when the part's rows are put back; null
    where the edit gains none. Shares of several parts need not add up to 1. Beyond the paper."""

    masks_of, replayed = "", False

    def of_points(self, run: RefusalInputs, points: Points) -> Iterable[Cell[Any]]:
        for (_, domain, *_), carried in _parts(run, points):
            for edit in (UNEDITED, *carried):
                yield from _cells(run, domain, edit)

    def tables(self, run: RefusalInputs, results: Results) -> Tables:
        lines = []
        for place, carried in _parts(run, self.points(run, results)):
            values = [[results[cell].value for cell in _cells(run, place[1], edit)] for edit in (*carried, UNEDITED)]
            margins, nlls = zip(*values, strict=True)
            _, without, whole, dense = margins
            lost = (whole - without) / (whole - dense) if whole > dense else None
            lines.append((run.loaded.id, *place, carried[0].size, *margins, lost, *nlls))
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


def _parts(run: RefusalInputs, points: Points) -> Iterator[tuple[tuple[Any, ...], tuple[Edit, Edit, Edit]]]:
    """(selector, domain, lambda, k, part, its name), and its rows alone, all others, and the whole edit."""
    for selector, domain, point, edit in edits(run, run.contrasts, points):
        if point is not None:
            for part, name, inside in mask_parts(edit.units, run.loaded.rows):
                alone, without = run.edit(edit.units[inside]), run.edit(edit.units[~inside])
                yield (selector, domain, point.lam, point.k, part, name), (alone, without, edit)


SHUFFLES = 10  # random masks behind `expected_layers`


class MaskStability(Chosen):
    """`mask_stability`: overlap of the masks of two halves of the pairs, at the operating point's lambda and k.

    The calibration pairs of a domain are split at random into two halves, once per seed 0 .. splits - 1. jaccard:
    between the halves' masks; jaccard_full: of each with the mask of all pairs, on average. expected_random: what two
    random masks of that size share; expected_layers: what the second half's mask shares with the first's once its rows
    are shuffled within their layers, mean of 10. Seeded selectors have no line. Beyond the paper. `InputError` where a
    domain has fewer than four pairs."""

    def tables(self, run: RefusalInputs, results: Results) -> Tables:
        return {"mask_stability": frame("mask_stability", self._lines(run, self.points(run, results)))}

    def line(self, run: RefusalInputs, tables: Tables) -> str:
        return f"{tables['mask_stability'].height} pairs of masks compared"

    def answer(self, run: RefusalInputs, results: Results, tables: Tables, folder: Path) -> Answer:
        columns = ("jaccard", "jaccard_full", "expected_layers", "expected_random")
        means = tables["mask_stability"].group_by("selector", "domain", maintain_order=True).agg(pl.col(columns).mean())
        table = TextTable(
            f"Jaccard of masks, mean of {run.plan.splits} splits of the pairs",
            ("selector", "domain", "half against half", "half against all", "same layers, random", "random"),
            [(row[0], row[1], *(f"{value:.3f}" for value in row[2:])) for row in means.iter_rows()],
        )
        return Answer((table,), dict(tables))

    def _lines(self, run: RefusalInputs, points: Points) -> Iterator[tuple[object, ...]]:
        full = {(one.selector, one.domain): one for one in run.contrasts}
        usable = run.contrastable(run.calibration)
        for seed in range(run.plan.splits):
            parts = {domain: halves(pairs, seed) for domain, pairs in usable.items()}
            sides = ({domain: both[side] for domain, both in parts.items()} for side in (0, 1))
            both = (calibrate(run.loaded, run.plan, half, store=run.store, progress=run.progress) for half in sides)
            first, second = ({(one.selector, one.domain): one for one in some} for some in both)
            for place, point in points.items():
                if point is None or get_selector(place[0]).seeded:
                    continue
                a, b, whole = (refusal_mask(found[place], point.lam, point.k) for found in (first, second, full))
                key = (run.loaded.id, *place, point.lam, point.k, whole.size, seed, len(parts[place[1]][0]))
                own = fmean((jaccard(a, whole), jaccard(b, whole)))
                chance = expected_random_jaccard(run.loaded.rows.n_rows, a.size, b.size)
                at_equal_depths = (jaccard(a, shuffled(b, run.loaded.rows, draw)) for draw in range(SHUFFLES))
                yield *key, jaccard(a, b), own, chance, fmean(at_equal_depths)


def halves(pairs: Sequence[Pair], seed: int) -> tuple[list[Pair], list[Pair]]:
    """Two disjoint random halves, equally many; one pair is left out of an odd number."""
    if len(pairs) < 4:
        raise InputError(
            f"{pairs[0].domain}: the stability of a mask needs at least four calibration pairs, got {len(pairs)}"
        )
    order = np.random.default_rng(seed).permutation(len(pairs))
    size = len(pairs) // 2
    first, second = (sorted(part.tolist()) for part in (order[:size], order[size : 2 * size]))
    return [pairs[place] for place in first], [pairs[place] for place in second]
