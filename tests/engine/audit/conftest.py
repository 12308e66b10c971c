"""What audits of tiny models share."""

from collections.abc import Iterator
from typing import Any

import pytest

from engine.models.loading import LoadedModel


@pytest.fixture
def scored_windows(tiny_llama: LoadedModel) -> Iterator[list[int]]:
    """Windows in every scoring pass (which embed their tokens themselves)."""
    counts: list[int] = []

    def count(_: Any, __: Any, given: dict[str, Any], ___: Any) -> None:
        if given.get("inputs_embeds") is not None:
            counts.append(len(given["inputs_embeds"]))

    handle = tiny_llama.model.register_forward_hook(count, with_kwargs=True)
    yield counts
    handle.remove()
