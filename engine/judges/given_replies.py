"""Replies that were written elsewhere, read from CSV, JSONL or parquet, with people's labels where there are some."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from engine.judges.base import HARM, Exchange, Verdict, looks_for
from engine.records.errors import InputError

# The first of these names that a file has is taken; the options of `refusal judge` name another.
REPLY_COLUMNS = ("reply", "completion", "response", "output", "generation", "answer", "text")
PROMPT_COLUMNS = ("prompt", "question", "instruction", "input")
MODEL_COLUMNS = ("model", "source_model", "source")
LABEL_COLUMNS = ("human_label", "label", "human", "is_refusal", "refused")
FINISHED = "finished"  # did the reply end by itself?
JUDGED = "judged"  # could the judge judge it?
HARMFUL = "harmful"  # does a judge of harm say that the reply does harm?
NO_COLUMN = "none"
VERDICT_COLUMNS: dict[str, type[pl.DataType]] = {
    "source": pl.String,
    "line": pl.Int64,
    "prompt": pl.String,
    "reply": pl.String,
    "human": pl.Boolean,
    "judge": pl.String,
    "judge_version": pl.String,
    "refusal": pl.Boolean,
    "reason": pl.String,
}
# Only where a file says how its replies ended, where a judge could not judge them all, and where it judges harm.
OPTIONAL_VERDICT_COLUMNS: dict[str, type[pl.DataType]] = {
    FINISHED: pl.Boolean,
    JUDGED: pl.Boolean,
    HARMFUL: pl.Boolean,
}
_REFUSES = re.compile(r"refus|reject|declin")
_ANSWERS = re.compile(r"compl(?:y|iance)|normal|answer|accept")
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True)
class GivenReply:
    """One reply of a file. source: its model, or the file's name. human: does it refuse, in full or in part?
    finished: False where it was cut off, None where the file does not say."""

    source: str
    prompt: str
    reply: str
    human: bool | None
    finished: bool | None = None

    @property
    def exchange(self) -> Exchange:
        """Prompt and reply as they are given."""
        return Exchange(self.prompt, self.reply, self.finished)


def read_replies(
    path: Path, *, reply_column: str | None = None, label_column: str | None = None, model_column: str | None = None
) -> list[GivenReply]:
    """The replies of one file, in its order; columns are found by their names unless they are given.

    Labels may be words (`2_full_refusal`, `partial refusal`, `REJECTION`, `1_full_compliance`) or 0/1, yes/no,
    true/false; a partial refusal is a refusal; an empty label is none. `none` as a column's name: do not use one.
    A column `finished` (true/false, 1/0) says whether a reply ended by itself.
    """
    records = _records(path)
    columns = list(dict.fromkeys(name for record in records for name in record))
    reply = _column(path, columns, REPLY_COLUMNS, reply_column, "--reply-column")
    if reply is None:
        raise InputError(
            f"{path} has no column of replies; its columns are {', '.join(columns)}; name one with --reply-column"
        )
    for number, record in enumerate(records, 1):
        if not isinstance(record.get(reply), str | None):
            raise InputError(
                f"{path}: reply {number} is a {type(record[reply]).__name__}, no text; expected texts in the column "
                f"{reply!r}, name another one with --reply-column"
            )
    prompt = _column(path, columns, PROMPT_COLUMNS, None, "")
    model = _column(path, columns, MODEL_COLUMNS, model_column, "--model-column")
    label = _column(path, columns, LABEL_COLUMNS, label_column, "--label-column")
    return [
        GivenReply(
            source=_text(record, model) or path.stem,
            prompt=_text(record, prompt),
            reply=_text(record, reply),
            human=_label(path, label, _text(record, label)),
            finished=_ended(path, _text(record, FINISHED)),
        )
        for record in records
    ]


def verdict_table(replies: Sequence[GivenReply], judge: str, version: str, verdicts: Sequence[Verdict]) -> pl.DataFrame:
    """One line per reply in `VERDICT_COLUMNS`, line counted from 0 within its source; and `finished`, where that is
    known of any reply, `judged`, where any was not, and `harmful`, where the judge says that of any."""
    lines: dict[str, int] = {}
    rows = []
    for given, verdict in zip(replies, verdicts, strict=True):
        line = lines[given.source] = lines.get(given.source, -1) + 1
        of_judge = (judge, version, verdict.refusal, verdict.reason)
        marks = (given.finished, verdict.judged, verdict.harmful)
        rows.append((given.source, line, given.prompt, given.reply, given.human, *of_judge, *marks))
    table = pl.DataFrame(rows, schema=VERDICT_COLUMNS | OPTIONAL_VERDICT_COLUMNS, orient="row")
    unsaid = {name: table[name].is_null().all() for name in (FINISHED, HARMFUL)} | {JUDGED: table[JUDGED].all()}
    return table.drop(name for name, nothing in unsaid.items() if nothing)


def joined(tables: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The verdicts of several judges on the same replies as one table; a judge without `judged` judged them all."""
    table = pl.concat(tables, how="diagonal")
    return table.with_columns(pl.col(JUDGED).fill_null(True)) if JUDGED in table.columns else table


