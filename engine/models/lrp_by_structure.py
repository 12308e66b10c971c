"""Which of AttnLRP's rules fit a model's decoder, found by trying its parts with random inputs.

The rules are local. They fit a decoder that is put together of these parts in whatever way is linear:

- norms that give an RMS norm's output to the bit (`norms`);
- MLPs that give down_proj(act_fn(gate_proj(x)) * up_proj(x)) to the bit, since lxt's forward replaces theirs;
- transformers' attention function, called once per block, that gives softmax(scaling * q k^T + mask) v;
- Linears.

Norms, MLPs and attention functions are tried alone. Then the decoder runs with stand-ins for all of them that give
random numbers, and whatever reaches a stand-in or leaves a module must be linear in those numbers: sums, rotary
positions and constant factors are, a gate, a router or another norm is not. No weight is read."""

import math
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any, cast

import torch
from torch import Tensor, nn

from engine.models.experts import routed
from engine.models.forwards import wrapped_attention
from engine.models.links import GATED
from engine.models.norms import NormForm, difference, norm_form, probing, settings, twin
from engine.models.rows_of_modules import decoder, decoder_blocks
from engine.models.skeletons import first_line, quiet

LINEAR_WITHIN = 1e-5  # the passes are in float64, rotary positions in float32
ELEMENTWISE_WITHIN = 1e-2  # an entry may be rounded otherwise at another place; one that sees others is off by more
SOFTMAX_WITHIN = 1e-4  # transformers' softmax is in float32, of scores up to some 100
_TOKENS = 5
_TEXTS = 3  # of the batch; the numbers of the third are 2 * the first's - 3 * the second's
_SECOND = 1000.0  # the second's numbers are larger by this, so that they meet a clamp
_OF_LARGEST = "of the largest entry"

Problem = str  # which part differs from those above, and by how much, for a message


@dataclass(frozen=True)
class Structure:
    """The classes of a model that get a rule, and the modules whose attention function does.
    norms, mlps: each class is the one that defines the forward."""

    norms: dict[type[nn.Module], NormForm]
    mlps: tuple[type[nn.Module], ...]
    modelings: tuple[ModuleType, ...]


class _DiffersError(Exception):
    """The text is a `Problem`."""


def structure(model: nn.Module) -> Structure | Problem:
    """The rules for the model's decoder, or what differs. Shapes are enough (meta device)."""
    with probing(), quiet():
        try:
            width = cast(Any, model).get_input_embeddings().weight.shape[-1]
            return _Probe(decoder(model)).structure(len(decoder_blocks(model)), width)
        except _DiffersError as error:
            return str(error)


