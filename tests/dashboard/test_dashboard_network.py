"""The server as a process, asked by plain clients: foreign names and pages, the token, and that the app works."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from synthetic import write_run
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from dashboard import gate

ROOT = Path(__file__).parents[2]
LOOKED_UP = "the public address was looked up"
SERVER = f"""
import sys
from pathlib import Path
import streamlit.net_util
def told():
    sys.stderr.write({LOOKED_UP!r} + chr(10))
    sys.stderr.flush()
streamlit.net_util.get_external_ip = told
from dashboard import serve
serve.main(Path(sys.argv[3]), port=int(sys.argv[1]), address=sys.argv[2], open_browser=False, preload_model=False)
"""
PATHS = ("/", "/runs", "/_stcore/health", "/_stcore/host-config", "/_stcore/metrics", "/nothing-here")
pytestmark = pytest.mark.long


class Server:
    def __init__(self, port, log, process):
        self.port, self.process, self._log = port, process, log
        self.url = f"http://localhost:{port}"

    @property
    def log(self):
        return self._log.read_text()

    def get(self, path="/", session=None, **given):
        return (session or requests).get(self.url + path, headers=given, timeout=60, allow_redirects=False)

    def stream(self, origin=None, name="localhost", **given):
        """A websocket to the app, called by a name that points here; `InvalidStatus` where it is refused."""
        return connect(
            f"ws://{name}:{self.port}/_stcore/stream", sock=socket.create_connection(("127.0.0.1", self.port)),
            origin=origin, additional_headers=given, subprotocols=["streamlit"], max_size=None, proxy=None,
            open_timeout=60,
        )  # fmt: skip


@contextmanager
def serving(folder, address):
    write_run(folder / "results" / "made-up")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = folder / "server.log"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "SELECTOR_AUDIT_STORE": str(folder)}
    with log.open("w") as file:
        words = [sys.executable, "-c", SERVER, str(port), address, str(folder)]
        process = subprocess.Popen(words, cwd=folder, env=environment, stdout=file, stderr=subprocess.STDOUT)
    try:
        end = time.monotonic() + 180
        while "Selector Audit: http://" not in log.read_text() or not answers(port):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.2)
        yield Server(port, log, process)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def answers(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def first_run(stream):
    """One script run as the browser asks for it: all messages, as one text, until the script has finished."""
    ask = BackMsg()
    ask.rerun_script.query_string = ""
    stream.send(ask.SerializeToString())
    texts = []
    while True:
        message = ForwardMsg()
        message.ParseFromString(stream.recv(timeout=120))
        texts.append(str(message))
        if message.WhichOneof("type") == "script_finished":
            return "\n".join(texts)


def refused(server, **given):
    with pytest.raises(InvalidStatus) as failure:
        server.stream(**given).close()
    return failure.value.response.status_code


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("local"), "127.0.0.1") as server:
        yield server


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("shared"), "0.0.0.0") as server:
        yield server


def all_of_the_app_works(server, session):
    """Page, files, websocket, downloads, as a browser of this server asks for them."""
    cookies = {"Cookie": "; ".join(f"{one.name}={one.value}" for one in session.cookies)}
    page = server.get(session=session)
    assert page.status_code == 200
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    script = re.search(r"</(static/js/[^>]+)>", page.headers["link"])
    assert server.get(f"/{script[1]}", session).status_code == 200
    assert server.get("/_stcore/health", session).status_code == 200
    with server.stream(origin=server.url, **cookies) as stream:
        shown = first_run(stream)
        assert "Selector Audit" in shown
        download = re.search(r'url: "(/media/[^"]+\.csv)"', shown)
        assert server.get(download[1], session).status_code == 200
    assert LOOKED_UP not in server.log
    assert "Traceback" not in server.log


def test_on_this_machine_it_works_without_a_word_more(local):
    assert "token" not in local.log
    assert "warning" not in local.log
    assert f"Selector Audit: {local.url}\n" in local.log
    all_of_the_app_works(local, requests.Session())


def test_foreign_names_are_refused(local):
    for path in PATHS:
        found = local.get(path, Host="evil.example")
        assert (found.status_code, "streamlit" in found.text.lower()) == (403, False), path
    # As a page of evil.example would, once its name points here.
    assert refused(local, name="evil.example", origin=f"http://evil.example:{local.port}") == 403


@pytest.mark.parametrize("origin", ["http://localhost:9999", "http://evil.example", "null", "http://127.0.0.1:1"])
def test_foreign_pages_are_refused_and_nothing_is_looked_up(local, origin):
    assert refused(local, origin=origin) == 403
    assert local.get("/_stcore/host-config", Origin=origin).status_code == 403
    assert LOOKED_UP not in local.log


def test_statistics_are_closed(local):
    for path in ("/_stcore/metrics", "/_stcore/metrics/"):
        assert local.get(path).status_code == 404


def test_other_machines_need_the_token(shared):
    assert shared.log.count("warning: ") == 2
    assert "--allow-runs" in shared.log
    token = re.search(r"/\?token=([\w-]{43,})\n", shared.log)[1]
    script = re.search(r"</(static/js/[^>]+)>", gate._preload_links())[1]
    for path in (*PATHS, f"/{script}", "/media/x.csv", "/?token=wrong", f"/?token={token[:-1]}"):
        found = shared.get(path)
        assert (found.status_code, "streamlit" in found.text.lower()) == (403, False), path
        assert not found.cookies
    assert refused(shared, origin=shared.url) == 403
    upload = f"{shared.url}/_stcore/upload_file/session/file"
    assert requests.put(upload, files={"file": b"x"}, timeout=60).status_code == 403
    assert LOOKED_UP not in shared.log


def test_with_the_token_all_of_the_app_works(shared):
    token = re.search(r"/\?token=([\w-]{43,})\n", shared.log)[1]
    session = requests.Session()
    welcome = shared.get(f"/?token={token}&present=true", session)
    assert (welcome.status_code, welcome.headers["location"]) == (303, "/?present=true")
    all_of_the_app_works(shared, session)
    carried = {"Cookie": "; ".join(f"{one.name}={one.value}" for one in session.cookies)}
    assert refused(shared, name="evil.example", origin=f"http://evil.example:{shared.port}", **carried) == 403
    assert refused(shared, origin="http://evil.example", **carried) == 403
    assert shared.get("/", Host="evil.example", **carried).status_code == 403
    assert shared.get("/", Host=f"192.0.2.7:{shared.port}", **carried).status_code == 200
    assert shared.get("/_stcore/metrics", session).status_code == 404
    assert LOOKED_UP not in shared.log


def test_the_token_is_not_in_what_the_app_shows(shared):
    """The menu Export gives the address of the page on."""
    token = re.search(r"/\?token=([\w-]{43,})\n", shared.log)[1]
    session = requests.Session()
    shared.get(f"/?token={token}", session)
    cookies = {"Cookie": "; ".join(f"{one.name}={one.value}" for one in session.cookies)}
    with shared.stream(origin=shared.url, **cookies) as stream:
        assert token not in first_run(stream)
    assert urlsplit(shared.get(f"/?token={token}", session).headers["location"]).query == ""
