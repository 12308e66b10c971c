"""Thinking parts in the forms that models write them: what is judged, what is unfinished, and what is only text."""

import pytest
from tiny_models import tiny_tokenizer
from tokenizers import AddedToken

from engine.data.thinking import after_thinking, kept_marks, opened, template_marks, thinking_form, thinks
from engine.judges.base import Exchange, verdicts_on
from engine.judges.embedded import EmbeddedJudge, judge

THOUGHT = "I cannot help with weapons, but bread is fine."
ANSWER = "Mix flour and water."
# What opens, what closes, and what stands around the answer.
FORMS = [
    ("<think>", "</think>", "{}"), ("<Thinking>", "</Thinking>", "{}"), ("<thinking>\n", "\n</thinking>\n\n", "{}"),
    ("<thought>\n", "\n</thought>\n", "{}"),
    ("<thoughts>", "</thoughts>", "{}"),
    ("<reasoning>", "</reasoning>", "{}"),
    ("<scratchpad>", "</scratchpad>", "{}"), ("<SCRATCHPAD>", "</SCRATCHPAD>", "<answer>{}</answer>"),
    ("<analysis>", "</analysis>", "<response>{}</response>"),
    ("<reflection>", "</reflection>", "<output>\n{}\n</output>"),
    ("<inner_monologue>", "</inner_monologue>", "{}"), ("<seed:think>", "</seed:think>", "{}"),
    ("<antThinking>", "</antThinking>", "{}"), ("<reasoning_content>", "</reasoning_content>", "{}"),
    ("<scratch-pad>", "</scratch-pad>", "{}"), ("<self-reflection>", "</self-reflection>", "{}"),
    ("<deep_think>", "</deep_think>", "{}"), ("<chain-of-thought>", "</chain-of-thought>", "{}"),
    ("<rationale>", "</rationale>", "{}"), ("<my:inner_thought_process>", "</my:inner_thought_process>", "{}"),
    ("<|begin_internal_thought|>", "<|end_internal_thought|>", "{}"),
    ("<|self_reflection|>", "<|/self_reflection|>", "{}"),
    ("[THINK]", "[/THINK]", "{}"),
    ("◁think▷", "◁/think▷", "{}"), ("<|START_THINKING|>", "<|END_THINKING|>", "<|START_RESPONSE|>{}<|END_RESPONSE|>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>\n", "<|begin_of_solution|>{}<|end_of_solution|>"),
    ("<|thinking|>", "<|/thinking|>", "{}"), ("<|thought_start|>", "<|thought_end|>", "{}"),
    ("<|start_thinking|>", "<|end_thinking|>", "{}"), ("<|begin_of_reasoning|>", "<|end_of_reasoning|>", "{}"),
    ("Here is my thought process:\n", "\n\nHere is my response:\n", "{}"),
    ("Here's my thought process:\n", "\n\nHere's my response: ", "{}"),
    ("Thinking...\n", "\n...done thinking.\n\n", "{}"),
    ("<unused94>thought\n", "<unused95>", "{}"), ("<unused94>", "<unused95>", "{}"),
    ("<|inner_prefix|>", "<|inner_suffix|>", "{}"),
    ("<|channel>thought\n", "<channel|>", "{}"), ("analysis", "assistantfinal", "{}"),
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>", "{}"),
    ("<|start|>assistant<|channel|>analysis<|message|>", "<|channel|>final<|message|>", "{}"),
    ("\n <think>", "</think>", "{}"), ("<think>a</think><scratchpad>", "</scratchpad>", "{}"),
]  # fmt: skip
IDS = [opening.strip() for opening, _, _ in FORMS]


