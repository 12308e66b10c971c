"""What the app asks of an edit before it shows a reply under it: a record that it does not lower refusal."""

import json
from dataclasses import replace
from functools import partial
from urllib.parse import parse_qs

import numpy as np
import polars as pl
import pytest
from app_pages import run_page, shown_command
from streamlit.testing.v1 import AppTest

from dashboard.chat import answers, edits, effects, live, shipped_effects, tries
from dashboard.pages.live import settings as live_settings
from dashboard.state import shipped_models as shipped
from engine.edits.contrasts import Contrast, edit_from_contrast, refusal_mask
from engine.edits.edit import edit_of
from engine.edits.edit_effect import total
from engine.records.errors import InputError
from engine.results.folders import write_tables
from engine.studies.refusal import effect as measuring, operating_point as recorded
from engine.studies.refusal.algorithm import write_contrasts
from engine.studies.refusal.operating_point import recorded_effect

SPEC = {
    "pairs": {"hate": {"pairs": 40, "sha256": "a", "source": "mine.jsonl"}},
    "lm_scores": {"corpus": "mine", "samples": 4, "length": 8},
    "batch_size": 16,
    "random_seed": 42,
}
GRID_SPEC = SPEC | {"judge": "embedded", "judge_version": "1", "reply_tokens": 20, "benign_limit": 0.1}
N, LAM = 40, 0.5
CELLS = {0.01: (0.6, 0.05), 0.05: (0.1, 0.0), 0.1: (0.7, 0.2)}  # k -> malign, benign; as it is 0.3 and 0.05


@pytest.fixture(autouse=True)
def nothing_recorded(monkeypatch):
    """Everything is measured here."""
    monkeypatch.setattr(shipped_effects, "FILES", {})


@pytest.fixture(scope="module")
def demo():
    return live.Entry(live._load(live.DEMO))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    from tiny_models import save_tiny

    return str(save_tiny("llama", tmp_path_factory.mktemp("own"), max_position_embeddings=512))


@pytest.fixture
def entry(model):
    return live.Entry(live._load(model))


@pytest.fixture
def run(entry, tmp_path):
    """A refusal run of the tiny model: contrasts, and a grid of three cells of one domain and selector."""
    loaded, n = entry.loaded, entry.loaded.rows.n_rows
    generator = np.random.default_rng(0)
    contrast = Contrast("lrp", "hate", *(generator.random(n, dtype=np.float32) for _ in range(2)))
    write_contrasts(tmp_path, loaded, [contrast], SPEC, 1.0)
    write_grid(tmp_path, loaded)
    return tmp_path


def write_grid(folder, loaded, spec=GRID_SPEC):
    n = loaded.rows.n_rows
    rows = [(loaded.id, "lrp", "hate", 0.0, 0.0, 0, 0.3, N, 0.05, N, 2.0, True)]
    rows += [
        (loaded.id, "lrp", "hate", LAM, k, round(k * n), malign, N, benign, N, 2.1, benign <= 0.1)
        for k, (malign, benign) in CELLS.items()
    ]
    names = "model selector domain lambda k rows_removed malign malign_n benign benign_n nll feasible"
    frame = pl.DataFrame(rows, schema=names.split(), orient="row").with_columns(perplexity=pl.col("nll").exp())
    write_tables(folder, {"refusal_sweep": frame}, loaded.fingerprint, spec, 1.0)


def own(folder, k):
    return edits.Edit("refusal", "lrp", domain="hate", lam=LAM, k=k, run=str(folder))


def checked(entry, edit):
    mask = edits.mask_of(entry, edit, quiet)
    return effects.checked_effect(entry, mask, edit, quiet)


def quiet(*_):
    pass


def never(*_):
    raise AssertionError("no pairs were to be asked")


def test_a_cell_of_the_shipped_grid_is_shown_by_its_record_and_the_shipped_prompts(demo, monkeypatch):
    monkeypatch.setattr(measuring, "asked_pairs", never)
    demo.effects.clear()
    point = shipped.operating_point("lrp", "hate")
    found = checked(demo, edits.Edit("refusal", "lrp", domain="hate", lam=point.lam, k=point.k))
    grid = pl.read_parquet(shipped.demo_results_dir() / "refusal_sweep.parquet").filter(selector="lrp", domain="hate")
    [before] = grid.filter(k=0)["malign"]
    [after] = grid.filter(k=point.k).filter(pl.col("lambda") == point.lam)["malign"]
    change = found.malign["hate"]
    assert (change.before / change.n, change.after / change.n) == (before, after)
    general = total(found.shipped)
    assert general.n >= 100
    assert general.after > general.before
    assert effects.in_words(found) == (
        f"With this edit the model refuses {general.after} of {general.n} shipped risk prompts, "
        f"{general.before} before it; {change.after} of 64 risk prompts, {change.before} before it; "
        f"{found.benign['hate'].after} of 64 base prompts, {found.benign['hate'].before} before it."
    )


