"""Who the server answers: names, origins and the token, asked of the gate as a server asks it (no port is opened)."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from urllib.parse import urlsplit

import pytest

from dashboard import gate, serve
from dashboard.chat import live

NAME, LAN = "localhost:8501", "192.0.2.7:8501"
TOKEN = "t" * 43


class App:
    """The app behind the gate: remembers what got through."""

    def __init__(self):
        self.asked = []

    async def __call__(self, scope, receive, send):
        self.asked.append(scope["path"])
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"the app"})
        else:
            await receive()
            await send({"type": "websocket.accept"})


def local():
    return gate.Gate(App(), names=gate.names_of("127.0.0.1"))


def shared():
    return gate.Gate(App(), names=gate.names_of("0.0.0.0"), any_ip=True, token=TOKEN, cookie="c")


@pytest.mark.parametrize("path", ["/live", "/curves"])
def test_who_asks_for_live_edit_has_its_model_loaded_and_nobody_else(path, monkeypatch):
    events = {name: Event() for name in ("first_page_shown", "wanted")}
    for name, event in events.items():
        monkeypatch.setattr(live, name, event)
    ask(serve._early(behind := App()), path)
    assert behind.asked == [path]
    assert {event.is_set() for event in events.values()} == {path == "/live"}


def ask(one, path="/", *, query="", method="GET", kind="http", host=NAME, **headers):
    """Messages that the server would get: the first one's status or type, headers, body."""
    sent = []

    async def receive():
        return {"type": "websocket.connect" if kind == "websocket" else "http.request"}

    async def send(message):
        sent.append(message)

    given = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    hosts = [host] if isinstance(host, str) else host
    scope = {
        "type": kind, "path": path, "raw_path": path.encode(), "query_string": query.encode("latin-1"),
        "scheme": "http", "headers": [(b"host", name.encode("latin-1")) for name in hosts] + given,
    }  # fmt: skip
    if kind == "http":
        scope["method"] = method
    # In a thread of its own: a browser test that ran before in this process leaves its event loop running.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, one(scope, receive, send)).result()
    head = sent[0]
    found = {name.decode(): value.decode() for name, value in head.get("headers", [])}
    return head.get("status", head["type"]), found, b"".join(one.get("body", b"") for one in sent)


@pytest.mark.parametrize("host", [NAME, "LOCALHOST:8501", "localhost", "127.0.0.1:9000", "[::1]:8501", "localhost.:1"])
def test_this_machine_is_answered_by_its_own_names(host):
    for kind, told in (("http", 200), ("websocket", "websocket.accept")):
        one = local()
        assert ask(one, kind=kind, host=host)[0] == told
        assert one.app.asked == ["/"]


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:8501", "localhost.evil.example", "127.0.0.1.evil.example", "192.0.2.7:8501", "",
        "localhost:8501@evil.example", "evil.example/localhost", "localhost:", "localhost:x", "a b", "[::1", "0.0.0.0",
        [], [NAME, NAME], [NAME, "evil.example"],
    ],
)  # fmt: skip
def test_foreign_names_that_point_here_are_refused(host):
    for kind, told in (("http", 403), ("websocket", "websocket.close")):
        one = local()
        status, _, body = ask(one, kind=kind, host=host)
        assert status == told
        assert b"the app" not in body
        assert one.app.asked == []


@pytest.mark.parametrize(
    ("origin", "passes"),
    [
        ("http://localhost:8501", True), ("https://localhost:8501", True), ("http://LOCALHOST:8501", True),
        ("http://localhost:9999", False), ("http://localhost", False), ("http://127.0.0.1:8501", False),
        ("http://0.0.0.0:8501", False), ("http://evil.example", False), ("null", False), ("", False),
        ("http://localhost:8501.evil.example", False), ("file://localhost:8501", False),
        ("http://localhost:8501/", False),
    ],
)  # fmt: skip
def test_pages_of_this_very_port_only_may_talk_to_it(origin, passes):
    for kind, told in (("http", (200, 403)), ("websocket", ("websocket.accept", "websocket.close"))):
        one = local()
        assert ask(one, kind=kind, origin=origin)[0] == told[not passes]
        assert bool(one.app.asked) == passes


