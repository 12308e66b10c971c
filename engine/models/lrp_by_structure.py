"""Which of lxt's rules fit a model's decoder blocks, by what its norms, MLPs, attention and blocks compute.

lxt names classes of a few families. Most other families copy those classes word for word, or put the same parts
together otherwise; AttnLRP's rules are local, so that such blocks need no other rules. What counts as the same:

- norm: returns the expression of Llama's, OLMo-2's (Llama's, cast back last) or Gemma-3's RMSNorm;
- MLP: returns Llama's down_proj(act_fn(gate_proj(x)) * up_proj(x)), word for word, since lxt's forward replaces it;
- attention: returns o_proj of transformers' attention function of q_proj(x), k_proj(x) and v_proj(x), whatever norms
  from above and rotary positions of Llama's form stand on queries and keys;
- block: adds attention and MLP to what it is given, whatever norms from above stand before and after them.

Norms may stand anywhere because each carries its own rule. Rotary positions, masks and constant factors are linear and
need none. Expressions are compared as `forward_reading` reads them, without weights.
"""

from __future__ import annotations

import ast
import copy
import functools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

import torch
from torch import nn

from engine.models.forward_reading import (
    Transparent,
    UnreadableError,
    difference,
    returned,
    same,
    same_body,
    shown,
    submodule,
)
from engine.models.rows import decoder, decoder_blocks

LINEAR_TOO = "linear_in_its_input"  # attribute of an nn.Linear with a forward of its own that is still linear
NormRule = Literal["llama", "olmo2", "gemma3"]
Problem = str  # what differs from the parts above, for a message


@dataclass(frozen=True)
class Structure:
    """The classes of a model that get a rule, and the modules whose attention function does.

    norms, mlps: class -> rule, the class being the one that defines the method.
    """

    norms: dict[type[nn.Module], NormRule]
    mlps: tuple[type[nn.Module], ...]
    modelings: tuple[ModuleType, ...]


def structure(model: nn.Module) -> Structure | Problem:
    """The rules for the model's blocks, or what differs. Shapes are enough (meta device)."""
    norms: dict[type[nn.Module], NormRule] = {}
    mlps: dict[type[nn.Module], None] = {}
    modelings: dict[str, None] = {}
    for block in decoder_blocks(model):
        try:
            problem = _problem_of_block(block)
        except UnreadableError as error:
            problem = f"{type(block).__name__}: {error}"
        if problem is not None:
            return problem
        attention, mlp = (_owner(type(block.get_submodule(name)), "forward") for name in ("self_attn", "mlp"))
        modelings[attention.__module__] = None
        mlps[mlp] = None
    for module in decoder(model).modules():
        rule = norm_rule(type(module))
        if rule is not None:
            norms[_owner(type(module), "_norm" if rule == "gemma3" else "forward")] = rule
    return Structure(norms, tuple(mlps), tuple(sys.modules[name] for name in modelings))


def norm_rule(of: type[nn.Module]) -> NormRule | None:
    """Whose rule the class's norm takes, None where it is none of the known."""
    if of.__module__.startswith("torch."):
        return None
    for rule, expected in _references().norms.items():
        methods = ("_norm", "forward") if rule == "gemma3" else ("forward",)
        if all(hasattr(of, name) and _equal(getattr(of, name), getattr(expected, name)) for name in methods):
            return rule
    return None


def _problem_of_block(block: nn.Module) -> Problem | None:
    references = _references()
    problem = _compared(block, references.block, "block", _transparent)
    if problem is not None:
        return problem
    attention, mlp = block.get_submodule("self_attn"), block.get_submodule("mlp")
    return (
        _compared(attention, references.block.get_submodule("self_attn"), "attention", _transparent)
        or _functions_differ(attention)
        or _compared(mlp, references.block.get_submodule("mlp"), "MLP", lambda _: False)
        or next(_not_linear(attention, "q_proj", "k_proj", "v_proj", "o_proj"), None)
        or next(_not_linear(mlp, "gate_proj", "up_proj", "down_proj"), None)
    )


