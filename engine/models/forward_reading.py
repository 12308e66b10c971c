"""What a module's forward computes, read from its source as the one expression that it returns.

Assignments are put in where they are used, branches that the configuration decides are decided, names of arguments and
local variables fall away. Two forwards with equal expressions do the same operations on the same submodules.
"""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from engine.models.kv_cache import NAMES

INPUT = "x"  # what the first argument is called in every expression
INTERFACE = "attention"  # what transformers chooses by name: eager, sdpa, flash, ...
# Arguments of the attention function that no rule depends on: what is attended to, and a factor of its scores.
_CONSTANTS = ("dropout", "scaling", "sliding_window")
_NO_CACHE: dict[str, Any] = dict.fromkeys(NAMES)  # scoring keeps no keys and values
_SHOWN = 110  # characters of an expression in a message
_PARTS = 5000  # of an expression, from which it is not followed further: each use of a variable repeats it
_READ = 80  # up to which a difference in several places is shown as one

Transparent = Callable[[nn.Module], bool]
Linear = Callable[[Any], bool]


class UnreadableError(Exception):
    """The forward holds a statement whose effect on the returned value is not followed; the text names it."""


def returned(
    function: Callable[..., Any],
    module: nn.Module | None = None,
    transparent: Transparent = lambda _: False,
    linear: Linear = lambda _: False,
) -> ast.expr:
    """The expression that `function` returns; of a tuple the first entry.

    module: the `self` whose attributes decide branches; without one, only those on keys and values kept from before.
    transparent: submodules of it that are left out, `self.norm(x)` -> `x`. linear: functions of the form
    f(query, key, ...) -> (query, key) that are left out (rotary positions). Where either or a module is given, a
    product with a number of the module's is left out as well: such a factor changes no rule.

    Errors: UnreadableError for a function without source, and for loops, assignments in place and branches on tensors.
    """
    definition = _definition(function)
    arguments = [one.arg for one in definition.args.args if one.arg != "self"]
    values: dict[str, ast.expr] = {arguments[0]: _name(INPUT)} if arguments else {}
    reader = _Reader(values, module, transparent, linear, _globals(function))
    found = reader.run(definition.body)
    if found is None:
        raise UnreadableError("no return")
    return found.elts[0] if isinstance(found, ast.Tuple) and module is not None else found


def same(one: ast.AST, other: ast.AST) -> bool:
    return ast.unparse(one) == ast.unparse(other)


def same_body(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Equal statements, but for documentation and annotations; for functions whose branches depend on arguments."""
    bodies = [ast.Module(_without_documentation(_definition(function).body), []) for function in (one, other)]
    return same(*bodies)


def difference(got: ast.AST, expected: ast.AST) -> tuple[ast.AST, ast.AST]:
    """The smallest parts that differ; the first such parts where the differing part would be too long to read."""
    if isinstance(got, ast.Call) and isinstance(expected, ast.Call) and same(got.func, expected.func):
        inputs, others = [ast.unparse(one) for one in got.args], [ast.unparse(one) for one in expected.args]
        if inputs == others:
            dots: list[ast.expr] = [ast.Constant(...)]
            return ast.Call(got.func, dots, got.keywords), ast.Call(expected.func, dots, expected.keywords)
    if type(got) is type(expected):
        mine, theirs = list(ast.iter_child_nodes(got)), list(ast.iter_child_nodes(expected))
        if len(mine) == len(theirs):
            apart = [pair for pair in zip(mine, theirs, strict=True) if not same(*pair)]
            if len(apart) == 1 or (apart and len(ast.unparse(got)) > _READ):
                return difference(*apart[0])
    return got, expected


def shown(node: ast.AST) -> str:
    """The expression for a message, in one line."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def submodule(node: ast.AST, module: nn.Module) -> nn.Module | None:
    """The submodule that `self.a.b` or a call of it names."""
    target = node.func if isinstance(node, ast.Call) else node
    parts: list[str] = []
    while isinstance(target, ast.Attribute):
        parts.insert(0, target.attr)
        target = target.value
    if not parts or not isinstance(target, ast.Name) or target.id != "self":
        return None
    found: Any = module
    for part in parts:
        found = getattr(found, part, None)
    return found if isinstance(found, nn.Module) else None


@functools.cache
def _definition(function: Callable[..., Any]) -> ast.FunctionDef:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function)))).body[0]
    except (OSError, TypeError, SyntaxError) as error:
        raise UnreadableError(f"its source cannot be read ({type(error).__name__})") from None
    if not isinstance(tree, ast.FunctionDef):
        raise UnreadableError("its source is not a function")
    return tree


