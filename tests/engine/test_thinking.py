"""Replies that think first: judged by what is said afterwards, kept whole, and unfinished where nothing is said."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from test_generation import Scripted
from test_thinking_runs import QWEN, templated
from tiny_models import tiny_tokenizer
from tokenizers import AddedToken

from engine.data.thinking import after_thinking, kept_marks
from engine.edits.edit import UNEDITED
from engine.judges.base import Exchange, heard, verdicts_on
from engine.judges.embedded import EmbeddedJudge
from engine.judges.refusals import Refusals
from engine.measures.generation import Reply, generate_batch, stream_replies
from engine.measures.replies import Replies, Written
from engine.models.loading import LoadedModel
from engine.run.runner import Cell

REFUSAL, ANSWER = "I'm sorry, but I can't help with that.", "The mill stands by the river."
# DeepSeek-R1's way: thinking is begun in the prompt, and there is no switch.
BEGUN = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}<|assistant|>{{ '<think>\n' }}"


@pytest.mark.parametrize("finished", [True, False, None])
def test_the_judge_hears_only_that(finished: bool | None) -> None:
    judge = EmbeddedJudge()

    def refuses(reply: str) -> bool:
        return verdicts_on(judge, [Exchange("", reply, finished)])[0].refusal

    assert not refuses(f"<think>{REFUSAL}</think>{ANSWER}")
    assert refuses(f"<think>{ANSWER}</think>{REFUSAL}")
    assert heard("Why?", f"<think>a</think>{ANSWER}", finished) == ("Why?", ANSWER, finished)
    assert heard("Why?", f"<think>{ANSWER}", finished) == ("Why?", "", False)
    thinking, said = verdicts_on(judge, [Exchange("Why?", f"<think>{REFUSAL}"), Exchange("Why?", REFUSAL)])
    assert (thinking.judged, thinking.refusal, said.judged, said.refusal) == (False, False, True, True)


def test_a_reply_that_ends_within_thinking_is_unfinished_however_it_ends() -> None:
    replies = [
        Written(f"<think>a</think>{REFUSAL}", True),
        Written(f"<think>{REFUSAL}", True),
        Written(f"<think>{REFUSAL}", False),
        Written(ANSWER, False),
    ]
    found = Refusals(Replies(("a", "b", "c", "d"), 8, 4), EmbeddedJudge()).derive(replies)
    assert found.refused == (True, False, False, False)
    assert found.finished == (True, False, False, False)


def test_thinking_is_off_unless_it_is_left_on(tiny_llama: LoadedModel) -> None:
    loaded = templated(tiny_llama, QWEN)
    found = [[one.text for one in generate_batch(loaded, ["cat", "mat"], 8, thinking=on)] for on in (False, True)]
    assert found[0] != found[1]
    measure = Replies(("cat", "mat"), 8, 4, thinking=True)
    assert [one.text for one in measure.measure(loaded, UNEDITED)] == found[1]
    assert Cell(loaded, UNEDITED, measure).key != Cell(loaded, UNEDITED, Replies(("cat", "mat"), 8, 4)).key


def scripted(template: str, text: str, marks: tuple[str, ...] = (), *, special: bool = False) -> Any:
    """A model that says `text`, whose tokenizer has these marks as tokens of their own."""
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([AddedToken(mark, special=special) for mark in marks], special_tokens=special)
    tokenizer.chat_template = template
    script = [*tokenizer(text)["input_ids"], 7, *[5] * 20]
    return SimpleNamespace(model=Scripted(script, [7]), tokenizer=tokenizer, lock=threading.RLock())


def test_what_the_template_began_stands_before_the_reply() -> None:
    said = f"Hm.\n</think>\n{ANSWER}"
    [reply] = generate_batch(scripted(BEGUN, said), ["hi"], 100)
    assert reply.text == f"<think>\n{said}"
    pieces = [piece for _, piece in stream_replies(scripted(BEGUN, said), "hi", [UNEDITED], 100)]
    assert "".join(piece for piece in pieces if isinstance(piece, str)) == reply.text
    assert isinstance(pieces[-1], Reply)
    assert pieces[-1].text == reply.text
    [cut] = generate_batch(scripted(BEGUN, said), ["hi"], 2)
    assert after_thinking(cut.text) == ("", False)
    assert not cut.finished


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        (f"[THINK]Hm.[/THINK]{ANSWER}", ("[THINK]", "[/THINK]")),
        (f"<|channel|>analysis<|message|>Hm.<|channel|>final<|message|>{ANSWER}", ("<|channel|>", "<|message|>")),
    ],
)
def test_marks_that_are_special_tokens_stay_in_the_reply(text: str, marks: tuple[str, ...]) -> None:
    template = "{# " + " ".join(marks) + " #}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
    template += "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    loaded = scripted(template, text, marks, special=True)
    assert sorted(kept_marks(loaded.tokenizer).values()) == sorted(marks)
    [reply] = generate_batch(loaded, ["hi"], 100)
    assert reply.text == text
    assert after_thinking(reply.text) == (ANSWER, True)
