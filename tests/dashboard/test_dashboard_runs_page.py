"""The page Runs as a script: full, empty and damaged folders; deleting, importing, comparing, starting."""

import io
import json
import shlex
import subprocess
import sys
import time
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from app_pages import run_page, shown_command, warnings_of
from synthetic import SLOPES, break_manifest, sweep, write_run

from dashboard.chat import live
from dashboard.pages.runs import catalogue as runs
from dashboard.state import jobs, results
from engine.cli import build_parser
from engine.commands.analyze import audit_plan
from engine.data import texts
from engine.run import audit_plan as plans, field_types
from engine.selectors.base import selector_ids
from engine.selectors.own_scores import read_scores

page = partial(run_page, "runs")


@pytest.fixture
def top(tmp_path, monkeypatch):
    monkeypatch.setenv(results.STORE_VARIABLE, str(tmp_path / "results"))
    (tmp_path / "results").mkdir()
    return tmp_path / "results"


@pytest.fixture
def two_runs(top):
    write_run(top / "first")
    write_run(top / "second", sweep({name: (lerf + 1.0, morf) for name, (lerf, morf) in SLOPES.items()}))
    return top


def test_an_empty_folder_says_how_to_fill_it(top):
    app = page()
    assert warnings_of(app) == []
    assert "Start one, or import" in app.info[0].value
    app.button(key="empty-start").click().run()
    assert warnings_of(app) == []
    assert "start" in [button.key for button in app.button]


def test_runs_are_listed_with_their_files_and_provenance(two_runs):
    app = page(kept_run="second")
    assert warnings_of(app) == []
    table, files = app.dataframe[0].value, app.dataframe[1].value
    assert list(table["run"]) == ["first", "second"]
    assert list(table["state"]) == ["whole", "whole"]
    assert list(files["file"]) == ["sweep.parquet"]
    assert '"made-up-1B"' in app.json[0].value
    assert [button.proto.label for button in app.get("download_button")] == [
        "CSV", "Parquet",
    ]  # fmt: skip


def test_damaged_runs_are_named_and_can_be_deleted(two_runs):
    break_manifest(two_runs / "first")
    (two_runs / "second" / "sweep.parquet").write_bytes(b"x")
    app = page()
    told = warnings_of(app)
    assert len(told) == 3  # one line each, and again where the files of the broken one would stand
    assert "not readable JSON" in told[0]
    assert "second: sweep.parquet does not fit" in told[1]
    app.button(key="delete").click().run()
    app.button(key="delete-yes").click().run()
    assert not app.exception
    assert not (two_runs / "first").exists()
    assert list(app.dataframe[0].value["run"]) == ["second"]


def test_deleting_asks_first(two_runs):
    app = page()
    app.button(key="delete").click().run()
    assert any("Delete first?" in text for text in warnings_of(app))
    app.button(key="delete-no").click().run()
    assert warnings_of(app) == []
    assert (two_runs / "first" / "sweep.parquet").is_file()
    app.button(key="delete").click().run()
    app.selectbox(key="kept_run").set_value("second").run()
    assert warnings_of(app) == []  # the question was about another run
    assert "delete-yes" not in [button.key for button in app.button]
    app.selectbox(key="kept_run").set_value("first").run()
    app.button(key="delete-yes").click().run()
    assert not app.exception
    assert [run.name for run in runs.listed(two_runs)] == ["second"]
    assert "Deleted first" in app.toast[0].value


def test_a_folder_is_imported_under_its_name(top, tmp_path):
    source = write_run(tmp_path / "made elsewhere")
    app = page(runs_view="Import")
    assert app.button(key="import").disabled
    app.text_input(key="import_path").set_value(str(source)).run()
    app.button(key="import").click().run()
    assert warnings_of(app) == []
    assert "made\\-elsewhere" in app.success[0].value
    assert [run.name for run in runs.listed(top)] == ["made-elsewhere"]
    app.text_input(key="import_name").set_value("made-elsewhere").run()
    app.button(key="import").click().run()
    assert "named made-elsewhere already" in warnings_of(app)[0]
    (source / "sweep.parquet").write_bytes(b"x")
    app.text_input(key="import_name").set_value("again").run()
    app.button(key="import").click().run()
    assert "checksum" in warnings_of(app)[0]
    assert [run.name for run in runs.listed(top)] == ["made-elsewhere"]


def test_a_home_of_nobody_cannot_be_imported(top):
    app = page(runs_view="Import")
    app.text_input(key="import_path").set_value("~nobody-of-this-name").run()
    app.button(key="import").click().run()
    assert "give the path of a results folder" in warnings_of(app)[0]


