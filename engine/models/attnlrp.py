"""lxt's rules for AttnLRP, scoped and undone.

lxt patches classes of the whole process and offers no way back, so that gradients taken later would
silently be relevances. Here the same rules hold inside a `with` block only.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn

from engine.models.rows import row_index
from engine.records.errors import InputError

# Name of the model family in transformers and in lxt. lxt ships more; these are the decoders among
# them that have reference values in the tests and whose blocks consist of nn.Linear.
FAMILIES = ("llama", "qwen2", "qwen3", "gemma3")

_rules = threading.RLock()  # held by whoever takes gradients, plain ones or relevances
_active: list[str] = []  # the family whose classes carry lxt's rules now, at most one
_MISSING = object()


@contextmanager
def attn_lrp(model: nn.Module) -> Iterator[None]:
    """Inside: `output * output.grad` of every Linear of the model is its AttnLRP relevance.

    Rules (Achtibat et al. 2024, arXiv:2402.05602, in lxt's gradient x input form): identity for element-wise
    non-linearities and normalisation, uniform for attention's matrix products and the gate's product,
    epsilon = 0 for Linears. Forward values stay what they were; only gradients change.

    On leaving, also by an exception, every class, function and registry is what it was, and gradients
    are bit-equal to those before. The patches sit on classes of transformers and on torch.nn.Dropout,
    so they hold in all threads: the block keeps a process-wide lock that `plain_gradients` takes too.
    Forward passes without gradients need no lock. Blocks do not nest.

    Any attention implementation works (eager, sdpa, ...): the rule only scales the gradients of its
    query, key and value. Models spread over devices by accelerate work as well.

    Errors: InputError for an architecture without rules; RuntimeError inside another `attn_lrp`.
    """
    with _rules:
        if _active:
            raise RuntimeError(f"attn_lrp is already active (for {_active[0]}); leave that block first")
        family = model_family(model)
        with ExitStack() as undo:
            _active.append(family)
            undo.callback(_active.clear)
            _install(family, model, undo)
            yield


@contextmanager
def plain_gradients() -> Iterator[None]:
    """Keeps lxt's rules out of this block: waits while another thread is inside `attn_lrp`.

    Errors: RuntimeError where this thread itself is inside `attn_lrp`.
    """
    with _rules:
        if _active:
            raise RuntimeError("plain gradients asked for inside attn_lrp; leave that block first")
        yield


def model_family(model: nn.Module) -> str:
    """The family whose rules fit the model's decoder blocks, by the transformers module they come from.

    Errors: InputError naming the supported families, and InputError where lxt is not installed: whoever asks this
    before a pass runs has both.
    """
    first = row_index(model).layers[0].name  # e.g. model.layers.0.self_attn.q_proj
    path, found = "", ""
    for part in first.split("."):
        path = f"{path}.{part}" if path else part
        name = type(model.get_submodule(path)).__module__
        if name.startswith("transformers.models."):
            found = name.rpartition(".")[2].removeprefix("modeling_")
    if found not in FAMILIES:
        raise InputError(
            f"lrp has no rules for {type(model).__name__} ({found or 'not a transformers model'}); "
            f"supported families: {', '.join(FAMILIES)}; the selectors other than lrp, relp and consensus2 still work"
        )
    _package()
    return found


def _install(family: str, model: nn.Module, undo: ExitStack) -> None:
    """Apply lxt's patch map of one family; every change has its way back on `undo` before it is made."""
    modeling = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    for target, patch in _patch_map(family).items():
        if not inspect.isclass(target):
            continue  # the attention functions, below: lxt's own patch leaves a dict that transformers 5 cannot use
        method = patch.keywords.get("method_name", "forward")
        undo.callback(_restore, target, method, vars(target).get(method, _MISSING))
        if not _quietly(patch, target):
            raise RuntimeError(
                f"{target.__name__}.{method} already carries lxt's rules, set by other code in this process; "
                "start a new process and let attn_lrp set them"
            )
        if method == "forward":
            _install_on_hooked(target, model, undo)
    wrap = _lxt("patches").wrap_attention_forward
    interface = type(modeling.ALL_ATTENTION_FUNCTIONS)()
    for name, function in modeling.ALL_ATTENTION_FUNCTIONS.items():
        interface[name] = wrap(function)
    for name, value in (
        ("eager_attention_forward", wrap(modeling.eager_attention_forward)),
        ("ALL_ATTENTION_FUNCTIONS", interface),
    ):
        undo.callback(setattr, modeling, name, getattr(modeling, name))
        setattr(modeling, name, value)


def _install_on_hooked(target: type, model: nn.Module, undo: ExitStack) -> None:
    """accelerate's hooks keep the bound `forward` from before the patch on each module: replace that too.

    Without this a sharded model would run the plain rules without any sign of it.
    """
    for module in model.modules():
        if isinstance(module, target) and "_old_forward" in vars(module):
            undo.callback(setattr, module, "_old_forward", vars(module)["_old_forward"])
            patched: Any = types.MethodType(type(module).forward, module)
            module._old_forward = patched


def _restore(target: Any, name: str, value: object) -> None:
    if value is _MISSING:
        delattr(target, name)
    else:
        setattr(target, name, value)


def _quietly(patch: Callable[[type], bool], target: type) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # lxt warns where it also returns False, which is an error here
        return patch(target)


def _patch_map(family: str) -> Mapping[Any, Any]:
    """lxt's `attnLRP` map: class or module -> function that patches it."""
    return _lxt(f"models.{family}").attnLRP


def rules_load() -> None:
    """Errors: InputError where lxt is missing, whatever its import raises where it does not fit."""
    for family in FAMILIES:
        _patch_map(family)


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
    """The module `lxt.efficient.<name>`, imported past its packages' own `__init__`.

    Those import every family that lxt ships, some of which need what transformers 5 no longer has. Bare
    packages stand in for them during the import and are taken away again.
    """
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
