"""What a page of a site is made of: sentences, figures and tables of the app, one section per model."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import polars as pl

from dashboard.charts import figure_size, in_words
from dashboard.charts.findings import finding_words as words
from dashboard.state import results
from engine.records.errors import InputError
from engine.studies.verdict.judged_selectors import as_judged_now

LEAST_PX = 260


@dataclass(frozen=True)
class Run:
    """One model's results: a folder, its name for people, and whether its numbers are the paper's."""

    folder: Path
    title: str
    model: str
    published: bool = False

    def table(self, stem: str) -> pl.DataFrame | None:
        """A table, verdicts in today's words; None where it was not measured. Errors: InputError if damaged."""
        if not (self.folder / f"{stem}.parquet").is_file():
            return None
        frame = results.read_table(self.folder, stem).frame.filter(pl.col("model") == self.model)
        frame = as_judged_now(frame) if stem == "verdicts" else frame
        return None if frame.is_empty() else frame

    @property
    def curves(self) -> results.Curves:
        return results.read_paper() if self.published else results.read_run(self.folder)

    @property
    def sweep(self) -> pl.DataFrame:
        """Its curves alone, `results.CURVE_SCHEMA`."""
        return self.curves.frame.filter(pl.col("model") == self.model)


@dataclass(frozen=True)
class Block:
    """A piece of a page. kind: text, list, table, chips, figure, choice. title, below: above it; body: by kind, as
    `page.html.jinja` draws it."""

    kind: str
    body: Any
    title: str = ""
    below: str = ""

    def texts(self) -> list[str]:
        lines = [self.title, self.below] if self.title else []
        if self.kind == "table":
            lines += [" · ".join(filter(None, row)) for row in self.body["rows"]]
        elif self.kind == "chips":
            lines += [f"{line['title']}: {', '.join(word for _, _, word in line['chips'])}. {line['reason']}"
                      for line in self.body["lines"]]  # fmt: skip
        elif self.kind == "choice":
            lines += [text for block in self.body.values() for text in block.texts()]
        elif self.kind in ("text", "list"):
            lines += [self.body] if isinstance(self.body, str) else self.body
        return [line for line in lines if line]


@dataclass
class Section:
    """The blocks of one run, or of a page without runs."""

    name: str
    title: str
    blocks: list[Block] = field(default_factory=list)


@dataclass
class Page:
    """A page. figures: plotly's JSON of each, which `data/figures-NAME.js` brings."""

    name: str
    title: str
    line: str
    sections: list[Section] = field(default_factory=list)
    figures: list[str] = field(default_factory=list)

    def figure(self, made: go.Figure, finding: str, below: str | None = None) -> Block:
        """A figure of the app as its pages show it: its finding and how to read it stand above it."""
        top = made.layout.margin.t or 0
        if finding:
            words.headed(made, finding, below)
        drawn = in_words.as_text(made)
        title, small = in_words.headings(drawn)
        alt = in_words.described(drawn)
        figure_size.stretchable(drawn, top)
        figure_size.sized(drawn)
        height = max(LEAST_PX, round(drawn.layout.height or 420))
        drawn.update_layout(template=None, height=None)
        self.figures.append(str(drawn.to_json()))
        wide = len(list(drawn.select_xaxes())) > 1
        about = {"number": len(self.figures) - 1, "alt": alt, "height": height, "wide": wide}
        return Block("figure", about, title, small)


def table(frame: pl.DataFrame, title: str = "", below: str = "") -> Block:
    """A table as it reads; numbers to three digits, what is missing as a dash."""
    numeric = [frame[name].dtype.is_numeric() for name in frame.columns]
    rows = [[_cell(value) for value in row] for row in frame.iter_rows()]
    return Block("table", {"head": frame.columns, "numeric": numeric, "rows": rows}, title, below)


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}".replace("-", "−")
    return f"{value:,}" if isinstance(value, int) else str(value)


def optional(*parts: Callable[[], Iterable[Block]]) -> list[Block]:
    """The blocks of these parts; one whose table cannot be read becomes the line that says so."""
    blocks: list[Block] = []
    for part in parts:
        try:
            blocks += part()
        except InputError as error:
            blocks.append(Block("text", str(error)))
    return blocks


def script(name: str, body: str) -> bytes:
    """A file that gives a page the value `name`: JSON, in a script, which pages opened from a disk may load."""
    return f"SelectorAudit.data[{json.dumps(name)}] = {body};\n".encode()


def as_json(value: Mapping[str, Any] | list[Any]) -> str:
    """JSON without what ends a script or a line of one."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
