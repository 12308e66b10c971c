"""Tables that pass the gate and yet do not go together: a page says one line, the app and its menu go on."""

import io
import logging
import shutil
from pathlib import Path

import polars as pl
import pytest
from manifests import resealed
from streamlit.testing.v1 import AppTest

import precomputed
from dashboard.show import layout
from dashboard.state import results
from engine.results.folders import read_table

APP = Path(layout.__file__).parents[1] / "app.py"


def odd(folder: Path, stem: str, table: pl.DataFrame) -> None:
    """Put a table in the place of another one, with its checksum."""
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    (folder / f"{stem}.parquet").write_bytes(buffer.getvalue())
    resealed(folder, f"{stem}.parquet")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The shipped results as somebody's own."""
    monkeypatch.setenv(results.STORE_VARIABLE, str(tmp_path))
    return Path(shutil.copytree(precomputed.demo_dir() / "results", tmp_path / "run"))


def controls() -> None:
    from dashboard.pages.believed import believed_page as page
    from dashboard.show import layout

    with layout.survived():
        page.render()


def test_a_page_of_tables_that_do_not_go_together(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    app = AppTest.from_function(controls, default_timeout=60)
    app.query_params["source"], app.query_params["part"] = "My results", "Controls"
    app.run()
    assert not app.exception
    assert not app.warning
    table = read_table(run, "control_differences")
    odd(run, "control_differences", table.with_columns(rows_removed=pl.lit(1, pl.Int64)))
    with caplog.at_level(logging.ERROR):
        app.run()
    assert not app.exception
    (warning,) = (one.value.replace("\\", "") for one in app.warning)
    assert warning.startswith(f"{layout.NOT_DRAWN} (ZeroDivisionError): tables of these results do not go together")
    assert "Traceback" not in warning
    assert any(record.exc_info for record in caplog.records)  # the log of the server has it


def test_the_menu_stays_where_a_page_fails(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: object) -> None:
        raise KeyError("selector")

    monkeypatch.setattr("dashboard.pages.overview.overview_page.render", fail)
    with caplog.at_level(logging.ERROR):
        app = AppTest.from_file(str(APP), default_timeout=60).run()
    assert not app.exception
    assert layout.NOT_DRAWN in app.warning[0].value
