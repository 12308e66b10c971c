"""What a third party adds, each from one file and by one registration, goes through command, store, table and page."""

import json
import shutil
import sys
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

import precomputed
from dashboard.pages.runs.runs_page import CHOSEN
from dashboard.state import results
from dashboard.state.tabs import TABS
from engine.cli import main
from engine.interventions import INTERVENTIONS
from engine.judges.base import JUDGES
from engine.measures.base import MEASURES
from engine.models.loading import LoadedModel
from engine.records.manifest import read_manifest
from engine.results.folders import read_table, write_tables
from engine.results.store import Store
from engine.results.tables import TABLES, frame
from engine.studies.base import ANALYSES, STAGES

FILES = {
    "negate": '''
        import torch
        from engine.interventions import Intervention, register_intervention

        @register_intervention("negate", title="Negate")
        class Negate(Intervention):
            """y_i = -y_i."""

            def apply(self, output, units, layer):
                return torch.where(units, -output, output)
    ''',
    "entropy": '''
        from engine import TokenMeasure, register_measure

        @register_measure("entropy", title="Entropy of the prediction", unit="nats")
        class Entropy(TokenMeasure):
            """Mean entropy of the next token's distribution."""

            kind = "entropy"

            def of_tokens(self, logits, tokens, unedited):
                log_p = logits.log_softmax(-1)
                return -(log_p.exp() * log_p).sum(-1)
    ''',
    "smallest": """
        from dataclasses import dataclass
        from engine.results.tables import Column, TableSpec, frame, register_table
        from engine.run.field_types import option
        from engine.studies.base import AUDIT, register_study

        @dataclass(frozen=True)
        class SmallestPlan:
            smallest_rows: int = option(1, "rows of the edits of `smallest`", least=1, group="smallest")

        register_table(TableSpec(
            "smallest_cost", "What the smallest edit costs", "analyze {model} smallest",
            (Column("model", "text", meaning="model"), Column("selector", "id", meaning="selector"),
             Column("cost", "number", "nats per token", "NLL of one row removed minus the unedited model's")),
            ("model", "selector"),
        ))

        @register_study(
            "smallest", of=AUDIT, plan=SmallestPlan, tables=("smallest_cost",), title="What does one row cost?"
        )
        class Smallest:
            def cells(self, audit, known):
                rows = audit.plan.smallest_rows
                return [audit.dense, *(audit.nll(one.first("lerf", rows)) for one in audit.rankings)]

            def tables(self, audit, results):
                dense, rows = results[audit.dense].nats_per_token, audit.plan.smallest_rows
                lines = [
                    (audit.loaded.id, one.selector, results[audit.nll(one.first("lerf", rows))].nats_per_token - dense)
                    for one in audit.rankings
                ]
                return {"smallest_cost": frame("smallest_cost", lines)}
    """,
    "kept_rows": """
        from dataclasses import dataclass
        import polars as pl
        from engine.results.tables import Column, TableSpec, frame, register_table
        from engine.run.field_types import option
        from engine.run.refusal_plan import ContrastsPlan, JudgedPlan, PromptsPlan
        from engine.studies.base import REFUSAL, Answer, Study, register_study

        register_table(TableSpec(
            "kept_rows", "Rows that no contrast calls important", "refusal kept-rows {model}",
            (Column("model", "text", meaning="model"), Column("selector", "id", meaning="selector"),
             Column("domain", "id", meaning="domain"),
             Column("kept", "number", "share", "rows whose contrast is at most the limit")),
            ("model", "selector", "domain"),
        ))

        @dataclass(frozen=True)
        class KeptPlan:
            kept_limit: float = option(0.0, "largest contrast of a kept row", least=-1, most=1, group="kept rows")

        @register_study(
            "kept-rows", of=REFUSAL, plan=KeptPlan, reads=(PromptsPlan, ContrastsPlan, JudgedPlan),
            tables=("kept_rows",), title="how many rows does no contrast want?", reads_text=False, measures=False,
        )
        class Kept(Study):
            def tables(self, run, results):
                lines = [
                    (run.loaded.id, one.selector, one.domain, float((one.c_comply <= run.plan.kept_limit).mean()))
                    for one in run.contrasts
                ]
                return {"kept_rows": frame("kept_rows", lines)}

            def record(self, run):
                return {"kept_limit": run.plan.kept_limit}

            def answer(self, run, results, tables, folder):
                return Answer([f"{tables['kept_rows'].height} contrasts looked at"], dict(tables))
    """,
    "kept_tab": """
        from dashboard.show import layout
        from dashboard.state.tabs import register_tab

        @register_tab("smallest", page="controls", title="The smallest edit")
        def show(source):
            import streamlit as st
            table = source.table("smallest_cost")
            st.markdown(f"smallest edits: {table.height}")
            return table
    """,
}  # the judge's is in test_judge_registry.py


