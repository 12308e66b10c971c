"""A GGUF file's tokenizer to the tokenizer.json and tokenizer_config.json that transformers would have of it.

The file holds tokens with their types, merges or scores, and the name of a way to cut a text before merging. Two kinds
are read, as llama.cpp computes them: BPE on bytes ("gpt2"), and sentencepiece's BPE ("llama"). transformers' own reader
(5.24) cuts by GPT-2's rule where it does not know the name, as it does not know SmolLM's."""

import json
from typing import Any, NamedTuple

from engine.models.gguf_config import special_tokens
from engine.models.gguf_header import GgufHeader
from engine.records import bounds

_REMEDY = "give the original checkpoint"
_CONTROL, _USER_DEFINED, _UNUSED, _BYTE = 3, 4, 5, 6  # types of tokens that no merge makes
_LONGEST, _MOST_CHARACTERS = 2**10, 2**24  # of one token, of all; Gemma 3's have 1.9 million
_BEFORE = r"[^\r\n\p{L}\p{N}]?"
_SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_BLANKS = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def _words(numbers: str) -> str:
    return rf"{_SHORT}|{_BEFORE}\p{{L}}+|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*{_BLANKS}"


def _cased_words(short: str, numbers: str) -> str:
    words = rf"{_BEFORE}{_UPPER}*{_LOWER}+{short}|{_BEFORE}{_UPPER}+{_LOWER}*{short}"
    return rf"{words}|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*{_BLANKS}"


class Cut(NamedTuple):
    """How a text is cut before merging: by each pattern in turn.
    whole: a piece that is a token stays one, whatever its merges. begins: a text begins with the BOS where the file
    does not say. composed: accents are joined with their letters first."""

    patterns: tuple[str, ...]
    whole: bool = False
    begins: bool = False
    composed: bool = False


_LLAMA3, _QWEN2 = _words(r"\p{N}{1,3}"), _words(r"\p{N}")
CUTS = {
    "gpt-2": Cut((_GPT2,)),
    "smollm": Cut((r"\p{N}", _GPT2)),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3"), Cut((_LLAMA3,), whole=True, begins=True)),
    **dict.fromkeys(("dbrx", "smaug-bpe"), Cut((_LLAMA3,))),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), Cut((_QWEN2,), composed=True)),
    "tekken": Cut((_cased_words("", r"\p{N}"),), whole=True),
    "gpt-4o": Cut((_cased_words(f"{_SHORT}?", r"\p{N}{1,3}"),)),
}


def tokenizer_files(header: GgufHeader) -> dict[str, str]:
    """Names and texts of the tokenizer's files. Errors: BadFile for what is not read, and for lists that do not fit."""
    from tokenizers import AddedToken

    vocabulary = _Vocabulary(header)
    begins, tokenizer = _of_bytes(vocabulary) if vocabulary.kind == "gpt2" else _sentencepiece(vocabulary)
    for kind, special in ((_CONTROL, True), (_USER_DEFINED, False)):
        added = [AddedToken(token, normalized=False, special=special) for token in vocabulary.of(kind)]
        tokenizer.add_special_tokens(added) if special else tokenizer.add_tokens(added)
    if tokenizer.get_vocab_size() != len(vocabulary.tokens):
        raise bounds.BadFile(f"names a token twice; copy it again, or {_REMEDY}")
    ids = special_tokens(header) | {"unk_token_id": vocabulary.unknown}
    settings: dict[str, Any] = {
        name.removesuffix("_id"): vocabulary.tokens[number] for name, number in ids.items() if number is not None
    }
    around = {
        name: settings.get(name)
        for name, usual in (("bos_token", begins), ("eos_token", False))
        if vocabulary.entry(f"add_{name}", bool, usual)
    }
    if None in around.values():
        raise bounds.BadFile(f"puts a token around every text and does not name it; copy it again, or {_REMEDY}")
    _surround(tokenizer, around)
    settings |= {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False}
    length = header.metadata.get(f"{header.metadata['general.architecture']}.context_length")
    files = {
        "tokenizer.json": tokenizer.to_str(),
        "tokenizer_config.json": json.dumps(settings | {"model_max_length": length}, indent=1),
    }
    template = header.metadata.get("tokenizer.chat_template")
    return files | ({"chat_template.jinja": template} if isinstance(template, str) else {})


