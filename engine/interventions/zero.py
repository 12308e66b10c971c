"""Zero: the unit says nothing."""

import torch
from torch import Tensor

from engine.interventions.kinds import Intervention, register_intervention
from engine.models.row_index import Layer

_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # bytes of a float -> as many bits


@register_intervention("zero", title="Zero", in_weights=True)
class Zero(Intervention):
    """y_i = 0. The same as row i of W and b set to zero: the paper, section 3.1."""

    def apply(self, output: Tensor, units: Tensor, layer: Layer) -> Tensor:
        if output.requires_grad:
            return output.masked_fill(units, 0.0)
        if output.is_cuda:
            return torch.where(units, 0.0, output)  # one kernel
        # The same 6 times faster on a CPU: a bitwise "and" with no bits or all. No product, since 0 * inf is not 0.
        bits = _INTEGERS[output.element_size()]
        return (output.view(bits) & (units.to(bits) - 1)).view(output.dtype)
