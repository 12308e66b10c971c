"""The shipped audit of SmolLM2: its tables hold together, its README says what they hold, its weights are known."""

import json
import math
import re
from pathlib import Path

import polars as pl
import pytest

from engine.models.loading import load_model
from engine.records.manifest import read_manifest
from engine.results.folders import read_table, table_names
from engine.run.scoring import read_scores
from engine.stats.removal_order import removal_order
from engine.studies.estimate_words import control_answers, removal_budgets, share_text
from engine.studies.protocols.protocol_claims import flip_rate
from precomputed import gemma_dir, smollm2_dir

RESULTS = smollm2_dir() / "results"
VALIDITY = ("faithful", "sufficient", "partly", "not")


def test_readme_says_what_the_tables_hold() -> None:
    text = (smollm2_dir() / "README.md").read_text("utf-8").partition("## What it says")[0]
    lines = {name: line for line, name in re.findall(r"^(\| (\w+)[ ,].*)$", text, re.MULTILINE) if name != "selector"}
    lerf = removal_budgets(read_table(RESULTS, "budget"), "lerf")
    sweep = read_table(RESULTS, "sweep").filter(pl.col("order") == "lerf", pl.col("rate") >= 0.01)
    means = sweep.group_by("selector", "rate").agg(pl.col("nll").mean()).sort("rate")
    assert set(lines) == set(lerf)
    for name, line in lines.items():
        nlls = means.filter(selector=name)["nll"].to_list()
        assert line.endswith(f"| {', '.join(f'{nll:.1f}' if nll >= 9.995 else f'{nll:.2f}' for nll in nlls)} |"), name
        share = re.search(r"[\d.]+(?=%)", line)
        assert share is not None
        assert name == "random" or float(share[0]) == float(share_text(lerf[name].share).rstrip("%"))


def test_budgets_and_curves_are_of_the_shipped_scores() -> None:
    for stem in table_names(RESULTS):
        assert read_table(RESULTS, stem).height
    budget = read_table(RESULTS, "budget")
    limit = pl.col("dense_nll") + pl.lit(2.0).log()
    assert budget.filter(pl.col("nll") > limit).is_empty()
    assert budget.filter(pl.col("nll_beyond") <= limit).is_empty()
    removed = read_table(RESULTS, "sweep").filter(pl.col("rate") > 0)["rows_removed"]
    scores = read_scores(RESULTS)
    assert set(scores) == set(budget["selector"])
    assert {values.shape[-1] for values in scores.values()} == {155_520}
    assert removed.max() == round(0.3 * 155_520)
    assert removal_order(scores["fisher"], "morf").size == 155_520


def test_readme_says_which_parts_do_the_harm() -> None:
    text = " ".join((smollm2_dir() / "README.md").read_text("utf-8").split())
    table = read_table(RESULTS, "parts").filter(rate=0.1, order="lerf")
    part = {(row["selector"], row["name"]): row for row in table.rows(named=True)}

    def of(*key: str) -> str:
        return f"{part[key]['restored']:.0%}"

    def error(*key: str) -> str:
        row = part[key]
        return f"{row['stderr_blocks'] / (row['nll'] - row['dense_nll']):.0%}"

    assert f"{of('lrp', 'q_proj')} of the harm of lrp's mask goes" in text
    assert f"(standard error over blocks of text {error('lrp', 'q_proj')}), {of('ig', 'q_proj')} of ig's" in text
    assert (
        f"of ig's ({error('ig', 'q_proj')}). Of ig's mask {part['ig', '18']['rows_removed']} rows of block 18 alone"
        in text
    )
    assert f"do {of('ig', '18')}" in text
    assert f"{of('fisher', 'gate_proj')} is `gate_proj`'s, {of('fisher', 'q_proj')} `q_proj`'s" in text
    blocks = table.filter(selector="fisher", part="block")["restored"]
    assert f"no block's more than {max(blocks):.0%}" in text


