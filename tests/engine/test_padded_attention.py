"""Left-padded prompts through fused attention, forward and backward, in bfloat16, judged by float64.

In bfloat16 no two ways to sum are equal in bits. What the same weights say in float64 is the yardstick: padding may
add no error to that of a prompt alone, and fused attention none to eager's.
"""

import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import save_tiny, text
from torch import Tensor
from window_nll import window_nll

from engine.data.onsets import OnsetTokens
from engine.data.prompts import pad_left, prompt_ids
from engine.measures.margin import margin_of_logits, margins
from engine.models.loading import LoadedModel, load_model
from engine.models.rows_of_modules import row_index
from engine.records.hashing import Json
from engine.records.manifest import add_to_manifest, read_manifest
from engine.selectors.gradients import per_prompt_relevance

FAMILIES = ("llama", pytest.param("qwen3", marks=pytest.mark.long), "gemma3_text")
METHODS = ("grad_x_input", "lrp", pytest.param("ig", marks=pytest.mark.long))
LENGTHS = (14, 5, 11)  # beyond Gemma's window of 9, and far below it
# Errors of the two ways come from a few hundred roundings each, so their sizes differ by chance: seen within 1.25.
NO_WORSE = 1.5
# bfloat16 keeps 8 bits: 2^-8 for each rounding, a few of them in a row. Seen: up to 12 * 2^-8.
ROUNDINGS = 24 * 2.0**-8


@pytest.fixture(scope="module", params=FAMILIES)
def half(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = save_tiny(request.param, tmp_path_factory.mktemp(request.param))
    return load_model(str(folder), dtype="bfloat16", device="cpu")


@pytest.fixture(scope="module")
def exact(half: LoadedModel) -> LoadedModel:
    """The same weights in float64; not by eager attention, whose softmax is in float32 whatever it is given."""
    return as_loaded(copy.deepcopy(half.model).double(), "float64")


@contextmanager
def attending(loaded: LoadedModel, attention: str) -> Iterator[None]:
    loaded.model.set_attn_implementation(attention)
    try:
        yield
    finally:
        loaded.model.set_attn_implementation("sdpa")


def as_loaded(model: Any, dtype: str) -> LoadedModel:
    return LoadedModel(model, None, row_index(model), "tiny", None, "", "", "", dtype, "cpu")


def prompts() -> list[list[int]]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(5, 290, (length,), generator=generator).tolist() for length in LENGTHS]


def target(logits: Tensor) -> Tensor:
    return logits[:, 3] - logits[:, 7]


def relevances(loaded: LoadedModel, method: Any, *, alone: bool) -> Tensor:
    """[prompts, N], of each prompt alone or of the padded batch."""
    batches = [pad_left([ids]) for ids in prompts()] if alone else [pad_left(prompts())]
    found = [per_prompt_relevance(loaded, method, one.input_ids, one.attention_mask, target) for one in batches]
    return torch.cat(found)


def off(found: Tensor, truth: Tensor) -> float:
    """Root mean square of the difference, relative to the truth's."""
    truth = truth.double()
    return float((found.double() - truth).square().mean().sqrt() / truth.square().mean().sqrt())


@pytest.mark.parametrize("method", METHODS)
def test_relevance_of_padded_prompts(half: LoadedModel, exact: LoadedModel, method: Any) -> None:
    """Forward and backward through fused attention, with a mask of pads."""
    truth = relevances(exact, method, alone=True)
    assert off(relevances(exact, method, alone=False), truth) < 1e-6  # the norms compute in float32
    alone, padded = (off(relevances(half, method, alone=how), truth) for how in (True, False))
    assert 0 < padded <= NO_WORSE * alone
    assert alone < ROUNDINGS


