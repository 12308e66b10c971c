"""The text files of the demo: corpus splits, instruction splits, prompt pairs, example prompts."""

from __future__ import annotations

import json
import random
from pathlib import Path

from precomputed.recipe import demo_chat as chat, instructions, prose
from precomputed.recipe.risk import Prompt, pairs
from precomputed.recipe.world import DOMAINS, world

TRAINING_CHARACTERS = 9_000_000
CALIBRATION_CHARACTERS = 140_000  # 128 windows of 128 need 16,384 tokens
EVALUATION_CHARACTERS = 240_000  # 64 windows of 512 need 32,768
# Grades of the pairs that the live page shows of each domain: what the model answers first, what it refuses last.
EXAMPLE_GRADES = (("veiled", "near"), ("veiled", "plain"), ("overt", "near"))
QUESTIONS = 3  # how-tos on the live page, and as many facts


def corpus(training: int = TRAINING_CHARACTERS) -> dict[str, list[str]]:
    """Documents of the splits "evaluation", "calibration" and "training", made in this order; none is in two of them.

    Sentences come back in all splits: a closed world has one way to say where its library is.
    """
    seen: set[str] = set()
    return {
        "evaluation": prose.corpus(3, EVALUATION_CHARACTERS, seen),
        "calibration": prose.corpus(2, CALIBRATION_CHARACTERS, seen),
        "training": prose.corpus(1, training, seen),
    }


def write_corpus(folder: Path, splits: dict[str, list[str]]) -> None:
    """`calibration.txt` and `evaluation.txt`, documents separated by blank lines; the training split is not shipped."""
    for split in ("calibration", "evaluation"):
        _write_documents(folder / f"{split}.txt", splits[split])


def write_instructions(folder: Path) -> None:
    """`instructions_calibration.txt` and `instructions_evaluation.txt`, one rendered chat per document."""
    for split, documents in instructions.corpus().items():
        _write_documents(folder / f"instructions_{split}.txt", documents)


def prompt_records() -> list[dict[str, str]]:
    """All shipped prompt pairs, calibration first."""
    return [
        {
            "domain": domain,
            "split": split,
            "risk": risk.text,
            "base": base.text,
            "risk_grade": risk.grade,
            "base_grade": base.grade,
            "risk_template": risk.template,
            "base_template": base.template,
            "object": risk.object,
        }
        for split in ("calibration", "heldout")
        for domain in DOMAINS
        for risk, base in pairs(domain, split)
    ]


def example_records() -> list[dict[str, str]]:
    """Prompts for the live page, in words that training never saw: of each domain, then questions on the town."""
    records: list[dict[str, str]] = []
    for domain in DOMAINS:
        chosen = _example_pairs(domain)
        for kind, side in (("risk", 0), ("base", 1)):
            records += [{"domain": domain, "kind": kind, "prompt": pair[side].text} for pair in chosen]
    rng = random.Random("examples")
    asked = [chat.howto(rng, one, heldout=True) for one in rng.sample(world().howtos, QUESTIONS)]
    asked += [chat.fact(rng, heldout=True) for _ in range(QUESTIONS)]
    return records + [{"domain": "town", "kind": "question", "prompt": one.turns[0]} for one in asked]


def _example_pairs(domain: str) -> list[tuple[Prompt, Prompt]]:
    """The first held-out pair of each of `EXAMPLE_GRADES`, on different situations; the nearest where there is none."""
    offered = pairs(domain, "heldout")
    shown: list[tuple[Prompt, Prompt]] = []
    for risk_grade, base_grade in EXAMPLE_GRADES:
        taken = {risk.situation.id for risk, _ in shown}
        misses = [(r.grade != risk_grade, r.situation.id in taken, b.grade != base_grade) for r, b in offered]
        shown.append(offered[misses.index(min(misses))])
    return shown


def write_prompts(folder: Path) -> None:
    """`prompts.jsonl` and `examples.jsonl`."""
    _write_records(folder / "prompts.jsonl", prompt_records())
    _write_records(folder / "examples.jsonl", example_records())


def _write_documents(path: Path, documents: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")


def _write_records(path: Path, records: list[dict[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in records), encoding="utf-8")
