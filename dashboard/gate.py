"""Who is answered: requests by a name of this server, from its own pages, and off this machine with the token only;
and with which headers: the browser may talk to this server only, and fetches chart code and typeface early."""

import hmac
import ipaddress
import re
import secrets
import socket
from collections.abc import Collection
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dashboard.charts import typeface

TOKEN = "token"  # nosec B105 # its name in the address
WILDCARDS = (
    "0.0.0.0",  # nosec B104 # known so that it is guarded; the default is 127.0.0.1
    "::",
)
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?", re.IGNORECASE)
_CLOSED = "/_stcore/metrics"  # Streamlit's statistics for operators, open to anyone by default
_POLICY_VIOLATION = 1008  # close code of websockets
# Streamlit needs inline styles and its one inline script, and hands the script of a component of ours over as a blob;
# plotly writes images to data and blob addresses.
POLICY = "; ".join((
    "default-src 'self'", "script-src 'self' 'unsafe-inline' 'wasm-unsafe-eval' blob:",
    "style-src 'self' 'unsafe-inline'", "img-src 'self' data: blob:", "font-src 'self' data:",
    "connect-src 'self' data: blob:", "worker-src 'self' blob:", "object-src 'none'", "base-uri 'self'",
    "form-action 'self'", "frame-ancestors ",
))  # fmt: skip


def is_loopback(address: str) -> bool:
    """Does a server on `address` answer this machine only? A name other than `localhost` counts as one of a network."""
    return address == "localhost" or (_is_ip(address) and ipaddress.ip_address(address).is_loopback)


def is_host(name: str) -> bool:
    return re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+", name, re.IGNORECASE) is not None and not _is_ip(name)


def new_token() -> str:
    return secrets.token_urlsafe(32)


def names_of(address: str) -> frozenset[str]:
    """Host names by which a server on `address` is called; this machine's own ones where that is a network's."""
    own = () if is_loopback(address) else (socket.gethostname().lower(),)
    return frozenset((*LOOPBACK_NAMES, *own, address.lower())) - set(WILDCARDS)


class Gate:
    """ASGI middleware in front of the whole app, pages and files and websocket alike.

    Refused with 403, before anything of the app is asked: a Host that is none of `names` (a foreign name that was
    pointed here, "DNS rebinding"; any_ip: numbers are nobody's name and pass); an Origin other than this very host
    and port (the page of another server, a local one included); and with a token whatever does not bring it. The first
    address with `?token=…` is answered with a cookie and the same address without it, so that links of the app do not
    hand it on. Streamlit's statistics are 404 for everybody.

    names: lower case, without port. token: None on an address of this machine only, and where everybody is served."""

    def __init__(
        self, app: ASGIApp, *, names: Collection[str], any_ip: bool = False, token: str | None = None, cookie: str = ""
    ) -> None:
        self.app = app
        self.names, self.any_ip = frozenset(names), any_ip
        self.token, self.cookie = token, cookie or TOKEN
        self.pass_word = secrets.token_urlsafe(32)  # what the cookie holds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        why = self._refused(headers) or self._without_token(scope)
        if why:
            await _refuse(why, scope, receive, send)
        elif scope["path"].rstrip("/").endswith(_CLOSED):
            await PlainTextResponse("not found", 404)(scope, receive, send)
        elif self.token is not None and scope.get("method") in ("GET", "HEAD") and _given(scope):
            await self._welcome(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _refused(self, headers: Headers) -> str:
        """Why these headers are refused; empty where they are not."""
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            return "This server is not called that way. Open it by the address that it printed when it started."
        own = {f"{scheme}://{hosts[0].lower()}" for scheme in ("http", "https")}
        if not own.issuperset(origin.lower() for origin in origins):
            return "Pages of other servers may not talk to this one."
        return ""

    def _is_ours(self, host: str) -> bool:
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name = match[1].strip("[]").rstrip(".").lower()
        return name in self.names or (self.any_ip and _is_ip(name))

    def _without_token(self, scope: Scope) -> str:
        """What to do, where the token is wanted and is neither in the address nor in a cookie."""
        if self.token is None:
            return ""
        carried = HTTPConnection(scope).cookies.get(self.cookie, "")
        if _same(carried, self.pass_word) or any(_same(one, self.token) for one in _given(scope)):
            return ""
        return "This app wants its token. Open it by the address, with the token, that it printed when it started."

    async def _welcome(self, scope: Scope, receive: Receive, send: Send) -> None:
        """To the same address without the token, with the cookie in its place."""
        rest = [(name, value) for name, value in parse_qsl(_query(scope), keep_blank_values=True) if name != TOKEN]
        target = "/" + quote(scope["path"].lstrip("/")) + (f"?{urlencode(rest)}" if rest else "")
        response = RedirectResponse(target, 303, headers={"Cache-Control": "no-store"})
        response.set_cookie(self.cookie, self.pass_word, httponly=True, samesite="lax")
        await response(scope, receive, send)


async def _refuse(why: str, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":  # before it is accepted: the client sees 403
        await receive()
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": why})
    else:
        await PlainTextResponse(why, 403, headers={"Cache-Control": "no-store"})(scope, receive, send)


def _given(scope: Scope) -> list[str]:
    """Tokens in the address; nothing else of it counts as one."""
    return [value for name, value in parse_qsl(_query(scope), keep_blank_values=True) if name == TOKEN]


def _query(scope: Scope) -> str:
    query: bytes = scope.get("query_string", b"")
    return query.decode("latin-1")


def _same(given: str, wanted: str) -> bool:
    """Compared in a time that does not tell how much of it is right."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), wanted.encode("utf-8"))


def _is_ip(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class LocalOnlyHeaders:
    """ASGI middleware. A page cannot make the browser call another server, whatever text it shows.
    The pages also name plotly's code and our typeface in a `Link` header, so that the browser loads them while the
    first script run is under way instead of after it. framed_by: whose pages may show the app inside them."""

    def __init__(self, app: ASGIApp, *, framed_by: str = "'none'") -> None:
        self.app, self.policy = app, POLICY + framed_by
        self.preload = _preload_links()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["Content-Security-Policy"] = self.policy
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "no-referrer"
                if headers.get("content-type", "").startswith("text/html"):
                    headers.append("Link", self.preload)
            await send(message)

        await self.app(scope, receive, send_with_headers)


def _preload_links() -> str:
    """A `Link` header value for our typeface and, where it is found, plotly's part of Streamlit's own files."""
    import streamlit  # takes a second: what is wrong with an address is said before

    folder = Path(streamlit.__file__).parent / "static" / "static" / "js"
    charts = sorted(folder.glob("PlotlyChart.*.js"))
    early = [f"</static/js/{path.name}>; rel=modulepreload; crossorigin" for path in charts]
    kind = f"rel=preload; as=font; type={typeface.MEDIA_TYPE}; crossorigin"
    return ", ".join([*early, *(f"<{typeface.path(weight)}>; {kind}" for weight in typeface.WEIGHTS)])
