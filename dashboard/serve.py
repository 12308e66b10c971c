"""Starts the app: one local server, hardened, from any working directory."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import webbrowser
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from dashboard.state.results import STORE_VARIABLE
from engine.records.errors import InputError

DEFAULT_PORT = 8501
_PORTS_TRIED = 50
_LOCAL_HOSTS = ["localhost", "127.0.0.1", "::1"]


def main(
    store: Path | None = None,
    port: int | None = None,
    address: str = "127.0.0.1",
    open_browser: bool = True,
    *,
    preload_model: bool = True,
) -> None:
    """Serve the app until it is interrupted.

    store: folder whose results "My results" opens with; None = the default store.
    port: None = the first free one from 8501 on. address: 127.0.0.1 unless others are meant to connect.
    preload_model: load the shipped model in the background once the first page is up.
    Raises `InputError` for a store that is no folder and for a port that is taken.
    """
    if store is not None:
        if not store.is_dir():
            raise InputError(f"there is no folder {store}; give an existing store or results folder with --store")
        os.environ[STORE_VARIABLE] = str(store.resolve())
    chosen = _free_port(address) if port is None else _checked_port(port, address)

    import streamlit as st
    from starlette.middleware import Middleware
    from streamlit.runtime.pages_manager import PagesManager

    from dashboard.headers import LocalOnlyHeaders
    from dashboard.pages.runs import start_tab as runs_start

    _import_what_the_first_page_needs()
    url = f"http://{'localhost' if address in _LOCAL_HOSTS else address}:{chosen}"
    tasks = [_preload] if preload_model else []
    tasks += [lambda: _open_browser(url)] if open_browser else []

    @asynccontextmanager
    async def while_serving(_app: object) -> AsyncIterator[None]:
        for task in tasks:
            threading.Thread(target=task, daemon=True).start()
        try:
            yield
        finally:  # a server ended by a signal runs no atexit handlers
            runs_start.registry().close()

    _stop_on_hangup()
    # Streamlit takes a folder `pages` for its first kind of apps: the first link to open would be "page not found".
    PagesManager.uses_pages_directory = False
    app = st.App(Path(__file__).with_name("app.py"), lifespan=while_serving, middleware=[Middleware(LocalOnlyHeaders)])
    app.run(config=server_options(chosen, address))


def server_options(port: int, address: str) -> dict[str, object]:
    """Streamlit's settings, by their names; they win over any config file of the user.

    Local address, cross-site and cross-origin protection on, known host names only, no usage statistics,
    no source code in error messages, small uploads, no file watcher (it would walk torch's modules).
    """
    return {
        "server.port": port,
        "server.address": address,
        "server.headless": True,
        "server.showEmailPrompt": False,
        "global.disableWidgetStateDuplicationWarning": True,  # sliders start from measured points
        "server.enableXsrfProtection": True,
        "server.enableCORS": True,
        "server.allowedHosts": _LOCAL_HOSTS + ([] if address in _LOCAL_HOSTS else _names_of(address)),
        "server.maxUploadSize": 5,
        "server.fileWatcherType": "none",
        "server.enableStaticServing": False,
        "server.enableAgentApi": False,
        "browser.gatherUsageStats": False,
        "client.showErrorDetails": "none",
        "client.showErrorLinks": False,
        "client.toolbarMode": "viewer",
        "runner.magicEnabled": False,
        "theme.light.primaryColor": "#3B4CC0",
        "theme.dark.primaryColor": "#8FA2FF",
    }


def _stop_on_hangup() -> None:
    """A closed terminal stops the server as SIGTERM does, unless hangups are ignored (started with nohup)."""
    hangup = getattr(signal, "SIGHUP", None)  # not on Windows
    if hangup is not None and signal.getsignal(hangup) == signal.SIG_DFL:
        signal.signal(hangup, lambda *_: signal.raise_signal(signal.SIGTERM))


def _names_of(address: str) -> list[str]:
    """Host names by which a server on `address` may be called; a wildcard address answers to any."""
    return ["*"] if address in {"0.0.0.0", "::"} else [address]


def _free_port(address: str) -> int:
    for port in range(DEFAULT_PORT, DEFAULT_PORT + _PORTS_TRIED):
        if _is_free(port, address):
            return port
    raise InputError(f"no free port from {DEFAULT_PORT} to {DEFAULT_PORT + _PORTS_TRIED - 1}; give one with --port")


def _checked_port(port: int, address: str) -> int:
    if not 1 <= port <= 65535:
        raise InputError(f"port must be in 1 to 65535, got {port}")
    if not _is_free(port, address):
        raise InputError(f"cannot listen on {address} port {port}, it is in use or not allowed; give another --port")
    return port


def _is_free(port: int, address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def _import_what_the_first_page_needs() -> None:
    """Imports and reads made before the server listens do not delay the first chart."""
    import importlib
    import pkgutil

    import plotly.io
    import plotly.tools

    from dashboard import pages
    from dashboard.charts import headline, overview
    from dashboard.state import results, shipped

    for page in pkgutil.iter_modules(pages.__path__):
        importlib.import_module(f"{pages.__name__}.{page.name}.page")
    paper = results.read_paper()
    with contextlib.suppress(InputError):  # the page says what is wrong with them
        results.read_run(shipped.demo_results_dir())
        for stem in ("stability", "verdicts"):
            results.read_table(shipped.demo_results_dir(), stem)
    table = headline.snapshot({model: (paper.frame, model) for model in paper.models})
    figure = plotly.tools.return_figure_from_figure_or_data(overview.snapshot(table), True)
    plotly.io.to_json(figure, validate=False)


def _preload() -> None:
    from dashboard.chat import live

    live.preload_demo()


def _open_browser(url: str) -> None:
    webbrowser.open(url)
