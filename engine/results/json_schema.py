"""Manifest and tables as JSON Schema (draft 2020-12), written from the registry of tables and the manifest's form.

The document describes a `manifest.json`; `$defs` has `STEM.parquet` for a line of each table, an object by column. Its
version is the manifest's. Numbers that are not finite, which JSON has not, are as parquet has them."""

from engine.records import manifest_form
from engine.records.hashing import Json
from engine.records.manifest_form import SHARING_VERSION
from engine.results.tables import RANGES, ROUNDING, TABLES, Column, TableSpec, command

_TYPES = {"id": "string", "text": "string", "whole": "integer", "whole32": "integer", "number": "number"}


def json_schema() -> Json:
    """Of this version, with the tables of plug-ins that are registered."""
    tables = {f"{spec.stem}.parquet": _line(spec) for spec in TABLES}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:selector-audit:results:{SHARING_VERSION}",
        "title": "manifest.json of a results folder",
        **manifest_form.json_schema(),
        "$defs": tables,
    }


def _line(spec: TableSpec) -> Json:
    return {
        "title": spec.title,
        "description": f"Written by `{command(spec.stem)}`. A line is named by {', '.join(spec.keys)}.",
        "type": "object",
        "properties": {column.name: _value(column) for column in spec.columns},
        "required": [column.name for column in spec.columns if not column.optional],
        "additionalProperties": False,
    }


def _value(column: Column) -> Json:
    kind = _TYPES.get(column.type, "boolean")
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
