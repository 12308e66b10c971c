"""Loading: the weights that were asked for, identified by their bytes, or one clear line."""

import hashlib
import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from bad_inputs import error_of
from safetensors.torch import load_file, save_file
from tiny_models import FAMILIES, load_tiny, save_tiny, tiny_model, tiny_tokenizer

import engine.models.checkpoints
import engine.models.loading
from engine.models.loading import LoadedModel, input_device, load_model, load_rows, load_tokenizer, row_index
from engine.models.products import numerics

# pragma: allowlist nextline secret: made up
COMMIT = "0123456789abcdef0123456789abcdef01234567"
IDS = torch.arange(5, 29).view(2, 12)
WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny("llama", tmp_path_factory.mktemp("saved"))


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy to be changed."""
    return Path(shutil.copytree(saved, tmp_path / "tiny"))


def edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def edit_weights(folder: Path, edit: Callable[[dict[str, torch.Tensor]], object]) -> None:
    weights = load_file(folder / "model.safetensors")
    edit(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def load(folder: Path, **options: Any) -> LoadedModel:
    return load_model(str(folder), **{"device": "cpu", **options})


# What is loaded


@pytest.mark.parametrize("family", FAMILIES)
def test_loaded_model_is_the_saved_one(family: str, tmp_path: Path) -> None:
    loaded = load_tiny(family, tmp_path, seed=3)
    original = tiny_model(family, seed=3)
    with torch.no_grad():
        assert torch.equal(loaded.model(input_ids=IDS).logits, original(input_ids=IDS).logits)
    assert type(loaded.model) is type(original)
    assert not any(module.training for module in loaded.model.modules())
    assert not any(parameter.requires_grad for parameter in loaded.model.parameters())
    assert loaded.rows == row_index(original)
    assert (loaded.dtype, loaded.device, loaded.revision) == ("float32", "cpu", None)
    assert input_device(loaded.model) == torch.device("cpu")


def test_families_differ_from_a_linear_map(tiny_family: LoadedModel) -> None:
    """The tiny models are far from near-linear, else a wrong attribution rule would not show."""
    embed = tiny_family.model.get_input_embeddings()(IDS)
    with torch.no_grad():
        full, half = (tiny_family.model(inputs_embeds=embed * scale).logits for scale in (1.0, 0.5))
    assert full.std() > 0.5
    assert (full - 2 * half).abs().mean() > 0.2 * full.std()


def test_dtype(saved: Path) -> None:
    original = tiny_model("llama").state_dict()
    for name, dtype in (("bfloat16", torch.bfloat16), ("float16", torch.float16)):
        loaded = load(saved, dtype=name)
        assert loaded.dtype == name
        for key, value in loaded.model.state_dict().items():
            assert torch.equal(value, original[key].to(dtype))
    assert load(saved).dtype == "float32"  # auto on the CPU, whatever the checkpoint says
    assert "unknown dtype 'bfloat'; did you mean 'bfloat16'?" in error_of(lambda: load(saved, dtype="bfloat"))


def test_auto_follows_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: not including_emulation)
    device = engine.models.loading.checked_device("auto")
    assert device.type == "cuda"
    assert engine.models.loading._dtype("auto", device) == torch.bfloat16
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    assert engine.models.loading._dtype("auto", device) == torch.float32
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert engine.models.loading.checked_device("auto").type == "cpu"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda(saved: Path) -> None:
    loaded = load_model(str(saved))
    assert (loaded.device, loaded.dtype) == ("cuda", "bfloat16")
    assert input_device(loaded.model).type == "cuda"
    on_cpu = load(saved, dtype="bfloat16")
    for key, value in on_cpu.model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[key].cpu(), value)
    assert loaded.numeric_fingerprint != on_cpu.numeric_fingerprint


def test_a_bfloat16_checkpoint_loads_in_float32(tmp_path: Path) -> None:
    tiny_model("llama").bfloat16().save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    loaded = load(tmp_path)
    assert {parameter.dtype for parameter in loaded.model.parameters()} == {torch.float32}
    assert torch.equal(loaded.model.lm_head.weight, tiny_model("llama").lm_head.weight.bfloat16().float())


def test_tied_weights_stay_tied(tmp_path: Path) -> None:
    loaded = load_tiny("llama", tmp_path, tie_word_embeddings=True)
    assert loaded.model.lm_head.weight is loaded.model.get_input_embeddings().weight


def test_device_map(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load(saved, device_map={"": "cpu"})
    assert loaded.device == "cpu"
    with torch.no_grad():
        assert torch.equal(loaded.model(input_ids=IDS).logits, tiny_model("llama")(input_ids=IDS).logits)
    assert "would be offloaded" in error_of(lambda: load(saved, device_map={"": "meta"}))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "pip install 'selector-audit[sharded]'" in error_of(lambda: load(saved, device_map="auto"))


def test_tokenizer_alone(saved: Path) -> None:
    tokenizer = load_tokenizer(str(saved))
    text = "Sure, here it is."
    assert tokenizer(text)["input_ids"] == tiny_tokenizer()(text)["input_ids"]
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True)
    assert prompt["input_ids"].count(tokenizer.bos_token_id) == 1


def test_rows_need_no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert load_rows(str(folder)) == row_index(tiny_model("llama"))


# What identifies it


def test_weights_hash_is_that_of_the_bytes(folder: Path) -> None:
    def file_hash(path: Path) -> str:
        return hashlib.sha256(path.read_bytes()).hexdigest()

    loaded = load(folder)
    weights = folder / "model.safetensors"
    assert loaded.weights_hash == hashlib.sha256(file_hash(weights).encode()).hexdigest()
    other = folder.rename(folder.with_name("renamed"))
    assert load(other).numeric_fingerprint == loaded.numeric_fingerprint
    edit_weights(other, lambda weights: weights["model.norm.weight"][3].add_(1e-3))
    changed = load(other)
    assert changed.weights_hash != loaded.weights_hash
    assert {k for k, v in changed.numeric_fingerprint.items() if v != loaded.numeric_fingerprint[k]} == {"weights_hash"}


def test_all_shards_count(tmp_path: Path) -> None:
    folder = save_tiny("llama", tmp_path, max_shard_size="30KB")
    shards = sorted(folder.glob("model-*.safetensors"))
    assert len(shards) > 2
    first = load(folder)
    last = load_file(shards[-1])
    next(iter(last.values())).add_(1)
    save_file(last, shards[-1], metadata={"format": "pt"})
    assert load(folder).weights_hash != first.weights_hash
    shards[1].unlink()
    message = error_of(lambda: load(folder))
    assert f"lacks 1 of {len(shards)} weight files, the first {shards[1].name}" in message


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        (lambda folder: edit_config(folder, rms_norm_eps=1e-3), {"config_hash"}),
        (lambda folder: edit_config(folder, transformers_version="1.0", dtype="float16"), set()),
        (lambda folder: (folder / "chat_template.jinja").write_text("{{ messages }}"), {"tokenizer_hash"}),
        (lambda folder: (folder / "generation_config.json").write_text('{"top_k": 3}'), {"config_hash"}),
        (lambda folder: (folder / "README.md").write_text("A model card."), set()),
    ],
)
def test_what_else_can_change_a_number(folder: Path, change: Callable[[Path], object], differs: set[str]) -> None:
    before = load(folder).numeric_fingerprint
    change(folder)
    after = load(folder).numeric_fingerprint
    assert {key for key in after if after[key] != before[key]} == differs


def test_fingerprint_names_the_model(saved: Path) -> None:
    loaded = load(saved, dtype="bfloat16")
    how = {"numerics": numerics(loaded.model, "cpu")}
    assert loaded.fingerprint == {"id": str(saved), "revision": None, **loaded.numeric_fingerprint, **how}
    assert loaded.numeric_fingerprint["dtype"] == "bfloat16"
    assert loaded.numeric_fingerprint["device"] == "cpu"
    assert loaded.numeric_fingerprint["architecture"] == loaded.architecture == "LlamaForCausalLM"
    json.dumps(loaded.fingerprint)


# The hub, through its cache: these tests have no network


@pytest.fixture
def hub(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache that holds the tiny model as org/tiny, its weights as a blob named by their hash."""
    repository = tmp_path / "hub" / "models--org--tiny"
    snapshot = repository / "snapshots" / COMMIT
    shutil.copytree(saved, snapshot)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    (repository / "blobs").mkdir()
    weights = snapshot / "model.safetensors"
    blob = repository / "blobs" / hashlib.sha256(weights.read_bytes()).hexdigest()
    weights.rename(blob)
    weights.symlink_to(blob)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return repository


