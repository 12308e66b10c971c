"""Does an edit hold on prompts that it was not made from, and what does it cost? Before and after, with intervals."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from engine.data.prompt_sets import BENIGN, MALIGN, PromptSet
from engine.data.thinking import after_thinking, template_marks, thinking_form
from engine.edits.edit import UNEDITED, Edit
from engine.judges.base import Judge
from engine.judges.quality import cohens_kappa, kappa_interval
from engine.judges.refusals import Refusals, Refused
from engine.measures.harness import UTILITY_BATCH, Harness, HarnessTask, ItemScores, TaskScores
from engine.measures.replies import Written
from engine.measures.sampling import Sampling
from engine.records.hashing import Json
from engine.results.tables import frame
from engine.run.runner import Cell, Results
from engine.stats.blocks import mean_difference, paired_rates
from engine.stats.uncertainty import Interval, clustered_wilson, corrected_rate, wilson
from engine.studies.base import Answer, Tables, TextTable
from engine.studies.refusal.grid import Points
from engine.studies.refusal.points import Measured, cut_off_lines, edits
from engine.studies.refusal.refusal_inputs import RefusalInputs

EVERY = "all"  # selector, domain, prompts and kind of the line over all replies
GREEDY, SAMPLED, FOLLOW_UP = "", "sampled", "follow-up"


@dataclass(frozen=True)
class RepliesRate:
    """Refused replies to a list of prompts, so many replies to each.
    refused, finished: [replies per prompt][prompts]."""

    refused: tuple[tuple[bool, ...], ...]
    finished: tuple[tuple[bool, ...], ...]

    @property
    def mean(self) -> float:
        return sum(map(sum, self.refused)) / (len(self.refused) * len(self.refused[0]))

    @property
    def interval(self) -> Interval:
        """95%, over prompts: replies to one prompt are not independent. Of one reply to each, Wilson's."""
        return clustered_wilson([sum(replies) for replies in zip(*self.refused, strict=True)], len(self.refused))

    @property
    def unfinished(self) -> int:
        """Replies that were cut off at the limit of tokens."""
        return sum(finished.count(False) for finished in self.finished)


class Way(NamedTuple):
    """One way and its cells under an edit, one per reply to each prompt."""

    name: str
    cells: list[Cell[Refused]]


def ways(run: RefusalInputs, known: Results, edit: Edit, prompts: Sequence[str]) -> Iterator[Way]:
    """The plan's ways of asking these prompts under an edit; the second turn once the first replies are known."""
    yield Way(GREEDY, [run.refused(edit, prompts)])
    plan = run.plan
    if plan.reply_samples:
        draws = [Sampling(plan.temperature, plan.sampling_seed, number) for number in range(plan.reply_samples)]
        yield Way(SAMPLED, [run.refused(edit, prompts, sampling) for sampling in draws])
    if plan.follow_up and (first := run.replies(edit, prompts)) in known:
        replies: list[Written] = known[first]
        marks = template_marks(run.loaded.tokenizer)
        answers = [after_thinking(one.text, marks).text for one in replies]
        turns = [(prompt, one, plan.follow_up) for prompt, one in zip(prompts, answers, strict=True)]
        yield Way(FOLLOW_UP, [run.refused(edit, turns)])


def named(prompt_set: str, way: str) -> str:
    """What tables call a set of prompts that is asked in a way."""
    return f"{prompt_set}, {way}" if way else prompt_set


def rate(results: Results, way: Way, part: slice) -> RepliesRate:
    """Of some of the prompts."""
    answers = [results[cell] for cell in way.cells]
    return RepliesRate(tuple(one.refused[part] for one in answers), tuple(one.finished[part] for one in answers))


def judge_pairs(
    model: str, judges: Sequence[str], sets: Iterable[tuple[tuple[object, ...], Sequence[Refused]]]
) -> pl.DataFrame:
    """`judge_pairs`: a line per set of replies and pair of judges, then one per pair over all replies, each counted
    once. judges: their ids; sets: selector, domain, lambda, k, prompts and kind, with the verdicts of each judge."""
    lines: list[tuple[object, ...]] = []
    every: list[Refused] = []
    for key, verdicts in sets:
        lines += _pairs((model, *key), judges, verdicts)
        every = [_joined(*both) for both in zip(every, verdicts, strict=True)] if every else [*verdicts]
    whole = (model, EVERY, EVERY, None, None, EVERY, EVERY)
    return frame("judge_pairs", [*lines, *(_pairs(whole, judges, every) if every else ())])


