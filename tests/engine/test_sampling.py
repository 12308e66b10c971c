"""Sampled replies: the draw, where its numbers come from, and rates over several replies to each prompt."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import scipy.stats
import torch
from scipy.stats import chisquare

from engine.data.prompts import Prompt, prompt_ids
from engine.edits.edit import UNEDITED, edit_of
from engine.measures.generation import generate_batch, generate_under
from engine.measures.replies import Replies
from engine.measures.sampling import Sampling, drawn
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.run.runner import Cell
from engine.stats.uncertainty import clustered_wilson, wilson

PROMPTS: tuple[Prompt, ...] = (
    "No way.",
    "The cat sat on the mat, then it ran. Here you are.",
    "sat on",
    ("Here you are", "a cat", "a mat and more of it"),
    "it ran",
)
NEW = 10
ONE = Sampling(1.0, seed=3)


def slow_reply(loaded: LoadedModel, prompt: Prompt, sampling: Sampling) -> str:
    """One pass over the whole unpadded text per token; the sum of probabilities in a loop."""
    ids = prompt_ids(loaded.tokenizer, prompt)
    start, numbers = len(ids), sampling.numbers(prompt)
    ends = loaded.model.generation_config.eos_token_id
    for _ in range(NEW):
        with torch.no_grad():
            logits = loaded.model(torch.tensor([ids])).logits[0, -1].double() / sampling.temperature
        weights = [math.exp(float(one - logits.max())) for one in logits]
        left = numbers.random() * sum(weights)
        token = -1
        while left >= 0:
            token += 1
            left -= weights[token]
        if token in (ends if isinstance(ends, list) else [ends]):
            break
        ids.append(token)
    return loaded.tokenizer.decode(ids[start:], skip_special_tokens=True, clean_up_tokenization_spaces=False)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_tokens_come_as_often_as_their_probability_says(temperature: float) -> None:
    logits = torch.tensor([2.0, -1.0, 0.5, -math.inf, 1.0])
    numbers = np.random.default_rng(0).random(20_000)
    found = drawn(logits.expand(len(numbers), -1), temperature, numbers.tolist())
    counts = torch.bincount(found, minlength=5).tolist()
    expected = torch.softmax(logits / temperature, -1).double() * len(numbers)
    assert counts[3] == 0  # of probability 0
    there = [0, 1, 2, 4]
    expected = expected[there] / expected[there].sum() * len(numbers)
    assert chisquare([counts[i] for i in there], expected.numpy()).pvalue > 0.01


@pytest.mark.parametrize(("number", "token"), [(0.0, 1), (0.24, 1), (0.26, 3), (0.999999, 3)])
def test_the_first_token_whose_sum_exceeds_the_number(number: float, token: int) -> None:
    logits = torch.tensor([[-math.inf, 0.0, -math.inf, math.log(3), -math.inf]])  # 0, 1/4, 0, 3/4, 0
    assert drawn(logits, 1.0, [number]).tolist() == [token]


@pytest.mark.long
def test_replies_are_those_of_the_slow_loop(tiny_family: LoadedModel) -> None:
    for sampling in (ONE, Sampling(0.7, seed=1, sample=2)):
        replies = generate_batch(tiny_family, PROMPTS, NEW, batch_size=3, sampling=sampling)
        assert [one.text for one in replies] == [slow_reply(tiny_family, prompt, sampling) for prompt in PROMPTS]


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_a_reply_does_not_depend_on_its_batch(tiny_llama: LoadedModel, batch_size: int) -> None:
    whole = [one.text for one in generate_batch(tiny_llama, PROMPTS, NEW, sampling=ONE)]
    backwards = generate_batch(tiny_llama, PROMPTS[::-1], NEW, batch_size, sampling=ONE)
    assert [one.text for one in backwards] == whole[::-1]
    [alone] = generate_batch(tiny_llama, PROMPTS[3:4], NEW, batch_size, sampling=ONE)
    assert alone.text == whole[3]
    assert whole != [one.text for one in generate_batch(tiny_llama, PROMPTS, NEW)]


def test_the_same_seed_gives_the_same_and_another_seed_or_sample_another(tiny_llama: LoadedModel) -> None:
    def texts(sampling: Sampling) -> list[str]:
        return [one.text for one in generate_batch(tiny_llama, PROMPTS, NEW, sampling=sampling)]

    assert texts(ONE) == texts(Sampling(1.0, seed=3, sample=0))
    assert len({tuple(texts(one)) for one in (ONE, Sampling(1.0, 4), Sampling(1.0, 3, 1), Sampling(2.0, 3))}) == 4
    cold = generate_batch(tiny_llama, PROMPTS, NEW, sampling=Sampling(1e-4))
    assert [one.text for one in cold] == [one.text for one in generate_batch(tiny_llama, PROMPTS, NEW)]


def test_every_edit_meets_the_same_numbers(tiny_llama: LoadedModel) -> None:
    n = tiny_llama.rows.n_rows
    edits = [UNEDITED, edit_of(range(0, n, 3), n), UNEDITED]
    before, after, again = (
        [one.text for one in replies] for replies in generate_under(tiny_llama, edits, PROMPTS, NEW, 4, sampling=ONE)
    )
    assert before == again != after
    one, other = ONE.numbers(PROMPTS[0]), ONE.numbers(PROMPTS[0])
    assert [one.random() for _ in range(5)] == [other.random() for _ in range(5)]
    assert ONE.numbers(("a", "b", "c")).random() == ONE.numbers(("a", "another reply", "c")).random()


def test_all_that_changes_a_reply_is_in_the_key(tiny_llama: LoadedModel) -> None:
    measure = Replies(PROMPTS, NEW, 4, sampling=ONE)
    changes = [{"sampling": one} for one in (None, Sampling(2.0, 3), Sampling(1.0, 4), Sampling(1.0, 3, 1))]
    all_of_them = [measure, *(dataclasses.replace(measure, **change) for change in changes)]
    assert len({Cell(tiny_llama, UNEDITED, one).key for one in all_of_them}) == 5
    assert "sampling" not in Replies(PROMPTS, NEW, 4).record(tiny_llama)


@pytest.mark.parametrize(("given", "says"), [((0.0,), "above 0"), ((math.nan,), "above 0"), ((1.0, -1), "0 or more")])
def test_what_cannot_be_drawn_from_is_an_error(given: tuple, says: str) -> None:
    with pytest.raises(InputError, match=says):
        Sampling(*given)


# --- rates over replies ---


def test_one_reply_per_prompt_is_wilsons_interval() -> None:
    for successes in ([1, 0, 0, 1, 1], [0] * 9, [1] * 4, [1]):
        assert clustered_wilson(successes, 1) == wilson(sum(successes), len(successes))


def test_replies_that_agree_count_once() -> None:
    """All or none of 8 replies to each prompt: no more is known than from one reply each."""
    assert clustered_wilson([8, 0, 0, 8, 0, 8, 8], 8) == pytest.approx(wilson(4, 7))


@pytest.mark.parametrize("counts", [[3, 1], [0, 1, 3], [4, 0, 2, 2, 5, 1, 3], [5, 5, 4, 0, 5]])
def test_it_is_wilsons_at_as_many_trials_as_the_variance_is_worth(counts: list[int]) -> None:
    """numpy's variance and scipy's quantiles; two clusters, few that differ little, and some between the limits."""
    n, rates = len(counts), np.array(counts) / 5
    p, spread = rates.mean(), rates.var(ddof=1) / n
    worth = p * (1 - p) / spread * (scipy.stats.norm.ppf(0.975) / scipy.stats.t.ppf(0.975, n - 1)) ** 2
    trials, z2 = min(max(worth, n), 5 * n), scipy.stats.norm.ppf(0.975) ** 2
    centre = (p + z2 / (2 * trials)) / (1 + z2 / trials)
    half = math.sqrt(z2 * (p * (1 - p) / trials + z2 / (4 * trials**2))) / (1 + z2 / trials)
    assert clustered_wilson(counts, 5) == pytest.approx((centre - half, centre + half))


@pytest.mark.parametrize("within", [0.0, 0.2, 0.6, 0.95])
@pytest.mark.parametrize(("prompts", "p"), [(40, 0.1), (40, 0.5), (100, 0.3)])
def test_the_interval_covers_as_often_as_it_says(prompts: int, p: float, within: float) -> None:
    """Beta-binomial replies: `within` is the correlation of two replies to one prompt. Nominal .95; 1,500 draws have
    a standard error of .006, and rare refusals of few prompts lie a little below (see `clustered_wilson`)."""
    random = np.random.default_rng(7)
    size = (1500, prompts)
    own = random.beta(p * (1 / within - 1), (1 - p) * (1 / within - 1), size) if within else np.full(size, p)
    counts = random.binomial(5, own)
    inside = [low <= p <= high for low, high in (clustered_wilson(row, 5) for row in counts.tolist())]
    assert np.mean(inside) > 0.925
    if within >= 0.2:  # replies taken for independent ones: too narrow
        naive = [low <= p <= high for low, high in (wilson(sum(row), 5 * prompts) for row in counts.tolist())]
        assert np.mean(naive) < 0.90
