"""Models of all tests of refusal editing, loaded once: the shipped one, and a tiny one for runs of every stage."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from refusal_helpers import ThirdJudge, write_pairs
from tiny_models import load_tiny, text

from engine.models.loading import LoadedModel, load_model
from engine.results.store import Store
from engine.run.audit_plan import ScorePlan
from engine.run.refusal_plan import RefusalPlan
from engine.studies.refusal.refusal_inputs import RefusalInputs


@pytest.fixture(scope="session")
def demo() -> LoadedModel:
    return load_model("demo", dtype="float32", device="cpu")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A random Llama of two blocks whose context holds a system prompt byte by byte."""
    loaded = load_tiny("llama", tmp_path_factory.mktemp("tiny"), max_position_embeddings=512)
    loaded.tokenizer.model_max_length = 512
    return loaded


@pytest.fixture
def tiny_run(tiny: LoadedModel, tmp_path: Path) -> Iterator[Callable[..., RefusalInputs]]:
    """A run on the tiny model; random masks of one of two domains only, so that nothing has to be attributed."""
    (tmp_path / "text.txt").write_text(text(), encoding="utf-8")
    plan = RefusalPlan(
        selectors=("random",),
        domains=("mats",),
        pairs=write_pairs(tmp_path / "pairs.jsonl"),
        scoring=ScorePlan(corpus=str(tmp_path / "text.txt"), samples=3, length=16),
        eval_corpus=str(tmp_path / "text.txt"),
        eval_samples=3,
        eval_length=16,
        ks=(0.05, 0.2),
        reply_tokens=6,
        batch_size=64,
        benign_limit=0.7,
        perplexity_factor=50.0,
        longer_replies=1,  # every way is measured with replies of one length
        widen=0,
        steering_coefficients=(0.1, 0.5),
        steering_depths=(0.5,),
    )
    with Store(tmp_path / "store") as store:
        yield lambda **changes: RefusalInputs(tiny, replace(plan, **changes), store, ThirdJudge())


@pytest.fixture
def attributed(tiny_run: Callable[..., RefusalInputs]) -> RefusalInputs:
    """That run with both domains, and masks of a selector that reads prompts beside the random ones."""
    return tiny_run(selectors=("grad_x_input", "random"), domains=("mats", "cups"), lambdas=(0.2, 0.8))
