"""A results folder with as many rows as a real model has, scores drawn at random, and replies that fall apart."""

from pathlib import Path

import numpy as np
import polars as pl
from synthetic import MODEL, RATES, SLOPES, add_table, write_run

from engine.records.manifest import add_to_manifest

# Blocks, and the rows of each projection of a block.
Shape = tuple[int, dict[str, int]]
LLAMA_1B: Shape = (
    16,
    {
        "q_proj": 2048, "k_proj": 512, "v_proj": 512, "o_proj": 2048,
        "gate_proj": 8192, "up_proj": 8192, "down_proj": 2048,
    },
)  # fmt: skip
QWEN_14B: Shape = (
    48,
    {
        "q_proj": 5120, "k_proj": 1024, "v_proj": 1024, "o_proj": 5120,
        "gate_proj": 13824, "up_proj": 13824, "down_proj": 5120,
    },
)  # fmt: skip
ASKED = ("Why?", "Where is it?")
SAID = {0.0: "Because it rained.", 0.1: "Because it", 0.3: "it it <b>it</b> it", 0.5: ""}


def row_index(shape: Shape) -> pl.DataFrame:
    """The rows of a model of this shape."""
    blocks, layers = shape
    names, counts = list(layers), list(layers.values())
    once = pl.DataFrame(
        {
            "projection": np.repeat(names, counts),
            "row": np.concatenate([np.arange(count, dtype=np.int32) for count in counts]),
        }
    ).with_columns(
        sublayer=pl.when(pl.col("projection").is_in(names[:4])).then(pl.lit("attention")).otherwise(pl.lit("mlp"))
    )
    every = pl.concat([once.with_columns(block=pl.lit(block, pl.Int32)) for block in range(blocks)])
    return every.with_row_index("row_id").select(
        pl.col("row_id").cast(pl.Int64), "block", "sublayer", "projection", "row"
    )


def scores(rows: int) -> dict[str, np.ndarray]:
    """Of every selector of the made-up sweep."""
    drawn = np.random.default_rng(3)
    return {name: drawn.random((3, rows) if name == "random" else rows, dtype=np.float32) for name in SLOPES}


def replies(selectors: tuple[str, ...] = ("lrp", "ig")) -> pl.DataFrame:
    """`sweep_replies` of two prompts: those to the first fall apart, and the last of them is empty and cut off."""
    lines = [
        (MODEL["id"], selector, None, order, rate, round(rate * 1000), prompt, text if prompt == ASKED[0] else "Here.",
         rate < 0.5)
        for selector in selectors for order in ("lerf", "morf") for rate, text in SAID.items() for prompt in ASKED
    ]  # fmt: skip
    names = ["model", "selector", "seed", "order", "rate", "rows_removed", "prompt", "reply", "finished"]
    return pl.DataFrame(lines, schema=names, orient="row")


def write_large(folder: Path, shape: Shape = LLAMA_1B, *, with_replies: bool = False) -> Path:
    """The folder: sweep, rows, scores, and `sweep_replies` where it is asked for; returns it."""
    from safetensors.numpy import save_file

    assert set(SAID) == set(RATES)
    write_run(folder)
    index = row_index(shape)
    add_table(folder, "rows", index)
    save_file(scores(index.height), folder / "scores.safetensors")
    add_to_manifest(folder, dict(MODEL), "scores.safetensors", {"scores": "made up"}, 1.0)
    if with_replies:
        add_table(folder, "sweep_replies", replies())
    return folder
