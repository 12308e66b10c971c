"""Curves that can stand beside those of a page: every model of the other sources and of the other runs, by name; and
which of them are compared.

Compare stands in the sidebar of every page and is part of the address; what compares models, compares those chosen
there."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import streamlit as st

from dashboard.state import results, shipped_models as shipped, sources
from dashboard.state.results import Curves
from engine.records.errors import InputError

KEY = "basket"  # of what is compared, in the address; never renamed
MOST = 6  # as many as stand in one row of small multiples
HELP = (
    "Models and runs that stay side by side from page to page: small multiples on Curves, the leaderboard, and the "
    "refusal figure over models show these. Empty: what each page shows by itself."
)


@dataclass(frozen=True)
class Offer:
    """One model of one source. `kind` is the source's name, or `Run` for another run of the store."""

    name: str
    kind: str
    model: str
    curves: Curves
    folder: Path | None = None  # of its results; None: the paper's, which have one for each model

    def table(self, stem: str) -> pl.DataFrame:
        """The lines of this model. Errors: InputError where the table is missing or damaged."""
        return sources.read(self.folder, stem).frame.filter(model=self.model)

    @property
    def place(self) -> tuple[Path | None, str]:
        return None if self.folder is None else self.folder.resolve(), self.model


def offers(kind: str, curves: Curves | None, folder: Path | None) -> dict[str, Offer]:
    """Everything readable by name, this source's models first. What cannot be read is not offered.
    kind, curves, folder: of the source that the page shows (folder None: the paper); curves None: read here."""
    found, folders = {kind: curves} if curves else {}, {kind: folder, sources.PAPER: None, **shipped.folders()}
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
    return offers(kind, None, folder)


def beside(kind: str, offered: dict[str, Offer]) -> list[Offer]:
    """The models of a source, for a grid; where it has one only, everything that is offered."""
    kinds = {kind} | ({"Run"} if kind == sources.MINE else set())
    own = [offer for offer in offered.values() if offer.kind in kinds]
    return own if len(own) > 1 else list(offered.values())


def compare() -> None:
    """Compare, in the sidebar of every page. What a link names and is not there any more is left out."""
    known = list(everything())
    if KEY in st.session_state:
        still_known = [name for name in st.session_state[KEY] if name in known]
        if still_known != list(st.session_state[KEY]):
            st.session_state[KEY] = still_known
    with st.sidebar:
        st.multiselect(
            "Compare", known, key=KEY, bind="query-params", max_selections=MOST, help=HELP,
            placeholder="Models side by side",
        )  # fmt: skip


def compared(offered: Mapping[str, Offer]) -> dict[str, Offer]:
    """Of all that is offered what is compared, in the order of the choice; empty where nothing is chosen. A page's own
    run has another name on that page than the one that it is compared under."""
    names = list(st.session_state[KEY] if KEY in st.session_state else st.query_params.get_all(KEY))
    by_place = {offer.place: name for name, offer in everything().items()} if names else {}
    known = {by_place.get(offer.place, name): offer for name, offer in offered.items()}
    return {name: known[name] for name in names if name in known}
