"""The small hub of `fake_hub`, which also takes uploads: new data sets, large files by LFS, commits; and refuses them.

It answers as huggingface_hub asks: create, preupload, the batch of LFS, PUT, validate-yaml, commit. A `Fault` with
`break_after` ends the connection before any answer; Xet, the newer way of large files, is off (`go_online`).
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import fake_hub
import pytest
import yaml
from fake_hub import FakeHub, Repository

_UPLOAD = re.compile(r"/api/datasets/(?P<id>[\w.-]+/[\w.-]+)/(?P<what>preupload|commit)/main")
_BATCH = re.compile(r"/datasets/(?P<id>[\w.-]+/[\w.-]+)\.git/info/lfs/objects/batch")


class _Uploads(fake_hub._Handler):
    server: UploadHub

    def do_POST(self) -> None:
        path = unquote(urlsplit(self.path).path)
        upload, batch = _UPLOAD.fullmatch(path), _BATCH.fullmatch(path)
        if not (upload or batch or path in ("/api/repos/create", "/api/validate-yaml") or path.startswith("/lfs/")):
            super().do_GET()
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append((self.command, path, None))
        self.fault = self.server.fault(path) or fake_hub.Fault("")
        if self.fault.break_after is not None:
            self.close_connection = True
        elif self.fault.status:
            self._refuse(self.fault.status, None, "so it is")
        elif path.startswith("/lfs/"):
            assert path == f"/lfs/{hashlib.sha256(body).hexdigest()}"
            self.server.large[path.removeprefix("/lfs/")] = body
            self._send(200, b"", {})
        elif path == "/api/validate-yaml":
            yaml.safe_load(json.loads(body)["content"].split("---")[1])
            self._json({"warnings": [], "errors": []})
        else:
            given = json.loads(body) if not path.endswith("commit/main") else {}
            match = upload or batch
            name = match["id"] if match else f"{given['organization']}/{given['name']}"
            if self._token() not in self.server.tokens:
                self._refuse(401, None, "Invalid credentials in Authorization header")
            elif name.split("/")[0] not in self.server.writers.get(self._token() or "", ()):
                self._refuse(403, None, f"You don't have the rights to write to {name}")
            elif match is None:
                self._create(name, given)
            elif batch:
                self._batch(given)
            elif upload and upload["what"] == "preupload":
                self._modes(given)
            else:
                self._commit(self.server.repositories[f"datasets/{name}"], name, body)

    do_PUT = do_POST

    def _create(self, name: str, given: dict[str, Any]) -> None:
        private, address = given.get("visibility") == "private", f"{self.server.address}/datasets/{name}"
        assert f"datasets/{name}" not in self.server.repositories
        self.server.repositories[f"datasets/{name}"] = Repository({".gitattributes": b"*.parquet lfs"}, private=private)
        self.server.tokens[self._token() or ""].add(f"datasets/{name}")
        self._json({"url": address, "name": name})

    def _modes(self, given: dict[str, Any]) -> None:
        large = (".parquet", ".safetensors")
        modes = [(one["path"], "lfs" if one["path"].endswith(large) else "regular") for one in given["files"]]
        self._json({"files": [{"path": name, "uploadMode": mode, "shouldIgnore": False} for name, mode in modes]})

    def _batch(self, given: dict[str, Any]) -> None:
        for one in given["objects"]:
            if one["oid"] not in self.server.large:
                one["actions"] = {"upload": {"href": f"{self.server.address}/lfs/{one['oid']}"}}
        self._json({"transfer": "basic", "objects": given["objects"]})

    def _commit(self, repository: Repository, name: str, body: bytes) -> None:
        lines = [json.loads(line) for line in body.splitlines()]
        parent = next(line["value"] for line in lines if line["key"] == "header").get("parentCommit")
        if parent not in (None, repository.commit):
            self._refuse(412, None, "A commit has happened since")
            return
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                repository.files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                repository.files[value["path"]] = self.server.large[value["oid"]]
            elif line["key"] == "deletedFile":
                del repository.files[value["path"]]
        url = f"{self.server.address}/datasets/{name}/commit/{repository.commit}"
        self._json({"commitUrl": url, "commitOid": repository.commit})


class UploadHub(FakeHub):
    """writers: token -> namespaces that it may write to. large: what came by LFS, by its SHA-256."""

    def __init__(self) -> None:
        super().__init__()
        self.RequestHandlerClass = _Uploads
        self.writers: dict[str, set[str]] = {}
        self.large: dict[str, bytes] = {}


@contextmanager
def online(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[UploadHub]:
    """Such a hub, which this process takes for the only one, and the token `t` that may write to `me`."""
    with fake_hub.running(UploadHub()) as server:
        assert isinstance(server, UploadHub)
        fake_hub.go_online(server, home, monkeypatch)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", "t")
        server.tokens["t"], server.writers["t"] = set(), {"me"}
        yield server
