"""The registry: decorator, entry points, plug-ins that break."""

from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.data.corpora import Windows
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.results.store import Store
from engine.run.audit_plan import ScorePlan
from engine.run.scoring import score_model
from engine.selectors import ScoringRun, available_selectors, base, compute_scores, get_selector, register_selector
from engine.selectors.base import with_needs


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test registers or breaks is forgotten."""
    available_selectors()
    monkeypatch.setattr(base.REGISTRY, "_entries", dict(base.REGISTRY._entries))
    monkeypatch.setattr(base.REGISTRY, "broken", dict(base.REGISTRY.broken))


def test_a_registered_selector_appears_and_works(tiny_llama: LoadedModel, tiny_windows: Windows) -> None:
    @register_selector("norm", title="Weight norm", cost="no pass", data_free=True)
    class Norm:
        """s_i = the Euclidean norm of row i.

        More about it.
        """

        def score(self, run: ScoringRun) -> Tensor:
            return run.per_layer(lambda linear: linear.weight.double().norm(dim=1))

    assert [info.id for info in available_selectors()][-1] == "norm"
    info = get_selector("norm")
    assert (info.title, info.note, info.cost) == ("Weight norm", "s_i = the Euclidean norm of row i.", "no pass")
    scores = compute_scores(tiny_llama, ["norm"], None)["norm"]
    weights = [tiny_llama.model.get_submodule(layer.name).weight for layer in tiny_llama.rows.layers]
    expected = torch.cat([(weight**2).sum(1).sqrt() for weight in weights])
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores, expected, rtol=1e-6, atol=0)


def test_a_selector_can_build_on_others(tiny_llama: LoadedModel, tiny_windows: Windows) -> None:
    @register_selector("mixed")
    class Mixed:
        """s_i = wanda * lrp."""

        def score(self, run: ScoringRun) -> Tensor:
            return run.scores("wanda") * run.scores("lrp")

    scores = compute_scores(tiny_llama, ["mixed", "wanda", "lrp"], tiny_windows)
    assert torch.equal(scores["mixed"], scores["wanda"] * scores["lrp"])


@pytest.mark.parametrize("shape", [(3,), (288, 1), (2, 288)])
def test_scores_of_the_wrong_shape_are_an_error(shape: tuple[int, ...], tiny_llama: LoadedModel) -> None:
    @register_selector("wrong", data_free=True)
    class Wrong:
        def score(self, run: ScoringRun) -> Tensor:
            return torch.zeros(shape)

    with pytest.raises(InputError, match=r"'wrong' gave scores of shape .*; expected \[288\]"):
        compute_scores(tiny_llama, ["wrong"], None)


def test_our_own_cached_numbers_belong_to_a_version() -> None:
    assert get_selector("wanda").cache_id == "wanda/1"

    def register(version: int) -> str:
        @register_selector("one", version=version)
        class One:
            def score(self, run: ScoringRun) -> Tensor:
                return torch.zeros(version)

        return get_selector("one").cache_id

    first = register(1)
    assert first != register(2)
    assert first == register(1)


def test_an_entry_point_registers_by_being_imported(tiny_llama: LoadedModel) -> None:
    class Norm:
        def score(self, run: ScoringRun) -> Tensor:
            return run.per_layer(lambda linear: linear.weight.norm(dim=1))

    class Registering(EntryPoint):
        def load(self) -> object:
            return register_selector("norm", data_free=True)(Norm)

    base.REGISTRY.load_plug_in(Registering(name="norm", value="third_party", group=base.REGISTRY.group))
    assert "norm" in [info.id for info in available_selectors()]
    assert compute_scores(tiny_llama, ["norm"], None)["norm"].shape == (288,)


def test_a_broken_plug_in_is_named_and_takes_nothing_down(tiny_llama: LoadedModel) -> None:
    missing = EntryPoint(name="norm", value="a_module_that_is_not_there", group=base.REGISTRY.group)
    with pytest.warns(UserWarning, match="selector 'norm' is left out: .*a_module_that_is_not_there"):
        base.REGISTRY.load_plug_in(missing)
    assert "ModuleNotFoundError" in base.broken_plug_ins()["norm"]
    with pytest.raises(InputError, match="selector 'norm' cannot be used: .*ModuleNotFoundError"):
        compute_scores(tiny_llama, ["norm"], None)
    assert compute_scores(tiny_llama, ["magnitude"], None)["magnitude"].isfinite().all()


def test_a_composed_selector_is_as_new_as_what_it_is_made_of(tiny_llama: LoadedModel, tmp_path: Path) -> None:
    def register(version: int) -> None:
        @register_selector("part", data_free=True, version=version)
        class Part:
            def score(self, run: ScoringRun) -> Tensor:
                return torch.full((run.rows.n_rows,), float(version))

        @register_selector("whole", data_free=True, needs=("part",))
        class Whole:
            def score(self, run: ScoringRun) -> Tensor:
                return 2 * run.scores("part")

    with Store(tmp_path) as store:
        for version in (1, 2):
            register(version)
            found = score_model(tiny_llama, ScorePlan(selectors=("whole",)), store=store).scores
            assert list(found) == ["whole"]
            assert found["whole"][0] == 2 * version
    assert with_needs(["whole", "part"]) == ["part", "whole"]


def test_kept_parts_serve_the_composed_one(
    tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = ScorePlan(selectors=("lrp", "ig"), corpus=str(tiny_text), samples=3, length=16)
    with Store(tmp_path) as store:
        score_model(tiny_llama, plan, store=store)
        monkeypatch.setattr(ScoringRun, "mean_abs_relevance", lambda *_: pytest.fail("computed again"))
        scored = score_model(tiny_llama, replace(plan, selectors=("consensus2",)), store=store)
    assert list(scored.scores) == ["consensus2"]
