"""Claims "a before b" over all protocols, in words: what holds under every one, and which would overturn what.

No torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from engine.results.tables import frame
from engine.stats.limits import Thresholds
from engine.stats.uncertainty import LEVEL, holm
from engine.studies.estimate_words import ORDER_TITLES

ALL, UNOPPOSED, CONTESTED, OVERTURNED, UNDECIDED = "all", "unopposed", "contested", "overturned", "undecided"
VERDICTS = (ALL, UNOPPOSED, CONTESTED, OVERTURNED, UNDECIDED)
DIMENSIONS = ("intervention", "unit_kind", "metric", "order", "rate")
PAPER = {"intervention": "zero", "unit_kind": "row", "metric": "nll", "order": "lerf", "rate": Thresholds().rate}
_NAMED = 3  # so many protocols are named one by one
Line = Mapping[str, Any]


@dataclass(frozen=True)
class Claim:
    """`a` before `b`, and what the protocols say of it."""

    a: str
    b: str
    from_paper: bool  # the paper's protocol says so; else most protocols do, or the pair stands in the usual order
    held: int
    against: tuple[Line, ...]
    protocols: tuple[Line, ...]
    destroyed: int = 0  # further protocols, under which both models are

    @property
    def ties(self) -> int:
        return len(self.protocols) - self.held - len(self.against)

    @property
    def sure(self) -> bool:
        """Is one of those against so sure that Holm over all protocols leaves it?"""
        adjusted = holm([1.0 if line["p_holm"] is None else line["p_holm"] for line in self.protocols])
        return any(p <= LEVEL and line["ahead"] == self.b for p, line in zip(adjusted, self.protocols, strict=True))

    @property
    def word(self) -> str:
        if self.against:
            return OVERTURNED if self.sure else CONTESTED
        return UNDECIDED if not self.held else ALL if self.held == len(self.protocols) else UNOPPOSED

    @property
    def sentence(self) -> str:
        total, a, b = len(self.protocols), self.a, self.b
        if not total:
            return f"{a} and {b}: both destroy the model under every protocol."
        end = f"; {self.destroyed} more destroy both." if self.destroyed else "."
        if self.word == UNDECIDED:
            return f"{a} and {b}: none of {total} protocols tells them apart{end}"
        counts = f"{a} before {b}: {self.held} of {total}"
        if self.against:
            counts += f", {b} before {a}: {len(self.against)} ({where(self.against, self.protocols)})"
            counts += "" if self.sure else ", none of these sure among so many protocols"
        return (f"{counts}, tied: {self.ties}" if self.ties else counts) + end


def claims(pairs: pl.DataFrame) -> pl.DataFrame:
    """`protocols_claims`: one line per pair of selectors, from `protocols_pairs`.

    The claim is what the paper's protocol decides (rows, zero, NLL, LeRF at 30%); where it was not measured or is a
    tie, what most protocols decide. verdict: `all` every protocol decides so; `unopposed` some do, the others are ties;
    `overturned` at least one decides the other way round, and does so after Holm over the pair's protocols as well;
    `contested` some do, but none so surely; `undecided` all are ties. The counts are of protocols that decide by Holm
    over their own pairs: where nothing is there, one protocol in twenty may decide something."""
    lines = []
    for (model, a, b), own in pairs.group_by("model", "selector_a", "selector_b", maintain_order=True):
        claim = claim_of(str(a), str(b), own.to_dicts())
        counts = (len(claim.protocols), claim.held, len(claim.against), claim.ties)
        by = "; ".join(name(line) for line in claim.against) or None
        lines.append((model, claim.a, claim.b, claim.word, *counts, claim.from_paper, by, claim.sentence))
    return frame("protocols_claims", lines)


def claim_of(a: str, b: str, lines: Sequence[Line]) -> Claim:
    """lines: of one pair, one per protocol; `ahead` is a, b or None. Those under which both models are destroyed are
    counted apart."""
    every, lines = lines, [line for line in lines if not line.get("saturated")]
    paper = next((line["ahead"] for line in lines if all(line[key] == value for key, value in PAPER.items())), None)
    for_a, for_b = (sum(line["ahead"] == one for line in lines) for one in (a, b))
    if paper == b or (paper is None and for_b > for_a):
        a, b, for_a = b, a, for_b
    against = tuple(line for line in lines if line["ahead"] == b)
    return Claim(a, b, paper is not None, for_a, against, tuple(lines), len(every) - len(lines))


def name(protocol: Line) -> str:
    """A protocol in words: `zero rows, NLL, LeRF 30%`."""
    units = {"row": "rows", "neuron": "neurons", "head": "heads", "expert": "routed experts"}
    metrics = {"nll": "NLL", "kl": "KL", "top1": "top-1"}
    unit, metric, order = protocol["unit_kind"], protocol["metric"], protocol["order"]
    order_and_rate = f"{ORDER_TITLES.get(order, order)} {protocol['rate'] * 100:g}%"
    return f"{protocol['intervention']} {units.get(unit, unit)}, {metrics.get(metric, metric)}, {order_and_rate}"


def where(chosen: Sequence[Line], protocols: Sequence[Line]) -> str:
    """Few protocols by name; of many what they have in common and the others have not, and else how they spread."""
    if len(chosen) <= _NAMED:
        return "; ".join(map(name, chosen))
    limited_to = []
    for key in DIMENSIONS:
        values, possible = (list(dict.fromkeys(line[key] for line in lines)) for lines in (chosen, protocols))
        if len(values) < len(possible):
            texts = [f"{value * 100:g}%" if key == "rate" else str(value) for value in values]
            limited_to.append(f"{key.removesuffix('_kind')} {' or '.join(texts)}")
    return (
        f"only with {', '.join(limited_to)}" if limited_to else "over every intervention, unit, metric, order and rate"
    )


def flip_rate(table: pl.DataFrame) -> tuple[float, float] | None:
    """Shares of the pairs of selectors that some protocol puts in order and another the other way round: surely
    (overturned), and with those of which that is not sure (contested). None where no protocol decides anything."""
    decided = table.filter(pl.col("claim_verdict") != UNDECIDED).height
    flipped, perhaps = (table.filter(claim_verdict=word).height for word in (OVERTURNED, CONTESTED))
    return (flipped / decided, (flipped + perhaps) / decided) if decided else None


def summary(table: pl.DataFrame) -> str:
    """How many claims of `protocols_claims` hold, and the flip rate."""
    counts = {word: table.filter(claim_verdict=word).height for word in VERDICTS}
    counted = table["protocols"].to_list()
    every, most = f"all {counted[0]} protocols", max(counted)
    every = every if min(counted) == most else f"every protocol that does not destroy both (at most {most})"
    return (
        f"Of {table.height} pairs of selectors, {counts[ALL]} stand in the same order under {every}, "
        f"{counts[UNOPPOSED]} wherever a protocol shows a difference; {counts[OVERTURNED]} stand one way under some "
        f"protocols and the other way under others, {counts[CONTESTED]} perhaps do, and for {counts[UNDECIDED]} no "
        f"protocol shows a difference.{_flip_words(flip_rate(table))}"
    )


def _flip_words(rate: tuple[float, float] | None) -> str:
    if rate is None:
        return ""
    surely, perhaps = rate
    more = f", perhaps {perhaps:.0%}" if perhaps > surely else ""
    return f" Flip rate: {surely:.0%} of the pairs that any protocol puts in order{more}."
