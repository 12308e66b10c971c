"""Checkpoints with one random change: the scores of a model, or one line; never another end.

Seeded: a case that fails is `CASE` of `mutated`. A short round in the first run, a long one by its marker.
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bad_inputs import model_copy, run
from safetensors.numpy import load_file
from tiny_models import save_tiny

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 41, 10**6, 10**9, 10**30, -(10**9), 0.5, -0.5, 1e300, float("nan"), float("inf"),
    "", "x", "20", "\x00", "\x1b[31m", "🙂", [], [None], ["x"], [0, 1], {}, {"x": 1}, {"rope_type": "yarn"}, [[[]]],
    "default", "a\nb",
)  # fmt: skip
JSON_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json")
FILES = (*JSON_FILES, "model.safetensors")
ROUNDS = {"short": range(8), "long": range(8, 64)}
SMALL = ("--samples", "2", "--max-length", "16", "--selectors", "wanda")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny("llama", tmp_path_factory.mktemp("saved"))


def mutated(content: bytes, is_json: bool, case: int) -> bytes:
    """The content with one change: of a value or a key where it is JSON, else of a few bytes at its beginning."""
    chance = random.Random(case)
    if is_json and case % 4:
        whole = json.loads(content)
        holder, key = chance.choice(list(_places(whole)))
        if chance.random() < 0.15:
            del holder[key]
        elif isinstance(holder, dict) and chance.random() < 0.1:
            holder[f"{key}_"] = holder.pop(key)
        else:
            holder[key] = chance.choice(VALUES)
        return json.dumps(whole).encode()
    place = chance.randrange(min(len(content), 2_500))
    changes = (
        content[:place] + bytes([content[place] ^ (1 << chance.randrange(8))]) + content[place + 1 :],
        content[:place] + content[place + chance.randrange(1, 60) :],
        content[:place] + content[max(0, place - 40) : place] + content[place:],
        content[:place],
    )
    return chance.choice(changes)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a JSON value, as (what holds it, its key); of long lists and vocabularies the first ten."""
    keys = list(value)[:40] if isinstance(value, dict) else range(min(len(value), 10))
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("length", ["short", pytest.param("long", marks=pytest.mark.long)])
def test_one_change_ends_in_scores_or_in_one_line(length, name, saved, tmp_path, tiny_text, capfd):
    folder, out = model_copy(saved, tmp_path), tmp_path / "out"
    words = ("score", folder, *SMALL, "--corpus", tiny_text, "--store", tmp_path / "store", "--out", out)
    original = (folder / name).read_bytes()
    refused = 0
    for case in ROUNDS[length]:
        (folder / name).write_bytes(mutated(original, name in JSON_FILES, case))
        code = run(*words)
        _, err = capfd.readouterr()
        assert code in (0, 2), (case, err[:600])
        assert "Traceback" not in err
        assert "panicked" not in err
        if code == 2:
            lines = [line for line in err.splitlines() if line.startswith("selector-audit")]
            assert len(lines) == 1, (case, err[:600])
            refused += 1
            continue
        assert np.isfinite(load_file(out / "scores.safetensors")["wanda"]).all(), case
        for file in out.iterdir():
            file.unlink()
    assert refused or length == "short"
