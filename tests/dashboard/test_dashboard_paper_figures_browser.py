"""A figure for a paper in a real browser: inches, dots per inch, the typeface inside, no line through a name."""

import re
import struct

import pytest
from browser_pages import TIMEOUT_MS
from paper_example import figure

from dashboard.show import paper

pytestmark = [pytest.mark.browser, pytest.mark.long]


@pytest.mark.parametrize("width_in", paper.WIDTHS_IN)
def test_a_browser_saves_it_in_inches_with_its_typeface(width_in, browser, tmp_path):
    caption = "What is seen. " + "Model made-up, measured on a made-up text. " * 6
    document = paper.document(paper.for_paper(figure(), width_in), "figure", caption)
    file = tmp_path / "page.html"
    file.write_text(document, encoding="utf-8")
    tab = browser.new_page(accept_downloads=True)
    tab.set_default_timeout(TIMEOUT_MS)
    asked = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(file.as_uri())
    saved = {}
    for name in ("svg", "png"):
        tab.locator(f"#{name}:not([disabled])").wait_for()
        with tab.expect_download() as download:
            tab.locator(f"#{name}").click()
        saved[name] = download.value.path().read_bytes()
    tab.emulate_media(media="print")
    pdf = tab.pdf(prefer_css_page_size=True, print_background=True)
    boxes = tab.evaluate(
        """() => { const svg = document.querySelector("#picture svg").getBoundingClientRect();
        const parts = [...document.querySelectorAll("#picture svg text")].map((t) => t.getBoundingClientRect())
          .filter((b) => b.width);
        const entries = [...document.querySelectorAll("#picture .legend .traces")].map((t) => ({
          text: t.querySelector("text").getBoundingClientRect().toJSON(),
          line: t.querySelector(".legendlines, .legendpoints, .layers").getBoundingClientRect().toJSON() }));
        return { inside: parts.every((b) => b.left >= svg.left - 1 && b.right <= svg.right + 1 &&
          b.top >= svg.top - 1 && b.bottom <= svg.bottom + 1), entries } }"""
    )
    tab.close()
    assert all(url.startswith(("file:", "data:", "blob:")) for url in asked)
    svg = saved["svg"].decode()
    height_in = float(re.search(r'^<svg[^>]* height="([\d.]+)in"', svg)[1])
    assert f'width="{width_in:g}in"' in svg.split(">")[0]
    assert "@font-face" in svg
    assert "base64" in svg
    assert "Model made-up" in svg
    assert saved["png"][:8] == b"\x89PNG\r\n\x1a\n"
    wide, high = struct.unpack(">II", saved["png"][16:24])
    assert (wide, high) == (round(600 * width_in), round(600 * height_in))
    place = saved["png"].index(b"pHYs")
    assert struct.unpack(">IIB", saved["png"][place + 4 : place + 13]) == (23622, 23622, 1)
    found = re.search(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", pdf)
    assert [float(one) / 72 for one in found.groups()] == pytest.approx([width_in, height_in], abs=0.02)
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) == 1
    assert b"/FontFile" in pdf or b"/CharProcs" in pdf  # the typeface, embedded
    assert boxes["inside"]
    assert len(boxes["entries"]) == 9
    for one in boxes["entries"]:  # no line strikes through the text of another entry
        for other in boxes["entries"]:
            same_line = abs(one["text"]["top"] - other["line"]["top"]) < 10
            apart = other["line"]["left"] >= one["text"]["right"] or other["line"]["right"] <= one["text"]["left"] + 1
            assert apart or not same_line
