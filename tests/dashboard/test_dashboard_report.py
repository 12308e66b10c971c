"""The report: one file, no request, everything from files as text, damaged runs named."""

import json
import math
import re
import statistics

import polars as pl
import pytest
import scipy.stats
from synthetic import add_table, write_run

from dashboard.report.html_report import build
from engine.cli import main
from engine.records.errors import InputError
from engine.records.files import write_parquet
from engine.records.manifest import add_to_manifest, read_manifest
from engine.results.tables import frame
from engine.stats.uncertainty import COLUMNS
from precomputed import demo_dir

SHIPPED = demo_dir() / "results"


def body(page: str) -> str:
    """The page without the copy of plotly."""
    return re.sub(r"<script>/\*\*.*?</script>", "", page, count=1, flags=re.S)


def test_the_shipped_run_has_protocol_numbers_and_provenance():
    page = body(build([SHIPPED]))
    assert page.startswith("<!doctype html>")
    assert "128 windows of 128 tokens of demo" in page
    manifest = read_manifest(SHIPPED)
    assert manifest["model"]["weights_hash"] in page
    assert manifest["files"]["sweep.parquet"]["sha256"][:16] in page
    assert page.count("Plotly.newPlot") == 2  # LeRF and MoRF


def test_nothing_is_fetched():
    page = build([SHIPPED])
    assert not re.search(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=", page)
    assert "@import" not in body(page)
    addresses = re.findall(r"url\(([^)]{0,30})", page.partition("<script")[0] + body(page))
    assert all(one.startswith("data:font/woff2;base64,") for one in addresses), addresses


def test_a_table_that_is_not_what_its_manifest_says_is_one_line(tmp_path):
    folder = write_run(tmp_path / "run")
    write_parquet(folder / "gap.parquet", pl.DataFrame({"selector": ["lrp"]}))
    add_to_manifest(folder, read_manifest(folder)["model"], "gap.parquet", {}, 0.0)
    (folder / "gap.parquet").write_bytes(b"other bytes")
    with pytest.raises(InputError, match=r"gap\.parquet does not fit the checksum"):
        build([folder])


def test_command_writes_the_file(tmp_path, capsys):
    out = tmp_path / "audit.html"
    assert main(["report", str(SHIPPED), "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == out.stat().st_size
    assert main(["report", str(SHIPPED), "--out", str(tmp_path / "audit.txt")]) == 2
    assert ".html" in capsys.readouterr().err
    assert main(["report", "no/such-model", "--store", str(tmp_path / "store"), "--out", str(out)]) == 2
    assert "manifest.json" in capsys.readouterr().err


def test_the_error_of_randoms_gap_holds_the_draw_of_its_seed(tmp_path):
    """Three seeds at -0.2, 0 and 0.2, each known to 0.03: sqrt(0.03^2 + 0.2^2 / 3), not 0.03."""
    folder = write_run(tmp_path / "run")
    gaps = [("random", seed, value, 0.03) for seed, value in ((42, -0.2), (43, 0.0), (44, 0.2))]
    lines = [
        ("made-up-1B", selector, seed, 0.3, 3.0, 3.0 + gap, 20.0, 20.0, 0.0, gap, error)
        for selector, seed, gap, error in [*gaps, ("lrp", None, 5.7, 0.04)]
    ]
    add_table(folder, "gap", frame("gap", lines))
    page = body(build([folder]))
    assert "Errors take evaluation windows as independent (an earlier version measured them)" in page
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", page.split("Log gap (nats)")[1].split("</table>")[0])
    # two degrees of freedom of the seeds, few more by the windows'; +-1.96 errors where these are all there is
    assert cells == [
        "Random", "30%", "+0.000", "0.119", "-0.458 to 0.458", "LRP", "30%", "+5.700", "0.040", "5.622 to 5.778",
    ]  # fmt: skip


def test_a_text_that_was_too_short_is_told(tmp_path):
    folder = write_run(tmp_path / "run")
    text = {"corpus": "small.txt", "role": "evaluation", "samples": 3, "samples_requested": 64, "length": 16}
    model = read_manifest(folder)["model"]
    add_to_manifest(folder, model, "sweep.parquet", {"evaluation": {**text, "samples": 64}}, 1.0)
    assert "too short" not in body(build([folder]))
    add_to_manifest(folder, model, "sweep.parquet", {"evaluation": text}, 1.0)
    assert "the evaluation text small.txt is too short: 3 of the 64 windows" in body(build([folder]))


def test_errors_hold_blocks_seeds_and_the_calibration_draw(tmp_path):
    """Blocks .03 with 5 degrees, draws 5.6 to 5.8 of lrp's gap: what is asked of the one function for errors."""
    folder = write_run(tmp_path / "run")
    line = ("made-up-1B", "lrp", None, 0.3, 3.0, 8.7, 20.0, 6000.0, 5980.0, 5.7, 0.01, 0.03, 6)
    add_table(folder, "gap", frame("gap", [line], optional=COLUMNS))
    draws = [5.6, 5.65, 5.7, 5.75, 5.8]
    sweep_lines = [
        ("made-up-1B", "lrp", None, order, 0.3, draw, 16, 16 * draw, 3.0 + (gap if order == "morf" else 0.0))
        for draw, gap in enumerate(draws)
        for order in ("lerf", "morf")
    ]
    add_table(folder, "draw_sweep", frame("draw_sweep", sweep_lines))
    page = body(build([folder]))
    assert "over 6 blocks of neighbouring evaluation windows and over seeds, and between disjoint draws" in page
    parts = (0.03**2, statistics.variance(draws))
    error = math.sqrt(sum(parts))
    degrees = sum(parts) ** 2 / (parts[0] ** 2 / 5 + parts[1] ** 2 / 4)
    half = scipy.stats.t.ppf(0.975, degrees) * error
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", page.split("Log gap (nats)")[1].split("</table>")[0])
    assert cells == ["LRP", "30%", "+5.700", f"{error:.3f}", f"{5.7 - half:.3f} to {5.7 + half:.3f}"]
