"""Names, replies, prompts and provenance are text on every page and in the report: no link, image, script or format."""

import json
import re
from html.parser import HTMLParser
from importlib import import_module

import polars as pl
import pytest
from app_pages import replies, run_page, told
from fake_replies import replies_are
from google.protobuf.message import Message
from large_run import replies as sweep_replies
from made_up_audit import write_audit
from markdown_it import MarkdownIt
from planted import BROWSER, HOST
from streamlit.testing.v1.element_tree import Block
from synthetic import MODEL, SLOPES, add_table, stability, verdicts, write_run
from synthetic_refusal import write_refusal_run
from tiny_models import save_tiny

from dashboard.charts.in_words import as_text
from dashboard.chat import live, stamps
from dashboard.pages.believed.believed_page import PARTS as BELIEVED
from dashboard.pages.live import many as tiles
from dashboard.pages.refusal.refusal_page import PARTS as REFUSAL
from dashboard.pages.where.where_page import PARTS as WHERE
from dashboard.report.html_report import build
from dashboard.show import layout
from dashboard.state import results, shipped_models as shipped
from engine.cli import main
from engine.data.thinking import parts
from engine.records.hashing import file_sha256
from engine.records.manifest import read_manifest
from engine.results import folders

PLANT = f" {BROWSER} \x1b[31m"
MARKDOWN = MarkdownIt("commonmark").enable(["strikethrough", "table"])
# What Streamlit makes links of in text, after the backslashes are gone (mdast-util-gfm-autolink-literal), and what it
# draws as symbols, colours and formulas where no backslash stands before it.
ADDRESSES = re.compile(rf"(https?://|www(?=\.))[-.\w]*{HOST}|[-.\w+]+@{HOST}", re.IGNORECASE)
DRAWN = re.compile(r"(?<!\\):(red\[|material/home|smile:)|(?<!\\)\$x")
# Fields that Streamlit shows as they are, or does not show. (What our component makes of
# its data is looked at in test_dashboard_watch_browser.py.)
AS_THEY_ARE = re.compile(
    r"(^|\.)(bidi_component\.json|"
    r"text\.body|code\.code_text|json\.body|\w+\.alt|\w+\.id|\w+\.default|\w+\.value|set_\w+|raw_values?|"
    r"placeholder|(?:selectbox|multiselect|slider)\.options|url|form_id|columns|\w*_id|query_param_key|file_name|"
    r"page_script_hash)$"
)


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.text = [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, text):
        self.text.append(text)


def obeyed_in_markdown(text):
    """What of a planted text Streamlit would draw as something else than text."""
    found = DRAWN.findall(text)
    tokens = [one for block in MARKDOWN.parse(text) for one in (block, *(block.children or []))]
    for token, after in zip(tokens, [*tokens[1:], None], strict=True):
        if (
            token.type in ("link_open", "image", "html_inline", "html_block")
            and HOST in f"{token.content}{token.attrs}"
        ) or (token.type in ("strong_open", "s_open") and after.content in ("fat", "gone")):
            found.append(token.type)
        elif token.type == "text":
            found += [match[0] for match in ADDRESSES.finditer(token.content)]
    return found


def obeyed_in_html(text):
    reader = Tags()
    reader.feed(text)
    known = {"div", "br", "code", "b", "p", "ul", "li", "mark", "style", "sub", "sup", "span", "script", "h2"}
    known |= {"details", "summary"}
    return [tag for tag, attributes in reader.tags if tag not in known or HOST in str(attributes)]


def obeyed_in_figure(spec):
    """Tags in texts of a figure, which plotly would draw, but those that our own titles are made of."""
    text = json.dumps(json.loads(spec), ensure_ascii=False).replace('\\"', '"')
    ours = r'<(?:/?(?:b|br|sub|sup|extra)|span style="font-size:[0-9.]+px;font-weight:normal"|/span)>'
    return re.findall(r"<[a-zA-Z/][^<>]*", re.sub(ours, "", text))


def texts(message, path):
    """Every text of an element, with the names of the fields that lead to it."""
    for field, value in message.ListFields():
        name = f"{path}.{field.name}"
        for one in value if not isinstance(value, (str, bytes, Message)) and hasattr(value, "__iter__") else [value]:
            if isinstance(one, Message):
                yield from texts(one, name)
            elif isinstance(one, str):
                yield name, one


def nodes(block):
    for child in block.children.values():
        yield child
        if isinstance(child, Block):
            yield from nodes(child)


def obeyed(app):
    """Everything on a page that is more than text, and how many texts of it were planted."""
    found, planted = [], 0
    for node in nodes(app._tree):
        proto = getattr(node, "proto", None)
        if not isinstance(proto, Message):
            continue
        for path, text in texts(proto, node.type):
            if HOST not in text.replace("\\", ""):
                continue
            planted += 1
            if node.type == "plotly_chart":
                wrong = obeyed_in_figure(text) if path.endswith("spec") else []
            elif node.type == "html":
                wrong = obeyed_in_html(text)
            else:
                wrong = [] if AS_THEY_ARE.search(path) else obeyed_in_markdown(text)
            found += [(path, one) for one in wrong]
    return found, planted


