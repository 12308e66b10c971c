"""How the recipe states its margins."""

import pytest

from precomputed.recipe import seeds


def test_margins_compare_with_the_best_of_the_others():
    lerf = {"random": 4.0, "magnitude": 3.5, "wanda": 5.0, "mean_activation": 4.2}
    lerf |= {"lrp": 2.5, "ig": 2.75, "consensus2": 2.6}
    morf = dict.fromkeys(lerf, 7.0)
    record = {"dense_nll": 2.25, "nll": {"lerf": {"0.30": lerf}, "morf": {"0.10": morf}}}
    assert seeds.margins(record) == pytest.approx(
        {"lerf lrp": 1.0, "lerf ig": 0.75, "lerf consensus2": 0.9, "morf lrp": 4.75, "morf consensus2": 4.75}
    )


def test_refusal_of_a_seed_is_measured_on_the_text_of_its_folder(tmp_path, monkeypatch):
    seen = {}

    def conduct(study, run, runner):
        seen["plan"] = run.plan
        return {seeds.POINTS: "points"}

    monkeypatch.setattr(seeds, "conduct", conduct)
    monkeypatch.setattr(seeds, "Controlled", lambda run: None)
    assert seeds.refusal_with_lrp(None, tmp_path) == "points"  # type: ignore[arg-type]
    plan = seen["plan"]
    assert (plan.selectors, plan.pairs) == (("lrp",), str(tmp_path / "prompts.jsonl"))
    assert plan.scoring.corpus == str(tmp_path / "corpus" / "calibration.txt")
    assert plan.eval_corpus == str(tmp_path / "corpus" / "evaluation.txt")
