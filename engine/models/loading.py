"""Load a model and its tokenizer by id and revision, safetensors only, ready to be scored and masked."""

import importlib.util
import inspect
import threading
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn

from engine.models.checkpoints import Checkpoint, find_checkpoint, quantization
from engine.models.downloads import Transfer
from engine.models.gguf_header import read_header
from engine.models.gguf_weights import unpacked_weights
from engine.models.memory import keep_freed_memory
from engine.models.products import numerics, offer_faster_products, without_plans
from engine.models.row_index import RowIndex
from engine.models.rows_of_modules import row_index
from engine.models.skeletons import auto_class, configuration, first_line, quiet, shortened, skeleton
from engine.models.sound import check_class, check_pass, check_stored, check_vocabulary, check_weights, probed
from engine.records.errors import InputError, is_out_of_memory, memory_needed, unknown
from engine.records.model_names import model_name
from engine.records.progress import Progress

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A model in eval mode without gradients on its weights, its tokenizer, and what identifies both.
    Whoever changes the weights for a while (`intervention.zeroed`) holds `lock` meanwhile."""

    model: Any  # a transformers PreTrainedModel
    tokenizer: Any  # a transformers PreTrainedTokenizerBase
    rows: RowIndex
    id: str
    revision: str | None  # commit of a hub model, None for a local folder
    weights_hash: str
    config_hash: str
    tokenizer_hash: str
    dtype: str  # "float32" or "bfloat16" ("float16" if asked for)
    device: str  # where the input goes: "cpu", "cuda", "cuda:1", "mps"
    dequantized_from: str | None = None  # how its weights are packed in its files: "Q4_1", "fp8"
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    @property
    def name(self) -> str:
        """What tables and titles call it: its id, of a local folder the folder's name."""
        return model_name({"id": self.id, "revision": self.revision, "dequantized_from": self.dequantized_from})

    @property
    def architecture(self) -> str:
        return type(self.model).__name__

    @property
    def numeric_fingerprint(self) -> dict[str, str]:
        """All of the model that can change a number: for cache keys. Its name is not part of it."""
        return {
            "weights_hash": self.weights_hash, "config_hash": self.config_hash, "tokenizer_hash": self.tokenizer_hash,
            "architecture": self.architecture, "rows": self.rows.signature(), "dtype": self.dtype,
            "device": self.device.partition(":")[0],
        }  # fmt: skip

    @property
    def fingerprint(self) -> dict[str, Any]:
        """The model's entry in a manifest: its name and revision, how its weights were packed if they were, all of
        `numeric_fingerprint`, and `numerics`: which attention it computes and torch's flags of determinism, which can
        change the last bits and are in no key."""
        named: dict[str, Any] = {"id": self.id, "revision": self.revision}
        if self.dequantized_from is not None:
            named["dequantized_from"] = self.dequantized_from
        return {**named, **self.numeric_fingerprint, "numerics": numerics(self.model, self.device)}


