"""Refusal tables of one source -> what the page draws: the grid's cells, one cell in detail, rates side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from dashboard import formats, palette
from engine.errors import InputError
from engine.evaluation.rates import wilson_of_rate

Row = dict[str, Any]
PLACE = ["selector", "domain", "lambda", "k"]
_NOT_TRANSFER = ("heldout", "calibration")  # sets of `transfer` that the operating points have as columns


def cells(sweep: pl.DataFrame | None, points: pl.DataFrame | None) -> pl.DataFrame:
    """All measured masks of one model, each with its Wilson intervals, and the unedited model (k = 0).

    Columns: PLACE, rows_removed, malign, malign_n, malign_low, malign_high, the same of benign, nll, feasible,
    point (an operating point), rescue, id. Without a sweep the operating points alone, with their held-out rates.
    Null rates: above the perplexity cap, where no replies were written.
    """
    if sweep is None:
        if points is None:
            raise InputError(
                "there is neither a grid nor an operating point; run `selector-audit refusal sweep`"
            )
        sweep = _of_points(points)
    frame = sweep.select(
        *PLACE, "rows_removed", "malign", "malign_n", "benign", "benign_n", "nll", "feasible"
    )
    for kind in ("malign", "benign"):
        pairs = frame.select(kind, f"{kind}_n").rows()
        for place, end in enumerate(("low", "high")):
            bounds = [wilson_of_rate(rate, n)[place] if rate is not None and n else None for rate, n in pairs]
            frame = frame.with_columns(pl.Series(f"{kind}_{end}", bounds, dtype=pl.Float64))
    chosen: dict[str, bool] = {}
    if points is not None:
        for row in points.filter(pl.col("k").is_not_null()).iter_rows(named=True):
            chosen[cell_id(row)] = bool(row["rescue"])
    ids = [cell_id(row) for row in frame.iter_rows(named=True)]
    return frame.with_columns(
        id=pl.Series(ids, dtype=pl.String),
        point=pl.Series([name in chosen for name in ids], dtype=pl.Boolean),
        rescue=pl.Series([chosen.get(name, False) for name in ids], dtype=pl.Boolean),
    )


def _of_points(points: pl.DataFrame) -> pl.DataFrame:
    wanted = {"pairs", "edited_malign", "edited_benign", "edited_nll", "unedited_malign"}
    if not wanted <= set(points.columns):
        raise InputError(
            "the operating points have no rates yet; run `selector-audit refusal control` on this folder"
        )
    parts = []
    for side in ("unedited", "edited"):
        zero = (
            [pl.lit(0.0).alias(name) for name in ("lambda", "k")] if side == "unedited" else ["lambda", "k"]
        )
        rows = pl.lit(0, pl.Int64).alias("rows_removed") if side == "unedited" else "rows_removed"
        parts.append(
            points.filter(pl.col("k").is_not_null()).select(
                "selector", "domain", *zero, rows, malign=f"{side}_malign", malign_n="pairs",
                benign=f"{side}_benign", benign_n="pairs", nll=f"{side}_nll", feasible=~pl.col("rescue"),
            )
        )  # fmt: skip
    return pl.concat(parts, how="vertical_relaxed")


def cell_id(row: Row) -> str:
    """`lrp/hate/0.5/0.02`: selector, domain, lambda, k."""
    return f"{row['selector']}/{row['domain']}/{row['lambda']:g}/{row['k']:g}"


def edited(frame: pl.DataFrame) -> pl.DataFrame:
    """The cells of edits, without the unedited model."""
    return frame.filter(pl.col("k") > 0)


def unedited(frame: pl.DataFrame, selector: str, domain: str) -> Row | None:
    """The unedited model's row beside one selector and domain; None where it was not printed."""
    rows = frame.filter(pl.col("k") == 0, pl.col("selector") == selector, pl.col("domain") == domain)
    return rows.row(0, named=True) if rows.height else None


def strength(row: Row) -> str:
    """`λ 0.5, k 2%`; random has no λ."""
    lam = "" if row["selector"] == "random" else f"λ {row['lambda']:g}, "
    return f"{lam}k {formats.rate(row['k'])}"


def cell_title(row: Row) -> str:
    """`LRP, hate, λ 0.5, k 2%`."""
    return f"{palette.title(row['selector'])}, {row['domain']}, {strength(row)}"


def first_choice(frame: pl.DataFrame) -> str:
    """The cell to open first: the operating point with the most malign refusal, a rescue only if there is no other."""
    ranked = frame.filter(pl.col("malign").is_not_null()).sort(
        ["point", "rescue", "malign"], descending=[True, False, True], maintain_order=True
    )
    if ranked.is_empty():
        raise InputError("no mask of this grid is below the perplexity cap; choose another domain")
    return str(ranked["id"][0])


