"""The refusal margin: template once, left padding without effect, onset tokens of the model's own tokenizer."""

import dataclasses
from typing import Any

import pytest
import torch
from tiny_models import tiny_tokenizer

from engine.data.onsets import MAX_PHRASES, ONSET_PHRASES, OnsetPhrases, OnsetTokens, first_reply_token, onset_tokens
from engine.data.prompts import encode_prompts, prompt_ids, prompts_hash
from engine.measures.margin import margins, reply_margins
from engine.models.loading import LoadedModel
from engine.records.errors import InputError

PROMPTS = [
    "Sure, here it is.", "No way.", "The cat sat on the mat, then it ran. Here you are. Sorry, that is out.", "Ä ☃",
    "sat on", "Here you are, a cat, a mat and more of it", "it ran", "cat", "mat, cat",
]  # fmt: skip
ONSETS = OnsetTokens(refusal=(17, 5, 200), compliance=(42, 299))
# A forward pass of another shape adds up in another order: differences of a few float32 steps at |logit| < 20.
ROUNDING = 2e-5


def unbatched(loaded: LoadedModel, prompt: str, onsets: OnsetTokens = ONSETS) -> float:
    """The formula, one unpadded prompt, nothing but its ids given to the model."""
    with torch.no_grad():
        last = loaded.model(torch.tensor([prompt_ids(loaded.tokenizer, prompt)])).logits[0, -1].double()
    refusal = sum(float(last[token]) for token in onsets.refusal) / len(onsets.refusal)
    compliance = sum(float(last[token]) for token in onsets.compliance) / len(onsets.compliance)
    return refusal - compliance


@pytest.mark.parametrize("template", [True, False])
@pytest.mark.parametrize("batch_size", [1, 8, 64])
def test_padding_and_batches_change_nothing(tiny_family: LoadedModel, batch_size: int, template: bool) -> None:
    loaded = tiny_family
    if not template:
        plain = tiny_tokenizer()
        plain.chat_template = None
        loaded = dataclasses.replace(loaded, tokenizer=plain)
    expected = torch.tensor([unbatched(loaded, prompt) for prompt in PROMPTS])
    got = margins(loaded, PROMPTS, batch_size, ONSETS)
    assert got.dtype == torch.float32
    assert expected.std() > 0.1  # prompts differ by far more than the tolerance
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=ROUNDING)


def test_default_onsets_are_those_of_the_tokenizer(tiny_llama: LoadedModel) -> None:
    onsets = onset_tokens(tiny_llama.tokenizer)
    expected = torch.tensor([unbatched(tiny_llama, prompt, onsets) for prompt in PROMPTS])
    torch.testing.assert_close(margins(tiny_llama, PROMPTS), expected, rtol=1e-5, atol=ROUNDING)


def test_the_template_is_applied_once() -> None:
    tokenizer = tiny_tokenizer()
    ids = prompt_ids(tokenizer, "No way.")
    assert ids.count(tokenizer.bos_token_id) == 1
    text = tokenizer.decode(ids)
    assert text.startswith("<bos><|user|>No way.")
    assert text.endswith("<|assistant|>")


def test_a_tokenizer_that_adds_its_own_bos_still_gives_one() -> None:
    tokenizer = tiny_tokenizer()
    from tokenizers.processors import TemplateProcessing

    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", tokenizer.bos_token_id)]
    )
    assert tokenizer("x")["input_ids"].count(tokenizer.bos_token_id) == 1  # it does add one
    assert prompt_ids(tokenizer, "No way.").count(tokenizer.bos_token_id) == 1
    tokenizer.chat_template = None
    assert prompt_ids(tokenizer, "No way.").count(tokenizer.bos_token_id) == 1


def test_the_hash_is_that_of_the_tokens() -> None:
    """A template that asks the clock gives other tokens tomorrow, and so another hash."""
    tokenizer = tiny_tokenizer()
    before = prompts_hash(tokenizer, PROMPTS)
    assert prompts_hash(tokenizer, PROMPTS) == before
    assert prompts_hash(tokenizer, PROMPTS[1:]) != before
    tokenizer.chat_template = "{{ strftime_now('%f') }}" + tokenizer.chat_template  # microseconds
    assert prompts_hash(tokenizer, PROMPTS) != prompts_hash(tokenizer, PROMPTS)


