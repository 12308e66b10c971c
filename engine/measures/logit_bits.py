"""Is it the same function? The bits of every logit on some windows, as hashes that can be compared and kept."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from engine.data.corpora import Windows
from engine.edits.edit import AnyEdit
from engine.measures.base import Measure
from engine.measures.nll import token_nll
from engine.measures.predictions import kind_of, logits_that_fit, vocabulary_of
from engine.models.loading import LoadedModel, input_device
from engine.models.products import faster_products
from engine.records.hashing import Json

_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # bytes of a float -> as many bits


@dataclass(frozen=True)
class Bits:
    """SHA-256 of the bits of each window's logits [T, V], and the window's summed NLL in nats. finite: no logit is NaN
    or infinite; equal bits of such logits prove nothing."""

    hashes: tuple[str, ...]
    nats: tuple[float, ...]
    tokens: int
    finite: bool

    def equal_windows(self, other: Bits) -> int:
        """How many windows have the same bits in every logit."""
        return sum(one == two for one, two in zip(self.hashes, other.hashes, strict=True))

    def same_function(self, other: Bits) -> bool:
        """Whether every logit of every window is finite and has the same bits."""
        return self.finite and other.finite and self.equal_windows(other) == len(self.hashes)

    def nll_difference(self, other: Bits) -> float:
        """NLL of this one minus NLL of the other, in nats per token."""
        return (math.fsum(self.nats) - math.fsum(other.nats)) / self.tokens


@dataclass(frozen=True)
class LogitBits(Measure[Bits]):
    """The measure: all windows, in passes of equal size, so that equal models give equal bits."""

    windows: Windows
    batch_size: int | None = None
    kind: ClassVar[str] = "logit_bits"

    def record(self, loaded: LoadedModel) -> Json:
        return {"tokens": self.windows.token_hash, "batch_size": self._batch(loaded)}

    def encode(self, result: Bits) -> Json:
        return {"hashes": result.hashes, "nats": result.nats, "tokens": result.tokens, "finite": result.finite}

    def decode(self, stored: Json) -> Bits:
        return Bits(tuple(stored["hashes"]), tuple(stored["nats"]), stored["tokens"], stored["finite"])

    @torch.no_grad()
    def measure(self, loaded: LoadedModel, edit: AnyEdit) -> Bits:
        hashes: list[str] = []
        nats: list[float] = []
        finite = True
        first = len(self.windows.prefix)  # the position of a window's first token
        for chunk in self.windows.read_ids.split(self._batch(loaded)):
            ids = chunk.to(input_device(loaded.model))
            with faster_products(wanted=False):  # a rewrite's own Linears, those of decoys, do without
                logits = loaded.model(input_ids=ids, use_cache=False).logits
            finite = finite and bool(logits.isfinite().all())
            whole = logits.detach().cpu().contiguous()
            bits = whole.view(_INTEGERS[whole.element_size()])
            hashes += [hashlib.sha256(one.numpy().tobytes()).hexdigest() for one in bits]
            predicted = token_nll(logits[:, first:-1], ids[:, first + 1 :].to(logits.device))
            nats += predicted.cpu().double().sum(-1).tolist()
        count, length = self.windows.input_ids.shape
        return Bits(tuple(hashes), tuple(nats), count * (length - 1), finite)

    def _batch(self, loaded: LoadedModel) -> int:
        count, length = self.windows.read_ids.shape
        fit = logits_that_fit(kind_of(loaded.device), length, vocabulary_of(loaded.model))  # every logit is looked at
        return self.batch_size or min(fit, count)
