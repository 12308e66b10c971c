"""What a manifest's spec says in words: texts that held fewer windows than were asked for, names that are one."""

from collections.abc import Iterator
from typing import Any

from engine.records.domain_names import domain_name
from engine.records.hashing import Json


def shortfalls(spec: Any) -> list[str]:
    """One sentence for every short text that is recorded anywhere in a spec (`samples` below `samples_requested`, or
    `draws` below `draws_requested`), each once, and for every domain whose name its pairs spell in several ways."""
    spelled = spec.get("domain_spellings", {}) if isinstance(spec, dict) else {}
    return [
        *dict.fromkeys(_sentence(record) for record in _short_records(spec)),
        *(f"{', '.join(map(repr, names))} are one domain, {domain_name(one)}" for one, names in spelled.items()),
    ]


def _short_records(value: Any) -> Iterator[Json]:
    if isinstance(value, dict):
        for name in ("samples", "draws"):
            found, wanted = value.get(name), value.get(f"{name}_requested")
            sizes = (value.get("samples"), value.get("samples_requested"))
            whole = isinstance(found, int) and isinstance(wanted, int) and found < wanted
            if whole and all(isinstance(size, int) for size in sizes):
                yield value
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _short_records(one)


def _sentence(record: Json) -> str:
    if "draws_requested" in record:
        return (
            f"the calibration text {record.get('corpus')} is too short for {record['draws_requested']} disjoint draws "
            f"of {record['samples_requested']:,} windows: there are {record['draws']} of {record['samples']:,} windows "
            "each; give a longer text, or smaller --sizes"
        )
    return (
        f"the {record.get('role') or 'calibration'} text {record.get('corpus')} is too short: {record['samples']:,} of "
        f"the {record['samples_requested']:,} windows of {record.get('length')} tokens that were asked for; give a "
        "longer text, or ask for fewer"
    )
