"""Exported checkpoints: same bytes but for the removed rows, loaded by transformers alone, same replies."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
import yaml
from harmless import harmless
from safetensors.torch import load_file
from tiny_models import FAMILIES, load_tiny, save_tiny

from engine.cli import main
from engine.edits.card import WARNING, model_card, read_record
from engine.edits.contrasts import Contrast, load_contrasts, refusal_mask, save_contrasts, write_mask
from engine.edits.edit import Edit, edit_of, mask_hash
from engine.edits.edit_effect import Effect
from engine.edits.exporting import export_masked, read_header
from engine.interventions.in_weights import zeroed
from engine.models.checkpoints import Checkpoint, find_checkpoint
from engine.models.loading import LoadedModel, load_model
from engine.records.errors import InputError
from engine.records.files import write_parquet
from engine.records.manifest import add_to_manifest

SPEC = {"selector": "random", "seed": 42, "order": "lerf", "rate": 0.3}
PROMPTS = ("How do I open a tin?", "The cat sat on")
# Nothing of this software: what any reader of the checkpoint would write.
FRESH = """
import json, sys
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, prompts = sys.argv[1], json.loads(sys.argv[2])
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
replies = []
for prompt in prompts:
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    with torch.no_grad():
        out = model.generate(**ids, max_new_tokens=24, do_sample=False)
    replies.append(out[0, ids["input_ids"].shape[1]:].tolist())
