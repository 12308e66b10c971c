"""Tiny random models of the supported families, saved as real checkpoints and loaded by the engine.

Sizes differ pairwise wherever the architecture allows it, so that a transposed matrix fails; weights are
far from the near-linear initialisation, so that a wrong attribution rule shows.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from engine.models.loading import LoadedModel, load_model

VOCABULARY = 300  # rows of the models' embeddings
TOKENS = 290  # of the tiny tokenizer: 256 bytes, 5 special ones, 29 merges; transformers adds one for Qwen2
BLOCKS = 2
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|{{ message.role }}|>{{ message.content }}{{ eos_token }}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
_GATED: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 20, "intermediate_size": 28, "num_hidden_layers": BLOCKS,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "max_position_embeddings": 128,
    "pad_token_id": 2, "bos_token_id": 0, "eos_token_id": 1,
}  # fmt: skip
_GEMMA: dict[str, Any] = {
    **_GATED, "query_pre_attn_scalar": 6, "sliding_window": 9, "layer_types": ["sliding_attention", "full_attention"],
}  # fmt: skip
# These take the head size from the hidden size, so their attention matrices are square.
_SQUARE: dict[str, Any] = {
    **{key: value for key, value in _GATED.items() if key not in ("head_dim", "num_key_value_heads")},
    "hidden_size": 32,
}
_VISION: dict[str, Any] = {
    "hidden_size": 16, "intermediate_size": 22, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 8,
    "patch_size": 4,
}  # fmt: skip
_CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", _GATED),
    "qwen2": ("Qwen2Config", _GATED),
    "qwen3": ("Qwen3Config", _GATED),
    "gemma3_text": ("Gemma3TextConfig", _GEMMA),
    "gemma3": ("Gemma3Config", {"text_config": _GEMMA, "vision_config": _VISION, "mm_tokens_per_image": 1}),
    "mistral": ("MistralConfig", _GATED),
    "phi": ("PhiConfig", _SQUARE),
    "olmo": ("OlmoConfig", _SQUARE),
    "gpt_neox": ("GPTNeoXConfig", _SQUARE),
}
FAMILIES = tuple(_CONFIGS)
_HEADS: dict[str, Any] = {**_GATED, "hidden_size": 24}  # of families that have no head_dim: heads of 6
_PLAIN = {key: value for key, value in _HEADS.items() if key != "head_dim"}
_ROUTED: dict[str, Any] = {"num_experts": 5, "num_experts_per_tok": 2}
_LOCAL: dict[str, Any] = {"num_local_experts": 5, "num_experts_per_tok": 2}
_EXPERTS: dict[str, tuple[str, dict[str, Any]]] = {
    "mixtral": ("MixtralConfig", {**_GATED, **_LOCAL, "intermediate_size": 14}),
    "qwen3_moe": (  # its first block is dense
        "Qwen3MoeConfig",
        {**_GATED, **_ROUTED, "moe_intermediate_size": 9, "mlp_only_layers": [0]},
    ),
    "qwen2_moe": (
        "Qwen2MoeConfig",
        {**_HEADS, **_ROUTED, "moe_intermediate_size": 9, "shared_expert_intermediate_size": 11},
    ),
    "olmoe": ("OlmoeConfig", {**_PLAIN, **_ROUTED, "intermediate_size": 14}),
    "gpt_oss": (  # biases, [d_in, d_out], gate and up rows in turn
        "GptOssConfig",
        {
            **_GATED, **_LOCAL, "intermediate_size": 14, "sliding_window": 8,
            "layer_types": ["sliding_attention", "full_attention"], "rope_parameters": {"rope_type": "default"},
        },
    ),
    "deepseek_v3": (  # its first block is dense, the second has a shared expert
        "DeepseekV3Config",
        {
            **_PLAIN, "num_key_value_heads": 4, "moe_intermediate_size": 9, "n_routed_experts": 8,
            "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1, "n_shared_experts": 1, "first_k_dense_replace": 1,
            "q_lora_rank": 10, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 6,
        },
    ),
    "granitemoe": ("GraniteMoeConfig", {**_PLAIN, **_LOCAL, "intermediate_size": 14}),
}  # fmt: skip
EXPERT_FAMILIES = tuple(_EXPERTS)
_TOKENS = {key: _GATED[key] for key in ("vocab_size", "pad_token_id", "bos_token_id", "eos_token_id")}
_CONFIGS |= _EXPERTS
_CONFIGS |= {
    "gpt2": (
        "GPT2Config", {**_TOKENS, "n_layer": BLOCKS, "n_embd": 20, "n_inner": 28, "n_head": 4, "n_positions": 128}
    ),
    "mamba": (
        "MambaConfig", {**_TOKENS, "hidden_size": 20, "num_hidden_layers": BLOCKS, "state_size": 3, "time_step_rank": 4}
    ),
    "mamba2": (
        "Mamba2Config",
        {
            **_TOKENS, "hidden_size": 16, "num_hidden_layers": BLOCKS, "state_size": 3, "num_heads": 4, "head_dim": 8,
            "n_groups": 1, "chunk_size": 4,
        },
    ),
    "qwen3_next": (  # linear attention, then attention; experts in both
        "Qwen3NextConfig",
        {
            **_GATED, **_ROUTED, "moe_intermediate_size": 9, "shared_expert_intermediate_size": 11,
            "layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 2,
            "linear_num_value_heads": 4, "linear_key_head_dim": 6, "linear_value_head_dim": 6,
        },
    ),
    "nemotron_h": (  # Mamba, then experts without a gate
        "NemotronHConfig",
        {
            **_PLAIN, "layers_block_type": ["mamba", "moe"], "n_routed_experts": 4, "num_experts_per_tok": 2,
            "moe_intermediate_size": 9, "moe_shared_expert_intermediate_size": 11, "n_group": 1, "topk_group": 1,
            "n_shared_experts": 1, "mamba_num_heads": 4, "mamba_head_dim": 8, "ssm_state_size": 3, "n_groups": 1,
            "chunk_size": 4,
        },
    ),
    "jamba": (  # Mamba, then attention with experts
        "JambaConfig",
        {
            **_PLAIN, **_ROUTED, "intermediate_size": 14, "mamba_d_state": 3, "mamba_dt_rank": 4,
            "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1,
        },
    ),
}  # fmt: skip
_CONFIGS |= {  # families that lxt does not name, with and without the parts of those it does
    "granite": (
        "GraniteConfig",
        {
            **_GATED, "residual_multiplier": 0.4, "embedding_multiplier": 3.0, "logits_scaling": 2.0,
            "attention_multiplier": 0.3,
        },
    ),
    "smollm3": ("SmolLM3Config", {**_GATED, "no_rope_layers": [1, 0]}),
    "exaone4": (  # sliding with rotary positions, then full without
        "Exaone4Config",
        {**_GATED, "sliding_window": 9, "layer_types": ["sliding_attention", "full_attention"]},
    ),
    "olmo2": ("Olmo2Config", _HEADS),
    "gemma": ("GemmaConfig", _GATED),
    "gemma2": ("Gemma2Config", _GEMMA),
    "phi3": ("Phi3Config", _PLAIN),
    "bitnet": ("BitNetConfig", _PLAIN),
}  # fmt: skip
LRP_FAMILIES = ("llama", "qwen2", "qwen3", "gemma3_text")
STRUCTURE_FAMILIES = ("mistral", "granite", "smollm3", "exaone4", "olmo2", "gemma")  # that get lrp's rules by structure


def tiny_config(family: str, **changes: Any) -> Any:
    """The configuration of a tiny model; `changes` replace entries (of the language model)."""
    name, entries = _CONFIGS[family]
    if family == "gemma3":
        entries = {**entries, "text_config": {**entries["text_config"], **changes}}
    else:
        entries = {**entries, **changes}
    return getattr(transformers, name)(**entries)


def tiny_model(family: str, seed: int = 0, **changes: Any) -> Any:
    """A random model in float32 and eval mode; the same seed gives the same weights."""
    config = tiny_config(family, **changes)
    auto = transformers.AutoModelForImageTextToText if family == "gemma3" else transformers.AutoModelForCausalLM
    model = auto.from_config(config).float().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim > 1:
                parameter.copy_(noise * 1.3 / parameter.shape[-1] ** 0.5)
            else:
                parameter.add_(noise * 0.2)
    return model


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE with a few merges, a BOS, and a chat template without a second BOS."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TOKENS,
        special_tokens=["<bos>", "<eos>", "<pad>", "<|user|>", "<|assistant|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    text = "Sorry, that is out. Sure, here it is. No way. Here you are. The cat sat on the mat, then it ran."
    backend.train_from_iterator([text] * 50, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>", model_max_length=128
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def save_tiny(family: str, folder: Path, seed: int = 0, *, max_shard_size: str = "5GB", **changes: Any) -> Path:
    """Write a tiny model and the tokenizer as a Hugging Face checkpoint; returns the folder."""
    tiny_model(family, seed, **changes).save_pretrained(folder, max_shard_size=max_shard_size)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def load_tiny(family: str, folder: Path, seed: int = 0, **changes: Any) -> LoadedModel:
    """Save a tiny model and load it through the engine, in float32 on the CPU."""
    return load_model(str(save_tiny(family, folder, seed, **changes)), dtype="float32", device="cpu")


def text(documents: int = 40, seed: int = 0) -> str:
    """Some text of our own, documents separated by blank lines."""
    words = re.findall(r"\w+", "the a cat dog sat ran here there you it that is on out mat then sorry sure no way")
    generator = torch.Generator().manual_seed(seed)
    lines = []
    for _ in range(documents):
        picks = torch.randint(len(words), (12,), generator=generator).tolist()
        lines.append(" ".join(words[i] for i in picks).capitalize() + ".")
    return "\n\n".join(lines) + "\n"


def in_float64(template: Any, family: str, seed: int = 3) -> Any:
    """`template` around another tiny model in float64; norms of transformers still round to float32 inside."""
    from engine.models.rows_of_modules import row_index

    model = tiny_model(family, seed=seed).double().requires_grad_(False)
    return replace(template, model=model, rows=row_index(model), dtype="float64")
