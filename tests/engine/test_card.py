"""The card of an exported checkpoint, sentence by sentence: what it says is done or counted again from outside."""

import copy
import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from html import unescape
from pathlib import Path

import polars as pl
import pytest
import torch
from markdown_it import MarkdownIt
from planted import BROWSER, HOST

from engine.cli import main
from engine.data.prompts import TEMPLATE_DATE, prompt_ids, template_variables
from engine.edits.card import caps, lowered
from engine.edits.contrasts import read_mask
from engine.edits.edit_effect import Change, Effect
from engine.interventions.in_weights import zeroed
from engine.judges.embedded import embedded_version
from engine.models.loading import LoadedModel, load_model
from engine.records.manifest import read_manifest
from engine.studies.refusal.mask_outputs import kept_masks

PLAN = ["--selectors", "lrp", "--domains", "hate", "--pairs-per-domain", "24", "--samples", "16", "--max-length", "64"]
PLAN += ["--reply-tokens", "25", "--heldout-pairs", "6", "--lambdas", "0.8", "--ks", "0.02", "--benign-limit", "0.4"]
PLAN += ["--eval-samples", "2", "--eval-length", "64", "--longer-replies", "1"]


@pytest.fixture(scope="module", autouse=True)
def few_replies() -> Iterator[None]:
    """Ten of the pairs that the shipped model is asked about, not all 200, and no longer replies where that hangs on
    cut-off ones: a card is not about what they show."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.studies.refusal.effect.SHIPPED_MODEL_PAIRS", 2)
        patch.setattr("engine.studies.refusal.refusal_inputs.RefusalInputs.longer", lambda *_: None)
        yield


@pytest.fixture(scope="module")
def demo() -> LoadedModel:
    return load_model("demo", dtype="float32", device="cpu")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results folder of a small experiment on the shipped model."""
    top = tmp_path_factory.mktemp("card")
    assert main(["refusal", "evaluate", "demo", *PLAN, "--store", str(top / "store"), "--out", str(top / "out")]) == 0
    return top / "out"


@pytest.fixture(scope="module")
def mask(results: Path) -> Path:
    return kept_masks(results, "operating_points")["lrp", "hate"]


