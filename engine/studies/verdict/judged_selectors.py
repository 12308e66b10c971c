"""A verdict per selector in plain words, from stated thresholds: sufficient, specific (better than random rows of its
own layers), faithful, stable. Reads tables of one model."""

import math
import statistics
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import polars as pl

from engine.records.errors import InputError
from engine.results.tables import frame, spec
from engine.stats.blocks import between_draws, each_line, has_blocks
from engine.stats.limits import BASELINE, Thresholds, clear
from engine.stats.uncertainty import LEVEL, Estimate, Part, adjusted, estimate, student_t
from engine.studies import estimate_words as words

NOT_APPLICABLE, NOT_MEASURED = "not applicable", "not measured"


class Finding(NamedTuple):
    """The word, the numbers it rests on, and the reasons as sentences without a capital or a full stop."""

    word: str
    numbers: tuple[float | None, ...]
    reasons: tuple[str, ...]


FAITHFUL = "faithful"
SMALL_GAP = "too small at some rates"  # what a reason says of a log gap that keeps a selector from being sufficient
MORE = ("specific", "depth_share", "calibration_draws", "draw_size", "draw_spearman", "draw_jaccard")
BUDGETS = ("budget", "budget_low", "budget_high", "morf_budget")


def check_compared(gap_rates: Sequence[float], selectors: Sequence[str], limits: Thresholds) -> None:
    """Errors: InputError where random or the reference rate is not among what the validity gap is measured of."""
    if limits.rate not in gap_rates:
        raise InputError(
            f"verdicts compare at rate {limits.rate:g}, the validity gap is measured at "
            f"{', '.join(f'{rate:g}' for rate in sorted(set(gap_rates)))}; choose one of these"
        )
    if BASELINE not in selectors:
        raise InputError("verdicts compare every selector with random; add random to --selectors")


def judge_selectors(
    gap: pl.DataFrame, differences: pl.DataFrame, dense_nll: float, stability: pl.DataFrame | None = None, *,
    specific: pl.DataFrame | None = None, draws: pl.DataFrame | None = None, draw_sweep: pl.DataFrame | None = None,
    budget: pl.DataFrame | None = None, why_no_draws: Mapping[str, str] | None = None,
    data_free: Collection[str] = ("random", "magnitude"), thresholds: Thresholds | None = None,
) -> pl.DataFrame:  # fmt: skip
    """One verdict per selector, from the tables of one model.

    validity, with every seed of a seeded selector:
    `not`         at the reference rate LeRF is not clearly below every random ranking, or its damage is close to
                  chance, or the log gap is not above zero by enough nats and clearly;
    `partly`      neither `not` nor `sufficient`;
    `sufficient`  damage is small and the log gap is large enough at every rate of the table, but that the selector is
                  specific was not shown, or not measured;
    `faithful`    sufficient and specific.
    specific: better than random rows of its own layers under both orders, `LeRF only`, `MoRF only`, `not`; `not
    measured` without the table `specific`, and then nothing is called faithful.
    stability: between disjoint draws of calibration text (`draws`), see `stability_between_draws`. Nested sizes
    (`stability`) share windows, so they give numbers and no verdict. Stable but invalid: `stable` and validity `not`.

    "Clearly": two-sided p at most `Thresholds.level` after Holm over the selectors, by Student's t with errors over
    blocks of evaluation windows and, where it was measured, between draws of the calibration text (`draw_sweep`).

    budget: how many rows can go before perplexity doubles; a number beside the words, which do not rest on it.

    gap, differences, stability, specific, draws, draw_sweep, budget: tables of that name; dense_nll: nats per token of
    the unmasked model; data_free: selectors that see no text; why_no_draws: by selector. Numbers of seeded selectors
    are means over seeds.
    Errors: InputError where random or the reference rate is not in the tables."""
    limits = thresholds or Thresholds()
    selectors = gap["selector"].unique(maintain_order=True).to_list()
    check_compared(gap["rate"].to_list(), selectors, limits)
    sufficient = sufficiency(gap, differences, dense_nll, draw_sweep, limits)
    specific_rows = specificity(selectors, specific, draw_sweep, limits)
    stable = stability_between_draws(selectors, draws, data_free, limits, why_no_draws or {})
    nested = {line["selector"]: line for line in _nested(stability, limits).iter_rows(named=True)}
    lerf, morf = ({} if budget is None else words.removal_budgets(budget, order) for order in ("lerf", "morf"))
    lines = []
    for name in selectors:
        validity, reasons = _validity(sufficient[name], specific_rows[name])
        stable_but_invalid = stable[name].word == "stable" and validity == "not"
        reasons += [*specific_rows[name].reasons, *stable[name].reasons]
        if name in nested and stable[name].word != NOT_APPLICABLE:
            reasons.append(_nested_words(nested[name]))
        if not has_blocks(gap) and name != BASELINE:
            reasons.append("errors take evaluation windows as independent, which makes them too small")
        if stable_but_invalid:
            reasons.insert(0, "stable but invalid: the ranking is reproducible and does not find what matters")
        budgets: tuple[float | None, ...] = ()
        if budget is not None and name in lerf:
            beside = "" if name == BASELINE or BASELINE not in lerf else f", {lerf[BASELINE]} of random rows"
            reasons.insert(0, f"{lerf[name]} of the rows can go before {words.limit_words(budget)}{beside}")
            budgets = (*lerf[name][:3], morf[name].share if name in morf else None)
        elif budget is not None:
            budgets = (None,) * len(BUDGETS)
        text = "; ".join(reasons)
        own = nested.get(name, {})
        lines.append(
            (
                gap.filter(selector=name)["model"][0], name, validity, stable[name].word, stable_but_invalid,
                *sufficient[name].numbers, own.get("spearman"), own.get("jaccard"), f"{text[0].upper()}{text[1:]}.",
                specific_rows[name].word, *specific_rows[name].numbers, *stable[name].numbers, *budgets,
            )
        )  # fmt: skip
    return frame("verdicts", lines, optional=MORE if budget is None else (*MORE, *BUDGETS))