@dataclass
class _Probe:
    """Tries one decoder. Parts with equal settings are tried once."""

    decoder: nn.Module
    known: dict[Any, Any] = field(default_factory=dict)
    norms: dict[type[nn.Module], NormForm] = field(default_factory=dict)
    mlps: dict[type[nn.Module], None] = field(default_factory=dict)
    norm_differences: dict[str, float] = field(default_factory=dict)
    modelings: dict[str, ModuleType] = field(default_factory=dict)
    attention_calls: int = 0
    draws: int = 0

    def structure(self, blocks: int, width: int) -> Structure:
        with ExitStack() as undo:
            try:
                double = twin(self.decoder, torch.Generator().manual_seed(0), torch.float64, self.stand_in)
                for path, module in double.named_modules():
                    if not isinstance(module, _StandIn):
                        module.register_forward_hook(partial(self.check_output, path))
                callers = {id(module) for module in double.modules()}
                wrapped_attention(_modelings(double), lambda one: partial(self.attention, one, callers), undo)
                double(inputs_embeds=self.numbers(_TEXTS, _TOKENS, width), use_cache=False)
            except _DiffersError:
                raise
            except Exception as error:
                raise _DiffersError(
                    f"{type(self.decoder).__name__} does not run on random numbers in the place of its Linears', "
                    f"norms', MLPs' and attention's ({first_line(error)})"
                ) from None
        if self.attention_calls != blocks:
            raise _DiffersError(
                f"its {blocks} blocks call transformers' attention functions by name {self.attention_calls} times, "
                "expected once each"
            )
        return Structure(self.norms, tuple(self.mlps), tuple(self.modelings.values()))

    def stand_in(self, module: nn.Module, path: str) -> nn.Module | None:
        """What runs in the place of a part that has a rule or needs none."""
        where = f"{path} ({type(module).__name__})"
        if isinstance(module, nn.Linear):
            if routed(module):
                raise _DiffersError(f"{where} is of a routed expert, and no rule is known for routers")
            if type(module).forward is not nn.Linear.forward:
                self.once(("Linear", type(module)), lambda: _check_linear(module, where))
            return _StandIn(self, where, module.out_features)
        form = self.once(("norm", settings(module)), lambda: norm_form(module))
        if isinstance(form, NormForm):
            if self.norms.setdefault(_owner(module), form) != form:
                raise _DiffersError(f"{where} is another RMS norm than others of its class")
            return _StandIn(self, where)
        if form is not None:
            self.norm_differences[path] = form
        if all(isinstance(getattr(module, name, None), nn.Linear) for name in GATED) and hasattr(module, "act_fn"):
            self.once(("MLP", settings(module)), lambda: _check_mlp(module, where))
            self.mlps[_owner(module)] = None
            return _StandIn(self, where)
        return None

    def once(self, key: Any, trial: Callable[[], Any]) -> Any:
        if key not in self.known:
            self.known[key] = trial()
        return self.known[key]

    def numbers(self, count: int, *shape: int) -> Tensor:
        """[count, *shape] in float64, whose three equal parts along the first dimension are of the three texts."""
        self.draws += 1
        generator = torch.Generator().manual_seed(self.draws)
        first, second = torch.randn(2, count // _TEXTS, *shape, generator=generator, dtype=torch.float64)
        second = second * _SECOND
        return torch.cat([first, second, 2 * first - 3 * second])

    def check_linear(self, values: Tensor, what: str) -> None:
        """Errors: _DiffersError where the third text's values are not the first two's in the same combination.
        Values that are equal in all three are constants, which a linear function may have as factors."""
        texts = values.detach().double().reshape(_TEXTS, -1) if len(values) % _TEXTS == 0 else None
        if texts is None:
            raise _DiffersError(f"{what} is no batch of {_TEXTS} texts: {list(values.shape)}")
        if not (texts == texts[0]).all():
            apart = difference(texts[2], 2 * texts[0] - 3 * texts[1])
            if not apart <= LINEAR_WITHIN:
                raise _DiffersError(
                    f"{what} is no linear function of what Linears, norms, MLPs and attention before it give: off by "
                    f"{apart:.2g} {_OF_LARGEST} on random numbers, expected at most {LINEAR_WITHIN:.0e}"
                )

    def check_output(self, path: str, module: nn.Module, _: Any, output: Any) -> None:
        values = output.values() if isinstance(output, dict) else output
        tensors = [values] if isinstance(values, Tensor) else values or ()
        tensor = next((one for one in tensors if isinstance(one, Tensor)), None)
        if tensor is None or len(tensor) == 1:  # one for all texts: a constant
            return
        nearest = self.norm_differences.get(path)
        near = f" (the nearest RMS norm differs from it by {nearest:.2g} {_OF_LARGEST})" if nearest else ""
        self.check_linear(tensor, f"what {path or 'the decoder'} ({type(module).__name__}){near} gives")

    def attention(
        self, function: Callable[..., Any], callers: set[int], module: nn.Module,
        query: Tensor, key: Tensor, value: Tensor, *more: Any, **named: Any,
    ) -> Any:  # fmt: skip
        """What stands for an attention function in calls from these modules; calls from others go through."""
        if id(module) not in callers:
            return function(module, query, key, value, *more, **named)
        name = type(module).__name__
        for tensor, what in ((query, "queries"), (key, "keys"), (value, "values")):
            self.check_linear(tensor, f"the {what} of {name}")
        for tensor in (*more, *named.values()):
            if isinstance(tensor, Tensor) and len(tensor) == _TEXTS and not (tensor == tensor[:1]).all():
                raise _DiffersError(f"{name} gives its attention function a mask that depends on the text")
        options = {key: value for key, value in named.items() if not isinstance(value, Tensor)}
        self.once(
            ("attention", function, query.shape, key.shape, value.shape, repr(options)),
            lambda: _check_attention(function, module, (query, key, value), more, named),
        )
        self.attention_calls += 1
        modeling = _modeling(module)
        self.modelings[modeling.__name__] = modeling
        return self.numbers(_TEXTS, query.shape[2], query.shape[1], value.shape[3]), None


class _StandIn(nn.Module):
    """Runs in the place of a part: checks what it gets, and gives random numbers. width: of these, None as it gets."""

    def __init__(self, probe: _Probe, where: str, width: int | None = None) -> None:
        super().__init__()
        self.probe, self.where, self.width = probe, where, width

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        states, *others = [value for value in (*inputs, *named.values()) if value is not None]
        if others or not isinstance(states, Tensor):
            raise _DiffersError(f"{self.where} is given other things than one tensor")
        self.probe.check_linear(states, f"what {self.where} gets")
        return self.probe.numbers(*states.shape[:-1], self.width or states.shape[-1])


class _Given(nn.Module):
    """Gives the same tensor whatever it gets, and keeps what it got."""

    def __init__(self, output: Tensor) -> None:
        super().__init__()
        self.output, self.inputs = output, list[Tensor]()

    def forward(self, states: Tensor) -> Tensor:
        self.inputs.append(states)
        return self.output


def _check_mlp(mlp: nn.Module, where: str) -> None:
    """Errors: _DiffersError where down_proj does not get act_fn(gate) * up to the bit, or the rest is otherwise."""
    generator = torch.Generator().manual_seed(0)
    down_proj = mlp.get_submodule("down_proj")
    assert isinstance(down_proj, nn.Linear)
    hidden, inner = down_proj.out_features, down_proj.in_features
    for dtype in (torch.float32, torch.bfloat16):
        for size in (0.1, 1.0, 30.0, 1000.0):
            states, down, gate, up = (
                (torch.randn(2, 3, width, generator=generator) * size).to(dtype)
                for width in (hidden, hidden, inner, inner)
            )
            linears = {"gate_proj": _Given(gate), "up_proj": _Given(up), "down_proj": _Given(down)}
            double: Any = twin(mlp, generator, dtype, lambda _, path: linears.get(path))  # noqa: B023 # called here
            try:
                output = double(states)
                activated = double.act_fn(gate)
                alone = torch.cat([double.act_fn(gate[..., :1]), double.act_fn(gate[..., 1:])], dim=-1)
            except Exception as error:
                raise _DiffersError(f"{where} does not run on random numbers ({first_line(error)})") from None
            into_gate, into_up, into_down = (linears[name].inputs for name in GATED)
            if not len(into_gate) == len(into_up) == len(into_down) == 1:
                raise _DiffersError(f"{where} does not run gate_proj, up_proj and down_proj once each")
            for got, wanted, bound, what in (
                (into_gate[0], states, 0.0, "what gate_proj gets differs from what the MLP gets"),
                (into_up[0], states, 0.0, "what up_proj gets differs from what the MLP gets"),
                (alone, activated, ELEMENTWISE_WITHIN, "act_fn of an entry alone differs from act_fn among others"),
                (
                    into_down[0],
                    activated * up,
                    0.0,
                    "what down_proj gets differs from act_fn(gate_proj(x)) * up_proj(x)",
                ),
                (output, down, 0.0, "what the MLP gives differs from what down_proj gives"),
            ):
                apart = difference(got, wanted) if isinstance(got, Tensor) else math.inf
                if not apart <= bound:
                    kind = str(dtype).removeprefix("torch.")
                    raise _DiffersError(f"{where}: {what} by {apart:.2g} {_OF_LARGEST} on random numbers in {kind}")


def _check_attention(
    function: Callable[..., Any], module: nn.Module, called: tuple[Tensor, ...], more: tuple[Any, ...], named: Any
) -> None:
    """Errors: _DiffersError where the function gives another thing than softmax(scaling * q k^T + mask) v."""
    generator = torch.Generator().manual_seed(0)
    for size in (0.3, 5.0):
        query, key, value = (torch.randn(one.shape, generator=generator, dtype=torch.float64) * size for one in called)
        mask = more[0] if more else named.get("attention_mask")
        scaling = named.get("scaling") or query.shape[-1] ** -0.5
        groups = query.shape[1] // key.shape[1]
        keys, values = (tensor.repeat_interleave(groups, 1) for tensor in (key, value))
        scores = query @ keys.mT * scaling + (0.0 if mask is None else mask)
        expected = (scores.softmax(-1) @ values).transpose(1, 2)
        apart = difference(function(module, query, key, value, *more, **named)[0], expected)
        if not apart <= SOFTMAX_WITHIN:
            numbers = {name: one for name, one in named.items() if type(one) in (int, float)}
            options = ", ".join(f"{name}={one}" for name, one in numbers.items())
            raise _DiffersError(
                f"the attention function beside {type(module).__name__}, called with {options}, differs from "
                f"softmax(scaling * q k^T + mask) v by {apart:.2g} {_OF_LARGEST} on random numbers, expected at most "
                f"{SOFTMAX_WITHIN:.0e}"
            )


def _check_linear(linear: nn.Linear, where: str) -> None:
    """Errors: _DiffersError where a Linear with a forward of its own is not linear but for its bias."""
    generator = torch.Generator().manual_seed(0)
    double = twin(linear, generator, torch.float32, largest=linear.in_features * linear.out_features)
    first, second = torch.randn(2, 1, linear.in_features, generator=generator)
    bias, *outputs = (double(inputs) for inputs in (0 * first, first, second, 2 * first - 3 * second))
    first, second, third = (output - bias for output in outputs)
    apart = difference(third, 2 * first - 3 * second)
    if not apart <= LINEAR_WITHIN:
        raise _DiffersError(f"{where} is no linear function: off by {apart:.2g} {_OF_LARGEST} on random numbers")


def _owner(module: nn.Module) -> type[nn.Module]:
    """The class that defines the forward: where a patch goes, once for all that inherit it."""
    return next(base for base in type(module).__mro__ if "forward" in vars(base))


def _modeling(module: nn.Module) -> ModuleType:
    return sys.modules[_owner(module).__module__]


def _modelings(decoder: nn.Module) -> list[ModuleType]:
    """The Python modules whose attention functions the decoder's modules may call by name."""
    modelings = {modeling.__name__: modeling for modeling in map(_modeling, decoder.modules())}
    names = ("eager_attention_forward", "ALL_ATTENTION_FUNCTIONS")
    return [modeling for modeling in modelings.values() if all(hasattr(modeling, name) for name in names)]
