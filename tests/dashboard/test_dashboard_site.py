"""The site: pages of the app's own sentences and figures, nothing from elsewhere, a folder of its own."""

import base64
import hashlib
import json
import math
import re
import shlex
from html import unescape
from pathlib import Path

import pytest
import yaml

from dashboard.charts import curves, series, verdict_chips
from dashboard.chat import shipped_effects as effects
from dashboard.pages.reference import documents
from dashboard.site import build as site_build
from dashboard.state import results, shipped_models as shipped
from engine.cli import build_parser, main
from engine.edits.edit_effect import BROKEN, READABLE
from engine.studies.verdict.judged_selectors import as_judged_now
from precomputed import demo_model_dir

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site") / "pages"
    site_build.build(site_build.runs_of(["demo"], Path), out, measure=False)
    return out


def given(site, name):
    """The value that a script brings."""
    return json.loads((site / "data" / f"{name}.js").read_text("utf-8").partition(" = ")[2].rstrip(";\n"))


def test_every_address_leads_into_the_folder_and_every_page_forbids_connections(site):
    texts = {path.name: path.read_text("utf-8") for path in site.glob("*.html")}
    ids = {name: set(re.findall(r' id="([^"]+)"', text)) for name, text in texts.items()}
    for name, text in texts.items():
        policy = unescape(re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1])
        assert {"default-src 'none'", "script-src 'self'", "connect-src 'none'"} <= set(policy.split("; "))
        assert not re.search(r"<script(?![^>]* src=)[^>]*>|<style|\son\w+=\"|javascript:", text), name
        for kind, address in re.findall(r'\b(src|href)="([^"]*)"', text):
            if address.startswith("https://"):  # somebody may follow it; nothing loads it
                assert kind == "href"
                assert f'<a href="{address}" rel="noreferrer">' in text
                continue
            file, _, place = unescape(address).partition("#")
            assert (site / (file or name)).is_file(), (name, address)
            assert not place or place in ids[file or name], (name, address)
    for file, _, place in (address.partition("#") for address in {line[0] for line in given(site, "search")}):
        assert place in ids[file], (file, place)


def test_sentences_and_figures_are_those_of_the_app_and_the_model_comes_bit_for_bit(site):
    folder = shipped.demo_results_dir()
    verdicts = as_judged_now(results.read_table(folder, "verdicts").frame)
    assert f"{verdict_chips.answer(verdicts)}." in unescape((site / "index.html").read_text("utf-8"))
    sweep = results.read_run(folder).frame
    points = series.points(sweep, "demo", sweep["selector"].unique().to_list(), ["lerf", "morf"], (0.0, 1.0))
    more = {"baseline": series.unmasked_nll(sweep, "demo"), "saturated": results.read_run(folder).saturated_above}
    for figure, order in zip(given(site, "figures-curves"), ("lerf", "morf"), strict=False):
        made = json.loads(curves.curves(points, order, **more).to_json())
        shown, wanted = ([(line["name"], line["y"]) for line in one["data"]] for one in (figure, made))
        assert shown == wanted
    assert base64.b64decode(given(site, "model.safetensors")) == (demo_model_dir() / "model.safetensors").read_bytes()


def test_a_second_site_takes_the_place_of_the_first_and_of_nothing_else(site, tmp_path, capsys):
    old, listed = site / "data" / "old.js", json.loads((site / "site.json").read_text())
    old.write_text("old")
    (changed := site / "data" / "changed.js").write_text("by its reader")
    (outside := tmp_path / "outside.txt").write_text("old")
    (site / "CNAME").write_text("not ours")
    told = dict.fromkeys(("data/old.js", "data/changed.js", str(outside)), hashlib.sha256(b"old").hexdigest())
    (site / "site.json").write_text(json.dumps({**listed, "files": {**listed["files"], **told}}))
    site_build.build(site_build.runs_of(["demo"], Path), site, measure=False)
    assert (old.exists(), changed.exists(), outside.exists()) == (False, True, True)
    assert (site / "CNAME").read_text() == "not ours"
    assert json.loads((site / "site.json").read_text()) == listed
    outside.rename(tmp_path / "mine.txt")
    assert main(["site", "demo", "--out", str(tmp_path)]) == 2
    assert "is there already and not empty; give a new folder with --out" in " ".join(capsys.readouterr().err.split())
    assert main(["site", "nothing", "--out", str(tmp_path / "out"), "--store", str(tmp_path / "store")]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_the_record_has_every_offered_edit_measured_as_the_gate_asks(tmp_path, monkeypatch):
    record, offered = effects.recorded(), {effects.name_of(edit): edit for edit in effects.offered()}
    assert record["effects"].keys() == offered.keys()
    for name, one in record["effects"].items():
        assert one["mask"] == effects.short_hash(effects.mask_of(offered[name]))
        if not one["why"] and "shipped" in one:
            assert one["shipped"][0] >= READABLE
            assert all(one[side][2] >= one[side][1] for side in ("shipped", "pairs"))
        elif not one["why"]:  # broken: nothing was asked
            assert one["nats"][1] - one["nats"][0] > math.log(BROKEN)
    assert {bool(one["why"]) for one in record["effects"].values()} == {True, False}
    monkeypatch.setitem(effects.FILES, "demo", tmp_path / "effects.json")
    for change in ({"weights": "0" * 64}, {"about": record["about"] | {"judge of the shipped prompts": "another 1"}}):
        effects.FILES["demo"].write_text(json.dumps(record | change))
        assert effects.recorded()["effects"] == {}


def test_a_published_notebook_opens_in_colab(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    text = (documents.FOLDER / "own-scores.md").read_text()
    assert "colab" not in site_build._markdown(text)
    monkeypatch.setenv("GITHUB_REPOSITORY", "a/b")
    (path,) = re.findall(
        r'href="https://colab.research.google.com/github/a/b/blob/main/([^"]+)"', site_build._markdown(text)
    )
    assert (ROOT / path).is_file()


def test_scripts_stay_few_and_the_workflow_runs_the_readmes_command():
    scripts = [*site_build.ASSETS.glob("*.js"), site_build.WATCH / "watch.js"]
    assert sum(len(path.read_text().splitlines()) for path in scripts) <= 1500
    steps = yaml.safe_load((ROOT / ".github" / "workflows" / "pages.yml").read_text())["jobs"]["site"]["steps"]
    (command,) = (step["run"] for step in steps if "run" in step)
    assert command.startswith("pip install uv && uv run selector-audit site ")
    args = build_parser().parse_args(shlex.split(command.partition("selector-audit ")[2]))
    (path,) = (step["with"]["path"] for step in steps if "upload-pages-artifact" in step.get("uses", ""))
    assert (str(args.out), args.runs) == (path, ["demo", "smollm2", "gemma3-270m", "paper"])