def _validity(sufficient: Finding, specific: Finding) -> tuple[str, list[str]]:
    """The word, and the reasons that are not specificity's own."""
    reasons = list(sufficient.reasons)
    if sufficient.word != SUFFICIENT:
        return sufficient.word, reasons
    if specific.word == SPECIFIC:
        return FAITHFUL, reasons
    why_not_faithful = {
        NOT_MEASURED: "sufficient; not called faithful, since specificity was not measured",
        SATURATED: "sufficient; not called faithful, since its controls are destroyed at every rate",
        "not": "sufficient but not specific: its depths alone may do it",
    }
    return SUFFICIENT, [
        why_not_faithful.get(specific.word, f"sufficient, but specific under {specific.word}"),
        *reasons,
    ]


def against_half(stability: pl.DataFrame) -> pl.DataFrame:
    """The line per selector of nested sizes: half the windows against all, else the largest smaller set."""
    smaller = stability.filter(pl.col("size") < pl.col("reference_size"))
    is_half = 2 * pl.col("size") == pl.col("reference_size")
    return smaller.sort(is_half, "size", maintain_order=True).unique("selector", keep="last", maintain_order=True)


def as_judged_now(verdicts: pl.DataFrame) -> pl.DataFrame:
    """A table of verdicts in today's words; one that has the column `specific` as it is.
    In older tables `faithful` rested on gap and damage alone and `stable` on nested sizes: they become `sufficient` and
    `unknown`, with the reason. Published ones, which have numbers and no words, keep their nulls."""
    if "specific" in verdicts.columns:
        return verdicts
    schema = spec("verdicts").schema(MORE)
    reasons = pl.col("reasons")
    earlier = (
        "Judged before specificity and disjoint draws of calibration text were measured, so that it is not called "
        "faithful, stable or not; run `selector-audit analyze MODEL verdict` again. "
    )
    return verdicts.with_columns(
        pl.col("validity").replace({FAITHFUL: SUFFICIENT}),
        pl.col("stability").replace({"stable": UNKNOWN, "not": UNKNOWN}),
        pl.when(pl.col("stable_but_invalid").is_not_null()).then(False).alias("stable_but_invalid"),
        pl.when(reasons.is_not_null()).then(pl.concat_str(pl.lit(earlier), reasons)).alias("reasons"),
        pl.when(pl.col("validity").is_not_null()).then(pl.lit(NOT_MEASURED)).alias("specific"),
        *(pl.lit(None, schema[name]).alias(name) for name in MORE[1:]),
    )


