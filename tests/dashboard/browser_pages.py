"""What the browser tests do with an open page of the app."""

import time
from contextlib import suppress
from weakref import WeakKeyDictionary

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
]  # fmt: skip
TIMEOUT_MS = 120_000  # a first figure takes seconds, but a minute where many processes share the cores
PAUSE_MS = 500
MODEL_TIMEOUT_MS = 240_000  # the first use of a model imports torch, which takes long on a busy machine
WATCH_STAGE = (  # of Watch it break: the component lives in a shadow root
    "(() => { const find = (root) => { for (const one of root.querySelectorAll('*')) { if (one.stage) return one.stage;"
    " if (one.shadowRoot) { const found = find(one.shadowRoot); if (found) return found } } };"
    " return find(document) })()"
)
WATCH_RACE = {"watch_a": "LRP, least relevant first", "watch_b": "LRP, most relevant first"}
STEP_MS = 20
ATTEMPTS = 5
TAKEN_MS = 1000  # of the page's own time: within so long it takes a click, or it has lost it
_RUNS = WeakKeyDictionary()  # page -> ScriptRuns


class ScriptRuns:
    """What a page and the server have said to each other about the script: whether a run that was asked for has yet to
    begin, or one that began has yet to end. The page itself says so only once the server has answered."""

    def __init__(self, page):
        self.asked = self.begun = False
        self.requests = 0  # how often the page has asked for a run, but for what it asks by the clock
        page.on("websocket", self._listen)
        _RUNS[page] = self

    def _listen(self, socket):
        socket.on("framesent", self._sent)
        socket.on("framereceived", self._received)

    def _sent(self, frame):
        from streamlit.proto.BackMsg_pb2 import BackMsg

        message = BackMsg.FromString(frame)
        if message.WhichOneof("type") == "rerun_script":
            self.asked = True
            self.requests += not message.rerun_script.is_auto_rerun

    def _received(self, frame):
        from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

        message = ForwardMsg.FromString(frame)
        kind = message.WhichOneof("type")
        if kind == "new_session":
            self.asked, self.begun = False, True
        elif kind == "script_finished" and message.script_finished != ForwardMsg.FINISHED_EARLY_FOR_RERUN:
            self.begun = False


def settled(page):
    """What was done last has reached the server, and the script has ended. Wait for the new content before."""
    page.wait_for_timeout(STEP_MS)  # what the browser has sent is heard of meanwhile
    runs = _RUNS[page]
    end = time.monotonic() + TIMEOUT_MS / 1000
    while runs.asked or runs.begun:
        assert time.monotonic() < end, "the script does not end"
        page.wait_for_timeout(STEP_MS)
    page.locator(
        "[data-testid=stApp][data-test-script-state=notRunning][data-test-connection-state=CONNECTED]"
    ).wait_for()


def press(page, target, *, at=None, took=None):
    """Clicks until the page takes it: a widget that moves or is drawn anew between press and release takes no click.

    at: where on the target, as shares of its width and height; None = its middle. took: says whether the click was
    taken; None = the page has asked for a run of the script, and what can be pressed or checked is, once it has ended.
    """
    for _ in range(ATTEMPTS):
        before = _RUNS[page].requests
        state = None if took else _pressed(target)
        if at is None:
            target.click()
        else:
            box = steady_box(page, target)
            page.mouse.move(box["x"] + box["width"] * at[0], box["y"] + box["height"] * at[1])
            page.mouse.click(box["x"] + box["width"] * at[0], box["y"] + box["height"] * at[1])
        if _taken(page, before, took):
            if state is None:
                return
            settled(page)
            if _pressed(target) != state:
                return
    raise AssertionError(f"the page takes no click on {target}")


def _pressed(target):
    """`true` or `false` of what can be pressed or checked; None of anything else."""
    return target.get_attribute("aria-pressed") or target.get_attribute("aria-checked")


