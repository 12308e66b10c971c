"""A run goes to a hub and comes back; what the hub refuses is one line, and nobody's files are written over."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_hub import Fault, Repository
from fake_uploads import UploadHub, online
from huggingface_hub import DatasetCard
from manifests import edited

import precomputed
from engine.cli import main
from engine.records import bounds
from engine.records.manifest import read_manifest
from engine.run.hub_runs import fetch_run

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # huggingface_hub's own way of PUT
KEPT = ("sweep.parquet", "verdicts.parquet", "rows.parquet", "scores.safetensors", "mask-lrp-hate.safetensors")
NAME = "me/audit"
Say = Callable[..., Any]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[UploadHub]:
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)
    with online(tmp_path / "home", monkeypatch) as server:
        yield server


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Some files of the shipped run."""
    folder, shipped = tmp_path / "run", precomputed.demo_dir() / "results"
    folder.mkdir()
    for name in ("manifest.json", *KEPT):
        shutil.copy(shipped / name, folder)
    with edited(folder) as manifest:
        manifest["files"] = {name: one for name, one in manifest["files"].items() if name in KEPT}
    return folder


@pytest.fixture
def say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Say:
    """What a command answers: its JSON, or the one line of its error."""

    def call(*words: object, code: int = 0) -> Any:
        store = [] if words[0] == "replay" else ["--store", tmp_path]
        assert main([*map(str, [*words, *store]), *(["--json"] if not code else [])]) == code, capsys.readouterr().err
        said = capsys.readouterr()
        lines = [line for line in said.err.splitlines() if line.strip("\x1b[A") and "/s]" not in line]  # but bars
        assert len(lines) == bool(code), said.err
        return lines[0] if code else json.loads(said.out)

    return call


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_run_goes_up_and_every_reader_takes_it_by_its_address(
    hub: UploadHub, run: Path, tmp_path: Path, say: Say
) -> None:
    dry = say("push", run, "--to", NAME, "--dry-run")
    assert not hub.asked
    pushed, repository = say("push", run, "--to", NAME), hub.repositories[f"datasets/{NAME}"]
    page = f"{hub.address}/datasets/{NAME}"
    assert pushed["pushed"] == {"page": page, "commit": repository.commit, "private": True}
    assert repository.private
    there = {name: one for name, one in repository.files.items() if name != ".gitattributes"}
    assert {name: len(one) for name, one in there.items()} == dry["files"]
    assert content(run).items() <= there.items()
    card = DatasetCard(there["README.md"].decode())
    assert {"selector-audit-run", "diagnostic"} <= set(card.data.tags)
    assert {one["data_files"] for one in card.data.configs} == {name for name in KEPT if name.endswith(".parquet")}
    assert "\n| lrp | sufficient | LeRF only | stable |" in card.text
    assert json.loads(there["schema.json"])["$defs"].keys() > {name for name in KEPT if name.endswith(".parquet")}

    fetched = fetch_run(NAME)
    assert content(fetched) == content(run)
    report = say("report", f"{NAME}@{repository.commit}", "--out", tmp_path / "a.html")
    assert report["folders"] == [str(fetched)]
    assert "none of the paper's" in say("compare", NAME, code=2)


@pytest.mark.long  # it scores the demo again
@pytest.mark.usefixtures("hub")
def test_a_run_is_replayed_by_its_address(run: Path, say: Say) -> None:
    say("push", run, "--to", NAME)
    assert say("replay", f"hf://datasets/{NAME}", "--only", "rows")["tables"][0]["holds"]


def test_only_an_earlier_push_of_the_same_model_is_written_over(hub: UploadHub, run: Path, say: Say) -> None:
    hub.repositories["datasets/me/mine"] = Repository({"README.md": b"---\ntags:\n- other\n---\n", "notes.txt": b"n"})
    assert "me/mine is there, holds README.md and is no push of ours" in say("push", run, "--to", "me/mine", code=2)
    assert say("push", run, "--to", NAME, "--public")["pushed"]["private"] is False
    repository = hub.repositories[f"datasets/{NAME}"]
    repository.files["own.txt"] = b"what its owner put beside it"
    with edited(run) as manifest:
        del manifest["files"]["verdicts.parquet"]
        manifest["model"]["id"] = "/home/me/tiny"
    assert say("push", run, "--to", NAME)["places"] == ["/home/me/tiny"]  # which its readers will see
    assert repository.files.keys() >= {"own.txt", "sweep.parquet"}
    assert "verdicts.parquet" not in repository.files
    before = dict(repository.files)
    with edited(run) as manifest:
        manifest["model"]["weights_hash"] = "0" * 64
    assert "holds results of" in say("push", run, "--to", NAME, code=2)
    assert repository.files == before


