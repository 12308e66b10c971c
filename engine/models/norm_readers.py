"""Norms whose output some Linears read directly, found by watching a pass: where a norm's weight can be folded."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from engine.models.loading import LoadedModel, input_device
from engine.models.rows import decoder_blocks

_EPS = ("variance_epsilon", "eps")
_TOKENS = 5  # of the pass; any will do


@dataclass(frozen=True)
class NormReaders:
    """An RMS norm and the Linears that read it. plus_one: it multiplies by 1 + weight (Gemma), else by weight."""

    norm: str
    readers: tuple[str, ...]
    plus_one: bool


@dataclass(frozen=True)
class FoundNorms:
    """The norms, and in words why others that Linears read are none; "" where there are no others."""

    norms: tuple[NormReaders, ...]
    without: str


@torch.no_grad()
def norm_readers(loaded: LoadedModel) -> FoundNorms:
    """RMS norms of the decoder blocks that Linears of the row index read (their input lies in the very memory that the
    norm gave), in the order of the pass. Whether something else reads a norm too, the comparison of the logits sees."""
    model, rows = loaded.model, loaded.rows
    given: dict[str, tuple[Tensor, Tensor]] = {}  # norm -> input, output; kept, so that no memory is used twice
    readers: dict[str, list[str]] = {}
    handles = []

    def on_norm(path: str) -> Callable[[nn.Module, Any, Tensor], None]:
        def hook(_: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> None:
            given[path] = (arguments[0].clone(), output)

        return hook

    def on_linear(path: str) -> Callable[[nn.Module, Any], None]:
        def hook(_: nn.Module, arguments: tuple[Tensor, ...]) -> None:
            for norm, (_input, output) in given.items():
                if output.data_ptr() == arguments[0].data_ptr() and output.numel() == arguments[0].numel():
                    readers.setdefault(norm, []).append(path)

        return hook

    paths = {id(module): path for path, module in model.named_modules()}
    with loaded.lock:
        try:
            for block in decoder_blocks(model):
                for module in block.modules():
                    weight = getattr(module, "weight", None)
                    if isinstance(weight, Tensor) and weight.ndim == 1:
                        handles.append(module.register_forward_hook(on_norm(paths[id(module)])))
            for layer in rows.layers:
                handles.append(model.get_submodule(layer.name).register_forward_pre_hook(on_linear(layer.name)))
            model(input_ids=torch.arange(_TOKENS, device=input_device(model))[None], use_cache=False)
        finally:
            for handle in handles:
                handle.remove()
    found, without = [], []
    for norm, linears in readers.items():
        plus_one = _plus_one(model.get_submodule(norm), *given[norm])
        if plus_one is None:
            without.append(f"{type(model.get_submodule(norm)).__name__} is no RMS norm with a weight")
        else:
            found.append(NormReaders(norm, tuple(linears), plus_one))
    told = "; ".join(f"{count} of {len(readers)} norms: {why}" for why, count in Counter(without).items())
    return FoundNorms(tuple(found), told)


def _plus_one(norm: nn.Module, given: Tensor, output: Tensor) -> bool | None:
    """Does it multiply x / rms(x) by 1 + weight, or by weight? None for what does neither (LayerNorm)."""
    eps = next((float(getattr(norm, name)) for name in _EPS if hasattr(norm, name)), 1e-6)
    wide, weight = given.float(), norm.get_parameter("weight").float()
    plain = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    size = output.float().abs().max()
    errors = [float((output.float() - plain * factor).abs().max() / size) for factor in (weight, 1 + weight)]
    # Half precision rounds by some 2^-8; another formula is off by far more.
    return errors[1] < errors[0] if min(errors) < 0.02 else None