def of_refusal(verdicts: pl.DataFrame) -> pl.DataFrame:
    """The lines of judges that look for refusal, without those of harm."""
    harm = [name for name in verdicts["judge"].unique() if looks_for(name) == HARM]
    return verdicts.filter(~pl.col("judge").is_in(harm)) if harm else verdicts


def unjudged(verdicts: pl.DataFrame) -> int:
    """Replies in a table of verdicts that their judge could not judge."""
    return int((~verdicts[JUDGED]).sum()) if JUDGED in verdicts.columns else 0


def cut_off(verdicts: pl.DataFrame) -> tuple[int, int] | None:
    """(replies that were cut off, replies of which that is known) in a table of one judge's verdicts; None where it
    is known of none."""
    if FINISHED not in verdicts.columns or verdicts[FINISHED].is_null().all():
        return None
    known = verdicts[FINISHED].drop_nulls()
    return int((~known).sum()), len(known)


def _records(path: Path) -> list[dict[str, Any]]:
    records = _parquet(path) if path.suffix.lower() == ".parquet" else _lines(path)
    if not records:
        raise InputError(f"{path} holds no replies; expected one per line under a header, or one JSON object per line")
    return records


def _parquet(path: Path) -> list[dict[str, Any]]:
    try:
        return pl.read_parquet(path, glob=False).to_dicts()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise InputError(
            f"{path} is no readable parquet ({str(error).splitlines()[0]}); write it again, or use JSONL"
        ) from None


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error}); give a CSV, JSONL or parquet file of replies") from None
    if path.suffix.lower() in {".jsonl", ".ndjson"}:
        return [_object(path, number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if path.suffix.lower() == ".csv":
        try:
            return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
        except csv.Error as error:
            raise InputError(f"{path} is no readable CSV ({error}); write it again, or use JSONL") from None
    raise InputError(f"{path} ends with {path.suffix!r}; expected .csv, .jsonl or .parquet")


def _object(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} line {number} is no JSON ({error}); expected one object per line") from None
    if not isinstance(record, dict):
        raise InputError(f"{path} line {number} is a JSON {type(record).__name__}; expected one object per line")
    return record


def _column(path: Path, columns: list[str], usual: tuple[str, ...], given: str | None, option: str) -> str | None:
    if given == NO_COLUMN:
        return None
    if given is None:
        return next((name for name in usual if name in columns), None)
    if given not in columns:
        raise InputError(f"{path} has no column {given!r} ({option}); its columns are {', '.join(columns)}")
    return given


def _text(record: dict[str, Any], column: str | None) -> str:
    value = record.get(column) if column is not None else None
    return "" if value is None else str(value)


def _ended(path: Path, value: str) -> bool | None:
    text = value.strip().lower()
    if text and text not in _TRUTH:
        raise InputError(
            f"{path}: {value!r} in column {FINISHED!r} does not say whether a reply ended by itself; expected true or "
            "false, 1 or 0, or nothing; give the column another name if it means something else"
        )
    return _TRUTH.get(text)


def _label(path: Path, column: str | None, value: str) -> bool | None:
    text = value.strip().lower()
    if not text:
        return None
    if text in _TRUTH:
        return _TRUTH[text]
    if bool(_REFUSES.search(text)) != bool(_ANSWERS.search(text)):
        return bool(_REFUSES.search(text))
    raise InputError(
        f"{path}: {value!r} in column {column!r} is no label of a reply; expected words such as full_refusal or "
        f"full_compliance, or 0/1; name another column with --label-column, or {NO_COLUMN!r}"
    )
