"""What people call a model: a local folder by its own name. Its whole path stays in the manifest and in commands."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any


def model_name(model: Mapping[str, Any]) -> str:
    """The name for tables, titles and reports, from a manifest's entry of the model: a hub model's id (it has a
    revision), a local folder's name, and how its weights were packed, if they were: `tiny (from Q4_1)`."""
    given = str(model.get("id") or "unknown model")
    name = given if model.get("revision") else PurePath(given).name or given
    return f"{name} (from {model['dequantized_from']})" if model.get("dequantized_from") else name


def model_to_type(model: Mapping[str, Any]) -> str:
    """What a command takes for the model where its folder is not to be told: MODEL for a local one, else its id."""
    given = str(model.get("id") or "MODEL")
    return given if model.get("revision") or PurePath(given).name == given else "MODEL"
