"""Watch it break: what the browser is given, and that it plays without asking for more."""

from __future__ import annotations

import base64
import re

import numpy as np
import polars as pl
import pytest
from browser_pages import settled

from dashboard.charts import watch
from dashboard.charts.formats import perplexity
from engine.edits.masks import removed_rows

STAGE = (  # the component lives in a shadow root
    "(() => { const find = (root) => { for (const one of root.querySelectorAll('*')) { if (one.stage) return one.stage;"
    " if (one.shadowRoot) { const found = find(one.shadowRoot); if (found) return found } } };"
    " return find(document) })()"
)

COUNT_RUNS = (  # the app says of itself whether its script runs
    "window.scriptRuns = 0; const app = document.querySelector('[data-testid=stApp]');"
    "new MutationObserver(() => { window.scriptRuns += app.dataset.testScriptState !== 'notRunning' })"
    ".observe(app, { attributes: true, attributeFilter: ['data-test-script-state'] })"
)


@pytest.mark.parametrize("order", ["lerf", "morf"])
def test_rows_go_when_the_mask_of_that_rate_takes_them(order):
    scores = np.random.default_rng(0).normal(size=9000).astype(np.float32)
    places = watch.places(scores, order)
    for rate in (0.0, 0.1, 0.37, 0.9, 1.0):
        gone = set(np.flatnonzero(places < rate * watch.STEPS).tolist())
        mask = set(removed_rows(scores, order, rate).tolist())
        assert len(gone ^ mask) <= 1  # a place is one of 65,535
    assert watch.places([2.0], order).tolist() == [0]


def test_the_payload_holds_the_curve_the_replies_and_every_row():
    rows = pl.DataFrame(
        {
            "row_id": range(12),
            "block": [0] * 6 + [1] * 6,
            "sublayer": ["attention"] * 12,
            "projection": ["q_proj", "q_proj", "k_proj", "k_proj", "k_proj", "o_proj"] * 2,
            "row": range(12),
        }
    )
    sweep = pl.DataFrame(
        {
            "selector": ["random"] * 4 + ["lrp"] * 2,
            "order": ["lerf"] * 6,
            "rate": [0.0, 0.3, 0.0, 0.3, 0.0, 0.3],
            "nll": [2.0, 4.0, 2.0, 5.0, 2.0, 2.5],
        }
    )
    replies = pl.DataFrame(
        {
            "selector": ["lrp"] * 3,
            "order": ["lerf"] * 3,
            "rate": [0.3, 0.0, 0.0],
            "prompt": ["Why?", "Why?", "Where?"],
            "reply": ["So.", "Because.", "Here."],
        }
    )
    places = watch.encoded(np.arange(12), "lerf")
    lanes = [
        watch.Lane(name, "lerf", places, watch.curve(sweep, name, "lerf"), watch.said(replies, name, "lerf"))
        for name in ("random", "lrp")
    ]
    made = watch.payload(rows, lanes)
    assert [(one["block"], one["projection"], one["start"], one["count"]) for one in made["parts"]] == [
        (0, "q_proj", 0, 2), (0, "k_proj", 2, 3), (0, "o_proj", 5, 1),
        (1, "q_proj", 6, 2), (1, "k_proj", 8, 3), (1, "o_proj", 11, 1),
    ]  # fmt: skip
    random, lrp = made["lanes"]
    assert random["curve"] == [[0.0, 2.0], [0.3, 4.5]]
    assert random["said"] == {}
    assert lrp["said"]["Why?"] == [[0.0, "Because."], [0.3, "So."]]
    assert set(made["prompts"]) == {"Why?", "Where?"}
    assert made["last"] == 0.3
    sent = np.frombuffer(base64.b64decode(lrp["places"]), dtype="<u2")
    assert sent.tolist() == [row * 65535 // 12 for row in range(12)]
    assert watch.payload(rows, lanes)["id"] == made["id"] != watch.payload(rows, lanes[:1])["id"]
    assert watch.said(None, "lrp", "lerf") == {}


@pytest.mark.browser
def test_it_plays_in_the_browser_without_a_request_or_a_rerun(new_page):
    page = new_page("/", source="Shipped model")
    page.locator(".watch canvas").first.wait_for()
    settled(page)
    page.wait_for_load_state("networkidle")  # the other figures of the page are there
    asked = []  # but for the page's own downloads, after which the browser looks in its own time
    page.on("request", lambda request: asked.append(request.url) if "/media/" not in request.url else None)
    page.evaluate(COUNT_RUNS)
    page.on("websocket", lambda socket: asked.append(socket.url))
    numbers = page.locator(".watch .perplexity b")
    dense = numbers.all_inner_texts()
    assert dense[0] == dense[1]
    page.locator(".watch .play").click()
    while page.evaluate(f"{STAGE}.rate") < 0.05:  # the policy of the pages forbids to wait inside of them
        page.wait_for_timeout(100)
    frames, rate = page.evaluate(f"[{STAGE}.frames, {STAGE}.rate]")
    assert frames / (rate / 0.9 * 14) > 5  # frames a second; measured: 58 on two busy cores
    page.locator(".watch .play").click()
    assert page.evaluate(f"{STAGE}.playing") is False
    least, most = (float(re.sub("[^0-9.].*", "", text.replace(",", ""))) for text in numbers.all_inner_texts())
    assert most > least
    assert asked == []
    assert page.evaluate("window.scriptRuns") == 0
    label = page.locator(".watch canvas").first.get_attribute("aria-label")
    assert re.search(r"perplexity [\d.,]+ with \d+% of the rows removed", label)
    page.locator(".watch .rate").focus()
    before = page.evaluate(f"{STAGE}.rate")
    page.keyboard.press("ArrowRight")
    assert page.evaluate(f"{STAGE}.rate") == pytest.approx(before + 0.001, abs=6e-4)
    page.keyboard.press("Home")
    assert numbers.all_inner_texts() == dense
    page.get_by_text("Presentation", exact=True).click()  # a rerun would have been seen
    settled(page)
    assert page.evaluate("window.scriptRuns") > 0


@pytest.mark.browser
def test_the_browser_writes_perplexities_as_the_pages_do(new_page):
    page = new_page("/", source="Shipped model")
    page.locator(".watch canvas").first.wait_for()
    shown = page.locator(".watch .perplexity b").first.inner_text()
    nats = page.evaluate(f"{STAGE}.lanes[0].lane.curve[0][1]")
    assert shown == perplexity(nats)
