"""A GGUF file's metadata to the config.json that transformers would have of the same model.

Strict, since a setting that is passed over gives another model's numbers without a word: an entry of the architecture,
or a tensor, that is not read here is an error. transformers' own reader (5.24) passes over most of them: the size of
Qwen 3's heads, the scaling of rotary positions of Llama 3.1 and Gemma 3, Gemma's softcaps and its larger models' scale.
Sources: llama.cpp's conversion (what it writes) and its models (what it takes where nothing is written)."""

import math
from typing import Any, NamedTuple

import numpy as np

from engine.models.gguf_header import GgufHeader
from engine.records import bounds

Json = dict[str, Any]

_SIZES = {
    "context_length": "max_position_embeddings", "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers", "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
}  # fmt: skip
_EPS, _KV_HEADS, _HEAD, _VALUE_HEAD = (
    f"attention.{key}" for key in ("layer_norm_rms_epsilon", "head_count_kv", "key_length", "value_length")
)
_THETA, _ROTATED, _SCALING = "rope.freq_base", "rope.dimension_count", "rope.scaling."
_WINDOW, _PATTERN, _LOCAL_THETA = "attention.sliding_window", "attention.sliding_window_pattern", "rope.freq_base_swa"
_READ = {
    *_SIZES, _EPS, _KV_HEADS, _HEAD, _VALUE_HEAD, _THETA, _ROTATED, "vocab_size", "tensor_data_layout",
    *(_SCALING + key for key in ("type", "factor", "original_context_length", "finetuned")),
}  # fmt: skip
_FACTOR, _ATTENTION = f"{_SCALING}factor", f"{_SCALING}attn_factor"
_USUAL_CAPS = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}  # of Gemma 2, in files without them
_CAPS = _USUAL_CAPS.keys()
_LLAMA3 = "rope_freqs.weight"
_LONG, _SHORT = "rope_factors_long.weight", "rope_factors_short.weight"
ROTATIONS = (_LLAMA3, _LONG, _SHORT)  # tensors that are settings
_REMEDY = "give the original checkpoint"


class Family(NamedTuple):
    """model_type, class: transformers'. more: entries that only this family has. large: blocks of its largest model,
    whose attention is scaled by the width per head in the place of the head's size."""

    model_type: str
    class_name: str
    more: frozenset[str] = frozenset()
    large: int = 0


FAMILIES = {
    "llama": Family("llama", "LlamaForCausalLM"),  # Mistral's files too, whose models compute the same
    "qwen2": Family("qwen2", "Qwen2ForCausalLM"),
    "qwen3": Family("qwen3", "Qwen3ForCausalLM"),
    "gemma2": Family("gemma2", "Gemma2ForCausalLM", frozenset({_WINDOW, _PATTERN, *_CAPS}), 46),
    "gemma3": Family(
        "gemma3_text", "Gemma3ForCausalLM", frozenset({_WINDOW, _PATTERN, _LOCAL_THETA, *_CAPS}), 62
    ),
    "phi3": Family("phi3", "Phi3ForCausalLM", frozenset({_WINDOW, _ATTENTION})),
}  # fmt: skip


