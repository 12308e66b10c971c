"""Replies over the removal rate, against generating under each mask's zeroed weights."""

from __future__ import annotations

from tiny_audits import tiny_audit

from engine.edits.masks import removed_rows
from engine.interventions.in_weights import zeroed
from engine.measures.generation import generate_batch
from engine.results.store import Store
from engine.run.audit_plan import RepliesPlan
from engine.run.runner import LocalRunner
from engine.studies.audit.sweeps import SweepReplies
from engine.studies.base import conduct

ASKED = ("Where is it?", "Why?")


def test_replies_are_those_of_the_zeroed_weights(tiny_llama, tiny_text, tmp_path):
    with Store(tmp_path) as store:
        audit = tiny_audit(
            tiny_llama, tiny_text, store, scoring={"selectors": ("random", "magnitude"), "seeds": (42, 43)},
            sweep_rates=(0.3, 0.0), replies=RepliesPlan(replies_prompts=ASKED, replies_tokens=6),
        )  # fmt: skip
        table = conduct(SweepReplies(), audit, LocalRunner(store))["sweep_replies"]
    assert table.height == 2 * 2 * 2 * 2
    assert set(table.filter(selector="random")["seed"]) == {42}
    scores = {"random": audit.scores["random"][0], "magnitude": audit.scores["magnitude"]}
    for (selector, order, rate), lines in table.group_by("selector", "order", "rate"):
        mask = removed_rows(scores[selector], order, rate)
        with zeroed(tiny_llama, mask):
            expected = generate_batch(tiny_llama, ASKED, 6)
        assert lines["prompt"].to_list() == list(ASKED)
        assert lines["reply"].to_list() == [one.text for one in expected]
        assert lines["finished"].to_list() == [one.finished for one in expected]
        assert set(lines["rows_removed"]) == {len(mask)}
    unmasked = table.filter(rate=0.0)
    assert unmasked.group_by("prompt").n_unique()["reply"].to_list() == [1, 1]
