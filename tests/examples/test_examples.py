"""The examples run as they stand, and show what they say."""

import runpy
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


def test_every_script_here_is_run_by_a_test():
    tests = Path(__file__).read_text(encoding="utf-8")
    scripts = {path.name for path in HERE.glob("*.py")} - {Path(__file__).name}
    assert scripts
    assert all(f'"{name}"' in tests for name in scripts)
