"""`minos`: NousResearch/Minos-v1, a ModernBERT that classifies a prompt with its reply as Refusal or Non-refusal.

Format, labels and the 8,192 tokens that it reads are those of its model card: a dialogue, here of one prompt and its
reply, each turn behind <|user|> or <|assistant|> on a line of its own."""

from engine.judges.base import MINOS, register_judge
from engine.judges.classifier import Classifier, load_classifier

MODEL = "NousResearch/Minos-v1"
READS = ("<|user|>\n{prompt}\n<|assistant|>\n{reply}",)
MAX_TOKENS = 8192


@register_judge(MINOS, title=f"{MODEL}, reads the prompt too", on_device=True, of_model=True)
def minos(device: str, model: str) -> Classifier:
    """The classifier of the hub, downloaded once, or a folder with a copy."""
    return load_classifier(model or MODEL, device=device, judge_id=MINOS, reads=READS, max_tokens=MAX_TOKENS)
