"""Two pretrained models as GGUF files, against plain transformers and llama.cpp: see tests/real_models.py."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from harmless import harmless
from real_models import GEMMA3, SMOLLM2, SMOLLM2_FOLDER, real_models
from transformers import AutoModelForCausalLM

from engine import (
    Cell,
    LocalRunner,
    Nll,
    Store,
    compute_scores,
    edit_of,
    negative_log_likelihood,
    removed_rows,
    windows,
)
from engine.edits.exporting import export_masked
from engine.measures.generation import generate_batch
from engine.models.checkpoints import find_checkpoint
from engine.models.loading import LoadedModel, load_model, load_tokenizer

pytestmark = pytest.mark.long
# What llama.cpp (release b11549, /tokenize) gives, of texts on which readers differ: blanks before digits, accents that
# are not composed, runs of blanks and of lines.
TEXTS = ("  12 and   345\n  6\n\n   7x", "naïve é é ñ ﬁ Å ①②", "don't DON'T we'll   \n \n ok\t\t\n")
TOKENS = {
    SMOLLM2: (
        [256, 33, 34, 284, 333, 35, 36, 37, 11181, 38, 1004, 39, 104],
        [3546, 46494, 26411, 26411, 5549, 126, 40367, 5549, 223, 216, 173, 235, 250, 173, 235, 111],
        [12420, 982, 422, 2154, 23, 68, 392, 3060, 333, 198, 3717, 10907, 1656, 198],
    ),
    GEMMA3: (
        [138, 236770, 236778, 532, 139, 236800, 236812, 236810, 107, 138, 236825, 108, 139, 236832, 236781],
        [1789, 238527, 560, 1559, 1559, 131079, 97940, 44667, 85761, 240567],
        [13246, 236789, 236745, 52402, 236789, 236774, 692, 236789, 859, 139, 107, 236743, 107, 7546, 255969, 107],
    ),
}
PROMPTS = ["What is the capital of France?", "Name three fruits."]


@pytest.fixture(scope="module")
def folder() -> Path:
    return real_models()


@pytest.fixture(scope="module")
def smollm2(folder: Path) -> LoadedModel:
    return load_model(str(folder / SMOLLM2), dtype="float32", device="cpu")


@pytest.fixture(scope="module")
def text(smollm2: LoadedModel) -> Any:
    return windows("demo", smollm2.tokenizer, role="evaluation", samples=3, length=96)


@pytest.fixture(scope="module")
def plain(folder: Path) -> Any:
    """By transformers alone, from the file."""
    return AutoModelForCausalLM.from_pretrained(folder, gguf_file=SMOLLM2, dtype=torch.float32).eval()


def nll_by_hand(model: Any, ids: torch.Tensor) -> float:
    """Mean nats per predicted token, a window at a time."""
    with torch.no_grad():
        losses = [
            torch.nn.functional.cross_entropy(model(window[None]).logits[0, :-1].double(), window[1:], reduction="sum")
            for window in ids
        ]
    return float(sum(losses)) / (ids.shape[0] * (ids.shape[1] - 1))


@pytest.mark.parametrize("name", TOKENS)
def test_tokens_are_those_of_llama_cpp(name: str, folder: Path) -> None:
    tokenizer = load_tokenizer(str(folder / name))
    for text, ids in zip(TEXTS, TOKENS[name], strict=True):
        assert tokenizer(text, add_special_tokens=False)["input_ids"] == ids
    assert (tokenizer("a")["input_ids"][0] == tokenizer.bos_token_id) == (name == GEMMA3)


def test_a_file_and_its_folder_are_one_model(folder: Path, smollm2: LoadedModel, text: Any) -> None:
    """The folder holds the same numbers, rounded to bfloat16."""
    converted = load_model(str(folder / SMOLLM2_FOLDER), dtype="float32", device="cpu")
    assert smollm2.dequantized_from == "Q4_1"
    rounded = {name: weight.bfloat16().float() for name, weight in smollm2.model.state_dict().items()}
    assert all(torch.equal(rounded[name], weight) for name, weight in converted.model.state_dict().items())
    assert smollm2.rows == converted.rows
    packed = negative_log_likelihood(smollm2, text)
    assert packed.nats_per_token == pytest.approx(negative_log_likelihood(converted, text).nats_per_token, abs=2e-3)
    before = {name: weight.clone() for name, weight in smollm2.model.state_dict().items()}
    smollm2.model.load_state_dict(rounded)
    assert negative_log_likelihood(smollm2, text) == negative_log_likelihood(converted, text)
    smollm2.model.load_state_dict(before)


def test_a_sweeps_cells_are_those_of_rows_zeroed_by_hand(
    smollm2: LoadedModel, plain: Any, text: Any, tmp_path: Path
) -> None:
    scores = compute_scores(smollm2, ["magnitude"], text)["magnitude"]
    edits = [
        edit_of(removed_rows(scores, order, rate), smollm2.rows.n_rows)
        for order, rate in (("lerf", 0.0), ("lerf", 0.02), ("morf", 0.01))
    ]
    cells = [Cell(smollm2, edit, Nll(text)) for edit in edits]
    with Store(tmp_path) as store:
        results = LocalRunner(store).run(cells)
    for edit, cell in zip(edits, cells, strict=True):
        by_hand = plain if not edit.size else _without(plain, smollm2, edit.units)
        assert results[cell].nats_per_token == pytest.approx(nll_by_hand(by_hand, text.input_ids), abs=2e-5)


def _without(plain: Any, loaded: LoadedModel, units: np.ndarray[Any, Any]) -> Any:
    """A copy of the plain model with these rows zero."""
    model = type(plain)(plain.config)
    model.load_state_dict(plain.state_dict())
    with torch.no_grad():
        for layer in loaded.rows.layers:
            rows = units[(units >= layer.start) & (units < layer.start + layer.rows)] - layer.start
            model.get_submodule(layer.name).weight[torch.from_numpy(rows)] = 0
    return model.eval()


def test_replies_are_those_of_generate(smollm2: LoadedModel, plain: Any) -> None:
    for prompt, reply in zip(PROMPTS, generate_batch(smollm2, PROMPTS, 16), strict=True):
        chat = smollm2.tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        given = chat["input_ids"].shape[1]
        out = plain.generate(**chat, max_new_tokens=16, do_sample=False, eos_token_id=2, pad_token_id=2)[0, given:]
        assert reply.text == smollm2.tokenizer.decode(out, skip_special_tokens=True)
        assert reply.text


def test_an_exported_edit_is_the_model_without_its_rows(
    folder: Path, smollm2: LoadedModel, plain: Any, tmp_path: Path
) -> None:
    chosen = edit_of(np.arange(5, smollm2.rows.n_rows, 997), smollm2.rows.n_rows, kind="language model", spec={})
    effect = harmless(smollm2.weights_hash, chosen.mask_hash)
    export_masked(find_checkpoint(str(folder / SMOLLM2)), chosen, tmp_path / "out", effect=effect)
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="auto").state_dict()
    expected = _without(plain, smollm2, chosen.units).state_dict()
    assert all(torch.equal(again[name], weight) for name, weight in expected.items())
    exported = load_model(str(tmp_path / "out"), dtype="float32", device="cpu")
    assert exported.dequantized_from is None
    assert exported.tokenizer(TEXTS[0])["input_ids"] == TOKENS[SMOLLM2][0]
