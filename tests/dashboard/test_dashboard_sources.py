"""The source picker: shipped, own and published tables, one model at a time, with where the numbers come from."""

import pytest
from streamlit.testing.v1 import AppTest
from synthetic import sweep, write_run

import precomputed
from dashboard.state import results
from engine.results.tables import spec
from precomputed.convert_runs import MADE


def picker(stems, **parameters):
    def script(stems):
        import streamlit as st

        from dashboard.show import layout
        from dashboard.state import sources

        source = sources.pick(st.container(), stems)
        if source is not None:
            with layout.told():
                st.text(f"{source.kind}|{source.model}|{source.published}|{source.table(stems[0]).height}")
                st.text(" / ".join(source.provenance))

    app = AppTest.from_function(script, args=(stems,), default_timeout=60)
    for name, value in parameters.items():
        app.query_params[name] = value
    return app.run()


@pytest.fixture
def two_runs(tmp_path, monkeypatch):
    """A store of two runs of different models; nothing else is there."""
    monkeypatch.setenv(results.STORE_VARIABLE, str(tmp_path))
    for name in ("first", "second"):
        write_run(tmp_path / name, sweep(model=name), {"id": name, "dtype": "float32"})
    return tmp_path


def test_a_store_without_results_opens_on_what_is_shipped(tmp_path, monkeypatch):
    (tmp_path / "cells").mkdir()
    monkeypatch.setenv(results.STORE_VARIABLE, str(tmp_path))
    assert picker(("sweep",)).selectbox(key="source").value == "Shipped model"


def test_a_run_and_its_model_are_chosen_by_the_url(two_runs):
    app = picker(("sweep",), run="second")
    assert not app.exception
    kind, model, is_published, height = app.text[0].value.split("|")
    assert (kind, model, is_published) == ("My results", "second", "False")
    assert int(height) == sweep().height
    assert "Model second" in app.text[1].value


def test_another_run_changes_what_is_shown(two_runs):
    app = picker(("sweep",))
    assert "|first|" in app.text[0].value
    app.selectbox(key="run").set_value("second").run()
    assert "|second|" in app.text[0].value


def test_a_model_without_values_in_one_of_two_tables_is_told(two_runs):
    app = picker(("verdicts", "gap"), source="Paper", model="Gemma-3-12B")
    (warning,) = app.warning
    assert "verdicts has no values for Gemma" in warning.value.replace("\\", "")


def test_without_anything_shipped_the_published_tables_open(tmp_path, monkeypatch):
    monkeypatch.delenv(results.STORE_VARIABLE, raising=False)
    monkeypatch.setattr(precomputed, "demo_dir", lambda: tmp_path)
    assert picker(("jaccard",)).selectbox(key="source").value == "Paper"
    assert picker(("depth",)).selectbox(key="source").value == "Shipped model"


def test_the_folder_is_kept_with_its_run(two_runs, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    for name in ("third", "fourth"):
        write_run(other / name)

    def script():
        import streamlit as st

        from dashboard.state import sources

        if not st.session_state.get("away"):
            sources.pick(st.container(), ("sweep",))
        else:
            for key in ("source", "folder", "run", "model"):
                st.session_state.pop(key, None)  # another page's widgets do not take them over

    app = AppTest.from_function(script, default_timeout=60).run()
    app.text_input(key="folder").set_value(str(other)).run()
    app.selectbox(key="run").set_value("third").run()
    for away in (True, False):
        app.session_state["away"] = away
        app.run()
    assert not app.exception
    assert app.text_input(key="folder").value == str(other)
    assert app.selectbox(key="run").value == "third"


@pytest.mark.parametrize("stem", MADE)
def test_published_tables_have_the_measured_columns(stem):
    table = results.read_published(stem)
    assert set(spec(stem).schema()) <= set(table.frame.columns)
    assert table.frame.height > 0
    assert table.provenance.startswith("Published values: ")
