"""Rows as pixels: every row has its place, and large models fit."""

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from large_run import LLAMA_1B, QWEN_14B, row_index

from dashboard.charts import row_picture

ODD = (3, {"q_proj": 7, "k_proj": 3, "o_proj": 11, "up_proj": 23})
EXPERTS = (4, {f"experts.{number}.{name}": 5 for number in range(30) for name in ("up_proj", "down_proj")})


def pixels_of(picture, rows):
    """Pixel (column, line) -> the rows in it, by a loop over rows."""
    found = {}
    parts = {(part.block, part.projection): part for part in picture.parts}
    for row_id, block, _, projection, row in rows.iter_rows():
        part = parts[block, projection]
        assert part.start + row == row_id
        inside = part.offset + row // picture.group
        found.setdefault((part.left + inside % picture.wide, inside // picture.wide), []).append(
            (block, projection, row)
        )
    return found


@pytest.mark.parametrize("shape", [ODD, EXPERTS, (1, {"fc": 1})], ids=["odd", "experts", "one row"])
@pytest.mark.parametrize("most", [row_picture.MOST, 61])
def test_every_row_is_in_one_pixel_with_neighbours_of_its_projection_only(shape, most, monkeypatch):
    monkeypatch.setattr(row_picture.rows_per_pixel, "__defaults__", (most,))
    rows = row_index(shape)
    picture = row_picture.picture(rows)
    found = pixels_of(picture, rows)
    assert sum(map(len, found.values())) == rows.height == picture.rows
    for inside in found.values():
        assert len({(block, projection) for block, projection, _ in inside}) == 1
        assert len(inside) <= picture.group
        numbers = [row for _, _, row in inside]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        assert numbers[0] % picture.group == 0
    columns, lines = zip(*found, strict=True)
    assert (min(columns), min(lines)) == (0, 0)
    assert max(columns) < picture.width
    assert max(lines) == picture.height - 1
    assert (picture.group > 1) == (rows.height > most)


def test_blocks_and_projections_stand_apart():
    rows = row_index(ODD)
    picture = row_picture.picture(rows)
    found = pixels_of(picture, rows)
    columns, lines = {}, {}
    for (column, line), inside in found.items():
        block, projection, _ = inside[0]
        columns.setdefault(block, set()).add(column)
        lines.setdefault(projection, set()).add(line)
    for one, other in pairwise(columns):
        assert min(columns[other]) - max(columns[one]) > row_picture.GAP
    for one, other in pairwise(lines):
        assert min(lines[other]) - max(lines[one]) == row_picture.GAP + 1


@pytest.mark.parametrize("shape", [LLAMA_1B, QWEN_14B], ids=["376,832", "2,162,688"])
def test_a_group_is_no_larger_than_it_must_be(shape):
    blocks, layers = shape
    counts = np.array(list(layers.values()) * blocks)
    group = row_picture.rows_per_pixel(counts)
    needed = [sum(-(-count // size) for count in counts.tolist()) for size in (group, group - 1)]
    assert needed[0] <= row_picture.MOST < needed[1]


def test_parts_follow_the_row_index_also_where_a_name_comes_again():
    rows = pl.DataFrame(
        {"block": [0] * 5, "sublayer": ["mlp"] * 5, "projection": ["a", "a", "b", "a", "a"], "row": [0, 1, 0, 0, 1]}
    ).with_row_index("row_id")
    parts = row_picture.picture(rows).parts
    assert [(part.projection, part.start, part.count) for part in parts] == [("a", 0, 2), ("b", 2, 1), ("a", 3, 2)]
