"""Classifier judges of the size of a thumb, with random weights, in the layouts of public ones."""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
import transformers
from tokenizers import ByteLevelBPETokenizer, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast, RobertaForSequenceClassification, RobertaTokenizerFast

REPLIES = ["I can't help with that.", "Take two eggs and beat them.", "No. I won't. " * 60]
_SIZES: dict[str, Any] = {
    "vocab_size": 300, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 36,
}  # fmt: skip
_ROBERTA: dict[str, Any] = {**_SIZES, "type_vocab_size": 1, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
# Family -> configuration, its entries, and the class that its tokenizer_config.json names.
FAMILIES: dict[str, tuple[str, dict[str, Any], str]] = {
    "roberta": ("RobertaConfig", _ROBERTA, "RobertaTokenizer"),
    "bert": ("BertConfig", {**_SIZES, "type_vocab_size": 2, "pad_token_id": 0}, "BertTokenizer"),
    "distilbert": (
        "DistilBertConfig",
        {"vocab_size": 300, "dim": 24, "n_layers": 2, "n_heads": 3, "hidden_dim": 36, "pad_token_id": 0},
        "DistilBertTokenizer",
    ),
    "deberta": (
        "DebertaV2Config",
        {
            **_SIZES,
            "type_vocab_size": 0,
            "relative_attention": True,
            "position_buckets": 8,
            "pos_att_type": ["p2c", "c2p"],
            "share_att_key": True,
            "norm_rel_ebd": "layer_norm",
            "position_biased_input": False,
            "pad_token_id": 0,
        },
        "DebertaV2Tokenizer",
    ),
    "modernbert": (
        "ModernBertConfig",
        {
            **_SIZES, "num_hidden_layers": 4, "local_attention": 16, "classifier_pooling": "mean", "pad_token_id": 1,
            "cls_token_id": 0, "sep_token_id": 2, "bos_token_id": 0, "eos_token_id": 2,
        },
        "PreTrainedTokenizerFast",
    ),
}  # fmt: skip


def save_classifier(
    folder: Path, labels: tuple[str, ...] = ("NORMAL", "REJECTION"), positions: int = 40, seed: int = 0,
    family: str = "roberta", scale: float = 1, **changes: Any,
) -> Path:  # fmt: skip
    """A random classifier of the size of a thumb, with a tokenizer of its family's kind.

    scale: of all matrices, so that what is read makes a difference. changes: of its configuration.
    """
    folder.mkdir(parents=True)
    name, sizes, tokenizer_class = FAMILIES[family]
    if family == "roberta":
        _roberta_tokenizer(folder)
    else:
        _other_tokenizer(folder, tokenizer_class)
    config = getattr(transformers, name)(
        **sizes,
        max_position_embeddings=positions,
        id2label=dict(enumerate(labels)),
        label2id={label: index for index, label in enumerate(labels)},
        **changes,
    )
    torch.manual_seed(seed)
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    head = [module for module in model.modules() if isinstance(module, torch.nn.Linear)][-1]
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(scale)
        head.weight.mul_(200 / scale**2)  # so that replies differ in their verdicts
    model.save_pretrained(folder)
    return folder


def _roberta_tokenizer(folder: Path) -> None:
    backend = ByteLevelBPETokenizer()
    backend.train_from_iterator(
        REPLIES, vocab_size=300, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"], show_progress=False
    )
    backend.save_model(str(folder))
    RobertaTokenizerFast(
        vocab=str(folder / "vocab.json"), merges=str(folder / "merges.txt"), model_max_length=512
    ).save_pretrained(folder)


def _other_tokenizer(folder: Path, tokenizer_class: str) -> None:
    """Word pieces for BERT's, unigrams for DeBERTa's, bytes for ModernBERT's: each as tokenizer.json."""
    special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
    if tokenizer_class == "PreTrainedTokenizerFast":
        special = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"]
        backend = Tokenizer(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer: Any = trainers.BpeTrainer(
            vocab_size=290, special_tokens=special, initial_alphabet=alphabet, show_progress=False
        )
    elif tokenizer_class == "DebertaV2Tokenizer":
        backend = Tokenizer(models.Unigram())
        backend.pre_tokenizer = pre_tokenizers.Metaspace()
        trainer = trainers.UnigramTrainer(
            vocab_size=120, special_tokens=special, unk_token="[UNK]", show_progress=False
        )
    else:
        backend = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        backend.normalizer = normalizers.BertNormalizer()
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=120, special_tokens=special, show_progress=False)
    backend.train_from_iterator([*REPLIES, "Is it? Who! Where: how, the a of and to"] * 4, trainer)
    numbers = [(one, backend.token_to_id(one)) for one in ("[CLS]", "[SEP]")]
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=numbers
    )
    names = {f"{one.strip('[]').lower()}_token": one for one in special}
    PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=512, **names).save_pretrained(folder)
    path = folder / "tokenizer_config.json"
    described = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**described, "tokenizer_class": tokenizer_class}), encoding="utf-8")


def divided(folder: Path, replies: Sequence[str]) -> Path:
    """Shifts the classifier's bias in place, so that it rejects half of these replies; returns the folder."""
    model = RobertaForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = RobertaTokenizerFast.from_pretrained(folder)
    limit = model.config.max_position_embeddings - 2  # RoBERTa counts positions from 2
    with torch.no_grad():
        logits = [
            model(**tokenizer(reply, return_tensors="pt", truncation=True, max_length=limit)).logits[0]
            for reply in replies
        ]
        model.classifier.out_proj.bias[1] -= median(float(one[1] - one[0]) for one in logits)
    model.save_pretrained(folder)
    return folder
