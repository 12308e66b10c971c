"""The registry of selectors. A selector gives every row a score, higher = more important, and does nothing else.

To add one, write a file with a class and register it under its id:

    from engine.selectors import ScoringRun, register_selector

    @register_selector("weight_norm", title="Weight norm", data_free=True)
    class WeightNorm:
        \"\"\"s_i = the Euclidean norm of row i.\"\"\"

        def score(self, run: ScoringRun) -> Tensor:
            return run.per_layer(lambda linear: linear.weight.float().norm(dim=1))

Inside this repository the file goes beside the others and its name into `BUILT_IN`. In a package of its own
an entry point does the same, `[project.entry-points."selector_audit.selectors"]` with
`weight_norm = "package.module"`: importing the module has to run the decorator. Menus, commands and
the tests over the registry then know it.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import threading
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from engine.errors import InputError, unknown
from engine.records import Json

if TYPE_CHECKING:
    from torch import Tensor

    from engine.selectors.run import ScoringRun

ENTRY_POINTS = "selector_audit.selectors"
# Files and ids, in menu order: the paper's seven (`engine.scores.PAPER_SELECTORS`), then ours.
BUILT_IN = (
    "random",
    "magnitude",
    "wanda",
    "mean_activation",
    "lrp",
    "ig",
    "consensus2",
    "grad_x_input",
    "ig_conductance",
)


class Selector(Protocol):
    """What a registered class provides. It may also have `check(loaded)`, which raises an InputError before
    any pass runs where the selector cannot score such a model.
    """

    def score(self, run: ScoringRun) -> Tensor:
        """Scores of all rows in the order of the row index.

        returns [N] (a seeded selector: [len(run.seeds), N]), any float dtype, higher = more important
        """
        ...


@dataclass(frozen=True)
class SelectorInfo:
    """What menus and documents say about a selector."""

    id: str  # stored in results: never renamed
    title: str
    family: str  # "baseline" or "attribution"
    data_free: bool  # needs no calibration text
    cost: str  # passes over the calibration text, in words
    note: str  # the first line of the class's docstring: the formula
    seeded: bool = False  # one ranking per seed
    cache_id: str = ""  # names the formula in cache keys: other numbers, other id
    needs: tuple[str, ...] = ()  # selectors whose scores it is made of


_SelectorClass = TypeVar("_SelectorClass", bound=Callable[[], Selector])
_registry: dict[str, tuple[SelectorInfo, Callable[[], Selector]]] = {}
_broken: dict[str, str] = {}  # plug-in -> why it could not be loaded
_state = {"loaded": False}
_lock = threading.RLock()


def register_selector(
    selector_id: str,
    *,
    title: str = "",
    family: str = "baseline",
    data_free: bool = False,
    cost: str = "",
    seeded: bool = False,
    version: int = 1,
    needs: tuple[str, ...] = (),
) -> Callable[[_SelectorClass], _SelectorClass]:
    """Class decorator: make the class available under `selector_id`. Errors: InputError for a taken id.

    version: raise it when the selector gives other numbers than before, so that cached ones are not used.
    needs: the selectors that it asks the run for (`run.scores`), so that new numbers of theirs make new ones here.
    """

    def register(factory: _SelectorClass) -> _SelectorClass:
        note = (factory.__doc__ or "").strip().partition("\n")[0]
        cache_id = f"{selector_id}/{version}{_source_hash(factory)}"
        info = SelectorInfo(
            selector_id, title or selector_id, family, data_free, cost, note, seeded, cache_id, needs
        )
        with _lock:
            taken = _registry.get(selector_id)
            # The same class again, as on a reload of its module, replaces itself.
            if taken and _origin(taken[1]) != _origin(factory):
                raise InputError(
                    f"selector id {selector_id!r} is taken by {'.'.join(_origin(taken[1]))}; choose another id"
                )
            _registry[selector_id] = (info, factory)
        return factory

    return register


def unregister_selector(selector_id: str) -> None:
    """Take a selector out of the registry (for tests and notebooks)."""
    with _lock:
        _registry.pop(selector_id, None)


def available_selectors() -> list[SelectorInfo]:
    """The paper's seven in the paper's order, then ours, then plug-ins by id."""
    _load()
    plug_ins = sorted(set(_registry) - set(BUILT_IN))
    return [_registry[selector_id][0] for selector_id in (*BUILT_IN, *plug_ins)]


def get_selector(selector_id: str) -> SelectorInfo:
    """What is said about a selector. Errors: InputError with the nearest name."""
    return _entry(selector_id)[0]


def with_needs(selector_ids: Iterable[str]) -> list[str]:
    """The selectors and all that they are made of, each once, what is needed first."""
    found: list[str] = []
    for selector_id in selector_ids:
        for name in (*with_needs(get_selector(selector_id).needs), selector_id):
            if name not in found:
                found.append(name)
    return found


def formula(selector_id: str) -> Json:
    """What a cache key says about a selector: its formula, those it is made of, and whether seeds matter."""
    parts = [get_selector(name) for name in with_needs([selector_id])]
    return {"formulas": [part.cache_id for part in parts], "seeded": any(part.seeded for part in parts)}


def new_scorer(selector_id: str) -> Selector:
    """The selector itself. Errors: InputError with the nearest name."""
    return _entry(selector_id)[1]()


def broken_plug_ins() -> dict[str, str]:
    """Entry points that could not be loaded, with the reason."""
    _load()
    return dict(_broken)


def _entry(selector_id: str) -> tuple[SelectorInfo, Callable[[], Selector]]:
    _load()
    if selector_id in _registry:
        return _registry[selector_id]
    if selector_id in _broken:
        raise InputError(f"selector {selector_id!r} cannot be used: {_broken[selector_id]}")
    raise unknown("selector", selector_id, _registry)


def _load() -> None:
    """Import the built-in selectors and the entry points, once."""
    with _lock:
        if _state["loaded"]:
            return
        for name in BUILT_IN:
            importlib.import_module(f"engine.selectors.{name}")
        _state["loaded"] = True
        for entry_point in entry_points(group=ENTRY_POINTS):
            load_plug_in(entry_point)


def load_plug_in(entry_point: EntryPoint) -> None:
    """Load one third-party selector. A broken one is named in a warning and leaves the others usable."""
    try:
        entry_point.load()
        if entry_point.name not in _registry:
            raise InputError(f"{entry_point.value} registers no selector {entry_point.name!r}")
    except Exception as error:  # third-party code: whatever it raises must not take the others down
        reason = f"its plug-in {entry_point.value} cannot be loaded ({type(error).__name__}: {error})"
        _broken[entry_point.name] = reason
        warnings.warn(
            f"selector {entry_point.name!r} is left out: {reason}; repair or uninstall it", stacklevel=2
        )


def _source_hash(factory: object) -> str:
    """A plug-in's cached numbers are good for its source text only; our own classes count by `version`."""
    if _origin(factory)[0].startswith("engine.selectors."):
        return ""
    try:
        source = inspect.getsource(cast(type, factory))
    except (OSError, TypeError):  # made in a notebook or by a factory: no source to be had
        source = ".".join(_origin(factory))
    return "/" + hashlib.sha256(source.encode()).hexdigest()[:16]


def _origin(factory: object) -> tuple[str, str]:
    return str(getattr(factory, "__module__", "?")), str(getattr(factory, "__qualname__", "?"))