def test_a_zip_is_imported(top, tmp_path):
    source, stream = write_run(tmp_path / "elsewhere"), io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for path in source.iterdir():
            archive.write(path, f"elsewhere/{path.name}")
    app = page(runs_view="Import", import_from="A zip file")
    app.get("file_uploader")[0].set_value(("my run.zip", stream.getvalue(), "application/zip")).run()
    app.button(key="import").click().run()
    assert warnings_of(app) == []
    assert [run.name for run in runs.listed(top)] == ["my-run"]


def test_the_form_shows_the_command_and_its_state_is_in_the_link(top, registry):
    app = page(runs_view="Start", start_model="/models/x", start_what="Choose", start_analyses=["depth", "gap"],
               start_corpus="my.txt", start_samples="4")  # fmt: skip
    assert warnings_of(app) == []
    command = shown_command(app)
    assert command.startswith("selector-audit analyze /models/x depth gap --preset=quick --corpus=my.txt --samples=4")
    assert f"--out={top / 'x'}" in command
    assert "--preset=demo" in shown_command(page(runs_view="Start"))
    assert f"another {app.selectbox(key='start_corpus').label.lower()}, demo or a file" in texts._ALTERNATIVE


def kind_of(setting):
    """Numbers are typed, names and rates picked, texts picked or typed."""
    if setting.kind is int:
        return "number_input"
    several = isinstance(setting.read, field_types.Names) and not setting.read.single
    if several or setting.read in (field_types.rates, field_types.rates_or_sweep):
        return "multiselect"
    return "selectbox" if setting.choices or setting.field.endswith("corpus") else "text_input"


@pytest.mark.parametrize(("model", "preset"), [("demo", "demo"), ("/models/x", "quick"), ("/models/x", "paper")])
def test_the_form_has_a_widget_for_every_setting_and_no_default_of_its_own(top, registry, model, preset):
    chosen = f"{preset}: {plans.PRESETS[preset].note}"
    app = page(runs_view="Start", start_model=model, start_preset=chosen, start_what="Everything")
    assert warnings_of(app) == []
    plan = plans.for_model(plans.preset(preset), model)
    kept = build_parser().parse_args(["analyze", model]).plan_options
    for setting in kept.values():
        (kind,) = {one.type for one in app.main if getattr(one, "key", "") == f"start_{setting.field}"}
        assert kind == kind_of(setting)
        (widget,) = [one for one in app.get(kind) if one.key == f"start_{setting.field}"]
        assert not widget.value
        assert widget.proto.placeholder.removesuffix(", or the path of your file") == setting.default(plan)
        assert widget.help == setting.described
        if kind == "number_input":
            assert widget.min == setting.least
    words = shown_command(app).split()
    assert words[:5] == ["selector-audit", "analyze", model, "all", f"--preset={preset}"]
    assert [word.partition("=")[0] for word in words[5:]] == ["--out"]
    assert audit_plan(build_parser().parse_args(words[1:])) == plan


def uploaded(name, **tables):
    stream = io.BytesIO()
    np.savez(stream, **tables)
    return name, stream.getvalue(), "application/octet-stream"


def test_scores_of_ones_own_are_uploaded_and_kept_by_their_hash(top, registry):
    files = [uploaded("my scores.npz", a=np.ones(3)), uploaded("b.npz", a=np.zeros(3))]
    app = page(runs_view="Start")
    app.file_uploader(key="start_own_files").set_value(files).run()
    app.text_input(key="start_own_name").set_value("captum").run()
    app.multiselect(key="start_selectors").set_value(["random", "captum"]).run()
    assert warnings_of(app) == []
    args = build_parser().parse_args(shlex.split(shown_command(app))[1:])
    paths = [Path(one.removeprefix("captum=")) for one in args.scores]
    assert [path.read_bytes() for path in paths] == [content for _, content, _ in files]
    assert [path.parent.name for path in paths] == ["score_files"] * 2
    assert [read_scores(path).name for path in paths] == ["my scores.npz", "b.npz"]
    assert not app.button(key="start").disabled
    assert "captum" not in selector_ids()  # in this process
    app.text_input(key="start_own_name").set_value("lrp").run()
    assert "there is a selector 'lrp' already" in warnings_of(app)[0]
    app.text_input(key="start_own_name").set_value("captum").run()
    app.text_input(key="start_own_name").set_value("my score!").run()
    allowed = "a letter, then up to 39 letters, digits, _ and -"
    assert warnings_of(app)[0] == f"the name of the scores must be {allowed}, got 'my score!'; write mine"


