"""Refusal tables of one source -> what the page draws: the grid's cells, one cell in detail, rates side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from dashboard.charts import formats, palette
from dashboard.charts.sortable import Sortable, perplexities, sortable
from engine.records.errors import InputError
from engine.stats.intervals import wilson_of_rate

Row = dict[str, Any]
PLACE = ["selector", "domain", "lambda", "k"]
EDGE = "At the grid's"  # column of the list of points: a better cell may lie beyond
_NOT_TRANSFER = ("heldout", "calibration")  # sets of `transfer` that the operating points have as columns


def cells(sweep: pl.DataFrame | None, points: pl.DataFrame | None) -> pl.DataFrame:
    """All measured masks of one model, each with its Wilson intervals, and the unedited model (k = 0).

    Columns: PLACE, rows_removed, malign, malign_n, malign_low, malign_high, the same of benign, nll, feasible,
    point (an operating point), rescue, id. Without a sweep the operating points alone, with their held-out rates.
    Null rates: above the perplexity cap, where no replies were written.
    """
    if sweep is None:
        if points is None:
            raise InputError("there is neither a grid nor an operating point; run `selector-audit refusal sweep`")
        sweep = _of_points(points)
    frame = sweep.select(*PLACE, "rows_removed", "malign", "malign_n", "benign", "benign_n", "nll", "feasible")
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
        raise InputError("the operating points have no rates yet; run `selector-audit refusal control` on this folder")
    parts = []
    for side in ("unedited", "edited"):
        zero = [pl.lit(0.0).alias(name) for name in ("lambda", "k")] if side == "unedited" else ["lambda", "k"]
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
            told = ("prompts of the grid", kind == "malign", old, _rates(cell, kind), cell[f"{kind}_n"])
            found.append(RateChange(*told))
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
                    row["prompts"], row["kind"] == "malign", _rates(row, "before"), _rates(row, "after"), row["n"]
                )
            )
    return found


def _rates(row: Row, name: str) -> tuple[float | None, float | None, float | None]:
    return row.get(name), row.get(f"{name}_low"), row.get(f"{name}_high")


def cut_off(sweep: pl.DataFrame | None, transfer: pl.DataFrame | None, cell: Row) -> str:
    """How many of a cell's replies ended at the limit of tokens, in words; empty where none did or nobody knows."""
    found = []
    for table, columns, what in (
        (sweep, ("malign_unfinished", "benign_unfinished"), "of the grid"),
        (transfer, ("after_unfinished",), "of the held-out and further prompts"),
    ):
        if table is not None and set(columns) <= set(table.columns):
            count = of_cell(table, cell).select(pl.sum_horizontal(columns).sum()).item()
            found += [f"{count:,} {what}"] if count else []
    return f"Cut off at the token limit, and judged as far as they go: {', '.join(found)}." if found else ""


def verdict_notes(transfer: pl.DataFrame | None, cell: Row) -> list[str]:
    """What the prompts that were answered twice say, and the judge's own errors: a line per set of prompts."""
    if transfer is None or "change" not in transfer.columns:
        return []
    told = []
    for row in of_cell(transfer, cell).iter_rows(named=True):
        text = (
            f"{row['prompts']}, {'to refuse' if row['kind'] == 'malign' else 'to answer'}: {row['newly_refused']} of "
            f"{row['n']} newly refused, {row['no_longer_refused']} no longer; change "
            f"{percent(row['change'], row['change_low'], row['change_high'])}, McNemar's p {row['mcnemar_p']:.2g}."
        )
        if row.get("after_corrected") is not None:
            sides = [[row[f"{side}_corrected{end}"] for end in ("", "_low", "_high")] for side in ("before", "after")]
            text += (
                f" Corrected for the judge's measured errors: {percent(*sides[0])} before, {percent(*sides[1])} after, "
                "if it errs on these replies as it does on the labelled ones."
            )
        told.append(text)
    return told


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


