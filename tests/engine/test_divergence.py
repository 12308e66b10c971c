"""KL to the unedited model against loops and torch's own; thresholds, principal directions and similarities."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from engine.data.prompts import prompt_ids
from engine.edits.edit import UNEDITED, Steering, edit_of
from engine.interventions.at_outputs import applied
from engine.measures import predictions
from engine.measures.condition import Similarities, block_states, principal_direction, similarity
from engine.measures.divergence import Kl, token_kl
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.results.store import Store
from engine.run.runner import Cell, LocalRunner
from engine.studies.refusal.vectors import Threshold, best_threshold

PROMPTS = ("Sure, here it is.", "No way.", "The cat sat on the mat, then it ran.")
REPLIES = ("Here you are.", "", "It sat on a mat and ran.")


def test_token_kl_is_torchs_and_the_loops() -> None:
    generator = torch.Generator().manual_seed(0)
    before, after = (5 * torch.randn(7, 11, generator=generator) for _ in range(2))
    found = token_kl(before, after)
    log_p, log_q = (logits.double().log_softmax(-1) for logits in (before, after))
    expected = functional.kl_div(log_q, log_p, reduction="none", log_target=True).sum(-1)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    for row in range(7):
        p, q = (np.exp(np.float64(logits[row])) for logits in (before, after))
        p, q = p / p.sum(), q / q.sum()
        by_loop = math.fsum(p[v] * math.log(p[v] / q[v]) for v in range(11))
        assert float(found[row]) == pytest.approx(by_loop, rel=1e-9)
    assert not token_kl(before, before).any()
    assert (found > 0).all()


def test_token_kl_is_the_same_in_chunks_and_in_float64_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch, float64_on_cpu: list[torch.Tensor]
) -> None:
    logits = torch.randn(2, 9, 5, generator=torch.Generator().manual_seed(1))
    whole = token_kl(*logits)
    assert float64_on_cpu
    monkeypatch.setitem(predictions.SOFTMAX_BUDGET, "cpu", 10)
    monkeypatch.setattr(predictions, "LEAST_ROWS", 1)
    assert torch.equal(token_kl(*logits), whole)


def test_the_divergence_of_an_edit_is_a_loop_over_the_replys_positions(
    tiny_family: LoadedModel, tmp_path: Path
) -> None:
    loaded, system = tiny_family, "Be brief."
    d = int(loaded.model.config.get_text_config().hidden_size)
    steer = Steering({1: np.linspace(-1, 1, d)}, 1.0)
    mask = edit_of(range(0, loaded.rows.n_rows, 4), loaded.rows.n_rows)
    cases = [(edit, "") for edit in (UNEDITED, mask, steer)] + [(UNEDITED, system)]
    with Store(tmp_path) as store:
        cells = [Cell(loaded, edit, Kl(PROMPTS, REPLIES, 2, system=said)) for edit, said in cases]
        results = LocalRunner(store).run(cells)
        assert LocalRunner(store).expect(cells).to_compute == 0
    assert len({cell.key for cell in cells}) == 4
    unedited, masked, steered, instructed = (results[cell] for cell in cells)
    assert unedited.sums == (0.0, 0.0, 0.0)
    assert unedited.value == 0.0
    for found, (edit, said) in zip((masked, steered, instructed), cases[1:], strict=True):
        for number, (prompt, reply) in enumerate(zip(PROMPTS, REPLIES, strict=True)):
            tail = loaded.tokenizer(reply, add_special_tokens=False)["input_ids"]
            assert found.counts[number] == len(tail) + 1
            logits = []
            for one, words in ((UNEDITED, ""), (edit, said)):
                ids = [*prompt_ids(loaded.tokenizer, prompt, system=words), *tail]
                with applied(loaded, one), torch.no_grad():
                    logits.append(loaded.model(torch.tensor([ids]), use_cache=False).logits[0, -len(tail) - 1 :])
            p, q = (some.double().log_softmax(-1) for some in logits)
            expected = float((p.exp() * (p - q)).sum())
            # float32 logits from passes of other shapes
            assert found.sums[number] == pytest.approx(expected, rel=1e-3, abs=1e-5)
        assert found.value == pytest.approx(math.fsum(found.sums) / sum(found.counts))
        assert found.stderr is not None


def test_the_principal_direction_is_numpys() -> None:
    """Largest eigenvector of the covariance of all states, each less the middle of its pair; sign by the means."""
    generator = np.random.default_rng(0)
    axis, shared = generator.normal(size=6), 30 * generator.normal(size=(9, 6))
    positive = shared + generator.normal(size=(9, 6)) + 3 * axis
    negative = shared + generator.normal(size=(9, 6)) - 3 * axis
    middle = (positive + negative) / 2
    values, vectors = np.linalg.eigh(np.cov(np.vstack([positive - middle, negative - middle]), rowvar=False))
    expected = vectors[:, values.argmax()]
    expected *= np.sign((positive.mean(0) - negative.mean(0)) @ expected)
    found = principal_direction(torch.from_numpy(positive), torch.from_numpy(negative))
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-9)
    swapped = principal_direction(torch.from_numpy(negative), torch.from_numpy(positive))
    np.testing.assert_allclose(swapped.numpy(), -expected, atol=1e-9)
    for pair in (positive[:1] - negative[:1], negative[:1] - positive[:1], *np.split(generator.normal(size=(8, 6)), 8)):
        both = torch.from_numpy(np.vstack([pair, -pair]))  # means that cancel say no side
        found = principal_direction(both, -both).numpy()
        np.testing.assert_allclose(found, pair[0] / pair[0, np.abs(pair[0]).argmax()] * np.abs(found).max(), atol=1e-9)
    with pytest.raises(InputError, match="no direction"):
        principal_direction(torch.ones(2, 3), torch.ones(2, 3))


def test_similarity_is_casts_formula_with_the_projection_matrix() -> None:
    generator = np.random.default_rng(1)
    states, direction = generator.normal(size=(5, 4)), 3 * generator.normal(size=4)
    projector = np.outer(direction, direction) / (direction @ direction)
    expected = []
    for h in states:
        projected = np.tanh(projector @ h)
        expected.append(h @ projected / np.linalg.norm(h) / np.linalg.norm(projected))
    found = similarity(torch.from_numpy(states), torch.from_numpy(direction))
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_array_equal(similarity(torch.from_numpy(states), -torch.from_numpy(direction)), found)
    orthogonal = torch.tensor([[0.0, 2.0]])
    assert similarity(orthogonal, torch.tensor([1.0, 0.0])).tolist() == [0.0]


def test_similarities_are_of_the_mean_state_of_the_whole_prompt(tiny_llama: LoadedModel) -> None:
    sequences = tuple(tuple(prompt_ids(tiny_llama.tokenizer, prompt)) for prompt in PROMPTS)
    direction = np.linspace(-1, 2, 20).astype(np.float32)
    measure = Similarities(sequences, 1, direction)
    states = block_states(tiny_llama, sequences, [len(one) for one in sequences])
    expected = similarity(states[:, 1], torch.from_numpy(direction))
    assert measure.measure(tiny_llama, UNEDITED) == tuple(expected)
    assert measure.decode(measure.encode(measure.measure(tiny_llama, UNEDITED))) == tuple(expected)
    others = [Similarities(sequences[:2], 1, direction), Similarities(sequences, 0, direction)]
    others.append(Similarities(sequences, 1, 2 * direction))
    assert len({Cell(tiny_llama, UNEDITED, one).key for one in (measure, *others)}) == 4
    with pytest.raises(RuntimeError, match="unedited"):
        measure.measure(tiny_llama, edit_of([0], tiny_llama.rows.n_rows))


def f1_of(positive: list[float], negative: list[float], value: float, above: bool) -> float:
    def holds(x: float) -> bool:
        return x > value if above else x < value

    hits, wrong = sum(map(holds, positive)), sum(map(holds, negative))
    return 2 * hits / (2 * hits + wrong + len(positive) - hits)


@pytest.mark.parametrize("seed", range(20))
def test_no_threshold_has_a_larger_f1(seed: int) -> None:
    generator = np.random.default_rng(seed)
    shift = generator.normal()
    positive = generator.normal(shift, 1, size=9).round(1).tolist()
    negative = generator.normal(0, 1, size=13).round(1).tolist()
    found = best_threshold(positive, negative)
    everywhere = np.arange(-6, 6, 0.025)
    best = max(f1_of(positive, negative, value, above) for value in everywhere for above in (True, False))
    assert found.f1 == best == f1_of(positive, negative, found.value, found.above)
    assert found.holds(positive).sum() == sum(x > found.value if found.above else x < found.value for x in positive)


def test_threshold_of_separated_groups_is_in_the_widest_gap() -> None:
    assert best_threshold([3.0, 4.0], [0.0, 1.0]) == (2.0, True, 1.0)
    assert best_threshold([0.0, 1.0], [3.0, 4.0]) == (2.0, False, 1.0)
    for above, beyond in ((True, [False, False, True]), (False, [True, False, False])):
        assert Threshold(2.0, above, 1.0).holds([1.9, 2.0, 2.1]).tolist() == beyond
    same = best_threshold([1.0], [1.0])
    assert same.f1 == pytest.approx(2 / 3)  # everything is called positive
    for positive, negative in (([], [1.0]), ([1.0], []), ([float("nan")], [1.0])):
        with pytest.raises(InputError, match="finite numbers of both kinds"):
            best_threshold(positive, negative)
