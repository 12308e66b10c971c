"""Scores under the names of other tools, as scores of rows. No torch.

Which rows a name stands for is a **choice**; B is a block, H a query head:

| TransformerLens' activations | rows |
|---|---|
| blocks.B.attn.hook_q, hook_k, hook_v: [heads, size] or [rows] | of q_proj, k_proj, v_proj (c_attn: all three) |
| blocks.B.hook_attn_out, blocks.B.hook_mlp_out | of o_proj, of down_proj: what both add to the stream |
| blocks.B.mlp.hook_pre, hook_pre_linear | of gate_proj (c_fc), of up_proj |
| blocks.B.mlp.hook_post | of both: a neuron is dead without its gate row, and without its up row |

| CircuitKIT's nodes (`node_scores` of a `*_scores.json`) | rows |
|---|---|
| `AB.H`, a head | H's rows of q_proj, those of k_proj and v_proj that H reads, every row of o_proj |
| `MLP B` | every row of the MLP |

A row that serves several heads has the largest of their scores. Read of CircuitKIT: docs/advanced/circuit-artifacts.md
and src/circuitkit/artifacts/scores.py, version 1.0. Its scores of neurons come in a pickle, which is not read."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.models.row_index import Layer, RowIndex
from engine.records.bounds import BadFile
from engine.records.errors import InputError

Array = npt.NDArray[np.float32]
HOOK = re.compile(r"blocks\.\d+\.(?:(?:attn|mlp)\.)?hook_\w+")
_NODE = re.compile(r"A\d+\.\d+|MLP \d+")
_HOOKS = {  # sublayer and projection -> the hooks whose values follow each other; the first choice that is there
    "attention q_proj": ("attn.hook_q",), "attention k_proj": ("attn.hook_k",), "attention v_proj": ("attn.hook_v",),
    "attention c_attn": ("attn.hook_q attn.hook_k attn.hook_v",), "attention o_proj": ("hook_attn_out",),
    "attention c_proj": ("hook_attn_out",), "mlp gate_proj": ("mlp.hook_pre", "mlp.hook_post"),
    "mlp up_proj": ("mlp.hook_pre_linear", "mlp.hook_post"), "mlp c_fc": ("mlp.hook_pre", "mlp.hook_post"),
    "mlp down_proj": ("hook_mlp_out",), "mlp c_proj": ("hook_mlp_out",),
}  # fmt: skip


def nodes_of(record: Any) -> dict[str, Array]:
    """The scores of a `*_scores.json` by node, each an array of no dimension. Errors: BadFile."""
    scores = record.get("node_scores") if isinstance(record, dict) else None
    if not isinstance(scores, dict) or not scores:
        raise BadFile("it has no node_scores, as CircuitKIT writes them")
    if wrong := next((name for name, one in scores.items() if type(one) not in (int, float)), None):
        raise BadFile(f"the score of {wrong[:80]!r} is no number")
    return {name: np.array(one, dtype=np.float32) for name, one in scores.items()}


def are_other(names: Mapping[str, Any]) -> bool:
    """Are these names of another tool's, all or some?"""
    return any(HOOK.fullmatch(name) or not values.ndim for name, values in names.items())


def by_module(values: Mapping[str, Array], rows: RowIndex, file: str) -> dict[str, Array]:
    """Module -> scores [rows]. Errors: InputError where a Linear has none, or a name stands for no row of the model."""
    of = _of_nodes if all(not one.ndim for one in values.values()) else _of_hooks
    scores, used = dict[str, Array](), set[str]()
    for block in {name.rpartition(".attn.")[0] for name in values if ".attn.hook_" in name}:
        heads = [values[name].shape for name in (f"{block}.attn.hook_{part}" for part in "qkv") if name in values]
        if len(sizes := {shape[-1] for shape in heads if len(shape) == 2}) > 1:
            raise InputError(f"{file}: heads of {block} have sizes {sorted(sizes)}; give [heads, size] for q, k and v")
    for layer in rows.layers:
        names, scores[layer.name] = of(values, rows, layer, file)
        used |= names
        if scores[layer.name].shape != (layer.rows,):
            raise InputError(
                f"{file}: {', '.join(sorted(names))} has {scores[layer.name].size:,} values, the model's {layer.name} "
                f"has {layer.rows:,} rows; they are scores of another model"
            )
    if surplus := sorted(values.keys() - used):
        raise InputError(
            f"{file} has {len(surplus):,} names that are no rows here, or rows that others of its names are already "
            f"({surplus[0][:80]!r}, …); leave them out"
        )
    return scores


def _of_hooks(values: Mapping[str, Array], rows: RowIndex, layer: Layer, file: str) -> tuple[set[str], Array]:
    choices = [
        [f"blocks.{layer.block}.{hook}" for hook in hooks.split()]
        for hooks in _HOOKS.get(f"{layer.sublayer} {layer.projection}", ())
    ]
    names = next((names for names in choices if values.keys() >= set(names)), None)
    if names is None:
        wanted = " or ".join(", ".join(choice) for choice in choices)
        raise InputError(f"{file} has no scores of {layer.name}; " + (f"give {wanted}" if wanted else _by_name(layer)))
    return set(names), np.concatenate([values[name].ravel() for name in names])


def _of_nodes(values: Mapping[str, Array], rows: RowIndex, layer: Layer, file: str) -> tuple[set[str], Array]:
    if layer.sublayer == "mlp":
        return _scores_of(values, [f"MLP {layer.block}"], layer, file)
    heads = sum(re.fullmatch(rf"A{layer.block}\.\d+", name) is not None for name in values)
    names, scores = _scores_of(values, [f"A{layer.block}.{head}" for head in range(max(heads, 1))], layer, file)
    queries = next((one.rows for one in rows.layers if (one.block, one.projection) == (layer.block, "q_proj")), None)
    if layer.projection in ("o_proj", "c_proj"):
        return names, np.full(layer.rows, scores.max())
    if layer.projection == "c_attn":
        return names, np.tile(np.repeat(scores, layer.rows // 3 // heads), 3)
    if layer.projection not in ("q_proj", "k_proj", "v_proj") or queries is None:
        raise InputError(f"{file}: which rows of {layer.name} are whose heads is not known; {_by_name(layer)}")
    shared = layer.rows * heads // queries  # heads of this projection
    if queries % heads or heads % max(shared, 1) or shared * queries != layer.rows * heads:
        raise InputError(
            f"{file} has {heads} heads in block {layer.block}, among which {layer.rows} rows of {layer.name} cannot be "
            "shared; they are scores of another model"
        )
    return names, np.repeat(scores.reshape(shared, -1).max(1), queries // heads)


def _scores_of(values: Mapping[str, Array], names: list[str], layer: Layer, file: str) -> tuple[set[str], Array]:
    if missing := [name for name in names if name not in values or not _NODE.fullmatch(name)]:
        raise InputError(
            f"{file} has no score of {missing[0]}, a node of {layer.name}; give every head and MLP of the model"
        )
    scores = np.array([values[name] for name in names], dtype=np.float32)
    return set(names), np.full(layer.rows, scores[0]) if layer.sublayer == "mlp" else scores


def _by_name(layer: Layer) -> str:
    return f"give a tensor [{layer.rows}] under the name of every Linear"
