"""Does an order of selectors found on one model come again on others? From one number per selector and model."""

from itertools import combinations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.records.errors import InputError
from engine.stats.holm import holm

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
        found = stats.kendalltau(values[0], values[1], alternative="greater")
        test, value, p = KENDALL, float(found.statistic), float(found.pvalue)
    else:
        found = stats.friedmanchisquare(*values.T)
        test, value, p = FRIEDMAN, float(found.statistic) / (models * (selectors - 1)), float(found.pvalue)
    return Concordance(test, value, p)


def sign_tests(values: npt.NDArray[np.float64]) -> list[Pair]:
    """Every pair of columns: in how many rows is the first lower? Exact sign test (binomial), Holm over all pairs.
    With n models p is never below 2^(1 - n): fewer than six show nothing at .05, whatever they say."""
    from scipy.stats import binomtest

    found = []
    for first, second in combinations(range(_checked(values).shape[1]), 2):
        before = int((values[:, first] < values[:, second]).sum())
        after = int((values[:, first] > values[:, second]).sum())
        p = float(binomtest(before, before + after, 0.5).pvalue) if before + after else 1.0
        found.append((first, second, before, after, p))
    adjusted = holm([one[-1] for one in found])
    return [Pair(*one, whole) for one, whole in zip(found, adjusted, strict=True)]


def least_p(models: int) -> float:
    """The smallest p that a two-sided sign test over so many models can have."""
    return min(1.0, 2.0 ** (1 - models))


def _checked(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    if values.ndim != 2 or min(values.shape) < 2 or not np.isfinite(values).all():
        raise InputError(
            f"replication needs finite numbers of at least 2 models and 2 selectors, got shape {list(values.shape)}"
        )
    return values
