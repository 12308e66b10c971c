"""Model repositories that hold something else than safetensors with a configuration: what they are, and what to do."""

from collections.abc import Collection
from pathlib import Path

from engine.records import bounds
from engine.records.errors import InputError

ADAPTER = "adapter_config.json"
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")
_NO_WEIGHTS = ("training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth")  # a Trainer's own files


def explained(model_id: str, names: Collection[str], adapter: Path | None = None) -> InputError | None:
    """The error for a repository or folder with these files (paths within it), None where nothing is known to be wrong
    with it; an adapter beside whole weights, which may or may not have it in them, is one too. adapter: its
    `adapter_config.json` where that is here."""
    files = sorted(Path(name).name for name in names)
    whole = [name for name in files if name.endswith(".safetensors") and not name.startswith("adapter_")]
    if ADAPTER in files:
        if whole and "config.json" in files:
            return InputError(f"{model_id} holds an adapter beside its weights; merge it first, or remove the adapter")
        return InputError(
            f"{model_id} is an adapter without its base model{_base(adapter)}; "
            "merge it into the base model (peft: merge_and_unload), save the result, and give that folder"
        )
    if whole:
        return None
    pickles = [name for name in files if name.endswith(_PICKLES) and name not in _NO_WEIGHTS]
    if pickles:
        return InputError(
            f"{model_id} has its weights only as {pickles[0]}, which this software does not load (pickle can run "
            "code); save it once as safetensors, model.save_pretrained(FOLDER), and give FOLDER"
        )
    return None


def _base(adapter: Path | None) -> str:
    try:
        content = bounds.json_of(adapter) if adapter else {}
    except (OSError, ValueError, RecursionError):
        content = {}
    base = content.get("base_model_name_or_path") if isinstance(content, dict) else None
    return f" {base}" if isinstance(base, str) and base else ""
