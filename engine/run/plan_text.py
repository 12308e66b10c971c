"""The windows of text that a plan asks for, cut for one model."""

from engine.data.corpora import Windows, calibration_tokens, windows
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.run.audit_plan import AuditPlan
from engine.run.refusal_plan import RefusalPlan
from engine.run.score_plan import ScorePlan


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
