"""Tables whose cells read as text and sort by number."""

import math

import polars as pl
import pyarrow as pa
import pytest
from streamlit.testing.v1 import AppTest

from dashboard.charts import formats, series
from dashboard.charts.sortable import of_perplexity, of_rows, perplexity, sortable
from dashboard.state import results


def shown(element):
    """The texts of the cells, as the browser gets them."""
    return pa.ipc.open_stream(element.proto.arrow_data.styler.display_values).read_all().to_pandas()


def on_a_page(table):
    def script(table):
        from dashboard.show import shown_tables as tables

        tables.show(table)

    app = AppTest.from_function(script, default_timeout=60, args=(table,)).run()
    assert not app.exception
    (element,) = app.dataframe
    return element


def test_what_is_no_number_is_null_and_what_is_too_large_is_infinite():
    nll = [2.0, None, math.inf, 1000.0, math.nan, 556.0]
    known = [pytest.approx(math.exp(2)), None, math.inf, math.inf, None, pytest.approx(math.exp(556))]
    assert [perplexity(value) for value in nll] == known
    table = of_rows(({"nll": value} for value in nll), {"PPL": of_perplexity("nll")})
    assert table.numbers["PPL"].to_list() == known
    assert table.texts["PPL"].to_list() == [formats.perplexity(value) for value in nll]


def test_cells_read_as_their_texts_also_where_a_number_has_two():
    numbers = pl.DataFrame({"a": [1e9, 20.0, 3.0, 20.0, math.inf, math.inf, None]})
    texts = pl.DataFrame({"a": ["1×10⁹", "20", "3", "20 *", "∞", "10⁹⁹⁹", None], "b": list("tuvwxyz")})
    element = on_a_page(sortable(texts, numbers))
    assert shown(element)["a"].to_list() == ["1×10⁹", "20", "3", "20 *", "∞", "10⁹⁹⁹", "–"]
    behind = element.value["a"]
    assert behind.dtype == float
    assert behind.sort_values().index.to_list()[:4] == [2, 1, 3, 0]  # as text 1×10⁹ would come first
    assert element.value["b"].to_list() == list("tuvwxyz")


def test_published_perplexities_sort_by_number():
    paper = results.read_paper()
    points = series.points(paper.frame, "Gemma-3-12B", ["lrp", "wanda"], ["lerf", "morf"], (0.0, 0.9))
    table = series.value_table(points)
    for name in ("Removed", "LRP", "Wanda"):
        assert table.numbers[name].dtype == pl.Float64
    nll = points.filter(selector="wanda", order="morf").sort("rate")["nll"]
    assert table.numbers.filter(Order="MoRF")["Wanda"].to_list() == pytest.approx([math.exp(value) for value in nll])
    assert table.texts["Wanda"].to_list()[-1] == "4.56×10²⁴¹ *"
    assert shown(on_a_page(table))["Wanda"].to_list()[-1] == "4.56×10²⁴¹ *"
