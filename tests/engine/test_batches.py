"""What is accumulated over batches: passes of three, three and one, against one pass over everything, in float64.

The last pass is the smallest, so that a sum, a count or a mean of the last pass alone shows, and so does an offset that
is counted from the start of a pass.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import load_tiny
from torch import Tensor

from engine.data.corpora import Windows, windows
from engine.data.onsets import onset_tokens
from engine.edits.edit import UNEDITED, edit_of
from engine.interventions import calibrated
from engine.interventions.kinds import INTERVENTIONS
from engine.measures import condition, fluency, predictions
from engine.measures.condition import Similarities, block_states
from engine.measures.divergence import Kl
from engine.measures.fidelity import Fidelity
from engine.measures.fluency import Asked, reply_log_probabilities
from engine.measures.generation import generate_under
from engine.measures.margin import margin_of_logits, margins, margins_under
from engine.measures.nll import Nll, negative_log_likelihood
from engine.models.loading import LoadedModel
from engine.run import edited_passes
from engine.run.edited_passes import measured
from engine.selectors import PromptRun, available_selectors, compute_scores
from engine.selectors.base import contrast_selectors
from engine.selectors.scoring_run import nested_scores

ALL, FEW = 7, 3  # windows, prompts or tokens; as many as one pass takes
LENGTH = 9
PROMPTS = tuple("the cat sat on a mat and then it went home again to sleep"[: 5 + 4 * n] for n in range(ALL))
REPLIES = tuple(f"{'No, I will not. ' * (1 + n % 3)}{n}" for n in range(ALL))
Batched = Callable[[LoadedModel, Windows, int, pytest.MonkeyPatch], Any]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    loaded = load_tiny("llama", tmp_path_factory.mktemp("model"))
    loaded.model.double()
    return replace(loaded, dtype="float64")


@pytest.fixture(scope="module")
def text(tiny_text: Path, tiny_llama: LoadedModel) -> Windows:
    return windows(str(tiny_text), tiny_llama.tokenizer, role="calibration", samples=ALL, length=LENGTH)


def edits(loaded: LoadedModel) -> list[Any]:
    n = loaded.rows.n_rows
    return [edit_of(range(0, n, step), n) for step in (3, 5)]


def sequences(loaded: LoadedModel) -> list[list[int]]:
    return [loaded.tokenizer(prompt, add_special_tokens=False)["input_ids"] for prompt in PROMPTS]


def scores(selector: str) -> Batched:
    return lambda loaded, text, size, _: compute_scores(loaded, [selector], text, batch_size=size)[selector]


def contrast(selector: str) -> Batched:
    def work(loaded: LoadedModel, text: Windows, size: int, _: pytest.MonkeyPatch) -> Tensor:
        onsets = onset_tokens(loaded.tokenizer)
        base = [prompt.replace("t", "s") for prompt in PROMPTS]
        run = PromptRun(loaded, "hate", PROMPTS, base, lambda logits: margin_of_logits(logits, onsets), batch_size=size)
        return run.contrast(selector)

    return work


def intervention(name: str) -> Batched:
    """What stands in the place of the outputs: the mean of every Linear, or its outputs on the other windows."""

    def work(loaded: LoadedModel, text: Windows, size: int, patch: pytest.MonkeyPatch) -> list[Tensor]:
        patch.setattr(calibrated, "TOKENS_AT_ONCE", size * LENGTH + LENGTH - 1)
        made: Any = INTERVENTIONS.get(name).make()
        made.prepare(loaded, text)
        made.fill(loaded)
        return list((made._means if name == "mean" else made._kept).values())

    return work


def of_fidelity(loaded: LoadedModel, text: Windows, size: int, patch: pytest.MonkeyPatch) -> list[Any]:
    for module in (predictions, edited_passes):
        patch.setattr(module, "windows_that_fit", lambda *_: size)
    found = measured(loaded, Fidelity(text), edits(loaded))
    return [values for one in found for values in (one.window_nats, one.window_kl, one.window_same, one.window_tokens)]


def of_nll(loaded: LoadedModel, text: Windows, size: int, patch: pytest.MonkeyPatch) -> list[Any]:
    patch.setattr(edited_passes, "EDITS_TOGETHER", 1)  # so that each edit is measured batch by batch
    under_edits = [measured(loaded, Nll(text, size), [edit])[0] for edit in edits(loaded)]
    found = [negative_log_likelihood(loaded, text, size), *under_edits]
    return [values for one in found for values in (one.window_nats, one.window_tokens, [one.nats_per_token])]


def of_states(loaded: LoadedModel, text: Windows, size: int, _: pytest.MonkeyPatch) -> Tensor:
    ids = sequences(loaded)
    return block_states(loaded, ids, [1 + n % len(one) for n, one in enumerate(ids)], batch_size=size)


def of_condition(loaded: LoadedModel, text: Windows, size: int, patch: pytest.MonkeyPatch) -> Any:
    patch.setattr(condition, "block_states", partial(block_states, batch_size=size))
    direction = np.linspace(-1, 1, loaded.model.config.hidden_size)
    return Similarities(tuple(map(tuple, sequences(loaded))), 1, direction).measure(loaded, UNEDITED)


def of_fluency(loaded: LoadedModel, text: Windows, size: int, patch: pytest.MonkeyPatch) -> list[Tensor]:
    patch.setattr(fluency, "logits_that_fit", lambda *_: size)
    asked = [Asked(prompt, ids[:n], n % 2 == 0) for n, (prompt, ids) in enumerate(
        zip(PROMPTS, sequences(loaded), strict=True))]  # fmt: skip
    return reply_log_probabilities(loaded, asked)


def of_replies(loaded: LoadedModel, text: Windows, size: int, _: pytest.MonkeyPatch) -> list[Any]:
    found = generate_under(loaded, [UNEDITED, edits(loaded)[0]], PROMPTS, 4, batch_size=size)
    return [reply.ids for replies in found for reply in replies]


def of_divergence(loaded: LoadedModel, text: Windows, size: int, _: pytest.MonkeyPatch) -> list[Any]:
    found = Kl(PROMPTS, REPLIES, size).measure_each(loaded, edits(loaded))
    return [values for one in found for values in (one.sums, one.counts)]


TEXT = [info.id for info in available_selectors() if not (info.data_free or info.needs)]
CASES: dict[str, Batched] = {
    **{f"scores of {name}": scores(name) for name in TEXT},
    **{f"contrast of {name}": contrast(name) for name in contrast_selectors() if name not in ("random", "consensus2")},
    **{f"outputs for {name}": intervention(name) for name in ("mean", "resample")},
    "nested scores": lambda loaded, text, size, _: [
        found[name] for found in nested_scores(loaded, ["wanda", "lrp"], text, [2, 4, ALL], batch_size=size).values()
        for name in found
    ],
    "NLL": of_nll,
    "fidelity": of_fidelity,
    "states": of_states,
    "condition": of_condition,
    "fluency": of_fluency,
    "replies": of_replies,
    "divergence": of_divergence,
    "margins": lambda loaded, text, size, _: margins(loaded, PROMPTS, size),
    "margins under edits": lambda loaded, text, size, _: margins_under(loaded, edits(loaded), PROMPTS, size),
}  # fmt: skip
SINGLE = ("margins", "margins under edits")  # say that they give float32, as the model does


@contextmanager
def batches(loaded: LoadedModel) -> Iterator[list[int]]:
    """The number of sequences of every pass."""
    seen: list[int] = []

    def hook(_module: Any, args: Any, named: dict[str, Any]) -> None:
        given = named.get("input_ids", named.get("inputs_embeds"))
        seen.append(len(args[0] if given is None else given))

    handle = loaded.model.register_forward_pre_hook(hook, with_kwargs=True)
    try:
        yield seen
    finally:
        handle.remove()


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.long) if one.startswith("contrast of ig") else one for one in CASES]
)
def test_three_unequal_passes_are_one(
    name: str, model: LoadedModel, tiny_llama: LoadedModel, text: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_llama if name in SINGLE else model
    with monkeypatch.context() as patch, batches(model) as sizes:
        parts = CASES[name](model, text, FEW, patch)
    assert len(sizes) >= 3
    assert len(set(sizes)) > 1
    with monkeypatch.context() as patch, batches(model) as sizes:
        whole = CASES[name](model, text, 1000, patch)
    assert max(sizes) >= ALL
    parts, whole = ([values] if isinstance(values, Tensor) else list(values) for values in (parts, whole))
    assert len(parts) == len(whole)
    for found, expected in zip(parts, whole, strict=True):
        found, expected = torch.as_tensor(found).double(), torch.as_tensor(expected).double()
        assert found.shape == expected.shape
        # Sums of float64 in another order; some are float32 on their way, as all are that `SINGLE` names.
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5 if name in SINGLE else 1e-6)


def test_every_calibrated_intervention_is_among_the_cases() -> None:
    named = {name.removeprefix("outputs for ") for name in CASES if name.startswith("outputs for ")}
    assert {info.id for info in INTERVENTIONS if info.make.reads_text} == named
