"""The registry of tables: what every table holds, read from `tables.toml`, the one gate that each passes, and
manifest and tables as JSON Schema.

An analysis of one's own registers its tables by `register_table`."""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import polars as pl

from engine.records.domain_names import is_domain_id, with_names, without_markup
from engine.records.errors import InputError
from engine.records.hashing import Json
from engine.records.manifest import SHARING_VERSION, manifest_schema
from engine.records.registry import Registry

TYPES: dict[str, pl.DataType] = {
    "id": pl.String(), "text": pl.String(), "whole": pl.Int64(), "whole32": pl.Int32(), "number": pl.Float64(),
    "flag": pl.Boolean(),
}  # fmt: skip
_WORDS = {"id": "text", "whole": "whole numbers", "whole32": "whole numbers", "number": "numbers", "flag": "flags"}
# name -> least, greatest, and whether NaN and infinity are results: a model that breaks under a mask gives such losses.
RANGES: dict[str, tuple[float, float, bool]] = {
    "share": (0.0, 1.0, False), "signed": (-1.0, 1.0, False),
    "count": (0.0, float("inf"), False), "finite": (float("-inf"), float("inf"), False),
    "nll": (0.0, float("inf"), True), "nats": (float("-inf"), float("inf"), True),
}  # fmt: skip
ROUNDING = 1e-9  # a correlation of 1 may come out as 1.0000000000000002
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # shown as markdown in labels
PRINTED, HALF_UNIT = "_printed", "_half_unit"


@dataclass(frozen=True)
class Column:
    """One column. type: of TYPES; range: of RANGES; null: may a line lack it; optional: may a table lack it. values:
    the only texts that there are, with spaces between them; empty: any. spread: keys with spaces between them, of a
    count of a mask's rows: lines that agree in these hold one mask's."""

    name: str
    type: str
    unit: str = ""
    meaning: str = ""
    range: str = "finite"
    null: bool = False
    optional: bool = False
    values: str = ""
    spread: str = ""

    @property
    def dtype(self) -> pl.DataType:
        return TYPES[self.type]


@dataclass(frozen=True)
class TableSpec:
    """One table. command: what writes it, behind `selector-audit`, with `{model}` for the model. keys: columns that
    name a line. file: stem of its file, where that is not its own. unprinted: keys that a published table may lack in a
    line. numbered: a column that counts the lines from 0."""

    stem: str
    title: str
    command: str
    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    file: str = ""
    unprinted: tuple[str, ...] = ()
    numbered: str = ""

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        wrong = [column.name for column in self.columns if column.type not in TYPES or column.range not in RANGES]
        if len(set(names)) < len(names) or not set(self.keys) <= set(names) or wrong:
            raise InputError(
                f"table {self.stem}: expected columns of distinct names with a type of {', '.join(TYPES)} and a range "
                f"of {', '.join(RANGES)}, and keys among them; got {', '.join(wrong or names)}; keys {self.keys}"
            )

    def schema(self, optional: Iterable[str] = ()) -> dict[str, pl.DataType]:
        """Name -> type of the columns in their order; of the optional ones those that are named."""
        wanted = set(optional)
        return {one.name: one.dtype for one in self.columns if not one.optional or one.name in wanted}

    def column(self, name: str) -> Column | None:
        """The description of a column, also of a published table's `X_printed` and `X_half_unit`; None if unknown."""
        by_name = {one.name: one for one in self.columns}
        if name in by_name:
            return by_name[name]
        for suffix, kind, meaning in (
            (PRINTED, "text", "characters that the paper printed for"),
            (HALF_UNIT, "number", "half a unit of the last printed digit of"),
        ):
            of = by_name.get(name.removesuffix(suffix))
            if of is not None and of.name not in self.keys:
                unit = of.unit if kind == "number" else ""
                return Column(name, kind, unit, f"{meaning} {of.name}; published tables only", "finite", True, True)
        return None