def test_readme_says_what_the_verdicts_rest_on() -> None:
    text = " ".join((smollm2_dir() / "README.md").read_text("utf-8").split())
    verdicts = {row["selector"]: row for row in read_table(RESULTS, "verdicts").iter_rows(named=True)}
    by_word = {word: [name for name, row in verdicts.items() if row["validity"] == word] for word in VALIDITY}
    assert by_word["faithful"] == []
    claims = read_table(RESULTS, "protocols_claims")
    surely, perhaps = flip_rate(claims) or (0, 0)
    assert f"**Flip rate: {surely:.0%}** of the pairs that any protocol puts in order, perhaps {perhaps:.0%}." in text
    count = dict(claims["claim_verdict"].value_counts().iter_rows())
    assert f"of {claims.height} pairs of scores {count['unopposed']} stand in one order wherever a protocol" in text
    assert f"{count['overturned']} stand one way under some protocols" in text
    assert by_word["sufficient"] == ["fisher"]
    assert by_word["partly"] == ["ig", "consensus2"]
    assert f"gone it does {verdicts['fisher']['damage']:.0%} of the harm of random rows" in text
    table = read_table(RESULTS, "specific")
    assert set(table["matched_seeds"]) == {5}
    morf = table.filter(order="morf")
    assert f"by {morf['difference'].min():.1f} to {morf['difference'].max():.1f} nats" in text
    assert {row["specific"] for row in verdicts.values()} == {"MoRF only", "not applicable"}
    for name in ("fisher", "lrp"):
        (said,) = re.findall(r"under LeRF at [\d.]+% it does not clearly .*?\((-[\d.]+) ", verdicts[name]["reasons"])
        assert f"{name} by {said[1:]}" in text
    draws = read_table(RESULTS, "draw_sweep").filter(pl.col("order") == "lerf", (pl.col("rate") - 0.03).abs() < 1e-9)
    dense = read_table(RESULTS, "sweep").filter(rate=0.0)["nll"][0]
    for name, between in (("lrp", "between {} and {} nats"), ("fisher", "{} to {}"), ("ig", "{} to {}")):
        losses = (draws.filter(selector=name)["nll"] - dense).to_list()
        assert between.format(*(_short(f"{loss:.2f}") for loss in (min(losses), max(losses)))) in text
    assert [name for name, row in verdicts.items() if row["stability"] == "stable"] == ["wanda"]
    assert [name for name, row in verdicts.items() if row["stability"] == "not"] == ["consensus2", "fisher"]
    for name in ("wanda", "fisher", "consensus2"):
        spearman, jaccard = (_short(f"{verdicts[name][f'draw_{what}']:.3f}") for what in ("spearman", "jaccard"))
        assert re.search(rf"{spearman}(, Jaccard| and) {jaccard}", text), name


def test_readme_says_what_the_model_says() -> None:
    text = (smollm2_dir() / "README.md").read_text("utf-8")
    replies = read_table(RESULTS, "sweep_replies").filter(prompt="What is the capital of France?", order="lerf")
    for rate in (0.03, 0.1):
        (reply,) = replies.filter(pl.col("selector") == "fisher", (pl.col("rate") - rate).abs() < 1e-9)["reply"]
        assert re.search(rf"^\| fisher's lowest {rate:.0%} \| [\d.]+ \| `{re.escape(reply)}` \|$", text, re.MULTILINE)


@pytest.mark.parametrize("model", [smollm2_dir(), gemma_dir()], ids=lambda model: model.name)
def test_readmes_say_what_the_models_can_do(model: Path) -> None:
    """With the lowest 10% of the rows gone, on our own tasks."""
    table = read_table(model / "results", "downstream").filter(order="lerf")
    means = table.group_by("selector", "rate", "task").agg(pl.col("accuracy").mean())
    text = (model / "README.md").read_text("utf-8")
    lines = re.findall(r"^\| ([\w ,]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", text, re.MULTILINE)
    assert len(lines) == 9
    for title, *shares in lines:
        name, rate = ("fisher", 0.0) if title == "as it is" else (title.partition(",")[0], 0.1)
        for task, share in zip(("plain_facts", "arithmetic", "continuation"), shares, strict=True):
            (mean,) = means.filter(pl.col("rate") == rate, selector=name, task=task)["accuracy"]
            assert float(share) == pytest.approx(mean, abs=0.0051), (title, task)


