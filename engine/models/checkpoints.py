"""A model's name to a folder of safetensors files, or to a GGUF file, whose contents are known by their hashes."""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.models import downloads, gguf_files, resumed_downloads as parts
from engine.models.downloads import Stopped, Transfer, hub_name, size_text
from engine.models.gguf_header import SUFFIX, read_header
from engine.models.hashes import file_sha256
from engine.models.hub_failures import hub_errors, model_failure
from engine.records import bounds
from engine.records.errors import InputError
from engine.records.shipped import demo_model_dir

DEMO = "demo"
ADAPTER = "adapter_config.json"
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")
_NO_WEIGHTS = ("training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth")  # a Trainer's own files
WEIGHT_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
TOKENIZER_FILES = (
    "tokenizer*", "special_tokens_map.json", "added_tokens.json", "chat_template*", "vocab.*", "merges.txt",
    "spiece.model", "sentencepiece*",
)  # fmt: skip
# What must be a JSON object where it is there: the libraries that read it fail in many ways where it is none.
_OBJECTS = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "generation_config.json",
)  # fmt: skip
LICENCES = ("LICENSE*", "NOTICE*", "USE_POLICY*")
# All that is kept of a checkpoint beside its weights: what a download fetches and an export copies.
SMALL_FILES = (
    "config.json", "generation_config.json", ADAPTER, WEIGHT_INDEX, *TOKENIZER_FILES, "preprocessor_config.json",
    "processor_config.json", *LICENCES,
)  # fmt: skip
# Written by the library that saved the checkpoint; they say nothing about what the model computes.
_CONFIG_NOTES = {"transformers_version", "_name_or_path", "torch_dtype", "dtype"}
_LARGE_JSON = 2**20  # bytes: of a larger one only the beginning is looked at, its own reader sees the rest
# What a configuration may ask for is bounded before anything is built from it, since a line of text can ask for a model
# that takes hours to set up and never exists.
# Far above the largest models of 2025: 126 blocks (Llama 3.1 405B), 61 blocks of 384 experts (Kimi K2), a vocabulary of
# 262,144 tokens and 53,248 neurons per block.
MOST_LAYERS = 1_000
MOST_EXPERTS = 100_000  # in all layers together
LARGEST = 10_000_000  # of any other size
MOST_POSITIONS = 2**31
DEEPEST = 40  # lists and objects inside each other
_LAYERS = re.compile(r"(^|_)layers?$|(^|_)blocks?$|^depth$")
_EXPERTS = re.compile(r"(^|_)experts?$")
_SIZES = re.compile(r"(^|_)(size|dim|heads?|groups?|rank|width|channels|embd|inner|d_model|d_ff|ffn_dim|kv_heads)$")
_FINITE = re.compile(r"eps|theta|factor|scal|multiplier")  # others may be infinite, as a limit is
_BASE = re.compile(r"rope_theta$|rotary_emb_base$|rope_local_base_freq$")
_POSITIONS = re.compile(r"positions?$|position_embeddings$")
_REMEDY = "correct it, or copy the checkpoint again"
_PER_LAYER = re.compile(r"layer|block")
_REMEMBERED_S = 600  # a branch stands for one commit as long: one run does not load two states of a model
_commits: dict[tuple[str, str, str | None], tuple[float, str]] = {}