def _read() -> dict[str, TableSpec]:
    """The tables of `tables.toml`, in its order."""
    described = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    columns = {name: Column(name, **entry) for name, entry in described["columns"].items()}
    found = {}
    for stem, entry in described["tables"].items():
        names = entry["columns"].split()
        optional = names[names.index(entry["optional_from"]) :] if "optional_from" in entry else []
        nulls = entry.get("null", "").split()
        made = []
        for name in names:
            other: dict[str, Any] = dict(entry.get("other", {}).get(name, {}))
            other |= {"null": True} if name in nulls else {}
            made.append(replace(columns[name], optional=name in optional, **other))
        texts = {name: entry[name] for name in ("title", "command", "file", "numbered") if name in entry}
        keys, unprinted = (tuple(entry.get(name, "").split()) for name in ("keys", "unprinted"))
        found[stem] = TableSpec(stem, columns=tuple(made), keys=keys, unprinted=unprinted, **texts)
    return found


_SHIPPED = _read()
TABLES: Registry[TableSpec] = Registry("table", dict.fromkeys(_SHIPPED, __name__))
for _spec in _SHIPPED.values():
    TABLES.add(_spec.stem, _spec, TableSpec)


def register_table(table: TableSpec) -> TableSpec:
    """Add a table of one's own. Errors: InputError where its stem means another table already."""
    if table.stem in TABLES and TABLES.get(table.stem) != table:
        raise InputError(f"table {table.stem!r} is taken ({TABLES.get(table.stem).title}); choose another stem")
    TABLES.add(table.stem, table, TableSpec)
    return table


def spec(stem: str) -> TableSpec:
    """What a table holds. Errors: InputError with the nearest name for an unknown one."""
    return TABLES.get(stem)


def command(stem: str, model: str = "MODEL") -> str:
    """What to type to make a table; of one that is not registered it is an analysis of its name."""
    written_by = TABLES.get(stem).command if stem in TABLES else f"analyze {{model}} {stem}"
    return f"selector-audit {written_by.format(model=model)}"


def frame(
    stem: str, rows: Iterable[Sequence[object] | Mapping[str, Any]], optional: Iterable[str] = ()
) -> pl.DataFrame:
    """Rows (values in the columns' order, or mappings by column, in which what is missing is null) as a table: columns
    and types of the registry. optional: which of the optional columns they have. Errors: InputError for a mapping with
    another column."""
    schema = spec(stem).schema(optional)
    given = list(rows)
    if given and isinstance(given[0], Mapping):
        for row in given:
            assert isinstance(row, Mapping)
            _refuse_unknown(stem, [name for name in row if name not in schema], "a line")
    return pl.DataFrame(given, schema=schema, orient="row", infer_schema_length=None)


def checked(stem: str, table: pl.DataFrame, where: str, *, published: bool = False) -> pl.DataFrame:
    """`table` with its columns in the registry's order, if it is what its name says. where: the file or the step that
    it comes from. published: nulls are allowed among values, and so are `X_printed` and `X_half_unit` beside every
    column X.

    Errors: InputError for the first thing that is wrong: columns that are missing or unknown, a type, a null, an id of
    odd characters, a text that is none of a column's, NaN or a number outside its range, lines out of their count."""
    about = spec(stem)
    again = f"run `{command(stem)}` again"
    missing = [name for name in about.schema() if name not in table.columns]
    if missing:
        raise InputError(
            f"{where} lacks the columns {', '.join(missing)}; another version wrote it, or another program; {again}"
        )
    columns: dict[str, Column] = {}
    for name in table.columns:
        column = about.column(name)
        if column is None or (not published and name not in {one.name for one in about.columns}):
            _refuse_unknown(stem, [name], where)
        else:
            columns[name] = column
    places = {one.name: place for place, one in enumerate(about.columns)}
    ordered = sorted(columns, key=lambda name: places.get(name, len(places)))
    # A column without any value has no type of its own.
    empty = [name for name in ordered if table.schema[name] == pl.Null]
    table = table.select(ordered).with_columns(pl.col(name).cast(columns[name].dtype) for name in empty)
    for name in ordered:
        unprinted = published and (name not in about.keys or name in about.unprinted)
        wrong = _wrong(table[name], columns[name], nulls=unprinted or columns[name].null)
        if not wrong and name == about.numbered and table[name].to_list() != list(range(table.height)):
            wrong = f"{name} does not count the lines from 0"
        if wrong:
            raise InputError(f"{where}: {wrong}; another program wrote it, or the run broke; {again}")
    return table


