"""Refusal tables of one source -> what the page draws: the grid's cells, one cell in detail, rates side by side."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import polars as pl

from dashboard.charts import formats, palette
from dashboard.charts.sortable import Cell, Sortable, of_rows, perplexity
from engine.records.errors import InputError
from engine.stats.uncertainty import wilson_of_rate

Row = dict[str, Any]
PLACE = ["selector", "domain", "lambda", "k"]
EDGE = "At the grid's"  # column of the list of points: a better cell may lie beyond
_NOT_TRANSFER = ("heldout", "calibration")  # sets of `transfer` that the operating points have as columns


def cells(sweep: pl.DataFrame | None, points: pl.DataFrame | None) -> pl.DataFrame:
    """All measured masks of one model, each with its Wilson intervals, and the unedited model (k = 0).
    Columns: PLACE, rows_removed, malign, malign_n, malign_low, malign_high, the same of benign, nll, feasible,
    point (an operating point), rescue, id. Without a sweep the operating points alone, with their held-out rates.
    Null rates: above the perplexity cap, where no replies were written."""
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
    known = () if points is None else points.drop_nulls("k").iter_rows(named=True)
    chosen = {cell_id(row): bool(row["rescue"]) for row in known}
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
    points = points.drop_nulls("k")
    unedited = points.with_columns(pl.col("lambda", "k", "rows_removed") * 0)
    parts = [
        table.select(
            "selector", "domain", "lambda", "k", "rows_removed", malign=f"{side}_malign", malign_n="pairs",
            benign=f"{side}_benign", benign_n="pairs", nll=f"{side}_nll", feasible=~pl.col("rescue"),
        )
        for side, table in (("unedited", unedited), ("edited", points))
    ]  # fmt: skip
    return pl.concat(parts, how="vertical_relaxed")


def cell_id(row: Row) -> str:
    """`lrp/hate/0.5/0.02`: selector, domain, lambda, k."""
    return f"{row['selector']}/{row['domain']}/{row['lambda']:g}/{row['k']:g}"


def asked(frame: pl.DataFrame) -> pl.DataFrame:
    """The cells of edits whose replies were judged."""
    return frame.filter(pl.col("k") > 0, pl.col("malign").is_not_null(), pl.col("benign").is_not_null())


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


def strongest_first(points: pl.DataFrame) -> list[str]:
    """Selectors of `operating_points` by how many risk prompts their edits refuse, in the mean of the domains."""
    means = points.group_by("selector").agg(pl.col("edited_malign").mean())
    return means.sort("edited_malign", "selector", descending=[True, False])["selector"].to_list()


def lrp_and_ig(points: pl.DataFrame) -> pl.DataFrame:
    """Malign refusal of LRP's and IG's operating points: model, domain, selector, rescue, malign."""
    columns = ["model", "domain", "selector", "rescue"]
    if "edited_malign" not in points.columns:
        return points.select(columns).clear().with_columns(malign=pl.lit(None, pl.Float64))
    attributions = points.filter(pl.col("selector").is_in(["lrp", "ig"]), pl.col("edited_malign").is_not_null())
    return attributions.select(*columns, malign="edited_malign")


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
    the printed cells were measured on the very prompts of the operating points, so that these are not told twice."""
    lines: list[tuple[str, str, Row, str, Row, str, int | None]] = []  # prompts, kind, and of either side row and name
    grid = "prompts of the grid"
    for kind in ("malign", "benign") if point is None or not published else ():
        lines.append((grid, kind, before or {}, kind, cell, kind, cell[f"{kind}_n"]))
    if point is not None and point.get("edited_malign") is not None:
        name = grid if point.get("heldout") is False else "held-out prompts"
        for kind in ("malign", "benign"):
            lines.append((name, kind, point, f"unedited_{kind}", point, f"edited_{kind}", point.get("pairs")))
    if transfer is not None:
        here = of_cell(transfer, cell).filter(~pl.col("prompts").is_in(_NOT_TRANSFER))
        for row in here.iter_rows(named=True):
            lines.append((row["prompts"], row["kind"], row, "before", row, "after", row["n"]))
    return [
        RateChange(prompts, kind == "malign", rates(old, was), rates(new, now), n)
        for prompts, kind, old, was, new, now, n in lines
    ]


def rates(row: Row, name: str) -> tuple[float | None, float | None, float | None]:
    """A rate and the ends of its interval, as far as the row has them."""
    return row.get(name), row.get(f"{name}_low"), row.get(f"{name}_high")


