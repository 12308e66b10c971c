"""A session of the app without a browser: Streamlit's own messages over its websocket."""

from __future__ import annotations

import re
import socket
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from app_pages import texts
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState
from websockets.sync.client import ClientConnection, connect

LIMIT_S = 180.0
MARK = re.compile(rb"mark(\d+)x(\d+)end")  # in prompts: whose they are; letters and digits are shown as they are


@dataclass
class Shown:
    """What one script run put on the page.

    seconds: from the request to the end of the script. queued_s: of it waiting for another session's use of the model,
    as far as the page said so. texts: replies, by their place. marks: of prompts, wherever they stand. problems: lines
    in yellow or red, and exceptions.
    """

    seconds: float = 0.0
    queued_s: float = 0.0
    texts: dict[tuple[int, ...], str] = field(default_factory=dict)
    marks: set[tuple[int, int]] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    finished: bool = False


class Session:
    """One websocket. Widgets and pages are known by the labels that a person would see."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        # Kept open beyond one block: the connection's own way in and out, as `with` takes it.
        self._opened = ExitStack()
        opened = connect(
            f"ws://localhost:{port}/_stcore/stream", sock=self._socket, origin=f"http://localhost:{port}",
            subprotocols=["streamlit"], max_size=None, proxy=None, open_timeout=LIMIT_S, compression=None,
            ping_interval=None,  # as a browser, which leaves that to the server
        )  # fmt: skip
        self._stream: ClientConnection = self._opened.enter_context(opened)
        self.pages: dict[str, str] = {}  # path -> Streamlit's name for it
        self.widgets: dict[tuple[str, str], Any] = {}  # kind and label -> the element, of the last script run
        self._page = self._query = ""

    def open(self, path: str, **settings: str) -> Shown:
        """A page as its link opens it, or a click in the menu. What was set before stays in the session."""
        return self.read(self.visit(path, **settings))

    def visit(self, path: str, **settings: str) -> float:
        """The same, without a look at what is shown."""
        self._page = path
        self._query = "&".join(f"{name}={quote(value)}" for name, value in settings.items())
        self.widgets.clear()
        return self.ask()

    def change(self, *states: WidgetState) -> Shown:
        """Widgets set to something, or pressed."""
        return self.read(self.ask(*states))

    def ask(self, *states: WidgetState) -> float:
        """Sends what a browser sends; the moment of it."""
        message = BackMsg()
        message.rerun_script.query_string = self._query
        message.rerun_script.page_script_hash = self.pages.get(self._page, "")
        message.rerun_script.page_name = "" if self.pages else self._page
        message.rerun_script.widget_states.widgets.extend(states)
        self._stream.send(message.SerializeToString())
        return time.monotonic()

    def read(self, since: float, *, until_text: bool = False) -> Shown:
        """Everything until the script has finished, or until a first piece of a reply is there."""
        shown, queued = Shown(), 0.0
        while True:
            data = self._stream.recv(timeout=LIMIT_S)
            assert isinstance(data, bytes)
            now = time.monotonic()
            shown.marks |= {(int(found[1]), int(found[2])) for found in MARK.finditer(data)}
            message = ForwardMsg()
            message.ParseFromString(data)
            kind = message.WhichOneof("type")
            if kind == "navigation":
                self.pages = {page.url_pathname: page.page_script_hash for page in message.navigation.app_pages}
            elif kind == "delta" and message.delta.WhichOneof("type") == "new_element":
                said = self._take(shown, tuple(message.metadata.delta_path), message.delta.new_element)
                if said.startswith("Queued:"):
                    queued = queued or now
                elif queued and said == "Writing …":
                    shown.queued_s += now - queued
                    queued = 0.0
                if until_text and any(text.strip() for text in shown.texts.values()):
                    return shown
            elif kind == "script_finished" and message.script_finished in (
                ForwardMsg.FINISHED_SUCCESSFULLY,
                ForwardMsg.FINISHED_WITH_COMPILE_ERROR,
            ):
                shown.finished = message.script_finished == ForwardMsg.FINISHED_SUCCESSFULLY
                shown.seconds = now - since
                return shown

    def _take(self, shown: Shown, place: tuple[int, ...], element: Any) -> str:
        """Keep what is of interest of an element; the words of a line of text or of a message."""
        kind = element.WhichOneof("type")
        if kind == "html":
            for number, text in enumerate(texts(element.html.body, "sa-reply")):
                shown.texts[*place, number] = text
        elif kind == "exception":
            shown.problems.append(f"{element.exception.type}: {element.exception.message}")
        elif kind == "alert":
            if element.alert.format in (element.alert.WARNING, element.alert.ERROR):
                shown.problems.append(element.alert.body)
            return str(element.alert.body)
        elif kind == "markdown":
            return str(element.markdown.body)
        elif kind is not None and hasattr(getattr(element, kind), "label") and hasattr(getattr(element, kind), "id"):
            self.widgets[kind, getattr(element, kind).label] = getattr(element, kind)
        return ""

    def pressed(self, label: str) -> WidgetState:
        """The state of a button that is pressed."""
        return WidgetState(id=self.widgets["button", label].id, trigger_value=True)

    def typed(self, label: str, text: str) -> WidgetState:
        """The state of a field with this text."""
        return WidgetState(id=self.widgets["text_input", label].id, string_value=text)

    def choices(self) -> list[tuple[str, list[str], Any]]:
        """Lists of the page in which something else can be chosen: label, options, id."""
        found = (
            (label, list(one.options), one.id) for (kind, label), one in self.widgets.items() if kind == "selectbox"
        )
        return [one for one in found if len(one[1]) > 1]

    def chosen(self, widget_id: str, option: str) -> WidgetState:
        """The state of a list with this option chosen."""
        return WidgetState(id=widget_id, string_value=option)

    def vanish(self) -> float:
        """The connection ends without a word, as that of a browser that was killed; the moment of it."""
        self._socket.shutdown(socket.SHUT_RDWR)
        return time.monotonic()

    def close(self) -> None:
        self._opened.close()
