"""Rewrites of a loaded model's weights that leave what it computes, scoped and undone bit for bit.

Multiplying by a power of two is exact in binary floating point within the range of the format. Decoys are neurons of
huge weights and outputs that nothing reads: each chosen MLP is widened while the block lasts, by rows behind those of
its inner Linears and columns of zeros behind those of down_proj; a row that was there keeps its number within its
Linear, and the row index is made anew. Whether no bit of any logit changed is not argued but compared
(`engine.measures.logit_bits`).

A rewrite is of one model, ready to be installed. `units`: neurons, value dimensions, norm weights or decoys that it
touches. `left_out`: in words, what it leaves as it is because nothing else would be exact; "" for none. `record()`: all
of it that can change a score, for keys. `install` changes the model, each step's way back in `undo` before it is made,
and returns it as it is then."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.interventions.rewrite_names import DECOYS, NEURONS, NORMS, NORMS_WHOLE, REWRITES, VALUES
from engine.interventions.uninterrupted import Undone
from engine.models.links import Link, Links, Mlp, mlps, neuron_links, value_links
from engine.models.loading import LoadedModel
from engine.models.norms import NormReaders, norm_readers
from engine.models.row_index import RowIndex
from engine.models.rows_of_modules import row_index
from engine.records.errors import InputError, memory_needed
from engine.records.hashing import Json, cache_key

VERSION = 1  # part of cache keys: raise it when a rewrite makes other weights than before
_Integers = npt.NDArray[np.int64]


class NoRewriteError(InputError):
    """This architecture has no place for the rewrite; the text says why."""


@contextmanager
def rewritten(loaded: LoadedModel, rewrite: Rewrite) -> Iterator[LoadedModel]:
    """Inside: the model with rewritten weights, under hashes of its own, so that no cached number is mixed up. Outside:
    the very parameters of before, also after an exception, a KeyboardInterrupt or a cancelled run.

    The model's lock is held throughout. Rows may be zeroed inside (`zeroed`), and selectors run. Memory: a second copy
    of the matrices that change. Errors: InputError where there is no room for it."""

    def told(_: BaseException) -> InputError:
        return InputError(
            f"out of memory with a second copy of the matrices that the rewrite {rewrite.id} changes; leave it out of "
            "--rewrites, or use a larger device"
        )

    with loaded.lock, Undone() as steps, steps:
        with torch.no_grad(), memory_needed(told):
            inside = rewrite.install(loaded, steps)
        spec = {"weights": loaded.weights_hash, **rewrite.record(), "version": VERSION}
        yield replace(inside, weights_hash=cache_key("rewrite", spec))


def swap_parameter(module: nn.Module, name: str, values: Tensor, steps: Undone) -> None:
    """Another parameter in the place of one, which stays as it is; whoever shares it keeps it."""
    steps.swap(module, name, _fixed(values))


def powers_of_two(exponents: _Integers, like: Tensor) -> Tensor:
    """2^a, exact, in the dtype and on the device of `like`. [n] -> [n]"""
    return torch.from_numpy(np.ldexp(np.float32(1), exponents)).to(like)


@dataclass(frozen=True, eq=False)
class Rescaling:
    """W[i,:] 2^a_i and b_i 2^a_i, and 2^-a_i on every column that reads row i; a_i drawn by seed from -power..power.
    exponents: one array per link, [rows]."""

    id: str
    links: tuple[Link, ...]
    exponents: tuple[_Integers, ...]
    seed: int
    power: int
    left_out: str = ""

    @property
    def units(self) -> int:
        return sum(int(np.count_nonzero(one)) for one in self.exponents)

    def record(self) -> Json:
        return {"rewrite": self.id, "seed": self.seed, "power": self.power}

    def install(self, loaded: LoadedModel, undo: Undone) -> LoadedModel:
        for link, exponents in zip(self.links, self.exponents, strict=True):
            rows, reader = (loaded.model.get_submodule(path) for path in (link.rows, link.columns))
            factor = powers_of_two(exponents, rows.weight)
            swap_parameter(rows, "weight", rows.weight * factor[:, None], undo)
            if rows.bias is not None:
                swap_parameter(rows, "bias", rows.bias * factor, undo)
            back = powers_of_two(-exponents[link.reads.numpy()], reader.weight)
            swap_parameter(reader, "weight", reader.weight * back, undo)
        return loaded


@dataclass(frozen=True, eq=False)
class NormFold:
    """Norm weights w to w / f and the columns of the Linears that read the norm times f.
    f is the power of two in w, so that what is left lies in 1 to 2 and nothing is rounded; of a norm that multiplies
    by 1 + w that of 1 + w, and 1 where the format cannot hold what is left. whole: f is all of w, which rounds."""

    id: str
    norms: tuple[NormReaders, ...]
    exponents: tuple[_Integers, ...]  # of f, one array per norm; of the whole fold unused
    whole: bool
    left_out: str = ""

    @property
    def units(self) -> int:
        return sum(one.size if self.whole else int(np.count_nonzero(one)) for one in self.exponents)

    def record(self) -> Json:
        return {"rewrite": self.id}

    def install(self, loaded: LoadedModel, undo: Undone) -> LoadedModel:
        for readers, exponents in zip(self.norms, self.exponents, strict=True):
            norm = loaded.model.get_submodule(readers.norm)
            offset = float(readers.plus_one)
            weight = norm.weight.float() + offset
            factor = weight if self.whole else powers_of_two(exponents, weight)
            for path in readers.readers:
                reader = loaded.model.get_submodule(path)
                folded = reader.weight.float() * factor.to(reader.weight.device)
                swap_parameter(reader, "weight", folded.to(reader.weight.dtype), undo)
            left = torch.ones_like(weight) if self.whole else weight / factor
            swap_parameter(norm, "weight", (left - offset).to(norm.weight.dtype), undo)
        return loaded


class _MoreRows(nn.Linear):
    """A Linear with further rows. The first are multiplied apart: a larger product may sum in another order."""

    def __init__(self, linear: nn.Linear, weight: Tensor, bias: Tensor | None) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features + len(weight)
        self.first = linear.out_features
        self.weight = _fixed(torch.cat([linear.weight, weight]))
        self.register_parameter("bias", None if bias is None else _fixed(torch.cat([linear.bias, bias])))

    def forward(self, input: Tensor) -> Tensor:
        cut, bias = self.first, self.bias
        parts = ((self.weight[part], None if bias is None else bias[part]) for part in (slice(cut), slice(cut, None)))
        return torch.cat([functional.linear(input, *part) for part in parts], dim=-1)


class _MoreColumns(nn.Linear):
    """A Linear with further columns of zeros, whose product, exactly zero, is added to the first ones'."""

    def __init__(self, linear: nn.Linear, more: int) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features + more, linear.out_features
        self.first = linear.in_features
        self.weight = _fixed(torch.cat([linear.weight, linear.weight.new_zeros(linear.out_features, more)], dim=1))
        self.bias = linear.bias

    def forward(self, input: Tensor) -> Tensor:
        cut, weight = self.first, self.weight
        known = functional.linear(input[..., :cut].contiguous(), weight[:, :cut].contiguous(), self.bias)
        return known + functional.linear(input[..., cut:], weight[:, cut:])


