"""One scoring run: passes are shared, batches shrink when memory runs out, locks are held."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from engine.data.corpora import Windows
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.selectors import available_selectors, compute_scores
from engine.selectors.passes import Seen, in_batches, objective_gradient
from engine.selectors.window_sums import WindowSums, window_statistics

ALL = [info.id for info in available_selectors()]


class Forwards:
    """Counts forward passes of the whole model, and windows in them."""

    def __init__(self, model: Any) -> None:
        self.sizes: list[int] = []
        self._handle = model.register_forward_hook(self._count, with_kwargs=True)

    def _count(self, _: Any, __: Any, given: dict[str, Any], ___: Any) -> None:
        self.sizes.append(len(given["inputs_embeds"]))

    def __enter__(self) -> Forwards:
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.remove()


@pytest.mark.parametrize(
    ("selectors", "passes"),
    [
        (["random", "magnitude"], 0),
        (["wanda"], 1),
        (["wanda", "mean_activation"], 1),
        (["lrp"], 1),
        (["ig"], 17),  # 16 with gradients, and h(0) of a single window
        (["consensus2"], 18),
        (["consensus2", "ig", "lrp"], 18),
        (["grad_x_input"], 1),
        (["ig_conductance"], 17),
        (["ig", "ig_conductance"], 17),
        (["grad_x_input", "fisher", "taylor", "atp_signed", "gradient_norm"], 1),
        (["wanda", "mean_activation", "activation_std", "flap", "ria"], 1),
        (["lrp", "relp"], 1 + 1),  # activations first, for the mean output
        (["relp"], 1 + 1),
        (["relp", "wanda", "lrp", "fisher", "grad_x_input"], 1 + 1),  # plain gradients give the activations
        (["wanda", "grad_x_input"], 1),
        (["grad_x_input", "wanda"], 1),
        (["flap", "ig"], 17),
        (["grad_x_input", "gradient_norm", "ig", "ig_conductance"], 17),  # plain gradients are the path's last
        (ALL, 1 + 17),  # AttnLRP, and the path, whose end gives the activations
    ],
)
def test_selectors_share_their_passes(
    selectors: list[str], passes: int, tiny_llama: LoadedModel, tiny_windows: Windows
) -> None:
    with Forwards(tiny_llama.model) as seen:
        compute_scores(tiny_llama, selectors, tiny_windows)
    assert len(seen.sizes) == passes


def test_a_pass_for_activations_makes_logits_of_one_position(tiny_llama: LoadedModel, tiny_windows: Windows) -> None:
    seen: list[int] = []
    head = tiny_llama.model.get_output_embeddings()
    handle = head.register_forward_hook(lambda _module, _args, output: seen.append(output.shape[1]))
    window_statistics(tiny_llama, tiny_windows.input_ids)
    handle.remove()
    assert seen == [1]


def test_what_several_linears_read_is_summed_once_unless_it_was_changed(
    tiny_llama: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    widths = [tiny_llama.model.get_submodule(layer.name).in_features for layer in tiny_llama.rows.layers]
    given, times = torch.randn(2, 5, widths[0]), []
    sums = WindowSums(tiny_llama, (1, 2), 0)
    summed = sums._of_inputs
    monkeypatch.setattr(sums, "_of_inputs", lambda *args: times.append(args[-1]) or summed(*args))
    for layer in (0, 1, 2):
        if layer == 2:
            given.mul_(2)
        sums.add(layer, given, torch.randn(2, 5, tiny_llama.rows.layers[layer].rows), Seen((2, 5)))
    assert times == [1, 2, 1, 2]
    _, both = sums.flat()
    squares = given.double().square().sum((0, 1))
    for layer, expected in enumerate((squares / 4, squares / 4, squares)):
        torch.testing.assert_close(both[layer * widths[0] :][: widths[0]], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.first_run("llama")
def test_plain_gradients_are_the_same_bits_alone_and_at_the_end_of_the_path(
    tiny_family: LoadedModel, tiny_windows: Windows
) -> None:
    plain, along = ["grad_x_input", "taylor", "gradient_norm"], ["ig", "ig_conductance"]
    together = compute_scores(tiny_family, [*plain, *along], tiny_windows)
    for some in (plain, ["ig"], ["ig_conductance"]):
        alone = compute_scores(tiny_family, some, tiny_windows)
        for name in some:
            assert torch.equal(alone[name], together[name]), name


OF_ACTIVATIONS = ["wanda", "mean_activation", "activation_std", "flap", "ria"]


@pytest.mark.parametrize("skip_first", [0, 3])
def test_activations_are_the_same_bits_alone_and_beside_gradients(
    skip_first: int, tiny_family: LoadedModel, tiny_windows: Windows
) -> None:
    """A forward pass under gradients is that without; in batches of four and of two."""
    settings: dict[str, Any] = {"batch_size": 4, "skip_first": skip_first}
    alone = compute_scores(tiny_family, OF_ACTIVATIONS, tiny_windows, **settings)
    for along in (["grad_x_input"], ["ig"]) if skip_first else (["grad_x_input"],):
        together = compute_scores(tiny_family, [*OF_ACTIVATIONS, *along], tiny_windows, **settings)
        for name in OF_ACTIVATIONS:
            assert torch.equal(alone[name], together[name]), name


def test_activations_that_come_beside_gradients_are_not_computed_again(
    tiny_llama: LoadedModel, tiny_windows: Windows
) -> None:
    """Whoever asks first, and where some scores are known: as many passes as without the others' help at most."""
    scores = compute_scores(tiny_llama, ["wanda", "flap", "grad_x_input"], tiny_windows)
    for known, passes in (({"wanda"}, 1), ({"grad_x_input"}, 1), ({"wanda", "flap"}, 1)):
        with Forwards(tiny_llama.model) as seen:
            again = compute_scores(tiny_llama, list(scores), tiny_windows, known={name: scores[name] for name in known})
        assert len(seen.sizes) == passes
        assert all(torch.equal(again[name], scores[name]) for name in scores)


