"""The shapes and number types that docstrings of public functions name, checked at every call that a test makes.

Written as jaxtyping writes them (one letter, one size within a call), which checks them; the product itself does not
import it. A function that raises is not checked: it says itself what is wrong with its input. Lists and other
array-likes that a function converts have no shape of their own and are not checked either.
"""

import inspect
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

import jaxtyping
import numpy as np

# module -> function -> argument (or `return`) -> type and shape; several for what is returned as a tuple
SHAPES: dict[str, dict[str, dict[str, str | tuple[str, ...]]]] = {
    "engine.stats.removal_order": {
        "removal_order": {"scores": "Real N", "return": "Int64 N"},
        "removed_first": {"scores": "Real N", "return": "Int64 k"},
        "average_ranks": {"scores": "Real N", "order": "Int64 N", "return": "Float32 N"},
        "rank_correlations": {"ranks": "Float32 S N", "return": "Float64 S S"},
        "spearman": {"first": "Real N", "second": "Real N"},
        "gram": {"matrix": "Shaped S N", "return": "Float64 S S"},
        "jaccard": {"first": "Int64 a", "second": "Int64 b"},
        "jaccards": {"members": "Bool S n", "return": "Float64 S S"},
    },
    "engine.stats.single_units": {
        "stratified_sample": {"groups": "Int64 U", "spread": "Float64 U", "return": "Int64 n"},
        "finite": {"return": "Float64 n"},
        "spearman_interval": {"first": "Real n", "second": "Real n"},
        "recall_of_top": {"scores": "Real U", "sample": "Int64 n", "effects": "Real n"},
        "sign_agreement": {"scores": "Real n", "effects": "Real n"},
    },
    "engine.edits.masks": {
        "removed_rows": {"scores": "Real N", "return": "Int64 k"},
        "checked_mask": {"return": "Int64 k"},
    },
    "engine.edits.control_edits": {
        "layer_matched": {"mask": "Integer k", "return": "Int64 k"},
        "intersection": {"first": "Int64 a", "second": "Int64 b", "return": "Int64 c"},
        "veto": {"own": "Int64 a", "other": "Int64 b", "return": "Int64 c"},
        "rank_randomised": {"fixed": "Real N", "shuffled": "Real N", "return": "Float64 N"},
    },
    "engine.measures.nll": {"token_nll": {"logits": "Float B T V", "targets": "Int64 B T", "return": "Float32 B T"}},
    "engine.measures.divergence": {"token_kl": {"before": "Float T V", "after": "Float T V", "return": "Float64 T"}},
    "engine.measures.condition": {
        "block_states": {"return": "Float64 n L d"},
        "principal_direction": {"positive": "Float n d", "negative": "Float n d", "return": "Float64 d"},
        "similarity": {"states": "Float n d", "direction": "Float d", "return": "Float64 n"},
    },
    "engine.measures.margin": {
        "margin_of_logits": {"logits": "Float B V", "return": "Float B"},
        "margins": {"return": "Float32 n"},
        "reply_margins": {"return": "Float32 n"},
    },
    "engine.selectors.consensus2": {
        "rank": {"scores": "Real N", "return": "Int64 N"},
        "borda": {"first": "Real N", "second": "Real N", "return": "Float64 N"},
    },
    "engine.selectors.passes": {
        "objective_gradient": {"logits": "Float B T V", "input_ids": "Int64 B T", "return": "Float B T V"}
    },
    "engine.selectors.gradients": {
        "relevances": {"input_ids": "Int64 B T", "attention_mask": "Integer B T"},
        "per_prompt_relevance": {"input_ids": "Int64 B T", "attention_mask": "Integer B T", "return": "Float32 B N"},
    },
    "engine.selectors.window_sums": {
        "window_statistics": {"input_ids": "Int64 B T", "return": "Float64 e n"},
        "relevance_sums": {"input_ids": "Int64 B T", "return": "Float64 e n"},
    },
    "engine.selectors.prompt_run": {"percentile_ranks": {"values": "Real N", "return": "Float64 N"}},
}


def is_array(value: object) -> bool:
    torch = sys.modules.get("torch")
    return isinstance(value, np.ndarray) or (torch is not None and isinstance(value, torch.Tensor))


def hint(value: object, form: str) -> Any:
    """`Float B T` -> `jaxtyping.Float[Tensor, "B T"]`, of whichever kind of array the value is."""
    kind, _, dims = form.partition(" ")
    array = np.ndarray if isinstance(value, np.ndarray) else sys.modules["torch"].Tensor
    return getattr(jaxtyping, kind)[array, dims]


def checked(function: Callable[..., Any], shapes: dict[str, str | tuple[str, ...]]) -> Callable[..., Any]:
    """The function; after a call that returned, its arguments and its result have the named shapes."""
    signature = inspect.signature(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        given = {**signature.bind(*args, **kwargs).arguments, "return": result}
        with jaxtyping.jaxtyped("context"):
            for name, form in shapes.items():
                forms: Sequence[str] = (form,) if isinstance(form, str) else form
                values = (given.get(name),) if isinstance(form, str) else given[name]
                for value, one in zip(values, forms, strict=True):
                    if name == "return":
                        assert is_array(value), f"{function.__qualname__} gave a {type(value).__name__}"
                    if is_array(value):
                        assert isinstance(value, hint(value, one)), (
                            f"{function.__qualname__}: {name} of {one} is {value.dtype} {tuple(value.shape)}"
                        )
        return result

    return call


class Watcher(MetaPathFinder):
    """Wraps the functions of `SHAPES` as soon as their module has been run, before anything can import them from it."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in SHAPES else None
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            for function, shapes in SHAPES[name].items():
                if hasattr(module, function):  # test_shapes.py says which is not there
                    setattr(module, function, checked(getattr(module, function), shapes))

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def watch() -> None:
    """From now on. Errors: AssertionError where a module was imported too early to be watched."""
    early = sorted(set(SHAPES) & set(sys.modules))
    assert not early, f"imported before the shape checks: {early}"
    sys.meta_path.insert(0, Watcher())
