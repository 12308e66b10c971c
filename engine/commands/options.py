"""Options from plans: each setting of a plan that has one, with its help and the default that the plan gives."""

import argparse
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, TypeVar, cast

from engine.run.field_types import Setting, settings_of

Plan = TypeVar("Plan")
KEPT = "plan_options"  # in the arguments: option's destination -> its setting


def add_options(
    parser: argparse.ArgumentParser,
    plans: Mapping[str, Any],
    groups: Sequence[str] = (),
    *,
    but: Collection[str] = (),
    only: Collection[str] = (),
    reads: Collection[str] = (),
    more: Collection[str] = (),
) -> None:
    """The options of a plan's settings, in argument groups. groups, only, reads: which groups, settings and fields
    of the plan itself (a part is one of them), () for all; but: settings left out.

    more: groups that only `--help-all` tells of, an option that is there where this is given.

    plans: the plan that parsing nothing gives, under any name, then others by the name of the case they are for. All
    defaults are None or False, for "not given": the command knows the case (`plan_from`). Help tells those of all."""
    first = next(iter(plans.values()))
    kept: dict[str, Setting] = dict(parser.get_default(KEPT) or {})
    found = [
        one
        for one in settings_of(type(first))
        if one.option
        and one.field not in but
        and (not only or one.field in only)
        and (not reads or one.path[0] in reads)
    ]
    told_later: dict[argparse.Action, str] = {}
    for group in groups or dict.fromkeys(one.group for one in found):
        target = parser.add_argument_group(group)
        for setting in (one for one in found if one.group == group):
            kinds: dict[str, Any] = {"action": "store_true"} if setting.kind is bool else {"type": setting.kind}
            if setting.choices:
                kinds["choices"] = setting.choices
            if setting.repeats:
                kinds["action"] = "append"
            if setting.metavar:
                kinds["metavar"] = setting.metavar
            text = help_text(setting, plans).replace("%", "%%")
            action = target.add_argument(setting.option, help=text, **kinds)
            kept[action.dest] = setting
            if group in more:
                told_later[action] = text
                action.help = argparse.SUPPRESS
    if told_later:
        parser.add_argument(
            "--help-all", action=_HelpAll, nargs=0, later=told_later,
            help=f"this help, and the settings of single parts: {', '.join(more)}",
        )  # fmt: skip
    parser.set_defaults(**{KEPT: kept})


class _HelpAll(argparse.Action):
    """Prints the help with what is left out of the short one."""

    def __init__(self, *names: Any, later: Mapping[argparse.Action, str], **more: Any) -> None:
        super().__init__(*names, **more)
        self.later = later

    def __call__(self, parser: argparse.ArgumentParser, *given: object) -> NoReturn:
        for action, text in self.later.items():
            action.help = text
        parser.print_help()
        parser.exit()


def help_text(setting: Setting, plans: Mapping[str, object]) -> str:
    """What it is, which names it takes, and its default."""
    if setting.kind is bool:
        return setting.described
    return f"{setting.described} (default: {default_text(setting, plans)})"


def default_text(setting: Setting, plans: Mapping[str, object]) -> str:
    """The default; where other cases have others, those too: `256; quick: 32; demo: 64`."""
    (_, plan), *others = plans.items()
    default = setting.default(plan)
    cases: dict[str, list[str]] = {}
    for name, other in others:
        text = setting.default(other)
        if text != default:
            cases.setdefault(text, []).append(name)
    return "; ".join([default, *(f"{', '.join(names)}: {text}" for text, names in cases.items())])


def plan_from(args: argparse.Namespace, base: Plan) -> Plan:
    """`base` with what was given. Errors: InputError that names the option."""
    given: dict[tuple[str, ...], Any] = {}
    settings = sorted(getattr(args, KEPT).items(), key=lambda one: not one[1].sets[0])  # names before what uses them
    asked = {setting.path for _, setting in settings}
    for destination, setting in settings:
        typed = getattr(args, destination)
        if isinstance(typed, list):
            typed = setting.between.join(typed)
        if typed is None or typed is False or (typed == "" and not setting.read):
            continue
        given[setting.path] = setting.of(typed)
    for setting in settings_of(type(base)):
        led = [path for path in given if path[-1] == setting.follows]
        if led and setting.path not in given:
            given[setting.path] = given[led[0]]
        field, value = setting.sets
        beside = (*setting.path[:-1], field)
        if given.get(setting.path) and beside in asked:
            given.setdefault(beside, value)
    return cast(Plan, _replaced(base, given))


def _replaced(plan: Any, given: Mapping[tuple[str, ...], Any]) -> Any:
    own = {path[0]: value for path, value in given.items() if len(path) == 1}
    for name in {path[0] for path in given if len(path) > 1}:
        inner = {path[1:]: value for path, value in given.items() if path[0] == name}
        own[name] = _replaced(getattr(plan, name), inner)
    return replace(plan, **own)
