"""Where corpora come from: data sets of the Hugging Face hub, local files, and the text that ships. Data sets of the
hub are read at one commit: named by the user, or looked up once before the download and recorded."""

import gzip
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from engine.models import downloads
from engine.models.hub_failures import explain, hub_errors
from engine.records import bounds
from engine.records.errors import InputError, unknown
from engine.records.files import write_atomic
from engine.records.shipped import demo_dir

Role = Literal["calibration", "evaluation"]

_WIKITEXT = "Salesforce/wikitext"
_WIKITEXT_SPLITS = {"calibration": "train", "evaluation": "test"}
_C4 = "allenai/c4"
_C4_SHARDS = {"calibration": "c4-train.00000-of-01024", "evaluation": "c4-validation.00000-of-00008"}
_JOINT = "\n\n"
_TITLE = re.compile(r"\s*= (?!= ).*(?<! =) =\s*")  # a heading of the first level
_OF_THE_HUB = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
_C4_DOCUMENTS = 2000  # about a million tokens: more than any default asks for, a few MB to fetch
_ALTERNATIVE = "choose another calibration text, demo or a file of your own: --corpus demo, PATH.txt or PATH.jsonl"


class Text(NamedTuple):
    """A corpus as one text, its documents joined by blank lines."""

    corpus: str  # registered name, or the file's name
    text: str
    revision: str | None = None  # commit of a hub data set
    documents: tuple[int, ...] | None = None  # where each document begins, in characters; None where that is not known


def read_text(corpus: str, role: Role) -> Text:
    """The text of a registered corpus (its split for `role`), of a .txt file or of a .jsonl file.

    A local file is the same text in both roles. Documents are known of C4, of a .jsonl file (its lines), of WikiText-2
    and of a .txt file with its headings (their articles); of another .txt file they are not, since blank lines
    separate paragraphs as well."""
    if role not in get_args(Role):
        raise unknown("role", role, get_args(Role))
    if corpus in _CORPORA:
        return _CORPORA[corpus](role)
    path = Path(corpus).expanduser()
    if path.is_file():
        if path.suffix == ".jsonl":
            return _text_of_documents(path.name, _documents_of_json_lines(path))
        if path.suffix == ".txt":
            parts = _parts_of_file(path)
            return Text(path.name, _JOINT.join(parts), documents=articles(parts, parted=True))
        raise InputError(f"corpus {path.name} has the suffix {path.suffix!r}; expected .txt or .jsonl")
    if path.suffix or len(path.parts) > 1:
        raise InputError(
            f"there is no corpus file {corpus}; give a .txt or .jsonl file, or one of {', '.join(_CORPORA)}"
        )
    raise unknown("corpus", corpus, _CORPORA)


def available_corpora() -> tuple[str, ...]:
    """Names that `--corpus` takes besides files."""
    return tuple(_CORPORA)


def reachable(corpus: str) -> str | None:
    """None if a registered corpus can be read now, otherwise why not. Asks the hub, fetches no text."""
    if corpus not in _CORPORA:
        raise unknown("corpus", corpus, _CORPORA)
    try:
        repository = {"c4": _C4, "wikitext2": _WIKITEXT}.get(corpus)
        read: Callable[[Role], Any] = _wikitext_files if corpus == "wikitext2" else _CORPORA[corpus]
        if repository is None or not _answers(repository):  # then the local cache has to do
            for role in get_args(Role):
                read(role)
    except InputError as error:
        return str(error)
    return None


def readable_offline(corpus: str, role: Role) -> bool:
    """Can this split be read without the hub? Of a data set that is streamed, only what was kept."""
    return corpus != "c4" or kept_documents(_c4_name(role), None) is not None


