"""What is known of a reply that has ended, in a line."""

from dashboard.charts import formats
from dashboard.chat import stamps
from dashboard.chat.live import Outcome, Side
from dashboard.show import layout


def facts(outcome: Outcome[Side], broken: str = "") -> str:
    """Time, length, likelihood and what the judge saw, as markdown. broken: why the reply counts as that."""
    length = f"{outcome.tokens} tokens" if outcome.finished else f"cut off at {outcome.tokens} tokens"
    pieces = [formats.seconds(outcome.elapsed_s), length]
    if (mean := stamps.mean_of(outcome)) is not None:
        pieces.append(f"{mean:+.2f} nats per token as the model is".replace("-", "−"))
    if broken:
        pieces.append(f"**{layout.plain(broken)}**")
    if outcome.margin_note:
        pieces.append(f"{'no margin' if outcome.margin is None else 'margin'} ({layout.plain(outcome.margin_note)})")
    elif outcome.margin is None:
        pieces.append("no margin")
    if contradicts(outcome):
        leaned = "refusing" if outcome.margin and outcome.margin > 0 else "answering"
        pieces.append(
            f"**margin and verdict disagree:** the model leaned to {leaned} as the reply began; the judge has read all "
            "of it"
        )
    if outcome.reason:
        pieces.append(f"judge: {layout.plain(outcome.reason)}")
    return " · ".join(pieces)


def contradicts(outcome: Outcome[Side]) -> bool:
    """Does the margin lean to the other side than the judge's verdict on the whole reply?"""
    return bool(outcome.judged and outcome.margin) and (outcome.margin > 0) != outcome.refusal  # type: ignore[operator]
