"""`refusal calibrate`: Algorithm 1 for every selector and domain."""

from __future__ import annotations

import argparse

from engine.commands import common
from engine.commands.refusal import options
from engine.records.progress import Stopwatch


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "calibrate",
        help="which rows promote complying with risk prompts only? writes contrast.safetensors",
        description="Contrasts the rows' relevance to refusing between risk and base prompts, per selector and "
        "domain. One forward and backward pass per batch of prompts (16 for ig); what is known is kept. The unedited "
        "model answers all of them first: pairs whose base prompt it refuses itself are left out, and more than one "
        "and than --benign-limit of a domain's are an error.",
    )
    options.add_options(parser, run, measures=False)


def run(args: argparse.Namespace) -> None:
    from engine.studies.refusal.calibrate import CONTRAST_FILE, onsets_record, write_contrasts

    watch = Stopwatch()
    with options.experiment(args, contrasts_only=True) as (refusal, folder, _):
        plan, loaded = refusal.plan, refusal.loaded
        onsets = onsets_record(loaded, plan.phrases)
        contrasts = refusal.contrasts
        spec = refusal.calibration_spec() | {"onsets": onsets}
        write_contrasts(folder, loaded, contrasts, spec, watch.elapsed_s)
    if args.json:
        found = [{"selector": one.selector, "domain": one.domain} for one in contrasts]
        common.print_json(
            {"folder": str(folder), "file": CONTRAST_FILE, "contrasts": found, "pairs": spec["pairs"], "onsets": onsets}
        )
        return
    for kind, record in onsets.items():
        tokens = ", ".join(repr(text) for text in record["text"])
        common.out.print(f"{kind} begins with {len(record['tokens'])} tokens: {tokens}", markup=False)
    for domain, count in spec.get("pairs_left_out", {}).items():
        common.out.print(f"{domain}: {count} pairs left out, whose base prompt the unedited model refuses itself")
    written = f"{len(contrasts)} contrasts written to {folder / CONTRAST_FILE}"
    common.out.print(f"{written}; next: refusal sweep, or refusal run for all stages", markup=False)
