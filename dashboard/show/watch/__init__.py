"""Watch it break, in the browser: plays what `charts.watch` computed, without a request and without a rerun."""

from pathlib import Path
from typing import Any

from dashboard.show import layout


def play(data: dict[str, Any], key: str) -> None:
    """The stage, at the place of the call. data: of `charts.watch.payload`."""
    layout.component(Path(__file__).parent, "watch")(data=data, key=key)
