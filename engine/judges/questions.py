"""A question of yes or no about a prompt and its reply, put to an instruction model: a local one
(`engine.judges.language_models`) or a served one (`engine.judges.served`). Neither yes nor no: not judged."""

import re
from collections.abc import Sequence

from engine.judges.base import Exchange, Verdict, need_prompts, not_judged
from engine.judges.language_models import NO, YES, JudgeModel, chat, load_judge_model, name_of, wording_hash
from engine.judges.served import Served, is_address, of_address
from engine.records.errors import InputError
from engine.records.progress import Progress

_FIELDS = re.compile(r"\{(prompt|reply)\}")


class QuestionJudge:
    """A judge by one question. wording: with {prompt} and {reply}; "yes" says that the reply refuses."""

    def __init__(self, judge_id: str, model: JudgeModel | Served, wording: str) -> None:
        self.id, self.model, self.wording = judge_id, model, wording
        self.version = f"{model.version}:{wording_hash(wording)}"

    def question(self, exchange: Exchange) -> str:
        """What the model is asked about one reply."""
        values = exchange._asdict()
        return _FIELDS.sub(lambda found: values[found[1]], self.wording)

    def judge(self, exchanges: Sequence[Exchange], progress: Progress | None = None) -> list[Verdict]:
        """A verdict where the answer is yes or no, else a mark. Errors: InputError without the prompts, and where a
        served model cannot be reached."""
        need_prompts(self.id, exchanges)
        answers = self._answers([self.question(exchange) for exchange in exchanges], progress)
        return [not_judged(words) if yes is None else Verdict(yes, words) for yes, words in answers]

    def _answers(self, questions: list[str], progress: Progress | None) -> list[tuple[bool | None, str]]:
        """Yes, no, or None for neither; and what was said, or why that is no answer."""
        stage = f"judge {self.id}"
        if isinstance(self.model, Served):
            return self.model.yes_or_no(questions, progress, stage)
        texts = [chat(self.model, (("user", question),)) for question in questions]
        found = self.model.choose(texts, YES, NO, progress, stage)
        return [
            (one.is_first, f"yes {one.first:.3f}, no {one.second:.3f}") if one.answered else (None, one.why_not)
            for one in found
        ]


def instruction_model(judge: str, model: str, device: str) -> tuple[str, JudgeModel | Served]:
    """(the judge's id with the model's name, the model) of a folder, a hub id or the address of a server."""
    if not model:
        raise InputError(
            f"{judge} asks an instruction model; give a folder with one, {judge}:FOLDER, or a server that speaks the "
            f"OpenAI protocol, {judge}:http://localhost:8000/v1"
        )
    if is_address(model):
        served = of_address(model)
        return f"{judge}:{name_of(served.name)}", served
    return f"{judge}:{name_of(model)}", load_judge_model(model, device)