def _nested(stability: pl.DataFrame | None, limits: Thresholds) -> pl.DataFrame:
    if stability is None:
        return pl.DataFrame()
    return against_half(stability.filter((pl.col("rate") - limits.rate).abs() < 1e-9))


def _nested_words(line: dict[str, float | None]) -> str:
    rho, overlap = (("–" if line[name] is None else f"{line[name]:.4f}") for name in ("spearman", "jaccard"))
    return (
        f"nested sizes, which share windows and give no verdict: from {line['size']} instead of "
        f"{line['reference_size']} windows Spearman {rho}, Jaccard {overlap}"
    )


SUFFICIENT = "sufficient"


Numbers = tuple[float, float, float, float, float | None]  # see `_numbers`


def sufficiency(
    gap: pl.DataFrame, differences: pl.DataFrame, dense_nll: float, draw_sweep: pl.DataFrame | None, limits: Thresholds
) -> dict[str, Finding]:
    """Per selector `not`, `partly` or `sufficient`; the rules are those of `judge_selectors`.

    In damage and log gap a loss counts up to where the model is destroyed (`gap`'s column saturated_above; earlier
    tables have no such limit). Two masks that both destroy it are not told apart; further rates at which both orders
    do are left out."""
    ceiling = pl.col("saturated_above") if "saturated_above" in gap.columns else pl.lit(math.inf)
    morf, lerf = (pl.min_horizontal(name, ceiling) for name in ("nll_morf", "nll_lerf"))
    gap = gap.with_columns(ceiling=ceiling, counted_gap=morf - lerf).filter(
        (pl.col("rate") == limits.rate) | (pl.min_horizontal("nll_lerf", "nll_morf") <= pl.col("ceiling"))
    )
    selectors = gap["selector"].unique(maintain_order=True).to_list()
    judged = [name for name in selectors if name != BASELINE]
    below_random = clear(
        {name: _against_random(name, differences, draw_sweep, limits) for name in judged}, -1, limits.level
    )
    rates = sorted(set(gap["rate"].to_list()))
    above_zero = {}
    for rate in rates:
        gaps = {}
        for name in judged:
            draws = between_draws(draw_sweep, rate, (name, "morf"), (name, "lerf"))
            gaps[name] = each_line(gap.filter(selector=name, rate=rate), "log_gap", draws)
        above_zero[rate] = clear(gaps, 1, limits.level)
    findings = {}
    for name in selectors:
        numbers, counted, capped = _numbers(name, gap, dense_nll, limits)
        if name == BASELINE:
            findings[name] = Finding("not", numbers, ("it is the baseline that the others are compared with",))
            continue
        log_gaps = {rate: own["counted_gap"] for rate in rates if (own := gap.filter(selector=name, rate=rate)).height}
        too_small = {
            rate: statistics.fmean(values)
            for rate, values in log_gaps.items()
            if not (above_zero[rate].get(name, False) and min(values) >= limits.log_gap)  # of any seed
        }
        findings[name] = _sufficient_finding(numbers, counted, capped, below_random[name], too_small, limits)
    return findings


CAPPED = ", with losses counted up to where the model is destroyed"


def _numbers(selector: str, gap: pl.DataFrame, dense_nll: float, limits: Thresholds) -> tuple[Numbers, str, str]:
    """At the reference rate, means over seeds: log gap, NLL under LeRF and of random under LeRF, the unmasked model's
    (nats per token), damage as `Thresholds` defines it; with the log gap that counts, in words, and what is to be said
    of the damage."""
    at_rate = gap.filter(selector=selector, rate=limits.rate)
    lerf, log_gap = statistics.fmean(at_rate["nll_lerf"]), statistics.fmean(at_rate["log_gap"])
    chance = statistics.fmean(gap.filter(selector=BASELINE, rate=limits.rate)["nll_lerf"])
    most = float(gap["ceiling"][0]) - dense_nll
    worst = min(chance - dense_nll, most)
    damage = min(lerf - dense_nll, most) / worst if worst > 0 else None
    counted = statistics.fmean(at_rate["counted_gap"])
    less = CAPPED if abs(counted - log_gap) > 1e-9 else ""
    capped = CAPPED if lerf - dense_nll > most else ""
    return (log_gap, lerf, chance, dense_nll, damage), f"{counted:+.3g} nats{less}", capped


