"""What the stages of a refusal experiment share: their options, and the run that these describe.

Every stage takes the same options and finds what earlier ones measured in the store, so that each can be run alone.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.commands import common
from engine.errors import InputError
from engine.records import check_folder
from engine.store import Store

if TYPE_CHECKING:
    from engine.refusal.onsets import OnsetPhrases
    from engine.refusal.plan import RefusalPlan
    from engine.refusal.run import RefusalRun


def add_options(parser: argparse.ArgumentParser, *, grid: bool = True) -> None:
    """The options of a stage. grid: those of the grid and of replies too."""
    common.add_model(parser)
    prompts = parser.add_argument_group("prompts")
    prompts.add_argument(
        "--pairs",
        help="demo (the shipped pairs), CAST's condition_multiple.json, or a .jsonl file with risk and base "
        "(default for the shipped model: demo)",
    )
    prompts.add_argument("--domains", help="comma-separated (default: all that the pairs have)")
    prompts.add_argument(
        "--pairs-per-domain", type=int, metavar="N", help="calibration pairs per domain (default 64)"
    )
    prompts.add_argument(
        "--phrases",
        type=Path,
        metavar="FILE",
        help='onset phrases instead of the built-in ones: JSON, {"refusal": [...], "compliance": [...]}',
    )
    parser.add_argument(
        "--selectors", help="comma-separated: lrp, ig, consensus2, mean_activation, random (default: all)"
    )
    scores = parser.add_argument_group("language-model scores, which protect rows")
    scores.add_argument("--corpus", help="wikitext2, c4, demo, a .txt or a .jsonl file")
    scores.add_argument("--samples", type=int, help="windows of that text (default 128)")
    scores.add_argument("--max-length", type=int, help="tokens per window (default 128)")
    if grid:
        _add_grid(parser)
    common.add_device(parser)
    common.add_storage(parser)
    common.add_json(parser)


def _add_grid(parser: argparse.ArgumentParser) -> None:
    options = parser.add_argument_group("grid")
    options.add_argument(
        "--lambdas", help="protection of language-model rows, as 0.2,0.5 (default: the paper's)"
    )
    options.add_argument("--ks", help="share of rows removed, as 0.005,1%% (default: the paper's)")
    options.add_argument(
        "--max-perplexity", type=float, help="cells above it are not generated (default 100)"
    )
    options.add_argument(
        "--perplexity-factor",
        type=float,
        help="instead: this many times the unedited model's perplexity (default for the shipped model: 1.5)",
    )
    options.add_argument("--benign-limit", type=float, help="largest benign refusal (default 0.1)")
    options.add_argument("--all-cells", action="store_true", help="generate above the perplexity cap too")
    options.add_argument("--eval-corpus", help="text of the perplexity (default: the test part of --corpus)")
    options.add_argument("--eval-samples", type=int, help="windows of that text (default 256)")
    options.add_argument("--eval-length", type=int, help="tokens per window (default 512)")
    replies = parser.add_argument_group("replies")
    replies.add_argument("--reply-tokens", type=int, help="longest reply (default 200; shipped model 60)")
    replies.add_argument("--batch-size", type=int, help="prompts per batch (default 64)")
    replies.add_argument(
        "--judge", default="embedded", help="embedded (rules, default), rejection-model, or a folder with one"
    )
    replies.add_argument(
        "--heldout-pairs", type=int, metavar="N", help="held-out pairs per domain (default 100; 0 for all)"
    )


@contextmanager
def experiment(args: argparse.Namespace) -> Iterator[tuple[RefusalRun, Path]]:
    """The run and the results folder that the arguments describe, with a progress bar."""
    from engine.evaluation.judges import EMBEDDED, open_judges
    from engine.refusal.run import RefusalRun

    plan = plan_of(args)
    judges = open_judges(getattr(args, "judge", EMBEDDED))
    if len(judges) > 1:
        raise InputError("one judge decides here; `refusal judge` compares two on replies that were kept")
    with Store(args.store) as store:
        folder = common.output_folder(args, store)
        loaded = common.load(args)
        check_folder(folder, loaded.fingerprint)
        with common.progress_bar(args) as progress:
            yield RefusalRun(loaded, plan, store, judges[0], progress), folder


def plan_of(args: argparse.Namespace) -> RefusalPlan:
    """The model's default plan with what the arguments say otherwise; whatever is wrong in it is an `InputError`."""
    from engine.refusal.contrast import VARIANTS
    from engine.refusal.plan import default_plan

    plan = default_plan(args.model)
    if args.pairs is None and args.model != "demo":
        raise InputError(
            "there are no prompt pairs for this model; give --pairs FILE with CAST's condition_multiple.json or a "
            ".jsonl file with risk and base, or --pairs demo"
        )
    scoring = {"corpus": args.corpus, "samples": args.samples, "length": args.max_length}
    changes: dict[str, Any] = {
        "scoring": replace(
            plan.scoring, **{name: value for name, value in scoring.items() if value is not None}
        ),
        "pairs": args.pairs or plan.pairs,
        "eval_corpus": getattr(args, "eval_corpus", None) or args.corpus or plan.eval_corpus,
    }
    if args.domains:
        changes["domains"] = tuple(part.strip() for part in args.domains.split(",") if part.strip())
    if args.selectors:
        changes["selectors"] = common.names(args.selectors, "contrast selector", VARIANTS)
    if args.phrases:
        changes["phrases"] = read_phrases(args.phrases)
    for name in ("lambdas", "ks"):
        if getattr(args, name, None):
            changes[name] = numbers(getattr(args, name), f"--{name}")
    if getattr(args, "max_perplexity", None) is not None:
        changes["perplexity_factor"] = None  # a cap that is asked for wins over the model's default factor
    for name, option in _SAME.items():
        if getattr(args, option, None) is not None:
            changes[name] = getattr(args, option)
    if getattr(args, "heldout_pairs", None) == 0:
        changes["heldout_pairs"] = None
    return replace(plan, **changes)


_SAME = {  # field of the plan -> option
    "calibration_pairs": "pairs_per_domain",
    "heldout_pairs": "heldout_pairs",
    "eval_samples": "eval_samples",
    "eval_length": "eval_length",
    "reply_tokens": "reply_tokens",
    "batch_size": "batch_size",
    "benign_limit": "benign_limit",
    "max_perplexity": "max_perplexity",
    "perplexity_factor": "perplexity_factor",
    "all_cells": "all_cells",
    "control_seeds": "control_seeds",
}


def numbers(text: str, option: str) -> tuple[float, ...]:
    """`0.005,1%` to ascending numbers; their range is checked by the plan."""
    try:
        parts = [part.strip() for part in text.split(",")]
        return tuple(
            sorted({float(part[:-1]) / 100 if part.endswith("%") else float(part) for part in parts})
        )
    except ValueError:
        raise InputError(f"{option} takes numbers separated by commas, got {text!r}; write 0.2,0.5") from None


def read_phrases(path: Path) -> OnsetPhrases:
    """Onset phrases from a JSON file; the lists are checked against the model's tokens by `onset_tokens`."""
    from engine.refusal.onsets import OnsetPhrases

    expected = 'expected {"refusal": [phrases], "compliance": [phrases]}'
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as JSON ({error}); {expected}") from None
    lists: list[list[str]] = []
    for kind in OnsetPhrases._fields:
        phrases = content.get(kind) if isinstance(content, dict) else None
        if not isinstance(phrases, list) or not all(isinstance(one, str) and one.strip() for one in phrases):
            raise InputError(f"{path} holds no two lists of phrases; {expected}")
        lists.append(phrases)
    return OnsetPhrases(*lists)
