"""Refusal tables made up for tests: a small grid with known numbers, its operating points, controls and structure."""

import math
from pathlib import Path

import polars as pl
from synthetic import MODEL, add_table, write_run

from engine.results.tables import frame

LAMBDAS, KS, N = (0.2, 0.5), (0.01, 0.02, 0.05), 50
DOMAINS = ("hate", "crime")
UNEDITED = (0.1, 0.02)
DENSE_NLL, MAX_NLL = 2.0, 2.3
BENIGN_LIMIT = 0.10


def rates(selector: str, lam: float, k: float) -> tuple[float, float, float]:
    """malign, benign and NLL of a cell: more rows refuse more and cost more, a larger lambda costs less."""
    strength = {"lrp": 1.0, "ig": 0.8, "random": 0.1}[selector]
    malign = round(min(1.0, 0.1 + strength * (12 * k + 0.2 * (1 - lam))), 2)
    benign = round(0.02 + strength * 3 * k, 2)
    return malign, benign, DENSE_NLL + 8 * k * (1 - lam)


def sweep(model: str = MODEL["id"]) -> pl.DataFrame:
    """Every cell and the unedited rows; above `MAX_NLL` the rates are null."""
    rows = []
    for selector in ("lrp", "ig", "random"):
        for domain in DOMAINS:
            rows.append((model, selector, domain, 0.0, 0.0, 0, UNEDITED[0], N, UNEDITED[1], N, DENSE_NLL, True))
            for k in KS:
                for lam in (0.0,) if selector == "random" else LAMBDAS:
                    malign, benign, nll = rates(selector, lam, k)
                    written = nll <= MAX_NLL
                    rows.append(
                        (
                            model, selector, domain, lam, k, round(1000 * k), malign if written else None, N,
                            benign if written else None, N, nll, written and benign <= BENIGN_LIMIT,
                        )
                    )  # fmt: skip
    names = "model selector domain lambda k rows_removed malign malign_n benign benign_n nll feasible"
    return pl.DataFrame(rows, schema=names.split(), orient="row").with_columns(perplexity=pl.col("nll").exp())


def points(model: str = MODEL["id"]) -> pl.DataFrame:
    """lrp at (0.5, 0.02) with a control, ig at (0.5, 0.05) rescued, random without a cell."""
    rows = []
    for domain in DOMAINS:
        rows.append((model, "lrp", domain, 0.5, 0.02, 20, False, 0.10, 40, True, 0.12, 0.60, 0.05, 0.06, 0.15, 0.45))
        rows.append((model, "ig", domain, 0.5, 0.05, 50, True, 0.15, 40, True, 0.12, 0.70, 0.05, 0.14, None, None))
        rows.append((model, "random", domain, None, None, None, False, *[None] * 9))
    names = [
        "model", "selector", "domain", "lambda", "k", "rows_removed", "rescue", "benign_cap", "pairs", "heldout",
        "unedited_malign", "edited_malign", "unedited_benign", "edited_benign", "control_malign", "gain",
    ]  # fmt: skip
    frame = pl.DataFrame(rows, schema=names, orient="row", infer_schema_length=None)
    widths = {f"{name}_{end}": pl.col(name) + shift for name in names if name.split("_")[0] in ("unedited", "edited")
              for end, shift in (("low", -0.05), ("high", 0.05))}  # fmt: skip
    return frame.with_columns(
        **widths, control_malign_max=pl.col("control_malign") + 0.05, gain_low=pl.col("gain") - 0.2,
        gain_high=pl.col("gain") + 0.2, unedited_nll=pl.lit(DENSE_NLL), edited_nll=pl.lit(DENSE_NLL + 0.1),
    )  # fmt: skip


def controls(model: str = MODEL["id"]) -> pl.DataFrame:
    """Three seeds of both controls of lrp."""
    rows = [
        (model, "lrp", domain, 0.5, 0.02, 20, kind, seed, 0.1 + 0.05 * place, 40, 0.05, 40, 2.1, math.exp(2.1))
        for domain in DOMAINS
        for kind in ("layer_matched", "global_random")
        for place, seed in enumerate((42, 43, 44))
    ]
    names = "model selector domain lambda k rows_removed control seed malign malign_n benign benign_n nll perplexity"
    return pl.DataFrame(rows, schema=names.split(), orient="row")