def _globals(function: Callable[..., Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = getattr(inspect.unwrap(function), "__globals__", {})
    return found


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _without_documentation(body: list[ast.stmt]) -> list[ast.stmt]:
    return [one for one in body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]


class _Reader(ast.NodeTransformer):
    """Runs statements on expressions. `values`: what each local name stands for so far."""

    def __init__(
        self,
        values: dict[str, ast.expr],
        module: nn.Module | None,
        transparent: Transparent,
        linear: Linear,
        outside: Mapping[str, Any],
    ) -> None:
        self.values, self.module, self.outside = values, module, outside
        self.transparent, self.linear = transparent, linear
        self.in_slice = False  # where a product is a place and no factor

    def run(self, body: list[ast.stmt]) -> ast.expr | None:
        """What these statements return, or None where they do not."""
        for statement in _without_documentation(body):
            match statement:
                case ast.Return(value=ast.expr() as value):
                    return self.read(value)
                case ast.Assign(targets=[target], value=value):
                    self.assign(target, self.read(value), statement)
                case ast.AnnAssign(target=target, value=ast.expr() as value):
                    self.assign(target, self.read(value), statement)
                case ast.If(test=test, body=then, orelse=otherwise):
                    decided = self.decided(self.read(test))
                    if decided is None:
                        raise UnreadableError(f"if {shown(test)}")
                    found = self.run(then if decided else otherwise)
                    if found is not None:
                        return found
                case ast.Pass():
                    pass
                case _:
                    raise UnreadableError(shown(statement))
        return None

    def assign(self, target: ast.expr, value: ast.expr, statement: ast.stmt) -> None:
        match target:
            case ast.Name(id=name):
                if sum(1 for _ in ast.walk(value)) > _PARTS:
                    raise UnreadableError(f"{shown(statement)[:60]} (more than {_PARTS:,} parts)")
                self.values[name] = value
            case ast.Tuple(elts=targets) if all(isinstance(one, ast.Name) for one in targets):
                whole = isinstance(value, ast.Tuple) and len(value.elts) == len(targets)
                for place, one in enumerate(targets):
                    part = value.elts[place] if whole else ast.Subscript(value, ast.Constant(place), ast.Load())  # type: ignore[attr-defined]
                    self.assign(one, part, statement)
            case _:
                raise UnreadableError(shown(statement))

    def read(self, node: ast.expr) -> ast.expr:
        found: ast.expr = self.visit(copy.deepcopy(node))
        return found

    def decided(self, test: ast.expr) -> bool | None:
        """What the module's own attributes make of a condition; None where it takes more than those."""
        found = self.evaluated(test)
        return bool(found[0]) if found and isinstance(found[0], bool | int | float | str | None) else None

    def evaluated(self, node: ast.expr) -> tuple[Any] | None:
        """The value, from the module's own attributes, in a tuple; None where it takes more than those."""
        known = _NO_CACHE if self.module is None else {"self": self.module, **_NO_CACHE}
        try:
            # The library's own expression, which the pass would evaluate on this very module.
            code = compile(ast.fix_missing_locations(ast.Expression(copy.deepcopy(node))), "<forward>", "eval")
            return (eval(code, dict(known)),)  # nosec B307 # as above: no text of a checkpoint is evaluated
        except Exception:  # whatever it raises, it is not known from the module alone, and stays as it is written
            return None

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return copy.deepcopy(self.values[node.id]) if node.id in self.values else _name(node.id)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        decided = self.decided(self.read(node.test))
        if decided is None:
            self.generic_visit(node)
            return node
        return self.read(node.body if decided else node.orelse)

    def visit_Slice(self, node: ast.Slice) -> ast.Slice:
        outside, self.in_slice = self.in_slice, True
        self.generic_visit(node)
        self.in_slice = outside
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if self.module is not None and not self.in_slice and isinstance(node.op, ast.Mult):
            for factor, rest in ((node.right, node.left), (node.left, node.right)):
                number = self.evaluated(factor) if isinstance(factor, ast.Attribute) else None
                if number and isinstance(number[0], int | float):
                    return rest
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        local = name in self.values
        self.generic_visit(node)
        if self.module is None:
            return node
        if ast.unparse(node.func) == "ALL_ATTENTION_FUNCTIONS.get_interface":
            return _name(INTERFACE)
        if local and isinstance(node.func, ast.Name) and node.func.id == INTERFACE:
            return self.attention(node)
        if name and not local and self.linear(self.outside.get(name)):
            return ast.Tuple(node.args[:2], ast.Load())
        called = submodule(node, self.module)
        if called is not None:
            keywords = [one.value for one in node.keywords if one.arg in ("hidden_states", "x")]
            inputs = [*node.args, *keywords][:1]
            return inputs[0] if inputs and self.transparent(called) else ast.Call(node.func, inputs, [])
        return node

    def attention(self, node: ast.Call) -> ast.expr:
        """The attention function's query, key and value, and whatever else it is given that is not None."""
        kept = []
        for one in node.keywords:
            value = self.evaluated(one.value)
            none = value is not None and value[0] is None
            if one.arg is not None and one.arg not in _CONSTANTS and not none:
                kept.append(one)
        return ast.Call(_name(INTERFACE), [*node.args[1:4], *node.args[5:]], kept)
