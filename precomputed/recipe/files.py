"""The text files of the demo: corpus splits, instruction splits, prompt pairs, example prompts."""

from __future__ import annotations

import json
from pathlib import Path

from precomputed.recipe import behaviour, instructions, language
from precomputed.recipe.domains import DOMAINS

TRAINING_CHARACTERS = 9_000_000
CALIBRATION_CHARACTERS = 140_000  # about 42,000 tokens; 128 windows of 128 need 16,384
EVALUATION_CHARACTERS = 240_000  # about 73,000 tokens
EXAMPLES_PER_KIND = 3


def corpus() -> dict[str, list[str]]:
    """Documents of the splits "evaluation", "calibration" and "training", made in this order, sharing no sentence."""
    seen: set[str] = set()
    subjects = behaviour.subjects()
    return {
        "evaluation": language.corpus(3, EVALUATION_CHARACTERS, subjects, seen),
        "calibration": language.corpus(2, CALIBRATION_CHARACTERS, subjects, seen),
        "training": language.corpus(1, TRAINING_CHARACTERS, subjects, seen),
    }


def write_corpus(folder: Path, splits: dict[str, list[str]]) -> None:
    """`calibration.txt` and `evaluation.txt`, documents separated by blank lines; the training split is not shipped."""
    folder.mkdir(parents=True, exist_ok=True)
    for split in ("calibration", "evaluation"):
        (folder / f"{split}.txt").write_text("\n\n".join(splits[split]) + "\n", encoding="utf-8")


def write_instructions(folder: Path) -> None:
    """`instructions_calibration.txt` and `instructions_evaluation.txt`, one rendered example per document."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, documents in instructions.corpus().items():
        (folder / f"instructions_{split}.txt").write_text("\n\n".join(documents) + "\n", encoding="utf-8")


def prompt_records() -> list[dict[str, str]]:
    """All shipped prompt pairs, calibration first."""
    return [
        {
            "domain": domain.name,
            "split": split,
            "risk": risk.text,
            "base": base.text,
            "risk_template": risk.template,
            "base_template": base.template,
            "object": risk.object,
        }
        for split in ("calibration", "heldout")
        for domain in DOMAINS
        for risk, base in behaviour.pairs(domain, split)
    ]


def example_records() -> list[dict[str, str]]:
    """Some held-out prompts per domain and kind, for the live page: polite ones first, the last one blunt."""
    records: list[dict[str, str]] = []
    for domain in DOMAINS:
        by_level = sorted(behaviour.pairs(domain, "heldout"), key=lambda pair: pair[0].level)
        chosen = [by_level[0], by_level[len(by_level) // 2], by_level[-1]][:EXAMPLES_PER_KIND]
        for kind, index in (("risk", 0), ("base", 1)):
            records += [{"domain": domain.name, "kind": kind, "prompt": pair[index].text} for pair in chosen]
    return records


def write_prompts(folder: Path) -> None:
    """`prompts.jsonl` and `examples.jsonl`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, records in (("prompts.jsonl", prompt_records()), ("examples.jsonl", example_records())):
        lines = (json.dumps(record, ensure_ascii=False) for record in records)
        (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