def test_known_scores_are_used_and_every_finished_one_is_reported(
    tiny_llama: LoadedModel, tiny_windows: Windows
) -> None:
    scores = compute_scores(tiny_llama, ["lrp", "ig", "consensus2"], tiny_windows)
    finished: dict[str, torch.Tensor] = {}
    with Forwards(tiny_llama.model) as seen:
        again = compute_scores(
            tiny_llama, ["consensus2"], tiny_windows, known={"ig": scores["ig"]}, finished=finished.__setitem__
        )
    assert len(seen.sizes) == 1
    assert list(finished) == ["lrp", "consensus2"]
    assert torch.equal(again["consensus2"], scores["consensus2"])
    with pytest.raises(InputError, match=r"'ig' gave scores of shape \[4\]; expected \[288\]"):
        compute_scores(tiny_llama, ["consensus2"], tiny_windows, known={"ig": torch.zeros(4)})


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        pytest.param(
            RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried"),
            marks=pytest.mark.long,
        ),
    ],
)
@pytest.mark.parametrize(
    "selector",
    ["wanda", "lrp", "grad_x_input", *(pytest.param(one, marks=pytest.mark.long) for one in ("ig", "ig_conductance"))],
)
def test_batches_are_halved_when_memory_runs_out(
    selector: str, error: RuntimeError, tiny_llama: LoadedModel, tiny_windows: Windows
) -> None:
    expected = compute_scores(tiny_llama, [selector], tiny_windows)[selector]

    def run_out(_: Any, given: Any, __: Any) -> None:
        if len(given[0]) > 2:  # late in the pass: sums of the failed batch exist already
            raise error

    handle = tiny_llama.model.model.layers[1].mlp.down_proj.register_forward_hook(run_out)
    try:
        scores = compute_scores(tiny_llama, [selector], tiny_windows, batch_size=6)[selector]
    finally:
        handle.remove()
    torch.testing.assert_close(scores, expected, rtol=1e-5, atol=1e-7)


