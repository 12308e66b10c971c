"""The cards of Live edit: what is marked in a reply and how it stays text, stamps, the needle, one batch for three."""

from __future__ import annotations

import html
import re
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from app_pages import replies, run_live_edit, stamps as words, told
from fake_replies import replies_are
from planted import EVERYTHING

from dashboard.chat import live, marked, shipped_effects, stamps, tries
from dashboard.chat.edits import Edit
from dashboard.chat.live import Outcome
from dashboard.pages.live import cards
from dashboard.state import shipped_models as shipped
from engine.measures import fluency
from engine.measures.fluency import Reference
from engine.records.errors import InputError

REFERENCE = Reference(-3.0, 0.5, 30, 150, 40)
AS_MANY = "without as many random rows it"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    from tiny_models import save_tiny

    return str(save_tiny("llama", tmp_path_factory.mktemp("cards"), max_position_embeddings=512))


@pytest.fixture(autouse=True)
def _own_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "POOL", live.ModelPool(live._load))
    monkeypatch.setattr(stamps, "reference_of", lambda *_: REFERENCE)


def run(folder: str, **parameters: str) -> Any:
    app = run_live_edit(folder, prompt="The cat sat.", **parameters)
    app.button(key="run").click().run()
    assert not app.exception
    return app


def read(markup: str) -> str:
    """What a browser makes of it: the text without tags."""
    return html.unescape(re.sub(r"<[^>]*>", "", markup))


@pytest.mark.parametrize("text", ["", "one two", EVERYTHING, "a\nb\t c  ", "&lt;b&gt; <b>", "q\"'<>&"])
def test_marked_text_is_the_text_and_only_spans_are_tags(text: str) -> None:
    generator = np.random.default_rng(0)
    for _ in range(20):
        places = sorted(generator.integers(-2, len(text) + 3, size=6).tolist())
        spans = [
            marked.Span(*places[:2], "color:red"),
            marked.Span(*places[2:4], "x:y"),
            marked.Span(*places[3:5], "z:w"),
        ]
        made = marked.as_html(text, spans)
        assert read(made) == text
        assert set(re.findall(r"<[^>]*>", made)) <= {"</span>"} | {
            f'<span style="{css}">' for css in re.findall(r'style="([a-z:;]*)"', made)
        }


def test_every_letter_carries_the_declarations_of_the_spans_that_cover_it() -> None:
    spans = [marked.Span(1, 4, "a:1"), marked.Span(3, 6, "b:2"), marked.Span(0, 0, "c:3")]
    made = marked.as_html("abcdefg", spans)
    assert made == 'a<span style="a:1">bc</span><span style="a:1;b:2">d</span><span style="b:2">ef</span>g'
    assert (
        marked.as_html("defg", marked.moved(spans, 3)) == '<span style="a:1;b:2">d</span><span style="b:2">ef</span>g'
    )


def test_words_that_differ_are_marked_and_no_others() -> None:
    def words_of(text: str, other: str) -> list[str]:
        return [text[span.start : span.end] for span in marked.changes(text, other)]

    assert words_of("a b c d", "a x c") == ["b", "d"]
    assert words_of("a x c", "a b c d") == ["x"]
    assert words_of("same words", "same  words") == []
    assert words_of("one  two\nthree", "three") == ["one  two"]
    assert marked.alike("a b c d", "a b x y")
    assert not marked.alike("a b c d", "a x y z")
    assert not marked.alike("a b c d", "d c b a")
    assert not marked.alike("a b", "")