def json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line number and object of every line of a JSONL file; blank lines are skipped."""
    for number, line in bounds.lines_of(contents(path), path.name):
        if not line.strip():
            continue
        try:
            entry = bounds.parsed(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path.name} line {number} is not JSON ({error}); expected one object per line") from None
        if not isinstance(entry, dict):
            raise InputError(f"{path.name} line {number} holds a {type(entry).__name__}; expected a JSON object")
        check_characters(line, entry, f"{path.name} line {number}")
        yield number, entry


def check_characters(written: str, content: object, place: str) -> None:
    """`InputError` where JSON holds half a character, which no tokenizer takes. written: the JSON; content: what it
    says."""
    if "\\ud" not in written.lower():
        return
    try:
        json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{place} holds {error.object[error.start]!a}, half of a character that is written in two (a lone "
            "surrogate); write its other half as well, or remove it"
        ) from None


def _parts_of_file(path: Path) -> list[str]:
    """What blank lines separate."""
    parts = [part for text in re.split(r"\n\s*\n", contents(path)) if (part := text.strip())]
    if not parts:
        raise InputError(f"corpus {path.name} is empty; expected documents separated by blank lines")
    return parts


def _documents_of_json_lines(path: Path) -> list[str]:
    documents: list[str] = []
    for number, entry in json_lines(path):
        if not isinstance(entry.get("text"), str):
            keys = ", ".join(f"{key}: {type(value).__name__}" for key, value in entry.items()) or "an empty object"
            raise InputError(
                f"{path.name} line {number} has no text (a string in the field `text`), got {keys}; expected "
                '{"text": "a document"} on every line'
            )
        documents.append(entry["text"])
    if not any(document.strip() for document in documents):
        raise InputError(f"corpus {path.name} is empty; expected one JSON object with a field `text` per line")
    return documents


def _text_of_documents(corpus: str, documents: Sequence[str], revision: str | None = None) -> Text:
    """Documents joined by blank lines."""
    return Text(corpus, _JOINT.join(documents), revision, tuple(_starts(documents)))


def _starts(parts: Sequence[str]) -> list[int]:
    """Where each part begins in all of them joined by blank lines."""
    return list(accumulate((len(part) + len(_JOINT) for part in parts[:-1]), initial=0))


def contents(path: Path) -> str:
    """The text of a UTF-8 file. Errors: InputError where it cannot be read as one."""
    try:
        return bounds.text_of(path, "utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path.name} is not UTF-8 (byte {error.start}); save it as UTF-8") from None
    except bounds.BadFile as error:
        raise InputError(f"{path.name} is too large: {error}; give a part of it") from None
    except OSError as error:
        raise InputError(f"{path.name} cannot be read ({error.strerror}); check the file and its rights") from None


def _shipped(corpus: str, filename: str) -> Text:
    path = demo_dir() / "corpus" / filename
    if not path.is_file():
        raise InputError(
            f"the shipped corpus is not in {path.parent}; rebuild it with `uv run python -m precomputed.recipe`"
        )
    return Text(corpus, _JOINT.join(_parts_of_file(path)))


def _wikitext(role: Role) -> Text:
    """WikiText-2 (raw): train for calibration, test for evaluation; its lines are joined as they are."""
    files = _wikitext_files(role)
    rows = [row["text"] for row in _stream("parquet", [str(file) for file in files])]
    return Text("wikitext2", _JOINT.join(rows), files[0].parents[1].name, articles(rows))


def articles(rows: Sequence[str], *, parted: bool = False) -> tuple[int, ...] | None:
    """Where the articles of WikiText begin in its lines joined by blank lines; None where there is no heading.
    A title stands alone between empty lines, ` = Title = `. What comes before the first one belongs to its article.
    parted: the rows are what blank lines separate."""
    starts = _starts(rows)
    empty = [parted or not row.strip() for row in rows]
    alone = [
        number
        for number, row in enumerate(rows)
        if _TITLE.fullmatch(row) and all(empty[max(0, number - 1) : number] + empty[number + 1 : number + 2])
    ]
    return (0, *(starts[number] for number in alone[1:])) if alone else None


def _wikitext_files(role: Role) -> list[Path]:
    pattern = f"wikitext-2-raw-v1/{_WIKITEXT_SPLITS[role]}-*.parquet"
    try:
        folder = downloads.fetch_files(_WIKITEXT, [pattern], repo_type="dataset")
    except hub_errors() as error:
        raise _unreachable("wikitext2", _WIKITEXT, error) from None
    files = sorted(folder.glob(pattern))
    if not files:
        raise InputError(f"corpus wikitext2: the local cache holds no {pattern}; go online once, or {_ALTERNATIVE}")
    return files


def _c4(role: Role) -> Text:
    """The first documents of C4 (English): train for calibration, validation for evaluation. They are kept, so that
    they can be read without the hub: then those that were kept last."""
    revision, failure = None, None
    try:
        revision = _revision(_C4)
    except hub_errors() as error:
        failure = _unreachable("c4", _C4, error)
    if (kept := kept_documents(_c4_name(role), revision)) is not None:
        return kept
    if failure is not None:
        raise failure
    file = f"hf://datasets/{_C4}@{revision}/en/{_C4_SHARDS[role]}.json.gz"
    try:
        documents = [row["text"] for row in islice(_stream("json", [file]), _C4_DOCUMENTS)]
    except hub_errors() as error:
        raise _unreachable("c4", _C4, error) from None
    if revision is not None:
        keep_documents(_c4_name(role), revision, documents)
    return _text_of_documents("c4", documents, revision)


def _c4_name(role: Role) -> str:
    return f"{_C4_SHARDS[role]}.first{_C4_DOCUMENTS}"


def _revision(repository: str, revision: str | None = None) -> str | None:
    """The commit of a data set's revision, of its main branch for None. Errors: as they come from the hub's client."""
    from huggingface_hub import HfApi

    downloads.end_silence()
    return HfApi().dataset_info(repository, revision=revision, timeout=10).sha


def _answers(repository: str) -> bool:
    try:
        _revision(repository)
    except hub_errors():
        return False
    return True


def _stream(builder: str, files: list[str]) -> Iterator[dict[str, Any]]:
    """Rows of data files through `datasets`, read as they come: no second copy in its cache."""
    from datasets import load_dataset

    rows = load_dataset(builder, data_files=files, split="train", streaming=True)  # nosec B615 # addresses with a commit
    yield from rows


def _unreachable(corpus: str, repository: str, error: Exception) -> InputError:
    kind, problem, next_step = explain(error, repository, repo_type="dataset")
    if kind == "unreachable":
        cached = "" if corpus == "c4" else "it is not in the local cache and "
        problem = f"{cached}the Hugging Face hub cannot be reached ({problem})"
    steps = f"{next_step}, or {_ALTERNATIVE}" if next_step else _ALTERNATIVE
    return InputError(f"corpus {corpus}: {problem}; {steps}")


_CORPORA: dict[str, Callable[[Role], Text]] = {
    "wikitext2": _wikitext,
    "c4": _c4,
    "demo": lambda role: _shipped("demo", f"{role}.txt"),
    # Prompts and replies through the shipped model's chat template; the second domain of its audit.
    "demo-chat": lambda role: _shipped("demo-chat", f"instructions_{role}.txt"),
}


def kept_documents(name: str, revision: str | None) -> Text | None:
    """C4's documents kept under this name of that commit, of the latest kept where it is None; None where none are."""
    latest_first = sorted(
        _kept_folder().glob(f"{revision or '*'}/{name}.json.gz"), key=lambda file: -file.stat().st_mtime
    )
    for file in latest_first:
        try:
            documents = bounds.parsed(bounds.unpacked(file))
        except (OSError, EOFError, ValueError, RecursionError):  # absent, or damaged: it is fetched again
            continue
        if isinstance(documents, list) and all(isinstance(document, str) for document in documents):
            return _text_of_documents("c4", documents, file.parent.name)
    return None


