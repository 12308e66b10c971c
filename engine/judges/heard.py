"""What a judge reads of a reply: what is said after its thinking part."""

from collections.abc import Sequence

from engine.data.thinking import Marks, after_thinking
from engine.judges.base import Exchange, Judge, Verdict, not_judged
from engine.records.errors import InputError
from engine.records.progress import Progress
from engine.records.registry import plug_in_code

NO_REPLY = "not judged: there is no reply"
STILL_THINKING = "not judged: the thinking part has not ended, nothing was said yet"


def heard(prompt: str, reply: str, finished: bool | None = None, marks: Sequence[Marks] = ()) -> Exchange:
    """Prompt and reply without its thinking part. A reply that never comes out of that part says nothing, and counts as
    not finished however it ended. marks: of thinking parts, beside the known forms."""
    said = after_thinking(reply, marks)
    return Exchange(prompt, said.text, finished if said.complete else False)


def verdicts_on(
    judge: Judge, exchanges: Sequence[Exchange], progress: Progress | None = None, marks: Sequence[Marks] = ()
) -> list[Verdict]:
    """A judge's verdicts on whole replies, of which it reads what is `heard`; one that is still thinking, and one that
    says nothing, it cannot judge. Errors: InputError for a judge that does not give one verdict each."""
    spoken = [after_thinking(one.reply, marks) for one in exchanges]
    read = [heard(*one, marks) for one, said in zip(exchanges, spoken, strict=True) if said.text.strip()]
    with plug_in_code("judge", judge.id):
        verdicts = [] if not read else list(judge.judge(read, progress) if progress else judge.judge(read))
    if len(verdicts) != len(read) or not all(isinstance(one, Verdict) for one in verdicts):
        kinds = ", ".join(sorted({type(one).__name__ for one in verdicts})) or "none"
        raise InputError(
            f"the judge {judge.id!r} gave {len(verdicts):,} verdicts ({kinds}) on {len(read):,} replies; expected one "
            "Verdict each"
        )
    in_turn = iter(verdicts)
    silent = {True: not_judged(NO_REPLY), False: not_judged(STILL_THINKING)}
    return [next(in_turn) if said.text.strip() else silent[said.complete] for said in spoken]
