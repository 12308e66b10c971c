"""Tables in words: an answer, a number with its interval, what its error takes as independent; budgets; whether a
control beats consensus2; what downstream tasks can show. No torch."""

import math
import re
from collections.abc import Callable, Collection
from typing import Literal, NamedTuple, cast

import polars as pl

from engine.stats.blocks import all_saturated, between_draws, has_blocks, mean_of_lines
from engine.stats.limits import BASELINE
from engine.stats.uncertainty import LEVEL, Estimate, Part, adjusted

Answer = Literal["better", "worse", "no difference seen", "saturated"]
ORDER_TITLES = {"lerf": "LeRF", "morf": "MoRF"}
NEARLY = 0.95  # Spearman of two scores over all rows, from which one is nearly the other; a choice
GLOSSARY = {  # the contract's words, for who reads a verdict and nothing else
    "LeRF": "LeRF: lowest scores go first",
    "MoRF": "MoRF: highest scores go first",
    "nats": "nats: units of the natural logarithm; perplexity = exp(nats per token)",
    "log gap": "log gap: loss under MoRF minus loss under LeRF",
    "Holm": "Holm: correction of p for testing several selectors",
    "Spearman": "Spearman: rank correlation, 1 where the order is the same",
    "Jaccard": "Jaccard: rows in both masks / rows in either",
}


def glossary_line(text: str) -> str:
    """The words of the glossary that occur in a text, each with what it means; "" where there is none."""
    return "; ".join(meaning for word, meaning in GLOSSARY.items() if re.search(rf"\b{word}\b", text))


def nearly_ours(spearman: pl.DataFrame, own: Collection[str]) -> dict[str, str]:
    """By name of one's own scores: which other selector ranks all rows most alike, or most in reverse, as a sentence
    without a full stop; only where that Spearman is at least `NEARLY`, or at most -`NEARLY`. spearman: the table."""
    sentences, size = {}, pl.col("spearman").abs()
    for *pair, rho in spearman["selector_a", "selector_b", "spearman"].drop_nulls().sort(size).iter_rows():
        for name, other in (pair, pair[::-1]):
            if name in own and other not in own and abs(rho) >= NEARLY:
                how = "as" if rho > 0 else "in the reverse of how"
                sentences[name] = f"{name} ranks the rows almost {how} {other} does (Spearman {rho:.3f})"
                sentences[name] += "" if rho > 0 else "; if lower means more important in it, give its negative"
    return sentences


def better_or_worse(difference: float, p_holm: float | None, order: str, level: float = LEVEL) -> Answer:
    """Is what has this NLL minus the reference's better: less harm under LeRF, more under MoRF? By its adjusted
    two-sided p; without a p no difference is seen."""
    if p_holm is None or not p_holm <= level or difference == 0:
        return "no difference seen"
    return "better" if (difference < 0) == (order == "lerf") else "worse"


def no_difference(low: float | None, high: float | None) -> str:
    """What stands before `between a and b` where a corrected test tells no difference; its interval, which is not
    corrected, may leave 0 out."""
    if low is None or high is None or not low * high > 0:
        return "no difference is seen"
    return "after correction for several tests no difference is told"


def interval_words(estimate: Estimate) -> str:
    """A number with its interval, as sentences say it."""
    if estimate.low is None or estimate.high is None or not math.isfinite(estimate.value):
        return f"{estimate.value:+.3g} (no error is known)"
    return f"{estimate.value:+.3g} ({estimate.low:+.3g} to {estimate.high:+.3g})"


def units_in_words(table: pl.DataFrame, numbers: bool = False) -> str:
    """What the errors of a table that knows blocks take as independent. numbers: with how many, as sentences on pages
    say it."""
    blocks, documents = (_common_value(table, name) if numbers else None for name in ("blocks", "documents"))
    count = "" if blocks is None else f"{blocks} "
    if "documents" not in table.columns or table["documents"].null_count() == table.height:
        return f"{count}blocks of neighbouring evaluation windows"
    if documents is None:
        return "blocks of neighbouring documents of the evaluation text"
    return f"{count}blocks of neighbouring documents ({documents} documents) of the evaluation text"