def _sufficient_finding(
    numbers: Numbers, counted: str, capped: str, below_random: bool, too_small: dict[float, float], limits: Thresholds
) -> Finding:
    """counted, capped: of `_numbers`; too_small: rate -> log gap, where it is not clearly above zero or not large
    enough."""
    _, lerf, chance, _, damage = numbers
    at, against = f"at {limits.rate:.0%}", []
    if not below_random:
        against.append(
            f"LeRF {at} is not clearly below every random ranking ({lerf:.3g} against {chance:.3g} nats per token; "
            f"p at most {limits.level:g} after Holm is asked for)"
        )
    if damage is None:
        against.append(f"random removal does no damage {at}, so nothing can be told from LeRF")
    elif damage > limits.invalid_damage:
        chance_is_near = "close to chance" if damage <= 2 - limits.invalid_damage else "more than chance"
        against.append(f"LeRF {at} does {damage:.1%} of the damage of random removal{capped or f', {chance_is_near}'}")
    if limits.rate in too_small:
        against.append(
            f"the log gap {at} is not clearly above zero ({counted}; asked for: at least {limits.log_gap:g} and p at "
            f"most {limits.level:g} after Holm)"
        )
    if against or damage is None:
        return Finding("not", numbers, tuple(against))
    small = damage <= limits.faithful_damage
    some_rates = ", ".join(f"{value:+.2g} at {rate:.0%}" for rate, value in too_small.items())
    reasons = (
        f"LeRF {at} is below every random ranking ({lerf:.3g} against {chance:.3g} nats per token)",
        f"it does {damage:.1%} of the damage of random removal"
        + ("" if small else f", more than {limits.faithful_damage:.0%}"),
        f"the log gap {at} is {counted}, "
        + (f"{SMALL_GAP} ({some_rates})" if too_small else "and large enough at every rate"),
    )
    return Finding(SUFFICIENT if small and not too_small else "partly", numbers, reasons)


def _against_random(
    selector: str, differences: pl.DataFrame, draw_sweep: pl.DataFrame | None, limits: Thresholds
) -> list[Estimate]:
    """Every LeRF mask of the selector against every random one: NLL of the first minus the second."""
    pairs = differences.filter(pl.col("kind") == "lerf", pl.col("rate") == limits.rate)
    first = pairs.filter(selector_a=selector, selector_b=BASELINE)
    second = pairs.filter(selector_a=BASELINE, selector_b=selector).with_columns(-pl.col("difference"))
    lines = pl.concat([first, second])
    if lines.is_empty():
        raise InputError(
            f"the table of differences does not compare {selector} with random at rate {limits.rate:g}; "
            "run the analysis `differences` again"
        )
    if "saturated" in lines.columns and lines["saturated"].any():
        return [Estimate(0.0, None, None, None, None)]
    return each_line(lines, "difference", between_draws(draw_sweep, limits.rate, (selector, "lerf")))


UNKNOWN = "unknown"
NO_NUMBERS = (None, None, None, None)


def stability_between_draws(
    selectors: Sequence[str], draws: pl.DataFrame | None, data_free: Collection[str], limits: Thresholds,
    why_not: Mapping[str, str],
) -> dict[str, Finding]:  # fmt: skip
    """Per selector `stable`, `not`, `unknown` or `not applicable`. Numbers: draws, their size, Spearman, Jaccard.

    `stable` where disjoint draws of calibration text agree by both limits in the mean over their pairs, and the lower
    ends of these means' intervals (`engine.stats.removal_order`) do so too; `not` where an upper end does not reach its
    limit; in between it cannot be told, and the word is `unknown`. Tables without intervals go by the means. Draws
    smaller than the calibration text in use are rather less alike: where they agree, so much the better; where they do
    not, nothing is known of larger ones, and the word is `unknown`. So it is with fewer draws than asked for.
    why_not: by selector, why it has none."""
    at_rate = pl.DataFrame() if draws is None else draws.filter((pl.col("rate") - limits.rate).abs() < 1e-9)
    by_selector = {line["selector"]: line for line in at_rate.iter_rows(named=True)}
    findings = {}
    for name in selectors:
        if name in data_free:
            reason = "it sees no text, so its stability is not applicable"
            findings[name] = Finding(NOT_APPLICABLE, NO_NUMBERS, (reason,))
        elif name not in by_selector:
            because = f" ({why_not[name]})" if why_not.get(name) else ""
            reason = f"stability between disjoint draws was not measured{because}"
            findings[name] = Finding(UNKNOWN, NO_NUMBERS, (reason,))
        else:
            findings[name] = _stable_finding(by_selector[name], limits)
    return findings


