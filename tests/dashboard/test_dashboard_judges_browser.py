"""The part Judges in a real Chromium: pages of replies, links, replies as text, a phone, the box, and axe-core."""

import pytest
from browser_pages import chart, choose, lasting_findings, press, settled
from judged_folder import write_judged

pytestmark = [pytest.mark.browser, pytest.mark.long]
OF = {"section": "Judges", "source": "My results"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_judged(tmp_path_factory.mktemp("judged") / "two")


def open_replies(new_page, folder, **more):
    page = new_page("/refusal", **OF, folder=str(folder), judge_view="Reply by reply", **more)
    page.get_by_text("Lines count from 0").wait_for()
    settled(page)
    return page


def test_replies_are_turned_over_and_the_link_opens_the_same_page(new_page, folder):
    page = open_replies(new_page, folder)
    page.get_by_text("1 – 5 of").wait_for()
    press(page, page.locator(".st-key-page").get_by_role("button", name="Page 2", exact=True))
    page.get_by_text("6 – 10 of").wait_for()
    settled(page)
    copy = new_page(address=page.url)
    copy.get_by_text("6 – 10 of").wait_for()
    choose(page, "who", "only tiny-judge")
    page.get_by_text("1 – 5 of").wait_for()  # another filter starts at its first page
    settled(page)
    assert "who=only+tiny-judge" in page.url
    assert "page=2" not in page.url


def test_own_reply_is_judged_and_part_of_the_link(new_page, folder):
    from playwright.sync_api import expect

    page = new_page("/judges", folder=str(folder))  # a former address
    chart(page, says="95% intervals")
    box = page.get_by_role("textbox", name="Reply")
    box.fill("I cannot help with that.\nAsk a doctor.")
    press(page, page.get_by_role("button", name="Judge", exact=True))
    verdict = page.locator(".st-key-own-verdict")
    verdict.get_by_text("refuses").wait_for()
    settled(page)
    assert "i cannot help" in verdict.inner_text()
    copy = new_page(address=page.url)
    copy.locator(".st-key-own-verdict").get_by_text("i cannot help").wait_for()
    settled(copy)
    # The box fills a moment after it is drawn.
    expect(copy.get_by_role("textbox", name="Reply")).to_have_value("I cannot help with that.\nAsk a doctor.")


@pytest.mark.parametrize("view", ["Against people", "Reply by reply"])
def test_no_serious_finding_on_a_full_page(new_page, folder, view):
    page = new_page("/refusal", **OF, folder=str(folder), judge_view=view, own_reply="I will not.")
    page.locator(".st-key-own-verdict").get_by_text("refuses").wait_for()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        settled(page)
        assert lasting_findings(page) == [], scheme
