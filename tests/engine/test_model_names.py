"""A local model is called by its folder's name in tables, titles and the report; its path stays in the manifest."""

import json
import re
from pathlib import Path

import polars as pl
import pytest

from dashboard.report.html_report import build
from dashboard.state import results
from engine.cli import main
from engine.models.loading import LoadedModel
from engine.records.manifest import read_manifest
from engine.records.model_names import model_name, model_to_type


@pytest.mark.parametrize(
    ("model", "name", "typed"),
    [
        ({"id": "/somebody/models/tiny-llama", "revision": None}, "tiny-llama", "MODEL"),
        ({"id": "models/tiny-llama"}, "tiny-llama", "MODEL"),
        ({"id": "meta-llama/Llama-3.2-1B", "revision": "4e20de"}, *["meta-llama/Llama-3.2-1B"] * 2),
        ({"id": "demo", "revision": None}, "demo", "demo"),
        ({}, "unknown model", "MODEL"),
    ],
)
def test_the_name_and_what_commands_take(model: dict, name: str, typed: str) -> None:
    assert (model_name(model), model_to_type(model)) == (name, typed)


def test_a_sweep_of_a_local_model(
    tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, place = tmp_path / "run", str(Path(tiny_llama.id).parent)
    texts = ["--corpus", str(tiny_text), "--eval-corpus", str(tiny_text), "--samples", "4", "--max-length", "16"]
    short = [
        *texts, "--eval-samples", "4", "--eval-length", "16", "--selectors", "random,magnitude", "--rates", "0,30%",
    ]  # fmt: skip
    where = ["--out", str(folder), "--store", str(tmp_path / "store"), "--json"]
    assert main(["sweep", tiny_llama.id, *short, *where]) == 0
    answer = json.loads(capsys.readouterr().out)
    name = Path(tiny_llama.id).name
    assert {line["model"] for line in answer["sweep"]} == {name}
    assert set(pl.read_parquet(folder / "sweep.parquet")["model"]) == {name}
    assert read_manifest(folder)["model"]["id"] == tiny_llama.id  # provenance: where it was
    assert results.read_run(folder).models == [name]
    page = re.sub(r"<script>/\*\*.*?</script>", "", build([folder]), count=1, flags=re.S)
    before, provenance = page.split("<h3>Provenance</h3>")
    assert place not in before
    assert f"<h2>{name}</h2>" in before
    assert "selector-audit analyze MODEL stability" in before
    assert tiny_llama.id in provenance
