"""Live edit: margins along replies, the control, running on change, the session's history and its files."""

import json

import numpy as np
import pytest
from app_pages import replies, run_live_edit
from fake_replies import replies_are

from dashboard.chat import edits, live, stamps, tries

IMAGE = "![x](http://example.invalid/pixel.png) **bold** $x$"
PROMPT = "The cat sat."


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from tiny_models import save_tiny

    return str(save_tiny("llama", tmp_path_factory.mktemp("more"), max_position_embeddings=512))


@pytest.fixture(autouse=True)
def own_pool(monkeypatch):
    """Models of one test stay out of the next."""
    monkeypatch.setattr(live, "POOL", live.ModelPool(live._load))
    monkeypatch.setattr(stamps, "reference_of", lambda *_: None)  # the model's own replies take longer than the rest


def page(folder, **parameters):
    return run_live_edit(folder, **{"prompt": PROMPT, **parameters})


def run(app):
    app.button(key="run").click().run()
    assert not app.exception
    return app


def texts(app):
    return [text.rstrip() for text in replies(app)]


def last(app):
    return app.session_state["live-shown"]


def kept(app):
    return app.session_state["live-tries"]


def test_the_control_takes_as_many_rows_of_every_layer_and_other_ones(folder):
    with live.POOL.use(folder) as entry:
        pass
    mask = edits.mask_of(entry, edits.Edit("language model", "magnitude", order="lerf", rate=0.3), lambda *_: None)
    control = edits.control_of(entry, mask, 42)
    assert not np.array_equal(control, mask)
    for layer in entry.loaded.rows.layers:
        inside = [np.sum((rows >= layer.start) & (rows < layer.start + layer.rows)) for rows in (mask, control)]
        assert inside[0] == inside[1]
    assert np.array_equal(control, edits.control_of(entry, mask, 42))
    assert not np.array_equal(control, edits.control_of(entry, mask, 43))


def test_switching_the_control_on_writes_only_the_control(folder):
    app = run(page(folder))
    first = last(app)
    before, after = first.outcomes["before"], first.outcomes["after"]
    app.toggle(key="control").set_value(True).run()
    assert last(app) is first
    assert first.outcomes["before"] is before
    assert first.outcomes["after"] is after
    assert first.complete
    control = first.outcomes["control"]
    app.segmented_control(key="control_seed").set_value(44).run()
    assert first.outcomes["control"] is not control
    assert first.control_seed == 44
    assert len(kept(app)) == 1
    app.toggle(key="control").set_value(False).run()
    assert len([text for text in texts(app) if text.strip()]) == 2


def test_margins_begin_with_the_margin_of_the_prompt_and_cover_the_reply(folder):
    app = run(page(folder))
    assert last(app).outcomes["after"].along == ()
    app.segmented_control(key="shade").set_value("Margin").run()
    assert not app.exception
    for side in ("before", "after"):
        outcome = last(app).outcomes[side]
        assert outcome.along[0][1] == pytest.approx(outcome.margin, abs=1e-4)
        assert len(outcome.along) == outcome.tokens + 1  # 20 tokens, cut by the limit, and what follows
        assert "".join(token for token, _ in outcome.along)


def test_run_on_every_change_runs_at_once_but_not_by_being_opened(folder):
    app = page(folder, at_once="true")
    assert "live-shown" not in app.session_state
    app.select_slider(key="rate").set_value(0.5).run()
    assert not app.exception
    assert last(app).request.edit.rate == 0.5
    assert last(app).complete
    first = last(app)
    app.run()  # nothing changed
    assert last(app) is first
    app.segmented_control(key="rank_order").set_value("MoRF").run()
    assert [one.request.edit.order for one in kept(app)] == ["lerf", "morf"]
    app.toggle(key="at_once").set_value(False).run()
    app.select_slider(key="rate").set_value(0.3).run()
    assert len(kept(app)) == 2


