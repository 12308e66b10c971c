"""What decides the last bits of a number beside the model and the versions: kernels, torch's flags, and matrix products
of float32 Linears by oneDNN, where a processor makes torch's usual ones (MKL's) slow: AMD's
(`tests/benchmarks/bench_products.py`).

The sums are the same to within rounding. A model's Linears know both ways from `offer_faster_products` on; a pass takes
the faster one inside `faster_products`, in its own thread."""

import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.models.forwards import set_forward

LEAST = 10_000_000  # multiplications in a product; for fewer, oneDNN's preparations cost more than it gains
NAME = "onednn"
_AMD = "AuthenticAMD"  # as the processor calls its maker
_here = threading.local()


@contextmanager
def faster_products(wanted: bool = True) -> Iterator[None]:
    """Inside: this thread's passes multiply large float32 matrices in the faster way, or, not wanted, as torch does."""
    before = getattr(_here, "wanted", False)
    _here.wanted = wanted
    try:
        yield
    finally:
        _here.wanted = before


def offer_faster_products(model: nn.Module) -> None:
    """Every Linear of a model on the CPU can take the faster way; nothing where there is none."""
    if are_offered():
        for module in model.modules():
            if type(module) is nn.Linear:
                set_forward(module, _forward)


def _forward(linear: nn.Linear, input: Tensor) -> Tensor:
    """The faster way for a large product of plain float32 matrices on the CPU, of which no gradient is asked."""
    weight = linear.weight
    plain = input.dtype == weight.dtype == torch.float32 and input.device.type == "cpu" and weight.is_contiguous()
    graph = torch.is_grad_enabled() and (input.requires_grad or weight.requires_grad)
    if not (getattr(_here, "wanted", False) and plain and not graph and input.numel() * weight.shape[0] >= LEAST):
        return functional.linear(input, weight, linear.bias)
    return torch.ops.mkldnn._linear_pointwise(input, weight, linear.bias, "none", [], "")


@cache
def are_offered() -> bool:
    """Is it a processor of AMD's, and has torch both ways?"""
    both = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()
    return both and _AMD in _processor() and _works()


def _processor() -> str:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return platform.processor()


def _works() -> bool:
    """torch's name for oneDNN's Linear is its own, so another version may not have it."""
    generator = torch.Generator().manual_seed(0)
    input, weight = (torch.randn(3, 5, generator=generator) for _ in range(2))
    try:
        product = torch.ops.mkldnn._linear_pointwise(input, weight, None, "none", [], "")
    except (AttributeError, RuntimeError, TypeError):
        return False
    return torch.allclose(product, functional.linear(input, weight), atol=1e-5)


def without_plans(device: torch.device) -> None:
    """On cards attention no longer takes cuDNN's kernel, which plans each new shape: every token of a reply is one. On
    an H200 the first 64 replies of 64 tokens took 7.2 s with it, later ones of these shapes 1.3, without it 1.8 both
    times. For the process: switched to and fro, threads would meet each other's choice."""
    if device.type == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)


_FUSED = ("flash", "mem_efficient", "cudnn", "math")  # what scaled_dot_product_attention may choose from on a card


def numerics(model: Any, device: str) -> dict[str, Any]:
    """The attention that the model computes, and torch's flags as they are now, of which this software sets one
    (`without_plans`).

    attention: `sdpa`, `eager`, ... of the language model. deterministic_algorithms: without it fused attention's
    backward pass on a card may add in another order each time. float32_products: torch's word; `none` and `ieee` mean
    in float32. large_products: `onednn` where large float32 ones are multiplied so (`engine.models.products`). On a
    card also which fused kernels it may choose from, and cuDNN's own two flags."""
    kind = device.partition(":")[0]
    settings: dict[str, Any] = {
        "attention": str(model.config.get_text_config()._attn_implementation),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
    }
    # Not `get_float32_matmul_precision`, an error of torch where somebody set the flags of one backend.
    backend = {"cpu": torch.backends.mkldnn, "cuda": torch.backends.cuda}.get(kind)
    if backend is not None:
        settings["float32_products"] = backend.matmul.fp32_precision
    if kind == "cpu" and model.dtype == torch.float32 and are_offered():
        settings["large_products"] = NAME
    if kind == "cuda":
        settings["sdpa_kernels"] = [name for name in _FUSED if getattr(torch.backends.cuda, f"{name}_sdp_enabled")()]
        settings["cudnn_deterministic"] = torch.backends.cudnn.deterministic
        settings["cudnn_benchmark"] = torch.backends.cudnn.benchmark
    return settings