# Weak points that refuse more in their own domain and less over all five.
LOWERED = {("mean_activation", "hate"), ("mean_activation", "legal")}


@pytest.mark.parametrize(
    "selector",
    ["lrp", *(pytest.param(one, marks=pytest.mark.long) for one in ("ig", "consensus2", "mean_activation", "random"))],
)
def test_every_shipped_operating_point_has_its_record(demo, monkeypatch, selector):
    monkeypatch.setattr(measuring, "asked_pairs", never)
    for domain in edits.DOMAINS:
        point = shipped.operating_point(selector, domain)
        if point is not None and (selector, domain) in LOWERED:
            with pytest.raises(InputError, match="shipped prompts, all"):
                checked(demo, edits.Edit("refusal", selector, domain=domain, lam=point.lam, k=point.k))
        elif point is not None:
            checked(demo, edits.Edit("refusal", selector, domain=domain, lam=point.lam, k=point.k))


@pytest.mark.long
def test_an_edit_that_lowers_refusal_is_measured_and_not_shown(demo, tmp_path, monkeypatch):
    monkeypatch.setenv("SELECTOR_AUDIT_STORE", str(tmp_path / "store"))
    demo.effects.clear()
    honest = shipped.demo_contrasts()["lrp", "hate"]
    mask = refusal_mask(replace(honest, c_comply=-honest.c_comply), 0.8, 0.05)
    with pytest.raises(InputError, match=r"lowers refusal of risk prompts: .* another rate, order or selector"):
        effects.checked_effect(demo, mask, None, quiet)
    monkeypatch.setattr(effects, "_measured", never)  # known now, for as long as the model is in memory
    with pytest.raises(InputError, match="lowers refusal"):
        effects.checked_effect(demo, mask, None, quiet)


@pytest.mark.long
def test_a_broken_model_is_shown_and_called_so_without_asking_it(demo, tmp_path, monkeypatch):
    monkeypatch.setenv("SELECTOR_AUDIT_STORE", str(tmp_path / "store"))
    monkeypatch.setattr(measuring, "shipped_effect", never)
    now = tries.Try(tries.Request("demo", edits.Edit("language model", "magnitude", order="morf", rate=0.5), "Hi", 4))
    for removed in tries.batches(now, demo, now.request.sides, quiet):
        for event in tries.replies(now, demo, removed):
            live.keep(event, now.texts, now.outcomes)
    assert now.effect.startswith("BROKEN: its perplexity on text is ")
    assert "perplexity" in now.why_broken(now.outcomes["after"])
    assert not now.why_broken(now.outcomes["before"])
    assert tries.record(now)["replies"]["after"]["broken"] == now.broken


def test_ticked_rows_and_rates_are_measured_and_a_control_is_not(entry, monkeypatch):
    asked = []
    real = effects._measured
    monkeypatch.setattr(effects, "_measured", lambda *some: asked.append(some[1].kind) or real(*some))
    request = answers.Request(entry.loaded.id, "rows", lambda *_: np.arange(3), "The cat sat.", 2)

    def script(request):
        from dashboard.chat import answers

        answers.trial("here", "Go", request)

    for one, count in ((request, 1), (replace(request, control=True), 1)):
        app = AppTest.from_function(script, args=(one,), default_timeout=120).run()
        app.button(key="here-ask").click().run()
        assert not app.exception
        assert not app.warning
        assert len(asked) == count


