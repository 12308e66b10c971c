"""The manifest of a results folder: what is stored beside every number, and what it has to look like: every field that
is read somewhere, with its type. Any may be absent.

An object that several entries hold alike stands once, under `shared`:

    {"files": {"sweep.parquet": {"sha256": "9c…", "spec": "5f0c…", …}, …},
     "model": {…},
     "schema_version": 2,
     "shared": {"5f0c…": {…}, …}}

An entry holds the name of the object in its place, which is the beginning of a hash. Where nothing is shared the
version is 1, and each entry holds all that is its own, as in manifests written before. Readers see that form only."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from engine.records import bounds
from engine.records.domain_names import domain_name
from engine.records.errors import InputError
from engine.records.files import FileKind, write_atomic
from engine.records.hashing import SCHEMA_VERSION, Json, environment, file_sha256

MANIFEST = "manifest.json"
MANIFEST_FILE = FileKind("a manifest", lambda path: path.name == MANIFEST and is_manifest(path))
_MAX_KEPT_BYTES = 4 * bounds.MIB  # of a manifest that is kept parsed; a folder of ours has far less
_RUN = "numerics"  # of a model's fingerprint: how this run computed with it


def read_manifest(folder: Path) -> Json:
    """The manifest of a results folder, read-only; an `InputError` where it is absent, broken or from a newer version.
    What entries share stands in each of them. One text is parsed and checked once, however often it is read."""
    path = folder / MANIFEST
    if path.exists() and not path.is_file():  # reading from a pipe would wait for ever
        raise InputError(f"{path} cannot be read (it is no file); remove it and run the command again")
    try:
        content = bounds.content_of(path, bounds.MAX_JSON_BYTES)
        version = _version(_parsed(content))
    except FileNotFoundError:
        raise InputError(
            f"{folder} holds no {MANIFEST}; give a folder that `selector-audit` wrote with --out"
        ) from None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); make it readable") from None
    except ValueError as error:  # a number of 5,000 digits is one as well
        raise InputError(
            f"{path} is not readable JSON ({error}); delete the folder and run the command again"
        ) from None
    if not isinstance(version, int) or isinstance(version, bool) or version > SHARING_VERSION:
        raise InputError(
            f"{path} has schema version {version!r}, this software reads up to {SHARING_VERSION}; upgrade it"
        )
    try:
        return _expanded(content)
    except InputError as misfits:
        raise InputError(
            f"{path}: {misfits}; another program wrote it; run the command again into another folder"
        ) from None


def _version(manifest: Any) -> Any:
    return manifest.get("schema_version") if isinstance(manifest, dict) else None


def _once_per_content(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """`read`, with its answers kept for contents of a usual size."""
    remembered = lru_cache(maxsize=64)(read)
    return lambda content: (remembered if len(content) <= _MAX_KEPT_BYTES else read)(content)


@_once_per_content
def _parsed(content: bytes) -> Any:
    """What a manifest's text says, whatever it is. Errors: ValueError."""
    return bounds.parsed(content.decode())


@_once_per_content
def _expanded(content: bytes) -> Json:
    """A manifest of a version that is read. Errors: InputError for what does not look like one."""
    manifest = _parsed(content)
    if wrong := misfit(manifest):
        raise InputError(wrong)
    return expanded(manifest)


def is_manifest(path: Path) -> bool:
    """Is this a manifest of ours, also of a newer version? A `manifest.json` of web pages, say, is none."""
    return _listed(path) is not None


def is_listed(path: Path) -> bool:
    """Does a manifest beside this file name it?"""
    return path.name in (_listed(path.with_name(MANIFEST)) or ())


def _listed(path: Path) -> Json | None:
    """The entries of a manifest of ours, also of a newer version; None where the file is none."""
    try:
        manifest = _parsed(bounds.content_of(path, bounds.MAX_JSON_BYTES))
    except (OSError, ValueError):
        return None
    files = manifest.get("files") if isinstance(_version(manifest), int) else None
    ours = isinstance(files, dict) and all(isinstance(entry, dict) and "sha256" in entry for entry in files.values())
    return files if ours else None


def write_manifest(folder: Path, manifest: Json) -> None:
    """Write the folder's manifest, what its entries share once, and a line for each file."""
    write_atomic(folder / MANIFEST, text_of_manifest(manifest).encode(), MANIFEST_FILE)


