"""From a swept grid to the cell that is used: the operating point, its rescue, what stands around it; its table, which
keeps what earlier stages measured of the same points; and what a grid has measured of an edit."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from engine.data.window_starts import without_starts
from engine.edits.edit import Edit
from engine.edits.edit_effect import Change, Effect
from engine.records.domain_names import find_domain
from engine.records.errors import InputError
from engine.records.hashing import Json
from engine.records.manifest import read_manifest
from engine.results.folders import read_table
from engine.stats.uncertainty import Interval, wilson

RESCUE_CAPS = (0.05, 0.10, 0.15, 0.20, 0.25)
RESCUE_FACTOR = 5.0  # times the unedited model's malign refusal: what the paper calls non-trivial


@dataclass(frozen=True)
class Rate:
    """Refused replies to a list of prompts, one verdict each, in the order of the prompts.
    finished: which replies ended by themselves; empty where that is not known."""

    refused: tuple[bool, ...]
    finished: tuple[bool, ...] = ()

    @property
    def count(self) -> int:
        return sum(self.refused)

    @property
    def n(self) -> int:
        return len(self.refused)

    @property
    def mean(self) -> float:
        return self.count / self.n

    @property
    def interval(self) -> Interval:
        return wilson(self.count, self.n)

    @property
    def unfinished(self) -> int:
        """Replies that were cut off at the limit of tokens."""
        return self.finished.count(False)


@dataclass(frozen=True)
class Rates:
    """Refusal of risk prompts (malign) and of their base prompts (benign) under one edit."""

    malign: Rate
    benign: Rate

    def columns(self, name: str) -> dict[str, object]:
        """`NAME_malign` and `NAME_benign` with their intervals, as tables have them."""
        columns: dict[str, object] = {}
        for kind, rate in ((f"{name}_malign", self.malign), (f"{name}_benign", self.benign)):
            low, high = rate.interval
            columns |= {kind: rate.mean, f"{kind}_low": low, f"{kind}_high": high}
        return columns


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
    near = []
    for place in around:
        cell = measured.filter(pl.col("lambda") == place[0], pl.col("k") == place[1])
        if cell.height == 1:
            line = cell.row(0, named=True)
            near.append(Neighbour(*place, line["malign"], line["benign"], line["perplexity"]))
    return tuple(near)


POINTS = "operating_points"
KEY = ["model", "selector", "domain", "lambda", "k", "rows_removed"]
CONTROL_SEEDS, HELDOUT_RECORD = "control_seeds", "heldout"  # entries of the manifest
CONTROLLED = tuple(
    f"{prefix}{column}"
    for kind in ("control", "global")
    for prefix, column in (
        *((f"{kind}_", name) for name in ("malign", "malign_max", "benign", "nll")),
        *(("" if kind == "control" else f"{kind}_", name) for name in ("gain", "gain_low", "gain_high")),
    )
)


def point_key(model: str, selector: str, domain: str, point: OperatingPoint | None) -> dict[str, object]:
    """The columns `KEY`; null where there is no point."""
    cell = (point.lam, point.k, point.rows_removed) if point else (None, None, None)
    return dict(zip(KEY, (model, selector, domain, *cell), strict=True))


def with_earlier(folder: Path, spec: Json, table: pl.DataFrame) -> tuple[pl.DataFrame, Json]:
    """`table` with the columns that earlier stages left in the folder, for points that are still the same.

    Kept only where they were measured as this run measures (`spec`): same prompts, text, replies, judge and limits. A
    stage that measures no held-out pairs has no record of them in `spec`, and keeps what was measured on any.
    returns also the entries that the manifest's spec needs for the columns that were kept"""
    try:
        earlier = read_table(folder, POINTS)
        kept_spec: Json = read_manifest(folder)["files"][f"{POINTS}.parquet"].get("spec", {})
    except InputError:
        return table, {}
    own = {name: value for name, value in kept_spec.items() if name != CONTROL_SEEDS}
    heldout = own.pop(HELDOUT_RECORD, None) if HELDOUT_RECORD not in spec else None
    if without_starts(own) != without_starts(spec) or not set(KEY) <= set(earlier.columns):
        return table, {}
    others = earlier.drop([name for name in table.columns if name not in KEY], strict=False)
    controlled = set(CONTROLLED) & set(others.columns)
    entries = {CONTROL_SEEDS: kept_spec[CONTROL_SEEDS]} if controlled and CONTROL_SEEDS in kept_spec else {}
    table = table.join(others, on=KEY, how="left", nulls_equal=True, maintain_order="left")
    return table, entries | ({HELDOUT_RECORD: heldout} if heldout is not None else {})


GRID, CONTRASTS = "refusal_sweep", "contrast.safetensors"
_OF_DOMAIN, _OF_ALL = ("pairs", "pairs_left_out"), ("lm_scores", "batch_size", "random_seed")  # make a contrast


def recorded_effect(folder: Path, edit: Edit, weights_hash: str, dtype: str) -> Effect | None:
    """Refusals of the folder's calibration pairs before and under a refusal edit of its own contrasts.

    None where the folder says nothing of it: results of other weights or another dtype, contrasts of other pairs than
    the grid, a cell that is not in the grid, has another number of rows, or wrote no replies. The edit's mask must have
    been made from the folder's own contrasts."""
    if not (folder / f"{GRID}.parquet").is_file():
        return None
    manifest = read_manifest(folder)
    model, files = manifest.get("model", {}), manifest.get("files", {})
    specs = [files.get(name, {}).get("spec") for name in (f"{GRID}.parquet", CONTRASTS)]
    if (model.get("weights_hash"), model.get("dtype")) != (weights_hash, dtype) or not all(specs):
        return None
    selector, domain = edit.spec["selector"], str(edit.spec["domain"])
    with suppress(InputError):  # the pages have its name
        domain = find_domain(domain, specs[0].get("pairs", {}))
    grid, contrasts = (_made_from(spec, domain) for spec in specs)
    if grid != contrasts:
        return None
    cells = read_table(folder, GRID).filter(selector=selector, domain=domain).drop_nulls(["malign", "benign"])
    before = cells.filter(pl.col("k") == 0)
    near = (pl.col(name).sub(edit.spec[name]).abs() < 1e-9 for name in ("lambda", "k"))
    after = cells.filter(*near, rows_removed=edit.size)
    if before.height != 1 or after.height != 1:
        return None
    malign, benign = (_change(side, before, after) for side in ("malign", "benign"))
    about = {
        "pairs": f"{malign.n} calibration pairs of the grid",
        "judge": f"{specs[0].get('judge')} {specs[0].get('judge_version')}",
        "reply tokens": specs[0].get("reply_tokens"),
    }
    limit = specs[0].get("benign_limit", 0.0)
    if not isinstance(limit, int | float):
        return None
    return Effect(weights_hash, edit.mask_hash, {domain: malign}, {domain: benign}, float(limit), about)


def _made_from(spec: Json, domain: str) -> list[object]:
    """What decides about the contrasts of one domain; there may be more domains in one file than in the other."""
    by_domain = [found if isinstance(found := spec.get(name), dict) else {} for name in _OF_DOMAIN]
    return [found.get(domain) for found in by_domain] + [spec.get(name) for name in _OF_ALL]


def _change(side: str, before: pl.DataFrame, after: pl.DataFrame) -> Change:
    n = int(after[f"{side}_n"][0])
    return Change(n, *(round(table[side][0] * n) for table in (before, after)))
