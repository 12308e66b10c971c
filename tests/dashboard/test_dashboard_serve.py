"""How the app is served: local, hardened, light at the start."""

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from streamlit import config

from dashboard import gate, serve
from dashboard.state.shipped_models import FIRST_VARIABLE
from engine.records.errors import InputError

ROOT = Path(__file__).parents[2]


def test_every_option_exists_and_the_hard_ones_are_set():
    options = serve.server_options(8501, "127.0.0.1")
    known = config.get_config_options()
    assert set(options) <= set(known)
    wanted = {
        "server.address": "127.0.0.1", "server.enableXsrfProtection": True, "server.enableCORS": True,
        "server.fileWatcherType": "none", "server.enableAgentApi": False, "browser.gatherUsageStats": False,
        "client.showErrorDetails": "none", "client.toolbarMode": "viewer",
    }  # fmt: skip
    assert {name: options[name] for name in wanted} == wanted
    assert options["server.maxUploadSize"] <= 10
    assert "*" not in options["server.allowedHosts"]


def test_a_wrong_store_or_a_taken_port_is_one_line(tmp_path):
    with pytest.raises(InputError, match="--store"):
        serve.main(tmp_path / "missing")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InputError, match="--port"):
            serve.main(port=taken.getsockname()[1])
    with pytest.raises(InputError, match="65535"):
        serve.main(port=70_000)


@pytest.mark.parametrize("port", [None, 8790])
@pytest.mark.parametrize("address", ["nonsense.invalid", "203.0.113.7", "", "a b", "[::1]", "::zz", "a" * 80, "a\0b"])
def test_what_is_no_address_of_this_machine_is_named(address, port):
    with pytest.raises(InputError) as told:
        serve.main(address=address, port=port)
    assert f"cannot listen on the address {address!r}" in str(told.value)
    assert "give 127.0.0.1" in str(told.value)


SERVER_WITH_A_RUN = """
import signal, sys, threading, time, urllib.request
from pathlib import Path
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as from a terminal, also where the tests were started with nohup
from dashboard import serve
from dashboard.state import jobs

port, child, told = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])

def start_a_run():
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=5).close()
            break
        except OSError:
            time.sleep(0.1)
    jobs.sys = type("sys", (), {"executable": child})
    job = jobs.registry().start(jobs.analysis("demo", ("sweep",), told.parent / "out", "quick"))
    told.with_suffix(".part").write_text(str(job.process.pid))
    told.with_suffix(".part").rename(told)

threading.Thread(target=start_a_run, daemon=True).start()
serve.main(port=port, open_browser=False, preload_model=False)
"""


@pytest.mark.long
@pytest.mark.parametrize("kind", ["SIGTERM", "SIGHUP"])
def test_a_server_ended_by_a_signal_ends_its_run(tmp_path, kind):
    child, told = tmp_path / "child", tmp_path / "pid"
    child.write_text(f"#!{sys.executable}\nimport time; time.sleep(600)")
    child.chmod(0o700)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [sys.executable, "-c", SERVER_WITH_A_RUN, str(port), str(child), str(told)]
    environment = {**os.environ, "SELECTOR_AUDIT_STORE": str(tmp_path)}
    with subprocess.Popen(words, cwd=ROOT, env=environment) as server:
        try:
            end = time.monotonic() + 120
            while not told.is_file():
                assert server.poll() is None
                assert time.monotonic() < end
                time.sleep(0.05)
            run = int(told.read_text())
            server.send_signal(getattr(signal, kind))
            server.wait(60)
            with pytest.raises(ProcessLookupError):
                os.killpg(run, signal.SIGKILL)
        finally:
            server.kill()


@pytest.mark.parametrize(
    "wrong",
    [
        {"public": "box.example:80"}, {"public": "192.0.2.7"}, {"public": ""}, {"allow_runs": True},
        {"address": "127.0.0.1"},
    ],
)  # fmt: skip
def test_everybody_is_served_by_a_name_only_and_without_runs(wrong):
    with pytest.raises(InputError, match="--public takes the host name that everybody will use"):
        serve.main(**{"address": "0.0.0.0", "open_browser": False, "public": "box.example", **wrong})


