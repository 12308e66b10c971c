"""`fetch`: all that a run needs from the hub, for machines without a network.

Fetches the weights, configuration and tokenizer of a Hugging Face model, both splits of WikiText-2 and the first
documents of C4. Afterwards every command that reads these runs with HF_HUB_OFFLINE=1, also on another machine with a
copy of the folder HF_HOME."""

import argparse
from typing import get_args

from engine.commands import common
from engine.data.texts import Role, available_corpora, read_text, readable_offline
from engine.records.errors import InputError, unknown

_CORPORA = ("wikitext2", "c4")


def add_options(parser: argparse.ArgumentParser) -> None:
    common.add_model(parser)
    parser.add_argument(
        "--corpora", default=",".join(_CORPORA), metavar="NAMES",
        help=f"texts to fetch, comma-separated, or none (default: {','.join(_CORPORA)})",
    )  # fmt: skip
    common.add_json(parser)


def run(args: argparse.Namespace) -> None:
    from huggingface_hub import constants

    from engine.models.checkpoints import find_checkpoint
    from engine.models.downloads import size_text

    corpora = [] if args.corpora == "none" else [name.strip() for name in args.corpora.split(",")]
    for name in corpora:
        if name not in available_corpora():
            raise unknown("corpus", name, [*available_corpora(), "none"])
    checkpoint = find_checkpoint(args.model, args.revision)
    checkpoint.config()
    files = checkpoint.weight_files()
    size_bytes = sum(file.stat().st_size for file in files)
    weights_hash = checkpoint.weights_hash()  # reads every byte: a damaged file is told here, not on the node
    _say(args, f"{checkpoint.id}: {len(files)} weight files, {size_text(size_bytes)}, every byte read")
    texts = []
    for name in corpora:
        for role in get_args(Role):
            try:
                text = read_text(name, role)
            except InputError as error:
                raise InputError(f"{error}; the model is fetched, --corpora none leaves the texts out") from None
            if not readable_offline(name, role):
                raise InputError(
                    f"corpus {name} was read but cannot be kept in {constants.HF_ASSETS_CACHE}; give a folder that "
                    "can be written: HF_HOME=FOLDER"
                )
            texts.append({"corpus": name, "role": role, "revision": text.revision, "characters": len(text.text)})
            _say(args, f"{name}, {role}: {len(text.text):,} characters")
    model = {"model": checkpoint.id, "revision": checkpoint.revision, "weights_hash": weights_hash}
    folder, kept_in = str(checkpoint.folder), constants.HF_HOME
    places = {"weight_bytes": size_bytes, "texts": texts, "folder": folder, "HF_HOME": kept_in}
    if common.as_json(args, {**model, **places}):
        return
    common.out.print(f"kept in {kept_in}; without a network: HF_HUB_OFFLINE=1 selector-audit …")


def _say(args: argparse.Namespace, line: str) -> None:
    if not args.json:
        common.out.print(line)