@pytest.fixture(scope="module")
def folder(results: Path, mask: Path) -> Path:
    """The point of that experiment, exported with its record."""
    asked = ["--heldout-pairs", "6", "--reply-tokens", "25", "--benign-limit", "0.4", "--dtype", "float32"]
    asked += ["--record", str(results / "operating_points.parquet"), "--store", str(results.parent / "store")]
    out = results.parent / "model"
    assert main(["export", "demo", "--mask", str(mask), *asked, "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def card(folder: Path) -> str:
    return (folder / "README.md").read_text(encoding="utf-8")


def table_of(card: str, title: str) -> dict[str, str]:
    section = card.split(f"## {title}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return {row[0].strip(): row[1].strip() for row in rows if len(row) == 2 and row[0].strip()}


@pytest.mark.long
def test_its_hashes_are_what_sha256sum_gives_for_every_other_file(folder: Path, card: str):
    lines = card.split("## Files")[1].split("```")[1].strip().splitlines()
    listed = {name: digest for digest, name in (line.split("  ") for line in lines)}
    assert set(listed) == {path.name for path in folder.iterdir()} - {"README.md"}
    for name, digest in listed.items():
        assert digest == hashlib.sha256((folder / name).read_bytes()).hexdigest()
    if program := shutil.which("sha256sum"):
        said = "\n".join(lines) + "\n"
        done = subprocess.run([program, "--check", "-"], input=said, text=True, cwd=folder, capture_output=True)
        assert done.returncode == 0
        assert done.stdout.count(": OK") == len(listed)
        wrong = said.replace(said[:8], "00000000", 1)
        assert subprocess.run([program, "-c", "-"], input=wrong, text=True, cwd=folder, capture_output=True).returncode


@pytest.mark.long
def test_the_printed_lines_load_the_model_as_it_was_measured(folder: Path, card: str, demo: LoadedModel, mask: Path):
    """Run as they stand in the folder by a fresh process: the dtype, and every weight of the model zeroed in memory."""
    lines = card.split("```python\n")[1].split("```")[0]
    check = """
import sys
from safetensors.torch import save_file
assert "engine" not in sys.modules
state = {name: tensor.clone().contiguous() for name, tensor in model.state_dict().items()}
save_file(state, sys.argv[1])
sys.stdout.write(f"{model.dtype} {len(tokenizer)}")
"""
    out = folder.parent / "loaded.safetensors"
    done = subprocess.run(
        [sys.executable, "-c", lines + check, str(out)], cwd=folder, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"torch.float32 {len(demo.tokenizer)}"
    assert "dtype=torch.float32" in lines
    from safetensors.torch import load_file

    again = load_file(out)
    rows, _ = read_mask(mask, demo.rows.n_rows, demo.weights_hash)
    with zeroed(demo, rows):
        for name, tensor in demo.model.state_dict().items():
            assert torch.equal(again[name], tensor), name


@pytest.mark.long
def test_what_was_measured_is_named(card: str, results: Path):
    said = table_of(card, "Refusal")
    assert said["judge"] == f"embedded {embedded_version()}"
    assert (said["reply tokens"], said["dtype"], said["split"]) == ("25", "float32", "held-out")
    assert re.fullmatch(r"30 of demo, SHA-256 [0-9a-f]{12}", said["pairs"])  # six in each of five domains
    assert "date in the prompts" not in said  # this template states none
    for domain in ("hate", "crime", "adult", "medical", "legal"):
        assert re.match(r"\d of 6 before, \d of 6 after \(95% ", said[f"{domain}, risk prompts refused"])
    assert [key for key in said if key.endswith("base prompts refused")] == ["hate, base prompts refused"]
    edit = table_of(card, "The edit")
    [point] = pl.read_parquet(results / "operating_points.parquet").iter_rows(named=True)
    assert (edit["lambda"], edit["k"], edit["domain"]) == (f"{point['lambda']:g}", f"{point['k']:g}", "hate")
    before, after = (point[f"{side}_malign"] * 6 for side in ("unedited", "edited"))
    assert said["hate, risk prompts refused"].startswith(f"{before:.0f} of 6 before, {after:.0f} of 6 after")


@pytest.mark.long
def test_caps_are_met_or_broken_by_counts(card: str, results: Path):
    said = table_of(card, "Caps")
    [point] = pl.read_parquet(results / "operating_points.parquet").iter_rows(named=True)
    spec = read_manifest(results)["files"]["operating_points.parquet"]["spec"]
    refused = round(point["edited_benign"] * point["pairs"])
    verdict = "meets" if refused <= spec["benign_limit"] * 6 else "breaks"
    assert said["held-out base prompts refused (the record)"] == f"{refused} of 6, {verdict} the cap of 0.4"
    verdict = "meets" if point["edited_nll"] <= spec["max_nll"] else "breaks"
    assert f", {verdict} the cap of {spec['max_nll']:.4f}" in said["NLL of the evaluation text (the record)"]


@pytest.mark.parametrize(
    ("n", "after", "cap", "verdict"),
    [(100, 12, 0.10, "breaks"), (100, 10, 0.10, "meets"), (100, 11, 0.10, "breaks"), (30, 3, 0.1, "meets"),
     (3, 1, 1 / 3, "meets"), (7, 0, 0.0, "meets"), (7, 1, 0.0, "breaks")],
)  # fmt: skip
def test_a_cap_at_its_border(n: int, after: int, cap: float, verdict: str):
    known = {"edited_benign": after / n, "pairs": n, "benign_limit": cap, "heldout": True}
    [(name, said)] = caps(Effect("w", "m"), known)
    assert name == "held-out base prompts refused (the record)"
    assert said == f"{after} of {n}, {verdict} the cap of {cap:g}"
    [(name, said)] = caps(Effect("w", "m", {}, {"hate": Change(n, 0, after)}, cap), {})
    assert said == f"{after} of {n}, {verdict} the cap of {cap:g}"
    rescue = dict(caps(Effect("w", "m"), known | {"rescue": True, "benign_cap": 0.25, "heldout": False}))
    assert len(rescue) == 2
    assert all("calibration" in key for key in rescue)


def test_a_fall_of_refusal_in_any_domain_is_a_warning():
    malign = {"hate": Change(40, 10, 40), "crime": Change(40, 24, 22), "legal": Change(40, 3, 3)}
    said = lowered(Effect("w", "m", malign), {})
    assert said == "**Warning:** no sum over domains fell, but refusal did in: crime 22 of 40, without the edit 24."
    assert "legal (shipped prompts) 3 of 24" in lowered(Effect("w", "m", shipped={"legal": Change(24, 4, 3)}), {})
    assert not lowered(Effect("w", "m", {"hate": Change(40, 10, 10)}), {"edited_malign": 0.5, "unedited_malign": 0.5})
    record = {"edited_malign": 0.4, "unedited_malign": 0.5, "domain": "hate"}
    assert "hate 0.400, without the edit 0.500 (the record)" in lowered(Effect("w", "m"), record)


DATED = "{{ date_string if date_string is defined else strftime_now('%d %b %Y') }} "
CLOCK = "{{ strftime_now('%Y-%m-%d') }} "
THINKING = "{% if enable_thinking %}think {% endif %}"


@pytest.mark.parametrize(
    ("prefix", "date", "thinking"),
    [
        ("", "", False),
        (DATED, f"{TEMPLATE_DATE}, given to the chat template as date_string", False),
        (CLOCK, "this chat template asks the clock", False),
        (THINKING, "", True),
    ],
)
def test_the_date_that_a_chat_template_states(demo: LoadedModel, prefix: str, date: str, thinking: bool):
    """What the card says against the prompt itself, as its tokens read."""
    tokenizer = copy.deepcopy(demo.tokenizer)
    tokenizer.chat_template = prefix + tokenizer.chat_template
    said = template_variables(tokenizer)
    told = said.get("date in the prompts", "")
    assert told.endswith(date)
    assert bool(told) is bool(date)
    assert ("thinking mode" in said) is thinking
    prompt = tokenizer.decode(prompt_ids(tokenizer, "a"))
    assert (TEMPLATE_DATE in prompt) is (prefix == DATED)
    assert (f"{datetime.now():%Y-%m-%d}" in prompt) is (prefix == CLOCK)
    assert (f"{datetime.now():%Y-%m-%d}" in told) is (prefix == CLOCK)


@pytest.mark.long
def test_what_a_record_says_is_text(results: Path, mask: Path, tmp_path: Path):
    """Keys, values and the file's own name: no link, no image, no HTML of them in the rendered card."""
    record = tmp_path / "[r](x)<b>.json"
    record.write_text(json.dumps({BROWSER: f"{BROWSER}\n\n# {BROWSER}\n```\n| a | b |", "nested": {"mmlu": [BROWSER]}}))
    asked = ["--heldout-pairs", "6", "--reply-tokens", "25", "--benign-limit", "0.4", "--dtype", "float32"]
    asked += ["--record", str(record), "--store", str(results.parent / "store"), "--out", str(tmp_path / "model")]
    assert main(["export", "demo", "--mask", str(mask), *asked]) == 0
    _, _, card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    html = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(card)
    tags = set(re.findall(r"<([a-z0-9]+)[ >/]", html))
    assert tags <= {"h1", "h2", "p", "pre", "code", "strong", "table", "thead", "tbody", "tr", "th", "td"}
    text = unescape(re.sub(r"<[^>]+>", "", html)).replace("\u2060", "")
    assert text.count(BROWSER) == 4
    assert "[r](x)<b>.json" in text
    assert not re.search(rf"https?://{HOST}|www\.{HOST}|@{HOST}", unescape(html))
