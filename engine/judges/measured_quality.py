"""How often judges err, as measured on labelled replies: what the rates of a run are corrected by.

The embedded judge's counts stand in `measured_quality.toml`, which `python -m precomputed.judge_quality` writes. They
hold for one version of the judge: with other rules there are none until that is run again."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from engine.judges.base import Judge
from engine.records import bounds
from engine.records.errors import InputError
from engine.records.hashing import Json
from engine.results.tables import checked
from engine.stats.uncertainty import JudgeCounts

FILE = Path(__file__).with_suffix(".toml")
COUNTS = ("true_positives", "false_positives", "false_negatives", "true_negatives")


@dataclass(frozen=True)
class MeasuredQuality:
    """Counts of one version of a judge against people's labels, and on which replies."""

    judge: str
    judge_version: str
    source: str
    counts: JudgeCounts

    def record(self) -> Json:
        return {"judge_version": self.judge_version, "source": self.source, **vars(self.counts)}


def measured_quality(judge: Judge, file: Path = FILE) -> MeasuredQuality | None:
    """What is known of this judge; None unless it was measured in this very version."""
    entry = tomllib.loads(file.read_text("utf-8")).get(judge.id)
    if entry is None or entry["judge_version"] != judge.version:
        return None
    return MeasuredQuality(judge.id, judge.version, entry["source"], JudgeCounts(*(entry[name] for name in COUNTS)))


def quality_from(path: Path, judge: Judge) -> MeasuredQuality:
    """The judge's line of a `judge_quality.parquet`, or of the folder that holds one: all sources, all prompts.
    `InputError` where it is no such table, or is of other judges or of another version."""
    file = path / "judge_quality.parquet" if path.is_dir() else path
    try:
        table = bounds.parquet(file)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError, OSError) as error:
        raise InputError(
            f"{file} is no table of a judge's quality ({str(error).splitlines()[0]}); write one from labelled replies "
            f"with `selector-audit refusal judge FILE --judge {judge.id} --out FOLDER`"
        ) from None
    table = checked("judge_quality", table, str(file))
    measured = table.filter(judge=judge.id, judge_version=judge.version, prompts="both", source="all")
    if measured.height != 1:
        available = ", ".join(
            f"{name} {version}" for name, version in table.select("judge", "judge_version").unique().rows()
        )
        raise InputError(
            f"{file} says nothing of the judge {judge.id} {judge.version}, but of {available or 'none'}; run "
            f"`selector-audit refusal judge FILE --judge {judge.id} --out FOLDER` again"
        )
    counts = JudgeCounts(*measured.select(COUNTS).row(0))
    return MeasuredQuality(judge.id, judge.version, f"{measured['replies'][0]} labelled replies of {file.name}", counts)
