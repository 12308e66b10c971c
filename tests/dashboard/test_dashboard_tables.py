"""Any table of any run on the page Runs, and the list of all tables in Methods."""

from functools import partial

import polars as pl
import pytest
from app_pages import drawn_page, run_page, warnings_of
from synthetic import add_table, write_run

from dashboard.show import shown_tables as tables
from dashboard.state import results
from engine.results.tables import TABLES, Column, TableSpec, register_table


@pytest.fixture
def top(tmp_path, monkeypatch):
    monkeypatch.setenv(results.STORE_VARIABLE, str(tmp_path / "results"))
    write_run(tmp_path / "results" / "mine")
    return tmp_path / "results"


page = partial(run_page, "runs", runs_view="Tables")


def test_a_table_of_a_run_opens_with_its_meanings(top):
    app = page()
    assert warnings_of(app) == []
    assert app.selectbox(key="tables_of").options[:2] == ["mine", "Shipped model"]
    values, columns = app.dataframe[0].value, app.dataframe[1].value
    assert next(iter(values["selector"])) == "lrp"
    assert "Written by `selector-audit sweep MODEL`. Lines: 48." in app.caption[2].value
    meanings = dict(zip(columns["Column"], columns["Meaning"], strict=True))
    assert meanings["rate"] == "share of all rows that is removed"
    assert next(button.proto.label for button in app.get("download_button")) == "CSV"


@pytest.mark.parametrize(
    ("source", "stem", "column"),
    [("Shipped model", "operating_points", "gain_low"), ("Paper: Llama-3.1-8B", "stability", "jaccard_half_unit")],
)
def test_shipped_and_published_tables_open_alike(top, source, stem, column):
    app = page(tables_of=source, run_table=described_title(stem))
    assert warnings_of(app) == []
    assert column in app.dataframe[0].value.columns
    assert column in list(app.dataframe[1].value["Column"])


def described_title(stem):
    return f"{stem}: {TABLES.get(stem).title}"


def test_a_registered_table_of_a_plug_in_has_its_descriptions(top):
    columns = (
        Column("model", "text", "", "id of the model"),
        Column("flatness", "number", "bumps", "how flat", "share"),
    )
    try:
        register_table(TableSpec("flatness", "How flat it is", "analyze {model} flatness", columns, ("model",)))
        add_table(top / "mine", "flatness", pl.DataFrame({"model": ["m"], "flatness": [0.5]}))
        app = page(run_table="flatness: How flat it is")
        assert warnings_of(app) == []
        assert list(app.dataframe[1].value["Unit"]) == ["", "bumps"]
        assert "flatness.parquet" in tables.registered()["File"].to_list()
        add_table(top / "mine", "flatness", pl.DataFrame({"model": ["m"], "flatness": [1.5]}))
        assert "flatness is 1.5, expected 0 to 1" in warnings_of(page(run_table="flatness: How flat it is"))[0]
    finally:
        TABLES.remove("flatness")


def test_methods_lists_every_table_and_column():
    app = drawn_page("reference")
    tables, columns = (frame.value for frame in app.dataframe if "File" in frame.value)
    assert len(tables) == len(TABLES.names())
    assert set(columns["File"]) == set(tables["File"])
    assert columns["Meaning"].str.len().min() > 0
    assert "selector-audit refusal judge FILE" in list(tables["Command"])


def test_of_a_large_table_the_first_lines_are_sent_and_its_downloads_are_made_when_asked_for(top, monkeypatch):
    lines = tables.LINES + 1
    large = pl.DataFrame({"row": range(lines), "score": [0.5] * lines, "a": ["x"] * lines, "b": ["y"] * lines})
    large = large.with_columns(c=pl.lit("z"), model=pl.lit("m"))
    add_table(top / "mine", "my-table", large)
    made = []
    real = pl.DataFrame.write_csv
    monkeypatch.setattr(pl.DataFrame, "write_csv", lambda self, *args, **more: made.append(1) or real(self, *args))
    app = page(run_table="my-table")
    assert warnings_of(app) == []
    assert len(app.dataframe[0].value) == tables.LINES
    assert any(f"first {tables.LINES:,} of {lines:,} lines" in caption.value for caption in app.caption)
    assert [bool(button.proto.deferred_file_id) for button in app.get("download_button")] == [True, True]
    assert made == []
    small = page(run_table=described_title("sweep"))
    assert len(small.dataframe[0].value) == 48
    assert not any("first" in caption.value for caption in small.caption)
    assert not any(button.proto.deferred_file_id for button in small.get("download_button"))
    assert made == [1]
