"""What lm-evaluation-harness's own program measured, beside `analyze MODEL downstream`.

Read is `results_….json` as `lm_eval --output_path FOLDER` writes it (0.4): results.TASK["acc,none"] and
["acc_stderr,none"], n-samples.TASK.effective, n-shot.TASK, versions.TASK."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
from scipy.stats import norm

from engine.records import bounds
from engine.records.errors import InputError
from engine.results.folders import read_table

_Z = float(norm.ppf(0.975))
_METRIC, _STDERR = "acc,none", "acc_stderr,none"


def beside(folder: Path, file: Path) -> tuple[pl.DataFrame, list[str]]:
    """A line per task of both, and the tasks of the file that the run did not ask.

    Columns: task, items and their_items, ours (accuracy of the unedited model) and theirs, difference = ours - theirs,
    low and high: +- 1.96 sqrt(stderr^2 + their_stderr^2), the errors taken as independent, which is too wide for the
    same items; null without an error. asked_otherwise: version or shots that are not ours, "" for none.
    Errors: InputError for another file, and where no task is in both."""
    ours = read_table(folder, "downstream").filter(rate=0).unique("task", keep="first", maintain_order=True)
    versions = dict(read_table(folder, "downstream_tasks").select("task", "version").iter_rows())
    try:
        found = bounds.json_of(file)
    except (OSError, ValueError) as error:
        raise InputError(f"{file} cannot be read ({error}); give a results_….json of `lm_eval --output_path`") from None
    results, lines = _object(found, "results"), []
    theirs = {task: one for task, one in results.items() if _number(_object(results, task).get(_METRIC)) is not None}
    for task, items, accuracy, stderr in ours.select("task", "items", "accuracy", "stderr").iter_rows():
        if task not in theirs:
            continue
        there, their_stderr = float(theirs[task][_METRIC]), _number(theirs[task].get(_STDERR))
        width = None if stderr is None or their_stderr is None else _Z * (stderr**2 + their_stderr**2) ** 0.5
        difference = accuracy - there
        ends = (None, None) if width is None else (difference - width, difference + width)
        shots, version = _object(found, "n-shot").get(task, 0), _object(found, "versions").get(task)
        otherwise = [f"{shots} shots"] if shots else []
        if version is not None and _number(version) != _number(versions[task]):
            otherwise.append(f"version {version}, here {versions[task]}")
        asked = _object(_object(found, "n-samples"), task).get("effective")
        lines.append((task, items, asked, accuracy, there, difference, *ends, "; ".join(otherwise)))
    if not lines:
        raise InputError(
            f"{file} has an accuracy ({_METRIC}) of {', '.join(sorted(theirs)) or 'no task'}, the run of "
            f"{', '.join(ours['task'])}; give the results of these tasks"
        )
    numbers = dict.fromkeys(("ours", "theirs", "difference", "low", "high"), pl.Float64)
    schema = {"task": pl.String, "items": pl.Int64, "their_items": pl.Int64, **numbers, "asked_otherwise": pl.String}
    return pl.DataFrame(lines, schema, orient="row"), sorted(theirs.keys() - set(ours["task"]))


def _object(value: Any, name: str) -> dict[str, Any]:
    inner = value.get(name) if isinstance(value, dict) else None
    return inner if isinstance(inner, dict) else {}


def _number(value: Any) -> float | None:
    """None for what is none: lm-eval writes N/A for an error that was not asked for."""
    try:
        return None if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return None
