"""How seconds and memory of scores and of a sweep's cell grow with a model and with its text, on random Llamas.

    python tests/benchmarks/bench_growth.py [--plot FILE.svg] [--most MILLIONS] [--rounds 3]

Three series: usual shapes of 1 to 300 million parameters, over the parameters of their rows; one shape with 1 to 64
blocks, over rows; one model with 2 to 64 windows, over tokens. Every point is a process of its own with one thread. It
has done the work with the shipped model already; it loads this one, does the work once unmeasured, then `--rounds`
times: the median of its CPU seconds, and the most memory that it ever held above what it held before it loaded the
model (`VmHWM`; Linux only). The exponent is the slope of a straight line through the logarithms, and the one between
the two largest points beside it, since small models are mostly overhead.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

SHAPES = {1: (64, 192, 24), 3: (128, 384, 16), 10: (256, 768, 14), 34: (512, 1536, 11), 100: (768, 2304, 15),
          300: (1024, 3072, 24)}  # fmt: skip
DEEPER = [(256, 768, blocks) for blocks in (1, 2, 4, 8, 16, 32, 64)]
MIDDLE = SHAPES[10]
WINDOWS, LONGER = 8, (2, 4, 8, 16, 32, 64)
LENGTH = 128
WORK = ("lrp", "wanda", "a cell of 30%")


@dataclass(frozen=True)
class Point:
    """x: parameters of rows, rows or tokens. seconds, mebibytes: by the work."""

    x: float
    seconds: dict[str, float]
    mebibytes: dict[str, float]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plot", type=Path, help="where to draw it, .svg")
    parser.add_argument("--most", type=int, default=300, help="millions of parameters of the largest shape")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    shapes = [size for millions, size in SHAPES.items() if millions <= given.most]
    series = {
        "parameters of rows": [(size, WINDOWS, "parameters") for size in shapes],
        "rows": [(size, WINDOWS, "rows") for size in DEEPER],
        "tokens": [(MIDDLE, windows, "tokens") for windows in LONGER],
    }
    found = {name: [point(*one, given.rounds) for one in points] for name, points in series.items()}
    out = Console(highlight=False, width=140)
    for name, points in found.items():
        table = Table(name, *(f"{work}: s" for work in WORK), *(f"{work}: MiB" for work in WORK))
        for one in points:
            numbers = [*(f"{one.seconds[w]:.2f}" for w in WORK), *(f"{one.mebibytes[w]:.0f}" for w in WORK)]
            table.add_row(f"{one.x:,.0f}", *numbers)
        slopes = [exponents(points, what, work) for what in ("seconds", "mebibytes") for work in WORK]
        table.add_row("exponent", *(f"{slope:.2f}" for slope, _ in slopes))
        table.add_row("of the last two", *(f"{last:.2f}" for _, last in slopes))
        out.print(table)
    if given.plot:
        draw(found, given.plot)
    return 0


def exponents(points: list[Point], what: str, work: str) -> tuple[float, float]:
    """The slope of log y over log x: of a straight line through all points, and between the last two."""
    x, y = np.log([one.x for one in points]), np.log([getattr(one, what)[work] for one in points])
    return float(np.polyfit(x, y, 1)[0]), float((y[-1] - y[-2]) / (x[-1] - x[-2]))


def point(size: tuple[int, int, int], windows: int, over: str, rounds: int) -> Point:
    from bench_estimate import save_random

    with tempfile.TemporaryDirectory() as folder:
        model = save_random(size, Path(folder) / "model")
        told = {}
        for work in WORK:
            context = multiprocessing.get_context("spawn")
            ours, theirs = context.Pipe()
            process = context.Process(target=measured, args=(model, work, windows, rounds, theirs))
            process.start()
            theirs.close()  # so that the end of a process that says nothing is seen
            told[work] = json.loads(ours.recv())
            process.join()
    x = float(told[WORK[0]][over])
    return Point(x, {w: told[w]["seconds"] for w in WORK}, {w: told[w]["mebibytes"] for w in WORK})


def measured(model: str, work: str, windows: int, rounds: int, pipe: Any) -> None:
    """In a process of its own."""
    import torch

    from engine.data.corpora import windows as read
    from engine.edits.edit import edit_of
    from engine.interventions.apply import applied
    from engine.measures.nll import negative_log_likelihood
    from engine.models.loading import LoadedModel, load_model
    from engine.selectors.run import compute_scores

    torch.set_num_threads(1)

    def times(model: str, windows: int, rounds: int) -> tuple[LoadedModel, list[float]]:
        loaded = load_model(model, device="cpu")
        text = read("demo", loaded.tokenizer, role="calibration", samples=windows, length=LENGTH)
        count = loaded.rows.n_rows
        removed = edit_of(np.random.default_rng(0).permutation(count)[: round(0.3 * count)], count)
        taken = []
        for _ in range(rounds):
            start = time.process_time()
            if work == WORK[-1]:
                with applied(loaded, removed), torch.no_grad():
                    negative_log_likelihood(loaded, text)
            else:
                compute_scores(loaded, [work], text)
            taken.append(time.process_time() - start)
        return loaded, taken

    times("demo", 1, 1)  # everything is imported
    before = _mebibytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # VmHWM, the most that was held, begins anew
    loaded, (_, *taken) = times(model, windows, rounds + 1)
    rows = loaded.rows
    counts = {
        "rows": rows.n_rows,
        "parameters": sum(loaded.model.get_submodule(layer.name).weight.numel() for layer in rows.layers),
        "tokens": windows * LENGTH,
    }
    pipe.send(json.dumps({"seconds": statistics.median(taken), "mebibytes": _mebibytes("VmHWM") - before, **counts}))


def _mebibytes(name: str) -> float:
    """What the kernel says of this process."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))


def draw(found: dict[str, list[Point]], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot, ticker

    figure, axes = pyplot.subplots(2, len(found), figsize=(11, 6), layout="constrained")
    for column, (name, points) in enumerate(found.items()):
        for line, (what, unit) in enumerate((("seconds", "CPU seconds"), ("mebibytes", "MiB above the start"))):
            axis = axes[line][column]
            for work in WORK:
                slope = exponents(points, what, work)[0]
                y = [getattr(one, what)[work] for one in points]
                axis.loglog([one.x for one in points], y, marker="o", label=f"{work}: {slope:.2f}")
            axis.set(xlabel=name, ylabel=unit)
            axis.xaxis.set_minor_formatter(ticker.NullFormatter())  # labels between the decades run into each other
            axis.legend(title="exponent", fontsize="small", frameon=False)
            axis.grid(alpha=0.3)
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    sys.exit(main())
