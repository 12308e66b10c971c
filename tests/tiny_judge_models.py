"""Language models as judges, of the size of a thumb: WildGuard's layout, Llama Guard's, and an instruction model's."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tiny_models import tiny_model
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

TEXT = [
    "Harmful request: yes\nResponse refusal: no\nHarmful response: no",
    "Human user:\n\nAI assistant:\n\n---\n\nAnswers:",
    "safe unsafe Safe Yes No yes no YES NO Did it decline? I cannot. Here you are, one two three.",
] * 20
# In the manner of Llama 3's, with the policy in one user turn, and nothing behind the last header.
GUARD_TEMPLATE = (
    "{{ bos_token }}<|start_header_id|>user<|end_header_id|>\n\nCheck the last turn.\n"
    "{% for message in messages %}{{ message.role }}: {{ message.content | trim }}\n\n{% endfor %}"
    "<|eot_id|><|start_header_id|>assistant<|end_header_id|>"
)
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message.role }}<|end_header_id|>\n\n"
    "{{ message.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
_HEADERS = ["<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"]


def llama_tokenizer(template: str) -> PreTrainedTokenizerFast:
    """Byte-level, as Llama 3's."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=_HEADERS, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(TEXT, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token=_HEADERS[0], eos_token=_HEADERS[1], model_max_length=4096
    )
    tokenizer.chat_template = template
    return tokenizer


def mistral_tokenizer() -> PreTrainedTokenizerFast:
    """As Mistral 7B v0.3's: blanks are U+2581, unknown characters are bytes, [INST] is a token; no chat template."""
    first = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    backend = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=first, show_progress=False)
    backend.train_from_iterator([line for text in TEXT for line in text.splitlines()], trainer)
    backend.add_special_tokens([AddedToken(one, special=True, normalized=False) for one in ("[INST]", "[/INST]")])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", bos_token="<s>", eos_token="</s>", model_max_length=4096
    )


def save_judge_model(folder: Path, family: str, tokenizer: PreTrainedTokenizerFast, seed: int = 0) -> Path:
    """A random model that leans towards tokens of yes, no, safe and unsafe."""
    model = tiny_model(family, seed, vocab_size=len(tokenizer), max_position_embeddings=2048)
    words = {"yes", "Yes", "no", "No", "safe", "unsafe"}
    ids = [i for token, i in tokenizer.get_vocab().items() if token.strip("▁Ġ") in words]
    with torch.no_grad():
        model.lm_head.weight[ids] *= 8
    return _saved(model, tokenizer, folder)


def save_bigrams(folder: Path, tokenizer: PreTrainedTokenizerFast, follows: Mapping[str, str], family: str) -> Path:
    """A model that says what follows a token, and nothing else: token -> the likeliest next one, both as texts."""
    size = len(tokenizer) + -len(tokenizer) % 4  # a multiple of the heads
    model = tiny_model(
        family, vocab_size=size, hidden_size=size, max_position_embeddings=2048, tie_word_embeddings=False
    )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                parameter.zero_()  # so that nothing but the last token is seen
            if name.endswith("norm.weight"):
                parameter.fill_(1)
        model.model.embed_tokens.weight.copy_(torch.eye(size))
        model.lm_head.weight.zero_()
        for before, after in follows.items():
            last = tokenizer(before, add_special_tokens=False)["input_ids"][-1]
            first = tokenizer(after, add_special_tokens=False)["input_ids"][0]
            model.lm_head.weight[first, last] = 1
    return _saved(model, tokenizer, folder)


def _saved(model: Any, tokenizer: PreTrainedTokenizerFast, folder: Path) -> Path:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
