"""The two halves of a pairs file: what is calibrated on and what is held out, by the names that files use. No torch."""

import re
from collections.abc import Iterable

from engine.records.errors import InputError

CALIBRATION, HELDOUT = "calibration", "heldout"
# In small letters and without blanks, `-` and `_`: `Held-Out` is understood too.
_NAMES = {
    "calibration": CALIBRATION,
    "train": CALIBRATION,
    "training": CALIBRATION,
    "heldout": HELDOUT,
    "test": HELDOUT,
    "validation": HELDOUT,
}


def splits_of(source: str, names: Iterable[str]) -> dict[str, str]:
    """Name of a split in a file -> `calibration` or `heldout` (validation and test). Errors: InputError for any other
    name, with those that are there: its pairs would be left out silently."""
    there = list(dict.fromkeys(names))
    meant = {name: _NAMES.get(re.sub(r"[\s_-]+", "", name.lower())) for name in there}
    for name, split in meant.items():
        if split is None:
            raise InputError(
                f"{source}: unknown split {name!r}; it has {', '.join(map(repr, there))}, understood are "
                f"{_said(CALIBRATION)} for calibration and {_said(HELDOUT)} for what is held out"
            )
    return {name: split for name, split in meant.items() if split is not None}


def _said(split: str) -> str:
    return ", ".join(name for name, meant in _NAMES.items() if meant == split)
