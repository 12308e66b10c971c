"""Gated MLPs, in which a dead gate or up row kills a neuron; rows that the columns of one other Linear alone read; and
attention heads, whose rows and columns these tell."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from engine.models.experts import Expert
from engine.models.row_index import Layer, RowIndex, Sublayer

GATED = ("gate_proj", "up_proj", "down_proj")


def gated_mlps(model: nn.Module) -> Iterator[tuple[nn.Linear, nn.Linear, nn.Linear]]:
    """Gate, up and down of every module that is these three and an activation that maps 0 to 0, and nothing else: a
    neuron down(act(gate(x)) * up(x)) is then nothing where its gate row or its up row is all zero, bias included."""
    for module in model.modules():
        gate, up, down = (getattr(module, name, None) for name in GATED)
        if not (type(gate) is nn.Linear and type(up) is nn.Linear and type(down) is nn.Linear):
            continue
        more = {name for name, _ in module.named_children()} - {*GATED, "act_fn"}
        if more or [*module.parameters(recurse=False)] or getattr(module, "activation_sparsity", None):
            continue
        activation = getattr(module, "act_fn", None)
        if callable(activation) and _keeps_zero(activation):
            yield gate, up, down


@lru_cache(maxsize=4096)  # asked for every cell
def _keeps_zero(activation: Callable[..., Any]) -> bool:
    return float(activation(torch.zeros(1))) == 0.0


_OUTPUTS = ("o_proj", "out_proj", "dense")  # what families call attention's last Linear
_DOWNS = ("down_proj", "fc2", "dense_4h_to_h", "c_proj")  # and the MLP's
# Beside the Linears of an attention: what acts on queries and keys only, before the softmax.
_BEFORE_SOFTMAX = ("q_norm", "k_norm", "q_layernorm", "k_layernorm")
_ROUTED = "a routed expert's weights are slices of a tensor that all experts share, which is left as it is"


@dataclass(frozen=True, eq=False)
class Link:
    """Rows of one Linear, and the Linear whose columns read them, with nothing in between that is not linear in them.

    rows, columns: module paths of the two. reads: [in_features of the reader] int64, for each column the row it reads.
    """

    rows: str
    columns: str
    reads: Tensor


@dataclass(frozen=True, eq=False)
class Mlp:
    """An MLP by its paths: `inner` Linears, of one size, each of whose rows meets one column of `down`."""

    inner: tuple[str, ...]
    down: str
    neurons: int


# What of a model is such, and in words why the others are not; "" where there are no others.
Links = tuple[tuple[Link, ...], str]


def neuron_links(model: nn.Module, rows: RowIndex) -> Links:
    """Rows of up_proj and columns of down_proj: down(act(gate(x)) * up(x)) is linear in up(x), neuron by neuron.
    Without a gate the activation itself acts on the rows, and GELU or SiLU of 2x is not 2 GELU(x)."""
    paths = {id(model.get_submodule(layer.name)): layer.name for layer in rows.layers}
    links = []
    for _, up, down in gated_mlps(model):
        if id(up) in paths and id(down) in paths and up.out_features == down.in_features:
            links.append(Link(paths[id(up)], paths[id(down)], torch.arange(down.in_features)))
    served = {_parent(link.rows) for link in links}
    without = []
    groups = sublayers(rows, "mlp")
    for parent, layers in groups.items():
        if parent in served:
            continue
        name = type(model.get_submodule(parent)).__name__
        if isinstance(model.get_submodule(parent), Expert):
            without.append(_ROUTED)
        elif set(GATED) <= layers.keys():
            without.append(f"{name} has more between up_proj and down_proj than the product with the gate")
        else:
            without.append(f"{name} ({', '.join(layers)}) has no gate_proj beside up_proj and down_proj")
    return tuple(links), _told(without, len(groups), "MLPs")


def value_links(model: nn.Module, rows: RowIndex) -> Links:
    """Rows of v_proj and columns of o_proj: attention mixes positions, never the dimensions of a head. Query head h
    reads key-value head h // groups, so that each value row meets one column in every query head of its group."""
    links, without = [], []
    groups = sublayers(rows, "attention")
    for parent, layers in groups.items():
        module = model.get_submodule(parent)
        link = _value_link(module, layers)
        if isinstance(link, str):
            without.append(f"{type(module).__name__} {link}")
        else:
            links.append(link)
    return tuple(links), _told(without, len(groups), "attentions")


