"""What a table of downstream tasks says: means over tasks, and whether there was anything to lose. Needs no torch."""

from collections.abc import Callable

import polars as pl

from engine.stats.uncertainty import LEVEL
from engine.studies.estimate_words import share_text

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
