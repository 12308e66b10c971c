"""How likely a prompt is under a model: whether it is like the text that the model was trained on."""

from collections.abc import Sequence

import torch

from engine.data.prompts import pad_left, prompt_ids
from engine.measures.predictions import kind_of, logits_that_fit, vocabulary_of
from engine.models.loading import LoadedModel, input_device
from engine.records.locks import OnWait, held, patient
from engine.selectors.passes import wide

_OTHER = "x"  # a prompt that shares the chat template's tokens with every other one, and none of its own


@torch.no_grad()
def prompt_log_probabilities(loaded: LoadedModel, prompts: Sequence[str], *, on_wait: OnWait = patient) -> list[float]:
    """Sum over a prompt's own tokens of log p(token | chat template, the prompt before it), per word, in nats.

    Words are what blanks part: a name that the vocabulary has in pieces costs the sum of these, which a mean over
    tokens hides. Own tokens: those between what the templated prompt has in common with another one at its beginning
    and at its end. Of the model as it is; its lock is held for each pass.
    """
    tokenizer, device = loaded.tokenizer, input_device(loaded.model)
    sequences, other = [prompt_ids(tokenizer, prompt) for prompt in prompts], prompt_ids(tokenizer, _OTHER)
    at_once = logits_that_fit(kind_of(str(device)), max(map(len, sequences), default=1), vocabulary_of(loaded.model))
    found: list[float] = []
    for start in range(0, len(sequences), at_once):
        some = sequences[start : start + at_once]
        batch = pad_left(some).to(device)
        with held(loaded.lock, on_wait):
            logits = loaded.model(**batch._asdict(), use_cache=False).logits
        for prompt, ids, of_one in zip(prompts[start:], some, logits, strict=False):
            first, last = max(1, _common(ids, other)), len(ids) - _common(ids[::-1], other[::-1])
            values = wide(of_one[-len(ids) :][first - 1 : last - 1]).log_softmax(-1)
            own = torch.tensor(ids[first:last], dtype=torch.long, device=values.device)
            found.append(float(values.gather(1, own[:, None]).sum()) / len(prompt.split()))
    return found


def _common(ids: Sequence[int], other: Sequence[int]) -> int:
    """Tokens that both begin with."""
    pairs = list(zip(ids, other, strict=False))
    return next((place for place, (one, two) in enumerate(pairs) if one != two), len(pairs))
