"""Curves and live edit in a real Chromium: selection and URL, stopping, two sessions, no foreign request."""

import re
import urllib.request

import pytest
from browser_pages import (
    MODEL_TIMEOUT_MS,
    button,
    chart,
    has_count,
    live_page,
    more_settings,
    press,
    reply,
    run,
    settled,
)
from served import MARKDOWN_PROMPT, MARKDOWN_REPLY, MET, SLOW_PROMPT

from dashboard.show import layout

pytestmark = pytest.mark.browser
ROUNDS = 15  # of two sessions that ask at once


@pytest.mark.long
def test_curves_open_change_and_come_back_from_their_url(new_page, server):
    page = new_page("/curves")
    label = chart(page, says="LeRF: lowest scores").get_attribute("aria-label")
    assert "LRP; IG; Wanda; Random" in label
    assert page.title() == "Curves · Selector Audit"

    more_settings(page)
    press(page, button(page, "Wanda"))
    chart(page, says="LRP; IG; Random")
    press(page, page.get_by_role("radio", name="MoRF", exact=True))
    chart(page, says="MoRF: highest scores")
    has_count(page.locator("[data-testid=stPlotlyChart]"), 1)
    shared = page.url
    assert "selectors=LRP" in shared
    assert "order=MoRF" in shared

    copy = new_page(address=shared)
    chart(copy, says="good selector shoots up. LRP; IG; Random")
    has_count(copy.locator("[data-testid=stPlotlyChart]"), 1)


def test_pages_forbid_foreign_addresses(server):
    with urllib.request.urlopen(server, timeout=30) as answer:
        policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "modulepreload" in answer.headers["Link"]


@pytest.mark.long
def test_a_live_edit_writes_two_replies_as_plain_text(new_page, tiny_folder):
    page = live_page(new_page, tiny_folder, "The cat sat.")
    before, after = run(page)
    assert before.strip()
    assert before != after
    assert page.locator(".st-key-reply-before").get_by_text(re.compile("ANSWERS|REFUSES|BROKEN")).is_visible()
    assert "prompt=The" in page.url

    page = live_page(new_page, tiny_folder, MARKDOWN_PROMPT)
    assert run(page) == (MARKDOWN_REPLY, MARKDOWN_REPLY)
    assert page.locator("[class*=st-key-reply] img, [class*=st-key-reply] .sa-reply strong").count() == 0


@pytest.mark.long
def test_a_stopped_edit_ends_at_once_and_leaves_the_model_as_it_was(new_page, tiny_folder):
    undisturbed = run(live_page(new_page, tiny_folder, "The cat sat."))
    page = live_page(new_page, tiny_folder, SLOW_PROMPT, length="160")
    press(page, button(page, "Run"))
    for side in ("before", "after"):
        reply(page, side).get_by_text(re.compile(r"\S")).wait_for()
    press(page, button(page, "Stop"))
    page.get_by_text("— stopped").wait_for()
    settled(page)
    assert page.locator(".st-key-reply-after").get_by_text("Stopped.").is_visible()
    assert reply(page, "before").inner_text().strip()
    assert button(page, "Stop").count() == 0
    assert run(live_page(new_page, tiny_folder, "The cat sat.")) == undisturbed


@pytest.mark.long
def test_two_sessions_never_see_each_others_mask(new_page, tiny_folder, store):
    pages = [live_page(new_page, tiny_folder, "The cat sat.", rank_order=order) for order in ("LeRF", "MoRF")]
    alone = [run(page) for page in pages]
    assert alone[0][0] == alone[1][0]
    assert len({alone[0][0], alone[0][1], alone[1][1]}) == 3  # each mask has its own reply
    meetings = store.with_name(f"{store.name}.log").read_text().count(MET)
    for round_ in range(ROUNDS):
        for page in pages:  # both are under way before either is waited for
            press(page, button(page, "Run"))
        for page, expected in zip(pages, alone, strict=True):
            page.get_by_text(f"{round_ + 2} tries so far").wait_for(timeout=MODEL_TIMEOUT_MS)
            assert tuple(reply(page, side).inner_text() for side in ("before", "after")) == expected
    # They did meet: both wrote at once.
    assert store.with_name(f"{store.name}.log").read_text().count(MET) > meetings


@pytest.mark.long
def test_escaped_text_is_what_people_read(new_page):
    """`layout.plain` is undone by the browser: names show as they are."""
    name = "a_b*c[d](e)#1.2-x~y$z$:smile: <b>"
    page = new_page("/curves", source="My results", folder=f"/{name}")
    page.get_by_text("there is no folder").wait_for()
    shown = page.locator("[data-testid=stAlert]").inner_text()
    assert f"/{name};" in shown
    assert layout.plain(name) != name
