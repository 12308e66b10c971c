"""Published claims about scores, each a file of a dozen lines: two selectors, what is compared, the printed numbers.

    title = "Wanda prunes better than magnitude"
    source = "Sun et al. 2024, arXiv:2306.11695, perplexity on WikiText at 50% sparsity"
    models = ["LLaMA-7B"]                        # that it was published of
    setup = "single weights, not rows"           # what is otherwise there, in one's own words
    kind = "pruning"                             # or effects: of single units, removed alone
    units = "row"                                # or neuron
    measure = "perplexity"                       # of effects: pearson or spearman, of the scores with the effects
    score = "wanda"                              # the selector that is better, says the claim
    than = "magnitude"
    control = "layer_matched"                    # the scores shuffled within every Linear; or random: over all units
    rates = [0.5, 0.3]                           # pruning only; order = "morf" where the highest scores go
    published = { score = 7.26, than = 17.29 }   # without it the claim is of the direction only

A plan holds the name of a shipped claim, and the text of any other. No torch.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.records import bounds
from engine.records.domain_names import without_markup
from engine.records.errors import InputError, unknown
from engine.run.field_types import option, words
from engine.selectors.base import selector_ids
from engine.stats.removal_order import ORDERS

EFFECTS, PRUNING = "effects", "pruning"
MEASURES = {EFFECTS: ("pearson", "spearman"), PRUNING: ("perplexity",)}
UNIT_KINDS, CONTROLS = ("row", "neuron"), ("layer_matched", "random")
SHIPPED = {path.stem: path for path in sorted((Path(__file__).parents[1] / "data" / "published").glob("*.toml"))}
_MOST_BYTES, _LONGEST, _MOST = 64 * 1024, 300, 100
_TEXTS = ("title", "source", "setup", "kind", "units", "measure", "score", "than", "control")


@dataclass(frozen=True)
class PublishedClaim:
    """One claim. rates: falling, of pruning; published: the printed numbers of `score` and `than`, where there are."""

    title: str
    source: str
    setup: str
    kind: str
    units: str
    measure: str
    score: str
    than: str
    control: str
    models: tuple[str, ...]
    rates: tuple[float, ...] = ()
    order: str = "lerf"
    published: tuple[float, float] | None = None


def claim_of(entry: str, name: str = "a claim of the plan") -> PublishedClaim:
    """The claim of an entry of the plan: a shipped one's name, or a file's text. Errors: InputError that names it."""
    if entry in SHIPPED:
        name, entry = SHIPPED[entry].name, SHIPPED[entry].read_text("utf-8")
    try:
        return _claim(tomllib.loads(entry))
    except RecursionError:
        raise InputError(f"{name} is no published claim: it is nested too deeply") from None
    except ValueError as error:  # of TOML and of `_claim`
        raise InputError(f"{name} is no published claim: {error}; shipped ones: {', '.join(SHIPPED)}") from None


def selectors_of(entries: Iterable[str]) -> tuple[str, ...]:
    """The selectors that these claims of a plan compare, each once."""
    claims = [claim_of(entry) for entry in entries]
    return tuple(dict.fromkeys(name for claim in claims for name in (claim.score, claim.than)))


def _claim(given: Mapping[str, Any]) -> PublishedClaim:
    for name in given:
        if name not in PublishedClaim.__dataclass_fields__:
            raise unknown("line", name, PublishedClaim.__dataclass_fields__)
    texts = {name: _text(name, given.get(name)) for name in _TEXTS}
    kind, order = texts["kind"], given.get("order", ORDERS[0])
    allowed = {"kind": MEASURES, "units": UNIT_KINDS, "control": CONTROLS, "measure": MEASURES.get(kind, ())}
    for name, values in (*allowed.items(), ("score", selector_ids()), ("than", selector_ids())):
        if texts[name] not in values:
            raise unknown(name, texts[name], values)
    rates = _list("rates", given.get("rates", []), lambda one: _number(one) and 0 < one < 1, "numbers between 0 and 1")
    models = _list("models", given.get("models"), lambda one: bool(_text("models", one)), 'names, as ["GPT-2"]')
    if bool(rates) != (kind == PRUNING) or not models:
        raise InputError(f"a claim has models, and rates if it is of {PRUNING}; got {kind!r}, {models}, rates {rates}")
    if order not in ORDERS or texts["score"] == texts["than"]:
        raise InputError(f"expected order {' or '.join(ORDERS)} and two selectors, got {order!r:.80}, {texts['score']}")
    pair = given.get("published", {"score": 0, "than": 0})
    if not isinstance(pair, dict) or set(pair) != {"score", "than"} or not all(map(_number, pair.values())):
        raise InputError(f"published must be {{ score = NUMBER, than = NUMBER }}, got {pair!r:.80}")
    published = (float(pair["score"]), float(pair["than"])) if "published" in given else None
    falling = tuple(sorted(map(float, rates), reverse=True))
    return PublishedClaim(**texts, models=tuple(models), rates=falling, order=order, published=published)


def _list(name: str, value: Any, fits: Callable[[Any], bool], what: str) -> list[Any]:
    if not isinstance(value, list) or len(value) > _MOST or not all(map(fits, value)):
        raise InputError(f"{name} must be a list of at most {_MOST} {what}, got {value!r:.80}")
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > _LONGEST or not value.isprintable():
        raise InputError(f"{name} must be one line of 1 to {_LONGEST} characters, got {value!r:.80}")
    return without_markup(value.strip())


def _number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e100


def read_claims(text: str, called: str) -> tuple[str, ...]:
    """`relp_effects,mine.toml` to entries of a plan. Errors: InputError for a file that is no claim."""
    entries = []
    for content in words(text, called):
        if content not in SHIPPED:
            path = Path(content).expanduser()
            if path.suffix != ".toml":
                raise unknown("published claim", content, [*SHIPPED, "FILE.toml"])
            try:
                content = bounds.text_of(path, most=_MOST_BYTES)
            except (OSError, ValueError) as error:
                why = getattr(error, "strerror", None) or error
                raise InputError(f"{called}: cannot read {path} ({why}); give a TOML file of a claim") from None
            claim_of(content, str(path))
        entries.append(content)
    return tuple(dict.fromkeys(entries))


@dataclass(frozen=True)
class ClaimsPlan:
    published_claims: tuple[str, ...] = option(
        tuple(SHIPPED), "published claims that `claims-of` checks: shipped ones by name, others as TOML files; behind "
        "`claims-of` they need no option", name="--claims", read=read_claims, metavar="CLAIM[,FILE]", group="claims-of",
    )  # fmt: skip