@dataclass(frozen=True, eq=False)
class Decoys:
    """Copies of neurons drawn by seed, each inner row times 2^power, with zeros in their columns of down_proj. copied:
    per MLP the neurons that its decoys are copies of, none for an MLP without decoys."""

    mlps: tuple[Mlp, ...]
    copied: tuple[_Integers, ...]
    seed: int
    power: int
    left_out: str = ""
    id: str = DECOYS

    @property
    def units(self) -> int:
        """Neurons that are added."""
        return sum(one.size for one in self.copied)

    def record(self) -> Json:
        return {"rewrite": self.id, "seed": self.seed, "decoys": self.units, "power": self.power}

    def install(self, loaded: LoadedModel, undo: Undone) -> LoadedModel:
        for mlp, copied in zip(self.mlps, self.copied, strict=True):
            if not copied.size:
                continue
            factor = 2.0**self.power
            for path in mlp.inner:
                linear = loaded.model.get_submodule(path)
                rows = torch.from_numpy(copied).to(linear.weight.device)
                bias = None if linear.bias is None else linear.bias[rows] * factor
                _replace(loaded.model, path, _MoreRows(linear, linear.weight[rows] * factor, bias), undo)
            down = loaded.model.get_submodule(mlp.down)
            _replace(loaded.model, mlp.down, _MoreColumns(down, copied.size), undo)
        return replace(loaded, rows=row_index(loaded.model))

    def rows_of(self, widened: RowIndex) -> _Integers:
        """The decoys' row ids in the widened model's row index, ascending: the last rows of their Linears."""
        added = {path: one.size for mlp, one in zip(self.mlps, self.copied, strict=True) for path in mlp.inner}
        parts = [
            np.arange(layer.start + layer.rows - added[layer.name], layer.start + layer.rows)
            for layer in widened.layers
            if layer.name in added
        ]
        return np.concatenate(parts).astype(np.int64)


