"""That the shape checks check: every function that they name is watched, and a wrong shape is noticed."""

import importlib
import inspect

import numpy as np
import pytest
from shape_checks import SHAPES, checked

from engine.records.errors import InputError
from engine.stats.removal_order import removal_order

NAMED = [(module, function) for module, functions in SHAPES.items() for function in functions]


@pytest.mark.parametrize(("module", "function"), NAMED, ids=[f"{m}.{f}" for m, f in NAMED])
def test_every_named_function_is_watched(module, function):
    found = getattr(importlib.import_module(module), function)
    assert set(SHAPES[module][function]) - {"return"} <= set(inspect.signature(found).parameters)
    assert hasattr(found, "__wrapped__")


@pytest.mark.parametrize(
    ("given", "result", "wrong"),
    [
        ((3, 4), np.zeros((3, 3)), False),
        ((3, 4), np.zeros((4, 4)), True),  # transposed
        ((3, 4), np.zeros((3, 3), dtype=np.float32), True),
        ((3,), np.zeros((3, 3)), True),
        ((3, 4), 0.5, True),
    ],
)
def test_wrong_shapes_and_types_are_noticed(given, result, wrong):
    function = checked(lambda matrix: result, {"matrix": "Shaped S N", "return": "Float64 S S"})
    if not wrong:
        assert function(np.zeros(given)) is result
        return
    with pytest.raises(AssertionError):
        function(matrix=np.zeros(given))


def test_errors_and_lists_pass_through():
    assert removal_order([0.3, 0.1], "lerf").tolist() == [1, 0]
    with pytest.raises(InputError, match="shape"):
        removal_order(np.zeros((2, 3)), "lerf")
