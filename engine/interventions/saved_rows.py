"""The bits of rows that an edit zeroes: kept where there is room for them, put back without needing any."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.models.memory import has_own_memory, release, room_on
from engine.records.errors import InputError
from engine.records.out_of_memory import is_out_of_memory

# Of a card's memory: what saved rows leave free there, for the passes. A choice; with fewer the rows go to the host,
# which costs two copies over the bus per edit and no bit.
RESERVE = 0.25
PIECE_BYTES = 2**26  # of rows that travel between a card and the host at a time


@dataclass(frozen=True, eq=False)
class SavedRows:
    """The original bits of some rows of one parameter. Putting them back twice does no harm."""

    parameter: Tensor
    rows: Tensor  # [n] int64, on the host
    bits: Tensor  # [n, ...] a copy
    on_host: bool  # not beside the parameter

    @torch.no_grad()
    def put_back(self) -> None:
        """The exact bits. Where the device has no room even for a piece, row after row: that takes none."""
        if not self.on_host:
            try:
                self.parameter[self.rows] = self.bits
                return
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
        for piece in _pieces(self.parameter, len(self.rows)):
            rows, bits = self.rows[piece], self.bits[piece]
            try:
                self.parameter[rows] = bits.to(self.parameter.device)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                for row, one in zip(rows.tolist(), bits, strict=True):
                    self.parameter[row].copy_(one)  # into the parameter itself


def kept_on_host(wanted: Mapping[torch.device, int]) -> set[torch.device]:
    """The cards on which rows of so many bytes would leave less than `RESERVE` of the free memory: the host keeps them
    instead, which changes no number."""
    short = set()
    for device, size in wanted.items():
        if has_own_memory(device):
            room = room_on(device)
            if room.free - size < RESERVE * room.total:
                short.add(device)
    return short


def saved_rows(parameter: Tensor, rows: Tensor, *, on_host: bool) -> SavedRows:
    """A copy of these rows, rows [n] int64 on the host. Beside the parameter unless `on_host`, or without room there.
    Errors: InputError where the host has no room either; the parameter is as it was."""
    if not on_host:
        try:
            return SavedRows(parameter, rows, parameter[rows], False)  # indexing by a tensor copies
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        release()
    try:
        return SavedRows(parameter, rows, _host_copy(parameter, rows), True)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        size = row_bytes(parameter) * len(rows) / 2**30
        raise InputError(
            f"there is no room for {size:.2f} GiB of removed rows, on the device or on the host, and without a copy "
            "they could not be put back; free memory, lower the rate, or use --dtype bfloat16"
        ) from None


def row_bytes(parameter: Tensor) -> int:
    """Bytes of one row, of a bias one number."""
    return parameter.element_size() * parameter.shape[1:].numel()


def _host_copy(parameter: Tensor, rows: Tensor) -> Tensor:
    bits = torch.empty((len(rows), *parameter.shape[1:]), dtype=parameter.dtype)
    for piece in _pieces(parameter, len(rows)):
        try:
            bits[piece] = parameter[rows[piece]].cpu()
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            for place, row in zip(bits[piece], rows[piece].tolist(), strict=True):
                place.copy_(parameter[row])
    return bits


def _pieces(parameter: Tensor, count: int) -> Iterator[slice]:
    step = max(1, PIECE_BYTES // max(1, row_bytes(parameter)))
    return (slice(start, start + step) for start in range(0, count, step))