def keep_documents(name: str, revision: str, documents: list[str]) -> None:
    """Keep documents; a cache that cannot be written keeps none."""
    file = _kept_folder() / revision / f"{name}.json.gz"
    with suppress(OSError, InputError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, gzip.compress(json.dumps(documents, ensure_ascii=False).encode(), mtime=0))


def _kept_folder() -> Path:
    """The folder that huggingface_hub gives to other libraries: it moves with HF_HOME."""
    from huggingface_hub import constants

    return Path(constants.HF_ASSETS_CACHE).expanduser() / "selector-audit" / "c4"


def commit_of(repository: str, revision: str | None = None) -> str | None:
    """The commit that a revision of a data set stands for now (None: its main branch); of a hub that does not answer
    the one that the local cache last saw there, None where that saw none."""
    from huggingface_hub import constants

    if revision and re.fullmatch(r"[0-9a-f]{40}", revision):
        return revision
    with suppress(*hub_errors()):
        return _revision(repository, revision)
    folder = f"datasets--{repository.replace('/', '--')}"
    reference = Path(constants.HF_HUB_CACHE).expanduser() / folder / "refs" / (revision or "main")
    try:
        seen = reference.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    return seen if re.fullmatch(r"[0-9a-f]{40}", seen) else None


def load_pinned(repository: str, config: str | None, *, split: str, revision: str | None = None) -> tuple[Any, str]:
    """A split of a data set, and `repository@commit` of it; the repository alone where nobody tells the commit.
    Errors: as they come from the libraries."""
    from datasets import load_dataset

    commit = commit_of(repository, revision)
    pinned = {"revision": commit or revision} if commit or revision else {}
    data = load_dataset(repository, config, split=split, **pinned)  # nosec B615 # at a commit, in `pinned`
    return data, f"{repository}@{commit}" if commit else repository


@contextmanager
def pinned_loads() -> Iterator[dict[str, str]]:
    """Inside, whatever loads a data set of the hub through `datasets`, naming no revision, gets it at one commit,
    however many parts of it are loaded; gives those commits by the data sets' names."""
    import datasets

    load, commits, asked = datasets.load_dataset, dict[str, str](), set[str]()

    def pinned(path: str, *args: Any, **options: Any) -> Any:
        of_files = any(options.get(name) for name in ("data_files", "revision"))
        if not of_files and isinstance(path, str) and _OF_THE_HUB.fullmatch(path) and not Path(path).exists():
            if path not in asked:
                asked.add(path)
                commit = commit_of(path)
                if commit:
                    commits[path] = commit
            if path in commits:
                options = {**options, "revision": commits[path]}
        return load(path, *args, **options)

    datasets.load_dataset = pinned
    try:
        yield commits
    finally:
        datasets.load_dataset = load
