"""Live edit and Rows with a model of a hub: bytes, time left, Stop, going on, and others that answer meanwhile."""

import threading
import time

import fake_hub
import numpy as np
import pytest
from app_pages import drawn_page, replies, run_page
from fake_hub import Fault, Repository
from scored_runs import write_scored

from dashboard.chat import fetching, live, stamps

MODEL = "org/tiny"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from tiny_models import save_tiny

    return save_tiny("llama", tmp_path_factory.mktemp("fetching"), max_position_embeddings=512)


@pytest.fixture
def hub(folder, tmp_path, monkeypatch):
    """A hub with a tiny model; this process knows no other, and no model is in memory."""
    monkeypatch.setattr(live, "POOL", live.ModelPool(live._load))
    monkeypatch.setattr(stamps, "reference_of", lambda *_: None)  # the model's own replies take longer than the rest
    monkeypatch.setattr(fetching, "DOWNLOADS", fetching.Downloads(fetching._fetch))
    monkeypatch.setattr(fetching, "PATIENCE_S", 0.2)
    with fake_hub.running() as server:
        fake_hub.go_online(server, tmp_path / "home", monkeypatch)
        for name in ("HF_HUB_ETAG_TIMEOUT", "HF_HUB_DOWNLOAD_TIMEOUT"):  # a busy machine is silent for a second
            monkeypatch.setattr(f"huggingface_hub.constants.{name}", 20)
        server.repositories = {MODEL: Repository.of_folder(folder)}
        yield server
        for one in fetching.DOWNLOADS.under_way():
            one.stop()
            one.wait(20)
        from huggingface_hub import close_session

        close_session()


@pytest.fixture
def line(hub):
    """The second half of the weights does not come until this is set."""
    free = threading.Event()
    hub.faults = [Fault("/cdn/", until=free)]
    yield free
    free.set()


def page(model, **parameters):
    settings = {
        "edit_model": "Another model", "edit_model_id": model, "mode": "Remove by rate", "rank_selector": "Magnitude",
        "prompt": "The cat sat.", "length": "20", "control": "false",
    }  # fmt: skip
    return run_page("live", **{**settings, **parameters})


def click(app, key="run"):
    app.button(key=key).click().run()
    assert not app.exception
    return app


def until(app, condition):
    """Poll as the fragment does in a browser."""
    deadline = time.monotonic() + 60
    while not condition(app):
        assert time.monotonic() < deadline, (warnings(app), bars(app))
        time.sleep(0.1)
        app.run()
        assert not app.exception
    return app


def bars(app):
    return [bar.proto.text.replace("\\", "") for bar in app.get("progress")]


def fetching_bytes(app):
    return any("about" in bar for bar in bars(app))


def answered(app):
    return len(replies(app)) == 2 and all(replies(app))


def warnings(app):
    return [warning.value.replace("\\", "") for warning in app.warning]


def stop_shown(app):
    return any(button.key == "live-stop-0" for button in app.button)


@pytest.mark.long
def test_a_download_shows_bytes_and_time_left_and_then_the_edit_is_made(hub, line, folder):
    app = until(click(page(MODEL)), fetching_bytes)
    (bar,) = bars(app)
    assert bar.startswith("Fetching org/tiny: 0.")
    assert " MiB of " in bar
    assert bar.endswith(" left")
    assert stop_shown(app)
    assert not warnings(app)
    line.set()
    until(app, answered)
    assert bars(app) == []
    before, after = replies(app)
    assert [before, after] == replies(click(page(str(folder))))  # the same model from its folder
    assert not stop_shown(app)


@pytest.mark.long
def test_other_models_answer_other_sessions_meanwhile(hub, line, folder):
    app = until(click(page(MODEL)), fetching_bytes)
    other = click(page(str(folder)))
    assert answered(other)
    with live.POOL.use(live.DEMO) as entry:
        said = list(live.replies(entry.loaded, {"before": np.arange(0), "after": np.arange(3)}, "Hello", 2))
    assert sum(isinstance(event, live.Outcome) for event in said) == 2
    assert fetching.DOWNLOADS.under_way()
    assert fetching_bytes(other)  # every session sees it, and may stop it
    click(other, "live-stop-0")
    until(app, warnings)
    assert "was stopped at 0." in warnings(app)[0]
    assert not until(other, lambda other: not bars(other)).warning  # it had not asked for that model


def test_stop_keeps_what_was_fetched_and_run_goes_on(hub, line):
    app = until(click(page(MODEL)), fetching_bytes)
    click(app, "live-stop-0")
    stopped = time.monotonic()
    until(app, warnings)
    assert time.monotonic() - stopped < 5
    (said,) = warnings(app)
    assert said.startswith("the download of org/tiny was stopped at 0.")
    assert said.endswith("what was fetched is kept, run again to go on from there")
    assert bars(app) == []
    app.run()
    assert warnings(app) == [said]  # nothing starts by itself
    assert fetching.DOWNLOADS.under_way() == []
    line.set()
    until(click(app), answered)
    begun = [part for method, path, part in hub.asked if method == "GET" and path.startswith("/cdn/")]
    assert begun[0] is None
    assert begun[1].startswith("bytes=")
    assert begun[1] != "bytes=0-"


@pytest.mark.long
def test_another_setting_during_a_download_changes_neither_it_nor_the_edit_that_waits(hub, line):
    app = until(click(page(MODEL)), fetching_bytes)
    app.segmented_control(key="rank_order").set_value("MoRF").run()
    assert fetching_bytes(app)
    line.set()
    until(app, answered)
    assert any("LeRF 30%" in caption.value.replace("\\", "") for caption in app.caption)


def test_a_model_that_is_refused_is_one_line(hub):
    hub.repositories[MODEL].gated = True
    app = until(click(page(MODEL)), warnings)
    (said,) = warnings(app)
    assert "org/tiny is gated and no token was sent" in said
    assert "\n" not in said


def test_a_model_of_the_cache_is_not_asked_for_again_while_it_is_in_memory(hub):
    app = until(click(page(MODEL)), answered)
    hub.asked.clear()
    click(app)
    assert answered(app)
    assert hub.asked == []


@pytest.mark.long
def test_the_session_itself_may_use_another_model_meanwhile(hub, line, folder):
    app = until(click(page(MODEL)), fetching_bytes)
    app.text_input(key="edit_model_id").set_value(str(folder)).run()
    click(app)
    assert answered(app)
    assert fetching_bytes(app)  # it is still there to be stopped
    before = replies(app)
    line.set()
    until(app, lambda app: not bars(app))
    assert replies(app) == before  # what waited was replaced by what was asked for later


MEASURED = ("rows-zero-ask", lambda app: len(app.metric) >= 3)


@pytest.mark.long
@pytest.mark.parametrize(("button", "done"), [pytest.param(*MEASURED, id="zero")])
def test_the_rows_page_waits_for_a_model_in_the_same_way(hub, line, folder, tmp_path, button, done):
    scored = write_scored(tmp_path / "scored", folder)

    settings = {"source": "My results", "folder": str(scored), "row_model": MODEL, "rows": "0-2", "rows_prompt": ""}
    app = drawn_page("rows", **settings)
    until(click(app, button), fetching_bytes)
    assert not done(app)
    line.set()
    until(app, done)
    assert not warnings(app)
    assert bars(app) == []
