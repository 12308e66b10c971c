"""Plans from what a run wrote down, and as one would type them. No torch."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

from engine.data.local_tasks import SHIPPED as SHIPPED_TASKS
from engine.data.texts import available_corpora
from engine.data.window_starts import recorded_start
from engine.records.errors import InputError
from engine.records.hashing import Json
from engine.run.audit_plan import PRESETS, SHIPPED, AuditPlan, ScorePlan, for_model
from engine.run.field_types import Setting, as_type, corpus, settings_of, task_files
from engine.run.refusal_plan import RefusalPlan
from engine.selectors import own_scores

_AS_RECORDED = ("selectors", "lambdas", "ks", "reply_tokens", "benign_limit", "judge", "random_seed")  # of `refusal`


@contextmanager
def _of_a_record() -> Iterator[None]:
    """Inside, values of kinds that no plan writes down are an InputError: somebody else wrote the manifest."""
    try:
        yield
    except InputError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError, OverflowError) as error:
        raise InputError(
            f"the manifest's settings are not such as a run writes down ({type(error).__name__}: {error}); it is "
            "damaged or was changed by hand"
        ) from None


@_of_a_record()
def score_plan(record: Json, texts: Sequence[Path] = (), evaluation: Json | None = None) -> ScorePlan:
    """The plan of scores from their record. texts: files, of which the one with the recorded name is taken, of scores
    of one's own the one with the recorded bytes. evaluation: the record of the text that was measured beside scores
    that read none. Errors: InputError for a text that is no corpus by name and not among the files."""
    given: dict[str, Any] = {
        "selectors": tuple(record["selectors"]),
        "seeds": tuple(record["seeds"]),
        "objective": record["objective"],
        "skip_first": record.get("skip_first", 0),
        **_own_scores(record, texts),
    }
    calibration = record.get("calibration")
    given["window_start"] = recorded_start(calibration or evaluation)
    if calibration:
        given["corpus"] = text_named(calibration["corpus"], texts)
        given["samples"] = calibration.get("samples_requested") or calibration["samples"]
        given["length"] = calibration["length"]
    return ScorePlan(**given)


@_of_a_record()
def audit_plan(
    spec: Json, groups: Sequence[str] = (), texts: Sequence[Path] = (), kind: type[AuditPlan] = AuditPlan
) -> tuple[AuditPlan, list[str]]:
    """The plan of an analysis from its tables' record, and in words what of it could not be had. groups: of settings
    that the analysis reads (its id, `TEXT`), whose texts and tasks are looked for among `texts`; others are left as
    they are recorded. kind: the plan with the parts of plug-ins. Errors: InputError for a text or tasks that are not to
    be had, and for settings that this version does not take."""
    notes: list[str] = []
    settings = dict(spec["settings"])
    for one in settings_of(kind):
        find = _FINDERS.get(one.read)
        if find and one.group in groups and settings.get(one.field):
            settings[one.field] = find(settings[one.field], texts)
    scoring = score_plan(spec["scores"], texts, spec.get("evaluation"))
    plan: AuditPlan = _made(kind, settings, notes, {"scoring": scoring})
    return plan, notes


@_of_a_record()
def refusal_plan(spec: Json, texts: Sequence[Path] = (), **more: Any) -> RefusalPlan:
    """The plan of a stage of `refusal` from its tables' record. more: settings that are not in it. Its cap comes back
    as the perplexity that a factor gave. Errors: InputError for a text or pairs that are not to be had."""
    pairs, heldout, scored = spec["pairs"], spec.get("heldout", {}), spec["lm_scores"]
    (source,) = {one["source"] for one in pairs.values()}
    text = spec["evaluation"]
    scoring = ScorePlan(
        **_own_scores(scored, texts),
        corpus=text_named(scored["corpus"], texts),
        samples=scored.get("samples_requested") or scored["samples"],
        length=scored["length"],
        window_start=recorded_start(text),
    )
    given: dict[str, Any] = {
        **{name: _frozen(spec[name]) for name in _AS_RECORDED},
        "pairs": source if source == SHIPPED else _found(source, texts),
        "domains": tuple(pairs),
        "calibration_pairs": max(one["pairs"] for one in pairs.values()),
        "heldout_pairs": max((one["pairs"] for one in heldout.values()), default=None),
        "scoring": scoring,
        "eval_corpus": text_named(text["corpus"], texts),
        "eval_samples": text.get("samples_requested") or text["samples"],
        "eval_length": text["length"], "batch_size": spec["reply_batch_size"], "calibration_batch": spec["batch_size"],
        "widen": spec.get("widen", 0), "system": spec.get("system", ""), "thinking": spec.get("thinking", False),
        "max_perplexity": math.exp(spec["max_nll"]),
    }  # fmt: skip
    if "longer_replies" in spec:
        given["longer_replies"] = spec["longer_replies"]
    return RefusalPlan(**given | more)


def _own_scores(record: Json, texts: Sequence[Path]) -> dict[str, Any]:
    files = own_scores.found_again(record.get(own_scores.KEPT, {}), texts)
    return {"score_files": files, "scores_reduce": record.get("scores_reduce")}


def text_named(name: str, texts: Sequence[Path]) -> str:
    """A corpus by its name, or the file of that name."""
    return name if name in available_corpora() else _found(name, texts)


def _found(name: str, texts: Sequence[Path]) -> str:
    for path in texts:
        if path.name == name:
            return str(path)
    raise InputError(f"the run read {name}, which is a file or folder of its own; say where it is with --text {name}")


_FINDERS: dict[Any, Any] = {
    corpus: text_named,
    task_files: lambda name, texts: name if name == SHIPPED_TASKS else _found(name, texts),
}


def _made(kind: Any, settings: Mapping[str, Any], notes: list[str], values: dict[str, Any]) -> Any:
    """A plan, and its parts, of recorded settings; a setting without a record has this version's default."""
    known = {one.name: one for one in fields(kind)}
    for name, one in known.items():
        if name in values or name not in settings:
            continue
        part = one.default_factory
        inner = isinstance(part, type) and is_dataclass(part)
        values[name] = _made(part, settings[name], notes, {}) if inner else _frozen(settings[name])
    unknown = sorted(settings.keys() - known.keys())
    if unknown:
        notes.append(f"settings that this version does not have were left out: {', '.join(unknown)}")
    return kind(**values)


