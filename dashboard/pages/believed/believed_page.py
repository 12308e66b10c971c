"""Can it be believed: the verdicts with their evidence, and all that could explain a good result without them."""

import polars as pl
import streamlit as st

from dashboard.charts import believed as chart, formats, palette
from dashboard.charts.findings import belief_findings as findings
from dashboard.pages.believed import calibration_texts, own_layers as controls, singles_part as single_units
from dashboard.show import layout, selection, shown_tables as tables, tools
from dashboard.state import page_parts as parts
from dashboard.state.page_parts import Drawn, Part
from dashboard.state.sources import Source
from dashboard.state.tabs import tabs_of
from engine.interventions.rewrite_names import DECOYS, NEURONS, NORMS, NORMS_WHOLE, REWRITES, VALUES
from engine.stats.limits import Thresholds
from engine.studies.claims.ledger import TIERS, ledger, needed
from engine.studies.protocols.protocol_claims import ALL, CONTESTED, OVERTURNED, UNDECIDED, UNOPPOSED, summary
from engine.studies.verdict import verdict_moves

MEASURES = {"spearman": "Spearman", "jaccard": "Jaccard"}
DRAWN = {"spearman": "draw_spearman", "jaccard": "draw_jaccard"}
_WORDS = {
    ALL: "holds under all", UNOPPOSED: "never turns around", CONTESTED: "perhaps turns around, not surely",
    OVERTURNED: "turns around under some", UNDECIDED: "no difference seen",
}  # fmt: skip
_MOVED_BY = {"moved": "LeRF loss", "spearman": "Spearman", "jaccard": "Jaccard"}
_REWRITTEN = {
    NEURONS: "neurons rescaled", VALUES: "values rescaled", NORMS: "norms folded", NORMS_WHOLE: "norms folded whole",
    DECOYS: "decoys planted",
}  # fmt: skip
_KEPT = {"exact": "the same bits", "rounding": "the same but for rounding", "moved": "moves", "unknown": "not known"}


def _verdict(source: Source) -> Drawn:
    """The quadrant; folded, the ledger of the source's tables, made anew from them, whose claims are returned."""
    with layout.told():
        _quadrant(source, source.table("verdicts"))
    table = ledger({stem: source.table(stem) for stem in needed() if source.has(stem)})
    if table.is_empty():
        st.info("These tables support no sentence of the ledger; run `selector-audit analyze MODEL all` on a model.")
    return Drawn(table, lambda: _verdict_more(source, table))


def _ledger(table: pl.DataFrame) -> None:
    offered = [name for name in TIERS if name in table["tier"]]
    tiers = selection.choose_several("Evidence", offered, "claim_tiers")
    shown = table.filter(pl.col("tier").is_in(tiers))
    st.dataframe(
        shown.select(
            Selector=formats.texts(shown["selector"], palette.title), Claim=tables.told("claim"), Evidence="tier",
            Number="number", Unit="unit", Control=tables.told("control"), Test=tables.told("test"), p="p",
        ),
        hide_index=True, alt="Claims, each with its evidence, number, control and test",
        column_config={"Number": st.column_config.NumberColumn(format="%.3g"),
                       "p": st.column_config.NumberColumn(format="%.2g")},
    )  # fmt: skip


def _quadrant(source: Source, verdicts: pl.DataFrame) -> None:
    measure = selection.switch(
        "Stability by", tuple(MEASURES), "measure", default="jaccard", title=MEASURES.__getitem__, place=source.bar
    )
    limits = Thresholds()
    stable_from = limits.spearman if measure == "spearman" else limits.jaccard
    drawn = verdicts[DRAWN[measure]].is_not_null().any()  # else there are nested sizes only
    draws = source.table("draws") if source.has("draws") else None
    figure = chart.quadrant(verdicts, DRAWN[measure] if drawn else measure, stable_from, limits, draws)
    source.show(figure, "stable-but-invalid", finding=findings.judged(verdicts))
    if source.published:
        st.caption(
            "Published: stability from 8 against 128 windows, validity at 30%. The dotted lines are this software's "
            "limits, made for half of the text against all of it; the paper names none."
        )
        return
    nested = "" if drawn else "Stability here is that of nested sizes, which judges nothing: no draws were measured. "
    named = verdicts.filter(pl.col("stable_but_invalid").fill_null(False))["selector"].to_list()
    inside = ", ".join(palette.title(name) for name in palette.in_order(named)) or "none"
    unread = verdicts.filter(stability="not applicable")["selector"].to_list()
    silent = f"Not drawn, as they read no text: {', '.join(map(palette.title, unread))}. " if unread else ""
    st.caption(
        f"{nested}{silent}Judged stable but invalid: {inside}. Dotted lines are the default limits of verdicts: "
        f"{MEASURES[measure]} {stable_from:g}, log gap {limits.log_gap:g} nats, with {limits.rate:.0%} of rows removed "
        f"{1 - limits.invalid_damage:.0%} and {1 - limits.faithful_damage:.0%} of random rows' harm avoided. Gap "
        "too small: though that much is avoided, the gap between the orders is too small at some rates. A verdict also "
        "asks for clear differences and beaten controls."
    )