def paired_over(table: pl.DataFrame) -> str:
    """The same in a few words, as the ledger names a test."""
    if not has_blocks(table):
        return "windows"
    return "blocks of documents" if "documents" in table.columns else "blocks of windows"


def _common_value(table: pl.DataFrame, name: str) -> int | None:
    """The value of a column that has the same in every line."""
    values = table[name].unique() if name in table.columns else pl.Series()
    return int(values[0]) if len(values) == 1 and values[0] is not None else None


class RemovalBudget(NamedTuple):
    """Of one selector and order, means over seeds. beyond_scan: no measured share exceeded the limit, so it is at least
    so much. low, high: the interval, of several seeds from the least to the greatest end; None where not known."""

    share: float
    low: float | None
    high: float | None
    beyond_scan: bool

    @property
    def interval(self) -> str:
        ends = () if self.low is None or self.high is None else (share_text(self.low), share_text(self.high))
        return f" ({' to '.join(ends)})" if ends else ""

    def __str__(self) -> str:
        return f"{'at least ' if self.beyond_scan else ''}{share_text(self.share)}"


def removal_budgets(table: pl.DataFrame, order: str) -> dict[str, RemovalBudget]:
    """By selector, the largest first under LeRF, the smallest first under MoRF: the better selector comes first."""
    budgets = {}
    for (name,), lines in table.filter(order=order).group_by("selector", maintain_order=True):
        share = float(lines["budget"].mean())  # type: ignore[arg-type]
        ends = [
            None if lines[column].null_count() else float(end)  # type: ignore[arg-type]
            for column, end in (("budget_low", lines["budget_low"].min()), ("budget_high", lines["budget_high"].max()))
        ]
        budgets[str(name)] = RemovalBudget(share, ends[0], ends[1], lines["beyond"].null_count() > 0)
    return dict(sorted(budgets.items(), key=lambda item: item[1].share, reverse=order == "lerf"))


def headline(table: pl.DataFrame) -> str:
    """Which selector's lowest rows can go furthest, beside random rows."""
    budgets, limit = removal_budgets(table, "lerf"), limit_words(table)
    best = next((name for name in budgets if name != BASELINE), None)
    if best is None:
        return "No budget was measured"
    beside = f"; at random, {budgets[BASELINE]}" if BASELINE in budgets else ""
    return f"By {{{best}}}, {budgets[best]} of the rows can go before {limit}{beside}"


def limit_words(table: pl.DataFrame) -> str:
    """`perplexity doubles`, or what the table's limit is."""
    factor = table["factor"][0] if table.height else 2.0
    return "perplexity doubles" if factor == 2.0 else f"perplexity is {factor:g} times as large"


def share_text(share: float) -> str:
    """Percent with two significant digits, three from 10% on, without zeros at the end."""
    return f"{100 * share:.3g}%" if share >= 0.1 else f"{100 * share:.2g}%"


Key = tuple[str, str, float, str]  # model, order, rate, control
REFERENCE = "consensus2"
NAMES = {
    "lrp": "LRP alone", "lrp_layer_matched": "LRP layer-matched", "veto_lrp": "VETO-LRP",
    "ig": "IG alone", "ig_layer_matched": "IG layer-matched", "veto_ig": "VETO-IG",
    "intersection": "the intersection of LRP and IG", "rank_randomised": "the rank-randomised null", "random": "random",
}  # fmt: skip


class ControlAnswer(NamedTuple):
    """One control under one order and rate. difference: NLL of the control minus NLL of consensus2, nats per token.

    at_rate: the same question against consensus2 with as many rows as the rate says (the paper's comparison),
    None where that is the same thing. survives: whether `better` at the rate is still `better` at equal
    size, None where it is not `better` to begin with."""

    control: str
    order: str
    rate: float
    seeds: int
    rows_removed: int
    difference: Estimate
    answer: Answer
    at_rate: Answer | None
    survives: bool | None
    sentence: str