def _frozen(value: Any) -> Any:
    """JSON's lists as the tuples of plans."""
    return tuple(_frozen(one) for one in value) if isinstance(value, list) else value


class Typed(NamedTuple):
    """options: (name, value) pairs behind the model. untold: fields that no option can bring to the plan's value."""

    options: tuple[tuple[str, str], ...]
    untold: tuple[str, ...]


def typed(plan: object, base: object, groups: Sequence[str] = (), reads: Collection[str] = ()) -> Typed:
    """The options by which `base` becomes `plan`, given where the two differ and where another option changes the
    default. groups: those that the command has, reads: the plan's fields that it reads, () for all. A value that
    reading the option does not give back is untold."""
    options: list[tuple[str, str]] = []
    untold: list[str] = []
    settings = [one for one in settings_of(type(plan)) if not groups or not one.group or one.group in groups]
    settings = [one for one in settings if not reads or one.path[0] in reads]
    differing = {one for one in settings if one.value(plan) != one.value(base)}
    led = {one.field for one in differing if one.option}
    sets = dict(one.sets for one in settings if one.field in led)
    for setting in settings:
        differs = setting in differing
        if not differs and setting.follows not in led:
            continue
        if setting.field in sets and setting.value(plan) == sets[setting.field]:
            continue
        text = _text(setting, setting.value(plan))
        if text is not None:
            options.append((setting.option, text))
        elif differs:
            untold.append(setting.field)
    return Typed(tuple(options), tuple(untold))


def typed_audit(plan: AuditPlan, model_id: str, groups: Sequence[str]) -> Typed:
    """The same for `analyze`, from the preset that leaves least untold and then least to say."""
    tried = {
        name: typed(plan, as_type(for_model(one.plan, model_id), type(plan)), groups) for name, one in PRESETS.items()
    }
    name = min(tried, key=lambda one: (len(tried[one].untold), len(tried[one].options)))
    return Typed((("--preset", name), *tried[name].options), tried[name].untold)


def _text(setting: Setting, value: Any) -> str | None:
    """The value as one would type it; None without an option, and where reading the text gives another value."""
    if not setting.option or setting.kind is bool:
        return None
    text = _shown(setting, value)
    try:
        given: Any = setting.kind(text) if setting.kind in (int, float) else text
        return text if setting.of(given) == value else None
    except ValueError:  # an InputError is one
        return None


def _shown(setting: Setting, value: Any) -> str:
    if value is None:
        return "0" if setting.zero_is_none else setting.none
    if isinstance(value, tuple):
        return setting.between.join(_shown(setting, one) for one in value)
    return repr(value) if isinstance(value, float) else str(value)
