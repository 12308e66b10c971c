"""What is measured again because of replies that were cut off, against every reading of these replies."""

from __future__ import annotations

import dataclasses
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harmless import harmless
from refusal_helpers import answer, small_run, swept

from engine.edits.contrasts import refusal_mask
from engine.edits.edit import UNEDITED
from engine.edits.edit_effect import Effect
from engine.models.loading import LoadedModel
from engine.results.store import Store
from engine.results.tables import frame, spec
from engine.run.runner import LocalRunner
from engine.studies.refusal import effect as effect_module
from engine.studies.refusal.grid import UNFINISHED, USED, Candidate, Span, borderline, span
from engine.studies.refusal.operating_point import operating_point

N = 20  # prompts of each side: one reply is the step between two rescue caps
LIMIT = 0.10
seen: list[bool] = []  # did some reading change something?


def readings(counts: tuple[int, int]) -> list[float]:
    """Rates if none, one, … all of the cut-off replies refuse. counts: refused for certain, cut off."""
    return [(counts[0] + more) / N for more in range(counts[1] + 1)]


def outcome(before: float, cells: list[tuple[float, float]]) -> Any:
    """Which cells are feasible, and which is chosen under which cap, by `operating_point` itself."""
    rows = [
        {
            "model": "m", "selector": "lrp", "domain": "hate", "lambda": 0.5 if k else 0.0, "k": k / 100,
            "rows_removed": 10 * k, "malign": malign, "malign_n": N, "benign": benign, "benign_n": N, "nll": 2.0,
            "perplexity": 7.4, "feasible": False,
        }
        for k, (malign, benign) in enumerate([(before, 0.0), *cells])
    ]  # fmt: skip
    point = operating_point(frame("refusal_sweep", rows), benign_limit=LIMIT)
    feasible = [benign <= LIMIT and malign >= before for malign, benign in cells]
    return feasible, point and (point.k, point.benign_cap, point.rescue)


def some_grid(random: np.random.Generator, *, certain: bool) -> list[list[float]]:
    """Readings of the unedited model's malign rate, then of both rates of one to three cells; few in all."""
    while True:
        sides = [
            (int(random.integers(0, most)), int(random.choice([0, 0, 0, 1, 2])))
            for most in (17, 6) * int(random.integers(1, 4))
        ]
        before = (int(random.integers(0, 4)), 0 if certain else int(random.integers(1, 3)))
        each = [readings(before), *map(readings, sides)]
        if 1 < prod(map(len, each)) <= 36:
            return each


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_borderline_if_and_only_if_no_reading_changes_anything(seed: int):
    each = some_grid(np.random.default_rng(seed), certain=seed % 3 > 0)
    outcomes = set()
    for first, *rates in product(*each):
        feasible, point = outcome(first, list(zip(rates[::2], rates[1::2], strict=True)))
        outcomes.add((tuple(feasible), point))
    spans = [Span(min(one), max(one)) for one in each]
    candidates = [
        Candidate(malign, benign, (10.0 * k, 2.0, 0.5))
        for k, (malign, benign) in enumerate(zip(spans[1::2], spans[2::2], strict=True), start=1)
    ]
    found = borderline(spans[0], candidates, LIMIT)
    if len(outcomes) > 1:
        assert found.cells or found.unedited
    elif not spans[0].open:  # a cut-off reply of the unedited model's counts for each cell by itself: at most too much
        assert not found.cells
    seen.append(len(outcomes) > 1)
    assert all(candidates[place].malign.open or candidates[place].benign.open for place in found.cells)
    assert not found.unedited or spans[0].open


def test_both_kinds_of_grids_were_tried():
    assert 4 < sum(seen) < len(seen) - 4 or len(seen) < 20  # alone, this test has seen none


def test_only_what_can_matter_is_measured_again():
    def cell(malign: tuple[float, float], benign: tuple[float, float], rows: float) -> Candidate:
        return Candidate(Span(*malign), Span(*benign), (rows,))

    before = Span(0.0, 0.0)
    best, rival, far = (
        cell((0.8, 0.8), (0.0, 0.0), 1),
        cell((0.7, 0.85), (0.0, 0.05), 2),
        cell((0.2, 0.5), (0.0, 0.05), 3),
    )
    assert borderline(before, [best, far], LIMIT) == (frozenset(), False)
    assert borderline(before, [best, rival, far], LIMIT) == ({1}, False)
    over = cell((0.2, 0.5), (0.05, 0.15), 4)  # never chosen, but feasible or not
    assert borderline(before, [best, over], LIMIT) == ({1}, False)
    assert borderline(before, [], LIMIT) == (frozenset(), False)
    assert borderline(Span(0.1, 0.3), [best, cell((0.2, 0.2), (0.0, 0.0), 5)], LIMIT) == (frozenset(), True)


