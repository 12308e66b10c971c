"""Thinking on and off through templates written like Qwen3's and DeepSeek-R1's: prompts, margins, records, counts."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_models import tiny_tokenizer

from dashboard.state.results import describe_run
from engine.commands.refusal.stage import say_unjudged
from engine.data.onsets import onset_tokens
from engine.data.prompts import prompt_ids, template_variables, thinking_mode
from engine.data.thinking import after_thinking, opened, parts
from engine.edits.edit import UNEDITED
from engine.judges.embedded import EmbeddedJudge
from engine.judges.refusals import Refusals, Refused
from engine.measures.divergence import Kl
from engine.measures.margin import margin_of_logits, margins, reply_margins
from engine.measures.replies import Replies, Written
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.results.store import Store
from engine.run.audit_plan import ScorePlan
from engine.run.refusal_plan import RefusalPlan
from engine.run.runner import LocalRunner, Results
from engine.studies.audit.sweeps import SweepReplies
from engine.studies.refusal.refusal_inputs import RefusalInputs

# Like Qwen3's: a switch; earlier thinking is left out, the last reply stands behind a thinking part, empty or not.
QWEN = (
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>\n"
    "{% if m.role == 'assistant' %}"
    "{% set thought = m.content.split('</think>')[0].split('<think>')[-1] if '</think>' in m.content else '' %}"
    "{% set said = m.content.split('</think>')[-1] %}"
    "{% if loop.last %}<think>\n{{ thought | trim }}\n</think>\n\n{% endif %}{{ said | trim }}"
    "{% else %}{{ m.content }}{% endif %}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
# Like DeepSeek-R1's: no switch, thinking is begun in the generation prompt and left out of earlier turns.
R1 = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}<|user|>{{ m.content }}{% else %}<|assistant|>"
    "{{ m.content.split('</think>')[-1] }}{{ eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|><think>\n{% endif %}"
)
# Like gpt-oss's: no switch, and the model writes the channels.
CHANNELS = (
    "{% for m in messages %}<|{{ m.role }}|>{{ '<|channel|>final<|message|>' if m.role == 'assistant' else '' }}"
    "{{ m.content }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
REFUSAL, ANSWER = "I'm sorry, but I can't help with that.", "The mill stands by the river."


def templated(loaded: LoadedModel, template: str | None) -> LoadedModel:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = template
    return dataclasses.replace(loaded, tokenizer=tokenizer, tokenizer_hash=template)


def end(loaded: LoadedModel, *prompt: Any, **how: Any) -> str:
    return str(loaded.tokenizer.decode(prompt_ids(loaded.tokenizer, *prompt, **how))).rpartition("<|assistant|>")[2]


# --- replies in parts


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        (ANSWER, ("", ANSWER, True)),
        (f" {ANSWER}\n", ("", f" {ANSWER}\n", True)),
        ("", ("", "", True)),
        (f"<think>\nHm.\n</think>\n\n{ANSWER}", ("Hm.", ANSWER, True)),
        (f"Hm.\n</think>\n{ANSWER}", ("Hm.", ANSWER, True)),
        (f"<think>\n\n</think>\n\n{ANSWER}", ("", ANSWER, True)),
        ("<think>Hm.</think>", ("Hm.", "", True)),
        ("<think>\nHm", ("Hm", "", False)),
        ("<think>", ("", "", False)),
        (f"<|channel|>final<|message|>{ANSWER}", ("", ANSWER, True)),
        ("Write <think> and then </think>.", ("", "Write <think> and then </think>.", True)),
        (f"[THINK]Hm.[/THINK]{ANSWER}", ("Hm.", ANSWER, True)),
        (
            f"<|channel|>analysis<|message|>Hm.<|channel|>final<|message|>{ANSWER}",
            ("<|channel|>analysis<|message|>Hm.", ANSWER, True),
        ),
        ("<|channel|>analysis<|message|>Hm", ("<|channel|>analysis<|message|>Hm", "", False)),
    ],
)
def test_thinking_and_what_is_said_apart(reply: str, found: tuple[str, str, bool]) -> None:
    assert parts(reply) == found
    assert after_thinking(reply) == found[1:]


# --- templates


@pytest.mark.parametrize(
    ("template", "off", "on"),
    [
        (QWEN, "off (enable_thinking=False)", "on (enable_thinking=True)"),
        (R1, *["begun by the chat template, which has no switch"] * 2),
        (CHANNELS, *["left to the model, since the chat template has no switch"] * 2),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", "", ""),
        (None, "", ""),
    ],
)
def test_the_mode_in_words(template: str | None, off: str, on: str) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = template
    assert [thinking_mode(tokenizer, thinking=thinking) for thinking in (False, True)] == [off, on]
    assert template_variables(tokenizer).get("thinking mode", "") == off


def test_prompts_of_both_modes(tiny_llama: LoadedModel) -> None:
    qwen, r1 = (templated(tiny_llama, one) for one in (QWEN, R1))
    assert end(qwen, "cat") == "\n<think>\n\n</think>\n\n"
    assert end(qwen, "cat", thinking=True) == "\n"
    turns = ("cat", f"<think>Hm.</think>{ANSWER}", "mat")
    assert "Hm." not in end(qwen, turns) + end(r1, turns)
    assert end(r1, "cat") == "<think>\n"
    for template, told in (
        (R1, "begins the thinking part in any case"),
        (CHANNELS, r"enable_thinking changes nothing in it\); leave --thinking out"),
        (None, "no thinking mode"),
    ):
        with pytest.raises(InputError, match=told):
            prompt_ids(templated(tiny_llama, template).tokenizer, "cat", thinking=True)


# --- margins


@pytest.mark.parametrize(("template", "thinking"), [(QWEN, False), (QWEN, True), (R1, False)])
def test_margins_stand_at_the_last_prompt_position(tiny_llama: LoadedModel, template: str, thinking: bool) -> None:
    loaded = templated(tiny_llama, template)
    onsets = onset_tokens(loaded.tokenizer)
    expected = []
    for prompt in ("cat", "The cat sat on the mat."):
        ids = prompt_ids(loaded.tokenizer, prompt, thinking=thinking)
        with torch.no_grad():
            expected.append(margin_of_logits(loaded.model(torch.tensor([ids])).logits[:, -1], onsets))
    found = margins(loaded, ["cat", "The cat sat on the mat."], thinking=thinking)
    torch.testing.assert_close(found, torch.cat(expected), rtol=0, atol=1e-4)  # float32 logits, padded and alone
    along = reply_margins(loaded, "cat", [7, 9], thinking=thinking)
    torch.testing.assert_close(along[0], found[0], rtol=0, atol=1e-4)


# --- counts


def test_replies_that_are_still_thinking_are_counted_and_kept(capsys: pytest.CaptureFixture[str]) -> None:
    measure = Refusals(Replies(("a", "b", "c"), 8, 4), EmbeddedJudge())
    written = [Written(f"<think>{REFUSAL}", True), Written(f"<think>Hm.</think>{REFUSAL}", True), Written(ANSWER, True)]
    found = measure.derive(written)
    assert (found.thinking, found.still_thinking) == ((True, False, False), 1)
    assert (found.refused, found.finished) == ((False, True, False), (False, True, True))
    stored = json.loads(json.dumps(measure.encode(found)))
    assert measure.decode(stored) == found
    del stored["thinking"]  # as versions before this one kept it
    assert measure.decode(stored).still_thinking is None
    assert measure.derive([written[1]] * 3).still_thinking == 0

    def told(*some: Refused) -> str:
        results = Results()
        for number, one in enumerate(some):
            results.keep(SimpleNamespace(key=str(number)), one)  # type: ignore[arg-type]
        say_unjudged(results)
        return " ".join(capsys.readouterr().err.split())

    count = "1 of 6 replies never came out of their thinking part: they count as unfinished, and as not refused"
    assert told(found, measure.derive([written[2]] * 3)).startswith(count)
    assert told(found, measure.decode(stored)).startswith(f"at least {count}")
    assert "thinking part" not in told(measure.decode(stored))


def test_what_the_template_began_stands_once_where_replies_are_read_again(tiny_llama: LoadedModel) -> None:
    r1, qwen = (templated(tiny_llama, one) for one in (R1, QWEN))
    reply = f"<think>\nHm.\n</think>\n{ANSWER}"
    [(ids, positions)] = Kl(("cat",), (reply,), 2)._sequences(r1, "")
    begun = opened(r1.tokenizer, prompt_ids(r1.tokenizer, "cat"))
    assert r1.tokenizer.decode(ids).count("<think>") == 1
    written = r1.tokenizer(reply.removeprefix(begun), add_special_tokens=False)["input_ids"]
    assert positions == len(written) + 1
    for thinking, count in ((False, 2), (True, 1)):  # off: an empty thinking part and the reply's own
        [(ids, _)] = Kl(("cat",), (reply,), 2, thinking=thinking)._sequences(qwen, "")
        assert qwen.tokenizer.decode(ids).count("<think>") == count


# --- runs


def test_a_run_records_the_mode_and_counts(
    tiny_llama: LoadedModel, tiny_text: Path, asked: list[str], tmp_path: Path
) -> None:
    text = {"scoring": ScorePlan(corpus=str(tiny_text), samples=2, length=16), "eval_corpus": str(tiny_text)}
    plan = RefusalPlan(selectors=("random",), pairs=asked[1], reply_tokens=4, eval_samples=2, eval_length=16, **text)
    with Store(tmp_path / "store") as store:

        def run(template: str, **changes: Any) -> RefusalInputs:
            chosen = dataclasses.replace(plan, **changes)
            return RefusalInputs(templated(tiny_llama, template), chosen, store, EmbeddedJudge())

        on, off, r1 = run(QWEN, thinking=True), run(QWEN), run(R1)
        assert on.plain.plan == off.plan
        specs = [one.spec(Results()) for one in (on, off, r1, run("{{ messages[0].content }}"))]
        begun = "begun by the chat template, which has no switch"
        assert [one.get("thinking_mode") for one in specs] == [
            "on (enable_thinking=True)", "off (enable_thinking=False)", begun, None,
        ]  # fmt: skip
        assert [one.get("thinking") for one in specs] == [True, None, None, None]
        assert on.calibration_spec["thinking_mode"] == "off (enable_thinking=False)"
        audited = [SweepReplies().record(SimpleNamespace(loaded=one.loaded)) for one in (off, r1)]  # type: ignore[arg-type]
        assert [one["thinking_mode"] for one in audited] == ["off (enable_thinking=False)", begun]
        told = [describe_run({}, {"spec": one}) for one in specs]
        assert [" · thinking " in one for one in told] == [True, True, True, False]
        pairs = [pair for some in r1.heldout.values() for pair in some]
        rates = r1.rates(LocalRunner(store).run([r1.on_pairs(UNEDITED, pairs)]), UNEDITED, pairs)
        # Four tokens do not come out of a thinking part that the template began.
        assert rates.malign.unfinished == rates.benign.unfinished == len(pairs) == 4
        assert rates.malign.count == rates.benign.count == 0
        keys = {one.on_pairs(UNEDITED, pairs).key for one in (on, off, r1)}
        assert len(keys) == 3