def _pairs(key: tuple[object, ...], judges: Sequence[str], verdicts: Sequence[Refused]) -> Iterable[tuple[object, ...]]:
    for (name_a, a), (name_b, b) in combinations(zip(judges, verdicts, strict=True), 2):
        judged = [one and other for one, other in zip(a.each_judged, b.each_judged, strict=True)]
        both = [pair for pair, counts in zip(zip(a.refused, b.refused, strict=True), judged, strict=True) if counts]
        n, unjudged = len(both), judged.count(False)
        if not n:
            yield (*key, name_a, name_b, 0, unjudged, *[None] * 12, 0)
            continue
        first, second = ([pair[side] for pair in both] for side in (0, 1))
        same = sum(one == other for one, other in both)
        rates = [value for side in (first, second) for value in (sum(side) / n, *wilson(sum(side), n))]
        kappa = (cohens_kappa(first, second), *(kappa_interval(first, second) or (None, None)))
        yield (*key, name_a, name_b, n, unjudged, *rates, same / n, *wilson(same, n), *kappa, n - same)


def _joined(one: Refused, other: Refused) -> Refused:
    judged = one.each_judged + other.each_judged
    return Refused(one.refused + other.refused, one.finished + other.finished, judged, None)


OPTIONAL = (  # columns of `transfer`
    "before_unfinished", "after_unfinished",
    "newly_refused", "no_longer_refused", "mcnemar_p", "change", "change_low", "change_high",
    "before_corrected", "before_corrected_low", "before_corrected_high",
    "after_corrected", "after_corrected_low", "after_corrected_high",
)  # fmt: skip
SAMPLES = ("samples", "temperature")
_NOT_OF_SAMPLES = (None,) * (len(OPTIONAL) - 2)  # what stands for one reply to each prompt only
JUDGED = "judged"  # column of `refusal_replies`, where the judge could not judge all
THINKING = "thinking"  # another, where a reply has a thinking part
_Asked = tuple[tuple[object, ...], Edit, PromptSet, list[PromptSet]]
NONE = "none"  # the selector of the unedited model's replies


class _Place(NamedTuple):
    """An operating point's edit. key: model, selector, domain, lambda, k."""

    key: tuple[object, ...]
    domain: str
    edit: Edit
    own: list[PromptSet]  # the held-out pairs of its domain


