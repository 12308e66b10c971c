"""Edits and replies on a CUDA device."""

import numpy as np
import pytest
import torch

from engine import edit_of
from engine.interventions.zero import Zero
from engine.measures.generation import generate_under
from engine.models.loading import load_model

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_zeroing_gives_the_bits_that_it_gives_on_the_cpu(dtype: torch.dtype) -> None:
    values = torch.randn(2, 3, 7).to(dtype)
    values[0, 0, :4] = torch.tensor([torch.inf, torch.nan, -0.0, -torch.inf])
    units = torch.rand(2, 1, 7) < 0.5
    there = Zero().apply(values.cuda(), units.cuda(), None).cpu()
    same = torch.int16 if dtype == torch.bfloat16 else torch.int32
    assert torch.equal(there.view(same), Zero().apply(values, units, None).view(same))


def test_replies_under_several_edits_are_those_of_the_cpu() -> None:
    prompts = ["Tell me a story.", "What is rain?", "How do I bake bread at home with my family?"]
    found = []
    for device in ("cpu", "cuda"):
        loaded = load_model("demo", dtype="float32", device=device)
        draws = np.random.default_rng(0)
        edits = [
            edit_of(draws.choice(loaded.rows.n_rows, size, replace=False), loaded.rows.n_rows) for size in (0, 9, 90)
        ]
        found.append([[reply.ids for reply in of] for of in generate_under(loaded, edits, prompts, 24)])
    assert found[0] == found[1]
    assert not torch.backends.cuda.cudnn_sdp_enabled()
