"""The example that Live edit opens with: asked for as the page itself would, once per server, a copy per session."""

from __future__ import annotations

from typing import Any

import pytest
from app_pages import replies, run_page

from dashboard.chat import live, opening, shipped_effects, stamps, tries
from dashboard.chat.edits import Edit
from dashboard.chat.live import Outcome


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch) -> opening._Opening:
    mine = opening._Opening()
    monkeypatch.setattr(opening, "_OPENING", mine)
    return mine


def written() -> tries.Try:
    asked = opening.request()
    assert asked is not None
    outcomes = {side: Outcome(side, f"{side} said", 3, True, 0.1, side == "after", "", 1.5) for side in live.SIDES}
    return tries.Try(asked, {side: one.text for side, one in outcomes.items()}, outcomes, ended=True)


def captions(app: Any) -> str:
    return " ".join(caption.value for caption in app.caption)


def test_the_page_opens_with_it_and_asks_for_just_that(own: opening._Opening) -> None:
    own.now = written()
    app = run_page("live")
    assert not app.exception
    assert replies(app) == ["before said", "after said", "control said"]
    assert app.session_state["live-request"].core == own.now.request.core
    assert app.session_state["live-shown"].about(app.session_state["live-request"])
    assert "live-tries" not in app.session_state or not app.session_state["live-tries"]  # nobody here asked for it
    assert app.session_state["live-shown"] is not own.now
    app.session_state["live-shown"].outcomes.clear()
    assert set(own.now.outcomes) == set(live.SIDES)


@pytest.mark.long
def test_a_link_to_something_else_does_not_show_it(own: opening._Opening) -> None:
    own.now = written()
    assert replies(run_page("live", domain="Crime")) == ["", "", ""]


def test_until_it_is_there_the_page_is_there_and_says_so(own: opening._Opening) -> None:
    opening.expect()
    app = run_page("live")
    assert not app.exception
    assert replies(app) == ["", "", ""]
    assert "An example is being run" in captions(app)
    own.now, own.expected = written(), False
    app.run()
    assert replies(app)[0] == "before said"


@pytest.mark.long
def test_what_goes_wrong_leaves_the_page_as_it_was(own: opening._Opening, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.records.errors import InputError

    def broken(_: Any) -> None:
        raise InputError("the weights are of another model")

    monkeypatch.setattr(opening, "_write", broken)
    opening.expect()
    opening.prepare()
    assert not opening.expected()
    assert opening.shown() is None
    assert "Press an example" in captions(run_page("live"))


@pytest.mark.long
def test_it_is_written_by_the_shipped_model() -> None:
    opening.expect()
    opening.prepare()
    one = opening.shown()
    assert one is not None
    assert one.complete
    assert set(one.outcomes) == set(live.SIDES)
    assert one.effect.startswith("With this edit the model refuses ")
    assert one.reference is not None
    words = {side: stamps.stamp(out, one.why_broken(out)) for side, out in one.outcomes.items()}
    assert words["after"] == "REFUSES"  # what an edit that installs refusal is to show first
    assert stamps.BROKEN not in words.values()


def test_a_shipped_model_opens_on_the_most_that_it_is_recorded_to_go_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def one(after: float, why: str = "") -> dict[str, Any]:
        return {"nats": [3.0, after], "why": why}

    effects = {
        "fisher lerf 0.01": one(3.1), "lrp lerf 0.01": one(3.2), "ig lerf 0.02": one(3.1, "it lowers refusal"),
        "ig lerf 0.1": one(9.0), "fisher morf 0.05": one(3.1), "random lerf 0.05": one(3.1),
    }  # fmt: skip
    monkeypatch.setattr(shipped_effects, "_kept", lambda _: {"effects": effects})
    assert opening.request("smollm2").edit == Edit("language model", "fisher", order="lerf", rate=0.01)
    effects["lrp lerf 0.02"] = one(3.3)
    assert opening.request("smollm2").edit.selector == "lrp"
    assert shipped_effects.spared("another") is None
