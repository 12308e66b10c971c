"""The run that makes a missing table: its command parses, has the settings of the rest, and is counted beforehand."""

import pytest
from synthetic import MODEL, write_run

from dashboard.state import estimates, remakes, results, shipped_models as shipped
from engine.cli import build_parser, main
from engine.commands.analyze import audit_plan
from engine.records.manifest import add_to_manifest, read_manifest
from engine.results.tables import TABLES
from engine.run.audit_plan import for_model, preset


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv(results.STORE_VARIABLE, str(tmp_path))
    return write_run(tmp_path / "run")


def test_the_settings_of_a_folder_are_those_of_the_run(run):
    """What the folder's manifest tells of other tables goes into the command, and comes out of it again."""
    spec = read_manifest(shipped.demo_results_dir())["files"]["gap.parquet"]["spec"]
    add_to_manifest(run, dict(MODEL), "sweep.parquet", spec, 1.0)
    made = remakes.remake(run, "gap")
    assert made.notes == ()
    args = build_parser().parse_args(made.request.arguments())
    assert audit_plan(args) == for_model(preset("demo"), "demo") == made.plan
    assert made.analyses == ("gap",)
    assert (args.revision, args.dtype, args.out) == (MODEL["revision"], MODEL["dtype"], run)


def test_shipped_results_stay_as_they_are(run):
    """What the shipped folder lacks goes into a run of one's own."""
    made = remakes.remake(shipped.demo_results_dir(), "stability")
    assert made.request.folder == results.results_dir() / "demo"
    assert made.request.words == ("analyze", "demo", "stability")


def test_every_command_of_the_registry_parses_or_is_not_offered(run):
    """No table is offered by a command that does not exist, none that needs what nobody named."""
    offered, parser = [stem for stem in TABLES.names() if remakes.possible(run, stem)], build_parser()
    for stem in offered:
        args = parser.parse_args(remakes.remake(run, stem).request.arguments())
        assert args.out == run
        assert args.model == MODEL["id"]
    assert {"gap", "rows", "sweep", "sweep_interventions", "refusal_draws", "operating_points", "claims"} <= {*offered}
    assert not {"judge_pairs", "judge_verdicts"} & {*offered}
    assert dict(remakes.remake(run, "sweep_interventions").request.options)["--more-interventions"] == "mean,resample"
    assert dict(remakes.remake(run, "refusal_sweep").request.options)["--pairs"] == "demo"


@pytest.mark.long
def test_the_estimate_of_the_shipped_model(tmp_path, monkeypatch):
    monkeypatch.setenv(results.STORE_VARIABLE, str(tmp_path))
    gap = estimates.of_remake(remakes.remake(shipped.demo_results_dir(), "gap"))
    assert gap.startswith("Scores and ")
    assert "cells: about" in gap
    assert "of matrix products on" in gap
    verdict = estimates.of_remake(remakes.remake(shipped.demo_results_dir(), "verdicts"))
    assert "at least" in verdict
    sweep = estimates.of_remake(remakes.remake(shipped.demo_results_dir(), "refusal_sweep"))
    draws = estimates.of_remake(remakes.remake(shipped.demo_results_dir(), "refusal_draws"))
    edits = [int(one.split(" edits per domain")[0].rsplit(" ", 1)[1].replace(",", "")) for one in (sweep, draws)]
    plan = remakes.remake(shipped.demo_results_dir(), "refusal_draws").plan
    assert edits == [n * len(plan.lambdas) * len(plan.ks) * len(plan.selectors) for n in (1, 1 + plan.draws)]


@pytest.mark.long
def test_a_real_table_is_computed_with_the_settings_of_the_rest(tiny_text, tmp_path, monkeypatch, registry):
    """From a folder that has a sweep, by the run that the page starts, to the table with the same settings."""
    from tiny_models import save_tiny

    monkeypatch.setenv(results.STORE_VARIABLE, str(tmp_path / "store"))
    model, folder = save_tiny("llama", tmp_path), tmp_path / "store" / "results" / "mine"
    sizes = ["--samples=4", "--max-length=16", "--eval-samples=8", "--eval-length=16", f"--corpus={tiny_text}"]
    words = ["analyze", str(model), "sweep", "--preset=quick", "--selectors=random,magnitude,wanda", *sizes]
    assert main([*words, f"--out={folder}", f"--store={tmp_path / 'store'}", "--json"]) == 0
    made = remakes.remake(folder, "gap", [tiny_text])
    assert made.notes == ()
    job = registry.start(made.request)
    assert job.process.wait(240) == 0, job.message
    assert job.state == "done"
    files = read_manifest(folder)["files"]
    specs = [files[f"{stem}.parquet"]["spec"] for stem in ("sweep", "gap")]
    assert specs[0]["settings"] == specs[1]["settings"]
    assert specs[0]["scores"] == specs[1]["scores"]
    assert results.read_table(folder, "gap").frame["selector"].n_unique() == 3
    assert job.progress["number"] == job.progress["parts"] == 2