@dataclass(frozen=True)
class RateChange:
    """One set of prompts before and after an edit. malign: refusing them is right. None: not known."""

    prompts: str
    malign: bool
    before: tuple[float | None, float | None, float | None]
    after: tuple[float | None, float | None, float | None]
    n: int | None


def rate_changes(
    cell: Row, before: Row | None, point: Row | None, transfer: pl.DataFrame | None, *, published: bool
) -> list[RateChange]:
    """What the edit does to every set of prompts, (rate, low, high) each.

    cell, before: rows of `cells`. point: the row of `operating_points` of this cell, if it is one. published:
    the printed cells were measured on the very prompts of the operating points, so that these are not told twice.
    """
    found = []
    if point is None or not published:
        for kind in ("malign", "benign"):
            old = _rates(before, kind) if before else (None, None, None)
            found.append(
                RateChange(
                    "prompts of the grid", kind == "malign", old, _rates(cell, kind), cell[f"{kind}_n"]
                )
            )
    if point is not None and point.get("edited_malign") is not None:
        name = "prompts of the grid" if point.get("heldout") is False else "held-out prompts"
        for kind in ("malign", "benign"):
            found.append(
                RateChange(
                    name, kind == "malign", _rates(point, f"unedited_{kind}"), _rates(point, f"edited_{kind}"),
                    point.get("pairs"),
                )
            )  # fmt: skip
    if transfer is not None:
        here = of_cell(transfer, cell).filter(~pl.col("prompts").is_in(_NOT_TRANSFER))
        for row in here.iter_rows(named=True):
            found.append(
                RateChange(
                    row["prompts"],
                    row["kind"] == "malign",
                    _rates(row, "before"),
                    _rates(row, "after"),
                    row["n"],
                )
            )
    return found


def _rates(row: Row, name: str) -> tuple[float | None, float | None, float | None]:
    return row.get(name), row.get(f"{name}_low"), row.get(f"{name}_high")


def of_cell(table: pl.DataFrame, cell: Row) -> pl.DataFrame:
    """The rows of a table that are about one edit."""
    near = [(pl.col(name) - cell[name]).abs() < 1e-9 for name in ("lambda", "k")]
    return table.filter(pl.col("selector") == cell["selector"], pl.col("domain") == cell["domain"], *near)


def point_of(points: pl.DataFrame | None, cell: Row) -> Row | None:
    """The operating point that a cell is; None if it is none."""
    if points is None:
        return None
    for row in points.filter(pl.col("k").is_not_null()).iter_rows(named=True):
        if cell_id(row) == cell_id(cell):
            return row
    return None


def percent(rate: float | None, low: float | None = None, high: float | None = None) -> str:
    """`75.2% [71.2, 78.8]`; `–` where there is none."""
    if rate is None:
        return "–"
    shown = f"{rate * 100:.1f}%"
    return shown if low is None or high is None else f"{shown} [{low * 100:.1f}, {high * 100:.1f}]"


def point_table(points: pl.DataFrame) -> pl.DataFrame:
    """Operating points for people: one row per selector and domain, rates with their intervals, controls, rescue."""
    rows = []
    for row in points.iter_rows(named=True):
        found = row["k"] is not None
        rows.append(
            {
                "Selector": palette.title(row["selector"]),
                "Domain": row["domain"],
                "λ": f"{row['lambda']:g}" if found and row["selector"] != "random" else "–",
                "k": formats.rate(row["k"]) if found else "no cell will do",
                "Rows": f"{row['rows_removed']:,}" if row["rows_removed"] is not None else "–",
                "Malign before": percent(*_rates(row, "unedited_malign")),
                "Malign after": percent(*_rates(row, "edited_malign")),
                "Benign before": percent(*_rates(row, "unedited_benign")),
                "Benign after": percent(*_rates(row, "edited_benign")),
                "Perplexity": _arrow(row.get("unedited_nll"), row.get("edited_nll")),
                "Random control": percent(row.get("control_malign")),
                "Gain": percent(row.get("gain"), row.get("gain_low"), row.get("gain_high")),
                "Rescue": "rescue" if row["rescue"] else "",
            }
        )
    return pl.DataFrame(rows)


def _arrow(before: float | None, after: float | None) -> str:
    shown = formats.perplexity(after)
    return shown if before is None else f"{formats.perplexity(before)} → {shown}"
