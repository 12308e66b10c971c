"""What a field of a plan says about itself: enough for a command's option, a form's widget and a check. No torch.

    samples: int = option(128, "calibration windows", least=1)

`engine.commands.options` makes the option `--samples` of it, the page Runs a number field; both take the default from
the plan and say it."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, make_dataclass, replace
from functools import cache, reduce
from pathlib import Path
from typing import Any, TypeVar, cast

from engine.edits.masks import parse_rate
from engine.records.errors import InputError, unknown

F = TypeVar("F", bound=Callable[..., Any])
Reader = Callable[[str, str], Any]  # text, what it is called in an error -> value
HUB = "hub"  # in the place of a folder of tasks: the Hugging Face hub
AS_SWEEP = "sweep"  # in the place of rates: those of the sweep
MOST_RATES = 1_000  # of FROM:TO:STEP
MOST_VALUES = 1_000  # of a list
MOST_DRAWS = 10_000  # of what is repeated, each time with masks of its own
_SETTING, _PART = "setting", "part"  # keys of a dataclass field's metadata


@dataclass(frozen=True)
class Setting:
    """What is said of a field. help: what it is, without the default.

    kind: what argparse reads and a form asks for: str (then `read` makes the value of it), int, float or bool.
    name: the option where it is not the field's; None for a field without one. group: heading in help and form.
    least, most: range of the number, or of each. choices: the values, few and fixed.
    none: what None means, in words; zero_is_none: how an option gives it. said: told instead of the default.
    between: stands between several values.
    follows: the field whose value this one takes where only that one is given. sets: a field beside it, and the value
    that it has then, unless it is given too. repeats: the option may be given several times, as one list.
    path, option: from `settings_of`: names of the fields from the plan down, and the option, "" for none."""

    help: str
    kind: type = str
    read: Reader | None = None
    name: str | None = ""
    group: str = ""
    label: str = ""
    metavar: str | None = None
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    none: str = "none"
    zero_is_none: bool = False
    said: str = ""
    follows: str = ""
    sets: tuple[str, Any] = ("", None)
    repeats: bool = False
    between: str = ","
    path: tuple[str, ...] = ()
    option: str = ""

    @property
    def field(self) -> str:
        return self.path[-1]

    @property
    def title(self) -> str:
        """What a form calls it: its label, else how its help begins."""
        text = self.label or re.split(r"[:,]", self.help)[0]
        return text[:1].upper() + text[1:]

    @property
    def described(self) -> str:
        """What it is, and which names it takes."""
        if not isinstance(self.read, Names):
            return self.help
        return f"{self.help}: {', '.join([*self.read.available(), *self.read.or_else])}"

    def default(self, plan: object) -> str:
        """The plan's value in help and form: `said`, or as one would type it (names with blanks)."""
        text = self.said or self.shown(self.value(plan))
        return text.replace(",", ", ") if isinstance(self.read, Names) else text

    def value(self, plan: object) -> Any:
        return reduce(getattr, self.path, plan)

    def of(self, given: Any) -> Any:
        """The value of what was typed. Errors: InputError that names the option."""
        if self.zero_is_none and given == 0:
            return None
        str(given).encode()  # bytes that are no Unicode: told now, not by the file that is to hold them at the end
        value = self.read(given, self.option) if self.read else given
        self.check(value, self.option)
        return value

    def check(self, value: Any, called: str) -> None:
        """Errors: InputError for a value outside of the range or the choices."""
        several = value if isinstance(value, tuple) else (value,)
        if len(several) > MOST_VALUES:
            raise InputError(f"{called} takes at most {MOST_VALUES:,} values, got {len(several):,}")
        whole = self.kind is int or self.read in (integers, seeds, sizes)
        number = whole or self.kind is float or self.least is not None or self.read is numbers
        if isinstance(self.read, Names) and not (self.read.none and value is None):
            self.read.check(several)
        for one in several:
            if self.choices and one not in self.choices and one is not None:
                raise unknown(self.field, one, self.choices)
            if one is not None and number:
                self._check_number(one, called, whole=whole)

    def _check_number(self, one: Any, called: str, *, whole: bool) -> None:
        if whole and type(one) is not int:
            raise InputError(f"{called} must be a whole number, got {one!r}")
        if isinstance(one, bool) or not isinstance(one, int | float):
            raise InputError(f"{called} must be a number, got {one!r}")
        if (one != one and self.most is None) or (abs(one) >= 2**63 and (not whole or "seed" in self.field)):
            raise InputError(f"{called} must be a number below 2^63, got {float(one):.3g}")
        if self.least is not None and one < self.least and (whole or self.most is None):
            raise InputError(f"{called} must be at least {self.least:g}, got {one}")
        if self.most is not None and not (self.least or 0) <= one <= self.most:
            got = f"{one:,}" if whole else f"{one:g}; write 0.1"
            raise InputError(f"{called} must be in [{self.least or 0:g}, {self.most:,.12g}], got {got}")

    def shown(self, value: Any) -> str:
        """A value as one would type it; None in words."""
        if value is None:
            return self.none
        if isinstance(value, tuple):
            stepped = _stepped(value) if self.read in (rates, rates_or_sweep) else ""
            return stepped or self.between.join(self.shown(one) for one in value)
        return f"{value:g}" if isinstance(value, float) else str(value)