def test_hub_model_from_the_cache(hub: Path, saved: Path) -> None:
    loaded = load_model("org/tiny", device="cpu")
    assert (loaded.id, loaded.revision) == ("org/tiny", COMMIT)
    assert loaded.numeric_fingerprint == load(saved).numeric_fingerprint
    assert load_rows("org/tiny") == loaded.rows
    assert load_model("org/tiny", revision=COMMIT, device="cpu").revision == COMMIT
    assert "org/tiny" in error_of(lambda: load_model("org/tiny", revision="v2"))


# What cannot be loaded


def test_demo(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.models.checkpoints, "demo_model_dir", lambda: saved)
    assert load_model("demo", device="cpu").id == "demo"
    monkeypatch.setattr(engine.models.checkpoints, "demo_model_dir", lambda: tmp_path)
    assert "rebuild it with `uv run python -m precomputed.recipe`" in error_of(lambda: load_model("demo"))


def test_pickled_weights_are_never_read(folder: Path) -> None:
    """A .bin beside safetensors is ignored; alone it is an error."""
    (folder / "pytorch_model.bin").write_bytes(b"not even a pickle")
    load(folder)
    (folder / "model.safetensors").unlink()
    message = error_of(lambda: load(folder))
    assert (
        "has its weights only as pytorch_model.bin, which this software does not load (pickle can run code)" in message
    )
    (folder / "pytorch_model.bin").unlink()
    assert "has no weights; expected model.safetensors" in error_of(lambda: load(folder))


