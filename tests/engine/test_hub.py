"""The way to a hub, tried against a small one on this machine: refusals, faults, and what the cache is for."""

import hashlib
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fake_hub
import pytest
from bad_inputs import error_of
from fake_hub import FakeHub, Fault, Repository
from gguf_models import write_gguf
from tiny_models import tiny_model

import engine.data.texts
from engine.data.texts import reachable, read_text, readable_offline
from engine.models import checkpoints, downloads, hub_failures
from engine.models.checkpoints import find_checkpoint

CONFIG = json.dumps({"model_type": "llama"}).encode()
ADAPTER = json.dumps({"base_model_name_or_path": "org/base"}).encode()
WEIGHTS = bytes(range(256)) * 400  # large enough to be served from another host
MODEL = {"config.json": CONFIG, "tokenizer.json": b"{}", "model.safetensors": WEIGHTS, "flax_model.msgpack": b"x" * 30}
WEIGHTS_HASH = hashlib.sha256(hashlib.sha256(WEIGHTS).hexdigest().encode()).hexdigest()


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub with the model org/m, and this process pointed at it."""
    with fake_hub.running() as server:
        fake_hub.go_online(server, tmp_path / "home", monkeypatch)
        server.repositories["org/m"] = Repository(dict(MODEL), tags=("v1",))
        server.tokens = {"hf_reader": {"org/m"}, "hf_stranger": set()}
        yield server
        from huggingface_hub import close_session

        close_session()


def files_asked(hub: FakeHub) -> list[str]:
    return [path for method, path, _ in hub.asked if method == "GET" and not path.startswith("/api/")]


# What is fetched


def test_only_what_is_needed_is_fetched(hub: FakeHub) -> None:
    small = find_checkpoint("org/m", weights=False)
    assert not (small.folder / "model.safetensors").exists()
    found = find_checkpoint("org/m")
    assert (found.id, found.revision) == ("org/m", hub.repositories["org/m"].commit)
    assert found.weights_hash() == WEIGHTS_HASH
    assert not any("flax" in path for path in files_asked(hub))
    assert (
        find_checkpoint("org/m", "v1").revision == find_checkpoint("org/m", found.revision).revision == found.revision
    )


def test_a_renamed_model_is_found_under_its_old_name(hub: FakeHub) -> None:
    hub.repositories["org/old"] = Repository({}, moved_to="org/m")
    assert find_checkpoint("org/old").weights_hash() == WEIGHTS_HASH


@pytest.mark.parametrize("flag", ["gated", "private"])
def test_a_token_opens_what_it_may_read(hub: FakeHub, flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    setattr(hub.repositories["org/m"], flag, True)
    monkeypatch.setenv("HF_TOKEN", "hf_reader")
    assert find_checkpoint("org/m").weights_hash() == WEIGHTS_HASH


def test_what_is_no_address_of_a_model(hub: FakeHub) -> None:
    for pasted in ("https://elsewhere.example/org/m", f"{hub.address}/datasets/org/m", "hf://datasets/org/m", "@v1"):
        assert f"there is no folder {pasted!r}" in error_of(lambda pasted=pasted: find_checkpoint(pasted))  # type: ignore[misc]
    message = error_of(lambda: find_checkpoint("org/m@v1", "v2"))
    assert message == "org/m@v1 names the revision v1 and --revision v2; give one of them"


# Refusals


@pytest.mark.parametrize(
    ("flags", "token", "said"),
    [
        ({"gated": True}, None, ["is gated and no token was sent", "{hub}/org/m", "HF_TOKEN", "is restricted."]),
        ({"gated": True}, "hf_stranger", ["the token from HF_TOKEN has no access", "ask for access on {hub}/org/m"]),
        ({}, "hf_nobody", ["the hub does not accept the token from HF_TOKEN", "unset HF_TOKEN"]),
        ({"private": True}, None, ["that you may see; check the spelling", "`hf auth login`"]),
        ({"private": True}, "hf_stranger", ["that the token from HF_TOKEN may see; check the spelling"]),
        ({"disabled": True}, None, ["the hub has disabled org/m", "give a local copy or another model"]),
    ],
)
def test_refusals(
    hub: FakeHub, flags: dict[str, bool], token: str | None, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in flags.items():
        setattr(hub.repositories["org/m"], name, value)
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    message = error_of(lambda: find_checkpoint("org/m"))
    for part in said:
        assert part.format(hub=hub.address) in message
    assert "hf_" not in message


def test_a_model_that_is_cached_needs_no_access(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    find_checkpoint("org/m")
    checkpoints._commits.clear()
    hub.repositories["org/m"].private = True
    assert find_checkpoint("org/m").weights_hash() == WEIGHTS_HASH


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"config.json": CONFIG, "pytorch_model.bin": WEIGHTS}, "has its weights only as pytorch_model.bin, which"),
        (
            {"adapter_config.json": ADAPTER, "adapter_model.safetensors": WEIGHTS},
            "is an adapter without its base model org/b",
        ),
        (
            {"config.json": CONFIG, "adapter_config.json": ADAPTER, "model.safetensors": WEIGHTS},
            "holds an adapter beside",
        ),
    ],
)
def test_other_layouts_are_told_from_the_listing(hub: FakeHub, files: dict[str, bytes], said: str) -> None:
    hub.repositories["org/m"].files = files
    assert f"org/m {said}" in error_of(lambda: find_checkpoint("org/m"))
    if "adapter_config.json" not in files:
        find_checkpoint("org/m", weights=False)  # its rows can be counted
    else:
        assert f"org/m {said}" in error_of(lambda: find_checkpoint("org/m", weights=False))
    assert not any("cdn" in path for path in files_asked(hub))


def test_gguf_files_of_a_repository(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELECTOR_AUDIT_STORE", str(tmp_path / "store"))
    packed = write_gguf(tiny_model("llama"), tmp_path / "m.gguf").read_bytes()
    repository = Repository({"README.md": b"-", "mmproj-m.gguf": packed, "m-Q8_0.gguf": packed})
    hub.repositories["org/m-GGUF"] = repository
    found = find_checkpoint("org/m-GGUF", weights=False)  # its configuration is in it
    assert (found.id, found.revision) == ("org/m-GGUF", repository.commit)
    checkpoints._commits.clear()
    repository.files = {**repository.files, "m-F32.gguf": packed, "LICENSE": b"free", "m-00001-of-00002.gguf": packed}
    assert "org/m-GGUF holds 3 GGUF files (m-00001-of-00002.gguf, m-F32.gguf, m-Q8_0.gguf); name one: org/m-GGUF/" in (
        error_of(lambda: find_checkpoint("org/m-GGUF"))
    )
    hub.asked.clear()
    for name in ("org/m-GGUF/m-F32.gguf", f"{hub.address}/org/m-GGUF/blob/main/m-F32.gguf?download=true"):
        named = find_checkpoint(name)
        assert (named.id, named.revision) == ("org/m-GGUF/m-F32.gguf", repository.commit)
        assert named.weights_hash() == found.weights_hash()
    assert not any("Q8_0" in path or "mmproj" in path for path in files_asked(hub))
    assert "m-00001-of-00002.gguf is split into 2 files" in error_of(
        lambda: find_checkpoint("org/m-GGUF/m-00001-of-00002.gguf")
    )
    assert "org/m-GGUF holds no file m-Q2_K.gguf; it has m-00001-of-00002.gguf, m-F32.gguf, m" in error_of(
        lambda: find_checkpoint("org/m-GGUF/m-Q2_K.gguf")
    )
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    checkpoints._commits.clear()
    assert find_checkpoint("org/m-GGUF/m-F32.gguf").weights_hash() == found.weights_hash()


def test_two_sets_of_weights_are_refused_before_either_is_fetched(hub: FakeHub) -> None:
    index = json.dumps({"weight_map": {"w": "model-00001-of-00001.safetensors"}}).encode()
    files = {"config.json": CONFIG, "model.safetensors": WEIGHTS, "model.safetensors.index.json": index}
    hub.repositories["org/m"].files = {**files, "model-00001-of-00001.safetensors": WEIGHTS}
    assert "org/m holds two sets of weights" in error_of(lambda: find_checkpoint("org/m"))
    assert not any("cdn" in path for path in files_asked(hub))


# Faults


def test_busy_answers_are_asked_again(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(downloads, "time", SimpleNamespace(sleep=slept.append))
    hub.faults = [Fault("/api/models", 503, times=1), Fault("/api/models", 429, {"Retry-After": "9"}, times=1)]
    assert find_checkpoint("org/m").weights_hash() == WEIGHTS_HASH
    assert slept == [1.0, 9]


@pytest.mark.parametrize(
    ("fault", "asked", "said"),
    [
        (Fault("/api/models", 503), 3, "the Hugging Face hub answered 503; try later"),
        (Fault("/api/models", 429, {"Retry-After": "300"}), 1, "limit of requests is reached; it ends in 300 s; wait"),
        (Fault("/api/models", 429, {"ratelimit": '"api";r=0;t=155'}), 1, "it ends in 155 s; wait, or log in"),
        (Fault("/cdn/", 403), 1, "localhost answered 403; check whether it needs a token, and whether a proxy"),
        (Fault("/api/models", 418), 1, "the Hugging Face hub answered 418"),
    ],
)
def test_answers_that_stay(hub: FakeHub, fault: Fault, asked: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "time", SimpleNamespace(sleep=lambda _: None))
    hub.faults = [fault]
    assert said in error_of(lambda: find_checkpoint("org/m"))
    assert sum(fault.path in path and method == "GET" for method, path, _ in hub.asked) == asked


@pytest.mark.long
def test_a_silent_hub(hub: FakeHub) -> None:
    """One that takes the question and does not answer: the cache serves, and where it cannot, one line says so."""
    commit = find_checkpoint("org/m").revision
    checkpoints._commits.clear()
    hub.faults = [Fault("/", silent_s=30)]
    started = time.monotonic()
    assert find_checkpoint("org/m").revision == commit
    message = error_of(lambda: find_checkpoint("org/other"))
    assert "neither in the local cache nor can the hub be reached (it stayed silent: ReadTimeout)" in message
    assert time.monotonic() - started < 15  # two time-outs of a second


def test_a_known_commit_needs_no_hub(hub: FakeHub) -> None:
    commit = find_checkpoint("org/m").revision
    hub.asked.clear()
    assert find_checkpoint("org/m", commit).weights_hash() == WEIGHTS_HASH
    assert find_checkpoint("org/m").revision == commit  # resolved a moment ago
    assert hub.asked == []


def test_a_download_goes_on_where_its_connection_broke(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 10_000)  # 10 MiB: whole pieces are kept
    hub.faults = [Fault("/cdn/", break_after=50_000, times=1)]
    assert find_checkpoint("org/m").weights_hash() == WEIGHTS_HASH
    assert [begun for _, path, begun in hub.asked if path.startswith("/cdn/")] == [None, "bytes=50000-"]


def test_a_spoilt_byte_is_noticed_and_fetched_anew(hub: FakeHub) -> None:
    hub.faults = [Fault("/cdn/", spoil=True, times=1)]
    found = find_checkpoint("org/m")
    message = error_of(found.weights_hash)
    assert "model.safetensors is damaged: its bytes have the SHA-256" in message
    blob = (found.folder / "model.safetensors").resolve()
    assert f"remove {blob} and run the command again" in message
    blob.unlink()
    assert find_checkpoint("org/m").weights_hash() == WEIGHTS_HASH


def test_the_storage_layer_fails_in_one_line(hub: FakeHub) -> None:
    pytest.importorskip("hf_xet")
    hub.repositories["org/m"].storage_layer = True
    hub.faults = [Fault("/storage", 401)]
    message = error_of(lambda: find_checkpoint("org/m"))
    assert "the hub's storage layer (Xet) failed: " in message
    assert "401" in message
    assert message.endswith("where it fails again, do without it: HF_HUB_DISABLE_XET=1")


def test_a_disk_that_is_too_small_is_told_before_the_download(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=len(WEIGHTS) - 1))
    message = error_of(lambda: find_checkpoint("org/m"))
    assert message.startswith("the files of org/m need 0.00 GiB, and ")
    assert message.endswith("make room, or keep the hub's files on another disk: HF_HOME=FOLDER")
    assert not any("cdn" in path for path in files_asked(hub))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=len(WEIGHTS)))
    assert find_checkpoint("org/m").weights_hash() == WEIGHTS_HASH


def test_half_a_model_without_a_hub(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    find_checkpoint("org/m", weights=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    message = error_of(lambda: find_checkpoint("org/m"))
    assert message.startswith("the local cache holds only a part of org/m, and the hub cannot be reached (HF_HUB_OFF")
    assert message.endswith("go online once: selector-audit fetch org/m")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(28, "No space left on device"), "the disk is full"),
        (RuntimeError("Task error: IO Error: No space left on device (os error 28)"), "the disk is full"),
        (PermissionError(13, "Permission denied"), "cannot be written; give a folder of yours: HF_HOME=FOLDER"),
        (OSError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed"), "SSL_CERT_FILE=FILE"),
        (OSError("Consistency check failed: file should be of size 3"), "the connection broke: Consistency"),
        (RuntimeError("Task error: CAS Client Error: 500"), "the hub's storage layer (Xet) failed: Task error: CAS"),
        (RuntimeError("of another kind"), "org/m cannot be fetched: RuntimeError: of another kind; try again"),
        (ValueError("Something else.\nMore."), "org/m cannot be fetched: ValueError: Something else.; try again"),
    ],
)
def test_other_failures(error: Exception, said: str) -> None:
    message = str(hub_failures.model_failure("org/m", error))
    assert said in message
    assert "\n" not in message


# Texts


def documents_in_the_place_of_c4(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    hub.repositories["datasets/allenai/c4"] = Repository({"README.md": b"C4"})
    read: list[str] = []

    def stream(builder: str, files: list[str]) -> Iterator[dict[str, Any]]:
        read.extend(files)
        yield from ({"text": f"Document {number} of {files[0][-30:]}"} for number in range(5))

    monkeypatch.setattr(engine.data.texts, "_stream", stream)
    monkeypatch.setattr(engine.data.texts, "_C4_DOCUMENTS", 3)
    return read


def test_c4_is_read_without_a_hub_after_use(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    streamed = documents_in_the_place_of_c4(hub, monkeypatch)
    first = read_text("c4", "calibration")
    assert first.text.count("\n\n") == 2
    assert read_text("c4", "calibration") == first
    assert len(streamed) == 1
    assert (readable_offline("c4", "calibration"), readable_offline("c4", "evaluation")) == (True, False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert read_text("c4", "calibration") == first
    assert "HF_HUB_OFFLINE is set" in error_of(lambda: read_text("c4", "evaluation"))
    assert "HF_HUB_OFFLINE is set" in str(reachable("c4"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    read_text("c4", "evaluation")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert reachable("c4") is None


def test_texts_of_a_hub_that_fails(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "time", SimpleNamespace(sleep=lambda _: None))
    hub.faults = [Fault("/api/datasets", 503)]
    for name in ("wikitext2", "c4"):
        message = error_of(lambda name=name: read_text(name, "evaluation"))  # type: ignore[misc]
        assert message.startswith(f"corpus {name}: ")
        assert "the Hugging Face hub answered 503; try later, or choose another calibration text" in message


def test_a_line_names_no_secret() -> None:
    error = RuntimeError("CAS: GET http://me:secret@proxy:1/f?Signature=secret failed")
    assert str(hub_failures.explain(error, "org/m").found).endswith("CAS: GET http://proxy:1/f failed")
