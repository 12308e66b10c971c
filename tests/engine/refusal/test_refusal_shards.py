"""A refusal experiment by two shards, round by round: the same tables as one run, and nothing generated again."""

from pathlib import Path

import pytest
from refusal_helpers import count_generations
from shard_commands import in_shards
from test_refusal_run import PLAN


@pytest.mark.long
def test_a_refusal_experiment_in_shards(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Perplexity of the grid, replies under the cap, points on held-out pairs: three rounds, told by results."""
    replies = count_generations(monkeypatch)
    in_shards(capsys, tmp_path, ["refusal", "run", "demo", *PLAN], lambda: sum(replies), 3)
