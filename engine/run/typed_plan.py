"""A plan as one would type it: the options that make a command's own plan into this one. No torch."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from engine.run.audit_plan import PRESETS, AuditPlan, for_model
from engine.run.field_types import Setting, as_type, settings_of


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
    found = [one for one in settings_of(type(plan)) if not groups or not one.group or one.group in groups]
    found = [one for one in found if not reads or one.path[0] in reads]
    led = {one.field for one in found if one.option and _differ(one, plan, base)}
    sets = dict(one.sets for one in found if one.field in led)
    for setting in found:
        differs = _differ(setting, plan, base)
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


def _differ(setting: Setting, plan: object, base: object) -> bool:
    return bool(setting.value(plan) != setting.value(base))


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