def control_answers(
    differences: pl.DataFrame, draw_sweep: pl.DataFrame | None = None, level: float = LEVEL
) -> list[ControlAnswer]:
    """One answer per model, order, rate and control of `control_differences`, in the table's order.

    Better means a lower NLL under LeRF and a higher one under MoRF, by two-sided p at most `level` after Holm over the
    controls of the same order and rate. Several seeds count by their mean difference. Errors are those of
    `engine.stats.uncertainty`: blocks of windows (in tables of earlier versions windows as if they were independent),
    seeds and, at the rate's full size and with the table `draw_sweep`, the calibration text. Where both models are
    destroyed (`saturated` in every line) nothing is tested."""
    same_size: dict[Key, pl.DataFrame] = {}
    full_size: dict[Key, pl.DataFrame] = {}
    is_same = pl.col("rows_removed") == pl.col("reference_rows")
    for group, lines in differences.group_by("model", "order", "rate", "control", maintain_order=True):
        key = cast("Key", group)
        same_size[key], larger = lines.filter(is_same), lines.filter(~is_same)
        if larger.height:
            full_size[key] = larger
    at_equal = {
        key: mean_of_lines(lines, "difference", ["seed"], [] if key in full_size else _draws(draw_sweep, key))
        for key, lines in same_size.items()
    }
    at_full = {key: mean_of_lines(lines, "difference", ["seed"]) for key, lines in full_size.items()}
    destroyed, destroyed_at_full = ({key for key in by if all_saturated(by[key])} for by in (same_size, full_size))
    equal_answers = _answers(at_equal, destroyed, level)
    full_answers = _answers(at_full, destroyed_at_full, level)
    answers = []
    for key, lines in same_size.items():
        _, order, rate, control = key
        answer, at_rate = equal_answers[key], full_answers.get(key)
        survives = answer == "better" if at_rate == "better" else None
        rows = int(lines["rows_removed"][0])
        sentence = _sentence(control, order, rate, rows, at_equal[key], answer)
        if key in full_size:
            sentence += " " + _size_sentence(int(full_size[key]["reference_rows"][0]), at_rate, survives)
        answers.append(
            ControlAnswer(control, order, rate, lines.height, rows, at_equal[key], answer, at_rate, survives, sentence)
        )
    return answers


def _answers(estimates: dict[Key, Estimate], destroyed: set[Key], level: float) -> dict[Key, Answer]:
    """By p adjusted over the controls of a model, order and rate that are not destroyed as consensus2 is."""
    answers: dict[Key, Answer] = {}
    for family in dict.fromkeys(key[:3] for key in estimates):
        members = {key: estimate for key, estimate in estimates.items() if key[:3] == family}
        tested = {key: one.p_differs for key, one in members.items() if key not in destroyed}
        p_holm = adjusted({key: p for key, p in tested.items() if p is not None})
        for key, estimate in members.items():
            word = better_or_worse(estimate.value, p_holm.get(key), key[1], level)
            answers[key] = "saturated" if key in destroyed else word
    return answers


def _draws(draw_sweep: pl.DataFrame | None, key: Key) -> list[Part]:
    """The calibration text's part of a control that removes the rate's full number of rows."""
    _, order, rate, control = key
    return between_draws(draw_sweep, rate, (control, order), (REFERENCE, order))


def _sentence(control: str, order: str, rate: float, rows: int, difference: Estimate, answer: Answer) -> str:
    name, at = NAMES.get(control, control), f"at {rate:.0%} ({ORDER_TITLES[order]}, {rows:,} rows)"
    if answer == "saturated":
        return f"{name[0].upper()}{name[1:]} and consensus2 both destroy the model {at}: nothing is told by it."
    first = {
        "better": f"{name} beats consensus2 {at}",
        "worse": f"{name} does worse than consensus2 {at}",
        "no difference seen": f"{no_difference(difference.low, difference.high)} between {name} and consensus2 {at}",
    }[answer]
    number = f"its NLL is {interval_words(difference)} nats per token from consensus2's at equal size"
    return f"{first[0].upper()}{first[1:]}: {number}."


def _size_sentence(reference_rows: int, at_rate: Answer | None, survives: bool | None) -> str:
    against = f"Against consensus2 with the rate's full {reference_rows:,} rows"
    if survives is None:
        answers = {"worse": "it does worse", "saturated": "both are destroyed"}
        return f"{against}, {answers.get(str(at_rate), 'no difference is seen')}."
    return f"{against}, it looks better, {'and that holds at equal size' if survives else 'but not at equal size'}."


