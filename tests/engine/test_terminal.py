"""What the commands print of names, replies and files is text: a terminal obeys nothing of it."""

import io
import json
import math
import re
import shutil
import sys
import unicodedata

import pytest
from planted import CONTROL, EVERYTHING, HOST, RICH
from rich.table import Table

from engine.cli import main
from engine.commands import common
from engine.records.files import write_parquet
from engine.records.hashing import file_sha256
from engine.records.manifest import add_to_manifest
from engine.records.terminal import one_line, shown
from engine.results.tables import frame

TURNS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


def obeyed(text):
    """The characters that are more than text."""
    return {one for one in text if unicodedata.category(one) in ("Cc", "Cs") or unicodedata.bidirectional(one) in TURNS}


def test_every_character_of_unicode():
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    assert obeyed(shown(everything)) == {"\n", "\t"}
    shown(everything).encode("utf-8")
    text = "é 👩‍🚀 \u05d0\u0628 tab\there\n100 % [downstream] \\n"
    assert shown(text) == text
    assert shown("a\x1b[31mb\x07\u202ec\r\udcff") == "a\\x1b[31mb\\x07\\u202ec\\r\\udcff"


def test_a_line_has_nothing_that_is_not_in_sight():
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    assert one_line(everything).isprintable()
    assert one_line("a\u200bb\n\t\ufeffc\u2028 é 🙂") == "a\\u200bb\\n\\t\\ufeffc\\u2028 é 🙂"


@pytest.fixture
def terminal():
    """A terminal with colours: rich writes links and markup to one, if it is let."""
    return common.Terminal(file=io.StringIO(), force_terminal=True, color_system="truecolor", width=2000)


def test_a_terminal_with_colours_gets_no_link_and_no_markup(terminal):
    terminal.print(EVERYTHING)
    terminal.print(EVERYTHING, style="red", soft_wrap=True)
    table = Table(EVERYTHING, title=EVERYTHING)
    table.add_row(EVERYTHING)
    terminal.print(table)
    written = terminal.file.getvalue()
    assert "\x1b]8" not in written
    assert obeyed(re.sub(r"\x1b\[[0-9;]*m", "", written)) <= {"\n"}  # but for rich's own colours
    assert written.count(RICH) == 4 + 1
    assert "\\x1b[2J" in written


def test_a_progress_bar_with_a_planted_name(monkeypatch, terminal):
    monkeypatch.setattr(common, "err", terminal)
    arguments = type("Arguments", (), {"json": False, "progress_file": None})()
    with common.progress_bar(arguments) as report:
        report(EVERYTHING, 1, 2)
    written = terminal.file.getvalue()
    assert RICH in written
    assert "\x1b]8" not in written
    assert not re.search(r"\x1b\[2J|\x9b|\u202e", written)


@pytest.fixture
def run(capfd, tmp_path):
    """A command; whatever it writes holds nothing that a terminal would obey. returns code and text."""

    def call(*words):
        code = main(list(map(str, words)))
        captured = capfd.readouterr()
        for text in captured:
            assert obeyed(text) <= {"\n", "\t"}, words
        return code, captured.out + captured.err

    return call


NAME = f"{CONTROL}{RICH}".replace("/", "!")  # a folder's name has no /


@pytest.mark.long
def test_a_checkpoint_whose_folder_and_files_are_named_so(run, tiny_llama, tmp_path):
    folder = tmp_path / NAME
    shutil.copytree(tiny_llama.id, folder)
    code, text = run("rows", folder)
    assert code == 0
    assert "[link=" in text
    code, text = run("doctor", folder, "--store", tmp_path / "store")
    assert "\\x1b]8" in text
    config = json.loads((folder / "config.json").read_text())
    for changed in ({"model_type": EVERYTHING}, {"hidden_act": EVERYTHING}, {"architectures": [EVERYTHING]}):
        (folder / "config.json").write_text(json.dumps({**config, **changed}))
        run("rows", folder)
    code, text = run("rows", tmp_path / f"no {NAME}")
    assert code == 2
    assert "[link=" in text


def test_replies_and_what_they_come_from(run, tmp_path):
    lines = [
        {
            "prompt": EVERYTHING,
            "reply": f"I cannot help. {EVERYTHING}",
            "model": EVERYTHING,
            "human_label": "full_refusal",
        }
    ]
    lines.append({**lines[0], "reply": f"Sure: {EVERYTHING}", "human_label": "full_compliance"})
    (tmp_path / "replies.jsonl").write_text("\n".join(map(json.dumps, lines)))
    code, text = run("refusal", "judge", tmp_path / "replies.jsonl", "--judge", "embedded", "--out", tmp_path / NAME)
    assert (code, "\\x1b]8;;" in text) == (0, True), text
    code, text = run("refusal", "judge", tmp_path / "replies.jsonl", "--judge", EVERYTHING)
    assert (code, HOST in text) == (2, True)
    assert len(text.strip().splitlines()) == 1


def write_run(folder, model):
    """A sweep of two selectors, by a model of this name, on a text of this name."""
    lines = [
        {
            "model": model, "selector": selector, "seed": None, "order": order, "rate": rate, "rows_removed": 10,
            "nll": 2.0 + slope * rate, "nll_stderr": 0.1, "tokens": 100, "perplexity": math.exp(2.0 + slope * rate),
        }
        for selector, slope in (("lrp", 1.0), ("ig", 2.0)) for order in ("lerf", "morf") for rate in (0.0, 0.3)
    ]  # fmt: skip
    folder.mkdir()
    write_parquet(folder / "sweep.parquet", frame("sweep", lines))
    model = {"id": model, "revision": EVERYTHING, "weights_hash": "ab" * 32, "dtype": "float32"}
    add_to_manifest(folder, model, "sweep.parquet", {"evaluation": {"corpus": EVERYTHING}}, 1.0)
    return folder


def test_a_damaged_file_is_told_in_one_line(run, tmp_path):
    folder = write_run(tmp_path / NAME, "made-up")
    (folder / "sweep.parquet").write_bytes(b"PAR1" + EVERYTHING.encode())
    before = file_sha256(folder / "sweep.parquet")
    code, text = run("report", folder, "--out", tmp_path / "report.html")
    assert code == 2
    assert len(text.strip().splitlines()) == 1
    assert file_sha256(folder / "sweep.parquet") == before
