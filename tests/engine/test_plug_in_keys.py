"""What cached numbers of a plug-in are good for: its module's file and its distribution's version."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch

from engine.edits.edit import UNEDITED, edit_of
from engine.interventions.kinds import INTERVENTIONS
from engine.judges.refusals import Refusals
from engine.measures.replies import Replies
from engine.models.loading import LoadedModel
from engine.records.hashing import distributions_of, installed_version
from engine.results.store import Store
from engine.run.audit_plan import ScorePlan
from engine.run.runner import Cell
from engine.run.scoring import score_model
from engine.selectors.base import REGISTRY, get_selector

PLUG_IN = dedent('''
    """All that a distribution can bring, and a helper outside the classes."""

    from dataclasses import dataclass

    from engine import Intervention, register_intervention, register_selector

    FACTOR = 1.0

    @register_selector("colour")
    class Colour:
        def score(self, run):
            return run.per_layer(lambda linear: FACTOR * linear.weight.norm(dim=1))

    @register_intervention("pale")
    class Pale(Intervention):
        def apply(self, output, units, layer):
            return output * FACTOR

    class Judge:
        id, version = "colour", "1"

    @dataclass(frozen=True)
    class Brightness:
        kind = "brightness"

        def record(self, loaded):
            return {}
''')


DATA_FREE = 'r("colour", data_free=True)'


def forget() -> None:
    """As a new process would."""
    distributions_of.cache_clear()
    installed_version.cache_clear()


class PlugIn:
    """A distribution in a folder on the path, whose module can be changed and imported anew."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.release("1.0")

    def release(self, version: str) -> None:
        info = self.folder / "colours-1.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: colours\nVersion: {version}\n")
        (info / "top_level.txt").write_text("colours\n")
        forget()

    def load(self, source: str) -> Any:
        (self.folder / "colours.py").write_text(source)
        sys.modules.pop("colours", None)
        REGISTRY.remove("colour")
        INTERVENTIONS.remove("pale")
        importlib.invalidate_caches()
        return importlib.import_module("colours")


@pytest.fixture
def plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield PlugIn(tmp_path)
    sys.modules.pop("colours", None)
    REGISTRY.remove("colour")
    INTERVENTIONS.remove("pale")
    forget()


def selector(loaded: LoadedModel, module: Any) -> str:
    return get_selector("colour").cache_id


def intervention(loaded: LoadedModel, module: Any) -> str:
    return Cell(loaded, edit_of([1], loaded.rows.n_rows, intervention="pale"), Replies(("Hi.",), 4, 2)).key


def measure(loaded: LoadedModel, module: Any) -> str:
    return Cell(loaded, UNEDITED, module.Brightness()).key


def judge(loaded: LoadedModel, module: Any) -> str:
    return Cell(loaded, UNEDITED, Refusals(Replies(("Hi.",), 4, 2), module.Judge())).key


@pytest.mark.parametrize("key", [selector, intervention, measure, judge])
def test_another_file_or_another_release_is_computed_anew(
    tiny_llama: LoadedModel, plug_in: PlugIn, key: Callable[[LoadedModel, Any], str]
) -> None:
    def now(source: str = PLUG_IN) -> str:
        return key(tiny_llama, plug_in.load(source))

    first = now()
    assert now() == first
    helper = now(PLUG_IN.replace("FACTOR = 1.0", "FACTOR = 2.0"))  # no class has changed
    assert helper != first
    assert now() == first
    plug_in.release("1.1")
    assert now() not in (first, helper)


def test_no_old_scores_are_served_after_a_constant_has_changed(
    tiny_llama: LoadedModel, plug_in: PlugIn, tmp_path: Path
) -> None:
    found = []
    with Store(tmp_path / "store") as store:
        for factor in ("1.0", "2.0", "1.0"):
            plug_in.load(PLUG_IN.replace("FACTOR = 1.0", f"FACTOR = {factor}").replace('r("colour")', DATA_FREE))
            plan = ScorePlan(selectors=("colour",), corpus="unused", samples=1, length=2)
            found.append(score_model(tiny_llama, plan, store=store).scores["colour"])
        assert len(list((tmp_path / "store" / "arrays").iterdir())) == 2  # the third time they were known
    assert torch.equal(found[1], 2 * found[0])
    assert torch.equal(found[2], found[0])
