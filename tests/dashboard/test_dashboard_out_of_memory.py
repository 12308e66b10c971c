"""A live edit that finds no memory: one line on the page, the weights as they were, and the next edit works."""

from pathlib import Path
from typing import Any

import pytest
import torch
from app_pages import replies, run_live_edit
from same_bits import assert_same_bits, bits

from dashboard.chat import edits, effects, fetching, live
from dashboard.show.layout import NOT_DRAWN

LACK = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 5.86 GiB.\nSee documentation")


class Planted:
    """A hook in the last Linear: from `armed` on, the pass of this number finds no memory, and all after it."""

    def __init__(self) -> None:
        self.error: BaseException = LACK
        self.at: int | None = None
        self.passes = 0
        self.loaded: Any = None

    def load(self, model_id: str) -> Any:
        self.loaded = self.real_load(model_id)
        self.loaded.model.model.layers[-1].mlp.down_proj.register_forward_hook(self)
        return self.loaded

    def arm(self, at: int) -> None:
        self.passes, self.at = 0, at

    def __call__(self, *_: Any) -> None:
        self.passes += 1
        if self.at is not None and self.passes > self.at:
            raise self.error

    real_load = staticmethod(live._load)


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Planted:
    """In the model of a pool of this test's own, with a store of its own."""
    found = Planted()
    monkeypatch.setattr(live, "POOL", live.ModelPool(found.load))
    monkeypatch.setenv("SELECTOR_AUDIT_STORE", str(tmp_path))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    from tiny_models import save_tiny

    return str(save_tiny("llama", tmp_path_factory.mktemp("memory"), max_position_embeddings=512))


def clicked(app: Any) -> Any:
    return app.button(key="run").click().run()


def warnings(app: Any) -> list[str]:
    assert not app.exception
    return [warning.value.replace("\\", "") for warning in app.warning]


def goes_on(app: Any, planted: Planted, before: dict[str, Any]) -> None:
    """Nobody holds the model, its weights are whole, and with room the same edit shows its replies."""
    assert [entry.users for entry in live.POOL._entries.values()] == [0]
    assert planted.loaded.lock.acquire(timeout=1)
    planted.loaded.lock.release()
    assert_same_bits(planted.loaded.model, before)
    planted.at = None
    clicked(app)
    assert warnings(app) == []
    first, second, *_ = replies(app)
    assert first.strip()
    assert first != second


# Passes of a reply: its margins first, then the prompt, then one for every token; last the margins along it.
@pytest.mark.long
@pytest.mark.parametrize(
    ("at", "more"),
    [(0, {}), (1, {}), (7, {}), (21, {"shade": "Margin"})],
    ids=["margins", "prompt", "a token", "margins along"],
)
def test_replies_without_memory_are_one_line(
    planted: Planted, folder: str, monkeypatch: pytest.MonkeyPatch, at: int, more: dict[str, str]
) -> None:
    real, before = live.replies, {}

    def armed(*given: Any, **settings: Any) -> Any:
        if not before:
            before.update(bits(planted.loaded.model))
            planted.arm(at)
        return real(*given, **settings)

    monkeypatch.setattr(live, "replies", armed)
    monkeypatch.setattr(effects, "PAIRS", 1)
    app = clicked(run_live_edit(folder, prompt="The cat sat.", **more))
    (line,) = warnings(app)
    assert line.startswith("out of memory")
    assert "\n" not in line
    assert NOT_DRAWN not in line
    goes_on(app, planted, before)


@pytest.mark.long
@pytest.mark.parametrize("selector", ["Wanda", "Magnitude"])
def test_scores_and_the_effect_on_refusal_without_memory_are_one_line(
    planted: Planted, folder: str, monkeypatch: pytest.MonkeyPatch, selector: str
) -> None:
    """Wanda reads text for its scores; Magnitude does not, and the first passes are then the effect's."""
    real_load, before = planted.load, {}

    def load(model_id: str) -> Any:
        loaded = real_load(model_id)
        before.update(bits(loaded.model))
        planted.arm(0)
        return loaded

    monkeypatch.setattr(live.POOL, "_load", load)
    monkeypatch.setattr(effects, "PAIRS", 1)
    monkeypatch.setattr(edits, "CALIBRATION_WINDOWS", 4)
    app = clicked(run_live_edit(folder, prompt="The cat sat.", rank_selector=selector))
    (line,) = warnings(app)
    assert line.startswith("out of memory")
    assert "\n" not in line
    goes_on(app, planted, before)


def test_a_model_that_does_not_fit_is_one_line(planted: Planted, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: str) -> Any:
        raise MemoryError

    monkeypatch.setattr(live.POOL, "_load", fails)
    app = clicked(run_live_edit(folder, prompt="The cat sat."))
    assert warnings(app) == [f"{fetching.NO_MEMORY} (MemoryError); use a shorter prompt or reply, or a smaller model"]


def test_other_failures_are_not_taken_for_it(planted: Planted, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: str) -> Any:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied (3x4 and 5x6)")

    monkeypatch.setattr(live.POOL, "_load", fails)
    (exception,) = clicked(run_live_edit(folder, prompt="The cat sat.")).exception
    assert "mat1 and mat2" in exception.message
