"""The residual stream: mean states of token sequences at the output of every decoder block."""

import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from engine.data.prompts import pad_left
from engine.interventions.at_outputs import hooked
from engine.models.loading import LoadedModel, input_device
from engine.models.rows import decoder_blocks
from engine.records.errors import InputError

BATCH_SIZE = 16


@torch.no_grad()
def block_states(
    loaded: LoadedModel, sequences: Sequence[Sequence[int]], last: Sequence[int], batch_size: int = BATCH_SIZE
) -> Tensor:
    """s[i, L] = mean over the last `last[i]` tokens t of sequence i (token ids) of h_L(t), the output of block L.

    returns [sequences, blocks, d] float64 on the CPU; the mean over positions is taken in float32. The model's lock is
    held for each batch. Errors: InputError where a state is not finite."""
    if any(not 0 < n <= len(ids) for n, ids in zip(last, sequences, strict=True)):
        raise InputError(f"each sequence is averaged over 1 token to all of its tokens, got {list(last)[:5]}")
    blocks, device = decoder_blocks(loaded.model), input_device(loaded.model)
    found: dict[int, Tensor] = {}
    weights = torch.empty(0)
    own = threading.get_ident()

    def hook_for(block: int) -> Any:
        def hook(_module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
            if threading.get_ident() == own:
                stream = output[0] if isinstance(output, tuple) else output  # [B, T, d]
                found[block] = (stream.float() * weights.to(stream.device)[:, :, None]).sum(1).cpu().double()

        return hook

    parts = []
    with hooked(None, [(block, hook_for(number)) for number, block in enumerate(blocks)]):
        for start in range(0, len(sequences), batch_size):
            batch = pad_left(sequences[start : start + batch_size])
            counts = torch.tensor(last[start : start + batch_size])
            width = batch.input_ids.shape[1]
            weights = (torch.arange(width) >= width - counts[:, None]).float() / counts[:, None]  # [B, T]
            with loaded.lock:
                loaded.model(**batch.to(device)._asdict(), use_cache=False, logits_to_keep=1)
            parts.append(torch.stack([found[number] for number in range(len(blocks))], dim=1))
    states = torch.cat(parts)
    if not torch.isfinite(states).all():
        raise InputError(
            f"{loaded.id} gives states that are not finite ({loaded.dtype}); run again with --dtype float32"
        )
    return states