@dataclass(frozen=True)
class Checkpoint:
    """A model folder on this machine. `revision` is the commit of a hub model, None for a local folder. gguf: the file
    with the weights, where `folder` has only what was read from it."""

    id: str
    folder: Path
    revision: str | None
    gguf: Path | None = None

    @classmethod
    def of_gguf(cls, model_id: str, file: Path, revision: str | None = None) -> Checkpoint:
        """Errors: InputError for a file that is not read."""
        return cls(model_id, gguf_files.small_files(read_header(file, model_id), model_id), revision, file)

    @property
    def name(self) -> str:
        """For a reader, to whom the place on somebody's disk means nothing."""
        return self.id if self.revision is not None or self.id == DEMO else (self.gguf or self.folder.resolve()).name

    @property
    def dequantized_from(self) -> str | None:
        """How its weights are packed, as Q4_1 or fp8, where they are: they are loaded as the numbers they stand for."""
        if self.gguf is not None:
            return read_header(self.gguf, self.id).packed_as
        stated = quantization(self.config())
        return None if stated is None else str(stated.get("quant_method", "an unknown method"))

    def config(self) -> dict[str, Any]:
        """config.json, checked for what this software does not load."""
        path = self.folder / "config.json"
        if not path.is_file():
            raise self._explained() or InputError(
                f"{self.id} has no config.json; "
                "expected a model folder in the Hugging Face layout, as save_pretrained writes it"
            )
        config = _read_json(path, self.id)
        check_sizes(config, self.id)
        if (self.folder / ADAPTER).is_file() and (problem := self._explained()):
            raise problem
        return config

    def _explained(self) -> InputError | None:
        """What the folder holds instead of a checkpoint, if that is known."""
        return explained(self.id, [file.name for file in self.folder.glob("*")], self.folder / ADAPTER)

    def check_small_files(self) -> None:
        """`InputError` where a file of the tokenizer, or the generation configuration, is no JSON object, or any of the
        small files is not small."""
        for path in (file for pattern in SMALL_FILES for file in self.folder.glob(pattern) if file.is_file()):
            if path.stat().st_size > bounds.MAX_TEXT_BYTES:
                raise InputError(f"{self.id}: {path.name} has {path.stat().st_size:,} bytes; copy the checkpoint again")
        for name in _OBJECTS:
            path = self.folder / name
            if path.is_file() and (path.stat().st_size < _LARGE_JSON or not _begins_an_object(path)):
                _read_json(path, self.id)

    def weight_files(self) -> tuple[Path, ...]:
        """The safetensors files, all shards, in the order of their names; or the GGUF file. As transformers, the single
        file where it is there; `InputError` where all shards of an index are there as well."""
        if self.gguf is not None:
            return (self.gguf,)
        index, single = self.folder / WEIGHT_INDEX, self.folder / _SINGLE
        names = _shard_names(index, self.id) if index.is_file() else []
        files = tuple(self.folder / name for name in names)
        missing = [file.name for file in files if not file.is_file()]
        if single.is_file():
            if files and not missing and files != (single,):
                raise _two_sets(self.id)
            return (single,)
        if missing:
            raise InputError(
                f"{self.id} lacks {len(missing)} of {len(files)} weight files, the first {missing[0]}; "
                "download or copy the checkpoint again"
            )
        if files:
            return files
        raise self._explained() or InputError(
            f"{self.id} has no weights; expected {_SINGLE} or {WEIGHT_INDEX} with its shards"
        )

    def shard_index(self) -> dict[str, str]:
        """The shard that the index names for every tensor; empty where a single file holds them."""
        if (self.folder / _SINGLE).is_file():
            return {}
        return _read_json(self.folder / WEIGHT_INDEX, self.id)["weight_map"]

    def weights_hash(self) -> str:
        """SHA-256 over the SHA-256 of every weight file, in order."""
        return _sha256_of_texts(file_sha256(file) for file in self.weight_files())

    def tokenizer_hash(self) -> str:
        """SHA-256 over the names and contents of the tokenizer's files, its chat template included."""
        files = sorted({file for pattern in TOKENIZER_FILES for file in self.folder.glob(pattern) if file.is_file()})
        return _sha256_of_texts(f"{file.name} {file_sha256(file)}" for file in files)

    def config_hash(self) -> str:
        """SHA-256 of config.json and generation_config.json as far as they change what the model computes."""
        parts: list[str] = []
        for name in ("config.json", "generation_config.json"):
            path = self.folder / name
            content = _read_json(path, self.id) if path.is_file() else {}
            settings = {key: value for key, value in content.items() if key not in _CONFIG_NOTES}
            parts.append(json.dumps(settings, sort_keys=True))
        return _sha256_of_texts(parts)


def quantization(config: dict[str, Any]) -> dict[str, Any] | None:
    """How a configuration says that its weights are packed; None where it does not."""
    language = config.get("text_config")
    stated = config.get("quantization_config") or (isinstance(language, dict) and language.get("quantization_config"))
    return (stated if isinstance(stated, dict) else {}) if stated else None