def _stable_finding(line: dict[str, float | None], limits: Thresholds) -> Finding:
    count, size, rho, overlap = numbers = tuple(
        line[name] for name in ("calibration_draws", "draw_size", "spearman", "jaccard")
    )
    if rho is None or overlap is None or count is None:
        return Finding(UNKNOWN, numbers, ("stability is not defined for these scores",))
    sets = f"its {count} files" if size is None else f"{count} disjoint draws of {size} calibration windows"
    asked = {"spearman": limits.spearman, "jaccard": limits.jaccard}
    low, high = ({name: _end(line, name, side) for name in asked} for side in ("low", "high"))
    agreement = (
        f"{sets} agree by Spearman {rho:.4f}{_interval(line, 'spearman')} of the scores and Jaccard "
        f"{overlap:.3f}{_interval(line, 'jaccard')} of the masks at {limits.rate:.0%} (asked for {limits.spearman:g} "
        f"and {limits.jaccard:g})"
    )
    wanted = line["size_wanted"] or 0
    if count < limits.draws:
        too_few = ": give as many files" if size is None else ", and the text is too short for them"
        agreement += f"; {limits.draws} draws are asked for{too_few}"
        word = UNKNOWN
    elif all(low[name] >= asked[name] for name in asked):
        word = "stable"
    elif all(high[name] >= asked[name] for name in asked):
        agreement += "; a limit lies within an interval: more draws could tell"
        word = UNKNOWN
    elif size is not None and size < wanted:
        agreement += f"; the text is too short for draws of {wanted} windows, which may agree more"
        word = UNKNOWN
    else:
        word = "not"
    return Finding(word, numbers, (agreement,))


def _end(line: dict[str, float | None], name: str, side: str) -> float:
    """An end of a mean's interval; the mean itself where there is none."""
    end = line.get(f"{name}_{side}")
    return float(line[name] or 0.0) if end is None else end


def _interval(line: dict[str, float | None], name: str) -> str:
    low, high = (line.get(f"{name}_{side}") for side in ("low", "high"))
    return "" if low is None or high is None else f" ({low:.3f} to {high:.3f})"


SPECIFIC, SATURATED = "specific", "saturated"
DECIDED = "control_nll"  # tables with this column have each selector at a rate of its own
Key = TypeVar("Key", bound=Hashable)


class Told(NamedTuple):
    """What one of several tests says. detectable: the smallest difference that it would have told."""

    p_holm: float | None
    answer: words.Answer
    detectable: float | None


def told(differences: Mapping[Key, Estimate], order: str, level: float = LEVEL) -> dict[Key, Told]:
    """Holm over these differences of one order; none is told without an error."""
    p_holm = adjusted({key: p for key, one in differences.items() if (p := one.p_differs) is not None})
    answers = {}
    for key, one in differences.items():
        least = None
        if key in p_holm and one.stderr is not None and one.degrees is not None:
            confidence = 1 - level / (len(p_holm) * one.looks)
            if confidence < 1:  # at a level of nothing, nothing is told
                least = student_t(one.degrees, confidence) * one.stderr if one.stderr else 0.0
        p = p_holm.get(key)
        answers[key] = Told(p, words.better_or_worse(one.value, p, order, level), least)
    return answers


def with_draws(specific: pl.DataFrame, draw_sweep: pl.DataFrame | None, level: float = LEVEL) -> pl.DataFrame:
    """The table `specific` as verdicts, ledger and pages read it: the calibration text's part, where it was drawn anew
    (`draw_sweep`), is in stderr, degrees, interval, p, p_holm, answer and detectable."""
    rows = specific.rows(named=True)
    family = ("order",) if DECIDED in specific.columns else ("order", "rate")
    families: dict[tuple[Any, ...], dict[int, Estimate]] = {}
    for place, row in enumerate(rows):
        of_draws = between_draws(draw_sweep, row["rate"], (row["selector"], row["order"]))
        error, known = row["stderr"], row["degrees"]
        of_text = None if error is None else Part(error * error, math.inf if known is None else known)
        gap = estimate(row["difference"], [of_text, *of_draws], looks=row.get("looks") or 1)
        degrees = None if gap.stderr == 0 else gap.degrees
        row |= {"stderr": gap.stderr, "degrees": degrees, "low": gap.low, "high": gap.high, "p": gap.p_differs}
        if row["answer"] != SATURATED:
            families.setdefault(tuple(row[name] for name in family), {})[place] = gap
    for (order, *_), differences in families.items():
        for place, answer in told(differences, order, level).items():
            rows[place] |= answer._asdict()
    return pl.DataFrame([{name: row[name] for name in specific.columns} for row in rows], schema=specific.schema)