def test_running_out_in_the_backward_pass_counts_nothing_twice(tiny_llama: LoadedModel, tiny_windows: Windows) -> None:
    expected = compute_scores(tiny_llama, ["lrp"], tiny_windows)["lrp"]

    def run_out(gradient: torch.Tensor) -> None:
        if len(gradient) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")

    def watch(_: Any, __: Any, output: torch.Tensor) -> None:
        output.register_hook(run_out)

    handle = tiny_llama.model.model.layers[0].mlp.down_proj.register_forward_hook(watch)
    try:
        scores = compute_scores(tiny_llama, ["lrp"], tiny_windows, batch_size=6)["lrp"]
    finally:
        handle.remove()
    torch.testing.assert_close(scores, expected, rtol=1e-5, atol=1e-7)


def test_batches_cover_everything_once_and_stay_small_after_a_failure() -> None:
    tried: list[tuple[int, int]] = []

    def work(part: slice) -> torch.Tensor:
        tried.append((part.start, part.stop))
        if part.stop - part.start > 3:
            raise torch.OutOfMemoryError
        return torch.tensor(part.stop - part.start)

    done = [(part.start, part.stop) for part, _ in in_batches(work, 11, 8)]
    assert done == [(0, 2), (2, 4), (4, 6), (6, 8), (8, 10), (10, 11)]
    assert tried[:3] == [(0, 8), (0, 4), (0, 2)]


def test_batches_end_at_multiples_of_their_size_in_what_the_items_were_taken_from() -> None:
    def work(part: slice) -> torch.Tensor:
        return torch.tensor(part.stop - part.start)

    for first, ends in ((0, [4, 8, 10]), (4, [4, 8, 10]), (5, [3, 7, 10]), (7, [1, 5, 9, 10])):
        found = [part for part, _ in in_batches(work, 10, 4, first)]
        assert [part.stop for part in found] == ends
        assert [part.start for part in found] == [0, *ends[:-1]]


def test_one_window_that_does_not_fit_is_an_error_with_a_next_step() -> None:
    def work(_: slice) -> torch.Tensor:
        raise torch.OutOfMemoryError

    with pytest.raises(InputError, match="out of memory with a single window.*--dtype bfloat16"):
        list(in_batches(work, 3, 2))


@pytest.mark.parametrize("objective", ["loss", "logit"])
def test_gradient_at_the_logits_is_autograds(objective: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 5, 11, generator=generator, dtype=torch.float64).requires_grad_()
    ids = torch.randint(11, (3, 5), generator=generator)
    chosen = logits.log_softmax(-1) if objective == "loss" else logits
    total = torch.stack([chosen[w, t, ids[w, t + 1]] for w in range(3) for t in range(4)]).sum()
    (expected,) = torch.autograd.grad(-total if objective == "loss" else total, logits)
    # float64: exact but for the order of a softmax over 11 entries
    torch.testing.assert_close(objective_gradient(logits.detach(), ids, objective), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("selector", ["magnitude", "wanda", "lrp", "relp", "ig", "fisher"])
def test_scoring_waits_for_whoever_holds_the_model(
    selector: str, tiny_llama: LoadedModel, tiny_windows: Windows
) -> None:
    """Scores taken while another thread's mask is installed would be another model's."""
    done = threading.Event()

    def score() -> None:
        compute_scores(tiny_llama, [selector], tiny_windows)
        done.set()

    thread = threading.Thread(target=score)
    with Forwards(tiny_llama.model) as seen, tiny_llama.lock:
        thread.start()
        assert not done.wait(0.2)
        assert not seen.sizes
    thread.join(60)
    assert done.is_set()
