"""Judges on folders that the real command wrote: numbers by hand and by scipy; full, empty, damaged."""

import json
import shutil

import polars as pl
import pytest
from judge_plug_in import install_judge
from judged_folder import MARKDOWN, REPLIES, SOURCES, lines, write_judged
from judges_app import page, warnings_of
from scipy.stats import binomtest
from synthetic import write_run
from test_dashboard_sortable import shown

from dashboard.charts import judges as judges_chart
from dashboard.pages.refusal import judged, judging
from dashboard.state import results
from engine.cli import main
from engine.judges import quality
from engine.judges.embedded import judge
from engine.records.errors import InputError

TINY = "tiny-judge"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return write_judged(tmp_path_factory.mktemp("judged") / "two", more=("--halves",))


@pytest.fixture
def found(made):
    return judged.read(made)


@pytest.fixture
def said(made):
    """[(source, human or None, embedded, tiny)] in the order of the file."""
    table = pl.read_parquet(made / "verdicts.parquet")
    of = {name: table.filter(judge=name)["refusal"].to_list() for name in ("embedded", TINY)}
    labels = [None if not label else "refusal" in label for *_, label in lines()]
    sources = [line[0] for line in lines()]
    rows = list(zip(sources, labels, of["embedded"], of[TINY], strict=True))
    for side in (0, 1):  # both kinds of disagreement occur, or the tests below would show little
        assert sum(row[2 + side] and not row[3 - side] for row in rows) > judging.PER_PAGE
    return rows


def test_rates_are_counted_by_hand_with_scipys_intervals(found, said):
    frame = judged.measures(found)
    assert frame.height == 3 * (3 + 2 * 3)  # two sources and all; refused of three, three rates of two judges
    for source in (*SOURCES, judged.ALL):
        rows = [row for row in said if source in (row[0], judged.ALL)]
        labelled = [row for row in rows if row[1] is not None]
        for name, verdicts, of in (
            ("embedded", [row[2] for row in rows], [(row[1], row[2]) for row in labelled]),
            (TINY, [row[3] for row in rows], [(row[1], row[3]) for row in labelled]),
            (judged.PEOPLE, [row[1] for row in labelled], None),
        ):
            expected = {judged.REFUSED: (sum(verdicts), len(verdicts))}
            if of is not None:
                right = sum(human and verdict for human, verdict in of)
                expected[judges_chart.PRECISION] = (right, sum(verdict for _, verdict in of))
                expected[judges_chart.RECALL] = (right, sum(human for human, _ in of))
            for measure, (hits, n) in expected.items():
                row = frame.filter(source=source, judge=name, measure=measure).row(0, named=True)
                scipys = binomtest(hits, n).proportion_ci(0.95, "wilson")
                assert row["value"] == pytest.approx(hits / n)
                assert (row["low"], row["high"]) == pytest.approx((scipys.low, scipys.high))
    halves = [judged.measures(found, half).filter(source=judged.ALL, judge="embedded", measure=judged.REFUSED)
              for half in found.halves[1:]]  # fmt: skip
    assert sum(half["replies"][0] for half in halves) == len(said)


def test_agreement_is_counted_by_hand_and_equals_the_stored_one(found, made, said):
    table = judged.agreement(judged.pair(found, "embedded", TINY))
    stored = pl.read_parquet(made / "judge_agreement.parquet").row(0, named=True)
    whole = table.row(0, named=True)
    assert {name: whole[name] for name in stored} == stored
    for line in table.iter_rows(named=True):
        cells = [(a, b) for source, _, a, b in said if line["source"] in (source, judged.ALL)]
        counts = [cells.count(cell) for cell in ((True, True), (True, False), (False, True), (False, False))]
        assert [line[name] for name in ("both", "only_a", "only_b", "neither")] == counts
        n, (both, only_a, only_b, neither) = len(cells), counts
        chance = ((both + only_a) * (both + only_b) + (only_b + neither) * (only_a + neither)) / n**2
        assert line["kappa"] == pytest.approx(((both + neither) / n - chance) / (1 - chance))
    differing = quality.disagreements(judged.pair(found, "embedded", TINY))
    assert differing.equals(pl.read_parquet(made / "disagreements.parquet"))


