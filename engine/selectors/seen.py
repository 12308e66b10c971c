"""Which tokens of a batch a Linear sees: all of them, or those that are routed to its expert."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

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


def rows_summed(values: Tensor) -> Tensor:
    """Sum over all dimensions but the last. [..., d] -> [d]"""
    return values.sum(tuple(range(values.ndim - 1)))


def counted(counts: Tensor, sizes: list[int]) -> Tensor:
    """One count per layer as one per row, at least 1: an expert that sees no token has sums of 0, and 0 / 1 is 0."""
    return counts.clamp(min=1).repeat_interleave(torch.tensor(sizes), output_size=sum(sizes))