def point_table(points: pl.DataFrame, specificity: pl.DataFrame | None = None) -> Sortable:
    """Operating points for people: one row per selector and domain, rates with their intervals, controls, rescue."""
    rows, numbers = [], []
    for row in points.iter_rows(named=True):
        line = None if specificity is None or row["k"] is None else of_cell(specificity, row)
        drawn = None if line is None or line.is_empty() else line.row(0, named=True)
        found = row["k"] is not None
        rates = {
            f"{name} {when}": f"{state}_{kind}"
            for kind, name in (("malign", "Malign"), ("benign", "Benign"))
            for state, when in (("unedited", "before"), ("edited", "after"))
        }
        shares = {"Optimism": "optimism", "Random masks, mean": "control_malign", "Gain over mean": "gain"}
        rows.append(
            {
                "Selector": palette.title(row["selector"]),
                "Domain": row["domain"],
                "λ": f"{row['lambda']:g}" if found and row["selector"] != "random" else "–",
                "k": formats.rate(row["k"]) if found else "no cell will do",
                "Rows": f"{row['rows_removed']:,}" if row["rows_removed"] is not None else "–",
                **{title: percent(*_rates(row, name)) for title, name in rates.items()},
                "Perplexity": _arrow(row.get("unedited_nll"), row.get("edited_nll")),
                **{title: percent(row.get(name)) for title, name in shares.items()},
                "Rank among draws": f"{drawn['rank']} of {drawn['draws'] + 1}" if drawn else "–",
                "p by Holm": f"{drawn['p_holm']:.3f}" if drawn else "–",
                "Rescue": "rescue" if row["rescue"] else "",
                EDGE: {None: "", "none": ""}.get(row.get("edge"), row.get("edge")),
            }
        )
        numbers.append(
            {
                "λ": row["lambda"] if found and row["selector"] != "random" else None,
                "k": row["k"],
                "Rows": row["rows_removed"],
                **{title: row.get(name) for title, name in (rates | shares).items()},
                "Perplexity": row.get("edited_nll"),
                "Rank among draws": drawn["rank"] if drawn else None,
                "p by Holm": drawn["p_holm"] if drawn else None,
            }
        )
    table = pl.DataFrame(rows)
    table = table if any(table[EDGE]) else table.drop(EDGE)
    behind = pl.DataFrame(numbers, infer_schema_length=None).cast(pl.Float64)
    return sortable(table, behind.with_columns(perplexities(pl.col("Perplexity"))))


def _arrow(before: float | None, after: float | None) -> str:
    shown = formats.perplexity(after)
    return shown if before is None else f"{formats.perplexity(before)} → {shown}"


def against_paper(points: pl.DataFrame, published: pl.DataFrame) -> str:
    """Mean activation beside LRP, here and in the paper: one sentence; empty where one of the four is not known.

    Means of malign refusal under the operating points, over the domains that both selectors have.
    """
    told = []
    for table in (points, published):
        found = _means(table)
        if not found:
            return ""
        told.append(found)
    (model, here, lrp, domains), (other, there, their_lrp, their_domains) = told
    unlike = (
        "Unlike in the paper, mean activation installs refusal here. "
        if here > lrp / 2 and there < their_lrp / 2
        else ""
    )
    many = f"{domains} domain{'s' if domains > 1 else ''}"
    return (
        f"{unlike}Malign refusal at the operating points, mean over domains, mean activation against LRP: "
        f"{percent(here)} against {percent(lrp)} on {model} ({many}); {percent(there)} against {percent(their_lrp)} "
        f"on the paper's {other} ({their_domains})."
    )


def _means(points: pl.DataFrame) -> tuple[str, float, float, int] | None:
    """Model, mean of mean_activation, mean of lrp, number of domains; of the first model that has both."""
    if "edited_malign" not in points.columns:
        return None
    known = points.filter(pl.col("selector").is_in(["mean_activation", "lrp"])).drop_nulls("edited_malign")
    for (model,), part in known.group_by("model", maintain_order=True):
        wide = part.pivot(on="selector", index="domain", values="edited_malign", aggregate_function="first")
        if {"mean_activation", "lrp"} <= set(wide.columns):
            both = wide.drop_nulls(["mean_activation", "lrp"])
            if both.height:
                here, lrp = (float(sum(both[name]) / both.height) for name in ("mean_activation", "lrp"))
                return str(model), here, lrp, both.height
    return None