def find_checkpoint(
    model_id: str, revision: str | None = None, *, weights: bool = True, transfer: Transfer | None = None
) -> Checkpoint:
    """What `model_id` names: `demo`, `smollm2`, a local folder, a GGUF file, a folder with one, or a hub model
    (`hub_name`) or GGUF file of a hub model (`org/name/file.gguf`), downloaded if need be.

    weights=False leaves the weights of a hub model where they are, but for a GGUF file, which is fetched whole.
    transfer: watches a download and may stop it, which is an `InputError` here; its weights then go on where they
    were."""
    if model_id == DEMO:
        folder = demo_model_dir()
        if not (folder / "config.json").is_file():
            raise InputError(
                f"the shipped model is not in {folder}; rebuild it with `uv run python -m precomputed.recipe`"
            )
        return Checkpoint(DEMO, folder, None)
    if model_id == gguf_files.SMOLLM2:
        return Checkpoint.of_gguf(model_id, gguf_files.packaged())
    path = Path(model_id).expanduser()
    if model_id and path.exists():
        if revision is not None:
            kind = "folder" if path.is_dir() else "file"
            raise InputError(
                f"--revision {revision} goes with a Hugging Face id, but {model_id} is a local {kind}; leave it out"
            )
        return _local(str(path if path.name not in ("", "..") else path.resolve()), path)
    name, pasted = hub_name(model_id)
    if not re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?(?<!\.gguf)|([\w-][\w.-]*/){2}[\w-][\w. -]*\.gguf", name):
        raise InputError(
            f"there is no {'file' if name.endswith(SUFFIX) else 'folder'} {model_id!r}; give an existing model folder, "
            "a Hugging Face id such as meta-llama/Llama-3.2-1B, a GGUF file, smollm2, or demo"
        )
    if pasted and revision not in (None, pasted):
        raise InputError(f"{model_id} names the revision {pasted} and --revision {revision}; give one of them")
    try:
        return _from_hub(name, revision or pasted, weights=weights, transfer=transfer)
    except Stopped:
        fetched, total, _ = transfer.progress if transfer else (0, None, None)
        how = "before its weights; run again to start it anew"
        if total:
            so_far = f"at {size_text(fetched)} of {size_text(total)}"
            how = f"{so_far}; what was fetched is kept, run again to go on from there"
        raise InputError(f"the download of {name} was stopped {how}") from None


def _local(model_id: str, path: Path) -> Checkpoint:
    if path.is_dir():
        names = [file.name for file in path.glob("*")]
        packed = None if any(name.endswith(".safetensors") for name in names) else gguf_files.only_gguf(model_id, names)
        return Checkpoint.of_gguf(model_id, path / packed) if packed else Checkpoint(model_id, path, None)
    if path.suffix.lower() == SUFFIX:
        gguf_files.check_whole(model_id, path.name)
        return Checkpoint.of_gguf(model_id, path)
    raise InputError(
        f"{model_id} is a file; give the model folder that holds config.json and *.safetensors, or a GGUF file"
    )


