"""A checkpoint's configuration to the transformers class that loads it, and to the model without weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from engine.models.checkpoints import Checkpoint
from engine.records.errors import InputError


def configuration(checkpoint: Checkpoint) -> Any:
    """The checkpoint's configuration; an error where transformers does not know the architecture itself."""
    from transformers import AutoConfig

    written = checkpoint.config()
    try:
        config = AutoConfig.from_pretrained(checkpoint.folder, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        if "auto_map" in written:
            raise InputError(
                f"{checkpoint.id} needs Python code from its own checkpoint, which this software never runs; "
                "give a model whose architecture transformers knows"
            ) from None
        raise InputError(
            f"{checkpoint.id}: architecture {written.get('model_type')!r} cannot be read by the installed "
            f"transformers ({first_line(error)}); update transformers or give another model"
        ) from None
    # Not for a checkpoint to choose: other weight files than those that are hashed, or attention code from a hub.
    config.transformers_weights = None
    config._attn_implementation = None
    return config


def auto_class(config: Any, model_id: str) -> Any:
    """The transformers class that loads a decoder-only model of this configuration, multimodal ones included."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    if not config.is_encoder_decoder:
        for auto in (AutoModelForCausalLM, AutoModelForImageTextToText):
            if type(config) in auto._model_mapping:
                return auto
    raise InputError(
        f"{model_id} is a {config.model_type} model; expected a decoder-only language model such as Llama, Qwen, "
        "Gemma or Mistral"
    )


def skeleton(checkpoint: Checkpoint) -> nn.Module:
    """The model with shapes and names but without weights (meta device)."""
    config = configuration(checkpoint)
    auto = auto_class(config, checkpoint.id)
    with quiet(), torch.device("meta"):
        model: nn.Module = auto.from_config(config)
    return model


def first_line(error: BaseException) -> str:
    """Kind and first line of another library's error, to be quoted in ours."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


@contextmanager
def quiet() -> Iterator[None]:
    """transformers without its progress bars and notes: what matters here is an error, the rest is ours to show."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
