"""What passes summed over whole batches, for texts that share these: draws of one text may overlap."""

import hashlib
from collections.abc import Callable, Sequence

from torch import Tensor

from engine.models.loading import LoadedModel
from engine.records.hashing import canonical

LARGEST_BYTES = 256 * 2**20  # on the host


class KeptSums:
    """Sums over batches that went through the model, by the model, what was summed, and the batch's tokens.

    Only whole batches are shared, the same windows in the same order and no others, since neighbours can change last
    bits (**choice**: equal bits before fewer passes). Batches end at multiples of their size from the start of the
    text. Kept are the batches that come first, in memory only, until they take `largest` bytes."""

    def __init__(self, largest: int = LARGEST_BYTES) -> None:
        self._largest = largest
        self._sums: dict[str, Tensor] = {}
        self.taken = 0  # bytes
        self.spared = 0  # batches that did not have to go through the model again

    def of(
        self, loaded: LoadedModel, what: object, ids: Tensor, ends: Sequence[int], compute: Callable[[], Tensor]
    ) -> Tensor:
        """`compute()`, or what it gave before for the same model, `what` (equal for equal work) and tokens.

        ids [B, T]; ends: ascending numbers of windows up to B, over which `compute` gives a sum each. Only that over
        all B is kept, so that a pass whose sums over fewer are wanted runs.
        returns [ends, n]"""
        about = canonical({"model": loaded.numeric_fingerprint, "what": repr(what), "shape": list(ids.shape)})
        key = hashlib.sha256(about.encode() + ids.cpu().numpy().astype("<i8").tobytes()).hexdigest()
        if key in self._sums and len(ends) == 1:
            self.spared += 1
            return self._sums[key][None]
        sums = compute()
        size = sums[-1].numel() * sums.element_size()
        if key not in self._sums and self.taken + size <= self._largest:
            self._sums[key] = sums[-1].clone()  # not a view that keeps the others alive
            self.taken += size
        return sums
