"""`rows`: the row index of a model in numbers, from its configuration alone.

Counts the neuron rows that a mask can remove. Needs the configuration only, no weights."""

import argparse
import re

from engine.commands import common


def add_options(parser: argparse.ArgumentParser) -> None:
    common.add_model(parser)
    common.add_json(parser)


def run(args: argparse.Namespace) -> None:
    from engine.models.checkpoints import find_checkpoint
    from engine.models.plain_layouts import plain_layout

    checkpoint = find_checkpoint(args.model, args.revision, weights=False)
    index = plain_layout(checkpoint.config())
    others, experts = "", False
    if index is None:  # torch and transformers, which take seconds to import, know the model
        from engine.models.experts import has_experts
        from engine.models.rows_of_modules import decoder_blocks, kept, row_index
        from engine.models.skeletons import skeleton

        model = skeleton(checkpoint)
        index, others, experts = row_index(model), kept(decoder_blocks(model)), has_experts(model)
    kinds: dict[tuple[str, str], list[int]] = {}
    for layer in index.layers:
        projection = re.sub(r"\.\d+\.", ".*.", layer.projection)  # all experts of a kind in one line
        kinds.setdefault((layer.sublayer, projection), []).append(layer.rows)
    if args.json:
        columns = ("sublayer", "projection", "layers", "rows", "share")
        projections = [
            dict(zip(columns, (*kind, len(sizes), sum(sizes), sum(sizes) / index.n_rows), strict=True))
            for kind, sizes in kinds.items()
        ]
        counts = {"blocks": index.n_blocks, "layers": len(index.layers), "rows": index.n_rows}
        common.print_json({"model": args.model, **counts, "projections": projections, "kept": others})
        return
    rows = (
        (sublayer, projection, f"{len(sizes):,}", f"{sum(sizes):,}", f"{sum(sizes) / index.n_rows:.1%}")
        for (sublayer, projection), sizes in kinds.items()
    )
    title = f"{args.model}: {index.n_rows:,} rows in {len(index.layers)} layers of {index.n_blocks} blocks"
    common.print_table(title, ("sublayer", "projection", "layers", "rows", "share"), rows, texts=2)
    common.out.print(f"not rows, always kept: norms{', ' if others else ''}{others}")
    if experts:
        from engine.selectors.passes import EXPERTS

        common.out.print(f"*: every expert; {EXPERTS}")
