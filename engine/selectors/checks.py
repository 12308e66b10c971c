"""A score that is not a number is an error that says where, never a warning."""

from torch import Tensor

from engine.models.row_index import RowIndex
from engine.records.errors import InputError

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
