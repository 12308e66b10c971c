"""The measured record of an edit that changes nothing, for tests of what is written and not of what an edit does."""

from typing import Any

from engine.edits.edit_effect import Change, Effect


def harmless(weights_hash: str, mask_hash: str, *args: Any, **more: Any) -> Effect:
    """120 shipped prompts, of which ten are refused, and the same perplexity, before and after."""
    return Effect(
        weights_hash, mask_hash, *args, **{"shipped": {"hate": Change(120, 10, 10)}, "nats": (3.0, 3.0)} | more
    )
