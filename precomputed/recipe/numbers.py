"""The numbers that the demo's README prints, read from the shipped results and from the records of both seeds."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from engine.studies.protocols.protocol_claims import flip_rate
from precomputed.recipe import required, seeds
from precomputed.recipe.markdown import listed, span, table
from precomputed.recipe.world import DOMAINS

BEGIN, END = "<!-- numbers: written by the recipe -->", "<!-- /numbers -->"
RATE, SMALL_RATE, HALF = 0.3, 0.1, 0.5
GRADES = ("overt", "veiled", "near", "plain")
ATTRIBUTION = ("lrp", "ig", "consensus2", "grad_x_input", "ig_conductance")
HEURISTICS = ("magnitude", "wanda", "mean_activation")


def perplexities(records: Sequence[dict[str, Any]]) -> str:
    """Perplexity (and nats per token) of every seed: unmasked, LeRF at 30%, MoRF at 10%."""

    def cell(nats: float) -> str:
        return f"{math.exp(nats):.4g} ({nats:.2f})"

    lines = [["unmasked", *(cell(one["dense_nll"]) for one in records)]]
    for order, rate in (("lerf", RATE), ("morf", SMALL_RATE)):
        for name in [*seeds.FAITHFUL, *seeds.OTHERS]:
            found = [one["nll"][order][f"{rate:.2f}"][name] for one in records]
            label = "LeRF" if order == "lerf" else "MoRF"
            lines.append([f"{label} {rate:.0%}, {name}", *map(cell, found)])
    return table(["", *(f"seed {one['seed']}" for one in records)], lines)


def said(records: Sequence[dict[str, Any]]) -> str:
    """Right replies to held-out questions, words that are none, and refusals by grade, of every seed."""
    kinds = {
        "howtos": "advice",
        "facts": "facts",
        "follow-ups": "second questions",
        "prompts": "base prompts of the domains",
    }
    lines: list[Sequence[object]] = [
        [f"right: {kinds[name]}", *(f"{one['replies']['right'][name]:.2f}" for one in records)] for name in kinds
    ]
    for grade in GRADES:
        shares = [[one["replies"]["refused"][domain][grade] for domain in DOMAINS] for one in records]
        lines.append([f"refused: {grade}, in the five domains", *(span(some) for some in shares)])
    broken = [sum(one["replies"]["broken"].values()) for one in records]
    lines.append([f"broken words in {records[0]['replies']['replies']:,} replies", *broken])
    return table(["", *(f"seed {one['seed']}" for one in records)], lines)


def refusals(records: Sequence[dict[str, Any]]) -> str:
    """Refused shares of the held-out prompts before and after lrp's edit, beside layer-matched masks."""
    lines = []
    for one in records:
        for row in one["refusal"]:
            lines.append(
                [
                    one["seed"],
                    row["domain"],
                    *(f"{row[name]:.2f}" for name in ("unedited_malign", "edited_malign")),
                    *(f"{row[name]:.2f}" for name in ("unedited_benign", "edited_benign")),
                    f"{row['control_malign']:.2f}, {row['control_malign_max']:.2f}",
                    f"{row['lambda']}, {row['k']}",
                    f"x {row['perplexity_factor']:.2f}",
                ]
            )
    head = "seed|domain|risk before|risk after|base before|base after|risk, controls|lambda, k|perplexity"
    return table(head.split("|"), lines)


