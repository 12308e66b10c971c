"""The Learn page as a script: steps, answers in the URL, live parts, and what is not there."""

import pytest
from streamlit.testing.v1 import AppTest
from synthetic import add_table, stability, write_run
from test_dashboard_lessons import gaps

import precomputed
from dashboard.chat import live
from dashboard.pages.learn.texts import LESSONS
from dashboard.state import shipped

TITLES = [f"{number}. {lesson.title}" for number, lesson in enumerate(LESSONS, 1)]


@pytest.fixture
def own_pool(monkeypatch):
    """Models of one test stay out of the next."""
    monkeypatch.setattr(live, "POOL", live.ModelPool(live._load))


def page(number=1, **parameters):
    def script():
        from dashboard.pages.learn import page as learn

        learn.render()

    app = AppTest.from_function(script, default_timeout=120)
    app.query_params["step"] = TITLES[number - 1]
    for name, value in parameters.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception
    return app


def verdicts(app):
    return [text.value.replace("\\", "") for kind in (app.success, app.warning, app.info) for text in kind]


@pytest.mark.parametrize("number", [1, 2, 3, 5, 6])
def test_every_step_has_a_figure_that_agrees_with_one_answer_only(number):
    app = page(number)
    assert app.subheader[0].value == TITLES[number - 1]
    assert app.get("plotly_chart")
    assert verdicts(app) == []  # nothing is said before an answer
    agreed = []
    for answer in app.radio[0].options:
        index = app.radio[0].options.index(answer)
        app.radio[0].set_value("abc"[index]).run()
        assert not app.exception
        (said,) = verdicts(app)
        if said.startswith("The figure agrees"):
            agreed.append(answer)
        else:
            assert said.startswith("The figure says otherwise: “")
            wrong = said
    assert len(agreed) == 1
    assert agreed[0] in wrong


def test_answers_and_step_are_in_the_link_and_come_back():
    app = page(2)
    app.radio[0].set_value("c").run()
    app.button(key="learn-next").click().run()
    assert app.subheader[0].value == TITLES[2]
    app.radio[0].set_value("a").run()
    assert app.query_params["answers"] in ("2c.3a", ["2c.3a"])
    assert app.query_params["step"] in (TITLES[2], [TITLES[2]])
    other = page(2, answers="2c.3a.9z.0a.4c")  # what is no answer is left out: the fourth has two
    assert other.radio[0].value == "c"
    assert "2 of 6" in other.get("progress")[0].proto.text
    other.button(key="learn-next").click().run()
    assert other.radio[0].value == "a"


def test_the_first_and_the_last_step_lead_one_way_only():
    assert page(1).button(key="learn-back").disabled
    assert page(6).button(key="learn-next").disabled


def test_a_zeroed_row_and_another_matrix_are_drawn():
    app = page(1, learn_block="3", learn_projection="down_proj", learn_row="7")
    alt = app.get("plotly_chart")[0].proto.alt
    assert alt.startswith("Weights of down_proj in block 3: 128 rows of 384 numbers, row 7 framed")
    app.toggle(key="learn_zeroed").set_value(True).run()
    assert "row 7 zeroed" in app.get("plotly_chart")[0].proto.alt


def test_another_matrix_with_fewer_rows_than_the_chosen_one_still_opens():
    app = page(1, learn_projection="gate_proj", learn_row="380")
    assert "row 380" in app.get("plotly_chart")[0].proto.alt
    app.selectbox(key="learn_projection").set_value("k_proj").run()
    assert not app.exception
    assert app.number_input(key="learn_row").value < 64


@pytest.mark.usefixtures("own_pool")
def test_zeroing_some_now_measures_the_perplexity():
    app = page(2, learn_rate="30%")
    app.button(key="learn-zero-run").click().run()
    assert not app.exception
    dense, edited, _ = (metric.value for metric in app.metric)
    assert float(edited) > 2 * float(dense)


@pytest.mark.usefixtures("own_pool")
def test_the_edit_installs_refusal_and_the_control_is_another_mask_of_the_same_size():
    app = page(6, learn_domain="Hate")
    for name in ("learn-real", "learn-control"):
        app.button(key=f"{name}-run").click().run()
        assert not app.exception
    real = app.session_state["trial-learn-real"]
    control = app.session_state["trial-learn-control"]
    point = shipped.operating_point("consensus2", "hate")
    assert point is not None
    assert real.rows == control.rows == round(point.k * 7680)
    assert real.outcomes["before"].text == control.outcomes["before"].text
    assert real.outcomes["after"].refusal
    assert real.change.edited != control.change.edited


@pytest.fixture
def other_results(tmp_path, monkeypatch):
    """Made-up results in the place of the shipped ones."""
    folder = tmp_path / "demo" / "results"
    write_run(folder)
    monkeypatch.setattr(precomputed, "demo_dir", lambda: tmp_path / "demo")
    return folder


def test_stability_that_was_not_measured_says_what_to_run(other_results):
    app = page(4, answers="4b")
    said = verdicts(app)
    assert any("Not measured yet" in text and "analyze demo stability gap" in text for text in said)
    assert any("nothing can be settled" in text for text in said)


def test_stability_and_gap_settle_the_question_once_they_are_there(other_results):
    add_table(other_results, "stability", stability({"lrp": 0.95, "wanda": 0.999}))
    add_table(other_results, "gap", gaps({"lrp": 6.0, "wanda": 0.3}))
    app = page(4, answers="4b")
    (said,) = verdicts(app)
    assert said.startswith("The figure agrees")
    assert "Wanda has the smallest: 0.30 nats at Spearman 0.999" in said
    assert "Wanda 1.00 and 0.30 nats" in app.get("plotly_chart")[0].proto.alt


@pytest.mark.parametrize("number", [2, 3, 5, 6])
def test_missing_and_damaged_results_are_one_line_and_the_path_goes_on(tmp_path, monkeypatch, number):
    monkeypatch.setattr(precomputed, "demo_dir", lambda: tmp_path / "nothing")
    app = page(number)
    assert app.warning[0].value
    assert "\n" not in app.warning[0].value
    folder = tmp_path / "nothing" / "results"
    write_run(folder)
    for stem in ("sweep", "operating_points"):
        (folder / f"{stem}.parquet").write_bytes(b"no table")
    app = page(number)
    assert app.warning[0].value
    assert app.radio[0].options
    assert app.button(key="learn-back")
