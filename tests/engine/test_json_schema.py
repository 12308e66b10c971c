"""The JSON Schema of manifests and tables says what the readers say, of shipped results and of changed ones."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from jsonschema import Draft202012Validator

import precomputed
from engine.records.errors import InputError
from engine.records.manifest_form import misfit
from engine.results.folders import read_table, table_names
from engine.results.json_schema import json_schema
from engine.results.tables import TABLES, checked

SCHEMA = json_schema()
MEASURED = [precomputed.demo_dir() / "results", precomputed.smollm2_dir() / "results"]
SHIPPED = [*MEASURED, *sorted(precomputed.paper_runs_dir().iterdir())]
MANIFEST = Draft202012Validator(SCHEMA)


def written(folder: Path) -> Any:
    return json.loads((folder / "manifest.json").read_text(encoding="utf-8"))


def line_of(stem: str) -> Draft202012Validator:
    return Draft202012Validator(SCHEMA["$defs"][f"{stem}.parquet"])


def test_it_is_a_schema_of_the_newest_form_and_of_every_table() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$id"].endswith(f":{max(written(folder)['schema_version'] for folder in SHIPPED)}")
    assert SCHEMA["$defs"].keys() == {f"{spec.stem}.parquet" for spec in TABLES}


@pytest.mark.parametrize("folder", SHIPPED, ids=lambda folder: folder.parent.name + folder.name)
def test_shipped_manifests_fit(folder: Path) -> None:
    assert list(MANIFEST.iter_errors(written(folder))) == []


@pytest.mark.parametrize("folder", MEASURED, ids=lambda folder: folder.parent.name)
def test_lines_of_shipped_tables_fit(folder: Path) -> None:
    for stem in table_names(folder):
        table, line = read_table(folder, stem), line_of(stem)
        for row in pl.concat([table.head(20), table.tail(20)]).iter_rows(named=True):
            assert list(line.iter_errors(row)) == [], stem


def test_a_changed_manifest_fits_where_it_is_read() -> None:
    """Every field of a shipped manifest, set to something of every type in turn: read if and only if it fits."""
    original = written(MEASURED[0])
    original["files"] = {"sweep.parquet": dict(original["files"]["sweep.parquet"], what="x", place=1, notes=["a"])}
    entry = original["files"]["sweep.parquet"]
    entry |= {
        "spec": {"settings": {}, "scores": {"seeds": [1]}},
        "environment": {"libraries": {}, "python": "3"},
        "numerics": {},
    }
    outcomes = set()
    places: list[list[str]] = [["published"], ["shared"], *(["model", name] for name in original["model"])]
    places += [["files", "sweep.parquet", name] for name in entry if name != "numerics"]
    places += [["files", "sweep.parquet", "spec", "scores"], ["files", "sweep.parquet", "spec", "settings"]]
    places += [
        ["files", "sweep.parquet", "environment", "python"],
        ["files", "sweep.parquet", "spec", "scores", "seeds"],
    ]
    for place in places:
        for value in ("known", 7, 1.5, True, None, {}, [], 2**63, [1]):
            changed = copy.deepcopy(original)
            changed["shared"] = {"known": {}}
            inside = changed
            for name in place[:-1]:
                inside = inside[name]
            inside[place[-1]] = value
            fits = MANIFEST.is_valid(changed)
            assert fits == (misfit(changed) is None), (place, value)
            outcomes.add(fits)
    assert outcomes == {True, False}


@pytest.mark.parametrize("stem", ["sweep", "verdicts", "specific", "operating_points", "jaccard", "downstream"])
def test_a_changed_line_fits_where_the_gate_lets_it_through(stem: str) -> None:
    row, line = read_table(MEASURED[0], stem).row(0, named=True), line_of(stem)
    outcomes = set()
    for column in TABLES.get(stem).columns:
        if column.name not in row:
            continue
        values = {"id": ("a", "a b", "", "lerf", None), "text": ("a", None), "flag": (True, None)}
        for value in values.get(column.type, (0, 1, -1, 3, None)):
            changed = row | {column.name: value}
            table = pl.DataFrame([changed], {name: TABLES.get(stem).column(name).dtype for name in row}, strict=False)  # type: ignore[union-attr]
            try:
                checked(stem, table, "here")
                passes = True
            except InputError:
                passes = False
            assert line.is_valid(changed) == passes, (column.name, value)
            outcomes.add(passes)
    assert outcomes == {True, False}
    assert not line.is_valid(row | {"more": 1})
    assert not line.is_valid({name: value for name, value in row.items() if name != "model"})
