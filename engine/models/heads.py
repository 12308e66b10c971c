"""Attention heads: which rows and which columns make one, where several query heads share keys and values too."""

from dataclasses import dataclass

from torch import nn

from engine.models.links import sublayers, value_links
from engine.models.row_index import Layer, RowIndex


@dataclass(frozen=True)
class Attention:
    """One attention whose heads are slices of its last Linear's input.
    Head h: rows h * size .. of q, columns h * size .. of output, and the rows of k and v of head h // group."""

    q: Layer
    k: Layer
    v: Layer
    output: Layer
    heads: int
    size: int

    @property
    def group(self) -> int:
        """Query heads that share one head of keys and values: 1 without grouped-query attention."""
        return self.q.rows // self.v.rows


@dataclass(frozen=True)
class FoundAttentions:
    """The attentions of a model whose heads are known, and in words why the others' are not; "" where all are."""

    attentions: tuple[Attention, ...]
    without: str


def attentions(model: nn.Module, rows: RowIndex) -> FoundAttentions:
    """Every attention with q_proj, k_proj, v_proj and a last Linear that reads the heads' values and nothing else."""
    links = value_links(model, rows)
    groups = sublayers(rows, "attention")
    found, without = [], [links.without] if links.without else []
    for link in links.links:
        parent = link.rows.rpartition(".")[0]
        layers, size = groups[parent], model.get_submodule(parent).head_dim
        assert isinstance(size, int)  # as `value_links` has found it
        output = next(layer for layer in layers.values() if layer.name == link.columns)
        q, k, v = (layers.get(name) for name in ("q_proj", "k_proj", "v_proj"))
        if q is None or k is None or v is None or q.rows != len(link.reads) or k.rows != v.rows:
            name = type(model.get_submodule(parent)).__name__
            without.append(f"{name} has no q_proj and k_proj of one row per head dimension")
            continue
        found.append(Attention(q, k, v, output, q.rows // size, size))
    return FoundAttentions(tuple(found), "; ".join(dict.fromkeys(without)))
