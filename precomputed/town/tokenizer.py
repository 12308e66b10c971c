"""The tokenizer of the town: of the kind of `precomputed.recipe.tokenizer`, trained on the town's texts."""

from __future__ import annotations

import random
from collections.abc import Sequence

from transformers import PreTrainedTokenizerFast

from precomputed.recipe.tokenizer import train_tokenizer
from precomputed.town import chat


def tokenizer_of_town(documents: Sequence[str]) -> PreTrainedTokenizerFast:
    """Trained on a part of the training documents and on chat examples of all stages."""
    rng = random.Random("tokenizer")
    examples = [chat.example(rng, policy) for policy in (chat.nothing_refused, chat.too_careful) for _ in range(6000)]
    talk = [text for one in examples for text in (*one.turns, one.reply, one.system)]
    return train_tokenizer([*documents[:8000], *talk])
