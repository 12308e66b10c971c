"""Folders that `selector-audit refusal judge --out` wrote, as the part Judges of the page Refusal reads them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from dashboard.charts.judges import ALL, MEASURES, REFUSED
from dashboard.state import results
from dashboard.state.results import JUDGED, software
from engine.judges.given_replies import JUDGED as COULD_JUDGE, cut_off, unjudged
from engine.judges.quality import agreement_table, of_half
from engine.records import bounds
from engine.records.errors import InputError
from engine.records.hashing import SCHEMA_VERSION, file_sha256
from engine.results.folders import UNREADABLE
from engine.results.tables import checked
from engine.stats.uncertainty import wilson

COMMAND = "selector-audit refusal judge"
VERDICTS, QUALITY = "verdicts.parquet", "judge_quality.parquet"
TABLES = (VERDICTS, QUALITY, "judge_agreement.parquet", "disagreements.parquet")
PEOPLE = "People"  # stands as a judge of its own where there are labels
BOTH = "both"  # in `judge_quality`: both halves of the prompts
COUNTS = ("true_positives", "false_positives", "false_negatives", "true_negatives")


@dataclass(frozen=True)
class Judged:
    """One folder. verdicts: where there is a reply. quality: `judge_quality` with its rates as floats, None where no
    reply has a human label. missing: lines without a reply."""

    folder: Path
    verdicts: pl.DataFrame
    quality: pl.DataFrame | None
    provenance: str
    missing: int = 0

    @property
    def judges(self) -> list[str]:
        return self.verdicts.drop_nulls("reply")["judge"].unique(maintain_order=True).to_list()

    @property
    def sources(self) -> list[str]:
        return self.verdicts["source"].unique(maintain_order=True).to_list()

    @property
    def sides(self) -> list[str]:
        """Who can be compared: the judges, and people where they labelled replies."""
        people = [PEOPLE] if self.quality is not None and PEOPLE not in self.judges else []
        return [*self.judges, *people]

    @property
    def halves(self) -> list[str]:
        """Parts of the prompts that quality is known for, `both` first."""
        return [BOTH] if self.quality is None else self.quality["prompts"].unique(maintain_order=True).to_list()


def find(folder: Path) -> list[Path]:
    """Judged folders, `folder` itself or up to three levels below, by name; `InputError` if there is none."""
    runs = {path.parent for path in results.below(folder, JUDGED, f"{COMMAND} FILE")}
    if not runs:
        raise InputError(f"{folder} holds no judged replies; run `{COMMAND} FILE --out {folder / 'judged'}` first")
    return sorted(runs)


@results.while_unchanged(4, lambda folder: (folder / name for name in (JUDGED, *TABLES)))
def read(folder: Path) -> Judged:
    """The verdicts of a folder; `InputError` where a file is missing, damaged or not what the command writes."""
    record = _record(folder)
    files = record["files"]
    for name in (VERDICTS, *(name for name in TABLES[1:] if name in files)):
        path = folder / name
        if not path.is_file():
            raise InputError(f"{folder} lacks {name}; run `{COMMAND}` again")
        if files.get(name) != file_sha256(path):
            raise InputError(f"{path} does not fit the checksum in {JUDGED} (damaged, or changed by hand); "
                             f"run `{COMMAND}` again")  # fmt: skip
    verdicts = _table(folder / VERDICTS, "judge_verdicts")
    if verdicts.group_by("judge").len()["len"].n_unique() > 1:
        raise InputError(f"{folder / VERDICTS} has judges with unequal numbers of replies; run `{COMMAND}` again")
    quality = _table(folder / QUALITY, "judge_quality") if QUALITY in files else None
    answered = verdicts.drop_nulls("reply")
    missing = (verdicts.height - answered.height) // verdicts["judge"].n_unique()
    replies = ", ".join(f"{name} (sha256 {str(digest)[:12]})" for name, digest in record["replies"].items())
    judges = ", ".join(f"{name} {version}" for name, version in record["judges"].items())
    facts = [f"Replies {replies}", f"judges and their versions: {judges}", *software(record.get("environment") or {})]
    return Judged(folder, answered, quality, " · ".join(facts), missing)


def _record(folder: Path) -> dict[str, Any]:
    path = folder / JUDGED
    try:
        record = bounds.json_of(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} is not readable ({error}); run `{COMMAND}` again") from None
    version = record.get("schema_version") if isinstance(record, dict) else None
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise InputError(
            f"{path} has schema version {version!r}, this software reads up to {SCHEMA_VERSION}; upgrade it"
        )
    if not all(isinstance(record.get(name), dict) for name in ("files", "judges", "replies")):
        raise InputError(f"{path} does not list files, judges and replies; run `{COMMAND}` again")
    return record


def _table(path: Path, stem: str) -> pl.DataFrame:
    try:
        table = bounds.parquet(path)
    except (*UNREADABLE, OSError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError(f"{path} is not readable parquet ({reason}); run `{COMMAND}` again") from None
    if table.is_empty():
        raise InputError(f"{path} is empty; run `{COMMAND}` again")
    return checked(stem, table, str(path))


def measures(judged: Judged, half: str = BOTH) -> pl.DataFrame:
    """Rates of every judge and source, each with its 95% interval. half: of the prompts.
    Columns source, judge, measure (MEASURES), value, low, high (null where a rate has no trials), replies, and with
    REFUSED (else null) cases: how many of the replies came out so; unjudged: how many the judge could not judge, which
    count as not refused; cut_off: how many were cut off, of ends_known whose end is known. REFUSED stands for PEOPLE
    too."""
    verdicts = judged.verdicts if half == BOTH else of_half(judged.verdicts, half)
    rows: list[tuple[Any, ...]] = []
    sides = {judge: verdicts.filter(judge=judge) for judge in judged.judges}
    if PEOPLE in judged.sides:
        sides[PEOPLE] = _people(verdicts)
    for side, said in sides.items():
        for source in (*said["source"].unique(maintain_order=True), ALL):
            of_source = said if source == ALL else said.filter(source=source)
            if n := of_source.height:
                count = int(of_source["refusal"].sum())
                rates = (count / n, *wilson(count, n))
                counts = (n, count, unjudged(of_source), *(cut_off(of_source) or (None, None)))
                rows.append((source, side, REFUSED, *rates, *counts))
    if judged.quality is not None:
        for line in judged.quality.filter(prompts=half).iter_rows(named=True):
            for name in MEASURES[1:]:
                values = (line[name], line[f"{name}_low"], line[f"{name}_high"])
                rows.append((line["source"], line["judge"], name, *values, line["replies"], *(None,) * 4))
    schema: dict[str, Any] = dict.fromkeys(("source", "judge", "measure"), pl.String)
    schema |= dict.fromkeys(("value", "low", "high"), pl.Float64)
    schema |= dict.fromkeys(("replies", "cases", "unjudged", "cut_off", "ends_known"), pl.Int64)
    return pl.DataFrame(rows, schema=schema, orient="row")


def _people(verdicts: pl.DataFrame) -> pl.DataFrame:
    """The human labels as the verdicts of one more judge, on the labelled replies."""
    first = verdicts.filter(pl.col("judge") == verdicts["judge"][0], pl.col("human").is_not_null())
    first = first.with_columns(pl.lit(True).alias(name) for name in [COULD_JUDGE] if name in first.columns)
    return first.with_columns(
        judge=pl.lit(PEOPLE), judge_version=pl.lit(""), refusal=pl.col("human"), reason=pl.lit("")
    )


def pair(judged: Judged, first: str, second: str) -> pl.DataFrame:
    """The verdicts of two sides on the replies that both of them saw, in the columns of `verdicts`."""
    verdicts = judged.verdicts
    if PEOPLE in (first, second) and PEOPLE not in judged.judges:
        verdicts = pl.concat([verdicts.filter(pl.col("human").is_not_null()), _people(verdicts)])
    return pl.concat([verdicts.filter(judge=first), verdicts.filter(judge=second)])


def agreement(two: pl.DataFrame) -> pl.DataFrame:
    """Agreement of a `pair` in all and per source.
    Columns source, those of `agreement_table`, and counts both, only_a, only_b, neither (see a refusal)."""
    lines = []
    for source in (ALL, *two["source"].unique(maintain_order=True)):
        of_source = two if source == ALL else two.filter(source=source)
        line = agreement_table(of_source).row(0, named=True)
        a, b = (of_source.filter(judge=line[f"judge_{side}"])["refusal"] for side in "ab")
        counts = {"both": a & b, "only_a": a & ~b, "only_b": ~a & b, "neither": ~(a | b)}
        lines.append({"source": source} | line | {name: int(found.sum()) for name, found in counts.items()})
    return pl.DataFrame(lines, schema_overrides={"kappa": pl.Float64})