def test_a_measurement_tells_of_every_pass_and_ends_at_the_next_one(entry, tmp_path, monkeypatch):
    monkeypatch.setattr(effects, "_TELL_S", 0.0)
    monkeypatch.setenv("SELECTOR_AUDIT_STORE", str(tmp_path / "store"))
    mask, told = np.arange(3), []
    effects.checked_effect(entry, mask, None, lambda *some: told.append(some))
    words = {some[0].rpartition(", ")[0] for some in told}
    assert words == {f"Measuring what this edit does to {what}" for what in ("text", "refusal")}
    reply_tokens = measuring.REPLY_TOKENS
    assert len(told) > reply_tokens  # a word for each token of the replies

    class Stopped(BaseException):
        """What Streamlit raises to end a script run."""

    def stop(*_):
        count.append(None)
        if len(count) == reply_tokens:
            raise Stopped

    count = []
    entry.effects.clear()
    with pytest.raises(Stopped):
        effects.checked_effect(entry, np.arange(5), None, stop)
    assert len(count) == reply_tokens
    assert not any(module._forward_hooks for module in entry.loaded.model.modules())


def test_the_grid_of_a_run_is_the_record_of_its_cells(entry, run, monkeypatch):
    monkeypatch.setattr(measuring, "asked_pairs", never)
    found = checked(entry, own(run, 0.01))
    assert (found.malign["hate"], found.benign["hate"]) == ((N, 12, 24), (N, 2, 2))
    assert "judge embedded 1, reply tokens 20" in found.asked()
    with pytest.raises(InputError, match=r"lowers refusal of risk prompts: hate 4 of 40, without it 12"):
        checked(entry, own(run, 0.05))
    with pytest.raises(InputError, match=r"more than 10% of harmless base prompts: hate 8 of 40"):
        checked(entry, own(run, 0.1))


def record(entry, run, **other):
    loaded = entry.loaded
    rows, weights = loaded.rows.n_rows, loaded.weights_hash
    edit = edit_from_contrast(run / "contrast.safetensors", "lrp", "hate", LAM, other.pop("k", 0.01), rows, weights)
    if "mask" in other:
        edit = edit_of(other.pop("mask"), rows, kind="refusal", spec=edit.spec)
    return recorded_effect(run, edit, **{"weights_hash": weights, "dtype": loaded.dtype} | other)


def test_a_record_of_something_else_is_none(entry, run):
    assert record(entry, run) is not None
    assert record(entry, run, k=0.02) is None
    assert record(entry, run, weights_hash="another") is None
    assert record(entry, run, dtype="bfloat16") is None
    assert record(entry, run, mask=[1, 2]) is None  # another number of rows than the cell's
    more = GRID_SPEC | {"pairs": SPEC["pairs"] | {"crime": {"pairs": 9}}}
    write_grid(run, entry.loaded, more)  # a grid of one more domain
    assert record(entry, run) is not None
    for field, value in (("pairs", {"hate": {"sha256": "b"}}), ("pairs_left_out", {"hate": 1}), ("random_seed", 1)):
        write_grid(run, entry.loaded, GRID_SPEC | {field: value})
        assert record(entry, run) is None, field
    (run / f"{recorded.GRID}.parquet").unlink()
    assert record(entry, run) is None


def test_contrasts_of_another_model_are_refused(demo, entry, run):
    with pytest.raises(InputError, match="was calibrated on weights"):
        edits.mask_of(demo, own(run, 0.01), quiet)
    with pytest.raises(InputError, match="needs pairs of prompts for it; run `selector-audit refusal run"):
        edits.mask_of(entry, edits.Edit("refusal", "lrp", domain="hate", lam=LAM, k=0.01), quiet)


page = partial(run_page, "live", edit_model="Another model", prompt="The cat sat.", length="20")


def captions(app):
    return " ".join(caption.value for caption in app.caption).replace("\\", "")


@pytest.mark.long
def test_ones_own_model_is_edited_by_the_cells_of_its_own_run(model, entry, run):
    app = page(edit_model_id=model)
    assert app.button(key="run").disabled  # no run is named yet
    assert "refusal run" in shown_command(app)
    app.text_input(key="edit_run").set_value(str(run)).run()
    assert not app.exception
    cell = app.selectbox(key="run_cell")
    assert cell.options == ["λ 0.5, k 1%", "λ 0.5, k 5%", "λ 0.5, k 10%"]  # those within the limit first
    assert "refuses 60.0% of the risk prompts and 5.0% of the base prompts, without it 30.0% and 5.0%" in captions(app)
    app.button(key="run").click().run()
    assert not app.exception
    assert not app.warning
    assert "24 of 40 risk prompts, 12 before it" in captions(app)
    assert app.session_state["live-shown"].complete

    app.selectbox(key="run_cell").set_value("λ 0.5, k 5%").run()
    app.button(key="run").click().run()
    assert "lowers refusal of risk prompts" in app.warning[0].value.replace("\\", "")
    assert list(app.session_state["live-shown"].outcomes) == ["before"]  # which is there at once
    app.selectbox(key="reopen").set_value(app.selectbox(key="reopen").options[0]).run()
    assert not app.exception
    assert app.selectbox(key="run_cell").value == "λ 0.5, k 1%"