def test_an_earlier_try_opens_with_its_replies_and_settings(folder):
    app = run(page(folder, rate="10%"))
    first = texts(app)[:2]
    app.select_slider(key="rate").set_value(0.9)
    app.segmented_control(key="rank_order").set_value("MoRF").run()
    app.text_input(key="prompt").set_value("No way.")
    run(app)
    assert texts(app)[:2] != first
    table = app.dataframe[0].value
    assert list(table["Try"]) == [2, 1]
    assert list(table["Prompt"]) == ["No way.", PROMPT]
    assert all("margin" in text for text in table["After"])
    app.selectbox(key="reopen").set_value(app.selectbox(key="reopen").options[-1]).run()
    assert not app.exception
    assert texts(app)[:2] == first
    assert app.text_input(key="prompt").value == PROMPT
    assert app.select_slider(key="rate").value == 0.1
    assert app.segmented_control(key="rank_order").value == "LeRF"
    assert len(kept(app)) == 2  # opening runs nothing


def test_a_refusal_try_puts_its_sliders_back(folder):
    request = tries.Request(
        live.DEMO, edits.Edit("refusal", "ig", domain="crime", lam=0.7, k=0.1), PROMPT, 40, True, 43
    )
    app = page(folder)
    app.session_state["live-tries"] = [tries.Try(request, ended=True)]
    app.run()
    app.selectbox(key="reopen").set_value(app.selectbox(key="reopen").options[0]).run()
    assert not app.exception
    assert (app.select_slider(key="lambda").value, app.select_slider(key="k").value) == (0.7, 0.1)
    assert (app.selectbox(key="domain").value, app.selectbox(key="edit_selector").value) == ("crime", "ig")
    assert (app.toggle(key="control").value, app.segmented_control(key="control_seed").value) == (True, 43)


def test_a_failed_try_is_not_kept(folder):
    app = run(page(folder, edit_model_id="/no/such/folder"))
    assert last(app).problem
    assert "live-tries" not in app.session_state or not kept(app)
    assert not list(app.dataframe)


@pytest.mark.long
def test_the_session_file_holds_what_was_shown(folder):
    app = run(page(folder, control="true", shade="Margin"))
    app.segmented_control(key="rank_order").set_value("MoRF").run()
    run(app)
    with live.POOL.use(folder) as used:
        entry = used.loaded
    whole = json.loads(tries.session_json(kept(app)))
    assert whole["environment"]["libraries"]["torch"]
    assert [one["edit"]["order"] for one in whole["tries"]] == ["lerf", "morf"]
    second = whole["tries"][1]
    assert second["model"]["weights_hash"] == entry.weights_hash
    assert second["rows_removed"] == round(0.3 * entry.rows.n_rows)
    assert sum(part["removed"] for part in second["rows_removed_by_projection"]) == second["rows_removed"]
    assert [second["replies"][side]["text"].rstrip() for side in live.SIDES] == texts(app)[:3]
    assert len(second["replies"]["after"]["margins_along_reply"]) == 21
    assert whole["tries"][0]["mask_sha256"] != second["mask_sha256"]
    assert [one["control_seed"] for one in whole["tries"]] == [42, 42]
    for side in live.SIDES:
        outcome = kept(app)[1].outcomes[side]
        assert second["replies"][side]["finished"] == outcome.finished


def test_history_shows_prompts_as_text(folder, monkeypatch):
    replies_are(monkeypatch, IMAGE)
    app = run(page(folder, prompt=IMAGE))
    assert app.dataframe[0].value["Prompt"][0] == IMAGE
    for element in (*app.markdown, *app.caption):
        assert "![x](" not in element.value
    assert not any(IMAGE in option for option in app.selectbox(key="reopen").options)


def test_the_session_keeps_the_newest_tries(monkeypatch):
    from dashboard.pages.live import live_page

    monkeypatch.setattr(tries, "KEPT", 3)
    state = {}
    monkeypatch.setattr(live_page.st, "session_state", state)
    outcome = live.Outcome("before", "x", 1, True, 0.0, False, "", 0.0)
    made = []
    for number in range(5):
        edit = edits.Edit("language model", "lrp", order="lerf", rate=number / 10)
        one = tries.Try(tries.Request("m", edit, "p", 20), ended=True, outcomes={"before": outcome, "after": outcome})
        made.append(one)
        live_page._keep(one)
        live_page._keep(one)
    assert state["live-tries"] == made[2:]
