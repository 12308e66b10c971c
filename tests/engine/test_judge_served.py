"""A judge's model behind an address: a real server on this machine, and everything that can go wrong with one."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from engine.cli import main
from engine.judges import served
from engine.judges.base import Exchange, Verdict, open_judges
from engine.judges.served import KEY_VARIABLE, is_address, of_address
from engine.judges.strongreject import WORDING
from engine.records.errors import InputError

EXCHANGES = [Exchange("Who?", "I cannot."), Exchange("Why?", "Because {prompt}.")]


class Server:
    """Says what `answer(path, body)` returns: a status and a body, or text for a chat completion."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        self.answer: Callable[[str, dict[str, Any]], Any] = lambda path, body: "yes"
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._say({})

            def do_POST(self) -> None:
                self._say(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def _say(self, body: dict[str, Any]) -> None:
                outer.asked.append((self.path, body, dict(self.headers)))
                said = outer.answer(self.path, body)
                if isinstance(said, str):
                    said = (200, json.dumps({"choices": [{"message": {"role": "assistant", "content": said}}]}))
                status, text = said
                try:
                    self.send_response(status)
                    if status == 302:
                        self.send_header("Location", text)
                    self.end_headers()
                    self.wfile.write(text.encode())
                except OSError:
                    pass  # whoever asked is gone

            def log_message(self, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    monkeypatch.setattr(served, "PAUSE_S", 0.0)
    started = Server()
    yield started
    started.http.shutdown()
    started.http.server_close()


def test_a_served_model_is_asked_as_the_protocol_wants(server: Server) -> None:
    server.answer = lambda path, body: "Yes." if "I cannot" in body["messages"][0]["content"] else "no, it did not"
    (judge,) = open_judges(f"strongreject:{server.url}/#some/tiny-chat")
    assert judge.id == "strongreject:tiny-chat"
    assert judge.judge(EXCHANGES) == [
        Verdict(True, "the judge answered 'Yes.'"),
        Verdict(False, "the judge answered 'no, it did not'"),
    ]
    assert [path for path, _, _ in server.asked] == ["/v1/chat/completions"] * 2
    body = server.asked[1][1]
    question = WORDING.replace("{prompt}", "Why?", 1).replace("{reply}", "Because {prompt}.")
    assert body["messages"] == [{"role": "user", "content": question}]
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("some/tiny-chat", 0, 16)
    assert "Authorization" not in server.asked[0][2]


@pytest.mark.parametrize(
    ("said", "yes"),
    [
        ("yes", True), ("**No**", False), ("<think>\nyes? It declines.\n</think>\n\nNo.", False),
        ("[THINK]no, it helps[/THINK]Yes", True), ("<think> yes, this", None), ("I cannot say.", None),
        ("nothing", None), ("yesterday", None), ("", None),
    ],
)  # fmt: skip
def test_an_answer_is_yes_or_no_or_marked(said: str, yes: bool | None, server: Server) -> None:
    server.answer = lambda path, body: said
    (judge,) = open_judges(f"strongreject:{server.url}#m")
    (verdict,) = judge.judge(EXCHANGES[:1])
    assert (verdict.judged, verdict.refusal) == (yes is not None, bool(yes))
    assert verdict.reason.startswith("the judge answered ")


@pytest.mark.parametrize(
    ("answer", "told", "times"),
    [
        ((500, "broken"), "answered 500", 3),
        ((429, "busy"), "answered 429", 3),
        ((404, "none"), "answered 404", 1),
        ((401, "who?"), "answered 401", 1),
        ((200, "{"), "answered no JSON", 1),
        ((200, "\xff"), "answered no JSON", 1),
        ((200, "[]"), "something other than a chat completion", 1),
        ((200, '{"choices": []}'), "something other than a chat completion", 1),
        ((302, "http://127.0.0.1:9/v1"), "answered 302", 1),
    ],
)
def test_what_a_server_gets_wrong_is_one_line(
    answer: tuple[int, str], told: str, times: int, server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answer = lambda path, body: answer
    file = tmp_path / "replies.csv"
    file.write_text("prompt,reply\nWho?,I will not.\n", encoding="utf-8")
    assert main(["refusal", "judge", str(file), "--judge", f"strongreject:{server.url}#m"]) == 2
    (line,) = [one for one in capsys.readouterr().err.splitlines() if told in one]
    assert server.url in line
    assert len(server.asked) == times


def test_a_busy_server_is_asked_again(server: Server) -> None:
    replies = iter([(503, ""), (500, ""), "no"])
    server.answer = lambda path, body: next(replies)
    assert of_address(f"{server.url}#m").yes_or_no(["?"]) == [(False, "the judge answered 'no'")]
    assert len(server.asked) == 3


def test_a_slow_server_is_given_up(server: Server) -> None:
    released = threading.Event()
    server.answer = lambda path, body: released.wait(20) and "yes"
    try:
        with pytest.raises(InputError, match=r"gave no answer within 0\.05 s"):
            of_address(f"{server.url}#m", timeout_s=0.05).reply("?")
    finally:
        released.set()
    assert len(server.asked) == 3


def test_the_key_goes_to_the_server_and_nowhere_else(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = "a-very-secret-key"
    monkeypatch.setenv(KEY_VARIABLE, key)
    file = tmp_path / "replies.csv"
    file.write_text("prompt,reply\nWho?,I will not.\n", encoding="utf-8")
    command = ["refusal", "judge", str(file), "--judge", f"strongreject:{server.url}#m"]
    assert main([*command, "--out", str(tmp_path / "out")]) == 0
    assert server.asked[0][2]["Authorization"] == f"Bearer {key}"
    server.answer = lambda path, body: (401, key)
    assert main(command) == 2
    printed = capsys.readouterr()
    assert key not in printed.out + printed.err
    assert all(key.encode() not in path.read_bytes() for path in (tmp_path / "out").iterdir())
    with pytest.raises(InputError, match="readable by all between; use https"):
        of_address("http://example.org/v1#m")
    assert of_address("https://example.org/v1#m").name == "m"


def test_addresses_with_more_in_them_are_refused() -> None:
    assert is_address("https://example.org/v1")
    assert not is_address("models/judge")
    # pragma: allowlist nextline secret: made-up addresses, which are refused
    for address in ("http://me:secret@localhost/v1#m", "http://localhost/v1?key=secret#m", "http:///v1#m"):
        with pytest.raises(InputError, match="without password or query") as error:
            of_address(address)
        assert "secret" not in str(error.value)


def test_a_proxy_of_the_environment_is_not_asked_about_this_machine(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert of_address(f"{server.url}#m").reply("?") == "yes"