def load_model(
    model_id: str,
    *,
    revision: str | None = None,
    dtype: str = "auto",
    device: str = "auto",
    device_map: str | dict[str, Any] | None = None,
    progress: Progress | None = None,
) -> LoadedModel:
    """Load a decoder-only model for measurement.

    model_id: a Hugging Face id, a local folder, a GGUF file, a folder or hub model with one, `demo`, or `smollm2`.
    Multimodal checkpoints load whole; their row index covers the language model. Packed weights are loaded as the
    numbers that they stand for. No code from the checkpoint is run and no pickle is read.
    dtype: `auto` = bfloat16 on CUDA, float32 elsewhere. device: `auto` = CUDA if there is one, else CPU.
    device_map: `auto` or a map, for models larger than one card.

    Errors: whatever would make a different model from the one that was asked for (missing, surplus or
    misshapen weights, an adapter, packed weights that cannot be unpacked), weights that are NaN or infinite, a
    tokenizer with ids that the embeddings do not have, and every reason why it cannot be loaded or pass two tokens."""
    checked = checked_device(device)
    precision = _dtype(dtype, checked)
    if checked.type == "cpu":
        keep_freed_memory()
    without_plans(checked)
    checkpoint = fetch_model(model_id, revision=revision)
    if device_map is not None and importlib.util.find_spec("accelerate") is None:
        raise InputError("--device-map needs the package accelerate; install it: pip install 'selector-audit[sharded]'")
    tokenizer = _tokenizer(checkpoint)
    model = plain_weights(checkpoint, precision, device_map, progress)
    if device_map is None:
        with memory_needed(partial(_too_large, checkpoint.id, precision)):
            model.to(checked)
    elif any(parameter.is_meta for parameter in model.parameters()):
        raise InputError(
            f"{checkpoint.id} does not fit on the devices of --device-map, part of it would be offloaded and could not "
            "be edited; use more or larger devices, or --dtype bfloat16"
        )
    model.eval().requires_grad_(False)
    rows = row_index(model)
    if checked.type == "cpu":
        offer_faster_products(model)
    check_weights(model, checkpoint.id)
    check_vocabulary(tokenizer, model.get_input_embeddings(), checkpoint.id)
    with memory_needed(partial(_too_large, checkpoint.id, precision)):
        check_pass(model, input_device(model), checkpoint.id)
    device = str(input_device(model)) if device_map is not None else str(checked)
    return _identified(checkpoint, model, tokenizer, rows, precision, device, checkpoint.weights_hash())


def fetch_model(model_id: str, *, revision: str | None = None, transfer: Transfer | None = None) -> Checkpoint:
    """The files that `load_model` reads, fetched if need be. transfer: watches a download and may stop it.
    Errors: those that the configuration tells come before a long download; a stopped one is an `InputError`."""
    small = find_checkpoint(model_id, revision, weights=False, transfer=transfer)
    model = skeleton(small)
    row_index(model)
    _check_packed(small)
    checkpoint = find_checkpoint(model_id, revision, transfer=transfer)
    check_stored(checkpoint, model)
    return checkpoint


def load_sketch(
    model_id: str, *, revision: str | None = None, dtype: str = "auto", device: str = "auto"
) -> LoadedModel:
    """The model as far as configuration and tokenizer tell it, for checks before its weights are fetched: parameters on
    the meta device, an empty `weights_hash`; nothing can be measured with it. Errors: those of `load_model` that need
    no weights."""
    checked = checked_device(device)
    precision = _dtype(dtype, checked)
    checkpoint = find_checkpoint(model_id, revision, weights=False)
    model: Any = skeleton(checkpoint)
    _check_packed(checkpoint)
    tokenizer = _tokenizer(checkpoint)
    check_vocabulary(tokenizer, model.get_input_embeddings(), checkpoint.id)
    model.eval().requires_grad_(False)
    return _identified(checkpoint, model, tokenizer, row_index(model), precision, str(checked), "")


def _identified(
    checkpoint: Checkpoint, model: Any, tokenizer: Any, rows: RowIndex, dtype: torch.dtype, device: str, weights: str
) -> LoadedModel:
    """The model with what identifies it. weights: their hash."""
    hashes = (weights, checkpoint.config_hash(), checkpoint.tokenizer_hash())
    where = (str(dtype).removeprefix("torch."), device, checkpoint.dequantized_from)
    return LoadedModel(model, tokenizer, rows, checkpoint.id, checkpoint.revision, *hashes, *where)


def _check_packed(checkpoint: Checkpoint) -> None:
    """`InputError` where weights are packed in a way that transformers cannot unpack, before they are fetched."""
    if (packed := quantization(checkpoint.config())) is not None:
        _unpacking(packed, checkpoint.id)


def load_tokenizer(model_id: str, revision: str | None = None) -> Any:
    """The tokenizer alone, without the weights."""
    return _tokenizer(find_checkpoint(model_id, revision, weights=False))


