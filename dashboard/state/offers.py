"""Curves that can stand beside those of a page: every model of the other sources and of the other runs, by name."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from dashboard.state import results, shipped, sources
from dashboard.state.results import Curves
from engine.records.errors import InputError


@dataclass(frozen=True)
class Offer:
    """One model of one source. `kind` is the source's name, or `Run` for another run of the store."""

    name: str
    kind: str
    model: str
    curves: Curves
    folder: Path | None = None  # of its results; None: the paper's, which have one for each model


def offers(kind: str, curves: Curves, folder: Path | None) -> dict[str, Offer]:
    """Everything readable by name, this source's models first. What cannot be read is not offered.
    kind, curves, folder: of the source that the page shows (folder None: the paper)."""
    found, folders = {kind: curves}, {kind: folder, sources.PAPER: None, **shipped.folders()}
    for name, of in folders.items():
        if name not in found:
            with suppress(InputError):
                found[name] = results.read_paper() if of is None else results.read_run(of)
    known = {
        f"{name}: {model}": Offer(f"{name}: {model}", name, model, read, folders[name])
        for name, read in found.items()
        for model in read.models
    }
    return known | _other_runs(folder)


def _other_runs(shown: Path | None) -> dict[str, Offer]:
    top = results.store_results_dir()
    runs, offered = list[Path](), dict[str, Offer]()
    with suppress(InputError):
        runs = results.find_runs(top)
    for run in runs:
        if shown is None or run.resolve() != shown.resolve():
            with suppress(InputError):
                curves = results.read_run(run)
                where = str(run.relative_to(top)) if run != top else run.name
                for model in curves.models:
                    name = f"Run {where}: {model}"
                    offered[name] = Offer(name, "Run", model, curves, run)
    return offered


def everything() -> dict[str, Offer]:
    """Every model that the app can find by itself, whatever page is open: shipped, the paper's, the store's runs."""
    kind, folder = next(iter(shipped.folders().items()))
    curves = results.Curves(pl.DataFrame(schema=results.CURVE_SCHEMA), "")
    with suppress(InputError):
        curves = results.read_run(folder)
    return offers(kind, curves, folder)


def beside(kind: str, offered: dict[str, Offer]) -> list[Offer]:
    """The models of a source, for a grid; where it has one only, everything that is offered."""
    kinds = {kind} | ({"Run"} if kind == sources.MINE else set())
    own = [offer for offer in offered.values() if offer.kind in kinds]
    return own if len(own) > 1 else list(offered.values())