@pytest.mark.parametrize(
    ("path", "answer", "said"),
    [
        ("repos/create", 401, "does not accept the token from HF_TOKEN"),
        ("repos/create", 403, f"the token from HF_TOKEN may not write to {NAME}"),
        ("repos/create", 409, f"{NAME} was made or changed by somebody else meanwhile"),
        ("commit/main", 412, f"{NAME} was made or changed by somebody else meanwhile"),
        ("preupload", 403, "give one with the right to write, or a name of your own with --to"),
        ("commit/main", 500, f"{NAME} was not pushed: the Hugging Face hub answered 500"),
        ("commit/main", None, f"{NAME} was not pushed: the connection broke: Server disconnected without sending"),
        ("api/datasets", 429, "the hub's limit of requests is reached"),
    ],
)
def test_what_the_hub_refuses_is_one_line(
    hub: UploadHub, run: Path, say: Say, path: str, answer: int | None, said: str
) -> None:
    """A commit comes whole or not at all, and the next push goes on; one upload that breaks is tried again."""
    hub.faults = [Fault(path, answer, break_after=None if answer else 0)]
    assert said in say("push", run, "--to", NAME, code=2)
    assert "manifest.json" not in hub.repositories.get(f"datasets/{NAME}", Repository({})).files
    hub.faults = [Fault("/lfs/", break_after=0, times=1)]
    say("push", run, "--to", NAME)
    assert content(run).items() <= hub.repositories[f"datasets/{NAME}"].files.items()


def test_what_is_no_run_does_not_go(hub: UploadHub, run: Path, say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "USER/NAME, got 'audit'" in say("push", run, "--to", "audit", code=2)
    paper = next(precomputed.paper_runs_dir().iterdir())
    assert "that a paper printed" in say("push", paper, "--to", NAME, code=2)
    assert "no manifest.json" in say("push", precomputed.demo_model_dir(), "--to", NAME, code=2)
    monkeypatch.delenv("HF_TOKEN")
    assert "needs a token that may write" in say("push", run, "--to", NAME, code=2)
    (run / "sweep.parquet").write_bytes(b"x")
    assert "does not fit the checksum" in say("push", run, "--to", NAME, code=2)
    with edited(run) as manifest:
        manifest["files"]["model.safetensors"] = {"sha256": "0" * 64}
    assert "lists 'model.safetensors', which is no result" in say("push", run, "--to", NAME, code=2)
    assert not hub.asked


def test_a_foreign_data_set_is_looked_at_before_it_is_fetched(
    hub: UploadHub, run: Path, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing but the listed results comes, and of these no more bytes than are read."""
    repository = hub.repositories["datasets/you/run"] = Repository.of_folder(run)
    repository.files |= {"evil.py": b"print(1)", "model.safetensors": b"x" * 30_000}
    assert content(fetch_run("you/run")) == content(run)
    assert not any("evil" in path or "model.safetensors" in path for _, path, _ in hub.asked)
    listed = dict(read_manifest(run), files={"../../evil.py": {"sha256": "0" * 64}})
    hub.repositories["datasets/you/other"] = Repository({"manifest.json": json.dumps(listed, default=dict).encode()})
    assert "evil.py', which is no result" in say("report", "you/other", code=2)
    hub.repositories["datasets/you/text"] = Repository({"a.txt": b"a"})
    assert "you--text holds no manifest.json, and the data set you/text is no run" in say("compare", "you/text", code=2)
    assert "no Hugging Face data set you/none" in say("replay", "you/none", code=2)
    monkeypatch.setattr(bounds, "MAX_RUN_BYTES", 1000)
    assert "bytes of a run, at most 1,000" in say("report", "you/run", code=2)
