"""The row index: the contract's order, the public models' sizes, and models that have none."""

from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
import transformers
from tiny_models import BLOCKS, FAMILIES, tiny_config
from torch import nn

from engine.models.row_index import PROJECTIONS
from engine.models.rows_of_modules import decoder, row_index
from engine.records.errors import InputError


def skeleton(config: Any) -> Any:
    auto = transformers.AutoModelForCausalLM
    with torch.device("meta"):
        return auto.from_config(config)


def gated(config_class: str, hidden: int, ffn: int, blocks: int, heads: int, kv_heads: int, head_dim: int) -> Any:
    return getattr(transformers, config_class)(
        hidden_size=hidden, intermediate_size=ffn, num_hidden_layers=blocks, num_attention_heads=heads,
        num_key_value_heads=kv_heads, head_dim=head_dim,
        vocab_size=1024,  # embeddings and head have no rows in the index
    )  # fmt: skip


GEMMA_3_12B = (3840, 15360, 48, 16, 8, 256)
PUBLIC = {
    "Llama-3.2-1B": (("LlamaConfig", 2048, 8192, 16, 32, 8, 64), 376_832),
    "Llama-3.2-3B": (("LlamaConfig", 3072, 8192, 28, 24, 8, 128), 774_144),
    "Llama-3.1-8B": (("LlamaConfig", 4096, 14336, 32, 32, 8, 128), 1_376_256),
    "Qwen3-8B": (("Qwen3Config", 4096, 12288, 36, 32, 8, 128), 1_400_832),
    "Gemma-3-12B text": (("Gemma3TextConfig", *GEMMA_3_12B), 2_236_416),
}


@pytest.mark.parametrize("name", PUBLIC)
def test_public_configurations(name: str) -> None:
    shape, n_rows = PUBLIC[name]
    index = row_index(skeleton(gated(*shape)))
    assert index.n_rows == n_rows
    assert index.n_blocks == shape[3]
    assert len(index.layers) == 7 * shape[3]


def test_multimodal_gemma_counts_its_language_model_only() -> None:
    config = transformers.Gemma3Config(
        text_config=gated("Gemma3TextConfig", *GEMMA_3_12B).to_dict(),
        vision_config={
            "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16,
        },
    )  # fmt: skip
    model = skeleton(config)
    index = row_index(model)
    assert index.n_rows == 2_236_416
    assert len(index.layers) == 336
    assert all("vision" not in layer.name for layer in index.layers)
    assert decoder(model) is model.get_submodule("model.language_model")
    vision = sum(m.out_features for n, m in model.named_modules() if "vision_tower" in n and isinstance(m, nn.Linear))
    assert vision >= 271_728  # the tower is there, and left out


def test_order_of_a_block() -> None:
    index = row_index(skeleton(tiny_config("llama")))
    expected = [
        (b, s, p) for b in range(BLOCKS) for s, p in zip(["attention"] * 4 + ["mlp"] * 3, PROJECTIONS, strict=True)
    ]
    assert [(x.block, x.sublayer, x.projection) for x in index.layers] == expected
    assert [x.rows for x in index.layers[:7]] == [24, 12, 12, 20, 28, 28, 20]
    assert [x.index for x in index.layers] == list(range(7 * BLOCKS))


OTHER_FAMILIES = {
    "phi": {"attention": ["q_proj", "k_proj", "v_proj", "dense"], "mlp": ["fc1", "fc2"]},
    "gpt_neox": {"attention": ["query_key_value", "dense"], "mlp": ["dense_h_to_4h", "dense_4h_to_h"]},
}


@pytest.mark.parametrize("family", OTHER_FAMILIES)
def test_other_names_keep_the_order_of_their_modules(family: str) -> None:
    index = row_index(skeleton(tiny_config(family)))
    expected = [(sublayer, name) for sublayer, names in OTHER_FAMILIES[family].items() for name in names]
    assert [(x.sublayer, x.projection) for x in index.layers] == expected * BLOCKS


@pytest.mark.parametrize("family", FAMILIES)
def test_every_linear_of_the_language_model_once(family: str) -> None:
    """Against a walk that knows nothing of the index: all Linears but the head and the vision side."""
    model = skeleton(tiny_config(family))
    outside = ("vision_tower", "multi_modal_projector", "lm_head", "embed_out")
    expected = {
        name: module.out_features
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and not any(part in name for part in outside)
    }
    index = row_index(model)
    assert {layer.name: layer.rows for layer in index.layers} == expected
    assert index.n_blocks == BLOCKS
    assert [layer.start for layer in index.layers] == np.cumsum([0, *(x.rows for x in index.layers)])[:-1].tolist()


def test_frame_is_the_contracts_table() -> None:
    index = row_index(skeleton(tiny_config("qwen3")))
    frame = index.frame()
    assert frame.columns == ["row_id", "block", "sublayer", "projection", "row"]
    assert frame["row_id"].to_list() == list(range(index.n_rows))
    walked = [(x.block, x.sublayer, x.projection, row) for x in index.layers for row in range(x.rows)]
    assert frame.drop("row_id").rows() == walked
    assert frame.select("block", "projection", "row").is_unique().all()
    assert frame.schema == pl.Schema(
        {"row_id": pl.Int64, "block": pl.Int32, "sublayer": pl.String, "projection": pl.String, "row": pl.Int32}
    )


