"""A figure with a long legend, dark, with a title of two lines: what a paper does not want."""

import plotly.graph_objects as go

from dashboard.charts.findings import finding_words as words


def figure():
    drawn = go.Figure()
    for number in range(9):
        drawn.add_scatter(x=[0, 1], y=[number, 9 - number], name=f"Selector no. {number}", marker={"size": 7})
    drawn.add_annotation(text="a note", x=0.5, y=3, font={"color": "#808080"})
    drawn.update_layout(
        height=480, margin={"l": 10, "r": 10, "t": 70, "b": 130}, template="plotly_dark", paper_bgcolor="#0e1117",
        title={"text": "t", "y": 0.95}, legend={"orientation": "h", "yanchor": "top", "y": -0.18},
    )  # fmt: skip
    drawn.update_xaxes(title="rows removed")
    return words.headed(drawn, "A finding that is <long> enough for two lines of a title", "how to read it")
