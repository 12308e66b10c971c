"""The verdicts of a whole small audit: their columns, words and what they rest on."""

from dataclasses import replace
from pathlib import Path

import pytest
from tiny_audits import nll_of, tables_of, tiny_audit, verdicts

from engine.models.loading import LoadedModel
from engine.results.store import Store
from engine.results.tables import spec
from engine.studies.estimate_words import removal_budgets
from engine.studies.verdict.judged_selectors import BUDGETS, MORE


@pytest.mark.long
def test_verdicts_of_an_audit(
    tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(tmp_path) as store:
        audit = tiny_audit(
            tiny_llama,
            tiny_text,
            store,
            scoring={"selectors": ("random", "magnitude", "wanda", "ig")},
            stability_sizes=(3, 6),
        )
        table = verdicts(audit)["verdicts"]
        assert dict(table.schema) == spec("verdicts").schema((*MORE, *BUDGETS))
        shares = removal_budgets(tables_of("budget", audit)["budget"], "lerf")
        assert {name: share.share for name, share in shares.items()} == dict(table.select("selector", "budget").rows())
        assert table["selector"].to_list() == ["random", "magnitude", "wanda", "ig"]
        assert table["stability"].to_list()[:2] == ["not applicable"] * 2
        assert set(table["stability"].to_list()[2:]) <= {"stable", "not", "unknown"}
        assert table["calibration_draws"].to_list() == [None, None, 5, 5]
        assert table["specific"].to_list()[0] == "not applicable"
        assert set(table["specific"].to_list()[1:]) <= {"specific", "LeRF only", "MoRF only", "not"}
        assert set(table["dense_nll"]) == {nll_of(audit, []).nats_per_token}
        assert table["spearman"].is_null().to_list() == [True, True, False, False]

        audit.plan = replace(audit.plan, stability_sizes=(200,))
        alone = verdicts(audit)["verdicts"]
        assert alone["stability"].to_list()[2:] == ["unknown"] * 2
        assert "need at least 2 sets of 200 calibration windows" in alone["reasons"][3]
        assert alone["validity"].to_list() == table["validity"].to_list()
