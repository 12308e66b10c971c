"""A system prompt: in what the model reads, in the key, in the plan; and a template without one says so."""

import dataclasses
import hashlib
import json
from pathlib import Path

import pytest
import torch
from tiny_models import tiny_tokenizer

from engine.data.prompts import encode_prompts, prompt_ids, prompts_hash
from engine.edits.edit import UNEDITED, edit_of
from engine.judges.embedded import EmbeddedJudge
from engine.measures.generation import generate_batch, generate_under
from engine.measures.replies import Replies
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.results.store import Store
from engine.run.refusal_plan import RefusalPlan
from engine.run.runner import Cell
from engine.studies.refusal.refusal_inputs import RefusalInputs

PROMPTS = ("No way.", "The cat sat on the mat, then it ran.", "sat on")
SYSTEM = "Sorry, that is out."
NEW = 8
# As Gemma's: no turn of its own, the text stands before the user's.
MERGED = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{% set first = messages[0].content | trim ~ '\n\n' %}"
    "{% set rest = messages[1:] %}{% else %}{% set first = '' %}{% set rest = messages %}{% endif %}"
    "{% for m in rest %}<|{{ m.role }}|>{{ first if loop.first else '' }}{{ m.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
# As older ones: an error, or nothing.
REFUSING = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
BEGUN = "{% if add_generation_prompt %}<|assistant|>{% endif %}"
DROPPING = (
    "{{ bos_token }}{% for m in messages if m.role != 'system' %}<|{{ m.role }}|>{{ m.content }}{% endfor %}" + BEGUN
)
# Writes its own text in the place of the one that is given.
OWN = (
    "<|system|>Sorry, that is out.{% for m in messages if m.role == 'user' %}<|user|>{{ m.content }}{% endfor %}"
    + BEGUN
)


def reply_of(loaded: LoadedModel, prompt: str, system: str) -> str:
    """By `generate` on what the template gives for two turns."""
    turns = [{"role": "system", "content": system}, {"role": "user", "content": prompt}]
    ids = loaded.tokenizer.apply_chat_template(
        turns, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
    )["input_ids"]
    out = loaded.model.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NEW, pad_token_id=2
    )  # fmt: skip
    return loaded.tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True, clean_up_tokenization_spaces=False)


@pytest.mark.parametrize("template", [None, MERGED])
def test_the_text_is_in_what_the_model_reads(template: str | None) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = template or tokenizer.chat_template
    text = tokenizer.decode(prompt_ids(tokenizer, PROMPTS[0], system=SYSTEM))
    assert text.index(SYSTEM) < text.index(PROMPTS[0]) < text.index("<|assistant|>")
    assert text.count("<bos>") == 1
    assert SYSTEM not in tokenizer.decode(prompt_ids(tokenizer, PROMPTS[0]))
    batch = encode_prompts(tokenizer, PROMPTS, system=SYSTEM)
    assert batch.input_ids[1].tolist() == prompt_ids(tokenizer, PROMPTS[1], system=SYSTEM)  # the longest: no padding


@pytest.mark.parametrize(
    ("template", "says"),
    [
        (REFUSING, r"refuses it \(System role not supported\)"),
        (DROPPING, "leaves it out"),
        (OWN, "leaves it out"),
        (None, "has no chat template"),
    ],
)
def test_a_template_without_a_system_turn_says_so(template: str | None, says: str) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = template
    prompt_ids(tokenizer, PROMPTS[0])  # without one all is well
    with pytest.raises(InputError, match=says):
        prompt_ids(tokenizer, PROMPTS[0], system=SYSTEM)


def test_a_prompt_that_holds_the_text_does_not_hide_that_it_is_left_out() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = DROPPING
    with pytest.raises(InputError, match="leaves it out"):
        prompt_ids(tokenizer, f"Hello. {SYSTEM}", system=SYSTEM)


def test_replies_are_those_to_both_turns(tiny_family: LoadedModel) -> None:
    expected = [reply_of(tiny_family, prompt, SYSTEM) for prompt in PROMPTS]
    replies = generate_batch(tiny_family, PROMPTS, NEW, system=SYSTEM)
    assert [one.text for one in replies] == expected
    assert expected != [one.text for one in generate_batch(tiny_family, PROMPTS, NEW)]


def test_the_measure_gives_it_to_every_edit(tiny_llama: LoadedModel) -> None:
    edits = [UNEDITED, edit_of(range(0, tiny_llama.rows.n_rows, 3), tiny_llama.rows.n_rows)]
    measure = Replies(PROMPTS, NEW, 4, SYSTEM)
    found = measure.measure_each(tiny_llama, edits)
    expected = generate_under(tiny_llama, edits, PROMPTS, NEW, 4, system=SYSTEM)
    assert [[one.text for one in replies] for replies in found] == [[one.text for one in some] for some in expected]
    assert [one.text for one in measure.measure(tiny_llama, UNEDITED)] == [one.text for one in expected[0]]


def test_it_changes_the_key_and_without_one_the_key_is_what_it_was(tiny_llama: LoadedModel) -> None:
    tokenizer = tiny_llama.tokenizer
    plain, other = Replies(PROMPTS, NEW, 4), Replies(PROMPTS, NEW, 4, SYSTEM)
    ids = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], add_generation_prompt=True, return_dict=True
        )["input_ids"]
        for prompt in PROMPTS
    ]
    before = hashlib.sha256(json.dumps(ids).encode()).hexdigest()
    assert prompts_hash(tokenizer, PROMPTS) == before
    assert plain.record(tiny_llama) == {"prompts": before, "reply_tokens": NEW, "batch_size": 4, "together": 1}
    keys = {Cell(tiny_llama, UNEDITED, one).key for one in (plain, other, dataclasses.replace(plain, system="No."))}
    assert len(keys) == 3


def test_the_plan_gives_it_to_replies_and_not_to_what_lets_an_edit_leave(tiny_llama: LoadedModel, tmp_path: Path):
    with Store(tmp_path / "store") as store:
        run = RefusalInputs(tiny_llama, RefusalPlan(system=SYSTEM), store, EmbeddedJudge())
        assert run.replies(UNEDITED, PROMPTS).measure.system == SYSTEM
        assert run.refused(UNEDITED, PROMPTS).measure.base.system == SYSTEM
        assert run.plain.replies(UNEDITED, PROMPTS).measure.system == ""
        assert run.plain.plain is run.plain
