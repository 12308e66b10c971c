"""The shipped audit of Gemma-3-270m: its tables hold together, and its README says what they hold."""

import math
import re

import polars as pl
import pytest

from dashboard.state import shipped_models as shipped
from engine.records.manifest import read_manifest
from engine.results.folders import read_table, table_names
from engine.run.scoring import read_scores
from engine.studies.estimate_words import removal_budgets, share_text
from engine.studies.protocols.protocol_claims import flip_rate
from precomputed import gemma_dir

RESULTS = gemma_dir() / "results"
FIRST = ("fisher", "ig", "consensus2", "lrp", "wanda", "mean_activation")
TEXT = (gemma_dir() / "README.md").read_text("utf-8")


def test_tables_are_whole_and_of_one_run() -> None:
    named = set(read_manifest(RESULTS)["files"])
    assert named == {path.name for path in RESULTS.iterdir()} - {"manifest.json"}
    assert {read_table(RESULTS, stem)["model"].n_unique() for stem in table_names(RESULTS) if stem != "rows"} == {1}
    budget = read_table(RESULTS, "budget")
    assert budget.filter(pl.col("nll") > pl.col("dense_nll") + pl.lit(2.0).log()).is_empty()


def test_readme_says_what_the_tables_hold() -> None:
    lines = re.findall(r"^\| (\w+)[^|]*\| \*{0,2}([\d.]+)%[^|]*\|[^|]*\| ([^|]+) \| (\w+) \|$", TEXT, re.MULTILINE)
    lerf = removal_budgets(read_table(RESULTS, "budget"), "lerf")
    assert [name for name, *_ in lines] == list(lerf)
    sweep = read_table(RESULTS, "sweep").filter(pl.col("order") == "lerf", pl.col("rate") >= 0.01)
    means = sweep.group_by("selector", "rate").agg(pl.col("nll").mean()).sort("rate")
    verdicts = dict(read_table(RESULTS, "verdicts").select("selector", "validity").iter_rows())
    for name, share, nlls, word in lines:
        assert float(share) == float(share_text(lerf[name].share).rstrip("%")), name
        found = means.filter(selector=name)["nll"].to_list()
        assert nlls == ", ".join(f"{nll:.1f}" if nll >= 9.995 else f"{nll:.2f}" for nll in found), name
        assert word == verdicts[name]
    damage = dict(read_table(RESULTS, "verdicts").select("selector", "damage").iter_rows())
    assert f"fisher does {damage['fisher']:.0%} of the harm of\n  random rows, ig {damage['ig']:.0%}" in TEXT


def test_readme_says_what_is_told_apart() -> None:
    told = read_table(RESULTS, "specific").filter(pl.col("answer") == "better")
    assert set(told["order"]) == {"morf"}
    assert set(told["selector"]) == {"magnitude", "mean_activation", "lrp", "ig", "consensus2", "fisher"}
    rho = {frozenset(pair): value for *pair, value in read_table(RESULTS, "spearman").drop("model").iter_rows()}
    for one, other, said in (("wanda", "lrp", -0.52), ("lrp", "mean_activation", -0.47), ("fisher", "ig", 0.77)):
        assert rho[frozenset((one, other))] == pytest.approx(said, abs=0.005)
    drawn = read_table(RESULTS, "verdicts").select("selector", "stability", "draw_jaccard").drop_nulls().rows()
    assert {name for name, word, _ in drawn if word == "stable"} == {"wanda", "mean_activation", "lrp"}
    assert {name for name, word, _ in drawn if word == "not"} == {"fisher", "consensus2"}
    assert all(f"{jaccard:.3f}".lstrip("0") in TEXT for *_, jaccard in drawn)


def test_readme_says_what_parts_and_controls_cost() -> None:
    parts = read_table(RESULTS, "parts").filter(part="projection").select("selector", "name", "restored")
    share = {f"{selector} {name}": f"{value:.0%}" for selector, name, value in parts.iter_rows()}
    told = "ig gate_proj", "ig q_proj", "fisher gate_proj", "fisher q_proj", "lrp q_proj", "lrp down_proj"
    words = TEXT.partition("lowest 10% gone, ")[2].partition("- **Two ranks")[0]
    assert re.findall(r"\d+%", words) == [share[pair] for pair in told]
    nll = read_table(RESULTS, "controls").filter(order="lerf", rows_removed=3732)
    nats = nll.with_columns(pl.col("nll") - read_table(RESULTS, "parts")["dense_nll"][0]).group_by("control")
    ends = nats.agg(low=pl.min("nll"), high=pl.max("nll")).iter_rows()
    cost = {name: [f"{end:.2f}".replace("0.", ".") for end in both] for name, *both in ends}
    one = {name: cost[name][0] for name in ("consensus2", "ig", "lrp")}
    told = f"consensus2 costs {one['consensus2']} nats, ig {one['ig']}, lrp {one['lrp']}. With the ranks under ig "
    assert f"{told}shuffled it costs {' to '.join(cost['rank_randomised'])}." in " ".join(TEXT.split())


def test_readme_says_what_the_model_says() -> None:
    replies = read_table(RESULTS, "sweep_replies").filter(prompt="What is the capital of France?")
    sweep = read_table(RESULTS, "sweep")
    lines = re.findall(r"^\| (none|(\w+)'s (lowest|highest) ([\d.]+)%) \| (.+) \| `(.+)` \|$", TEXT, re.MULTILINE)
    assert len(lines) == 10
    for _, name, end, share, perplexity, begins in lines:
        order = {"selector": name or "fisher", "order": "morf" if end == "highest" else "lerf"}
        near = (pl.col("rate") - float(share or 0) / 100).abs() < 1e-9
        assert f"{math.exp(sweep.filter(near, **order)['nll'][0]):.3g}" == perplexity
        assert replies.filter(near, **order)["reply"][0].strip().startswith(begins)


def test_readme_says_what_hangs_on_the_protocol() -> None:
    claims, text = read_table(RESULTS, "protocols_claims"), " ".join(TEXT.split())
    surely, perhaps = (f"{rate:.0%}" for rate in flip_rate(claims) or (-1, -1))
    assert f"**Flip rate: {surely}** of the pairs that any protocol puts in order, perhaps {perhaps}." in text
    count = dict(claims["claim_verdict"].value_counts().iter_rows())
    told = f"of {claims.height} pairs of scores {count['unopposed']} .* {count['contested']} perhaps .* for "
    assert re.search(f"{told}{count['undecided']} no protocol", text)


def test_scores_are_there_for_every_selector() -> None:
    scores = read_scores(RESULTS)
    assert scores.pop("random").shape == (1, 124_416)
    assert {name: values.shape for name, values in scores.items()} == dict.fromkeys([*FIRST, "magnitude"], (124_416,))


def test_it_is_among_what_pages_offer() -> None:
    assert shipped.folders()["Gemma-3-270m"] == RESULTS
    assert shipped.model_of(RESULTS) == "gemma3-270m"
    assert "gemma3-270m" not in shipped.models()
