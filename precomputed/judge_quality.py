"""The embedded judge measured again on labelled replies, and on replies by kind.

    python -m precomputed.judge_quality FILE... --kinds FILE...

writes `engine/judges/measured_quality.toml`, which is where its counts stand. The replies by kind have a column `kind`
and a label `refusal`."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from engine.judges.base import EMBEDDED, open_judges
from engine.judges.given_replies import read_replies, verdict_table
from engine.judges.measured_quality import COUNTS, FILE, MeasuredQuality
from engine.judges.quality import HALVES, Quality, quality_table
from engine.records.files import write_atomic
from engine.stats.uncertainty import JudgeCounts

# XSTest's replies of three models with people's labels, as its authors publish them.
SOURCE = "replies to XSTest prompts with people's labels (Röttger et al. 2024, arXiv:2308.01263)"


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
