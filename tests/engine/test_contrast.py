"""Algorithm 1 against a slow literal reimplementation, masks, files, and what is checked of them."""

import copy
import dataclasses
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import load_tiny, tiny_tokenizer
from torch import Tensor

from engine.data.corpora import Pair
from engine.data.onsets import ONSET_PHRASES, OnsetPhrases, OnsetTokens, onset_tokens
from engine.data.prompts import prompt_ids
from engine.edits.contrasts import Contrast, load_contrasts, refusal_mask, refusal_score, save_contrasts
from engine.measures.margin import margins
from engine.models.attnlrp import attn_lrp
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.run.refusal_plan import RefusalPlan
from engine.selectors.base import contrast_selectors
from engine.selectors.prompt_run import percentile_ranks
from engine.studies.refusal.algorithm import contrasts

IG_STEPS = 16
BUILT_IN = contrast_selectors()
WORDS = ("cat", "dog", "mat", "there", "here it is", "no way", "ran out", "that one", "Sure", "you are")


def pairs_for(loaded: LoadedModel, domain: str, count: int, seed: int) -> list[Pair]:
    """Prompts of different lengths; the side this random model leans more to refuse is called risk."""
    generator = np.random.default_rng(seed)
    texts: list[str] = []
    while len(texts) < 2 * count:
        text = " ".join(generator.choice(WORDS, size=generator.integers(1, 7)))
        if text not in texts:
            texts.append(text)
    by_margin = [texts[i] for i in margins(loaded, texts).argsort(descending=True).tolist()]
    return [
        Pair(domain, risk, base, "calibration") for risk, base in zip(by_margin[:count], by_margin[count:], strict=True)
    ]


@pytest.fixture(scope="module", params=["llama", pytest.param("qwen3", marks=pytest.mark.long)])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_tiny(request.param, tmp_path_factory.mktemp(request.param), seed=3)


@pytest.fixture(scope="module")
def pairs(model: LoadedModel) -> list[Pair]:
    return pairs_for(model, "hate", 4, seed=0)


ONSETS: dict[str, OnsetTokens] = {}  # by model


def lm_scores(loaded: LoadedModel) -> dict[str, np.ndarray[Any, Any]]:
    generator = np.random.default_rng(9)
    return {selector: generator.random(loaded.rows.n_rows) for selector in BUILT_IN}


# --- Algorithm 1, written out: float64, one unpadded prompt at a time, plain loops ---


def literal_margin(last: Tensor, loaded: LoadedModel) -> Tensor:
    if loaded.id not in ONSETS:
        ONSETS[loaded.id] = onset_tokens(loaded.tokenizer)
    onsets = ONSETS[loaded.id]
    refusal = torch.stack([last[token] for token in onsets.refusal]).sum() / len(onsets.refusal)
    compliance = torch.stack([last[token] for token in onsets.compliance]).sum() / len(onsets.compliance)
    return refusal - compliance


def literal_outputs(loaded: LoadedModel, model: Any, embeddings: Tensor) -> tuple[list[Tensor], Tensor]:
    """Every Linear's output [T, rows], kept in the graph, and the margin."""
    outputs: dict[int, Tensor] = {}
    handles = [
        model.get_submodule(layer.name).register_forward_hook(
            lambda _, __, output, index=layer.index: outputs.__setitem__(index, output)
        )
        for layer in loaded.rows.layers
    ]
    try:
        logits = model(inputs_embeds=embeddings, use_cache=False).logits
    finally:
        for handle in handles:
            handle.remove()
    return [outputs[layer.index] for layer in loaded.rows.layers], literal_margin(logits[0, -1], loaded)


