"""The recorded properties of both training seeds: whose they are, and that what they miss is known and said."""

import json

import polars as pl
import pytest

from engine.models.loading import load_model
from precomputed import demo_dir
from precomputed.recipe import required, seeds
from precomputed.recipe.check import checked

RECORDS = {record["seed"]: record for record in json.loads((demo_dir() / "seeds.json").read_text(encoding="utf-8"))}
SHIPPED = RECORDS[seeds.SHIPPED]
# What the recipe does not reach; the demo's README says each. Whatever else is missed is a fault of a later change.
MISSED = {("right of each", 1), ("right of each", 2), ("spared", 1)}


def test_the_shipped_record_is_of_the_shipped_weights():
    assert SHIPPED["weights_hash"] == load_model("demo", dtype="float32", device="cpu").weights_hash
    assert set(RECORDS) == {seeds.SHIPPED, seeds.SECOND}
    assert len({record["weights_hash"] for record in RECORDS.values()}) == 2


def test_the_seeds_meet_the_requirements_but_for_those_known_to_be_missed():
    assert required.unmet(demo_dir()) == MISSED


def test_the_readme_says_what_is_missed():
    text = required.text(demo_dir())
    assert text in (demo_dir() / "README.md").read_text(encoding="utf-8")
    assert text.count("not met") == len(MISSED)


def test_a_requirement_that_is_missed_is_seen(tmp_path):
    """Worse records and tables than the shipped ones fail each requirement."""
    worse = json.loads(json.dumps(SHIPPED))
    worse["replies"] |= {"right": dict.fromkeys(worse["replies"]["right"], 0.79), "broken": {"thhe": 1}}
    for order in worse["nll"].values():
        for rate in order.values():
            rate.update(dict.fromkeys(rate, worse["dense_nll"]))
    for number, row in enumerate(worse["refusal"]):
        row |= {"unedited_malign": 0.1 * number, "edited_malign": 0.0, "control_malign_max": 0.5}
        row |= {"unedited_benign": 0.06, "edited_benign": 0.11, "perplexity_factor": 1.6}
    seeds.write(tmp_path / "seeds.json", [worse])
    results = tmp_path / "results"
    results.mkdir()
    pl.DataFrame({"domain": ["hate"] * 2, "benign": [0.0, 0.29]}).write_parquet(results / "refusal_sweep.parquet")
    tasks = {"task": ["facts"] * 2, "rate": [0.0, 0.5], "selector": ["random"] * 2, "order": ["lerf"] * 2}
    pl.DataFrame({**tasks, "accuracy": [0.9, 0.9]}).write_parquet(results / "downstream.parquet")
    assert required.unmet(tmp_path) == {(one.id, seeds.SHIPPED) for one in required.requirements()}


@pytest.mark.long
def test_the_shipped_model_says_what_was_recorded():
    """Again from the shipped weights; another machine's last bits may turn a reply or two."""
    again, recorded = checked(load_model("demo", dtype="float32", device="cpu")), SHIPPED["replies"]
    assert (again["replies"], again["broken"]) == (recorded["replies"], {})
    assert again["asked"] == recorded["asked"]
    assert again["right"] == pytest.approx(recorded["right"], abs=0.02)
    for domain, grades in recorded["refused"].items():
        assert again["refused"][domain] == pytest.approx(grades, abs=0.07)
