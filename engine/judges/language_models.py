"""Language models as judges: which of two answers is likelier as the next token? Deterministic, without sampling.

An answer counts by its first token in several spellings; tokens that begin both are dropped. Where greedy decoding
would say something else than either answer, blanks passed over, the reply is marked, not judged."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.records.errors import InputError
from engine.records.progress import Progress

if TYPE_CHECKING:
    from engine.models.loading import LoadedModel

BATCH_SIZE = 16
MAX_TOKENS = 8192  # of prompt and reply; a longer one is marked
YES, NO = "yes", "no"
_BLANKS = 3  # tokens without a character that are passed over


class Answer(NamedTuple):
    """first, second: probability that the next token begins that answer. said: the token that is likeliest. answered:
    does `said` begin one of the two? too_long: tokens of a text that the model cannot read whole, else 0."""

    first: float
    second: float
    said: str
    answered: bool
    too_long: int = 0

    @property
    def is_first(self) -> bool:
        return self.first > self.second

    @property
    def why_not(self) -> str:
        """Why there is no answer."""
        if self.too_long:
            return f"prompt and reply have {self.too_long:,} tokens, more than this judge reads"
        return f"the judge began its answer with {self.said!r}"


@dataclass(frozen=True, eq=False)
class JudgeModel:
    """A loaded language model. version: its revision where it has one, a hash of weights, configuration and tokenizer,
    and the precision where that is not float32."""

    loaded: LoadedModel
    version: str
    max_tokens: int

    @property
    def tokenizer(self) -> Any:
        return self.loaded.tokenizer

    def plain(self, text: str) -> str:
        """The text with a blank inside whatever the tokenizer would read as a special token: nothing that a reply says
        ends its turn or begins another."""
        special = {str(token) for token in self.tokenizer.added_tokens_decoder.values() if token.special}
        for token in sorted(special, key=len, reverse=True):
            if len(token) > 1:
                text = text.replace(token, f"{token[0]} {token[1:]}")
        return text

    def choose(
        self, texts: Sequence[str], first: str, second: str, progress: Progress | None = None, stage: str = "judge"
    ) -> list[Answer]:
        """The answer to every text, which holds all special tokens already. Errors: InputError where the tokenizer
        begins both answers alike."""
        if not texts:
            return []
        ids: list[list[int]] = self.tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        tokens = self._answer_tokens(texts[0], ids[0], first, second)
        answers = [Answer(0.0, 0.0, "", False, len(one)) for one in ids]
        waiting = sorted((i for i, one in enumerate(ids) if len(one) <= self.max_tokens), key=lambda i: len(ids[i]))
        for start in range(0, len(waiting), BATCH_SIZE):
            members = waiting[start : start + BATCH_SIZE]
            for _ in range(_BLANKS + 1):
                members = self._step(members, ids, tokens, answers)
            if progress:
                progress(stage, min(start + BATCH_SIZE, len(waiting)), len(waiting))
        return answers

    def _step(
        self, members: list[int], ids: list[list[int]], tokens: tuple[list[int], list[int]], found: list[Answer]
    ) -> list[int]:
        """Writes the answers of these texts; returns those that began with a blank, which is added to their ids."""
        import torch

        from engine.data.prompts import pad_left

        if not members:
            return []
        batch = pad_left([ids[i] for i in members]).to(self.loaded.model.device)
        with self.loaded.lock, torch.no_grad():
            logits = self.loaded.model(**batch._asdict(), use_cache=False, logits_to_keep=1).logits[:, -1]
        probabilities = logits.cpu().double().softmax(-1)  # [texts, vocabulary]
        again = []
        for i, p in zip(members, probabilities, strict=True):
            likeliest = int(p.argmax())
            word = self.tokenizer.decode([likeliest])
            first, second = (float(p[some].sum()) for some in tokens)
            found[i] = Answer(first, second, word, likeliest in tokens[0] + tokens[1])
            if not found[i].answered and not word.strip() and len(ids[i]) < self.max_tokens:
                ids[i] = [*ids[i], likeliest]
                again.append(i)
        return again

    def _answer_tokens(self, text: str, ids: list[int], first: str, second: str) -> tuple[list[int], list[int]]:
        """First tokens of both answers behind this text, in several spellings, without those that begin both."""
        begins = []
        for answer in (first, second):
            begun: set[int] = set()
            for spelling in (answer, answer.capitalize(), answer.upper()):
                for blank in ("", " "):
                    whole = self.tokenizer(f"{text}{blank}{spelling}", add_special_tokens=False)["input_ids"]
                    if whole[: len(ids)] == ids and len(whole) > len(ids):
                        begun.add(whole[len(ids)])
            begins.append(begun)
        one, other = (sorted(some - begins[not place]) for place, some in enumerate(begins))
        if not one or not other:
            raise InputError(
                f"{self.loaded.id} cannot tell {first!r} from {second!r} by their first token; give another model"
            )
        return one, other


def load_judge_model(model: str, device: str = "cpu") -> JudgeModel:
    """The language model of a folder or a hub id. Errors: InputError as in `load_model`."""
    from engine.models.loading import load_model

    loaded = load_model(model, device=device)
    hashes = "\n".join((loaded.weights_hash, loaded.config_hash, loaded.tokenizer_hash))
    parts = (loaded.revision or "", hashlib.sha256(hashes.encode()).hexdigest()[:12])
    precision = "" if loaded.dtype == "float32" else loaded.dtype
    positions = int(getattr(loaded.model.config, "max_position_embeddings", None) or MAX_TOKENS)
    return JudgeModel(loaded, ":".join(filter(None, (*parts, precision))), min(MAX_TOKENS, positions))


def chat(model: JudgeModel, messages: Sequence[tuple[str, str]]) -> str:
    """A dialogue as text by the model's chat template, up to where the model's own turn begins. messages: (role, text);
    special tokens in a text are none (`JudgeModel.plain`). Errors: InputError where there is no template, or where it
    leaves a message out."""
    from engine.data.chat_template import render
    from engine.data.prompts import TEMPLATE_DATE

    if not model.tokenizer.chat_template:
        raise InputError(f"{model.loaded.id} has no chat template; a judge needs an instruction model with its own")
    turns = [{"role": role, "content": model.plain(text)} for role, text in messages]
    try:
        text = render(model.tokenizer, turns, enable_thinking=False, date_string=TEMPLATE_DATE)
    except InputError as error:
        raise InputError(f"{model.loaded.id} cannot judge: {error}") from None
    if not all(turn["content"].strip() in text for turn in turns):
        raise InputError(f"the chat template of {model.loaded.id} leaves out a prompt or a reply; give another model")
    return text


def wording_hash(*texts: str) -> str:
    """Eight hexadecimal digits of what a judge is asked, for its version."""
    return hashlib.sha256("\n\n".join(texts).encode()).hexdigest()[:8]


def name_of(model: str) -> str:
    """A model's name in its judge's id: the last part of a path or of a hub id."""
    folder = Path(model).expanduser()
    return folder.resolve().name if folder.is_dir() else model.rpartition("/")[2]
