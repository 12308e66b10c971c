"""The NLL of every sequence by itself, padded or not, in one pass of a model as it is."""

import torch
from torch import Tensor, nn

from engine.measures.nll import predicted_nll
from engine.measures.predictions import predictions, sent
from engine.models.loading import input_device


@torch.inference_mode()
def window_nll(model: nn.Module, input_ids: Tensor, attention_mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Summed NLL and number of predicted tokens of each sequence. A position counts if its token and the one before it
    are real, so padding on either side changes nothing.

    input_ids [B, T], attention_mask [B, T] of 0/1 or None for no padding; returns nats [B] float64, tokens [B] int64,
    on the CPU"""
    device, more = input_device(model), {}
    if attention_mask is None:
        attention_mask = torch.ones_like(input_ids)
    else:
        positions = (attention_mask.cumsum(-1) - 1).clamp(min=0)
        more = {"attention_mask": attention_mask, "position_ids": positions}
    inputs = {name: sent(values, device) for name, values in {"input_ids": input_ids, **more}.items()}
    nats = predicted_nll(predictions(model, inputs), inputs["input_ids"][:, 1:])
    real = (attention_mask[:, 1:] * attention_mask[:, :-1]).bool().cpu()
    # On the CPU, since not every device (MPS) has float64.
    return nats.cpu().double().masked_fill(~real, 0.0).sum(-1), real.sum(-1)
