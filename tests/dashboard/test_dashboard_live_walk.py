"""Live edit, Break it: every step's reply beside plain ones, what the gate holds back, what is kept, and the record."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from app_pages import run_live_edit, told
from tiny_models import save_tiny

from dashboard.chat import edits, effects, live, shipped_effects, stamps, tries
from dashboard.pages.live import break_it
from dashboard.show import share
from engine.edits.edit_effect import Effect
from engine.edits.masks import removed_rows
from engine.interventions.in_weights import zeroed
from engine.measures.fluency import Reference
from engine.measures.generation import generate_batch
from engine.records.errors import InputError

PROMPT, TOKENS, WITHHELD = "The cat sat.", 6, "lerf 0.05"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny("llama", tmp_path_factory.mktemp("walk"), max_position_embeddings=512))


@pytest.fixture
def entry(folder: str, monkeypatch: pytest.MonkeyPatch) -> live.Entry:
    """A model; the gate holds one step back and calls every MoRF edit from 10% on broken."""
    monkeypatch.setattr(live, "POOL", live.ModelPool(live._load))
    monkeypatch.setattr(stamps, "reference_of", lambda *_: Reference(-30.0, 0.99, 30, 150, 40))

    def checked(entry: live.Entry, mask: Any, edit: edits.Edit, _: Any) -> Effect:
        name = break_it.name_of(edit.order, edit.rate)
        if name == WITHHELD:
            raise InputError("this edit lowers refusal of risk prompts: all 1 of 9, without it 3 (prompts of a test)")
        broken = edit.order == "morf" and edit.rate >= 0.1
        return Effect(entry.loaded.weights_hash, "", nats=(2.0, 9.0 if broken else 2.5))

    monkeypatch.setattr(effects, "checked_effect", checked)
    with live.POOL.use(folder) as found:
        return found


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many edits each batch of replies had."""
    sizes: list[int] = []
    usual = live.replies

    def counted(loaded: Any, removed: Any, *more: Any, **settings: Any) -> Any:
        sizes.append(len(removed))
        return usual(loaded, removed, *more, **settings)

    monkeypatch.setattr(live, "replies", counted)
    return sizes


