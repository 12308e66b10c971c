"""The sentences of Where and who and of Rows: computed again by loops, and tables with another answer."""

import re
import statistics

import polars as pl
from shipped_lines import frame, shipped, title

from dashboard.charts import palette
from dashboard.charts.findings import rows
from dashboard.pages.where import page as where


def counts(row):
    """Is a pair neither with random nor of the consensus and its parts?"""
    pair = {row["selector_a"], row["selector_b"]}
    return "random" not in pair and not ("consensus2" in pair and pair & {"lrp", "ig"})


def test_overlaps_of_pairs():
    def value(row):
        return row["jaccard"]

    lines = [row for row in shipped("jaccard", 0.3) if row["sublayer"] == "mlp"]
    known = [row for row in lines if row["jaccard"] is not None and counts(row)]
    sentence = rows.overlap(frame(lines), "MLP")
    ends = re.match(
        r"MLP: half of the pairs share at most (\S+?)(, random rows (\S+))?; (.*) share most, (\S+)$", sentence
    )
    assert ends[1] == f"{statistics.median(map(value, known)):.2f}"
    assert ends[3] == f"{statistics.mean(row['expected_random'] for row in lines):.2f}"
    row = max(known, key=value)
    names = [
        f"{title(row[a])} and {title(row[b])}" for a, b in (("selector_a", "selector_b"), ("selector_b", "selector_a"))
    ]
    assert ends[4] in names
    assert ends[5] == f"{value(row):.2f}".replace("-", "−")
    with_random = frame([row for row in lines if "random" in (row["selector_a"], row["selector_b"])])
    assert "Random" in rows.overlap(with_random, "MLP")
    assert rows.overlap(frame(lines).clear(), "MLP") == "MLP: no overlap is known"


def test_overlaps_of_pairs_in_both_sublayers():
    lines = [row for row in shipped("jaccard", 0.3) if row["jaccard"] is not None]
    both = {name: [row for row in lines if row["sublayer"] == name] for name in ("attention", "mlp")}
    tables = {name: frame(found) for name, found in both.items()}
    told = rows.overlaps(tables, "Lowest 30%")
    mean = {}
    for row in filter(counts, lines):
        mean.setdefault(frozenset((row["selector_a"], row["selector_b"])), []).append(row["jaccard"])
    best = max(mean, key=lambda pair: statistics.mean(mean[pair]))
    assert frozenset(rows.most_alike(tables)[0]) == best
    assert set(told.split("; ")[0].removeprefix("Lowest 30%: ").removesuffix(" share most").split(" and ")) == set(
        map(title, best)
    )
    near = {}
    for row in filter(counts, lines):
        pair = frozenset((row["selector_a"], row["selector_b"]))
        near[pair] = near.get(pair, True) and row["jaccard"] <= 1.5 * row["expected_random"]
    count = sum(near.values())
    assert told.endswith(
        f"; {count} of {len(near)} pairs hardly more than random rows, in attention and MLP alike"
    ) == (count > 0)
    far = {name: table.with_columns(jaccard=2 * pl.col("expected_random")) for name, table in tables.items()}
    assert "hardly" not in rows.overlaps(far, "Lowest 30%")
    alike = {name: table.with_columns(jaccard=pl.col("expected_random")) for name, table in tables.items()}
    assert f"; {len(near)} of {len(near)} pairs hardly more" in rows.overlaps(alike, "Lowest 30%")
    alone = {"attention": tables["attention"].clear(), "mlp": alike["mlp"]}  # a model whose MLP alone was scored
    assert rows.overlaps(alone, "Lowest 30%").endswith("pairs hardly more than random rows")
    assert rows.overlaps({"mlp": frame(lines).clear()}, "Lowest 30%") == "Lowest 30%: no overlap is known"


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
    assert (
        rows.left_out(["random", "lrp", "consensus2"])
        == "; without colour: Random, Consensus-2 with what it is made of"
    )
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
        assert re.split(", | and ", re.split(" removes? ", sentence)[0]) == list(map(title, names))
    ends = ("early blocks than of late ones", "late blocks than of early ones")
    assert [one.split(" rows of ")[1] for one in told] == [end for names, end in zip(who, ends, strict=True) if names]
    even = found.filter(selector="random")
    assert rows.uneven(even) == ("No mask removes twice as much of early blocks as of late ones, or the reverse")
    half = pl.col("share") * pl.when(pl.col("block") < last / 2).then(0.4).otherwise(1)
    assert rows.uneven(even.with_columns(share=half)) == ("Random removes more rows of late blocks than of early ones")


def test_a_map_with_a_pattern_says_it_and_else_its_ends():
    cells = [
        {"block": b, "projection": p, "value": v + (10.0 if (b, p) == (2, "up") else 0.0)}
        for b in range(4) for p, v in (("q", 1.0 + b), ("up", 5.0 + b), ("down", 9.0 + b))
    ]  # fmt: skip
    told = "LRP scores down highest in 3 of 4 blocks, q lowest in 4"
    assert rows.spread(frame(cells), "score", "LRP") == told
    share = frame(cells).with_columns(pl.col("value") / 100)
    assert rows.spread(share, "share", "L") == (
        "L takes the largest share of down in 3 of 4 blocks, the smallest of q in 4"
    )
    counted = frame(
        [one | {"removed": r, "rows": 4} for one, r in zip(cells, [1, 2, 3, 0, 2, 4, 1, 2, 3, 0, 2, 4], strict=True)]
    )
    assert rows.spread(counted, "share", "L") == "L takes 88% of all down rows, 12% of all q rows"
    assert "block" in rows.spread(counted.filter(projection="q"), "share", "L")
    assert rows.spread(frame([one for one in cells if one["block"] in (0, 2)]), "score", "LRP") == (
        "LRP scores the rows of block 2 up highest on average, those of block 0 q lowest"
    )


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


def test_the_ends_of_a_map_of_layers():
    layers = pl.DataFrame(
        {"block": [0, 0, 1], "projection": ["q_proj", "up_proj", "q_proj"], "value": [0.2, 0.9, 0.05]}
    )
    assert rows.spread(layers, "score", "LRP") == (
        "LRP scores the rows of block 0 up_proj highest on average, those of block 1 q_proj lowest"
    )
    assert rows.spread(layers, "share", "LRP, LeRF 30%") == (
        "LRP, LeRF 30% takes most of block 0 up_proj, 90% of its rows, and least of block 1 q_proj, 5%"
    )
    apart = layers.with_columns(value=pl.Series([12.4, -30.0, 1.0]))
    assert rows.spread(apart, "difference", "LRP", "IG") == (
        "LRP ranks the rows of block 0 q_proj higher than IG does, by 12 points, those of block 0 up_proj lower, by 30"
    )
    assert rows.spread(layers.with_columns(value=pl.lit(1.0)), "score", "LRP") == "LRP: all layers alike"
    assert rows.spread(layers.with_columns(value=pl.lit(float("nan"))), "score", "LRP") == "LRP: no value is finite"