# Selectors, tasks and domains are ids: the registry of tables refuses any but letters, digits and . _ -
NAMED = ("model", "reasons", "reason", "note", "group", "units_why")


def everywhere(value):
    """A value of a manifest with the text in place of every text."""
    if isinstance(value, dict):
        return {name: everywhere(one) for name, one in value.items()}
    return PLANT if isinstance(value, str) else value


def plant(folder):
    """The folder with the text in every name: models, domains, reasons, corpora, settings, versions, titles."""
    manifest = json.loads(json.dumps(read_manifest(folder)))
    for path in folder.glob("*.parquet"):
        frame = pl.read_parquet(path, glob=False)
        named = (*NAMED, "prompt", "reply") if path.stem == "sweep_replies" else NAMED
        frame = frame.with_columns(pl.col(name) + PLANT for name in named if frame.schema.get(name) == pl.String)
        frame.write_parquet(path)
        entry = manifest["files"][path.name]
        entry["sha256"] = file_sha256(path)
        titles = {"wanda": f"Wanda{PLANT}", "own": PLANT}
        text = {"corpus": PLANT, "dataset": PLANT, "samples": 3, "max_length": 16}
        entry["spec"] = {
            "evaluation": text, "calibration": text, "selector_titles": titles, "pairs": PLANT, PLANT: PLANT,
        }  # fmt: skip
        entry["environment"] = everywhere(entry["environment"])
        entry["notes"] = [PLANT]
    manifest["model"] = {**manifest["model"], "id": MODEL["id"] + PLANT, "revision": PLANT}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    top = tmp_path_factory.mktemp("planted")
    audit = write_audit(top / "audit")
    add_table(audit, "verdicts", verdicts())
    add_table(audit, "stability", stability(dict.fromkeys(SLOPES, 0.9)))
    add_table(audit, "sweep_replies", sweep_replies())
    for folder in (audit, write_refusal_run(top / "refusal"), write_run(top / "x[y](z) <b> ~~s~~")):
        plant(folder)
    lines = [
        {"model": f"{model}{PLANT}", "prompt": PLANT, "reply": f"{reply} {PLANT}", "human_label": label}
        for model in ("a", "b") for reply, label in (("I cannot help.", "full_refusal"), ("Sure.", "full_compliance"))
    ]  # fmt: skip
    (top / "replies.jsonl").write_text("\n".join(map(json.dumps, lines)))
    judge = ["refusal", "judge", str(top / "replies.jsonl"), "--judge", "embedded", "--out", str(top / "judged")]
    assert main(judge) == 0
    return top


OF_AUDIT = {"source": "My results", "run": "audit"}
OF_REFUSAL = {"source": "My results", "run": "refusal"}
PLACES = [
    ("curves", OF_AUDIT),
    ("runs", {}),
    *[
        pytest.param(name, given, marks=pytest.mark.long)
        for name, given in (
            ("overview", OF_AUDIT),
            *[("curves", {**OF_AUDIT, "view": view}) for view in ("Gap", "Models", "Differences")],
            *[("where", {**OF_AUDIT, "part": part}) for part in WHERE],
            *[("believed", {**OF_AUDIT, "part": part, "more": "true"}) for part in BELIEVED],
            ("tasks", OF_AUDIT),
            *[("refusal", {**OF_REFUSAL, "section": part, "more": "true"}) for part in REFUSAL if part != "Judges"],
            ("refusal", {"section": "Judges", "source": "My results"}),
            ("learn", {}),
            ("live", {"prompt": PLANT, "edit_model": "Another model", "edit_model_id": PLANT, "edit_run": PLANT}),
            ("rows", OF_AUDIT),
            *[("runs", {"runs_view": view}) for view in ("Start", "Import", "Tables")],
            ("runs", {"kept_run": "audit"}),
            ("runs", {"runs_view": "Start", "start_model": PLANT, "start_corpus": PLANT}),
            ("runs", {"runs_view": "Tables", "tables_of": "audit", "run_table": "verdicts"}),
            ("reference", {"document": "Paper tables", "paper_view": "A run beside", "beside": "results/audit"}),
            ("reference", {"find": PLANT}),
            *[(name, {**OF_AUDIT, "folder": PLANT}) for name in ("curves", "believed", "rows")],
            ("refusal", {"section": "Judges", "source": "My results", "folder": PLANT}),
        )
    ],
]


@pytest.mark.parametrize(("name", "parameters"), PLACES)
def test_a_page_shows_planted_text_as_text(name, parameters, store, monkeypatch):
    monkeypatch.setenv(results.STORE_VARIABLE, str(store))
    app = run_page(name, **parameters)
    assert not app.exception
    found, planted = obeyed(app)
    assert found == []
    # Some speak of what is shipped, or of nothing yet.
    if name not in ("learn", "reference") and parameters.get("runs_view") not in ("Start", "Import"):
        shown = [one.value for kind in ("warning", "info", "caption", "markdown", "text") for one in app.get(kind)]
        assert planted, f"nothing planted is on {name}: {shown}"


