"""Runs the benchmarks one after another, next to nothing else, and keeps what each prints.

    uv run --with ray python -m tests.benchmarks [NAME ...] [--out tests/benchmarks/measured]

NAME: of `RUNS`; all of them without one, which takes some hours on 2 cores. Each is a process of its own, and its file
begins with the command, the processor, and the versions that it ran with. The table in
`dashboard/pages/reference/speed.md` is made of these files.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent
RUNS: dict[str, str] = {
    "sweep-smollm2": "bench_sweep.py smollm2 --selector wanda --windows 8 --rates 0 0.1 0.3 0.5 0.7",
    "sweep-smollm2-fisher": "bench_sweep.py smollm2 --selector fisher --windows 8 --rates 0 0.1 0.3 0.5 0.7",
    "sweep": "bench_sweep.py demo", "sweep-random-masks": "bench_sweep.py demo --selector random",
    "sweep-34M": "bench_sweep.py --random 512 8",
    "sweep-150M": "bench_sweep.py --random 1024 10 --rates 0 0.3 0.5 0.9",
    "little-text": "bench_little_text.py", "quick": "bench_quick.py smollm2",
    "allocator": "bench_allocator.py", "products": "bench_products.py", "grid": "bench_outputs.py",
    "grid-34M": "bench_outputs.py --random 512 8 --pairs 16", "generation": "bench_generation.py",
    "generation-one-thread": "bench_generation.py --threads 1", "ig": "bench_ig.py",
    "shelf": "bench_shelf.py demo 1", "scoring": "bench_scoring.py",
    "ray": "bench_ray.py",
    "full-size": "bench_full_size.py Llama-3.2-1B", "full-size-others": "bench_full_size.py Qwen3-0.6B Gemma-3-1B",
    "dashboard": "bench_dashboard.py", "watch": "bench_watch.py",
    "card": "bench_card.py 1B", "card-8B": "bench_card.py 8B --only cells,little",
}  # fmt: skip


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def measured(name: str, folder: Path) -> int:
    """Run one, show what it prints and keep it; its exit code."""
    script, *more = shlex.split(RUNS[name])
    told = f"# {RUNS[name]}\n# {processor()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
    told += f"torch {version('torch')}, transformers {version('transformers')}\n"
    begun = time.monotonic()
    process = subprocess.Popen([sys.executable, HERE / script, *more], stdout=subprocess.PIPE, text=True)
    lines = []
    for line in process.stdout or ():
        sys.stdout.write(line)
        sys.stdout.flush()
        lines.append(line)
    code = process.wait()
    if code == 0:
        folder.mkdir(parents=True, exist_ok=True)
        ended = f"# {time.monotonic() - begun:.0f} s in all\n"
        (folder / f"{name}.txt").write_text(told + "".join(lines) + ended, encoding="utf-8")
    return code


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(RUNS))
    parser.add_argument("--out", type=Path, default=HERE / "measured")
    args = parser.parse_args()
    unknown = [name for name in args.names if name not in RUNS]
    if unknown:
        parser.error(f"unknown benchmark {unknown[0]}; expected {', '.join(RUNS)}")
    failed = []
    for name in args.names or RUNS:
        sys.stdout.write(f"\n{name}: {RUNS[name]}\n")
        sys.stdout.flush()
        if measured(name, args.out):
            failed.append(name)
    if failed:
        sys.stdout.write(f"failed: {', '.join(failed)}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