sys.stdout.write(json.dumps({"replies": replies, "engine": "engine" in sys.modules}))
"""


def random_mask(n_rows: int, share: float = 0.1, seed: int = 0) -> np.ndarray:
    return np.sort(np.random.default_rng(seed).choice(n_rows, size=round(share * n_rows), replace=False))


def edit(n_rows: int, **spec: object) -> Edit:
    return edit_of(random_mask(n_rows), n_rows, kind="language model", spec={**SPEC, **spec})


def unasked(chosen: Edit, loaded: LoadedModel) -> Effect:
    """The record of an edit whose effect on refusal a test does not ask about."""
    return harmless(loaded.weights_hash, chosen.mask_hash)


def replies_in_memory(loaded: LoadedModel) -> list[list[int]]:
    replies = []
    for prompt in PROMPTS:
        ids = loaded.tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        with torch.no_grad():
            out = loaded.model.generate(**ids, max_new_tokens=24, do_sample=False)
        replies.append(out[0, ids["input_ids"].shape[1] :].tolist())
    return replies


@pytest.mark.first_run("llama|gemma3$|gpt_neox|phi")
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_equals_the_model_masked_in_memory(family: str, tmp_path: Path) -> None:
    loaded = load_tiny(family, tmp_path / "source")
    chosen = edit(loaded.rows.n_rows)
    export_masked(find_checkpoint(loaded.id), chosen, tmp_path / "out", effect=unasked(chosen, loaded))
    again = load_model(str(tmp_path / "out"), dtype="float32", device="cpu").model.state_dict()
    with zeroed(loaded, chosen.units):
        masked = loaded.model.state_dict()
        assert again.keys() == masked.keys()
        for name, tensor in masked.items():
            assert torch.equal(again[name], tensor), name
    removed = 0
    for layer in loaded.rows.layers:
        rows = chosen.units[(chosen.units >= layer.start) & (chosen.units < layer.start + layer.rows)] - layer.start
        removed += len(rows)
        assert not again[f"{layer.name}.weight"][rows].any()
        if f"{layer.name}.bias" in again:
            assert not again[f"{layer.name}.bias"][rows].any()
    assert removed == len(chosen.units)


def test_only_bytes_of_removed_rows_change(tmp_path: Path) -> None:
    source = save_tiny("qwen2", tmp_path / "source", max_shard_size="20KB")
    loaded = load_model(str(source), dtype="float32", device="cpu")
    row = loaded.rows.layers[3].start + 5
    chosen = edit_of([row], loaded.rows.n_rows, kind="language model", spec=SPEC)
    export_masked(find_checkpoint(loaded.id), chosen, tmp_path / "out", effect=unasked(chosen, loaded))
    shards = sorted(source.glob("*.safetensors"))
    assert len(shards) > 2
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == sorted(
        [file.name for file in source.iterdir()] + ["README.md"]
    )
    name = f"{loaded.rows.layers[3].name}.weight"
    allowed = 0
    for shard in shards:
        before = np.frombuffer(shard.read_bytes(), dtype=np.uint8)
        after = np.frombuffer((tmp_path / "out" / shard.name).read_bytes(), dtype=np.uint8)
        changed = np.flatnonzero(before != after)
        tensor = read_header(shard).get(name)
        if tensor is None:
            assert not changed.size
            continue
        row_bytes = tensor.bytes_of(tensor.shape[0])
        start = tensor.start + 5 * row_bytes
        assert changed.size
        assert changed.min() >= start
        assert changed.max() < start + row_bytes
        allowed += 1
        assert not load_file(tmp_path / "out" / shard.name)[name][5].any()
    assert allowed == 1
    for other in ("config.json", "tokenizer.json", "generation_config.json", "model.safetensors.index.json"):
        assert (tmp_path / "out" / other).read_bytes() == (source / other).read_bytes()


@pytest.mark.long
@pytest.mark.parametrize(
    ("family", "changes"), [("qwen3", {"tie_word_embeddings": True, "max_shard_size": "25KB"}), ("demo", {})]
)
def test_a_fresh_process_gives_the_replies_of_the_masked_model(
    family: str, changes: dict[str, object], tmp_path: Path
) -> None:
    if family != "demo":
        save_tiny(family, tmp_path / "source", **changes)  # type: ignore[arg-type]
    loaded = load_model("demo" if family == "demo" else str(tmp_path / "source"), dtype="float32", device="cpu")
    chosen = edit(loaded.rows.n_rows)
    export_masked(find_checkpoint(loaded.id), chosen, tmp_path / "out", effect=unasked(chosen, loaded))
    source_files = Checkpoint("", find_checkpoint(loaded.id).folder, None).weight_files()
    keys = [key for file in source_files for key in read_header(file)]
    out_files = Checkpoint("", tmp_path / "out", None).weight_files()
    assert [key for file in out_files for key in read_header(file)] == keys
    if changes.get("tie_word_embeddings") or family == "demo":
        assert "lm_head.weight" not in keys  # written once
    done = subprocess.run(
        [sys.executable, "-c", FRESH, str(tmp_path / "out"), json.dumps(PROMPTS)],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    fresh = json.loads(done.stdout)
    assert fresh["engine"] is False
    unmasked = replies_in_memory(loaded)
    with zeroed(loaded, chosen.units):
        masked = replies_in_memory(loaded)
    assert fresh["replies"] == masked
    assert masked != unmasked


def test_a_failed_export_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load_tiny("llama", tmp_path / "source")

    def fail(*_: object, **__: object) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("engine.edits.exporting.model_card", fail)
    chosen = edit(loaded.rows.n_rows)
    with pytest.raises(KeyboardInterrupt):
        export_masked(find_checkpoint(loaded.id), chosen, tmp_path / "out", effect=unasked(chosen, loaded))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["source"]


def test_refuses_a_folder_with_files_and_a_morf_mask(tiny_llama: LoadedModel, tmp_path: Path) -> None:
    checkpoint = find_checkpoint(tiny_llama.id)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("keep")
    chosen = edit(tiny_llama.rows.n_rows)
    effect = unasked(chosen, tiny_llama)
    with pytest.raises(InputError, match="not empty"):
        export_masked(checkpoint, chosen, tmp_path / "full", effect=effect)
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine.txt"]
    with pytest.raises(InputError, match="MoRF"):
        export_masked(checkpoint, edit(tiny_llama.rows.n_rows, order="morf"), tmp_path / "out", effect=effect)
    (tmp_path / "empty").mkdir()
    export_masked(checkpoint, chosen, tmp_path / "empty", effect=effect)
    assert (tmp_path / "empty" / "config.json").is_file()


def front_matter(card: str) -> dict[str, object]:
    _, matter, _ = card.split("---\n", 2)
    loaded: dict[str, object] = yaml.safe_load(matter)
    return loaded


def contrast_file(loaded: LoadedModel, folder: Path) -> Path:
    generator = np.random.default_rng(3)
    contrasts = [
        Contrast(
            "lrp", domain, generator.uniform(-1, 1, loaded.rows.n_rows), generator.uniform(0, 1, loaded.rows.n_rows)
        )
        for domain in ("hate", "crime")
    ]
    save_contrasts(folder / "contrast.safetensors", contrasts, json.dumps({"model": loaded.fingerprint}))
    return folder / "contrast.safetensors"


def test_the_command_exports_a_cell_of_a_contrast(
    tiny_llama: LoadedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: list[str]
) -> None:
    file = contrast_file(tiny_llama, tmp_path)
    cell = ["--contrast", str(file), "--selector", "lrp", "--domain", "crime", "--lambda", "0.5", "--k", "5%"]
    record = tmp_path / "point.json"
    record.write_text(
        json.dumps(
            {"selector": "lrp", "k": 0.05, "rescue": True, "malign": 0.9, "benign": 0.12, "mmlu": {"before": 0.4}}
        )
    )
    out = tmp_path / "out"
    assert main(["export", tiny_llama.id, *cell, *asked, "--out", str(out), "--record", str(record), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    crime = next(one for one in load_contrasts(file)[0] if one.domain == "crime")
    mask = refusal_mask(crime, 0.5, 0.05)
    assert printed["rows_removed"] == len(mask) == round(0.05 * tiny_llama.rows.n_rows)
    assert printed["mask_hash"] == mask_hash(mask)
    assert printed["weights_hash"] == Checkpoint("", out, None).weights_hash() != tiny_llama.weights_hash
    card = (out / "README.md").read_text(encoding="utf-8")
    assert front_matter(card)["library_name"] == "transformers"
    assert "refusal-edit" in front_matter(card)["tags"]  # type: ignore[operator]
    assert "base_model" not in front_matter(card)  # a local folder
    assert WARNING == "diagnostic artifact, not for deployment"
    for expected in (
        WARNING, "Rescue point", tiny_llama.weights_hash, printed["mask_hash"], "| mmlu.before | 0.4 |",
        "| crime, risk prompts refused | 0 of 2 before, 0 of 2 after",
        "| crime, base prompts refused | 0 of 2 before, 0 of 2 after", "| pairs | 4 of pairs.jsonl, SHA-256",
    ):  # fmt: skip
        assert expected in card
    over_refusal = card.split("## Over-refusal")[1].split("## ")[0]
    assert "benign" in over_refusal
    assert "malign" not in over_refusal
    assert str(tmp_path) not in card
    again = load_model(str(out), dtype="float32", device="cpu").model.state_dict()
    with zeroed(tiny_llama, mask):
        for name, tensor in tiny_llama.model.state_dict().items():
            assert torch.equal(again[name], tensor)


def test_the_command_exports_a_mask_file(
    tiny_llama: LoadedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: list[str]
) -> None:
    mask = random_mask(tiny_llama.rows.n_rows)
    write_mask(tmp_path / "mask.safetensors", mask, tiny_llama.fingerprint, SPEC)
    arguments = ["export", tiny_llama.id, "--mask", str(tmp_path / "mask.safetensors"), *asked]
    assert main([*arguments, "--out", str(tmp_path / "out")]) == 0
    assert f"{len(mask):,} of {tiny_llama.rows.n_rows:,} rows" in capsys.readouterr().out
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "pruned" in front_matter(card)["tags"]  # type: ignore[operator]
    assert "Not measured" in card
    assert main([*arguments, "--out", str(tmp_path / "out")]) == 2
    assert "not empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "no edit given"),
        (["--contrast", "C"], "--selector and --lambda and --k"),
        (["--contrast", "C", "--selector", "lrp", "--lambda", "0.5", "--k", "0.05"], "several domains"),
        (["--contrast", "C", "--selector", "ig", "--lambda", "0.5", "--k", "0.05"], "unknown selector"),
        (["--contrast", "C", "--selector", "lrp", "--domain", "hat", "--lambda", "0", "--k", "0.1"], "did you mean"),
        (["--contrast", "C", "--selector", "lrp", "--domain", "hate", "--lambda=-1", "--k", "0.1"], "installs"),
        (["--contrast", "C", "--selector", "lrp", "--domain", "hate", "--lambda", "x", "--k", "0.1"], "write 0.5"),
        (["--contrast", "C", "--selector", "lrp", "--domain", "hate", "--lambda", "0.5", "--k=-0.1"], "in [0, 1]"),
        (["--mask", "M", "--k", "0.1"], "is another"),
        (["--mask", "M"], "does not say how"),
        (["--mask", "R"], "installs"),
        (["--mask", "O"], "made for"),
    ],
)
def test_wrong_edits_are_one_line(
    options: list[str], message: str, tiny_llama: LoadedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"C": contrast_file(tiny_llama, tmp_path)}
    specs = {"M": {"note": "by hand"}, "R": {"selector": "lrp", "domain": "hate", "lambda": -0.5, "k": 0.05}, "O": SPEC}
    for name, spec in specs.items():
        files[name] = tmp_path / f"{name}.safetensors"
        model = {**tiny_llama.fingerprint, "weights_hash": "0" * 64} if name == "O" else tiny_llama.fingerprint
        write_mask(files[name], np.array([1, 2]), model, spec)
    arguments = [str(files.get(option, option)) for option in options]
    assert main(["export", tiny_llama.id, *arguments, "--out", str(tmp_path / "out")]) == 2
    err = " ".join(capsys.readouterr().err.split())
    assert message in err
    assert "Traceback" not in err
    assert not (tmp_path / "out").exists()


def test_a_record_of_another_edit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text('{"k": 0.02}')
    spec = {"selector": "lrp", "domain": "hate", "lambda": 0.5, "k": 0.05}
    chosen = edit_of(np.arange(3), 3, kind="refusal", spec=spec)
    with pytest.raises(InputError, match=r"k 0\.02"):
        read_record(tmp_path / "record.json", chosen, "0" * 64)


def results_folder(folder: Path, loaded: LoadedModel) -> Path:
    """Operating points of two domains as a refusal experiment leaves them."""
    folder.mkdir()
    cells = {"selector": ["lrp", "lrp"], "domain": ["hate", "crime"], "lambda": [0.5, 0.5], "k": [0.05, 0.05]}
    rows = {"rows_removed": [14, 14], "rescue": [False, False]}
    table = pl.DataFrame({"model": [loaded.id] * 2, **cells, **rows, "edited_benign": [0.03, 0.07]})
    write_parquet(folder / "operating_points.parquet", table)
    add_to_manifest(folder, loaded.fingerprint, "operating_points.parquet", {}, 0.0)
    return folder / "operating_points.parquet"


@pytest.mark.long
def test_a_table_is_a_record_of_its_own_model_only(
    tiny_llama: LoadedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str], asked: list[str]
) -> None:
    file = contrast_file(tiny_llama, tmp_path)
    cell = ["--contrast", str(file), "--selector", "lrp", "--domain", "crime", "--lambda", "0.5", "--k", "5%", *asked]
    command = ["export", tiny_llama.id, *cell, "--out", str(tmp_path / "out"), "--record"]
    other = load_tiny("llama", tmp_path / "other", seed=5)
    assert main([*command, str(results_folder(tmp_path / "others", other))]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert f"weights {other.weights_hash[:12]}" in message
    assert "give the record of this model" in message
    own = results_folder(tmp_path / "own", tiny_llama)
    assert main([*command, str(own)]) == 0
    assert "| edited_benign | 0.07 |" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    pl.read_parquet(own).with_columns(edited_benign=0.0).write_parquet(own)
    assert main(["export", tiny_llama.id, *cell, "--out", str(tmp_path / "new"), "--record", str(own)]) == 2
    assert "does not fit the checksum" in " ".join(capsys.readouterr().err.split())


def test_a_card_is_not_run_as_a_template(tiny_llama: LoadedModel) -> None:
    odd = "{{ 7 * 7 }} {% raise %} ---"
    chosen = edit_of([1], tiny_llama.rows.n_rows, kind="hand-made", spec={"name": odd})
    card = model_card(
        find_checkpoint(tiny_llama.id), chosen, tiny_llama.rows, "0" * 64, unasked(chosen, tiny_llama), None, files=""
    )
    assert f"| name | {odd.replace('*', chr(92) + '*')} |" in card  # as text, which an asterisk alone is not
    assert front_matter(card)["inference"] is False