def planted(loaded: LoadedModel, seed: int, decoys: int, power: int) -> Decoys:
    """`decoys` neurons spread over the MLPs by seed, each a copy of a neuron of its MLP, drawn without repeats. Errors:
    NoRewriteError where no MLP can be widened."""
    found, without = mlps(loaded.model, loaded.rows)
    if not found:
        raise NoRewriteError(without or "it has no MLP of Linears")
    draw = np.random.default_rng([seed, 1])
    counts = np.bincount(draw.integers(0, len(found), decoys), minlength=len(found))
    copied = tuple(
        draw.choice(mlp.neurons, size=min(int(count), mlp.neurons), replace=False).astype(np.int64)
        for mlp, count in zip(found, counts, strict=True)
    )
    return Decoys(found, copied, seed, power, without)


def _replace(model: nn.Module, path: str, linear: nn.Linear, undo: Undone) -> None:
    parent, _, name = path.rpartition(".")
    undo.swap(model.get_submodule(parent), name, linear.eval())


def _fixed(values: Tensor) -> nn.Parameter:
    return nn.Parameter(values, requires_grad=False)


Rewrite = Rescaling | NormFold | Decoys


def make_rewrite(
    rewrite_id: str, loaded: LoadedModel, *, seed: int = 0, power: int = 4, decoys: int = 16, decoy_power: int = 8
) -> Rewrite:
    """The rewrite of that id for this model. seed: of exponents, and of where decoys stand. power: the largest
    exponent. decoys: neurons that are added, their rows 2^decoy_power times those of others. Errors: NoRewriteError
    where the architecture has no place for it, with the reason."""
    if rewrite_id not in REWRITES:
        raise InputError(f"unknown rewrite {rewrite_id!r}; available: {', '.join(REWRITES)}")
    if rewrite_id == DECOYS:
        return planted(loaded, seed, decoys, decoy_power)
    if rewrite_id in (NORMS, NORMS_WHOLE):
        return _norm_fold(rewrite_id, loaded)
    find = {NEURONS: neuron_links, VALUES: value_links}[rewrite_id]
    return _rescaling(rewrite_id, find(loaded.model, loaded.rows), loaded, seed, power)


def _rescaling(rewrite_id: str, found: Links, loaded: LoadedModel, seed: int, power: int) -> Rescaling:
    links, without = found
    if not links:
        raise NoRewriteError(without)
    exponents = tuple(
        np.random.default_rng([seed, zlib.crc32(link.rows.encode())]).integers(
            -power, power + 1, loaded.model.get_submodule(link.rows).out_features
        )
        for link in links
    )
    return Rescaling(rewrite_id, links, exponents, seed, power, without)


def _norm_fold(rewrite_id: str, loaded: LoadedModel) -> NormFold:
    norms, without = norm_readers(loaded)
    if not norms:
        raise NoRewriteError(without or "no norm with a weight is read by a Linear directly")
    exponents = tuple(_norm_exponents(loaded.model.get_submodule(one.norm), one.plus_one) for one in norms)
    fold = NormFold(rewrite_id, norms, exponents, rewrite_id == NORMS_WHOLE, without)
    if not fold.units:
        raise NoRewriteError("all norm weights lie between 1 and 2 (or cannot be divided exactly): nothing to fold")
    return fold


def _norm_exponents(norm: Any, plus_one: bool) -> _Integers:
    """e with 2^e <= abs(w) < 2^(e + 1); 0 for w = 0 and where the norm's format cannot hold w / 2^e. [d]"""
    weight = norm.weight.detach().float().cpu().numpy() + np.float32(plus_one)
    exponents = np.where(weight == 0, 0, np.frexp(weight)[1] - 1).astype(np.int64)
    left = torch.from_numpy(np.ldexp(weight, -exponents))
    held = (left - float(plus_one)).to(norm.weight.dtype).float() + float(plus_one)
    return np.where((held == left).numpy(), exponents, 0)
