"""The typeface without a browser: the file, its licence, and that pages, figures and report name it."""

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor

import plotly.graph_objects as go

from dashboard import serve
from dashboard.charts import typeface
from dashboard.report import report


def test_it_is_served_to_be_kept():
    sent = []

    async def ask():
        async def receive():
            return {"type": "http.request"}

        async def send(message):
            sent.append(message)

        scope = {
            "type": "http",
            "method": "GET",
            "path": typeface.path(600),
            "headers": [],
            "query_string": b"",
            "root_path": "",
        }
        await serve._typeface()[1](scope, receive, send)

    with ThreadPoolExecutor(1) as pool:  # where this process has a loop that runs, as after a browser test
        pool.submit(asyncio.run, ask()).result()
    start, body = sent
    told = {name.decode(): value.decode() for name, value in start["headers"]}
    assert start["status"] == 200
    assert told["content-type"] == "font/woff2"
    assert "immutable" in told["cache-control"]
    assert body["body"] == typeface.data(600)


def test_a_report_carries_it_along():
    rule = typeface.css()
    addresses = re.findall(r"url\(([^)]*)\)", rule)
    assert len(addresses) == len(typeface.WEIGHTS)
    assert all(re.fullmatch(r"data:font/woff2;base64,[A-Za-z0-9+/=]+", address) for address in addresses)
    assert "<" not in rule
    drawn = report._figure(go.Figure(go.Bar(x=[1], y=[1])))
    assert f'"family":"{typeface.FAMILY}"' in drawn
