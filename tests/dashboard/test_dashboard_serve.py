"""How the app is served: local, hardened, light at the start."""

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from streamlit import config

from dashboard import headers, serve
from engine.errors import InputError

ROOT = Path(__file__).parents[2]


def test_every_option_exists_and_the_hard_ones_are_set():
    options = serve.server_options(8501, "127.0.0.1")
    known = config.get_config_options()
    assert set(options) <= set(known)
    wanted = {
        "server.address": "127.0.0.1",
        "server.enableXsrfProtection": True,
        "server.enableCORS": True,
        "server.fileWatcherType": "none",
        "server.enableAgentApi": False,
        "browser.gatherUsageStats": False,
        "client.showErrorDetails": "none",
        "client.toolbarMode": "viewer",
    }
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


def test_the_policy_allows_this_server_only():
    for rule in headers.POLICY.split("; "):
        sources = set(rule.split()[1:])
        assert not any("http" in source or "*" in source for source in sources), rule
    assert "PlotlyChart" in headers._preload_links()


def test_the_first_page_needs_neither_torch_nor_transformers_nor_pandas():
    code = (
        "import sys, dashboard.serve as serve\n"
        "serve._import_what_the_first_page_needs()\n"
        "import pkgutil, importlib, dashboard.views as views\n"
        "[importlib.import_module(f'dashboard.views.{m.name}') for m in pkgutil.iter_modules(views.__path__)]\n"
        "heavy = {'torch', 'transformers', 'datasets', 'pandas'} & set(sys.modules)\n"
        "sys.exit(f'loaded: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr


def test_views_do_not_touch_the_files_of_results():
    """`results.py` is the only reader."""
    rooms = (ROOT / "dashboard" / "views", ROOT / "dashboard" / "charts")
    for path in (path for room in rooms for path in room.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        for call in ("read_parquet", "load_file", r"(?<!\w)open\(", "read_text"):
            assert not re.search(call, text), f"{path.name} uses {call}"
