"""Is a checkpoint what it says it is, its tokenizer that of its files, and can it compute? Said before any number is
made of it."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from engine.models import untrusted
from engine.models.checkpoints import WEIGHT_INDEX, Checkpoint
from engine.models.gguf_header import read_header
from engine.models.gguf_weights import stored_names
from engine.models.skeletons import first_line, quiet
from engine.records.errors import InputError, is_out_of_memory

_FLOATS = ("F16", "BF16", "F32", "F64")  # by safetensors' names; others are packed, or no weights
_FEW = 2**28  # parameters: a model of so few is loaded, and what is wrong with it named by its weights
_PACKED = 8  # as many parameters are stored in one number where they are packed
_TIMES = 4  # as many parameters as are stored: tied and repeated ones explain less


def check_stored(checkpoint: Checkpoint, skeleton: nn.Module) -> None:
    """`InputError` where weights are stored as whole numbers or in eight bits, which would load as if they were the
    numbers that were meant, where the configuration asks for many times what is stored, and where shards contradict
    each other. Reads the files' headers, and tensors that stand in two. Of a GGUF file: `stored_names`."""
    if checkpoint.gguf is not None:
        stored_names(read_header(checkpoint.gguf, checkpoint.id), skeleton, checkpoint.id)
        return
    packed = checkpoint.dequantized_from
    stored, parameters = 0, {name for name, _ in skeleton.named_parameters()}
    body = f"{getattr(skeleton, 'base_model_prefix', '')}."
    places: dict[str, list[tuple[str, Path]]] = {}
    for file in checkpoint.weight_files():
        try:
            with safe_open(file, framework="pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118 it is no mapping
                    places.setdefault(_bare(name, body), []).append((name, file))
                    part = tensors.get_slice(name)
                    shape, kind = part.get_shape(), part.get_dtype()
                    stored += math.prod(shape) * (_PACKED if packed else 1)
                    if (
                        kind not in _FLOATS and not packed and (name in parameters or name.endswith(".weight"))
                    ):  # not: a mask, positions
                        raise InputError(
                            f"{checkpoint.id}: {name} in {file.name} is stored as {kind}; expected "
                            f"{', '.join(_FLOATS)}, since rows of packed weights cannot be scored or removed exactly: "
                            "give the unquantized checkpoint"
                        )
        except (OSError, SafetensorError):
            return
    _check_shards(checkpoint, places)
    wanted = sum(parameter.numel() for parameter in skeleton.parameters())
    if wanted > max(_FEW, _TIMES * stored):
        raise InputError(
            f"{checkpoint.id}: its config.json describes a model of {wanted:,} parameters, its files hold {stored:,}; "
            "they do not belong together, copy the checkpoint again"
        )


def _bare(name: str, body: str) -> str:
    """A tensor's name without the name of the model's body, with and without which transformers reads it."""
    while len(body) > 1 and name.startswith(body):
        name = name.removeprefix(body)
    return name


def _check_shards(checkpoint: Checkpoint, places: Mapping[str, list[tuple[str, Path]]]) -> None:
    """`InputError` where weight files and their index do not say the same: transformers reads every tensor of every
    shard, one of several wins, and it never looks into the index."""
    index = checkpoint.shard_index()
    for stored in places.values():
        (name, file), *more = stored
        if not more and not name.endswith((".weight", ".bias")):
            continue  # masks and positions of old versions, which nobody reads, and which some indices leave out
        if more and not _same(stored):
            what = f"{name} in {file.name} has other values than {more[0][0]} in {more[0][1].name}"
        elif index and name not in index:
            what = f"{name} is in {file.name} and not in {WEIGHT_INDEX}"
        elif index and not any(index.get(named) == one.name for named, one in stored):
            what = f"{name} is in {file.name}, and {WEIGHT_INDEX} says in {index[name]}"
        else:
            continue
        raise InputError(
            f"{checkpoint.id}: its weight files contradict each other: {what}; files of two checkpoints stand in one "
            "folder, or one was changed alone: copy the whole checkpoint again into an empty folder"
        )


def _same(stored: list[tuple[str, Path]]) -> bool:
    values = []
    for name, file in stored:
        with safe_open(file, framework="pt") as tensors:
            values.append(tensors.get_tensor(name))
    return all(one.dtype == values[0].dtype and torch.equal(one, values[0]) for one in values[1:])


def check_weights(model: nn.Module, model_id: str) -> None:
    """`InputError` where a parameter holds NaN or an infinity, with the first one's name. One pass over the weights."""
    broken = [(name, one) for name, one in model.named_parameters() if not one.is_meta and not _finite(one)]
    if not broken:
        return
    name, parameter = broken[0]
    wrong = int((~torch.isfinite(parameter.detach())).sum())
    remedy = "copy the checkpoint again"
    if parameter.dtype == torch.float16:
        remedy = "numbers beyond 65,504 do not fit float16: use --dtype bfloat16 or float32, or " + remedy
    raise InputError(
        f"{model_id}: {len(broken)} weights hold NaN or infinity, the first {name} in {wrong:,} of "
        f"{parameter.numel():,} places; every number would be wrong: {remedy}"
    )


def _finite(tensor: Tensor) -> bool:
    values = tensor.detach()
    if not values.numel() or not values.is_floating_point():
        return True
    if values.device.type not in ("cpu", "cuda"):
        return bool(torch.isfinite(values).all())
    return all(math.isfinite(end.item()) for end in torch.aminmax(values))  # without a copy; NaN comes through


def check_pass(model: Any, device: torch.device, model_id: str) -> None:
    """`InputError` where the model cannot pass two tokens, or gives NaN for them. `MemoryError`s go on."""
    rows = int(model.get_input_embeddings().weight.shape[0])
    ids = torch.tensor([[1 % rows, 2 % rows]], device=device)
    try:
        with quiet(), torch.no_grad():
            logits = model(input_ids=ids, use_cache=False).logits
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise InputError(
            f"{model_id} cannot compute with its configuration ({first_line(error)}); correct config.json, copy the "
            "checkpoint again, or give another --dtype or --device"
        ) from None
    if logits.isnan().any():
        raise InputError(
            f"{model_id} gives NaN for its first tokens in {str(model.dtype).removeprefix('torch.')}; correct "
            "config.json, copy the checkpoint again, or give --dtype bfloat16 or float32"
        )


FILE = "tokenizer.json"
_FIRST = 3  # tokens at the beginning that may differ: a class may put a blank before a text
# Digits, blanks, lines, code, accents, other scripts, contractions. No combining marks: classes may compose them.
PROBE = """In 1998 it sold 123456 units, at 3.14 each; it's theirs, they'll SAY, aren't they?

\n  def area(width, height_m2=7):\n\t\treturn {"x_y": width**2, 'n': [1, 2]}  # naïve
Émigré café, ÅNGSTRÖM, Größe, señor   and  more    blanks.
HelloWorld camelCase snake_case CAPITALS http://example.org/a?b=c&d=%20 <b>bold</b>\r
👍🏽 ☃ 日本語の文です。 한국어 문장 Привет, мир! مرحبا नमस्ते … “quoted” – end"""


def probed(checkpoint: Checkpoint) -> untrusted.Encoded | None:
    """`PROBE` by tokenizer.json itself; None where there is none that can be read.
    `InputError` where trying it out takes more than it may: nothing else has read the file until then."""
    file = checkpoint.folder / FILE
    if not file.is_file():
        return None
    try:
        return untrusted.encoded(str(file.resolve()), PROBE)
    except untrusted.OverLimit as error:
        raise InputError(
            f"{checkpoint.id}: the tokenizer of {FILE} {error} for a page of text; expected one that grows a text by "
            "little, save the model's own beside it"
        ) from None


def check_class(tokenizer: Any, wanted: untrusted.Encoded | None, model_id: str) -> None:
    """`InputError` where the class that transformers chose, which rebuilds normalizer, pre-tokenizer and decoder by its
    own rules, cuts a text otherwise than tokenizer.json does; but for a blank at its beginning, which is a setting."""
    if wanted is None or not getattr(tokenizer, "is_fast", False):
        return
    ids = list(tokenizer(PROBE, add_special_tokens=False, verbose=False)["input_ids"])
    others = [token for token, number in wanted.added.items() if tokenizer.convert_tokens_to_ids(token) != number]
    what = ""
    if _differ(wanted.ids, ids):
        what = f"cuts a page of text into {len(ids)} tokens, its {FILE} into {len(wanted.ids)} other ones"
    elif others:
        what = f"gives {others[0]!r} another id than its {FILE}"
    if what:
        raise InputError(
            f"{model_id}: the class {type(tokenizer).__name__}, which transformers takes here, {what}; set "
            '"tokenizer_class": "PreTrainedTokenizerFast" in tokenizer_config.json, or save the model\'s own tokenizer'
        )


def _differ(ids: list[int], others: list[int]) -> bool:
    """Do they differ behind the first tokens?"""
    same = 0
    for one, other in zip(reversed(ids), reversed(others), strict=False):
        if one != other:
            break
        same += 1
    return max(len(ids), len(others)) - same > _FIRST


def check_vocabulary(tokenizer: Any, embeddings: Any, model_id: str) -> None:
    """`InputError` where the tokenizer gives ids that the embeddings do not have: not for special tokens that no text
    gives, of other modalities or a pad, but for those that begin or end a text or that the chat template mentions."""
    rows = int(embeddings.weight.shape[0])
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    beyond = {token: number for token, number in vocabulary.items() if number >= rows}
    if not beyond:
        return
    unread = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    template = str(tokenizer.chat_template or "")
    unread -= {tokenizer.bos_token, tokenizer.eos_token}
    wrong = sorted((number, token) for token, number in beyond.items() if token not in unread or token in template)
    if wrong:
        raise InputError(
            f"{model_id}: its tokenizer has {len(wrong):,} tokens with ids up to {wrong[-1][0]:,} ({wrong[-1][1]!r}), "
            f"its embeddings have {rows:,} rows; the tokenizer is another model's, or the embeddings were not resized "
            "for the tokens that were added: save the model's own beside it"
        )
