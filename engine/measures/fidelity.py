"""NLL, KL to the unedited model and agreement on the next token, of windows of text, from the same pass."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from torch import Tensor, stack

from engine.data.corpora import Windows
from engine.measures.base import Average, Derived, TokenMeasure, register_measure, stored_average
from engine.models.loading import LoadedModel
from engine.records.hashing import Json
from engine.selectors.passes import wide
from engine.stats.blocks import Blocks

VERSION = 2  # part of cache keys: another form of the same sum rounds differently in the last bits
_STORED = ("window_nats", "window_kl", "window_same", "window_tokens")


@dataclass(frozen=True)
class WindowFidelity:
    """Sums over the predicted tokens of each window. window_nats: -log q(next token). window_kl: KL(unedited || edited)
    in nats. window_same: tokens at which both have the same most likely next token. blocks: as of an NLL."""

    window_nats: tuple[float, ...]
    window_kl: tuple[float, ...]
    window_same: tuple[int, ...]
    window_tokens: tuple[int, ...]
    blocks: Blocks | None = field(default=None, compare=False)


class _Unedited(NamedTuple):
    """The unedited model at some positions: p [n, V], sum_v p log p [n], the likeliest token [n]."""

    p: Tensor
    p_log_p: Tensor
    top: Tensor


class Fidelity(TokenMeasure[WindowFidelity]):
    """The measure. KL = sum_v p(v) (log p(v) - log q(v)), p of the unedited model and q of the edited one after the
    same tokens of the same window; the first token of a window is not predicted.

    In float32 where the logits are: exactly 0 for equal logits, else within about 1e-5 nats of `token_kl`. What
    rounding takes below 0 is 0.

    MIB's CPR and CMD (Mueller et al. 2025, arXiv:2504.13151) are areas as well and are not computed: they need
    counterfactual prompts and m(empty), which text does not have. `engine.stats.protocol_harm.area` divides by random's
    area instead."""

    kind: ClassVar[str] = "fidelity"
    called: ClassVar[str] = "loss"
    beside_unedited: ClassVar[bool] = True

    def record(self, loaded: LoadedModel) -> Json:
        return {**super().record(loaded), "version": VERSION}

    def of_unedited(self, logits: Tensor) -> _Unedited:
        before = wide(logits)
        log_p = before.log_softmax(-1)
        p = log_p.exp()
        return _Unedited(p, (p * log_p).sum(-1), _likeliest(before))

    def of_tokens(self, logits: Tensor, tokens: Tensor, unedited: _Unedited) -> Tensor:
        """Nats, KL and equal tokens, [3, n]."""
        after = wide(logits)
        log_q = after.log_softmax(-1)
        nats = -log_q.gather(-1, tokens[:, None])[:, 0]
        kl = (unedited.p_log_p - (unedited.p * log_q).sum(-1)).clamp(min=0)
        return stack([nats, kl, (_likeliest(after) == unedited.top).to(nats.dtype)])

    def result(self, sums: Sequence[Sequence[float]], counts: tuple[int, ...]) -> WindowFidelity:
        nats, kl, same = sums
        return WindowFidelity(tuple(nats), tuple(kl), tuple(map(round, same)), counts, self.windows.blocks)

    def encode(self, result: WindowFidelity) -> Json:
        return {name: getattr(result, name) for name in _STORED}

    def decode(self, stored: Json) -> WindowFidelity:
        nats, kl, same, tokens = (tuple(stored[name]) for name in _STORED)
        return WindowFidelity(nats, kl, same, tokens, self.windows.blocks)


@dataclass(frozen=True)
class OfFidelity(Derived[Average]):
    """One number per token of a `Fidelity`, from its sums over each window. of: their name there."""

    of: ClassVar[str]
    windows: Windows
    batch_size: int | None = None  # none: a pass holds the unedited model's logits beside, and its own size

    @property
    def base(self) -> Fidelity:  # type: ignore[override]
        return Fidelity(self.windows)

    def record(self, loaded: LoadedModel) -> Json:
        return self.base.record(loaded)

    def encode(self, result: Average) -> Json:
        return result.stored()

    def decode(self, stored: Json) -> Average:
        return stored_average(stored, self.windows.blocks)

    def derive(self, base: WindowFidelity) -> Average:
        return Average(getattr(base, self.of), base.window_tokens, base.blocks)


@register_measure("kl", title="KL from the unedited model", unit="nats per token")
class KlOfText(OfFidelity):
    """KL(unedited || edited) of the next token's distribution, per predicted token."""

    kind, of = "kl", "window_kl"


@register_measure("top1", title="Top-1 agreement", unit="fraction of tokens", lower_is_better=False)
class Top1Agreement(OfFidelity):
    """Share of the tokens at which the unedited and the edited model hold the same next token for the likeliest."""

    kind, of = "top1", "window_same"


def _likeliest(logits: Tensor) -> Tensor:
    """As argmax over the last dimension, which takes a CPU longer."""
    return logits.max(-1).indices
