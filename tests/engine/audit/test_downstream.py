"""Downstream accuracies of every selector and rate: tables, means, what is near chance, resuming."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import scipy.stats
from tiny_audits import downstream, lowest, tiny_audit

from engine.interventions.in_weights import zeroed
from engine.measures.harness import Harness, downstream_tasks
from engine.models.loading import LoadedModel
from engine.results.store import Store
from engine.results.tables import spec
from engine.studies.audit.audit_inputs import AuditInputs
from engine.studies.estimate_words import chance_sentence, downstream_mean, near_chance, pairs_sentence

SELECTORS = ("random", "magnitude", "grad_x_input")
RATES = (0.4, 0.0, 0.2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tasks of our own, 20 items each."""
    place = tmp_path_factory.mktemp("tasks")
    names = ["cat", "dog", "mat", "door", "then"]
    choices, contexts = [], []
    for n in range(20):
        first, second, third = (names[(n + k) % 5] for k in range(3))
        choices.append({"query": f"the {first} sat", "choices": [second, f"on {third}", "in"], "gold": n * 7 % 3})
        options = [f"{n} {first}", f"{n} {third}"]
        contexts.append({"context_options": options, "continuation": second, "gold": n * 3 % 2})
    for name, lines in (("hellaswag", choices), ("winogrande", contexts)):
        (place / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return place


def audit_of(loaded: LoadedModel, text: Path, folder: Path, store: Store, **more: Any) -> AuditInputs:
    return tiny_audit(
        loaded, text, store, scoring={"selectors": SELECTORS, "seeds": (7, 8), "batch_size": 6}, downstream_rates=RATES,
        downstream_tasks=str(folder), downstream_items=15, **more,
    )  # fmt: skip


def test_every_selector_seed_rate_and_task(
    tiny_llama: LoadedModel, tiny_text: Path, folder: Path, tmp_path: Path
) -> None:
    progress: list[tuple[str, int, int]] = []
    with Store(tmp_path) as store:
        audit = audit_of(tiny_llama, tiny_text, folder, store, progress=lambda *step: progress.append(step))
        tables = downstream(audit)
        scores = {name: np.atleast_2d(values).tolist() for name, values in audit.scores.items()}
    table, tasks = tables["downstream"], tables["downstream_tasks"]
    assert dict(table.schema) == spec("downstream").schema()
    assert dict(tasks.schema) == spec("downstream_tasks").schema()
    keys = ["selector", "seed", "rate", "task"]
    assert table.select(keys).rows() == [
        (selector, seed, rate, task)
        for selector, seeds in (("random", (7, 8)), ("magnitude", (None,)), ("grad_x_input", (None,)))
        for seed in seeds
        for rate in sorted(RATES)
        for task in ("hellaswag", "winogrande")
    ]
    distinct = 2 * (1 + 2 * 4)  # tasks x (the unedited model, and two rates of four rankings)
    assert progress[-1] == ("cells", distinct, distinct)

    harness, right = Harness(tiny_llama), {}
    by_name = {task.name: task for task in downstream_tasks(str(folder), 15)}
    for line in table.iter_rows(named=True):
        ranking = scores[line["selector"]][1 if line["seed"] == 8 else 0]
        mask = lowest(ranking, round(line["rate"] * len(ranking)))
        with zeroed(tiny_llama, mask):
            correct = harness.scores(by_name[line["task"]].task, 6).values
        if line["rate"] == 0.4:
            right[line["selector"], line["seed"], line["task"]] = correct
        assert (line["model"], line["order"]) == (tiny_llama.id, "lerf")
        assert line["rows_removed"] == len(mask)
        assert line["items"] == len(correct) == 15
        assert line["accuracy"] == sum(correct) / 15
        assert line["stderr"] == pytest.approx(np.std(correct, ddof=1) / math.sqrt(15))
        assert line["chance"] == {"hellaswag": 1 / 3, "winogrande": 1 / 2}[line["task"]]
    pairs = tables["downstream_pairs"]
    assert dict(pairs.schema) == spec("downstream_pairs").schema()
    assert pairs.height == 2 * 3 * 5  # rates without 0; each task and all; pairs of four masks without random's seeds
    for line in pairs.filter(task="all", rate=0.4).iter_rows(named=True):
        a, b = ([right[line[f"selector_{side}"], line[f"seed_{side}"], task] for task in by_name] for side in "ab")
        only = [
            sum(x > y for x, y in zip(np.ravel(one), np.ravel(other), strict=True)) for one, other in ((a, b), (b, a))
        ]
        assert [line["only_a"], line["only_b"], line["items"]] == [*only, 30]
        assert line["p"] == pytest.approx(scipy.stats.binomtest(only[0], sum(only), 0.5).pvalue if sum(only) else 1)
        assert line["difference"] == pytest.approx((only[0] - only[1]) / 30)
    assert (pairs["p_holm"] >= pairs["p"]).all()
    whole = table.filter(rate=0)
    assert whole.group_by("task").agg(pl.col("accuracy").n_unique())["accuracy"].to_list() == [1, 1]
    assert table["accuracy"].n_unique() > 2

    assert tasks["task"].to_list() == ["hellaswag", "winogrande"]
    assert tasks["source"].to_list() == ["hellaswag.jsonl", "winogrande.jsonl"]
    assert tasks["batch_size"].to_list() == [6, 6]
    assert tasks["requests_cut"].to_list() == [0, 0]
    assert set(tasks["metric"]) == {"acc"}


def frame(*lines: tuple[Any, ...]) -> pl.DataFrame:
    rows = [("m", sel, seed, "lerf", rate, 9, *rest) for sel, seed, rate, *rest in lines]
    return pl.DataFrame(rows, schema=spec("downstream").schema(), orient="row")


def test_the_sentence_of_pairs_counts_what_is_told_at_the_nearest_rate() -> None:
    lines = [
        ("m", rate, "all", "lrp", None, name, None, 100, b, 0, b / 100, 0.0, 0.5, p, p, least)
        for rate, name, b, p, least in (
            (0.3, "ig", 9, 0.004, 0.06), (0.3, "wanda", 4, 0.125, 0.08), (0.3, "random", 1, 1.0, None),
            (0.5, "ig", 1, 1.0, 0.9),
        )
    ]  # fmt: skip
    pairs = pl.DataFrame(lines, schema=spec("downstream_pairs").schema(), orient="row")
    assert pairs_sentence(pairs, "all", 0.33) == (
        "Item by item at 30%, 1 of 3 pairs of masks are told apart by McNemar's exact test after Holm; of the others a "
        "difference of 8% would have been told, and none where too few items are answered otherwise (1 of them)."
    )
    assert pairs_sentence(pairs, "piqa", 0.3) == ""


def test_mean_over_tasks_by_hand() -> None:
    table = frame(
        ("lrp", None, 0.1, "a", 100, 0.5, 0.03, 0.25),
        ("lrp", None, 0.1, "b", 50, 0.8, 0.04, 0.5),
        ("random", 42, 0.1, "a", 100, 0.2, 0.04, 0.25),
        ("random", 43, 0.1, "a", 1, 1.0, None, 0.25),
    )
    mean = downstream_mean(table)
    assert mean.select("selector", "seed", "tasks").rows() == [("lrp", None, 2), ("random", 42, 1), ("random", 43, 1)]
    np.testing.assert_allclose(mean["accuracy"], [0.65, 0.2, 1.0])
    np.testing.assert_allclose(mean["chance"], [0.375, 0.25, 0.25])
    assert mean["stderr"].to_list() == [pytest.approx(0.025), pytest.approx(0.04), None]


def test_near_chance_against_the_binomial_test() -> None:
    """Two standard errors are a one-sided level of 2.3%; counts right at it are left out."""
    lines = []
    for right in range(0, 101):
        p = right / 100
        lines.append(("lrp", None, 0.1, str(right), 100, p, math.sqrt(p * (1 - p) / 99), 0.25))
    marked = near_chance(frame(*lines))
    for line in marked.iter_rows(named=True):
        right = int(line["task"])
        level = scipy.stats.binomtest(right, 100, 0.25, alternative="greater").pvalue
        if not 0.008 < level < 0.06:
            assert line["near_chance"] == (level > 0.03), right
    assert marked.filter("near_chance").height == 35  # 0 to 34 right


def test_the_sentence_names_the_tasks_that_can_show_a_loss() -> None:
    table = pl.DataFrame(
        {"task": ["a", "b", "a"], "rate": [0.0, 0.0, 0.3], "accuracy": [0.5, 0.9, 0.9],
         "stderr": [0.05, 0.05, 0.05], "chance": [0.5, 0.5, 0.5]}
    )  # fmt: skip
    assert chance_sentence(table).endswith("on 1 of 2 tasks; only b can show a loss.")
    assert "says nothing" in chance_sentence(table.filter(task="a"))
    assert "all 1 tasks" in chance_sentence(table.filter(task="b"))
    assert chance_sentence(table.filter(pl.col("rate") > 0)) == ""
