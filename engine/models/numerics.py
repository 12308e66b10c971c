"""What decides the last bits of a number beside the model and the versions: kernels and torch's flags."""

from typing import Any

import torch

from engine.models.products import NAME, are_offered

_FUSED = ("flash", "mem_efficient", "cudnn", "math")  # what scaled_dot_product_attention may choose from on a card


def numerics(model: Any, device: str) -> dict[str, Any]:
    """The attention that the model computes, and torch's flags as they are now, none of which this software sets.

    attention: `sdpa`, `eager`, ... of the language model. deterministic_algorithms: without it fused attention's
    backward pass on a card may add in another order each time. float32_products: torch's word; `none` and `ieee` mean
    in float32. large_products: `onednn` where large float32 ones are multiplied so (`engine.models.products`). On a
    card also which fused kernels it may choose from, and cuDNN's own two flags."""
    kind = device.partition(":")[0]
    found: dict[str, Any] = {
        "attention": str(model.config.get_text_config()._attn_implementation),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
    }
    # Not `get_float32_matmul_precision`, an error of torch where somebody set the flags of one backend.
    backend = {"cpu": torch.backends.mkldnn, "cuda": torch.backends.cuda}.get(kind)
    if backend is not None:
        found["float32_products"] = backend.matmul.fp32_precision
    if kind == "cpu" and model.dtype == torch.float32 and are_offered():
        found["large_products"] = NAME
    if kind == "cuda":
        found["sdpa_kernels"] = [name for name in _FUSED if getattr(torch.backends.cuda, f"{name}_sdp_enabled")()]
        found["cudnn_deterministic"] = torch.backends.cudnn.deterministic
        found["cudnn_benchmark"] = torch.backends.cudnn.benchmark
    return found
