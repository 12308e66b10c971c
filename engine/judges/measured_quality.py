"""How often judges err, as measured on labelled replies: what the rates of a run are corrected by.

    python -m engine.judges.measured_quality FILE... --kinds FILE...

measures the embedded judge again, on labelled replies and on replies by kind (a column `kind`, a label `refusal`), and
writes `measured_quality.toml`, which is where its counts stand. They hold for one version of the judge: with other
rules there are none until this is run again."""

import argparse
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from engine.judges.base import EMBEDDED, Judge, open_judges
from engine.judges.given_replies import read_replies, verdict_table
from engine.judges.quality import HALVES, Quality, quality_table
from engine.records import bounds
from engine.records.errors import InputError
from engine.records.files import write_atomic
from engine.records.hashing import Json
from engine.results.tables import checked
from engine.stats.uncertainty import JudgeCounts

FILE = Path(__file__).with_suffix(".toml")
COUNTS = ("true_positives", "false_positives", "false_negatives", "true_negatives")
# XSTest's replies of three models with people's labels, as its authors publish them.
SOURCE = "replies to XSTest prompts with people's labels (Röttger et al. 2024, arXiv:2308.01263)"


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
    found = table.filter(judge=judge.id, judge_version=judge.version, prompts="both", source="all")
    if found.height != 1:
        there = ", ".join(
            f"{name} {version}" for name, version in table.select("judge", "judge_version").unique().rows()
        )
        raise InputError(
            f"{file} says nothing of the judge {judge.id} {judge.version}, but of {there or 'none'}; run "
            f"`selector-audit refusal judge FILE --judge {judge.id} --out FOLDER` again"
        )
    counts = JudgeCounts(*found.select(COUNTS).row(0))
    return MeasuredQuality(judge.id, judge.version, f"{found['replies'][0]} labelled replies of {file.name}", counts)


def measure(files: Sequence[Path]) -> MeasuredQuality:
    """The embedded judge on the half of the prompts whose mistakes nobody looked at while writing its rules."""
    [judge] = open_judges(EMBEDDED)
    replies = [reply for file in files for reply in read_replies(file)]
    verdicts = verdict_table(replies, judge.id, judge.version, judge.judge([reply.exchange for reply in replies]))
    line = quality_table(verdicts, halves=True).filter(prompts=HALVES[1], source="all")
    names = ", ".join(sorted(file.name for file in files))
    source = f"{line['replies'][0]} {SOURCE}, half of the prompts, held out: {names}"
    return MeasuredQuality(judge.id, judge.version, source, JudgeCounts(*line.select(COUNTS).row(0)))


def measure_kinds(files: Sequence[Path]) -> dict[str, Quality]:
    """The embedded judge on replies by kind, kinds in the files' order."""
    [judge] = open_judges(EMBEDDED)
    replies = [one for file in files for one in read_replies(file, model_column="kind", label_column="refusal")]
    verdicts = verdict_table(replies, judge.id, judge.version, judge.judge([reply.exchange for reply in replies]))
    lines = quality_table(verdicts).filter(pl.col("source") != "all")
    return {line["source"]: Quality(*(line[name] for name in COUNTS)) for line in lines.iter_rows(named=True)}


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path, help="labelled replies")
    parser.add_argument("--kinds", nargs="+", type=Path, required=True, help="replies by kind")
    given = parser.parse_args()
    found = measure(given.files)
    lines = [
        f'{name} = "{value}"' for name, value in (("judge_version", found.judge_version), ("source", found.source))
    ]
    lines += [f"{name} = {value}" for name, value in vars(found.counts).items()]
    for kind, quality in measure_kinds(given.kinds).items():
        lines += [
            "",
            f'[{found.judge}.kinds."{kind}"]',
            *(f"{name} = {value}" for name, value in vars(quality).items()),
        ]
    about = (
        f"# Written by `python -m {__spec__.name} FILE... --kinds FILE...` with the labelled replies that `source`\n"
        f"# names and {', '.join(file.name for file in given.kinds)}.\n"
    )
    write_atomic(FILE, f"{about}[{found.judge}]\n{chr(10).join(lines)}\n".encode())


if __name__ == "__main__":
    main()
