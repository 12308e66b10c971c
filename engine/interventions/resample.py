"""Resample: the unit says what it said at the same position of another text."""

import hashlib
import threading

import torch
from torch import Tensor

from engine.data.corpora import Windows
from engine.interventions.calibrated import Place, place_of, places, read
from engine.interventions.kinds import Intervention, register_intervention
from engine.models.loading import LoadedModel
from engine.models.row_index import Layer
from engine.records.errors import InputError
from engine.records.hashing import Json

LARGEST_BYTES = 16 * 2**30  # of outputs kept on the CPU


@register_intervention("resample", title="Resample")
class Resample(Intervention):
    """y_i(t) = y_i(t) of the unedited model on another window. "Resample ablation": causal scrubbing, Chan et al. 2022.

    Every sequence has one other calibration window, drawn by a hash of the seed and of its own tokens: the same in
    every batch and under every edit, so that differences between edits are paired. All units of a window come from the
    same other one, never from itself while there are others. Theirs keeps what the hypothesis says matters; text has no
    such pairs, so any other window will do (**choice**). Passes have to have as many tokens as the windows: whole
    texts, no replies. Kept on the CPU in the model's dtype: windows * tokens * (rows + columns of the column index)
    numbers."""

    reads_text = reads_tokens = True
    _windows: Windows  # of `prepare`

    def __init__(self) -> None:
        self.seed = 0
        self._kept: dict[Place, Tensor] = {}  # [K, T, rows]
        self._guard = threading.Lock()

    def prepare(self, loaded: LoadedModel, windows: Windows) -> None:
        """Errors: InputError, before any pass, where the outputs would not fit."""
        count, length = windows.read_ids.shape
        size = next(loaded.model.parameters()).element_size()
        needed = count * length * sum(layer.rows for layer in places(loaded)) * size
        if needed > LARGEST_BYTES:
            raise InputError(
                f"resample keeps what every Linear says on {count} windows of {length} tokens: "
                f"{needed / 2**30:.1f} GiB, more than {LARGEST_BYTES / 2**30:.0f}; give fewer with --resample-windows"
            )
        self._windows = windows

    def record(self) -> Json:
        """Tokens and seed: with the model, which is in every key, they determine what replaces what."""
        return {"replaced_by": {"tokens": self._windows.token_hash, "seed": self.seed}}

    def fill(self, loaded: LoadedModel) -> None:
        with self._guard:
            if self._kept:
                return
            parts: dict[Place, list[Tensor]] = {}
            read(loaded, self._windows, lambda place, values, _: parts.setdefault(place, []).append(values.cpu()))
            for place, some in parts.items():
                if some[0].ndim != 3:
                    raise InputError(
                        f"{place[0]} gets the tokens of all sequences in one, so that no position of another window "
                        "stands for one of this; use zero or mean"
                    )
            # In place: draws by other seeds are copies of this one that share it.
            self._kept.update({place: torch.cat(some) for place, some in parts.items()})

    def sources(self, input_ids: Tensor) -> Tensor:
        """Number of the other window of every sequence. input_ids [B, T]; returns [B] int64 on the CPU"""
        ids = self._windows.read_ids
        if input_ids.shape[-1] != ids.shape[1]:
            raise InputError(
                f"resample has other windows of {ids.shape[1]} tokens, got a pass of {input_ids.shape[-1]}; positions "
                "must meet: measure windows of that length, and replies under zero or mean"
            )
        chosen = []
        for tokens in input_ids.cpu().to(torch.int64):
            digest = hashlib.sha256(f"{self.seed}:".encode() + tokens.numpy().astype("<i8").tobytes()).digest()
            first = int.from_bytes(digest[:8], "little") % len(ids)
            others = ((first + step) % len(ids) for step in range(len(ids)))
            chosen.append(next((one for one in others if not torch.equal(ids[one], tokens)), first))
        return torch.tensor(chosen)

    def apply(self, output: Tensor, units: Tensor, layer: Layer) -> Tensor:
        raise RuntimeError("resample needs to know which window stands for which sequence: `apply_from`")

    def apply_from(self, values: Tensor, units: Tensor, layer: Layer, sources: Tensor) -> Tensor:
        """values [B, T, rows], units as of `apply`, sources [B]"""
        return torch.where(units, self._kept[place_of(layer)][sources].to(values.device), values)
