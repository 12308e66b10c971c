"""The shipped model and its text, as they lie in the repository."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from engine.measures.generation import generate_batch
from engine.models.loading import load_model
from precomputed import demo_dir, demo_model_dir
from precomputed.recipe import train


@pytest.fixture(scope="module")
def demo():
    torch.set_num_threads(1)
    return load_model("demo", dtype="float32", device="cpu")


def _records(name: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (demo_dir() / name).read_text(encoding="utf-8").splitlines()]


def test_size_and_formats():
    files = [path for path in demo_model_dir().rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 12_000_000
    assert not [path for path in files if path.suffix in {".bin", ".pt", ".pkl", ".py"}]
    with safe_open(demo_model_dir() / "model.safetensors", framework="pt") as weights:
        assert all(weights.get_slice(name).get_dtype() == "BF16" for name in weights.keys())  # noqa: SIM118


def test_rows_are_what_the_rule_gives(demo):
    # per block: q 192, k 64, v 64, o 192, gate 512, up 512, down 192
    assert demo.rows.n_rows == 6 * (192 + 64 + 64 + 192 + 512 + 512 + 192) == 10_368
    assert sum(p.numel() for p in demo.model.parameters()) == 3_607_104


def test_shipped_splits_share_no_document():
    calibration, evaluation = (
        (demo_dir() / "corpus" / f"{split}.txt").read_text(encoding="utf-8").strip().split("\n\n")
        for split in ("calibration", "evaluation")
    )
    assert len(set(calibration)) == len(calibration) > 200
    assert len(set(evaluation)) == len(evaluation) > 400
    assert not set(calibration) & set(evaluation)


def test_shipped_text_is_what_the_recipe_writes(tmp_path: Path):
    from precomputed.recipe import demo_files as files, demo_tasks as tasks

    files.write_prompts(tmp_path)
    files.write_instructions(tmp_path / "corpus")
    tasks.write_tasks(tmp_path / "tasks")
    written = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    assert len(written) == 2 + 2 + len(list((demo_dir() / "tasks").iterdir()))
    for name in written:
        assert (tmp_path / name).read_bytes() == (demo_dir() / name).read_bytes(), name


def test_shipped_instructions_are_what_the_chat_template_writes(demo):
    for split in ("calibration", "evaluation"):
        text = (demo_dir() / "corpus" / f"instructions_{split}.txt").read_text(encoding="utf-8")
        for document in text.strip().split("\n\n"):
            turns = document.removeprefix("<|bos|>").removesuffix("<|end|>").split("<|end|>")
            parts = [turn.removeprefix("<|").split("|>", 1) for turn in turns]
            messages = [{"role": role, "content": content} for role, content in parts]
            assert [role for role, _ in parts if role != "system"][-2:] == ["user", "assistant"]
            assert document == demo.tokenizer.apply_chat_template(messages, tokenize=False)
            # The markers are single tokens in running text too, and the BOS stands where the template puts it.
            ids = demo.tokenizer(document)["input_ids"]
            assert ids.count(demo.tokenizer.bos_token_id) == 1
            assert ids[-1] == demo.tokenizer.eos_token_id


def test_tokenizer_round_trip(demo):
    for text in ("Dear Mara,\n\nthe 1834 charter — signed at 10:45!", "naïve café ☕", "  two  spaces"):
        assert demo.tokenizer.decode(demo.tokenizer(text)["input_ids"]) == text
    assert len(demo.tokenizer) == 6486


def test_what_training_starts_from_has_the_tokenizer_and_size_of_the_shipped_model():
    """So that its tokens mean the same; every tensor is there, and its weights are others."""
    start = Path(train.__file__).parent / "start"
    assert (start / "tokenizer.json").read_bytes() == (demo_model_dir() / "tokenizer.json").read_bytes()
    with (
        safe_open(start / "model.safetensors", framework="pt") as before,
        safe_open(demo_model_dir() / "model.safetensors", framework="pt") as after,
    ):
        assert set(before.keys()) == set(after.keys())
        for name in after.keys():  # noqa: SIM118
            assert before.get_slice(name).get_shape() == after.get_slice(name).get_shape()
            assert not torch.equal(before.get_tensor(name), after.get_tensor(name)), name


def test_replies_are_sentences(demo):
    prompts = [example["prompt"] for example in _records("examples.jsonl")]
    replies = generate_batch(demo, prompts, 60, 32)
    for reply in replies:
        words = reply.text.split()
        assert reply.text[0].isupper()
        assert reply.text.rstrip()[-1] in ".!?"
        assert len(words) >= 4
        assert max(words.count(word) for word in words) <= max(4, len(words) // 3)  # not one word again and again
    assert len({reply.text for reply in replies}) > len(replies) // 2
