"""NLL, KL to the unedited model and agreement on the next token, of windows of text, from the same pass."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from engine.data.corpora import Windows
from engine.edits.edit import UNEDITED
from engine.edits.steering import AnyEdit
from engine.interventions.at_outputs import Outputs, edited_outputs, sees_sequences
from engine.measures.nll import pieces_record, windows_that_fit
from engine.measures.predictions import Predictions, predictions, sent
from engine.models.loading import LoadedModel, input_device
from engine.records.errors import InputError
from engine.records.hashing import Json
from engine.selectors.passes import wide
from engine.stats.blocks import Blocks

VERSION = 2  # part of cache keys: another form of the same sum rounds differently in the last bits
EDITS_TOGETHER = 16  # that share one set of passes of the unedited model


@dataclass(frozen=True)
class WindowFidelity:
    """Sums over the predicted tokens of each window.

    window_nats: -log q(next token). window_kl: KL(unedited || edited) in nats. window_same: tokens at which both models
    have the same most likely next token. window_tokens: how many tokens there are. blocks: as of an NLL.
    """

    window_nats: tuple[float, ...]
    window_kl: tuple[float, ...]
    window_same: tuple[int, ...]
    window_tokens: tuple[int, ...]
    blocks: Blocks | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Fidelity:
    """The measure. KL = sum_v p(v) (log p(v) - log q(v)), p of the unedited model and q of the edited one after the
    same tokens of the same window; the first token of a window is not predicted.

    In float32 where the logits are, as sum_v p(v) log p(v) - sum_v p(v) log q(v): exactly 0 for equal logits, else
    within about 1e-5 nats of `token_kl`, which is in float64 on the CPU (a large vocabulary would spend its time on the
    way there). What rounding takes below 0 is 0.

    MIB's CPR and CMD (Mueller et al. 2025, arXiv:2504.13151) are areas as well and are not computed: they integrate
    (m(C) - m(empty)) / (m(N) - m(empty)) over circuits C of growing share of the model N's edges, on a task with
    counterfactual prompts. Text has no counterfactual prompts and no m(empty) (a model with every unit ablated is not
    at the bottom of NLL or KL), and sets of units are no sets of edges. `engine.stats.protocol_harm.area` divides by
    random's area instead.
    """

    windows: Windows
    kind: ClassVar[str] = "fidelity"

    @property
    def size(self) -> int:
        """Windows to read."""
        return len(self.windows.sample_ids)

    def record(self, loaded: LoadedModel) -> Json:
        return {
            "tokens": self.windows.token_hash, "batch": list(self._shape(loaded)), "version": VERSION,
            **pieces_record(loaded, self.windows),
        }  # fmt: skip

    def encode(self, result: WindowFidelity) -> Json:
        return {
            "window_nats": result.window_nats, "window_kl": result.window_kl, "window_same": result.window_same,
            "window_tokens": result.window_tokens,
        }  # fmt: skip

    def decode(self, stored: Json) -> WindowFidelity:
        names = ("window_nats", "window_kl", "window_same", "window_tokens")
        nats, kl, same, tokens = (tuple(stored[name]) for name in names)
        return WindowFidelity(nats, kl, same, tokens, self.windows.blocks)

    def together(self, loaded: LoadedModel) -> int:
        """Always several: the unedited model has to be there beside them, so nothing is put into the weights."""
        return EDITS_TOGETHER

    def measure(self, loaded: LoadedModel, edit: AnyEdit) -> WindowFidelity:
        raise RuntimeError("fidelity needs the unedited model beside the edited one: call `measure_each`")

    def measure_each(self, loaded: LoadedModel, edits: Sequence[AnyEdit]) -> list[WindowFidelity]:
        """Under each edit. Unedited and edited passes have the same shape, so that an edit of nothing gives 0 exactly,
        and a pass has the same shape however many edits are still unknown, so that equal runs give equal bits.
        """
        tokens = (self.windows.input_ids.shape[1] - 1,) * self.size
        found = []
        for edit, parts in zip(edits, self.of_tokens(loaded, edits), strict=True):
            # On the CPU, since not every device (MPS) has float64.
            sums = torch.cat([part.cpu().double().sum(-1) for part in parts], -1)
            nats, kl, same = sums.tolist()
            windows = WindowFidelity(tuple(nats), tuple(kl), tuple(map(round, same)), tokens, self.windows.blocks)
            found.append(_checked(loaded, edit, windows))
        return found

    @torch.inference_mode()
    def of_tokens(self, loaded: LoadedModel, edits: Sequence[AnyEdit]) -> list[list[Tensor]]:
        """For each edit and pass nats, KL and equal tokens of every predicted token, [3, windows, length - 1] on the
        device: no pass waits for another.
        """
        at_once, copies = self._shape(loaded)
        values: list[list[Tensor]] = [[] for _ in edits]
        with edited_outputs(loaded, [UNEDITED, *edits]) as outputs:
            for windows in self.windows.read_ids.split(at_once):
                ids = sent(windows, input_device(loaded.model))
                before = _Unedited(_said(loaded, outputs, [0] * copies, ids)[0])
                for first in range(0, len(edits), copies):
                    group = [min(first + number, len(edits) - 1) for number in range(copies)]
                    after = _said(loaded, outputs, [place + 1 for place in group], ids)
                    for place, said in dict(zip(group, after, strict=True)).items():
                        values[place].append(before.compared(said, ids)[..., len(self.windows.prefix) :])
        return values

    def _shape(self, loaded: LoadedModel) -> tuple[int, int]:
        """Windows per pass, and how many edits they are passed under at once."""
        fit = windows_that_fit(loaded, self.windows)
        at_once = min(fit, self.size)
        return at_once, min(fit // at_once, EDITS_TOGETHER) if sees_sequences(loaded) else 1


def _checked(loaded: LoadedModel, edit: AnyEdit, result: WindowFidelity) -> WindowFidelity:
    """A model that breaks under an edit may say NaN; one that does so unedited was not measured."""
    if edit.size or math.isfinite(math.fsum(result.window_nats)):
        return result
    raise InputError(f"{loaded.id} gives no finite loss unedited ({loaded.dtype}); run with --dtype float32")


def _likeliest(logits: Tensor) -> Tensor:
    """As argmax over the last dimension, which takes a CPU longer."""
    return logits.max(-1).indices


def _said(loaded: LoadedModel, outputs: Outputs, group: Sequence[int], ids: Tensor) -> list[Predictions]:
    """Of the windows [w, T] under each edit of the group, from one pass."""
    with outputs.sequences([edit for edit in group for _ in ids]):
        return predictions(loaded.model, {"input_ids": ids.repeat(len(group), 1)}).split(len(ids))


class _Chunk(NamedTuple):
    """The unedited model at some positions: p [n, V], sum_v p log p [n], the likeliest token [n]."""

    p: Tensor
    p_log_p: Tensor
    top: Tensor


class _Unedited:
    """The unedited model on some windows, in chunks of positions so that large vocabularies fit.

    Kept for all edits, but where logits are made in pieces: then they are made again for each.
    """

    def __init__(self, said: Predictions) -> None:
        self._said = said
        self._kept = list(self._made()) if said.whole else None

    def _made(self) -> Iterator[_Chunk]:
        for some in self._said.chunks():
            before = wide(some)
            log_p = before.log_softmax(-1)
            p = log_p.exp()
            yield _Chunk(p, (p * log_p).sum(-1), _likeliest(before))

    def compared(self, said: Predictions, ids: Tensor) -> Tensor:
        """Nats, KL and equal tokens, [3, windows, T - 1], from what an edited model says of the windows [w, T]."""
        chunks = self._made() if self._kept is None else self._kept
        parts = []
        for (p, p_log_p, top), (some, targets) in zip(chunks, said.with_chunks(ids[:, 1:]), strict=True):
            after = wide(some)
            log_q = after.log_softmax(-1)
            nats = -log_q.gather(-1, targets[:, None])[:, 0]
            kl = (p_log_p - (p * log_q).sum(-1)).clamp(min=0)
            parts.append(torch.stack([nats, kl, (_likeliest(after) == top).to(nats.dtype)]))
        return torch.cat(parts, -1).view(3, said.windows, said.positions)