def test_code_of_the_checkpoint_is_never_run(folder: Path) -> None:
    trap = folder / "trapped"
    (folder / "modeling_own.py").write_text(f"open({str(trap)!r}, 'w')\n")
    edit_config(folder, auto_map={"AutoModelForCausalLM": "modeling_own.Own", "AutoConfig": "modeling_own.Own"})
    load(folder)  # an architecture that transformers knows itself
    edit_config(folder, model_type="own")
    message = error_of(lambda: load(folder))
    assert "needs Python code from its own checkpoint, which this software never runs" in message
    assert not trap.exists()


def test_a_checkpoint_does_not_choose_its_files_or_kernels(folder: Path) -> None:
    before = load(folder).model
    save_file({}, folder / "other.safetensors")
    edit_config(folder, transformers_weights="other.safetensors", attn_implementation="someone/kernel")
    after = load(folder).model
    assert after.config._attn_implementation == before.config._attn_implementation
    assert torch.equal(after.lm_head.weight, before.lm_head.weight)


def test_shards_lie_beside_their_index(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder.parent / "outside.safetensors")
    index = folder / "model.safetensors.index.json"
    for names in ({"w": "../outside.safetensors"}, {"w": "outside.bin"}, {"w": 3}, {}, []):
        index.write_text(json.dumps({"weight_map": names}))
        assert "lists no usable weight files" in error_of(lambda: load(folder))


def test_unsupported_blocks_are_named_before_weights_are_read(folder: Path) -> None:
    transformers.Llama4TextConfig(num_hidden_layers=1, hidden_size=8).save_pretrained(folder)
    (folder / "model.safetensors").unlink()
    assert "experts (Llama4TextExperts) holds its weights" in error_of(lambda: load(folder))


UP = "model.layers.1.mlp.up_proj"


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda f: (f / "adapter_config.json").write_text("{}"), "holds an adapter beside its weights; merge it first"),
        (lambda f: edit_config(f, model_type="lama"), "architecture 'lama' cannot be read by the installed transform"),
        (transformers.T5Config(num_layers=1).save_pretrained, "is a t5 model; expected a decoder-only language model"),
        (transformers.ViTConfig(num_hidden_layers=1).save_pretrained, "is a vit model; expected a decoder-only"),
        (lambda f: edit_weights(f, lambda w: w.pop(f"{UP}.weight")), f"1 weights are missing, the first {UP}.weight"),
        (
            lambda f: edit_weights(f, lambda w: w.update({f"{UP}.bias": torch.ones(28)})),
            f"1 weights are not part of the architecture, the first {UP}.bias",
        ),
        (lambda f: edit_config(f, intermediate_size=30), "6 weights are of another shape, the first model.layers.0.m"),
        (lambda f: (f / WEIGHTS).write_bytes((f / WEIGHTS).read_bytes()[:-100]), "cannot be loaded: SafetensorError: "),
    ],
)  # fmt: skip
def test_what_cannot_be_loaded_is_one_line(folder: Path, spoil: Callable[[Path], object], said: str) -> None:
    spoil(folder)
    assert said in error_of(lambda: load(folder))
