"""Parts of refusal edits against transformers' own passes with rows set to zero."""

from dataclasses import replace

import pytest
import torch
from refusal_helpers import points_of, tables_of

from engine.data.onsets import onset_tokens
from engine.data.prompts import prompt_ids
from engine.edits.contrasts import refusal_mask
from engine.interventions.in_weights import zeroed
from engine.results.tables import checked
from engine.studies.refusal.refusal_inputs import RefusalInputs
from engine.studies.refusal.structure import Parts


def slow_margin(run: RefusalInputs, domain: str, mask) -> float:
    onsets, found = onset_tokens(run.loaded.tokenizer), []
    with zeroed(run.loaded, mask), torch.no_grad():
        for pair in run.heldout[domain]:
            ids = torch.tensor([prompt_ids(run.loaded.tokenizer, pair.risk)])
            logits = run.loaded.model(input_ids=ids).logits[0, -1]
            found.append(float(logits[list(onsets.refusal)].mean() - logits[list(onsets.compliance)].mean()))
    return sum(found) / len(found)


def slow_nll(run: RefusalInputs, mask) -> float:
    ids = run.evaluation.input_ids[:16]
    with zeroed(run.loaded, mask), torch.no_grad():
        return float(run.loaded.model(input_ids=ids, labels=ids).loss)


@pytest.mark.long
def test_every_part_alone_and_put_back(attributed: RefusalInputs) -> None:
    run = replace(attributed, plan=replace(attributed.plan, domains=("cups",)))
    table = checked("refusal_parts", tables_of(Parts(run), run)["refusal_parts"], "test")
    points = {place: point for place, point in points_of(run).items() if point}
    assert set(table.select("selector", "domain").unique().rows()) == set(points)
    labels = [(layer.projection, str(layer.block)) for layer in run.loaded.rows.layers]
    place, point = next(iter(points.items()))
    [contrast] = [one for one in run.contrasts if (one.selector, one.domain) == place]
    mask = refusal_mask(contrast, point.lam, point.k)
    whole, dense = slow_margin(run, place[1], mask), slow_margin(run, place[1], mask[:0])
    of_rows = [labels[layer] for layer in run.loaded.rows.layer_of(mask)]
    lines = table.filter(selector=place[0])
    for part, label in (("projection", 0), ("block", 1)):
        sizes = {name: sum(of_row[label] == name for of_row in of_rows) for name in {row[label] for row in of_rows}}
        found = dict(lines.filter(part=part).select("name", "rows_removed").iter_rows())
        assert found == (sizes if len(sizes) > 1 else {})
    for row in lines.filter(part="projection").iter_rows(named=True):
        inside = torch.tensor([row["name"] in of_row for of_row in of_rows]).numpy()
        alone, without = (slow_margin(run, place[1], some) for some in (mask[inside], mask[~inside]))
        assert (row["margin"], row["margin_dense"]) == pytest.approx((whole, dense), abs=1e-4)
        assert (row["margin_alone"], row["margin_without"]) == pytest.approx((alone, without), abs=1e-4)
        assert row["nll_alone"] == pytest.approx(slow_nll(run, mask[inside]), abs=1e-5)
        assert row["nll_without"] == pytest.approx(slow_nll(run, mask[~inside]), abs=1e-5)
        lost = (whole - without) / (whole - dense) if whole > dense else None
        assert row["margin_lost"] == (None if lost is None else pytest.approx(lost, abs=1e-2))
