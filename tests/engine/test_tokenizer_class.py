"""The tokenizer is the one of its files, and the model has a row for every id that it gives."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from bad_inputs import changed
from relatives import relatives
from tiny_models import TOKENS, VOCABULARY, save_tiny, tiny_tokenizer
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AddedToken, PreTrainedTokenizerFast

from engine.measures.generation import checked_prompt
from engine.models.loading import load_model, load_sketch, load_tokenizer
from engine.models.sound import PROBE
from engine.records.errors import InputError

DIGITS = Regex(r"\p{N}{1,3}|[^\p{N}]+")
SPECIAL = ["<bos>", "<eos>", "<pad>", "<unk>", "<|user|>", "<|assistant|>"]


def bytes_of(split: pre_tokenizers.PreTokenizer | None = None, **options: bool) -> Tokenizer:
    backend = Tokenizer(models.BPE())
    level = pre_tokenizers.ByteLevel(**{"add_prefix_space": False, **options})
    backend.pre_tokenizer = pre_tokenizers.Sequence([split, level]) if split else level
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator([PROBE, "1998 123456 a  b\n\n\n"] * 20, trainer)
    return backend


def pieces_of() -> Tokenizer:
    """As sentencepiece models convert to."""
    backend = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokens = [*SPECIAL, *(f"<0x{number:02X}>" for number in range(256))]
    backend.train_from_iterator(
        [PROBE] * 20, trainers.BpeTrainer(vocab_size=700, special_tokens=tokens, show_progress=False)
    )
    kept = json.loads(backend.to_str())
    kept["model"]["byte_fallback"] = True
    kept["added_tokens"] = [one for one in kept["added_tokens"] if not one["content"].startswith("<0x")]
    return Tokenizer.from_str(json.dumps(kept))


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "bytes": bytes_of,
    "digits by threes": lambda: bytes_of(pre_tokenizers.Split(DIGITS, "isolated")),
    "digits one by one": lambda: bytes_of(pre_tokenizers.Digits(individual_digits=True)),
    "a blank before": lambda: bytes_of(add_prefix_space=True),
    "pieces": pieces_of,
}


def saved(folder: Path, kind: str, tokenizer_class: str) -> str:
    PreTrainedTokenizerFast(tokenizer_object=KINDS[kind](), bos_token="<bos>", eos_token="<eos>").save_pretrained(
        folder
    )
    changed(folder, "tokenizer_config.json", tokenizer_class=tokenizer_class)
    (folder / "config.json").write_text('{"model_type": "llama"}', encoding="utf-8")
    return str(folder)


CLASSES = (
    "PreTrainedTokenizerFast", "LlamaTokenizer", "LlamaTokenizerFast", "CodeLlamaTokenizerFast", "GemmaTokenizer",
    "GemmaTokenizerFast", "Qwen2Tokenizer", "Qwen2TokenizerFast", "GPT2Tokenizer", "GPT2TokenizerFast",
    "GPTNeoXTokenizerFast", "BloomTokenizerFast", "T5TokenizerFast", "XLMRobertaTokenizerFast", "BertTokenizerFast",
    "RobertaTokenizerFast", "BartTokenizerFast", "CohereTokenizerFast", "OpenAIGPTTokenizerFast",
)  # fmt: skip


@pytest.mark.parametrize("kind", relatives(KINDS, ("digits by threes", "pieces")))
def test_every_class_gives_the_ids_of_its_file_or_is_refused(kind, tmp_path):
    """Up to a blank before the text, which classes may add."""
    same, refused = [], []
    for name in CLASSES:
        folder = saved(tmp_path / name, kind, name)
        raw = Tokenizer.from_file(f"{folder}/tokenizer.json")
        try:
            tokenizer = load_tokenizer(folder)
        except InputError:
            refused.append(name)
            continue
        same.append(name)
        for text in ("In 1998 it sold 123456 units,\n\n\n  def f(x): return 'naïve'", "A  b\t\tc 12345 CAMELcase it's"):
            wanted, got = raw.encode(text, add_special_tokens=False).ids, tokenizer(text, add_special_tokens=False)
            assert got["input_ids"][-8:] == wanted[-8:], (name, text)
    assert "PreTrainedTokenizerFast" in same
    assert refused


@pytest.mark.parametrize(
    ("kind", "name"), [("digits one by one", "GemmaTokenizer"), ("bytes", "CodeLlamaTokenizerFast")]
)
def test_the_line_names_class_and_next_step(kind, name, tmp_path):
    folder = saved(tmp_path, kind, name)
    with pytest.raises(
        InputError, match=r"the class \w+Tokenizer.*, which transformers takes here, cuts a page"
    ) as error:
        load_tokenizer(folder)
    assert len(str(error.value).splitlines()) == 1
    changed(tmp_path, "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    assert '"tokenizer_class": "PreTrainedTokenizerFast"' in str(error.value)
    raw = Tokenizer.from_file(f"{folder}/tokenizer.json")
    ids = load_tokenizer(folder)(PROBE, add_special_tokens=False)["input_ids"]
    assert ids == raw.encode(PROBE, add_special_tokens=False).ids  # as the next step promises


def test_a_growing_normalizer_is_refused_before_anything_else_reads_it(tmp_path):
    backend = tiny_tokenizer().backend_tokenizer
    backend.normalizer = normalizers.Sequence([normalizers.Replace(" ", " " * 10) for _ in range(12)])
    backend.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}', encoding="utf-8")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}', encoding="utf-8")
    with pytest.raises(InputError, match=r"makes more than 64 characters of one \(' '\)"):
        load_tokenizer(str(tmp_path))


# Ids beyond the embeddings


def with_tokens(folder: Path, tokens: list[AddedToken], template: str | None = None, **named: str) -> str:
    """A tiny checkpoint whose tokenizer has tokens that its embeddings were not resized for."""
    save_tiny("llama", folder)
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([f"[fill{number}]" for number in range(VOCABULARY - TOKENS)])  # the rows that are left
    tokenizer.add_tokens(tokens)
    for name, token in named.items():
        setattr(tokenizer, name, token)
    if template:
        tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    return str(folder)


def token(content: str, *, special: bool = True) -> AddedToken:
    return AddedToken(content, special=special)


TURN = "{% for m in messages %}[turn]{{ m.content }}{{ eos_token }}{% endfor %}[turn]"


@pytest.mark.parametrize(
    ("tokens", "template", "named"),
    [
        ([token("[turn]")], TURN, {}),
        ([token("word", special=False)], None, {}),
        ([token("[bos]")], None, {"bos_token": "[bos]"}),
        ([token("[end]")], None, {"eos_token": "[end]"}),
        ([token("[image]"), token("[turn]")], TURN, {}),
    ],
)
def test_a_token_that_texts_give_and_that_has_no_row_stops_the_load(tokens, template, named, tmp_path):
    folder = with_tokens(tmp_path, tokens, template, **named)
    for load in (load_model, load_sketch):
        with pytest.raises(InputError, match=rf"ids up to \d+ .*, its embeddings have {VOCABULARY} rows"):
            load(folder, device="cpu")


def test_a_template_that_puts_such_a_token_together(tmp_path):
    put_together = TURN.replace("[turn]", "{{ '[' + 'turn' + ']' }}")
    loaded = load_model(with_tokens(tmp_path, [token("[turn]")], put_together), device="cpu")
    with pytest.raises(InputError, match=r"the token '\[turn\]' with the id"):
        checked_prompt(loaded, "The cat sat.", 4)