def test_shades_follow_what_a_token_is_worth() -> None:
    spans = marked.shades(["Sure", "", ", no"], ["rgba(1)", "rgba(2)", ""])
    assert spans == [marked.Span(0, 4, "background-color:rgba(1)")]
    opacities = [marked.of_log_probability(-nats) for nats in (0.0, 1.0, 3.0, 6.0, 60.0, float("inf"))]
    assert opacities[0] == ""
    assert [float(shade.split(", ")[-1][:-1]) for shade in opacities[1:]] == pytest.approx(
        [marked.STRONGEST * share for share in (1 / 6, 0.5, 1, 1, 1)], abs=0.006
    )
    assert marked.of_margin(2.0, 4.0) == f"rgba({marked.REFUSING}, 0.23)"
    assert marked.of_margin(-4.0, 4.0) == f"rgba({marked.ANSWERING}, 0.45)"
    assert marked.of_margin(0.0, 0.0) == ""


@pytest.mark.parametrize(("margin", "scale", "place"), [(0, 2, 50), (2, 2, 100), (-1, 2, 25), (-9, 3, 0), (9, 3, 100)])
def test_the_hand_of_the_needle_stands_where_the_margin_is(margin: float, scale: float, place: float) -> None:
    made = cards.needle(margin, scale)
    assert f"left:{place:.1f}%" in made
    assert f"margin {margin:+.2f}".replace("-", "−") in read(made)


@pytest.mark.parametrize(
    ("nats", "repeated", "refusal", "judged", "word"),
    [
        (-1.0, 0.0, False, True, "ANSWERS"),
        (-1.0, 0.0, True, True, "REFUSES"),
        (-1.0, 0.0, False, False, "NOT JUDGED"),
        (-3.5, 0.0, True, True, "BROKEN"),
        (-0.1, 0.8, False, False, "BROKEN"),
    ],
)
def test_a_stamp_is_one_word(nats: float, repeated: float, refusal: bool, judged: bool, word: str) -> None:
    outcome = Outcome(
        "after", "x", 2, True, 0.1, refusal, "", 0.0, judged=judged, log_probabilities=(nats, nats), repeated=repeated
    )
    one = tries.Try(tries.Request("m", Edit("refusal", "lrp"), "p", 20), reference=REFERENCE)
    assert one.stamp(outcome) == word
    assert word in stamps.LOOKS
    one.reference = None
    assert one.stamp(outcome) != "BROKEN"


@pytest.mark.parametrize(
    ("said", "told_of"),
    [
        ("aab", f"Without Fisher's lowest 1% it still answers; {AS_MANY} writes broken text in one draw"),
        ("ara", f"Without Fisher's lowest 1% it refuses; {AS_MANY} still answers in one draw"),
        ("bb", "Without Fisher's lowest 1% it still writes broken text"),
        ("rb", "Without Fisher's lowest 1% it writes broken text"),
        ("aA", "Without Fisher's lowest 1% it answers otherwise"),
        ("raA", f"Without Fisher's lowest 1% it answers; {AS_MANY} answers in one draw"),
        ("a?", ""),
        ("a", ""),
    ],
)
def test_the_page_says_what_the_edit_and_its_control_did(said: str, told_of: str) -> None:
    edit = Edit("language model", "fisher", order="lerf", rate=0.01)
    one = tries.Try(tries.Request("m", edit, "p", 20), reference=REFERENCE, control_seed=42, ended=True)
    for side, letter in zip(live.SIDES, said, strict=False):
        one.outcomes[side] = Outcome(
            side, "x y z" if letter == "A" else "p q r", 2, True, 0.1, letter == "r", "", 0.0, judged=letter != "?",
            log_probabilities=(-1.0,), repeated=0.8 if letter == "b" else 0.0,
        )  # fmt: skip
    assert tries.told(one) == told_of
    one.request = tries.Request("m", Edit("refusal", "ig", domain="hate", lam=0.5, k=0.02), "p", 20)
    assert tries.told(one) == told_of.replace("Without Fisher's lowest 1%", "Edited,")


