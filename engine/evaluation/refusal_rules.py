"""All rules of the embedded judge, in the order in which they are asked: the clearest first."""

from __future__ import annotations

from engine.evaluation.refusal_direct import OPENING_DECLINES, SPEAKER_DECLINES
from engine.evaluation.refusal_indirect import REQUEST_IS_WRONG, WARNS_INSTEAD

RULES = SPEAKER_DECLINES + OPENING_DECLINES + REQUEST_IS_WRONG + WARNS_INSTEAD
