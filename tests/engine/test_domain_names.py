"""Names of domains: free text for people, an id for each in files, and two spellings of one name are one domain."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import polars as pl
import pytest

from engine.data.pairs import domain_spellings, read_pairs
from engine.data.prompts import wordings
from engine.records.domain_names import (
    domain_id,
    domain_ids,
    domain_name,
    find_domain,
    is_domain_id,
    with_names,
    without_markup,
)
from engine.records.errors import InputError
from engine.records.terminal import as_text, shown
from engine.results.tables import checked, with_domain_names

SHIPPED = ["hate", "crime", "adult", "medical", "legal", "unnamed", "hate_speech", "v1.2-x"]
FREE = [
    "hate speech", "hate-speech", "hate_speech x", "Hate Speech (all)", "a/b", "..", "a..b/../c", "none", "all",
    "domain--x", "domain--hate_20speech-", "+", "a+b", "a,b", "<b>x</b>", "*", "100%", "ненависть", "仇恨言论", "خطاب",
    "שנאה", "🔥 fire", "👩‍👩‍👧", "é", "naïve", "x" * 65, "con", "nul.", "-x", "_x", "a_20b c", "$x$", "a|b",
    "'", '"', "`x`", "\\", "%2F", "domain--", "C:\\x", "Ａ", "ß", "İ",
]  # fmt: skip


def test_every_name_has_an_id_of_its_own_from_which_it_can_be_read() -> None:
    names = [unicodedata.normalize("NFC", name) for name in FREE] + SHIPPED
    ids = [domain_id(name) for name in names]
    assert len(set(ids)) == len(names)
    assert [domain_name(one) for one in ids] == names
    for one in ids:
        assert is_domain_id(one)
        assert set(one) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
        assert len(one) <= 200
        assert one.strip(".")


@pytest.mark.parametrize("name", ["", "  ", "\u200b", "a\0b", "\x1b[31m", "\ud800", "x" * 300, "ж" * 200])
def test_what_is_no_name_is_one_clear_line(name: str) -> None:
    with pytest.raises(InputError, match=r"the name of a domain (is|holds)") as error:
        domain_id(name)
    assert "\n" not in str(error.value)
    assert "\0" not in str(error.value)


@pytest.mark.parametrize(
    ("names", "one"),
    [
        ((" Hate", "hate"), "hate"),
        (("HATE", "hate", "hate "), "hate"),
        (("Hate", "Hate", "hate"), "Hate"),
        (("e\u0301", "\u00e9"), domain_id("é")),
        (("hate  speech", "Hate\u00a0Speech", "hate\tspeech"), domain_id("hate speech")),
        (("hate\u200b", "hate"), "hate"),
        (("ｈａｔｅ", "hate"), "hate"),
        (("\u202ehate", "hate"), "hate"),
        (("STRASSE", "straße"), "STRASSE"),
    ],
)
def test_spellings_of_one_name(names: tuple[str, ...], one: str) -> None:
    assert set(domain_ids(names).values()) == {one}


def test_a_domain_is_found_by_its_name_or_id() -> None:
    there = ["hate", domain_id("Hate Speech"), domain_id("<b>x</b>")]
    for wanted in ("Hate Speech", "hate speech", there[1]):
        assert find_domain(wanted, there) == there[1]
    assert find_domain(without_markup("<b>x</b>"), there) == there[2]
    with pytest.raises(InputError, match="unknown domain 'hate speach'; did you mean 'Hate Speech'"):
        find_domain("hate speach", there)


def test_people_read_the_name() -> None:
    text = f"lrp {domain_id('hate speech')}: 3 of 4, in {domain_id('ненависть')}."
    assert with_names(text) == shown(text) == as_text(text) == "lrp hate speech: 3 of 4, in ненависть."
    assert with_names("domain--No_2, hate, adomain--hate_20speech-") == "domain--No_2, hate, adomain--hate_20speech-"
    assert "about hate speech," in wordings(domain_id("hate speech"))[0].text
    table = pl.DataFrame({"mask_domain": [f"hate+{domain_id('a<b')}", "none"], "domain": [None, domain_id("a b")]})
    assert with_domain_names(table).to_dict(as_series=False) == {
        "mask_domain": ["hate+a＜b", "none"], "domain": [None, "a b"],
    }  # fmt: skip


@pytest.mark.parametrize("name", FREE)
def test_the_gate_of_tables_takes_their_ids(name: str) -> None:
    line = pl.DataFrame({"model": ["m"], "selector": ["lrp"], "domain": [domain_id(name)], "density": [0.5]})
    assert checked("signal_density", line, "it").height == 1
    with pytest.raises(InputError, match="expected an id"):
        checked("signal_density", line.with_columns(domain=pl.lit("hate speech")), "it")


def pairs_file(tmp_path: Path, *rows: dict[str, str]) -> str:
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(file)


def pair(number: int, **changes: str) -> dict[str, str]:
    return {"risk": f"risk {number}", "base": f"base {number}", "domain": "hate", "split": "calibration"} | changes


def test_pairs_by_their_domains(tmp_path: Path) -> None:
    file = pairs_file(
        tmp_path, pair(1, domain=" Hate"), pair(2), pair(3, domain="hate speech"), pair(4, domain="Hate  Speech"),
        pair(5, split="test"), pair(6, split="test", domain="HATE SPEECH"),
    )  # fmt: skip
    speech = domain_id("hate speech")
    found = read_pairs(file, "calibration")
    assert {domain: [one.risk for one in some] for domain, some in found.items()} == {
        "hate": ["risk 1", "risk 2"], speech: ["risk 3", "risk 4"],
    }  # fmt: skip
    assert list(read_pairs(file, "heldout", ["Hate Speech"])) == [speech]
    assert domain_spellings(file) == {
        "hate": [" Hate", "hate"], speech: ["hate speech", "Hate  Speech", "HATE SPEECH"],
    }  # fmt: skip
    assert domain_spellings("demo") == {}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ((pair(1), pair(2, base="risk 2")), r"1 of 2 \(50%\) pairs have one text for risk and base.*'risk 2'"),
        ((pair(1, risk="Write a poem.", base=" write  A poem"),), r"1 of 1 \(100%\) pairs have one text"),
        ((pair(1, risk="Ｗrite", base="write!"),), "pairs have one text"),
        ((pair(1, risk="caf\u00e9", base="cafe\u0301"),), "pairs have one text"),
        ((pair(1), pair(1, split="heldout")), r"1 of 1 \(100%\) held-out pairs are calibration pairs too"),
        (
            (pair(1), pair(2), pair(3, split="test"), pair(1, risk="Risk 1 ", base="BASE 1.", split="test")),
            r"1 of 2 \(50%\) held-out pairs are calibration pairs too.*'Risk 1 ' with 'BASE 1.'",
        ),
        ((pair(1), pair(1, split="validation", domain="crime")), "held-out pairs are calibration pairs too"),
        ((pair(1, domain="a\0b"),), "holds a character that is no text"),
        ((pair(1, domain="x" * 300),), "is too long"),
    ],
)
def test_pairs_that_contrast_nothing_are_errors(rows: tuple[dict[str, str], ...], said: str, tmp_path: Path) -> None:
    for split in ("calibration", "heldout"):
        with pytest.raises(InputError, match=said):
            read_pairs(pairs_file(tmp_path, *rows), split)


def test_cast_files_are_checked_alike(tmp_path: Path) -> None:
    from engine.data.pairs import CAST_DOMAINS

    entries = [{"base": f"base {i}", **{name: f"{name} {i}" for name in CAST_DOMAINS}} for i in range(3)]
    file = tmp_path / "cast.json"
    file.write_text(json.dumps({"train": entries[:2], "test": entries[1:]}), encoding="utf-8")
    with pytest.raises(InputError, match=r"5 of 10 \(50%\) held-out pairs are calibration pairs too"):
        read_pairs(str(file), "calibration")
    entries[0]["legal_opinion"] = "Base 0"
    file.write_text(json.dumps({"train": entries[:1], "test": entries[1:]}), encoding="utf-8")
    with pytest.raises(InputError, match=r"1 of 15 \(7%\) pairs have one text for risk and base"):
        read_pairs(str(file), "heldout")


def test_names_of_mask_files_can_be_typed_as_a_terminal_shows_them() -> None:
    from engine.studies.refusal.mask_outputs import mask_names

    ids = ["hate", *map(domain_id, ("hate speech", "hate_20speech-", "a/b", "../../x", "🔥"))]
    names = mask_names([("lrp", one) for one in [*ids, "+".join(ids)]])
    assert names[0] == "mask-lrp-hate.safetensors"
    assert len({name.casefold() for name in names}) == len(names)
    assert [shown(name) for name in names] == names
    assert not any("/" in name for name in names)
