"""How a manifest is written: an object that several entries hold alike stands once, under `shared`.

    {"files": {"sweep.parquet": {"sha256": "9c…", "spec": "5f0c…", …}, …},
     "model": {…},
     "schema_version": 2,
     "shared": {"5f0c…": {…}, …}}

An entry holds the name of the object in its place, which is the beginning of a hash. Where nothing is shared the
version is 1, and each entry holds all that is its own, as in manifests written before. Readers see that form only."""

import hashlib
import json
from collections import Counter
from typing import Any, NoReturn

from engine.records import bounds
from engine.records.hashing import SCHEMA_VERSION, Json
from engine.records.manifest_form import SHARABLE, SHARED, whole_entry


def _refuse(self: object, *_values: object, **_named: object) -> NoReturn:
    raise TypeError("this JSON is shared between its readers and cannot be changed; copy it first")


class ReadOnlyDict(dict[str, Any]):
    """A dict that cannot be changed. Its copies can: `dict(it)`, `{**it}`, `copy.deepcopy(it)`, unpickled ones."""

    __setitem__ = __delitem__ = clear = pop = popitem = setdefault = update = __ior__ = _refuse

    def __reduce__(self) -> tuple[type, tuple[dict[str, Any]]]:
        return dict, (dict(self),)


class ReadOnlyList(list[Any]):
    """A list that cannot be changed; its copies can."""

    __setitem__ = __delitem__ = __iadd__ = __imul__ = append = clear = extend = insert = pop = _refuse
    remove = reverse = sort = _refuse

    def __reduce__(self) -> tuple[type, tuple[list[Any]]]:
        return list, (list(self),)


def read_only(value: Any) -> Any:
    """The same JSON, read-only at every depth; an object that stands in several places stays one object."""
    if isinstance(value, ReadOnlyDict | ReadOnlyList):
        return value
    if isinstance(value, dict):
        return ReadOnlyDict({name: read_only(inner) for name, inner in value.items()})
    return ReadOnlyList(map(read_only, value)) if isinstance(value, list) else value


SHARING_VERSION = 2  # of a manifest with `shared`; keys of cells hold `SCHEMA_VERSION`, which is another thing
_NAME_LENGTH = 16


def text_of_manifest(manifest: Json) -> str:
    """The JSON of a manifest, with a line for each file and each shared object."""
    uses = Counter(
        _spelled(entry[field])
        for entry in manifest["files"].values()
        for field in SHARABLE
        if isinstance(entry.get(field), dict)
    )
    names = {
        text: hashlib.sha256(text.encode()).hexdigest()[:_NAME_LENGTH]
        for text, count in uses.items()
        if (count - 1) * len(text) > (count + 1) * 2 * _NAME_LENGTH  # sharing it saves bytes
    }
    files = {
        file: {
            field: names.get(_spelled(value), value) if field in SHARABLE else value for field, value in entry.items()
        }
        for file, entry in manifest["files"].items()
    }
    whole = {**manifest, "schema_version": SCHEMA_VERSION, "files": files}
    if names:
        shared = {name: json.loads(text) for text, name in names.items()}
        whole |= {"schema_version": SHARING_VERSION, SHARED: shared}
    return _lines(whole, depth=2) + "\n"


def _spelled(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _lines(value: Any, depth: int) -> str:
    """JSON whose objects down to this depth have a line for each field."""
    if not depth or not isinstance(value, dict) or not value:
        return _spelled(value)
    fields = ",\n".join(f"{json.dumps(name)}: {_lines(value[name], depth - 1)}" for name in sorted(value))
    return f"{{\n{fields}\n}}"


def expanded(manifest: Json) -> Json:
    """A manifest whose form was checked, read-only, each entry with all that is its own.
    Errors: BadFile where the entries would hold more together than is read of any JSON."""
    shared, files = read_only(manifest.get(SHARED, {})), manifest.get("files", {})
    sizes = {name: len(_spelled(value)) for name, value in shared.items()}
    uses = (entry[field] for entry in files.values() for field in SHARABLE if isinstance(entry.get(field), str))
    total = sum(sizes[name] for name in uses)
    bounds.need("its entries hold", total, bounds.MAX_JSON_BYTES, " characters of JSON")
    files = {file: whole_entry(entry, shared) for file, entry in files.items()}
    whole = {**manifest, "schema_version": SCHEMA_VERSION, "files": files}
    whole.pop(SHARED, None)
    return read_only(whole)
