"""Is a reply still language? Its mean token log-probability under the unedited model, and how much of it repeats.

Both are read against replies that the unedited model wrote itself (`Reference`): no number is set by hand but how many
of those may count as broken (`QUANTILE`), and that repetition is more than half (`MOSTLY`)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.data.prompts import Prompt, pad_left, prompt_ids
from engine.edits.edit import UNEDITED, AnyEdit
from engine.interventions.at_outputs import EDITS_AT_ONCE
from engine.measures.base import Average, AverageMeasure, Passes, register_measure
from engine.measures.generation import BATCH_SIZE, end_tokens, generate_under
from engine.measures.predictions import kind_of, logits_that_fit, vocabulary_of
from engine.measures.replies import Replies
from engine.models.loading import LoadedModel, input_device
from engine.records.hashing import Json
from engine.records.locks import OnWait, held, patient
from engine.records.progress import passing
from engine.selectors.passes import wide

NGRAM = 4  # tokens; seq-rep-4 of Welleck et al. 2020, arXiv:1908.04319
MOSTLY = 0.5
QUANTILE = 0.01
SHIFTS = 4  # other prompts that each of the model's own replies is put under


class Asked(NamedTuple):
    """A reply to read. tokens: its ids, the end token not among them. finished: did it end by itself?"""

    prompt: Prompt
    tokens: Sequence[int]
    finished: bool


@torch.no_grad()
def reply_log_probabilities(
    loaded: LoadedModel, asked: Sequence[Asked], *, thinking: bool = False, on_wait: OnWait = patient
) -> list[Tensor]:
    """log p(token | prompt, the reply before it) of the model as it is, for every token of every reply, in nats;
    float32, CPU.

    One entry per token, and one more for the end of a reply that ended by itself: the probability of any end token. One
    pass over as many replies as fit; the model's lock is held for each. thinking: the template's thinking mode left
    on."""
    ends = sorted(end_tokens(loaded.model, loaded.tokenizer))
    sequences = [[*prompt_ids(loaded.tokenizer, one.prompt, thinking=thinking), *one.tokens] for one in asked]
    found: list[Tensor] = []
    passed = _logits(loaded, sequences, [len(one.tokens) + 1 for one in asked], on_wait)
    for one, logits in zip(asked, passed, strict=True):
        log_probabilities = wide(logits).log_softmax(-1)  # [len(tokens) + 1, V], the last row of what follows the reply
        tokens = torch.tensor(list(one.tokens), dtype=torch.long, device=logits.device)
        of_tokens = log_probabilities[:-1].gather(1, tokens[:, None])[:, 0]
        if one.finished and ends:
            of_tokens = torch.cat([of_tokens, log_probabilities[-1, ends].logsumexp(0, keepdim=True)])
        found.append(of_tokens.cpu())
    return found


def _logits(
    loaded: LoadedModel, sequences: Sequence[list[int]], last: Sequence[int], on_wait: OnWait
) -> Iterator[Tensor]:
    """Logits [last, V] at so many last positions of every sequence: one pass over as many as fit, each under the
    lock."""
    device = input_device(loaded.model)
    at_once = logits_that_fit(kind_of(str(device)), max(last, default=1), vocabulary_of(loaded.model))
    for start in range(0, len(sequences), at_once):
        batch, some = pad_left(sequences[start : start + at_once]).to(device), last[start : start + at_once]
        passing()
        with held(loaded.lock, on_wait):
            logits = loaded.model(**batch._asdict(), use_cache=False, logits_to_keep=max(some)).logits
        yield from (of_one[-count:] for of_one, count in zip(logits, some, strict=True))


def repetition(tokens: Sequence[int]) -> float:
    """1 - distinct / all n-grams of `NGRAM` tokens; 0 where there are fewer than two."""
    grams = list(zip(*(tokens[place:] for place in range(NGRAM)), strict=False))
    return 1 - len(set(grams)) / len(grams) if len(grams) > 1 else 0.0


@dataclass(frozen=True)
class Reference:
    """Where the unedited model's own replies lie, and what is called broken by it.

    lowest: the `QUANTILE` of the mean log-probabilities of its own replies, each read under other prompts as well:
    language of this model that it did not expect there. most: the 1 - `QUANTILE` of their repetition, and `MOSTLY` at
    least. replies, readings: how many of its own, and in how many places they were read."""

    lowest: float
    most: float
    replies: int
    readings: int
    reply_tokens: int

    def broken(self, mean: float | None, repeated: float | None) -> str:
        """Why a reply counts as broken, in words; "" where it does not. mean: of its log-probabilities, in nats."""
        if repeated is not None and repeated > self.most:
            return f"repeats itself: {repeated:.0%} of its {NGRAM}-grams of tokens came before"
        if mean is not None and mean < self.lowest:
            return f"loss of language: {mean:.2f} nats per token under the unedited model, below {self.lowest:.2f}"
        return ""


def reference_of(
    loaded: LoadedModel, prompts: Sequence[Prompt], max_new_tokens: int, *, on_wait: OnWait = patient
) -> Reference | None:
    """The unedited model answers these prompts, and its replies are read under their own and under `SHIFTS` other ones;
    None without prompts. `on_wait(seconds)` while another thread holds the model; it may raise to give up."""
    if not prompts:
        return None
    [replies] = generate_under(loaded, [UNEDITED], prompts, max_new_tokens, on_wait=on_wait)
    n = len(prompts)
    shifts = sorted({0, *(1 + place * (n - 1) // SHIFTS for place in range(SHIFTS))} & set(range(n)))
    means: list[float] = []
    for shift in shifts:
        asked = [Asked(prompts[(place + shift) % n], reply.ids, reply.finished) for place, reply in enumerate(replies)]
        likelihoods = reply_log_probabilities(loaded, asked, on_wait=on_wait)
        means += [float(one.mean()) for one in likelihoods if len(one)]
    if not means:
        return None
    lowest = float(np.quantile(means, QUANTILE))
    most = max(MOSTLY, float(np.quantile([repetition(reply.ids) for reply in replies], 1 - QUANTILE)))
    return Reference(lowest, most, n, len(means), max_new_tokens)


@dataclass(frozen=True)
class Fluency(AverageMeasure):
    """The measure: log-probability under the unedited model of what the edited one replies, a sum for each prompt
    (`reply_log_probabilities`). What repeats itself is likely too; it says only how expected replies are."""

    replies: Replies
    kind: ClassVar[str] = "fluency"

    @property
    def size(self) -> int:
        return self.replies.size

    def record(self, loaded: LoadedModel) -> Json:
        return self.replies.record(loaded)

    def passes(self, loaded: LoadedModel) -> tuple[Passes, ...]:
        """Of replies of full length, which the unedited model then reads."""
        (written,) = self.replies.passes(loaded)
        new = self.replies.max_new_tokens
        fit = logits_that_fit(kind_of(loaded.device), new + 1, vocabulary_of(loaded.model))
        return written, Passes(self.size, written.length + new, at_once=min(fit, self.size), logits=new + 1)

    def together(self, loaded: LoadedModel) -> int:
        return EDITS_AT_ONCE

    def measure_each(self, loaded: LoadedModel, edits: Sequence[AnyEdit]) -> list[Average]:
        """The unedited model reads all replies, so none is written with an edit in the weights."""
        prompts, length = self.replies.prompts, self.replies.max_new_tokens
        averages = []
        for replies in generate_under(loaded, edits, prompts, length, self.replies.batch_size):
            asked = [Asked(prompt, reply.ids, reply.finished) for prompt, reply in zip(prompts, replies, strict=True)]
            nats = reply_log_probabilities(loaded, asked)
            averages.append(Average(tuple(float(one.double().sum()) for one in nats), tuple(map(len, nats))))
        return averages


@register_measure("fluency", title="Fluency", unit="nats per token", lower_is_better=False, reads="prompts")
def fluency(prompts: tuple[str, ...], reply_tokens: int) -> Fluency:
    """Mean log-probability, under the unedited model, of the tokens that the edited one replies."""
    return Fluency(Replies(prompts, reply_tokens, BATCH_SIZE))


_OTHER = "x"  # a prompt that shares the chat template's tokens with every other one, and none of its own


@torch.no_grad()
def prompt_log_probabilities(loaded: LoadedModel, prompts: Sequence[str], *, on_wait: OnWait = patient) -> list[float]:
    """Sum over a prompt's own tokens of log p(token | chat template, the prompt before it), per word, in nats.

    Words are what blanks part: a name that the vocabulary has in pieces costs the sum of these, which a mean over
    tokens hides. Own tokens: those between what the templated prompt has in common with another one at its beginning
    and at its end. Of the model as it is; its lock is held for each pass."""
    sequences = [prompt_ids(loaded.tokenizer, prompt) for prompt in prompts]
    other = prompt_ids(loaded.tokenizer, _OTHER)
    nlls: list[float] = []
    passed = _logits(loaded, sequences, list(map(len, sequences)), on_wait)
    for prompt, ids, logits in zip(prompts, sequences, passed, strict=True):
        first, last = max(1, _common(ids, other)), len(ids) - _common(ids[::-1], other[::-1])
        values = wide(logits[first - 1 : last - 1]).log_softmax(-1)
        own = torch.tensor(ids[first:last], dtype=torch.long, device=values.device)
        nlls.append(float(values.gather(1, own[:, None]).sum()) / len(prompt.split()))
    return nlls


def _common(ids: Sequence[int], other: Sequence[int]) -> int:
    """Tokens that both begin with."""
    pairs = list(zip(ids, other, strict=False))
    return next((place for place, (one, two) in enumerate(pairs) if one != two), len(pairs))
