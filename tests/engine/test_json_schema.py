"""The JSON Schema of manifests and tables says what the readers say, of shipped results and of changed ones."""

import copy
import json
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from jsonschema import Draft202012Validator

import precomputed
from engine.records.errors import InputError
from engine.records.manifest import misfit
from engine.results.folders import read_table, table_names
from engine.results.tables import TABLES, checked, json_schema

SCHEMA = json_schema()
MEASURED = [precomputed.demo_dir() / "results", precomputed.smollm2_dir() / "results"]
SHIPPED = [*MEASURED, *sorted(precomputed.paper_runs_dir().iterdir())]
VALUES = ("known", 7, 1.5, True, None, {}, [], 2**63, [1])
MANIFEST = Draft202012Validator(SCHEMA)


def written(folder: Path) -> Any:
    return json.loads((folder / "manifest.json").read_text(encoding="utf-8"))


def line_of(stem: str) -> Draft202012Validator:
    return Draft202012Validator(SCHEMA["$defs"][f"{stem}.parquet"])


def test_shipped_manifests_and_lines_of_tables_fit() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$id"].endswith(f":{max(written(folder)['schema_version'] for folder in SHIPPED)}")
    assert SCHEMA["$defs"].keys() == {f"{spec.stem}.parquet" for spec in TABLES}
    for folder in SHIPPED:
        assert list(MANIFEST.iter_errors(written(folder))) == []
    for folder, stem in [(one, stem) for one in MEASURED for stem in table_names(one)]:
        table, line = read_table(folder, stem), line_of(stem)
        for row in pl.concat([table.head(20), table.tail(20)]).iter_rows(named=True):
            assert list(line.iter_errors(row)) == [], stem


def test_a_changed_manifest_fits_where_it_is_read() -> None:
    """Every field of a shipped manifest, set to something of every type in turn: read if and only if it fits."""
    original = written(MEASURED[0])
    entry = original["files"]["sweep.parquet"] | {"what": "x", "place": 1, "notes": ["a"], "numerics": {}}
    entry |= {"spec": {"settings": {}, "scores": {"seeds": [1]}}, "environment": {"libraries": {}, "python": "3"}}
    original["files"], at = {"sweep.parquet": entry}, ("files", "sweep.parquet")
    places = [("published",), ("shared",), *(("model", name) for name in original["model"])]
    places += [(*at, name) for name in entry if name != "numerics"]
    places += [(*at, "environment", "python"), *((*at, "spec", name) for name in ("scores", "settings"))]
    outcomes = set()
    for place, value in product([*places, (*at, "spec", "scores", "seeds")], VALUES):
        changed = inside = copy.deepcopy(original) | {"shared": {"known": {}}}
        for name in place[:-1]:
            inside = inside[name]
        inside[place[-1]] = value
        outcomes.add(fits := MANIFEST.is_valid(changed))
        assert fits == (misfit(changed) is None), (place, value)
    assert outcomes == {True, False}


@pytest.mark.parametrize("stem", ["sweep", "verdicts", "specific", "operating_points", "jaccard", "downstream"])
def test_a_changed_line_fits_where_the_gate_lets_it_through(stem: str) -> None:
    row, line, about = read_table(MEASURED[0], stem).row(0, named=True), line_of(stem), TABLES.get(stem)
    values = {"id": ("a", "a b", "", "lerf", None), "text": ("a", None), "flag": (True, None)}
    outcomes = set()
    for column in (column for column in about.columns if column.name in row):
        for value in values.get(column.type, (0, 1, -1, 3, None)):
            changed = row | {column.name: value}
            outcomes.add(fits := line.is_valid(changed))
            types = {one.name: one.dtype for one in about.columns if one.name in row}
            with nullcontext() if fits else pytest.raises(InputError):
                checked(stem, pl.DataFrame([changed], types, strict=False), "here")
    assert outcomes == {True, False}
    assert not line.is_valid(row | {"more": 1})
    assert not line.is_valid({name: value for name, value in row.items() if name != "model"})
