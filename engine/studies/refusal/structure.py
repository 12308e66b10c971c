"""Where the contrast lies: its density, its overlap between selectors and domains, its projections and depths."""

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from engine.edits.contrasts import Contrast
from engine.edits.masks import Mask, removed_count
from engine.models.row_index import RowIndex
from engine.results.tables import frame
from engine.run.runner import Results
from engine.stats.removal_order import removal_order
from engine.stats.similarity import expected_random_jaccard, jaccard
from engine.studies.base import Answer, Study, Tables
from engine.studies.refusal.inputs import RefusalInputs

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
    found: list[tuple[object, ...]] = []
    for one in contrasts:
        for ranked_by in RANKED_BY:
            top = top_rows(one, ranked_by)
            counts = np.diff(np.append(np.searchsorted(top, starts), top.size))
            for part, names in parts.items():
                for name in dict.fromkeys(names):
                    inside = np.array([other == name for other in names])
                    share, base = _share(counts, inside), _share(sizes, inside)
                    found.append((model, one.selector, one.domain, ranked_by, part, name, share, base))
    return frame("refusal_shares", found)


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