def config_of(header: GgufHeader) -> Json:
    """config.json of the model of this file. Errors: BadFile for what is not read, and for values of a wrong type."""
    entries = _Entries(header)
    family, read = entries.family, entries.read
    config: Json = {name: read(key, int) for key, name in _SIZES.items()}
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    head_dim = read(_HEAD, int, hidden // max(heads, 1))
    embeddings = header.tensors.get("token_embd.weight")
    if embeddings is None or min(head_dim, *config.values()) < 1:
        raise bounds.BadFile(f"has no embeddings, or a size below 1 ({config}); copy it again, or {_REMEDY}")
    if read(_VALUE_HEAD, int, head_dim) != head_dim:
        raise bounds.BadFile(f"has keys of {head_dim} numbers and values of another size; {_REMEDY}")
    if family.model_type == "phi3" and read(_WINDOW, int, 0):
        config["sliding_window"] = read(_WINDOW, int)
    if family.model_type not in ("qwen2", "phi3") or head_dim * heads != hidden:
        config["head_dim"] = head_dim
    config |= {
        "architectures": [family.class_name], "model_type": family.model_type, "dtype": "float32",
        "num_key_value_heads": read(_KV_HEADS, int, heads),
        "rms_norm_eps": read(_EPS, float),
        "rope_parameters": _rotation(entries, config, head_dim),
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "vocab_size": embeddings.shape[0],
    }  # fmt: skip
    if family.model_type.startswith("gemma"):
        config |= _gemma(entries, config, head_dim)
    else:
        config["hidden_act"] = "silu"
    if family.model_type == "llama":
        config |= {
            "attention_bias": "blk.0.attn_q.bias" in header.tensors, "mlp_bias": "blk.0.ffn_up.bias" in header.tensors,
        }  # fmt: skip
    return config | special_tokens(header)


def special_tokens(header: GgufHeader) -> Json:
    """Ids of the tokens that begin and end a text and fill a batch; None where the file names none."""
    ids = {name: header.metadata.get(f"tokenizer.ggml.{key}_token_id") for name, key in _TOKENS}
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    known = len(tokens) if isinstance(tokens, list) else 0
    for name, number in ids.items():
        if number is not None and (type(number) is not int or not 0 <= number < known):
            raise bounds.BadFile(f"has {name} = {number!r} and {known:,} tokens; copy it again, or {_REMEDY}")
    return ids


_TOKENS = (("bos_token_id", "bos"), ("eos_token_id", "eos"), ("pad_token_id", "padding"))


class _Entries:
    """The metadata of the file's architecture, all of which have to be known."""

    def __init__(self, header: GgufHeader) -> None:
        self.header = header
        name = header.metadata.get("general.architecture")
        if not isinstance(name, str) or name not in FAMILIES:
            shown = repr(name)[:80]
            raise bounds.BadFile(f"is of the architecture {shown}; read are {', '.join(sorted(FAMILIES))}: {_REMEDY}")
        if (kind := header.metadata.get("general.type", "model")) != "model":
            raise bounds.BadFile(f"is of the type {repr(kind)[:80]}; expected a whole model: {_REMEDY}")
        self.family = FAMILIES[name]
        prefix = f"{name}."
        self.values = {
            key.removeprefix(prefix): value for key, value in header.metadata.items() if key.startswith(prefix)
        }
        for key in self.values.keys() - _READ - self.family.more:
            raise bounds.BadFile(f"has an entry {(prefix + key)[:80]}, which is not read here; {_REMEDY}")

    def read(self, key: str, kind: type, usual: Any = None) -> Any:
        """The value of an entry, the usual one where it is absent; without a usual one it has to be there.

        Numbers that are stored in 32 bits are given as the shortest decimal that is stored so: 1e-05, as it was meant.
        """
        value: Any = self.values.get(key, usual)
        right = isinstance(value, (int, float) if kind is float else kind) and not isinstance(value, bool)
        if not right:
            shown = repr(value)[:80]
            raise bounds.BadFile(f"has {key} = {shown}, expected {kind.__name__}; copy it again, or {_REMEDY}")
        with np.errstate(over="ignore"):
            return float(str(np.float32(value))) if kind is float else value


def _rotation(entries: _Entries, config: Json, head_dim: int) -> Json:
    """`rope_parameters`: the base, and what slows the rotation of positions beyond the first training's."""
    header, read = entries.header, entries.read
    theta = read(_THETA, float, 10_000.0)
    plain: Json = {"rope_type": "default", "rope_theta": theta}
    rotated = read(_ROTATED, int, head_dim)
    slowed, model_type = plain, entries.family.model_type
    scaling = read(f"{_SCALING}type", str, "linear" if _FACTOR in entries.values else "none")
    own = {"llama": {_LLAMA3}, "phi3": {_LONG, _SHORT}}.get(model_type, set())
    if (
        scaling not in ("none", "linear", "longrope" if own == {_LONG, _SHORT} else "none")
        or ({*ROTATIONS} - own) & header.tensors.keys()
    ):
        raise bounds.BadFile(f"scales rotary positions in a way ({scaling[:80]}) that is not read here; {_REMEDY}")
    if rotated != head_dim and model_type != "phi3":
        raise bounds.BadFile(f"rotates {rotated} of {head_dim} numbers of a head, which is not read here; {_REMEDY}")
    if scaling == "linear":
        slowed = {"rope_type": "linear", "rope_theta": theta, "factor": read(_FACTOR, float)}
    if model_type == "gemma3_text":
        local = plain | {"rope_theta": read(_LOCAL_THETA, float, 10_000.0)}
        return {"full_attention": slowed, "sliding_attention": local}
    if model_type == "phi3":
        if _LONG in header.tensors:
            original = read(f"{_SCALING}original_context_length", int)
            config["original_max_position_embeddings"] = original
            slowed = plain | {
                "rope_type": "longrope", "original_max_position_embeddings": original,
                "long_factor": _numbers(header, _LONG).tolist(), "short_factor": _numbers(header, _SHORT).tolist(),
            }  # fmt: skip
            if _ATTENTION in entries.values:
                slowed["attention_factor"] = read(_ATTENTION, float)
        return slowed | {"partial_rotary_factor": rotated / head_dim}
    return plain | _llama3(_numbers(header, _LLAMA3), theta, head_dim) if _LLAMA3 in header.tensors else slowed


def _llama3(factors: np.ndarray[Any, Any], theta: float, head_dim: int) -> Json:
    """The settings of Llama 3.1's scaling under which every frequency is divided by what the file says.
    Checked, not guessed: low and high limits and the first training's length are those of all its models."""
    low, high, original, factor = 1.0, 4.0, 8192, round(float(factors.max(initial=1.0)), 3)
    if np.all(factors == 1):
        return {}
    with np.errstate(all="ignore"):
        lengths = 2 * math.pi * theta ** (np.arange(len(factors)) / len(factors))
        smooth = np.clip((original / lengths - low) / (high - low), 0, 1)
        same = np.allclose(factors, 1 / ((1 - smooth) / factor + smooth), rtol=1e-4)
    if not same or 2 * len(factors) != head_dim:
        raise bounds.BadFile(f"scales rotary positions otherwise than Llama 3.1, which is not read here; {_REMEDY}")
    return {
        "rope_type": "llama3", "factor": factor, "low_freq_factor": low, "high_freq_factor": high,
        "original_max_position_embeddings": original,
    }  # fmt: skip


def _gemma(entries: _Entries, config: Json, head_dim: int) -> Json:
    family, read, blocks = entries.family, entries.read, config["num_hidden_layers"]
    second = family.model_type == "gemma2"
    caps = {**(_USUAL_CAPS if second else {}), **{cap: read(cap, float) for cap in _CAPS & entries.values.keys()}}
    pattern = entries.values.get(_PATTERN, 2 if second else 6)
    if isinstance(pattern, int) and 0 < pattern <= 1000 and 0 < blocks <= 1000:
        pattern = [bool((block + 1) % pattern) for block in range(blocks)]
    if (
        not isinstance(pattern, list)
        or len(pattern) != blocks
        or not all(isinstance(slides, bool) for slides in pattern)
    ):
        raise bounds.BadFile(f"has a pattern of windows that is no list of {blocks} answers; {_REMEDY}")
    largest = blocks == family.large
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": read(_WINDOW, int, 4096 if second else None),
        "layer_types": ["sliding_attention" if slides else "full_attention" for slides in pattern],
        "query_pre_attn_scalar": config["hidden_size"] // config["num_attention_heads"] if largest else head_dim,
        **{cap: caps.get(cap) for cap in sorted(_CAPS)},
    }


def _numbers(header: GgufHeader, name: str) -> np.ndarray[Any, Any]:
    """A tensor of few plain numbers."""
    tensor = header.tensors.get(name)
    if tensor is None or tensor.kind != "F32" or len(tensor.shape) != 1 or tensor.shape[0] > 4096:
        raise bounds.BadFile(f"has no list of numbers {name}; copy it again, or {_REMEDY}")
    return np.fromfile(header.path, "<f4", tensor.shape[0], offset=tensor.start)