def add_to_manifest(folder: Path, model: Json, filename: str, spec: Json, wall_time_s: float) -> Json:
    """Record `filename`, just written into `folder`, in the folder's manifest; returns the file's entry. A folder holds
    the results of one model: another model's weights or dtype are an `InputError`. What of the model may differ from
    run to run (`numerics`) stands in the file's entry."""
    manifest = read_manifest(folder) if (folder / MANIFEST).exists() else {"files": {}}
    check_same_model(folder, manifest, model)
    entry = {
        "sha256": file_sha256(folder / filename),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "wall_time_s": round(wall_time_s, 3),
        "spec": spec,
        "environment": environment(),
    }
    if _RUN in model:
        entry[_RUN] = model[_RUN]
    if notes := shortfalls(spec):
        entry["notes"] = notes
    of_model = {name: value for name, value in model.items() if name != _RUN}
    write_manifest(folder, {**manifest, "model": of_model, "files": {**manifest["files"], filename: entry}})
    return entry


def notes_of(manifest: Json) -> list[str]:
    """What is to be said of the folder's files, with the files that it is said of."""
    about: dict[str, list[str]] = {}
    for name, entry in sorted(manifest.get("files", {}).items()):
        for note in entry.get("notes", []):
            about.setdefault(note, []).append(name)
    return [f"{note} (read for {', '.join(names)})" for note, names in about.items()]


def drop_from_manifest(folder: Path, filenames: Collection[str]) -> None:
    """Forget files of the folder that are about to be deleted."""
    if not filenames:
        return
    manifest = read_manifest(folder)
    remaining = {name: entry for name, entry in manifest["files"].items() if name not in filenames}
    write_manifest(folder, {**manifest, "files": remaining})


def check_folder(folder: Path, model: Json) -> None:
    """`InputError` if `folder` holds results of other weights or another dtype: before anything is computed for it."""
    if (folder / MANIFEST).exists():
        check_same_model(folder, read_manifest(folder), model)


def check_same_model(folder: Path, manifest: Json, model: Json) -> None:
    """An `InputError` if the folder's manifest names other weights or another dtype than `model`."""
    stored_model = manifest.get("model")
    if not stored_model:
        return
    for field in ("weights_hash", "dtype"):
        if stored_model.get(field) != model.get(field):
            raise InputError(
                f"{folder} holds results of {stored_model.get('id')} ({field} {str(stored_model.get(field))[:12]}), "
                f"got {model.get('id')} ({str(model.get(field))[:12]}); give another folder with --out"
            )