def test_a_file_that_holds_no_scores_is_told_below_its_field_and_starts_nothing(top, registry):
    app, nan = page(runs_view="Start"), uploaded("NaN (1).npz", q=np.array([1, np.nan, np.inf]))
    for file, why in ((nan, "2 numbers of q are NaN"), (("a b.csv", b"row,score\n1,2\n", ""), "its columns are row")):
        app.file_uploader(key="start_own_files").set_value([file]).run()
        below_its_field, at_the_button = warnings_of(app)
        assert below_its_field.startswith(f"{file[0]} cannot be read as scores ({why}")
        assert "what is wrong stands below their files" in at_the_button
        assert not {"start", "start-estimate"} & {button.key for button in app.button}


def test_uploaded_scores_ask_for_a_verdict_unless_something_else_is_chosen(top, registry):
    app, file = page(runs_view="Start"), uploaded("a.npz", a=np.ones(3))
    for files, asked in (([file], "verdict sweep"), ([], "sweep"), ([file], "verdict sweep"), ([file, file], "sweep")):
        if len(files) == 2:
            app.segmented_control(key="start_what").set_value("Curves")
        app.file_uploader(key="start_own_files").set_value(files).run()
        assert shown_command(app).startswith(f"selector-audit analyze demo {asked} --preset")


def test_what_was_typed_stays_when_another_preset_is_chosen(top, registry):
    app = page(runs_view="Start", start_what="Everything")
    app.number_input(key="start_samples").set_value(4).run()
    app.text_input(key="start_stability_sizes").set_value("2,4").run()
    app.selectbox(key="start_objective").set_value("logit").run()
    app.selectbox(key="start_preset").set_value("paper").run()
    assert warnings_of(app) == []
    assert "--preset=paper --samples=4 --objective=logit --sizes=2,4 " in shown_command(app)
    plan = audit_plan(build_parser().parse_args(shown_command(app).split()[1:]))
    assert (plan.scoring.samples, plan.scoring.objective, plan.stability_sizes) == (4, "logit", (2, 4))


def test_another_model_starts_with_its_own_preset(top, registry):
    app = page(runs_view="Start")
    assert app.selectbox(key="start_preset").value == "demo"
    app.selectbox(key="start_which").set_value("Another model").run()
    app.text_input(key="start_model").set_value("/models/x").run()
    assert "--preset=quick" in shown_command(app)
    app.selectbox(key="start_preset").set_value("paper").run()
    app.text_input(key="start_model").set_value("/models/y").run()
    assert "--preset=paper" in shown_command(app)  # the choice fits this model as well
    app.text_input(key="start_model").set_value("demo").run()
    assert "--preset=demo" in shown_command(app)


def test_only_the_fields_of_what_is_chosen_are_asked(top, registry):
    def fields(what, *analyses):
        app = page(runs_view="Start", start_what=what, **({"start_analyses": [*analyses]} if analyses else {}))
        assert warnings_of(app) == []
        keys = {one.key for kind in ("number_input", "multiselect", "selectbox", "text_input") for one in app.get(kind)}
        return {key for key in keys if key} - {"start_which", "start_preset", "start_name", "start_own_name"}

    curves, depth, everything = fields("Curves"), fields("Choose", "depth"), fields("Everything")
    assert depth < curves < everything
    assert "start_sweep_rates" in curves - depth
    assert "start_calibration_draws" in fields("Choose", "verdict") - curves
    assert len(curves) < len(everything) / 2


@pytest.mark.long
def test_what_a_run_takes_is_said_before_it_starts(top, registry, monkeypatch):
    monkeypatch.setattr(live, "POOL", live.ModelPool(live._load))  # a model in memory is estimated without a button
    app = page(runs_view="Start")
    app.button(key="start-estimate").click().run()
    assert warnings_of(app) == []
    assert any("of matrix products" in one.value for one in app.caption)
    assert registry.all() == []


def test_models_of_earlier_runs_are_offered(two_runs, registry):
    assert "made-up-1B" in page(runs_view="Start").selectbox(key="start_which").options


def test_nothing_chosen_is_one_line(top, registry):
    app = page(runs_view="Start", start_what="Choose")
    (text,) = warnings_of(app)
    assert "at least one analysis" in text
    assert "start" not in [button.key for button in app.button]


