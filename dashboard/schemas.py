"""The tables of a results folder: the columns that pages need, and the command that makes each."""

from __future__ import annotations

SWEEP, ROWS, SCORES = "sweep", "rows", "scores"
POINTS, REFUSAL_SWEEP = "operating_points", "refusal_sweep"
JUDGED = "judge.json"  # in a folder of judged replies, whose verdicts.parquet is not the audit's

# File stem -> columns without which the table is not what its name says (contract, section 8).
COLUMNS: dict[str, tuple[str, ...]] = {
    stem: tuple(names.split())
    for stem, names in {
        ROWS: "row_id block sublayer projection row",
        SWEEP: "model selector seed order rate rows_removed nll nll_stderr tokens",
        "stability": "model selector size reference_size rate spearman jaccard nll",
        "jaccard": "model sublayer rate selector_a selector_b jaccard expected_random",
        "spearman": "model selector_a selector_b spearman",
        "depth": "model selector block sublayer projection mean_score relative_score",
        "mask_depth": "model selector rate block sublayer projection removed rows",
        "controls": "model control order rate seed rows_removed nll size_matched_to",
        "control_differences": "model control order rate seed rows_removed reference reference_rows difference "
        "stderr z",
        "rank_distribution": "model rate both only_one neither",
        "dangerous": "model selector rate block sublayer rows nll dangerous",
        "dangerous_summary": "model selector rate groups dangerous_groups rows masked_rows share",
        "domain": "model selector corpus_a corpus_b rate spearman jaccard nll_a nll_b",
        "gap": "model selector seed rate nll_lerf nll_morf log_gap stderr",
        "seeds": "model selector order rate seeds nll_mean nll_sd nll_min nll_max",
        "differences": "model kind selector_a order_a seed_a selector_b order_b seed_b rate difference stderr z",
        "verdicts": "model selector validity stability stable_but_invalid log_gap lerf_nll random_lerf_nll "
        "spearman jaccard reasons",
        "downstream": "model selector seed order rate rows_removed task items accuracy stderr chance",
        POINTS: "model selector domain lambda k rows_removed rescue",
        REFUSAL_SWEEP: "model selector domain lambda k rows_removed malign malign_n benign benign_n nll feasible",
        "refusal_controls": "model selector domain lambda k control seed malign malign_n benign benign_n nll",
        "transfer": "model selector domain lambda k prompts kind n before before_low before_high after after_low "
        "after_high",
        "utility": "model selector domain lambda k task metric items before after difference stderr",
        "refusal_replies": "model selector domain lambda k prompts kind prompt reply refused judge",
        "composed": "model selector mask_domain evaluated_domain lambda k rows_removed malign malign_low malign_high "
        "malign_n benign benign_low benign_high benign_n nll rescue",
        "signal_density": "model selector domain density",
        "refusal_jaccard": "model comparison ranked_by selector_a domain_a selector_b domain_b top jaccard "
        "expected_random",
        "refusal_shares": "model selector domain ranked_by part name share base_rate",
    }.items()
}
RESULTS = frozenset(COLUMNS) - {ROWS}  # a folder with one of these is offered as a run
_REFUSAL = {  # table -> stage of `selector-audit refusal`
    POINTS: "select",
    REFUSAL_SWEEP: "sweep",
    "refusal_controls": "control",
    "transfer": "evaluate",
    "refusal_replies": "evaluate",
    "utility": "evaluate",
    "composed": "compose",
    "signal_density": "structure",
    "refusal_jaccard": "structure",
    "refusal_shares": "structure",
}
_ANALYSIS_OF = {  # where it is not called like its table
    "jaccard": "agreement",
    "spearman": "agreement",
    "mask_depth": "depth",
    "control_differences": "controls",
    "rank_distribution": "rank-distribution",
    "dangerous_summary": "dangerous",
    "verdicts": "verdict",
}


def command(stem: str, model: str = "MODEL") -> str:
    """What to type to make a table."""
    if stem == SWEEP:
        return f"selector-audit sweep {model}"
    if stem in (ROWS, SCORES):
        return f"selector-audit score {model}"
    if stem in _REFUSAL:
        return f"selector-audit refusal {_REFUSAL[stem]} {model}"
    return f"selector-audit analyze {model} {_ANALYSIS_OF.get(stem, stem)}"
