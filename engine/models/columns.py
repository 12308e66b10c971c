"""The column index: inputs of Linears that neurons and heads are made of, numbered as rows are."""

from dataclasses import replace
from itertools import chain

from engine.models.experts import gated_experts
from engine.models.gated_mlps import gated_mlps
from engine.models.links import attentions
from engine.models.loading import LoadedModel
from engine.models.row_index import Layer, RowIndex


def column_index(loaded: LoadedModel) -> RowIndex:
    """Inputs of down_proj of gated MLPs and experts, one per neuron, and of attention's last Linear, a slice per head.

    A `RowIndex` whose layers have the side `input`: column j of such a Linear has the id start + j, and `rows` is how
    many there are. In the order of the row index. No layers where the model has neither.
    """
    model, rows = loaded.model, loaded.rows
    readers = {id(down) for _, _, down in chain(gated_mlps(model), gated_experts(model))}
    readers |= {id(model.get_submodule(one.output.name)) for one in attentions(model, rows).attentions}
    found: list[Layer] = []
    start = 0
    for layer in rows.layers:
        linear = model.get_submodule(layer.name)
        if id(linear) in readers:
            found.append(replace(layer, index=len(found), start=start, rows=linear.in_features, side="input"))
            start += linear.in_features
    return RowIndex(tuple(found))