def option(default: Any, help_text: str, **said: Any) -> Any:
    """A plan's field with a default and a `Setting`. kind: that of the default, for None `str` unless it is given."""
    if type(default) in (bool, int, float) and "kind" not in said:
        said["kind"] = type(default)
    return field(default=default, metadata={_SETTING: Setting(help_text, **said)})


def part(plan: type[Any], *, group: str = "", only: Sequence[str] = ()) -> Any:
    """A field that is a plan of its own. group: heading of its settings; only: those that have an option here."""
    return field(default_factory=plan, metadata={_PART: (plan, group, only)})


def _once(function: F) -> F:
    """`cache`, for arguments that mypy does not know to be hashable."""
    return cast(F, cache(function))


@_once
def settings_of(plan: type[Any]) -> tuple[Setting, ...]:
    """The settings of a plan and of its parts, in the order of their fields; read once per plan."""
    settings: list[Setting] = []
    for one in fields(plan):
        if _SETTING in one.metadata:
            said: Setting = one.metadata[_SETTING]
            name = "" if said.name is None else said.name or f"--{one.name.replace('_', '-')}"
            settings.append(replace(said, path=(one.name,), option=name))
        elif _PART in one.metadata:
            inner, group, only = one.metadata[_PART]
            for said in settings_of(inner):
                shown = said.option if not only or said.field in only else ""
                path = (one.name, *said.path)
                settings.append(replace(said, path=path, option=shown, group=group or said.group))
    return tuple(settings)


@_once
def assembled(plan: type[Any], parts: tuple[type[Any], ...]) -> type[Any]:
    """The plan with further parts, as one flat dataclass; the plan itself without any. The same parts give the same
    class."""
    return make_dataclass(plan.__name__, (), bases=(*parts, plan), frozen=True) if parts else plan


def as_type(plan: Any, kind: type[Any]) -> Any:
    """The plan as one of a type with further parts, which have their defaults."""
    return plan if type(plan) is kind else kind(**{one.name: getattr(plan, one.name) for one in fields(plan)})


def check_plan(plan: Any) -> None:
    """Every field within its range. Errors: InputError that names the field."""
    for setting in settings_of(type(plan)):
        if len(setting.path) == 1:
            setting.check(setting.value(plan), setting.field.replace("_", " "))


class Checked:
    """A plan whose fields are within their ranges from the start."""

    def __post_init__(self) -> None:
        check_plan(self)


@dataclass(frozen=True)
class Names:
    """Reader of `a,b`, each the name of something that there is. single: of one name. or_else: in words, what may stand
    there that has no name (a path). available: asked each time, so that what a plug-in registers counts; it must not
    import torch. none: what one types for none of them."""

    kind: str
    available: Callable[[], Sequence[str]]
    single: bool = False
    or_else: tuple[str, ...] = ()
    none: str = ""

    def __call__(self, text: str, called: str) -> Any:  # tuple[str, ...], str if single, None for none
        if self.none and text.strip() == self.none:
            return None
        names = (text,) if self.single else tuple(dict.fromkeys(parts(text)))
        if not names:
            raise InputError(f"no {self.kind} given; available: {', '.join(sorted(self.available()))}")
        self.check(names)
        return text if self.single else names

    def check(self, names: Iterable[str]) -> None:
        """Errors: InputError with the nearest name."""
        if self.or_else:
            return
        available = self.available()
        for name in names:
            if name not in available:
                raise unknown(self.kind, name, available)


def parts(text: str | None) -> list[str]:
    """`a, b` to ['a', 'b']."""
    return [one.strip() for one in (text or "").split(",") if one.strip()]