def with_domain_names(table: pl.DataFrame) -> pl.DataFrame:
    """The table for people: names of domains in the place of their ids, without what Markdown or a chart would obey."""
    columns = [name for name in table.columns if name.startswith("domain") or name.endswith("_domain")]
    for name in (name for name in columns if table.schema[name] == pl.String):
        shown = {one: without_markup(with_names(one)) for one in table[name].drop_nulls().unique()}
        table = table.with_columns(pl.col(name).replace(shown))
    return table


def _refuse_unknown(stem: str, names: Sequence[str], where: str) -> None:
    if names:
        known = [column.name for column in spec(stem).columns]
        near = get_close_matches(names[0], known, n=1)
        raise InputError(
            f"{where} has a column {names[0]!r} that a table {stem} does not have; "
            + (f"did you mean {near[0]!r}? " if near else "")
            + f"expected {', '.join(known)}; rename it, or write it to a table of its own"
        )


def _wrong(values: pl.Series, column: Column, *, nulls: bool) -> str | None:
    """What is wrong with the values of a column, with the first case of it."""
    name = column.name
    if values.dtype != column.dtype:
        return f"{name} holds {values.dtype}, expected {column.dtype}"
    if values.null_count() and not nulls:
        return f"{name} is empty in {values.null_count()} of {values.len()} lines, expected a value in each"
    known = values.drop_nulls()
    if column.values:
        other = sorted(set(known.unique().to_list()) - set(column.values.split()))
        return f"{name} is {other[0]!r}, expected {' or '.join(column.values.split())}" if other else None
    if column.type == "id":
        odd = [text for text in known.unique().to_list() if not is_id(text) and not is_domain_id(text)]
        return f"{name} is {odd[0]!r}, expected an id: letters, digits and . _ - only" if odd else None
    if not known.dtype.is_numeric():
        return None
    low, high, broken = RANGES[column.range]
    inside = (known >= low - ROUNDING) & (known <= high + ROUNDING)
    if known.dtype.is_float():
        inside &= known.is_finite()
        if broken:
            inside |= known.is_nan() | (known == float("inf")) | ((known == float("-inf")) & (low < 0))
    if inside.all():
        return None
    expected = f"{low:g} to {high:g}" if low > float("-inf") else "a finite number"
    return f"{name} is {known.filter(~inside)[0]!r}, expected {expected.replace('to inf', 'or more')}"


def is_id(name: str) -> bool:
    """Is this a name that can be shown anywhere: letters, digits and . _ - only?"""
    return _ID.fullmatch(name) is not None


_JSON_COLUMN_TYPES = {"id": "string", "text": "string", "whole": "integer", "whole32": "integer", "number": "number"}


def json_schema() -> Json:
    """Of a `manifest.json` of this version (draft 2020-12); `$defs` has `STEM.parquet` for a line of each table, of
    registered plug-ins too, an object by column. Numbers that are not finite, which JSON has not, are as parquet has
    them."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:selector-audit:results:{SHARING_VERSION}",
        "title": "manifest.json of a results folder",
        **manifest_schema(),
        "$defs": {
            f"{spec.stem}.parquet": {
                "title": spec.title,
                "description": f"Written by `{command(spec.stem)}`. A line is named by {', '.join(spec.keys)}.",
                "type": "object",
                "properties": {column.name: _value_schema(column) for column in spec.columns},
                "required": [column.name for column in spec.columns if not column.optional],
                "additionalProperties": False,
            }
            for spec in TABLES
        },
    }


def _value_schema(column: Column) -> Json:
    kind = _JSON_COLUMN_TYPES.get(column.type, "boolean")
    value: Json = {"type": [kind, "null"] if column.null else kind}
    value["description"] = f"{column.meaning} ({column.unit})" if column.unit else column.meaning
    if column.values:
        value["enum"] = [*column.values.split(), *([None] if column.null else [])]
    elif column.type == "id":
        value |= {"pattern": r"^[A-Za-z0-9][A-Za-z0-9._-]*$", "maxLength": 200}
    elif kind in ("integer", "number"):
        low, high, _ = RANGES[column.range]
        spare = ROUNDING if kind == "number" else 0
        value |= {"minimum": low - spare} if low > float("-inf") else {}
        value |= {"maximum": high + spare} if high < float("inf") else {}
    return value
