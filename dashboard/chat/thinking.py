"""What a model's chat template knows of thinking, as far as that can be told without loading the model."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from dashboard.chat import live

VARIABLE = "enable_thinking"  # what a chat template asks
_FILES = ("chat_template.jinja", "tokenizer_config.json")


class Switch(NamedTuple):
    """there: can thinking be turned on and off? None where nobody can tell before the model is loaded.

    said: how the model thinks where it cannot, in words; "" for one that is not known to think.
    """

    there: bool | None
    said: str = ""


def switch_of(model_id: str) -> Switch:
    """Of a model in memory by its template, which is tried; of one on this machine by what its template names."""
    tokenizer = live.POOL.tokenizer(model_id)
    if tokenizer is not None:
        from engine.data.prompts import has_thinking_switch, thinking_mode

        there = has_thinking_switch(tokenizer)
        return Switch(there, "" if there else thinking_mode(tokenizer))
    if model_id == live.DEMO:  # loaded as the app starts; its template is ours and has none
        return Switch(False)
    texts = [text for name in _FILES if (text := _text(model_id, name)) is not None]
    return Switch(any(VARIABLE in text for text in texts) if texts else None)


def _text(model_id: str, name: str) -> str | None:
    """A file of a model's folder, or of what was downloaded of it."""
    path = Path(model_id) / name if Path(model_id).is_dir() else _downloaded(model_id, name)
    try:
        return None if path is None else path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _downloaded(model_id: str, name: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = try_to_load_from_cache(model_id, name)
    except HFValidationError:  # no id, or not yet
        return None
    return Path(found) if isinstance(found, str) else None
