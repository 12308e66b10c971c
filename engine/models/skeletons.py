"""A checkpoint's configuration to the transformers class that loads it, and to the model without weights."""

import threading
import warnings
from collections.abc import Callable, Iterator
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
    if not isinstance(written.get("model_type", ""), str):
        kind = type(written["model_type"]).__name__
        raise InputError(
            f"{checkpoint.id}: config.json has a model_type that is a {kind}; expected a text such as 'llama', correct "
            "it or copy the checkpoint again"
        )
    try:
        with quiet():
            config = AutoConfig.from_pretrained(checkpoint.folder, trust_remote_code=False)  # nosec B615 # local
    except Exception as error:  # the libraries' own checks, and what they do not check
        if "auto_map" in written:
            raise InputError(
                f"{checkpoint.id} needs Python code from its own checkpoint, which this software never runs; "
                "give a model whose architecture transformers knows"
            ) from None
        if isinstance(error, (OSError, ValueError, KeyError)):
            raise InputError(
                f"{checkpoint.id}: architecture {shortened(repr(written.get('model_type')))} cannot be read by the "
                f"installed transformers ({first_line(error)}); update transformers or give another model"
            ) from None
        raise _unusable(checkpoint, error) from None
    # Not for a checkpoint to choose: other weight files than those that are hashed, or attention code from a hub.
    config.transformers_weights = None
    config._attn_implementation = None
    for part in (config, getattr(config, "text_config", None)):
        vars(part or config).pop("quantization_config", None)  # loaded as numbers; `engine.models.loading`
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
        try:
            model: nn.Module = auto.from_config(config)
        except Exception as error:
            raise _unusable(checkpoint, error) from None
    return model


def _unusable(checkpoint: Checkpoint, error: Exception) -> InputError:
    return InputError(
        f"{checkpoint.id}: its config.json describes no model that can be built ({first_line(error)}); expected one as "
        "save_pretrained writes it, correct it or copy the checkpoint again"
    )


def first_line(error: BaseException) -> str:
    """Kind and first line of another library's error, to be quoted in ours; the second too where the first announces
    it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines[: 2 if lines and lines[0].endswith(":") else 1])
    return f"{type(error).__name__}: {shortened(text)}" if lines else type(error).__name__


def shortened(text: str) -> str:
    """At most 240 characters of a text."""
    return text if len(text) <= 240 else f"{text[:240]}…"


_quiet_lock = threading.Lock()
_quiet: list[Callable[[], None]] = []  # what the first of several threads that are quiet at once found, to be restored
_quiet_now = 0


@contextmanager
def quiet() -> Iterator[None]:
    """transformers without its progress bars and notes, and torch without its warnings about odd sizes: what matters
    here is an error, the rest is ours to show. Several threads may be inside: the last one out restores."""
    global _quiet_now
    with _quiet_lock:
        if not _quiet_now:
            _quiet.append(_silence())
        _quiet_now += 1
    try:
        yield
    finally:
        with _quiet_lock:
            _quiet_now -= 1
            if not _quiet_now:
                _quiet.pop()()


def _silence() -> Callable[[], None]:
    """Makes the libraries silent; returns what restores them."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    caught = warnings.catch_warnings()
    caught.__enter__()
    warnings.filterwarnings("ignore", category=UserWarning, module=r"torch|transformers")
    logging.set_verbosity_error()
    logging.disable_progress_bar()

    def restore() -> None:
        caught.__exit__(None, None, None)
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()

    return restore