def literal_gradients(loaded: LoadedModel, model: Any, embeddings: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    outputs, margin = literal_outputs(loaded, model, embeddings.clone().requires_grad_())
    gradients = torch.autograd.grad(margin, outputs)
    return [output.detach()[0] for output in outputs], [gradient[0] for gradient in gradients]


def literal_relevance(loaded: LoadedModel, model: Any, method: str, prompt: str) -> list[float]:
    """R_i(x), signed, summed over positions."""
    ids = torch.tensor([prompt_ids(loaded.tokenizer, prompt)])
    embeddings = model.get_input_embeddings()(ids).detach()
    if method in ("lrp", "grad_x_input"):
        with attn_lrp(model) if method == "lrp" else nullcontext():
            outputs, gradients = literal_gradients(loaded, model, embeddings)
        relevance = [output * gradient for output, gradient in zip(outputs, gradients, strict=True)]
    else:
        at_zero, _ = literal_gradients(loaded, model, embeddings * 0)
        steps = [literal_gradients(loaded, model, embeddings * (k / IG_STEPS)) for k in range(1, IG_STEPS + 1)]
        before = [at_zero, *(outputs for outputs, _ in steps)]
        relevance = (
            [
                sum((step[0][layer] - before[k][layer]) * step[1][layer] for k, step in enumerate(steps))
                for layer in range(len(at_zero))
            ]
            if method == "ig_conductance"
            else [
                (steps[-1][0][layer] - at_zero[layer]) * sum(step[1][layer] for step in steps) / IG_STEPS
                for layer in range(len(at_zero))
            ]
        )
    return [float(row) for layer in relevance for row in layer.sum(0)]


def literal_ranks(loaded: LoadedModel, values: list[float]) -> list[float]:
    """Rows below it, plus half of the rows equal to it, of the other rows in its layer."""
    ranks = []
    for layer in loaded.rows.layers:
        inside = values[layer.start : layer.start + layer.rows]
        for value in inside:
            below = sum(other < value for other in inside)
            equal = sum(other == value for other in inside) - 1
            ranks.append((below + equal / 2) / (len(inside) - 1))
    return ranks


def literal_c_comply(loaded: LoadedModel, method: str, pairs: list[Pair]) -> list[float]:
    ranks = []
    double = copy.deepcopy(loaded.model).double()
    for prompts in ([pair.risk for pair in pairs], [pair.base for pair in pairs]):
        total = [0.0] * loaded.rows.n_rows
        for prompt in prompts:
            for row, relevance in enumerate(literal_relevance(loaded, double, method, prompt)):
                total[row] += max(-relevance, 0.0)
        ranks.append(literal_ranks(loaded, [value / len(prompts) for value in total]))
    return [risk - base for risk, base in zip(*ranks, strict=True)]


def literal_mask(loaded: LoadedModel, c_comply: list[float], lm: Any, lam: float, k: float) -> list[int]:
    lm_rank = literal_ranks(loaded, list(lm))
    # What is stored is float32; without that, ties of S would be broken by the last bit of a float64.
    scores = [float(np.float32(c)) - lam * float(np.float32(r)) for c, r in zip(c_comply, lm_rank, strict=True)]
    order = sorted(range(len(scores)), key=lambda row: (-scores[row], row))
    return sorted(order[: round(k * len(scores))])


METHODS = ("lrp", "ig", "grad_x_input", "ig_conductance")
GRID = [(0.2, 0.01), (0.2, 0.1), (0.6, 0.05), (0.8, 0.02), (0.0, 0.3), (1.0, 0.5)]


@pytest.fixture(scope="module")
def literal(model: LoadedModel, pairs: list[Pair]) -> dict[str, list[float]]:
    """C_comply by the literal algorithm; slow, so once per model."""
    values = {method: literal_c_comply(model, method, pairs) for method in METHODS}
    values["consensus2"] = [(a + b) / 2 for a, b in zip(values["lrp"], values["ig"], strict=True)]
    return values


@pytest.mark.first_run("llama-3")
@pytest.mark.parametrize("batch_size", [1, 3])
def test_attributions_and_their_consensus_equal_the_literal_algorithm(
    model: LoadedModel, pairs: list[Pair], literal: dict[str, list[float]], batch_size: int
) -> None:
    scores = lm_scores(model)
    results = contrasts(model, [*METHODS, "consensus2"], pairs, scores, batch_size=batch_size)
    assert [result.selector for result in results] == [*METHODS, "consensus2"]
    for result in results:
        assert result.domain == "hate"
        np.testing.assert_allclose(result.c_comply, literal[result.selector], atol=1e-6)
        assert np.abs(result.c_comply).max() > 0.5
        for lam, k in GRID:
            expected = literal_mask(model, literal[result.selector], scores[result.selector], lam, k)
            assert refusal_mask(result, lam, k).tolist() == expected


def test_mean_activation_equals_the_literal_formula(model: LoadedModel, pairs: list[Pair]) -> None:
    [result] = contrasts(model, ["mean_activation"], pairs, lm_scores(model), batch_size=4)
    ranks = []
    double = copy.deepcopy(model.model).double()
    for prompts in ([pair.risk for pair in pairs], [pair.base for pair in pairs]):
        total = torch.zeros(model.rows.n_rows, dtype=torch.float64)
        tokens = 0
        for prompt in prompts:
            ids = torch.tensor([prompt_ids(model.tokenizer, prompt)])
            outputs, _ = literal_outputs(model, double, double.get_input_embeddings()(ids))
            total += torch.cat([output[0].abs().sum(0).detach() for output in outputs])
            tokens += ids.shape[1]
        ranks.append(literal_ranks(model, (total / tokens).tolist()))
    np.testing.assert_allclose(result.c_comply, np.subtract(*ranks), atol=1e-6)


def test_activations_are_summed_in_float64_on_the_cpu_only(
    model: LoadedModel, pairs: list[Pair], float64_on_cpu: list[Tensor]
) -> None:
    contrasts(model, ["mean_activation"], pairs, lm_scores(model), batch_size=4)
    assert float64_on_cpu


def test_random_depends_on_seed_and_domain_only(model: LoadedModel, pairs: list[Pair]) -> None:
    def draw(domain: str, seed: int) -> Any:
        renamed = [pair._replace(domain=domain) for pair in pairs]
        return contrasts(model, ["random"], renamed, lm_scores(model), seed=seed)[0].c_comply

    np.testing.assert_array_equal(draw("hate", 42), draw("hate", 42))
    assert (draw("hate", 42) != draw("hate", 43)).all()
    assert (draw("hate", 42) != draw("crime", 42)).all()
    assert draw("hate", 42).min() < -0.9
    assert draw("hate", 42).max() > 0.9


def test_domains_are_independent_and_in_order(model: LoadedModel, pairs: list[Pair]) -> None:
    crime = pairs_for(model, "crime", 3, seed=1)
    mixed = [crime[0], *pairs, *crime[1:]]
    both = contrasts(model, ["lrp", "mean_activation"], mixed, lm_scores(model))
    expected = [(selector, domain) for domain in ("crime", "hate") for selector in ("lrp", "mean_activation")]
    assert [(one.selector, one.domain) for one in both] == expected
    alone = contrasts(model, ["lrp"], pairs, lm_scores(model))[0]
    np.testing.assert_array_equal(both[2].c_comply, alone.c_comply)


def test_lrp_and_ig_run_once_for_all_who_need_them(model: LoadedModel, pairs: list[Pair]) -> None:
    """Passes counted: base prompts that two domains share, and consensus2, add none."""
    shared = [*pairs, *(pair._replace(domain="crime", risk=f"{pair.risk} {index}") for index, pair in enumerate(pairs))]
    calls: list[tuple[str, int, int]] = []
    try:
        contrasts(model, ["lrp", "consensus2"], shared, lm_scores(model), progress=lambda *args: calls.append(args))
    except InputError as error:  # a random model may lean less to refuse the longer prompts
        pytest.fail(str(error))
    assert [call[0] for call in calls] == ["lrp", "lrp", "ig", "ig", "lrp", "ig"]


# --- ranks and masks ---


def test_percentile_ranks_are_per_layer_and_share_ties(model: LoadedModel) -> None:
    generator = np.random.default_rng(0)
    values = generator.integers(0, 6, model.rows.n_rows).astype(float)
    got = percentile_ranks(values, model.rows)
    np.testing.assert_allclose(got, literal_ranks(model, values.tolist()), atol=1e-12)
    layer = model.rows.layers[1]
    inside = slice(layer.start, layer.start + layer.rows)
    values[inside] = 7.0
    assert (percentile_ranks(values, model.rows)[inside] == 0.5).all()
    values[inside] = np.arange(layer.rows)
    ranks = percentile_ranks(values, model.rows)[inside]
    assert ranks[0] == 0
    assert ranks[-1] == 1


def test_percentile_ranks_of_wrong_scores_are_errors(model: LoadedModel) -> None:
    with pytest.raises(InputError, match="scores have shape"):
        percentile_ranks(np.zeros(3), model.rows)
    values = np.zeros(model.rows.n_rows)
    values[model.rows.layers[4].start] = np.nan
    with pytest.raises(InputError, match="non-finite scores in block 0 gate_proj"):
        percentile_ranks(values, model.rows)


def contrast_of(c_comply: Any, lm_rank: Any = None) -> Contrast:
    c = np.asarray(c_comply, dtype=np.float32)
    lm = np.zeros_like(c) if lm_rank is None else np.asarray(lm_rank, dtype=np.float32)
    return Contrast("lrp", "hate", c, lm)


def test_masks_are_exact_and_ties_go_by_row_id() -> None:
    contrast = contrast_of([0.1, 0.9, 0.5, 0.5, 0.5, -1.0, 0.5, 0.0, 0.0, 0.0])
    assert refusal_mask(contrast, 0.2, 0.1).tolist() == [1]
    assert refusal_mask(contrast, 0.2, 0.3).tolist() == [1, 2, 3]
    assert refusal_mask(contrast, 0.2, 0.5).tolist() == [1, 2, 3, 4, 6]


def test_lambda_protects_rows_that_the_language_model_needs() -> None:
    contrast = contrast_of([0.9, 0.8, 0.1], [1.0, 0.0, 0.0])
    np.testing.assert_allclose(refusal_score(contrast, 0.5), [0.4, 0.8, 0.1], atol=1e-6)
    assert refusal_mask(contrast, 0.0, 0.34).tolist() == [0]
    assert refusal_mask(contrast, 0.5, 0.34).tolist() == [1]


def test_file_round_trip(model: LoadedModel, pairs: list[Pair], tmp_path: Path) -> None:
    results = contrasts(model, BUILT_IN, pairs, lm_scores(model))
    path = tmp_path / "new" / "contrast.safetensors"
    save_contrasts(path, results, '{"schema_version": 1}')
    loaded, manifest = load_contrasts(path)
    assert manifest == '{"schema_version": 1}'
    by_selector = {one.selector: one for one in loaded}
    assert set(by_selector) == set(BUILT_IN)
    for result in results:
        same = by_selector[result.selector]
        assert same.domain == "hate"
        np.testing.assert_array_equal(same.c_comply, result.c_comply)
        np.testing.assert_array_equal(same.lm_rank, result.lm_rank)
        assert refusal_mask(same, 0.5, 0.05).tolist() == refusal_mask(result, 0.5, 0.05).tolist()


# --- installing only: what is checked on the way to a mask ---

INSTALLS_ONLY = "only installs refusal"


@pytest.mark.parametrize("lam", [-0.2, -1e-9, float("nan"), float("inf"), 1.5, 1e6])
def test_lambda_cannot_turn_the_mask_round(lam: float) -> None:
    with pytest.raises(InputError, match=INSTALLS_ONLY):
        refusal_mask(contrast_of([0.5, -0.5]), lam, 0.5)


@pytest.mark.parametrize("k", [-0.05, 0, -1, float("nan"), 1, 2, 30])
def test_k_cannot_turn_the_mask_round(k: float) -> None:
    with pytest.raises(InputError, match=INSTALLS_ONLY):
        refusal_mask(contrast_of([0.5, -0.5]), 0.5, k)


def test_prompts_on_both_sides_are_refused(model: LoadedModel, pairs: list[Pair]) -> None:
    same = [pair._replace(base=pair.risk) for pair in pairs]
    crossed = [*pairs, pairs[0]._replace(risk=pairs[1].base, base="another cat")]
    for wrong in (same, crossed):
        with pytest.raises(InputError, match=INSTALLS_ONLY):
            contrasts(model, ["lrp"], wrong, lm_scores(model))


@pytest.mark.parametrize("selector", BUILT_IN)
def test_swapped_sides_are_refused(model: LoadedModel, pairs: list[Pair], selector: str) -> None:
    swapped = [pair._replace(risk=pair.base, base=pair.risk) for pair in pairs]
    with pytest.raises(InputError, match=INSTALLS_ONLY):
        contrasts(model, [selector], swapped, lm_scores(model))


def test_swapped_phrase_lists_are_refused(model: LoadedModel, pairs: list[Pair]) -> None:
    swapped = OnsetPhrases(refusal=ONSET_PHRASES.compliance, compliance=ONSET_PHRASES.refusal)
    with pytest.raises(InputError, match=INSTALLS_ONLY):
        contrasts(model, ["lrp"], pairs, lm_scores(model), phrases=swapped)


def test_negative_language_model_scores_are_refused(model: LoadedModel, pairs: list[Pair]) -> None:
    """S = C - lambda * r(C) with a large lambda would take the rows at the other end."""
    [honest] = contrasts(model, ["lrp"], pairs, lm_scores(model))
    for negative in (honest.c_comply, -lm_scores(model)["lrp"]):
        with pytest.raises(InputError, match=f"must be 0 or more.*{INSTALLS_ONLY}"):
            contrasts(model, ["lrp"], pairs, {"lrp": negative})


# --- other wrong input ---


def test_wrong_input_is_a_clear_error(model: LoadedModel, pairs: list[Pair]) -> None:
    scores = lm_scores(model)
    with pytest.raises(InputError, match="did you mean 'lrp'"):
        contrasts(model, ["lpr"], pairs, scores)
    with pytest.raises(InputError, match="no language-model scores for 'ig'"):
        contrasts(model, ["ig"], pairs, {"lrp": scores["lrp"]})
    with pytest.raises(InputError, match="no prompt pairs"):
        contrasts(model, ["lrp"], [], scores)
    plain = tiny_tokenizer()
    plain.chat_template = None
    with pytest.raises(InputError, match="no chat template"):
        contrasts(dataclasses.replace(model, tokenizer=plain), ["lrp"], pairs, scores)
    with pytest.raises(InputError, match="both need"):
        contrast_of([0.0, 0.0], [0.0])
    with pytest.raises(InputError, match=r"both need \[rows\]"):
        contrast_of([[0.0, 0.0]], [[0.0, 0.0]])
    with pytest.raises(InputError, match="unknown contrast selector 'wanda'; .*available: .*lrp"):
        contrasts(model, ["wanda"], pairs, {"wanda": scores["lrp"]})
    with pytest.raises(InputError, match="unknown contrast selector 'lpr'; did you mean 'lrp'"):
        RefusalPlan(selectors=("lpr",))
