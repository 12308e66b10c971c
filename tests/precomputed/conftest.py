"""A small model of the recipe with its tokenizer and texts."""

import random

import pytest
import torch
from small_recipe import SMALL

from precomputed.recipe import demo_chat as chat, prose
from precomputed.recipe.data import stream
from precomputed.recipe.tokenizer import train_tokenizer
from precomputed.recipe.train import new_model


@pytest.fixture(scope="module")
def examples():
    rng = random.Random(0)
    return [chat.example(rng, chat.target, risk_share=0.5) for _ in range(300)]


@pytest.fixture(scope="module")
def tokenizer(examples):
    torch.set_num_threads(1)
    talk = [text for one in examples for text in (*one.turns, one.reply, one.system)]
    return train_tokenizer(prose.corpus(12, 60_000, set()) + talk)


@pytest.fixture(scope="module")
def tokens(tokenizer):
    return stream(tokenizer, prose.corpus(13, 30_000, set()))


@pytest.fixture
def model(tokenizer):
    return new_model(tokenizer, SMALL, 0)
