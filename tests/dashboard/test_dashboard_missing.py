"""Compute this now: offered where a table is missing, told before it starts, shown where one pressed, done."""

import json
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from app_pages import run_page, shown_command
from manifests import edited
from streamlit.testing.v1 import AppTest
from synthetic import MODEL, write_run
from synthetic_refusal import write_refusal_run

from dashboard.state import access, estimates, job_cards, jobs, missing, results
from engine.cli import build_parser

APP = Path(__file__).parents[2] / "dashboard" / "app.py"
SLEEPS = "import time; time.sleep(600)"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run with a sweep only, of a model that is there."""
    monkeypatch.setenv(results.STORE_VARIABLE, str(tmp_path))
    monkeypatch.setattr(jobs.Request, "check", lambda _: None)
    monkeypatch.setattr(estimates, "of_remake", lambda made: f"Counted for {made.stem}.")
    return write_run(tmp_path / "run")


def page(name="believed", **parameters):
    app = run_page(name, **{"part": "Stability", **parameters})
    assert not app.exception
    return app


def buttons(app):
    return {button.label: button for button in app.button}


def told(app):
    kinds = ("warning", "caption", "markdown", "info", "error")
    return " ".join(one.value.replace("\\", "") for kind in kinds for one in app.get(kind))


def test_a_missing_table_is_offered_told_started_and_watched(run, registry, child):
    child(SLEEPS)
    app = page()
    assert "holds no stability.parquet" in told(app)
    assert len([one for one in app.button if one.label == missing.BUTTON]) == 1
    buttons(app)[missing.BUTTON].click().run()
    assert "Counted for stability." in told(app)
    assert "does not tell its settings: the preset quick" in told(app)
    words = shown_command(app)
    assert words.startswith(f"selector-audit analyze {MODEL['id']} stability --revision={MODEL['revision']}")
    assert f"--out={run}" in words
    assert registry.all() == []  # nothing starts before it was told
    buttons(app)[missing.NOT_NOW].click().run()
    assert missing.START not in buttons(app)
    buttons(app)[missing.BUTTON].click().run()
    buttons(app)[missing.START].click().run()
    (job,) = registry.all()
    assert job.request.command == words
    progress = {
        "stage": "cells", "done": 30, "total": 120, "seconds_left": 100.0, "part": "stability", "number": 2, "parts": 2,
        "seconds_left_of_all": 100.0,
    }  # fmt: skip
    (job.files / "progress.json").write_text(json.dumps(progress))
    app.run()
    bar = app.get("progress")[0].proto
    assert bar.value == 25
    assert bar.text.replace("\\", "") == "Stage 2 of 2, stability. cells: 30 of 120, about 2 min left of all"
    assert missing.BUTTON not in buttons(app)  # the run stands where one pressed
    assert "under way" in told(page())  # for another session too
    buttons(app)["Cancel"].click().run()
    job.process.wait(60)
    app.run()
    assert {"Resume", "Dismiss"} <= buttons(app).keys()
    buttons(app)["Dismiss"].click().run()
    assert missing.BUTTON in buttons(app)


def test_done_leads_to_the_page_that_has_it(run, registry, child, tmp_path):
    """In the whole app, whose menu knows the pages: a run that is done, and whose table this page still lacks."""
    child("pass")
    app = AppTest.from_file(str(APP), default_timeout=60)
    app.query_params["run"] = "run"
    app.run()
    key = next(button.key for button in app.button if button.label == missing.BUTTON)
    app.button(key=key).click().run()
    app.button(key=f"{key}-start").click().run()
    (job,) = registry.all()
    job.process.wait(60)
    app.run()
    assert not app.exception
    (link,) = [one.proto for one in app.get("page_link") if one.proto.label == "Show the results"]
    assert parse_qs(link.query_string) == {"source": ["My results"], "folder": [str(run)]}
    assert link.page == ""  # the page that is open, which lacked the table


def test_a_server_for_others_offers_nothing(run, registry, monkeypatch):
    monkeypatch.setenv(access.VARIABLE, "1")
    app = page()
    assert "holds no stability.parquet" in told(app)
    assert missing.BUTTON not in buttons(app)


@pytest.mark.parametrize(
    ("words", "page"),
    [(("analyze", "m", "gap", "depth"), "curves"), (("sweep", "m"), "curves"), (("score", "m"), "rows"),
     (("analyze", "m", "all"), ""), (("refusal", "draws", "m"), "refusal"), (("analyze", "m", "singles"), "believed")],
)  # fmt: skip
def test_done_leads_to_the_page_that_shows_it(words, page):
    path, settings = job_cards.address_of(jobs.Request(words, Path("x")))
    assert (path, settings["folder"]) == (page, "x")
    assert settings.get("part") == ("Single units" if page == "believed" else None)


@pytest.fixture
def live_page(run, registry, monkeypatch, tmp_path):
    """Live edit with another model, whose refusal run is not there. What is counted is told in a word."""
    monkeypatch.setattr(estimates, "of_refusal", lambda model, plan: f"Counted for {model} on {plan.pairs}.")
    model = tmp_path / "my model"
    model.mkdir()

    def opened(**more):
        return page("live", edit_model="Another model", edit_model_id=str(model), **more)

    return opened


def test_live_edit_offers_the_refusal_run_that_it_lacks(live_page, registry, child, tmp_path):
    child(SLEEPS)
    app = live_page()
    words = shown_command(app)
    folder = results.results_dir() / "my-model-refusal"
    assert words.startswith("selector-audit refusal run ")
    assert words.endswith(f"--pairs=demo --out={folder}")
    buttons(app)["Estimate"].click().run()
    assert "on demo." in told(app)
    app.text_input(key="edit_pairs").set_value("/my/pairs.jsonl").run()
    assert "--pairs=/my/pairs.jsonl" in shown_command(app)
    assert "on demo." not in told(app)  # the estimate was of other prompts
    buttons(app)["Start"].click().run()
    (job,) = registry.all()
    args = build_parser().parse_args(job.request.arguments())
    assert (args.model, args.pairs, args.out) == (str(tmp_path / "my model"), "/my/pairs.jsonl", folder)
    folder.mkdir()  # as the run does before it has anything to write
    app.run()
    assert len(app.get("progress")) == 1
    assert "Start" not in buttons(app)
    job.process.kill()
    job.process.wait(60)


def test_live_edit_takes_the_run_that_is_done(live_page, registry, child):
    child("pass")
    app = live_page()
    buttons(app)["Start"].click().run()
    registry.all()[0].process.wait(60)
    folder = write_refusal_run(results.results_dir() / "my-model-refusal")
    app.run()
    assert "my-model-refusal-2" in shown_command(app)  # that one is of another model, which made it meanwhile
    assert "Use this run" not in buttons(app)
    with edited(folder) as manifest:
        manifest["model"]["id"] = app.text_input(key="edit_model_id").value
    app.run()
    buttons(app)["Use this run"].click().run()
    assert not app.exception
    assert app.text_input(key="edit_run").value == str(folder)
    assert app.selectbox(key="run_selector").value == "lrp"