def specificity(model: str = MODEL["id"]) -> dict[str, pl.DataFrame]:
    """lrp among four draws, one of which found no point; the table and its draws by stem."""
    draws, lines = [], []
    for domain in DOMAINS:
        for seed, malign in enumerate((0.1, 0.2, 0.3, 0.12)):
            cell = (None, None, None) if seed == 3 else (0.5, 0.02, 20)
            rates_ = (malign, 40, 0.05, 40, 2.1, math.exp(2.1), 0, 0)
            draws.append((model, "lrp", domain, seed, *cell, False, malign, 0.05, *rates_))
        low, high, mean = 0.0, 0.5, 0.18
        place = (model, "lrp", domain, 0.5, 0.02, 20, 40, True, 0.12, 0.6, 4, 1, mean, low, high)
        lines.append((*place, 0.6 - mean, 0.1, 0.6, 1, 0.2, 0.4, 2))
    drawn = (
        "model selector domain seed lambda k rows_removed rescue calibration_malign calibration_benign malign malign_n "
        "benign benign_n nll perplexity malign_unfinished benign_unfinished"
    )
    line = (
        "model selector domain lambda k rows_removed pairs heldout unedited_malign edited_malign draws "
        "draws_without_point draws_malign draws_low draws_high excess excess_low excess_high rank p p_holm tests"
    )
    return {
        "refusal_draws": pl.DataFrame(draws, schema=drawn.split(), orient="row", infer_schema_length=None),
        "specificity": pl.DataFrame(lines, schema=line.split(), orient="row"),
    }


def mask_stability(model: str = MODEL["id"]) -> pl.DataFrame:
    """Two splits of lrp's pairs on hate."""
    names = (
        "model selector domain lambda k rows_removed seed pairs jaccard jaccard_full expected_random expected_layers"
    )
    rows = [(model, "lrp", "hate", 0.5, 0.02, 20, seed, 25, 0.4 + seed / 5, 0.7, 0.01, 0.1) for seed in (0, 1)]
    return pl.DataFrame(rows, schema=names.split(), orient="row")


def refusal_parts(model: str = MODEL["id"]) -> pl.DataFrame:
    """lrp's edit on hate in two projections and two blocks; q_proj carries .8 of what it adds to the margin."""
    columns = (
        "model selector domain lambda k part name rows_removed margin_alone margin_without margin margin_dense "
        "margin_lost nll_alone nll_without nll dense_nll"
    )
    shares = {("projection", "q_proj"): 0.8, ("projection", "up_proj"): 0.3, ("block", "0"): 0.6, ("block", "1"): 0.4}
    rows = [
        (model, "lrp", "hate", 0.5, 0.02, *part, 10, -1.0, 1.0 - 2 * lost, 1.0, -1.0, lost, 2.1, 2.2, 2.3, 2.0)
        for part, lost in shares.items()
    ]
    return pl.DataFrame(rows, schema=columns.split(), orient="row")


def changes(model: str = MODEL["id"]) -> pl.DataFrame:
    """`transfer` with the columns of prompts that changed, and corrected rates."""
    low_high = {f"{side}_corrected{end}": pl.col(side) + shift for side in ("before", "after")
                for end, shift in (("", -0.05), ("_low", -0.1), ("_high", 0.05))}  # fmt: skip
    return transfer(model).with_columns(
        newly_refused=pl.lit(20, pl.Int64), no_longer_refused=pl.lit(2, pl.Int64), mcnemar_p=pl.lit(0.0001),
        change=pl.lit(0.6), change_low=pl.lit(0.4), change_high=pl.lit(0.7), **low_high,
    )  # fmt: skip


def transfer(model: str = MODEL["id"], name: str = "other") -> pl.DataFrame:
    """One further set, and the held-out prompts that the points have too."""
    rows = [
        (model, "lrp", domain, 0.5, 0.02, prompts, "malign", 30, 0.2, 0.1, 0.3, 0.8, 0.7, 0.9)
        for domain in DOMAINS
        for prompts in (name, "heldout")
    ]
    names = "model selector domain lambda k prompts kind n before before_low before_high after after_low after_high"
    return pl.DataFrame(rows, schema=names.split(), orient="row")


def utility(model: str = MODEL["id"]) -> pl.DataFrame:
    """One task for lrp on hate."""
    names = "model selector domain lambda k task metric items before after difference stderr"
    row = (model, "lrp", "hate", 0.5, 0.02, "a_task", "accuracy", 20, 0.6, 0.55, -0.05, 0.02)
    return pl.DataFrame([row], schema=names.split(), orient="row")