def test_replies_of_one_batch_are_single_ones_token_by_token_and_the_sentence_counts_the_draws(folder: str) -> None:
    from engine.interventions.in_weights import zeroed
    from engine.measures.generation import generate_batch

    app = run(folder, control="true", control_seed="43")
    one = app.session_state["live-shown"]
    with live.POOL.use(folder) as entry:
        loaded = entry.loaded
    from dashboard.chat import edits

    mask = edits.mask_of(entry, one.request.edit, lambda *_: None)
    masks = {"before": [], "after": mask, "control": edits.control_of(entry, mask, 43)}
    masks |= {str(seed): edits.control_of(entry, mask, seed) for seed in (44, 45, 46, 47)}
    written = one.outcomes | {outcome.side: outcome for outcome in one.draws}
    assert replies(app) == [written[side].text for side in live.SIDES]
    for side, rows in masks.items():
        with zeroed(loaded, np.array(rows, dtype=np.int64)):
            [alone] = generate_batch(loaded, ["The cat sat."], 20)
        outcome = written.pop(side)
        assert (outcome.text, outcome.tokens, outcome.finished) == (alone.text, alone.tokens, alone.finished)
        single = [loaded.tokenizer.decode(list(alone.ids[:n])) for n in range(1, len(alone.ids) + 1)]
        together = ["".join(outcome.pieces[:n]) for n in range(1, len(alone.ids) + 1)]
        assert all(whole.startswith(part) for whole, part in zip(single, together, strict=True))
        assert together[-1] == single[-1]
    assert not written
    assert len({outcome.pieces for outcome in one.outcomes.values()}) == 3
    nats, counts = [np.mean(draw.log_probabilities) for draw in (one.outcomes["control"], *one.draws)], set()
    for limit in (value + 1e-6 for value in nats if value >= nats[0]):
        one.reference = Reference(limit, 1.0, 30, 150, 40)
        counts.add(count := sum(value < limit for value in nats))
        assert tries.told(one).endswith(f"writes broken text in {count} of 5 draws")
    assert len(counts) > 1
    assert [draw["seed"] for draw in tries.record(one)["further_draws"]] == [int(draw.side) for draw in one.draws]


def test_draws_that_fail_leave_the_three_replies_as_they_are(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tries, "further_draws", lambda *_: (_ for _ in [0]).throw(InputError("out of memory")))
    app = run(folder, control="true")
    monkeypatch.setattr(tries, "further_draws", lambda *_: pytest.fail("it was tried again"))
    app.run()
    assert not [*app.exception, *app.warning]
    assert words(app) == ["ANSWERS", "BROKEN", "BROKEN"]
    said = "random rows it writes broken text in one draw</h2><p>Control: one random draw, seed 42;"
    assert any(said in one.proto.body for one in app.get("html"))


def test_what_was_measured_is_on_the_cards_and_in_the_files(folder: str) -> None:
    app = run(folder, control="true")
    one = app.session_state["live-shown"]
    assert words(app) == ["ANSWERS", "BROKEN", "BROKEN"]  # what it writes itself is likely, also of random weights
    bodies = " ".join(element.proto.body for element in app.get("html"))
    assert bodies.count('class="sa-needle"') == 0  # nothing is to be refused
    assert bodies.count("(not finished: 20 tokens)") == 3
    assert "background-color:rgba" in bodies
    record = tries.record(one)
    assert record["broken_below_nats_per_token"] == -3.0
    assert record["replies"]["after"]["broken"]
    assert all("broken" in row["After"] for row in tries.comparison([one]).to_dicts())
    captions = " ".join(caption.value for caption in app.caption)
    assert "loss of language" in captions.replace("\\", "")
    assert any("150 readings" in body and "−3.00 nats" in body for body in [bodies])


@pytest.mark.long
def test_shading_by_margin_asks_for_the_margins_and_none_leaves_the_text_bare(folder: str) -> None:
    app = run(folder, shade="Margin")
    assert app.session_state["live-shown"].outcomes["after"].along
    assert marked.REFUSING in str(told_bodies(app)) or marked.ANSWERING in str(told_bodies(app))
    app.segmented_control(key="shade").set_value("Nothing").run()
    assert not app.exception
    assert "background-color" not in str(told_bodies(app))


