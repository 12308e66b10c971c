"""Greedy generation: against transformers' `generate`, in batches, as a stream, under a mask."""

import dataclasses
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_models import tiny_tokenizer
from torch import Tensor, nn

from engine.data.prompts import prompt_ids
from engine.edits.edit import UNEDITED
from engine.interventions.in_weights import zeroed
from engine.measures.generation import generate_batch, stream_replies
from engine.models.loading import LoadedModel
from engine.records.errors import InputError

PROMPTS = [
    "Sure, here it is.", "No way.", "The cat sat on the mat, then it ran. Here you are. Sorry, that is out.", "Ä ☃",
    "sat on", "Here you are, a cat, a mat and more of it", "it ran",
]  # fmt: skip
NEW = 14


def stream_reply(
    loaded: LoadedModel, prompt: str, max_new_tokens: int, on_token: Callable[[int], None] = lambda _: None
) -> Iterator[str]:
    """The unedited model's reply in pieces."""
    with closing(
        stream_replies(loaded, prompt, [UNEDITED], max_new_tokens, lambda _, token: on_token(token))
    ) as pieces:
        for _, piece in pieces:
            if isinstance(piece, str):
                yield piece


@contextmanager
def end_tokens(loaded: LoadedModel, ends: list[int] | None) -> Iterator[None]:
    config = loaded.model.generation_config
    before = config.eos_token_id
    config.eos_token_id = ends
    try:
        yield
    finally:
        config.eos_token_id = before


def generated(loaded: LoadedModel, prompt: str, ends: list[int] | None) -> list[int]:
    """The reply's tokens, from `generate` on the unpadded prompt."""
    ids = torch.tensor([prompt_ids(loaded.tokenizer, prompt)])
    with end_tokens(loaded, ends):
        out = loaded.model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NEW, pad_token_id=2
        )
    return out[0, ids.shape[1] :].tolist()


