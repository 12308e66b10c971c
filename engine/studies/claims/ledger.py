"""The ledger of claims: every sentence that a results folder supports, with its number, control, test and evidence.

The kinds stand in `engine.studies.claims.audit_claims`. A kind of claim is one function and its registration:

    @register_claim("stability", needs=("verdicts",))
    def _stability(tables: Mapping[str, pl.DataFrame]) -> Iterator[Claim]: ...

A claim is read from tables that are measured already, so that a folder of an earlier version has a ledger too: a kind
whose tables are missing, or lack a column, gives no line. No torch."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import polars as pl

from engine.records.errors import InputError
from engine.results.tables import frame

PROOF, CORRECTED, INTERVAL, DESCRIPTIVE = "proof", "corrected test", "single interval", "descriptive"
# The strongest first; what each says and does not say.
TIERS = {
    PROOF: "holds for every input that was checked bit by bit, without statistics",
    CORRECTED: "a test with a stated level, corrected for how many of its kind were made",
    INTERVAL: "one interval or a number of standard errors, not corrected for how many were looked at",
    DESCRIPTIVE: "a number as it was measured, without an error",
}
Tables = Mapping[str, pl.DataFrame]


class Claim(NamedTuple):
    """One sentence. case: what tells it from others of its kind and selector; p: adjusted where the tier says so."""

    selector: str
    case: str
    sentence: str
    number: float | None
    unit: str
    control: str
    test: str
    p: float | None
    tier: str


class Kind(NamedTuple):
    """Where the claims of a kind come from: tables, all of which must be there."""

    needs: tuple[str, ...]
    make: Callable[[Tables], Iterator[Claim]]


KINDS: dict[str, Kind] = {}


def register_claim(
    kind: str, *, needs: tuple[str, ...]
) -> Callable[[Callable[[Tables], Iterator[Claim]]], Callable[[Tables], Iterator[Claim]]]:
    """Decorator: claims of this kind stand in every ledger whose tables allow it. Errors: InputError for a taken id."""

    def register(make: Callable[[Tables], Iterator[Claim]]) -> Callable[[Tables], Iterator[Claim]]:
        if kind in KINDS:
            raise InputError(f"claims of the kind {kind!r} are registered already; choose another id")
        KINDS[kind] = Kind(needs, make)
        return make

    return register


def needed() -> list[str]:
    """Tables that any kind reads, and the one that widens errors where it is there."""
    return list(dict.fromkeys([*(stem for kind in KINDS.values() for stem in kind.needs), "draw_sweep"]))


def ledger(tables: Tables) -> pl.DataFrame:
    """The table `claims` of one model: kind by kind, the strongest tier first within a selector's kind.
    tables: stem -> table of the results folder. Errors: InputError for a tier that is none of `TIERS`."""
    lines = []
    for kind, about in KINDS.items():
        if not all(stem in tables and tables[stem].height for stem in about.needs):
            continue
        model = tables[about.needs[0]]["model"][0]
        for claim in about.make(tables):
            if claim.tier not in TIERS:
                raise InputError(f"a claim of the kind {kind} has the tier {claim.tier!r}, expected {', '.join(TIERS)}")
            lines.append((model, claim.selector, kind, *claim[1:]))
    return frame("claims", lines)
