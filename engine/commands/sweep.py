"""`sweep`: LeRF/MoRF curves of the chosen selectors."""

from __future__ import annotations

import argparse

import polars as pl
from rich.table import Table

from engine.commands import common
from engine.ranking import ORDERS
from engine.records import Stopwatch, check_folder
from engine.store import Store


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "sweep",
        help="remove more and more rows, least or most relevant first, and measure perplexity",
        description="Writes sweep.parquet: one row per selector, seed, order and rate with the NLL (nats per token), "
        "its standard error and the perplexity. Finished cells are kept: the same command resumes.",
    )
    common.add_model(parser)
    common.add_scoring(parser)
    parser.add_argument("--orders", default="lerf,morf", help="lerf, morf or both (default)")
    parser.add_argument(
        "--rates", default="0:0.9:0.05", help="list (0.1,30%%) or FROM:TO:STEP (default 0:0.9:0.05)"
    )
    parser.add_argument(
        "--eval-corpus", help="evaluation text (default: the test part of --corpus; of a file, what follows)"
    )
    parser.add_argument("--eval-samples", type=int, default=256, help="evaluation windows (default 256)")
    parser.add_argument(
        "--eval-length", type=int, default=512, help="tokens per evaluation window (default 512)"
    )
    common.add_device(parser)
    common.add_storage(parser)
    common.add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    from engine.corpora import calibration_tokens, windows
    from engine.scores import default_corpus, score_model, write_scores
    from engine.sweep import sweep_model, write_sweep

    orders = common.names(args.orders, "order", ORDERS)
    rates = common.rates(args.rates)
    plan = common.score_plan(args)
    eval_corpus = args.eval_corpus or args.corpus or default_corpus(args.model)
    watch = Stopwatch()
    with Store(args.store) as store:
        folder = common.output_folder(args, store)
        loaded = common.load(args)
        check_folder(folder, loaded.fingerprint)
        evaluation = windows(
            eval_corpus,
            loaded.tokenizer,
            role="evaluation",
            samples=args.eval_samples,
            length=args.eval_length,
            skip_tokens=calibration_tokens(eval_corpus, plan.corpus, plan.samples * plan.length),
        )
        with common.progress_bar(args) as progress:
            scored = score_model(loaded, plan, store=store, progress=progress)
            write_scores(folder, loaded, scored)
            table = sweep_model(
                loaded,
                scored.scores,
                evaluation,
                store=store,
                orders=orders,
                rates=rates,
                seeds=plan.seeds,
                batch_size=args.batch_size,
                progress=progress,
            )
        spec = {"scores": scored.spec, "evaluation": evaluation.record(), "orders": orders, "rates": rates}
        write_sweep(folder, loaded, table, spec, watch.elapsed_s)
    if args.json:
        common.print_json({"folder": str(folder), "sweep": table.to_dicts()})
        return
    common.out.print(_summary(table))
    common.out.print(f"written to {folder}; look at it with: selector-audit dashboard", markup=False)


def _summary(table: pl.DataFrame) -> Table:
    """NLL per selector at the rates people quote, mean over seeds."""
    quoted = [rate for rate in (0.0, 0.1, 0.2, 0.3, 0.5) if rate in table["rate"]] or sorted(
        set(table["rate"])
    )[:5]
    view = Table(title="NLL, nats per token (perplexity = e^NLL)")
    view.add_column("selector")
    view.add_column("order")
    for rate in quoted:
        view.add_column(f"{rate:.0%}", justify="right")
    means = table.group_by("selector", "order", "rate", maintain_order=True).agg(pl.col("nll").mean())
    for selector, order in means.select("selector", "order").unique(maintain_order=True).iter_rows():
        curve = means.filter(selector=selector, order=order)
        values = dict(curve.select("rate", "nll").iter_rows())
        view.add_row(selector, order, *(f"{values[rate]:.3f}" for rate in quoted))
    return view
