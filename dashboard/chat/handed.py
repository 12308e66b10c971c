"""A mask handed over in an address: to Rows, which shows its rows, and to Live edit, which zeroes them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from dashboard.charts import formats, palette
from dashboard.charts.series import ORDER_TITLES
from dashboard.chat import edits, live
from dashboard.chat.edits import Edit
from dashboard.show import menu
from dashboard.state import access, shipped

TO_ROWS, TO_LIVE = "Its rows on the map", "Zero it live"


def rate_of(rate: float) -> float | None:
    """The rate as Rows and Live edit offer it; None where they do not."""
    return next((one for one in edits.RATES if abs(one - rate) < 1e-9), None)


def to_rows(selector: str, order: str, rate: float) -> Mapping[str, str | Sequence[str]]:
    return {
        "measure": "Share in the mask", "row_selector": palette.title(selector), "row_order": ORDER_TITLES[order],
        "row_rate": formats.rate(rate),
    }  # fmt: skip


def to_live(
    selector: str, order: str, rate: float, model: str = live.DEMO, run: str = ""
) -> Mapping[str, str | Sequence[str]]:
    """The settings of Live edit that zero this mask. run: the folder of its scores, "" for the shipped ones."""
    given: dict[str, object] = {"selector": selector, "order": order, "rate": rate}
    if model != live.DEMO:
        given["model"] = model
    if run:
        given["run"] = run
    return {edits.HANDED: json.dumps(given, ensure_ascii=False)}


def live_link(folder: Path, model: str, selector: str, order: str, rate: float) -> None:
    """A link to Live edit with this mask, where that can make the very same: of the shipped scores, or of a model of
    one's own that may be loaded here. folder: of the scores."""
    of_shipped = shipped.model_of(folder)
    known = of_shipped in shipped.TITLES
    if known or not access.limited():
        settings = to_live(selector, order, rate, str(of_shipped) if known else model, "" if known else str(folder))
        menu.link(TO_LIVE, "live", settings, icon=":material/play_arrow:")


def read(text: str) -> tuple[str, Edit] | None:
    """The model and the edit of an address; None for what is no such thing, or nothing that Live edit offers.
    A refusal edit of the shipped model has a domain, lambda and k of its sliders, one of another model the folder of
    its run. Random rows are protected by no lambda: 0 is the same edit as any."""
    try:
        given = json.loads(text)
        model = str(given.get("model", live.DEMO))
        selector, run = str(given["selector"]), str(given.get("run", ""))
        if "order" in given:
            order, rate, run = str(given["order"]), rate_of(float(given["rate"])), "" if access.limited() else run
            if rate is None or order not in ORDER_TITLES or selector not in edits.ranking_selectors(run, model):
                return None
            return model, Edit("language model", selector, order=order, rate=rate, run=run)
        lam, k = float(given["lambda"]), float(given["k"])
        edit = Edit("refusal", selector, str(given["domain"]), lam, k, run=run)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    known = edit.domain in edits.DOMAINS and edit.selector in edits.refusal_selectors() and k in edits.KS
    if model == live.DEMO and known and lam == 0:
        edit = Edit("refusal", edit.selector, edit.domain, edits.LAMBDAS[0], k)
    if edit.run or (known and edit.lam in edits.LAMBDAS):
        return model, edit
    return None
