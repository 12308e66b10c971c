"""Addresses of pages that have become parts of others: links of before lead to that part, with their settings."""

from collections.abc import Callable
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.routing import Route

Settings = dict[str, list[str]]
_PARTS = {"Rank distribution": "Controls", "Claims": "Verdict"}  # of the page Controls, where they have other names


def _controls(settings: Settings) -> Settings:
    (name,) = settings.get("part", ["Controls"])
    return {**settings, "part": [_PARTS.get(name, name)]}


def _judges(settings: Settings) -> Settings:
    replies = settings.pop("replies", ["A folder" if "folder" in settings else "Shipped model"])
    source = {"source": ["My results"]} if replies == ["A folder"] else {"source": replies}
    runs = {"run": settings.pop("judged")} if "judged" in settings else {}
    return {"section": ["Judges"], **source, **runs, **settings}


# Former path -> the path of today, and the settings there from those of the link.
FORMER: dict[str, tuple[str, Callable[[Settings], Settings]]] = {
    "agreement": ("where", lambda settings: {"part": ["Agreement"], **settings}),
    "depth": ("where", lambda settings: {"part": ["Depth"], **settings}),
    "stability": (
        "believed",
        lambda settings: {"part": ["Verdict" if "measure" in settings else "Stability"], **settings},
    ),
    "controls": ("believed", _controls),
    "downstream": ("tasks", dict),
    "judges": ("refusal", _judges),
    "paper": ("reference", lambda settings: {**settings, "document": ["Paper tables"]}),
    "methods": ("reference", lambda settings: {**settings, "document": ["Methods"]}),
}


def address(path: str, settings: Settings) -> str:
    """Where a former path and the settings of a link lead, relative to the former address. What was on the page is in
    the fold of its part, which is open. A link that names no results is of those that pages opened with then."""
    page, settings_of = FORMER[path]
    source = {} if page == "reference" else {"source": "Shipped model"}
    return f"{page}?{urlencode({'more': 'true', **source, **settings_of(dict(settings))}, doseq=True)}"


def routes() -> list[Route]:
    """What answers a former path, before the app is asked: so the browser's Back never meets it."""

    def lead(request: Request) -> RedirectResponse:
        settings = {name: request.query_params.getlist(name) for name in request.query_params}
        return RedirectResponse(address(request.url.path.rpartition("/")[2], settings))

    return [Route(f"/{path}", lead) for path in FORMER]