def test_a_folder_without_a_grid_says_what_to_do(model, tmp_path):
    app = page(edit_model_id=model, edit_run=tmp_path)
    assert not app.exception
    assert "refusal sweep" in app.warning[0].value.replace("\\", "")
    assert app.button(key="run").disabled


def test_the_refusal_page_links_to_the_cell_of_a_run(entry, run):
    def script():
        import streamlit as st

        from dashboard.pages.refusal import refusal_page as page
        from dashboard.show import menu

        pages = {"Behaviour": [st.Page(page.render, title="Refusal", default=True)]}
        pages["Try it"] = [st.Page(lambda: None, title="Live edit", url_path="live")]
        shown = st.navigation(pages, position="hidden")
        menu.show(pages, shown)
        shown.run()

    app = AppTest.from_function(script, default_timeout=120)
    app.query_params["source"], app.query_params["folder"] = "My results", str(run)
    app.run()
    assert not app.exception
    assert not app.get("link_button")  # which opens another tab with a session of its own
    (link,) = (one.proto for one in app.get("page_link") if one.proto.label == "Try this edit live")
    assert link.page == "live"
    assert not link.external
    (handed,) = parse_qs(link.query_string)[edits.HANDED]
    assert json.loads(handed)["run"] == str(run)
    there = page(edit=handed)
    assert not there.exception
    assert edits.HANDED not in there.query_params
    assert there.text_input(key="edit_run").value == str(run)
    assert there.selectbox(key="edit_model").value == "Another model"
    given = json.loads(handed)
    assert there.selectbox(key="run_cell").value == edits.cell_name(given["lambda"], given["k"])


CRIME = {"selector": "ig", "domain": "crime", "lambda": 0.8, "k": 0.1}


@pytest.mark.parametrize(
    "text", ["", "[]", "1", "{", '{"k": 1}', json.dumps(CRIME | {"k": 0.33}), json.dumps(CRIME | {"domain": "x"})]
)
def test_what_is_no_edit_in_a_link_is_left_out(text):
    app = shipped_page(edit=text)
    assert not app.exception
    assert app.selectbox(key="domain").value == "hate"


def test_random_rows_of_the_shipped_grid_are_taken_over_whatever_protects_them():
    """Their cells have lambda 0 and are handed over with the folder of their run."""
    given = {"selector": "random", "domain": "crime", "lambda": 0.0, "k": 0.04, "model": "demo", "run": "/shipped"}
    app = shipped_page(edit=json.dumps(given))
    assert not app.exception
    assert (app.selectbox(key="domain").value, app.selectbox(key="edit_selector").value) == ("crime", "random")
    assert app.select_slider(key="k").value == 0.04


def test_an_edit_in_a_link_is_taken_over_once():
    app = shipped_page(edit=json.dumps(CRIME))
    assert not app.exception
    assert (app.selectbox(key="domain").value, app.selectbox(key="edit_selector").value) == ("crime", "ig")
    assert (app.select_slider(key="lambda").value, app.select_slider(key="k").value) == (0.8, 0.1)
    app.selectbox(key="domain").set_value("legal").run()
    assert app.selectbox(key="domain").value == "legal"


shipped_page = partial(run_page, "live")


@pytest.mark.parametrize(("sliders", "lam"), [(False, 0.2), (True, 0.7)])
def test_a_link_keeps_its_cell_also_after_another_one(monkeypatch, sliders, lam):
    """A change of domain on the page itself starts from that domain's measured point."""
    point = shipped.OperatingPoint(0.7, 0.02, 0.1, 0.9, 40)
    state = {live_settings._POINT_OF: ("demo", "lrp", "hate")} | ({"lambda": 0.2, "k": 0.01} if sliders else {})
    monkeypatch.setattr(live_settings.st, "session_state", state)
    live_settings._follow(point, ("demo", "lrp", "crime"))
    assert state.get("lambda", 0.2) == lam
