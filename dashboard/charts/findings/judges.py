"""Findings of judges: who is nearest to people, who calls most replies refusals, and whose replies."""

from __future__ import annotations

from typing import Any

import polars as pl

from dashboard.charts.judges import ALL, F1, REFUSED

Row = dict[str, Any]


def rates(frame: pl.DataFrame) -> str:
    """What `dashboard.charts.judges.rates` draws, in one sentence; "" where it draws nothing.

    frame: columns source, judge, measure, value, low, high. Where replies have human labels: whose F1 over all of them
    is highest. Else, of several judges: who calls most replies refusals; of one: of which source. Where the intervals
    of the highest and the lowest overlap, the sentence says that instead."""
    frame = frame.drop_nulls("value")
    labelled = frame.filter(pl.col("measure") == F1, pl.col("source") == ALL)
    refused = frame.filter(pl.col("measure") == REFUSED)
    together, apart = refused.filter(pl.col("source") == ALL), refused.filter(pl.col("source") != ALL)
    if labelled.height:
        least, most = _ends(labelled)
        if labelled.height > 1 and _overlap(least, most):
            return f"{labelled.height} judges are about as near to people: F1 {_span(least, most, '.2f')}"
        first = f"The judge {most['judge']} is nearest to people, F1 {most['value']:.2f}"
        return first if labelled.height == 1 else f"{first}; {_said(least, '.2f')}, furthest"
    if together.height > 1:
        least, most = _ends(together)
        if _overlap(least, most):
            return f"{together.height} judges call about as many replies refusals: {_span(least, most, '.1%')}"
        return f"Most replies are refusals to {_said(most, '.1%')}; fewest to {_said(least, '.1%')}"
    if apart.is_empty():
        said = together.select("judge", "value").iter_rows()
        return "".join(f"The judge {judge} calls {value:.1%} of the replies refusals" for judge, value in said)
    least, most = _ends(apart)
    if apart.height > 1 and _overlap(least, most):
        return f"The judge {most['judge']} calls about as much of every source refusals: {_span(least, most, '.1%')}"
    first = f"The judge {most['judge']} calls {most['value']:.1%} of “{most['source']}” refusals"
    fewest = f"the most of all sources, and {least['value']:.1%} of “{least['source']}”, the fewest"
    return first if apart.height == 1 else f"{first}, {fewest}"


def _ends(rows: pl.DataFrame) -> tuple[Row, Row]:
    ordered = rows.sort("value", maintain_order=True)
    return ordered.row(0, named=True), ordered.row(-1, named=True)


def _overlap(least: Row, most: Row) -> bool:
    return bool(least["high"] >= most["low"])


def _span(least: Row, most: Row, form: str) -> str:
    return f"{least['value']:{form}} to {most['value']:{form}}, and their intervals overlap"


def _said(row: Row, form: str) -> str:
    return f"{row['judge']}, {row['value']:{form}}"
