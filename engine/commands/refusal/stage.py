"""`refusal STAGE`: any stage by itself, as it is registered, with the settings that it reads."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from engine.commands import common
from engine.commands.refusal import options
from engine.run.refusal_plan import COMPOSED_DOMAINS
from engine.studies.base import Study, StudyInfo, Tables

if TYPE_CHECKING:
    from engine.judges.base import Judge
    from engine.studies.conduct import Maker

_DOMAINS = {"compose": COMPOSED_DOMAINS}  # the default of --domains


def add_options(parser: argparse.ArgumentParser, info: StudyInfo) -> None:
    """The options of a stage: those of the settings that it reads."""
    parser.set_defaults(run=lambda args: conduct_stage(args, info))
    options.add_options(parser, info.settings, domains=_DOMAINS.get(info.id), measures=info.measures)


def conduct_stage(
    args: argparse.Namespace, info: StudyInfo, *, judge: Judge | None = None, maker: Maker | None = None
) -> None:
    """Runs the stage, and says what came out. judge: the plan's own, where it is open already; maker: see
    `run_studies`."""
    from engine.studies.conduct import run_studies

    outcome: list[tuple[Study[Any], Tables]] = []

    def begun(study: Study[Any]) -> None:
        text = study.announcement(run)
        if text and not args.json:
            common.err.print(text, soft_wrap=True)

    def finished(name: str, study: Study[Any] | None, tables: Tables, seconds: float) -> None:
        outcome.append((study or info.make(run), tables))

    with options.experiment(args, [info.id], judge) as (run, folder, runner):
        makers = {info.id: maker} if maker else {}
        run_studies(run, [info.id], folder, runner, makers=makers, begun=begun, finished=finished)
        [(study, tables)] = outcome
        answer = study.answer(run, runner.results, tables, folder)
    if common.as_json(args, {"folder": folder} | answer.record):
        return
    common.say(answer.text)
    if study.masks_of in tables:
        options.say_masks(args, folder, study.masks_of)
    elif tables:
        common.out.print(f"written to {folder}")