@pytest.mark.parametrize("known", [True, False])
def test_every_step_says_what_the_zeroed_model_says_and_none_that_the_gate_holds_back(
    entry: live.Entry, batches: list[int], monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    monkeypatch.setattr(effects, "is_known", lambda *_: known)
    steps = break_it.steps_of("magnitude")
    list(break_it.write(steps, entry, PROMPT, TOKENS, lambda *_: None))
    scores = entry.scores["magnitude"]
    for name, step in steps.items():
        if name == WITHHELD:
            assert (step.text, step.outcome) == ("", None)
            assert step.withheld.startswith("this edit lowers refusal")
            continue
        edit = step.edit
        mask = np.zeros(0, dtype=np.int64) if edit is None else removed_rows(scores, edit.order, edit.rate)
        with zeroed(entry.loaded, mask):
            [alone] = generate_batch(entry.loaded, [PROMPT], TOKENS)
        assert step.outcome is not None
        assert step.text == step.outcome.text == alone.text
    assert len({step.text for step in steps.values()}) > 3
    assert batches == ([12] if known else [1] * 12)  # what is known is one batch
    again = break_it.steps_of("magnitude")
    list(break_it.write(again, entry, PROMPT, TOKENS, lambda *_: None))
    assert [one.text for one in again.values()] == [one.text for one in steps.values()]
    assert sum(batches) == 12  # and nothing is written twice
    mask = removed_rows(scores, "morf", 0.2)
    list(tries.batch(entry, {"before": mask[:0], "after": mask}, PROMPT, TOKENS))
    assert sum(batches) == 12  # nor when one of the edits is asked for by itself


def test_the_table_says_which_order_breaks_first(entry: live.Entry, folder: str) -> None:
    app = run_live_edit(folder, live_view="Break it", prompt=PROMPT)
    assert not told(app, "sa-step")
    app.button(key="run").click().run()
    assert not app.exception
    cells = told(app, "sa-step")
    assert len(cells) == 1 + 2 * len(break_it.WALKED)
    assert sum("BROKEN" in cell for cell in cells) == 3
    (withheld,) = (cell for cell in cells if "Not shown" in cell)
    assert withheld == "Not shown: this edit lowers refusal of risk prompts: all 1 of 9, without it 3"
    (line,) = (one.value for one in app.markdown if "least relevant rows first" in one.value)
    assert "with the least relevant rows first no reply is broken, up to 30%; with the most" in line
    assert line.endswith("first the reply breaks first at 10%.")
    app.selectbox(key="rank_selector").set_value("weight_norm").run()  # a change asks for the next round
    assert app.session_state["live-walk-shown"].request.edit.selector == "weight_norm"
    assert len(told(app, "sa-step")) == 1 + 2 * len(break_it.WALKED)


def test_what_is_held_back_is_neither_broken_nor_whole() -> None:
    steps, outcome = break_it.steps_of("lrp"), live.Outcome("", "text", 1, True, 0.0, False, "", None)
    assert break_it.finding(steps, None) == ""
    for name, step in steps.items():
        step.outcome, step.broken = outcome, "perplexity" if name.startswith("morf") else ""
    assert break_it.telling(steps, None) == break_it.WALKED[0]
    for name, step in steps.items():
        if name.startswith("lerf") and name != "lerf 0.2":
            step.outcome, step.withheld = None, "this edit lowers refusal"
    assert break_it.finding(steps, None) == (
        "with the least relevant rows first no reply is broken, up to 20%; "
        "with the most relevant first the reply breaks first at 1%."
    )
    assert break_it.telling(steps, None) == 0.2
    steps["lerf 0.2"].outcome, steps["lerf 0.2"].withheld = None, "this edit lowers refusal"
    assert break_it.finding(steps, None).startswith("with the least relevant rows first no reply is shown; ")


def test_a_recorded_effect_is_of_these_weights_rows_and_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = {shipped_effects.name_of(one): one for one in shipped_effects.offered()}
    recorded = shipped_effects.recorded()["effects"]
    held = next(name for name, one in recorded.items() if one["why"])
    shown = next(name for name, one in recorded.items() if not one["why"] and "pairs" in one)
    with live.POOL.use(live.DEMO) as entry:
        loaded = entry.loaded
        mask = shipped_effects.mask_of(offered[shown])
        found = shipped_effects.effect_of(loaded, mask, offered[shown])
        assert found is not None
        assert found.shipped["all"] == tuple(recorded[shown]["shipped"])
        assert shipped_effects.effect_of(loaded, mask[:-1], offered[shown]) is None
        assert shipped_effects.effect_of(loaded, mask, None) is None
        for name, other in (("dtype", "bfloat16"), ("weights_hash", "0" * 64)):
            fake = type("Loaded", (), {"id": "demo", "dtype": loaded.dtype, "weights_hash": loaded.weights_hash})()
            setattr(fake, name, other)
            assert shipped_effects.effect_of(fake, mask, offered[shown]) is None
        monkeypatch.setattr(effects, "_measured", lambda *_: pytest.fail("it was measured again"))
        entry.effects.clear()
        assert effects.checked_effect(entry, mask, offered[shown], lambda *_: None) == found
        with pytest.raises(InputError, match="lowers refusal"):
            effects.checked_effect(entry, shipped_effects.mask_of(offered[held]), offered[held], lambda *_: None)


def test_a_card_to_share_holds_texts_as_data() -> None:
    text = "</script><script>alert(1)</script><b>"
    page = share.document(text, [share.Column("Before", "✓ ANSWERS", "#0B7A45", text)], text, "http://localhost/live")
    assert page.count("</script>") == 2
    assert text not in page
