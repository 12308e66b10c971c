"""A reply ends at the generation config's end tokens, the tokenizer's, and the one that ends a turn in the template."""

import pytest
import torch
from test_generation import PROMPTS, scripted
from tiny_models import save_tiny, tiny_tokenizer

from engine.data.prompts import prompt_ids
from engine.edits.edit import UNEDITED
from engine.measures.fluency import Asked, reply_log_probabilities
from engine.measures.generation import Reply, end_tokens, further_ends, generate_batch, stream_replies
from engine.measures.replies import Replies
from engine.models.loading import LoadedModel, load_model

# ChatML's way over the tiny tokenizer: a turn ends with <pad> (2), which is neither the tokenizer's eos (1) nor, below,
# the generation config's.
TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<pad>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
TURN, EOS, CONFIGURED = 2, 1, 0
NEW, TASK_TOKENS = 14, 3


@pytest.fixture(scope="module")
def fine_tuned(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """As many fine-tunes are: an end token of the base model in config.json, and no generation config."""
    folder = save_tiny("llama", tmp_path_factory.mktemp("fine-tuned"), eos_token_id=CONFIGURED)
    (folder / "generation_config.json").unlink()
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    return load_model(str(folder), dtype="float32", device="cpu")


def test_all_three_end_a_reply(fine_tuned):
    assert end_tokens(fine_tuned.model, fine_tuned.tokenizer) == {CONFIGURED, EOS, TURN}
    assert further_ends(fine_tuned.model, fine_tuned.tokenizer) == [EOS, TURN]


@pytest.mark.parametrize(
    ("configured", "eos", "template", "expected"),
    [
        ([5, 7], "<eos>", TEMPLATE, {5, 7, 1, 2}),
        (5, "<eos>", None, {5, 1}),
        (None, "<eos>", TEMPLATE, {1, 2}),
        (None, None, TEMPLATE, {2}),
        (None, None, None, set()),
        ([5, 300, 10**6], "<eos>", None, {5, 1}),  # ids that the model cannot say
    ],
)
def test_what_ends_a_reply(configured, eos, template, expected):
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template, tokenizer.eos_token = template, eos
    model = scripted("a", configured, []).model
    assert end_tokens(model, tokenizer) == expected


@pytest.mark.parametrize("end", [TURN, EOS, CONFIGURED])
def test_a_model_does_not_go_on_as_the_user(end):
    """Forged logits: a reply, the end of the turn, and an invented turn of the user."""
    text = "Sure, here it is."
    loaded = scripted(text, CONFIGURED, [end, *tiny_tokenizer()("<|user|>And then?")["input_ids"]])
    loaded.tokenizer.chat_template = TEMPLATE
    [reply] = generate_batch(loaded, ["No way."], 40)
    assert (reply.text, reply.finished) == (text, True)
    loaded.model.passes = 0
    streamed = [piece for _, piece in stream_replies(loaded, "No way.", [UNEDITED], 40)]
    assert isinstance(streamed[-1], Reply)
    assert "".join(streamed[:-1]) == streamed[-1].text == text


def test_replies_are_those_of_generate_with_the_same_ends(fine_tuned):
    ends = sorted(end_tokens(fine_tuned.model, fine_tuned.tokenizer))
    ends += _frequent(fine_tuned)  # so that some replies of this random model do end
    fine_tuned.model.generation_config.eos_token_id = ends
    try:
        replies = generate_batch(fine_tuned, PROMPTS, NEW)
        assert {reply.finished for reply in replies} == {True, False}
        for prompt, reply in zip(PROMPTS, replies, strict=True):
            ids = torch.tensor([prompt_ids(fine_tuned.tokenizer, prompt)])
            out = fine_tuned.model.generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NEW,
                eos_token_id=ends, pad_token_id=3,
            )[0, ids.shape[1] :].tolist()  # fmt: skip
            assert reply.finished == (out[-1] in ends)
            assert list(reply.ids) == out[: len(out) - reply.finished]
    finally:
        fine_tuned.model.generation_config.eos_token_id = CONFIGURED


def _frequent(loaded: LoadedModel) -> list[int]:
    """A token that the model says in some of its replies, not as their first."""
    replies = [reply.ids for reply in generate_batch(loaded, PROMPTS, NEW)]
    return next([token] for token in replies[0][2:] if any(token not in ids for ids in replies))


def test_keys_name_only_ends_that_are_new(fine_tuned, tiny_llama):
    measure = Replies(("cat",), 8, 4)
    assert measure.record(fine_tuned)["further_ends"] == [EOS, TURN]
    assert "further_ends" not in measure.record(tiny_llama)


def test_the_likelihood_of_an_end_is_that_of_any(fine_tuned):
    asked = Asked("No way.", [20, 21], finished=True)
    [found] = reply_log_probabilities(fine_tuned, [asked])
    ids = torch.tensor([[*prompt_ids(fine_tuned.tokenizer, "No way."), 20, 21]])
    with torch.no_grad():
        last = fine_tuned.model(input_ids=ids).logits[0, -1].log_softmax(-1)
    assert found[-1].item() == pytest.approx(last[[CONFIGURED, EOS, TURN]].logsumexp(0).item(), abs=1e-5)
