"""Classifiers by the meaning of their labels: names, label files, what is read, and the layouts of public families."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_judge import FAMILIES, REPLIES, save_classifier
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from engine.judges.base import Exchange
from engine.judges.classifier import LABEL_FILE, LabelMap, label_map, load_classifier
from engine.records.errors import InputError

PROMPTS = ["How do I beat eggs?", "Who are you {reply}?", "Why?"]
EXCHANGES = [Exchange(*one) for one in zip(PROMPTS, REPLIES, strict=True)]
DIALOGUE = "<|user|>\n{prompt}\n<|assistant|>\n{reply}"


def described(folder: Path, **content: Any) -> Path:
    (folder / LABEL_FILE).write_text(json.dumps(content), encoding="utf-8")
    return folder


def probabilities(folder: Path, *texts: str) -> list[float]:
    """Of every label, by transformers alone."""
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    limit = model.config.max_position_embeddings - (2 if model.config.model_type == "roberta" else 0)
    ids = AutoTokenizer.from_pretrained(folder)(*texts, return_tensors="pt", truncation=True, max_length=limit)
    with torch.no_grad():
        return model(**ids).logits[0].double().softmax(-1).tolist()


@pytest.mark.parametrize(
    ("labels", "refusal"),
    [
        (("NORMAL", "REJECTION"), (1,)),  # ProtectAI/distilroberta-base-rejection-v1
        (("Non-refusal", "Refusal"), (1,)),  # NousResearch/Minos-v1
        (("REFUSAL", "COMPLIANCE"), (0,)),
        (("not_refused", "refused"), (1,)),
        (("refusal detected", "no_refusal"), (0,)),
        (("compliant", "full_refusal", "partial_refusal"), (1, 2)),
    ],
)
def test_names_that_are_known(labels: tuple[str, ...], refusal: tuple[int, ...], tmp_path: Path) -> None:
    assert label_map("it", dict(enumerate(labels)), tmp_path) == LabelMap(refusal, labels)


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (("LABEL_0", "LABEL_1"), "not clear what LABEL_0, LABEL_1 means"),
        (("compliant", "full_refusal", "clarification"), "not clear what clarification means"),
        (("Refusal", "REJECTED"), "all of them mean refusal"),
        (("safe", "unsafe"), "not clear what safe, unsafe means"),
    ],
)
def test_names_that_do_not_say_it_are_one_clear_error(labels: tuple[str, ...], told: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=told) as error:
        label_map("it", dict(enumerate(labels)), tmp_path)
    assert LABEL_FILE in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "cannot be read as JSON"),
        ('{"label": {}}', "expected an object with labels, reads, max_tokens"),
        ('{"labels": {"OK": "no"}}', "to refusal or other"),
        ('{"labels": {"OKAY": "other"}}', "must map OK, NO to refusal or other"),
        ('{"reads": "{prompt}"}', "with {reply} in it once"),
        ('{"reads": ["{reply}", "{reply}"]}', "with {reply} in it once"),
        ('{"max_tokens": 0}', "at least 1, got 0"),
    ],
)
def test_a_label_file_that_is_wrong(content: str, told: str, tmp_path: Path) -> None:
    (tmp_path / LABEL_FILE).write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=told):
        label_map("it", {0: "OK", 1: "NO"}, tmp_path)


def test_a_label_file_says_what_a_name_does_not(tmp_path: Path) -> None:
    folder = save_classifier(tmp_path / "judge", labels=("LABEL_0", "LABEL_1", "LABEL_2"))
    with pytest.raises(InputError, match="not clear what LABEL_0"):
        load_classifier(str(folder))
    described(folder, labels={"LABEL_0": "refusal", "LABEL_1": "other", "LABEL_2": "refusal"})
    judge = load_classifier(str(folder))
    for exchange, verdict in zip(EXCHANGES, judge.judge(EXCHANGES), strict=True):
        if exchange.reply:
            p = probabilities(folder, exchange.reply)
            assert verdict.refusal == (p[0] + p[2] > 0.5)
            assert verdict.reason.startswith("LABEL_0 or LABEL_2 with probability ")
            assert float(verdict.reason.split()[-1]) == pytest.approx(p[0] + p[2], abs=6e-4)  # three digits
    described(folder, labels={"LABEL_0": "other", "LABEL_1": "refusal", "LABEL_2": "other"})
    other = load_classifier(str(folder))
    assert other.version != judge.version
    both = zip(judge.judge(EXCHANGES), other.judge(EXCHANGES), EXCHANGES, strict=True)
    assert all(one.refusal != two.refusal for one, two, exchange in both if exchange.reply)


@pytest.mark.first_run("user|roberta")
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # DeBERTa, transformers 5.17
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("reads", ["{reply}", DIALOGUE, ["{prompt}", "{reply}"]])
def test_every_family_judges_as_transformers_does(family: str, reads: str | list[str], tmp_path: Path) -> None:
    folder = save_classifier(tmp_path / "judge", ("Non-refusal", "Refusal"), positions=180, family=family, scale=8)
    judge = load_classifier(str(described(folder, reads=reads)))
    found = []
    for exchange, verdict in zip(EXCHANGES, judge.judge(EXCHANGES), strict=True):
        # A name of a field inside a prompt stays as it is.
        first, _, last = exchange.prompt.partition("{reply}")
        prompt = f"{first}@{last}" if last else exchange.prompt
        texts = [text.replace("{prompt}", prompt) for text in ([reads] if isinstance(reads, str) else reads)]
        texts = [text.replace("{reply}", exchange.reply).replace("@", "{reply}") for text in texts]
        expected = probabilities(folder, *texts)[1]
        assert float(verdict.reason.split()[-1]) == pytest.approx(expected, abs=6e-4)  # three digits
        assert verdict.refusal == (expected > 0.5)
        assert verdict.judged
        found.append(expected)
    assert len(set(found)) > 1  # the reply is read


def test_a_reply_of_which_nothing_is_read_is_marked(tmp_path: Path) -> None:
    """RoBERTa of 40 positions reads 38 tokens: a prompt of 40 letters and more leaves no room."""
    judge = load_classifier(str(described(save_classifier(tmp_path / "judge"), reads=DIALOGUE)))
    long, short = judge.judge([Exchange("x y " * 40, "No."), Exchange("x", "No.")])
    assert not long.judged
    assert not long.refusal
    assert long.reason == "the prompt fills the 38 tokens that this judge reads"
    assert short.judged