def _taken(page, before, took=None):
    """Whether the page has asked for a run of the script since it had asked `before` times, or `took` says so."""
    for _ in range(TAKEN_MS // STEP_MS):
        page.evaluate(f"new Promise(done => setTimeout(done, {STEP_MS}))")
        if took() if took else _RUNS[page].requests > before:
            return True
    return False


def unfold(page, summary):
    """Opens what is folded below a `summary`."""
    press(page, summary, took=lambda: summary.locator("xpath=ancestor::details[@open]").count() > 0)


def download(page, target):
    """The file that a click saves."""
    from playwright.sync_api import TimeoutError

    for attempt in range(ATTEMPTS):
        try:
            with page.expect_download(timeout=TIMEOUT_MS / ATTEMPTS) as saved:
                target.click()
            return saved.value
        except TimeoutError:
            if attempt == ATTEMPTS - 1:
                raise


def chart(page, *, says, n=0):
    """The n-th figure, once it is drawn and its description holds `says`."""
    figure = page.locator(f"[data-testid=stPlotlyChart][aria-label*='{says}']").nth(n)
    figure.locator(".scatterlayer .js-line, .scatterlayer .points path, .barlayer path").first.wait_for(
        state="attached"
    )
    settled(page)
    return figure


def figure(page, says):
    """The first figure of any kind whose description holds `says`, once it is drawn."""
    found = page.locator(f"[data-testid=stPlotlyChart][aria-label*='{says}']").first
    found.locator(".cartesianlayer .subplot").first.wait_for(state="attached")
    settled(page)
    return found


def has_count(locator, count):
    """Wait until exactly so many are there. (The page's policy forbids playwright's waits on JavaScript.)"""
    from playwright.sync_api import expect

    expect(locator).to_have_count(count, timeout=TIMEOUT_MS)


def steady_box(page, locator):
    """Where it stands on the page, once it has stood there for a while: a figure moves as those above it are drawn."""
    box = None
    for _ in range(20):
        locator.scroll_into_view_if_needed()
        before, box = box, locator.bounding_box()
        if box == before:
            return box
        page.wait_for_timeout(PAUSE_MS)
    raise AssertionError(f"still moving: {before} to {box}")


def button(page, name):
    return page.locator("[data-testid=stMain]").get_by_role("button", name=name, exact=True)


DESTINATIONS = {
    "Story": ("Overview", "Learn"), "Audit": ("Curves", "Where and who", "Can it be believed", "Tasks"),
    "Refusal": ("Refusal",), "Playground": ("Live edit", "Rows"), "Runs": ("Runs",), "Reference": ("Reference",),
}  # fmt: skip


def follow(page, name):
    """Another page by the menu: its destination in the sidebar, then its tab. Wait for what it shows."""
    tabs = page.locator(".st-key-destination")
    (destination,) = (one for one, pages in DESTINATIONS.items() if name in pages)
    if tabs.get_by_role("link", name=name, exact=True).count() == 0:
        press(page, page.locator("[data-testid=stSidebar]").get_by_role("link", name=destination, exact=True))
        tabs.get_by_role("link", name=name, exact=True).wait_for()
        settled(page)
    if page.locator("[data-testid=stMain] h1").inner_text() != name:
        press(page, tabs.get_by_role("link", name=name, exact=True))


def more_settings(page):
    """Unfolds the settings at the end of the bar."""
    unfold(page, page.locator(".st-key-bar summary"))


def choose(page, key, option):
    """A list of options closes when the page scrolls or is drawn again: then it is opened once more."""
    from playwright.sync_api import Error

    box = page.locator(f".st-key-{key}").get_by_role("combobox")
    for _ in range(ATTEMPTS):
        settled(page)
        before = _RUNS[page].requests
        box.fill(option)
        with suppress(Error):
            page.get_by_role("option", name=option, exact=True).click(timeout=4000)
            if _taken(page, before):
                return
        page.keyboard.press("Escape")
    raise AssertionError(f"{option!r} cannot be chosen at {key}")


def live_page(new_page, folder, prompt, button_name="Run", **more):
    settings = {
        "edit_model": "Another model", "edit_model_id": str(folder), "mode": "Remove by rate", "control": "false",
    }  # fmt: skip
    page = new_page(
        "/live", **{**settings, "rank_selector": "Magnitude", "rate": "50%", "length": "20", "prompt": prompt, **more}
    )
    button(page, button_name).wait_for()
    settled(page)
    return page


def reply(page, side):
    return page.locator(f".st-key-reply-{side} .sa-reply")


def run(page):
    """Press Run and wait for both replies; returns their texts."""
    old = page.locator(".st-key-reply-after").inner_text()
    press(page, button(page, "Run"))
    page.locator(".st-key-reply-after").get_by_text("tokens").first.wait_for(timeout=MODEL_TIMEOUT_MS)
    settled(page)
    assert page.locator(".st-key-reply-after").inner_text() != old or old
    return tuple(reply(page, side).inner_text() for side in ("before", "after"))


def lasting_findings(page):
    """What axe-core calls serious or critical and still does after a while: what is drawn anew fades in, faintly."""
    found = []
    for _ in range(4):
        page.wait_for_timeout(PAUSE_MS)
        found = _findings(page)
        if not found:
            break
    return found


def _findings(page):
    from axe_playwright_python.sync_playwright import Axe

    return [
        f"{violation['id']} ({violation['impact']}): {violation['help']}; {node['html'][:160]}"
        for violation in Axe().run(page).response["violations"]
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]
