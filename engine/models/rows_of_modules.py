"""A model's modules to its row index, by names and shapes alone; and what else a decoder block has, left as it is."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from engine.models.experts import fused, show_conv1d, show_experts
from engine.models.row_index import PROJECTIONS, Layer, RowIndex, Sublayer
from engine.records.errors import InputError

MOST_ROWS = 2**31  # of a model; the largest of 2025 have some 3e8


def row_index(model: nn.Module) -> RowIndex:
    """The row index of a decoder-only Hugging Face model whose blocks hold their weights in `nn.Linear`s.

    Works from module names and shapes alone. A Linear is `attention` if its path inside the block says so (self_attn,
    attn, …) and `mlp` otherwise. Where two Linears of a block share a name (experts), the projection is their path
    inside the block. Fused experts and GPT-2's Conv1D are shown as Linears first (`experts`, `transposed`). What
    `left_alone` names has no rows.

    Errors: an encoder-decoder, no list of blocks, a weight matrix that is none of these, quantized weights, two Linears
    that share a weight (Zamba2's blocks), whose rows would count twice."""
    prefix, blocks = _blocks(model)
    for block in blocks:
        show_experts(block)
        show_conv1d(block)
    layers: list[Layer] = []
    owners: dict[int, str] = {}  # of each weight the Linear that has it
    start = 0
    for number, block in enumerate(blocks):
        linears = list(_linears(block, f"{prefix}.{number}"))
        names = Counter(path.rpartition(".")[2] for path, _ in linears)
        named = [
            (name if names[name := path.rpartition(".")[2]] == 1 else path, path, linear) for path, linear in linears
        ]
        # Python's sort is stable: equal ranks, the names outside PROJECTIONS, stay in module order.
        places = {projection: place for place, projection in enumerate(PROJECTIONS)}
        named.sort(key=lambda entry: places.get(entry[0].rpartition(".")[2], len(places)))
        for projection, path, linear in named:
            name = f"{prefix}.{number}.{path}"
            _check_own(linear, name, owners)
            if not linear.out_features or not linear.in_features:
                raise InputError(
                    f"{name} has {linear.out_features} rows of {linear.in_features} weights; "
                    "expected at least one of each, correct config.json or copy the checkpoint again"
                )
            sublayer: Sublayer = "attention" if "attn" in path or "attention" in path else "mlp"
            layers.append(Layer(len(layers), name, number, sublayer, projection, start, linear.out_features))
            start += linear.out_features
    if not layers:
        raise InputError(
            f"{type(model).__name__}: its decoder blocks ({type(blocks[0]).__name__}) hold no nn.Linear, "
            "so there are no rows to score; give a model such as Llama, Qwen, Gemma or Mistral"
        )
    if start > MOST_ROWS:
        raise InputError(
            f"{type(model).__name__} has {start:,} rows by its config.json; expected at most {MOST_ROWS:,}, correct it "
            "or copy the checkpoint again"
        )
    return RowIndex(tuple(layers))


def decoder(model: nn.Module) -> nn.Module:
    """The module that holds the list of decoder blocks: of a multimodal model, its language model."""
    prefix, _ = _blocks(model)
    return model.get_submodule(prefix.rpartition(".")[0])


def decoder_blocks(model: nn.Module) -> nn.ModuleList:
    """The decoder blocks in order. The output of each (or its first part, where it gives several) is [B, T, d]."""
    return _blocks(model)[1]


def _blocks(model: nn.Module) -> tuple[str, nn.ModuleList]:
    """Path and list of the decoder blocks: the `ModuleList` nearest above the token embeddings.
    The embeddings tell the language model apart from a vision or audio tower without naming any family."""
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        raise InputError(f"{type(model).__name__} is an encoder-decoder; expected a decoder-only language model")
    embeddings = getattr(model, "get_input_embeddings", lambda: None)()
    path = next((name for name, module in model.named_modules() if module is embeddings), None)
    while path:
        path = path.rpartition(".")[0]
        parent = model.get_submodule(path)
        lists = [(name, child) for name, child in parent.named_children() if isinstance(child, nn.ModuleList)]
        if lists:
            # Some decoders keep short lists of helpers beside their blocks; the blocks are the longest list.
            name, blocks = max(lists, key=lambda entry: len(entry[1]))
            if len(blocks):
                return (f"{path}.{name}" if path else name), blocks
    raise InputError(
        f"{type(model).__name__} has no list of decoder blocks beside its token embeddings; "
        "expected a decoder-only language model such as Llama, Qwen, Gemma or Mistral"
    )


def _linears(block: nn.Module, where: str) -> Iterator[tuple[str, nn.Linear]]:
    """The Linears of a block with their paths inside it; an error for weights that are no rows of a Linear."""
    others = left_alone(block)
    for path, module in block.named_modules():
        if path in others or any(path.startswith(f"{other}.") for other in others):
            continue
        if isinstance(module, nn.Linear):
            weight: Tensor = module.weight
            if not weight.is_floating_point() or weight.shape != (module.out_features, module.in_features):
                raise InputError(
                    f"{where}.{path} ({type(module).__name__}) holds quantized weights ({weight.dtype}), whose rows "
                    "cannot be scored or removed exactly; load the unquantized checkpoint"
                )
            yield path, module
        elif not isinstance(module, nn.Embedding) and not fused(module):
            for name, parameter in module.named_parameters(recurse=False):
                if sum(size > 1 for size in parameter.shape) > 1 and name not in STATE_SPACE:
                    raise InputError(
                        f"{where}.{path} ({type(module).__name__}) holds its weights {name} {list(parameter.shape)} "
                        "in a layout whose rows are not known, so they cannot be scored or removed; expected a model "
                        "such as Llama, Qwen, Gemma, Mistral, Phi, OLMo, GPT-NeoX, GPT-2, Mixtral or Qwen-MoE"
                    )


def _check_own(linear: nn.Linear, name: str, owners: dict[int, str]) -> None:
    for parameter in linear.parameters(recurse=False):
        other = owners.setdefault(id(parameter), name)
        if other != name:
            raise InputError(
                f"{name} and {other} share their weights, so that a row of one is a row of the other and a rate would "
                "count it twice; expected a model whose blocks have weights of their own"
            )


STATE_SPACE = ("A_log",)  # parameters of a Mamba layer that decide how its state fades
_ROUTER_CLASS = re.compile(r"(Router|Gate|Gating)$")
_ROUTER_NAMES = ("gate", "router", "shared_expert_gate")


def left_alone(block: nn.Module) -> dict[str, str]:
    """Path inside the block of each module that holds weights but no rows -> what it is.

    router: says which experts see a token, or how much one counts; a zero row there sends tokens elsewhere and removes
    no neuron. convolution: mixes positions. time step: Mamba's dt_proj, whose weight transformers reads without
    calling the Linear. Modules inside these are not named again."""
    names: dict[str, str] = {}
    for path, module in block.named_modules():
        if path and not any(path.startswith(f"{outer}.") for outer in names):
            kind = _kind(module, path.rpartition(".")[2], block.get_submodule(path.rpartition(".")[0]))
            if kind:
                names[path] = kind
    return names


def kept(blocks: Iterable[nn.Module]) -> str:
    """In words, over all blocks: `2 routers, 4 convolutions`; "" where there are none."""
    counts: Counter[str] = Counter()
    for block in blocks:
        counts.update(left_alone(block).values())
        names = [name.rpartition(".")[2] for name, _ in block.named_parameters()]
        counts["state-space parameter"] += sum(name in STATE_SPACE for name in names)
    return ", ".join(f"{count} {what}{'s' if count > 1 else ''}" for what, count in counts.items() if count)


def _kind(module: nn.Module, name: str, parent: nn.Module) -> str:
    if isinstance(module, _ConvNd):
        return "convolution"
    routed = isinstance(getattr(parent, "experts", None), nn.Module)
    if _ROUTER_CLASS.search(type(module).__name__) or (routed and name in _ROUTER_NAMES):
        return "router"
    if name == "dt_proj" and hasattr(parent, "A_log"):
        return "time step"
    return ""