def test_readme_says_what_is_refused_without_fishers_lowest_rows() -> None:
    text = (smollm2_dir() / "README.md").read_text("utf-8")
    effects = json.loads((smollm2_dir() / "effects.json").read_text("utf-8"))["effects"]
    head, perplexities, refused = re.findall(
        r"^\| (?:lowest rows gone|perplexity .*?|refused .*?) \| (.*) \|$", text, re.M
    )
    known = [effects[f"fisher lerf {float(rate.rstrip('%')) / 100:g}"] for rate in head.split(" | ")]
    assert perplexities.split(" | ") == [f"{math.exp(one['nats'][1]):.1f}" for one in known]
    assert refused.split(" | ") == [str(one["shipped"][2]) for one in known]
    assert {tuple(one["shipped"][:2]) for one in known} == {(120, 27)}
    assert f"{len(effects)} of 176 edits" in text


def test_readme_says_what_controls_and_refusal_edits_do() -> None:
    text = " ".join((smollm2_dir() / "README.md").read_text("utf-8").split())
    dense = read_table(RESULTS, "sweep").filter(rate=0.0)["nll"][0]
    table = read_table(RESULTS, "controls").filter(order="lerf").with_columns(cost=pl.col("nll") - dense)
    whole = table.filter(pl.col("size_matched_to").is_null())
    cost = {name: sorted(whole.filter(control=name)["cost"]) for name in set(whole["control"])}
    told = {name: [_short(f"{one:.2f}") for one in found] for name, found in cost.items()}
    assert f"consensus2 costs {told['consensus2'][0]} nats, lrp {told['lrp'][0]}." in text
    low, *_, high, last = told["rank_randomised"]
    assert f"costs {low} to {high} in four of five shuffles, {last} in the fifth" in text
    both, matched = (table.filter(**{key: "intersection"}) for key in ("control", "size_matched_to"))
    rows = both["rows_removed"][0]
    assert f"the {rows:,} rows that both call lowest cost {told['intersection'][0]}, as" in text
    assert f"{matched.filter(control='consensus2')['cost'][0]:.2f}" == f"{both['cost'][0]:.2f}"
    answers = control_answers(read_table(RESULTS, "control_differences"), read_table(RESULTS, "draw_sweep"))
    assert {one.answer for one in answers if one.order == "lerf"} == {"no difference seen"}
    sweep = pl.read_parquet(smollm2_dir() / "refusal_sweep.parquet")
    before, after = (sweep.filter(pl.col("k") == 0), sweep.filter(pl.col("k") > 0))
    asked = after.drop_nulls("malign")
    refused = (asked["malign"] * 16).to_list()
    assert set(before["malign"] * 16) == {5}
    assert set(sweep["malign_n"]) == {16}
    assert f"the {asked.height} of {after.height} edits that keep" in text
    assert f"{min(refused):.0f} to {max(refused):.0f} (`refusal_sweep.parquet`)" in text
    assert (set(after["lambda"]), set(after["k"])) == ({0.2, 0.6}, {0.005, 0.01, 0.02})


def test_readme_says_which_published_claims_hold() -> None:
    text = " ".join((smollm2_dir() / "README.md").read_text("utf-8").split())
    table = read_table(RESULTS, "published_claims")
    assert set(table["answer"]) == {"fails"}
    assert "**Three published claims, measured here on rows, do not hold**" in text
    rows = {(row["selector_a"], row["selector_b"]): row for row in table.iter_rows(named=True)}
    for (a, b), said in {
        ("lrp", "ig"): "With the lowest 30% gone perplexity is {:,.0f} by lrp and {:.1f} by ig, where the paper "
        "printed {published_a:g} and {published_b:g}",
        ("wanda", "magnitude"): "with the lowest 1% gone {:.1f} by wanda and {:.1f} by magnitude",
    }.items():
        row = rows[a, b]
        assert row["rate"] == float(re.findall(r"(\d+)%", said)[0]) / 100
        assert said.format(math.exp(row["value_a"]), math.exp(row["value_b"]), **row) in text
    relp = rows["relp", "grad_x_input"]
    first, second = (_short(f"{relp[name]:.3f}") for name in ("value_a", "value_b"))
    effects = f"by {first} with relp and by {second} with gradient"
    assert f"Of {relp['units_sampled']} rows removed one by one the effects correlate {effects}" in text


def _short(number: str) -> str:
    """Without the zero before the point, as the README has it."""
    return number.removeprefix("0")


@pytest.mark.long
def test_the_weights_are_those_of_the_package() -> None:
    loaded = load_model("smollm2", device="cpu")
    assert read_manifest(RESULTS)["model"]["weights_hash"] == loaded.weights_hash