def cut_off(sweep: pl.DataFrame | None, transfer: pl.DataFrame | None, cell: Row) -> str:
    """How many of a cell's replies ended at the limit of tokens, in words; empty where none did or nobody knows."""
    counts = []
    for table, columns, what in (
        (sweep, ("malign_unfinished", "benign_unfinished"), "of the grid"),
        (transfer, ("after_unfinished",), "of the held-out and further prompts"),
    ):
        if table is not None and set(columns) <= set(table.columns):
            count = of_cell(table, cell).select(pl.sum_horizontal(columns).sum()).item()
            counts += [f"{count:,} {what}"] if count else []
    return f"Cut off at the token limit, and judged as far as they go: {', '.join(counts)}." if counts else ""


def verdict_notes(transfer: pl.DataFrame | None, cell: Row) -> list[str]:
    """What the prompts that were answered twice say, and the judge's own errors: a line per set of prompts."""
    if transfer is None or "change" not in transfer.columns:
        return []
    sentences = []
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
        sentences.append(text)
    return sentences


def of_cell(table: pl.DataFrame, cell: Row) -> pl.DataFrame:
    near = [(pl.col(name) - cell[name]).abs() < 1e-9 for name in ("lambda", "k")]
    return table.filter(pl.col("selector") == cell["selector"], pl.col("domain") == cell["domain"], *near)


def point_of(points: pl.DataFrame | None, cell: Row) -> Row | None:
    """The operating point that a cell is; None if it is none."""
    point = None if points is None else of_cell(points, cell)
    return None if point is None or point.is_empty() else point.row(0, named=True)


def percent(rate: float | None, low: float | None = None, high: float | None = None) -> str:
    """`75.2% [71.2, 78.8]`; `–` where there is none."""
    if rate is None:
        return "–"
    shown = f"{rate * 100:.1f}%"
    return shown if low is None or high is None else f"{shown} [{low * 100:.1f}, {high * 100:.1f}]"


def rate_column(name: str) -> tuple[Cell, Cell]:
    """A column of rates with their intervals, from the columns of this name, of its `_low` and its `_high`."""
    return lambda row: percent(*rates(dict(row), name)), lambda row: row.get(name)


def rate_columns() -> dict[str, tuple[Cell, Cell]]:
    """Malign and benign refusal, before and after."""
    return {
        f"{name} {when}": rate_column(f"{state}_{kind}")
        for kind, name in (("malign", "Risk"), ("benign", "Harmless"))
        for state, when in (("unedited", "before"), ("edited", "after"))
    }


def point_table(points: pl.DataFrame, specificity: pl.DataFrame | None = None) -> Sortable:
    """Operating points for people: one row per selector and domain, rates with their intervals, controls, rescue."""
    drawn = {} if specificity is None else {cell_id(row): row for row in specificity.iter_rows(named=True)}
    rows = []
    for row in points.iter_rows(named=True):
        line = drawn.get(cell_id(row)) if row["k"] is not None else None
        lam = None if row["k"] is None or row["selector"] == "random" else row["lambda"]
        rows.append(row | {"lam": lam, "draws": line, "edge": row.get("edge") or "none"})

    def of_draws(name: str, text: Callable[[Row], str]) -> tuple[Cell, Cell]:
        return (
            lambda row: text(row["draws"]) if row["draws"] else "–",
            lambda row: row["draws"][name] if row["draws"] else None,
        )

    def nlls(row: Mapping[str, Any]) -> str:
        before, after = row.get("unedited_nll"), formats.perplexity(row.get("edited_nll"))
        return after if before is None else f"{formats.perplexity(before)} → {after}"

    columns: dict[str, Cell | tuple[Cell, Cell]] = {
        "Selector": lambda row: palette.title(row["selector"]), "Domain": itemgetter("domain"),
        "λ": (lambda row: "–" if row["lam"] is None else f"{row['lam']:g}", itemgetter("lam")),
        "k": (lambda row: "no cell will do" if row["k"] is None else formats.rate(row["k"]), itemgetter("k")),
        "Rows": (
            lambda row: "–" if row["rows_removed"] is None else f"{row['rows_removed']:,}", itemgetter("rows_removed")
        ),
        **rate_columns(),
        "Perplexity": (nlls, lambda row: perplexity(row.get("edited_nll"))), "Optimism": rate_column("optimism"),
        "Random masks, mean": rate_column("control_malign"), "Gain over mean": rate_column("gain"),
        "Rank among draws": of_draws("rank", lambda line: f"{line['rank']} of {line['draws'] + 1}"),
        "p by Holm": of_draws("p_holm", lambda line: f"{line['p_holm']:.3f}"),
        "Rescue": lambda row: "rescue" if row["rescue"] else "",
    }  # fmt: skip
    if any(row["edge"] != "none" for row in rows):
        columns[EDGE] = lambda row: row["edge"].replace("none", "")
    return of_rows(rows, columns)
