"""Mamba and hybrids: every Linear that runs as a module is rows, and the rest is left alone and said."""

import copy

import numpy as np
import pytest
import torch
from same_bits import assert_same_bits, bits
from tiny_models import load_tiny

from engine.data.corpora import Windows
from engine.edits.edit import edit_of
from engine.interventions.at_outputs import edited_outputs
from engine.interventions.in_weights import zeroed
from engine.models.loading import LoadedModel
from engine.models.rows_of_modules import decoder_blocks, kept
from engine.selectors.scoring_run import compute_scores

IDS = torch.randint(3, 200, (2, 9), generator=torch.Generator().manual_seed(0))
WINDOWS = Windows("test", "0", IDS, (0, 1))
KEPT = {
    "mamba": "2 convolutions, 2 time steps, 2 state-space parameters",
    "mamba2": "2 convolutions, 2 state-space parameters",
    "jamba": "1 convolution, 1 time step, 1 state-space parameter, 1 router",
    "qwen3_next": "1 convolution, 4 routers, 1 state-space parameter",
    "nemotron_h": "1 convolution, 1 state-space parameter, 1 router",
}
FIRST = ("mamba", "qwen3_next")


@pytest.fixture(
    scope="module", params=[name if name in FIRST else pytest.param(name, marks=pytest.mark.long) for name in KEPT]
)
def hybrid(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, LoadedModel]:
    return request.param, load_tiny(request.param, tmp_path_factory.mktemp(request.param))


def logits(model: object) -> torch.Tensor:
    with torch.no_grad():
        return model(IDS, use_cache=False).logits  # type: ignore[operator]


def test_what_is_left_alone_is_said_and_keeps_its_bits(hybrid: tuple[str, LoadedModel]) -> None:
    family, loaded = hybrid
    assert sorted(kept(decoder_blocks(loaded.model)).split(", ")) == sorted(KEPT[family].split(", "))
    before = bits(loaded.model)
    with zeroed(loaded, np.arange(loaded.rows.n_rows)):
        for name, value in loaded.model.state_dict().items():
            still = torch.equal(value, before[name])
            block = ".layers." in name and value.ndim > 1
            aside = ("conv1d", "dt_proj", "A_log", "gate.weight", "expert_gate", "router", "norm")
            assert still == (not block or any(part in name for part in aside)), name
    assert_same_bits(loaded.model, before)


def test_at_the_outputs_is_as_in_the_weights(hybrid: tuple[str, LoadedModel]) -> None:
    """So every Linear of the index is asked for what it says: one whose weight is read past it would differ."""
    _, loaded = hybrid
    for layer in loaded.rows.layers:
        mask = np.arange(layer.start, layer.start + layer.rows)[::2]
        with zeroed(loaded, mask):
            expected = logits(loaded.model)
        edit = edit_of(mask, loaded.rows.n_rows, kind="language model", spec={})
        with edited_outputs(loaded, [edit]) as outputs, outputs.sequences([0]):
            torch.testing.assert_close(logits(loaded.model), expected, rtol=1e-4, atol=1e-4, msg=layer.name)


def test_selectors_score_every_row(hybrid: tuple[str, LoadedModel]) -> None:
    _, loaded = hybrid
    scores = compute_scores(loaded, ["wanda", "mean_activation", "grad_x_input"], WINDOWS)
    for values in scores.values():
        assert values.shape == (loaded.rows.n_rows,)
        assert values.isfinite().all()


def test_wanda_of_one_linear_by_loops(hybrid: tuple[str, LoadedModel]) -> None:
    _, loaded = hybrid
    layer = next(one for one in loaded.rows.layers if one.name.rpartition(".")[2] in ("in_proj", "in_proj_qkvz"))
    given: list[torch.Tensor] = []
    model = copy.deepcopy(loaded.model)
    model.get_submodule(layer.name).register_forward_hook(lambda _m, args, _o: given.append(args[0].double()))
    logits(model)
    tokens = given[0].flatten(0, 1)
    weight = model.get_submodule(layer.name).weight.detach().double()
    expected = [
        sum(abs(float(weight[row, j])) * float(tokens[:, j].square().mean().sqrt()) for j in range(weight.shape[1]))
        for row in range(layer.rows)
    ]
    found = compute_scores(loaded, ["wanda"], WINDOWS)["wanda"][layer.start : layer.start + layer.rows]
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-5, atol=1e-6)
