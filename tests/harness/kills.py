"""Processes killed outright at random moments, started again, and their results against those of a run in peace.

    python -m tests.harness kills --times 100

Every stage has a command. It is run once in peace; then, from the same files again and again, it is killed with
SIGKILL once to three times and run to its end, and everything that it left is compared byte by byte: results, arrays,
cells, the exported checkpoint. Half of the kills come after a random share of the time that the command needs, half
just before a random one of its own writes (a file opened for writing, renamed, removed): in these a file is half there.
The processes are forks of one that has imported what `selector-audit` imports; each then runs `engine.cli.main`.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import json
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.processes import Ended, Source
from rich.console import Console
from rich.table import Table
from stage_options import read_by

from engine.results.store import Store

ON_RAY = "sweep on Ray workers"
TRIES = 5  # draws of a moment, where a process had ended before the one that was drawn
VOLATILE = ("date", "wall_time_s")  # of a file's entry in a manifest
SMALL = ["--samples", "4", "--max-length", "16"]
TEXT = ["--eval-samples", "6", "--eval-length", "16"]
REFUSAL = ["--selectors", "lrp,random", "--domains", "hate,crime", "--pairs-per-domain", "6", "--samples", "4"]
REFUSAL += ["--max-length", "32", "--reply-tokens", "12", "--heldout-pairs", "3", "--lambdas", "0.2,0.5"]
REFUSAL += ["--ks", "0.01,0.02", "--eval-samples", "2", "--eval-length", "64", "--seeds", "1", "--benign-limit", "0.4"]


@dataclass(frozen=True)
class Stage:
    """words: of its command, given the folder that it works in. needs: the stage whose results it starts from."""

    name: str
    words: Callable[[Path], list[str]]
    needs: str = ""


def _on_tiny(
    *words: str, of_text: bool = True, selectors: str = "magnitude,wanda,random"
) -> Callable[[Path], list[str]]:
    def command(place: Path) -> list[str]:
        text = str(place.parent / "text.txt")
        name, *rest = words
        more = ["--eval-corpus", text, *TEXT] if of_text else []
        return [
            name, str(place.parent / "tiny"), *rest, "--selectors", selectors, "--corpus", text, *SMALL, *more,
            *_places(place),
        ]  # fmt: skip

    return command


def _refusal(name: str) -> Callable[[Path], list[str]]:
    return lambda place: ["refusal", name, "demo", *read_by(name, REFUSAL), *_places(place)]


def _places(place: Path) -> list[str]:
    return ["--store", str(place / "store"), "--out", str(place / "out"), "--json"]


def _export(place: Path) -> list[str]:
    mask = min((place / "out").glob("mask-lrp-*.safetensors"))
    asked = ["--heldout-pairs", "6", "--reply-tokens", "12", "--benign-limit", "0.4"]
    out = str(place / "exported")
    return ["export", "demo", "--mask", str(mask), *asked, "--store", str(place / "store"), "--out", out, "--json"]


STAGES: tuple[Stage, ...] = (
    Stage("score", _on_tiny("score", of_text=False, selectors="magnitude,wanda,lrp,ig,consensus2,random")),
    Stage("sweep", _on_tiny("sweep")),
    Stage("sweep of a shard", _on_tiny("sweep", "--shard", "1/2")),
    Stage(
        "analyze",
        _on_tiny("analyze", "stability", "agreement", "depth", "gap", "differences", "--sizes", "2,4"),
        "sweep",
    ),
    Stage("refusal calibrate", _refusal("calibrate")),
    Stage("refusal sweep", _refusal("sweep"), "refusal calibrate"),
    Stage("refusal select", _refusal("select"), "refusal sweep"),
    Stage("refusal structure", _refusal("structure"), "refusal select"),
    Stage("refusal control", _refusal("control"), "refusal structure"),
    Stage("refusal evaluate", _refusal("evaluate"), "refusal control"),
    Stage("export", _export, "refusal select"),
)
if importlib.util.find_spec("ray"):  # an extra
    STAGES += (Stage(ON_RAY, _on_tiny("sweep", "--runner", "ray", "--workers", "2")),)


@dataclass
class Figures:
    """What came out for a stage. left: unfinished files and folders after kills; stayed: those after the last run."""

    stage: str
    at_moments: int = 0
    at_writes: int = 0
    rounds: int = 0
    equal: int = 0
    left: int = 0
    stayed: int = 0
    differences: list[str] = field(default_factory=list)

    @property
    def kills(self) -> int:
        return self.at_moments + self.at_writes

    @property
    def well(self) -> bool:
        return self.equal == self.rounds and not self.stayed


def run_kills(
    times: int, seed: int = 0, only: Sequence[str] = (), tell: Callable[[str], object] = lambda _: None
) -> list[Figures]:
    """`times` kills over the stages in turn (only: their names; what they need is run in peace)."""
    chosen = [stage for stage in STAGES if not only or stage.name in only]
    wanted = {stage.name: times // len(chosen) + (number < times % len(chosen)) for number, stage in enumerate(chosen)}
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        folder = Path(name)
        with contextlib.closing(Source(folder)) as source:
            work = _Work(folder, source, random.Random(seed), tell)
            return [work.figures_of(stage, wanted[stage.name]) for stage in chosen if wanted[stage.name]]


class _Work:
    def __init__(self, folder: Path, source: Source, drawn: random.Random, tell: Callable[[str], object]) -> None:
        from tiny_models import save_tiny, text

        self.folder, self.place, self.drawn, self.tell = folder, folder / "place", drawn, tell
        self.started = source.started
        save_tiny("llama", folder / "tiny")
        (folder / "text.txt").write_text(text(), encoding="utf-8")
        self.in_peace: dict[str, Ended] = {}

    def figures_of(self, stage: Stage, kills: int) -> Figures:
        figures = Figures(stage.name)
        peace = self._peace(stage)
        expected = contents(self._after(stage))
        for _ in range(4 * kills):  # a round may find no moment to kill at
            before, wanted = figures.kills, min(self.drawn.randint(1, 3), kills - figures.kills)
            differences: list[str] = []
            self._begin(stage)
            while figures.kills < before + wanted and self._kill(stage, peace, figures, differences):
                pass
            if figures.kills == before and not differences:
                continue
            figures.left += len(unfinished(self.place))
            figures.rounds += 1
            differences += self._to_the_end(stage) or compared(contents(self.place), expected)
            figures.stayed += len(unfinished(self.place))
            figures.equal += not differences
            figures.differences += differences
            self.tell(f"{stage.name}: {figures.kills} of {kills} kills, {figures.equal} of {figures.rounds} equal")
            if figures.kills == kills:
                break
        return figures

    def _kill(self, stage: Stage, peace: Ended, figures: Figures, differences: list[str]) -> bool:
        """Kill the command once more; False where it has nothing left to do, so that it would end first, or fails."""
        words = stage.words(self.place)
        for number in range(TRIES):
            share = self.drawn.random() * 0.6**number  # what is known from before a kill makes it shorter
            if self.drawn.random() < 0.5:
                ended = self.started(words, self.place, before_write=max(1, round(share * peace.writes)))
                figures.at_writes += ended.code == -signal.SIGKILL
            else:
                ended = self.started(words, self.place, after_s=share * peace.seconds)
                figures.at_moments += ended.code == -signal.SIGKILL
            if ended.code == -signal.SIGKILL:
                return True
            if (self.place / "exported").exists():  # a whole export is not written again
                return False
            if ended.code:
                differences.append(_failed(ended))
                return False
        return False

    def _to_the_end(self, stage: Stage) -> list[str]:
        """Run the command again; what is wrong with how it ended."""
        if (self.place / "exported").exists():  # killed after its last rename
            return []
        ended = self.started(stage.words(self.place), self.place)
        return [_failed(ended)] if ended.code else []

    def _peace(self, stage: Stage) -> Ended:
        """The command undisturbed, and all that it needs before it, once."""
        if stage.name not in self.in_peace:
            if stage.needs:
                self._peace(_named(stage.needs))
            for _ in range(2):  # the first one also imports what it needs late
                self._begin(stage)
                ended = self.started(stage.words(self.place), self.place)
                if ended.code:
                    raise RuntimeError(f"{stage.name} does not even run in peace: {ended.said}")
            shutil.copytree(self.place, self._after(stage))
            self.in_peace[stage.name] = ended
            self.tell(f"{stage.name}: in peace {ended.seconds:.1f} s, {ended.writes} writes")
        return self.in_peace[stage.name]

    def _begin(self, stage: Stage) -> None:
        """The files that the stage starts from, always at the same paths."""
        shutil.rmtree(self.place, ignore_errors=True)
        if stage.needs:
            shutil.copytree(self._after(_named(stage.needs)), self.place)
        else:
            self.place.mkdir()

    def _after(self, stage: Stage) -> Path:
        return self.folder / "after" / stage.name


def _failed(ended: Ended) -> str:
    return f"exit code {ended.code}: {ended.said.strip()[-500:]}"


def _named(name: str) -> Stage:
    return next(stage for stage in STAGES if stage.name == name)


def unfinished(place: Path) -> list[Path]:
    """Files and folders under temporary names."""
    found = [path for path in place.rglob("*") if path.name.endswith(".part")]
    return [path for path in found if not any(parent in found for parent in path.parents)]


def contents(place: Path) -> dict[str, str]:
    """Everything that a command left, by name, as SHA-256: files as they are, cells by their keys as canonical JSON,
    manifests without dates and seconds. Temporary names and the files of the index itself are left out."""
    found = {}
    if (place / "store" / "cells").is_dir():
        with Store(place / "store") as store:
            for key in store.keys():  # noqa: SIM118 - no mapping
                found[f"cell {key}"] = _sha(json.dumps(store.get(key), sort_keys=True).encode())
    for path in sorted(place.rglob("*")):
        name = path.relative_to(place).as_posix()
        if not path.is_file() or ".part" in name or name.startswith("store/cells/"):
            continue
        content = path.read_bytes()
        if path.name == "manifest.json":
            with contextlib.suppress(ValueError):
                content = json.dumps(_lasting(json.loads(content)), sort_keys=True).encode()
        found[name] = _sha(content)
    return found


def _lasting(manifest: dict[str, Any]) -> dict[str, Any]:
    files = manifest.get("files", {})
    kept = {name: {key: value for key, value in entry.items() if key not in VOLATILE} for name, entry in files.items()}
    return {**manifest, "files": kept}


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def compared(found: dict[str, str], expected: dict[str, str]) -> list[str]:
    """What is missing, what is more, and what is other than expected."""
    missing = [f"missing: {name}" for name in sorted(expected.keys() - found.keys())]
    more = [f"more: {name}" for name in sorted(found.keys() - expected.keys())]
    other = [f"other bytes: {name}" for name in sorted(found.keys() & expected.keys()) if found[name] != expected[name]]
    return missing + more + other


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.harness kills", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--times", type=int, default=100, help="kills in all (100)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stages", default="", help="names, comma separated; all by default")
    given = parser.parse_args(words)
    said = Console(stderr=True, highlight=False)
    start = time.monotonic()
    only = [name for name in given.stages.split(",") if name]
    if unknown := set(only) - {stage.name for stage in STAGES}:
        parser.error(f"unknown stages {', '.join(sorted(unknown))}; there are {', '.join(one.name for one in STAGES)}")
    figures = run_kills(given.times, given.seed, only, lambda line: said.print(line, markup=False))
    table = Table(
        "stage", "kills", "at a moment", "before a write", "resumed", "equal", "left by kills", "left at the end"
    )
    for one in figures:
        counts = (one.kills, one.at_moments, one.at_writes, one.rounds, one.equal, one.left, one.stayed)
        table.add_row(one.stage, *map(str, counts))
    out = Console(highlight=False, width=120)
    out.print(table)
    kills, rounds, equal = (sum(getattr(one, name) for one in figures) for name in ("kills", "rounds", "equal"))
    minutes = (time.monotonic() - start) / 60
    out.print(f"{kills} kills, {rounds} runs resumed, {equal} of them equal; seed {given.seed}, {minutes:.1f} min")
    for one in figures:
        for line in one.differences[:20]:
            out.print(f"{one.stage}: {line}", markup=False)
    return 0 if all(one.well for one in figures) and kills == given.times else 1
