"""The Judges page on judges that are models: an evaluated edit that several read, judges of harm, marked replies."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import polars as pl
import pytest
from judges_app import page, warnings_of
from test_dashboard_sortable import shown

from dashboard.charts import judges as judges_chart
from dashboard.pages.judges import judged, pairs
from engine.cli import main
from engine.judges.refusals import Refused
from engine.results.folders import write_tables
from engine.studies.refusal.judge_pairs import JudgedReplies

MODEL = {"id": "made-up-1B", "weights_hash": "ab" * 32, "dtype": "float32"}
SAID = {  # selector, domain, lambda, k, prompts, kind -> refused by three judges
    ("none", "hate", None, None, "heldout", "malign"): ("TFTFFF", "TFFFFF", "TTTFFF"),
    ("lrp", "hate", 0.5, 0.01, "heldout", "malign"): ("TTTTTF", "TTTTTF", "TTTFTF"),
    ("lrp", "hate", 0.5, 0.01, "heldout", "benign"): ("FFFFFF", "FFFFFF", "FFFTFF"),
}


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    gathered = JudgedReplies(MODEL["id"], ("embedded", "minos", "<b>third</b>"))
    for key, verdicts in SAID.items():
        gathered.add(key, [Refused(tuple(one == "T" for one in said), (True,) * len(said)) for said in verdicts])
    folder = tmp_path_factory.mktemp("runs") / "evaluated"
    folder.mkdir()
    write_tables(folder, {pairs.STEM: gathered.table()}, MODEL, {"judges": {}}, 1.0)
    return folder


class Harmless(BaseHTTPRequestHandler):
    """Answers yes to whatever asks about eggs, and to nothing else anything of use."""

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"][0]["content"]
        said = "yes" if "eggs" in asked else "no" if "bread" in asked else "perhaps"
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"choices": [{"message": {"content": said}}]}).encode())

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Three replies and a line without one, judged by rules, by a served model, and by a served judge of harm."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Harmless)
    Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    folder = tmp_path_factory.mktemp("served")
    file = folder / "replies.csv"
    rows = [
        ("Who?", "I can't help with that.", 1),
        ("eggs?", "Beat them.", 1),
        ("bread?", "Knead.", 0),
        ("Why?", "", 0),
    ]
    pl.DataFrame(rows, schema=["prompt", "reply", "human_label"], orient="row").write_csv(file)
    address = f"http://127.0.0.1:{server.server_port}/v1#tiny"
    names = f"embedded,strongreject:{address}"
    assert main(["refusal", "judge", str(file), "--judge", names, "--out", str(folder / "out")]) == 0
    server.shutdown()
    server.server_close()
    return folder


def test_names_beside_kappa_are_text_and_negative_values_have_room(evaluated):
    frame = pl.read_parquet(evaluated / f"{pairs.STEM}.parquet")
    labelled = frame.with_columns(place=pl.col("selector") + " " + pl.col("kind"), pair=pl.col("judge_b"))
    figure = judges_chart.kappas(labelled, ["minos", "<b>third</b>"])
    assert len(figure.data) == 2
    assert "<b>third" not in str(figure.to_json()).replace("<b>%", "")  # names are text
    assert figure.layout.xaxis.range[0] < frame["kappa_low"].min()


def test_the_page_shows_every_pair_of_an_evaluated_edit(evaluated):
    app = page(replies="An evaluated edit", folder=str(evaluated.parent))
    assert warnings_of(app) == []
    table, behind = shown(app.dataframe[0]), app.dataframe[0].value
    assert {str(behind[name].dtype) for name in ("Refused, first", "Same verdict", "Kappa")} == {"float64"}
    assert behind["Same verdict"][0] == pytest.approx(5 / 6)
    assert len(table) == 3 * 3 + 3
    assert list(table["Replies"])[::3] == ["before: hate, heldout risk", "LRP: hate, heldout risk",
                                           "LRP: hate, heldout base", "all replies"]  # fmt: skip
    first = table.iloc[0]
    assert (first["Judges"], int(first["Compared"])) == ("embedded / minos", 6)
    assert first["Refused, first"].startswith(f"{2 / 6:.2f} (")
    assert first["Same verdict"].startswith(f"{5 / 6:.1%} (")
    observed, chance = 5 / 6, 2 / 6 * 1 / 6 + 4 / 6 * 5 / 6
    assert first["Kappa"].startswith(f"{(observed - chance) / (1 - chance):.2f} (")
    assert table["Kappa"].iloc[6] == "–"  # neither sees a refusal
    assert "Unjudged" not in table.columns
    assert len(app.get("plotly_chart")) == 1


def test_marks_stand_beside_rates_of_refusal(served):
    found = judged.read(served / "out")
    assert found.judges == ["embedded", "strongreject:tiny"]
    rates = judged.measures(found).filter(source="all", measure=judged.REFUSED)
    assert rates.select("judge", "value", "unjudged").rows() == [
        ("embedded", 1 / 3, 0), ("strongreject:tiny", 1 / 3, 1), (judged.PEOPLE, 2 / 3, 0),
    ]  # fmt: skip
    assert found.missing == 1
    app = page(folder=str(served / "out"))
    assert any("Lines without a reply, which are in no rate: 1." in one.value for one in app.get("html"))
    assert warnings_of(app) == []
    app = page(folder=str(served / "out"), judge_view="Reply by reply")
    assert warnings_of(app) == []
