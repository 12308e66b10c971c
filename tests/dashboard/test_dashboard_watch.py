"""Watch it break: what the browser is given. (What it makes of it: test_dashboard_watch_browser.py.)"""

import base64
import json
import math

import numpy as np
import polars as pl
import pytest
from app_pages import run_page
from large_run import ASKED, replies, write_large

from dashboard.charts import row_picture, watch
from dashboard.pages.overview import watch_it
from dashboard.state import results
from engine.edits.masks import removed_rows

SMALL = (2, {"q_proj": 2, "k_proj": 3, "o_proj": 1})
ROWS = pl.DataFrame(
    {
        "row_id": range(12), "block": [0] * 6 + [1] * 6, "sublayer": ["attention"] * 12,
        "projection": ["q_proj", "q_proj", "k_proj", "k_proj", "k_proj", "o_proj"] * 2, "row": [0, 1, 0, 1, 2, 0] * 2,
    }
)  # fmt: skip
SWEEP = pl.DataFrame(
    {
        "selector": ["random"] * 4 + ["lrp"] * 2, "seed": [42, 42, 43, 43, None, None], "order": ["lerf"] * 6,
        "rate": [0.0, 0.3, 0.0, 0.3, 0.0, 0.3], "nll": [2.0, 4.0, 2.0, 5.0, 2.0, 2.5],
    }
)  # fmt: skip


def lane(name="lrp", said=None, sweep=SWEEP, **more):
    places = watch.encoded(np.arange(12), "lerf", watch.FINE)
    return watch.Lane(name, "lerf", places, watch.curve(sweep, name, "lerf"), said or {}, **more)


