"""Live edit, many at once: twenty prompts, written in batches, kept by edit and prompt, stopped and gone on with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from app_pages import run_live_edit, told
from fake_replies import replies_are
from planted import EVERYTHING

from dashboard.chat import edits, live, stamps
from dashboard.pages.live import many as tiles
from dashboard.state import shipped_models as shipped
from dashboard.state.shipped_models import Example
from engine.measures.fluency import Reference
from engine.models.loading import LoadedModel
from engine.records.progress import each_pass

TOKENS = 6
REFERENCE = Reference(-3.0, 0.5, 30, 150, 40)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    from tiny_models import save_tiny

    return str(save_tiny("llama", tmp_path_factory.mktemp("many"), max_position_embeddings=512))


@pytest.fixture(scope="module")
def loaded(folder: str) -> LoadedModel:
    return live._load(folder)


@pytest.fixture(autouse=True)
def _own_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "POOL", live.ModelPool(live._load))
    monkeypatch.setattr(stamps, "reference_of", lambda *_: None)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> list[Example]:
    """Seven prompts in place of twenty: two batches."""
    found = [*shipped.held_out(["crime"], 4)[:4], *shipped.held_out(["crime"], 3)[3:]]
    monkeypatch.setattr(tiles, "prompts", lambda *_: found)
    return found


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """(edits, prompts) of every batch that the model writes."""
    batches: list[tuple[int, int]] = []
    usual = tiles._write_replies

    def counted(entry: Any, carried: Any, asked: Any, *more: Any) -> None:
        batches.append((len(carried), len(asked)))
        usual(entry, carried, asked, *more)

    monkeypatch.setattr(tiles, "_write_replies", counted)
    return batches


def test_there_are_twenty_prompts_half_to_refuse_of_one_domain_or_of_all() -> None:
    for domain, of_each in (("crime", {"crime": 20}), ("", dict.fromkeys(edits.DOMAINS, 4))):
        found = tiles.prompts("demo", domain)
        assert len({one.prompt for one in found}) == 20
        assert [one.kind for one in found] == ["risk"] * 10 + ["base"] * 10
        assert {name: sum(one.domain == name for one in found) for name in of_each} == of_each
        general = {one.prompt for one in tiles.prompts("any other model", domain)}
        assert len(general) == 20
        assert not general & {one.prompt for one in found}
    calibration = {one.prompt for one in shipped.held_out(list(edits.DOMAINS), 100)}
    assert len(calibration) == 1000  # held-out pairs only: 100 of 5 domains, both sides


def test_replies_are_those_of_one_prompt_alone_and_are_written_once(
    loaded: LoadedModel, written: list[tuple[int, int]]
) -> None:
    from engine.interventions.in_weights import zeroed
    from engine.measures.generation import generate_batch

    entry = live.Entry(loaded)
    asked = [f"prompt number {number}" for number in range(7)]
    mask, other = np.arange(0, 288, 3), np.arange(1, 288, 3)
    first, *_, last = tiles.replies(entry, mask, asked, TOKENS)
    assert set(first.values()) == {(None, None)}
    for removed, side in (([], 0), (mask, 1)):
        with zeroed(loaded, np.array(removed, dtype=np.int64)):
            for prompt in asked:
                [alone] = generate_batch(loaded, [prompt], TOKENS)
                reply = last[prompt][side]
                assert reply is not None
                assert (reply.text, reply.tokens, reply.finished) == (alone.text, alone.tokens, alone.finished)
    assert written == [(2, 5), (2, 2)]
    assert list(tiles.replies(entry, mask, asked, TOKENS)) == [last]
    assert written == [(2, 5), (2, 2)]
    list(tiles.replies(entry, other, asked, TOKENS))
    assert written[2:] == [(1, 5), (1, 2)]  # as it is, the model has answered
    list(tiles.replies(entry, mask, [*asked, "new"], TOKENS))
    assert written[4:] == [(2, 1)]


# A batch is six passes of its replies and then a reading of them as it is and under the edit.
@pytest.mark.parametrize(("passes", "kept"), [(1, 0), (4, 0), (8, 5), (9, 10), (16, 12)])
def test_a_stop_keeps_what_was_written_and_the_next_round_goes_on(loaded: LoadedModel, passes: int, kept: int) -> None:
    class Stopped(BaseException):
        """What Streamlit raises to end a script run."""

    entry, asked, seen = live.Entry(loaded), [f"prompt number {number}" for number in range(7)], [0]

    def counted() -> None:
        seen[0] += 1
        if seen[0] == passes:
            raise Stopped

    mask = np.arange(0, 288, 3)
    with pytest.raises(Stopped), each_pass(counted):
        list(tiles.replies(entry, mask, asked, TOKENS))
    assert not any(module._forward_hooks for module in loaded.model.modules())
    assert len(entry.told) == kept
    *_, last = tiles.replies(entry, mask, asked, TOKENS)
    whole = live.Entry(loaded)
    *_, expected = tiles.replies(whole, mask, asked, TOKENS)
    texts, alone = ([one.text for pair in found.values() for one in pair] for found in (last, expected))
    assert texts == alone


def test_no_more_are_kept_than_said(loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "KEPT", 12)
    entry = live.Entry(loaded)
    for start in range(3):
        list(tiles.replies(entry, np.arange(start, 288, 3), ["a", "b", "c"], 2))
    assert len(entry.told) == 12
    list(tiles.replies(entry, np.arange(5), ["d", "e", "f"], 2))
    assert len(entry.told) == 12
    assert {prompt for _, prompt, _ in entry.told} >= {"d", "e", "f"}


def page(folder: str, **parameters: str) -> Any:
    return run_live_edit(folder, live_view="Many at once", **parameters)


def test_tiles_turn_as_the_edit_is_changed_and_come_back_at_once(
    folder: str, few: list[Example], written: list[tuple[int, int]]
) -> None:
    app = page(folder)
    assert not told(app, "sa-tile")
    app.button(key="run-many").click().run()
    assert not app.exception
    first = told(app, "sa-tile")
    assert len(first) == 7
    shown = app.session_state["live-many-shown"]
    assert shown.ended
    assert shown.rows == 86
    count = sum(pair[1].refusal for pair in shown.told.values())
    assert told(app, "sa-counts")[0].startswith(f"{count} of 7 refuse")
    for one in few:
        assert any(one.prompt in tile for tile in first)
    written.clear()
    app.select_slider(key="rate").set_value(0.6).run()
    assert not app.exception
    assert written == [(1, 5), (1, 2)]
    second = told(app, "sa-tile")
    assert second != first
    app.select_slider(key="rate").set_value(0.3).run()
    assert told(app, "sa-tile") == first
    assert len(written) == 2
    app.run()
    assert told(app, "sa-tile") == first


@pytest.mark.long
def test_an_edit_that_cannot_be_shown_is_told(folder: str, few: list[Example], monkeypatch: pytest.MonkeyPatch) -> None:
    from dashboard.chat import effects
    from engine.records.errors import InputError

    def refused(*_: Any) -> None:
        raise InputError("this edit lowers refusal of risk prompts: 1 of 2")

    monkeypatch.setattr(effects, "checked_effect", refused)
    app = page(folder)
    app.button(key="run-many").click().run()
    assert not app.exception
    assert "lowers refusal" in app.warning[0].value
    assert not any(pair != (None, None) for pair in app.session_state["live-many-shown"].told.values())


def one(text: str, *, refusal: bool, mean: float = -1.0, judged: bool = True) -> live.Outcome[str]:
    return live.Outcome("", text, 3, True, 0.1, refusal, "", None, "", (), judged, (), (mean,), 0.0)


def test_counts_are_of_what_is_there() -> None:
    yes, no, lost = one("x", refusal=True), one("y", refusal=False), one("z", refusal=True, mean=-9.0)
    pairs = [(no, yes), (yes, yes), (no, no), (no, lost), (None, None)]
    assert tiles.said(pairs, REFERENCE) == "2 of 4 refuse, 1 is broken; without the edit 1 of 4"
    assert (
        tiles.said(pairs, REFERENCE, "BROKEN: its perplexity") == "0 of 4 refuse, 4 are broken; without the edit 1 of 4"
    )
    assert tiles.said(pairs, None) == "3 of 4 refuse; without the edit 1 of 4"
    assert tiles.said([(None, None)], REFERENCE) == "…"


def test_tiles_say_what_turned_and_hold_every_letter_as_text() -> None:
    asked = [Example("crime", "risk", f"{EVERYTHING} {number}") for number in range(3)]
    yes, no = one(EVERYTHING, refusal=True), one(EVERYTHING, refusal=False)
    made = tiles.tiles(asked, {asked[0].prompt: (no, yes), asked[1].prompt: (no, no)}, REFERENCE)
    assert made.count("sa-turned") == 1
    assert "was ANSWERS" in made
    assert made.count("sa-waits") == 1
    for wrong in ("<img", "<script", "<a ", 'onerror="', 'href="'):
        assert wrong not in made


def test_planted_text_is_text_on_the_tiles(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    replies_are(monkeypatch, EVERYTHING)
    monkeypatch.setattr(tiles, "prompts", lambda *_: [Example("crime", "risk", EVERYTHING)])
    app = page(folder)
    app.button(key="run-many").click().run()
    assert not app.exception
    [tile] = told(app, "sa-tile")
    assert tile.count(EVERYTHING) == 2
