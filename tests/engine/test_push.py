"""A run goes to a hub and comes back; what the hub refuses is one line, and nobody's files are written over."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_hub import Fault, Repository
from fake_uploads import UploadHub, online
from huggingface_hub import DatasetCard
from manifests import edited
from safetensors.numpy import save_file

import precomputed
from engine.cli import main
from engine.records import bounds
from engine.records.manifest import read_manifest
from engine.run.hub_runs import fetch_run

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # huggingface_hub's own way of PUT
KEPT = ("sweep.parquet", "verdicts.parquet", "rows.parquet", "scores.safetensors", "mask-lrp-hate.safetensors")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[UploadHub]:
    with online(tmp_path / "home", monkeypatch) as server:
        yield server


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Some files of the shipped run."""
    folder, shipped = tmp_path / "run", precomputed.demo_dir() / "results"
    folder.mkdir()
    shutil.copy(shipped / "manifest.json", folder)
    with edited(folder) as manifest:
        manifest["files"] = {name: one for name, one in manifest["files"].items() if name in KEPT}
    for name in read_manifest(folder)["files"]:
        shutil.copy(shipped / name, folder)
    assert len(list(folder.iterdir())) > 3
    return folder


def told(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> Any:
    """What a command says: its JSON, or its one line of an error."""
    capsys.readouterr()
    assert main([*map(str, words), *(["--json"] if not code else [])]) == code, capsys.readouterr().err
    said = capsys.readouterr()
    lines = [line for line in said.err.splitlines() if line.strip("\x1b[A") and "/s]" not in line]  # no bars of the hub
    assert len(lines) == bool(code), said.err
    return lines[0] if code else json.loads(said.out)


def test_a_run_goes_up_and_every_reader_takes_it_by_its_address(
    hub: UploadHub, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dry = told(capsys, "push", run, "--to", "me/audit", "--dry-run")
    assert not hub.asked
    pushed = told(capsys, "push", run, "--to", "me/audit")
    repository = hub.repositories["datasets/me/audit"]
    assert pushed["pushed"] == {
        "page": f"{hub.address}/datasets/me/audit",
        "commit": repository.commit,
        "private": True,
    }
    assert repository.private
    assert {name: len(content) for name, content in repository.files.items() if name != ".gitattributes"} == dry[
        "files"
    ]
    for name in ("manifest.json", *read_manifest(run)["files"]):
        assert repository.files[name] == (run / name).read_bytes()
    card = DatasetCard(repository.files["README.md"].decode())
    assert {"selector-audit-run", "diagnostic"} <= set(card.data.tags)
    assert {one["data_files"] for one in card.data.configs} == {
        name for name in pushed["files"] if name.endswith(".parquet")
    }
    assert "| lrp | sufficient" in card.text or "| lrp | faithful" in card.text
    assert json.loads(repository.files["schema.json"])["$id"].startswith("urn:selector-audit")

    fetched = fetch_run("me/audit")
    assert {path.name: path.read_bytes() for path in fetched.iterdir()} == {
        p.name: p.read_bytes() for p in run.iterdir()
    }
    assert told(capsys, "replay", "hf://datasets/me/audit", "--only", "rows")["holds"]
    address = f"me/audit@{repository.commit}"
    assert told(capsys, "report", address, "--out", tmp_path / "a.html", "--store", tmp_path)["folders"] == [
        str(fetched)
    ]
    assert "none of the paper's" in told(capsys, "compare", "me/audit", "--store", tmp_path, code=2)


def test_only_an_earlier_push_of_the_same_model_is_written_over(
    hub: UploadHub, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.repositories["datasets/me/mine"] = Repository({"README.md": b"---\ntags:\n- other\n---\n", "notes.txt": b"n"})
    error = told(capsys, "push", run, "--to", "me/mine", code=2)
    assert "me/mine is there, holds README.md and is no push of ours" in error
    told(capsys, "push", run, "--to", "me/audit", "--public")
    repository = hub.repositories["datasets/me/audit"]
    assert not repository.private
    repository.files["own.txt"] = b"what its owner put beside it"
    (run / "verdicts.parquet").unlink()
    with edited(run) as manifest:
        del manifest["files"]["verdicts.parquet"]
    told(capsys, "push", run, "--to", "me/audit")
    assert "verdicts.parquet" not in repository.files
    assert repository.files["own.txt"]
    before = dict(repository.files)
    with edited(run) as manifest:
        manifest["model"]["weights_hash"] = "0" * 64
    assert "holds results of" in told(capsys, "push", run, "--to", "me/audit", code=2)
    assert repository.files == before


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault("repos/create", 401), "does not accept the token from HF_TOKEN"),
        (Fault("repos/create", 403), "the token from HF_TOKEN may not write to me/audit"),
        (Fault("repos/create", 409), "me/audit was made or changed by somebody else meanwhile"),
        (Fault("commit/main", 412), "me/audit was made or changed by somebody else meanwhile"),
        (Fault("preupload", 403), "give one with the right to write, or a name of your own with --to"),
        (Fault("commit/main", 500), "me/audit was not pushed: the Hugging Face hub answered 500"),
        (
            Fault("commit/main", break_after=0),
            "me/audit was not pushed: the connection broke: Server disconnected without sending a response.; push",
        ),
        (Fault("api/datasets", 429), "the hub's limit of requests is reached"),
    ],
    ids=lambda one: f"{one.path}-{one.status}" if isinstance(one, Fault) else "",
)
def test_what_the_hub_refuses_is_one_line(
    hub: UploadHub,
    run: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    fault: Fault,
    said: str,
) -> None:
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)
    hub.faults.append(fault)
    assert said in told(capsys, "push", run, "--to", "me/audit", code=2)
    repository = hub.repositories.get("datasets/me/audit", Repository({}))
    assert "manifest.json" not in repository.files  # a commit comes whole or not at all
    hub.faults.clear()
    assert told(capsys, "push", run, "--to", "me/audit")["pushed"]["commit"]


