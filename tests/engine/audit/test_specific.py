"""Specific: tables against means by hand, and verdicts on a planted problem in which rows or only depths are known."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import scipy.stats
import torch
from tiny_audits import controls, lowest, nll_of, specific, tiny_audit, verdicts

from engine.edits.control_edits import layer_matched
from engine.edits.edit import Edit, edit_of
from engine.measures.nll import NegativeLogLikelihood
from engine.models.loading import LoadedModel
from engine.models.row_index import RowIndex
from engine.results.store import Store
from engine.results.tables import spec
from engine.run import runner
from engine.selectors import ScoringRun, register_selector
from engine.selectors.base import REGISTRY
from engine.stats.limits import largest_unsaturated
from engine.studies.audit.controls import SATURATION

SEEDS = tuple(range(42, 52))


def within_layers(rows: RowIndex, values: np.ndarray, seed: int) -> np.ndarray:
    """The values shuffled within every (block, projection): depths stay, rows are forgotten."""
    generator = np.random.default_rng(seed)
    parts = [generator.permutation(values[layer.start : layer.start + layer.rows]) for layer in rows.layers]
    return np.concatenate(parts)


def importance(rows: RowIndex) -> np.ndarray:
    """The planted truth: what removing a row costs. Layers differ widely, rows within a layer as well."""
    generator = np.random.default_rng(5)
    scales = generator.lognormal(0, 1, len(rows.layers)).tolist()
    of_layer = np.concatenate([np.full(one.rows, scale) for one, scale in zip(rows.layers, scales, strict=True)])
    return of_layer * generator.lognormal(0, 1, rows.n_rows)


@pytest.fixture
def planted(tiny_llama: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, ...]]:
    """Three selectors, and a model whose loss is 2 nats + 8 times the share of importance that was removed."""
    costs = importance(tiny_llama.rows)
    noise = np.random.default_rng(6).normal(0, 0.02, 64)

    def loss(edit: Edit) -> NegativeLogLikelihood:
        removed = edit.units
        own = np.random.default_rng(int(removed.sum()) + removed.size).normal(0, 0.01, 64)
        nll = 2 + 8 * costs[removed].sum() / costs.sum() + noise + own
        return NegativeLogLikelihood(tuple((nll * 15).tolist()), (15,) * 64)

    monkeypatch.setattr(runner, "measured", lambda loaded, measure, edits: [loss(edit) for edit in edits])

    def selector(name: str, values: np.ndarray) -> None:
        class Planted:
            """A ranking that is given."""

            def score(self, run: ScoringRun) -> torch.Tensor:
                return torch.from_numpy(values).float()

        register_selector(name, data_free=True)(Planted)

    names = ("truth", "depths_only", "depths_again")
    selector("truth", costs)
    selector("depths_only", within_layers(tiny_llama.rows, costs, seed=1))
    selector("depths_again", within_layers(tiny_llama.rows, costs, seed=2))
    yield names
    for name in names:
        REGISTRY.remove(name)


@pytest.mark.long
def test_a_selector_that_knows_only_its_depths_is_not_called_faithful(
    tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path, planted: tuple[str, ...]
) -> None:
    """Both pass gap and damage, which is all that verdicts went by before."""
    with Store(tmp_path) as store:
        audit = tiny_audit(
            tiny_llama, tiny_text, store, scoring={"selectors": ("random", *planted)}, gap_rates=(0.1, 0.3)
        )
        table = verdicts(audit)["verdicts"]
        found = {row["selector"]: row for row in table.iter_rows(named=True)}
        assert all(found[name]["damage"] < 0.5 and found[name]["log_gap"] > 1 for name in planted)
        assert (found["truth"]["validity"], found["truth"]["specific"]) == ("faithful", "specific")
        for name in planted[1:]:
            assert (found[name]["validity"], found[name]["specific"]) == ("sufficient", "not")
            assert "sufficient but not specific" in found[name]["reasons"].lower()
        lines = {(row["selector"], row["order"]): row for row in specific(audit)["specific"].iter_rows(named=True)}
        assert lines["truth", "lerf"]["depth_share_high"] < 1
        for name in planted[1:]:
            assert 0.85 < lines[name, "lerf"]["depth_share"] < 1.15


@pytest.mark.long
def test_shuffled_scores_are_called_specific_at_the_level(
    tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path, planted: tuple[str, ...]
) -> None:
    """Forty shuffles at once: before Holm about 5% of them are told apart from their depths, after it none."""
    costs = importance(tiny_llama.rows)
    names = [f"shuffle{number}" for number in range(40)]
    for number, name in enumerate(names):

        class Shuffled:
            """Depths only."""

            values = within_layers(tiny_llama.rows, costs, seed=100 + number)

            def score(self, run: ScoringRun) -> torch.Tensor:
                return torch.from_numpy(self.values).float()

        register_selector(name, data_free=True)(Shuffled)
    try:
        with Store(tmp_path) as store:
            audit = tiny_audit(tiny_llama, tiny_text, store, scoring={"selectors": ("random", *names)})
            table = specific(audit)["specific"]
    finally:
        for name in names:
            REGISTRY.remove(name)
    assert table.height == 80
    assert table.filter(p=0.0).is_empty()
    # shuffles share their depths and so their controls: their tests are not independent, hence the wide limit
    assert (table["p"] < 0.05).mean() <= 0.15
    assert set(table["answer"]) == {"no difference seen"}


def test_tables_are_means_over_masks_by_hand(tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path) -> None:
    @register_selector("two_seeds", seeded=True, data_free=True)
    class TwoSeeds:
        """A seeded plug-in: a ranking per seed."""

        def score(self, run: ScoringRun) -> torch.Tensor:
            draws = [torch.rand(run.rows.n_rows, generator=torch.Generator().manual_seed(s + 900)) for s in run.seeds]
            return torch.stack(draws)

    try:
        with Store(tmp_path) as store:
            scoring: dict[str, Any] = {"selectors": ("random", "magnitude", "two_seeds"), "seeds": (3, 4)}
            audit = tiny_audit(tiny_llama, tiny_text, store, scoring=scoring, specific_rates=(0.2,))
            tables = specific(audit)
            masks, table = tables["layer_matched"], tables["specific"]
            assert dict(masks.schema) == spec("layer_matched").schema()
            assert dict(table.schema) == spec("specific").schema(SATURATION)
            assert table.select("selector", "order").rows() == [
                (name, order) for order in ("lerf", "morf") for name in ("magnitude", "two_seeds")
            ]
            assert masks.height == 2 * 10 + 2 * 2 * 10
            rows, scores = tiny_llama.rows, np.atleast_2d(audit.scores["magnitude"])[0]
            mask = lowest(scores.tolist(), round(0.2 * rows.n_rows))
            drawn = []
            for seed in SEEDS:
                generator = np.random.default_rng(seed)
                picks: list[int] = []
                for layer in rows.layers:
                    count = sum(layer.start <= row < layer.start + layer.rows for row in mask)
                    chosen = generator.choice(layer.rows, size=count, replace=False)
                    picks += (layer.start + chosen).tolist()
                drawn.append(nll_of(audit, sorted(picks)).nats_per_token)
            own = nll_of(audit, mask).nats_per_token
            here = masks.filter(selector="magnitude", order="lerf")
            assert here["control_seed"].to_list() == list(SEEDS)
            assert here["nll"].to_list() == pytest.approx(drawn, rel=1e-12)
            assert here["difference"].to_list() == pytest.approx([own - one for one in drawn], abs=1e-12)
            line = table.filter(selector="magnitude", order="lerf").row(0, named=True)
            assert line["difference"] == pytest.approx(own - np.mean(drawn), abs=1e-12)
            chance = []
            for seed in range(42, 52):
                values = torch.rand(rows.n_rows, generator=torch.Generator().manual_seed(seed))
                chance.append(nll_of(audit, lowest(values.tolist(), len(mask))).nats_per_token)
            assert line["advantage"] == pytest.approx(np.mean(chance) - own, abs=1e-12)
            assert line["control_advantage"] == pytest.approx(np.mean(chance) - np.mean(drawn), abs=1e-12)
            both = masks.filter(selector="two_seeds", order="morf")
            assert set(both["seed"]) == {3, 4}
            seeded = table.filter(selector="two_seeds", order="morf").row(0, named=True)
            assert seeded["difference"] == pytest.approx(both["difference"].mean(), abs=1e-12)
    finally:
        REGISTRY.remove("two_seeds")


@pytest.mark.parametrize("steepness", [5.0, *(pytest.param(one, marks=pytest.mark.long) for one in (2.0, 400.0))])
def test_it_compares_at_the_largest_rate_at_which_controls_are_not_destroyed(
    tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path, planted: tuple[str, ...], monkeypatch: pytest.MonkeyPatch,
    steepness: float,
) -> None:  # fmt: skip
    """Against every rate of the grid by hand; ln 300 is the loss of uniform predictions of this model."""
    costs, uniform = importance(tiny_llama.rows), np.log(300)

    def loss(edit: Edit) -> NegativeLogLikelihood:
        share = steepness * costs[edit.units].sum() / costs.sum()
        noise = np.random.default_rng(int(edit.units.sum()) + edit.size).normal(0, 0.01, 64)
        return NegativeLogLikelihood(tuple((2 + (uniform - 2) * min(share, 1.2) + noise).tolist()), (1,) * 64)

    monkeypatch.setattr(runner, "measured", lambda loaded, measure, edits: [loss(edit) for edit in edits])
    rates = (0.01, 0.02, 0.05, 0.1, 0.3)
    with Store(tmp_path) as store:
        scoring = {"selectors": ("random", "truth", "depths_only")}
        audit = tiny_audit(tiny_llama, tiny_text, store, scoring=scoring, specific_rates=rates)
        tables = specific(audit)
        verdict = {row["selector"]: row for row in verdicts(audit)["verdicts"].iter_rows(named=True)}
    dense = loss(edit_of([], tiny_llama.rows.n_rows)).nats_per_token
    limit = dense + (uniform - dense) / 2
    for line in tables["specific"].iter_rows(named=True):
        ranking = audit.ranking(line["selector"])
        means = {}
        for rate in rates:
            drawn = [layer_matched(ranking.edit(line["order"], rate).units, tiny_llama.rows, seed) for seed in SEEDS]
            means[rate] = np.mean([loss(edit_of(one, tiny_llama.rows.n_rows)).nats_per_token for one in drawn])
        unsaturated = [rate for rate, mean in means.items() if mean <= limit]
        assert line["saturated_above"] == pytest.approx(limit)
        assert line["rate"] == (max(unsaturated) if unsaturated else min(rates))
        assert line["control_nll"] == pytest.approx(means[line["rate"]])
        assert (line["answer"] == "saturated") == (not unsaturated)
        assert (line["p_holm"] is None) == (not unsaturated)
        tested = tables["specific"].filter(order=line["order"]).drop_nulls("p_holm").height
        if unsaturated and tested:
            t = scipy.stats.t.isf(0.025 / tested, line["degrees"])
            assert line["detectable"] == pytest.approx(t * line["stderr"])
    assert {2.0: "specific", 5.0: "specific", 400.0: "saturated"}[steepness] == verdict["truth"]["specific"]
    assert verdict["truth"]["validity"] != "faithful" or steepness != 400.0


def test_masks_are_doubled_until_a_difference_is_narrow_enough_or_told(
    tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path, planted: tuple[str, ...]
) -> None:
    """Against the numbers from the table of masks by hand; a run that goes on measures nothing twice."""
    with Store(tmp_path) as store:
        scoring, rates = {"selectors": ("random", *planted)}, (0.1,)
        plain = specific(tiny_audit(tiny_llama, tiny_text, store, scoring=scoring, specific_rates=rates))
        before = len(store)
        limits = {"specific_rates": rates, "specific_most": 35}
        wide, narrow = (
            specific(tiny_audit(tiny_llama, tiny_text, store, scoring=scoring, specific_until=width, **limits))
            for width in (9.0, 1e-9)
        )
        masks = narrow["layer_matched"]
        assert len(store) - before == 25 * narrow["specific"].filter(selector="depths_only", matched_seeds=35).height
    assert set(wide["specific"]["matched_seeds"]) == {10}
    assert set(zip(*narrow["specific"].filter(order="lerf")["selector", "matched_seeds"], strict=True)) == {
        ("truth", 10), ("depths_only", 35), ("depths_again", 35)
    }  # fmt: skip
    for table in (wide, narrow):
        for line in table["specific"].iter_rows(named=True):
            where = {name: line[name] for name in ("selector", "order")}
            drawn = table["layer_matched"].filter(**where)["nll"].to_numpy()
            assert line["matched_seeds"] == len(drawn)
            assert line["looks"] == 3  # 10, 20 and 35
            text = line["stderr_blocks"] ** 2
            assert line["stderr"] == pytest.approx(np.sqrt(text + drawn.var(ddof=1) * (1 + 1 / len(drawn))))
            t = scipy.stats.t(line["degrees"])
            assert line["p"] == pytest.approx(min(1, 3 * 2 * t.sf(abs(line["difference"]) / line["stderr"])), rel=1e-6)
            assert line["high"] - line["low"] == pytest.approx(2 * t.isf(0.025 / 3) * line["stderr"])
    measured = ["selector", "order", "control_seed", "nll", "difference"]
    first = masks.filter(pl.col("control_seed") < 52)
    assert first.select(measured).equals(plain["layer_matched"].select(measured))


def test_the_search_ends_between_what_is_and_what_is_not_saturated() -> None:
    """Every pattern of six places, whatever the probe says."""
    for pattern, probes in itertools.product(itertools.product((False, True), repeat=6), repeat=2):
        place = largest_unsaturated(6, lambda at, *, probe, of=(pattern, probes): of[probe][at])
        assert place is not None
        assert place == -1 or not pattern[place]
        assert place == 5 or pattern[place + 1]
    asked: list[tuple[int, bool]] = []
    rising = (False, False, True, True, True, True)
    largest_unsaturated(6, lambda at, *, probe: (asked.append((at, probe)), rising[at])[1])
    assert asked == [(5, True), (2, True), (0, True), (1, True), (1, False), (2, False)]
    assert largest_unsaturated(6, lambda at, *, probe: None) is None


def test_cells_are_shared_with_the_consensus_controls(tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path) -> None:
    """LRP's and IG's controls of the first seeds, and random's first rankings, are measured once."""
    with Store(tmp_path) as store:
        scoring = {"selectors": ("random", "lrp", "ig", "consensus2")}
        audit = tiny_audit(tiny_llama, tiny_text, store, scoring=scoring, null_seeds=())
        specific(audit)
        before = len(store)
        controls(audit)
        smaller = 2 * 3 * (1 + 3 + 3)  # intersection and vetoes, each with consensus2, lrp, ig and three random masks
        assert len(store) - before <= smaller
