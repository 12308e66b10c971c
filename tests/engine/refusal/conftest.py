"""The shipped model, loaded once for all tests of refusal editing."""

from __future__ import annotations

import pytest

from engine.models.loading import LoadedModel, load_model


@pytest.fixture(scope="session")
def demo() -> LoadedModel:
    return load_model("demo", dtype="float32", device="cpu")
