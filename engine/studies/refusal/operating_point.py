"""From a swept grid to the cell that is used: the operating point, its rescue, and what stands around it."""

from dataclasses import dataclass

import polars as pl

from engine.records.errors import InputError

RESCUE_CAPS = (0.05, 0.10, 0.15, 0.20, 0.25)
RESCUE_FACTOR = 5.0  # times the unedited model's malign refusal: what the paper calls non-trivial


@dataclass(frozen=True)
class Neighbour:
    """A cell one step away in the grid. malign and benign: None where it was not generated."""

    lam: float
    k: float
    malign: float | None
    benign: float | None
    perplexity: float


@dataclass(frozen=True)
class OperatingPoint:
    """The chosen cell of one selector and domain, with the rates it was chosen by.
    benign_cap: the limit it meets; rescue: is that a relaxed one? neighbours: up to four cells that differ by one
    step of lambda or of k, so that an isolated spike is visible."""

    selector: str
    domain: str
    lam: float
    k: float
    rows_removed: int
    malign: float
    benign: float
    nll: float
    unedited_malign: float
    unedited_benign: float
    benign_cap: float
    rescue: bool
    neighbours: tuple[Neighbour, ...]

    @property
    def neighbour_malign(self) -> float | None:
        """Mean malign refusal of the neighbours that were generated, None if there are none."""
        rates = [one.malign for one in self.neighbours if one.malign is not None]
        return sum(rates) / len(rates) if rates else None


def operating_point(
    cells: pl.DataFrame, *, benign_limit: float = 0.10, max_perplexity: float = 100.0
) -> OperatingPoint | None:
    """The cell with the largest malign refusal among those with benign <= limit and perplexity <= cap; None if none.

    Ties go to the smaller mask, then to the lower NLL, then to the smaller lambda. A cell with less malign refusal
    than the unedited model is never chosen: it installs nothing.
    Rescue (the paper, appendix E), if no cell is within the limits: of the benign caps 0.05, 0.10, ..., 0.25 the
    smallest that holds a cell of sufficient perplexity whose malign refusal exceeds 5 times the unedited model's;
    of such cells the one with the largest malign refusal, and `rescue` is set.

    cells: the rows of `refusal_sweep` of one selector and domain, the unedited model's (k = 0) among them."""
    unedited = cells.filter(pl.col("k") == 0)
    if unedited.height != 1 or cells.n_unique(["model", "selector", "domain"]) != 1:
        raise InputError(
            f"an operating point needs the cells of one selector and domain with one unedited row (k = 0), got "
            f"{unedited.height} such rows among {cells.height}; run `refusal sweep` again"
        )
    before = unedited.row(0, named=True)
    usable = cells.filter(
        pl.col("k") > 0,
        pl.col("malign").is_not_null(),
        pl.col("perplexity") <= max_perplexity,
        pl.col("malign") >= before["malign"],
    ).sort(["malign", "rows_removed", "nll", "lambda"], descending=[True, False, False, False], maintain_order=True)
    chosen, cap, rescue = usable.filter(pl.col("benign") <= benign_limit), benign_limit, False
    if not chosen.height:
        clear = usable.filter(pl.col("malign") > RESCUE_FACTOR * before["malign"])
        for cap in RESCUE_CAPS:
            chosen, rescue = clear.filter(pl.col("benign") <= cap), True
            if chosen.height:
                break
        else:
            return None
    best = chosen.row(0, named=True)
    chosen_by = {name: best[name] for name in ("selector", "domain", "k", "rows_removed", "malign", "benign", "nll")}
    beside = {f"unedited_{side}": before[side] for side in ("malign", "benign")}
    around = _neighbours(cells, best["lambda"], best["k"])
    return OperatingPoint(**chosen_by, **beside, lam=best["lambda"], benign_cap=cap, rescue=rescue, neighbours=around)


def operating_points(
    sweep: pl.DataFrame, *, benign_limit: float = 0.10, max_perplexity: float = 100.0
) -> dict[tuple[str, str], OperatingPoint | None]:
    """(selector, domain) -> its operating point, in the order of the sweep."""
    return {
        (str(selector), str(domain)): operating_point(part, benign_limit=benign_limit, max_perplexity=max_perplexity)
        for (selector, domain), part in sweep.group_by("selector", "domain", maintain_order=True)
    }


def _neighbours(cells: pl.DataFrame, lam: float, k: float) -> tuple[Neighbour, ...]:
    measured = cells.filter(pl.col("k") > 0)
    lambdas, ks = (sorted(set(measured[name])) for name in ("lambda", "k"))
    row, column = lambdas.index(lam), ks.index(k)
    around = [
        (lambdas[i], ks[j])
        for i, j in ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1))
        if 0 <= i < len(lambdas) and 0 <= j < len(ks)
    ]
    found = []
    for place in around:
        cell = measured.filter(pl.col("lambda") == place[0], pl.col("k") == place[1])
        if cell.height == 1:
            one = cell.row(0, named=True)
            found.append(Neighbour(*place, one["malign"], one["benign"], one["perplexity"]))
    return tuple(found)
