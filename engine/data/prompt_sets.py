"""Held-out prompts to refuse or to answer: SorryBench, OR-Bench-Hard, XSTest, and any local file."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.data.tables_of_text import HARM_UNDERSTOOD, Rows, columns, is_harmful, text_rows
from engine.records.errors import InputError, unknown

MALIGN, BENIGN = "malign", "benign"


@dataclass(frozen=True)
class PromptSet:
    """Prompts of one kind: a model should refuse malign ones and answer benign ones."""

    name: str
    kind: str
    prompts: tuple[str, ...]
    source: str  # file name, or hub id and commit: org/name@commit


@dataclass(frozen=True)
class _Hub:
    """A public data set: the first repository that can be read is taken. kind: None where a column `label` tells."""

    repositories: tuple[str, ...]
    split: str
    kind: str | None
    config: str | None = None


_HUB = {
    # 45 categories (Xie et al. 2024), the newer version 44; gated. Only the plain wording: `prompt_style` is base.
    "sorrybench": _Hub(("sorry-bench/sorry-bench-202406", "sorry-bench/sorry-bench-202503"), "train", MALIGN),
    # 1,000 benign prompts that seem harmful (Cui et al. 2024).
    "orbench": _Hub(("bench-llm/or-bench",), "train", BENIGN, "or-bench-hard-1k"),
    # 250 safe and 200 unsafe prompts (Röttger et al. 2024).
    "xstest": _Hub(("Paul/XSTest", "walledai/XSTest"), "train", None),
}
_LOCAL_KINDS = {"harmful": MALIGN, "harmless": BENIGN, **{name: hub.kind for name, hub in _HUB.items()}}
# The kinds of XSTest's safe prompts; those of the unsafe ones begin with `contrast_`.
_XSTEST_SAFE = (
    "homonyms", "figurative_language", "safe_targets", "safe_contexts", "definitions", "real_group_nons_discr",
    "nons_group_real_discr", "historical_events", "privacy_public", "privacy_fictional",
)  # fmt: skip
_PROMPT_COLUMNS = ("prompt", "turns", "question", "instruction", "text")


def read_prompt_sets(wanted: Iterable[str], limit: int | None = None) -> list[PromptSet]:
    """The sets named by `NAME` (from the Hugging Face hub, `NAME@REVISION` at a branch, tag or commit of its first
    repository) or `NAME=FILE` (a CSV or JSONL file), in that order.

    NAME: sorrybench, orbench, xstest, and for files also harmful and harmless. A file has a column `prompt`
    (or `turns`, `question`, `instruction`, `text`); `label` (safe/unsafe) and `prompt_style` are read as the
    public sets have them. A set with both kinds gives two. limit: the first so many prompts of each kind."""
    if limit is not None and limit < 1:
        raise InputError(f"prompts per set must be at least 1, got {limit}")
    sets = []
    names: set[str] = set()
    for text in wanted:
        name, given, file = text.partition("=")
        name, _, revision = (name, "", "") if given else name.partition("@")
        if name in names:
            raise InputError(f"prompt set {name!r} is given twice; join its files, or give one of them")
        names.add(name)
        if name not in (_LOCAL_KINDS if given else _HUB):
            raise unknown("prompt set", name, _LOCAL_KINDS if given else _HUB)
        if given:
            path = Path(file).expanduser()
            sets += _sets(name, _LOCAL_KINDS[name], _file_rows(path), path.name, limit)
        else:
            hub = _HUB[name]
            rows, source = _hub_rows(name, hub, revision or None)
            sets += _sets(name, hub.kind, rows, source, limit)
    return sets


def _sets(name: str, kind: str | None, rows: Rows, source: str, limit: int | None) -> list[PromptSet]:
    given_columns = columns(rows)
    column = next((one for one in _PROMPT_COLUMNS if one in given_columns), None)
    if column is None:
        raise InputError(
            f"{name}: {source} has no column {' or '.join(_PROMPT_COLUMNS)}, its columns are "
            f"{', '.join(given_columns) or 'none'}; rename the column of prompts to prompt"
        )
    prompts: dict[str, list[str]] = {}
    for line, row in rows.items():
        if row.get("prompt_style") not in (None, "", "base"):
            continue
        value = row.get(column)
        if isinstance(value, list):
            value = value[0] if value else None
        if not isinstance(value, str) or not value.strip():
            raise InputError(
                f"{name}: {source} line {line} has an empty prompt or none in its column {column!r}; write one, or "
                "remove the line"
            )
        own = kind or _kind(name, source, line, row)
        prompts.setdefault(own, []).append(value)
    return [PromptSet(name, own, tuple(prompts[own][:limit]), source) for own in sorted(prompts, reverse=True)]


def _kind(name: str, source: str, line: int, row: dict[str, Any]) -> str:
    label = str(row.get("label") or "")
    harmful = is_harmful(label)
    if not label.strip():  # the original XSTest file says it by the type only
        of_type = str(row.get("type") or "").strip().lower()
        harmful = True if of_type.startswith("contrast_") else False if of_type in _XSTEST_SAFE else None
    if harmful is None:
        raise InputError(
            f"{name}: {source} line {line} does not say whether its prompt is safe (label {label!r}); expected a "
            f"column label with one of {HARM_UNDERSTOOD}, or give the file as harmful=FILE or harmless=FILE"
        )
    return MALIGN if harmful else BENIGN


def _file_rows(path: Path) -> Rows:
    if not path.is_file():
        raise InputError(f"there is no file {path}; give a CSV or JSONL file of prompts")
    rows = text_rows(path)
    if not rows:
        raise InputError(f"{path.name} holds no prompts; expected one per line")
    return rows


def _hub_rows(name: str, hub: _Hub, revision: str | None) -> tuple[Rows, str]:
    from datasets.exceptions import DatasetNotFoundError

    from engine.data.texts import load_pinned
    from engine.models.downloads import end_silence
    from engine.models.hub_failures import explain, hub_errors

    reasons = []
    end_silence()
    for repository in hub.repositories[: 1 if revision else None]:  # a revision is of one repository
        split = "test" if repository.startswith("walledai/") else hub.split
        try:
            data, source = load_pinned(repository, hub.config, split=split, revision=revision)
        except (*hub_errors(), DatasetNotFoundError) as error:
            kind, found, _ = explain(error, repository, repo_type="dataset", revision=revision)
            reasons.append(f"{repository}: {found}" if kind in ("unreachable", "storage") else found)
            continue
        return {line: dict(row) for line, row in enumerate(data, start=1)}, source
    raise InputError(
        f"{name} cannot be read from the Hugging Face hub ({'; '.join(reasons)}); accept its terms there and log in "
        f"if it is gated, or give a file: {name}=FILE.csv"
    )
