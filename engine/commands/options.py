"""Options from plans: each setting of a plan that has one, with its help and the default that the plan gives. And the
options that name an edit: a mask file, or one cell of a contrast file."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from engine.commands import common
from engine.edits.contrasts import edit_from_contrast, edit_from_mask
from engine.edits.masks import parse_rate
from engine.records.errors import InputError
from engine.records.shipped import demo_dir
from engine.results.store import Store
from engine.run.audit_plan import PRESETS, SHIPPED
from engine.run.field_types import Setting, settings_of
from engine.run.refusal_plan import PROMPTS, REPLIES, RefusalPlan, default_plan, demo_plan

if TYPE_CHECKING:
    from engine.edits.edit import Edit
    from engine.edits.edit_effect import Effect
    from engine.judges.base import Judge
    from engine.models.loading import LoadedModel

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


def add_preset(parser: argparse.ArgumentParser, default: str) -> None:
    """`--preset`, one of the plans for analyses, which a command's own options change. default: in words."""
    presets = "; ".join(f"{name}: {one.note}" for name, one in PRESETS.items())
    parser.add_argument("--preset", help=f"{presets} (default: {default})")


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


# Of a refusal plan: what the effect of one edit is measured with.
MEASURED = ("pairs", "heldout_pairs", "reply_tokens", "batch_size", "judge", "benign_limit")

# What is checked before an edit leaves, for the help of commands.
GATE = (
    "First the model answers the shipped risk prompts (English, five domains) and the risk prompts of --pairs FILE, as "
    "it is and under the edit, unless the store has the replies: an edit that refuses fewer of either, over all "
    "domains or in one of its own, is neither exported nor talked to. No option changes the shipped prompts or the "
    "judge of their replies. The shipped model is asked about its own pairs as well."
)


def add_edit(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the edit: --mask FILE, or --contrast FILE with --selector --lambda --k")
    group.add_argument("--mask", type=Path, help="a mask file, as `refusal select` or `mask` writes it")
    group.add_argument(
        "--contrast", type=Path, help="contrast.safetensors, as `refusal calibrate` writes it (demo: the shipped one)"
    )
    group.add_argument("--selector", help="which selector's contrast")
    group.add_argument("--domain", help="which domain's contrast (default: the only one in the file)")
    group.add_argument("--lambda", dest="lam", help="weight of the language model's ranks, 0 to 1")
    group.add_argument("--k", help="fraction of all rows to remove: 0.02 or 2%%")


def add_effect(parser: argparse.ArgumentParser, broken: str) -> None:
    """The options of the measurement without which no edit leaves. broken: what is done with one that breaks it."""
    parser.description = f"{parser.description} {GATE} {broken}"
    add_options(parser, {"": RefusalPlan(), "shipped model": demo_plan()}, (PROMPTS, REPLIES), only=MEASURED)


def preflight(args: argparse.Namespace) -> None:
    """What is wrong with the edit's files, or with the prompts that it is measured by, before weights are fetched."""
    from engine.models.checkpoints import find_checkpoint
    from engine.studies.refusal.effect import check_effect

    sketch = common.sketch(args)
    edit = chosen_edit(args, sketch.rows.n_rows, None)
    plan, checkpoint = _plan(args, edit), find_checkpoint(args.model, args.revision, weights=False)
    if checkpoint.revision is None:  # a local folder: whether the edit is of these weights can be told as well
        chosen_edit(args, sketch.rows.n_rows, checkpoint.weights_hash())
    check_effect(sketch, plan, edit, with_pairs=_with_pairs(args))


def effect_of(args: argparse.Namespace, loaded: LoadedModel, edit: Edit, judge: Judge, *, text_first: bool) -> Effect:
    """What the edit does to refusal and to text, from the store or measured now. text_first: of one that breaks the
    model only its perplexity is measured."""
    from engine.studies.refusal.effect import measured_effect, text_effect
    from engine.studies.refusal.refusal_inputs import RefusalInputs

    plan = _plan(args, edit)
    with Store(args.store) as store, common.local_runner(args, store) as (runner, progress):
        run = RefusalInputs(loaded, plan, store, judge, progress)
        if text_first and (effect := text_effect(run, edit, runner)).broken:
            return effect
        return measured_effect(run, edit, runner, with_pairs=_with_pairs(args))


def _with_pairs(args: argparse.Namespace) -> bool:
    """Are there pairs of this model beside the shipped prompts? The shipped model has its own."""
    return args.pairs is not None or args.model == SHIPPED


def _plan(args: argparse.Namespace, edit: Edit) -> RefusalPlan:
    """By which prompts the edit is measured."""
    if edit.kind == "refusal" and not _with_pairs(args):
        raise InputError(
            "a refusal edit is measured before it leaves; give --pairs FILE with held-out pairs of its domain, "
            "such as those that it was calibrated with"
        )
    return plan_from(args, default_plan(args.model))


def chosen_edit(args: argparse.Namespace, n_rows: int, weights_hash: str | None) -> Edit:
    """The edit that the options name, checked against its model. weights_hash: None before there are weights."""
    cell = {"--selector": args.selector, "--lambda": args.lam, "--k": args.k}
    if args.mask is not None:
        extra = [
            name for name, value in {**cell, "--contrast": args.contrast, "--domain": args.domain}.items() if value
        ]
        if extra:
            raise InputError(f"--mask is a whole edit, {extra[0]} is another; give one of them")
        return edit_from_mask(args.mask, n_rows, weights_hash)
    contrast = args.contrast
    if contrast is None and args.model == "demo" and args.selector is not None:
        contrast = demo_dir() / "results" / "contrast.safetensors"
    if contrast is None:
        raise InputError("no edit given; expected --mask FILE, or --contrast FILE with --selector --lambda --k")
    missing = [name for name, value in cell.items() if value is None]
    if missing:
        raise InputError(f"--contrast needs {' and '.join(missing)} as well: which cell of the grid")
    try:
        lam = float(args.lam)
    except ValueError:
        raise InputError(f"--lambda must be a number in [0, 1], got {args.lam!r}; write 0.5") from None
    return edit_from_contrast(contrast, args.selector, args.domain, lam, parse_rate(args.k), n_rows, weights_hash)