def specificity(
    selectors: Sequence[str], specific: pl.DataFrame | None, draw_sweep: pl.DataFrame | None, limits: Thresholds
) -> dict[str, Finding]:
    """Per selector `specific`, `LeRF only`, `MoRF only`, `not`, `saturated`, `not measured`; random `not applicable`.

    An order passes where the selector's NLL differs from the mean of its layer-matched controls in the right direction,
    by p adjusted over the selectors, at the largest rate at which these controls are not saturated (the table's; in
    tables of before there was such a rule, at the reference rate). `saturated` where there is no such rate in one of
    the orders. The error holds the evaluation text, one further draw of the control's rows and, where it was measured,
    the calibration text (`with_draws`). Number: the share of the LeRF advantage that the depths explain."""
    orders = limits.specific_orders
    by_order: dict[str, dict[str, dict[str, Any]]] = {order: {} for order in ("lerf", "morf")}
    judged = pl.DataFrame() if specific is None else judged_lines(specific, limits)
    if judged.height:
        judged = with_draws(judged.filter(pl.col("selector").is_in(list(selectors))), draw_sweep, limits.level)
    for line in judged.iter_rows(named=True):
        by_order[line["order"]][line["selector"]] = line
    findings = {}
    for name in selectors:
        lines = {order: by_order[order][name] for order in orders if name in by_order[order]}
        if name == BASELINE:
            findings[name] = Finding(NOT_APPLICABLE, (None,), ())
        elif len(lines) < len(orders):
            why = "whether it is more than its depths, against random rows of its own layers, was not measured"
            findings[name] = Finding(NOT_MEASURED, (None,), (why,))
        elif any(line["answer"] == SATURATED for line in lines.values()):
            destroyed = " and ".join(words.ORDER_TITLES[o] for o, line in lines.items() if line["answer"] == SATURATED)
            why = f"random rows of its own layers destroy the model at every rate under {destroyed}: not judged"
            findings[name] = Finding(SATURATED, (None,), (why,))
        else:
            findings[name] = _specific_finding(lines, by_order["lerf"].get(name))
    return findings


def judged_lines(specific: pl.DataFrame, limits: Thresholds) -> pl.DataFrame:
    """The lines that verdicts rest on."""
    decided = DECIDED in specific.columns
    return specific if decided else specific.filter((pl.col("rate") - limits.rate).abs() < 1e-9)


def _specific_finding(lines: dict[str, dict[str, Any]], lerf: dict[str, Any] | None) -> Finding:
    passed = [order for order, line in lines.items() if line["answer"] == "better"]
    word = SPECIFIC if len(passed) == len(lines) else f"{words.ORDER_TITLES[passed[0]]} only" if passed else "not"
    reasons = [_specific_sentence(order, line, order in passed) for order, line in lines.items()]
    share = None if lerf is None else lerf["depth_share"]
    if lerf is not None and share is not None:
        low = "at most" if lerf["depth_share_low"] < -1 else f"{lerf['depth_share_low']:.0%} to"
        depth = f"{share:.0%} ({low} {lerf['depth_share_high']:.0%})"
        reasons.append(f"random rows of its layers have {depth} of its LeRF advantage over random masks")
    return Finding(word, (share,), tuple(reasons))


def _specific_sentence(order: str, line: dict[str, Any], passed: bool) -> str:
    difference = Estimate(*(line[name] for name in ("difference", "stderr", "degrees", "low", "high")))
    detectable = line.get("detectable")
    power = "" if passed or detectable is None else f"; {detectable:.2g} would have been told apart"
    return (
        f"under {words.ORDER_TITLES[order]} at {words.share_text(line['rate'])} it does "
        f"{'' if passed else 'not clearly do '}{'less' if order == 'lerf' else 'more'} harm than random rows of its "
        f"own layers ({words.interval_words(difference)} nats per token from them{power})"
    )
