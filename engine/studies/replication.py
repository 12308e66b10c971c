"""Several results folders, one per model: is the order of the selectors the same on all of them?"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from engine.records.errors import InputError
from engine.records.manifest import read_manifest
from engine.records.model_names import model_name
from engine.results.folders import read_table
from engine.stats.removal_order import ORDERS
from engine.stats.uncertainty import holm

KENDALL, FRIEDMAN = "kendall", "friedman"  # tests of the orders


class Concordance(NamedTuple):
    """How far the orders agree.
    test: Kendall's tau of two orders (value -1 to 1; p one-sided, exact without ties), or Friedman's of more (value:
    Kendall's W, 0 to 1, 1 is one order throughout; p of the chi-square approximation)."""

    test: str
    value: float
    p: float


class Pair(NamedTuple):
    """Two selectors, by place, over all models. before: models in which the first has the lower value; ties count for
    neither. p: exact two-sided sign test over the models without a tie; p_holm: adjusted over all pairs."""

    first: int
    second: int
    before: int
    after: int
    p: float
    p_holm: float


def concordance(values: npt.NDArray[np.float64]) -> Concordance | None:
    """Does the order of the columns agree between the rows? None where too few can be told apart for any test.

    values [models, selectors], finite. Two models: Kendall's tau. More: W = chi2 / (models (selectors - 1)), with
    Friedman's chi2, which needs three selectors. If on every model any order is as likely as any other, p <= a in a of
    cases (exactly for tau without ties, nearly and rather less often for few models by Friedman's). Models are taken as
    independent, which models of one family, or of one training text, are not wholly."""
    models, selectors = _checked(values).shape
    ordered = np.ptp(values, axis=1) > 0  # a model on which all are equal has no order
    if selectors < 3 or not (ordered.all() if models == 2 else ordered.any()):
        return None
    from scipy import stats  # here, since readers of tables do not need it

    if models == 2:
        outcome = stats.kendalltau(values[0], values[1], alternative="greater")
        test, value, p = KENDALL, float(outcome.statistic), float(outcome.pvalue)
    else:
        outcome = stats.friedmanchisquare(*values.T)
        test, value, p = FRIEDMAN, float(outcome.statistic) / (models * (selectors - 1)), float(outcome.pvalue)
    return Concordance(test, value, p)


def sign_tests(values: npt.NDArray[np.float64]) -> list[Pair]:
    """Every pair of columns: in how many rows is the first lower? Exact sign test (binomial), Holm over all pairs.
    With n models p is never below 2^(1 - n): fewer than six show nothing at .05, whatever they say."""
    from scipy.stats import binomtest

    lines = []
    for first, second in combinations(range(_checked(values).shape[1]), 2):
        before = int((values[:, first] < values[:, second]).sum())
        after = int((values[:, first] > values[:, second]).sum())
        p = float(binomtest(before, before + after, 0.5).pvalue) if before + after else 1.0
        lines.append((first, second, before, after, p))
    adjusted = holm([one[-1] for one in lines])
    return [Pair(*one, whole) for one, whole in zip(lines, adjusted, strict=True)]


def least_p(models: int) -> float:
    """The smallest p that a two-sided sign test over so many models can have."""
    return min(1.0, 2.0 ** (1 - models))


def _checked(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    if values.ndim != 2 or min(values.shape) < 2 or not np.isfinite(values).all():
        raise InputError(
            f"replication needs finite numbers of at least 2 models and 2 selectors, got shape {list(values.shape)}"
        )
    return values


@dataclass(frozen=True)
class Replication:
    """How the orders of selectors on several models go together, at one rate.

    models: their names. selectors: what all of them have. values: model, selector, order, nll (mean over seeds).
    orders: order, models, selectors, test, value, p (`concordance`; the last three null without a test).
    pairs: order, selector_a, selector_b, before, after, p, p_holm (`sign_tests`): before counts the models on which
        selector_a does better, by the lower NLL under LeRF and the higher one under MoRF.
    sentences: what each order says. notes: what a reader has to know."""

    models: tuple[str, ...]
    selectors: tuple[str, ...]
    rate: float
    values: pl.DataFrame
    orders: pl.DataFrame
    pairs: pl.DataFrame
    sentences: tuple[str, ...]
    notes: tuple[str, ...]


def replication(folders: Sequence[Path], rate: float) -> Replication:
    """The selectors of several runs in their order on each. A model that broke (a loss that is not finite) under a
    selector leaves that selector out of that order.

    Errors: InputError for fewer than two folders, one folder twice, and where they share no two selectors at the rate.
    """
    if len({folder.resolve() for folder in folders}) < max(2, len(folders)):
        raise InputError(f"replication compares at least 2 different results folders, got {len(folders)}")
    manifests = [read_manifest(folder) for folder in folders]
    names = [model_name(manifest.get("model") or {}) for manifest in manifests]
    models = [
        name if names.count(name) == 1 else f"{name} ({folder})" for name, folder in zip(names, folders, strict=True)
    ]
    tables = [
        _at(folder, rate).with_columns(model=pl.lit(model)) for folder, model in zip(folders, models, strict=True)
    ]
    values = pl.concat(tables).select("model", "selector", "order", "nll")
    orders, pairs, sentences, every = [], [], [], set[str]()
    for order in ORDERS:
        wide = values.filter(pl.col("nll").is_finite(), order=order).pivot("model", index="selector", values="nll")
        wide = wide.drop_nulls().sort("selector")
        if wide.height < 2 or wide.width < len(models) + 1:
            continue
        selectors = wide["selector"].to_list()
        numbers = wide.select(models).to_numpy().T * (1 if order == "lerf" else -1)
        every |= set(selectors)
        found, tested = concordance(numbers), sign_tests(numbers)
        orders.append((order, len(models), len(selectors), *(found or (None, None, None))))
        pairs += [(order, selectors[one.first], selectors[one.second], *one[2:]) for one in tested]
        sentences.append(
            f"{'LeRF' if order == 'lerf' else 'MoRF'} at {rate:.0%}: {_order_sentence(found, len(models), tested)}"
        )
    if not orders:
        raise InputError(
            f"the folders of {', '.join(models)} share no two selectors with finite losses at rate {rate:g}; sweep "
            "them with the same --selectors and --rates"
        )
    tests = (pl.DataFrame(orders, _ORDERS, orient="row"), pl.DataFrame(pairs, _PAIRS, orient="row"))
    about = (tuple(models), tuple(sorted(every)), rate)
    return Replication(*about, values, *tests, tuple(sentences), _notes(manifests, models))


_ORDERS = {
    "order": pl.String, "models": pl.Int64, "selectors": pl.Int64, "test": pl.String, "value": pl.Float64,
    "p": pl.Float64,
}  # fmt: skip
_PAIRS = {
    "order": pl.String, "selector_a": pl.String, "selector_b": pl.String, "before": pl.Int64, "after": pl.Int64,
    "p": pl.Float64, "p_holm": pl.Float64,
}  # fmt: skip


def _at(folder: Path, rate: float) -> pl.DataFrame:
    """selector, order, nll of the sweep at the rate, zeroed rows only, mean over seeds."""
    table = read_table(folder, "sweep").filter((pl.col("rate") - rate).abs() < 1e-6)
    if "intervention" in table.columns:
        table = table.filter(pl.col("intervention").fill_null("zero") == "zero")
    if table.is_empty():
        raise InputError(f"the sweep of {folder} has no rate {rate:g}; give one that all have with --rate")
    return table.group_by("selector", "order", maintain_order=True).agg(pl.col("nll").mean())


def _notes(manifests: Sequence[dict[str, Any]], models: Sequence[str]) -> tuple[str, ...]:
    notes = ["Models count as independent; those of one family, or trained on one text, are not wholly."]
    weights: dict[str, list[str]] = {}
    for manifest, model in zip(manifests, models, strict=True):
        if found := (manifest.get("model") or {}).get("weights_hash"):
            weights.setdefault(str(found), []).append(model)
    notes += [
        f"{', '.join(same)} have the same weights: their agreement is no replication on another model."
        for same in weights.values()
        if len(same) > 1
    ]
    return tuple(notes)


def _order_sentence(order: Concordance | None, models: int, pairs: Sequence[Pair], level: float = 0.05) -> str:
    """What the tests of one order say."""
    agreement = "Fewer than three selectors can be told apart on all models, so their order has no test of its own"
    if order is not None:
        statistic = "Kendall's tau" if order.test == KENDALL else "Kendall's W"
        answer = "the order replicates beyond chance" if order.p <= level else "no more agreement than chance is shown"
        agreement = f"{statistic} {order.value:.2f} over {models} models, p {order.p:.2g}: {answer}"
    same = sum(pair.before == models or pair.after == models for pair in pairs)
    significant = sum(pair.p_holm <= level for pair in pairs)
    too_few = ""
    if least_p(models) * len(pairs) > level:
        too_few = f" (with {models} models and {len(pairs)} pairs none can: p is at least {least_p(models):.2g})"
    return (
        f"{agreement}. {same} of {len(pairs)} pairs of selectors stand the same way on all models; {significant} of "
        f"them by sign test after Holm's correction{too_few}."
    )