def structure(model: str = MODEL["id"]) -> dict[str, pl.DataFrame]:
    """The three tables of the structure, by stem."""
    density = [(model, s, d, value) for s, value in (("lrp", 0.04), ("ig", 0.06)) for d in DOMAINS]
    pairs = [
        (model, "selectors", by, "lrp", d, "ig", d, 0.01, 0.05, 0.005) for by in ("c_comply", "abs_c_comply")
        for d in DOMAINS
    ] + [
        (model, "domains", by, s, "hate", s, "crime", 0.01, value, 0.005)
        for by, value in (("c_comply", 0.4), ("abs_c_comply", 0.3)) for s in ("lrp", "ig")
    ]  # fmt: skip
    shares = [
        (model, s, d, by, part, name, 1 / len(names), 0.5 if part == "projection" else 1 / 3)
        for s in ("lrp", "ig") for d in DOMAINS for by in ("c_comply", "abs_c_comply")
        for part, names in (("projection", ("q_proj", "up_proj")), ("third", ("early", "mid", "late")))
        for name in names
    ]  # fmt: skip
    overlap = "model comparison ranked_by selector_a domain_a selector_b domain_b top jaccard expected_random"
    part = "model selector domain ranked_by part name share base_rate"
    return {
        "signal_density": pl.DataFrame(density, schema=["model", "selector", "domain", "density"], orient="row"),
        "refusal_jaccard": pl.DataFrame(pairs, schema=overlap.split(), orient="row"),
        "refusal_shares": pl.DataFrame(shares, schema=part.split(), orient="row"),
    }


def composed(model: str = MODEL["id"]) -> pl.DataFrame:
    """A mask of both domains, the masks of each, and the unedited model, on the prompts of each."""
    rows = []
    for mask, malign in (("none", 0.1), ("hate+crime", 0.7), ("hate", 0.6), ("crime", 0.5)):
        for domain in DOMAINS:
            edge = 0.0 if mask == "none" else 0.5
            cell = (edge, edge / 10, 0 if mask == "none" else 50)
            rates_ = (malign, malign - 0.1, malign + 0.1, 40, 0.05, 0.01, 0.1, 40)
            rows.append((model, "lrp", mask, domain, *cell, *rates_, 2.1, math.exp(2.1), False))
    names = (
        "model selector mask_domain evaluated_domain lambda k rows_removed malign malign_low malign_high malign_n "
        "benign benign_low benign_high benign_n nll perplexity rescue"
    )
    return pl.DataFrame(rows, schema=names.split(), orient="row")


def baselines(model: str = MODEL["id"]) -> pl.DataFrame:
    """A row mask, a system prompt and a vector for each domain; the conditional vector has no setting."""
    rows = []
    for domain in DOMAINS:
        ways = (
            ("row_mask", "lrp", "lambda 0.5, k 0.02", 0.6, 0.05, 0.07),
            ("system_prompt", "wording", "strict", 0.3, 0.02, 0.17),
            ("activation_addition", "difference", "block 1, coefficient 0.5", 0.4, 0.06, 0.2),
            ("conditional_addition", "openings", None, None, None, None),
        )
        for method, vector, setting, malign, benign, kl in ways:
            way = {"model": model, "method": method, "vector": vector, "domain": domain, "prompts": "heldout"}
            row = {**way, "setting": setting, "strength": 0.5 if setting else None, "pairs": 40}
            names = ("unedited_malign", "unedited_benign", "edited_malign", "edited_benign")
            for name, rate in zip(names, (*UNEDITED, malign, benign), strict=True):
                known = rate is not None
                row |= {name: rate, f"{name}_low": rate - 0.01 if known else None}
                row |= {f"{name}_high": rate + 0.1 if known else None}
            nll = DENSE_NLL + 0.1 if setting else None
            row |= {"unedited_nll": DENSE_NLL, "edited_nll": nll, "perplexity": math.exp(nll) if nll else None}
            row |= {"kl": kl, "kl_stderr": 0.01 if kl else None, "feasible": bool(setting), "chosen": bool(setting)}
            row |= dict.fromkeys(("malign_unfinished", "benign_unfinished"), 1 if setting else None)
            rows.append(row)
            if setting:
                rows.append(row | {"prompts": "calibration", "kl": None, "kl_stderr": None})
                weaker = {"setting": f"{setting}, weaker", "strength": 0.1, "chosen": False}
                rows.append(row | {"prompts": "calibration", "kl": None, "kl_stderr": None} | weaker)
    return frame("baselines", rows)


def write_refusal_run(folder: Path) -> Path:
    """A results folder with a sweep and all refusal tables."""
    write_run(folder)
    tables = {
        "refusal_sweep": sweep(), "operating_points": points(), "refusal_controls": controls(),
        "transfer": transfer(), "utility": utility(), "composed": composed(), "baselines": baselines(),
        **structure(),
    }  # fmt: skip
    for stem, table in tables.items():
        add_table(folder, stem, table)
    return folder
