"""Replies that were written elsewhere, read from CSV, JSONL or parquet, with people's labels where there are some."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from engine.data.tables_of_text import (
    REFUSAL_UNDERSTOOD,
    TRUTH_UNDERSTOOD,
    columns,
    is_refusal,
    says_nothing,
    text_rows,
    truth,
)
from engine.data.thinking import thinking_form
from engine.judges.base import NO_REPLY, Exchange, Verdict
from engine.records.errors import InputError

# The first of these names that a file has is taken; the options of `refusal judge` name another.
REPLY_COLUMNS = ("reply", "completion", "response", "output", "generation", "answer", "text")
PROMPT_COLUMNS = ("prompt", "question", "instruction", "input")
MODEL_COLUMNS = ("model", "source_model", "source")
LABEL_COLUMNS = ("human_label", "label", "human", "is_refusal", "refused")
FINISHED = "finished"  # did the reply end by itself?
JUDGED = "judged"  # could the judge judge it?
THINKING = "thinking"  # by which marks a thinking part was found in the reply
NO_COLUMN = "none"
VERDICT_COLUMNS: dict[str, type[pl.DataType]] = {
    "source": pl.String, "line": pl.Int64, "prompt": pl.String, "reply": pl.String, "human": pl.Boolean,
    "judge": pl.String, "judge_version": pl.String, "refusal": pl.Boolean, "reason": pl.String,
}  # fmt: skip
# Only where a file says how its replies ended, and where a judge could not judge them all.
OPTIONAL_VERDICT_COLUMNS: dict[str, type[pl.DataType]] = {FINISHED: pl.Boolean, JUDGED: pl.Boolean, THINKING: pl.String}


@dataclass(frozen=True)
class GivenReply:
    """One reply of a file. source: its model, or the file's name. reply: None where there is none. human: does it
    refuse, in full or in part? finished: False where it was cut off, None where the file does not say."""

    source: str
    prompt: str
    reply: str | None
    human: bool | None
    finished: bool | None = None

    @property
    def exchange(self) -> Exchange:
        """Prompt and reply as they are given; a missing reply is an empty one here."""
        return Exchange(self.prompt, self.reply or "", self.finished)


def read_replies(
    path: Path, *, reply_column: str | None = None, label_column: str | None = None, model_column: str | None = None
) -> list[GivenReply]:
    """The replies of one file, in its order; columns are found by their names unless they are given, `none`: do not use
    one.

    Labels are read by `engine.data.tables_of_text`; a partial refusal is a refusal, an empty label is none. A reply
    that is null, NaN or blank is missing. `finished` (true/false, 1/0) says whether a reply ended by itself."""
    rows = text_rows(path)
    if not rows:
        raise InputError(f"{path} holds no replies; expected one per line under a header, or one JSON object per line")
    given_columns = columns(rows)
    reply = _column(path, given_columns, REPLY_COLUMNS, reply_column, "--reply-column")
    if reply is None:
        raise InputError(
            f"{path} has no column of replies; its columns are {', '.join(given_columns)}; name one with --reply-column"
        )
    for line, row in rows.items():
        value = row.get(reply)
        if not says_nothing(value) and not isinstance(value, str):
            raise InputError(
                f"{path}: line {line} has a {type(value).__name__} for a reply, no text; expected texts in the column "
                f"{reply!r}, name another one with --reply-column"
            )
    prompt = _column(path, given_columns, PROMPT_COLUMNS, None, "")
    model = _column(path, given_columns, MODEL_COLUMNS, model_column, "--model-column")
    label = _column(path, given_columns, LABEL_COLUMNS, label_column, "--label-column")
    return [
        GivenReply(
            source=_text(row, model) or path.stem,
            prompt=_text(row, prompt),
            reply=_text(row, reply) or None,
            human=_label(f"{path} line {line}", label, _text(row, label)),
            finished=_ended(f"{path} line {line}", _text(row, FINISHED)),
        )
        for line, row in rows.items()
    ]


def verdict_table(replies: Sequence[GivenReply], judge: str, version: str, verdicts: Sequence[Verdict]) -> pl.DataFrame:
    """One line per reply in `VERDICT_COLUMNS`, line counted from 0 within its source; and those optional columns that
    any line has something in. A missing reply is null, and so is its verdict."""
    lines: dict[str, int] = {}
    rows = []
    for given, verdict in zip(replies, verdicts, strict=True):
        line = lines[given.source] = lines.get(given.source, -1) + 1
        missing = given.reply is None
        of_judge = (judge, version, *((None, NO_REPLY) if missing else (verdict.refusal, verdict.reason)))
        marks = (given.finished, verdict.judged and not missing)
        form = thinking_form(given.reply or "") or None
        rows.append((given.source, line, given.prompt, given.reply, given.human, *of_judge, *marks, form))
    table = pl.DataFrame(rows, schema=VERDICT_COLUMNS | OPTIONAL_VERDICT_COLUMNS, orient="row")
    unsaid = {name: table[name].is_null().all() for name in (FINISHED, THINKING)} | {JUDGED: table[JUDGED].all()}
    return table.drop(name for name, nothing in unsaid.items() if nothing)


def joined(tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The verdicts of several judges on the same replies as one table; a judge without `judged` judged them all."""
    table = pl.concat(tables, how="diagonal")
    return table.with_columns(pl.col(JUDGED).fill_null(True)) if JUDGED in table.columns else table


def unjudged(verdicts: pl.DataFrame) -> int:
    """Replies in a table of verdicts that are there and that their judge could not judge."""
    return int((~verdicts.drop_nulls("reply")[JUDGED]).sum()) if JUDGED in verdicts.columns else 0


def cut_off(verdicts: pl.DataFrame) -> tuple[int, int] | None:
    """(replies that were cut off, replies of which that is known) in a table of one judge's verdicts; None where it
    is known of none."""
    if FINISHED not in verdicts.columns or verdicts[FINISHED].is_null().all():
        return None
    known = verdicts[FINISHED].drop_nulls()
    return int((~known).sum()), len(known)


def _column(path: Path, columns: list[str], usual: tuple[str, ...], given: str | None, option: str) -> str | None:
    if given == NO_COLUMN:
        return None
    if given is None:
        return next((name for name in usual if name in columns), None)
    if given not in columns:
        raise InputError(f"{path} has no column {given!r} ({option}); its columns are {', '.join(columns)}")
    return given


def _text(row: dict[str, Any], column: str | None) -> str:
    value = None if column is None else row.get(column)
    return "" if says_nothing(value) else str(value)


def _ended(where: str, value: str) -> bool | None:
    if value and truth(value) is None:
        raise InputError(
            f"{where}: {value!r} in column {FINISHED!r} does not say whether a reply ended by itself; expected "
            f"{TRUTH_UNDERSTOOD}, or nothing; give the column another name if it means something else"
        )
    return truth(value)


def _label(where: str, column: str | None, value: str) -> bool | None:
    if column is None or not value:
        return None
    meaning = is_refusal(value)
    # In a column `compliant` a 1 says the opposite; in one whose name does not say what is true, it says nothing.
    names = column in LABEL_COLUMNS or is_refusal(column) is not None
    if meaning is None and names and (says := truth(value)) is not None:
        meaning = says != (is_refusal(column) is False)
    if meaning is None:
        raise InputError(
            f"{where}: {value!r} in column {column!r} is no label of a reply; understood are {REFUSAL_UNDERSTOOD}; and "
            f"{TRUTH_UNDERSTOOD} in a column called refused, compliant or the like; name another column with "
            f"--label-column, or {NO_COLUMN!r}"
        )
    return meaning