def _from_hub(name: str, revision: str | None, *, weights: bool, transfer: Transfer | None) -> Checkpoint:
    from huggingface_hub import constants

    model_id, packed = name, None
    if name.endswith(SUFFIX):
        model_id, _, packed = name.rpartition("/")
        gguf_files.check_whole(name, packed)
    # A commit that is known needs no answer from the hub where its files are in the cache.
    key = (str(constants.HF_HUB_CACHE), model_id, revision)
    since, known = _commits.get(key, (0.0, None))
    if time.monotonic() - since > _REMEMBERED_S:
        known = None
    # Not a snapshot of everything, which would fetch a second copy of many checkpoints.
    folder = _download(model_id, known or revision, list(SMALL_FILES), transfer)
    if not known:
        _commits[key] = (time.monotonic(), folder.name)
    checkpoint = Checkpoint(model_id, folder, folder.name)
    names = [packed] if packed else weight_names(checkpoint)
    complete = all((folder / name).is_file() for name in names)
    untold = not (folder / "config.json").is_file() or (folder / ADAPTER).is_file()
    if not packed and (untold or (weights and not complete)):
        listed = _listed(checkpoint) or {file.name for file in folder.iterdir()}
        problem = explained(model_id, listed, folder / ADAPTER)
        if problem:
            raise problem
        if not any(name.endswith(".safetensors") for name in listed):
            packed = gguf_files.only_gguf(model_id, listed)
        if packed:
            names, complete = [packed], (folder / packed).is_file()
    if (weights or packed) and not complete:
        if not packed and _SINGLE not in names and _SINGLE in _listed(checkpoint):
            raise _two_sets(model_id)
        full = downloads.no_room(model_id, names, folder, 0 if transfer is None else parts.kept_bytes(folder))
        if full is not None:
            raise InputError(f"{full.found}; {full.next_step}")
        _download(model_id, folder.name, names, transfer, snapshot=folder)
        parts.forget_parts(folder)
        _commits[key] = (time.monotonic(), folder.name)  # whoever fetched it for hours loads it, not a newer one
    if packed and not (folder / packed).is_file():
        others = sorted(other for other in _listed(checkpoint) if other.endswith(SUFFIX))
        raise InputError(f"{model_id} holds no file {packed}; it has {', '.join(others) or 'no GGUF file'}")
    return Checkpoint.of_gguf(name, folder / packed, folder.name) if packed else checkpoint


def explained(model_id: str, names: Collection[str], adapter: Path | None = None) -> InputError | None:
    """The error for a repository or folder with these files (paths within it), None where nothing is known to be wrong
    with it; an adapter beside whole weights, which may or may not have it in them, is one too. adapter: its
    `adapter_config.json` where that is here."""
    files = sorted(Path(name).name for name in names)
    whole = [name for name in files if name.endswith(".safetensors") and not name.startswith("adapter_")]
    if ADAPTER in files:
        if whole and "config.json" in files:
            return InputError(f"{model_id} holds an adapter beside its weights; merge it first, or remove the adapter")
        return InputError(
            f"{model_id} is an adapter without its base model{_base(adapter)}; "
            "merge it into the base model (peft: merge_and_unload), save the result, and give that folder"
        )
    if whole:
        return None
    pickles = [name for name in files if name.endswith(_PICKLES) and name not in _NO_WEIGHTS]
    if pickles:
        return InputError(
            f"{model_id} has its weights only as {pickles[0]}, which this software does not load (pickle can run "
            "code); save it once as safetensors, model.save_pretrained(FOLDER), and give FOLDER"
        )
    return None


def _base(adapter: Path | None) -> str:
    try:
        content = bounds.json_of(adapter) if adapter else {}
    except (OSError, ValueError):
        content = {}
    base = content.get("base_model_name_or_path") if isinstance(content, dict) else None
    return f" {base}" if isinstance(base, str) and base else ""


def _two_sets(model_id: str) -> InputError:
    return InputError(
        f"{model_id} holds two sets of weights, {_SINGLE} and the files of {WEIGHT_INDEX}, and only one can be the "
        "model; give a folder with one of them"
    )


def _listed(checkpoint: Checkpoint) -> set[str]:
    """Names of the files of a hub model's top folder; none where they are not known."""
    return {name for name in downloads.listed_bytes(checkpoint.id, checkpoint.folder.name) or () if "/" not in name}


def weight_names(checkpoint: Checkpoint) -> list[str]:
    """Names of a checkpoint's weight files within its folder, whether they are there or not."""
    if checkpoint.gguf is not None:
        return [str(checkpoint.gguf.absolute())]
    index = checkpoint.folder / WEIGHT_INDEX
    return _shard_names(index, checkpoint.id) if index.is_file() else [_SINGLE]


def _download(
    model_id: str, revision: str | None, names: list[str], transfer: Transfer | None, *, snapshot: Path | None = None
) -> Path:
    """snapshot: where the small files of the model are, when its weights are to follow."""
    from huggingface_hub.errors import OfflineModeIsEnabled

    try:
        if snapshot is not None and transfer is not None:
            parts.fetch_parts(model_id, names, snapshot, transfer)
        return downloads.fetch_files(model_id, names, revision=revision, transfer=transfer)
    except hub_errors() as error:
        # Offline, huggingface_hub 1.33 asks what a commit consists of that another version has put into the cache.
        offline = isinstance(error, OfflineModeIsEnabled)
        if offline and (kept := downloads.in_the_cache(model_id, names, revision)) is not None:
            return kept
        raise model_failure(model_id, error, revision, partly=snapshot is not None) from None