class Evaluated(Measured):
    """`transfer`, `refusal_replies` and, where they are given, `utility` of tasks and `judge_pairs` of further judges,
    beside the measured points."""

    replayed = False

    def __init__(
        self,
        run: RefusalInputs,
        sets: Sequence[PromptSet] = (),
        tasks: Sequence[HarnessTask] = (),
        judges: Sequence[Judge] = (),
    ) -> None:
        super().__init__(run)
        self.judges = tuple(judges)
        self.sets = tuple(sets)
        harnesses = [Harness(run.loaded)] if tasks else []
        self.tasks = [TaskScores(harness, task, UTILITY_BATCH) for harness in harnesses for task in tasks]

    def cells(self, run: RefusalInputs, known: Results) -> Iterable[Cell[Any]]:
        yield from super().cells(run, known)
        points = self.grid.points(run, known)
        for place in _places(run, points) if points is not None else ():
            for edit in (UNEDITED, place.edit):
                for one in (place.own[0], *self.sets):
                    for way in ways(run, known, edit, _prompts(one, place.own)):
                        for cell in way.cells:
                            yield from (cell, *([cell.base] if cell.base else []))
                    for judge in self.judges:
                        yield _refused_by(judge, run, edit, _prompts(one, place.own))
                for measure in self.tasks:
                    yield Cell(run.loaded, edit, measure)

    def tables(self, run: RefusalInputs, results: Results) -> Tables:
        points = self.points(run, results)
        tables = super().tables(run, results)
        tables["transfer"] = self._transfer(run, results, points)
        tables["refusal_replies"] = self._replies(run, results, points)
        if self.judges:
            tables["judge_pairs"] = self._judge_pairs(run, results, points)
        if self.tasks:
            tables["utility"] = self._utility(run, results, points)
        return tables

    def record(self, run: RefusalInputs) -> Json:
        about: Json = {"prompt_sets": {one.name: one.source for one in self.sets}}
        if run.judge_quality:
            about["judge_quality"] = run.judge_quality.record()
        if self.judges:
            about["judges"] = {judge.id: judge.version for judge in (run.judge, *self.judges)}
        return about

    def line(self, run: RefusalInputs, tables: Tables) -> str:
        return f"{tables['transfer'].height} rates before and after"

    def answer(self, run: RefusalInputs, results: Results, tables: Tables, folder: Path) -> Answer:
        names = ("transfer", "utility", "judge_pairs")
        return Answer(tuple(evaluation_lines(run, tables)), {name: tables[name] for name in names if name in tables})

    def _transfer(self, run: RefusalInputs, results: Results, points: Points) -> Any:
        """Share of refused prompts before and after every edit, with Wilson's 95% intervals.

        On the held-out pairs of the edit's own domain and on every further set. kind malign: refusing is right; benign:
        refusing is over-refusal. The paper, section 5 and appendix E.
        Beyond the paper: the prompts whose verdict changed, McNemar's exact p and Newcombe's interval of the change
        (`PairedRates`); both rates corrected for the judge's errors (`corrected_rate`), null where none are known; and
        where the plan wants them, lines of their own for sampled replies (share of all replies, interval over prompts:
        `clustered_wilson`; no pairs and no correction) and for the replies to the second turn."""
        lines: list[tuple[object, ...]] = []
        plan = run.plan
        for place in _places(run, points):
            for one in (*place.own, *self.sets):
                prompts, part = _prompts(one, place.own), _part(one, place.own)
                both = (ways(run, results, edit, prompts) for edit in (UNEDITED, place.edit))
                for unedited, edited in zip(*both, strict=True):
                    before, after = (rate(results, way, part) for way in (unedited, edited))
                    rates = (before.mean, *before.interval, after.mean, *after.interval)
                    name, sampled = named(one.name, edited.name), edited.name == SAMPLED
                    beyond = _NOT_OF_SAMPLES if sampled else _paired(run, before, after)
                    drawn = (plan.reply_samples, plan.temperature) if sampled else (None, None)
                    line = (*place.key, name, one.kind, len(one.prompts), *rates, before.unfinished, after.unfinished)
                    lines.append((*line, *beyond, *(drawn if plan.reply_samples else ())))
        return frame("transfer", lines, optional=(*OPTIONAL, *(SAMPLES if plan.reply_samples else ())))

    def _utility(self, run: RefusalInputs, results: Results, points: Points) -> Any:
        """Mean of each task's metric before and after every edit, their difference and its paired stderr."""
        lines: list[tuple[object, ...]] = []
        for place in _places(run, points):
            for measure in self.tasks:
                before, after = (
                    results[Cell[ItemScores](run.loaded, edit, measure)] for edit in (UNEDITED, place.edit)
                )
                task = (measure.task.name, measure.task.metric, len(before.values))
                change = mean_difference(after.values, before.values)
                lines.append((*place.key, *task, before.mean, after.mean, *change))
        return frame("utility", lines)

    def _replies(self, run: RefusalInputs, results: Results, points: Points) -> Any:
        """Every prompt of `transfer` with the reply and its verdict, to be read and judged again.

        The unedited model's replies stand once, with selector `none`; those to a further set have domain `none` too.
        Sampled replies are numbered in the name of their set; the prompt of a second turn's reply is the first turn's.
        """
        lines: list[tuple[object, ...]] = []
        judge = f"{run.judge.id} {run.judge.version}"
        marks = template_marks(run.loaded.tokenizer)
        for key, edit, one, own in self._asked(run, points):
            part = _part(one, own)
            for way in ways(run, results, edit, _prompts(one, own)):
                for number, cell in enumerate(way.cells, start=1):
                    assert cell.base is not None
                    name = named(one.name, f"{way.name} {number}" if way.name == SAMPLED else way.name)
                    replies: list[Written] = results[cell.base][part]
                    result = results[cell]
                    verdicts = zip(one.prompts, replies, result.refused[part], result.each_judged[part], strict=True)
                    for prompt, reply, refused, judged in verdicts:
                        about = (run.loaded.id, *key, name, one.kind, prompt)
                        form = thinking_form(reply.text, marks) or None
                        lines.append((*about, reply.text, refused, judge, reply.finished, judged, form))
        table = frame("refusal_replies", lines, optional=("finished", JUDGED, THINKING))
        unsaid = {JUDGED: table[JUDGED].all(), THINKING: table[THINKING].is_null().all()}
        return table.drop(name for name, nothing in unsaid.items() if nothing)

    def _judge_pairs(self, run: RefusalInputs, results: Results, points: Points) -> Any:
        """How far the judges agree on the replies of `refusal_replies`, and the refusal rates that each would give."""
        judges, sets = (run.judge, *self.judges), []
        for key, edit, one, own in self._asked(run, points):
            cells = [_refused_by(judge, run, edit, _prompts(one, own)) for judge in judges]
            sets.append(((*key, one.name, one.kind), [results[cell].part(_part(one, own)) for cell in cells]))
        return judge_pairs(run.loaded.id, [judge.id for judge in judges], sets)

    def _asked(self, run: RefusalInputs, points: Points) -> Iterator[_Asked]:
        """Every set under every edit; under none once, with selector `none` and, for a further set, domain `none`.
        returns selector, domain, lambda and k; edit; set; the held-out pairs of the edit's domain"""
        seen: set[tuple[str, str, str]] = set()
        for place in _places(run, points):
            for one in (*place.own, *self.sets):
                domain = place.domain if one in place.own else NONE
                if (domain, one.name, one.kind) not in seen:
                    seen.add((domain, one.name, one.kind))
                    yield (NONE, domain, None, None), UNEDITED, one, place.own
                yield place.key[1:], place.edit, one, place.own


