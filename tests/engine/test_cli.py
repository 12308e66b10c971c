"""The command line as people meet it: output, files, errors of one line, exit codes."""

import argparse
import json
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import load_file

from engine import read_mask
from engine.cli import COMMANDS, main
from engine.records.errors import InputError
from engine.records.manifest import read_manifest

SMALL = ["--samples", "3", "--max-length", "16"]


@pytest.fixture
def run(capsys, tmp_path):
    """Run a command in this process with a store of its own; returns exit code, stdout and stderr."""

    def call(*arguments, store=True):
        extra = ["--store", str(tmp_path / "store")] if store else []
        code = main([*map(str, arguments), *extra])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_rows(run, tiny_family):
    code, out, _ = run("rows", tiny_family.id, "--json", store=False)
    numbers = json.loads(out)
    assert code == 0
    assert numbers["rows"] == tiny_family.rows.n_rows == sum(entry["rows"] for entry in numbers["projections"])
    assert numbers["blocks"] == 2
    code, out, _ = run("rows", tiny_family.id, store=False)
    assert code == 0
    assert f"{tiny_family.rows.n_rows:,} rows" in " ".join(out.split())


def test_score_mask_and_sweep_agree(run, tiny_llama, tiny_text, tmp_path):
    out_dir = tmp_path / "out"
    scored = ["--selectors", "magnitude,random,consensus2", "--corpus", tiny_text, *SMALL]
    code, out, _ = run("score", tiny_llama.id, *scored, "--out", out_dir, "--json")
    assert code == 0
    assert json.loads(out)["rows"] == tiny_llama.rows.n_rows
    scores = load_file(out_dir / "scores.safetensors")
    assert {name: (array.dtype, array.shape) for name, array in scores.items()} == {
        "magnitude": (np.float32, (tiny_llama.rows.n_rows,)),
        "random": (np.float32, (3, tiny_llama.rows.n_rows)),
        "consensus2": (np.float32, (tiny_llama.rows.n_rows,)),
    }
    assert pl.read_parquet(out_dir / "rows.parquet").equals(tiny_llama.rows.frame())
    manifest = read_manifest(out_dir)
    assert manifest["model"]["weights_hash"] == tiny_llama.weights_hash
    assert manifest["files"]["scores.safetensors"]["spec"]["calibration"]["samples"] == 3

    mask_file = tmp_path / "mask.safetensors"
    arguments = ["--selector", "consensus2", "--rate", "30%", "--out", mask_file, "--corpus", tiny_text, *SMALL]
    code, out, _ = run("mask", tiny_llama.id, *arguments, "--json")
    assert code == 0
    removed, made = read_mask(mask_file, tiny_llama.rows.n_rows, tiny_llama.weights_hash)
    count = round(0.3 * tiny_llama.rows.n_rows)
    expected = sorted(np.argsort(scores["consensus2"], kind="stable")[:count].tolist())
    assert removed.tolist() == expected
    assert removed.dtype == np.int64
    assert made["spec"]["rate"] == 0.3

    code, out, _ = run(
        "sweep",
        tiny_llama.id,
        *scored,
        *("--rates", "0,30%", "--orders", "lerf", "--eval-samples", "2", "--eval-length", "16"),
        *("--out", out_dir),
    )
    assert code == 0
    assert "NLL, nats per token" in out
    table = pl.read_parquet(out_dir / "sweep.parquet")
    assert table.columns == [
        *("model", "selector", "seed", "order", "rate", "rows_removed"),
        *("nll", "nll_stderr", "tokens", "perplexity", "stderr_blocks", "blocks"),
        "saturated_above",
    ]
    assert table.height == (1 + 3 + 1) * 2
    assert table.filter(selector="consensus2", rate=0.3)["rows_removed"].item() == count
    assert set(read_manifest(out_dir)["files"]) == {"scores.safetensors", "rows.parquet", "sweep.parquet"}


def test_scores_of_an_earlier_run_are_not_computed_again(run, tiny_llama, tiny_text, monkeypatch):
    run("score", tiny_llama.id, "--selectors", "lrp,wanda", "--corpus", tiny_text, *SMALL)
    import engine.run.scoring

    asked = []
    original = engine.run.scoring.compute_scores

    def counting(loaded, selectors, *args, **kwargs):
        asked.append((tuple(selectors), sorted(kwargs["known"])))
        return original(loaded, selectors, *args, **kwargs)

    monkeypatch.setattr(engine.run.scoring, "compute_scores", counting)
    run("score", tiny_llama.id, "--selectors", "lrp,wanda,ig,consensus2", "--corpus", tiny_text, *SMALL)
    assert asked == [(("ig", "consensus2"), ["lrp", "wanda"])]
    run("score", tiny_llama.id, "--selectors", "consensus2,lrp", "--corpus", tiny_text, *SMALL)
    assert len(asked) == 1
    other = ["--samples", "2", "--max-length", "16"]
    run("score", tiny_llama.id, "--selectors", "lrp", "--corpus", tiny_text, *other)
    assert asked[1:] == [(("lrp",), [])]


