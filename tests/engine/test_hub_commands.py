"""Commands by hub id in processes of their own, which know only a small hub on this machine."""

import gzip
import io
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fake_hub
import polars as pl
import pytest
from fake_hub import FakeHub, Fault, Repository
from tiny_models import save_tiny, text

from engine.records.manifest import read_manifest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny("llama", tmp_path_factory.mktemp("llama"))


@pytest.fixture
def hub(folder: Path) -> Iterator[FakeHub]:
    def parquet(seed: int) -> bytes:
        file = io.BytesIO()
        pl.DataFrame({"text": text(60, seed).split("\n")}).write_parquet(file)
        return file.getvalue()

    def lines(seed: int) -> bytes:
        return gzip.compress("\n".join(json.dumps({"text": one}) for one in text(200, seed).split("\n\n")).encode())

    wikitext = {
        f"wikitext-2-raw-v1/{split}-00000-of-00001.parquet": parquet(n) for n, split in enumerate(("train", "test"))
    }
    c4 = {"en/c4-train.00000-of-01024.json.gz": lines(2), "en/c4-validation.00000-of-00008.json.gz": lines(3)}
    with fake_hub.running() as server:
        server.repositories = {
            "org/tiny": Repository.of_folder(folder),
            "datasets/Salesforce/wikitext": Repository(wikitext),
            "datasets/allenai/c4": Repository(c4),
        }
        yield server


def command(hub: FakeHub, home: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {**fake_hub.environment(hub, home), **more}
    words = [sys.executable, "-m", "engine", *arguments]
    return subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=400)


def told(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_after_fetch_everything_runs_without_a_network(hub: FakeHub, folder: Path, tmp_path: Path) -> None:
    home, out = tmp_path / "home", tmp_path / "out"
    fetched = told(command(hub, home, "fetch", "org/tiny", "--json"))
    assert fetched["revision"] == hub.repositories["org/tiny"].commit
    assert fetched["weight_bytes"] == (folder / "model.safetensors").stat().st_size
    assert [(one["corpus"], one["role"]) for one in fetched["texts"]] == [
        (name, role) for name in ("wikitext2", "c4") for role in ("calibration", "evaluation")
    ]
    hub.asked.clear()
    offline = {"HF_HUB_OFFLINE": "1"}
    swept = command(
        hub, home, "sweep", "org/tiny", "--selectors", "magnitude,wanda", "--corpus", "wikitext2", "--samples", "3",
        "--max-length", "16", "--eval-corpus", "c4", "--eval-samples", "3", "--eval-length", "16", "--rates", "0,50%",
        "--out", str(out), "--json", **offline,
    )  # fmt: skip
    assert swept.returncode == 0, swept.stderr
    manifest = read_manifest(out)
    assert manifest["model"]["weights_hash"] == fetched["weights_hash"]
    assert pl.read_parquet(out / "sweep.parquet")["nll"].is_finite().all()
    findings = told(command(hub, home, "doctor", "org/tiny", "--json", **offline))["findings"]
    states = {one["subject"]: one["state"] for one in findings}
    assert states["corpus c4"] == states["corpus wikitext2"] == states["model"] == states["download"] == "ok"
    assert hub.asked == []


def test_doctor_of_a_gated_model(hub: FakeHub, tmp_path: Path) -> None:
    hub.repositories["org/tiny"].gated = True
    hub.tokens["hf_reader"] = {"org/tiny"}
    done = command(hub, tmp_path, "doctor", "org/tiny")
    assert done.returncode == 1
    assert "is gated and no token was sent" in " ".join(done.stdout.split())
    findings = told(command(hub, tmp_path, "doctor", "org/tiny", "--json", HF_TOKEN="hf_reader"))["findings"]
    found = {one["subject"]: one["found"] for one in findings}
    assert found["hub"] == "the token from HF_TOKEN is hf_reader's"
    assert "of weights to fetch" in found["download"]


def test_rows_of_a_model_that_is_refused_ends_with_one_line(hub: FakeHub, tmp_path: Path) -> None:
    hub.repositories["org/tiny"].disabled = True
    done = command(hub, tmp_path, "rows", "org/tiny")
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith("selector-audit rows: the hub has disabled org/tiny")


def test_ctrl_c_ends_a_download_within_seconds_and_leaves_no_part_of_a_file(hub: FakeHub, tmp_path: Path) -> None:
    hub.repositories["org/tiny"].files["model.safetensors"] = bytes(4_000_000)
    hub.faults = [Fault("/cdn/", bytes_per_s=20_000)]  # 200 s
    words = [sys.executable, "-m", "engine", "fetch", "org/tiny", "--corpora", "none"]
    environment = fake_hub.environment(hub, tmp_path)
    process = subprocess.Popen(words, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 200
        while not list(tmp_path.rglob("*.incomplete")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        stopped = time.monotonic()
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert time.monotonic() - stopped < 20  # about 2.5 on an idle core; the download itself had minutes to go
    assert "selector-audit fetch: stopped; what was finished is kept" in " ".join(said.split())
    assert list(tmp_path.rglob("*.incomplete")) == []
