"""Published claims about scores, checked on the model at hand: does one selector do better than another here too?"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.edits.edit import Ranking
from engine.edits.masks import removed_count
from engine.measures.nll import Nll
from engine.models.units import UNITS, Units
from engine.records.errors import InputError
from engine.results.tables import frame
from engine.run.audit_plan import RandomMasksPlan, SinglesPlan
from engine.run.claims_plan import EFFECTS, PRUNING, ClaimsPlan, PublishedClaim, claim_of, selectors_of
from engine.run.runner import Cell, Results
from engine.run.scoring import LeftOut, impossible
from engine.selectors import get_selector
from engine.stats.blocks import block_difference, paired_difference
from engine.stats.layer_matched import against_controls, p_value
from engine.stats.limits import both_above
from engine.stats.single_units import compared, correlation, shuffled
from engine.stats.uncertainty import LEVEL, estimate, text_part
from engine.studies.audit.audit_inputs import AuditInputs
from engine.studies.audit.singles import sampled_units
from engine.studies.base import AUDIT, Answer, Expected, Study, Tables, register_study
from engine.studies.estimate_words import ORDER_TITLES, share_text

SHUFFLES = 999  # of the control's scores, of effects: p is a multiple of 1 / 1,000
HOLDS, FAILS, OPEN, SATURATED, UNMEASURED = "holds", "fails", "open", "saturated", "unmeasured"
IN_WORDS = {
    HOLDS: "holds here", FAILS: "does not hold here, the other one does better", OPEN: "cannot be told here",
    SATURATED: "not judged, both masks destroy the model at every rate of the claim", UNMEASURED: "not measured",
}  # fmt: skip
_INSIDE = {"layer_matched": "inside every Linear", "random": "over the model"}


@register_study(
    "claims-of", of=AUDIT, plan=ClaimsPlan, reads=(SinglesPlan, RandomMasksPlan), tables=("published_claims",),
    title="Do published claims about scores hold for this model?",
)  # fmt: skip
class ClaimsOf(Study[AuditInputs]):
    """`published_claims`, one line per claim of the plan (`engine.run.claims_plan`); beyond the paper.

    *effects*: correlations of both scores with the exact effects of the sample of `singles` (same units and windows).
    Where neither score has values below 0, effects are absolute, since such scores say how much and not which way. An
    effect counts up to the NLL at which the model is destroyed. Advantage: the difference of the correlations, its
    interval a paired bootstrap's over units (`engine.stats.single_units`). Control: the better score shuffled, 999
    times, inside every Linear or over all units; its p is a permutation's.

    *pruning*: NLL without the units of either mask, at the largest of the claim's rates at which not both destroy the
    model; paired over blocks of evaluation windows. Control: masks of the better score shuffled likewise, one per seed
    of `matched_seeds`, tested as in `specific`.

    *holds*: the whole 95% interval of the advantage is above 0, and the score is better than its control (p <= .05);
    *fails*: the whole interval is below 0; *open*: neither; *saturated*: both masks destroy the model at every rate.
    No correction for the number of claims; other calibration text is not in the errors.
    """

    @classmethod
    def check(cls, audit: AuditInputs) -> None:
        claims = _claims(audit)
        if len({claim.title for claim in claims}) < max(len(claims), 1):
            raise InputError(f"claims-of needs claims of distinct titles, got {len(claims)}; give them with --claims")
        for name in selectors_of(audit.plan.published_claims):
            if get_selector(name).seeded:
                raise InputError(f"a claim compares two rankings, and {name} has one per seed; it is a control")

    @classmethod
    def expected(cls, audit: AuditInputs, known: Results) -> Expected:
        plan, claims = audit.plan, _claims(audit)
        masks = sum(2 * len(claim.rates) + (claim.kind == PRUNING) * len(plan.matched_seeds) for claim in claims)
        text = audit.evaluation.first(min(plan.singles_windows, len(audit.evaluation.sample_ids)))
        single = any(claim.kind == EFFECTS for claim in claims) * min(plan.singles_rows, audit.loaded.rows.n_rows)
        return Expected(edits=[(audit.dense.measure, masks), (Nll(text, plan.scoring.batch_size), single)])

    def cells(self, audit: AuditInputs, known: Results) -> Iterable[Cell[Any]]:
        self.check(audit)
        yield audit.dense
        for claim in _claims(audit):
            if claim.kind == EFFECTS and (sample := sampled_units(audit, claim.units)):
                yield from (sample.dense, *sample.effects.values())
            elif claim.kind == PRUNING and not _why_not(audit, claim):
                for _, both, controls in _masks(audit, claim):
                    yield from both
                    if any(cell not in known for cell in both):
                        break
                    if not both_above(audit.saturated_above(known), *(known[cell] for cell in both)):
                        yield from controls
                        break

    def tables(self, audit: AuditInputs, results: Results) -> Tables:
        lines = []
        for claim in _claims(audit):
            why = _why_not(audit, claim)
            measure = _effects if claim.kind == EFFECTS else _pruning
            line = dict[str, Any](answer=UNMEASURED) if why else measure(audit, claim, results)
            a, b = claim.published or (None, None)
            lines.append(line | {
                "model": audit.loaded.id, "title": claim.title, "source": claim.source, "kind": claim.kind,
                "published_on": ", ".join(claim.models), "unit_kind": claim.units, "measure": claim.measure,
                "selector_a": claim.score, "selector_b": claim.than, "control": claim.control, "published_a": a,
                "published_b": b, "claim": _sentence(claim, line, why),
            })  # fmt: skip
        return {"published_claims": frame("published_claims", lines)}

    def line(self, audit: AuditInputs, tables: Tables) -> str:
        rows = tables["published_claims"].iter_rows(named=True)
        return "; ".join(f"{row['title']}: {IN_WORDS[row['answer']]}" for row in rows)

    def answer(self, audit: AuditInputs, results: Results, tables: Tables, folder: Path) -> Answer:
        return Answer(tables["published_claims"]["claim"].to_list(), dict(tables))


def _claims(audit: AuditInputs) -> list[PublishedClaim]:
    return [claim_of(entry) for entry in audit.plan.published_claims]


def _units(audit: AuditInputs, kind: str) -> Units:
    return audit.once(f"claims-of {kind}", lambda: UNITS[kind](audit.loaded))


def _left_out(audit: AuditInputs) -> LeftOut:
    names = selectors_of(audit.plan.published_claims)
    return audit.once("claims-of left out", lambda: impossible(audit.loaded, names))


def _why_not(audit: AuditInputs, claim: PublishedClaim) -> str:
    """Why this model cannot answer, "" where it can."""
    for name in (claim.score, claim.than):
        if name in _left_out(audit):
            return f"{name} cannot be had of this model: {_left_out(audit)[name]}"
    if sampled_units(audit, claim.units) if claim.kind == EFFECTS else _units(audit, claim.units).count:
        return ""
    return f"the model, or the sample of singles, has no units of the kind {claim.units}"


def _scores(audit: AuditInputs, claim: PublishedClaim, units: Units) -> list[npt.NDArray[np.float64]]:
    """Of all units, by both selectors under the plan's settings, whether or not the plan has them. [U] each"""

    def make() -> dict[str, npt.NDArray[np.float32]]:
        names = [name for name in selectors_of(audit.plan.published_claims) if name not in _left_out(audit)]
        scored = audit.score(audit.loaded, replace(audit.plan.scoring, selectors=tuple(names)))
        return {name: values.numpy() for name, values in scored.scores.items()}

    of_rows = audit.once("claims-of scores", make)
    return [units.scores(of_rows[name]) for name in (claim.score, claim.than)]