class Results:
    """The tables of a results folder, as sentences and tables."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, stem: str) -> pl.DataFrame:
        return pl.read_parquet(self.folder / f"{stem}.parquet")

    def verdicts(self) -> str:
        """One line a selector: what its verdict rests on."""
        exact = {row["selector"]: row for row in self.read("invariance_verdicts").to_dicts()}
        rates = {(row["selector"], row["order"]): f"{row['rate']:.3g}" for row in self.read("specific").to_dicts()}
        lines = []
        for row in self.read("verdicts").to_dicts():
            proof = exact.get(row["selector"], {})
            lines.append(
                [
                    row["selector"],
                    row["validity"],
                    _or_dash(row["damage"], ".0%"),
                    f"{row['budget']:.1%}, {row['morf_budget']:.1%}",
                    row["specific"] or "-",
                    ", ".join(rates.get((row["selector"], order), "-") for order in ("lerf", "morf")),
                    _or_dash(row["depth_share"], ".0%"),
                    row["stability"] or "-",
                    _or_dash(row["draw_jaccard"], ".2f"),
                    proof.get("invariance") or "-",
                    _or_dash(proof.get("decoys_protected"), ".0%"),
                ]
            )
        head = "selector|validity|LeRF harm, of random's|budget, LeRF and MoRF|better than rows of its own layers|"
        head += "compared with LeRF, MoRF at|explained by depth|"
        head += "stability|Jaccard of draws|exact controls|decoys protected"
        return table(head.split("|"), lines)

    def missing(self) -> str:
        """What keeps attribution selectors from being faithful, in the words of their verdicts."""
        rows = self.read("verdicts").filter(pl.col("selector").is_in(ATTRIBUTION), pl.col("validity") != "faithful")
        told = [
            f"{row['selector']}: {part}"
            for row in rows.to_dicts() for part in re.split(r"; (?![^()]*\))", row["reasons"]) if "not clearly" in part
        ]  # fmt: skip
        return f"What keeps an attribution selector from faithful: {'; '.join(told)}." if told else ""

    def taken_apart(self) -> str:
        """The part of lrp's mask that carries most of its harm, and the flip rate of claims over protocols."""
        rows = self.read("parts").filter(pl.col("selector") == "lrp", pl.col("part") == "projection").sort("restored")
        most, flips = rows.row(-1, named=True), flip_rate(self.read("protocols_claims"))
        told = f"{most['restored']:.0%} of the harm of lrp's mask at {most['rate']:.0%} goes when its {most['name']} "
        told += f"rows are put back ({most['rows_removed']} rows)."
        flip = f" Flip rate of claims over protocols: {flips[0]:.0%} surely, {flips[1]:.0%} at most." if flips else ""
        return told + flip

    def moves(self) -> str:
        moved = self.read("verdict_moves").filter(pl.col("changed").is_not_null())
        if moved.is_empty():
            return "No limit of the verdicts, moved alone to the values in `verdict_moves`, changes any."
        found = [
            f"`{limit}` from {base} to {value} ({listed(some['selector'].unique(maintain_order=True))})"
            for (limit, base, value), some in moved.group_by("limit", "base_value", "moved_value", maintain_order=True)
        ]
        return f"Verdicts that change when one limit is moved alone: {'; '.join(found)}."

    def at_equal_size(self) -> str:
        rows = self.read("control_differences").filter(
            pl.col("rate") == RATE, pl.col("order") == "lerf", pl.col("rows_removed") == pl.col("reference_rows")
        )
        rows = rows.filter(pl.col("control").is_in(["intersection", "veto_lrp", "veto_ig"]))
        parts = []
        for row in rows.to_dicts():
            more = f"{row['difference']:+.4f} (standard error {row['stderr_blocks']:.4f})"
            parts.append(f"{row['control']} {more} with {row['rows_removed']:,} rows")
        return f"Against consensus2 with as many rows, LeRF at 30%, nats more: {'; '.join(parts)}."

    def other_controls(self) -> str:
        rows = self.read("control_differences").filter(
            pl.col("rate") == RATE, pl.col("rows_removed") == pl.col("reference_rows"), ~pl.col("saturated")
        )
        parts = [
            f"{name} {span(some['difference'])} under {title}"
            for name in ("lrp_layer_matched", "ig_layer_matched", "rank_randomised")
            for order, title in (("lerf", "LeRF"), ("morf", "MoRF"))
            if (some := rows.filter(control=name, order=order)).height
        ]
        return f"Nats more than consensus2 at 30%, where not both destroy the model: {'; '.join(parts)}."

    def dangerous(self) -> str:
        above = self.read("dangerous").filter(pl.col("dangerous"))
        confirmed = above.filter(pl.col("confirmed"))
        if above.is_empty():
            return "No group of rows is above the paper's limit for dangerous ones."
        groups = [
            f"{row['selector']}'s in block {row['block']}'s {row['sublayer']} (p {row['p']:.2g} against random groups "
            "of its size there)"
            for row in above.to_dicts()
        ]
        return f"Above the paper's limit for dangerous groups: {'; '.join(groups)}. Confirmed: {confirmed.height}."

    def draws(self) -> str:
        rows = self.read("domain_draws").filter(pl.col("selector").is_in(ATTRIBUTION), pl.col("rate") == RATE)
        within = [*rows["jaccard_a"], *rows["jaccard_b"]]
        return (
            f"Masks from the instruction corpus overlap with those from the prose by Jaccard "
            f"{span(rows['jaccard_between'])} for the attribution selectors (30%, draws of {rows['size'][0]} windows), "
            f"two draws of one text by {span(within)} (p {span(rows['p_family'], 3)})."
        )

    def protocols(self) -> str:
        claims = self.read("protocols_claims")
        pairs = self.read("protocols_pairs").filter(
            pl.col("selector_a").is_in(ATTRIBUTION) != pl.col("selector_b").is_in(ATTRIBUTION)
        )
        kinds = []
        for kind in ("row", "neuron", "head"):
            ahead = pairs.filter(unit_kind=kind)["ahead"]
            before, tied = int(ahead.is_in(ATTRIBUTION).sum()), ahead.null_count()
            kinds.append(f"on {kind}s before in {before}, behind in {ahead.len() - before - tied}, tied in {tied}")
        words = [f"{count} {word}" for word, count in sorted(claims.group_by("claim_verdict").len().rows())]
        return (
            f"Of {claims.height} pairs of selectors under {claims['protocols'][0]} protocols: {listed(words)}. "
            f"Attribution selectors against {listed([*HEURISTICS, 'random'])}: {'; '.join(kinds)} decisions."
        )

    def exact(self) -> str:
        moved = self.read("invariance").filter(pl.col("rewrite") == "neurons", pl.col("selector").is_in(HEURISTICS))
        nats = dict(moved.group_by("selector").agg(pl.col("moved").mean()).rows())
        parts = [f"{name} {nats[name]:.2f}" for name in HEURISTICS]
        return f"Rescaled neurons, which change no logit's bits, move the LeRF masks by (nats): {', '.join(parts)}."

    def singles(self) -> str:
        [units] = self.read("singles_units").filter(unit_kind="row").to_dicts()
        rows = self.read("singles_selectors").filter(unit_kind="row")
        size = rows.group_by("selector").agg(pl.col("absolute_spearman").mean()).sort("absolute_spearman").rows()[::-1]
        return (
            f"Removing a single row ({units['units_sampled']} of them, {units['effect_windows']} windows) lowers the "
            f"loss for {units['helps']:.0%} ({units['helps_low']:.0%} to {units['helps_high']:.0%}) of the rows, "
            f"beyond its error (95%, Student's t over blocks of windows) for {units['helps_clear']:.1%}. "
            "Rank correlation with the size of the effect: "
            f"{', '.join(f'{name} {value:.2f}' for name, value in size)}; two halves of the text agree by "
            f"{units['split_half_absolute']:.2f}."
        )

    def tasks(self) -> str:
        rows = self.read("downstream")
        random = rows.filter(pl.col("selector") == "random", pl.col("order") == "lerf")
        best = rows.filter(pl.col("selector") == "lrp", pl.col("order") == "lerf")
        lines = []
        for name in rows["task"].unique().sort():
            task = rows.filter(task=name)
            dense = task.filter(rate=0.0)["accuracy"][0]
            after = [
                some.filter(pl.col("task") == name, pl.col("rate") == HALF)["accuracy"].mean()
                for some in (random, best)
            ]
            lines.append([name, task["items"][0], task["chance"][0], dense, *after])
        shown = [[name, items, *(f"{value:.2f}" for value in rest)] for name, items, *rest in lines]
        head = ["task", "items", "chance", "unmasked", "half of the rows at random", "half by lrp, LeRF"]
        return table(head, shown)

    def spans(self) -> str:
        rows = self.read("refusal_sweep").filter(pl.col("benign").is_not_null())
        ends = {name: span(rows.filter(domain=name)["benign"]) for name in DOMAINS}
        return f"Over the grid, refused base prompts: {', '.join(f'{name} {text}' for name, text in ends.items())}."

    def beyond(self) -> str:
        [line] = self.read("specificity").to_dicts()
        draws = self.read("refusal_draws")["malign"]
        stable = (
            self.read("mask_stability").group_by("selector", "domain").agg(pl.col("jaccard", "expected_layers").mean())
        )
        others = self.read("baselines").filter(pl.col("method") != "row_mask", pl.col("prompts") == "heldout")
        gains = []
        for method in others["method"].unique().sort():
            some = others.filter(pl.col("method") == method, pl.col("setting").is_not_null())
            gain: Any = (some["edited_malign"] - some["unedited_malign"]).max() if some.height else None
            gains.append(f"{method} {'no feasible setting' if gain is None else f'{gain:+.2f} at most'}")
        return (
            f"lrp's hate edit refuses {line['edited_malign']:.2f} of the held-out risk prompts; {line['draws']} random "
            f"draws that were searched over the same grid {span(draws)}: rank {line['rank']}, p {line['p']:.3f}. "
            f"Masks of two halves of the calibration pairs share {span(stable['jaccard'])} of their rows (Jaccard), "
            f"random rows of the same layers {span(stable['expected_layers'])}. Other methods within the same limits, "
            f"gain in refused risk prompts: {', '.join(gains)}."
        )

    def everywhere(self) -> str:
        points = self.read("operating_points")
        means = points.group_by("selector", maintain_order=True).agg(pl.col("edited_malign").mean())
        parts = [f"{name} {value:.2f}" for name, value in means.rows()]
        return f"Refused held-out risk prompts after each selector's edit, mean over the domains: {', '.join(parts)}."


