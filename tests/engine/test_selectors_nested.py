"""Nested calibration sizes: one pass over the largest set gives what separate runs give."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import load_tiny

from engine.data.corpora import Windows
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.selectors import ScoringRun, available_selectors, compute_scores, register_selector
from engine.selectors.base import REGISTRY
from engine.selectors.scoring_run import nested_scores

DATA = [info.id for info in available_selectors() if not info.data_free]


@pytest.fixture
def window_counts(tiny_llama: LoadedModel) -> Iterator[list[int]]:
    """Windows in every forward pass of the whole model, in order."""
    counts: list[int] = []

    def count(_: Any, __: Any, given: dict[str, Any], ___: Any) -> None:
        ids = given.get("input_ids")
        counts.append(len(given["inputs_embeds"] if ids is None else ids))

    handle = tiny_llama.model.register_forward_hook(count, with_kwargs=True)
    yield counts
    handle.remove()


@pytest.fixture
def plug_ins() -> Iterator[None]:
    """Two plug-ins: one asks for the shared pass, one runs the model itself."""

    @register_selector("squared_activation")
    class SquaredActivation:
        """s_i = (E |h_i|)^2."""

        def score(self, run: ScoringRun) -> torch.Tensor:
            return run.activations().output_mean_abs.square()

    @register_selector("mean_logit", seeded=True)
    class MeanLogit:
        """The same number for all rows: the mean logit of the calibration windows."""

        def score(self, run: ScoringRun) -> torch.Tensor:
            logits = run.loaded.model(input_ids=run.input_ids, use_cache=False).logits
            return logits.mean().expand(len(run.seeds), run.rows.n_rows)

    yield
    REGISTRY.remove("squared_activation")
    REGISTRY.remove("mean_logit")


@pytest.mark.long
def test_equal_bit_for_bit_where_the_batches_are_the_same(tiny_llama: LoadedModel, tiny_windows: Windows) -> None:
    nested = nested_scores(tiny_llama, DATA, tiny_windows, [4, 2, 6], batch_size=2)
    assert list(nested) == [2, 4, 6]
    for size, scores in nested.items():
        separate = compute_scores(tiny_llama, DATA, tiny_windows.first(size), batch_size=2)
        assert list(scores) == DATA
        for selector in DATA:
            assert torch.equal(scores[selector], separate[selector]), (size, selector)
    assert not torch.equal(nested[2]["lrp"], nested[6]["lrp"])


@pytest.mark.long
@pytest.mark.parametrize("objective", ["loss", "logit"])
def test_equal_to_rounding_where_batches_are_cut_at_other_windows(
    objective: str, tiny_llama: LoadedModel, tiny_windows: Windows
) -> None:
    selectors = [selector for selector in DATA if selector != "consensus2"]
    nested = nested_scores(tiny_llama, selectors, tiny_windows, [1, 3, 5], objective=objective)
    for size, scores in nested.items():
        separate = compute_scores(tiny_llama, selectors, tiny_windows.first(size), objective=objective)
        for selector in selectors:
            # float32: sums over another batch are added in another order
            torch.testing.assert_close(scores[selector], separate[selector], rtol=1e-5, atol=1e-7)


@pytest.mark.first_run("llama|gpt_neox")
def test_every_family(tiny_family: LoadedModel, tiny_windows: Windows) -> None:
    selectors = ["wanda", "mean_activation", "ig"]
    nested = nested_scores(tiny_family, selectors, tiny_windows, [2, 4], batch_size=1)
    for size, scores in nested.items():
        separate = compute_scores(tiny_family, selectors, tiny_windows.first(size), batch_size=1)
        for selector in selectors:
            assert torch.equal(scores[selector], separate[selector])


def test_each_window_goes_through_the_model_once(
    window_counts: list[int], tiny_llama: LoadedModel, tiny_windows: Windows
) -> None:
    nested_scores(tiny_llama, ["wanda", "mean_activation", "lrp"], tiny_windows, [2, 4, 6], batch_size=6)
    assert window_counts == [6] * 2  # activations and lrp, read off at the sizes
    window_counts.clear()
    nested_scores(tiny_llama, ["consensus2", "lrp", "ig"], tiny_windows, [2, 6])
    # lrp, then ig's 16 points and h(0), of a single window
    assert sum(window_counts) == 6 + 16 * 6 + 1


@pytest.mark.parametrize("family", ["llama", pytest.param("mixtral", marks=pytest.mark.long)])
@pytest.mark.parametrize("skip_first", [0, 3])
def test_a_size_inside_a_batch_moves_no_batch(
    family: str, skip_first: int, tmp_path: Path, tiny_windows: Windows
) -> None:
    """The whole text's scores keep their bits; a smaller size agrees with a run of its own to rounding. Of a routed
    expert, only the tokens of the size's own windows count."""
    loaded = load_tiny(family, tmp_path)
    selectors = ["wanda", "activation_std", "grad_x_input", "fisher"] + (["lrp"] if family == "llama" else [])
    nested = nested_scores(loaded, selectors, tiny_windows, [1, 3, 5, 6], batch_size=4, skip_first=skip_first)
    for size, scores in nested.items():
        text = tiny_windows.first(size)
        separate = compute_scores(loaded, selectors, text, batch_size=4, skip_first=skip_first)
        for selector in selectors:
            if size == 6:
                assert torch.equal(scores[selector], separate[selector]), selector
            # float32: a batch of another size rounds otherwise, by the size of its numbers and not of one row's score
            error = (scores[selector] - separate[selector]).norm() / separate[selector].norm()
            assert error <= 1e-6, (selector, size)


