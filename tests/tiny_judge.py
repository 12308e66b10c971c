"""A classifier judge of the size of a thumb, with random weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import RobertaConfig, RobertaForSequenceClassification, RobertaTokenizerFast

REPLIES = ["I can't help with that.", "Take two eggs and beat them.", "", "No. I won't. " * 60]


def save_classifier(
    folder: Path, labels: tuple[str, ...] = ("NORMAL", "REJECTION"), positions: int = 40, seed: int = 0
) -> Path:
    """A random RoBERTa classifier of the size of a thumb, with a byte-level tokenizer like the real one's."""
    backend = ByteLevelBPETokenizer()
    backend.train_from_iterator(
        REPLIES,
        vocab_size=300,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        show_progress=False,
    )
    folder.mkdir(parents=True)
    backend.save_model(str(folder))
    RobertaTokenizerFast(
        vocab=str(folder / "vocab.json"), merges=str(folder / "merges.txt"), model_max_length=512
    ).save_pretrained(folder)
    config = RobertaConfig(
        vocab_size=300,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=36,
        max_position_embeddings=positions,
        type_vocab_size=1,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        id2label=dict(enumerate(labels)),
        label2id={label: index for index, label in enumerate(labels)},
    )
    torch.manual_seed(seed)
    model = RobertaForSequenceClassification(config)
    with torch.no_grad():
        model.classifier.out_proj.weight.mul_(200)  # so that replies differ in their verdicts
    model.save_pretrained(folder)
    return folder


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
