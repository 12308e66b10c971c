"""What a plan needs beside weights: windows of text, cut for one model, and selectors that can score it. Mistakes
in these are found before any weight is fetched."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from engine.data.corpora import Windows, calibration_tokens, windows
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.run.audit_plan import AuditPlan
from engine.run.refusal_plan import RefusalPlan
from engine.run.score_plan import ScorePlan
from engine.selectors import get_selector, with_needs
from engine.selectors.run import check_model

LeftOut = dict[str, str]  # selector -> why this model has no scores of it


def calibration_text(
    loaded: LoadedModel, plan: ScorePlan, *, corpus: str | None = None, samples: int | None = None,
    length: int | None = None,
) -> Windows:  # fmt: skip
    """The plan's calibration windows; of another text, more of them or longer ones where that is said."""
    found = windows(
        corpus or plan.corpus, loaded.tokenizer, role="calibration", samples=samples or plan.samples,
        length=length or plan.length, window_start=plan.window_start,
    )  # fmt: skip
    return _fitting(loaded, found)


def evaluation_text(
    loaded: LoadedModel, plan: AuditPlan | RefusalPlan, corpus: str | None = None, calibrated_on: str | None = None
) -> Windows:
    """The plan's evaluation windows, or those of another text, cut like them; of a file that calibration reads too,
    what follows."""
    corpus, scoring = corpus or plan.eval_corpus, plan.scoring
    found = windows(
        corpus, loaded.tokenizer, role="evaluation", samples=plan.eval_samples, length=plan.eval_length,
        skip_tokens=calibration_tokens(corpus, calibrated_on or scoring.corpus, scoring.samples * scoring.length),
        window_start=scoring.window_start,
    )  # fmt: skip
    return _fitting(loaded, found)


def _fitting(loaded: LoadedModel, text: Windows) -> Windows:
    """Errors: InputError where windows would fit the model's context and do not behind what stands before each."""
    room = getattr(loaded.model.config.get_text_config(), "max_position_embeddings", None)
    length, read = text.input_ids.shape[1], text.read_ids.shape[1]
    if isinstance(room, int) and length <= room < read:
        raise InputError(
            f"windows of {length} tokens have {read} with what the tokenizer of {loaded.id} puts before a text, and "
            f"the model has {room} positions; give windows of at most {room - len(text.prefix)} tokens (--eval-length, "
            "--max-length), or --window-start stream"
        )
    return text


def fitting(sketch: LoadedModel, plan: ScorePlan, *, named: bool) -> tuple[ScorePlan, LeftOut]:
    """The plan with the selectors that can score this model, and why the others cannot; its text is read as well.

    sketch: the model without its weights (`load_sketch`). named: the selectors were asked for by name, so that one that
    cannot is an error; those of a default are left out and told.
    Errors: InputError for that, where no selector is left, and for a calibration text that cannot be read or is short.
    """
    left_out = impossible(sketch, plan.selectors)
    plan = replace(plan, selectors=remaining(plan.selectors, left_out, named=named))
    check_text(sketch, plan)
    return plan, left_out


def impossible(sketch: LoadedModel, selectors: Iterable[str]) -> LeftOut:
    """The selectors that cannot score such a model, themselves or by what they are made of, with the reason."""
    found: LeftOut = {}
    for selector in selectors:
        for name in with_needs([selector]):
            try:
                # A plug-in may look at more than shapes: it is asked again once there are weights.
                with suppress(NotImplementedError, RuntimeError):
                    check_model(sketch, name)
            except InputError as error:
                if get_selector(name).files:  # asked for by its file
                    raise
                found.setdefault(selector, str(error))
    return found


def remaining(selectors: Iterable[str], left_out: LeftOut, *, named: bool) -> tuple[str, ...]:
    """Those that are not left out. Errors: InputError where one was named that is, or none remains."""
    rest = tuple(name for name in selectors if name not in left_out)
    if left_out and (named or not rest):
        selector, reason = next(iter(left_out.items()))
        others = f"; give --selectors {','.join(rest)}" if rest else ""
        raise InputError(f"{selector} cannot be had of this model: {reason}{others}")
    return rest


def check_text(sketch: LoadedModel, plan: ScorePlan) -> None:
    """`InputError` where the calibration text cannot be read or is too short, if a selector of the plan reads it."""
    if not all(get_selector(name).data_free for name in with_needs(plan.selectors)):
        calibration_text(sketch, plan)
