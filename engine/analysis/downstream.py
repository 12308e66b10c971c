"""How much of what the model can do is left under each mask: accuracy on downstream tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from engine.masks import removed_count
from engine.ranking import removal_order

if TYPE_CHECKING:
    from engine.analysis.audit import Audit

SCHEMA = {
    "model": pl.String,
    "selector": pl.String,
    "seed": pl.Int64,
    "order": pl.String,
    "rate": pl.Float64,
    "rows_removed": pl.Int64,
    "task": pl.String,
    "items": pl.Int64,
    "accuracy": pl.Float64,
    "stderr": pl.Float64,
    "chance": pl.Float64,
}
TASKS_SCHEMA = {
    "model": pl.String,
    "task": pl.String,
    "source": pl.String,
    "version": pl.String,
    "metric": pl.String,
    "items": pl.Int64,
    "requests_hash": pl.String,
    "chance": pl.Float64,
    "longest_tokens": pl.Int64,
    "requests_cut": pl.Int64,
    "batch_size": pl.Int64,
    "lm_eval": pl.String,
}


def downstream(audit: Audit) -> dict[str, pl.DataFrame]:
    """Zero-shot accuracy of every task under the LeRF mask of every selector and rate. The paper, section 3.4.

    returns `downstream` (`SCHEMA`; standard errors over the items of a task) and `downstream_tasks`, what was
    asked: `TASKS_SCHEMA`. Each cell (mask, task) is kept in the store.
    Errors: InputError where lm-eval or the tasks are not to be had.
    """
    from engine.evaluation.downstream import METRIC, Harness, masked_accuracy
    from engine.evaluation.harness_tasks import downstream_tasks
    from engine.records import installed_version

    tasks = downstream_tasks(audit.plan.downstream_tasks, audit.plan.downstream_items)
    rankings = list(audit.rankings())
    harness = Harness(audit.loaded)
    model, rates = audit.loaded.id, sorted(audit.plan.downstream_rates)
    total, done = len(rankings) * len(rates) * len(tasks), 0
    asked: list[tuple[object, ...]] = []
    sizes: dict[str, int] = {}
    for task in tasks:
        longest, cut = harness.longest(task)
        sizes[task.name] = audit.plan.scoring.batch_size or harness.batch_size(longest)
        about = (task.source, task.version, METRIC, task.items, task.requests_hash, task.chance)
        asked.append((model, task.name, *about, longest, cut, sizes[task.name], installed_version("lm_eval")))
    rows: list[tuple[object, ...]] = []
    for ranking in rankings:
        order_of_rows = removal_order(ranking.scores, "lerf")
        for rate in rates:
            mask = np.sort(order_of_rows[: removed_count(rate, order_of_rows.size)])
            for task in tasks:
                audit.report("downstream", done, total)
                result = masked_accuracy(
                    audit.loaded, harness, task, mask, sizes[task.name], store=audit.store
                )
                cell = (task.name, task.items, result.mean, result.stderr, task.chance)
                rows.append((model, ranking.selector, ranking.seed, "lerf", rate, len(mask), *cell))
                done += 1
    audit.report("downstream", done, total)
    return {
        "downstream": pl.DataFrame(rows, schema=SCHEMA, orient="row"),
        "downstream_tasks": pl.DataFrame(asked, schema=TASKS_SCHEMA, orient="row"),
    }
