"""Curves and Agreement as one would write them in an hour: what any page of Streamlit and plotly costs.

    streamlit run tests/benchmarks/bare_page.py -- RESULTS

RESULTS: a results folder. `?page=agreement` for the other page. `bench_dashboard.py` measures the app beside it.
"""

import sys
from pathlib import Path

import plotly.graph_objects as go
import polars as pl
import streamlit as st

results = Path(sys.argv[1])
st.set_page_config(layout="wide")


def curves() -> None:
    sweep = pl.read_parquet(results / "sweep.parquet")
    names = sweep["selector"].unique(maintain_order=True).to_list()
    chosen = st.pills("Selectors", names, default=names, selection_mode="multi")
    for order, column in zip(("LeRF", "MoRF"), st.columns(2), strict=True):
        figure = go.Figure(layout={"height": 480, "title": order})
        for name in chosen:
            part = (
                sweep.filter(selector=name, order=order.lower())
                .group_by("rate")
                .agg(pl.col("perplexity").mean())
                .sort("rate")
            )
            figure.add_scatter(x=part["rate"], y=part["perplexity"], name=name, mode="lines+markers")
        figure.update_yaxes(type="log")
        column.plotly_chart(figure, alt=f"under {order}: {', '.join(chosen)}", key=order)


def agreement() -> None:
    shown = st.segmented_control("Show", ["Shared rows", "Whole rankings"], default="Shared rows")
    if shown == "Whole rankings":
        figure = _matrix(pl.read_parquet(results / "spearman.parquet"), "spearman")
        st.plotly_chart(figure, alt="Spearman, over all of the rows", key="spearman")
        return
    jaccard = pl.read_parquet(results / "jaccard.parquet").filter((pl.col("rate") - 0.3).abs() < 1e-9)
    for column, name in zip(st.columns(2), ("Attention", "MLP"), strict=True):
        figure = _matrix(jaccard.filter(sublayer=name.lower()), "jaccard")
        column.plotly_chart(figure, alt=f"{name}: rows that either does; bright: alike", key=name)


def _matrix(table: pl.DataFrame, value: str) -> go.Figure:
    names = pl.concat([table["selector_a"], table["selector_b"]]).unique(maintain_order=True).to_list()
    cells = {(a, b): found for a, b, found in table.select("selector_a", "selector_b", value).iter_rows()}
    z = [[cells.get((a, b), cells.get((b, a))) for b in names] for a in names]
    return go.Figure(go.Heatmap(z=z, x=names, y=names, texttemplate="%{z:.2f}"), layout={"height": 480})


if st.query_params.get("page") == "agreement":
    agreement()
else:
    curves()