def captions(app):
    return [caption.value.replace("\\", "") for caption in app.caption]


def test_a_full_folder_shows_rates_first(made):
    app = page(folder=str(made))
    assert warnings_of(app) == []
    assert len(app.get("plotly_chart")) == 1
    table, behind = shown(app.dataframe[0]), app.dataframe[0].value
    assert list(table["Judge"]) == ["embedded"] * 3 + [TINY] * 3 + [judged.PEOPLE] * 3
    row = table[(table["Judge"] == "embedded") & (table["Source"] == "all")].iloc[0]
    frame = pl.read_parquet(made / "judge_quality.parquet").filter(judge="embedded", source="all", prompts="both")
    assert row["Recall"].startswith(f"{frame['recall'][0]:.3f} (")
    numbers = behind[(behind["Judge"] == "embedded") & (behind["Source"] == "all")].iloc[0]
    assert (numbers["TP"], numbers["Recall"]) == (frame["true_positives"][0], frame["recall"][0])  # to sort by
    app.selectbox(key="half").set_value("held out").run()
    assert warnings_of(app) == []
    assert app.dataframe[0].value["Replies"].max() < len(lines())


def test_disagreements_are_paged_and_filtered(made, said):
    app = page(folder=str(made), judge_view="Reply by reply")
    assert warnings_of(app) == []
    differing = [number for number, row in enumerate(said) if row[2] != row[3]]
    metrics = {metric.label: metric.value for metric in app.metric}
    assert metrics["Disagreements"] == f"{len(differing)} of {len(said)}"
    stored = pl.read_parquet(made / "judge_agreement.parquet")
    assert metrics["Cohen's kappa"] == f"{stored['kappa'][0]:.3f}".replace("-", "−")
    texts = [text.value for text in app.text]
    for number in differing[: judging.PER_PAGE]:
        assert lines()[number][2] in texts
    assert lines()[differing[judging.PER_PAGE]][2] not in texts
    second = page(folder=str(made), judge_view="Reply by reply", page="2")
    assert lines()[differing[judging.PER_PAGE]][2] in [text.value for text in second.text]
    second.selectbox(key="who").set_value("b").run()
    only = [number for number in differing if said[number][3]]
    assert any(caption.startswith(f"1 – {judging.PER_PAGE} of {len(only)}.") for caption in captions(second))
    second.selectbox(key="people").set_value("nothing (no label)").run()
    shown = sum(said[number][1] is None for number in only)
    assert shown > 0
    assert any(f"of {shown}." in caption for caption in captions(second))


def test_people_against_a_judge_and_a_stale_page(made):
    app = page(folder=str(made), judge_view="Reply by reply", judge_b=judged.PEOPLE, page="99", people="it refuses")
    assert warnings_of(app) == []
    wrong = [reply for reply, label in REPLIES if label and judge(reply).refusal != ("refusal" in label)]
    assert len(wrong) == 2
    assert sum(text.value.endswith(tuple(wrong)) for text in app.text) == judging.PER_PAGE
    assert "people" not in [box.key for box in app.selectbox]


def test_replies_and_names_are_never_markdown(made, tmp_path):
    odd = tmp_path / "**bold** `x`"
    shutil.copytree(made, odd / "a")
    app = page(folder=str(odd), judge_view="Reply by reply", judge_source="model-b")
    assert warnings_of(app) == []
    assert all(MARKDOWN not in block.value for block in (*app.markdown, *app.caption))
    pages = [page(folder=str(made), judge_view="Reply by reply", page=str(number)) for number in range(1, 9)]
    assert any(MARKDOWN in text.value for one in pages for text in one.text)
    assert all(MARKDOWN not in block.value for one in pages for block in one.markdown)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("missing", "there is no folder"), ("empty", "holds no judged replies"), ("cut", "does not fit the checksum"),
        ("gone", "lacks disagreements.parquet"), ("no json", "is not readable"), ("newer", "schema version"),
        ("a list", "schema version"), ("no files", "does not list files"), ("foreign", "lacks the columns"),
        ("uneven", "unequal numbers"), ("no parquet", "not readable parquet"),
    ],
)  # fmt: skip
def test_a_bad_folder_is_one_line_and_the_way_to_a_good_one(state, message, made, tmp_path, monkeypatch):
    monkeypatch.setenv(results.STORE_VARIABLE, str(tmp_path))
    folder = tmp_path / state
    if state == "empty":
        folder.mkdir()
    elif state != "missing":
        shutil.copytree(made, folder)
        damage(folder, state)
    app = page(folder=str(folder))
    (told,) = warnings_of(app)
    assert message in told
    assert "\n" not in told
    assert len(app.get("plotly_chart")) == 0
    assert any("refusal judge replies.csv" in code.value for code in app.code)
    assert app.text_area(key="own_reply").value == ""


