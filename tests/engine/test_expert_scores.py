"""Scores of routed experts against loops over the tokens that each expert sees, in float64.

Nothing of the engine but the row index is used for what is expected: the router's choices come from a hook on
transformers' own router, and an expert's inputs, outputs and gradients from the model run once more with transformers'
own formula written out for one token and one expert at a time.
"""

import copy
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import load_tiny
from torch import Tensor, nn
from torch.nn import functional

from engine.data.corpora import Windows
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.selectors.gradients import per_prompt_relevance
from engine.selectors.prompt_run import PromptRun
from engine.selectors.scoring_run import compute_scores
from engine.selectors.window_sums import prompt_activations

WINDOWS_, LENGTH = 3, 7
IDS = torch.randint(3, 200, (WINDOWS_, LENGTH), generator=torch.Generator().manual_seed(0))
WINDOWS = Windows("test", "0", IDS, tuple(range(WINDOWS_)))
FIRST = ("mixtral", "gpt_oss")
FAMILIES = [
    name if name in FIRST else pytest.param(name, marks=pytest.mark.long)
    for name in (*FIRST, "qwen3_moe", "deepseek_v3")
]
BY_TEXT = (
    "wanda", "mean_activation", "activation_std", "flap", "ria", "grad_x_input", "fisher", "taylor", "atp_signed",
    "gradient_norm",
)  # fmt: skip