def mlps(model: nn.Module, rows: RowIndex) -> tuple[tuple[Mlp, ...], str]:
    """MLPs that are inner Linears, something element by element, and a Linear that reads it; why others are not."""
    found, without = [], []
    groups = {parent: layers for parent, layers in sublayers(rows, "mlp").items() if len(layers) > 1}
    for parent, layers in groups.items():
        if isinstance(model.get_submodule(parent), Expert):
            without.append(_ROUTED)
            continue
        down = next((layers[name] for name in _DOWNS if name in layers), None)
        inner = [layer for layer in layers.values() if layer is not down]
        size = _linear(model, down.name).in_features if down else 0
        if down is None or any(layer.rows != size for layer in inner):
            name = type(model.get_submodule(parent)).__name__
            without.append(f"{name} ({', '.join(layers)}) has no Linear whose inputs are the outputs of the others")
        else:
            found.append(Mlp(tuple(layer.name for layer in inner), down.name, size))
    return tuple(found), _told(without, len(groups), "MLPs")


def _value_link(module: nn.Module, layers: dict[str, Layer]) -> Link | str:
    """The link of one attention; a text that says why there is none."""
    output = next((layers[name] for name in _OUTPUTS if name in layers), None)
    if "v_proj" not in layers or output is None:
        return f"has no v_proj and o_proj of its own ({', '.join(layers)})"
    known = {*layers, *_BEFORE_SOFTMAX}
    for name, child in module.named_children():
        if name not in known and any(True for _ in child.parameters()):
            return f"has {name}, which may stand between v_proj and o_proj"
    size, values = getattr(module, "head_dim", None), layers["v_proj"].rows
    columns = _linear(module, output.name.rpartition(".")[2]).in_features
    if not isinstance(size, int) or values % size or columns % values:
        return f"has {values} value rows and {columns} columns that read them, which are no heads of {size}"
    heads = torch.arange(values).view(values // size, 1, size)
    reads = heads.expand(-1, columns // values, -1).reshape(-1)  # each head's dimensions once per query head
    return Link(layers["v_proj"].name, output.name, reads)


def _linear(model: nn.Module, path: str) -> nn.Linear:
    linear = model.get_submodule(path)
    assert isinstance(linear, nn.Linear)
    return linear


def sublayers(rows: RowIndex, sublayer: Sublayer) -> dict[str, dict[str, Layer]]:
    """Path of each attention or MLP -> its Linears by their own names."""
    linked: dict[str, dict[str, Layer]] = {}
    for layer in rows.layers:
        if layer.sublayer == sublayer:
            linked.setdefault(_parent(layer.name), {})[layer.name.rpartition(".")[2]] = layer
    return linked


def _parent(path: str) -> str:
    return path.rpartition(".")[0]


def _told(reasons: Iterable[str], total: int, what: str) -> str:
    """Equal reasons once: `2 of 24 MLPs: why`."""
    return "; ".join(f"{count} of {total} {what}: {why}" for why, count in Counter(reasons).items())


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


def attentions(model: nn.Module, rows: RowIndex) -> tuple[tuple[Attention, ...], str]:
    """Every attention with q_proj, k_proj, v_proj and a last Linear that reads the heads' values and nothing else; why
    others are none."""
    links, why = value_links(model, rows)
    groups = sublayers(rows, "attention")
    found, without = [], [why] if why else []
    for link in links:
        parent = _parent(link.rows)
        layers, size = groups[parent], model.get_submodule(parent).head_dim
        assert isinstance(size, int)  # as `value_links` has found it
        output = next(layer for layer in layers.values() if layer.name == link.columns)
        q, k, v = (layers.get(name) for name in ("q_proj", "k_proj", "v_proj"))
        if q is None or k is None or v is None or q.rows != len(link.reads) or k.rows != v.rows:
            name = type(model.get_submodule(parent)).__name__
            without.append(f"{name} has no q_proj and k_proj of one row per head dimension")
            continue
        found.append(Attention(q, k, v, output, q.rows // size, size))
    return tuple(found), "; ".join(dict.fromkeys(without))