@pytest.mark.long
@pytest.mark.parametrize("reply", [PLANT, f"<think>\n{PLANT}\n</think>\n\nSure. {PLANT}"])
def test_live_edit_shows_planted_replies_as_text(reply, tmp_path, monkeypatch):
    """The model's folder, the prompt and every reply; margins along, the control, and the list of tries below."""
    monkeypatch.setattr(live, "POOL", live.ModelPool(live._load))
    replies_are(monkeypatch, reply)
    folder = save_tiny(
        "llama", tmp_path / f"<img src=x> [q](y) www.{HOST} **fat** \x1b[31m", max_position_embeddings=512
    )
    by_rate = {"edit_model": "Another model", "edit_model_id": str(folder), "mode": "Remove by rate", "length": "20"}
    monkeypatch.setattr(stamps, "reference_of", lambda *_: None)
    for shade in ("Probability", "Margin"):
        app = run_page("live", **by_rate, rank_selector="Magnitude", prompt=PLANT, control="true", shade=shade)
        for _ in range(2):
            app.button(key="run").click().run()
            assert not app.exception
        assert obeyed(app)[0] == []
        shown = replies(app)
        assert [HOST in one for one in shown] == [True] * 3, [one.value for one in app.warning]
        assert shown == [parts(reply).said] * 3
    app = run_page("live", **by_rate, rank_selector="Magnitude", live_view="Many at once")
    monkeypatch.setattr(tiles, "prompts", lambda *_: [shipped.Example("crime", "risk", PLANT)])
    app.button(key="run-many").click().run()
    assert not app.exception
    assert obeyed(app)[0] == []
    assert HOST in told(app, "sa-tile")[0]


def test_the_test_sees_what_it_looks_for():
    seen = obeyed_in_markdown(BROWSER)
    assert {"html_inline", "image", "link_open", "strong_open", "s_open"} <= set(seen)
    assert any("@" in one for one in seen)
    assert any("www" in one for one in seen)
    backslashes = re.sub(r"([\\`*_{}\[\]()#+\-.!|<>~:$&^=@/])", r"\\\1", BROWSER)
    assert set(obeyed_in_markdown(backslashes)) == {f"https://{HOST}", f"www.{HOST}", f"me@{HOST}"}
    assert obeyed_in_html(BROWSER) == ["img", "a", "https:"]
    assert obeyed_in_figure(json.dumps({"x": BROWSER}))


def test_plain_text_and_words():
    assert obeyed_in_markdown(layout.plain(PLANT)) == []
    assert obeyed_in_markdown(layout.worded(PLANT)) == []
    shown = "".join(one.content for block in MARKDOWN.parse(layout.plain(BROWSER)) for one in block.children or [])
    assert shown.replace("\u2060", "") == BROWSER
    hub = "ask at https://huggingface.co/org/name first"
    assert layout.plain(hub).replace("\\", "") == hub  # the hub's own address may be a link, to be followed
    for other in (
        "https://huggingface.co.evil.example/",
        "https://huggingface.co@evil.example",
        "HTTP://huggingface.co/",
    ):
        assert "\u2060" in layout.plain(other)


def test_a_figures_texts():
    import plotly.graph_objects as go

    figure = go.Figure(go.Bar(x=[BROWSER, "b"], y=[1.0, 2.0], customdata=[[BROWSER], ["b"]], name=BROWSER))
    figure.update_layout(title_text=f"<b>ours</b><br>x<sub>2</sub> {BROWSER}", annotations=[{"text": BROWSER}])
    plain = as_text(figure)
    assert obeyed_in_figure(plain.to_json()) == []
    assert plain.layout.title.text.startswith("<b>ours</b><br>x<sub>2</sub> &lt;img")
    assert list(plain.data[0].y) == [1.0, 2.0]
    untouched = go.Figure(go.Scatter(x=[1, 2], y=[3.0, 4.0], hovertemplate="%{y}<extra></extra>", name="a < b"))
    assert as_text(untouched) is untouched


def test_the_report_holds_planted_text_as_text(store):
    page = build([store / "audit", store / "refusal"])
    reader = Tags()
    reader.feed(re.sub(r"<script.*?</script>", "", page, flags=re.S))
    assert HOST in "".join(reader.text)
    assert not [
        one for one in reader.tags if one[0] in ("img", "a", "iframe", "link", "base", "form") and HOST in str(one)
    ]
    assert not [one for one in reader.tags if HOST in str({**one[1], "alt": "", "aria-label": "", "title": ""})]
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", page, flags=re.S)
    planted = [one for one in scripts if HOST in one]
    assert planted
    for script in planted:
        text = script.replace("\\u003c", "<").replace("\\u003e", ">").replace("\\u002f", "/")
        assert not re.search(r"<(?:a|img|script|span)\b", text)


def test_tables_can_still_be_read(store):
    """The planted folders are whole: what the pages show is the planted text, not an error about it."""
    for path in (store / "audit").glob("*.parquet"):
        folders.read_table(store / "audit", path.stem)
    assert import_module("dashboard.state.results").find_runs(store)