class Slow(nn.Module):
    """An expert set, one token and one expert at a time. Kept: what each is given, says and gets as gradient."""

    def __init__(self, experts: Any, path: str, kept: dict[str, list[tuple[int, Tensor, Tensor]]]) -> None:
        super().__init__()
        self.path, self.kept, self.given = path, kept, experts
        self.interleaved = hasattr(experts, "gate_up_proj_bias")  # gpt-oss

    def forward(self, hidden: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        rows = []
        for token in range(len(hidden)):
            total = torch.zeros_like(hidden[token])
            for place in range(chosen.shape[1]):
                expert = int(chosen[token, place])
                total = total + weights[token, place] * self.said(expert, hidden[token], token)
            rows.append(total)
        return torch.stack(rows)

    def said(self, expert: int, x: Tensor, token: int) -> Tensor:
        own = self.given
        if self.interleaved:
            both = x @ own.gate_up_proj[expert] + own.gate_up_proj_bias[expert]
            gate, up = both[0::2], both[1::2]
            gate, up = self.keep(expert, "gate_proj", token, x, gate), self.keep(expert, "up_proj", token, x, up)
            clamped = gate.clamp(max=own.limit)
            inner = (up.clamp(-own.limit, own.limit) + 1) * clamped * torch.sigmoid(clamped * own.alpha)
            out = inner @ own.down_proj[expert] + own.down_proj_bias[expert]
        else:
            both = own.gate_up_proj[expert] @ x
            half = len(both) // 2
            gate = self.keep(expert, "gate_proj", token, x, both[:half])
            up = self.keep(expert, "up_proj", token, x, both[half:])
            inner = functional.silu(gate) * up
            out = own.down_proj[expert] @ inner
        return self.keep(expert, "down_proj", token, inner, out)

    def keep(self, expert: int, projection: str, token: int, x: Tensor, h: Tensor) -> Tensor:
        if h.requires_grad:
            h.retain_grad()
        self.kept.setdefault(f"{self.path}.{expert}.{projection}", []).append((token, x, h))
        return h


@pytest.fixture(scope="module", params=FAMILIES)
def routed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    loaded = load_tiny(request.param, tmp_path_factory.mktemp(request.param))
    return replace(loaded, model=loaded.model.double(), dtype="float64")


@pytest.fixture(scope="module")
def mixtral(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_tiny("mixtral", tmp_path_factory.mktemp("mixtral"))


def slow(loaded: LoadedModel) -> tuple[dict[str, list[tuple[int, Tensor, Tensor]]], dict[str, list[Tensor]]]:
    """What every Linear is given and says and its gradient, by token: of experts (token, x, h), h.grad; of the other
    Linears [input], [output] of each window. One window at a time, the loss that transformers computes from labels."""
    model = copy.deepcopy(loaded.model)
    kept: dict[str, list[tuple[int, Tensor, Tensor]]] = {}
    dense: dict[str, list[Tensor]] = {}
    names = {id(module): name for name, module in model.named_modules()}
    for layer in loaded.rows.layers:
        if ".experts." in layer.name and "shared" not in layer.name:
            continue

        def hook(module: nn.Module, given: Any, output: Tensor) -> None:
            output.retain_grad()
            dense.setdefault(names[id(module)], []).extend([given[0], output])

        model.get_submodule(layer.name).register_forward_hook(hook)
    for path, module in list(model.named_modules()):
        if hasattr(module, "gate_up_proj") and isinstance(module.gate_up_proj, nn.Parameter):
            parent = model.get_submodule(path.rpartition(".")[0])
            parent.experts = Slow(module, path, kept)
    for window in range(WINDOWS_):
        ids = IDS[window][None]
        before = {name: len(entries) for name, entries in kept.items()}
        embeddings = model.get_input_embeddings()(ids).detach().requires_grad_()
        (model(inputs_embeds=embeddings, labels=ids, use_cache=False).loss * (LENGTH - 1)).backward()
        for name, entries in kept.items():  # a token's number counts through all windows
            for place in range(before.get(name, 0), len(entries)):
                token, x, h = entries[place]
                entries[place] = (token + window * LENGTH, x, h)
    return kept, dense


def by_layer(loaded: LoadedModel) -> list[tuple[Any, Tensor, list[tuple[int, list[float], list[float], list[float]]]]]:
    """Layer, weight, and per token that it sees: the token, its input, output and gradient."""
    kept, dense = slow(loaded)
    found = []
    for layer in loaded.rows.layers:
        weight = loaded.model.get_submodule(layer.name).weight.detach()
        if layer.name in dense:
            pairs = dense[layer.name]
            entries = [
                (window * LENGTH + t, *(one.reshape(LENGTH, -1)[t].tolist() for one in (x, h.detach(), h.grad)))
                for window, (x, h) in enumerate(zip(pairs[::2], pairs[1::2], strict=True))
                for t in range(LENGTH)
            ]
        else:
            entries = [(token, x.tolist(), h.tolist(), h.grad.tolist()) for token, x, h in kept.get(layer.name, [])]
        found.append((layer, weight, entries))
    return found


def predicting(entries: list[Any]) -> list[Any]:
    return [entry for entry in entries if entry[0] % LENGTH != LENGTH - 1]


def without_first(entries: list[Any], skip: int) -> list[Any]:
    return [entry for entry in entries if entry[0] % LENGTH >= skip]


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def expected(loaded: LoadedModel, skip: int = 0) -> dict[str, list[float]]:
    scores: dict[str, list[float]] = {name: [] for name in BY_TEXT}
    for layer, weight, every in by_layer(loaded):
        entries = without_first(every, skip)
        some = predicting(entries)
        rms = [math.sqrt(mean([entry[1][j] ** 2 for entry in entries])) for j in range(weight.shape[1])]
        sizes = weight.abs()
        for i in range(layer.rows):
            h, g = [entry[2][i] for entry in some], [entry[3][i] for entry in some]
            variance = mean([(value - mean(h)) ** 2 for value in h])
            products = [a * b for a, b in zip(h, g, strict=True)]
            scores["wanda"].append(sum(float(sizes[i, j]) * rms[j] for j in range(len(rms))))
            scores["mean_activation"].append(mean([abs(value) for value in h]))
            scores["activation_std"].append(math.sqrt(variance))
            scores["flap"].append(variance * float(weight[i].square().sum()))
            shares = sizes[i] / sizes.sum(0) + sizes[i] / sizes[i].sum()
            scores["ria"].append(sum(float(shares[j]) * math.sqrt(rms[j]) for j in range(len(rms))))
            scores["grad_x_input"].append(mean([abs(value) for value in products]))
            scores["fisher"].append(math.sqrt(mean([value**2 for value in products])))
            scores["taylor"].append(abs(mean(products)))
            scores["atp_signed"].append(-mean(products))
            scores["gradient_norm"].append(math.sqrt(mean([value**2 for value in g])))
    return scores


@pytest.mark.first_run("mixtral-0|gpt_oss-2")
@pytest.mark.parametrize("skip", [0, 2])
def test_scores_are_means_over_the_tokens_that_an_expert_sees(routed: LoadedModel, skip: int) -> None:
    """Scores are handed out in float32: 1e-6 of their value; the batch's size does not matter."""
    wanted = expected(routed, skip)
    for batch_size in (1, 3):
        scores = compute_scores(routed, BY_TEXT, WINDOWS, batch_size=batch_size, skip_first=skip)
        for name in BY_TEXT:
            values = torch.tensor(wanted[name]).float()
            tolerance = 1e-6 * float(values.abs().max())
            torch.testing.assert_close(
                scores[name], values, rtol=1e-5, atol=tolerance, msg=lambda told, n=name: f"{n}: {told}"
            )


def test_an_expert_that_no_token_chooses_scores_0(mixtral: LoadedModel) -> None:
    """A router that never chooses expert 3 of block 1."""
    model = copy.deepcopy(mixtral.model)
    router = model.model.layers[1].mlp.gate
    router.weight.zero_()
    inner = router.forward

    def without(hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits, weights, _ = inner(hidden)
        top = torch.tensor([[0, 1], [2, 4]])[torch.arange(len(logits)) % 2]
        return logits, weights, top

    router.forward = without
    loaded = replace(mixtral, model=model)
    scores = compute_scores(loaded, ("wanda", "grad_x_input", "flap", "mean_activation"), WINDOWS)
    for layer in mixtral.rows.layers:
        part = slice(layer.start, layer.start + layer.rows)
        never = layer.name.startswith("model.layers.1.mlp.experts.3.")
        for name, values in scores.items():
            assert bool((values[part] == 0).all()) == never, (name, layer.name)


def test_activations_beside_gradients_are_the_same_bits(routed: LoadedModel) -> None:
    """Of experts too, which see some tokens."""
    names = ("wanda", "flap", "mean_activation")
    alone = compute_scores(routed, names, WINDOWS)
    together = compute_scores(routed, (*names, "grad_x_input"), WINDOWS)
    for name in names:
        assert torch.equal(alone[name], together[name]), name


@pytest.mark.parametrize(
    ("selector", "told"),
    [
        ("ig", "ig and ig_conductance cannot score a model with routed experts"),
        ("ig_conductance", "ig and ig_conductance cannot score a model with routed experts"),
        ("lrp", "lrp has no rules for MixtralForCausalLM"),
        ("relp", "has no rules for MixtralForCausalLM"),
        ("consensus2", "has no rules for MixtralForCausalLM"),
    ],
)
def test_what_cannot_be_is_said_before_any_pass(
    mixtral: LoadedModel, selector: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(mixtral.model), "forward", lambda *_, **__: pytest.fail("a pass ran"))
    with pytest.raises(InputError, match=told) as error:
        compute_scores(mixtral, ["magnitude", selector], WINDOWS)
    assert "\n" not in str(error.value)


def test_prompts_of_a_padded_batch_are_as_alone(mixtral: LoadedModel) -> None:
    """Left padding is routed too and counts nothing."""
    from engine.data.prompts import encode_prompts

    loaded = replace(mixtral, model=copy.deepcopy(mixtral.model).double(), dtype="float64")
    prompts = ["The cat sat", "No way, here you are", "Sure"]
    batch = encode_prompts(loaded.tokenizer, prompts)
    assert not batch.attention_mask.bool().all()

    def margin(logits: Tensor) -> Tensor:
        return logits[:, 5] - logits[:, 9]

    def relevance(one: Any) -> Tensor:
        return per_prompt_relevance(loaded, "grad_x_input", one.input_ids, one.attention_mask, margin)

    together = relevance(batch), prompt_activations(loaded, batch)
    alone = [encode_prompts(loaded.tokenizer, [prompt]) for prompt in prompts]
    torch.testing.assert_close(together[0], torch.cat([relevance(one) for one in alone]), rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(together[1], sum(prompt_activations(loaded, one) for one in alone), rtol=1e-5, atol=1e-6)
    run = PromptRun(loaded, "hate", prompts[:2], prompts[2:], margin)
    for selector in ("grad_x_input", "mean_activation", "effect_size"):
        assert np.isfinite(run.contrast(selector).numpy()).all()
    with pytest.raises(InputError, match="ig and ig_conductance cannot score a model with routed experts"):
        run.contrast("ig")
