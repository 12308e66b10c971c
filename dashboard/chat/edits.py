"""What to remove: the settings of an edit -> a mask, from shipped scores or from scores computed here.

For the shipped model the scores and contrasts in `precomputed/demo/results` are used as long as they belong
to the very weights that are loaded. Contrasts of another model come from a refusal run of its own. Everything else
is computed on the embedded text and prompts, once per model in memory. A mask is handed over in an address: to Rows,
which shows its rows, and to Live edit, which zeroes them."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from dashboard.charts import formats, palette
from dashboard.charts.series import ORDER_TITLES
from dashboard.chat.live import DEMO, Entry
from dashboard.show import menu
from dashboard.state import access, results, shipped_models as shipped
from dashboard.state.scores import scores_for, selectors_in
from engine.edits.contrasts import Contrast, edit_from_contrast, refusal_mask
from engine.edits.masks import Mask, removed_rows
from engine.records.errors import InputError
from engine.records.locks import held
from engine.selectors.base import (
    ALSO_CONTRASTS,
    BUILT_IN,
    CONTRASTS_ONLY,
    PAPER_CONTRASTS,
    contrast_selectors,
    protected_by,
)

Mode = Literal["refusal", "language model"]
Progress = Callable[[str, int, int], None]
LAMBDAS = (0.2, 0.3, 0.5, 0.6, 0.7, 0.8, 0.95)  # the paper's grid, appendix E, and the last of the shipped model's
KS = (0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.08, 0.1)  # and the steps of the shipped model
RATES = (0.0025, 0.005, 0.01, 0.02, 0.03, *(round(0.05 * step, 2) for step in range(1, 19)))
# The built-in selectors that contrast prompts: asking the registry for them would load torch before the first edit.
REFUSAL_SELECTORS = tuple(palette.in_order([*PAPER_CONTRASTS, *ALSO_CONTRASTS]))
DOMAINS = ("hate", "crime", "adult", "medical", "legal")
CALIBRATION_WINDOWS, WINDOW_TOKENS, CALIBRATION_PAIRS = 64, 128, 64
SEED = 42
CONTRASTS = "contrast.safetensors"
TO_ROWS, TO_LIVE = "Its rows on the map", "Zero it live"
HANDED = "edit"  # in the address: an edit that another page hands over to the live page, as JSON


@dataclass(frozen=True)
class Edit:
    """One edit. refusal: domain, lam, k, and for one's own model the results folder of its run. language model: order,
    rate, and for one's own model the folder of its scores, "" where they are computed here."""

    mode: Mode
    selector: str
    domain: str = ""
    lam: float = 0.0
    k: float = 0.0
    order: str = ""
    rate: float = 0.0
    run: str = ""

    def describe(self) -> str:
        name = palette.title(self.selector)
        if self.mode == "refusal":
            return f"{name}, {self.domain}, λ = {self.lam:g}, k = {self.k:.4g}"
        return f"{name}, {self.order.replace('lerf', 'LeRF').replace('morf', 'MoRF')} {formats.rate(self.rate)}"


def cell_name(lam: float, k: float) -> str:
    """`λ 0.5, k 2%`: a cell of a grid, as lists and addresses have it."""
    return f"λ {lam:g}, k {formats.rate(k)}"


def ranking_selectors(run: str = "", model: str = "") -> list[str]:
    """Selectors for the language-model mode: those of a folder of scores, of a shipped model of its own, else the
    built-in ones and installed plug-ins."""
    with suppress(InputError):  # the edit says what is wrong with the folder
        folder = results.folder_of(run) if run else shipped.scored_folder(model)
        if folder is not None:
            return palette.in_order(selectors_in(folder))
    return palette.in_order([*(name for name in BUILT_IN if name not in CONTRASTS_ONLY), *_plug_ins()])


def refusal_selectors() -> list[str]:
    """Selectors for the refusal mode: the built-in ones and installed plug-ins that contrast prompts."""
    if not _plug_ins():
        return list(REFUSAL_SELECTORS)
    return palette.in_order(contrast_selectors())


def _plug_ins() -> list[str]:
    return [point.name for point in entry_points(group="selector_audit.selectors")]


def mask_of(entry: Entry, edit: Edit, progress: Progress) -> Mask:
    """The removed rows of an edit, ascending int64. `progress(what, done, total)` while scores are computed."""

    def scoring(what: str, done: int, total: int) -> None:
        progress(f"Computing scores for this model: {what}", done, total)

    folder = results.folder_of(edit.run) if edit.run else None
    rows, weights = entry.loaded.rows.n_rows, entry.loaded.weights_hash
    if edit.mode == "language model":
        own = scores_for(folder, edit.selector, weights, rows) if folder else _scores(entry, edit.selector, scoring)
        return removed_rows(own, edit.order, edit.rate)
    if folder:  # refuses a file of another model
        path = folder / CONTRASTS
        return edit_from_contrast(path, edit.selector, edit.domain, edit.lam, edit.k, rows, weights).units
    return refusal_mask(_contrast(entry, edit.selector, edit.domain, scoring), edit.lam, edit.k)


def control_of(entry: Entry, mask: Mask, seed: int) -> Mask:
    """As many rows as the edit in every layer, drawn at random: what is left if only the depth mattered."""
    from engine.edits.control_edits import layer_matched

    return layer_matched(mask, entry.loaded.rows, seed)


