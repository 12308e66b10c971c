"""The ledger of claims: every sentence that a results folder supports, with its number, control, test and evidence.

A kind of claim is one function and its registration:

    @register_claim("stability", needs=("verdicts",))
    def _stability(tables: Mapping[str, pl.DataFrame]) -> Iterator[Claim]: ...

A claim is read from tables that are measured already, so that a folder of an earlier version has a ledger too: a kind
whose tables are missing, or lack a column, gives no line. No torch."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import polars as pl

from engine.records.errors import InputError
from engine.results.tables import frame
from engine.stats.blocks import has_blocks, log_gaps
from engine.stats.limits import BASELINE, Thresholds
from engine.stats.removal_order import ORDERS
from engine.stats.uncertainty import adjusted
from engine.studies import estimate_words as words
from engine.studies.invariance.invariance_verdicts import EXACT, MOVED, UNKNOWN
from engine.studies.verdict.judged_selectors import with_draws

PROOF, CORRECTED, INTERVAL, DESCRIPTIVE = "proof", "corrected test", "single interval", "descriptive"
# The strongest first; what each says and does not say.
TIERS = {
    PROOF: "holds for every input that was checked bit by bit, without statistics",
    CORRECTED: "a test with a stated level, corrected for how many of its kind were made",
    INTERVAL: "one interval or a number of standard errors, not corrected for how many were looked at",
    DESCRIPTIVE: "a number as it was measured, without an error",
}
Tables = Mapping[str, pl.DataFrame]
Make = Callable[[Tables], Iterator["Claim"]]


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
    make: Make


KINDS: dict[str, Kind] = {}


def register_claim(kind: str, *, needs: tuple[str, ...]) -> Callable[[Make], Make]:
    """Decorator: claims of this kind stand in every ledger whose tables allow it. Errors: InputError for a taken id."""

    def register(make: Make) -> Make:
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


def _rows(table: pl.DataFrame) -> Iterator[dict[str, Any]]:
    return table.iter_rows(named=True)


@register_claim("harm", needs=("verdicts",))
def _harm(tables: Tables) -> Iterator[Claim]:
    """What LeRF does against random removal."""
    limits = Thresholds()
    for row in _rows(tables["verdicts"]):
        if row["selector"] != BASELINE and row.get("damage") is not None:
            yield Claim(
                row["selector"], f"{limits.rate:.0%}",
                f"Removing its lowest {limits.rate:.0%} of the rows adds {row['damage']:.0%} of the NLL that removing "
                "random rows adds.",
                row["damage"], "fraction", "random rows, the mean over their seeds",
                "none of the ratio; that LeRF is below every random ranking is judged by `differences`", None,
                DESCRIPTIVE,
            )  # fmt: skip


@register_claim("budget", needs=("budget",))
def _budget(tables: Tables) -> Iterator[Claim]:
    """How many rows can go before perplexity doubles."""
    table = tables["budget"]
    for order, budgets in ((order, words.removal_budgets(table, order)) for order in ORDERS):
        for name, budget in budgets.items():
            known = budget.low is not None and budget.high is not None
            ends = f", {words.share_text(budget.low or 0)} to {words.share_text(budget.high or 1)}" if known else ""
            yield Claim(
                name, order,
                f"{budget} of the rows can go, {'lowest' if order == 'lerf' else 'highest'} scores first, before "
                f"{words.limit_words(table)}{ends}.",
                budget.share, "fraction", "random rows" if BASELINE in budgets else "none",
                "first crossing of NLL over rising rates; interval by Student's t over blocks of evaluation text, of "
                "several seeds from the least to the greatest end", None, INTERVAL if known else DESCRIPTIVE,
            )  # fmt: skip


@register_claim("parts", needs=("parts",))
def _parts(tables: Tables) -> Iterator[Claim]:
    """The projection and the block that do most of a mask's harm."""
    ranked = tables["parts"].drop_nulls("restored").sort("restored", descending=True, maintain_order=True)
    for row in _rows(ranked.unique(["selector", "order", "rate", "part"], keep="first", maintain_order=True)):
        where = row["name"] if row["part"] == "projection" else f"block {row['name']}"
        yield Claim(
            row["selector"], f"{words.ORDER_TITLES[row['order']]} {row['rate']:.0%}, {row['part']}",
            f"{row['restored']:.0%} of its mask's harm goes when its {row['rows_removed']:,} rows of {where} are put "
            "back, the most of any.",
            row["restored"], "fraction", "the same mask without these rows", "none; the largest of several as measured",
            None, DESCRIPTIVE,
        )  # fmt: skip


