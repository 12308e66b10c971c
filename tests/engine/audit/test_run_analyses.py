"""All analyses in one go: every table, an interruption in the middle, a plug-in selector, what cannot be done here."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import tiny_models
import torch
from tiny_audits import count_edits, tiny_audit
from traced_reads import reads_of

from engine.cli import build_parser, main
from engine.commands.analyze import audit_plan
from engine.records.errors import InputError
from engine.records.hashing import file_sha256
from engine.records.manifest import read_manifest
from engine.results.folders import read_table, table_names
from engine.results.store import Store
from engine.run.audit_plan import PAPER_SELECTORS, AuditPlan, ProtocolsPlan, RepliesPlan
from engine.run.field_types import settings_of
from engine.run.runner import LocalRunner
from engine.selectors import register_selector
from engine.selectors.base import REGISTRY
from engine.studies.base import ANALYSES
from engine.studies.conduct import run_studies

SMALL = {
    "sweep_rates": (0.0, 0.3), "stability_sizes": (2, 6), "stability_rates": (0.3,), "agreement_rates": (0.3,),
    "null_seeds": (0,), "rank_distribution_rates": (0.3,), "gap_rates": (0.3,),
    "singles_rows": 12, "singles_neurons": 4, "singles_windows": 2, "published_claims": ("wanda_pruning",),
    "protocols": ProtocolsPlan(protocol_rates=(0.3,), protocol_windows=2, resample_windows=2),
    "replies": RepliesPlan(replies_prompts=("Where?", "Why?"), replies_tokens=4),
}  # fmt: skip
PLANS = {AuditPlan, *(type(getattr(AuditPlan(), one.path[0])) for one in settings_of(AuditPlan) if one.path[1:])}
SOMETIMES = {"score_files", "more_rates", "specific_most", "dangerous_draws"}  # not in this run, which asks for none
OFFLINE = [name for name in ANALYSES.names() if name not in ("domain", "downstream")]
TABLES = {
    "rows", "sweep", "budget", "parts", "joint", "gap", "seeds", "differences", "jaccard", "spearman", "depth",
    "mask_depth", "published_claims", "controls", "control_differences", "layer_matched", "specific",
    "draws", "draw_sweep", "rank_distribution", "dangerous", "dangerous_summary", "stability", "verdicts",
    "verdict_moves", "singles", "singles_units", "singles_selectors", "singles_recall",
    "invariance_rewrites", "invariance", "invariance_decoys", "invariance_verdicts", "claims",
    "protocols", "protocols_areas", "protocols_pairs", "protocols_claims", "protocols_units", "sweep_replies",
}  # fmt: skip


def run(audit, names, folder, **more):
    return run_studies(audit, names, folder, LocalRunner(audit.store, audit.progress), **more)


def audit(loaded, text, store, **more):
    scoring = {"seeds": (42, 43), **more.pop("scoring", {})}
    return tiny_audit(loaded, text, store, scoring=scoring, **{**SMALL, **more})


def elsewhere(folder):
    return {"domain_corpus": str(folder / "other.txt"), "domain_draws": 2, "domain_rates": (0.3,),
            "downstream_tasks": str(folder / "tasks"), "downstream_rates": (0.0, 0.3)}  # fmt: skip


@pytest.fixture(scope="module")
def whole(tiny_llama, tiny_text, tmp_path_factory):
    """A folder with the store and the tables of one run of everything."""
    folder = tmp_path_factory.mktemp("whole")
    offered = [one for one in settings_of(AuditPlan) if one.option]
    (folder / "other.txt").write_text(tiny_models.text(documents=60, seed=5).replace("t", "z"), encoding="utf-8")
    (folder / "tasks").mkdir()
    items = [{"query": f"the {n} sat", "choices": ["cat", "mat"], "gold": n % 2} for n in range(6)]
    (folder / "tasks" / "own.jsonl").write_text("\n".join(map(json.dumps, items)), encoding="utf-8")
    with Store(folder / "store") as store, reads_of(*PLANS) as reads:
        report = run(audit(tiny_llama, tiny_text, store, **elsewhere(folder)), ANALYSES.names(), folder / "out")
    assert {one.path[-1] for one in offered} - reads == SOMETIMES
    assert set(report["done"]) == {"scores", *ANALYSES.names()}
    assert report["skipped"] == {}
    return folder


@pytest.mark.long
def test_every_table_is_written_with_its_provenance(tiny_llama, whole):
    further = {"domain", "domain_draws", "domain_evaluation", "downstream", "downstream_tasks", "downstream_pairs"}
    assert set(table_names(whole / "out")) == TABLES | further
    manifest = read_manifest(whole / "out")
    made_from = manifest["files"]["claims.parquet"]["spec"]["made_from"]
    assert made_from["verdicts.parquet"] == manifest["files"]["verdicts.parquet"]["sha256"]
    ledger = read_table(whole / "out", "claims")
    assert {"gap", "stability", "dangerous", "invariance"} <= set(ledger["kind"])
    for stem in TABLES - {"rows", "claims"}:
        table = read_table(whole / "out", stem)
        assert table.height
        assert table["model"].unique().to_list() == [Path(tiny_llama.id).name]
        spec = manifest["files"][f"{stem}.parquet"]["spec"]
        assert spec["scores"]["calibration"]["samples"] == 6
        assert spec["settings"]["eval_length"] == 16
    assert set(read_table(whole / "out", "verdicts")["selector"]) == set(PAPER_SELECTORS)


def test_scores_and_stability_read_the_calibration_text_once(tiny_llama, tiny_text, tmp_path):
    """Windows that go forward and backward: lrp's pass and ig's 16, which serve every other selector too."""
    seen = []

    def count(_, __, given, output):
        seen.extend([1] * len(given["inputs_embeds"]) if output.logits.requires_grad else [])

    selectors = ("wanda", "lrp", "ig", "consensus2", "grad_x_input", "ig_conductance")
    handle = tiny_llama.model.register_forward_hook(count, with_kwargs=True)
    try:
        with Store(tmp_path / "store") as store:
            changed = audit(tiny_llama, tiny_text, store, scoring={"selectors": selectors})
            report = run(changed, ["agreement", "stability"], tmp_path / "out")
    finally:
        handle.remove()
    assert set(report["done"]) == {"scores", "agreement", "stability"}
    assert len(seen) == 6 * (1 + 16)


@pytest.mark.long
def test_an_interrupted_run_goes_on_where_it_stopped(tiny_llama, tiny_text, whole, tmp_path, monkeypatch):
    """Stopped after each third of the evaluations: no mask is evaluated twice, and the tables are the same."""
    with Store(whole / "store") as store:
        expected = sum(1 for key in store.keys() if "window_nats" in (store.get(key) or {}))  # noqa: SIM118
    stops, evaluated = 0, 0
    with Store(tmp_path / "pieces") as store:
        while True:
            with monkeypatch.context() as patched:
                seen = count_edits(patched, fail_after=expected // 3)
                try:
                    run(audit(tiny_llama, tiny_text, store, **elsewhere(whole)), ANALYSES.names(), tmp_path / "out")
                    break
                except KeyboardInterrupt:
                    stops += 1
                finally:
                    evaluated += len(seen)
        assert stops >= 2
        seen = count_edits(monkeypatch, fail_after=0)  # everything is known now: evaluating anything would stop
        run(audit(tiny_llama, tiny_text, store, **elsewhere(whole)), ANALYSES.names(), tmp_path / "again")
    assert evaluated == expected
    assert not seen
    for stem in TABLES:
        digest = file_sha256(whole / "out" / f"{stem}.parquet")
        assert file_sha256(tmp_path / "out" / f"{stem}.parquet") == digest, stem
        assert file_sha256(tmp_path / "again" / f"{stem}.parquet") == digest, stem


@pytest.mark.long
def test_a_plug_in_selector_takes_part_in_every_analysis(tiny_llama, tiny_text, whole, tmp_path):
    @register_selector("output_rms")
    class OutputPower:
        """s_i = E |h_i| squared, from the shared pass."""

        def score(self, run):
            return run.activations().output_mean_abs ** 2

    try:
        with Store(shutil.copytree(whole / "store", tmp_path / "store")) as store:
            chosen = audit(tiny_llama, tiny_text, store, scoring={"selectors": (*PAPER_SELECTORS, "output_rms")})
            run(chosen, OFFLINE, tmp_path / "out")
    finally:
        REGISTRY.remove("output_rms")
    without = {"rows", "seeds", "controls", "control_differences", "rank_distribution", "published_claims"}
    for stem in TABLES - without - {"singles", "singles_units", "invariance_rewrites", "protocols_units"}:
        table = read_table(tmp_path / "out", stem)
        named = {name for column in table.columns if column.startswith("selector") for name in table[column]}
        assert "output_rms" in named, stem


def test_what_cannot_be_done_here_is_an_error_or_skipped(tiny_llama, tiny_text, tmp_path):
    with Store(tmp_path / "store") as store:
        chosen = audit(tiny_llama, tiny_text, store)
        with pytest.raises(InputError, match="c4"):
            run(chosen, ["domain"], tmp_path / "out")
        report = run(chosen, ["domain", "depth"], tmp_path / "out", skip=True)
        assert set(report["done"]) == {"scores", "depth"}
        assert "c4" in report["skipped"]["domain"]
        with pytest.raises(InputError, match="did you mean 'depth'"):
            run(chosen, ["dept"], tmp_path / "out")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--preset", "papier"], "did you mean 'paper'"),
        (["--sizes", "8"], "--sizes"),
        (["--samples", "0"], "--samples"),
        (["--selectors", "lpr"], "did you mean 'lrp'"),
        (["agreemen"], "did you mean 'agreement'"),
        (["verdict", "--selectors", "magnitude,wanda"], "add random to --selectors"),  # not after hours
    ],
)
def test_wrong_input_is_one_line(more, said, capsys):
    assert main(["analyze", "demo", *more]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("name", ["quick", "paper", "demo"])
def test_every_preset_of_the_shipped_model_reads_what_ships(name):
    plan = audit_plan(build_parser().parse_args(["analyze", "demo", "--preset", name]))
    assert (plan.scoring.corpus, plan.eval_corpus, plan.domain_corpus) == ("demo", "demo", "demo-chat")
    assert plan.downstream_tasks == "demo"


def test_options_win_over_the_preset():
    asked = ["analyze", "org/model", "--samples", "9", "--corpus", "my.txt", "--sizes", "2,4", "--selectors", "ig"]
    plan = audit_plan(build_parser().parse_args(asked))
    assert (plan.scoring.samples, plan.scoring.selectors) == (9, ("ig",))
    assert (plan.scoring.corpus, plan.eval_corpus, plan.domain_corpus) == ("my.txt", "my.txt", "c4")
    assert (plan.stability_sizes, plan.eval_samples) == ((2, 4), 256)


def test_a_text_that_cannot_be_read_is_told_before_the_scores(tiny_llama, tiny_text, tmp_path):
    with Store(tmp_path / "store") as store:
        one = audit(tiny_llama, tiny_text, store, eval_corpus=str(tmp_path / "nowhere.txt"))
        with pytest.raises(InputError, match="nowhere"):
            run(one, ["sweep"], tmp_path / "out", skip=True)
        assert not list((store.folder / "arrays").glob("*"))
        report = run(one, ["agreement", "depth"], tmp_path / "out")  # nothing is evaluated in these
    assert set(report["done"]) == {"scores", "agreement", "depth"}
    manifest = read_manifest(tmp_path / "out")
    assert "evaluation" not in manifest["files"]["depth.parquet"]["spec"]


@pytest.mark.long
def test_a_report_of_selectors_that_see_no_text(tiny_llama, tiny_text, tmp_path, capsys):
    with Store(tmp_path / "store") as store:
        one = audit(tiny_llama, tiny_text, store, scoring={"selectors": ("random", "magnitude")})
        run(one, ["sweep", "stability", "verdict"], tmp_path / "out", skip=True)
    assert main(["report", str(tmp_path / "out"), "--out", str(tmp_path / "report.html")]) == 0
    assert "selector-audit analyze" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "error", [InputError("out of memory with a single window per pass"), torch.OutOfMemoryError("CUDA out of memory")]
)
def test_an_analysis_that_finds_no_memory_is_left_out(tiny_llama, tiny_text, tmp_path, monkeypatch, error):
    def fails(*_):
        raise error

    monkeypatch.setattr("engine.studies.audit.verdicts.Gap.tables", fails)
    with Store(tmp_path / "store") as store:
        one = audit(tiny_llama, tiny_text, store, scoring={"selectors": ("random", "magnitude")})
        with pytest.raises(type(error)):
            run(one, ["gap", "depth"], tmp_path / "out")
        report = run(one, ["gap", "seeds", "depth"], tmp_path / "out", skip=True)
    assert set(report["done"]) == {"scores", "depth", "seeds"}
    assert report["skipped"] == {"gap": str(error)}
