"""Many sessions at once on a real server: errors, mixed replies, waiting, memory, threads, and clients that vanish.

    python -m tests.harness load --minutes 5

20 websockets speak Streamlit's own messages, without a browser. 15 open random pages and choose something else in their
lists, 5 ask for live edits of `demo`, each under an edit of its own; each waits a random while between two
requests (`--think` seconds in the mean) and now and then loads the app anew. Every reply must be that which the same
prompt and edit had alone, before the load. Last, clients vanish in the middle of a slow reply. All traffic stays on the
loopback address of this machine and ends by itself. Memory and threads are compared between two windows of the load:
the first 30% of it, in which caches fill, are the warm-up.
"""

from __future__ import annotations

import argparse
import random
import re
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.load_server import END, SLOW_PROMPT
from harness.server import Sample, Server, serving
from harness.sessions import Session, Shown
from rich.console import Console

from dashboard.state import shipped_models as shipped

DEMO = shipped.title_of("demo")
DOMAINS = ("Hate", "Crime", "Adult", "Medical", "Legal")
ASKED = ("Tell me about the market mark{}x0end", "Write a note to my neighbour mark{}x1end", "Sing mark{}x2end")
UNLIKE = "Unlike its training"  # what the page says of such prompts
RELOADS = 0.03  # share of requests before which a browsing session loads the app anew
VANISHED_S, WINDOW_S = 30.0, 20.0
WARM = 0.3  # share of the load that is warm-up
WITHIN = 0.05  # by how much memory and threads may grow from the warm-up's end to the load's
WANTED_S = 2.0  # p95 of a change, and until a vanished client's model is free


@dataclass
class Figures:
    """changes_s: requests for pages and choices. edits_s, beyond_queue_s: live edits, and without the waiting that the
    page told of. alone_s: the same edits before the load. freed_s: from a client's end to the end of its replies."""

    sessions: int = 0
    changes_s: list[float] = field(default_factory=list)
    edits_s: list[float] = field(default_factory=list)
    beyond_queue_s: list[float] = field(default_factory=list)
    alone_s: list[float] = field(default_factory=list)
    freed_s: list[float] = field(default_factory=list)
    reloads: int = 0
    mixed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    loaded_at: tuple[float, float] = (0.0, 0.0)  # when the load began and ended
    after: Sample | None = None  # some seconds after the last session

    @property
    def well(self) -> bool:
        """Nothing wrong was said, shown or kept, whatever times and memory are."""
        return not (self.mixed or self.failed or self.log) and bool(self.edits_s and self.changes_s)

    def growth(self) -> tuple[float, float]:
        """Share by which memory and threads grew from the end of the warm-up to that of the load."""
        early, late = self.window(WARM), self.window(1.0)
        return late[0] / early[0] - 1, late[1] / early[1] - 1

    def beyond(self) -> list[str]:
        """Which times, and whether memory or threads, are not as wanted. They depend on the machine."""
        memory, threads = self.growth()
        found = {
            "a change": p95(self.changes_s) > WANTED_S,
            "a live edit beyond the queue": p95(self.beyond_queue_s) > WANTED_S,
            "memory": memory > WITHIN,
            "threads": threads > WITHIN,
            "until a vanished client's model is free": max(self.freed_s, default=0.0) > WANTED_S,
        }
        return [name for name, missed in found.items() if missed]

    def window(self, share: float) -> tuple[float, float]:
        """Medians of memory (MB) and threads in the seconds from this share of the load on."""
        begin, end = self.loaded_at
        start = min(begin + share * (end - begin), end - WINDOW_S)
        inside = [one for one in self.samples if start <= one.at <= start + WINDOW_S]
        return statistics.median(one.rss / 1e6 for one in inside), statistics.median(one.threads for one in inside)


def run_load(
    minutes: float, sessions: int = 20, editing: int = 5, think_s: float = 4.0, vanishing: int = 5, seed: int = 0,
    pages: Sequence[str] = (), reloads: float = RELOADS,
) -> Figures:  # fmt: skip
    """So many sessions for so long; the rest as in the head of this file. pages: paths of those opened, else all."""
    from synthetic import write_run

    with tempfile.TemporaryDirectory(prefix="load-") as name:
        folder = Path(name)
        write_run(folder / "results" / "made-up")
        with serving(folder) as server:
            work = _Work(server, think_s, random.Random(seed), pages, reloads)
            try:
                work.alone(editing)
                work.together(sessions, editing, 60 * minutes)
                for _ in range(vanishing):
                    work.vanish()
                time.sleep(5)
                work.figures.after = server.sample()
            finally:
                work.over.set()
            work.figures.log = server.odd_lines()
            return work.figures


