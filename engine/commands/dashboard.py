"""`dashboard`: opens the browser app.

Serves the app on this machine only (127.0.0.1) and opens it in a browser. Stop it with Ctrl-C. On any other --address
one needs the token in the address that it prints."""

import argparse

from engine.commands import common


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=int, help="port to serve on (default: 8501, or a free one if that is taken)")
    parser.add_argument(
        "--address", default="127.0.0.1", help="address to serve on (default 127.0.0.1: this machine only)"
    )
    parser.add_argument(
        "--allow-runs", action="store_true",
        help="with another --address: let those who have the token start, import and delete runs, and give models and "
        "folders of this machine by their path",
    )  # fmt: skip
    parser.add_argument(
        "--public", metavar="HOST",
        help="with another --address: serve everybody who comes by this host name, without a token, as a Space of the "
        "hub does; they see the results and ask the shipped model",
    )  # fmt: skip
    parser.add_argument("--no-browser", action="store_true", help="serve without opening a browser window")
    common.add_storage(parser, folder=False)


def run(args: argparse.Namespace) -> None:
    from dashboard import serve

    browser = not args.no_browser
    serve.main(args.store, args.port, args.address, browser, allow_runs=args.allow_runs, public=args.public)