@pytest.mark.long
def test_a_public_server_answers_everybody_who_knows_its_name(tmp_path):
    with socket.socket() as probe:
        probe.bind(("0.0.0.0", 0))
        port = probe.getsockname()[1]
    words = f"dashboard --no-browser --address 0.0.0.0 --port {port} --public me-audit.hf.space".split()
    here = {**os.environ, "SELECTOR_AUDIT_STORE": str(tmp_path)}

    def answer(host, origin=None):
        """Of a page, or of the websocket with an origin: status and policy."""
        key = {"Connection": "Upgrade", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
        upgrade = {"Origin": origin, "Upgrade": "websocket", **key} if origin else {}
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            connection.request("GET", "/_stcore/stream" if origin else "/", headers={"Host": host, **upgrade})
            with connection.getresponse() as given:
                return given.status, given.headers["Content-Security-Policy"]

    with subprocess.Popen(
        [sys.executable, "-m", "engine", *words], cwd=ROOT, env=here, stdout=subprocess.PIPE
    ) as server:
        try:
            assert any(b"Selector Audit:" in line for line in server.stdout)  # it is about to listen
            time.sleep(1)
            status, policy = answer("me-audit.hf.space")
            assert (status, policy.split("; ")[-1]) == (200, "frame-ancestors https://huggingface.co")
            assert answer("me-audit.hf.space", "https://me-audit.hf.space")[0] == 101
            assert answer("me-audit.hf.space", "https://other.example")[0] == 403
            assert answer("other.example")[0] == 403
        finally:
            server.terminate()


def test_the_policy_allows_this_server_only():
    for rule in gate.POLICY.split("; "):
        sources = set(rule.split()[1:])
        assert not any("http" in source or "*" in source for source in sources), rule
    assert "PlotlyChart" in gate._preload_links()


def test_the_first_page_needs_neither_torch_nor_transformers_nor_pandas():
    code = (
        "import sys, dashboard.serve as serve; from dashboard.chat import live\n"
        "serve._import_what_the_first_page_needs()\n"
        "heavy = {'torch', 'transformers', 'datasets', 'pandas'}\n"
        "live.first_page_shown.wait = lambda: sys.exit(', '.join(heavy & set(sys.modules)) or 0)\n"
        "serve._preload()"
    )
    env = {name: value for name, value in os.environ.items() if name != FIRST_VARIABLE}  # the model that is asked first
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=120, env=env)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_pandas_and_transformers_are_whole_before_the_server_listens():
    """plotly takes pandas from sys.modules, also while another session's thread is half through importing it; a thread
    that waits while another imports transformers gets a module without its names."""
    code = (
        "import sys, streamlit, dashboard.serve as serve\n"
        "def run(self, config):\n"
        "    print('listens', hasattr(sys.modules.get('pandas'), 'Series'), 'pandas.io.formats.style' in sys.modules,\n"
        "        type(sys.modules.get('transformers')).__name__)\n"
        "streamlit.App.run = run\n"
        "serve.main(open_browser=False, preload_model=False)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.stdout.split() == ["listens", "True", "True", "_LazyModule"], done.stderr


def test_views_do_not_touch_the_files_of_results():
    """`results.py` is the only reader."""
    rooms = (ROOT / "dashboard" / "pages", ROOT / "dashboard" / "show", ROOT / "dashboard" / "charts")
    for path in (path for room in rooms for path in room.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if not re.search(r"^(import|from) streamlit", text, re.M) and path.parent.name != "charts":
            continue  # reads for a page, draws nothing
        if path.parent.name in ("paper", "share", "learn") or path.name in ("menu.py", "layout.py"):
            continue  # reads scripts, styles and texts of ours
        for call in ("read_parquet", "load_file", r"(?<!\w)open\(", "read_text"):
            assert not re.search(call, text), f"{path.name} uses {call}"