@register_claim("joint", needs=("joint",))
def _joint(tables: Tables) -> Iterator[Claim]:
    """A mask's harm beside the sum of its rows' single harms, at the largest rate at which it has a size."""
    judged = tables["joint"].filter(~pl.col("saturated"), pl.col("single_sum").is_not_null()).sort("rate")
    for row in _rows(judged.unique(["selector", "seed"], keep="last", maintain_order=True)):
        low, high, rate = row["single_low"], row["single_high"], words.share_text(row["rate"])
        against = "more than" if row["harm"] > high else "less than" if row["harm"] < low else "no more or less than"
        yield Claim(
            row["selector"], rate if row["seed"] is None else f"{rate}, seed {row['seed']}",
            f"Its lowest {rate} of the rows cost {row['harm']:+.3g} nats per token together, {against} the sum of what "
            f"each costs alone ({row['single_sum']:+.3g}, {low:+.3g} to {high:+.3g}).",
            row["harm"], "nats per token", f"{row['units_sampled']} of these rows, each removed alone",
            "95% interval of the sum over sampled rows; the error of the mask's own harm is not in it", None, INTERVAL,
        )  # fmt: skip


@register_claim("gap", needs=("gap",))
def _gap(tables: Tables) -> Iterator[Claim]:
    """MoRF against LeRF at the largest rate, up to the reference one, at which not both destroy the model; seeded
    rankings by the mean over their seeds, all of them or none."""
    limits, table = Thresholds(), tables["gap"]
    if "saturated_above" in table.columns:
        of_seeds = pl.col("nll_lerf", "nll_morf").mean().over("selector", "rate")
        table = table.filter(pl.min_horizontal(of_seeds) <= pl.col("saturated_above"))
    table = table.filter(pl.col("rate") < limits.rate + 1e-9)
    table = table.filter(pl.col("rate") == pl.col("rate").max().over("selector"))
    every = log_gaps(table, tables.get("draw_sweep"))
    gaps, rates = {name: gap for (name, _), gap in every.items()}, dict(list(every))
    p_values = adjusted({name: p for name, gap in gaps.items() if (p := gap.p_differs) is not None})
    for name, p in p_values.items():
        side = "more" if gaps[name].value > 0 else "less"
        rate = words.share_text(rates[name])
        answer = f"Removing its highest {rate} of the rows costs {side} than removing the lowest"
        if p > limits.level:
            seen = words.no_difference(gaps[name].low, gaps[name].high)
            answer = f"{seen[0].upper()}{seen[1:]} between removing its highest and its lowest {rate} of the rows"
        yield Claim(
            str(name), rate, f"{answer} ({words.interval_words(gaps[name])} nats per token).",
            gaps[name].value, "nats per token", "the same ranking, removed from the other end",
            f"difference paired over {words.paired_over(table)}, Student's t, Holm over the "
            f"selectors at {limits.level:g}", p, CORRECTED if has_blocks(table) else INTERVAL,
        )  # fmt: skip


@register_claim("specific", needs=("specific",))
def _specific(tables: Tables) -> Iterator[Claim]:
    """A selector against random rows of its own layers."""
    table = with_draws(tables["specific"], tables.get("draw_sweep"))
    for row in _rows(table.filter(pl.col("p_holm").is_not_null())):
        seen = words.no_difference(row["low"], row["high"])
        answer = f"{seen[0].upper()}{seen[1:]} between its mask and random rows of the same layers"
        if row["p_holm"] <= Thresholds().level:
            side = "less" if row["difference"] < 0 else "more"
            answer = f"Its mask does {side} harm than random rows of the same layers"
        least = row.get("detectable")
        power = "" if row["p_holm"] <= Thresholds().level or least is None else f"; {least:.2g} would have been seen"
        yield Claim(
            row["selector"], f"{words.ORDER_TITLES.get(row['order'], row['order'])} {words.share_text(row['rate'])}",
            f"{answer} ({row['difference']:+.3g} nats per token, {row['low']:+.3g} to {row['high']:+.3g}{power}).",
            row["difference"], "nats per token", f"{row['matched_seeds']} layer-matched masks of its own",
            f"interval for one further such mask, Student's t, {_looks(row)}Holm over the selectors", row["p_holm"],
            CORRECTED,
        )  # fmt: skip