def test_a_pass_ends_where_no_size_is_left_to_compute(
    window_counts: list[int], tiny_llama: LoadedModel, tiny_windows: Windows
) -> None:
    whole = compute_scores(tiny_llama, ["lrp"], tiny_windows, batch_size=2)
    window_counts.clear()
    steps: list[tuple[str, int, int]] = []
    found = nested_scores(
        tiny_llama, ["lrp"], tiny_windows, [1, 3, 6], batch_size=2, known={6: whole},
        progress=lambda *step: steps.append(step),
    )  # fmt: skip
    assert window_counts == [2, 2]
    assert steps == [("lrp", 0, 3), ("lrp", 2, 3), ("lrp", 3, 3)]
    assert torch.equal(found[6]["lrp"], whole["lrp"])


def test_a_plug_in_that_shares_the_pass_costs_none_and_one_that_does_not_costs_its_own(
    plug_ins: None, window_counts: list[int], tiny_llama: LoadedModel, tiny_windows: Windows
) -> None:
    names = ["mean_activation", "squared_activation"]
    nested = nested_scores(tiny_llama, names, tiny_windows, [2, 4, 6], batch_size=2)
    assert sum(window_counts) == 6
    for scores in nested.values():
        torch.testing.assert_close(scores["squared_activation"], scores["mean_activation"].square())
    window_counts.clear()
    own = nested_scores(tiny_llama, ["mean_logit"], tiny_windows, [2, 4], seeds=(7, 8, 9))
    assert window_counts == [4, 2]
    for size, scores in own.items():
        logits = tiny_llama.model(input_ids=tiny_windows.input_ids[:size], use_cache=False).logits
        assert scores["mean_logit"].shape == (3, tiny_llama.rows.n_rows)
        torch.testing.assert_close(scores["mean_logit"][2, 5], logits.mean())


def test_wrong_requests_are_errors_before_any_pass(
    window_counts: list[int], tiny_llama: LoadedModel, tiny_windows: Windows
) -> None:
    for sizes in ([], [0, 2], [2, 7]):
        with pytest.raises(InputError, match=r"sizes must lie in 1\.\.6"):
            nested_scores(tiny_llama, ["lrp"], tiny_windows, sizes)
    with pytest.raises(InputError, match="did you mean 'lrp'"):
        nested_scores(tiny_llama, ["lpr"], tiny_windows, [2])
    with pytest.raises(InputError, match="unknown objective"):
        nested_scores(tiny_llama, ["lrp"], tiny_windows, [2], objective="lost")
    assert window_counts == []
