"""Commands over several stores whose tables are to be those of one run, byte by byte."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_models import save_tiny, text

from engine.cli import main

AUDIT = [
    "--selectors", "weight_norm,mean_activation,random", "--samples", "4", "--max-length", "16", "--seeds", "42,43",
]  # fmt: skip
AUDIT += ["--eval-samples", "4", "--eval-length", "16"]
SAID = re.compile(
    r"shard (\d)/2: ([\d,]+) of ([\d,]+) cells measured, ([\d,]+) more of its share of ([\d,]+) were known"
)
SHORT = ["--sizes", "2,4", "--singles-rows", "8", "--singles-neurons", "3", "--singles-windows", "2"]
SHORT += ["--protocol-rates", "0.3", "--protocol-windows", "2", "--resample-windows", "2"]


def audited(folder: Path) -> list[str]:
    """A tiny model, and options that read a text of our own."""
    folder.mkdir(parents=True, exist_ok=True)
    corpus = folder / "text.txt"
    corpus.write_text(text(), encoding="utf-8")
    model = save_tiny("llama", folder / "model")
    return [str(model), "--corpus", str(corpus), "--eval-corpus", str(corpus), *AUDIT]


def tables(folder: Path) -> dict[str, bytes]:
    """Every file but the manifest, which has dates and seconds."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "manifest.json"}


def ran(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[str, str]:
    """What a command that ends well says."""
    code = main([str(word) for word in words])
    told = capsys.readouterr()
    assert code == 0, told.err
    return told.out, told.err


def numbers(out: str) -> tuple[int, ...]:
    """What the last line of a shard says."""
    assert len(out.splitlines()) == 1, out
    found = SAID.match(out)
    assert found, out
    return tuple(int(one.replace(",", "")) for one in found.groups())


def in_shards(
    capsys: pytest.CaptureFixture[str], folder: Path, words: list[str], measured: Callable[[], int], rounds: int
) -> None:
    """The command by two shards until nothing is left to the other, then without: its tables are those of one run.

    measured: how much was measured so far, of what counts.
    """
    ran(capsys, *words, "--store", folder / "one", "--out", folder / "tables of one")
    stores = [folder / "1", folder / "2"]
    one_run = measured()
    assert one_run > 0
    for turn in range(rounds):
        found = []
        for number, store in enumerate(stores, 1):
            if (folder / "all").exists():
                ran(capsys, "merge", folder / "all", "--store", store)
            out, _ = ran(capsys, *words, "--shard", f"{number}/2", "--store", store)
            assert not list((store / "results").iterdir())
            found.append(numbers(out))
            done = "nothing is left to other shards" in out
            assert done or "next, when all 2 are done: selector-audit merge STORE… --store TARGET" in out
        if not turn:  # every cell is in one share; later, what the first has measured may tell the second of more
            assert found[0][2] == found[1][2] == found[0][4] + found[1][4]
        assert all(shard[1] + shard[3] == shard[4] for shard in found)
        ran(capsys, "merge", *stores, "--store", folder / "all")
    by_shards = measured()
    assert by_shards >= 2 * one_run  # once by each way, and what every shard needs for itself
    _, err = ran(capsys, *words, "--store", folder / "all", "--out", folder / "tables of shards")
    assert measured() == by_shards
    assert re.search(r"[1-9]\d* to compute", err) is None
    expected, got = tables(folder / "tables of one"), tables(folder / "tables of shards")
    assert expected.keys() == got.keys()
    assert {name for name in expected if expected[name] != got[name]} == set()
    out, _ = ran(capsys, *words, "--shard", "1/2", "--store", folder / "all")
    assert "nothing is left to other shards: the same command without --shard writes the tables" in out
