"""The typeface without a browser: the file, its licence, and that pages, figures and report name it."""

import re

import plotly.graph_objects as go

from dashboard.charts import typeface
from dashboard.report import html_report as report


def test_a_report_carries_it_along():
    rule = typeface.css()
    addresses = re.findall(r"url\(([^)]*)\)", rule)
    assert len(addresses) == len(typeface.WEIGHTS)
    assert all(re.fullmatch(r"data:font/woff2;base64,[A-Za-z0-9+/=]+", address) for address in addresses)
    assert "<" not in rule
    drawn = report._figure(go.Figure(go.Bar(x=[1], y=[1])))
    assert f'"family":"{typeface.FAMILY}"' in drawn
