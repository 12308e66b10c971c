"""The examples run as they stand, and show what they say."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

HERE = Path(__file__).parent


@pytest.mark.long
def test_an_audit_of_a_folder(tmp_path, monkeypatch, capsys):
    script = HERE / "audit_a_folder.py"
    monkeypatch.setattr("sys.argv", [str(script), str(tmp_path / "example")])
    made = runpy.run_path(str(script), run_name="__main__")
    printed = capsys.readouterr().out
    sweep = pl.read_parquet(tmp_path / "example" / "sweep.parquet")
    assert sweep.height == (3 + 3) * 2 * len(made["rates"])  # random has three seeds
    assert sweep.filter(rate=0)["nll"].n_unique() == 1
    assert sweep.filter(rate=0)["nll"][0] < 1.5  # it learned: the words are equally frequent to a factor of a few
    gaps = dict(made["gaps"].iter_rows())
    assert gaps["lrp"] > gaps["random"] + 0.5
    for selector, gap in gaps.items():
        assert f"{selector:<10} NLL_MoRF - NLL_LeRF at 20%: {gap:+.2f}" in printed
    page = (tmp_path / "example" / "curves.html").read_text(encoding="utf-8")
    assert all(f'"name":"{selector}"' in page for selector in gaps)


NOTEBOOK = HERE / "captum_to_verdict.ipynb"
SETTINGS = "eval_samples=8, eval_length=128"
SMALL = """eval_samples=4, eval_length=64, sweep_rates=(0.0, 0.01), gap_rates=(0.3,), specific_rates=(0.01,),
matched_seeds=(42, 43, 44), baseline_seeds=(42, 43, 44), budget_rates=(0.01, 0.1), budget_resolution=1.0"""


@pytest.mark.long
@pytest.mark.parametrize("model", ["demo", "smollm2"])
def test_the_notebook_goes_from_a_captum_score_to_a_verdict(tmp_path, model):
    """Its cells one after the other, as a notebook runs them, in a process of their own."""
    if model == "smollm2" and os.environ.get("CI") != "true":
        pytest.skip("minutes of a core; runs where CI=true")
    cells = [cell for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in cells)
    code = "\n".join("".join(cell["source"]) for cell in cells).replace('MODEL = "demo"', f"MODEL = {model!r}")
    code = code.replace(SETTINGS, SMALL) if model == "smollm2" else code
    code += "\nprint(audited.plot().to_json(), audited.verdict.write_json(), audited._repr_html_(), sep='\\n')"
    here = {**os.environ, "SELECTOR_AUDIT_STORE": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], cwd=HERE.parents[1], env=here, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    figure, verdict, *shown = done.stdout.splitlines()
    verdicts = {line["selector"]: line for line in json.loads(verdict)}
    assert list(verdicts) == ["random", "magnitude", "wanda", "captum", "hook", "lens"]
    drawn = {trace["name"] for trace in json.loads(figure)["data"] if "customdata" in trace}
    assert drawn == {"Random", "Magnitude", "Wanda", "captum", "hook", "lens"}
    assert "its 2 files agree by Spearman" in verdicts["captum"]["reasons"]
    assert "one file" in verdicts["hook"]["reasons"]
    assert verdicts["captum"]["validity"] in "\n".join(shown)
    if model == "demo":  # which was trained so that there is something to find
        assert verdicts["captum"]["validity"] in ("sufficient", "faithful")
        assert verdicts["magnitude"]["validity"] == "not"


def test_every_script_here_is_run_by_a_test():
    tests = Path(__file__).read_text(encoding="utf-8")
    scripts = {path.name for path in HERE.glob("*.py")} - {Path(__file__).name}
    assert scripts
    assert all(f'"{name}"' in tests for name in scripts)