def shortfalls(spec: Any) -> list[str]:
    """One sentence for every short text that is recorded anywhere in a spec (`samples` below `samples_requested`, or
    `draws` below `draws_requested`), each once, for every domain whose name its pairs spell in several ways, and for
    scores of one's own of which most are equal to another one."""
    spelled, own = (spec.get(key, {}) if isinstance(spec, dict) else {} for key in ("domain_spellings", "score_files"))
    return [
        *dict.fromkeys(_sentence(record) for record in _short_records(spec)),
        *(f"{', '.join(map(repr, names))} are one domain, {domain_name(one)}" for one, names in spelled.items()),
        *(
            f"{tied:,} scores of {name} are equal to another one of them, and such rows go in the order of the model"
            for name, (first, *_) in own.items()
            if (tied := first.get("tied"))
        ),
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


class Form(NamedTuple):
    """A type of JSON by its name in messages. null: does null say the same as nothing?"""

    name: str
    types: tuple[type, ...]
    null: bool = True

    def fits(self, value: Any) -> bool:
        if value is None:
            return self.null
        if isinstance(value, bool) or not isinstance(value, self.types):  # true is an int to Python
            return False
        return not isinstance(value, int | float) or abs(value) < 2**63  # which neither NaN nor infinity is

    def schema(self) -> Json:
        """The same as JSON Schema."""
        types = ["number"] if float in self.types else [_JSON_TYPES[self.types[0]]]
        limits = {"exclusiveMinimum": -(2**63), "exclusiveMaximum": 2**63} if int in self.types else {}
        return {"type": [*types, "null"] if self.null else types[0], **limits}


_JSON_TYPES = {str: "string", int: "integer", dict: "object", list: "array"}

TEXT = Form("a text", (str,))
WHOLE = Form("a whole number", (int,))
NUMBER = Form("a number", (int, float))
OBJECT = Form("an object", (dict,), null=False)
LIST = Form("a list", (list,), null=False)

_MODEL = dict.fromkeys(
    (
        "id", "revision", "weights_hash", "dtype", "device", "architecture", "rows", "config_hash", "tokenizer_hash",
        "dequantized_from",
    ),
    TEXT,
)  # fmt: skip
_ENTRY = {
    "sha256": TEXT, "date": TEXT, "wall_time_s": NUMBER, "spec": OBJECT, "environment": OBJECT, "notes": LIST,
    "what": TEXT, "place": WHOLE,
}  # fmt: skip
_ENVIRONMENT = {"selector-audit": TEXT, "git_commit": TEXT, "python": TEXT, "platform": TEXT, "libraries": OBJECT}
_SPEC = {"settings": OBJECT._replace(null=True)}
_SCORES = {"seeds": LIST}
SHARED, SHARABLE = "shared", ("spec", "environment", "numerics")  # fields of an entry that may name a shared object


def misfit(manifest: Json) -> str | None:
    """The first field of another type than it has to be, and what it should be; None where all are right.
    Text that is no Unicode (half a surrogate pair, which JSON can spell) is a misfit wherever it stands: no page and
    no file can show it."""
    return next(_misfits(manifest), None)


def _misfits(manifest: Json) -> Iterator[str]:
    yield from _odd_text(manifest)
    yield from _of("", manifest, {"model": OBJECT, "files": OBJECT, "published": TEXT, SHARED: OBJECT})
    yield from _of("model: ", manifest.get("model"), _MODEL)
    shared = manifest.get(SHARED, {})
    yield from _of(f"{SHARED}: ", shared, dict.fromkeys(shared, OBJECT))
    for name, entry in manifest.get("files", {}).items():
        if not isinstance(entry, dict):
            yield f"files: {name} is {_shown(entry)}, expected an object"
            continue
        entry = whole_entry(entry, shared)
        for field in SHARABLE:
            if isinstance(entry.get(field), str):
                yield f"{name}: {field} names {_shown(entry[field])}, which {SHARED} does not hold"
        yield from _of(f"{name}: ", entry, _ENTRY)
        yield from _of(f"{name}: spec: ", entry.get("spec"), _SPEC)
        yield from _of(f"{name}: spec: scores: ", entry.get("spec", {}).get("scores"), _SCORES)
        yield from _of(f"{name}: environment: ", entry.get("environment"), _ENVIRONMENT)
        if any(not isinstance(note, str) for note in entry.get("notes", ())):
            yield f"{name}: notes hold what is no text"


def manifest_schema() -> Json:
    """What `misfit` looks at, as JSON Schema of a manifest as it is written (`engine.records.manifest`). Left out:
    that a named object stands under `shared`, and that texts are Unicode."""
    notes = {**LIST.schema(), "items": {"type": "string"}}
    entry = {
        **_schema(_ENTRY)["properties"],
        "notes": notes,
        "spec": _schema(_SPEC, scores={"properties": _schema(_SCORES)["properties"]}),
        "environment": _schema(_ENVIRONMENT),
    }
    entry |= {name: {"anyOf": [entry.get(name, OBJECT.schema()), {"type": "string"}]} for name in SHARABLE}
    files = {"type": "object", "properties": entry, "required": ["sha256"]}
    return _schema(
        {"published": TEXT, SHARED: OBJECT},
        schema_version={"type": "integer", "minimum": 1},
        model=_schema(_MODEL),
        files={"type": "object", "additionalProperties": files},
        shared={"type": "object", "additionalProperties": OBJECT.schema()},
    ) | {"required": ["schema_version", "files"]}


def _schema(forms: Mapping[str, Form], **more: Json) -> Json:
    return {"type": "object", "properties": {name: form.schema() for name, form in forms.items()} | more}


def whole_entry(entry: Json, shared: Json) -> Json:
    """The entry of a file with the shared objects in the place of their names."""
    named = {
        field: shared[entry[field]]
        for field in SHARABLE
        if isinstance(entry.get(field), str) and entry[field] in shared
    }
    return {**entry, **named}


def _of(place: str, found: Any, forms: Mapping[str, Form]) -> Iterator[str]:
    """Told of the fields of an object; one that is something else has been told of by what holds it."""
    for field, form in forms.items():
        if isinstance(found, dict) and field in found and not form.fits(found[field]):
            yield f"{place}{field} is {_shown(found[field])}, expected {form.name}"


def _odd_text(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            yield f"the text {_shown(value)} is no Unicode"
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from _odd_text(name)
            yield from _odd_text(one)
    elif isinstance(value, list):
        for one in value:
            yield from _odd_text(one)


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


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