def load_rows(model_id: str, revision: str | None = None) -> RowIndex:
    """The row index from the configuration alone: no weights are read, and none of a hub model downloaded."""
    return row_index(skeleton(find_checkpoint(model_id, revision, weights=False)))


def input_device(model: nn.Module) -> torch.device:
    """Where token ids go: the device of the input embeddings."""
    device: torch.device = model.get_input_embeddings().weight.device  # type: ignore[operator]
    return device


def checked_device(name: str) -> torch.device:
    """The device of that name; `auto` is CUDA if there is one, else the CPU. `InputError` if it is not here."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"unknown device {name!r}; expected auto, cpu, cuda, cuda:1 or mps") from None
    counts = {
        "cpu": 1,
        "cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0,
        "mps": int(torch.backends.mps.is_available()),
    }
    if (device.index or 0) >= counts.get(device.type, 0):
        usable = ", ".join(kind for kind, count in counts.items() if count)
        raise InputError(f"device {name!r} is not on this machine; available: {usable}; leave out --device to choose")
    return device


def _dtype(name: str, device: torch.device) -> torch.dtype:
    if name == "auto":
        bf16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.bfloat16 if bf16 else torch.float32
    if name not in DTYPES:
        raise unknown("dtype", name, ["auto", *DTYPES])
    return DTYPES[name]


def _tokenizer(checkpoint: Checkpoint) -> Any:
    from transformers import AutoTokenizer

    checkpoint.check_small_files()
    wanted = probed(checkpoint)
    with quiet():
        try:
            tokenizer = AutoTokenizer.from_pretrained(checkpoint.folder, trust_remote_code=False)  # nosec B615 # local
            ids = tokenizer("A text.")["input_ids"]
            if not ids or not all(isinstance(one, int) for one in ids):
                raise ValueError(f"it gives {shortened(repr(ids))} for a text, and no list of token ids")
        except BaseException as error:
            # tokenizers' own failures are no Exceptions.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            raise InputError(
                f"{checkpoint.id} has no tokenizer that can be loaded ({first_line(error)}); "
                "save one beside the model: tokenizer.save_pretrained(FOLDER)"
            ) from None
    check_class(tokenizer, wanted, checkpoint.id)
    return tokenizer


def plain_weights(
    checkpoint: Checkpoint,
    dtype: torch.dtype,
    device_map: str | dict[str, Any] | None = None,
    progress: Progress | None = None,
) -> Any:
    """The model with its weights as numbers of `dtype`, however its files pack them. Errors: InputError."""
    from transformers import GenerationConfig

    config = configuration(checkpoint)
    auto = auto_class(config, checkpoint.id)
    packed = quantization(checkpoint.config())
    method = str(checkpoint.dequantized_from)
    if packed is not None:
        config.quantization_config = _unpacking(packed, checkpoint.id)
    with quiet():
        try:
            source: dict[str, Any] = {
                "pretrained_model_name_or_path": checkpoint.folder, "trust_remote_code": False
            }  # fmt: skip
            if checkpoint.gguf is not None:  # the class itself takes weights from memory
                auto, header = auto._model_mapping[type(config)], read_header(checkpoint.gguf, checkpoint.id)
                weights = unpacked_weights(header, skeleton(checkpoint), dtype, checkpoint.id, progress)
                source = {"pretrained_model_name_or_path": None, "state_dict": weights}
            model, info = auto.from_pretrained(
                **source,
                config=config,
                dtype=dtype,
                device_map=device_map,
                use_safetensors=True,
                ignore_mismatched_sizes=True,  # they are an error below, which names them
                output_loading_info=True,
            )
            if checkpoint.gguf is not None:
                model.generation_config = GenerationConfig.from_pretrained(checkpoint.folder)  # nosec B615 # local
        except InputError:
            raise
        except Exception as error:
            if is_out_of_memory(error):
                raise _too_large(checkpoint.id, dtype, error) from None
            if packed is not None:
                raise _failed(checkpoint.id, method, error) from None
            raise InputError(
                f"{checkpoint.id} cannot be loaded: {first_line(error)}; copy the checkpoint again"
            ) from None
    wrong = {
        "missing": sorted(info["missing_keys"]),
        "not part of the architecture": sorted(info["unexpected_keys"]),
        "of another shape": sorted(entry[0] for entry in info["mismatched_keys"]),
    }
    if info["error_msgs"]:
        first_message = shortened(str(info["error_msgs"][0]).partition("\n")[0])
        raise InputError(f"{checkpoint.id} cannot be loaded: {first_message}; copy the checkpoint again")
    for what, names in wrong.items():
        if names:
            raise InputError(
                f"{checkpoint.id}: {len(names)} weights are {what}, the first {names[0]}; the checkpoint does not "
                f"belong to its config.json ({type(model).__name__}), so the numbers would be another model's"
            )
    return model if packed is None else _unpacked(model, skeleton(checkpoint), dtype, method, checkpoint.id)


def _too_large(model_id: str, dtype: torch.dtype, error: BaseException) -> InputError:
    smaller = "" if dtype.itemsize < 4 else "--dtype bfloat16, "
    return InputError(
        f"{model_id} does not fit on the device ({first_line(error)}); "
        f"use {smaller}a larger device, or --device-map auto over several"
    )


def _unpacking(packed: dict[str, Any], model_id: str) -> dict[str, Any]:
    """The `quantization_config` under which transformers unpacks weights that config.json says to be packed (fp8,
    bitsandbytes, …). Errors: InputError where it cannot."""
    from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING, AUTO_QUANTIZER_MAPPING
    from transformers.quantizers.base import HfQuantizer

    method = str(packed.get("quant_method", "an unknown method"))
    name = f"bitsandbytes_{4 if packed.get('load_in_4bit') else 8}bit" if method == "bitsandbytes" else method
    quantizer: Any = AUTO_QUANTIZER_MAPPING.get(name)
    settings: Any = AUTO_QUANTIZATION_CONFIG_MAPPING.get(name)
    if quantizer is None or settings is None:
        raise _not_here(model_id, method, "the installed transformers does not know this way")
    if "dequantize" in inspect.signature(settings).parameters:
        return {**packed, "dequantize": True}
    if quantizer._dequantize is HfQuantizer._dequantize:
        raise _not_here(model_id, method, "transformers has no `dequantize` for it")
    return packed


def _unpacked(model: Any, shapes: nn.Module, dtype: torch.dtype, method: str, model_id: str) -> Any:
    """The model with its weights as numbers of `dtype`. Errors: InputError where one of them is not such a number."""
    if getattr(model, "is_quantized", False):
        try:
            with quiet():
                model = model.dequantize()
        except Exception as error:
            raise _failed(model_id, method, error) from None
    model.to(dtype)
    expected = {name: weight.shape for name, weight in shapes.named_parameters()}
    numbers = {name: weight.shape for name, weight in model.named_parameters() if weight.dtype == dtype}
    if odd := sorted(expected.items() ^ numbers.items()):
        raise _not_here(model_id, method, f"{odd[0][0]} stays packed")
    return model


def _failed(model_id: str, method: str, error: Exception) -> InputError:
    """Loading failed, which it may not elsewhere: on another device, or with a package that is missing here."""
    elsewhere = ", or unpack it on another machine: model.dequantize(), then model.save_pretrained(FOLDER)"
    return _not_here(model_id, method, first_line(error), elsewhere)


def _not_here(model_id: str, method: str, why: str, elsewhere: str = "") -> InputError:
    return InputError(
        f"{model_id} is quantized ({method}), and its weights cannot be unpacked here: {why}; give the unquantized "
        f"checkpoint{elsewhere}"
    )