@pytest.fixture(scope="module")
def plug_ins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("plug_ins")
    for name, text in FILES.items():
        (folder / f"plug_in_{name}.py").write_text(textwrap.dedent(text), encoding="utf-8")
    sys.path.insert(0, str(folder))
    try:
        for name in FILES:
            import_module(f"plug_in_{name}")
        yield
    finally:
        sys.path.remove(str(folder))
        for registry, name in (
            (INTERVENTIONS, "negate"), (MEASURES, "entropy"), (ANALYSES, "smallest"), (TABLES, "smallest_cost"),
            (STAGES, "kept-rows"), (TABLES, "kept_rows"), (TABS, "smallest"),
        ):  # fmt: skip
            registry.remove(name)
        for name in FILES:
            sys.modules.pop(f"plug_in_{name}", None)


def command(name: str, loaded: LoadedModel, text: Path, folder: Path, *more: str) -> int:
    lengths = ("--samples", "4", "--max-length", "16", "--eval-samples", "4", "--eval-length", "16")
    texts = ("--corpus", str(text), "--eval-corpus", str(text), "--selectors", "magnitude")
    where = ("--out", str(folder / "results" / "run"), "--store", str(folder / "store"), "--json")
    return main([name, loaded.id, *more, *texts, *lengths, *where])


def shown(folder: Path, monkeypatch: pytest.MonkeyPatch, page: str, **parameters: str) -> AppTest:
    monkeypatch.setenv(results.STORE_VARIABLE, str(folder / "results"))

    def script(page: str) -> None:
        from importlib import import_module

        import_module(f"dashboard.pages.{page}.{page}_page").render()

    app = AppTest.from_function(script, args=(page,), default_timeout=120)
    for key, value in parameters.items():
        app.query_params[key] = value
    app.run()
    assert not app.exception
    return app


def texts(app: AppTest) -> str:
    return "\n".join(f"{getattr(one, 'value', '')} {getattr(one, 'options', '')}" for one in app.main)


