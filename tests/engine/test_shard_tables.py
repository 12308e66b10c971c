"""Two shards, merged: the same tables as one run, byte by byte, and nothing measured again."""

import json
from pathlib import Path

import pytest
from shard_commands import SHORT, audited, in_shards, ran
from tiny_audits import count_edits


@pytest.mark.long
def test_a_sweep_in_shards(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    edits = count_edits(monkeypatch)
    words = ["sweep", *audited(tmp_path), "--rates", "0,0.1,0.2,0.5"]
    in_shards(capsys, tmp_path, words, lambda: len(edits), 1)
    out, _ = ran(capsys, *words, "--shard", "2/2", "--store", tmp_path / "2", "--json")
    answer = json.loads(out)
    assert answer["shard"] == "2/2"
    assert answer["share"] == answer["known_before"]
    assert not answer["measured"]


@pytest.mark.long
def test_an_audit_in_shards(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    edits = count_edits(monkeypatch)
    analyses = ["agreement", "sweep", "differences", "stability", "protocols", "singles", "invariance"]
    [model, *options] = audited(tmp_path)
    in_shards(capsys, tmp_path, ["analyze", model, *analyses, *options, *SHORT], lambda: len(edits), 1)
