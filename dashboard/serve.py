"""Starts the app: one local server, hardened, from any working directory; for other machines behind a token."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from dashboard import gate
from dashboard.charts import typeface
from dashboard.state import access
from dashboard.state.results import STORE_VARIABLE
from engine.records.errors import InputError

if TYPE_CHECKING:
    from starlette.routing import Route
    from starlette.types import ASGIApp, Receive, Scope, Send

DEFAULT_PORT = 8501
_PORTS_TRIED = 50
# A thread that writes replies gives the interpreter up at each of torch's operators, and waits up to so many seconds to
# have it again while a page is drawn: Python's own 5 ms are many times as long as an operator of a small model.
_SWITCH_S = 1e-4
OPEN = (
    "other machines can reach this app. Who has the address below, with its token, sees the results and asks the "
    "shipped model; nothing is encrypted on the way. For yourself alone leave --address out and use ssh -L."
)
PUBLIC = "everybody who reaches this server as {host} sees the results and asks the shipped model, without a token."
LIMITED = "starting, importing and deleting runs, other models, and paths of this machine are off"
UNLIMITED = (
    "with --allow-runs they can also start, import and delete runs, and load models and folders by any path of yours."
)


def main(
    store: Path | None = None,
    port: int | None = None,
    address: str = "127.0.0.1",
    open_browser: bool = True,
    *,
    allow_runs: bool = False,
    public: str | None = None,
    preload_model: bool = True,
) -> None:
    """Serve the app until it is interrupted.
    store: folder whose results "My results" opens with; None = the default store.
    port: None = the first free one from 8501 on. address: 127.0.0.1 unless others are meant to connect; these then need
    the token that is printed, and what `access` says is off unless allow_runs. public: host name by which everybody is
    served without a token, as on a Space of the hub; what `access` says is off then.
    preload_model: load the first of the shipped models in the background once the first page is up.
    Raises `InputError` for a store that is no folder, an address that is not this machine's and a port that is taken.
    """
    if store is not None:
        if not store.is_dir():
            raise InputError(f"there is no folder {store}; give an existing store or results folder with --store")
        os.environ[STORE_VARIABLE] = str(store.resolve())
    _check_address(address)
    sys.setswitchinterval(_SWITCH_S)
    if public is not None and (allow_runs or gate.is_loopback(address) or not gate.is_host(public)):
        raise InputError(
            "--public takes the host name that everybody will use, with --address 0.0.0.0 and without --allow-runs; "
            f"got {public!r} on {address}"
        )
    chosen = _port(port, address)

    import streamlit as st
    from starlette.middleware import Middleware
    from streamlit.runtime.pages_manager import PagesManager

    from dashboard.chat import opening
    from dashboard.show import former
    from dashboard.state import jobs
    from dashboard.uploads import freeing_uploads
    from dashboard.watchdog import Health, Watchdog

    _import_what_the_first_page_needs()
    _import_what_sessions_would_share()
    local = gate.is_loopback(address)
    access.limit(not local and not allow_runs)
    token = None if local or public else gate.new_token()
    urls = addresses(address, chosen, token)
    names = gate.names_of(address) | ({public.lower()} if public else set())
    guard = Middleware(
        gate.Gate, names=names, any_ip=address in gate.WILDCARDS, token=token, cookie=f"selector-audit-{chosen}"
    )
    watchdog = Watchdog()
    tasks: list[Callable[[], object]] = [_preload] if preload_model else []
    if preload_model:
        opening.expect()
    tasks += [lambda: webbrowser.open(urls[0])] if open_browser else []

    @asynccontextmanager
    async def while_serving(_app: object) -> AsyncIterator[None]:
        _say(urls, PUBLIC.format(host=public) if public else "" if local else OPEN)
        for task in tasks:
            threading.Thread(target=task, daemon=True).start()
        try:
            async with watchdog.watching(), freeing_uploads():
                yield
        finally:  # a server ended by a signal runs no atexit handlers
            jobs.registry().close()

    _stop_on_hangup()
    # Streamlit takes a folder `pages` for its first kind of apps: the first link to open would be "page not found".
    PagesManager.uses_pages_directory = False
    framed_by = "https://huggingface.co" if public and public.lower().endswith(".hf.space") else "'none'"
    headers = Middleware(gate.LocalOnlyHeaders, framed_by=framed_by)
    middleware = [headers, guard, Middleware(_early), Middleware(Health, watchdog=watchdog)]
    app = st.App(
        Path(__file__).with_name("app.py"),
        lifespan=while_serving,
        routes=[*_typeface(), *former.routes()],
        middleware=middleware,
    )
    app.run(config=server_options(chosen, address))


def addresses(address: str, port: int, token: str | None) -> list[str]:
    """Where a browser finds the app, the best one for this machine first."""
    if address in gate.WILDCARDS:
        names = ["localhost", socket.gethostname().lower()]
    else:
        names = ["localhost" if address in gate.LOOPBACK_NAMES else address]
    query = "" if token is None else f"/?{gate.TOKEN}={token}"
    return [f"http://{f'[{name}]' if ':' in name else name}:{port}{query}" for name in dict.fromkeys(names)]


def _say(urls: list[str], to_others: str) -> None:
    """Where the app is, and what it means that other machines can reach it, "" where none can."""
    if to_others:
        sys.stderr.write(f"warning: {to_others}\n")
        opened = "." if to_others != OPEN else "; --allow-runs opens them."
        sys.stderr.write(f"warning: {LIMITED + opened if access.limited() else UNLIMITED}\n")
        sys.stderr.flush()
    sys.stdout.write(f"\n  Selector Audit: {urls[0]}\n" + "".join(f"  or {url}\n" for url in urls[1:]) + "\n")
    sys.stdout.flush()


def server_options(port: int, address: str) -> dict[str, object]:
    """Streamlit's settings, by their names; they win over any config file of the user.
    Local address, cross-site and cross-origin protection on, known host names only, no usage statistics,
    no source code in error messages, small uploads, no file watcher (it would walk torch's modules)."""
    return {
        "server.port": port,
        "server.address": address,
        "server.headless": True,
        "server.showEmailPrompt": False,
        "global.disableWidgetStateDuplicationWarning": True,  # sliders start from measured points
        "server.enableXsrfProtection": True,
        "server.enableCORS": True,
        # The gate in front of Streamlit is stricter: of foreign names a wildcard address takes numbers only.
        "server.allowedHosts": ["*"] if address in gate.WILDCARDS else sorted(gate.names_of(address)),
        "server.corsAllowedOrigins": [],
        "server.maxUploadSize": 5,
        "server.fileWatcherType": "none",
        "server.enableStaticServing": False,
        "server.enableAgentApi": False,
        "logger.hideWelcomeMessage": True,  # for a wildcard address it asks the internet which one is the public one
        "browser.gatherUsageStats": False,
        "client.showErrorDetails": "none",
        "client.showErrorLinks": False,
        "client.toolbarMode": "viewer",
        "runner.magicEnabled": False,
        "theme.font": typeface.FAMILY,
        "theme.fontFaces": [
            {"family": typeface.NAME, "url": typeface.path(weight), "weight_range": str(weight)}
            for weight in typeface.WEIGHTS
        ],
        "theme.headingFontSizes": ["1.75rem", "1.4rem", "1.15rem"],
        "theme.light.primaryColor": "#3B4CC0",
        "theme.dark.primaryColor": "#8FA2FF",
    }


def _typeface() -> list[Route]:
    from starlette.routing import Route

    cached = {"Cache-Control": "public, max-age=31536000, immutable"}

    def answering(content: bytes) -> Callable[[Request], Response]:
        return lambda _request: Response(content, media_type=typeface.MEDIA_TYPE, headers=cached)

    return [Route(typeface.path(weight), answering(typeface.data(weight))) for weight in typeface.WEIGHTS]


def _stop_on_hangup() -> None:
    """A closed terminal stops the server as SIGTERM does, unless hangups are ignored (started with nohup)."""
    hangup = getattr(signal, "SIGHUP", None)  # not on Windows
    if hangup is not None and signal.getsignal(hangup) == signal.SIG_DFL:
        signal.signal(hangup, lambda *_: signal.raise_signal(signal.SIGTERM))


def _port(port: int | None, address: str) -> int:
    if port is None:
        tried = range(DEFAULT_PORT, DEFAULT_PORT + _PORTS_TRIED)
        if (free := next((port for port in tried if _cannot_listen(address, port) is None), None)) is None:
            raise InputError(f"no free port from {tried[0]} to {tried[-1]}; give one with --port")
        return free
    if not 1 <= port <= 65535:
        raise InputError(f"port must be in 1 to 65535, got {port}")
    if _cannot_listen(address, port) is not None:
        raise InputError(f"cannot listen on {address} port {port}, it is in use or not allowed; give another --port")
    return port


def _check_address(address: str) -> None:
    """Errors: InputError for what is no address of this machine, whatever the port."""
    why = _cannot_listen(address, 0) if address else "it is empty"
    if why is not None:
        raise InputError(
            f"cannot listen on the address {address!r} ({why}); give 127.0.0.1 for this machine only, 0.0.0.0 for all "
            "that can reach it, or one of its own names or numbers"
        )


def _cannot_listen(address: str, port: int) -> str | None:
    """Why nothing can listen there, None where something can. Port 0: any that is free."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            return error.strerror or str(error)
        except (ValueError, TypeError):  # a zero byte, a part longer than names have
            return "it is no name of a machine"
    return None


def _import_what_the_first_page_needs() -> None:
    """Imports and reads made before the server listens do not delay the first chart."""
    import pkgutil

    import plotly.io
    import plotly.tools

    from dashboard import pages
    from dashboard.charts import overview
    from dashboard.state import results, shipped_models as shipped

    for page in pkgutil.iter_modules(pages.__path__):
        importlib.import_module(f"{pages.__name__}.{page.name}.{page.name}_page")
    paper = results.read_paper()
    with contextlib.suppress(InputError):  # the page says what is wrong with them
        folder = next(iter(shipped.folders().values()))
        results.read_run(folder)
        results.read_table(folder, "verdicts")
    table = overview.over_models({model: (paper.frame, model) for model in paper.models})
    figure = plotly.tools.return_figure_from_figure_or_data(overview.snapshot(table, below=""), True)
    plotly.io.to_json(figure, validate=False)


def _import_what_sessions_would_share() -> None:
    """pandas and transformers, before any session runs. plotly takes pandas out of `sys.modules` without importing it,
    and where another thread is at that moment half through the import it finds a module without `Series`. transformers
    puts another module in its place at the end of its import: who waited meanwhile gets the first, without names."""
    importlib.import_module("pandas.io.formats.style")  # with all of pandas, and what tables of texts need beside it
    importlib.import_module("transformers")


def _early(app: ASGIApp) -> ASGIApp:
    """ASGI middleware: who asks for Live edit's page waits for the model, which is loaded at once."""
    from dashboard.chat import live

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("path") == "/live":
            live.first_page_shown.set()
            live.wanted.set()
        await app(scope, receive, send)

    return answer


def _preload() -> None:
    from dashboard.chat import live, opening

    live.preload(warm=lambda: opening.request() is None)
    opening.prepare()
