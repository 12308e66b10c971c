"""Joint: a mask's harm against the sum of single harms, measured again by hand."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tiny_audits import nll_of, tables_of, tiny_audit

from engine.models.loading import LoadedModel
from engine.results.store import Store
from engine.results.tables import checked
from engine.studies.claims.ledger import ledger


def test_sums_are_those_of_every_row_alone(tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path) -> None:
    """All rows are sampled, so that the sum is exact; then some, whose interval holds it."""
    n, rate = tiny_llama.rows.n_rows, 0.1
    with Store(tmp_path) as store:

        def made(rows: int) -> pl.DataFrame:
            audit = tiny_audit(
                tiny_llama, tiny_text, store, scoring={"selectors": ("random", "wanda"), "seeds": (42,)},
                singles_rows=rows, singles_neurons=0, singles_windows=5, joint_rates=(0.01, rate, 1.0),
            )  # fmt: skip
            table = checked("joint", tables_of("joint", audit)["joint"], "joint")
            dense = nll_of(audit, []).nats_per_token
            mask = np.argsort(audit.scores["wanda"], kind="stable")[: round(rate * n)]
            harms = [nll_of(audit, [row]).nats_per_token - dense for row in mask.tolist()]
            line = table.filter(selector="wanda", rate=rate).row(0, named=True)
            assert line["harm"] == pytest.approx(nll_of(audit, np.sort(mask)).nats_per_token - dense, abs=1e-6)
            if rows == n:
                assert line["units_sampled"] == round(rate * n)
                assert line["single_sum"] == pytest.approx(sum(harms), abs=1e-5)
            else:
                assert line["single_low"] <= sum(harms) <= line["single_high"]
            return table

        made(n // 2)
        table = made(n)
    assert table.filter(rate=0.01)["single_sum"].null_count() == 2  # three rows
    claims = ledger({"joint": table.with_columns(saturated=pl.col("rate") > 0.5)})
    assert claims.filter(selector="wanda")["case"].to_list() == ["10%"]
    line = table.filter(selector="wanda", rate=rate).row(0, named=True)
    more, less = line["harm"] > line["single_high"], line["harm"] < line["single_low"]
    word = "more than" if more else "less than" if less else "no more or less than"
    assert f"together, {word} the sum" in claims.filter(selector="wanda")["claim"][0]