class _Vocabulary:
    def __init__(self, header: GgufHeader) -> None:
        self.metadata = header.metadata
        self.kind = self.entry("model", str)
        if self.kind not in ("gpt2", "llama"):
            raise bounds.BadFile(f"has a tokenizer of the kind {self.kind[:80]!r}; read are gpt2 and llama: {_REMEDY}")
        self.tokens: list[str] = self.entry("tokens", list)
        self.types: list[int] = self.entry("token_type", list, [1] * len(self.tokens))
        unknown = self.entry("unknown_token_id", int, -1)
        if len(self.types) != len(self.tokens) or not all(isinstance(token, str) for token in self.tokens):
            raise bounds.BadFile(f"has {len(self.tokens):,} tokens and {len(self.types):,} types; copy it again")
        bounds.need("has a token of", max(map(len, self.tokens), default=0), _LONGEST, " characters")
        bounds.need("has tokens of", sum(map(len, self.tokens)), _MOST_CHARACTERS, " characters")
        self.unknown = unknown if 0 <= unknown < len(self.tokens) else None
        self.ids = {token: number for number, token in enumerate(self.tokens)}

    def entry(self, key: str, kind: type, usual: Any = None) -> Any:
        value = self.metadata.get(f"tokenizer.ggml.{key}", usual)
        if not isinstance(value, kind):
            raise bounds.BadFile(
                f"has a tokenizer whose {key} is {repr(value)[:80]}, expected {kind.__name__}; {_REMEDY}"
            )
        return value

    def of(self, *types: int) -> list[str]:
        return [token for token, kind in zip(self.tokens, self.types, strict=True) if kind in types]


def _of_bytes(vocabulary: _Vocabulary) -> tuple[bool, Any]:
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    name = vocabulary.entry("pre", str, "default")
    if name not in CUTS:
        raise bounds.BadFile(f"cuts texts by the rule {name[:80]!r}; read are {', '.join(sorted(CUTS))}: {_REMEDY}")
    cut = CUTS[name]
    ids = vocabulary.ids
    merges: list[tuple[str, str]] = []
    for merge in vocabulary.entry("merges", list):
        left, _, right = str(merge).partition(" ")
        if not ids.keys() >= {left, right, left + right}:
            raise bounds.BadFile(f"merges {str(merge)[:80]!r}, which are no tokens of it; copy it again, or {_REMEDY}")
        merges.append((left, right))
    tokenizer = Tokenizer(models.BPE(ids, merges, ignore_merges=cut.whole))
    if cut.composed:
        tokenizer.normalizer = normalizers.NFC()
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in cut.patterns]
    bytes_last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, bytes_last])
    tokenizer.decoder = decoders.ByteLevel()
    return cut.begins, tokenizer


def _sentencepiece(vocabulary: _Vocabulary) -> tuple[bool, Any]:
    """Pairs are merged by the score of what they make, of equal ones that with the longer first part, as transformers
    orders them; what no merge makes falls back to its bytes."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    scores = vocabulary.entry("scores", list)
    numbers = all(isinstance(score, float) for score in scores)
    if not numbers or len(scores) != len(vocabulary.tokens) or vocabulary.unknown is None:
        raise bounds.BadFile(f"has no score for every token, or no unknown token; copy it again, or {_REMEDY}")
    apart = {_CONTROL, _USER_DEFINED, _UNUSED, _BYTE}
    ids = vocabulary.ids
    merged = [
        (-score, -at, at - len(token), (token[:at], token[at:]))
        for token, kind, score in zip(vocabulary.tokens, vocabulary.types, scores, strict=True)
        if kind not in apart
        for at in range(1, len(token))
        if token[:at] in ids and token[at:] in ids
    ]
    merges = [pair for *_, pair in sorted(merged, key=lambda entry: entry[:3])]
    unknown = vocabulary.tokens[vocabulary.unknown]
    tokenizer = Tokenizer(models.BPE(ids, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    blanks: Any = normalizers.Replace(" ", "▁")
    back: list[Any] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if vocabulary.entry("add_space_prefix", bool, True):
        blanks = normalizers.Sequence([normalizers.Prepend("▁"), blanks])
        back.append(decoders.Strip(" ", 1, 0))
    tokenizer.normalizer, tokenizer.decoder = blanks, decoders.Sequence(back)
    return True, tokenizer


def _surround(tokenizer: Any, around: dict[str, Any]) -> None:
    """Every text begins with the `bos_token` and ends with the `eos_token` of `around`, where it has them."""
    from tokenizers.processors import TemplateProcessing

    if around:
        tokens = [
            {"id": name, "ids": [tokenizer.token_to_id(token)], "tokens": [token]} for name, token in around.items()
        ]
        single = [part for part in ("bos_token", "$A", "eos_token") if part in {*around, "$A"}]
        pair = [f"{part.replace('$A', '$B')}:1" for part in single]
        tokenizer.post_processor = TemplateProcessing(single=single, pair=[*single, *pair], special_tokens=tokens)
