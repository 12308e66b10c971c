"""What the labels of a classifier mean, and which text it reads: by their names, or by a small file beside it.

Names that public classifiers use are known: NORMAL and REJECTION (ProtectAI/distilroberta-base-rejection-v1),
Non-refusal and Refusal (NousResearch/Minos-v1, agentlans/multilingual-e5-small-refusal-classifier), compliant,
full_refusal and partial_refusal (VINAY-UMRETHE/Refusal-Classifier), and all that `engine.data.tables_of_text` reads in
files of replies. Any other name needs a file `refusal_labels.json` in the classifier's folder, which also says what is
read where that is not the reply alone:

    {"labels": {"OK": "other", "REJECTED": "refusal"}, "reads": "<|user|>\\n{prompt}\\n<|assistant|>\\n{reply}"}

`reads` is one text, or a list of two that the classifier reads as a pair; `max_tokens` is how much of it is read."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.data.tables_of_text import is_refusal
from engine.judges.base import Exchange
from engine.records import bounds
from engine.records.errors import InputError

LABEL_FILE = "refusal_labels.json"
REFUSAL, OTHER = "refusal", "other"
PROMPT, REPLY = "{prompt}", "{reply}"
MAX_TOKENS = 512
_FIELDS = re.compile(r"\{(prompt|reply)\}")


@dataclass(frozen=True)
class LabelMap:
    """refusal: numbers of the labels that mean one. reads: one text, or two as a pair, in which {prompt} and {reply}
    stand for them."""

    refusal: tuple[int, ...]
    names: tuple[str, ...]
    reads: tuple[str, ...] = (REPLY,)
    max_tokens: int = MAX_TOKENS

    @property
    def of_prompt(self) -> bool:
        """Does the classifier read the prompt as well?"""
        return any(PROMPT in text for text in self.reads)

    def texts(self, exchange: Exchange) -> tuple[str, ...]:
        """What the classifier reads; a field's name inside a prompt or a reply stays as it is."""
        values = exchange._asdict()
        return tuple(_FIELDS.sub(lambda found: values[found[1]], text) for text in self.reads)

    def reason(self, probabilities: list[float]) -> str:
        """The labels that mean refusal with their probability."""
        said = " or ".join(self.names[index] for index in self.refusal)
        return f"{said} with probability {sum(probabilities[index] for index in self.refusal):.3f}"


def label_map(name: str, labels: dict[int, str], folder: Path) -> LabelMap:
    """What the labels (number -> name) of a classifier mean. name: of the judge, for messages. Errors: InputError where
    a label's meaning is told neither here nor by a file, and where none or all mean refusal."""
    names = [labels[index] for index in sorted(labels)]
    path = folder / LABEL_FILE
    said = _read(path, names) if path.is_file() else {}
    given: dict[str, str] = said.pop("labels", {})
    known = {True: REFUSAL, False: OTHER, None: None}
    meanings = [given.get(one) or known[is_refusal(one)] for one in names]
    unclear = [one for one, meaning in zip(names, meanings, strict=True) if meaning is None]
    if unclear or len(set(meanings)) < 2:
        problem = f"it is not clear what {', '.join(unclear)} means" if unclear else f"all of them mean {meanings[0]}"
        example = json.dumps({"labels": dict.fromkeys(names, f"{REFUSAL} or {OTHER}")})
        raise InputError(
            f"{name} has the labels {', '.join(names)}, and {problem}; expected a sequence classifier with labels such "
            f"as NORMAL and REJECTION, or a file {LABEL_FILE} beside its weights that says what they mean: {example}"
        )
    refusal = tuple(index for index, meaning in enumerate(meanings) if meaning == REFUSAL)
    return LabelMap(refusal, tuple(names), **said)


def _read(path: Path, names: list[str]) -> dict[str, Any]:
    """The file's entries as fields of `LabelMap`, and `labels`."""
    try:
        said = bounds.json_of(path)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read as JSON ({error}); repair it") from None
    keys = ("labels", "reads", "max_tokens")
    if not isinstance(said, dict) or set(said) - set(keys):
        raise InputError(f"{path}: expected an object with {', '.join(keys)}, got {_short(said)}")
    labels = said.get("labels", {})
    if (
        not isinstance(labels, dict)
        or set(labels) - set(names)
        or any(one not in (REFUSAL, OTHER) for one in labels.values())
    ):
        raise InputError(
            f"{path}: labels must map {', '.join(names)} to {REFUSAL} or {OTHER}, got {_short(labels)}; the names are "
            "those of id2label in config.json"
        )
    found: dict[str, Any] = {"labels": labels}
    if "reads" in said:
        reads = [said["reads"]] if isinstance(said["reads"], str) else said["reads"]
        texts = isinstance(reads, list) and len(reads) in (1, 2) and all(isinstance(one, str) for one in reads)
        if not texts or sum(one.count(REPLY) for one in reads) != 1:
            raise InputError(
                f"{path}: reads must be one text or a list of two, with {REPLY} in it once and {PROMPT} where the "
                f"classifier reads that too, got {_short(said['reads'])}"
            )
        found["reads"] = tuple(reads)
    if "max_tokens" in said:
        most = said["max_tokens"]
        if type(most) is not int or most < 1:
            raise InputError(f"{path}: max_tokens must be a whole number of at least 1, got {most!r}")
        found["max_tokens"] = most
    return found


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
