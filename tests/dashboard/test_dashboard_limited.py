"""A server that other machines can reach: no form that touches the disk or starts a run, on pages and behind them."""

import io
import tempfile
from types import SimpleNamespace

import pytest
from app_pages import run_page
from synthetic import write_run

import precomputed
from dashboard.chat import effects, fetching, measure
from dashboard.pages.runs import catalogue, importing
from dashboard.state import access, jobs, results, shipped_models as shipped
from engine.cli import build_parser
from engine.records.errors import InputError


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv(results.STORE_VARIABLE, str(tmp_path / "store"))
    monkeypatch.setenv(access.VARIABLE, "1")
    write_run(tmp_path / "store" / "first")
    write_run(tmp_path / "elsewhere")
    return tmp_path / "store"


def page(name, **parameters):
    app = run_page(name, **parameters)
    assert not app.exception
    return app


def test_runs_shows_only(store):
    for view in ("Kept", "Start", "Import"):
        app = page("runs", runs_view=view)
        assert [tab.label for tab in app.tabs] == ["Kept", "Tables"]
        assert not {button.label for button in app.button} & {"Start", "Import", "Delete this run", "Resume", "Cancel"}
        assert any("--allow-runs" in caption.value for caption in app.caption)
    assert app.dataframe[0].value["run"].to_list() == ["first"]


@pytest.mark.parametrize(
    ("name", "part"), [("curves", ""), ("rows", ""), ("refusal", "Judges"), ("where", ""), ("refusal", "Edits")]
)
def test_pages_take_no_path(store, name, part):
    kind = {"source": "My results", "section": part, "more": "true"}
    app = page(name, folder=str(store.parent / "elsewhere"), row_model="/etc", **kind)
    labels = {one.label for one in app.text_input}
    assert not {label for label in labels if "older" in label or "odel" in label}, labels
    shown = " ".join(one.value for kind in ("caption", "warning", "markdown", "text") for one in app.get(kind))
    assert "elsewhere" not in shown


def test_live_edit_takes_the_shipped_model_only(store):
    app = page("live", edit_model="Another model", edit_model_id="/etc", edit_run="/etc")
    assert set(app.selectbox(key="edit_model").options) <= set(shipped.IDS)
    assert app.selectbox(key="edit_model").value == "Shipped model"
    assert [one.key for one in app.text_input] == ["prompt"]


def test_what_is_behind_the_forms_is_closed_too(store):
    other = store.parent / "elsewhere"
    request = jobs.analysis("demo", ("sweep",), store / "new", "quick")
    with pytest.raises(InputError, match="starting runs is off.*--allow-runs"):
        jobs.Jobs().start(request)
    with pytest.raises(InputError, match="importing runs is off"):
        importing.import_folder(other, store, "new")
    with pytest.raises(InputError, match="importing runs is off"):
        importing.import_zip(io.BytesIO(b""), store, "new")
    with pytest.raises(InputError, match="deleting runs is off"):
        catalogue.delete(store / "first", store)
    with (
        pytest.raises(InputError, match="other than the shipped one is off"),
        fetching.model("k", str(other), 1, print),
    ):
        pytest.fail("it was loaded")
    assert {path.name for path in store.iterdir()} == {"first"}
    assert (store / "first" / "sweep.parquet").is_file()


def test_what_an_edit_does_is_measured_without_leaving_anything(store, monkeypatch):
    class Opened(Exception):
        pass

    places = []

    def opened(folder=None):
        places.append(folder)
        raise Opened

    monkeypatch.setattr(measure, "Store", opened)
    loaded = SimpleNamespace(weights_hash="of none", dtype="float32")
    entry, edit = SimpleNamespace(loaded=loaded), SimpleNamespace(kind="rows")
    with pytest.raises(Opened):
        effects._measured(entry, edit, None, print)
    access.limit(False)
    with pytest.raises(Opened):
        effects._measured(entry, edit, None, print)
    assert places[0].is_relative_to(tempfile.gettempdir())
    assert not places[0].exists()
    assert places[1] is None  # the store of this machine's user


def test_folders_inside_the_store_are_read_and_no_others(store):
    assert results.folder_of(str(store / "first")) == store / "first"
    assert results.folder_of(str(precomputed.demo_dir() / "results")).is_dir()
    (store / "way-out").symlink_to(store.parent / "elsewhere")
    for path in ("/etc", "~", "/", str(store.parent), str(store / ".." / "elsewhere"), str(store / "way-out"), "", "."):
        with pytest.raises(InputError, match="by their path is off"):
            results.folder_of(path)


def test_on_this_machine_all_of_it_is_there(store, monkeypatch):
    access.limit(False)
    assert [tab.label for tab in page("runs").tabs] == ["Kept", "Start", "Import", "Tables"]
    assert results.folder_of(str(store.parent / "elsewhere")).is_dir()
    monkeypatch.setenv(access.VARIABLE, "1")
    access.limit(True)
    assert access.limited()


@pytest.mark.parametrize(
    ("words", "limited"),
    [((), False), (("--address", "0.0.0.0"), True), (("--address", "0.0.0.0", "--allow-runs"), False),
     (("--address", "127.0.0.1", "--allow-runs"), False)],
)  # fmt: skip
def test_the_command_decides(words, limited, monkeypatch, tmp_path):
    """From the command line to the app that would be served; only the serving itself is left out."""
    import streamlit as st

    from dashboard import serve

    served = []
    monkeypatch.setenv(access.VARIABLE, "as before")
    monkeypatch.setattr(serve, "_import_what_the_first_page_needs", lambda: None)
    monkeypatch.setattr(serve, "_stop_on_hangup", lambda: None)
    monkeypatch.setattr(st, "App", lambda *_, **given: served.append(given) or Served())
    args = build_parser().parse_args(["dashboard", "--no-browser", *words, "--store", str(tmp_path)])
    monkeypatch.setenv(results.STORE_VARIABLE, str(tmp_path))
    args.run(args)
    (guard,) = [one for one in served[0]["middleware"] if "token" in one.kwargs]
    assert access.limited() == limited
    assert (guard.kwargs["token"] is not None) == ("0.0.0.0" in words)


class Served:
    def run(self, config):
        assert config["server.port"]
