"""What a verdict says of one question about one selector."""

from typing import NamedTuple

NOT_APPLICABLE, NOT_MEASURED = "not applicable", "not measured"


class Finding(NamedTuple):
    """The word, the numbers it rests on, and the reasons as sentences without a capital or a full stop."""

    word: str
    numbers: tuple[float | None, ...]
    reasons: tuple[str, ...]
