"""Bad input for the command line, in this process: exit code 2 and one line, whatever is wrong."""

import json
import shutil
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from engine.cli import main
from engine.records.errors import InputError

Refused = Callable[..., str]
LONGEST = 1_500  # characters of a line


def run(*words: object) -> int:
    """The exit code of a command, whether its words or its files are wrong."""
    try:
        return main([str(word) for word in words])
    except SystemExit as ended:  # argparse
        return int(str(ended.code))


def refused(capfd: pytest.CaptureFixture[str], *words: object) -> str:
    """The one line that a command with bad input ends in. capfd: what libraries print by themselves counts too."""
    capfd.readouterr()
    code = run(*words)
    out, err = capfd.readouterr()
    assert (code, out) == (2, ""), f"exit code {code}, stdout {out[:300]!r}, stderr {err[:600]!r}"
    lines = err.rstrip("\n").split("\n")
    assert len(lines) == 1, err[:1000]
    (line,) = lines
    assert line.startswith("selector-audit"), line
    assert "Traceback" not in line
    assert len(line) < LONGEST, len(line)
    # What and got stand before, what was expected or the next step after it.
    marks = (";", " expected ", " must ", " available", ": give", ": copy", ": correct")
    assert any(mark in line for mark in marks), line
    assert line.isprintable(), repr(line)
    return line


def error_of(action: Callable[[], object]) -> str:
    """The one line of the `InputError` that an action ends in."""
    with pytest.raises(InputError) as caught:
        action()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def model_copy(saved: Path, place: Path) -> Path:
    """A checkpoint of one's own, to be spoilt."""
    return Path(shutil.copytree(saved, place / "model"))


def changed(folder: Path, name: str, **changes: Any) -> None:
    """A JSON file of a folder with other entries."""
    content = json.loads((folder / name).read_text(encoding="utf-8"))
    (folder / name).write_text(json.dumps({**content, **changes}), encoding="utf-8")


def raw_safetensors(tensors: Mapping[str, tuple[str, list[int], bytes]], metadata: Any = None) -> bytes:
    """A safetensors file by its format: names to (dtype, shape, bytes), whatever they say."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    body = b""
    for name, (kind, shape, content) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(body), len(body) + len(content)]}
        body += content
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body
