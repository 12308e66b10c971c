"""Which RMS norm a module is, found by trying it, and the same norm under AttnLRP's identity rule.

A form is taken where it gives the module's own output to the bit, since logits must not change under the rule. Forms
that differ by where the output is cast or by an epsilon elsewhere differ in these probes.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from engine.models.twins import twin

# Llama's multiplies by the weight after the cast back, OLMo-2's before it, Gemma's by 1 + weight before it.
Scaling = Literal["llama", "olmo2", "gemma3", "none"]
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_WIDTH = 48  # of a norm without weight
_LARGEST_EPS = 0.1


@dataclass(frozen=True)
class NormForm:
    """x / sqrt(mean(x^2) + eps) in float32, scaled and cast back. eps: the name of the module's attribute."""

    eps: str
    scaling: Scaling

    def forward_under_rule(self) -> Callable[[Any, Tensor], Tensor]:
        """A forward for the norm's class: the module's own values, its root held constant in the gradient."""

        def forward(norm: Any, hidden_states: Tensor) -> Tensor:
            dtype = hidden_states.dtype
            wide = hidden_states.to(torch.float32)
            wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + getattr(norm, self.eps)).detach()
            match self.scaling:
                case "llama":
                    return norm.weight * wide.to(dtype)
                case "olmo2":
                    return (norm.weight * wide).to(dtype)
                case "gemma3":
                    return (wide * (1.0 + norm.weight.float())).to(dtype)
            return wide.to(dtype)

        return forward


def norm_form(module: nn.Module) -> NormForm | float | None:
    """The module's form; where it has none, by how much its output differs from the nearest, as a share of its largest
    entry. None for what cannot be an RMS norm: submodules, further parameters, no epsilon, another shape of output; and
    for torch's own norms, whose classes serve the whole process and whose sums are fused."""
    weight = getattr(module, "weight", None)
    parameters = dict(module.named_parameters(recurse=False))
    if type(module).__module__.startswith("torch.") or any(True for _ in module.children()):
        return None
    if parameters.keys() - {"weight"} or (parameters and parameters["weight"].ndim != 1):
        return None
    scalings: tuple[Scaling, ...] = ("llama", "olmo2", "gemma3") if isinstance(weight, Tensor) else ("none",)
    nearest = None
    for name, eps in vars(module).items():
        if isinstance(eps, float) and 0 < eps <= _LARGEST_EPS:
            for scaling in scalings:
                form = NormForm(name, scaling)
                apart = max(_differences(module, form, math.sqrt(eps)), default=None)
                if apart == 0:
                    return form
                if apart is not None and (nearest is None or apart < nearest):
                    nearest = apart
    return nearest


def _differences(module: nn.Module, form: NormForm, smallest_input: float) -> Iterator[float]:
    """Per dtype and size of inputs; inputs of the size of eps's root tell where eps stands. Nothing for no norm."""
    generator = torch.Generator().manual_seed(0)
    forward = form.forward_under_rule()
    for dtype in _DTYPES:
        norm = twin(module, generator, dtype)
        width = len(norm.weight) if form.scaling != "none" else _WIDTH  # type: ignore[arg-type]
        for size in (smallest_input, 1.0, 100.0):
            inputs = (torch.randn(2, 3, width, generator=generator) * size).to(dtype)
            try:
                output, expected = norm(inputs.clone()), forward(norm, inputs)
            except Exception:  # it takes other inputs than a norm does
                return
            if not isinstance(output, Tensor) or output.shape != expected.shape or output.dtype != expected.dtype:
                return
            yield difference(output, expected)


def difference(values: Tensor, expected: Tensor) -> float:
    """The largest difference, as a share of the largest expected entry: 0 for equal bits only, infinite where a number
    is not finite or the shape differs."""
    if values.shape != expected.shape or torch.equal(values, expected):
        return 0.0 if values.shape == expected.shape else math.inf
    apart = (values.double() - expected.double()).abs().max() / expected.double().abs().max().clamp(min=1e-300)
    return float(apart) if apart.isfinite() else math.inf
