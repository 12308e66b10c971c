"""What every pass over the calibration text shares: watching Linears, what they have seen, batching by memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from engine.models.experts import routed
from engine.models.memory import none_without_memory, on_a_card
from engine.models.row_index import RowIndex
from engine.records.errors import InputError
from engine.selectors.base import Objective

# What people are told beside scores of a model with routed experts.
EXPERTS = (
    "scores that read text are, for rows of a routed expert, means over the tokens that the expert sees, and 0 where "
    "it sees none"
)


@dataclass(frozen=True)
class Seen:
    """Of a batch of B * T tokens: every one (tokens None), or the tokens [n] by their numbers in it, each once."""

    positions: tuple[int, int]  # B, T
    tokens: Tensor | None = None

    @property
    def count(self) -> int:
        return self.positions[0] * self.positions[1] if self.tokens is None else len(self.tokens)

    def by_token(self, values: Tensor) -> Tensor:
        """[B, T, d]: some architectures flatten batch and tokens inside a block; 0 at tokens that are not seen."""
        if self.tokens is None:
            return values.view(*self.positions, -1)
        whole = values.new_zeros(self.positions[0] * self.positions[1], values.shape[-1])
        return whole.index_copy(0, self.tokens, values).view(*self.positions, -1)

    def first(self, windows: int, *values: Tensor) -> tuple[Seen, tuple[Tensor, ...]]:
        """Of the first so many windows: which tokens these are, and each of the values at them."""
        if windows == self.positions[0]:
            return self, values
        positions = (windows, self.positions[1])
        if self.tokens is None:
            return Seen(positions), tuple(self.by_token(one)[:windows] for one in values)
        inside = self.tokens < windows * self.positions[1]
        return Seen(positions, self.tokens[inside]), tuple(one[inside] for one in values)

    def predicting(self, values: Tensor, skip_first: int = 0) -> Tensor:
        """Values at the positions that predict a token, all but the last of each window, from position `skip_first` on.
        [B, T - 1 - skip_first, d]; of an expert [m, d] for the m of them that it sees."""
        if self.tokens is None:
            return self.by_token(values)[:, skip_first:-1]
        position = self.tokens % self.positions[1]
        return values[(position >= skip_first) & (position != self.positions[1] - 1)]

    def counting(self, values: Tensor, skip_first: int) -> Tensor:
        """Values [..., d] at the positions of each window from `skip_first` on, the last one too; as given for 0."""
        if skip_first == 0:
            return values
        if self.tokens is None:
            return self.by_token(values)[:, skip_first:]
        return values[self.tokens % self.positions[1] >= skip_first]

    def at(self, values: Tensor, real: Tensor) -> Tensor:
        """Values at the seen tokens that are true in real [B, T]. [m, d]"""
        real = real.to(values.device)
        return self.by_token(values)[real] if self.tokens is None else values[real.flatten()[self.tokens]]


def on_cpu(parts: Sequence[Tensor]) -> Tensor:
    """All in one vector on the CPU, in float64. A card is waited for once, where all of them are on it."""
    together = len({part.device for part in parts}) == 1
    return torch.cat([*parts] if together else [part.cpu() for part in parts]).cpu().double()


def rows_summed(values: Tensor) -> Tensor:
    """Sum over all dimensions but the last. [..., d] -> [d]"""
    return values.sum(tuple(range(values.ndim - 1)))


def counted(counts: Tensor, sizes: list[int]) -> Tensor:
    """One count per layer as one per row, at least 1: an expert that sees no token has sums of 0, and 0 / 1 is 0."""
    return counts.clamp(min=1).repeat_interleave(torch.tensor(sizes), output_size=sum(sizes))


BatchSize = int | Literal["auto"] | None
# Layer index, input [..., d_in], output [..., d_out], which tokens these are.
OnLinear = Callable[[int, Tensor, Tensor, Seen], None]

# Elements of a batch in one forward and backward pass (outputs of all rows and logits, three times each)
# from which "auto" starts. By a card's size, never by the free memory, so that equal runs use equal batches: 82 windows
# of 128 tokens of Llama-3.2-1B on a large card, where a pass took 2.1 to 3.1 bytes per element.
ELEMENT_BUDGET = {"cpu": 64_000_000, "cuda": 16_000_000_000}
CARD_BYTES = 5  # of a card's memory per element


def wide(values: Tensor) -> Tensor:
    """Half-precision values as float32; float32 and float64 as they are."""
    return values if values.dtype in (torch.float32, torch.float64) else values.float()


@contextmanager
def watching(model: nn.Module, rows: RowIndex, positions: tuple[int, int], on_linear: OnLinear) -> Iterator[None]:
    """Calls `on_linear` for every Linear of the row index whenever it runs; no hook outlives the block.

    positions: (batch, tokens) of what the model is given. Some architectures flatten it inside a block, and an expert
    sees the tokens that are routed to it, so `on_linear` views what it gets by `Seen`; a hook on the gradient belongs
    on the output itself, since the graph does not go through the view. The Linears of an expert that no token of the
    batch is routed to do not run.
    Errors: InputError where a Linear sees some tokens and does not say which (lists of experts), and, when the block
    is left in peace, where one that is no expert's has not run."""
    ran: set[int] = set()

    def hook(layer: int, module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        seen = Seen(positions, inputs[1] if routed(module) else None)
        if output.shape[:-1].numel() != seen.count:
            raise InputError(
                f"{rows.layers[layer].name} gave {list(output.shape)} for {positions[0]} windows of {positions[1]} "
                "tokens; expected an output at every token; selectors that need data cannot score such a model, "
                "magnitude and random can"
            )
        if layer in ran:
            raise InputError(
                f"{rows.layers[layer].name} ran twice in one pass, so that it has no one output at a token; "
                "selectors that need data cannot score such a model, magnitude and random can"
            )
        ran.add(layer)
        on_linear(layer, inputs[0], output, seen)

    with ExitStack() as hooks:
        for layer in rows.layers:
            hooks.callback(model.get_submodule(layer.name).register_forward_hook(partial(hook, layer.index)).remove)
        yield
    for layer in rows.layers:
        if layer.index not in ran and not routed(model.get_submodule(layer.name)):
            raise InputError(
                f"{layer.name} did not run as a module of its own, so what it says cannot be seen; selectors that need "
                "data cannot score such a model, magnitude and random can"
            )


def embed(model: nn.Module, input_ids: Tensor) -> Tensor:
    """Input embeddings [B, T, d] as the model itself makes them (Gemma scales them), cut off from the graph."""
    embeddings = cast(Any, model).get_input_embeddings()
    with torch.no_grad():
        values: Tensor = embeddings(input_ids.to(embeddings.weight.device)).detach()
        return values


def objective_gradient(logits: Tensor, input_ids: Tensor, objective: Objective) -> Tensor:
    """dF/dlogits for F summed over all predicted tokens of all windows. loss: F = sum of -log softmax(logits)[next
    token], gradient softmax - onehot. logit: F = sum of logits[next token], gradient onehot.

    logits [B, T, V], input_ids [B, T]; returns [B, T, V] in the logits' dtype, zero at the last position; window by
    window"""
    targets = input_ids.to(logits.device)[:, 1:, None]
    with torch.no_grad():
        gradient = torch.zeros_like(logits)
        for window in range(len(logits)):
            if objective == "logit":
                gradient[window, :-1].scatter_(-1, targets[window], 1.0)
                continue
            probabilities = torch.softmax(wide(logits[window, :-1]), dim=-1)
            minus_one = probabilities.new_full((), -1.0).expand(targets[window].shape)
            gradient[window, :-1] = probabilities.scatter_add_(-1, targets[window], minus_one)
    return gradient


def windows_per_pass(batch_size: BatchSize, model: nn.Module, rows: RowIndex, tokens: int) -> int:
    """Windows of `tokens` tokens in the first batch: as given, or for "auto" what the budget allows."""
    if batch_size is None or batch_size == "auto":
        weight: Tensor = cast(Any, model).get_input_embeddings().weight
        return windows_in_budget("cuda" if weight.is_cuda else "cpu", rows.n_rows, weight.shape[0], tokens)
    if batch_size < 1:
        raise InputError(f"batch size must be at least 1, got {batch_size}; leave it out to choose")
    return int(batch_size)


def windows_in_budget(kind: str, n_rows: int, vocabulary: int, tokens: int) -> int:
    """Windows of `tokens` tokens that the budget of a kind of device allows in one pass, at least one."""
    budget = on_a_card(ELEMENT_BUDGET[kind], CARD_BYTES) if kind == "cuda" else ELEMENT_BUDGET[kind]
    return max(1, budget // (3 * tokens * (n_rows + vocabulary)))


def in_batches(
    work: Callable[[slice], Tensor], total: int, batch_size: int, first: int = 0
) -> Iterator[tuple[slice, Tensor]]:
    """`work` over `total` items in batches; a batch that does not fit in memory is tried again at half the size. `work`
    has to be without effect when it fails. first: number of the first item in what the items were taken from; batches
    end at multiples of their size there. Errors: InputError where a single item does not fit."""
    done = 0
    while done < total:
        piece = slice(done, min(done + batch_size - (first + done) % batch_size, total))
        result = none_without_memory(partial(work, piece))
        if result is None:
            size = piece.stop - piece.start
            if size == 1:
                raise InputError(
                    "out of memory with a single window per batch; use shorter windows, --dtype bfloat16, "
                    "a larger device, or --device-map auto over several"
                )
            batch_size = size // 2
            continue
        yield piece, result
        done = piece.stop


_NEXT_STEP = {"float16": "run again with --dtype bfloat16 or float32", "bfloat16": "run again with --dtype float32"}


def real_tensor(name: str, values: object) -> Tensor:
    """What a selector gave. Errors: InputError unless it is a tensor of real numbers."""
    if not isinstance(values, Tensor) or values.is_complex():
        kind = f"a tensor of {values.dtype}" if isinstance(values, Tensor) else f"a {type(values).__name__}"
        raise InputError(f"selector {name!r} gave {kind}; expected a torch tensor of real numbers, one per row")
    return values


def check_finite(name: str, values: Tensor, rows: RowIndex, dtype: str) -> None:
    """Errors: InputError naming the first layer with NaN or infinite values.
    values [N] or [..., N] on the CPU; name: what made them; dtype: what the model ran in"""
    wrong = ~values.isfinite().reshape(-1, rows.n_rows).all(0)
    if not wrong.any():
        return
    places = rows.layer_of(wrong.nonzero().flatten().numpy())
    first = rows.layers[int(places[0])]
    here = int((places == first.index).sum())
    more = f" and {len(places) - here} in later layers" if len(places) > here else ""
    step = _NEXT_STEP.get(dtype, "check the model's weights for extreme values")
    raise InputError(
        f"{name} produced {here} non-finite scores in block {first.block} {first.projection}{more} ({dtype}); {step}"
    )
