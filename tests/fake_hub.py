"""A small hub on this machine, for tests of the way to models and data sets: listings, files, refusals, faults.

It answers as the Hugging Face hub does, as far as huggingface_hub and datasets look: information with the commit,
listings, files with their hashes as ETags, large ones behind a redirect to another host name, refusals with the
hub's error codes. `Fault`s replace or spoil its answers.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
import yaml

_LARGE = 20_000  # bytes: from here on a file is served from another host, and named by its SHA-256
_FILE = re.compile(r"/(?P<kind>datasets/)?(?P<id>[\w.-]+/[\w.-]+)/resolve/(?P<revision>[^/]+)/(?P<name>.+)")
_API = re.compile(r"/api/(?P<kind>models|datasets)/(?P<id>[\w.-]+/[\w.-]+)(?:/(?P<what>[\w-]+))?(?:/(?P<rest>.*))?")


@dataclass
class Repository:
    """Files by name, and what is special. tags: other names of the one commit."""

    files: dict[str, bytes]
    gated: bool = False
    private: bool = False
    disabled: bool = False
    moved_to: str | None = None
    storage_layer: bool = False  # large files are announced as in the newer storage, which here refuses to serve them
    tags: tuple[str, ...] = ()

    @property
    def commit(self) -> str:
        return hashlib.sha1(repr(sorted((n, _sha256(b)) for n, b in self.files.items())).encode()).hexdigest()

    @property
    def tags_of_card(self) -> list[str]:
        front = self.files.get("README.md", b"").decode().split("---\n")
        return (yaml.safe_load(front[1]) or {}).get("tags", []) if len(front) > 2 else []

    @classmethod
    def of_folder(cls, folder: Path, **options: Any) -> Repository:
        return cls({file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}, **options)


@dataclass
class Fault:
    """What happens to requests whose path matches, the first so many times (-1: always)."""

    path: str
    status: int | None = None  # this answer in place of the real one
    headers: dict[str, str] = field(default_factory=dict)
    silent_s: float = 0  # no answer for so long
    break_after: int | None = None  # bytes of the body, then the connection ends
    bytes_per_s: int | None = None
    until: threading.Event | None = None  # the second half of the body comes byte by byte, all of it once this is set
    spoil: bool = False  # one byte of the body is another
    whole: bool = False  # whoever asks for a part of a file gets all of it
    times: int = -1


class FakeHub(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[str, Repository] = {}  # models by id, data sets as datasets/id
        self.tokens: dict[str, set[str]] = {}  # token -> ids that its owner may read
        self.faults: list[Fault] = []
        self.asked: list[tuple[str, str, str | None]] = []  # method, path, range

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_: object) -> None:  # a client that went away
        pass

    def fault(self, path: str) -> Fault | None:
        for fault in self.faults:
            if fault.times != 0 and re.search(fault.path, path):
                fault.times -= fault.times > 0
                return fault
        return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeHub

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(urlsplit(self.path).path)
        self.server.asked.append((self.command, path, self.headers.get("Range")))
        self.fault = self.server.fault(path) or Fault("")
        time.sleep(self.fault.silent_s)
        if self.fault.status:
            self._send(self.fault.status, b"", self.fault.headers)
        elif path == "/api/whoami-v2":
            token = self._token()
            self._json({"name": token, "type": "user"}) if token in self.server.tokens else self._refuse(401, None, "-")
        elif path.startswith("/cdn/"):
            everything = (b for one in self.server.repositories.values() for b in one.files.values())
            self._content(next(content for content in everything if _sha256(content) in path))
        elif found := _FILE.fullmatch(path):
            repository = self._visible((found["kind"] or "") + found["id"])
            if repository is not None:
                self._file(repository, found)
        elif found := _API.fullmatch(path):
            kind = "datasets/" if found["kind"] == "datasets" else ""
            repository = self._visible(kind + found["id"])
            if repository is not None:
                self._api(repository, found, body)
        else:
            self._refuse(404, None, "no such page")

    do_HEAD = do_POST = do_GET

    def _token(self) -> str | None:
        return self.headers.get("Authorization", "").removeprefix("Bearer ") or None

    def _visible(self, name: str) -> Repository | None:
        """The repository, or None after an answer that says why it is not for the one who asks."""
        token = self._token()
        repository = self.server.repositories.get(name)
        if token is not None and token not in self.server.tokens:
            self._refuse(401, None, "Invalid credentials in Authorization header")
        elif repository is None or (repository.private and name not in self.server.tokens.get(token or "", ())):
            self._refuse(404 if token else 401, "RepoNotFound", "Repository not found")
        elif repository.disabled:
            self._refuse(403, None, "Access to this resource is disabled.")
        elif repository.moved_to:
            self._send(307, b"", {"Location": self.path.replace(name, repository.moved_to, 1)})
        else:
            return repository
        return None

    def _api(self, repository: Repository, found: re.Match[str], body: bytes) -> None:
        what, rest = found["what"], found["rest"] or ""
        revision = rest.split("/")[0] or "main"
        if what == "xet-read-token":
            there = {"X-Xet-Cas-Url": f"{self.server.address}/storage", "X-Xet-Access-Token": "t"}
            self._send(200, b"{}", {**there, "X-Xet-Token-Expiration": str(int(time.time()) + 3600)})
        elif revision not in ("main", repository.commit, *repository.tags):
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        elif what in (None, "revision"):
            siblings = [{"rfilename": name} for name in repository.files]
            about = {"id": found["id"], "modelId": found["id"], "sha": repository.commit, "siblings": siblings}
            about |= {"private": repository.private, "gated": repository.gated, "tags": repository.tags_of_card}
            self._json({**about, "downloads": 0, "likes": 0})
        elif what == "tree":
            inside = rest.partition("/")[2]
            self._json([_entry(n, b, repository) for n, b in repository.files.items() if n.startswith(inside)])
        elif what == "paths-info":
            wanted = json.loads(body)["paths"] if body.startswith(b"{") else parse_qs(body.decode())["paths"]
            self._json([_entry(n, b, repository) for n, b in repository.files.items() if n in wanted])
        else:
            self._json([])

    def _file(self, repository: Repository, found: re.Match[str]) -> None:
        content = repository.files.get(found["name"])
        if repository.gated and found["id"] not in self.server.tokens.get(self._token() or "", ()):
            known = self._token() is not None
            self._refuse(403 if known else 401, "GatedRepo", f"Access to model {found['id']} is restricted.")
        elif content is None:
            self._refuse(404, "EntryNotFound", "Entry not found")
        elif len(content) < _LARGE:
            self._content(content, {"X-Repo-Commit": repository.commit, "ETag": f'"{_git(content)}"'})
        else:
            digest = _sha256(content)
            headers = {"X-Linked-Size": str(len(content)), "X-Linked-ETag": f'"{digest}"', "ETag": f'"{digest}"'}
            if repository.storage_layer:
                way = f"{self.server.address}/api/models/{found['id']}/xet-read-token/{repository.commit}"
                headers |= {"X-Xet-Hash": digest[::-1], "Link": f'<{way}>; rel="xet-auth"'}
            other_host = self.server.address.replace("127.0.0.1", "localhost")
            headers["X-Repo-Commit"] = repository.commit
            self._send(302, b"", {"Location": f"{other_host}/cdn/{digest}", **headers})

    def _content(self, content: bytes, headers: dict[str, str] | None = None) -> None:
        size = len(content)
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if asked is None or self.fault.whole:
            self._send(200, content, headers or {})
            return
        start, end = int(asked[1]), min(int(asked[2] or size - 1), size - 1)
        part = {"Content-Range": f"bytes {start}-{end}/{size}"}
        self._send(206, content[start : end + 1], {**(headers or {}), **part})

    def _refuse(self, status: int, code: str | None, sentence: str) -> None:
        headers = {"X-Error-Message": sentence, **({"X-Error-Code": code} if code else {})}
        self._send(status, json.dumps({"error": sentence}).encode(), headers)

    def _json(self, value: object) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Accept-Ranges": "bytes", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if self.fault.spoil and body:
            body = body[:-1] + bytes([body[-1] ^ 1])
        if self.fault.break_after is not None and len(body) > self.fault.break_after:
            self.wfile.write(body[: self.fault.break_after])
            self.close_connection = True
        elif self.fault.until is not None:
            at = len(body) // 2
            self.wfile.write(body[:at])
            while at < len(body) and not self.fault.until.wait(0.1):
                self.wfile.write(body[at : at + 1])
                at += 1
            self.wfile.write(body[at:])
        elif self.fault.bytes_per_s:
            step = max(1, self.fault.bytes_per_s // 10)
            for start in range(0, len(body), step):
                self.wfile.write(body[start : start + step])
                self.wfile.flush()
                time.sleep(0.1)
        else:
            self.wfile.write(body)


def _entry(name: str, content: bytes, repository: Repository) -> dict[str, Any]:
    entry: dict[str, Any] = {"type": "file", "path": name, "size": len(content), "oid": _git(content)}
    if len(content) >= _LARGE:
        entry["lfs"] = {"oid": _sha256(content), "size": len(content), "pointerSize": 130}
        if repository.storage_layer:
            entry["xetHash"] = _sha256(content)[::-1]
    return entry


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _git(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@contextmanager
def running(hub: FakeHub | None = None) -> Iterator[FakeHub]:
    """A hub that serves as long as the block runs."""
    with hub or FakeHub() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()


def go_online(server: FakeHub, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point this process's huggingface_hub at the server, with caches in `home`, no token, and a time-out of 1 s."""
    from huggingface_hub import close_session, constants

    close_session()
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    template = server.address + "/{repo_id}/resolve/{revision}/{filename}"
    for name, value in {
            "ENDPOINT": server.address, "HUGGINGFACE_CO_URL_TEMPLATE": template, "HF_HUB_OFFLINE": False,
            "HF_HUB_CACHE": str(home / "hub"), "HF_ASSETS_CACHE": str(home / "assets"),
            "HF_TOKEN_PATH": str(home / "token"), "HF_HUB_ETAG_TIMEOUT": 1, "HF_HUB_DOWNLOAD_TIMEOUT": 1,
    }.items():  # fmt: skip
        monkeypatch.setattr(f"huggingface_hub.constants.{name}", value)
    assert constants.HF_HUB_OFFLINE is False


def environment(server: FakeHub, home: Path) -> dict[str, str]:
    """The environment of a child process that knows only this hub."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING", "PYTEST"))}
    return {**kept, "HF_ENDPOINT": server.address, "HF_HOME": str(home), "SELECTOR_AUDIT_STORE": str(home / "store")}
