"""A configuration to the row index of a plain gated decoder, without the seconds that torch's import takes.

No second opinion: what a configuration says otherwise than is expected here is left to transformers, which builds the
model or says why it cannot."""

from collections.abc import Callable, Mapping
from typing import Any

from engine.models.row_index import PROJECTIONS, Layer, RowIndex, Sublayer

# Their blocks are `model.layers.N` with these seven Linears and no other.
FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text")
_HEAD_DIM_BY_HEADS = ("llama", "mistral", "qwen2")  # width / heads, where it is not written
_SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
_KINDS = ("full_attention", "sliding_attention")
_LARGEST = 2**20  # of a size; more is no model of 2025, and transformers may have a word to say


def plain_layout(config: Mapping[str, Any]) -> RowIndex | None:
    """The index that `row_index` gives for the model of this config.json; None where that has to be asked."""
    if config.get("model_type") not in FAMILIES or not {*_SIZES, "vocab_size"} <= config.keys():
        return None
    if not all(key in _EXPECTED and _EXPECTED[key](value) for key, value in config.items()):
        return None
    hidden, intermediate, blocks, heads, kv_heads = (config[key] for key in _SIZES)
    head_dim = config.get("head_dim")
    if head_dim is None and config["model_type"] in _HEAD_DIM_BY_HEADS:
        head_dim = hidden // heads
    if hidden % heads or heads % kv_heads or head_dim is None or head_dim % 2:
        return None
    if (config.get("pad_token_id") or 0) >= config["vocab_size"]:
        return None
    rotations, gemma3 = config.get("rope_parameters") or (), config["model_type"] == "gemma3_text"
    by_kind = {*rotations} == {*_KINDS}  # as Gemma 3 has it, if anything, and only Gemma 3
    if by_kind != (gemma3 and bool(rotations)) or len(config.get("layer_types", range(blocks))) != blocks:
        return None
    attention, kv = heads * head_dim, kv_heads * head_dim
    rows = (attention, kv, kv, hidden, intermediate, intermediate, hidden)
    layers: list[Layer] = []
    start = 0
    for block in range(blocks):
        for projection, count in zip(PROJECTIONS, rows, strict=True):
            in_mlp = projection in ("gate_proj", "up_proj", "down_proj")
            name = f"model.layers.{block}.{'mlp' if in_mlp else 'self_attn'}.{projection}"
            sublayer: Sublayer = "mlp" if in_mlp else "attention"
            layers.append(Layer(len(layers), name, block, sublayer, projection, start, count))
            start += count
    return RowIndex(tuple(layers))


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 < value <= _LARGEST


def _is_base(value: Any) -> bool:
    return type(value) in (int, float) and 1 <= value <= 1e12


def _is_token(value: Any) -> bool:
    return value is None or (type(value) is int and 0 <= value <= _LARGEST)


def _is_rotation(value: Any) -> bool:
    """Rotary embeddings without scaling, or scaled as by Llama 3; of Gemma 3 for each kind of attention."""
    if not isinstance(value, dict):
        return value is None
    if value.keys() == {*_KINDS}:
        return all(isinstance(inner, dict) and _is_rotation(inner) for inner in value.values())
    scaled = {"factor", "high_freq_factor", "low_freq_factor", "original_max_position_embeddings"}
    needed = {"default": set(), "linear": {"factor"}, "llama3": scaled}.get(str(value.get("rope_type")))
    numbers = {key: entry for key, entry in value.items() if key != "rope_type"}
    if needed is None or not needed <= numbers.keys() <= needed | {"rope_theta"}:
        return False
    return all(_is_base(entry) for entry in numbers.values())


def _one_of(*values: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and value in values


_EXPECTED: dict[str, Callable[[Any], bool]] = {
    "model_type": _one_of(*FAMILIES),
    "architectures": lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value),
    **dict.fromkeys(("transformers_version", "_name_or_path", "_model_name_or_path"), lambda one: isinstance(one, str)),
    **dict.fromkeys((*_SIZES, "vocab_size", "max_position_embeddings", "head_dim", "sliding_window_pattern"), _is_size),
    **dict.fromkeys(("max_window_layers", "pretraining_tp", "_sliding_window_pattern"), _is_size),
    "sliding_window": lambda value: value is None or _is_size(value),
    "hidden_act": _one_of("silu"),
    "hidden_activation": _one_of("gelu_pytorch_tanh"),
    "query_pre_attn_scalar": _is_size,
    "use_bidirectional_attention": lambda value: not value and isinstance(value, bool | None),
    **dict.fromkeys(("attn_logit_softcapping", "final_logit_softcapping"), lambda cap: cap is None or _is_base(cap)),
    **dict.fromkeys(
        ("rms_norm_eps", "initializer_range", "attention_dropout"), lambda one: type(one) is float and 0 <= one <= 1
    ),
    **dict.fromkeys(
        ("attention_bias", "mlp_bias", "tie_word_embeddings", "use_cache", "use_sliding_window", "is_llama_config"),
        lambda value: isinstance(value, bool),
    ),
    **dict.fromkeys(("use_mrope", "rope_interleaved"), lambda value: value is False),
    "cache_implementation": _one_of("hybrid"),
    "transformers.js_config": lambda value: isinstance(value, dict),
    **dict.fromkeys(("pad_token_id", "bos_token_id", "unk_token_id"), _is_token),
    "eos_token_id": lambda value: (
        _is_token(value) or (isinstance(value, list) and all(type(one) is int and one >= 0 for one in value))
    ),
    **dict.fromkeys(("rope_theta", "rope_local_base_freq"), _is_base),
    **dict.fromkeys(("rope_parameters", "rope_scaling"), _is_rotation),
    "layer_types": lambda value: isinstance(value, list) and all(one in _KINDS for one in value),
    **dict.fromkeys(("dtype", "torch_dtype"), _one_of("float32", "bfloat16", "float16")),
}  # fmt: skip