def _verdict_more(source: Source, table: pl.DataFrame) -> None:
    """The ledger, what its kinds of evidence are, and which verdicts hang on where a limit was set."""
    if not table.is_empty():
        _ledger(table)
    kinds = "; ".join(f"**{name}**: {meaning}" for name, meaning in TIERS.items())
    st.caption(f"The kinds of evidence, the strongest first: {kinds}.")
    if source.has("verdict_moves"):
        sentences = verdict_moves.sentences(source.table("verdict_moves"), palette.title)
        st.subheader("What becomes of the verdicts when a limit moves?", anchor=False)
        st.markdown("\n".join(f"- {one}" for one in sentences))
        st.caption("One limit at a time, to a laxer and to a stricter value; two together may change more.")


VERDICT = Part(
    _verdict, ("verdicts", *needed()),
    "To be stable is not to be right: a selector at the bottom right gives the same answer every time, and the answer "
    "is wrong. Under More, each sentence that the tables support, with its evidence.",
)  # fmt: skip


def _exact(source: Source) -> Drawn:
    """What selectors make of weights that compute the same, and of rows that do nothing; folded, the answers."""
    proofs, verdicts = source.table("invariance_rewrites"), source.table("invariance_verdicts")
    shown = verdicts
    left, right = source.hero().columns(2)
    with left, layout.told():
        if proofs.filter("proven", pl.col("rewrite") != DECOYS).height:
            shown = source.table("invariance")
            _moves(source, shown, verdicts)
        else:
            st.info("No rescaling was proven to leave this model's function; the reasons are below.")
    with right, layout.told():
        if proofs.filter("proven", rewrite=DECOYS).height:
            table = source.table("invariance_decoys")
            rate, count = formats.rate(table["rate"][0]), int(table["decoys"][0])
            ranks = pl.col("protected", "removed_first", "percentile").mean()
            means = table.group_by("selector", maintain_order=True).agg(ranks)
            figure = chart.selector_bars(
                means, [("protected", f"among the top {rate}"), ("removed_first", f"in the LeRF mask at {rate}")],
                heading=f"Where {count} rows without effect rank", below="their weights and outputs are huge",
                title="share of the decoys", tickformat=".0%", text="{:.0%}".format, top=1.0,
                hover=lambda row: f"{row['protected']:.1%} protected, {row['removed_first']:.1%} removed first<br>"
                f"mean rank {row['percentile']:.1%} of the way up",
            )  # fmt: skip
            below, told = f"{count} rows without effect, of huge weights and outputs", findings.decoys(means, rate)
            tools.show(figure, "decoys", key="decoys", finding=told, below=below, hero=True)
        else:
            st.info("No decoys were planted; the reason is below.")
    return Drawn(shown, lambda: _exact_more(proofs, verdicts))


def _exact_more(proofs: pl.DataFrame, verdicts: pl.DataFrame) -> None:
    verdicts = palette.sorted_by_selector(verdicts)
    answers = verdicts.select(
        formats.texts(verdicts["selector"], palette.title).alias("Selector"),
        pl.col("invariance").replace(_KEPT).alias("Ranking"),
        pl.col("decoys_protected").alias("Decoys protected"),
        tables.told("reasons").alias("In words"),
    )
    st.dataframe(
        answers, hide_index=True,
        column_config={"Decoys protected": st.column_config.NumberColumn(format="percent")},
        alt="Per selector: what the rewrites did to its ranking, and where decoys rank",
    )  # fmt: skip
    layout.section("Is it the same function?")
    proofs = proofs.select(
        pl.col("rewrite").replace(_REWRITTEN).alias("Rewrite"),
        pl.when("proven").then(pl.lit("yes, every bit")).otherwise(pl.lit("no proof")).alias("Same function"),
        pl.col("units").alias("Units"), pl.col("windows_equal").alias("Windows bit-equal"),
        pl.col("windows").alias("Windows"), pl.col("rewrite").replace(REWRITES).alias("What it does"),
        tables.told("reason").alias("Why not, or what is left out"),
    )  # fmt: skip
    st.dataframe(proofs, hide_index=True, alt="Per rewrite: what it does, and whether every logit kept its bits")


