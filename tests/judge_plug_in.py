"""A judge of a package of its own: one file and one entry point."""

import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from engine.judges.base import JUDGES
from engine.records import registry

FAKE = """
from engine.judges.base import Verdict, register_judge


@register_judge("fake", title="Sees a refusal in whatever was cut off")
class Fake:
    id, version = "fake", "7"

    def judge(self, exchanges, progress=None):
        return [Verdict(one.finished is False, f"asked {one.prompt!r}, ended {one.finished}") for one in exchanges]
"""


def install_judge(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str = FAKE, name: str = "fake") -> None:
    """As if a package with this module had been installed: found by its entry point, forgotten after the test."""
    JUDGES.names()  # the built-in ones are loaded before there is a plug-in
    (folder / f"{name}_judge.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, f"{name}_judge", raising=False)
    found = EntryPoint(name=name, value=f"{name}_judge", group="selector_audit.judges")
    monkeypatch.setattr(registry, "entry_points", lambda group: EntryPoints([found] if group == found.group else []))
    monkeypatch.setattr(registry, "_installed", registry._installed.__wrapped__)  # without its cache
    monkeypatch.setattr(JUDGES, "_entries", dict(JUDGES._entries))
    monkeypatch.setattr(JUDGES, "broken", {})
    monkeypatch.setattr(JUDGES, "_loaded", False)
    monkeypatch.setattr(JUDGES, "_plug_ins_loaded", False)
