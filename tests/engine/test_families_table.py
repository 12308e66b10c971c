"""The table of families is what the software says of each now."""

from pathlib import Path

import pytest
import torch
from families_table import COLUMNS, GROUPS, MADE_WITH, NO, REST, YES, Family, about, table, whole
from tiny_models import tiny_config
from transformers import AutoModelForCausalLM

from engine.models.attnlrp import check_rules
from engine.records.errors import InputError

STORED = Path(__file__).parents[1] / "data" / "families.md"


def of(family: str) -> Family:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(tiny_config(family))
    return about(family, model)


@pytest.mark.parametrize(
    ("family", "cells"),
    [  # rows, other selectors, ig, lrp, consensus2, neurons, heads, experts
        ("llama", (YES, YES, YES, YES, YES, YES, YES, NO)),
        ("mistral", (YES, YES, YES, YES, YES, YES, YES, NO)),
        ("phi3", (YES, YES, YES, NO, NO, NO, NO, NO)),
        ("gpt_neox", (YES, YES, YES, NO, NO, NO, NO, NO)),
        ("mixtral", (YES, YES, NO, NO, NO, YES, YES, YES)),
    ],
)
def test_lines_of_families_that_other_tests_run(family: str, cells: tuple[str, ...]) -> None:
    assert of(family).cells == (family, *cells)


def test_the_column_of_lrp_is_what_attnlrp_says() -> None:
    for family in ("gemma", "olmo2", "gpt2", "exaone4", "bitnet"):
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(tiny_config(family))
        try:
            check_rules(model)
        except InputError:
            assert "lrp" not in about(family, model).selectors
        else:
            assert {"lrp", "relp"} <= about(family, model).selectors


def test_a_table_of_three() -> None:
    everything = frozenset([*REST, *(name for names in GROUPS.values() for name in names)])
    found = [
        Family("b", "it has no block"), Family("c", "", frozenset(REST), heads=True), Family("a", "", everything, True),
    ]  # fmt: skip
    lines = table(found).splitlines()
    assert len(lines) == 6
    assert lines[0].split(" | ")[1:] == [*COLUMNS[1:-1], f"{COLUMNS[-1]} |"]
    assert lines[2] == "| **3 families** | 2 of 3 | 2 of 3 | 1 of 3 | 1 of 3 | 1 of 3 | 1 of 3 | 1 of 3 | 0 of 3 |"
    assert [line.split(" | ")[0] for line in lines[3:]] == ["| a", "| b", "| c"]
    assert set(lines[4].strip("| ").split(" | ")[1:]) == {NO}


@pytest.mark.long  # more than a hundred models without weights
def test_the_stored_table_is_the_one_that_is_made_now() -> None:
    stored = STORED.read_text(encoding="utf-8")
    if MADE_WITH not in stored:
        pytest.skip("other families: the table is of another version of transformers")
    assert stored == whole(), "write it again: python tests/families_table.py > that file"