def words(text: str, called: str) -> tuple[str, ...]:
    """`a,b` to ('a', 'b')."""
    values = tuple(parts(text))
    if not values:
        raise InputError(f"{called} takes names separated by commas, got {text!r}")
    return values


def integers(text: str, called: str) -> tuple[int, ...]:
    """`42,43` to (42, 43)."""
    try:
        values = tuple(int(one) for one in text.split(","))
    except ValueError:
        raise InputError(f"{called} takes whole numbers separated by commas, got {text!r}; write 42,43,44") from None
    if any(abs(one) >= 2**63 for one in values):
        raise InputError(f"{called} takes whole numbers below 2^63, got {text!r}; write 42,43,44")
    return values


def seeds(text: str, called: str) -> tuple[int, ...]:
    """`42,43` to (42, 43), each once."""
    return tuple(dict.fromkeys(integers(text, called)))


def sizes(text: str, called: str) -> tuple[int, ...]:
    """`8,16,32` to ascending sizes, at least two."""
    values = tuple(sorted(set(integers(text, called))))
    if values[0] < 1 or len(values) < 2:
        raise InputError(f"{called} needs at least two sizes, each 1 or more, got {text!r}; write 8,16,32")
    return values


def numbers(text: str, called: str) -> tuple[float, ...]:
    """`0.005,1%` to ascending numbers, in whatever range."""
    try:
        pieces = [one.strip() for one in text.split(",")]
        return tuple(sorted({float(one[:-1]) / 100 if one.endswith("%") else float(one) for one in pieces}))
    except ValueError:
        raise InputError(f"{called} takes numbers separated by commas, got {text!r}; write 0.2,0.5") from None


def rates(text: str, called: str) -> tuple[float, ...]:
    """`0.1,30%`, `FROM:TO:STEP` (both ends included) or `paper` to ascending rates in [0, 1]."""
    if text.strip() == "paper":
        return PAPER_RATES
    if ":" not in text:
        return tuple(sorted({parse_rate(one) for one in text.split(",")}))
    bounds = text.split(":")
    if len(bounds) != 3:
        raise InputError(f"{called} takes a list or FROM:TO:STEP, got {text!r}; write 0.1,0.3 or 0:0.9:0.05")
    first, last, step = (parse_rate(one) for one in bounds)
    if step <= 0 or last < first:
        raise InputError(f"{called} FROM:TO:STEP needs FROM <= TO and STEP > 0, got {text!r}; write 0:0.9:0.05")
    if (last - first) / step > MOST_RATES:
        raise InputError(
            f"{called} {text} asks for more than {MOST_RATES:,} rates; give a larger STEP, as in 0:0.9:0.05"
        )
    return steps(first, last, step)


def rates_or_sweep(text: str, called: str) -> tuple[float, ...] | None:
    """As `rates`; `sweep` (None): those of the sweep."""
    return None if text.strip() == AS_SWEEP else rates(text, called)


def steps(first: float, last: float, step: float) -> tuple[float, ...]:
    """first, first + step, … up to last, without the crumbs of adding."""
    return tuple(round(first + step * i, 10) for i in range(int((last - first) / step + 1e-9) + 1))


PAPER_RATES = steps(0.0, 0.9, 0.05)


def _stepped(values: Sequence[float]) -> str:
    """FROM:TO:STEP where that says the same rates in fewer words, else nothing."""
    if len(values) < 4:
        return ""
    step = round(values[1] - values[0], 10)
    if step <= 0 or steps(values[0], values[-1], step) != tuple(values):
        return ""
    return f"{values[0]:g}:{values[-1]:g}:{step:g}"


def existing(text: str, called: str) -> str:
    """A file or folder that is there: a slip of the pen shows before hours of work."""
    if not Path(text).expanduser().exists():
        raise InputError(f"{called}: there is no {text}; give a file or folder that exists, or a corpus by its name")
    return text


def task_files(text: str, called: str) -> str | None:
    """Where downstream tasks come from: `hub` (None), `demo` (the shipped ones), or a folder that is there."""
    from engine.data.local_tasks import SHIPPED

    if text == HUB:
        return None
    if text != SHIPPED and not (text and Path(text).expanduser().is_dir()):
        raise InputError(f"{called}: there is no folder {text}; give hub, {SHIPPED}, or a folder with NAME.jsonl files")
    return text


def corpus(text: str, called: str) -> str:
    """A corpus by its name or as a file that is there."""
    from engine.data.texts import available_corpora

    return text if text in available_corpora() else existing(text, called)
