"""A number has one interval, whoever shows it: verdict, ledger, report and pages."""

import numpy as np
import polars as pl
import pytest
import scipy.stats

from dashboard.charts import curves as chart
from dashboard.pages.believed import own_layers as controls
from dashboard.report import html_report as report
from engine.results.folders import read_table, table_names
from engine.stats.uncertainty import Estimate
from engine.studies.claims import ledger
from engine.studies.estimate_words import interval_words
from engine.studies.verdict.judged_selectors import judge_selectors, with_draws
from precomputed import demo_dir, smollm2_dir


@pytest.fixture(scope="module")
def tables() -> dict[str, pl.DataFrame]:
    folder = demo_dir() / "results"
    wanted = {*ledger.needed(), "differences", "gap"} & set(table_names(folder))
    return {stem: read_table(folder, stem) for stem in wanted}


def test_the_difference_from_its_own_controls(tables: dict[str, pl.DataFrame]) -> None:
    table = with_draws(tables["specific"], tables["draw_sweep"])
    dense = tables["verdicts"]["dense_nll"][0]
    given = {name: tables[name] for name in ("specific", "draw_sweep")}
    judged = judge_selectors(tables["gap"], tables["differences"], dense, **given)
    reasons = dict(judged.select("selector", "reasons").iter_rows())
    written = dict(tables["verdicts"].select("selector", "reasons").iter_rows())
    said = ledger.ledger(tables).filter(kind="specific")
    wider = 0
    for line, before in zip(table.iter_rows(named=True), tables["specific"].iter_rows(named=True), strict=True):
        drawn = tables["draw_sweep"].filter(**{name: line[name] for name in ("selector", "order", "rate")})
        by_draw = drawn.group_by("draw").agg(pl.col("nll").mean())["nll"].to_numpy()
        of_draws = by_draw.var(ddof=1) if len(by_draw) > 1 else 0.0
        assert line["stderr"] ** 2 == pytest.approx(before["stderr"] ** 2 + of_draws)
        half = scipy.stats.t.isf(0.025, line["degrees"]) * line["stderr"]
        assert (line["low"], line["high"]) == pytest.approx((line["difference"] - half, line["difference"] + half))
        wider += line["high"] - line["low"] > before["high"] - before["low"]
        words = interval_words(Estimate(*(line[name] for name in ("difference", "stderr", "degrees", "low", "high"))))
        assert words in reasons[line["selector"]]
        assert words in written[line["selector"]]
        [claim] = said.filter(selector=line["selector"], number=line["difference"])["claim"]
        value, ends = words.rstrip(")").split(" (")
        assert f"({value} nats per token, {ends}" in claim
        own = controls._depth_table(table.filter(order=line["order"]))
        assert round(line["low"], 4) in own["95% from"]
    assert wider


def test_the_report_has_these_intervals_too() -> None:
    folder = smollm2_dir() / "results"
    told = with_draws(read_table(folder, "specific"), read_table(folder, "draw_sweep"))
    text = report.build([folder])
    for line in told.iter_rows(named=True):
        assert f"{line['low']:.3f} to {line['high']:.3f}" in text, line["selector"]


def test_the_log_gap(tables: dict[str, pl.DataFrame]) -> None:
    shown = report._gaps(tables["gap"], tables["draw_sweep"])
    claims = ledger.ledger(tables).filter(kind="gap")
    told = {(row["selector"], row["case"]) for row in claims.to_dicts()}
    assert len(told) > 5
    lines = [row for row in shown.to_dicts() if (row["selector"], f"{row['rate']:.0%}") in told]
    assert len(lines) == len(told)
    for line in lines:
        page = chart.over_seeds(tables["differences"], "gap", line["rate"], tables["draw_sweep"])
        on_page = page.filter(selector_a=line["selector"]).row(0, named=True)
        ends = np.array([line["log_gap"], line["low"], line["high"]])
        assert ends == pytest.approx([on_page["difference"], on_page["low"], on_page["high"]], rel=1e-9)
        [claim] = claims.filter(selector=line["selector"])["claim"]
        assert f"({ends[0]:+.3g} ({ends[1]:+.3g} to {ends[2]:+.3g}) nats per token)" in claim