def reference(loaded: LoadedModel, prompt: str, ends: list[int] | None) -> tuple[str, int, bool]:
    """Text, tokens and whether it ended by itself."""
    reply = generated(loaded, prompt, ends)
    finished = bool(ends) and reply[-1] in (ends or [])
    reply = reply[:-1] if finished else reply
    text = loaded.tokenizer.decode(reply, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text, len(reply), finished


def frequent_tokens(loaded: LoadedModel) -> list[int]:
    """Tokens that this random model often says, of which some replies hold none: useful ends."""
    replies = [generated(loaded, prompt, None) for prompt in PROMPTS[:3]]
    return [replies[0][5], replies[1][2], replies[2][9]]


def test_equals_generate_token_for_token_in_every_family(tiny_family: LoadedModel) -> None:
    for ends in (None, frequent_tokens(tiny_family)):
        expected = [reference(tiny_family, prompt, ends) for prompt in PROMPTS]
        with end_tokens(tiny_family, ends):
            replies = generate_batch(tiny_family, PROMPTS, NEW, batch_size=4)
        assert [(reply.text, reply.tokens, reply.finished) for reply in replies] == expected
    assert any(finished for _, _, finished in expected)


@pytest.mark.parametrize("batch_size", [1, 3, 7, 64])
def test_batch_size_changes_nothing(tiny_llama: LoadedModel, batch_size: int) -> None:
    ends = frequent_tokens(tiny_llama)
    with end_tokens(tiny_llama, ends):
        replies = generate_batch(tiny_llama, PROMPTS, NEW, batch_size=batch_size)
    expected = [reference(tiny_llama, prompt, ends) for prompt in PROMPTS]
    assert [(reply.text, reply.tokens, reply.finished) for reply in replies] == expected
    assert all(reply.seconds > 0 for reply in replies)


def test_stream_joins_to_the_batch_text(tiny_family: LoadedModel) -> None:
    ends = frequent_tokens(tiny_family)
    with end_tokens(tiny_family, ends):
        for prompt, reply in zip(PROMPTS, generate_batch(tiny_family, PROMPTS, NEW), strict=True):
            assert "".join(stream_reply(tiny_family, prompt, NEW)) == reply.text


class Scripted(nn.Module):
    """A "model" that says given tokens whatever it reads, and counts its passes."""

    def __init__(self, script: list[int], ends: list[int] | int | None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(300, 2)
        self.script = script
        self.passes = 0
        self.generation_config = SimpleNamespace(eos_token_id=ends)
        self.config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(max_position_embeddings=128))

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embedding

    def forward(self, input_ids: Tensor, **_: Any) -> SimpleNamespace:
        logits = torch.zeros(len(input_ids), 1, 300)
        logits[:, :, self.script[self.passes]] = 1
        self.passes += 1
        return SimpleNamespace(logits=logits, past_key_values=None)


def scripted(text: str, ends: list[int] | int | None, then: list[int]) -> Any:
    tokenizer = tiny_tokenizer()
    script = tokenizer(text)["input_ids"] + then + [5] * 20
    return SimpleNamespace(model=Scripted(script, ends), tokenizer=tokenizer, lock=threading.RLock())


TEXT = "Sorry: naïve ☃ snow 🙂 ok"


@pytest.mark.parametrize(("ends", "then"), [([7, 1], [1]), ([7, 1], [7]), (7, [7]), (None, [1])])
def test_stops_at_any_end_token(ends: list[int] | int | None, then: list[int]) -> None:
    loaded = scripted(TEXT, ends, then)
    [reply] = generate_batch(loaded, ["hi"], 100)
    assert (reply.text, reply.finished) == (TEXT, True)
    assert reply.tokens == len(loaded.tokenizer(TEXT)["input_ids"])
    assert loaded.model.passes == reply.tokens + 1  # one pass per token, the end's included, and none after it


def test_stream_shows_characters_whole() -> None:
    loaded = scripted(TEXT, [7], [7])
    pieces = list(stream_reply(loaded, "hi", 100))
    assert "".join(pieces) == TEXT
    assert all("\N{REPLACEMENT CHARACTER}" not in piece for piece in pieces)
    assert "🙂" in pieces  # its four tokens make one piece
    assert loaded.model.passes == len(loaded.tokenizer(TEXT)["input_ids"]) + 1


def test_a_stream_makes_no_pass_before_it_is_asked() -> None:
    loaded = scripted(TEXT, [7], [7])
    pieces = stream_reply(loaded, "hi", 100)
    assert all(next(pieces) for _ in range(3))
    assert loaded.model.passes == 3


def test_finished_sequences_leave_the_batch(tiny_llama: LoadedModel) -> None:
    ends = frequent_tokens(tiny_llama)
    sizes: list[int] = []
    handle = tiny_llama.model.register_forward_pre_hook(
        lambda _, __, kwargs: sizes.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    try:
        with end_tokens(tiny_llama, ends):
            generate_batch(tiny_llama, PROMPTS, NEW)
    finally:
        handle.remove()
    assert sizes[0] == len(PROMPTS)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < sizes[0]


def test_works_under_a_mask_and_leaves_nothing_behind(tiny_llama: LoadedModel) -> None:
    before = generate_batch(tiny_llama, PROMPTS, NEW)
    with zeroed(tiny_llama, range(0, tiny_llama.rows.n_rows, 2)):
        inside = generate_batch(tiny_llama, PROMPTS, NEW)
        assert "".join(stream_reply(tiny_llama, PROMPTS[0], NEW)) == inside[0].text
    after = generate_batch(tiny_llama, PROMPTS, NEW)
    assert [reply.text for reply in before] == [reply.text for reply in after]
    assert [reply.text for reply in before] != [reply.text for reply in inside]
    assert not any(module._forward_hooks for module in tiny_llama.model.modules())


def test_base_models_get_user_and_assistant_as_plain_text(tiny_llama: LoadedModel) -> None:
    plain = tiny_tokenizer()
    plain.chat_template = None
    loaded = dataclasses.replace(tiny_llama, tokenizer=plain)
    assert prompt_ids(plain, "No way.") == plain("User: No way.\n\nAssistant:")["input_ids"]
    dialogue = "User: No way.\n\nAssistant: Why?\n\nUser: So.\n\nAssistant: Well."
    assert prompt_ids(plain, ("No way.", "Why?", "So."), "Well.") == plain(dialogue)["input_ids"]
    expected = [reference(loaded, prompt, None)[0] for prompt in PROMPTS]
    with end_tokens(loaded, []):
        assert [reply.text for reply in generate_batch(loaded, PROMPTS, NEW)] == expected


def test_wrong_input_is_a_clear_error(tiny_llama: LoadedModel) -> None:
    with pytest.raises(InputError, match="context of 128"):
        generate_batch(tiny_llama, ["cat " * 100], 200)
    with pytest.raises(InputError, match="context of 128"):
        next(stream_reply(tiny_llama, "hi", 128))
    with pytest.raises(InputError, match="empty"):
        generate_batch(tiny_llama, ["fine", " \n"], 2)
    with pytest.raises(InputError, match="at least 1, got 0"):
        generate_batch(tiny_llama, ["fine"], 0)
    with pytest.raises(InputError, match="batch size"):
        generate_batch(tiny_llama, ["fine"], 2, batch_size=0)


def test_a_stream_tells_the_tokens_of_its_reply(tiny_llama: LoadedModel) -> None:
    expected = generated(tiny_llama, PROMPTS[0], None)
    with end_tokens(tiny_llama, [expected[5]]):
        told: list[int] = []
        list(stream_reply(tiny_llama, PROMPTS[0], NEW, on_token=told.append))
    assert told == expected[: expected.index(expected[5])]
