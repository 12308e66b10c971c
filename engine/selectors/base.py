"""The registry of selectors. A selector gives every row a score, higher = more important, and does nothing else.

To add one, write a file with a class and register it under its id:

    from engine.selectors import ScoringRun, register_selector

    @register_selector("largest_weight", title="Largest weight", data_free=True)
    class LargestWeight:
        \"\"\"s_i = max_j |W_ij|.\"\"\"

        def score(self, run: ScoringRun) -> Tensor:
            return run.per_layer(lambda linear: linear.weight.float().abs().amax(dim=1))

With a second method it finds the rows of a behaviour as well (`refusal`): `contrast(self, run: PromptRun)` says
what it gives for prompts of two sides, see `PromptSelector`. A class with that method alone contrasts prompts only and
says by `protected_by` whose scores of text protect rows there.

Inside this repository the file goes beside the others and its name into `BUILT_IN`. In a package of its own an entry
point does the same, `[project.entry-points."selector_audit.selectors"]` with `largest_weight = "package.module"`:
importing the module has to run the decorator. Menus, commands and the tests over the registry then know it."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, TypeVar, cast, get_args

from engine.records.errors import InputError, unknown
from engine.records.hashing import Json, source_hash
from engine.records.registry import Registry, modules

if TYPE_CHECKING:
    from torch import Tensor

    from engine.selectors.gradients import Method
    from engine.selectors.own_scores import ScoreFile
    from engine.selectors.prompt_run import PromptRun
    from engine.selectors.scoring_run import ScoringRun

Objective = Literal["loss", "logit"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)  # the first is the default
SEEDS = (42, 43, 44)  # of seeded selectors: the paper, section 3.4
# Files and ids, in menu order: the paper's seven (`engine.run.audit_plan.PAPER_SELECTORS`), then ours.
BUILT_IN = (
    "random", "magnitude", "wanda", "mean_activation", "lrp", "ig", "consensus2", "grad_x_input", "ig_conductance",
    "fisher", "taylor", "atp_signed", "relp", "gradient_norm", "activation_std", "flap", "ria", "weight_norm",
    "effect_size",
)  # fmt: skip
# The paper's variants of Algorithm 1, in its order.
PAPER_CONTRASTS = ("lrp", "ig", "consensus2", "mean_activation", "random")
ALSO_CONTRASTS = ("grad_x_input", "ig_conductance", "effect_size")
CONTRASTS_ONLY = ("effect_size",)  # give text no scores
ACTIVATIONS = ("activations", "moments")  # stands among what is asked of relevances, for `ScoringRun.activations`


class Selector(Protocol):
    """What a registered class provides. It may also have `check(loaded)`, which raises an InputError before
    any pass runs where the selector cannot score such a model."""

    def score(self, run: ScoringRun) -> Tensor:
        """Scores of all rows in the order of the row index.
        returns [N] (a seeded selector: [len(run.seeds), N]), any float dtype, higher = more important"""
        ...


class PromptSelector(Protocol):
    """What a registered class may provide besides: how it contrasts risk prompts with base prompts."""

    def contrast(self, run: PromptRun) -> Tensor:
        """C_comply of all rows: high where the row promotes complying with the risk prompts only.
        Most often the difference of two percentile ranks within each layer, as `run.rank_difference` gives it.
        returns [N] in [-1, 1], any float dtype"""
        ...


class ByRelevance:
    """A selector by E |R_i| of one method, which contrasts prompts by the same method's relevance to the margin."""

    method: ClassVar[Method]

    def score(self, run: ScoringRun) -> Tensor:
        return run.mean_abs_relevance(self.method)

    def contrast(self, run: PromptRun) -> Tensor:
        return run.relevance_contrast(self.method)


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
    contrasts: bool = False  # says how it contrasts prompts
    scores: bool = True  # gives text scores; if not, it contrasts prompts only
    protected_by: str = ""  # of one that contrasts prompts: whose scores of text protect rows, "" for its own
    asks: tuple[tuple[str, str], ...] = ()  # methods and statistics that it asks `ScoringRun.mean_relevance` for
    files: tuple[ScoreFile, ...] = ()  # scores of one's own: what they were read from, a draw each


_SelectorClass = TypeVar("_SelectorClass", bound=Callable[[], Selector | PromptSelector])
REGISTRY: Registry[tuple[SelectorInfo, Callable[[], Selector | PromptSelector]]] = Registry(
    "selector", modules("engine.selectors", BUILT_IN)
)