def test_a_job_is_shown_to_every_session_until_it_is_dismissed(top, registry, child):
    child("import time; time.sleep(600)")
    app = page(runs_view="Start", start_name="my run")
    app.text_input(key="start_name").set_value("my run").run()
    app.button(key="start").click().run()
    assert warnings_of(app) == []
    (job,) = registry.all()
    assert job.request.folder == top / "my-run"

    other = page()
    assert any("**my\\-run** under way" in block.value for block in other.markdown)
    (job.files / "progress.json").write_text('{"stage": "*sweep*", "done": 1, "total": 4, "seconds_left": 9.0}')
    other.run()
    bar = other.get("progress")[0].proto
    assert bar.value == 25
    assert bar.text == "\\*sweep\\*\\: 1 of 4, about 9 s left of this stage"
    app.button(key="start").click().run()
    assert "a run is under way" in app.toast[0].value.replace("\\", "")
    other.button(key=f"cancel-{job.id}").click().run()
    end = time.monotonic() + 60
    while job.active:
        assert time.monotonic() < end
        time.sleep(0.05)
    other.run()
    assert any("was cancelled" in block.value for block in other.markdown)
    other.button(key=f"forget-{job.id}").click().run()
    assert registry.all() == []
    assert not any("my\\-run" in block.value for block in other.markdown)


def test_a_failed_job_says_why_as_text(top, registry, child):
    child("import sys; sys.exit('no model ![x](http:y)')")
    job = registry.start(jobs.analysis("demo", ("sweep",), top / "run", "demo"))
    job.process.wait(60)
    app = page()
    assert not app.exception
    assert "\\!\\[x\\]" in app.error[0].value
    assert app.button(key=f"resume-{job.id}").proto.label == "Resume"


def test_the_run_stands_below_the_button_that_started_it(top, registry, child):
    child("import time; time.sleep(600)")
    app = page(runs_view="Start")
    app.button(key="start").click().run()
    (job,) = registry.all()
    tabs = {tab.label: tab for tab in app.tabs}
    assert len(tabs["Start"].get("progress")) == len(app.get("progress")) == 1
    told = {"stage": "cells", "done": 3, "total": 12, "seconds_left": 8.0, "part": "gap", "number": 2, "parts": 4,
            "seconds_left_of_all": 8.0}  # fmt: skip
    (job.files / "progress.json").write_text(json.dumps(told))
    app.run()
    bar = app.get("progress")[0].proto
    assert bar.text.replace("\\", "") == "Stage 2 of 4, gap. cells: 3 of 12, about 8 s left of all"
    assert len(page().get("progress")) == 1  # above the tabs where another one is open
    job.process.kill()


def test_ids_are_checked_before_the_start(top, registry, tmp_path):
    app = page(runs_view="Start")
    app.multiselect(key="start_sweep_rates").set_value(["10%", "1.5"]).run()
    (text,) = warnings_of(app)
    assert text.startswith("Shares of rows removed: ")
    assert "must be in [0, 1]" in text
    assert "start" not in [button.key for button in app.button]
    app = page(runs_view="Start", start_model=str(tmp_path / "no such model"))
    app.button(key="start").click().run()
    assert "there is no folder" in app.toast[0].value.replace("\\", "")
    (tmp_path / "empty").mkdir()
    app = page(runs_view="Start", start_model=str(tmp_path / "empty"))
    app.button(key="start").click().run()
    assert "has no config.json" in app.toast[0].value.replace("\\", "")
    assert registry.all() == []


def test_a_run_with_a_name_of_markdown_stays_text(top):
    folder = write_run(top / "![x](y)")
    (folder / "sweep.parquet").unlink()
    assert "\\!\\[x\\]" in page().warning[0].value


def test_a_run_of_another_process_is_shown_and_stopped(two_runs, monkeypatch):
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom engine.results.running import claimed\n"
        "with claimed(Path(sys.argv[1]), ['a'], ['analyze', 'demo', 'sweep']):\n    print('held', flush=True)\n"
        "    time.sleep(60)\n"
    )
    monkeypatch.setattr(results, "store_dir", lambda: two_runs.parent)
    words = [sys.executable, "-c", code, str(two_runs.parent)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        try:
            app = page()
            assert any(f"process {other.pid}" in one.value for one in app.markdown)
            assert any(one.value == "selector-audit analyze demo sweep" for one in app.code)
            app.button(key=f"stop-{other.pid}").click().run()
            assert not app.exception
            assert other.wait(20) != 0
        finally:
            other.kill()
    assert not any("started by" in one.value for one in page().markdown)