def _looks(row: dict[str, Any]) -> str:
    looks = row.get("looks") or 1
    return f"Bonferroni over {looks} looks at growing numbers of masks, " if looks > 1 else ""


@register_claim("controls", needs=("control_differences",))
def _controls(tables: Tables) -> Iterator[Claim]:
    """Consensus-2 against its controls."""
    table = tables["control_differences"]
    for answer in words.control_answers(table, tables.get("draw_sweep")):
        tier = DESCRIPTIVE if answer.difference.stderr is None else CORRECTED if has_blocks(table) else INTERVAL
        yield Claim(
            "consensus2", f"{answer.control} {answer.order} {answer.rate:.0%}", answer.sentence,
            answer.difference.value, "nats per token",
            f"{answer.control}, {answer.rows_removed:,} rows, {answer.seeds} seed(s)",
            f"difference paired over {words.paired_over(table)}, Student's t, Holm over the "
            "controls of an order and rate", None, tier,
        )  # fmt: skip


@register_claim("draws", needs=("draws",))
def _draws(tables: Tables) -> Iterator[Claim]:
    """Disjoint draws of calibration text."""
    limits = Thresholds()
    for row in _rows(tables["draws"].filter((pl.col("rate") - limits.rate).abs() < 1e-9)):
        if row["jaccard"] is not None:
            of = "files" if row["draw_size"] is None else "disjoint draws of calibration text"
            yield Claim(
                row["selector"], f"{limits.rate:.0%}",
                f"Its masks from {row['calibration_draws']} {of} overlap by "
                f"{row['jaccard']:.3f} on average.",
                row["jaccard"], "Jaccard", "none", "none; the mean over pairs of draws", None, DESCRIPTIVE,
            )  # fmt: skip


@register_claim("protocols", needs=("protocols_claims",))
def _protocols(tables: Tables) -> Iterator[Claim]:
    """Which selector is before which, over all protocols."""
    for row in _rows(tables["protocols_claims"]):
        yield Claim(
            row["selector_a"], f"before {row['selector_b']}", row["claim"], row["protocols_for"], "protocols",
            row["selector_b"], "each protocol: paired over blocks of windows, Student's t, Holm over its pairs; one "
            "that overturns, Holm over the protocols too", None, CORRECTED,
        )  # fmt: skip


@register_claim("stability", needs=("verdicts",))
def _stability(tables: Tables) -> Iterator[Claim]:
    """Nested calibration sizes."""
    for row in _rows(tables["verdicts"]):
        if row["jaccard"] is not None:
            yield Claim(
                row["selector"], "nested",
                f"From less of the calibration text its masks overlap by {row['jaccard']:.3f} with those from all.",
                row["jaccard"], "Jaccard", "none: the smaller text is part of the larger", "none", None, DESCRIPTIVE,
            )  # fmt: skip


@register_claim("domain", needs=("domain_draws",))
def _domain(tables: Tables) -> Iterator[Claim]:
    """Another text against another draw."""
    for row in _rows(tables["domain_draws"]):
        if row["p_family"] is not None:
            yield Claim(
                row["selector"], f"{row['rate']:.0%}", domain_sentence(row), row["drop"], "difference of Jaccard",
                f"{row['text_draws']} disjoint draws of each text",
                "relabelled draws, all of them; largest statistic over all lines (Westfall and Young)", row["p_family"],
                CORRECTED,
            )  # fmt: skip