@pytest.mark.parametrize("method", METHODS)
def test_relevance_by_fused_and_by_eager_attention(half: LoadedModel, exact: LoadedModel, method: Any) -> None:
    truth = relevances(exact, method, alone=True)
    fused = relevances(half, method, alone=False)
    with attending(half, "eager"):
        eager, alone = (relevances(half, method, alone=how) for how in (False, True))
    assert not torch.equal(fused, eager)  # it was another function
    assert off(fused, truth) <= NO_WORSE * off(eager, truth)
    assert off(eager, truth) <= NO_WORSE * off(fused, truth)
    # Eager adds products with zero for every pad and nothing else.
    torch.testing.assert_close(eager, alone, rtol=1e-5, atol=1e-6 * float(alone.abs().max()))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_what_stands_in_the_pads_is_never_read(half: LoadedModel, attention: str) -> None:
    """Another token in their place: the same bits, in a forward and in a backward pass."""
    batch = pad_left(prompts())
    others = torch.where(batch.attention_mask.bool(), batch.input_ids, 17)
    with attending(half, attention):
        for method in ("grad_x_input", "lrp"):
            one, other = (
                per_prompt_relevance(half, method, ids, batch.attention_mask, target)
                for ids in (batch.input_ids, others)
            )
            assert torch.equal(one, other)
        nats = [window_nll(half.model, ids, batch.attention_mask)[0] for ids in (batch.input_ids, others)]
    assert torch.equal(*nats)


def test_losses_of_padded_prompts(half: LoadedModel, exact: LoadedModel) -> None:
    batch = pad_left(prompts())
    truth = torch.cat([window_nll(exact.model, torch.tensor([ids]))[0] for ids in prompts()])
    found = {
        "alone": torch.cat([window_nll(half.model, torch.tensor([ids]))[0] for ids in prompts()]),
        "padded": window_nll(half.model, batch.input_ids, batch.attention_mask)[0],
    }
    with attending(half, "eager"):
        found["eager"] = window_nll(half.model, batch.input_ids, batch.attention_mask)[0]
    tokens = torch.tensor(LENGTHS) - 1
    for name, nats in found.items():  # per token a logit of size 3 or so is off by a few of its own roundings
        assert float(((nats - truth) / tokens).abs().max()) < ROUNDINGS, name


def test_margins_of_padded_prompts(half: LoadedModel, exact: LoadedModel) -> None:
    """The last logits, from which a margin is taken and a reply begins."""
    onsets = OnsetTokens((10, 40, 77), (23, 31))
    lines = [line[: 48 // (place + 1)] for place, line in enumerate(text(3).split("\n\n"))]
    assert len({len(prompt_ids(half.tokenizer, line)) for line in lines}) == 3
    with torch.no_grad():
        ids = [torch.tensor([prompt_ids(half.tokenizer, line)]) for line in lines]
        logits = torch.cat([exact.model(one).logits[:, -1] for one in ids])
    truth, size = margin_of_logits(logits, onsets), float(logits.square().mean().sqrt())
    found = {size: margins(half, lines, batch_size=size, onsets=onsets) for size in (1, 3)}
    with attending(half, "eager"):
        found[0] = margins(half, lines, batch_size=3, onsets=onsets)
    assert float(truth.abs().max()) > 0.1
    for each in found.values():
        assert float((each - truth).abs().max()) < 2 * ROUNDINGS * size


def test_fused_attention_is_what_runs_and_it_gets_the_mask(half: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    masks = []
    fused = torch.nn.functional.scaled_dot_product_attention

    def watched(*args: Any, **more: Any) -> Tensor:
        masks.append(more.get("attn_mask"))
        return fused(*args, **more)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    relevances(half, "lrp", alone=False)
    assert masks
    assert all(mask is not None for mask in masks)
    with attending(half, "eager"):
        before = len(masks)
        relevances(half, "lrp", alone=False)
    assert len(masks) == before


def test_the_manifest_tells_attention_and_flags(half: LoadedModel, tmp_path: Path) -> None:
    """Beside every file, since they may differ from run to run; no key has them."""

    def written(name: str) -> Json:
        (tmp_path / name).write_bytes(b"")
        return add_to_manifest(tmp_path, half.fingerprint, name, {}, 0.0)["numerics"]

    keyed = half.numeric_fingerprint
    usual = written("a")
    with attending(half, "eager"):
        torch.use_deterministic_algorithms(True)
        try:
            other = written("b")
            assert half.numeric_fingerprint == keyed
        finally:
            torch.use_deterministic_algorithms(False)
    assert (usual["attention"], usual["deterministic_algorithms"]) == ("sdpa", False)
    assert (other["attention"], other["deterministic_algorithms"]) == ("eager", True)
    manifest = read_manifest(tmp_path)
    assert [manifest["files"][name]["numerics"] for name in "ab"] == [usual, other]
    assert "numerics" not in manifest["model"]
    assert json.loads(json.dumps(manifest["model"])) == {"id": half.id, "revision": None, **keyed}
