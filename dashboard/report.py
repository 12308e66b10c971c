"""A run as one self-contained HTML file: protocol, verdicts, figures, numbers, provenance. Opens without a network."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

from plotly.offline import get_plotlyjs

from dashboard import report_sections as sections, schemas
from engine.errors import InputError
from engine.records import read_manifest

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}
h1{font-size:1.8rem}h2{font-size:1.35rem;margin-top:2.5rem;border-bottom:1px solid #ccc}h3{font-size:1.1rem}
table{border-collapse:collapse;font-size:.875rem;display:block;overflow-x:auto}
th,td{padding:.2rem .7rem;border-bottom:1px solid #ddd;text-align:left}td.n{text-align:right}
pre{white-space:pre-wrap;overflow-wrap:anywhere;font-size:.75rem;background:#f5f5f5;padding:.7rem}
.note{color:#555;font-size:.875rem}
"""
_INTRODUCTION = (
    "<p>A selector scores the rows of a model. This report says what removing rows by each score did. "
    "<i>LeRF</i> removes the lowest-scored rows first: a good selector loses little. <i>MoRF</i> removes the "
    "highest-scored first: a good selector loses much. NLL is in nats per token; perplexity = e<sup>NLL</sup>.</p>"
)
_SECTIONS = (
    sections.verdicts,
    sections.sufficiency,
    sections.specificity,
    sections.cost,
    sections.stability,
    sections.agreement,
    sections.provenance,
)


def build(folders: Sequence[Path]) -> str:
    """The report on one or several runs. Errors: InputError for a folder without a sweep, or a damaged one."""
    runs = [sections.Run(folder, read_manifest(folder)) for folder in folders]
    for run in runs:
        if run.table(schemas.SWEEP) is None:
            raise InputError(
                f"{run.folder} holds no sweep, which a report begins with; run `selector-audit analyze {run.model} all`"
            )
    names = ", ".join(run.model for run in runs)
    body = [f"<h1>Selector audit: {html.escape(names)}</h1>", _INTRODUCTION]
    if len(runs) > 1:
        body += ["<h2>Replication across models</h2>", *sections.replication(runs)]
    for run in runs:
        body += [f"<h2>{html.escape(run.model)}</h2>", sections.protocol(run)]
        for section in _SECTIONS:
            body += section(run)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Selector audit: {html.escape(names)}</title><style>{_STYLE}</style>"
        f"<script>{get_plotlyjs()}</script></head><body>{''.join(body)}</body></html>\n"
    )