def test_an_upload_that_breaks_goes_on(
    hub: UploadHub, run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)
    hub.faults.append(Fault("/lfs/", break_after=0, times=1))
    told(capsys, "push", run, "--to", "me/audit")
    assert hub.repositories["datasets/me/audit"].files["sweep.parquet"] == (run / "sweep.parquet").read_bytes()


def test_what_is_no_run_does_not_go(
    hub: UploadHub, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    paper = next(precomputed.paper_runs_dir().iterdir())
    assert "that a paper printed" in told(capsys, "push", paper, "--to", "me/audit", code=2)
    assert "no manifest.json" in told(capsys, "push", precomputed.demo_model_dir(), "--to", "me/audit", code=2)
    assert "USER/NAME, got 'audit'" in told(capsys, "push", run, "--to", "audit", code=2)
    monkeypatch.delenv("HF_TOKEN")
    assert "needs a token that may write" in told(capsys, "push", run, "--to", "me/audit", code=2)
    with (run / "sweep.parquet").open("ab") as file:
        file.write(b"x")
    assert "does not fit the checksum" in told(capsys, "push", run, "--to", "me/audit", code=2)
    save_file({}, run / "model.safetensors")
    with edited(run) as manifest:
        manifest["files"]["model.safetensors"] = {"sha256": "0" * 64}
    assert "lists 'model.safetensors', which is no result" in told(capsys, "push", run, "--to", "me/audit", code=2)
    assert not hub.asked


def test_a_foreign_data_set_is_looked_at_before_it_is_fetched(
    hub: UploadHub, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but the listed results comes, and of these no more bytes than are read."""
    repository = Repository.of_folder(run)
    repository.files |= {"evil.py": b"print(1)", "model.safetensors": b"x" * 30_000}
    hub.repositories["datasets/you/run"] = repository
    assert {path.name for path in fetch_run("you/run").iterdir()} == {path.name for path in run.iterdir()}
    assert not any("evil" in path or "model.safetensors" in path for _, path, _ in hub.asked)
    with monkeypatch.context() as patch:
        patch.setattr(bounds, "MAX_RUN_BYTES", 1000)
        assert "bytes of a run, at most 1,000" in told(capsys, "report", "you/run", "--store", tmp_path, code=2)
    listed = json.loads(repository.files["manifest.json"])
    listed["files"]["../../evil.py"] = {"sha256": "0" * 64}
    hub.repositories["datasets/you/other"] = Repository({"manifest.json": json.dumps(listed).encode()})
    assert "evil.py', which is no result" in told(capsys, "report", "you/other", "--store", tmp_path, code=2)
    hub.repositories["datasets/you/text"] = Repository({"a.txt": b"a"})
    error = told(capsys, "compare", "you/text", "--store", tmp_path, code=2)
    assert "results/you--text holds no manifest.json, and the data set you/text is no run" in error
    assert "no Hugging Face data set you/none" in told(capsys, "replay", "you/none", code=2)
