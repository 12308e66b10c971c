"""The embedded judge's rules of English, in the order in which they are asked: the clearest first."""

from engine.judges.rules.calling_wrong import CALLING_WRONG
from engine.judges.rules.declining import DECLINING
from engine.judges.rules.turning_elsewhere import TURNING_ELSEWHERE
from engine.judges.rules.withholding import WITHHOLDING

RULES = (*DECLINING, *WITHHOLDING, *CALLING_WRONG, *TURNING_ELSEWHERE)