def _groups(claim: PublishedClaim, layers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Inside which units the control shuffles."""
    return layers if claim.control == "layer_matched" else np.zeros_like(layers)


def _effects(audit: AuditInputs, claim: PublishedClaim, results: Results) -> dict[str, Any]:
    """The columns that are measured, of a claim of effects."""
    sample = sampled_units(audit, claim.units)
    assert sample is not None
    chosen, dense = np.array(list(sample.effects)), results[sample.dense]
    limit = audit.saturated_above_on(sample.dense, results)
    losses = np.array([results[cell].nats_per_token for cell in sample.effects.values()])
    effects = np.where(losses <= limit, losses, limit) - dense.nats_per_token  # NaN too is a model that broke
    of_all = _scores(audit, claim, sample.units)
    a, b = (scores[chosen] for scores in of_all)
    if not any((scores < 0).any() for scores in of_all):
        effects = np.abs(effects)
    both = compared(a, b, effects, claim.measure)
    line = {"units_sampled": chosen.size, "tokens": dense.tokens, "value_a": both.first, "value_b": both.second}
    if both.first is None or both.second is None:  # the same score, or effect, for all units
        return line | {"answer": UNMEASURED}
    groups = _groups(claim, sample.units.layer[chosen])
    control = correlation(shuffled(a, groups, SHUFFLES, 0), effects, claim.measure)
    rhos = compared(a, b, effects, "spearman")
    line |= {"value_control": float(control.mean()), "p_control": p_value(both.first, control.tolist())}
    line |= {"spearman_a": rhos.first, "spearman_b": rhos.second}
    return line | _told(both.first - both.second, both.low, both.high, line["p_control"])


def _masks(
    audit: AuditInputs, claim: PublishedClaim
) -> Iterator[tuple[float, tuple[Cell[Any], Cell[Any]], list[Cell[Any]]]]:
    """Every rate, the largest first, with the cells of both masks and of the control's."""
    units, at = _units(audit, claim.units), audit.plan.intervention
    audit.ready(at)

    def ranked(seed: int | None, scores: npt.NDArray[np.float64]) -> Ranking:
        return Ranking(claim.score, seed, scores, at, None if units.are_rows else units.ids, units.side)

    def make() -> list[Ranking]:
        a, b = _scores(audit, claim, units)
        groups = _groups(claim, units.layer)
        control = [ranked(seed, shuffled(a, groups, 1, seed)[0]) for seed in audit.plan.matched_seeds]
        return [ranked(None, a), ranked(None, b), *control]

    for rate in claim.rates:
        rankings = audit.once(f"claims-of rankings of {claim.title}", make)
        a, b, *controls = (audit.nll(ranking.edit(claim.order, rate)) for ranking in rankings)
        yield rate, (a, b), controls


def _pruning(audit: AuditInputs, claim: PublishedClaim, results: Results) -> dict[str, Any]:
    """The columns that are measured, of a claim of pruning."""
    limit, line = audit.saturated_above(results), dict[str, Any]()
    for rate, both, controls in _masks(audit, claim):
        a, b = (results[cell] for cell in both)
        line = {
            "order": claim.order, "rate": rate, "units_sampled": removed_count(rate, _units(audit, claim.units).count),
            "tokens": a.tokens, "value_a": a.nats_per_token, "value_b": b.nats_per_token, "answer": SATURATED,
        }  # fmt: skip
        if both_above(limit, a, b):
            continue
        sign = 1 if claim.order == "lerf" else -1  # less harm is better, or more
        stderr, blocks = block_difference(b, a)
        ahead = estimate(sign * paired_difference(b, a)[0], [text_part([stderr], [blocks])])
        drawn = [results[cell] for cell in controls]
        beside = against_controls([a], [drawn], drawn, claim.order).difference
        p = beside.p_differs if sign * beside.value < 0 else 1.0
        line |= {"value_control": a.nats_per_token - beside.value, "p_control": p}
        return line | _told(ahead.value, ahead.low, ahead.high, p)
    return line


def _told(advantage: float, low: float | None, high: float | None, p_control: float | None) -> dict[str, Any]:
    holds = low is not None and low > 0 and p_control is not None and p_control <= LEVEL
    answer = HOLDS if holds else FAILS if high is not None and high < 0 else OPEN
    half = None if low is None or high is None else (high - low) / 2
    ends = {"advantage_low": low, "advantage_high": high, "detectable": half}
    return {"answer": answer, "advantage": advantage, **ends}


def _sentence(claim: PublishedClaim, line: dict[str, Any], why: str) -> str:
    """The answer with its numbers, what was published, and of what."""
    printed, name = claim.published, claim.measure.title() if claim.kind == EFFECTS else claim.measure
    numbers = "the direction only" if printed is None else f"{name} {printed[0]:g} against {printed[1]:g}"
    source = f"Published: {numbers}, {', '.join(claim.models)}, {claim.setup} ({claim.source})."
    begin, pruned = f"{claim.title}: {IN_WORDS[line['answer']]}", claim.kind == PRUNING
    if line.get("value_a") is None or line.get("value_b") is None:
        return f"{begin} ({why or 'a score, or the effects, are the same for all units'}). {source}"
    a, b, control = (_shown(line.get(f"value_{name}"), pruned) for name in ("a", "b", "control"))
    how = "removed together" if pruned else "each removed alone"
    more = f" ({share_text(line['rate'])}, {ORDER_TITLES[claim.order]})" if pruned else ""
    here = f"{line['units_sampled']:,} {claim.units}s{more} {how}, {line['tokens']:,} tokens"
    text = f"{begin}. Here: {name} {a} for {claim.score}, {b} for {claim.than} ({here})"
    if line.get("spearman_a") is not None:
        text += f", Spearman {line['spearman_a']:.3f} and {line['spearman_b']:.3f}"
    if line.get("advantage_low") is not None:
        low, high, unit = line["advantage_low"], line["advantage_high"], " nats per token" if pruned else ""
        text += f"; advantage {line['advantage']:+.3g}{unit} ({low:+.3g} to {high:+.3g})"
        if low <= 0 <= high:
            text += f", a difference of {line['detectable']:.2g} would have been told"
    if line.get("p_control") is not None:
        text += f"; {claim.score} shuffled {_INSIDE[claim.control]}: {control} (p {line['p_control']:.2g})"
    return f"{text}. {source}"


def _shown(value: float | None, pruned: bool) -> str:
    if value is None or not pruned:
        return "" if value is None else f"{value:.3f}"
    return f"{math.exp(value):.4g}" if value < 700 else "infinite"
