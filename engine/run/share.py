"""A share of the cells of a command: `--shard i/n`. No torch."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from engine.records.errors import InputError


class Shard(NamedTuple):
    """Share `number` of `total`, from 1."""

    number: int
    total: int

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"


class Measured(Exception):
    """Not an error: what a runner has to measure of a study is measured, and tables are not its task (`Runner.whole`).
    skipped: what could not be done here -> why."""

    def __init__(self, skipped: Mapping[str, str] | None = None) -> None:
        super().__init__("measured")
        self.skipped = dict(skipped or {})


def parse_shard(text: str) -> Shard:
    """`2/8`. Errors: InputError for anything else, and for a number that is not from 1 to the total."""
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text.strip())
    if not match:
        raise InputError(f"a shard is a number and how many there are, got {text!r}; write 2/8 for the second of eight")
    shard = Shard(*map(int, match.groups()))
    if not shard.total:
        raise InputError(f"there is at least one shard, got {text!r}; write 1/1 to 8/8")
    if not 1 <= shard.number <= shard.total:
        raise InputError(f"shards of {shard.total} are 1 to {shard.total}, got {shard.number}; write 1/{shard.total}")
    return shard
