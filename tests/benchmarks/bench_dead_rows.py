"""A Linear that leaves out its dead rows against the dense product of the same weights, and what its gather costs.

    uv run python tests/benchmarks/bench_dead_rows.py [--rounds 9]

One thread, products as cells take them. The ways take turns, and numbers are least CPU seconds. `smaller`: share of the
dense time, whatever the rule says of it, which `rule` tells. `gather`: what the gather adds to the product of the live
rows, in multiplications per output (`PLACING` of `engine/interventions/dead_rows.py`). `indexing`: the same with
`index_select` in its place.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from engine.interventions import dead_rows
from engine.interventions.dead_rows import PLACING, WORTH, alive_rows, kept_shape
from engine.models.products import faster_products, product

SHAPES = ((192, 192), (576, 192), (512, 512), (1408, 512), (1024, 1024), (2048, 2048))  # inputs, rows
LIVE = (0.9, 0.7, 0.5, 0.3, 0.1)
WINDOWS, LENGTH = 8, 256


def taken(ways: dict[str, Callable[[], Tensor]], rounds: int) -> dict[str, float]:
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds + 1):
        for name, way in ways.items():
            start = time.process_time()
            way()
            found[name].append(time.process_time() - start)
    return {name: min(seconds[1:]) for name, seconds in found.items()}


def ways(linear: nn.Linear, input: Tensor, kept: tuple[int, int]) -> dict[str, Callable[[], Tensor]]:
    smaller = dead_rows._smaller(linear, alive_rows(linear), torch.ones(linear.in_features).bool(), kept)
    weight, places = smaller._weight, smaller._places
    assert places is not None
    return {
        "dense": lambda: product(input, linear.weight, None),
        "smaller": lambda: smaller(linear, input),
        "bare": lambda: product(input, weight, None),
        "indexing": lambda: product(input, weight, None).index_select(-1, places),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    costs = []
    sys.stdout.write("inputs  rows  live  smaller  gather  indexing  rule\n")
    with torch.inference_mode(), faster_products():
        for inputs, rows in SHAPES:
            input, linear = torch.randn(WINDOWS, LENGTH, inputs), nn.Linear(inputs, rows, bias=False)
            order = torch.randperm(rows)
            for live in sorted(LIVE, reverse=True):
                alive = round(live * rows)
                linear.weight[order[alive:]] = 0
                kept = dead_rows.rounded_up(alive + 1, 4, "cpu")
                seconds = taken(ways(linear, input, (kept, inputs)), args.rounds)
                share = {name: spent / seconds["dense"] for name, spent in seconds.items()}
                gather = (share["smaller"] - share["bare"]) * inputs
                costs.append(gather)
                left = kept_shape((rows, inputs), (alive, inputs), 4, "cpu") != (rows, inputs)
                sys.stdout.write(
                    f"{inputs:6} {rows:5} {live:5.0%} {share['smaller']:8.2f} {gather:7.0f} {share['indexing']:9.2f}  "
                    f"{'left out' if left else 'as it is'}\n"
                )
                sys.stdout.flush()
    costs.sort()
    middle = (round(costs[place * len(costs) // 4]) for place in (2, 1, 3))
    sys.stdout.write(
        "gather, multiplications per output: median {}, the middle half {} to {}; ".format(*middle)
        + f"the rule takes {PLACING['cpu']}, and {WORTH} of the dense cost as worth it\n"
    )


if __name__ == "__main__":
    main()