def test_a_mask_for_other_weights_is_an_error(run, tiny_llama, tmp_path):
    run("mask", tiny_llama.id, "--selector", "magnitude", "--rate", "0.1", "--out", tmp_path / "m")
    with pytest.raises(InputError, match="make the mask again for this model"):
        read_mask(tmp_path / "m", tiny_llama.rows.n_rows, "0" * 64)


@pytest.mark.long
def test_doctor(run, tiny_llama):
    code, out, _ = run("doctor", tiny_llama.id, "--json")
    findings = {finding["subject"]: finding for finding in json.loads(out)["findings"]}
    assert code == 0
    assert findings["model"]["state"] == findings["fits"]["state"] == "ok"
    assert findings["attnlrp"]["state"] == "ok"
    assert findings["downstream"]["state"] == "ok"
    assert findings["corpus wikitext2"]["state"] == "note"  # offline here: says so, with the next step
    assert "--corpus demo, PATH.txt" in findings["corpus wikitext2"]["found"]


@pytest.mark.long
def test_a_section_of_doctor_that_fails_does_not_take_the_others_along(run, tiny_llama, monkeypatch):
    def broken(*_):
        raise RuntimeError("[no] way\nand more")

    monkeypatch.setattr("engine.data.texts.reachable", broken)
    monkeypatch.setattr("engine.data.texts.reachable", broken)
    code, out, _ = run("doctor", tiny_llama.id, "--json")
    findings = {finding["subject"]: finding for finding in json.loads(out)["findings"]}
    assert code == 1
    assert findings["corpora"]["state"] == "problem"
    assert findings["corpora"]["found"] == "could not be examined: RuntimeError: [no] way"
    assert findings["downstream"]["state"] == findings["model"]["state"] == "ok"
    code, out, _ = run("doctor", tiny_llama.id)
    assert code == 1
    assert "RuntimeError: [no] way" in out


MARKED = "[bold]a[/bold] [downstream] :cat: \x1b[31mred\x1b[0m\x07 \u202etxt"


def test_what_is_printed_is_text(capsys):
    """Markup, emoji codes, escape sequences and marks of direction are shown, in every kind of output."""

    from engine.commands import common

    shown = "[bold]a[/bold] [downstream] :cat: \\x1b[31mred\\x1b[0m\\x07 \\u202etxt"
    common.out.print(MARKED)
    common.err.print(MARKED)
    common.print_table(MARKED, [MARKED, "b"], [[MARKED, "1"]], texts=1)
    with common.progress_bar(argparse.Namespace(json=False, progress_file=None)) as report:
        report(MARKED, 1, 1)
    out, err = capsys.readouterr()
    assert out.count(shown) == 4
    assert err.count(shown) >= 2
    assert not {"\x1b", "\x07", "\u202e"} & set(out + err)


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_help_is_there_for_every_command(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0
    assert "usage: selector-audit" in capsys.readouterr().out


def test_the_package_runs_as_a_program():
    command = [sys.executable, "-m", "engine", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "usage: selector-audit" in done.stdout


@pytest.mark.parametrize(
    ("words", "left_out"),
    [
        ("None", {"torch", "transformers"}),  # every command with all of its options
        ("''", {"torch", "transformers", "polars", "numpy", "diskcache", "engine.commands.rows"}),  # --help
        ("'rows'", {"torch", "transformers", "polars", "numpy", "engine.commands.analyze"}),
    ],
)
def test_help_does_not_wait_for_what_it_does_not_need(words, left_out):
    code = (
        f"import sys, engine.cli; engine.cli.build_parser({words})\n"
        f"there = {left_out} & set(sys.modules)\n"
        "sys.exit(f'loaded: {there}' if there else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", [["swep", "demo"], ["--", "swep"], ["--nothing"], []])
def test_a_command_that_there_is_not_is_told_with_those_that_there_are(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("selector-audit: ")
    assert said.count("\n") == 1
    assert ("sweep" in said) == ("swep" in words)


@pytest.mark.parametrize(
    ("command", "more"),
    [
        (["score"], []),
        (["sweep"], ["--rates", "0,50%", "--eval-samples", "2", "--eval-length", "16"]),
        (["analyze"], ["depth"]),
    ],
)
def test_another_dtype_leaves_finished_results_alone(run, tiny_llama, tiny_text, tmp_path, command, more):
    out_dir = tmp_path / "out"
    of_text = ["--selectors", "magnitude,random", "--corpus", tiny_text, *SMALL, "--out", out_dir]
    assert run(*command, tiny_llama.id, *more, *of_text)[0] == 0
    before = {path.name: path.read_bytes() for path in out_dir.iterdir()}
    code, _, err = run(*command, tiny_llama.id, *more, *of_text, "--dtype", "bfloat16")
    assert code == 2
    assert "holds results of" in " ".join(err.split())
    assert {path.name: path.read_bytes() for path in out_dir.iterdir()} == before
