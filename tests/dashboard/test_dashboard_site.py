"""The site: pages of the app's own sentences and figures, nothing from elsewhere, a folder of its own."""

import json
import re
import shlex
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

from dashboard.charts import curves, series
from dashboard.charts.findings import trust
from dashboard.site import build as site_build, effects
from dashboard.site.blocks import Run
from dashboard.state import results, shipped
from engine.cli import build_parser, main
from engine.edits.effect import READABLE
from engine.records.errors import InputError
from engine.studies.verdict.judged_selectors import as_judged_now

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = ROOT / ".github" / "workflows" / "pages.yml"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site") / "pages"
    site_build.build(site_build.runs_of(["demo"], Path), out, measure=False)
    return out


def pages(site):
    return {path.name: path.read_text("utf-8") for path in site.glob("*.html")}


def test_every_address_leads_into_the_folder_and_every_page_forbids_connections(site):
    texts, seen = pages(site), 0
    ids = {name: set(re.findall(r' id="([^"]+)"', text)) for name, text in texts.items()}
    for name, text in texts.items():
        policy = unescape(re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1])
        assert "connect-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert not re.search(r"<script(?![^>]* src=)[^>]*>|<style|\son\w+=|javascript:", text), name
        for kind, address in re.findall(r'\b(src|href)="([^"]*)"', text):
            if address.startswith("https://"):
                assert kind == "href"  # somebody may follow it; nothing loads it
                assert f'<a href="{address}" rel="noreferrer">' in text
                continue
            file, _, place = unescape(address).partition("#")
            assert (site / (file or name)).is_file(), (name, address)
            assert not place or unquote(place) in ids[file or name], (name, address)
            seen += 1
    assert seen > 300
    index = json.loads((site / "data" / "search.js").read_text("utf-8").partition(" = ")[2].rstrip(";\n"))
    for address in {line[0] for line in index}:
        file, _, place = address.partition("#")
        assert place in ids[file], address


def test_sentences_and_figures_are_those_of_the_app(site):
    folder = shipped.demo_results_dir()
    verdicts = as_judged_now(results.read_table(folder, "verdicts").frame)
    assert f"{trust.answer(verdicts)}." in unescape(pages(site)["index.html"])
    sweep = results.read_run(folder).frame
    points = series.points(sweep, "demo", sweep["selector"].unique().to_list(), ["lerf", "morf"], (0.0, 1.0))
    script = (site / "data" / "figures-curves.js").read_text("utf-8")
    drawn = json.loads(script.partition(" = ")[2].rstrip(";\n"))
    for figure, order in zip(drawn, ("lerf", "morf"), strict=False):
        made = json.loads(curves.curves(points, order, baseline=series.unmasked_nll(sweep, "demo")).to_json())
        assert [line["y"] for line in figure["data"]] == [line["y"] for line in made["data"]]
        assert [line["name"] for line in figure["data"]] == [line["name"] for line in made["data"]]


def test_the_model_comes_bit_for_bit(site):
    import base64

    script = (site / "data" / "model.safetensors.js").read_text()
    content = base64.b64decode(re.search(r'= "([^"]+)"', script)[1])
    assert content == (ROOT / "precomputed" / "demo" / "model" / "model.safetensors").read_bytes()


def test_a_second_site_takes_the_place_of_the_first_and_of_nothing_else(site, tmp_path, capsys):
    old = site / "data" / "old.js"
    listed = json.loads((site / "site.json").read_text())
    old.write_text("old")
    (site / "CNAME").write_text("kept")
    (site / "site.json").write_text(json.dumps({**listed, "files": {**listed["files"], "data/old.js": ""}}))
    site_build.build(site_build.runs_of(["demo"], Path), site, measure=False)
    assert not old.exists()
    assert (site / "CNAME").read_text() == "kept"
    assert json.loads((site / "site.json").read_text()) == listed
    (tmp_path / "mine.txt").write_text("mine")
    assert main(["site", "demo", "--out", str(tmp_path)]) == 2
    assert "is there already and not empty; give a new folder with --out" in " ".join(capsys.readouterr().err.split())
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_what_is_no_run_is_one_line(tmp_path, capsys):
    assert main(["site", str(tmp_path / "nothing"), "--out", str(tmp_path / "out"), "--store", str(tmp_path)]) == 2
    assert "site: " in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_record_has_every_offered_edit_measured_as_the_gate_asks():
    record = effects.recorded()
    known = record["effects"]
    assert set(known) == {effects.name_of(edit) for edit in effects.offered()}
    for edit in effects.offered():
        one = known[effects.name_of(edit)]
        assert one["mask"] == effects.short_hash(effects.mask_of(edit))
        before, after = one["nats"] or (0.0, 0.0)
        if not one["why"] and after - before <= 2.3:
            n, refused_before, refused_after = one["shipped"]
            assert n >= READABLE
            assert refused_after >= refused_before
            assert one["pairs"][2] >= one["pairs"][1]
    assert {bool(one["why"]) for one in known.values()} == {True, False}


def test_a_record_of_other_weights_or_another_judge_counts_as_none(tmp_path, monkeypatch):
    record = effects.recorded()
    for change in ({"weights": "0" * 64}, {"about": record["about"] | {"judge of the shipped prompts": "another 1"}}):
        monkeypatch.setattr(effects, "FILE", tmp_path / "effects.json")
        effects.FILE.write_text(json.dumps(record | change))
        assert effects.recorded()["effects"] == {}


def test_scripts_stay_few_and_the_workflow_runs_the_readmes_command():
    lines = {path.name: len(path.read_text().splitlines()) for path in site_build.ASSETS.glob("*.js")}
    assert sum(lines.values()) <= 1500
    steps = yaml.safe_load(WORKFLOW.read_text())["jobs"]["site"]["steps"]
    (command,) = (step["run"] for step in steps if "run" in step)
    assert command.startswith("pip install uv && uv run selector-audit site ")
    args = build_parser().parse_args(shlex.split(command.partition("selector-audit ")[2]))
    (path,) = (step["with"]["path"] for step in steps if "upload-pages-artifact" in step.get("uses", ""))
    assert str(args.out) == path
    assert args.runs == ["demo", "smollm2", "paper"]


def test_a_run_without_a_sweep_is_told(tmp_path):
    with pytest.raises(InputError):
        site_build.runs_of(["other"], lambda _: tmp_path)
    assert Run(tmp_path, "x", "x").table("verdicts") is None
