"""The table of benchmarks in Reference says what was printed when they ran."""

import re
from pathlib import Path

import pytest
from benchmarks.__main__ import HERE, RUNS

ROOT = Path(__file__).parents[1]
TABLE = re.compile(r"^\| `(?P<name>[\w-]+)` \|(?P<against>[^|]*)\|(?P<said>[^|]*)\|(?P<asked>[^|]*)\|$", re.MULTILINE)


def lines():
    text = (ROOT / "dashboard" / "pages" / "reference" / "speed.md").read_text(encoding="utf-8")
    section = text.partition("## Benchmarks\n")[2].partition("\n## ")[0]
    return list(TABLE.finditer(section))


def test_every_benchmark_can_be_run_by_name():
    scripts = {path.name for path in HERE.glob("bench_*.py")}
    assert {command.split()[0] for command in RUNS.values()} == scripts


def test_the_table_has_what_was_kept():
    kept = {path.stem for path in (HERE / "measured").glob("*.txt")}
    assert {line["name"] for line in lines()} == kept
    assert kept <= set(RUNS)
    assert len(kept) > 9


@pytest.mark.parametrize("line", lines(), ids=lambda line: line["name"])
def test_its_numbers_were_printed(line):
    text = (HERE / "measured" / f"{line['name']}.txt").read_text(encoding="utf-8")
    assert text.startswith(f"# {RUNS[line['name']]}\n# ")
    printed = {float(number) for number in re.findall(r"\d+(?:\.\d+)?", text.replace(",", ""))}
    said = re.findall(r"\d+(?:\.\d+)?", line["said"].replace(",", ""))
    assert said
    assert {float(number) for number in said} <= printed
