"""Replies before and after an edit: paired by hand, filtered, marked, plain text only."""

import re
from functools import partial

import pytest
from app_pages import captions, drawn_page
from synthetic import MODEL, add_table
from synthetic_refusal import write_refusal_run

from dashboard.pages.refusal import reply_list as replies
from dashboard.pages.refusal.reply_list import DIFFER, FILTERS, UNFINISHED
from dashboard.state import results
from engine.judges.embedded import embedded_version
from engine.results.tables import frame

NOW = f"embedded {embedded_version()}"
REFUSES, ANSWERS = "Sorry, **I cannot help** with that.", "Boil the water <b>first</b>."
ODD = "![x](http://example.org/x.png) <script>alert(1)</script> I won't do that."


def line(selector, domain, kind, prompt, reply, refused, finished=True, prompts="heldout", judged_by=NOW):
    edit = (None, None) if selector == "none" else (0.5, 0.02)
    return (MODEL["id"], selector, domain, *edit, prompts, kind, prompt, reply, refused, judged_by, finished)


LINES = [
    line("none", "hate", "malign", "p0", ANSWERS, False),
    line("none", "hate", "malign", "p1", REFUSES, True),
    line("none", "hate", "benign", "p2", ANSWERS, False),
    line("none", "crime", "malign", "p0", REFUSES, True),  # the same prompt of another domain
    line("none", "none", "malign", "q0", ANSWERS, False, prompts="other"),
    line("lrp", "hate", "malign", "p0", ODD, True),
    line("lrp", "hate", "malign", "p1", REFUSES, True, finished=False),
    line("lrp", "hate", "benign", "p2", ANSWERS, True, judged_by="other 1"),  # another judge than the embedded one
    line("lrp", "hate", "malign", "q0", REFUSES, True, prompts="other"),
    line("lrp", "hate", "malign", "lost", REFUSES, True),  # no unedited reply
]


def table(lines=LINES, optional=("finished",)):
    cut = lines if "finished" in optional else [one[:-1] for one in lines]
    return frame("refusal_replies", cut, optional=optional)


def test_every_reply_meets_the_one_of_its_own_domain_and_set():
    both = replies.pairs(table(), "lrp")
    found = [(row["prompt"], row["reply_before"], row["reply_after"]) for row in both.iter_rows(named=True)]
    assert found == [("p0", ANSWERS, ODD), ("p1", REFUSES, REFUSES), ("p2", ANSWERS, ANSWERS), ("q0", ANSWERS, REFUSES)]
    assert both["judged_after"].null_count() == 4  # the table does not tell
    assert replies.pairs(table(), "ig").is_empty()


def prompts(which):
    return replies.kept(replies.pairs(table(), "lrp"), which)["prompt"].to_list()


def test_a_judge_that_could_not_judge_does_not_differ():
    row = replies.pairs(table(), "lrp").row(2, named=True)
    opinions = replies.opinions(row, "after")
    assert [one.judge for one in opinions] == ["other 1", NOW]
    assert replies.differ(opinions)
    unjudged = replies.opinions(row | {"judged_after": False}, "after")
    assert not replies.differ(unjudged)
    same = replies.opinions(row, "before")
    assert [one.judge for one in same] == [NOW]  # kept and read again by one version: one opinion


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv(results.STORE_VARIABLE, str(tmp_path))
    folder = write_refusal_run(tmp_path / "run")
    add_table(folder, "refusal_replies", table())
    return folder


page = partial(drawn_page, "refusal", section="Replies")


def bodies(app):
    return [one.proto.body for one in app.get("html") if 'class="sa-kept"' in one.proto.body]


def test_both_replies_stand_side_by_side_letter_by_letter(run):
    app = page(reply_set="heldout")
    assert "3 of 3 prompts" in captions(app)
    assert "2 turned to refusing, 0 to answering" in captions(app)
    assert len(bodies(app)) == 6
    for text in bodies(app):
        inner = text.removeprefix('<div class="sa-kept">').removesuffix("</div>")
        assert set(re.findall(r"<(/?[a-z]+)", inner)) <= {"span", "/span"}  # nothing of a reply became a tag
    shown = " ".join(bodies(app))
    assert "&lt;script&gt;" in shown
    assert not any("example.org" in block.value for block in (*app.markdown, *app.caption))
    assert [text.value for text in app.text if text.value in ("p0", "p1", "p2")] == ["p0", "p1", "p2"]


def test_the_words_that_fired_are_marked(run):
    app = page(reply_set="heldout", reply_kind="risk prompts")
    marks = [re.findall(f'<span style="{re.escape(replies.FIRED)}">([^<]*)</span>', text) for text in bodies(app)]
    assert marks == [[], ["I won&#x27;t do that."], ["**I cannot help**"], ["**I cannot help**"]]


def test_filters_and_badges_on_the_page(run):
    app = page(reply_set="heldout", reply_filter=UNFINISHED)
    assert "1 of 3 prompts" in captions(app)
    assert any("orange-badge[unfinished]" in block.value for block in app.markdown)
    app = page(reply_set="heldout", reply_filter=DIFFER)
    assert any("violet-badge[judges differ]" in block.value for block in app.markdown)
    assert "other 1" in captions(app)
    app = page(reply_set="heldout", reply_kind="risk prompts", reply_filter=DIFFER)
    assert "choose another filter" in app.info[0].value


def test_missing_replies_are_offered_as_a_run(tmp_path, monkeypatch):
    from dashboard.state import missing

    monkeypatch.setenv(results.STORE_VARIABLE, str(tmp_path))
    write_refusal_run(tmp_path / "run")
    app = page()
    assert any("refusal evaluate" in one.value for one in app.warning)
    assert missing.BUTTON in [button.label for button in app.button]


def test_the_shipped_replies_open():
    """Whatever the shipped model says: every filter is one caption and no error."""
    for which in FILTERS:
        app = page(source="Shipped model", reply_filter=which)
        assert " prompts. " in captions(app)