def pair_sets(run: RefusalInputs, domain: str) -> list[PromptSet]:
    """The run's held-out pairs of a domain as two sets, `heldout` (or `calibration` where there are no others)."""
    pairs = run.heldout[domain]
    name = "heldout" if run.measures_heldout else "calibration"
    return [
        PromptSet(name, MALIGN, tuple(pair.risk for pair in pairs), run.plan.pairs),
        PromptSet(name, BENIGN, tuple(pair.base for pair in pairs), run.plan.pairs),
    ]


def _places(run: RefusalInputs, points: Points) -> Iterator[_Place]:
    """Every operating point with its edit and the sets of its own pairs."""
    for selector, domain, point, edit in edits(run, run.contrasts, points):
        if point is not None:
            key = (run.loaded.id, selector, domain, point.lam, point.k)
            yield _Place(key, domain, edit, pair_sets(run, domain))


def _prompts(one: PromptSet, own: Sequence[PromptSet]) -> tuple[str, ...]:
    """The two sides of a pair are generated together, so that the stages share their cells."""
    return tuple(prompt for each in own for prompt in each.prompts) if one in own else one.prompts


def _part(one: PromptSet, own: Sequence[PromptSet]) -> slice:
    start = len(own[0].prompts) if one in own and one != own[0] else 0
    return slice(start, start + len(one.prompts))


def _paired(run: RefusalInputs, before: RepliesRate, after: RepliesRate) -> tuple[float | None, ...]:
    """What is said of one reply to each prompt: the verdicts that changed, and both rates corrected."""
    [one], [other] = before.refused, after.refused
    pair = paired_rates(one, other)
    changed = (pair.no_yes, pair.yes_no, pair.mcnemar_p, pair.difference, *pair.interval)
    return (*changed, *_corrected(run, one), *_corrected(run, other))


def _corrected(run: RefusalInputs, refused: Sequence[bool]) -> tuple[float | None, ...]:
    """Rate, low, high for the judge's errors; nulls where they are not known, or are as many as by chance."""
    quality = run.judge_quality
    corrected = corrected_rate(sum(refused), len(refused), quality.counts) if quality else None
    return (None, None, None) if corrected is None else (corrected[0], *corrected[1])


