"""The Learn page as a script: steps, answers in the URL, live parts, and what is not there."""

import polars as pl
import pytest
from app_pages import drawn_page, figures
from synthetic import write_run

import precomputed
from dashboard.chat import live
from dashboard.pages.learn.steps import LESSONS
from dashboard.state import shipped_models as shipped

TITLES = [f"{number}. {lesson.title}" for number, lesson in enumerate(LESSONS, 1)]


@pytest.fixture
def own_pool(monkeypatch):
    """Models of one test stay out of the next."""
    monkeypatch.setattr(live, "POOL", live.ModelPool(live._load))


def page(number=1, **parameters):
    return drawn_page("learn", step=TITLES[number - 1], **parameters)


def verdicts(app):
    return [text.value.replace("\\", "") for kind in (app.success, app.warning, app.info) for text in kind]


def hidden(app):
    """Is there the picture without the answer alone, and nothing said about the answer?"""
    titles = [figure["layout"]["title"]["text"].partition("<")[0] for figure in figures(app)]
    return titles == [LESSONS[TITLES.index(app.header[0].value)].ahead] and not verdicts(app)


def guessed(app):
    """The answer that is marked as the visitor's guess."""
    (text,) = [block.value for block in app.markdown if "**Your guess:** " in block.value]
    return text.split("**Your guess:** ")[1]


def guess(app, answer):
    app.radio[0].set_value(answer).run()
    app.button(key="learn-guess").click().run()
    assert not app.exception


def scripts(app):
    return [block.proto.body for block in app.get("html") if "<script>" in block.proto.body]


@pytest.mark.parametrize("number", [1, 2, 3, 5, 6])
def test_every_step_has_a_figure_that_agrees_with_one_answer_only(number):
    app = page(number)
    assert app.header[0].value == TITLES[number - 1]
    agreed = []
    for answer in list(app.radio[0].options):
        # Nothing is shown or said before a guess, and an answer that is only looked at is none.
        assert hidden(app)
        guess(app, "abc"[app.radio[0].options.index(answer)])
        assert app.get("plotly_chart")
        (said,) = verdicts(app)
        if said.startswith("The figure agrees"):
            agreed.append(answer)
        else:
            assert said.startswith("The figure says otherwise: “")
            wrong = said
        app.button(key="learn-again").click().run()
    assert len(agreed) == 1
    assert agreed[0] in wrong


def test_the_picture_before_a_guess_is_of_the_model_as_it_is():
    drawn = {number: figures(page(number))[0] for number in range(1, 7)}
    names = {number: [trace.get("name") for trace in figure["data"]] for number, figure in drawn.items()}
    assert names[1] == ["input", "weight", "output"]
    assert names[2] == names[3] == []  # the axes, and a line for the model with all rows
    assert "log gap" not in str(drawn[4])
    assert names[5] == ["as it is"]
    assert names[6] == ["as it is", "rows zeroed"]  # what the random rows of the question are compared with


def test_the_guess_comes_first_and_can_be_skipped_without_a_verdict():
    app = page(3)
    assert app.button(key="learn-guess").disabled  # nothing is chosen yet
    app.radio[0].set_value("b").run()
    assert hidden(app)
    assert "answers" not in app.query_params
    app.button(key="learn-peek").click().run()
    assert app.get("plotly_chart")
    assert verdicts(app) == []
    app.button(key="learn-guess").click().run()
    assert len(verdicts(app)) == 1
    assert guessed(app) == LESSONS[2].answers["b"]
    assert not app.radio  # a guess is a guess
    app.button(key="learn-again").click().run()
    assert hidden(app)
    assert "answers" not in app.query_params
    assert "0 of 6" in app.get("progress")[0].proto.text


def test_answers_and_step_are_in_the_link_and_come_back():
    app = page(2)
    guess(app, "c")
    assert not scripts(app)
    app.button(key="learn-next").click().run()
    assert app.header[0].value == TITLES[2]
    (script,) = scripts(app)  # the button stands at the foot of the page, the next step begins at its top
    assert "scrollTo" in script
    guess(app, "a")
    assert not scripts(app)
    assert app.query_params["answers"] in ("2c.3a", ["2c.3a"])
    assert app.query_params["step"] in (TITLES[2], [TITLES[2]])
    other = page(2, answers="2c.3a.9z.0a.4c")  # what is no answer is left out: the fourth has two
    assert guessed(other) == LESSONS[1].answers["c"]
    assert "2 of 6" in other.get("progress")[0].proto.text
    other.button(key="learn-next").click().run()
    assert guessed(other) == LESSONS[2].answers["a"]


@pytest.mark.long
@pytest.mark.usefixtures("own_pool")
def test_zeroing_some_now_measures_the_perplexity():
    app = page(2, answers="2a", learn_rate="30%")
    app.button(key="learn-zero-ask").click().run()
    assert not app.exception
    dense, edited, _ = (metric.value for metric in app.metric)
    assert float(edited) > 2 * float(dense)


@pytest.mark.long
@pytest.mark.usefixtures("own_pool")
def test_the_edit_installs_refusal_and_the_control_is_another_mask_of_the_same_size():
    app = page(6, answers="6a", learn_domain="Hate")
    for name in ("learn-real", "learn-control"):
        app.button(key=f"{name}-ask").click().run()
        assert not app.exception
    real = app.session_state["answer-learn-real"].found[-1]
    control = app.session_state["answer-learn-control"].found[-1]
    point = shipped.operating_point("consensus2", "hate")
    assert point is not None
    rows = pl.read_parquet(shipped.demo_results_dir() / "rows.parquet").height
    assert real.rows == control.rows == round(point.k * rows)
    assert real.outcomes["before"].text == control.outcomes["before"].text
    assert real.outcomes["after"].refusal
    assert real.change.edited != control.change.edited


@pytest.mark.parametrize("number", [2, 3, 5, 6])
def test_missing_and_damaged_results_are_one_line_and_the_path_goes_on(tmp_path, monkeypatch, number):
    monkeypatch.setattr(precomputed, "demo_dir", lambda: tmp_path / "nothing")
    app = page(number, answers=f"{number}a")
    assert app.warning[0].value
    assert "\n" not in app.warning[0].value
    folder = tmp_path / "nothing" / "results"
    write_run(folder)
    for stem in ("sweep", "operating_points"):
        (folder / f"{stem}.parquet").write_bytes(b"no table")
    app = page(number, answers=f"{number}a")
    assert app.warning[0].value
    assert guessed(app) == LESSONS[number - 1].answers["a"]
    assert app.button(key="learn-back")
