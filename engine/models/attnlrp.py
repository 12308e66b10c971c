"""lxt's rules for AttnLRP, scoped and undone: lxt patches classes of the whole process and offers no way back, so that
gradients taken later would silently be relevances."""

import functools
import importlib
import importlib.util
import inspect
import sys
import threading
import types
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn

from engine.models.forwards import wrapped_attention
from engine.models.lrp_by_structure import Structure, structure
from engine.models.lrp_conservation import logits_before, tried, try_out
from engine.models.rows_of_modules import decoder_blocks, row_index
from engine.records.errors import InputError

# Name of the model family in transformers and in lxt. lxt ships more; these are the decoders among
# them that have reference values in the tests and whose blocks consist of nn.Linear. Others get the same
# rules where their parts compute the same (`lrp_by_structure`).
FAMILIES = ("llama", "qwen2", "qwen3", "gemma3")

_rules = threading.RLock()  # held by whoever takes gradients, plain ones or relevances
_active: list[str] = []  # the family whose classes carry lxt's rules now, at most one


@contextmanager
def attn_lrp(model: nn.Module) -> Iterator[None]:
    """Inside: `output * output.grad` of every Linear of the model is its AttnLRP relevance.

    Rules (Achtibat et al. 2024, arXiv:2402.05602, in lxt's gradient x input form): identity for element-wise
    non-linearities and normalisation, uniform for attention's matrix products and the gate's product, epsilon = 0 for
    Linears. Forward values stay what they were; only gradients change.

    On leaving, also by an exception, every class, function and registry is what it was. The patches sit on classes of
    transformers and on torch.nn.Dropout, so they hold in all threads: the block keeps a process-wide lock that
    `plain_gradients` takes too. Blocks do not nest. Any attention implementation works, and models spread over devices
    by accelerate.

    A family that lxt does not name gets the rules if its parts compute the same (`lrp_by_structure`), after they were
    tried on this model, once: logits bit-equal, relevance conserved (`lrp_conservation`).

    Errors: InputError for an architecture without rules or that loses relevance under them; RuntimeError inside another
    `attn_lrp`."""
    with _rules:
        if _active:
            raise RuntimeError(f"attn_lrp is already active (for {_active[0]}); leave that block first")
        rules = _rules_of(model)
        with ExitStack() as undo:
            before = logits_before(model) if rules.by_structure and not tried(model) else None
            _active.append(rules.family)
            undo.callback(_active.clear)
            _install(rules, model, undo)
            if before is not None:
                try_out(model, rules.modelings, before)
            yield


@contextmanager
def plain_gradients() -> Iterator[None]:
    """Keeps lxt's rules out of this block: waits while another thread is inside `attn_lrp`.
    Errors: RuntimeError where this thread itself is inside `attn_lrp`."""
    with _rules:
        if _active:
            raise RuntimeError("plain gradients asked for inside attn_lrp; leave that block first")
        yield


def check_rules(model: nn.Module) -> str:
    """The family of the model's decoder blocks, by the transformers module they come from, if rules fit them. Shapes
    are enough; where the model has its weights the rules are tried on it as well, before any score.
    Errors: those of `attn_lrp`; InputError says which part of a block differs, or that lxt is not installed."""
    rules = _rules_of(model)
    if rules.by_structure and not tried(model):
        with attn_lrp(model):
            pass
    return rules.family


@dataclass(frozen=True)
class _Rules:
    """patches: class or module -> function that patches it, as lxt's maps have it. by_structure: the classes are not
    those lxt names but equal them, so that they are tried before they are used."""

    family: str
    patches: Mapping[Any, Any]
    modelings: tuple[types.ModuleType, ...]
    by_structure: bool


def _rules_of(model: nn.Module) -> _Rules:
    family, own = _family(model)
    if own:
        _package()
        modeling = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
        return _Rules(family, _lxt(f"models.{family}").attnLRP, (modeling,), by_structure=False)
    recognised = _structure(model)
    if isinstance(recognised, str):
        raise InputError(
            f"lrp has no rules for {type(model).__name__} ({family or 'not a transformers model'}): {recognised}; "
            f"supported families: {', '.join(FAMILIES)}, and those whose parts compute the same; "
            "the selectors other than lrp, relp and consensus2 still work"
        )
    _package()
    return _Rules(family, _patches(recognised), recognised.modelings, by_structure=True)


