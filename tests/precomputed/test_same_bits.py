"""Training keeps to instructions that x86 processors share, so that its bits do not hang on AVX-512."""

import os
import subprocess
import sys

import pytest
import torch

from precomputed.recipe import same_bits

# What a step of training is made of: its bits, after the imports of the recipe and before anything was computed.
STEP = """
import hashlib, sys
from precomputed.recipe.__main__ import main
from precomputed.recipe.same_bits import keep_to_common_instructions
import torch
from torch.nn import functional

kept = keep_to_common_instructions() if "keep" in sys.argv else None
torch.set_num_threads(1)
torch.manual_seed(0)
states = torch.randn(2, 6, 200, 32, requires_grad=True)
attended = functional.scaled_dot_product_attention(states, states, states, is_causal=True)
hidden = functional.silu(functional.linear(attended.transpose(1, 2).reshape(2, 200, 192), torch.randn(512, 192)))
loss = functional.cross_entropy(hidden.flatten(0, 1), torch.arange(400))
loss.backward()
weights = torch.nn.Parameter(torch.randn(512, 192))
weights.grad = torch.randn(512, 192)
probed = torch.randn(5000, 192) @ torch.randn(192)
torch.optim.AdamW([weights], fused=True).step()
bits = b"".join(one.detach().contiguous().numpy().tobytes() for one in (loss, states.grad, weights, probed))
print(kept, torch.backends.cpu.get_cpu_capability(), hashlib.sha256(bits).hexdigest())
"""
on_x86 = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"), reason="no x86 processor with AVX2"
)


def bits_of_a_step(*arguments: str, **settings: str) -> list[str]:
    left_out = (same_bits.SETTING, *same_bits.OTHER_WAYS)
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    done = subprocess.run(
        [sys.executable, "-c", STEP, *arguments],
        env={**environment, **settings}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.split()


@pytest.mark.long  # three fresh processes that import torch
@on_x86
def test_asked_for_before_anything_is_computed_it_holds() -> None:
    kept, capability, bits = bits_of_a_step("keep")
    assert (kept, capability) == ("True", same_bits.INSTRUCTIONS)
    # As in a process that never saw anything else, and also where MKL was told to sum in another order.
    assert bits_of_a_step(**{same_bits.SETTING: "avx2"})[1:] == [same_bits.INSTRUCTIONS, bits]
    assert bits_of_a_step("keep", MKL_CBWR="AVX2")[2] == bits


def test_no_other_processor_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(same_bits.platform, "machine", lambda: "aarch64")
    before = dict(os.environ)
    assert not same_bits.keep_to_common_instructions()
    assert dict(os.environ) == before
