"""Mean: the unit says what it says on average."""

import threading

import torch
from torch import Tensor

from engine.data.corpora import Windows
from engine.interventions.calibrated import Place, place_of, read
from engine.interventions.kinds import Intervention, register_intervention
from engine.models.loading import LoadedModel
from engine.models.row_index import Layer
from engine.records.errors import InputError
from engine.records.hashing import Json
from engine.selectors.passes import Seen, wide


@register_intervention("mean", title="Mean")
class Mean(Intervention):
    """y_i = E y_i, over all tokens of the calibration windows. "Mean ablation": Wang et al. 2023, arXiv:2211.00593.

    Of a row the mean of its output (its bias included); of a neuron or a head that of each of its inputs of down_proj
    or o_proj. Theirs is a mean per position over prompts of one template; text has no such positions, so the mean is
    over positions too (**choice**). Sums in float32 within a pass, in float64 across passes."""

    reads_text = True
    _windows: Windows  # of `prepare`

    def __init__(self) -> None:
        self._means: dict[Place, Tensor] = {}  # [rows] float64, CPU
        self._ready: dict[tuple[Place, torch.dtype, torch.device], Tensor] = {}
        self._guard = threading.Lock()

    def prepare(self, loaded: LoadedModel, windows: Windows) -> None:
        self._windows = windows

    def record(self) -> Json:
        """The tokens: with the model, which is in every key, they determine the means."""
        return {"replaced_by": {"tokens": self._windows.token_hash}}

    def fill(self, loaded: LoadedModel) -> None:
        with self._guard:
            if self._means:
                return
            sums: dict[Place, Tensor] = {}
            counts: dict[Place, int] = {}

            first = len(self._windows.prefix)

            def add(place: Place, values: Tensor, seen: Seen) -> None:
                if first and seen.count != values.shape[:-1].numel():
                    raise InputError(
                        f"{place[0]} sees some tokens and does not say which, so that its mean cannot leave out what "
                        "stands before each window; give --window-start stream, or use zero"
                    )
                flat = wide(seen.counting(values, first)).flatten(0, -2)
                total = flat.sum(0).cpu().double()
                sums[place] = sums[place] + total if place in sums else total
                counts[place] = counts.get(place, 0) + len(flat)

            read(loaded, self._windows, add)
            self._means = {place: total / counts[place] for place, total in sums.items()}

    def apply(self, output: Tensor, units: Tensor, layer: Layer) -> Tensor:
        key = (place_of(layer), output.dtype, output.device)
        if key not in self._ready:
            if key[0] not in self._means:  # an expert that no token of the text was sent to
                raise InputError(f"{layer.name} saw no token of the calibration text and has no mean; give more text")
            self._ready[key] = self._means[key[0]].to(output.dtype).to(output.device)
        return torch.where(units, self._ready[key], output)