def register_selector(
    selector_id: str, *, title: str = "", family: str = "baseline", data_free: bool = False, cost: str = "",
    seeded: bool = False, version: int = 1, needs: tuple[str, ...] = (), protected_by: str = "",
    asks: tuple[tuple[str, str], ...] = (),
) -> Callable[[_SelectorClass], _SelectorClass]:  # fmt: skip
    """Class decorator: make the class available under `selector_id`.

    version: raise it when the selector gives other numbers than before, so that cached ones are not used.
    needs: the selectors that it asks the run for (`run.scores`), so that new numbers of theirs make new ones here.
    protected_by: for a class that only contrasts prompts, the selector whose scores of text protect rows.
    asks: what it asks `run.mean_relevance` for, as (("grad_x_input", "square"),), so that one pass serves it beside
    others; without this it costs a pass of its own.
    Errors: InputError for a taken id, and for a class without `score` that does not say what protects its rows."""

    def register(factory: _SelectorClass) -> _SelectorClass:
        scores, contrasts = hasattr(factory, "score"), hasattr(factory, "contrast")
        if not scores and not (contrasts and protected_by):
            raise InputError(
                f"selector {selector_id!r} has no method score; give it one, or contrast prompts only by a method "
                "contrast and protected_by"
            )
        note = (factory.__doc__ or "").strip().partition("\n")[0]
        cache_id = f"{selector_id}/{version}{source_hash(factory)}"
        about = (title or selector_id, family, data_free, cost, note)
        info = SelectorInfo(selector_id, *about, seeded, cache_id, needs, contrasts, scores, protected_by, asks)
        REGISTRY.add(selector_id, (info, factory), factory)
        return factory

    return register


def available_selectors() -> list[SelectorInfo]:
    """Those that give text scores: the paper's seven in the paper's order, then ours, then plug-ins by id."""
    return [info for info, _ in REGISTRY if info.scores]


def contrast_selectors() -> list[str]:
    """The selectors that contrast prompts: the paper's in its order, then others in menu order."""
    others = [info.id for info, _ in REGISTRY if info.contrasts and info.id not in PAPER_CONTRASTS]
    return [*PAPER_CONTRASTS, *others]


def check_contrasts(selector_id: str) -> None:
    """`InputError` unless the selector contrasts prompts; of a plug-in that could not be loaded it says why."""
    available = contrast_selectors()
    if selector_id not in available:
        if selector_id in REGISTRY.broken:
            get_selector(selector_id)
        raise unknown("contrast selector", selector_id, available)


def selector_ids() -> list[str]:
    """Ids that give text scores in the same order, without importing a selector: for menus and checks."""
    return [name for name in REGISTRY.offered() if name not in CONTRASTS_ONLY]


def contrast_ids() -> list[str]:
    """Ids that contrast prompts, likewise; a plug-in may turn out not to, which `check_contrasts` then says."""
    return [*PAPER_CONTRASTS, *ALSO_CONTRASTS, *(name for name in selector_ids() if name not in BUILT_IN)]


def get_selector(selector_id: str) -> SelectorInfo:
    """What is said about a selector. Errors: InputError with the nearest name."""
    return REGISTRY.get(selector_id)[0]


def protected_by(selector_id: str) -> str:
    """The selector whose scores of text protect rows where this one contrasts prompts: itself, or the one it names."""
    return get_selector(selector_id).protected_by or selector_id


def with_needs(selector_ids: Iterable[str]) -> list[str]:
    """The selectors and all that they are made of, each once, what is needed first."""
    ordered: list[str] = []
    for selector_id in selector_ids:
        for name in (*with_needs(get_selector(selector_id).needs), selector_id):
            if name not in ordered:
                ordered.append(name)
    return ordered


def asked_by(selector_ids: Iterable[str], known: Container[str]) -> tuple[tuple[str, str], ...]:
    """What these selectors and those they are made of will ask of relevances, but for those whose scores are known;
    and `ACTIVATIONS` where one of them may ask for these: it reads text and says of nothing else that it asks for it,
    or is centred on them as relp is."""
    missing = [get_selector(name) for name in with_needs(selector_ids) if name not in known]
    asks = list(dict.fromkeys(one for info in missing for one in info.asks))
    if any(not (info.data_free or info.asks or info.needs) for info in missing) or any(of == "relp" for of, _ in asks):
        asks.append(ACTIVATIONS)
    return tuple(asks)


def formula(selector_id: str) -> Json:
    """What a cache key says about a selector: its formula, those it is made of, and whether seeds matter."""
    parts = [get_selector(name) for name in with_needs([selector_id])]
    return {"formulas": [part.cache_id for part in parts], "seeded": any(part.seeded for part in parts)}


def new_scorer(selector_id: str) -> Selector:
    """The selector itself. Errors: InputError with the nearest name."""
    return cast(Selector, REGISTRY.get(selector_id)[1]())


def broken_plug_ins() -> dict[str, str]:
    """Entry points that could not be loaded, with the reason."""
    available_selectors()
    return dict(REGISTRY.broken)


def check_skip_first(skip_first: int, length: int | None) -> None:
    """`InputError` where leaving out so many positions leaves none of a window of `length` tokens that predicts one."""
    if skip_first < 0:
        raise InputError(f"the number of first positions to skip must be at least 0, got {skip_first}")
    if length is not None and length >= 2 and skip_first > length - 2:
        raise InputError(
            f"without the first {skip_first} positions a window of {length} tokens has none left that predicts a "
            f"token; skip at most {length - 2}, or use longer windows"
        )


def titles_record(selector_ids: Iterable[str]) -> Json:
    """What a manifest says about plug-ins, so that pages can name them where the plug-in itself is not installed."""
    titles = {name: get_selector(name).title for name in selector_ids if name not in BUILT_IN}
    return {"selector_titles": titles} if titles else {}
