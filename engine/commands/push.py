"""`push`: a finished run as a data set on the hub.

Uploads the manifest of a results folder and what it lists (tables, scores, masks; never weights) with a card. A data
set that is there is written over only if a push of the same model made it. `report USER/NAME`, `compare USER/NAME` and
`replay USER/NAME` read it."""

import argparse

from engine.commands import common
from engine.records.errors import InputError


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_given", metavar="RUN", nargs="?", help="the folder that a command wrote, or a model's id (its results)"
    )
    parser.add_argument("--to", metavar="USER/NAME", help="the data set; it is made if there is none")
    parser.add_argument("--public", action="store_true", help="everybody may see a new data set (default: private)")
    parser.add_argument("--dry-run", action="store_true", help="list the files and their bytes; ask nobody")
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of manifest and tables instead")
    common.add_storage(parser, folder=False)
    common.add_json(parser)


def run(args: argparse.Namespace) -> None:
    from engine.results.tables import json_schema
    from engine.run import hub_runs

    if args.schema:
        common.print_json(json_schema())
        return
    if args.run_given is None or args.to is None:
        raise InputError("a push needs a run and a name for it; write selector-audit push RUN --to USER/NAME")
    hub_runs.check_name(args.to)
    folder = common.run_folder(args.run_given, args.store)
    sizes = {name: hub_runs.size_of(one) for name, one in hub_runs.contents(folder, args.to).items()}
    places = hub_runs.places_named(folder)
    pushed = None if args.dry_run else hub_runs.push(folder, args.to, public=args.public, bars=not args.json)
    answer = {"folder": str(folder), "to": args.to, "files": sizes, "bytes": sum(sizes.values()), "places": places}
    if common.as_json(args, {**answer, "pushed": pushed and pushed._asdict()}):
        return
    for place in places[:3]:
        common.err.print(f"note: the manifest names {place}, which readers will see", soft_wrap=True)
    if pushed is None:
        common.print_table("would be pushed", ("file", "bytes"), ((n, f"{s:,}") for n, s in sizes.items()), texts=1)
    state = "not pushed" if pushed is None else f"{'private' if pushed.private else 'public'}: {pushed.page}"
    common.out.print(f"{len(sizes)} files, {sum(sizes.values()):,} bytes; {state}")