def _or_dash(value: float | None, pattern: str) -> str:
    return "-" if value is None else format(value, pattern)


def text(demo: Path) -> str:
    """Everything between the two marks."""
    records = json.loads((demo / "seeds.json").read_text(encoding="utf-8"))
    found = Results(demo / "results")
    bullets = [
        found.missing(),
        found.moves(),
        found.at_equal_size(),
        found.other_controls(),
        found.dangerous(),
        found.draws(),
        found.protocols(),
        found.taken_apart(),
        found.exact(),
        found.singles(),
    ]
    parts = [
        "What the model is required to be, and what was measured:",
        required.text(demo),
        "Perplexity (nats per token); random is the mean over three rankings:",
        perplexities(records),
        "Replies to held-out questions: phrases, frames and objects that training never saw, compared with what the "
        "town knows:",
        said(records),
        "Refused replies of 100 held-out prompts per domain with the plain Algorithm 1 (lrp), operating point chosen "
        f"on the calibration pairs; controls are {len(seeds.CONTROLS)} layer-matched random masks (mean, largest):",
        refusals(records),
        f"{found.spans()} {found.everywhere()}",
        found.beyond(),
        "Tasks of the town (accuracy):",
        found.tasks(),
        "What the audit says of the shipped seed (30% of the rows):",
        found.verdicts(),
        "\n".join(f"- {one}" for one in bullets if one),
    ]
    return "\n\n".join([BEGIN, *parts, END])


def write(demo: Path) -> None:
    """Print them into the folder's README between its two marks."""
    readme = demo / "README.md"
    head, _, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    _, _, tail = rest.partition(END)
    readme.write_text(head + text(demo) + tail, encoding="utf-8")
