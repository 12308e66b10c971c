"""GGUF files of tiny models, written with the package gguf as llama.cpp's conversion writes them."""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from tiny_models import tiny_tokenizer

# transformers' model_type: ggml's name of the architecture
ARCHITECTURES = {
    "llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma2": "gemma2",
    "gemma3_text": "gemma3", "phi3": "phi3",
}  # fmt: skip
PACKED_WIDTHS = {"hidden_size": 64, "intermediate_size": 96, "head_dim": 16}  # in blocks of 32


def write_gguf(
    model: Any, file: Path, kind: str = "F32", *, more: dict[str, Any] | None = None,
    tensors: dict[str, np.ndarray[Any, Any]] | None = None,
) -> Path:  # fmt: skip
    """The model and `tiny_tokenizer` as one file. kind: of all matrices. more: entries of metadata, None to leave out.
    tensors: others.

    Tensors' names are those of gguf's own table.
    """
    config = model.config
    architecture = ARCHITECTURES[config.model_type]
    entries = {f"{architecture}.{key}": value for key, value in _settings(config).items()} | _tokens(config.vocab_size)
    entries = {key: value for key, value in (entries | (more or {})).items() if value is not None}
    writer = gguf.GGUFWriter(file, entries.pop("general.architecture", architecture))
    for key, value in entries.items():
        _add(writer, key, value)
    names = gguf.get_tensor_name_map(
        {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}[architecture], config.num_hidden_layers
    )
    for name, parameter in model.named_parameters():
        stem, _, ending = name.rpartition(".")
        values = _as_llama_cpp(name, parameter.detach(), config).numpy()
        packed = kind if values.ndim > 1 else "F32"
        raw = gguf.GGMLQuantizationType[packed]
        writer.add_tensor(f"{names.get_name(stem)}.{ending}", gguf.quants.quantize(values, raw), raw_dtype=raw)
    for name, values in {**extra_tensors(config), **(tensors or {})}.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, list):
        writer.add_array(key, value)
    else:
        {str: writer.add_string, bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}[type(value)](
            key, value
        )


def _settings(config: Any) -> dict[str, Any]:
    rope = config.rope_parameters
    full = rope.get("full_attention", rope)
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    settings = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "rope.freq_base": float(full["rope_theta"]),
        "rope.dimension_count": int(head_dim * full.get("partial_rotary_factor", 1.0)),
        "rope.scaling.type": full["rope_type"] if full["rope_type"] == "linear" else None,
        "rope.scaling.factor": full.get("factor") if full["rope_type"] == "linear" else None,
    }
    if rope.get("rope_type") == "longrope":
        settings["rope.scaling.original_context_length"] = config.original_max_position_embeddings
    if config.model_type == "phi3" and config.sliding_window:
        settings["attention.sliding_window"] = config.sliding_window
    if config.model_type.startswith("gemma"):
        settings["attention.sliding_window"] = config.sliding_window
        for cap in ("attn_logit_softcapping", "final_logit_softcapping"):
            settings[cap] = getattr(config, cap, None)
        period = 6 if config.model_type == "gemma3_text" else 2
        usual = ["full_attention" if not (block + 1) % period else "sliding_attention" for block in range(100)]
        if config.layer_types != usual[: config.num_hidden_layers]:
            settings["attention.sliding_window_pattern"] = [kind == "sliding_attention" for kind in config.layer_types]
    return settings


def _tokens(rows: int) -> dict[str, Any]:
    """rows: of the embeddings, which llama.cpp's conversion fills up with tokens that nothing gives."""
    tokenizer = tiny_tokenizer()
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    special = {token["id"] for token in state["added_tokens"]}
    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)  # type: ignore[arg-type]
    types = [3 if number in special else 1 for number in range(len(tokens))]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [*tokens, *(f"[PAD{number}]" for number in range(len(tokens), rows))],
        "tokenizer.ggml.token_type": types + [5] * (rows - len(tokens)),
        "tokenizer.ggml.merges": [" ".join(merge) for merge in state["model"]["merges"]],
        "tokenizer.ggml.bos_token_id": tokenizer.bos_token_id,
        "tokenizer.ggml.eos_token_id": tokenizer.eos_token_id,
        "tokenizer.ggml.padding_token_id": tokenizer.pad_token_id,
        "tokenizer.chat_template": tokenizer.chat_template,
    }


def _as_llama_cpp(name: str, values: torch.Tensor, config: Any) -> torch.Tensor:
    """Rows of queries and keys of Llama models in ggml's order, scales of Gemma's norms plus one."""
    if config.model_type.startswith("gemma") and "norm" in name:
        return values + 1
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(name.split(".")[-2])
    if ARCHITECTURES[config.model_type] != "llama" or heads is None:
        return values
    rows = len(values) // heads
    order = np.arange(len(values)).reshape(heads, 2, rows // 2).swapaxes(1, 2).reshape(-1)
    return values[order].contiguous()


def extra_tensors(config: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Llama 3.1's divisors of the frequencies of rotary positions; Phi-3's factors."""
    rope = config.rope_parameters
    if rope.get("rope_type") == "longrope":
        return {
            f"rope_factors_{name}.weight": np.array(rope[f"{name}_factor"], np.float32) for name in ("long", "short")
        }
    if rope.get("rope_type") != "llama3":
        return {}
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    slowed, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    usual = rope["rope_theta"] ** -(torch.arange(0, config.head_dim, 2) / config.head_dim)
    return {"rope_freqs.weight": (usual / slowed).numpy().astype(np.float32)}
