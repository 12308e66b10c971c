"""A GGUF file's tensors as the weights of the model that transformers builds of its configuration."""

import math
from typing import Any

import gguf
import numpy as np
import torch
from torch import Tensor, nn

from engine.models.gguf_config import FAMILIES, ROTATIONS
from engine.models.gguf_header import GgufHeader
from engine.records.errors import InputError
from engine.records.progress import Progress

_PLAIN = {"F32": "<f4", "F16": "<f2", "F64": "<f8"}


def stored_names(header: GgufHeader, skeleton: nn.Module, model_id: str) -> dict[str, str]:
    """transformers' name of every weight of the file, by gguf's table.
    Errors: InputError for a tensor that no part of the model is made of, and for one that gguf cannot unpack."""
    architecture = header.metadata["general.architecture"]
    known = next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    table = gguf.get_tensor_name_map(known, header.metadata[f"{architecture}.block_count"])
    parts = [name.rpartition(".") for name, _ in skeleton.named_parameters(remove_duplicate=False)]
    names = {f"{table.get_name(stem)}.{ending}": f"{stem}.{ending}" for stem, _, ending in parts}
    for name, tensor in header.tensors.items():
        if name not in names and name not in ROTATIONS:
            raise InputError(
                f"{model_id}: {header.path.name} holds {name[:80]!r}, which is no weight of a "
                f"{FAMILIES[architecture].model_type} model; without it the numbers would be another model's: give the "
                "original checkpoint"
            )
        block, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[tensor.kind]]
        try:
            _unpacked(np.zeros(block_bytes, np.uint8), tensor.kind, (1, block))
        except (NotImplementedError, ValueError, TypeError):
            raise InputError(
                f"{model_id}: {header.path.name} packs {name[:80]!r} as {tensor.kind}, which the installed gguf cannot "
                "unpack; update gguf, or give a file of another kind, such as Q8_0"
            ) from None
    return {name: names[name] for name in header.tensors if name not in ROTATIONS}


def unpacked_weights(
    header: GgufHeader, skeleton: Any, dtype: torch.dtype, model_id: str, progress: Progress | None = None
) -> dict[str, Tensor]:
    """Every weight by transformers' name, unpacked in float32 and then rounded to `dtype`. On the CPU.
    llama.cpp's conversion stores the rows of queries and keys of Llama models in another order, and the scales of
    Gemma's norms plus one; both are taken back."""
    config, weights = skeleton.config, {}
    names = stored_names(header, skeleton, model_id)
    heads = {"q": config.num_attention_heads, "k": config.num_key_value_heads} if config.model_type == "llama" else {}
    for done, (name, stored_as) in enumerate(names.items()):
        if progress:
            progress("unpack weights", done, len(names))
        tensor = header.tensors[name]
        stored = np.memmap(header.path, np.uint8, "r", tensor.start, (tensor.stop - tensor.start,))
        values = torch.from_numpy(_unpacked(stored, tensor.kind, tensor.shape))
        if config.model_type.startswith("gemma") and name.endswith("norm.weight"):
            values = values - 1
        for part, count in heads.items():
            if f".attn_{part}." in name and len(values) % (2 * count) == 0:
                values = values.unflatten(0, (count, -1, 2)).transpose(1, 2).flatten(0, 2)
        weights[stored_as] = values.to(dtype)
    if progress:
        progress("unpack weights", len(names), len(names))
    return weights


def _unpacked(stored: np.ndarray[Any, Any], kind: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    if kind in _PLAIN:
        return stored.view(_PLAIN[kind]).astype(np.float32).reshape(shape)
    rows = stored.reshape(math.prod(shape[:-1]), -1)  # gguf unpacks some at a time: blocks by themselves take long
    values: np.ndarray[Any, Any] = gguf.dequantize(rows, gguf.GGMLQuantizationType[kind])
    return values.reshape(shape)
