"""A run that was started from the app, as a card: where it stands, how long it still takes, and what comes next."""

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from dashboard.charts import curves, figure_size, formats, series
from dashboard.charts.in_words import as_text
from dashboard.show import layout, menu
from dashboard.state import jobs
from engine.records.errors import InputError

POLL_S = 1.0
_SAID = {
    "running": "under way", "cancelling": "is being stopped", "done": "is done", "failed": "failed",
    "cancelled": "was cancelled",
}  # fmt: skip
# The page, and its part, that shows what a command makes; of several analyses that of the first.
_SHOWN = {
    "sweep": ("curves", ""), "replies": ("", ""), "gap": ("curves", ""), "seeds": ("curves", ""),
    "differences": ("curves", ""), "agreement": ("where", "Agreement"), "depth": ("where", "Depth"),
    "stability": ("believed", "Stability"), "draws": ("believed", "Stability"), "domain": ("believed", "Second domain"),
    "specific": ("believed", "Explained by depth"), "controls": ("believed", "Controls"),
    "rank-distribution": ("believed", "Controls"), "dangerous": ("believed", "Dangerous groups"),
    "singles": ("believed", "Single units"), "invariance": ("believed", "Exact controls"),
    "protocols": ("believed", "Protocols"), "downstream": ("tasks", ""), "verdict": ("", ""), "all": ("", ""),
}  # fmt: skip
_PARTS = ("part", "section")  # the settings that choose a part of a page


def begin(run: Callable[[Any], jobs.Job], what: jobs.Request | jobs.Job) -> None:
    """Start or resume: what is wrong with the model or the request is said, and nothing is started."""
    try:
        (what.request if isinstance(what, jobs.Job) else what).check()
        run(what)
    except InputError as error:
        st.toast(layout.worded(str(error)), duration="long")


def show(found: Sequence[jobs.Job], key: str, *, here: str | None = None) -> None:
    """Cards of these jobs, the newest first. While one is under way it is asked for once a second, and the page stays
    as it is; when the last one has ended the page is drawn again.
    key: of this list on its page, so that a job may stand in two. here: the path of the page that its results belong
    to, None for the one that shows such results."""
    # Polling stops with the last job: an idle page asks for nothing.
    polled = any(job.active for job in found)
    st.fragment(_draw, run_every=POLL_S if polled else None)(tuple(found), key, here, polled)


def _draw(found: tuple[jobs.Job, ...], key: str, here: str | None, polled: bool) -> None:
    known = jobs.registry().all()
    if any(job not in known for job in found):
        st.rerun()  # the whole page: one was resumed as another job, or dismissed
    for job in reversed(found):
        with st.container(border=True, key=f"job-{key}{job.id}"):
            _card(job, key, here)
    if polled and not any(job.active for job in found):
        st.rerun()  # the whole page: what ended is listed or shown, and polling ends


def _card(job: jobs.Job, key: str, here: str | None) -> None:
    name = layout.plain(job.request.folder.name)
    what_is_kept = "; what was finished is kept" if job.state == "cancelled" and job.request.keeps else ""
    st.markdown(f"**{name}** {_SAID[job.state]}{what_is_kept}, {formats.seconds(job.elapsed_s)}")
    registry = jobs.registry()
    if job.active:
        share, text = told(job.progress)
        st.progress(share, layout.plain(text))
        st.button("Cancel", key=f"cancel-{key}{job.id}", on_click=registry.cancel, args=(job,), disabled=job.cancelled)
        _curves(job, key)
        return
    if job.state == "failed":
        st.error(layout.worded(job.message or "it ended without saying why"))
        if not job.resumable and job.request.keeps:
            st.caption("The same run would end the same way: put right what it says, then start it anew.")
    for analysis, why in job.skipped.items():
        st.caption(f"Skipped {layout.plain(analysis)}: {layout.worded(why)}")
    if job.state != "done":
        _curves(job, key)
    with st.container(horizontal=True, vertical_alignment="center"):
        if job.state == "done":
            path, settings = address_of(job.request)
            if here is not None:
                path, shown = here, {name: st.query_params[name] for name in _PARTS if name in st.query_params}
                settings = {name: value for name, value in settings.items() if name not in _PARTS} | shown
            menu.link("Show the results", path, settings, icon=":material/arrow_forward:")
        if job.resumable:
            st.button("Resume", key=f"resume-{key}{job.id}", on_click=begin, args=(registry.resume, job))
        st.button("Dismiss", key=f"forget-{key}{job.id}", on_click=registry.forget, args=(job,))


def _curves(job: jobs.Job, key: str) -> None:
    figures = curves.growing((job.progress or {}).get("so_far"))
    for (order, figure), place in zip(figures.items(), st.columns(len(figures)) if figures else (), strict=True):
        name = series.ORDER_TITLES[order]
        place.plotly_chart(
            figure_size.sized(as_text(figure)), key=f"growing-{key}{job.id}-{order}",
            config=layout.figure_config(f"{job.request.folder.name}-{order}"),
            alt=f"Perplexity of {job.request.folder.name} under {name} as far as it is measured.",
        )  # fmt: skip


def told(progress: dict[str, Any] | None) -> tuple[float, str]:
    """How much of a stage is done, as a share, and in words: which part of how many, the stage, the time left.
    progress: as a job tells it. The time left is that of the whole run where this is known, else it says of what."""
    progress, stage = progress or {}, ""
    if progress.get("parts"):
        stage = f"Stage {progress['number']} of {progress['parts']}, {progress['part']}"
    if not progress.get("total"):
        return 0.0, f"{stage}: getting ready" if stage else "Loading the model and the text"
    text = f"{progress['stage']}: {progress['done']:,} of {progress['total']:,}"
    rest = ""
    for left, of in ((progress["seconds_left"], "this stage"), (progress.get("seconds_left_of_all"), "all")):
        rest = rest if left is None else f", about {formats.duration(left)} left of {of}"
    share = min(max(progress["done"] / progress["total"], 0.0), 1.0)
    return share, f"{f'{stage}. ' if stage else ''}{text}{rest}"


def address_of(request: jobs.Request) -> tuple[str, dict[str, str]]:
    """The path of the page that shows what a request makes (that of the overview is empty), and its settings."""
    kind, *rest = request.words
    settings = {"source": "My results", "folder": str(request.folder)}
    if request.model_at is None:
        return "refusal", {**settings, "section": "Judges"}
    if kind in ("refusal", "score"):
        return {"refusal": "refusal", "score": "rows"}[kind], settings
    path, part = _SHOWN.get("sweep" if kind == "sweep" else rest[1], ("believed", ""))
    return path, {**settings, "part": part} if part else settings