def told_bodies(app: Any) -> list[str]:
    return [element.proto.body for element in app.get("html") if 'class="sa-reply"' in element.proto.body]


@pytest.mark.long
def test_differences_are_underlined_only_where_replies_share_words(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tries, "REPLIES_KEPT", 0)
    replies_are(monkeypatch, "The same words.")
    app = run(folder)
    assert replies(app) == ["The same words."] * 2
    assert "underline" not in str(told_bodies(app))
    from engine.measures.generation import Reply

    def stream(_loaded: Any, _prompt: str, edits: list[Any], *_: Any, **__: Any) -> Any:
        for number, edit in enumerate(edits):  # "before" is asked by itself
            text = "I can not help." if edit.size else "I can help."
            yield number, text
            yield number, Reply(text, 1, 0.0, True)

    monkeypatch.setattr("engine.measures.generation.stream_replies", stream)
    app.button(key="run").click().run()
    before, after = told_bodies(app)
    assert "underline" not in before
    assert re.findall(r"underline[^>]*>([^<]*)<", after) == ["not"]


def test_what_is_recorded_of_the_demo_s_own_replies_is_what_is_measured() -> None:
    prompts = [example.prompt for example in shipped.examples(live.DEMO)]
    with live.POOL.use(live.DEMO) as entry:
        recorded = shipped_effects.reference_of(entry.loaded, prompts, stamps.REFERENCE_TOKENS)
        measured = fluency.reference_of(entry.loaded, prompts, stamps.REFERENCE_TOKENS)
        other = shipped_effects.reference_of(entry.loaded, prompts[1:], stamps.REFERENCE_TOKENS)
    assert recorded is not None
    assert measured is not None
    # Another processor rounds float32 log-probabilities otherwise.
    assert asdict(recorded) == {**asdict(measured), "lowest": pytest.approx(measured.lowest, abs=1e-3)}
    assert other is None  # of other prompts


def test_the_facts_of_an_edit_that_refuses_nothing_leave_out_the_margin() -> None:
    one = Outcome("after", "text", 3, True, 0.1, False, "no rule of refusal applies", 1.5, log_probabilities=(-1.0,))
    assert "disagree" in stamps.facts(one)
    assert "judge" in stamps.facts(one)
    plain = stamps.facts(one, margins=False)
    assert plain == "3 tokens"
    assert stamps.facts(one, "it repeats itself", margins=False) == "3 tokens · **it repeats itself**"


@pytest.mark.long
def test_without_a_reference_nothing_is_called_broken_and_it_is_said(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stamps, "reference_of", lambda *_: None)
    app = run(folder)
    assert "BROKEN" not in words(app)
    assert any("was not measured" in element.proto.body for element in app.get("html"))
    assert told(app, "sa-stamp")


@pytest.mark.long
def test_the_unedited_models_own_replies_are_not_broken_and_those_of_a_broken_one_are() -> None:
    """The shipped model on held-out prompts that set no limit; MoRF by magnitude is known to destroy it."""
    from dashboard.chat import edits
    from dashboard.pages.live import many as tiles

    entry = live.Entry(live._load(live.DEMO))
    prompts = [example.prompt for example in shipped.examples()]
    reference = fluency.reference_of(entry.loaded, prompts, stamps.REFERENCE_TOKENS)
    assert reference is not None
    others = [one.prompt for one in shipped.held_out(list(edits.DOMAINS), 9) if one.prompt not in prompts]
    asked = others[::2]
    worst = edits.mask_of(entry, Edit("language model", "magnitude", order="morf", rate=0.3), lambda *_: None)
    *_, last = tiles.replies(entry, worst, asked, 40)
    before, after = ([tiles._stamp(pair[side], reference) for pair in last.values()] for side in (0, 1))
    assert len(before) == len(after) > 30
    assert before.count("BROKEN") <= 1
    assert after.count("BROKEN") > 0.9 * len(after)