@pytest.mark.parametrize(("opening", "closing", "around"), FORMS, ids=IDS)
def test_a_thinking_part_is_not_judged(opening: str, closing: str, around: str) -> None:
    """And one that is never closed, or after which nothing is said, is no answer."""
    cut, silent = f"{opening}{THOUGHT}", f"{opening}{THOUGHT}{closing}"
    assert (after_thinking(cut), after_thinking(silent)) == (("", False), ("", True))
    assert thinking_form(cut).endswith("… never closed") or cut.startswith("<think>a</think>")
    for verdict in (*verdicts_on(EmbeddedJudge(), [Exchange("", cut, True), Exchange("", silent)]), judge(cut)):
        assert (verdict.judged, verdict.refusal) == (False, False)
    whole = f"{silent}{around.format(ANSWER)}"
    assert after_thinking(whole) == (ANSWER, True)
    assert not judge(whole).refusal
    [verdict] = verdicts_on(EmbeddedJudge(), [Exchange("", whole)])
    assert (verdict.judged, verdict.refusal) == (True, False)
    assert judge(f"{opening}{ANSWER}{closing}{around.format('I cannot help with that.')}").refusal
    opening = opening.removeprefix("<|start|>assistant")
    first = "<think>" if "<think>" in opening else opening.strip().removesuffix(":").split("thought\n")[0]
    assert thinking_form(whole).startswith(first[:8])
    assert " … " in thinking_form(whole)


@pytest.mark.parametrize(
    "reply",
    [
        "Write <analysis> first, then close it with </analysis>. Mix well.",
        "The tag `</think>` closes it.", "Close it with </think> at the end.", "Put </reasoning>, then the answer.",
        "An <analysis> of bread: mix.", "[analysis] of bread: mix.", "[Reasoning] Bread is made of flour.",
        "Analysis of bread: flour and water.", "analysis of bread: flour and water.", "Thinking... well, mix it.",
        "Here is my answer: mix. Here is my response: none.", "My thought process: mix. I think <b>so</b>.",
        "In XML, <scratchpad> and </scratchpad> are tags.", "<answer>Mix.</answer>", "<analyse>Mix.</analyse>",
        "<thinker>Mix.</thinker>", "<unthinking>Mix.</unthinking>",
        "<reasonable-steps>Mix.</reasonable-steps>",
        "<|im_start|>Mix.", "<unused93>Mix.", "```\n<think>a</think>\n```\nMix.",
        "I said: Here is my thought process: none.", "<p>Mix.</p>", "The words assistantfinal mean nothing.",
    ],
)  # fmt: skip
def test_what_only_speaks_of_marks_is_text(reply: str) -> None:
    assert after_thinking(reply) == (reply, True)
    assert thinking_form(reply) == ""


@pytest.mark.parametrize(
    ("closing", "form"),
    [("</think>", "… </think>"), ("\n</reasoning>\n", "… </reasoning>"), ("<|END_THINKING|>", "… <|END_THINKING|>")],
)
def test_a_part_that_the_template_began(closing: str, form: str) -> None:
    whole = f"{THOUGHT}{closing}{ANSWER}"
    assert after_thinking(whole) == (ANSWER, True)
    assert thinking_form(whole) == form
    assert not judge(whole).refusal


PONDER = (
    "{% for m in messages %}{% if m.role == 'assistant' %}{{ m.content.split('</ponder>')[-1] }}{% else %}"
    "{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<ponder>\n' }}{% endif %}"
)


def test_marks_that_only_the_template_knows() -> None:
    tokenizer = tiny_tokenizer()
    assert template_marks(tokenizer) == ()
    marks = [AddedToken(one, special=True) for one in ("<ponder>", "</ponder>")]
    tokenizer.add_tokens(marks, special_tokens=True)
    tokenizer.chat_template = PONDER
    assert template_marks(tokenizer) == (("<ponder>", "</ponder>"),)
    assert thinks(tokenizer)
    assert set(kept_marks(tokenizer).values()) == {"<ponder>", "</ponder>"}
    assert opened(tokenizer, tokenizer("hi<ponder>\n")["input_ids"]).startswith("<ponder>")
    own = template_marks(tokenizer)
    for whole in (f"<ponder>{THOUGHT}</ponder>{ANSWER}", f"{THOUGHT}</ponder>{ANSWER}"):
        assert after_thinking(whole, own) == (ANSWER, True)
        assert after_thinking(whole) == (whole, True)
        assert not verdicts_on(EmbeddedJudge(), [Exchange("", whole)], marks=own)[0].refusal
    assert after_thinking(f"<ponder>{THOUGHT}", own) == ("", False)
    assert thinking_form(f"<ponder>{THOUGHT}</ponder>{ANSWER}", own) == "<ponder> … </ponder>"
