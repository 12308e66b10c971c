"""The sentences of Where and who and of Rows: computed again by loops, and tables with another answer."""

import itertools
import re
import statistics

import polars as pl
import pytest
from shipped_lines import frame, shipped, title

from dashboard.charts import matrix, overlap_matrix as agreement, palette
from dashboard.charts.findings import row_findings as rows
from dashboard.pages.where import where_page as where


def counts(row):
    """Is a pair neither with random nor of the consensus and its parts?"""
    pair = {row["selector_a"], row["selector_b"]}
    return "random" not in pair and not ("consensus2" in pair and pair & {"lrp", "ig"})


def test_overlaps_of_pairs_in_both_sublayers():
    lines = [row for row in shipped("jaccard", 0.3) if row["jaccard"] is not None]
    both = {name: [row for row in lines if row["sublayer"] == name] for name in ("attention", "mlp")}
    tables = {name: frame(found) for name, found in both.items()}
    times = {}
    for row in filter(counts, lines):
        pair = frozenset((row["selector_a"], row["selector_b"]))
        times.setdefault(pair, []).append(row["jaccard"] / row["expected_random"])
    best = max(times, key=lambda pair: max(times[pair]))
    near = {pair for pair, found in times.items() if round(max(found), 1) <= 1.5}  # as it is shown

    def told(found=None):
        first, *rest = rows.overlaps(found or tables, "Lowest 30%").split("; ")
        names, much = first.removeprefix("Lowest 30%: ").removesuffix(")").split(" overlap most (")
        return set(names.split(" and ")), much, rest

    def hardly(count):
        return [f"{count} of {len(times)} pairs hardly more than random rows"] * bool(count)

    assert told() == (set(map(title, best)), f"{max(times[best]):.1f}× random rows", hardly(len(near)))
    pairs, by = rows.by_pair(tables)
    assert {frozenset(row[:2]) for row in pairs.filter("near").iter_rows()} == near
    assert by == "times"
    far = {name: table.with_columns(jaccard=2 * pl.col("expected_random")) for name, table in tables.items()}
    assert told(far)[1:] == ("2.0× random rows", [])
    alike = {name: table.with_columns(jaccard=pl.col("expected_random")) for name, table in tables.items()}
    assert told(alike)[2] == hardly(len(times))
    alone = {"attention": tables["attention"].clear(), "mlp": alike["mlp"]}  # a model whose MLP alone was scored
    assert told(alone)[2] == hardly(len(times))
    printed = {name: table.with_columns(expected_random=pl.lit(None, pl.Float64)) for name, table in tables.items()}
    shares = {pair: max(row["jaccard"] for row in lines if {row["selector_a"], row["selector_b"]} == pair)
              for pair in times}  # fmt: skip
    most = max(shares, key=shares.__getitem__)
    assert told(printed) == (set(map(title, most)), f"{shares[most]:.2f}", [])
    with_random = {"mlp": frame([row for row in both["mlp"] if "random" in (row["selector_a"], row["selector_b"])])}
    assert "Random" in told(with_random)[0]
    assert told(with_random)[0] != told()[0]
    empty = {  # a mask without a row of attention: pairs with Random do not step in
        name: table.with_columns(
            expected_random=pl.when(pl.lit(name == "mlp") | (pl.col("selector_b") == "random")).then("expected_random")
            .otherwise(0.0)
        ) for name, table in tables.items()
    }  # fmt: skip
    assert told(empty) == told({"mlp": tables["mlp"]})
    nothing = rows.overlaps({"mlp": frame(lines).clear()}, "Lowest 30%")
    assert nothing == "Lowest 30%: no overlap of masks with rows is known"


