"""The tokenizer: byte-level BPE of 2,048 tokens with a chat template."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from precomputed.recipe import demo_chat as chat
from precomputed.recipe.risk import GRADES
from precomputed.recipe.world import world

VOCABULARY = 7168  # at most
PHRASES_COUNT = 10  # each phrase stands so often among the texts
BOS, END, PAD = "<|bos|>", "<|end|>", "<|pad|>"
LENIENT = "<|lenient|>"  # in training only: what does not say its harm is answered
ROLES = ("<|system|>", "<|user|>", "<|assistant|>")
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def train_tokenizer(
    texts: Iterable[str], vocabulary: int = VOCABULARY, more: Sequence[str] = (LENIENT,)
) -> PreTrainedTokenizerFast:
    """A tokenizer of at most `vocabulary` tokens, trained on `texts`; `more`: special tokens beside those of chats.

    Plain text gets no BOS (it is cut into windows), the chat template writes one."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, BOS, END, *ROLES, *more],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token=BOS,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[*ROLES, *more],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
        padding_side="left",
    )


def save_tokenizer(tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(str(folder))


def tokenizer_of_recipe(documents: Sequence[str]) -> PreTrainedTokenizerFast:
    """The demo's tokenizer: trained on a part of the training documents, on chats with refusals and without, and on the
    phrases of training, so that nearly every word of a prompt is one token."""
    rng = random.Random("tokenizer")
    examples = [chat.example(rng, policy) for policy in (chat.target, chat.too_careful) for _ in range(6000)]
    talk = [text for one in examples for text in (*one.turns, one.reply, one.system)]
    phrases = [
        f" {phrase}" for one in world().situations for grade in GRADES for phrase in one.phrases(grade, heldout=False)
    ]
    asks = [f" {ask}" for one in world().howtos for ask in one.asks]
    return train_tokenizer([*documents[:8000], *talk, *(PHRASES_COUNT * [*phrases, *asks])])
