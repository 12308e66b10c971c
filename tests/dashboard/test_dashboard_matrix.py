"""Tables of numbers as cells: what is set at once, and labels that are turned only for want of room."""

import plotly.graph_objects as go
import pytest

from dashboard.charts import matrix


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