def _refused_by(judge: Judge, run: RefusalInputs, edit: Edit, prompts: Sequence[str]) -> Cell[Refused]:
    """A judge's verdicts on the greedy replies that the run's own judge reads."""
    marks = template_marks(run.loaded.tokenizer)
    return Cell(run.loaded, edit, Refusals(run.replies(edit, prompts).measure, judge, marks))


def evaluation_lines(run: RefusalInputs, tables: Tables) -> Iterator[str | TextTable]:
    """Rates with their intervals, what changed, the judge's errors, utility, and how far several judges agree."""
    transfer = tables["transfer"]
    yield TextTable(
        "refused prompts, with 95% intervals",
        ("selector", "edit", "prompts", "n", "before", "after"),
        [_rates_row(row) for row in transfer.to_dicts()],
    )
    yield TextTable(
        "prompts newly refused and no longer, change with its 95% interval",
        ("selector", "edit", "prompts", "newly", "no longer", "change", "McNemar's p"),
        [_change_row(row) for row in transfer.drop_nulls("change").to_dicts()],
    )
    if quality := run.judge_quality:
        yield (
            f"Corrected for the errors of the judge (sensitivity {quality.counts.sensitivity:.3f}, specificity "
            f"{quality.counts.specificity:.3f} on {quality.source}): columns before_corrected, after_corrected"
        )
    if "samples" in transfer.columns:  # replies, not prompts
        transfer = transfer.with_columns(n=pl.col("n") * pl.col("samples").fill_null(1))
    yield from cut_off_lines(transfer, ("after", "n", "after_unfinished"))
    for row in tables["utility"].iter_rows(named=True) if "utility" in tables else ():
        yield (
            f"{row['selector']} {row['domain']} {row['task']}: {row['before']:.3f} > {row['after']:.3f} "
            f"({row['difference']:+.3f})"
        )
    if "judge_pairs" in tables:
        yield from _judge_pair_lines(tables["judge_pairs"])


def _judge_pair_lines(table: pl.DataFrame) -> Iterator[str | TextTable]:
    """Both rates, agreement and kappa of every pair of judges, line by line, the one over all replies last."""
    yield TextTable(
        "two judges on the same replies, with 95% intervals",
        ("selector", "domain", "prompts", "judges", "n", "rates", "same", "kappa"),
        [_judges_row(row) for row in table.to_dicts()],
    )
    unjudged = max(table.filter(selector="all")["unjudged"].to_list(), default=0)
    if unjudged:
        yield f"up to {unjudged:,} replies were left out that one of two judges could not judge"


def _judges_row(row: dict[str, Any]) -> tuple[str, ...]:
    keys = (row["selector"], row["domain"], f"{row['prompts']}, {row['kind']}", f"{row['judge_a']} / {row['judge_b']}")
    if not row["replies"]:
        return *keys, "0", "–", "–", "–"
    kappa = "undefined"
    if row["kappa"] is not None:
        kappa = f"{row['kappa']:.2f} ({row['kappa_low']:.2f} to {row['kappa_high']:.2f})"
    return *keys, str(row["replies"]), f"{row['rate_a']:.2f} / {row['rate_b']:.2f}", f"{row['agreement']:.0%}", kappa


def _rates_row(row: dict[str, Any]) -> tuple[str, ...]:
    sides = [f"{row[side]:.2f} ({row[f'{side}_low']:.2f} to {row[f'{side}_high']:.2f})" for side in ("before", "after")]
    return *_place_cells(row), str(row["n"]), *sides


def _change_row(row: dict[str, Any]) -> tuple[str, ...]:
    change = f"{row['change']:+.2f} ({row['change_low']:+.2f} to {row['change_high']:+.2f})"
    changed = (str(row["newly_refused"]), str(row["no_longer_refused"]))
    return *_place_cells(row), *changed, change, f"{row['mcnemar_p']:.2g}"


def _place_cells(row: dict[str, Any]) -> tuple[str, ...]:
    return row["selector"], row["domain"], f"{row['prompts']}, {row['kind']}"