class _Work:
    def __init__(
        self, server: Server, think_s: float, drawn: random.Random, pages: Sequence[str], reloads: float
    ) -> None:
        self.server, self.think_s, self.drawn = server, think_s, drawn
        self.pages, self.reloads = pages, reloads
        self.figures = Figures()
        self.over = threading.Event()
        self.replies: dict[tuple[int, int], list[str]] = {}  # of an editing session and prompt, alone
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while not self.over.wait(1.0):
            self.figures.samples.append(self.server.sample())
            if (unwell := self.server.unwell()) and not self.over.is_set():
                self.figures.failed.append(f"the app says of itself: {unwell}")

    def alone(self, editing: int) -> None:
        """Every page once, and every edit with nobody beside it: the replies to compare with."""
        session = Session(self.server.port)
        self._seen(session.open(""), "Overview")
        for path in [path for path in session.pages if path]:
            self._seen(session.open(path), path)
        session.close()
        for number in range(editing):
            session = self._editor(number)
            for which in range(len(ASKED)):
                for again in range(2):  # the first may wait for the model
                    shown = self._edit(session, number, which)
                    if again:
                        self.figures.alone_s.append(shown.seconds)
                self.replies[number, which] = replies_of(shown)
                self._check(shown, number, which)
            session.close()

    def together(self, sessions: int, editing: int, seconds: float) -> None:
        """All at once."""
        self.figures.sessions = sessions
        begin = time.monotonic()
        until = begin + seconds
        threads = [
            threading.Thread(
                target=self._one, args=(number, number < editing, random.Random(self.drawn.random()), until)
            )
            for number in range(sessions)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.figures.loaded_at = (begin, time.monotonic())

    def _one(self, number: int, edits: bool, drawn: random.Random, until: float) -> None:
        try:
            session = self._editor(number) if edits else Session(self.server.port)
            if not edits:
                self._seen(session.open(""), "Overview")
            while time.monotonic() < until:
                time.sleep(min(drawn.expovariate(1 / self.think_s), max(until - time.monotonic(), 0)))
                if edits:
                    which = drawn.randrange(len(ASKED))
                    shown = self._edit(session, number, which)
                    self.figures.edits_s.append(shown.seconds)
                    self.figures.beyond_queue_s.append(shown.seconds - shown.queued_s)
                    self._check(shown, number, which)
                else:
                    session = self._browse(session, drawn)
            session.close()
        except Exception as error:  # of a thread, which nobody would see
            self.figures.failed.append(f"session {number}: {type(error).__name__}: {error}")

    def _browse(self, session: Session, drawn: random.Random) -> Session:
        """One request: the app anew, another page, or something else in a list of this one."""
        if drawn.random() < self.reloads:
            session.close()
            session = Session(self.server.port)
            self.figures.reloads += 1
            self._seen(session.open(drawn.choice(["", "curves", "refusal"])), "a page loaded anew")
            return session
        lists = session.choices()
        if lists and drawn.random() < 0.5:
            label, options, widget = drawn.choice(lists)
            shown, what = session.change(session.chosen(widget, drawn.choice(options))), label
        else:
            path = drawn.choice(self.pages or sorted(session.pages))
            shown, what = session.open(path), path
        self._seen(shown, what)
        self.figures.changes_s.append(shown.seconds)
        if shown.marks:
            self.figures.mixed.append(f"{what}: a page that asked for nothing shows a prompt of {sorted(shown.marks)}")
        return session

    def _editor(self, number: int) -> Session:
        session = Session(self.server.port)
        self._seen(session.open("live", edit_model=DEMO, domain=DOMAINS[number % len(DOMAINS)], length="40"), "live")
        return session

    def _edit(self, session: Session, number: int, which: int) -> Shown:
        shown = session.change(session.typed("Prompt", ASKED[which].format(number)), session.pressed("Run"))
        self._seen(shown, "a live edit", also=True)
        return shown

    def _check(self, shown: Shown, number: int, which: int) -> None:
        """Its own prompt, nobody else's, and the replies it had alone."""
        asked = f"session {number}, prompt {which}"
        if (number, which) not in shown.marks:
            self.figures.mixed.append(f"{asked}: its own prompt is not shown")
        if strangers := {mark for mark in shown.marks if mark[0] != number}:
            self.figures.mixed.append(f"{asked}: shows prompts of {sorted(strangers)}")
        if replies_of(shown) != self.replies[number, which]:
            self.figures.mixed.append(f"{asked}: {replies_of(shown)}, alone {self.replies[number, which]}")

    def _seen(self, shown: Shown, what: str, *, also: bool = False) -> None:
        """Notes what went wrong: scripts that did not finish, exceptions, pages that could not be drawn.

        also: a yellow line is wrong too, as it is where an edit was asked for.
        """
        from dashboard.show.layout import NOT_DRAWN

        if not shown.finished:
            self.figures.failed.append(f"{what}: did not finish")
        wrong = [
            line
            for line in shown.problems
            if (also and not line.startswith(UNLIKE)) or NOT_DRAWN in line or re.match(r"\w+(Error|Exception)", line)
        ]
        self.figures.failed += [f"{what}: {line}" for line in wrong]

    def vanish(self) -> None:
        """A client that ends in the middle of a reply, and how long its replies go on; then another one's edit."""
        before = sum(line.startswith(END) for line in self.server.lines())
        session = self._editor(0)
        since = session.ask(session.typed("Prompt", SLOW_PROMPT), session.pressed("Run"))
        session.read(since, until_text=True)
        gone = session.vanish()
        while sum(line.startswith(END) for line in self.server.lines()) == before:
            if time.monotonic() - gone > VANISHED_S:
                self.figures.failed.append(f"the replies of a client that vanished go on after {VANISHED_S:.0f} s")
                return
            time.sleep(0.01)
        self.figures.freed_s.append(time.monotonic() - gone)
        session = self._editor(1)
        self._check(self._edit(session, 1, 0), 1, 0)
        session.close()


def replies_of(shown: Shown) -> list[str]:
    """The texts of the replies, from left to right."""
    return [text for _, text in sorted(shown.texts.items())]


def p95(values: Sequence[float]) -> float:
    """The 95th percentile: the least value that 95% do not exceed."""
    return sorted(values)[max(-(-95 * len(values) // 100) - 1, 0)]


def told(figures: Figures) -> list[str]:
    """The figures, one line each."""
    begin, end = figures.loaded_at
    early, late = figures.window(WARM), figures.window(1.0)
    memory, threads = figures.growth()
    peak = max(one.rss for one in figures.samples) / 1e6
    lines = [
        f"{figures.sessions} sessions for {(end - begin) / 60:.1f} min: {len(figures.changes_s)} changes, "
        f"{len(figures.edits_s)} live edits, {figures.reloads} loaded anew",
        f"odd lines in the log {len(figures.log)}, mixed replies {len(figures.mixed)}, failures {len(figures.failed)}",
        f"a change: median {statistics.median(figures.changes_s):.2f} s, p95 {p95(figures.changes_s):.2f} s "
        f"(wanted {WANTED_S:g})",
        f"a live edit: p95 {p95(figures.edits_s):.2f} s, {p95(figures.beyond_queue_s):.2f} s beyond the queue (wanted "
        f"{WANTED_S:g}), alone {p95(figures.alone_s):.2f} s",
        f"memory: {early[0]:.0f} MB after {WARM:.0%} of the time, {late[0]:.0f} MB at its end ({memory:+.1%}, "
        f"wanted at most {WITHIN:+.0%}), peak {peak:.0f} MB",
        f"threads: {early[1]:.0f} after {WARM:.0%} of the time, {late[1]:.0f} at its end ({threads:+.1%}, "
        f"wanted at most {WITHIN:+.0%})",
    ]
    if figures.freed_s:
        lines.append(
            f"a client vanished in mid reply {len(figures.freed_s)} times: its replies ended within "
            f"{max(figures.freed_s):.2f} s (wanted {WANTED_S:g})"
        )
    if figures.after:
        lines.append(f"5 s after the last session: {figures.after.rss / 1e6:.0f} MB, {figures.after.threads} threads")
    return lines


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.harness load", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--editing", type=int, default=5, help="how many of them ask for live edits (5)")
    parser.add_argument("--think", type=float, default=4.0, help="mean seconds between two requests of a session (4)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=float, default=0.0, help="also print memory every so many seconds")
    given = parser.parse_args(words)
    figures = run_load(given.minutes, given.sessions, given.editing, given.think, seed=given.seed)
    out = Console(highlight=False, width=120)
    if given.every:
        start, due = figures.loaded_at[0], float("-inf")
        for one in figures.samples:
            if one.at >= due:
                out.print(f"{one.at - start:7.0f} s {one.rss / 1e6:7.0f} MB {one.threads:4d} threads")
                due = one.at + given.every
    beyond = figures.beyond()
    missed = [f"not as wanted: {', '.join(beyond)}"] if beyond else []
    for line in [*told(figures), *missed, *figures.failed[:20], *figures.mixed[:20], *figures.log[:40]]:
        out.print(line, markup=False)
    return 0 if figures.well and not beyond else 1
