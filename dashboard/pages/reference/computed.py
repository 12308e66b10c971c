"""What is computed for the documents: kinds of reply, the simulation of noise, lists of the registries, help."""

from __future__ import annotations

import polars as pl
import streamlit as st

from dashboard.charts import refusal_values
from dashboard.pages.reference import documents
from dashboard.show import described, layout, selection, tools
from dashboard.state import shipped
from engine.judges.base import EMBEDDED, JUDGES, open_judges
from engine.judges.measured_quality import quality_by_kind

WEAK_F1 = 0.85


def _embedded_by_kind() -> None:
    """Where the embedded judge errs, from the file that its measurement writes."""
    kinds = quality_by_kind(open_judges(EMBEDDED)[0])
    if not kinds:
        st.markdown("The embedded judge has not been measured by kind of reply in this version.")
        return
    table = pl.DataFrame(
        {
            "kind": list(kinds),
            "replies": [sum(vars(one).values()) for one in kinds.values()],
            "taken for refusals": [one.false_positives for one in kinds.values()],
            "taken for answers": [one.false_negatives for one in kinds.values()],
            "F1": [one.f1 or 0.0 for one in kinds.values()],
        }
    ).sort("F1", "kind")
    weak = [f"{kind} ({f1:.2f})" for kind, f1 in table.select("kind", "F1").iter_rows() if f1 < WEAK_F1]
    st.markdown(
        f"The embedded judge was tried on {table['replies'].sum()} replies of our own, for and against, that were "
        "written to mislead it and not looked at one by one while its rules were written, by the same authors. "
        f"F1 below {WEAK_F1}: {', '.join(weak) or 'none'}."
    )
    st.dataframe(table, hide_index=True, alt="Replies of each kind, mistakes of the embedded judge and its F1")


def _false_alarms() -> None:
    """The simulation behind what is said of gains and draws."""
    found = shipped.null_simulation()
    grids = [
        {"Cells of the grid": one["cells"], "Trials": one["trials"], **{
            title: refusal_values.percent(*one[name])
            for title, name in (("By the interval of the gain", "interval"), ("By p among draws", "p"))
        }}
        for one in found["grids"]
    ]  # fmt: skip
    st.dataframe(pl.DataFrame(grids), hide_index=True, alt="Share of selectors of pure noise that are called specific")
    first = found["grids"][0]
    covered = ", ".join(f"{one['covered'][0]:.1%}" for one in found["grids"])
    layout.footnote(
        f"{first['trials']:,} simulated trials per grid, {first['draws']} draws, p at most {first['level']:g}; the "
        f"effects of a mask on calibration and held-out prompts correlate at {found['correlation']:g}. In brackets: "
        "Wilson's 95% intervals. The 95% prediction interval of the draws held the noise's rate in "
        f"{covered} of the trials.",
        "Made by `python -m precomputed.null_simulation` with the functions that the results are computed by.",
    )
    until, pooled = found["until"][-1], found["pooled"][1]
    st.markdown(
        "`specific --until` draws masks until a difference is told or its interval narrow enough. Noise that was drawn "
        f"until it was told, at {', '.join(map(str, until['looks']))} masks, was told in {until['told'][0]:.1%} of "
        f"{until['trials']:,} simulated trials at {until['level']:.0%}, since p is multiplied by the number of looks "
        f"({until['unadjusted'][0]:.1%} without that). Variances are not pooled over selectors: where one of eight "
        f"varies {pooled['ratio']:g} times as much as the others, noise would be told in {pooled['pooled'][0]:.1%} of "
        f"families instead of {pooled['own'][0]:.1%}."
    )


def _judges() -> None:
    _embedded_by_kind()
    st.markdown("\n".join(f"- `{one.id}`: {layout.plain(one.title)}" for one in JUDGES))


def _tables() -> None:
    st.dataframe(
        described.tables(), hide_index=True, alt="Every table with what it holds and the command that writes it"
    )
    columns = described.columns()
    st.dataframe(columns, hide_index=True, alt="Every column of every table with its type, unit and meaning")
    tools.download_csv("Download the list (CSV)", columns, "tables.csv")


def _help() -> None:
    helps = documents.helps()
    st.code(helps[selection.choose("Command", list(helps), "command")], language=None)


# (document, section) -> what stands below its text
AFTER = {
    (documents.METHODS, "Refusal edits"): _false_alarms,
    (documents.METHODS, "Judges"): _judges,
    (documents.METHODS, "Tables"): _tables,
    (documents.COMMANDS, "Every command"): _help,
}