def test_layer_of_inverts_the_starts() -> None:
    index = row_index(skeleton(tiny_config("llama")))
    walked = [layer.index for layer in index.layers for _ in range(layer.rows)]
    assert index.layer_of(range(index.n_rows)).tolist() == walked
    assert index.layer_of([[0, 24], [35, 36]]).tolist() == [[0, 1], [1, 2]]
    assert index.layer_of([]).tolist() == []
    with pytest.raises(InputError, match=r"row id 288 is outside this model's rows 0\.\.287"):
        index.layer_of([3, 288])
    with pytest.raises(InputError, match=r"row id -1 is outside"):
        index.layer_of([-1, 3])


def test_signature_says_whether_masks_carry_over() -> None:
    def signature(family: str = "llama", **changes: Any) -> str:
        return row_index(skeleton(tiny_config(family, **changes))).signature()

    assert signature() == signature(rope_theta=5.0)
    others = {
        signature(intermediate_size=29), signature(num_hidden_layers=3), signature(head_dim=8),
        signature(num_key_value_heads=1), signature("phi"), signature("gpt_neox"),
    }  # fmt: skip
    assert len(others | {signature()}) == 7


class Gated(nn.Module):
    def __init__(self, **linears: tuple[int, int]) -> None:
        super().__init__()
        for name, (d_in, d_out) in linears.items():
            self.add_module(name, nn.Linear(d_in, d_out))


class Toy(nn.Module):
    """The skeleton of a decoder: embeddings beside a list of blocks, and a shorter list of helpers."""

    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.helpers = nn.ModuleList()
        self.blocks = nn.ModuleList(blocks)

    def get_input_embeddings(self) -> nn.Module:
        return self.embed


def test_experts_that_are_linears_are_told_apart_by_their_path() -> None:
    experts = nn.ModuleList([Gated(up_proj=(4, 6)), Gated(up_proj=(4, 6))])
    block = Gated(q_proj=(4, 7))
    block.add_module("mlp", nn.ModuleDict({"experts": experts, "gate": nn.Linear(4, 2)}))
    index = row_index(Toy(block))
    names = ["q_proj", "mlp.experts.0.up_proj", "mlp.experts.1.up_proj"]  # their gate is a router
    assert [layer.projection for layer in index.layers] == names
    assert index.frame().select("block", "projection", "row").is_unique().all()


def test_weights_in_an_unknown_layout_are_an_error() -> None:
    with pytest.raises(InputError) as error:
        row_index(skeleton(transformers.Llama4TextConfig(num_hidden_layers=1, hidden_size=8)))
    assert ".layers.0.feed_forward.experts (Llama4TextExperts) holds its weights gate_up_proj [16, 8, " in str(
        error.value
    )
    assert "in a layout whose rows are not known" in str(error.value)
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match=r"\(JetMoeParallelExperts\) holds its weights weight \[8, "):
        row_index(skeleton(transformers.JetMoeConfig(num_hidden_layers=1, hidden_size=8, num_key_value_heads=2)))


def test_weights_that_blocks_share_are_an_error() -> None:
    first, second = Gated(q_proj=(4, 7)), Gated(q_proj=(4, 7))
    second.q_proj.weight = first.q_proj.weight
    with pytest.raises(InputError, match=r"blocks\.1\.q_proj and blocks\.0\.q_proj share their weights"):
        row_index(Toy(first, second))


def test_models_without_decoder_blocks_are_an_error() -> None:
    encoder = transformers.BertConfig(num_hidden_layers=1, is_decoder=True)
    with pytest.raises(InputError, match="BertLMHeadModel has no list of decoder blocks beside its token embeddings"):
        row_index(skeleton(encoder))
    with torch.device("meta"):
        t5 = transformers.AutoModelForSeq2SeqLM.from_config(transformers.T5Config(num_layers=1))
    with pytest.raises(InputError, match="T5ForConditionalGeneration is an encoder-decoder; expected a decoder-only"):
        row_index(t5)
    with pytest.raises(InputError, match="Linear has no list of decoder blocks"):
        row_index(nn.Linear(2, 3))
    with pytest.raises(InputError, match=r"Toy: its decoder blocks \(LayerNorm\) hold no nn.Linear"):
        row_index(Toy(nn.LayerNorm(4)))


def test_quantized_weights_are_an_error() -> None:
    block = Gated(q_proj=(4, 7))
    block.q_proj.weight = nn.Parameter(torch.zeros(7, 4, dtype=torch.int8), requires_grad=False)
    with pytest.raises(InputError, match=r"blocks\.0\.q_proj \(Linear\) holds quantized weights \(torch\.int8\)"):
        row_index(Toy(block))