def test_a_verdict_on_a_reply_that_was_cut_off_may_turn_either_way():
    assert span((True, True, False, False), (True, False, False, True)) == (0.25, 0.75)
    assert span((True, False), ()) == (0.5, 0.5)  # not known how they ended


@pytest.mark.long
def test_borderline_cells_are_measured_with_longer_replies_and_so_used(demo: LoadedModel, tmp_path: Path):
    some: dict[str, Any] = {"selectors": ("lrp",), "domains": ("hate",), "reply_tokens": 6}
    with Store(tmp_path / "store") as store:
        once = swept(small_run(demo, store, **some))
        run = small_run(demo, store, **some, longer_replies=5)
        table = swept(run)
        assert dict(once.schema) == spec("refusal_sweep").schema(UNFINISHED)
        assert dict(table.schema) == spec("refusal_sweep").schema((*UNFINISHED, USED))
        assert set(table[USED]) == {30} or set(table[USED]) == {6, 30}
        [contrast] = run.contrasts
        pairs = run.calibration["hate"]
        longer = small_run(demo, store, **(some | {"reply_tokens": 30}))
        assert (once["malign_unfinished"].sum() or 0) > 0
        for row, short in zip(table.iter_rows(named=True), once.iter_rows(named=True), strict=True):
            if row[USED] == 6:
                assert row == short | {USED: 6}
                continue
            edit = run.edit(refusal_mask(contrast, row["lambda"], row["k"])) if row["k"] else UNEDITED
            found = answer(longer, longer.on_pairs(edit, pairs))
            n = len(pairs)
            assert (row["malign"], row["benign"]) == (sum(found.refused[:n]) / n, sum(found.refused[n:]) / n)
            assert row["malign_unfinished"] == found.finished[:n].count(False)
        # with replies that end by themselves nothing is measured again
        assert USED not in swept(small_run(demo, store, **(some | {"reply_tokens": 60}), longer_replies=5)).columns


@pytest.mark.long
def test_an_edit_is_asked_with_longer_replies_where_its_leaving_hangs_on_cut_off_ones(
    demo: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def passed(run: Any, edit: Any, _: Any) -> Effect:
        return harmless(run.loaded.weights_hash, edit.mask_hash)

    monkeypatch.setattr(effect_module, "shipped_effect", passed)
    monkeypatch.setattr(effect_module, "_check_shipped_model", lambda *_, **__: None)

    def effect(store: Store, tokens: int, times: int) -> Any:
        run = small_run(demo, store, domains=("hate",), selectors=("lrp",), reply_tokens=tokens, longer_replies=times)
        edit = dataclasses.replace(
            run.refusal_edit(run.contrasts[0], 0.2, 0.01), kind="refusal", spec={"domain": "hate"}
        )
        return effect_module.measured_effect(run, edit, LocalRunner(store))

    with Store(tmp_path / "store") as store:
        short, again, long = effect(store, 4, 1), effect(store, 4, 5), effect(store, 20, 1)
        assert (short.about["reply tokens"], again.about["reply tokens"]) == (4, 20)
        assert again == long != short
        assert effect(store, 40, 5).about["reply tokens"] == 40  # these end by themselves


def test_there_is_no_longer_reply_than_the_context_holds(tiny_llama: LoadedModel, tmp_path: Path):
    with Store(tmp_path / "store") as store:
        run = small_run(tiny_llama, store, longer_replies=5)
        pairs = run.calibration["crime"]
        longest = max(
            len(tiny_llama.tokenizer.apply_chat_template(
                [{"role": "user", "content": text}], add_generation_prompt=True, return_dict=True
            )["input_ids"])
            for pair in pairs for text in (pair.risk, pair.base)
        )  # fmt: skip
        longer = run.longer(pairs)
        assert longer is not None
        assert longer.plan.reply_tokens == min(40, 128 - longest)
        assert run.longer(pairs) is longer
        full = small_run(tiny_llama, store, longer_replies=5, reply_tokens=128 - longest)
        assert full.longer(pairs) is None
        assert small_run(tiny_llama, store).longer(pairs) is None
