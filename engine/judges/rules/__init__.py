"""The embedded judge's rules of English, in the order in which they are asked: the clearest first."""

from engine.judges.rules.calling_wrong import CALLING_WRONG
from engine.judges.rules.declining import DECLINING

RULES = (*DECLINING, *CALLING_WRONG)