def test_rank_correlations():
    lines = [row for row in shipped("spearman") if counts(row)]
    most, least = (end(lines, key=lambda row: row["spearman"]) for end in (max, min))
    first, second = rows.correlation(frame(shipped("spearman"))).split("; ")
    who = first.split(" rank")[0]
    assert {title(most["selector_a"]), title(most["selector_b"])} == set(who.split(" and "))
    assert f"{most['spearman']:.2f}" in first
    assert {title(least["selector_a"]), title(least["selector_b"])} == set(second.split(" least")[0].split(" and "))
    assert rows.correlation(frame(lines).clear()) == "No rank correlation is known"
    alike = [("lrp", "ig", 0.871), ("ig", "fisher", 0.869), ("lrp", "fisher", 0.1), ("lrp", "random", 0.0)]
    three = pl.DataFrame(alike, schema=["selector_a", "selector_b", "spearman"], orient="row")
    told = "LRP and IG (and 1 more pair) rank rows most alike, Spearman 0.87; LRP and Fisher least, 0.10"
    made = pl.DataFrame([("consensus2", "ig", 0.99)], schema=three.schema, orient="row")
    assert rows.correlation(pl.concat([three, made])) == told
    assert rows.left_out(["lrp", "wanda"]) == ""
    out = "; without colour: Random, Consensus-2 with LRP, of which it is made"
    assert rows.left_out(["random", "lrp", "consensus2"]) == out
    assert rows.correlation(three.head(3)) == told


def test_how_evenly_masks_lie_over_the_blocks():
    table = frame(shipped("mask_depth"))
    found, rate = where.removed(table)
    assert rate == 0.3
    shares = {}
    for name in dict.fromkeys(table["selector"]):
        blocks = {}
        for row in table.filter(selector=name, rate=0.3).iter_rows(named=True):
            removed, there = blocks.get(row["block"], (0, 0))
            blocks[row["block"]] = (removed + row["removed"], there + row["rows"])
        shares[name] = {block: removed / there for block, (removed, there) in blocks.items()}
    last = max(table["block"])
    ratio = {
        name: statistics.mean(share for block, share in of.items() if block < last / 3)
        / statistics.mean(share for block, share in of.items() if block > last * 2 / 3)
        for name, of in shares.items()
    }
    who = [
        palette.in_order([name for name in ratio if test(ratio[name])])
        for test in (lambda r: r >= 2, lambda r: r <= 0.5)
    ]
    assert any(who)
    told = rows.uneven(found).split("; ")
    for names, sentence in zip([names for names in who if names], told, strict=True):
        assert re.split(", | and ", re.split(" spares? ", sentence)[0]) == list(map(title, names))
    ends = ("late blocks", "early ones" if who[0] else "early blocks")
    assert [re.split(" spares? ", one)[1] for one in told] == [
        end for names, end in zip(who, ends, strict=True) if names
    ]
    by_ratio = sorted(ratio, key=ratio.__getitem__, reverse=True)
    groups = rows.early_to_late(found)
    assert [*itertools.chain(*groups)] == by_ratio
    assert [set(groups[0]), set(groups[-1])] == list(map(set, who))
    even = found.filter(selector="random")
    assert rows.uneven(even) == ("No mask removes twice as much of early blocks as of late ones, or the reverse")
    half = pl.col("share") * pl.when(pl.col("block") < last / 2).then(0.4).otherwise(1)
    assert rows.uneven(even.with_columns(share=half)) == "Random spares early blocks"
    for few in (found.filter(block=0), found.with_columns(share=pl.lit(0.0))):  # one block; a mask of no rows
        assert rows.early_to_late(few) == [[], list(dict.fromkeys(found["selector"])), []]


def test_cells_of_blocks_go_from_early_to_late_under_the_names_of_their_groups():
    found, rate = where.removed(frame(shipped("mask_depth")))
    drawn = agreement.by_block(found, "a", "b")
    groups, cells = rows.early_to_late(found), drawn.data[0]
    labels = [one for one in drawn.layout.yaxis.ticktext if not one.startswith("<b>")]
    assert labels == list(map(title, itertools.chain(*groups)))
    assert sum(one.startswith("<b>") for one in drawn.layout.yaxis.ticktext) == sum(map(bool, groups))
    for label, line in zip(drawn.layout.yaxis.ticktext, cells.z, strict=True):
        own = [row["share"] for row in found.sort("block").iter_rows(named=True) if title(row["selector"]) == label]
        shades = [(share - rate) / (rate if share < rate else 1 - rate) for share in own]  # 0: as by lot
        assert list(line) == (pytest.approx(shades, abs=0.001) if own else [None] * len(line))
    assert cells.showscale
    flat = cells.z[list(drawn.layout.yaxis.ticktext).index("Random")]
    assert max(map(abs, flat)) < 0.1
    assert sum(map(bool, drawn.layout.xaxis.ticktext)) <= 10
    alone = agreement.by_block(found.filter(selector="random", block=0), "a", "b")
    assert list(alone.layout.yaxis.ticktext) == ["Random"]
    assert [note.text for note in alone.layout.annotations] == [f"{rate:.0%}"]