@pytest.mark.parametrize("order", ["lerf", "morf"])
@pytest.mark.parametrize("steps", [watch.FINE, watch.COARSE])
def test_rows_go_when_the_mask_of_that_rate_takes_them(order, steps):
    scores = np.random.default_rng(0).normal(size=7919).astype(np.float32)
    scores[::7] = 0.5  # ties
    places = watch.places(scores, order, steps)
    assert places.max() < steps
    for percent in range(0, 201, 3):  # multiples of half a percent
        rate = percent / 200
        gone = np.flatnonzero(places < round(rate * steps))
        assert gone.tolist() == removed_rows(scores, order, rate).tolist()
    assert watch.places([2.0], order, steps).tolist() == [steps // 2]


def test_the_payload_holds_the_curve_the_replies_and_every_row():
    table = pl.DataFrame(
        {
            "selector": ["lrp"] * 3, "order": ["lerf"] * 3, "rate": [0.3, 0.0, 0.0],
            "prompt": ["Why?", "Why?", "Where?"], "reply": ["So.", "<think>Hm</think>\n\nBecause.", "<think>Here"],
            "finished": [True, True, False],
        }
    )  # fmt: skip
    picture = row_picture.picture(ROWS)
    lanes = [lane("random"), lane("lrp", watch.said(table, "lrp", "lerf"))]
    made = watch.payload(picture, lanes)
    assert [part[:4] for part in made["picture"]["parts"]] == [
        [0, "q_proj", 0, 2], [0, "k_proj", 2, 3], [0, "o_proj", 5, 1],
        [1, "q_proj", 6, 2], [1, "k_proj", 8, 3], [1, "o_proj", 11, 1],
    ]  # fmt: skip
    random, lrp = made["lanes"]
    assert random["curve"] == [[0.0, 2.0], [0.3, 4.5]]
    assert random["said"] == {}
    assert lrp["said"]["Why?"] == [[0.0, "Because.", True], [0.3, "So.", True]]
    assert lrp["said"]["Where?"] == [[0.0, watch.STILL_THINKING, False]]
    assert set(made["prompts"]) == {"Why?", "Where?"}
    assert made["last"] == 0.3
    sent = np.frombuffer(base64.b64decode(lrp["places"]), dtype="<u2")
    assert sent.tolist() == [(2 * row + 1) * watch.FINE // 24 for row in range(12)]
    assert watch.payload(picture, lanes)["id"] == made["id"] != watch.payload(picture, lanes[:1])["id"]
    assert watch.said(None, "lrp", "lerf") == {}


@pytest.mark.parametrize("steps", [watch.FINE, watch.COARSE])
def test_the_same_ranking_from_its_other_end_is_sent_once(steps):
    scores = np.random.default_rng(0).permutation(64)
    up, down = (watch.Lane("lrp", order, watch.encoded(scores, order, steps), [], {}) for order in ("lerf", "morf"))
    assert [watch._turned(lanes, steps) for lanes in ([up, down], [up, up], [up, down, up])] == [True, False, False]
    sent = watch.payload(row_picture.picture(ROWS), [up, down])["lanes"]
    assert (steps != watch.FINE) or [len(one["places"]) for one in sent] == [4 * math.ceil(128 / 3), 0]


def test_a_model_that_overflowed_is_sent_as_valid_json():
    sweep = SWEEP.with_columns(nll=pl.Series([2.0, math.inf, 2.0, 5.0, 2.0, math.nan]))
    made = watch.payload(row_picture.picture(ROWS), [lane("random", sweep=sweep), lane("lrp", sweep=sweep)])
    read = json.loads(json.dumps(made, allow_nan=False))
    assert [one["curve"] for one in read["lanes"]] == [[[0.0, 2.0], [0.3, "Infinity"]], [[0.0, 2.0], [0.3, None]]]


def test_a_large_model_costs_one_byte_a_row():
    rows = 376_832
    sent = watch.encoded(np.random.default_rng(0).random(rows, dtype=np.float32), "lerf", watch.steps(6))
    assert len(sent) == 4 * math.ceil(rows / 3)
    assert np.bincount(np.frombuffer(base64.b64decode(sent), dtype=np.uint8)).max() <= rows // watch.COARSE + 1


def test_the_legend_says_what_a_pixel_is_and_where_the_numbers_come_from(monkeypatch):
    lanes = [lane("random", draws=2), lane("lrp", {"Why?": [(0.0, "So.", True)]})]
    words = watch.legend(row_picture.picture(ROWS), lanes)
    assert "Every pixel is a row of the model" in words
    assert "from top to bottom q_proj, k_proj, o_proj." in words
    assert "measured at 2 rates from 0% to 30%" in words
    assert "Of Random the picture is that of the first of 2 draws" in words
    assert "A reply is the model's" in words
    alone = watch.legend(row_picture.picture(ROWS), [lane()])
    for absent in ("Both sides", "draws", "reply"):
        assert absent in words
        assert absent not in alone
    monkeypatch.setattr(row_picture.rows_per_pixel, "__defaults__", (8,))
    assert "a group of up to 2 neighbouring rows of one projection" in watch.legend(row_picture.picture(ROWS), lanes)


def test_draws_are_the_seeds_of_a_selector():
    assert [watch.draws(SWEEP, name) for name in ("random", "lrp", "none")] == [2, 1, 1]


def sent(app):
    (component,) = app.get("bidi_component")
    return json.loads(component.proto.json)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(results.STORE_VARIABLE, str(tmp_path))
    return write_large(tmp_path / "small", SMALL, with_replies=True)


def test_the_overview_sends_the_replies_of_a_source_that_has_them(folder):
    app = run_page(
        "overview", source="My results", watch_a="LRP, least relevant first", watch_b="Random, least relevant first"
    )
    assert not app.exception
    made = sent(app)
    assert made["prompts"] == list(ASKED)
    lrp, random = made["lanes"]
    kept = replies().filter(pl.col("selector") == "lrp", pl.col("order") == "lerf", pl.col("prompt") == ASKED[0])
    assert lrp["said"][ASKED[0]] == [list(one) for one in kept.select("rate", "reply", "finished").rows()]
    assert random["said"] == {}
    (words,) = [one.value for one in app.caption if one.value.startswith("**Watch it break.**")]
    assert "A reply is the model" in words


def test_damaged_replies_are_told_and_the_picture_is_there(folder):
    path = folder / "sweep_replies.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    app = run_page("overview", source="My results")
    assert sent(app)["prompts"] == []
    assert any("sweep" in one.value and "replies" in one.value for one in app.warning)


def test_scores_of_another_row_index_are_told(folder):
    from large_run import row_index
    from synthetic import add_table

    add_table(folder, "rows", row_index((2, {"q_proj": 5})))
    app = run_page("overview", source="My results")
    assert not app.get("bidi_component")
    assert any("has scores of 12 rows" in one.value.replace("\\", "") for one in app.warning)


def test_the_second_lesson_shows_rows_drawn_by_lot_once_one_has_guessed():
    lesson = {"step": "2. Zero some and watch"}
    assert not run_page("learn", **lesson).get("bidi_component")
    app = run_page("learn", **lesson, answers="2a")
    assert not app.exception
    assert [one["title"] for one in sent(app)["lanes"]] == ["Rows drawn by lot"]
    assert any("Of Random the picture is that of the first of" in one.value for one in app.caption)


def test_own_scores_race_first_then_the_selector_that_does_least_harm_and_no_ranking_races_itself():
    nll = {"lrp": 3.0, "wanda": 2.5, "fisher": 2.0, "random": 1.0, "mine": 9.0}
    line = [(name, order, 0.1, value) for name, value in nll.items() for order in ("lerf", "morf")]
    sweep = pl.DataFrame(line, schema=["selector", "order", "rate", "nll"], orient="row")
    every = [f"{name} {order}" for name in nll for order in ("lerf", "morf")]
    for racers, wanted in (
        (every, ("mine lerf", "mine morf")),
        (every[:8], ("fisher lerf", "fisher morf")),
        (every[6:8], ("random lerf", "random morf")),
        (["lrp lerf", "wanda lerf", "random lerf"], ("wanda lerf", "lrp lerf")),
        (["lrp lerf"], ("lrp lerf", "lrp lerf")),  # one ranking runs alone
    ):
        assert watch_it.defaults(racers, sweep) == wanted
