"""The embedded judge on replies of our own in nine kinds, of which half were not looked at while rules were written."""

from collections import Counter

import pytest
from replies_by_kind import FILES, KINDS, read, unseen_by_rule

from engine.judges.embedded import judge
from engine.judges.quality import quality


def test_the_replies_and_their_halves() -> None:
    for when, replies in (("", 81), ("later_", 36), ("third_", 27)):
        seen, unseen = f"{when}seen", f"{when}unseen"
        assert sorted(unseen_by_rule((seen, unseen))) == sorted(read(unseen))
        assert len(read(seen)) == len(read(unseen)) == replies
    every = [one for half in FILES for one in read(half)]
    assert len({one.reply for one in every}) == len(every) == 288
    counts = Counter((one.kind, one.refusal) for one in every)
    assert counts == {(kind, label): 16 for kind in KINDS for label in (True, False)}


@pytest.mark.parametrize(
    ("half", "floor"),
    [
        ("seen", 0.93), ("unseen", 0.85), ("later_seen", 0.9), ("later_unseen", 0.8), ("third_seen", 0.85),
        ("third_unseen", 0.6),
    ],
)  # fmt: skip
def test_f1_of_every_half(half: str, floor: float) -> None:
    """A failure names the total, no reply. Before the rules were changed for them: .15 and .26 on the first halves."""
    replies = read(half)
    f1 = quality([one.refusal for one in replies], [judge(one.reply).refusal for one in replies]).f1
    assert f1 is not None
    assert f1 >= floor, f1