def _shard_names(index: Path, model_id: str) -> list[str]:
    """Names of the weight files that an index lists; plain names only, so that nothing outside is read."""
    weight_map = _read_json(index, model_id).get("weight_map")
    listed = list(weight_map.values()) if isinstance(weight_map, dict) else []
    names = sorted({name for name in listed if isinstance(name, str) and re.fullmatch(r"[\w.-]+\.safetensors", name)})
    if not names or not all(isinstance(name, str) and name in names for name in listed):
        raise InputError(
            f"{model_id}: {WEIGHT_INDEX} lists no usable weight files; expected names of safetensors beside it"
        )
    return names


def _begins_an_object(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(64).lstrip().startswith(b"{")


def _read_json(path: Path, model_id: str) -> dict[str, Any]:
    try:
        content = bounds.json_of(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{model_id}: {path.name} cannot be read as JSON ({error}); repair or copy it again") from None
    if not isinstance(content, dict):
        raise InputError(f"{model_id}: {path.name} holds a {type(content).__name__}; expected a JSON object")
    return content


def _sha256_of_texts(texts: Any) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def check_sizes(config: dict[str, Any], model_id: str) -> None:
    """`InputError` where a configuration is nested too deep, holds NaN, or asks for more than any model has. Sizes are
    known by their names; what is no size is left to the library that reads it."""
    for path, inner in _objects(config, model_id):
        layers, experts = 1, 0
        for key, value in inner.items():
            where = f"{model_id}: config.json has {'.'.join((*path, key))}"
            if isinstance(value, list) and _PER_LAYER.search(key) and len(value) > MOST_LAYERS:
                raise InputError(f"{where} of {len(value):,} entries; expected at most {MOST_LAYERS:,}: {_REMEDY}")
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if math.isnan(value) or (math.isinf(value) and _FINITE.search(key)):
                raise InputError(f"{where} = {value}; expected a finite number: {_REMEDY}")
            if _BASE.search(key) and value <= 0:
                raise InputError(f"{where} = {value}; expected a number above 0: {_REMEDY}")
            if not isinstance(value, int):
                continue
            if _LAYERS.search(key):
                layers = max(layers, _bounded(value, MOST_LAYERS, where))
            elif _EXPERTS.search(key):
                experts = max(experts, _bounded(value, MOST_EXPERTS, where))
            elif _SIZES.search(key):
                _bounded(value, LARGEST, where)
            elif _POSITIONS.search(key):
                _bounded(value, MOST_POSITIONS, where)
        if layers * experts > MOST_EXPERTS:
            raise InputError(
                f"{model_id}: config.json asks for {experts:,} experts in each of {layers:,} layers; expected at most "
                f"{MOST_EXPERTS:,} in all: {_REMEDY}"
            )


def _bounded(value: int, most: int, where: str) -> int:
    if not -1 <= value <= most:  # -1 stands for "none" in some families
        shown = f"{value:,}" if abs(value) < 10**15 else "a number of more than 15 digits"
        raise InputError(f"{where} = {shown}; expected at most {most:,} and nothing below 0: {_REMEDY}")
    return value


def _objects(config: dict[str, Any], model_id: str) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Every object inside a configuration with the keys that lead to it. Without recursion: it may be very deep."""
    waiting: list[tuple[tuple[str, ...], Any]] = [((), config)]
    while waiting:
        path, value = waiting.pop()
        if len(path) > DEEPEST:
            raise InputError(
                f"{model_id}: config.json is nested more than {DEEPEST} deep; expected a configuration as "
                "save_pretrained writes it, copy the checkpoint again"
            )
        if isinstance(value, dict):
            yield path, value
            waiting += [((*path, str(key)), inner) for key, inner in value.items()]
        elif isinstance(value, list):
            waiting += [((*path, str(place)), inner) for place, inner in enumerate(value)]
