"""A GGUF file's tensors as the weights of the model that transformers builds of its configuration."""

from __future__ import annotations

import math
import re
from typing import Any

import gguf
import numpy as np
import torch
from torch import Tensor

from engine.models.gguf_config import ROTATIONS
from engine.models.gguf_header import GgufHeader
from engine.records.errors import InputError
from engine.records.progress import Progress

_PLAIN = {"F32": "<f4", "F16": "<f2", "F64": "<f8"}
_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_IN_BLOCKS = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_qkv": "self_attn.qkv_proj", "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip
_IN_GEMMA = {
    "post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}  # fmt: skip


def stored_as(name: str, model_type: str) -> str | None:
    """transformers' name of a tensor of a GGUF file; None for one that no model of this type has."""
    found = re.fullmatch(r"(?:blk\.(\d{1,4})\.)?(\w+)\.(weight|bias)", name)
    if not found:
        return None
    block, part, ending = found.groups()
    if block is None:
        return f"{_NAMES[part]}.{ending}" if part in _NAMES else None
    if model_type == "phi3" and part == "ffn_up":
        part = "mlp.gate_up_proj"
    elif model_type.startswith("gemma") and part in _IN_GEMMA:
        part = _IN_GEMMA[part]
    elif part in _IN_BLOCKS:
        part = _IN_BLOCKS[part]
    else:
        return None
    return f"model.layers.{block}.{part}.{ending}"


def check_tensors(header: GgufHeader, config: Any, model_id: str) -> None:
    """`InputError` for a tensor that no part of the model is made of, and for one that cannot be unpacked."""
    for name, tensor in header.tensors.items():
        if name in ROTATIONS:
            continue
        if stored_as(name, config.model_type) is None:
            raise InputError(
                f"{model_id}: {header.path.name} holds {name[:80]!r}, which is no weight of a "
                f"{config.model_type} model; without it the numbers would be another model's: give the original "
                "checkpoint"
            )
        block, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[tensor.kind]]
        try:
            _unpacked(np.zeros(block_bytes, np.uint8), tensor.kind, (1, block))
        except (NotImplementedError, ValueError, TypeError):
            raise InputError(
                f"{model_id}: {header.path.name} packs {name[:80]!r} as {tensor.kind}, which the installed gguf cannot "
                "unpack; update gguf, or give a file of another kind, such as Q8_0"
            ) from None


def unpacked_weights(
    header: GgufHeader, config: Any, dtype: torch.dtype, progress: Progress | None = None
) -> dict[str, Tensor]:
    """Every weight by transformers' name, unpacked in float32 and then rounded to `dtype`. On the CPU.

    llama.cpp's conversion stores the rows of queries and keys of Llama models in another order, and the scales of
    Gemma's norms plus one; both are taken back.
    """
    weights: dict[str, Tensor] = {}
    names = [name for name in header.tensors if name not in ROTATIONS]
    for done, name in enumerate(names):
        if progress:
            progress("unpack weights", done, len(names))
        tensor = header.tensors[name]
        stored = np.memmap(header.path, np.uint8, "r", tensor.start, (tensor.stop - tensor.start,))
        values = torch.from_numpy(_unpacked(stored, tensor.kind, tensor.shape))
        if config.model_type.startswith("gemma") and name.endswith("norm.weight"):
            values = values - 1
        for part, heads in (("q", config.num_attention_heads), ("k", config.num_key_value_heads)):
            if config.model_type == "llama" and f".attn_{part}." in name:
                values = values.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2)
        weights[str(stored_as(name, config.model_type))] = values.to(dtype)
    if progress:
        progress("unpack weights", len(names), len(names))
    return weights


def _unpacked(stored: np.ndarray[Any, Any], kind: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    if kind in _PLAIN:
        return stored.view(_PLAIN[kind]).astype(np.float32).reshape(shape)
    rows = stored.reshape(math.prod(shape[:-1]), -1)  # gguf unpacks some at a time: blocks by themselves take long
    values: np.ndarray[Any, Any] = gguf.dequantize(rows, gguf.GGMLQuantizationType[kind])
    return values.reshape(shape)
