"""The part Judges of the page Refusal on judges that are models: judges of harm, marked replies."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import polars as pl
import pytest
from judges_app import page, warnings_of

from dashboard.pages.refusal import judged
from engine.cli import main


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
        ("Who?", "I can't help with that.", 1), ("eggs?", "Beat them.", 1), ("bread?", "Knead.", 0), ("Why?", "", 0),
    ]  # fmt: skip
    pl.DataFrame(rows, schema=["prompt", "reply", "human_label"], orient="row").write_csv(file)
    address = f"http://127.0.0.1:{server.server_port}/v1#tiny"
    names = f"embedded,strongreject:{address}"
    assert main(["refusal", "judge", str(file), "--judge", names, "--out", str(folder / "out")]) == 0
    server.shutdown()
    server.server_close()
    return folder


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
