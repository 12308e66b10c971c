"""Orders of selectors over several models: tests against scipy and by hand, level on noise, and the command."""

import itertools
import json
import math

import numpy as np
import polars as pl
import pytest
from scipy import stats

from engine.cli import main
from engine.records.errors import InputError
from engine.records.files import write_parquet
from engine.records.manifest import add_to_manifest
from engine.records.shipped import paper_runs_dir
from engine.results.tables import frame
from engine.studies.replication import FRIEDMAN, KENDALL, concordance, least_p, replication, sign_tests

SELECTORS = ("ig", "lrp", "magnitude", "random", "wanda")


@pytest.mark.long
@pytest.mark.parametrize(("models", "selectors"), [(2, 6), (3, 7), (6, 5)])
def test_orders_that_have_nothing_in_common_pass_at_the_nominal_level(models, selectors):
    generator, runs = np.random.default_rng(4), 1500
    found = [concordance(generator.normal(size=(models, selectors))).p <= 0.05 for _ in range(runs)]
    assert 0 < np.mean(found) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / runs)


def test_tau_of_two_models_by_counting():
    """Exact p: the share of all orders of the second model that agree as well with the first."""
    first, second = [1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 3.0, 2.0, 5.0, 4.0]

    def agreeing(values):
        pairs = itertools.combinations(range(5), 2)
        return sum((first[i] < first[j]) == (values[i] < values[j]) for i, j in pairs)

    every = [agreeing(values) for values in itertools.permutations(second)]
    found = concordance(np.array([first, second]))
    assert found.test == KENDALL
    assert found.value == pytest.approx((2 * agreeing(second) - 10) / 10)
    assert found.p == pytest.approx(np.mean([one >= agreeing(second) for one in every]))


def test_w_of_several_models_by_hand():
    values = np.array([[1.0, 2, 3, 4], [1, 2, 4, 3], [2, 1, 3, 4]])
    found = concordance(values)
    sums = np.array([stats.rankdata(row) for row in values]).sum(axis=0)
    assert found.test == FRIEDMAN
    assert found.value == pytest.approx(12 * ((sums - sums.mean()) ** 2).sum() / (9 * (64 - 4)))
    assert concordance(np.tile([1.0, 2, 3], (4, 1))).value == pytest.approx(1)
    assert concordance(np.ones((3, 4))) is None
    assert concordance(np.ones((3, 2))) is None
    assert concordance(np.array([[1.0, 2, 3], [1, 1, 1]])) is None


def test_signs_by_hand():
    values = np.array([[1.0, 2.0]] * 6 + [[2.0, 2.0]])
    (one,) = sign_tests(values)
    assert (one.before, one.after) == (6, 0)
    assert one.p == one.p_holm == pytest.approx(2 * 0.5**6)
    assert least_p(6) == pytest.approx(one.p)
    assert sign_tests(np.ones((3, 2)))[0].p == 1.0
    for wrong in (np.ones((1, 3)), np.full((2, 2), math.nan)):
        with pytest.raises(InputError, match="at least 2 models"):
            sign_tests(wrong)


def run(folder, model, nll, weights="0" * 64):
    """A sweep at one rate: selector -> NLL under LeRF; MoRF is the mirror image. Random has two seeds."""
    lines = [
        {"model": model, "selector": name, "seed": seed, "order": order, "rate": 0.3, "rows_removed": 3,
         "nll": (value if order == "lerf" else 20 - value) + (shift or 0), "nll_stderr": 0.1, "tokens": 9,
         "perplexity": 1.0}
        for name, value in nll.items()
        for seed, shift in (((42, -0.1), (43, 0.1)) if name == "random" else ((None, 0),))
        for order in ("lerf", "morf")
    ]  # fmt: skip
    folder.mkdir()
    write_parquet(folder / "sweep.parquet", frame("sweep", lines))
    add_to_manifest(folder, {"id": model, "weights_hash": weights, "dtype": "float32"}, "sweep.parquet", {}, 0.0)
    return folder


@pytest.fixture
def folders(tmp_path):
    """Seven models with the same order, but for one pair that is the other way round on one of them."""
    made = []
    for number in range(7):
        values = {name: 2.0 + place + 0.01 * number for place, name in enumerate(SELECTORS)}
        if number == 0:
            values["ig"], values["lrp"] = values["lrp"], values["ig"]
        made.append(run(tmp_path / f"run{number}", f"model-{number}", values, weights=str(number) * 64))
    return made


def test_runs_of_several_models(folders):
    found = replication(folders, 0.3)
    assert found.orders["order"].to_list() == ["lerf", "morf"]
    assert found.orders["test"].to_list() == [FRIEDMAN, FRIEDMAN]
    assert (found.orders["p"] < 1e-4).all()
    turned = found.pairs.filter(selector_a="ig", selector_b="lrp")
    assert turned.select("before", "after").rows() == [(6, 1), (6, 1)]
    others = found.pairs.filter(~((pl.col("selector_a") == "ig") & (pl.col("selector_b") == "lrp")))
    assert others["before"].to_list() == [7] * others.height
    assert others["p"].to_list() == pytest.approx([2**-6] * others.height)
    assert "9 of 10 pairs" in found.sentences[0]
    assert "none can" in found.sentences[0]  # ten pairs of seven models


def test_the_command_says_whether_the_order_replicates(folders, capsys):
    assert main(["compare", *map(str, folders[1:3])]) == 0
    said = capsys.readouterr().out
    assert "LeRF at 30%: Kendall's tau 1.00 over 2 models, p 0.0083: the order replicates beyond chance" in said
    assert main(["compare", "--json", *map(str, folders)]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["rate"] == 0.3
    assert len(answer["pairs"]) == 20


def test_what_cannot_be_compared(folders, tmp_path, capsys):
    assert main(["compare", str(folders[0]), str(folders[0])]) == 2
    assert "at least 2 different results folders" in capsys.readouterr().err
    assert main(["compare", str(folders[0]), str(folders[1]), "--rate", "20%"]) == 2
    assert "has no rate 0.2" in capsys.readouterr().err
    assert main(["compare", str(folders[0]), str(folders[1]), "--paper-model", "Qwen3-8B"]) == 2
    assert "--paper-model is for one run" in capsys.readouterr().err
    assert main(["compare", str(folders[0]), "--rate", "0.3"]) == 2
    assert "--rate is for several runs" in capsys.readouterr().err
    other = run(tmp_path / "other", "other", {"mine": 2.0, "yours": 3.0})
    with pytest.raises(InputError, match="share no two selectors"):
        replication([folders[0], other], 0.3)


def test_the_published_models(capsys):
    published = [paper_runs_dir() / name for name in ("Llama-3.1-8B", "Llama-3.2-1B", "Qwen3-8B")]
    found = replication(published, 0.3)
    assert len(found.selectors) == 7
    assert found.orders["models"].to_list() == [3, 3]
    assert all(0 <= value <= 1 for value in found.orders["value"])
