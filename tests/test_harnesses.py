"""Short forms of the harnesses (`python -m tests.harness`), and that each would see what it looks for."""

from __future__ import annotations

import shutil
import signal
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import cycles, kills, load
from same_bits import assert_same_bits, bits

from engine.interventions.in_weights import SavedRows
from engine.models.loading import LoadedModel


def test_cycles_leave_every_bit(tiny_llama: LoadedModel, tiny_text: Path) -> None:
    before = bits(tiny_llama.model)
    figures = cycles.run_cycles(tiny_llama, "tiny", tiny_text, 24)
    assert figures.wrong == []
    assert (figures.cycles, figures.beside) == (24, 6)
    assert figures.interrupted
    assert len(figures.kinds) > 4
    assert_same_bits(tiny_llama.model, before)


@pytest.mark.long
def test_cycles_on_all_models(tmp_path: Path, tiny_text: Path) -> None:
    for name, make in cycles.models(tmp_path).items():
        figures = cycles.run_cycles(make(), name, tiny_text, 60)
        assert figures.wrong == []
        assert figures.interrupted > 5


def test_cycles_see_a_weight_that_does_not_come_back(
    tiny_llama: LoadedModel, tiny_text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One bit of one row, once."""
    before, real, done = bits(tiny_llama.model), SavedRows.put_back, []

    def forgetful(saved: Any) -> None:
        real(saved)
        if not done:
            done.append(1)
            weight = tiny_llama.model.model.layers[0].mlp.up_proj.weight
            weight.data[3].view(torch.int32)[2] ^= 1

    monkeypatch.setattr(SavedRows, "put_back", forgetful)
    try:
        figures = cycles.run_cycles(tiny_llama, "tiny", tiny_text, 12)
    finally:
        for name, value in tiny_llama.model.state_dict().items():
            value.copy_(before[name])
    first, *_ = figures.wrong
    assert first.endswith("other weights")


@pytest.mark.long
def test_kills_at_random_moments_and_writes() -> None:
    figures = kills.run_kills(4, only=["sweep", "refusal sweep"])
    assert [one.differences for one in figures] == [[]] * 2
    assert [one.kills for one in figures] == [2] * 2
    assert all(one.well for one in figures)
    assert sum(one.at_writes for one in figures)


@pytest.mark.long
def test_a_process_dies_before_the_write_or_at_the_moment_that_was_asked_for(tmp_path: Path) -> None:
    place = tmp_path / "place"
    where = ["--store", str(place / "store"), "--out", str(place / "out"), "--json"]
    command = ["score", "demo", "--selectors", "magnitude", *where]
    with closing(kills.Source(tmp_path)) as source:
        assert source.started(["rows", "demo", "--json"], place).writes == 0  # it writes nothing there
        peace = source.started(command, place)
        assert peace.code == 0, peace.said
        assert peace.writes > 5
        whole = kills.contents(place)
        assert {"out/scores.safetensors", "out/rows.parquet", "out/manifest.json"} <= whole.keys()
        for more in ({"before_write": peace.writes - 1}, {"after_s": 0.0}):
            shutil.rmtree(place)
            assert source.started(command, place, **more).code == -signal.SIGKILL
            assert kills.contents(place) != whole
            assert source.started(command, place).code == 0
            assert kills.contents(place) == whole
        assert source.started(["score", "nowhere", *where], place).code == 2


@pytest.mark.long
def test_a_short_load_mixes_nothing_and_logs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent / "dashboard")
    pages = ("", "curves", "refusal", "live")
    figures = load.run_load(1.0, sessions=8, editing=2, think_s=0.001, vanishing=2, pages=pages, reloads=0.9)
    assert (figures.failed, figures.mixed, figures.log) == ([], [], [])
    assert figures.well
    assert len(figures.freed_s) == 2
    assert len(figures.edits_s) >= 2  # one of each who edits: under this load each takes about a minute
    assert len(figures.changes_s) >= figures.sessions - 2  # as many as browse; how many more hangs on the machine
    assert len(load.told(figures)) == 8