def damage(folder, state):
    path, record = folder / "verdicts.parquet", json.loads((folder / "judge.json").read_text())
    if state == "cut":
        path.write_bytes(path.read_bytes()[:200])
        return
    if state == "gone":
        (folder / "disagreements.parquet").unlink()
        return
    if state == "no json":
        (folder / "judge.json").write_text("{")
        return
    if state == "a list":
        (folder / "judge.json").write_text("[]")
        return
    if state == "newer":
        record["schema_version"] = 99
    if state == "no files":
        del record["files"]
    table = pl.read_parquet(path)
    changed = {"foreign": table.drop("reason"), "uneven": table.head(table.height - 1)}
    if state in changed:
        changed[state].write_parquet(path)
    if state == "no parquet":
        path.write_bytes(b"text")
    if "files" in record:
        from engine.records.hashing import file_sha256

        record["files"]["verdicts.parquet"] = file_sha256(path)
    (folder / "judge.json").write_text(json.dumps(record))


def test_judged_folders_are_found_below_and_are_no_run_of_the_audit(made, tmp_path, monkeypatch):
    monkeypatch.setenv(results.STORE_VARIABLE, str(tmp_path))
    for name in ("first", "second"):
        shutil.copytree(made, tmp_path / "more" / name)
    with pytest.raises(InputError, match="holds no results"):
        results.find_runs(tmp_path)
    write_run(tmp_path / "run")
    assert results.find_runs(tmp_path) == [tmp_path / "run"]
    app = page()
    assert warnings_of(app) == []
    assert app.selectbox(key="run").options == ["more/first", "more/second"]
    app = page(run="more/second")
    assert app.selectbox(key="run").value == "more/second"


def test_beside_shipped_results_one_judges_a_reply_of_ones_own():
    app = page(source="Shipped model", own_reply="I cannot help with that.")
    assert warnings_of(app) == []
    assert any("is in Replies" in caption for caption in captions(app))
    assert any("**refuses**" in one.value for one in app.markdown)
    assert any("refusal judge replies.csv" in code.value for code in app.code)


def test_replies_in_another_language_are_marked_on_the_page(tmp_path, monkeypatch):
    install_judge(tmp_path, monkeypatch)
    german = "Das kann ich nicht für dich tun, denn es ist mir verboten."
    file, out = tmp_path / "replies.csv", tmp_path / "out"
    rows = [("p", "I won't.", 1, True), ("q", german, 1, False), ("r", "Mix well.", 0, True)]
    pl.DataFrame(rows, schema=["prompt", "reply", "human_label", "finished"], orient="row").write_csv(file)
    assert main(["refusal", "judge", str(file), "--judge", "embedded,fake", "--out", str(out)]) == 0
    found = judged.read(out)
    counts = judged.measures(found).filter(measure=judges_chart.REFUSED, source=judges_chart.ALL)
    assert dict(counts.select("judge", "unjudged").iter_rows()) == {"embedded": 1, "fake": 0, judged.PEOPLE: 0}
    assert judged.pair(found, "embedded", judged.PEOPLE).height == 6
    app = page(folder=str(out))
    assert warnings_of(app) == []
    rates = app.dataframe[0].value
    assert rates.set_index(["Judge", "Source"])["Not judged"]["embedded", "all"] == 1
    assert any("count as not refused" in note.proto.body for note in app.get("html"))
    app = page(folder=str(out), judge_view="Reply by reply", judge_b=judged.PEOPLE)
    assert warnings_of(app) == []
    assert sum("**not judged**" in one.value for one in app.markdown) == 1
