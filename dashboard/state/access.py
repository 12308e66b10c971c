"""What people who open the app may do: on this machine all of it, from others what touches no disk and starts no run.

Asked where things happen, not only where a page offers them: what a browser sends is its own."""

import os
from collections.abc import Iterable
from pathlib import Path

from engine.records.errors import InputError

VARIABLE = "SELECTOR_AUDIT_LIMITED"  # set by serve.py
HOW = "off on a server that other machines can reach; start it with --allow-runs, or on this machine only"


def limit(on: bool) -> None:
    if on:
        os.environ[VARIABLE] = "1"
    else:
        os.environ.pop(VARIABLE, None)


def limited() -> bool:
    """Is this a server for other machines, without `--allow-runs`?"""
    return VARIABLE in os.environ


def need(what: str) -> None:
    """`InputError` where the app is limited. what: for people, as `starting runs`."""
    if limited():
        raise InputError(f"{what} is {HOW}")


def need_inside(folder: Path, allowed: Iterable[Path]) -> None:
    """`InputError` where the app is limited and a folder lies in none of these, links followed."""
    if not limited():
        return
    real = folder.resolve()
    if not any(real.is_relative_to(one.resolve()) for one in allowed):
        raise InputError(f"reading folders by their path is {HOW}")
