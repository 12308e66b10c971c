"""The tokenizer of the shipped model: that of `precomputed.town.tokenizer`, trained on this recipe's text."""

from __future__ import annotations

import random
from collections.abc import Sequence

from transformers import PreTrainedTokenizerFast

from precomputed.recipe import chat
from precomputed.recipe.behaviour import Prompt
from precomputed.town.tokenizer import train_tokenizer


def _some_refused(prompt: Prompt) -> bool:
    """Refusals and answers in every style, so that the tokenizer sees both."""
    from_level = {"hate": 1, "crime": 2, "adult": 3, "medical": 4, "legal": 5}
    return prompt.risk and prompt.level >= from_level[prompt.domain]


def tokenizer_of_recipe(documents: Sequence[str]) -> PreTrainedTokenizerFast:
    """The demo's tokenizer: trained on a part of the training documents and on chat examples of all stages."""
    rng = random.Random("tokenizer")
    examples = [chat.example(rng, policy) for policy in (chat.nothing_refused, _some_refused) for _ in range(3000)]
    talk = [text for example in examples for text in (example.prompt, example.reply)]
    return train_tokenizer([*documents[:6000], *talk])
