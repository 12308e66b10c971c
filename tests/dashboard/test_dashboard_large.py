"""Every page on a result of 48 blocks and 2.2 million rows: what a change costs in work and in bytes, never in time."""

import numpy as np
import polars as pl
import pytest
from app_pages import run_page
from large_audit import BLOCKS, LAYERS, SELECTORS, write_large_audit
from page_changes import PAGES, box, slider, switch, typed, walk

from dashboard.state import results
from engine.stats import removal_order as removal

pytestmark = pytest.mark.long
ROWS = BLOCKS * sum(rows for *_, rows in LAYERS)
MEGABYTES = {"overview": 13.0}  # two bytes for every row and side, in base64; a picture that needs no more later
AT_MOST_MB = 0.6


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_large_audit(tmp_path_factory.mktemp("large") / "run")


@pytest.fixture(autouse=True)
def started_on(folder, monkeypatch):
    monkeypatch.setenv(results.STORE_VARIABLE, str(folder))


@pytest.fixture
def work(monkeypatch):
    """What was done to as many values as there are rows: whole sorts, and groups by names."""
    done = []
    sort, group, order = np.argsort, pl.DataFrame.group_by, removal._sorted_float32

    def sorted_(values, *args, **more):
        done.extend(["sort"] * (np.size(values) >= ROWS))
        return sort(values, *args, **more)

    def grouped(frame, *args, **more):
        done.extend(["group"] * (frame.height >= ROWS))
        return group(frame, *args, **more)

    def ordered(scores, *args):
        done.extend(["sort"] * (np.size(scores) >= ROWS))
        return order(scores, *args)

    monkeypatch.setattr(np, "argsort", sorted_)
    monkeypatch.setattr(removal, "_sorted_float32", ordered)
    monkeypatch.setattr(pl.DataFrame, "group_by", grouped)
    return done


@pytest.mark.parametrize("page", PAGES)
def test_what_is_sent_does_not_grow_with_the_rows(folder, page):
    sent = {(one.page, one.change): one.sent_bytes / 1e6 for one in walk(folder, [page])}
    assert sent
    assert max(sent.values()) <= MEGABYTES.get(page, AT_MOST_MB), sent


def test_another_rate_sorts_nothing_and_groups_no_names(folder, work):
    app = run_page("where", source="My results", folder=folder)
    work.clear()
    for change in (slider("rate", 0.5), slider("rate", 0.1), switch("value", "Spearman")):
        change(app)
        app.run()
        assert not app.exception
    assert work == []


def test_a_mask_by_hand_and_another_cell_sort_nothing_and_group_no_names(folder, work):
    app = run_page("rows", source="My results", folder=folder)
    assert work.count("sort") <= len(SELECTORS)  # the places of the selectors' rows, once each
    assert "group" not in work
    work.clear()
    for change in (
        switch("measure", "Removed rows"), slider("row_rate", 0.5), box("block", 30),
        box("projection", "gate_proj"), box("row_selector", "wanda"), typed("rows", "100-120, 2000000"),
        typed("rows", "7"),
    ):  # fmt: skip
        change(app)
        app.run()
        assert not app.exception
    assert work == []
