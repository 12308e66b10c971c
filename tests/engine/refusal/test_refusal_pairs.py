"""Pairs from the shipped file, from CAST's layout and from JSONL."""

import json
import re
from pathlib import Path

import pytest

from engine.data.pairs import CAST_DOMAINS, has_split, pairs_record, read_pairs
from engine.records.errors import InputError


def cast_file(folder: Path, **changes: object) -> Path:
    entry = {name: f"{name} {{}}" for name in (*CAST_DOMAINS, "base")}
    content: dict[str, object] = {
        split: [{key: f"{split} {text.format(i)}" for key, text in entry.items()} for i in range(count)]
        for split, count in (("train", 5), ("test", 3))
    }
    path = folder / "condition_multiple.json"
    path.write_text(json.dumps(content | changes), encoding="utf-8")
    return path


def test_cast_has_five_domains_on_shared_base_prompts(tmp_path: Path):
    pairs = read_pairs(str(cast_file(tmp_path)), "calibration", per_domain=4)
    assert list(pairs) == ["hate", "crime", "adult", "medical", "legal"]
    assert [len(members) for members in pairs.values()] == [4] * 5
    assert pairs["medical"][2].risk == "train health_consultation 2"
    assert {members[2].base for members in pairs.values()} == {"train base 2"}
    heldout = read_pairs(str(cast_file(tmp_path)), "heldout", ["legal", "hate"])
    assert list(heldout) == ["legal", "hate"]
    assert [pair.risk for pair in heldout["hate"]] == [f"test hate_speech {i}" for i in range(3)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": []}, "no list of prompts under 'train'"),
        ({"test": "x"}, "no list of prompts under 'test'"),
        ({"train": [{"base": "a"}]}, "entry 0 of 'train' has no text in 'hate_speech'"),
        ({"train": ["a"]}, "entry 0 of 'train' has no text"),
    ],
)
def test_another_layout_is_a_clear_error(tmp_path: Path, changes: dict[str, object], message: str):
    with pytest.raises(InputError, match=message):
        read_pairs(str(cast_file(tmp_path, **changes)), "calibration")


def test_broken_and_absent_files_are_clear_errors(tmp_path: Path):
    broken = tmp_path / "cast.json"
    broken.write_text("{", encoding="utf-8")
    for path in (broken, tmp_path / "absent.json"):
        with pytest.raises(InputError, match="cannot be read"):
            read_pairs(str(path), "calibration")
    with pytest.raises(InputError, match="did you mean 'hate'"):
        read_pairs(str(cast_file(tmp_path)), "calibration", ["hat"])
    with pytest.raises(InputError, match="at least 1"):
        read_pairs(str(cast_file(tmp_path)), "calibration", per_domain=0)


def test_shipped_pairs_and_any_jsonl(tmp_path: Path):
    shipped = read_pairs("demo", "calibration", per_domain=64)
    assert {domain: len(members) for domain, members in shipped.items()} == dict.fromkeys(
        ("hate", "crime", "adult", "medical", "legal"), 64
    )
    assert has_split("demo", "heldout")
    path = tmp_path / "own.jsonl"
    path.write_text('{"risk": "a", "base": "b"}\n{"risk": "c", "base": "d"}\n', encoding="utf-8")
    assert not has_split(str(path), "heldout")
    assert [pair.risk for pair in read_pairs(str(path), "calibration")["unnamed"]] == ["a", "c"]


def test_a_record_changes_with_every_text():
    pairs = read_pairs("demo", "calibration", ["hate"], 3)["hate"]
    record = pairs_record("demo", pairs)
    assert record == pairs_record("demo", list(pairs))
    assert record["pairs"] == 3
    changed = [pairs[0]._replace(base="other"), *pairs[1:]]
    assert pairs_record("demo", changed)["sha256"] != record["sha256"]
    assert pairs_record("/some/place/own.jsonl", pairs)["source"] == "own.jsonl"


def pairs_file(folder: Path, *splits: str | None) -> Path:
    """Two pairs per split, as a JSONL file; None: no split is given."""
    lines = []
    for split in splits:
        for number in (1, 2):
            entry = {"risk": f"risk {split} {number}", "base": f"base {split} {number}", "domain": "hate"}
            lines.append(json.dumps(entry if split is None else entry | {"split": split}))
    path = folder / "own.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("calibration", "heldout"), ("train", "test"), ("train", "validation"), ("Training", "held-out"),
        ("TRAIN", "held_out"), (None, "held out"),
    ],
)  # fmt: skip
def test_splits_are_understood_by_their_usual_names(tmp_path: Path, first: str | None, second: str):
    """With any of these names the rates are measured on the second half, never on the first."""
    source = str(pairs_file(tmp_path, first, second))
    assert has_split(source, "heldout")
    for split, name in (("calibration", first), ("heldout", second)):
        assert [pair.risk for pair in read_pairs(source, split)["hate"]] == [f"risk {name} 1", f"risk {name} 2"]
    assert pairs_record(source, read_pairs(source, "heldout")["hate"])["pairs"] == 2


def test_an_unknown_split_is_an_error_that_lists_what_is_there(tmp_path: Path):
    source = str(pairs_file(tmp_path, "train", "tests"))
    for read in (lambda: read_pairs(source, "calibration"), lambda: has_split(source, "heldout")):
        with pytest.raises(InputError) as caught:
            read()
        said = str(caught.value)
        assert "own.jsonl: unknown split 'tests'; it has 'train', 'tests'" in said
        for name in ("calibration", "train", "heldout", "test", "validation"):
            assert name in said
    with pytest.raises(InputError, match="available: heldout"):
        read_pairs(str(pairs_file(tmp_path, "test")), "calibration")


def test_the_example_of_reference_is_a_pairs_file(tmp_path: Path):
    text = (Path(__file__).parents[3] / "dashboard/pages/reference/refusal.md").read_text(encoding="utf-8")
    [lines] = re.findall(r"```jsonl\n(.*?)```", text, flags=re.DOTALL)
    path = tmp_path / "pairs.jsonl"
    path.write_text(lines, encoding="utf-8")
    found = {split: read_pairs(str(path), split) for split in ("calibration", "heldout")}
    assert {domain for some in found.values() for domain in some} == set(found["calibration"]) == set(found["heldout"])
    fields = {key for line in lines.splitlines() for key in json.loads(line)}
    assert fields == {"domain", "risk", "base", "split"}
