"""Exact controls: rewrites that leave the function bit for bit, and decoys."""

import polars as pl
import streamlit as st

from dashboard.charts import believed as chart, formats, palette
from dashboard.charts.findings import believed as findings
from dashboard.show import layout, selection, tables, tools
from dashboard.state.parts import Drawn, Part
from dashboard.state.sources import Source
from engine.interventions.rewrite_names import DECOYS, NEURONS, NORMS, NORMS_WHOLE, REWRITES, VALUES

MEASURES = {"moved": "LeRF loss", "spearman": "Spearman", "jaccard": "Jaccard"}
TITLES = {
    NEURONS: "neurons rescaled", VALUES: "values rescaled", NORMS: "norms folded", NORMS_WHOLE: "norms folded whole",
    DECOYS: "decoys planted",
}  # fmt: skip
WORDS = {"exact": "the same bits", "rounding": "the same but for rounding", "moved": "moves", "unknown": "not known"}


def show(source: Source) -> Drawn:
    """What selectors make of weights that compute the same, and of rows that do nothing; folded, the answers."""
    proofs, verdicts = source.table("invariance_rewrites"), source.table("invariance_verdicts")
    shown = verdicts
    with source.hero():
        left, right = st.columns(2)
    with left, layout.told():
        if proofs.filter("proven", pl.col("rewrite") != DECOYS).height:
            shown = source.table("invariance")
            _moves(source, shown, verdicts)
        else:
            st.info("No rescaling was proven to leave this model's function; the reasons are below.")
    with right, layout.told():
        if proofs.filter("proven", rewrite=DECOYS).height:
            _decoys(source.table("invariance_decoys"))
        else:
            st.info("No decoys were planted; the reason is below.")
    return Drawn(shown, lambda: _more(proofs, verdicts))


def _more(proofs: pl.DataFrame, verdicts: pl.DataFrame) -> None:
    verdicts = palette.sorted_by_selector(verdicts)
    answers = verdicts.select(
        formats.texts(verdicts["selector"], palette.title).alias("Selector"),
        pl.col("invariance").replace(WORDS).alias("Ranking"),
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
        pl.col("rewrite").replace(TITLES).alias("Rewrite"),
        pl.when("proven").then(pl.lit("yes, every bit")).otherwise(pl.lit("no proof")).alias("Same function"),
        pl.col("units").alias("Units"),
        pl.col("windows_equal").alias("Windows bit-equal"),
        pl.col("windows").alias("Windows"),
        pl.col("rewrite").replace(REWRITES).alias("What it does"),
        tables.told("reason").alias("Why not, or what is left out"),
    )
    st.dataframe(proofs, hide_index=True, alt="Per rewrite: what it does, and whether every logit kept its bits")


def _moves(source: Source, table: pl.DataFrame, verdicts: pl.DataFrame) -> None:
    measure = selection.switch(
        "Before and after by", tuple(MEASURES), "exact_measure", default="moved", title=MEASURES.__getitem__,
        place=source.bar,
    )  # fmt: skip
    rate = formats.rate(table["rate"][0])
    rewrites = {name: TITLES[name] for name in REWRITES if name in table["rewrite"]}
    wide = table.group_by("selector", "rewrite", maintain_order=True).agg(pl.col(measure).mean())
    wide = wide.pivot("rewrite", index="selector", values=measure, maintain_order=True)
    heading, below, title = {
        "moved": (f"How much LeRF at {rate} changes", "though every logit has the same bits", "nats per token"),
        "spearman": ("Rank correlation before and after", "1 is the same ranking", "Spearman"),
        "jaccard": (f"Overlap of LeRF masks at {rate}, before and after", "1 is the same mask", "Jaccard"),
    }[measure]
    moved = measure == "moved"
    figure = chart.before_after(
        wide,
        rewrites,
        unmoved=0.0 if moved else 1.0,
        heading=heading,
        below=below,
        title=title,
        text=("{:+.2f} nats" if moved else "{:.3f}").format,
    )
    below = f"{heading}; {below}"
    finding = findings.rewrites(verdicts)
    tools.show(figure, f"exact-{measure}", key="exact-moves", finding=finding, below=below, hero=True)
    tools.say_not_finite(*(wide[name] for name in rewrites))


def _decoys(table: pl.DataFrame) -> None:
    rate, count = formats.rate(table["rate"][0]), int(table["decoys"][0])
    means = table.group_by("selector", maintain_order=True).agg(
        pl.col("protected", "removed_first", "percentile").mean()
    )
    figure = chart.selector_bars(
        means, [("protected", f"among the top {rate}"), ("removed_first", f"in the LeRF mask at {rate}")],
        heading=f"Where {count} rows without effect rank", below="their weights and outputs are huge",
        title="share of the decoys", tickformat=".0%", text="{:.0%}".format, top=1.0,
        hover=lambda row: f"{row['protected']:.1%} protected, {row['removed_first']:.1%} removed first<br>"
        f"mean rank {row['percentile']:.1%} of the way up",
    )  # fmt: skip
    below = f"{count} rows without effect, of huge weights and outputs"
    told = findings.decoys(means, rate)
    tools.show(figure, "decoys", key="decoys", finding=told, below=below, hero=True)


PART = Part(
    show, ("invariance_rewrites",),
    "The weights are rewritten so that every logit on the calibration windows keeps every bit, and each selector is "
    "run again. What it says otherwise then is about how the weights are written, not about what the model computes. "
    "To keep its ranking is necessary, not sufficient: random noise keeps it too.",
)  # fmt: skip