def test_an_intervention_and_a_measure(
    plug_ins: None, tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = ("--rates", "0,0.5", "--measures", "nll,entropy")
    assert command("sweep", tiny_llama, tiny_text, tmp_path, *chosen, "--intervention", "negate") == 0
    run = tmp_path / "results" / "run"
    sweep, others = read_table(run, "sweep"), read_table(run, "sweep_measures")
    assert set(sweep["intervention"]) == set(others["intervention"]) == {"negate"}
    assert set(others["measure"]) == {"entropy"}
    assert set(others["unit"]) == {"nats"}
    assert others["value"].min() > 0
    assert command("sweep", tiny_llama, tiny_text, tmp_path / "zeroed", *chosen) == 0
    zeroed = read_table(tmp_path / "zeroed" / "results" / "run", "sweep")
    assert "intervention" not in zeroed.columns
    assert zeroed.filter(rate=0.0)["nll"].to_list() == pytest.approx(sweep.filter(rate=0.0)["nll"].to_list())
    assert (zeroed.filter(rate=0.5)["nll"] != sweep.filter(rate=0.5)["nll"]).all()
    with Store(tmp_path / "store") as store:
        cells = len(store)
    assert command("sweep", tiny_llama, tiny_text, tmp_path, *chosen, "--intervention", "negate") == 0
    with Store(tmp_path / "store") as store:
        assert len(store) == cells  # all of it was known
    assert "rows changed by negate" in texts(shown(tmp_path, monkeypatch, "curves", source="My results"))
    assert "sweep_measures" in texts(shown(tmp_path, monkeypatch, "runs", runs_view="Tables"))
    app = shown(tmp_path, monkeypatch, "curves", source="My results", view="Measures")
    drawn = [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]
    for figure, order in zip(drawn, ("lerf", "morf"), strict=True):
        [line] = figure["data"]
        expected = others.filter(order=order).sort("rate")
        assert line["y"] == pytest.approx(expected["value"].to_list())
        assert line["error_y"]["array"] == pytest.approx((1.959964 * expected["stderr"]).to_list())
        assert figure["layout"]["yaxis"]["title"]["text"] == "entropy, nats"


def test_an_analysis_with_a_table_of_its_own(
    plug_ins: None, tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert command("analyze", tiny_llama, tiny_text, tmp_path, "smallest") == 0
    run = tmp_path / "results" / "run"
    one_row = read_table(run, "smallest_cost")
    assert command("analyze", tiny_llama, tiny_text, tmp_path, "smallest", "--smallest-rows", "5") == 0
    table = read_table(run, "smallest_cost")
    assert table["selector"].to_list() == ["magnitude"]
    assert table["cost"].to_list() != one_row["cost"].to_list()
    assert read_manifest(run)["files"]["smallest_cost.parquet"]["spec"]["settings"]["smallest_rows"] == 5
    reading = ["--corpus", str(tiny_text), "--samples", "4", "--max-length", "16", "--selectors", "mean_activation"]
    reading += ["--eval-samples", "4", "--eval-length", "16", "--out", str(tmp_path / "read"), "--store"]
    assert main(["analyze", tiny_llama.id, "smallest", "--smallest-rows", "2", *reading, str(tmp_path / "store")]) == 0
    assert (
        main(
            ["replay", str(tmp_path / "read"), "--only", "smallest", "--text", str(tiny_text), "--model", tiny_llama.id]
        )
        == 0
    )
    assert main(["analyze", "m", "--smallest-rows", "0"]) == 2
    with pytest.raises(SystemExit):
        main(["analyze", "--help-all"])
    assert "--smallest-rows" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["analyze", "--help"])
    assert "--smallest-rows SMALLEST_ROWS\n" not in capsys.readouterr().out
    assert read_manifest(run)["files"]["smallest_cost.parquet"]["spec"]["scores"]["selectors"] == ["magnitude"]
    assert "smallest_cost" in texts(shown(tmp_path, monkeypatch, "runs", runs_view="Tables"))
    chosen = {"runs_view": "Start", "start_what": CHOSEN, "start_analyses": "smallest"}
    assert "start_smallest_rows" in {one.key for one in shown(tmp_path, monkeypatch, "runs", **chosen).number_input}
    assert TABS.names() == ["smallest"]


def test_a_stage_of_refusal_with_a_setting_of_its_own(
    plug_ins: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--store", str(tmp_path / "store"), "--out", str(tmp_path / "out")]
    few = ["--selectors", "random", "--domains", "hate", "--pairs-per-domain", "4", "--reply-tokens", "8"]
    assert main(["refusal", "kept-rows", "demo", "--kept-limit", "0.5", *few, *where]) == 0
    assert "1 contrasts looked at" in capsys.readouterr().out
    table = read_table(tmp_path / "out", "kept_rows")
    assert table["kept"].to_list()[0] > 0.5
    assert read_manifest(tmp_path / "out")["files"]["kept_rows.parquet"]["spec"]["kept_limit"] == 0.5
    with pytest.raises(SystemExit):
        main(["refusal", "kept-rows", "--help"])
    assert "--kept-limit" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["refusal", "--help"])
    assert "how many rows does no contrast want?" in " ".join(capsys.readouterr().out.split())


def test_an_analysis_that_is_a_part_of_a_page(plug_ins: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A tab is one registration; its table stands beside the others of the folder."""
    folder = tmp_path / "results" / "run"
    shutil.copytree(precomputed.demo_dir() / "results", folder)
    table = frame("smallest_cost", [("demo", "lrp", 0.5)])
    write_tables(folder, {"smallest_cost": table}, read_manifest(folder)["model"], {}, 0.0)
    assert "smallest edits: 1" in texts(
        shown(tmp_path, monkeypatch, "believed", source="My results", part="The smallest edit")
    )


def test_an_unknown_one_is_named_with_what_there_is(
    plug_ins: None, tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, wrong, right in (("--intervention", "negat", "negate"), ("--measures", "entropi", "entropy")):
        assert command("sweep", tiny_llama, tiny_text, tmp_path, name, wrong) == 2
        assert f"did you mean '{right}'" in capsys.readouterr().err.replace("\n", " ")
    assert JUDGES.names()
