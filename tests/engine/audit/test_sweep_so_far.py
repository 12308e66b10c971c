"""Curves while they are measured: what the progress file tells is a part of the table, and at the end all of it."""

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_audits import tiny_audit

from engine.models.loading import LoadedModel
from engine.records.progress import ProgressFile
from engine.results.folders import read_table
from engine.results.store import Store
from engine.run.runner import LocalRunner
from engine.studies.conduct import run_studies

CHOSEN = ("random", "wanda")


class Told(ProgressFile):
    """Keeps what stood in the file at every write."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.seen: list[list[list[Any]]] = []

    def _write(self) -> None:
        super()._write()
        told = json.loads(self.path.read_text()).get("so_far")
        if told is not None:
            assert told["table"] == "sweep"
            self.seen.append([dict(zip(told["columns"], row, strict=True)) for row in told["rows"]])


def test_every_cell_is_told_once_it_is_there(
    tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.records.progress.INTERVAL_S", 0.0)
    with Store(tmp_path / "store") as store:
        progress = Told(tmp_path / "progress.json")
        audit = tiny_audit(
            tiny_llama, tiny_text, store, progress=progress, scoring={"selectors": CHOSEN, "seeds": (3, 4)},
            sweep_rates=(0.0, 0.3, 1.0),
        )  # fmt: skip
        run_studies(audit, ["sweep"], tmp_path / "out", LocalRunner(store, progress))
    table = read_table(tmp_path / "out", "sweep")
    whole = table.select(progress.seen[-1][0].keys()).to_dicts()
    counts = [len(rows) for rows in progress.seen]
    assert counts == sorted(counts)
    assert len(set(counts)) > 3  # it grew
    assert all(row in whole for rows in progress.seen for row in rows)
    assert sorted(progress.seen[-1], key=str) == sorted(whole, key=str)
    assert len(whole) == 3 * 2 * 3  # two seeds and wanda, two orders, three rates
