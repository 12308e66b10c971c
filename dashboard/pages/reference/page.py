"""Reference: the paper's tables, what every number means, and how to use the software, with one search over all."""

import re

import streamlit as st

from dashboard.pages.reference import documents, paper, published
from dashboard.show import layout, selection, tables, tools
from engine.records.environment import installed_version

HOW_TO_READ = "One document at a time; the search reads all of them, the help of every command and the paper's tables."
HITS_AT_ONCE, PASSAGES_AT_ONCE, EXCERPT_LETTERS, READING_PX, HELP_PX = 20, 3, 320, 960, 560
_DOCUMENT, _FIND, _PLACE = "document", "find", "reference-place"


def render() -> None:
    layout.heading("Reference", HOW_TO_READ)
    document = selection.switch("Document", documents.TITLES, _DOCUMENT, default=documents.METHODS)
    words = selection.text("Search in all documents", _FIND, placeholder="for example: Wilson, --rates, saturated")
    if words:
        _hits(words)
    elif document == documents.PAPER:
        paper.show()
    else:
        with st.container(width=READING_PX):
            _document(document)
        tools.end(None, "reference", f"Selector Audit {installed_version('selector-audit')}")


def _document(document: str) -> None:
    parts = documents.sections(document)
    titles = [title for title in parts if title]
    st.markdown("**On this page:** " + " · ".join(f"[{title}](#{documents.anchor(title)})" for title in titles))
    for title, text in parts.items():
        if title:
            layout.section(title, documents.anchor(title))
        st.markdown(documents.linked(text))
        if (document, title) == (documents.METHODS, "Tables"):
            columns, alt = tables.columns(), "Every table, what it holds, the command that writes it"
            st.dataframe(tables.registered(), hide_index=True, alt=alt)
            st.dataframe(columns, hide_index=True, alt="Every column of every table with its type, unit and meaning")
            tools.download_csv("Download the list (CSV)", columns, "tables.csv")
        elif (document, title) == (documents.COMMANDS, "Every command"):
            helps = documents.helps()
            st.code(helps[selection.choose("Command", list(helps), "command")], language=None, height=HELP_PX)
    place = st.session_state.pop(_PLACE, None)
    if place:  # formulas and tables above it are laid out later
        scroll = f"setTimeout(() => document.getElementById({place!r})?.scrollIntoView(), ms)"
        st.html(f"<script>for (const ms of [0, 400, 1500, 3000]) {scroll}</script>", unsafe_allow_javascript=True)


def _hits(words: str) -> None:
    found: dict[tuple[str, str], list[str]] = {}
    for hit in documents.search(words):
        found.setdefault((hit.document, hit.name), []).append(hit.text)
    rest = f"; the first {HITS_AT_ONCE} are shown, more words narrow them" if len(found) > HITS_AT_ONCE else ""
    st.caption(f"In {len(found):,} places{rest}." if found else "Nothing has all of these words; fewer find more.")
    for number, ((document, name), texts) in enumerate(list(found.items())[:HITS_AT_ONCE]):
        with st.container(border=True, gap="xxsmall"):
            title = published.describe(name).title if name in published.tables() else name
            label = " › ".join(layout.plain(one) for one in (document, title) if one)
            st.button(f"**{label}**", key=f"hit-{number}", type="tertiary", on_click=_open, args=(document, name))
            for text in texts[:PASSAGES_AT_ONCE]:
                st.markdown(_marked(text, words.split()))


def _open(document: str, name: str) -> None:
    st.session_state[_DOCUMENT], st.session_state[_FIND] = document, ""
    if document == documents.PAPER:
        paper.open_table(name)
    elif name in documents.helps():
        st.session_state["command"], st.session_state[_PLACE] = name, documents.anchor("Every command")
    elif name:
        st.session_state[_PLACE] = documents.anchor(name)


def _marked(text: str, words: list[str]) -> str:
    """The passage around its first word, with all words in bold."""
    pattern = re.compile("(" + "|".join(map(re.escape, words)) + ")", re.IGNORECASE)
    first = pattern.search(text)
    start = max(0, min((first.start() if first else 0) - EXCERPT_LETTERS // 3, len(text) - EXCERPT_LETTERS))
    pieces = pattern.split(text[start : start + EXCERPT_LETTERS])
    bold = "".join(f"**{layout.plain(one)}**" if place % 2 else layout.plain(one) for place, one in enumerate(pieces))
    return f"{'… ' if start else ''}{bold}{' …' if start + EXCERPT_LETTERS < len(text) else ''}"