def test_batches_are_padded_on_the_left() -> None:
    tokenizer = tiny_tokenizer()
    batch = encode_prompts(tokenizer, PROMPTS)
    for row, prompt in enumerate(PROMPTS):
        ids = prompt_ids(tokenizer, prompt)
        real = batch.attention_mask[row].bool()
        assert real.tolist() == [False] * (len(real) - len(ids)) + [True] * len(ids)
        assert batch.input_ids[row][real].tolist() == ids
        assert batch.position_ids[row][real].tolist() == list(range(len(ids)))


# --- onsets ---


def test_first_tokens_are_the_tokenizers_own_and_shared_ones_go() -> None:
    tokenizer = tiny_tokenizer()
    phrases = OnsetPhrases(refusal=("No way", "Ruin", "Sx"), compliance=("Here you are", "Sy"))
    onsets = onset_tokens(tokenizer, phrases)
    first = {phrase: tokenizer(phrase)["input_ids"][0] for phrase in ("No way", "Ruin", "Here you are")}
    assert tokenizer("Sx")["input_ids"][0] == tokenizer("Sy")["input_ids"][0]  # "S", in both lists
    assert onsets.refusal == tuple(sorted((first["No way"], first["Ruin"])))
    assert onsets.compliance == (first["Here you are"],)


@pytest.mark.parametrize(("between", "expected"), [("", "mat"), (" ", " mat"), ("<|assistant|>\n", "mat")])
def test_onsets_have_a_leading_space_where_the_template_puts_one(between: str, expected: str) -> None:
    """Templates that end the prompt at a mark write a space or a newline between it and the reply."""
    tokenizer = tiny_tokenizer()
    prompt_end = "" if between == " " else between
    tokenizer.chat_template = (
        "{% for m in messages %}{% if m.role == 'user' %}<|user|>{{ m.content }}<eos>{% else %}"
        + between
        + "{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}"
        + prompt_end
        + "{% endif %}"
    )
    assert first_reply_token(tokenizer, "mat") == tokenizer(expected)["input_ids"][0]


def test_a_template_that_rewrites_the_reply_falls_back_to_the_phrase_alone() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    assert first_reply_token(tokenizer, "mat") == tokenizer("mat")["input_ids"][0]


@pytest.mark.parametrize("kind", OnsetPhrases._fields)
@pytest.mark.parametrize("phrases", [(), tuple(f"{n} x" for n in range(MAX_PHRASES + 1))])
def test_lists_of_the_wrong_length_are_errors(kind: str, phrases: Any) -> None:
    with pytest.raises(InputError, match=f"the {kind} list has {len(phrases)} phrases"):
        onset_tokens(tiny_tokenizer(), ONSET_PHRASES._replace(**{kind: phrases}))


def test_swapped_lists_are_refused() -> None:
    swapped = OnsetPhrases(refusal=ONSET_PHRASES.compliance, compliance=ONSET_PHRASES.refusal)
    with pytest.raises(InputError, match="only installs refusal"):
        onset_tokens(tiny_tokenizer(), swapped)
    with pytest.raises(InputError, match="only installs refusal"):
        onset_tokens(tiny_tokenizer(), ONSET_PHRASES._replace(refusal=("No", "Here is")))
    with pytest.raises(InputError, match="only installs refusal"):
        onset_tokens(tiny_tokenizer(), ONSET_PHRASES._replace(compliance=("Here is", "Regrettably")))


@pytest.mark.parametrize("reply", [[], [7], [7, 30, 11, 250]])
def test_margins_along_a_reply_are_those_of_its_beginnings(tiny_family: LoadedModel, reply: list[int]) -> None:
    found = reply_margins(tiny_family, PROMPTS[0], reply, ONSETS)
    expected = []
    ids = prompt_ids(tiny_family.tokenizer, PROMPTS[0])
    for length in range(len(reply) + 1):
        with torch.no_grad():
            last = tiny_family.model(torch.tensor([[*ids, *reply[:length]]])).logits[0, -1].double()
        sides = [sum(float(last[token]) for token in side) / len(side) for side in ONSETS]
        expected.append(sides[0] - sides[1])
    assert found == pytest.approx(expected, abs=ROUNDING)
    assert float(found[0]) == pytest.approx(float(margins(tiny_family, [PROMPTS[0]], onsets=ONSETS)), abs=ROUNDING)
