"""Parts of masks against plain losses of the model with those rows zeroed by hand."""

from pathlib import Path

import numpy as np
import pytest
from tiny_audits import lowest, tables_of, tiny_audit

from engine.interventions.in_weights import zeroed
from engine.models.loading import LoadedModel
from engine.results.store import Store


def test_each_part_alone_and_put_back(tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        audit = tiny_audit(
            tiny_llama, tiny_text, store, scoring={"selectors": ("random", "magnitude", "wanda")}, parts_windows=3,
            parts_rates=(0.3,),
        )  # fmt: skip
        table = tables_of("parts", audit)["parts"]
        scores = {name: audit.scores[name].tolist() for name in ("magnitude", "wanda")}
        windows = audit.evaluation.input_ids[:3]
    assert table["selector"].unique(maintain_order=True).to_list() == list(scores)

    def loss(rows: list[int]) -> float:
        with zeroed(tiny_llama, rows):
            return float(np.mean([tiny_llama.model(one[None], labels=one[None]).loss.item() for one in windows]))

    dense, index = loss([]), tiny_llama.rows
    for name, values in scores.items():
        own = table.filter(selector=name)
        mask = lowest(values, round(0.3 * len(values)))
        by_part = {"projection": {}, "block": {}}
        for row in mask:
            layer = index.layers[int(index.layer_of(np.array([row]))[0])]
            by_part["projection"].setdefault(layer.projection, []).append(row)
            by_part["block"].setdefault(str(layer.block), []).append(row)
        wanted = {(part, key) for part, keys in by_part.items() for key in keys if len(keys) > 1}
        assert set(own.select("part", "name").rows()) == wanted
        for line in own.iter_rows(named=True):
            inside = by_part[line["part"]][line["name"]]
            outside = [row for row in mask if row not in inside]
            assert line["rows_removed"] == len(inside)
            nlls = [line[column] for column in ("nll_alone", "nll_without", "nll", "dense_nll")]
            by_hand = [loss(inside), loss(outside), loss(mask), dense]
            assert nlls == pytest.approx(by_hand, abs=2e-6)
            harm = nlls[2] - nlls[3]
            expected = (nlls[2] - nlls[1]) / harm if harm > 0 else None
            assert line["restored"] == (expected if expected is None else pytest.approx(expected))