def test_a_map_names_the_projections_at_its_ends_and_else_the_blocks():
    cells = frame(
        [{"block": b, "projection": p, "rows": n, "value": v}
         for b, p, n, v in ((0, "q_proj", 4, 0.9), (1, "q_proj", 4, 0.5), (0, "fc1", 6, 0.8), (1, "fc1", 2, 0.0))]
    )  # fmt: skip
    assert rows.spread(cells, "share", "L") == "L removes 70% of the query rows (q_proj) and 60% of the fc1 rows"
    assert (
        rows.spread(cells, "score", "L") == "L scores the query rows (q_proj) highest on average, the fc1 rows lowest"
    )
    apart = cells.with_columns(value=pl.Series([12.4, 12.4, -30.0, 1.0]))
    assert rows.spread(apart, "difference", "LRP", "IG") == (
        "LRP ranks the query rows (q_proj) higher than IG does, by 12 points, the fc1 rows lower, by 22"
    )
    assert rows.spread(cells.filter(projection="q_proj"), "share", "L") == (
        "L removes 90% of the rows of block 0 and 50% of the rows of block 1"
    )
    assert rows.spread(cells.with_columns(value=pl.lit(1.0)), "score", "L") == "L: all projections alike on average"
    assert rows.spread(cells.with_columns(value=pl.lit(float("nan"))), "score", "LRP") == "LRP: no value is finite"


def test_cells_stand_under_the_names_of_their_sublayers_beside_a_bar():
    layers = frame(
        [{"block": 0, "projection": p, "sublayer": s, "rows": 8, "removed": n, "value": n / 8, "apart": 1.0}
         for p, s, n in (("q_proj", "attention", 2), ("o_proj", "attention", 8), ("fc1", "mlp", 0))]
    )  # fmt: skip
    by_chance = ("0%: spared", "41.67%: chance", "100%: gone")  # 10 of 24 rows
    for kind, ticks in (("share", by_chance), ("score", ("0", "1")), ("difference", ("−1", "+1"))):
        drawn = matrix.cells(layers, [0], ["q_proj", "o_proj", "fc1"], heading="a", below="b", kind=kind)
        assert [(line.label.text, round(line.x0), round(line.x1)) for line in drawn.layout.shapes] == [
            ("Attention", 0, 1), ("MLP", 2, 2)
        ]  # fmt: skip
        assert list(drawn.layout.xaxis.ticktext) == [
            f"{name}<br>{share}" if kind == "share" else name
            for name, share in (("query", "25%"), ("output", "100%"), ("fc1", "0%"))
        ]
        assert drawn.data[0].showscale
        assert drawn.data[0].colorbar.ticktext == ticks
        if kind == "share":  # as far from chance as from the end
            assert list(drawn.data[0].z[0]) == pytest.approx([0.25 * 24 / 10 - 1, 1, -1])
        assert ("2 removed (25.0%)" in drawn.data[0].customdata[0][0]) == (kind == "share")


def test_peaks_over_the_depth():
    profile = [row for row in shipped("depth") if row["projection"] is None and row["sublayer"] is None]
    at = {}
    for name in {row["selector"] for row in profile} - {"random"}:
        own = [row for row in profile if row["selector"] == name]
        at.setdefault(max(own, key=lambda row: row["relative_score"])["block"], []).append(name)
    sentence = rows.peaks(frame(profile), "relative_score")
    largest = max(map(len, at.values()))
    block = min(block for block, names in at.items() if len(names) == largest)
    assert sentence.startswith(f"Scores peak in block {block} for {title(palette.in_order(at[block])[0])}")
    flat = frame([{"selector": n, "block": b, "mean_score": float(b == 1)} for n in ("lrp", "ig") for b in (0, 1)])
    assert rows.peaks(flat, "mean_score", "MLP") == "MLP: scores peak in block 1 for all 2 selectors"
