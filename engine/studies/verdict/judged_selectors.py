"""A verdict per selector in plain words, from stated thresholds. Reads tables of one model."""

from collections.abc import Collection, Mapping, Sequence

import polars as pl

from engine.records.errors import InputError
from engine.results.tables import frame, spec
from engine.stats.limits import BASELINE, Thresholds
from engine.stats.table_estimates import has_blocks
from engine.studies.verdict.beyond_depths import SATURATED, SPECIFIC, specificity
from engine.studies.verdict.draw_stability import UNKNOWN, stability_between_draws
from engine.studies.verdict.finding import NOT_APPLICABLE, NOT_MEASURED, Finding
from engine.studies.verdict.removal_budgets import RemovalBudget, limit_words, removal_budgets
from engine.studies.verdict.sufficiency import SUFFICIENT, sufficiency

FAITHFUL = "faithful"
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
    gap: pl.DataFrame,
    differences: pl.DataFrame,
    dense_nll: float,
    stability: pl.DataFrame | None = None,
    *,
    specific: pl.DataFrame | None = None,
    draws: pl.DataFrame | None = None,
    draw_sweep: pl.DataFrame | None = None,
    budget: pl.DataFrame | None = None,
    why_no_draws: Mapping[str, str] | None = None,
    data_free: Collection[str] = ("random", "magnitude"),
    thresholds: Thresholds | None = None,
) -> pl.DataFrame:
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
    lerf, morf = ({} if budget is None else removal_budgets(budget, order) for order in ("lerf", "morf"))
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
            reasons.insert(0, _budget_words(name, lerf, limit_words(budget)))
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


def _budget_words(name: str, budgets: Mapping[str, RemovalBudget], limit: str) -> str:
    beside = "" if name == BASELINE or BASELINE not in budgets else f", {budgets[BASELINE]} of random rows"
    return f"{budgets[name]} of the rows can go before {limit}{beside}"


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
