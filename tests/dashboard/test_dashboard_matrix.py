"""Tables of numbers as cells: what is set at once, and labels that are turned only for want of room."""

import plotly.graph_objects as go
import pytest

from dashboard.charts import matrix, palette


def drawn(columns, blocks=48, **more):
    values = [[i * 0.01 + j * 0.1 for j in range(len(columns))] for i in range(blocks)]
    return matrix.matrix(
        values, columns, [str(i) for i in range(blocks)], heading="a", text=matrix.number, span=(0.0, 1.2),
        hover=[["" for _ in columns] for _ in range(blocks)], clickable=True, **more,
    )  # fmt: skip


@pytest.mark.parametrize("blocks", [2, 48])
def test_the_number_of_steps_does_not_grow_with_the_cells(monkeypatch, blocks):
    """plotly checks all notes of a figure again for each that is added."""
    calls = []
    for name in ("add_annotation", "add_shape", "add_trace", "add_traces", "update_layout", "update"):
        real = getattr(go.Figure, name)

        def counted(self, *args, _real=real, _name=name, **kwargs):
            calls.append(_name)
            return _real(self, *args, **kwargs)

        monkeypatch.setattr(go.Figure, name, counted)
    figure = drawn(["q", "k", "v"], blocks)
    assert len(figure.layout.annotations) == 3 * blocks
    assert "add_annotation" not in calls
    assert calls.count("update_layout") == 1
    assert len(calls) <= 6


def test_sizing_sets_no_more_one_by_one_where_there_are_more_cells(monkeypatch):
    """plotly looks for a note among all of them whenever it is asked for a part of it. And the colours of all numbers
    are looked up together."""
    from plotly.basedatatypes import BaseFigure

    from dashboard.charts import figure_size

    counts = []
    for blocks in (2, 48):
        calls = []
        with monkeypatch.context() as patch:
            scale, sought = matrix.sample_colorscale, BaseFigure._index_is
            patch.setattr(matrix, "sample_colorscale", lambda *a, **k: calls.append("scale") or scale(*a, **k))  # noqa: B023
            figure = drawn(["q", "k", "v"], blocks)
            patch.setattr(BaseFigure, "_index_is", staticmethod(lambda *a: calls.append("sought") or sought(*a)))  # noqa: B023
            figure_size.sized(figure, 2.0)
            counts.append((calls.count("scale"), calls.count("sought")))
        assert {note.font.size for note in figure.layout.annotations} == {2 * figure_size.CELL_PX}
        assert len(figure.layout.annotations) == 3 * blocks
        counts.append((calls.count("scale"), calls.count("sought")))
    assert counts[0] == counts[1]
    assert counts[0][0] == 1


def test_labels_are_broken_before_they_are_turned():
    titles = [palette.title(name) for name in ("consensus2", "mean_activation", "grad_x_input")]
    axis = drawn(titles, 3).layout.xaxis
    assert axis.tickangle is None
    assert axis.autotickangles == (0, -45)
    assert axis.ticktext == ("Consensus-2", "Mean<br>activation", "Gradient<br>x input")
    many = drawn([*titles, *"abcde"], 3).layout.xaxis
    assert not any("<br>" in label for label in many.ticktext)


@pytest.mark.parametrize(("rows", "shown"), [(18, True), (19, False)])
def test_on_stage_numbers_in_cells_are_large_or_left_out(rows, shown):
    from dashboard.charts import figure_size

    figure = figure_size.sized(drawn(["q", "k", "v"], rows), figure_size.STAGE, figure_size.STAGE_LEAST_PX)
    notes = figure.layout.annotations
    assert len(notes) == (3 * rows if shown else 0)
    assert all(
        note.font.size >= figure_size.STAGE_LEAST_PX and not note.text.startswith(("0.", "−0.")) for note in notes
    )