def removed_per_projection(entry: Entry, mask: Mask) -> pl.DataFrame:
    """Columns projection, removed, rows; in the order in which projections stand in a block."""
    layers = entry.loaded.rows.layers
    removed = np.diff(np.searchsorted(mask, [(one.start, one.start + one.rows) for one in layers]))[:, 0]
    of = {"projection": [one.projection for one in layers], "removed": removed, "rows": [one.rows for one in layers]}
    return pl.DataFrame(of).group_by("projection", maintain_order=True).sum()


def _scores(entry: Entry, selector: str, progress: Progress) -> npt.NDArray[np.float32]:
    if selector not in entry.scores:
        known = shipped.scores_of(entry.loaded.weights_hash, selector, entry.loaded.rows.n_rows)
        if known is None:
            from engine.data.corpora import windows
            from engine.selectors import compute_scores, get_selector

            tokens = None
            if not get_selector(selector).data_free:
                tokens = windows(
                    "demo", entry.loaded.tokenizer, role="calibration", samples=CALIBRATION_WINDOWS,
                    length=WINDOW_TOKENS,
                )  # fmt: skip
            with _held(entry, progress):
                computed = compute_scores(entry.loaded, [selector], tokens, seeds=(SEED,), progress=progress)
            known = computed[selector].numpy()
        entry.scores[selector] = known
    values: npt.NDArray[np.float32] = entry.scores[selector]
    return values if values.ndim == 1 else values[0]  # random: one ranking per seed, the first is shown


def _contrast(entry: Entry, selector: str, domain: str, progress: Progress) -> Contrast:
    key = (selector, domain)
    if key not in entry.contrasts:
        if shipped.weights_hash_of(DEMO) != entry.loaded.weights_hash:
            raise InputError(
                "a refusal edit of another model than the shipped one needs pairs of prompts for it; run "
                "`selector-audit refusal run MODEL --pairs FILE --out FOLDER`, and give that folder"
            )
        known = shipped.demo_contrasts().get(key)
        if known is not None and known.c_comply.size != (rows := entry.loaded.rows.n_rows):
            raise InputError(
                f"the shipped {CONTRASTS} has {known.c_comply.size} rows, the shipped model has {rows}; rebuild it"
            )
        entry.contrasts[key] = known or _compute_contrast(entry, selector, domain, progress)
    return entry.contrasts[key]


def _compute_contrast(entry: Entry, selector: str, domain: str, progress: Progress) -> Contrast:
    from engine.data.corpora import contrast_pairs
    from engine.selectors import get_selector
    from engine.studies.refusal.algorithm import contrasts

    # Random rows are protected by nothing, as in the shipped contrasts: lambda changes nothing there.
    lm_scores = {} if get_selector(selector).seeded else {selector: _scores(entry, protected_by(selector), progress)}
    pairs = contrast_pairs("demo", domain, split="calibration")[:CALIBRATION_PAIRS]
    with _held(entry, progress):
        return contrasts(entry.loaded, [selector], pairs, lm_scores, progress=progress)[0]


def _held(entry: Entry, progress: Progress) -> AbstractContextManager[None]:
    """The model's lock; whoever waits for it sees so."""
    return held(entry.loaded.lock, lambda _: progress("waiting for another session", 0, 1))


def rate_of(rate: float) -> float | None:
    """The rate as Rows and Live edit offer it; None where they do not."""
    return next((one for one in RATES if abs(one - rate) < 1e-9), None)


def to_live(
    selector: str, order: str, rate: float, model: str = DEMO, run: str = ""
) -> Mapping[str, str | Sequence[str]]:
    """The settings of Live edit that zero this mask. run: the folder of its scores, "" for the shipped ones."""
    given: dict[str, object] = {"selector": selector, "order": order, "rate": rate}
    if model != DEMO:
        given["model"] = model
    if run:
        given["run"] = run
    return {HANDED: json.dumps(given, ensure_ascii=False)}


def live_link(folder: Path, model: str, selector: str, order: str, rate: float) -> None:
    """A link to Live edit with this mask, where that can make the very same: of the shipped scores, or of a model of
    one's own that may be loaded here. folder: of the scores."""
    of_shipped = shipped.model_of(folder)
    known = of_shipped in shipped.TITLES
    if known or not access.limited():
        settings = to_live(selector, order, rate, str(of_shipped) if known else model, "" if known else str(folder))
        menu.link(TO_LIVE, "live", settings, icon=":material/play_arrow:")


def read_handed(text: str) -> tuple[str, Edit] | None:
    """The model and the edit of an address; None for what is no such thing, or nothing that Live edit offers.
    A refusal edit of the shipped model has a domain, lambda and k of its sliders, one of another model the folder of
    its run. Random rows are protected by no lambda: 0 is the same edit as any."""
    try:
        given = json.loads(text)
        model = str(given.get("model", DEMO))
        selector, run = str(given["selector"]), str(given.get("run", ""))
        if "order" in given:
            order, rate, run = str(given["order"]), rate_of(float(given["rate"])), "" if access.limited() else run
            if rate is None or order not in ORDER_TITLES or selector not in ranking_selectors(run, model):
                return None
            return model, Edit("language model", selector, order=order, rate=rate, run=run)
        lam, k = float(given["lambda"]), float(given["k"])
        edit = Edit("refusal", selector, str(given["domain"]), lam, k, run=run)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    known = edit.domain in DOMAINS and edit.selector in refusal_selectors() and k in KS
    if model == DEMO and known and lam == 0:
        edit = Edit("refusal", edit.selector, edit.domain, LAMBDAS[0], k)
    if edit.run or (known and edit.lam in LAMBDAS):
        return model, edit
    return None
