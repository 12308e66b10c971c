"""The options that name an edit: a mask file, or one cell of a contrast file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from engine.errors import InputError
from engine.masks import parse_rate
from precomputed import demo_dir

if TYPE_CHECKING:
    from engine.refusal.edit import Edit


def add_edit(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "the edit: --mask FILE, or --contrast FILE with --selector --lambda --k"
    )
    group.add_argument("--mask", type=Path, help="a mask file, as `selector-audit mask` writes it")
    group.add_argument(
        "--contrast",
        type=Path,
        help="contrast.safetensors, as `refusal calibrate` writes it (demo: the shipped one)",
    )
    group.add_argument("--selector", help="which selector's contrast")
    group.add_argument("--domain", help="which domain's contrast (default: the only one in the file)")
    group.add_argument("--lambda", dest="lam", help="weight of the language model's ranks, 0 to 1")
    group.add_argument("--k", help="fraction of all rows to remove: 0.02 or 2%%")


def chosen_edit(args: argparse.Namespace, n_rows: int, weights_hash: str) -> Edit:
    """The edit that the options name, checked against the model that will carry it."""
    from engine.refusal.edit import edit_from_contrast, edit_from_mask

    cell = {"--selector": args.selector, "--lambda": args.lam, "--k": args.k}
    if args.mask is not None:
        extra = [
            name
            for name, value in {**cell, "--contrast": args.contrast, "--domain": args.domain}.items()
            if value
        ]
        if extra:
            raise InputError(f"--mask is a whole edit, {extra[0]} is another; give one of them")
        return edit_from_mask(args.mask, n_rows, weights_hash)
    contrast = args.contrast
    if contrast is None and args.model == "demo" and args.selector is not None:
        contrast = demo_dir() / "results" / "contrast.safetensors"
    if contrast is None:
        raise InputError(
            "no edit given; expected --mask FILE, or --contrast FILE with --selector --lambda --k"
        )
    missing = [name for name, value in cell.items() if value is None]
    if missing:
        raise InputError(f"--contrast needs {' and '.join(missing)} as well: which cell of the grid")
    try:
        lam = float(args.lam)
    except ValueError:
        raise InputError(f"--lambda must be a number in [0, 1], got {args.lam!r}; write 0.5") from None
    return edit_from_contrast(
        contrast, args.selector, args.domain, lam, parse_rate(args.k), n_rows, weights_hash
    )