def _compared(module: nn.Module, reference: nn.Module, part: str, transparent: Transparent) -> Problem | None:
    """What the module's forward has in the place of the reference's."""
    name = f"{type(module).__name__}.forward ({part})"
    try:
        got = returned(type(module).forward, module, transparent, _rotary)
    except UnreadableError as error:
        return f"{name} cannot be compared, it has `{error}`"
    expected = returned(type(reference).forward, reference, transparent, _rotary)
    if same(got, expected):
        return None
    mine, theirs = difference(got, expected)
    named = submodule(mine, module)
    what = f" ({type(named).__name__})" if named is not None else ""
    return f"{name} has `{shown(mine)}`{what} where {type(reference).__name__}'s has `{shown(theirs)}`"


def _functions_differ(attention: nn.Module) -> Problem | None:
    """The eager attention function, which the attention implementation may choose."""
    modeling = sys.modules[_owner(type(attention), "forward").__module__]
    eager = getattr(modeling, "eager_attention_forward", None)
    if eager is None or not hasattr(modeling, "ALL_ATTENTION_FUNCTIONS"):
        return f"{type(attention).__name__} does not call transformers' attention functions by name"
    try:
        if any(same_body(eager, other) for other in _references().eager):
            return None
    except UnreadableError:
        pass
    return f"eager_attention_forward beside {type(attention).__name__} differs from Llama's and Gemma-3's"


def _not_linear(module: nn.Module, *names: str) -> Iterator[Problem]:
    for name in names:
        child = getattr(module, name)
        if not isinstance(child, nn.Linear) or not (
            type(child).forward is nn.Linear.forward or getattr(child, LINEAR_TOO, False)
        ):
            yield f"{type(module).__name__}.{name} is a {type(child).__name__}, expected nn.Linear"


def _transparent(module: nn.Module) -> bool:
    return type(module) in (nn.Dropout, nn.Identity) or norm_rule(type(module)) is not None


def _rotary(function: Any) -> bool:
    """Whether the function turns queries and keys as Llama's does, casts aside."""
    references = _references()
    if not callable(function):
        return False
    halves = getattr(function, "__globals__", {}).get("rotate_half")
    turned, expected = _plain(function), _plain(references.rotary)
    if turned is None or expected is None or halves is None or not _equal(halves, references.halves):
        return False
    return same(_without_casts(copy.deepcopy(turned)), _without_casts(copy.deepcopy(expected)))


@functools.cache
def _plain(function: Callable[..., Any]) -> ast.expr | None:
    """What the function returns on its own, None where that cannot be read."""
    try:
        return returned(function)
    except UnreadableError:
        return None


def _equal(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    mine, theirs = _plain(one), _plain(other)
    return mine is not None and theirs is not None and same(mine, theirs)


def _without_casts(node: ast.expr) -> ast.expr:
    class Casts(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.expr:
            self.generic_visit(node)
            cast = isinstance(node.func, ast.Attribute) and node.func.attr in ("to", "float", "type_as")
            return node.func.value if cast else node  # type: ignore[attr-defined]

    found: ast.expr = Casts().visit(node)
    return found


def _owner(of: type[nn.Module], method: str) -> type[nn.Module]:
    """The class that defines the method: where a patch goes, once for all that inherit it."""
    return next(one for one in of.__mro__ if method in vars(one))


@dataclass(frozen=True)
class _References:
    block: nn.Module  # Llama's, without numbers
    norms: dict[NormRule, type[nn.Module]]
    rotary: Callable[..., Any]
    halves: Callable[..., Any]
    eager: tuple[Callable[..., Any], ...]


@functools.cache
def _references() -> _References:
    """The parts of the installed transformers that lxt's rules are written for, and OLMo-2's norm."""
    from transformers.models.gemma3 import modeling_gemma3 as gemma3
    from transformers.models.llama import LlamaConfig, modeling_llama as llama
    from transformers.models.olmo2 import modeling_olmo2 as olmo2

    config = LlamaConfig(hidden_size=8, intermediate_size=12, num_attention_heads=2, num_key_value_heads=1)
    with torch.device("meta"):
        block = llama.LlamaDecoderLayer(config, 0)
    norms: dict[NormRule, type[nn.Module]] = {
        "llama": llama.LlamaRMSNorm, "olmo2": olmo2.Olmo2RMSNorm, "gemma3": gemma3.Gemma3RMSNorm,
    }  # fmt: skip
    eager = (llama.eager_attention_forward, gemma3.eager_attention_forward)
    return _References(block, norms, llama.apply_rotary_pos_emb, llama.rotate_half, eager)