def _family(model: nn.Module) -> tuple[str, bool]:
    """The transformers module of the blocks' innermost class, and whether lxt names it and all of the blocks' classes
    are of it."""
    first = row_index(model).layers[0].name  # e.g. model.layers.0.self_attn.q_proj
    path, family = "", ""
    for part in first.split("."):
        path = f"{path}.{part}" if path else part
        name = type(model.get_submodule(path)).__module__
        if name.startswith("transformers.models."):
            family = name.rpartition(".")[2].removeprefix("modeling_")
    classes = {type(module).__module__ for block in decoder_blocks(model) for module in block.modules()}
    others = {name for name in classes if not name.startswith("torch.") and name != "transformers.activations"}
    return family, family in FAMILIES and others == {f"transformers.models.{family}.modeling_{family}"}


_structures: WeakKeyDictionary[nn.Module, tuple[frozenset[type], Structure | str]] = WeakKeyDictionary()


def _structure(model: nn.Module) -> Structure | str:
    """`structure` of the model, read once for the classes it has; never while other rules stand in their place."""
    classes = frozenset(type(module) for module in model.modules())
    with _rules:
        known = _structures.get(model)
        if known is None or known[0] != classes:
            if _active:
                raise RuntimeError("the model's classes cannot be read inside attn_lrp; leave that block first")
            known = (classes, structure(model))
            _structures[model] = known
    return known[1]


def _patches(found: Structure) -> Mapping[Any, Any]:
    """Rules on the classes that were found: lxt's on MLPs, on norms the same as lxt's for every form they take."""
    lxt = _lxt("patches")
    mlp = functools.partial(lxt.patch_method, lxt.gated_mlp_forward)
    dropout = functools.partial(lxt.patch_method, lxt.dropout_forward)
    return {
        **{of: functools.partial(lxt.patch_method, form.forward_under_rule()) for of, form in found.norms.items()},
        **dict.fromkeys(found.mlps, mlp),
        nn.Dropout: dropout,
    }


def _install(rules: _Rules, model: nn.Module, undo: ExitStack) -> None:
    """Apply the rules' patches; every change has its way back on `undo` before it is made."""
    for target, patch in rules.patches.items():
        if not inspect.isclass(target):
            continue  # the attention functions, below: lxt's own patch leaves a dict that transformers 5 cannot use
        method = patch.keywords.get("method_name", "forward")
        own = vars(target).get(method)
        undo.callback(delattr, target, method) if own is None else undo.callback(setattr, target, method, own)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # lxt warns where it also returns False, which is an error here
            patched = patch(target)
        if not patched:
            raise RuntimeError(
                f"{target.__name__}.{method} already carries lxt's rules, set by other code in this process; "
                "start a new process and let attn_lrp set them"
            )
        if method == "forward":
            _install_on_hooked(target, model, undo)
    wrapped_attention(rules.modelings, _lxt("patches").wrap_attention_forward, undo)


def _install_on_hooked(target: type, model: nn.Module, undo: ExitStack) -> None:
    """accelerate's hooks keep the bound `forward` from before the patch on each module: replace that too.
    Without this a sharded model would run the plain rules without any sign of it."""
    for module in model.modules():
        if isinstance(module, target) and "_old_forward" in vars(module):
            undo.callback(setattr, module, "_old_forward", vars(module)["_old_forward"])
            patched: Any = types.MethodType(type(module).forward, module)
            module._old_forward = patched


def rules_load() -> None:
    """Errors: InputError where lxt is missing, whatever its import raises where it does not fit."""
    for family in FAMILIES:
        _lxt(f"models.{family}").attnLRP  # noqa: B018 it has to be there
    _patches(Structure({}, (), ()))


def _package() -> str:
    """lxt's folder. Errors: InputError that says how to install it, without what it declares and nothing here uses."""
    spec = importlib.util.find_spec("lxt")
    if spec is None or not spec.submodule_search_locations:
        raise InputError(
            "lrp, relp and consensus2 take their rules from the package lxt, which is not installed here; install it "
            "with `pip install --no-deps 'lxt>=2.1'` (all that is used of it), or name other --selectors"
        )
    return spec.submodule_search_locations[0]


@functools.cache
def _lxt(name: str) -> Any:
    """The module `lxt.efficient.<name>`, imported past its packages' own `__init__`, which import every family that lxt
    ships: some need what transformers 5 no longer has. Bare packages stand in for them meanwhile."""
    root = _package()
    added = []
    try:
        for package, path in (("lxt.efficient", "efficient"), ("lxt.efficient.models", "efficient/models")):
            if package not in sys.modules:
                bare = types.ModuleType(package)
                bare.__path__ = [f"{root}/{path}"]
                sys.modules[package] = bare
                added.append(package)
        return importlib.import_module(f"lxt.efficient.{name}")
    finally:
        for package in added:
            del sys.modules[package]
