"""Judges by name. A judge reads a prompt and its reply and says whether the reply refuses, and does nothing else.

To add one, write a file with a class and register it under its id:

    from collections.abc import Sequence

    from engine.judges.base import Exchange, Verdict, register_judge
    from engine.records.progress import Progress

    @register_judge("sorry", title="Looks for an apology")
    class Sorry:
        id, version = "sorry", "1"

        def judge(self, exchanges: Sequence[Exchange], progress: Progress | None = None) -> list[Verdict]:
            return [Verdict("sorry" in one.reply.lower(), "looks for 'sorry'") for one in exchanges]

Inside this repository the file goes beside the others and its id into `JUDGES`. In a package of its own an entry point
does the same, `[project.entry-points."selector_audit.judges"]` with `sorry = "package.module"`: importing the module
has to run the decorator. `--judge` of every command, the tables of `refusal judge` and Refusal → Judges know it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from engine.data.thinking import Marks, after_thinking
from engine.records.errors import InputError, unknown
from engine.records.progress import Progress
from engine.records.registry import Registry, plug_in_code

EMBEDDED, REJECTION, MINOS = "embedded", "rejection-model", "minos"
WILDGUARD, STRONGREJECT = "wildguard", "strongreject"
# What else a judge may be.
A_FOLDER = "or a folder with a classifier; those that ask a model take it behind a colon, as in strongreject:FOLDER"
# What is said beside rates.
UNJUDGED = (
    "were not judged (empty, not English, thinking that had not ended, or a judge without a clear answer); they count "
    "as not refused"
)


class Exchange(NamedTuple):
    """What a judge reads. prompt: "" where it is not known. finished: did the reply end by itself (True), was it cut
    off at the limit of tokens (False), or is that not known (None)?"""

    prompt: str
    reply: str
    finished: bool | None = None


@dataclass(frozen=True)
class Verdict:
    """refusal: does the reply decline? reason: what decided, in words. judged: False where the judge could not say, as
    in a language that it does not read; such a reply counts as no refusal, and is counted beside the rates."""

    refusal: bool
    reason: str
    judged: bool = True


def not_judged(reason: str) -> Verdict:
    """A reply that the judge could not judge, and why."""
    return Verdict(False, reason, judged=False)


class Judge(Protocol):
    """What a registered class makes. id and version are recorded with every verdict: other verdicts, other version."""

    @property
    def id(self) -> str: ...

    @property
    def version(self) -> str: ...

    def judge(self, exchanges: Sequence[Exchange], progress: Progress | None = None) -> list[Verdict]:
        """One verdict per exchange, in their order. No reply is empty (`engine.judges.base`)."""
        ...


@dataclass(frozen=True)
class JudgeInfo:
    """What menus and documents say about a judge, and how it is made."""

    id: str  # stored in results: never renamed
    title: str
    make: Callable[..., Judge]
    on_device: bool  # made with the device that it runs on
    of_model: bool  # made with a model too: a folder, a hub id or a served one's address, "" for its own

    def open(self, device: str = "cpu", model: str = "") -> Judge:
        """The judge itself. Errors: InputError where it is not at hand, or has another id than it is registered by."""
        if model and not self.of_model:
            raise InputError(f"the judge {self.id} takes no model, got {model!r}; write {self.id}")
        judge = self.make(*([device] * self.on_device), *([model] * self.of_model))
        if judge.id.partition(":")[0] != self.id:
            raise InputError(f"the judge registered as {self.id!r} calls itself {judge.id!r}; give it one id")
        return judge


JUDGES: Registry[JudgeInfo] = Registry(
    "judge",
    {
        EMBEDDED: "engine.judges.embedded",
        REJECTION: "engine.judges.classifier",
        MINOS: "engine.judges.classifier",
        WILDGUARD: "engine.judges.wildguard",
        STRONGREJECT: "engine.judges.strongreject",
    },
)
_Make = TypeVar("_Make", bound=Callable[..., Judge])


def register_judge(
    judge_id: str, *, title: str = "", on_device: bool = False, of_model: bool = False
) -> Callable[[_Make], _Make]:
    """Decorator of a class, or of a function that makes a judge: available under an id from now on.

    on_device: it is a model, made with the device's name ("cpu", "cuda:0"). of_model: made with the model as well that
    stands behind the colon of `--judge ID:MODEL`, "" without one; its own id may then be `ID:` and the model's name.
    Errors: InputError for a taken id."""

    def register(make: _Make) -> _Make:
        JUDGES.add(judge_id, JudgeInfo(judge_id, title or judge_id, make, on_device, of_model), make)
        return make

    return register


def judge_choices() -> str:
    """What `--judge` takes, for its help; loads no judge."""
    return f"{', '.join(JUDGES.offered())}, {A_FOLDER} (default: {EMBEDDED}, which reads English only)"


def open_judges(names: str, device: str = "cpu") -> list[Judge]:
    """Registered judges or folders of classifiers, one or several separated by commas, in that order. `InputError` for
    an unknown name, and for two judges of one id, whose verdicts could not be told apart."""
    wanted = list(dict.fromkeys(part.strip() for part in names.split(",") if part.strip()))
    if not wanted:
        raise InputError(f"no judge given; available: {', '.join(JUDGES.names())}, or a folder")
    judges = [_open(name, device) for name in wanted]
    ids = [one.id for one in judges]
    twice = next((one for one in ids if ids.count(one) > 1), None)
    if twice is not None:
        raise InputError(f"two judges are called {twice!r}; rename one of the folders")
    return judges


def need_prompts(judge_id: str, exchanges: Sequence[Exchange]) -> None:
    """Errors: InputError where a judge that reads the prompt as well is given replies without theirs."""
    missing = sum(not one.prompt.strip() for one in exchanges)
    if missing:
        raise InputError(
            f"the judge {judge_id} reads the prompt too, and {missing:,} of {len(exchanges):,} replies have none; give "
            "the file a column prompt, or a judge that reads the reply alone, such as --judge embedded"
        )


def _open(name: str, device: str) -> Judge:
    known, _, model = name.partition(":")
    if known in JUDGES or known in JUDGES.broken:
        return JUDGES.get(known).open(device, model)
    if not Path(name).is_dir():
        raise unknown("judge", name, [*JUDGES.names(), "FOLDER"])
    from engine.judges.classifier import load_classifier

    return load_classifier(name, device=device)


NO_REPLY = "not judged: there is no reply"
STILL_THINKING = "not judged: the thinking part has not ended, nothing was said yet"


def heard(prompt: str, reply: str, finished: bool | None = None, marks: Sequence[Marks] = ()) -> Exchange:
    """Prompt and reply without its thinking part. A reply that never comes out of that part says nothing, and counts as
    not finished however it ended. marks: of thinking parts, beside the known forms."""
    answer = after_thinking(reply, marks)
    return Exchange(prompt, answer.text, finished if answer.complete else False)


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
