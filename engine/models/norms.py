"""Norms: which RMS norm a module is, found by trying it, with the same norm under AttnLRP's identity rule; and those
whose output some Linears read directly, found by watching a pass, where a norm's weight can be folded.

A form is taken where it gives the module's own output to the bit, since logits must not change under the rule. Tried is
a module's twin: the same classes and settings on the CPU, small random numbers in the place of weights. The module
itself, its hooks, its configuration and torch's random state stay as they are."""

import copy
import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

from engine.models.loading import LoadedModel, input_device
from engine.models.rows_of_modules import decoder_blocks

LARGEST = 2**20
_OWN_FORWARDS = ("forward", "_old_forward", "_hf_hook")  # set on one module, by accelerate or by an edit
_OF_ANY_MODULE = frozenset(vars(nn.Module()))

Replacement = Callable[[nn.Module, str], nn.Module | None]


def twin(
    module: nn.Module,
    generator: torch.Generator,
    dtype: torch.dtype,
    replacement: Replacement = lambda *_: None,
    largest: int = LARGEST,
) -> nn.Module:
    """The twin in eval mode, parameters in `dtype`. replacement: of a submodule and its path what stands for it, None
    for its own twin. largest: entries of a parameter that gets numbers; what reads a larger one does not run."""
    known: dict[int, Any] = {}

    def copied(original: nn.Module, path: str) -> nn.Module:
        if id(original) in known:
            return known[id(original)]
        other = replacement(original, path)
        if other is None:
            other = type(original).__new__(type(original))
            nn.Module.__init__(other)
            for name, value in vars(original).items():
                if name not in vars(other) and name not in _OWN_FORWARDS:
                    vars(other)[name] = configured(value) if hasattr(value, "_attn_implementation") else value
            other._non_persistent_buffers_set = set(original._non_persistent_buffers_set)
            for name, parameter in original._parameters.items():
                other.register_parameter(name, None if parameter is None else numbers(parameter))
            for name, buffer in original._buffers.items():
                other._buffers[name] = None if buffer is None else constant(buffer)
            for name, child in original._modules.items():
                other._modules[name] = None if child is None else copied(child, f"{path}.{name}".lstrip("."))
            other.training = False
        known[id(original)] = other
        return other

    def configured(config: Any) -> Any:
        if id(config) not in known:
            known[id(config)] = copy.deepcopy(config)
            known[id(config)]._attn_implementation = "eager"
        return known[id(config)]

    def numbers(parameter: Tensor) -> nn.Parameter:
        if parameter.numel() > largest:
            return nn.Parameter(torch.empty(parameter.shape, dtype=dtype, device="meta"), requires_grad=False)
        return nn.Parameter(torch.randn(parameter.shape, generator=generator).to(dtype), requires_grad=False)

    def constant(buffer: Tensor) -> Tensor:
        if not (buffer.is_meta or isinstance(buffer, FakeTensor)):
            return buffer.detach().cpu().clone()
        values = (
            torch.rand(buffer.shape, generator=generator) if buffer.is_floating_point() else torch.zeros(buffer.shape)
        )
        return values.to(buffer.dtype)

    return copied(module, "")


@contextmanager
def probing() -> Iterator[None]:
    """Inside: tensors with numbers on the CPU and no gradients, whatever holds outside."""
    with unset_fake_temporarily(), torch.device("cpu"), torch.no_grad():
        yield


def settings(module: nn.Module) -> tuple[Any, ...]:
    """What a probe of the module's twin depends on: equal for modules whose twins are equal."""
    shapes = tuple((name, parameter.shape) for name, parameter in module.named_parameters(recurse=False))
    buffers = tuple(id(buffer) for buffer in module.buffers(recurse=False))
    others = tuple(
        (name, value if isinstance(value, bool | int | float | str) else id(value))
        for name, value in vars(module).items()
        if name not in _OF_ANY_MODULE
    )
    children = tuple((name, settings(child)) for name, child in module.named_children())
    return (type(module), shapes, buffers, others, children)


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


_EPS = ("variance_epsilon", "eps")
_TOKENS = 5  # of the pass; any will do


@dataclass(frozen=True)
class NormReaders:
    """An RMS norm and the Linears that read it. plus_one: it multiplies by 1 + weight (Gemma), else by weight."""

    norm: str
    readers: tuple[str, ...]
    plus_one: bool


@torch.no_grad()
def norm_readers(loaded: LoadedModel) -> tuple[tuple[NormReaders, ...], str]:
    """RMS norms of the decoder blocks that Linears of the row index read (their input lies in the very memory that the
    norm gave), in the order of the pass; why others are none. Whether something else reads a norm too, the comparison
    of the logits sees."""
    model, rows = loaded.model, loaded.rows
    given: dict[str, tuple[Tensor, Tensor]] = {}  # norm -> input, output; kept, so that no memory is used twice
    readers: dict[str, list[str]] = {}

    def on_norm(path: str, _: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> None:
        given[path] = (arguments[0].clone(), output)

    def on_linear(path: str, _: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        for norm, (_input, output) in given.items():
            if output.data_ptr() == arguments[0].data_ptr() and output.numel() == arguments[0].numel():
                readers.setdefault(norm, []).append(path)

    paths = {id(module): path for path, module in model.named_modules()}
    with loaded.lock, ExitStack() as hooks:
        for module in (module for block in decoder_blocks(model) for module in block.modules()):
            weight = getattr(module, "weight", None)
            if isinstance(weight, Tensor) and weight.ndim == 1:
                hooks.callback(module.register_forward_hook(partial(on_norm, paths[id(module)])).remove)
        for layer in rows.layers:
            linear = model.get_submodule(layer.name)
            hooks.callback(linear.register_forward_pre_hook(partial(on_linear, layer.name)).remove)
        model(input_ids=torch.arange(_TOKENS, device=input_device(model))[None], use_cache=False)
    found, without = [], []
    for norm, linears in readers.items():
        plus_one = _plus_one(model.get_submodule(norm), *given[norm])
        if plus_one is None:
            without.append(f"{type(model.get_submodule(norm)).__name__} is no RMS norm with a weight")
        else:
            found.append(NormReaders(norm, tuple(linears), plus_one))
    reasons = "; ".join(f"{count} of {len(readers)} norms: {why}" for why, count in Counter(without).items())
    return tuple(found), reasons


def _plus_one(norm: nn.Module, given: Tensor, output: Tensor) -> bool | None:
    """Does it multiply x / rms(x) by 1 + weight, or by weight? None for what does neither (LayerNorm)."""
    eps = next((float(getattr(norm, name)) for name in _EPS if hasattr(norm, name)), 1e-6)
    wide, weight = given.float(), norm.get_parameter("weight").float()
    plain = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    size = output.float().abs().max()
    errors = [float((output.float() - plain * factor).abs().max() / size) for factor in (weight, 1 + weight)]
    # Half precision rounds by some 2^-8; another formula is off by far more.
    return errors[1] < errors[0] if min(errors) < 0.02 else None
