"""A figure as a paper wants it: as wide as one or two columns, light, small type, its title in the caption."""

import plotly.graph_objects as go

from dashboard.charts import figure_size, palette

WIDTHS_IN = (3.25, 6.75)  # one column, two columns
CSS_PX = 96  # per inch, by the definition of CSS
TYPE_PT, CAPTION_PT = 8, 7
FONT = "Source Sans for figures, Arial, Liberation Sans, Helvetica, sans-serif"
_TOP_PX = 12


def for_paper(figure: go.Figure, width_in: float) -> go.Figure:
    """A copy, light whatever the page's theme is, with its title taken away. The height is that of the page's figure
    without the title, all of it scaled to type of `TYPE_PT` points; the browser adds what a long legend needs."""
    drawn = go.Figure(figure)
    layout = drawn.layout
    if layout.height and layout.margin.t:
        layout.height -= max(layout.margin.t - _TOP_PX, 0)
        layout.margin.t = min(layout.margin.t, _TOP_PX)
    layout.title = {"text": ""}
    figure_size.sized(drawn, TYPE_PT * CSS_PX / 72 / figure_size.BASE_PX)
    drawn.update_layout(
        template="plotly_white", width=round(width_in * CSS_PX), paper_bgcolor="white", plot_bgcolor="white",
        font={"family": FONT, "color": "black"}, hovermode=False, legend={"tracegroupgap": 0},
    )  # fmt: skip
    for note in layout.annotations:
        if note.font.color == palette.REFERENCE:  # 3.9:1 on white
            note.font.color = palette.TEXT_ON_LIGHT
    return drawn