def _moves(source: Source, table: pl.DataFrame, verdicts: pl.DataFrame) -> None:
    measure = selection.switch(
        "Before and after by", tuple(_MOVED_BY), "exact_measure", default="moved", title=_MOVED_BY.__getitem__,
        place=source.bar,
    )  # fmt: skip
    rate = formats.rate(table["rate"][0])
    rewrites = {name: _REWRITTEN[name] for name in REWRITES if name in table["rewrite"]}
    wide = table.group_by("selector", "rewrite", maintain_order=True).agg(pl.col(measure).mean())
    wide = wide.pivot("rewrite", index="selector", values=measure, maintain_order=True)
    heading, below, title = {
        "moved": (f"How much LeRF at {rate} changes", "though every logit has the same bits", "nats per token"),
        "spearman": ("Rank correlation before and after", "1 is the same ranking", "Spearman"),
        "jaccard": (f"Overlap of LeRF masks at {rate}, before and after", "1 is the same mask", "Jaccard"),
    }[measure]
    moved = measure == "moved"
    figure = chart.before_after(
        wide, rewrites, unmoved=0.0 if moved else 1.0, heading=heading, below=below, title=title,
        text=("{:+.2f} nats" if moved else "{:.3f}").format,
    )  # fmt: skip
    below = f"{heading}; {below}"
    finding = findings.rewrites(verdicts)
    tools.show(figure, f"exact-{measure}", key="exact-moves", finding=finding, below=below, hero=True)
    tools.say_not_finite(*(wide[name] for name in rewrites))


EXACT = Part(
    _exact, ("invariance_rewrites",),
    "The weights are rewritten so that every logit on the calibration windows keeps every bit, and each selector is "
    "run again. What it says otherwise then is about how the weights are written, not about what the model computes. "
    "To keep its ranking is necessary, not sufficient: random noise keeps it too.",
)  # fmt: skip


def _protocols(source: Source) -> Drawn:
    """The orders of all pairs; folded, every claim. Returns the claims."""
    claims = source.table("protocols_claims")
    heading = chart.protocol_heading(claims)
    source.show(chart.order_matrix(claims, heading), "protocols", key="protocol-order", finding=heading)
    st.markdown(layout.plain(summary(claims)))
    return Drawn(claims, lambda: _protocols_more(source, claims))


def _protocols_more(source: Source, claims: pl.DataFrame) -> None:
    st.dataframe(_claims(claims), hide_index=True, alt="Every pair of selectors: what the protocols say of their order")
    with layout.told():
        units = []
        for row in source.table("protocols_units").iter_rows(named=True):
            name = chart.UNITS.get(row["unit_kind"], row["unit_kind"]).lower()
            units.append(f"{row['unit_count']:,} {name}" + (f" ({row['units_why']})" if row["units_why"] else ""))
        st.caption(layout.plain(f"The model has {', '.join(units)}."))


def _claims(claims: pl.DataFrame) -> pl.DataFrame:
    title = {name: palette.title(name) for name in {*claims["selector_a"], *claims["selector_b"]}}
    first, second = (pl.col(f"selector_{side}").replace_strict(title, return_dtype=pl.String) for side in "ab")
    order = {word: place for place, word in enumerate(_WORDS)}
    return claims.sort(
        pl.col("claim_verdict").replace_strict(order, default=len(order)), "protocols_for", descending=[False, True],
        maintain_order=True,
    ).select(
        pl.format("{} before {}", first, second).alias("Claim"),
        pl.col("claim_verdict").replace(_WORDS).alias("Verdict"),
        pl.col("protocols_for").alias("Protocols that agree"),
        pl.col("protocols_against").alias("The other way round"),
        pl.col("protocols_tied").alias("No difference"),
        pl.col("from_paper").alias("Paper's protocol says so"),
        pl.col("overturned_by").fill_null("").alias("The other way round under"),
    )  # fmt: skip


PROTOCOLS = Part(
    _protocols, ("protocols_claims",),
    "A protocol is what is done to the chosen units (set to zero, to their mean, to what they say in another window), "
    "which units (rows, neurons, heads, experts), what is measured, in which order, at which rate. Each decides like a "
    "study of its own: paired over blocks of windows, corrected for all its pairs (Holm, 5%), else no difference is "
    "seen.",
)  # fmt: skip

PARTS = {
    "Verdict": VERDICT,
    "Stability": calibration_texts.STABILITY,
    "Second domain": calibration_texts.DOMAIN,
    "Explained by depth": controls.OWN_LAYERS,
    "Controls": controls.CONSENSUS,
    "Dangerous groups": controls.DANGEROUS_GROUPS,
    "Single units": single_units.PART,
    "Exact controls": EXACT,
    "Protocols": PROTOCOLS,
}
LINE = "Is it these rows, or would any rows of the same layers do? Would another text give the same rows?"
_STEMS = tuple(stem for part in PARTS.values() for stem in part.stems)


def render() -> None:
    plug_ins = {title: Part(show, _STEMS) for title, show in tabs_of("believed").items()}
    parts.page("Can it be believed", LINE, PARTS | plug_ins)
