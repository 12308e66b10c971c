"""Row indexes from a configuration alone are those of the model that transformers builds from it, or there is none."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tiny_models import save_tiny
from transformers import AutoConfig

from engine.cli import main
from engine.models.checkpoints import find_checkpoint
from engine.models.plain_layouts import _EXPECTED, FAMILIES, plain_layout
from engine.models.row_index import RowIndex
from engine.models.rows_of_modules import row_index
from engine.models.skeletons import skeleton

always = partial(settings, derandomize=True, deadline=None, database=None, suppress_health_check=[*HealthCheck])
SHAPES = {  # width, intermediate, blocks, heads, key/value heads, head_dim
    "tiny": (48, 40, 3, 4, 2, 12),
    "odd widths": (30, 7, 1, 3, 1, 20),
    "no heads shared": (64, 96, 2, 8, 8, 8),
    "one block": (16, 1, 1, 1, 1, 2),
}
LLAMA_3 = {
    "factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}  # fmt: skip
# Configurations as their makers published them, with their sizes made small.
PUBLISHED: dict[str, dict[str, Any]] = {
    "Llama 3.2": {
        "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 100,
        "eos_token_id": [101, 108], "head_dim": 16, "hidden_act": "silu", "hidden_size": 64, "initializer_range": 0.02,
        "intermediate_size": 96, "max_position_embeddings": 131072, "mlp_bias": False, "model_type": "llama",
        "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2, "pretraining_tp": 1,
        "rms_norm_eps": 1e-05, "rope_scaling": LLAMA_3, "rope_theta": 500000.0, "tie_word_embeddings": True,
        "torch_dtype": "bfloat16", "transformers_version": "4.45.0.dev0", "use_cache": True, "vocab_size": 128,
    },
    "Mistral": {
        "architectures": ["MistralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
        "hidden_act": "silu", "hidden_size": 64, "initializer_range": 0.02, "intermediate_size": 96,
        "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 8, "num_hidden_layers": 2,
        "num_key_value_heads": 2, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "sliding_window": None,
        "tie_word_embeddings": False, "torch_dtype": "bfloat16", "transformers_version": "4.42.0.dev0",
        "use_cache": True, "vocab_size": 128,
    },
    "Qwen 2.5": {
        "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 100, "eos_token_id": 100,
        "hidden_act": "silu", "hidden_size": 56, "initializer_range": 0.02, "intermediate_size": 96, "use_mrope": False,
        "max_position_embeddings": 32768, "max_window_layers": 24, "model_type": "qwen2", "num_attention_heads": 14,
        "num_hidden_layers": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
        "sliding_window": 32768, "tie_word_embeddings": True, "torch_dtype": "bfloat16", "use_cache": True,
        "transformers_version": "4.40.1", "use_sliding_window": False, "vocab_size": 128,
    },
    "Qwen 3": {
        "architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 100,
        "eos_token_id": 101, "head_dim": 24, "hidden_act": "silu", "hidden_size": 64, "initializer_range": 0.02,
        "intermediate_size": 96, "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
        "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
        "rope_scaling": None, "rope_theta": 1000000, "sliding_window": None, "tie_word_embeddings": True,
        "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": True, "use_sliding_window": False,
        "vocab_size": 128,
    },
    "Gemma 3": {
        "architectures": ["Gemma3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 2,
        "attn_logit_softcapping": None, "cache_implementation": "hybrid", "eos_token_id": [1, 106], "head_dim": 24,
        "final_logit_softcapping": None, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 64,
        "initializer_range": 0.02, "intermediate_size": 96, "max_position_embeddings": 32768, "num_hidden_layers": 2,
        "model_type": "gemma3_text", "num_attention_heads": 4, "num_key_value_heads": 1, "pad_token_id": 0,
        "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000, "rope_scaling": None,
        "rope_theta": 1000000, "sliding_window": 512, "sliding_window_pattern": 6, "torch_dtype": "bfloat16",
        "transformers_version": "4.50.0.dev0", "use_cache": True, "vocab_size": 128,
    },
}  # fmt: skip
PUBLISHED["SmolLM2"] = PUBLISHED["Llama 3.2"] | {
    "_name_or_path": "a/b", "is_llama_config": True, "rope_interleaved": False, "rope_scaling": None, "unk_token_id": 0,
    "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}},
}  # fmt: skip


def built(config: dict[str, Any], folder: Path) -> RowIndex:
    """By the model itself. Errors: InputError where there is none."""
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return row_index(skeleton(find_checkpoint(str(folder))))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_configurations_that_transformers_writes(family: str, shape: str, tmp_path: Path) -> None:
    width, intermediate, blocks, heads, kv_heads, head_dim = SHAPES[shape]
    AutoConfig.for_model(
        family, hidden_size=width, intermediate_size=intermediate, num_hidden_layers=blocks, num_attention_heads=heads,
        num_key_value_heads=kv_heads, head_dim=head_dim, vocab_size=128, pad_token_id=0,
    ).save_pretrained(tmp_path)  # fmt: skip
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    known = plain_layout(config)
    assert known is not None
    assert known == built(config, tmp_path)
    assert known.signature() == built(config, tmp_path).signature()


ANY = st.one_of(
    st.none(), st.booleans(), st.integers(1, 12), st.integers(-3, 200), st.floats(0, 1), st.floats(allow_nan=False),
    st.sampled_from(("silu", "x", "llama", "bfloat16")), st.lists(st.integers(0, 200), max_size=2),
    st.lists(st.sampled_from(("full_attention", "sliding_attention")), min_size=1, max_size=3),
    st.sampled_from(({}, LLAMA_3, {"rope_type": "default"}, {"rope_type": "default", "rope_theta": 1}, {"factor": 2})),
)  # fmt: skip
KEYS = [*_EXPECTED, "is_encoder_decoder", "num_local_experts"]


def changes(key: str) -> st.SearchStrategy[tuple[str, Any]]:
    """An entry: anything, or what another maker wrote there."""
    others = [config[key] for config in PUBLISHED.values() if key in config]
    return st.booleans().flatmap(
        lambda odd: st.tuples(st.just(key), ANY if odd or not others else st.sampled_from(others))
    )


CHANGES = st.lists(st.sampled_from(KEYS).flatmap(changes), min_size=1, max_size=2).map(dict)


@pytest.mark.parametrize("examples", [60, pytest.param(700, marks=pytest.mark.long)])
def test_whatever_a_configuration_says_the_model_agrees(examples: int, tmp_path: Path) -> None:
    """Where there is an index, transformers builds that model."""
    told = []

    @always(max_examples=examples)
    @given(st.sampled_from(sorted(PUBLISHED)), CHANGES)
    def check(name: str, changes: dict[str, Any]) -> None:
        config = {**PUBLISHED[name], **changes}
        known = plain_layout(config)
        if known is not None:
            assert known == built(config, tmp_path)
        told.append(known is not None)

    check()
    assert 0.1 < sum(told) / len(told) < 0.9  # both happen


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "phi3"}, {"rope_interleaved": True}, {"new_in_2027": 1}, {"hidden_act": "wave"},
        {"num_key_value_heads": 3},
        {"head_dim": 15}, {"pad_token_id": 128}, {"is_encoder_decoder": True}, {"hidden_size": 64.0},
        {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, {"layer_types": ["full_attention"]},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_not_expected_is_left_to_transformers(changes: dict[str, Any]) -> None:
    assert plain_layout({**PUBLISHED["Llama 3.2"], **changes}) is None


@pytest.mark.parametrize("json_too", [(), ("--json",)])
@pytest.mark.parametrize("family", FAMILIES)
def test_rows_says_the_same_by_both_ways(family, json_too, tmp_path, capsys, monkeypatch):
    folder = save_tiny(family, tmp_path / "model")
    assert plain_layout(json.loads((folder / "config.json").read_text(encoding="utf-8"))) is not None
    assert main(["rows", str(folder), *json_too]) == 0
    known = capsys.readouterr().out
    monkeypatch.setattr("engine.models.plain_layouts.plain_layout", lambda config: None)
    assert main(["rows", str(folder), *json_too]) == 0
    assert capsys.readouterr().out == known
