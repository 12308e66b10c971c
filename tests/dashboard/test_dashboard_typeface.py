"""The typeface without a browser: the file, its licence, and that pages, figures and report name it."""

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from xml.etree import ElementTree

import plotly.graph_objects as go

from dashboard import headers, serve
from dashboard.charts import typeface
from dashboard.report import report
from precomputed import demo_dir


def test_the_files_are_small_and_has_its_licence_beside_it():
    assert all(typeface.data(weight)[:4] == b"wOF2" for weight in typeface.WEIGHTS)
    assert sum(len(typeface.data(weight)) for weight in typeface.WEIGHTS) <= 150_000
    licence = (typeface.FOLDER / "OFL.txt").read_text(encoding="utf-8")
    assert "SIL OPEN FONT LICENSE Version 1.1" in licence
    assert "The Inter Project Authors" in licence


def test_pages_ask_for_the_address_at_which_it_is_served():
    options = serve.server_options(8501, "127.0.0.1")
    faces = options["theme.fontFaces"]
    assert [face["url"] for face in faces] == [route.path for route in serve._typeface()]
    assert {face["family"] for face in faces} == {options["theme.font"].split(", ")[0]}
    assert all(f"<{face['url']}>; rel=preload; as=font" in headers._preload_links() for face in faces)


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


def test_the_wordmark_is_drawn_within_its_box():
    """As paths: a font that is missing clips nothing."""
    drawing = ElementTree.parse(demo_dir().parents[1] / "dashboard" / "wordmark.svg").getroot()
    _, _, width, height = map(float, drawing.get("viewBox").split())
    assert {one.tag.rpartition("}")[2] for one in drawing.iter()} == {"svg", "title", "rect", "path"}
    letters = drawing.findall("{*}path")[-1].get("d")
    # Absolute commands only: M, L, Q, C with pairs, H and V with one number each.
    assert set(re.findall("[A-Za-z]", letters)) <= set("MLQCHVZ")
    for command, numbers in re.findall("([MLQCHV])([^A-Za-z]*)", letters):
        values = [float(one) for one in re.findall(r"-?\d*\.?\d+", numbers)]
        across = values if command == "H" else [] if command == "V" else values[::2]
        down = values if command == "V" else [] if command == "H" else values[1::2]
        assert all(32 < one < width for one in across)
        assert all(0 < one < height for one in down)
