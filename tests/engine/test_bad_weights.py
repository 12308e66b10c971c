"""Weights and tokenizers that are damaged, odd, or another model's: found and said before any score."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from bad_inputs import changed, model_copy, raw_safetensors, refused, run
from relatives import relatives
from safetensors.torch import load_file, save_file
from tiny_models import save_tiny

pytestmark = pytest.mark.usefixtures("one_parser")

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
SMALL = ("--samples", "2", "--max-length", "16", "--selectors", "magnitude")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny("llama", tmp_path_factory.mktemp("saved"))


@pytest.fixture
def said(saved, tmp_path, tiny_text, capfd):
    """Spoil a copy of the checkpoint, score it, and give the one line; nothing may be written."""

    def line(spoil) -> str:
        folder = model_copy(saved, tmp_path)
        spoil(folder)
        out = tmp_path / "out"
        words = (*SMALL, "--store", tmp_path / "store", "--corpus", tiny_text, "--out", out)
        found = refused(capfd, "score", folder, *words)
        assert not list(out.glob("*"))
        return found

    return line


def edited(edit):
    def spoil(folder: Path) -> None:
        weights = load_file(folder / WEIGHTS)
        edit(weights)
        save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})

    return spoil


# Numbers that are none

PLACES = (
    "model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight", "model.layers.1.self_attn.o_proj.weight",
    "model.layers.0.mlp.gate_proj.weight", "model.layers.1.mlp.down_proj.weight",
    "model.layers.1.input_layernorm.weight",
    "model.norm.weight", "lm_head.weight",
)  # fmt: skip


@pytest.mark.first_run("-nan|embed_tokens.*inf")
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", PLACES)
def test_one_number_of_the_weights_is_none(name, value, said):
    def spoil(weights):
        weights[name].view(-1)[-1] = value

    line = said(edited(spoil))
    assert f"1 weights hold NaN or infinity, the first {name} in 1 of " in line


def test_all_weights_are_nan(said):
    def spoil(weights):
        for tensor in weights.values():
            tensor.fill_(float("nan"))

    assert "21 weights hold NaN or infinity" in said(edited(spoil))


def test_finite_numbers_that_float16_cannot_hold(saved, tmp_path, tiny_text, capfd):
    folder = model_copy(saved, tmp_path)

    def spoil(weights):
        weights["lm_head.weight"][3, 4] = 1e6

    edited(spoil)(folder)
    words = ("score", folder, *SMALL, "--corpus", tiny_text, "--store", tmp_path / "store")
    assert "do not fit float16: use --dtype bfloat16 or float32" in refused(capfd, *words, "--dtype", "float16")
    assert run(*words, "--dtype", "bfloat16") == 0


# Files


def header(text: bytes, length: int | None = None):
    return lambda folder: (folder / WEIGHTS).write_bytes(
        struct.pack("<Q", len(text) if length is None else length) + text
    )


def as_folder(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).mkdir()


def as_link(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / WEIGHTS).symlink_to(folder / WEIGHTS)


def index(content: object):
    def spoil(folder: Path) -> None:
        (folder / WEIGHTS).rename(folder / "shard.safetensors")
        (folder / INDEX).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")

    return spoil


DAMAGED = {
    "cut": lambda folder: (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-100]),
    "cut in the header": lambda folder: (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:100]),
    "longer": lambda folder: (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes() + b"\0" * 8),
    "empty": lambda folder: (folder / WEIGHTS).write_bytes(b""),
    "zeros": lambda folder: (folder / WEIGHTS).write_bytes(bytes(4096)),
    "a web page": lambda folder: (folder / WEIGHTS).write_bytes(b"<!DOCTYPE html><html>Sign in</html>"),
    "a pickle": lambda folder: (folder / WEIGHTS).write_bytes(b"\x80\x04\x95cos\nsystem\n"),
    "gone": lambda folder: (folder / WEIGHTS).unlink(), "a folder": as_folder, "a link to itself": as_link,
    "a header of 2^60 bytes": header(b"{}", 2**60), "a header of nothing": header(b""),
    "a header that is null": header(b"null"), "a header that is a list": header(b"[]"),
    "a deep header": header(b'{"a":' * 50_000), "a header of no tensors": header(b"{}"),
    "offsets beyond the end": header(b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}'),
    "offsets below zero": header(b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[-16,0]}}'),
    "a shape of 10^30": header(b'{"a":{"dtype":"F32","shape":[1000000000000000000000000000000],"data_offsets":[0,0]}}'),
    "an unknown kind": header(b'{"a":{"dtype":"F31","shape":[0],"data_offsets":[0,0]}}'),
    "an index that is null": index("null"), "an index that is a list": index([]), "an index of nothing": index({}),
    "an index that is half": index('{"weight_map": {'), "a deep index": index('{"weight_map":' * 100_000),
    "a map that is a list": index({"weight_map": ["shard.safetensors"]}),
    "a map to numbers": index({"weight_map": {"lm_head.weight": 3}}),
    "a map to lists": index({"weight_map": {"lm_head.weight": ["shard.safetensors"]}}),
    "a map out of the folder": index({"weight_map": {"lm_head.weight": "../../shard.safetensors"}}),
    "a map to a pickle": index({"weight_map": {"lm_head.weight": "pytorch_model.bin"}}),
    "a map to a shard that is not there": index({"weight_map": {"lm_head.weight": "other.safetensors"}}),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file(name, said):
    said(DAMAGED[name])


SHAPE = [28, 20]  # of an up_proj
KINDS = {"I8": 1, "U8": 1, "BOOL": 1, "I16": 2, "I32": 4, "I64": 8, "F8_E4M3": 1, "F8_E5M2": 1}


@pytest.mark.parametrize("kind", KINDS)
def test_packed_weights_are_not_taken_for_numbers(kind, said):
    """Whole numbers and eight-bit ones would load, as other weights than were meant."""
    name = "model.layers.0.mlp.up_proj.weight"

    def spoil(folder: Path) -> None:
        tensors = {
            other: ("F32", list(tensor.shape), tensor.numpy().tobytes())
            for other, tensor in load_file(folder / WEIGHTS).items()
        }
        tensors[name] = (kind, SHAPE, b"\1" * (KINDS[kind] * 28 * 20))
        (folder / WEIGHTS).write_bytes(raw_safetensors(tensors, {"format": "pt"}))

    assert f"{name} in {WEIGHTS} is stored as {kind}; expected F16, BF16, F32, F64" in said(spoil)


def test_positions_and_masks_as_whole_numbers_are_no_weights(saved, tmp_path):
    """Older checkpoints of other families hold them beside their weights: that they are surplus is another matter."""
    from engine.models.checkpoints import find_checkpoint
    from engine.models.skeletons import skeleton
    from engine.models.sound import check_stored

    folder = model_copy(saved, tmp_path)
    edited(lambda w: w.update({"vision.position_ids": torch.arange(9)[None], "attn.bias": torch.ones(4, 4).bool()}))(
        folder
    )
    checkpoint = find_checkpoint(str(folder))
    check_stored(checkpoint, skeleton(checkpoint))


OTHER_WEIGHTS = {
    "one missing": lambda w: w.pop("model.norm.weight"),
    "one too many": lambda w: w.update({"model.layers.0.mlp.up_proj.bias": torch.zeros(28)}),
    "one of another shape": lambda w: w.update({"lm_head.weight": torch.zeros(300, 19)}),
    "one transposed": lambda w: w.update({"lm_head.weight": w["lm_head.weight"].T.contiguous()}),
    "one flat": lambda w: w.update({"lm_head.weight": w["lm_head.weight"].flatten()}),
    "one empty": lambda w: w.update({"lm_head.weight": torch.zeros(0, 20)}),
    "one scalar": lambda w: w.update({"model.norm.weight": torch.tensor(1.0)}),
    "all under other names": lambda w: [w.update({f"x.{name}": w.pop(name)}) for name in list(w)],
    "none": lambda w: w.clear(),
}


@pytest.mark.parametrize("name", OTHER_WEIGHTS)
def test_weights_of_another_model(name, said):
    said(edited(OTHER_WEIGHTS[name]))


def test_sizes_far_beyond_what_is_stored_are_refused_before_room_is_made(said):
    line = said(lambda folder: changed(folder, "config.json", intermediate_size=9_000_000))
    assert "describes a model of 1,080," in line
    assert "its files hold " in line


# Tokenizers

CONTENTS = ("null", "[]", "{", "", "3", '"x"', "[1, 2]", "[" * 200_000, '{"a":' * 100_000, "\x00\x01")
OBJECTS = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json")


# One reader reads them all: every content as the first of them, and one content as each of the others.
SMALL_FILES = [(name, content) for name in OBJECTS for content in CONTENTS]
GUARDS = [(name, content) for name, content in SMALL_FILES if name == OBJECTS[0] or content == CONTENTS[0]]


@pytest.mark.parametrize("case", relatives(SMALL_FILES, GUARDS), ids=lambda case: f"{case[0]} {case[1][:9]!r}")
def test_a_small_file_that_is_no_object(case, said):
    name, content = case
    line = said(lambda folder: (folder / name).write_text(content, encoding="utf-8"))
    assert name in line


def tokenizer(edit):
    def spoil(folder: Path) -> None:
        content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        edit(content)
        (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")

    return spoil


def beyond(by: int):
    def edit(content: dict[str, Any]) -> None:
        content["model"]["vocab"] = {token: number + by for token, number in content["model"]["vocab"].items()}
        content["added_tokens"] = [{**one, "id": one["id"] + by} for one in content["added_tokens"]]

    return edit


TOKENIZERS = {
    "no model": lambda t: t.pop("model"),
    "a model that is null": lambda t: t.update(model=None),
    "a model that is a list": lambda t: t.update(model=[]),
    "a model of an unknown kind": lambda t: t["model"].update(type="Odd"),
    "no vocabulary": lambda t: t["model"].pop("vocab"),
    "a vocabulary that is null": lambda t: t["model"].update(vocab=None),
    "a vocabulary of texts": lambda t: t["model"].update(vocab={"a": "b"}),
    "a vocabulary of fractions": lambda t: t["model"].update(vocab={"a": 0.5}),
    "ids below zero": lambda t: t["model"].update(vocab={"a": -1}),
    "ids beyond 32 bits": lambda t: t["model"].update(vocab={"a": 2**40}),
    "merges of unknown tokens": lambda t: t["model"].update(merges=[["qqq", "zzz"]]),
    "merges that are numbers": lambda t: t["model"].update(merges=[3]),
    "an unknown pre-tokenizer": lambda t: t.update(pre_tokenizer={"type": "Odd"}),
    "an unknown normalizer": lambda t: t.update(normalizer={"type": "Odd"}),
    "a decoder that is a number": lambda t: t.update(decoder=3),
    "added tokens that are a text": lambda t: t.update(added_tokens="x"),
    "added tokens without text": lambda t: t.update(added_tokens=[{"id": 3}]),
    "a vocabulary beyond the embeddings": beyond(100),
    "a vocabulary far beyond the embeddings": beyond(1_000_000),
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_an_odd_tokenizer(name, said):
    said(tokenizer(TOKENIZERS[name]))


def test_a_vocabulary_of_nothing_gives_a_text_no_tokens(said):
    said(tokenizer(lambda t: (t["model"].update(vocab={}, merges=[]), t.update(added_tokens=[]))))


@pytest.mark.parametrize(
    "changes",
    [
        {"tokenizer_class": "OddTokenizer"}, {"tokenizer_class": 3}, {"model_max_length": "x"}, {"bos_token": 3},
        {"bos_token": {"content": 3}}, {"eos_token": ["x"]}, {"added_tokens_decoder": "x"},
        {"added_tokens_decoder": {"x": {"content": "y"}}}, {"chat_template": 3}, {"extra_special_tokens": 3},
        {"auto_map": {"AutoTokenizer": ["odd.Odd", None]}, "tokenizer_class": "Odd"},
    ],
    ids=lambda changes: repr(changes)[:40],
)  # fmt: skip
def test_an_odd_tokenizer_configuration(changes, saved, tmp_path, tiny_text, capfd):
    """Either one line, or the library passes over the entry and the scores are those without it."""
    folder = model_copy(saved, tmp_path)
    changed(folder, "tokenizer_config.json", **changes)
    words = ("score", folder, *SMALL, "--corpus", tiny_text, "--store", tmp_path / "store", "--out", tmp_path / "out")
    code = run(*words)
    _, err = capfd.readouterr()
    assert "Traceback" not in err
    if code:
        assert code == 2
        assert len(err.strip().splitlines()) == 1, err
        return
    base = model_copy(saved, tmp_path / "base")
    assert run("score", base, *words[2:-1], tmp_path / "base_out") == 0
    ours, theirs = (load_file(place / "scores.safetensors") for place in (tmp_path / "out", tmp_path / "base_out"))
    assert torch.equal(ours["magnitude"], theirs["magnitude"])