@pytest.mark.parametrize(
    "path", ["/_stcore/metrics", "/_stcore/metrics/", "//_stcore/metrics", "/base/_stcore/metrics"]
)
def test_statistics_are_closed(path):
    for one, query in ((local(), ""), (shared(), f"token={TOKEN}")):
        assert ask(one, path, query=query)[0] == 404
        assert one.app.asked == []


PATHS = (
    "/", "/runs", "/static/js/index.js", "/_stcore/health", "/_stcore/host-config", "/media/x.csv",
    "/_stcore/stream",
)  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "query",
    ["", "token=", f"token={TOKEN[:-1]}", f"token={TOKEN}x", f"token={TOKEN.upper()}", f"Token={TOKEN}",
     "token=%ff%00é", f"x={TOKEN}", f"a=token={TOKEN}"],
)  # fmt: skip
def test_without_the_token_nothing_of_the_app_is_served(path, query):
    for kind, told in (("http", 403), ("websocket", "websocket.close")):
        one = shared()
        status, headers, body = ask(one, path, query=query, kind=kind, cookie=f"c={TOKEN}; token={TOKEN}; c=")
        assert status == told
        assert "set-cookie" not in headers
        assert TOKEN.encode() not in body
        assert one.app.asked == []


def test_the_token_becomes_a_cookie_and_leaves_the_address():
    one = shared()
    status, headers, _ = ask(one, "/curves", query=f"source=Paper&token={TOKEN}&model=a%2Fb")
    assert (status, headers["location"]) == (303, "/curves?source=Paper&model=a%2Fb")
    cookie = headers["set-cookie"]
    assert "httponly" in cookie.lower()
    assert "samesite=lax" in cookie.lower()
    assert TOKEN not in cookie
    carried = cookie.split(";")[0]
    for path in PATHS:
        assert ask(one, path, cookie=carried)[0] == 200
        assert ask(one, path, kind="websocket", cookie=carried, origin=f"http://{NAME}")[0] == "websocket.accept"
    assert ask(one, cookie=carried, host=LAN)[0] == 200  # by its number in the network
    assert ask(one, cookie=carried, host="evil.example")[0] == 403
    assert ask(one, cookie=carried, origin="http://evil.example")[0] == 403
    assert ask(shared(), cookie=carried)[0] == 403  # another server's, or this one's before it was started anew


def test_the_token_leads_nowhere_else():
    status, headers, _ = ask(shared(), "//evil.example/\r\nx", query=f"token={TOKEN}")
    assert status == 303
    target = urlsplit(headers["location"])
    assert (target.scheme, target.netloc) == ("", "")
    assert headers["location"] == "/evil.example/%0D%0Ax"


def test_names_come_from_the_address():
    assert gate.names_of("127.0.0.1") == set(gate.LOOPBACK_NAMES)
    assert "127.0.0.2" in gate.names_of("127.0.0.2")
    assert {"192.0.2.7", "localhost"} <= gate.names_of("192.0.2.7")
    assert not gate.names_of("0.0.0.0") & set(gate.WILDCARDS)
    assert [gate.is_loopback(one) for one in ("127.0.0.1", "127.9.9.9", "::1", "localhost")] == [True] * 4
    assert [gate.is_loopback(one) for one in ("0.0.0.0", "::", "192.0.2.7", "box.example", "")] == [False] * 5
    assert gate.new_token() != gate.new_token()
    assert len(gate.new_token()) >= 43


def test_addresses_to_open():
    assert serve.addresses("127.0.0.1", 8501, None) == ["http://localhost:8501"]
    assert serve.addresses("127.0.0.2", 8501, None) == ["http://127.0.0.2:8501"]
    assert serve.addresses("fd00::7", 8501, "x") == ["http://[fd00::7]:8501/?token=x"]
    assert serve.addresses("0.0.0.0", 8501, "x")[0] == "http://localhost:8501/?token=x"
