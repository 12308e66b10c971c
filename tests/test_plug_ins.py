"""What a third party adds, each from one file and by one registration, goes through command, store, table and page."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.state import results
from engine.cli import main
from engine.interventions import INTERVENTIONS
from engine.judges.base import JUDGES
from engine.measures.base import MEASURES
from engine.models.loading import LoadedModel
from engine.records.manifest import read_manifest
from engine.results.folders import read_table
from engine.results.store import Store
from engine.results.tables import TABLES
from engine.studies.base import ANALYSES

FILES = {
    "negate": '''
        import torch
        from engine.interventions import register_intervention

        @register_intervention("negate", title="Negate")
        class Negate:
            """y_i = -y_i."""

            def apply(self, output, units, layer):
                return torch.where(units, -output, output)
    ''',
    "entropy": '''
        from dataclasses import dataclass
        import torch
        from engine import register_measure

        @dataclass(frozen=True)
        class Entropy:
            windows: object
            kind = "entropy"

            def record(self, loaded):
                return {"tokens": self.windows.token_hash}

            def encode(self, result):
                return {"value": result.value}

            def decode(self, stored):
                return Result(stored["value"], self.windows.input_ids.numel())

            def measure(self, loaded, edit):
                with torch.no_grad():
                    chances = loaded.model(input_ids=self.windows.input_ids).logits.softmax(-1)
                nats = -(chances * chances.log()).sum(-1).mean()
                return Result(float(nats), self.windows.input_ids.numel())

        @dataclass(frozen=True)
        class Result:
            value: float
            tokens: int
            stderr = None

        @register_measure("entropy", title="Entropy of the prediction", unit="nats")
        def entropy(windows, batch_size):
            """Mean entropy of the next token's distribution."""
            return Entropy(windows)
    ''',
    "smallest": """
        from engine.results.tables import Column, TableSpec, frame, register_table
        from engine.studies.base import register_analysis

        register_table(TableSpec(
            "smallest_cost", "What the smallest edit costs", "analyze {model} smallest",
            (Column("model", "text", meaning="model"), Column("selector", "id", meaning="selector"),
             Column("cost", "number", "nats per token", "NLL of one row removed minus the unedited model's")),
            ("model", "selector"),
        ))

        @register_analysis("smallest", tables=("smallest_cost",), title="What does one row cost?")
        class Smallest:
            def cells(self, audit, known):
                return [audit.dense, *(audit.nll(one.first("lerf", 1)) for one in audit.rankings)]

            def tables(self, audit, results):
                dense = results[audit.dense].nats_per_token
                lines = [
                    (audit.loaded.id, one.selector, results[audit.nll(one.first("lerf", 1))].nats_per_token - dense)
                    for one in audit.rankings
                ]
                return {"smallest_cost": frame("smallest_cost", lines)}
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

        import_module(f"dashboard.pages.{page}.page").render()

    app = AppTest.from_function(script, args=(page,), default_timeout=120)
    for key, value in parameters.items():
        app.query_params[key] = value
    app.run()
    assert not app.exception
    return app


def texts(app: AppTest) -> str:
    return "\n".join(f"{getattr(one, 'value', '')} {getattr(one, 'options', '')}" for one in app.main)


def test_an_intervention_and_a_measure(
    plug_ins: None,
    tiny_llama: LoadedModel,
    tiny_text: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
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


def test_an_analysis_with_a_table_of_its_own(
    plug_ins: None,
    tiny_llama: LoadedModel,
    tiny_text: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert command("analyze", tiny_llama, tiny_text, tmp_path, "smallest") == 0
    run = tmp_path / "results" / "run"
    table = read_table(run, "smallest_cost")
    assert table["selector"].to_list() == ["magnitude"]
    assert read_manifest(run)["files"]["smallest_cost.parquet"]["spec"]["scores"]["selectors"] == ["magnitude"]
    assert "smallest_cost" in texts(shown(tmp_path, monkeypatch, "runs", runs_view="Tables"))


def test_an_unknown_one_is_named_with_what_there_is(
    plug_ins: None,
    tiny_llama: LoadedModel,
    tiny_text: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for option, wrong, right in (("--intervention", "negat", "negate"), ("--measures", "entropi", "entropy")):
        assert command("sweep", tiny_llama, tiny_text, tmp_path, option, wrong) == 2
        assert f"did you mean '{right}'" in capsys.readouterr().err.replace("\n", " ")
    assert JUDGES.names()
