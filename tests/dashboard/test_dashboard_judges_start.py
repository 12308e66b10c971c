"""A file of replies, judged from the page: what it says before, what it runs, and where the results are shown."""

import csv
import time
from pathlib import Path

import polars as pl
import pytest
from judged_folder import lines, write_judged
from judges_app import page, warnings_of
from test_dashboard_missing import SLEEPS

from dashboard.pages.refusal import judged
from dashboard.state import access, job_cards, jobs, results
from engine.records.errors import InputError

BUTTON = "judge-start"


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv(results.STORE_VARIABLE, str(tmp_path / "store"))
    return tmp_path / "store"


@pytest.fixture
def replies(tmp_path):
    path = tmp_path / "said.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file)
        out.writerow(["model", "prompt", "completion", "human_label"])
        out.writerows(lines())
    return path


def typed(path):
    app = page()
    app.text_input(key="judge_file").set_value(str(path)).run()
    assert not app.exception
    return app


def button(app):
    return next((one for one in app.button if one.key == BUTTON), None)


def shown(app):
    return [one.value.replace("\\", "") for one in app.caption]


def test_it_says_what_it_runs_and_how_many_replies_there_are(store, replies, registry):
    app = typed(replies)
    command = f"selector-audit refusal judge {replies} --judge=embedded --out={store}/judged/said"
    assert command in [one.value for one in app.code]
    assert f"{len(lines()):,} replies. A judge that is a model has to be loaded first." in shown(app)
    app.text_input(key="judge_with").set_value(" , ").run()
    assert any("no judge is given" in line for line in warnings_of(app))
    assert button(app) is None
    (store / "judged" / "said").mkdir(parents=True)
    assert any("/judged/said-2" in one.value for one in typed(replies).code)


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "cannot be read"), ("a,b\n1,2\n", "no column of replies"), ("reply\n", "holds no replies")],
)
def test_a_file_without_replies_starts_nothing(store, registry, tmp_path, content, said):
    path = tmp_path / "odd.csv"
    if content is not None:
        path.write_text(content)
    app = typed(path)
    assert any(said in line for line in warnings_of(app))
    assert button(app) is None
    with pytest.raises(InputError, match=said):
        jobs.judging(path, "embedded", store / "judged" / "odd").check()


def test_a_name_that_reads_as_an_option_is_refused(store):
    with pytest.raises(InputError, match="the replies are a CSV"):
        jobs.judging(Path("--debug"), "embedded", store).arguments()


@pytest.mark.long
def test_where_runs_are_off_it_is_not_offered_and_reads_nothing(store, replies, monkeypatch):
    monkeypatch.setenv(access.VARIABLE, "1")
    app = page(source="Shipped model")
    assert not [one for one in app.text_input if one.key == "judge_file"]
    with pytest.raises(InputError, match="reading files by their path"):
        jobs.judging(replies, "embedded", store).check()


def test_a_cancelled_one_says_that_nothing_was_kept_by_saying_nothing_of_it(store, replies, registry, child):
    child(SLEEPS)
    app = typed(replies)
    button(app).click().run()
    [job] = registry.all()
    assert job.active
    registry.cancel(job)
    job.process.wait(20)
    assert job.state == "cancelled"
    assert not job.resumable
    app.run()
    card = next(one.value for one in app.markdown if one.value.startswith("**said**"))
    assert "was cancelled," in card
    assert "kept" not in card
    assert not [one for one in app.button if one.label == "Resume"]


@pytest.mark.long
def test_started_from_the_page_it_writes_what_the_command_writes(store, replies, registry, tmp_path):
    app = typed(replies)
    button(app).click().run()
    [job] = registry.all()
    while job.active:
        time.sleep(0.1)
    assert job.state == "done", job.message
    found, by_hand = judged.read(job.request.folder), judged.read(write_judged(tmp_path / "by-hand", judges=1))
    assert found.verdicts.equals(by_hand.verdicts)
    assert isinstance(found.quality, pl.DataFrame)
    assert found.quality.equals(by_hand.quality)
    path, address = job_cards.address_of(job.request)
    assert path == "refusal"
    assert address == {"source": "My results", "section": "Judges", "folder": str(store / "judged" / "said")}
    there = page(**address)
    assert not there.exception
    assert not there.warning