@register_claim("dangerous", needs=("dangerous_summary",))
def _dangerous(tables: Tables) -> Iterator[Claim]:
    """Groups that do more harm than random groups of their size; in earlier folders those above the limit."""
    for row in _rows(tables["dangerous_summary"]):
        above, confirmed = row["dangerous_groups"], row.get("confirmed_groups")
        sentence = f"{above} of {row['groups']} groups of its removed rows are above the limit when removed alone"
        more = "whether random rows of the same places do the same was not measured"
        evidence = ("none", "none", None, DESCRIPTIVE)
        if confirmed is not None:
            more = f"{confirmed} of them do more harm than random groups of their size and place"
            test = "prediction test, Holm over the groups of all selectors at .05"
            evidence = ("random groups of as many rows of the same sublayer", test, None, CORRECTED)
        number = above if confirmed is None else confirmed
        yield Claim(row["selector"], f"{row['rate']:.0%}", f"{sentence}; {more}.", number, "groups", *evidence)


@register_claim("invariance", needs=("invariance_verdicts",))
def _invariance(tables: Tables) -> Iterator[Claim]:
    """Rewrites that leave every logit bit-equal."""
    proven = {
        EXACT: "Its scores keep every bit under rewrites of the weights that leave every logit bit-equal.",
        MOVED: "Its ranking moves though every logit is bit-equal: it ranks how the weights are written as well.",
    }
    rounding = "Its ranking changes by no more than rounding though every logit is bit-equal."
    for row in _rows(tables["invariance_verdicts"]):
        word, protected = row["invariance"], row["decoys_protected"]
        if word != UNKNOWN:
            yield Claim(
                row["selector"], "rewrites", proven.get(word, rounding), row["jaccard"], "Jaccard",
                "the same function, written otherwise",
                "equality of every bit of the logits on the calibration windows", None,
                PROOF if word in proven else DESCRIPTIVE,
            )  # fmt: skip
        if protected is not None:
            yield Claim(
                row["selector"], "decoys",
                f"It protects {protected:.0%} of rows that have no effect at all.", protected, "fraction",
                "planted rows that nothing reads", "equality of every bit of the logits with and without them", None,
                PROOF,
            )  # fmt: skip


@register_claim("singles", needs=("singles_selectors",))
def _singles(tables: Tables) -> Iterator[Claim]:
    """Rank correlation with the effects of single rows."""
    rows = tables["singles_selectors"].filter(pl.col("unit_kind") == "row", pl.col("seed").is_null())
    for row in _rows(rows):
        low, high = row["absolute_low"], row["absolute_high"]
        if row["absolute_spearman"] is not None and low is not None and high is not None:
            yield Claim(
                row["selector"], "rows",
                f"Its ranking correlates by {row['absolute_spearman']:.2f} ({low:.2f} to {high:.2f}) with how much "
                "single rows matter when removed alone.", row["absolute_spearman"], "Spearman",
                "none", f"95% interval over {row['units_sampled']} sampled rows", None, INTERVAL,
            )  # fmt: skip


@register_claim("published", needs=("published_claims",))
def _published(tables: Tables) -> Iterator[Claim]:
    """What a paper claims of two selectors, where it could be measured here."""
    for row in _rows(tables["published_claims"].drop_nulls("advantage")):
        unit = "correlation" if row["kind"] == "effects" else "nats per token"
        yield Claim(
            row["selector_a"], row["title"], row["claim"], row["advantage"], unit, row["control"],
            "95% interval of the advantage, and p of the control; not corrected over claims", row["p_control"],
            INTERVAL,
        )  # fmt: skip


def domain_sentence(row: dict[str, Any]) -> str:
    """One line of the table `domain_draws` in words."""
    between, p = row["jaccard_between"], row["p_family"]
    if between is None or p is None:
        return "The masks are empty, so no draws can be compared."
    answer = (
        "the other text moves the mask by more than another draw of the same text does"
        if row["beyond_draw"]
        else "nothing is seen of the domain beyond what another draw of the same text changes"
    )
    return (
        f"Disjoint draws of {row['size']} windows overlap by {row['jaccard_a']:.2f} within {row['corpus_a']}, "
        f"{row['jaccard_b']:.2f} within {row['corpus_b']} and {between:.2f} between the two: {answer} (p {p:.2g}, "
        f"{row['text_draws']} draws of each, all lines of the table together)."
    )
