"""GPT-2's Conv1D, a Linear stored the other way round: its rows are the columns of what it stores."""

from torch import Tensor, nn

from engine.models.forwards import set_forward


class TransposedLinear(nn.Linear):
    """transformers' `Conv1D` with a Linear's names. Stored, saved and moved as before: weight [d_in, d_out]. weight
    [d_out, d_in] is a view of it, so that zeroing a row zeroes a column of what is stored."""

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        stored = self._parameters["weight"]
        assert stored is not None
        return stored.T


def show_conv1d(block: nn.Module) -> None:
    """Every Conv1D below a module becomes a `TransposedLinear`, in place; nothing the second time."""
    from transformers.pytorch_utils import Conv1D

    for module in block.modules():
        if type(module) is Conv1D:
            module.in_features, module.out_features = module.nx, module.nf
            module.__class__ = TransposedLinear  # type: ignore[assignment]
            set_forward(module, TransposedLinear.forward)