NEAR_CHANCE = 2.0  # standard errors above chance


def downstream_mean(table: pl.DataFrame) -> pl.DataFrame:
    """Unweighted mean over the tasks, as the paper averages, per model, selector, seed, order and rate.
    table: `downstream`. returns its key columns and `rows_removed`, then `tasks`, `items` of all of them, `accuracy`,
    `stderr` (tasks as independent: sqrt of the summed squares / tasks) and `chance`; null where one task's is."""
    keys = ["model", "selector", "seed", "order", "rate", "rows_removed"]
    stderr, chance = pl.col("stderr"), pl.col("chance")
    return table.group_by(keys, maintain_order=True).agg(
        tasks=pl.len().cast(pl.Int64),
        items=pl.col("items").sum(),
        accuracy=pl.col("accuracy").mean(),
        stderr=pl.when(stderr.null_count() == 0).then(stderr.pow(2).sum().sqrt() / pl.len()),
        chance=pl.when(chance.null_count() == 0).then(chance.mean()),
    )


def near_chance(table: pl.DataFrame, standard_errors: float = NEAR_CHANCE) -> pl.DataFrame:
    """`table` (of tasks or their mean) with `near_chance`: not above chance by more than so many standard errors.
    Below chance counts as near it: there is no ability to lose. Without a standard error (one item) nothing can
    be told from chance."""
    above = pl.col("accuracy") - pl.col("chance") > standard_errors * pl.col("stderr")
    return table.with_columns(near_chance=~above.fill_null(False))


def unmasked_tasks(table: pl.DataFrame) -> pl.DataFrame:
    """The unmasked model on every task of which chance and standard error are known, with `near_chance`."""
    first = table.filter(pl.col("rate") == 0, pl.col("chance").is_not_null(), pl.col("stderr").is_not_null())
    return near_chance(first.unique("task", keep="first", maintain_order=True))


def nothing_to_lose(table: pl.DataFrame) -> bool:
    """Is the unmasked model known to be near chance on every task? False where the table does not know."""
    tasks = unmasked_tasks(table)
    return bool(tasks.height and tasks["near_chance"].all())


def chance_sentence(table: pl.DataFrame, title: Callable[[str], str] = str) -> str:
    """Is the unmasked model better than guessing? Empty where the table does not know (no rate 0, no chance).
    title: what a task is called."""
    tasks = unmasked_tasks(table)
    if tasks.is_empty():
        return ""
    near = int(tasks["near_chance"].sum())
    able = [title(task) for task in tasks.filter(~pl.col("near_chance"))["task"]]
    if not near:
        return f"Unmasked, the model is above chance on all {tasks.height} tasks."
    where = f"on {near} of {tasks.height} tasks"
    end = f"; only {', '.join(able)} can show a loss." if able else ": accuracy says nothing about selectors here."
    return f"Unmasked, the model is not above chance by {NEAR_CHANCE:g} standard errors {where}{end}"


def pairs_sentence(pairs: pl.DataFrame, task: str, rate: float, level: float = LEVEL) -> str:
    """How many pairs of masks are told apart on a task's items at the measured rate nearest to this one, and what would
    have been told of the others. pairs: `downstream_pairs`. Empty where nothing was compared."""
    own = pairs.filter(task=task)
    if own.is_empty():
        return ""
    nearest = min(own["rate"].unique().to_list(), key=lambda one: abs(one - rate))
    own = own.filter(rate=nearest)
    others = own.filter(pl.col("p_holm") > level)
    told = (
        f"Item by item at {share_text(nearest)}, {own.height - others.height} of {own.height} pairs of masks are told "
    )
    told += "apart by McNemar's exact test after Holm"
    least = sorted(others["detectable"].drop_nulls())
    if least:
        ends = dict.fromkeys(share_text(one) for one in (least[0], least[-1]))
        told += f"; of the others a difference of {' to '.join(ends)} would have been told"
    if few := others["detectable"].null_count():
        told += f"{', and' if least else ';'} none where too few items are answered otherwise ({few} of them)"
    return f"{told}."
