"""Is removing rows worth it? Row masks beside a system prompt and steering vectors, within the same limits."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from engine.data.corpora import Pair
from engine.data.prompts import check_system, wordings
from engine.edits.edit import UNEDITED, Steering
from engine.measures.nll import perplexity
from engine.models.rows_of_modules import decoder_blocks
from engine.records.errors import InputError
from engine.records.hashing import Json
from engine.results.tables import frame
from engine.run.runner import Cell, Results
from engine.studies.base import Answer, Tables, TextTable
from engine.studies.refusal.grid import Grid, OverGrids
from engine.studies.refusal.points import cut_off_lines
from engine.studies.refusal.refusal_inputs import Rates, RefusalInputs, sides
from engine.studies.refusal.vectors import Setting, Vectors, Where, vectors_of

TABLE = "baselines"
ROW_MASK, SYSTEM_PROMPT = "row_mask", "system_prompt"
ADDITION, CONDITIONAL = "activation_addition", "conditional_addition"
DIFFERENCE, OPENINGS, WORDING = "difference", "openings", "wording"
CAST_DEPTHS = (15 / 32, 23 / 32)  # CAST's own: blocks 15 to 23 of 32, in the quick start of its reference code
Way = tuple[str, str, str]  # method, vector, domain


class Measured(NamedTuple):
    """A setting on the calibration pairs. rates: None above the perplexity cap, where nothing was generated."""

    setting: Setting
    nll: float
    rates: Rates | None


class Baselines(OverGrids):
    """`baselines`: every setting on the calibration pairs, and each way's strongest on the held-out pairs, with KL.

    Strongest: the rule of `operating_point`, without its rescue: among the settings whose benign refusal and
    perplexity are within the plan's limits and whose malign refusal is not below the unedited model's, the one with
    the largest malign refusal; ties go to the smaller strength, then to the lower NLL. So all ways are compared at the
    same limit of benign refusal. A way without such a setting has a line without one.

    The ways: every selector's row mask; our own system prompts; a vector added to the residual stream at one block
    (or, for `openings`, also at CAST's range of blocks); and `openings` added only where the domain's condition holds.
    """

    def __init__(self, run: RefusalInputs) -> None:
        if run.plan.system:
            raise InputError(
                "baselines compare system prompts of their own with the model as it is; leave --system out"
            )
        self.grid = Grid(run, run.contrasts, run.calibration)
        self.impossible: dict[str, str] = {}  # method -> why it cannot be tried with this model
        self.conditions: dict[str, Json] = {}
        self.ways: dict[Way, list[Setting]] = {}
        self._masks: dict[tuple[str, str], Setting] = {}
        left_out = run.self_refused(run.calibration)
        for domain, pairs in run.calibration.items():
            for contrast in run.contrasts:
                if contrast.domain == domain:
                    self.ways[ROW_MASK, contrast.selector, domain] = []  # known once the grid is
            self.ways[SYSTEM_PROMPT, WORDING, domain] = self._instructed(run, domain)
            used = [pair for pair in pairs if pair not in left_out.get(domain, ())]
            self.ways |= self._steered(run, domain, vectors_of(run.loaded, run.plan.phrases, used, run.store))

    def _instructed(self, run: RefusalInputs, domain: str) -> list[Setting]:
        settings = []
        for one in wordings(domain):
            try:
                check_system(run.loaded.tokenizer, one.text)
            except InputError as error:
                self.impossible[SYSTEM_PROMPT] = str(error)
                return []
            settings.append(Setting(run, SYSTEM_PROMPT, WORDING, domain, one.id, one.strength, system=one.text))
        return settings

    def _steered(self, run: RefusalInputs, domain: str, vectors: Vectors) -> dict[Way, list[Setting]]:
        count = len(decoder_blocks(run.loaded.model))
        single = [(block,) for block in sorted({block_at(depth, count) for depth in run.plan.steering_depths})]
        first, last = (block_at(depth, count) for depth in CAST_DEPTHS)
        several = list(dict.fromkeys([*single, tuple(range(first, last + 1))]))
        where = Where(run, vectors.condition)
        threshold = vectors.condition.threshold
        self.conditions[domain] = {"block": vectors.condition.block, **threshold._asdict()}
        settings: dict[Way, list[Setting]] = {}
        for method, vector, array, places, holds in (
            (ADDITION, DIFFERENCE, vectors.difference, single, None),
            (ADDITION, OPENINGS, vectors.openings, several, None),
            (CONDITIONAL, OPENINGS, vectors.openings, several, where),
        ):
            settings[method, vector, domain] = [
                Setting(
                    run, method, vector, domain, _name(blocks, coefficient, holds), coefficient,
                    Steering({block: array[block] for block in blocks}, coefficient), where=holds,
                )
                for coefficient in run.plan.steering_coefficients
                for blocks in places
            ]  # fmt: skip
        return settings

    def record(self, run: RefusalInputs) -> Json:
        """What a manifest says about the settings that were tried."""
        texts = {domain: {one.id: one.text for one in wordings(domain)} for domain in run.calibration}
        return {
            "steering": {
                "coefficients": list(run.plan.steering_coefficients),
                "depths": list(run.plan.steering_depths),
                "conditions": self.conditions,
            },
            "system_prompts": {} if SYSTEM_PROMPT in self.impossible else texts,
        }

    def cells(self, run: RefusalInputs, known: Results) -> Iterable[Cell[Any]]:
        first: list[Cell[Any]] = [*self.grid.cells(run, known), run.nll(UNEDITED)]
        first += [run.on_pairs(UNEDITED, pairs) for pairs in run.calibration.values()]
        first += [cell for settings in self.ways.values() for one in settings for cell in one.nll_cells()]
        yield from first
        if any(cell not in known for cell in first):
            return
        tried = [
            cell
            for (_, _, domain), settings in self.ways.items()
            for one in settings
            if one.nll(known) <= run.max_nll(known)
            for cell in one.reply_cells(run.calibration[domain])
        ]
        yield from tried
        if self.grid.points(run, known) is None or any(cell not in known for cell in tried):
            return
        chosen = [one for one in self.chosen(run, known).values() if one]
        for domain, pairs in run.heldout.items():
            before: list[Cell[Any]] = [run.on_pairs(UNEDITED, pairs), run.replies(UNEDITED, sides(pairs))]
            yield from before
            for one in (one for one in chosen if one.domain == domain):
                yield from one.reply_cells(pairs)
                if all(cell in known for cell in before):
                    yield from one.divergence_cells(known, pairs)

    def tables(self, run: RefusalInputs, results: Results) -> Tables:
        rows: list[dict[str, object]] = []
        chosen = self.chosen(run, results)
        final = "heldout" if run.measures_heldout else "calibration"
        for way, settings in self.ways.items():
            best, domain = chosen[way], way[2]
            candidates = settings or ([best] if best else [])
            for one in self._measured(run, results, candidates, run.calibration[domain]):
                if run.measures_heldout or one.setting is not best:
                    rows.append(_line(run, results, "calibration", run.calibration[domain], one, one.setting is best))
            pairs = run.heldout[domain]
            if best is None:
                rows.append(_without(run, results, way, final, pairs))
            else:
                [one] = self._measured(run, results, [best], pairs)
                kl = best.divergence(results, pairs)
                row = _line(run, results, final, pairs, one, True)
                rows.append(row | {"kl": kl.value, "kl_stderr": kl.stderr})
        return {TABLE: frame(TABLE, rows)}

    def answer(self, run: RefusalInputs, results: Results, tables: Tables, folder: Path) -> Answer:
        table, final = tables[TABLE], "heldout" if run.measures_heldout else "calibration"
        shown = [row for row in table.iter_rows(named=True) if row["prompts"] == final]
        limit = f"{run.plan.benign_limit:.0%} benign refusal on the calibration pairs"
        text = TextTable(
            f"each way's strongest setting with at most {limit}; {final}",
            ("domain", "method", "vector", "setting", "malign", "benign", "perplexity", "KL"),
            [_row(row) for row in shown if row["chosen"] or row["setting"] is None],
            4,
        )
        cut = cut_off_lines(
            table.filter(chosen=True, prompts=final),
            ("edited_malign", "pairs", "malign_unfinished"),
            ("edited_benign", "pairs", "benign_unfinished"),
        )
        why = (f"{method}: {reason}" for method, reason in self.impossible.items())
        return Answer((text, *why, *cut), {"impossible": self.impossible, TABLE: table})

    def chosen(self, run: RefusalInputs, known: Results) -> Mapping[Way, Setting | None]:
        """Each way's strongest setting within the limits, None without one."""
        points = self.grid.final_points(run, known)
        found: dict[Way, Setting | None] = {}
        for way, settings in self.ways.items():
            method, vector, domain = way
            if method == ROW_MASK:
                found[way] = self._masked(run, vector, domain, points[vector, domain])
            else:
                pairs = run.calibration[domain]
                found[way] = strongest(run, known, self._measured(run, known, settings, pairs), pairs)
        return found

    def _masked(self, run: RefusalInputs, selector: str, domain: str, point: Any) -> Setting | None:
        """The operating point as a setting; one that was rescued is not within the limits."""
        if point is None or point.rescue:
            return None
        key = (selector, domain)
        if key not in self._masks:
            [contrast] = [one for one in run.contrasts if (one.selector, one.domain) == key]
            edit = run.refusal_edit(contrast, point.lam, point.k)
            name = f"lambda {point.lam:g}, k {point.k:g}"
            self._masks[key] = Setting(run, ROW_MASK, selector, domain, name, point.k, edit)
        return self._masks[key]

    def _measured(
        self, run: RefusalInputs, known: Results, settings: Sequence[Setting], pairs: Sequence[Pair]
    ) -> Iterator[Measured]:
        for one in settings:
            nll = one.nll(known)
            yield Measured(one, nll, one.rates(known, pairs) if nll <= run.max_nll(known) else None)


def strongest(
    run: RefusalInputs, known: Results, measured: Iterable[Measured], pairs: Sequence[Pair]
) -> Setting | None:
    """The setting with the largest malign refusal among the feasible; see `Baselines`."""
    before = run.rates(known, UNEDITED, pairs)
    usable = [one for one in measured if one.rates and run.feasible(known, one.nll, one.rates, before)]
    ordered = sorted(usable, key=lambda one: (-_malign(one), one.setting.strength, one.nll))
    return ordered[0].setting if ordered else None


def block_at(depth: float, blocks: int) -> int:
    """The block at a share of the depth: floor(depth * blocks), the last one for 1."""
    return min(blocks - 1, int(depth * blocks))


def _malign(one: Measured) -> float:
    assert one.rates is not None
    return one.rates.malign.mean


def _name(blocks: Sequence[int], coefficient: float, where: Where | None) -> str:
    blocks_told = f"block {blocks[0]}" if len(blocks) == 1 else f"blocks {blocks[0]} to {blocks[-1]}"
    condition = f", if {where.condition.name}" if where else ""
    return f"{blocks_told}, coefficient {coefficient:g}{condition}"


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    keys = (row["domain"], row["method"], row["vector"])
    if row["setting"] is None:
        return (*keys, "none within the limits", "", "", "", "")
    sides = [f"{row[f'unedited_{side}']:.2f} > {row[f'edited_{side}']:.2f}" for side in ("malign", "benign")]
    return (*keys, row["setting"], *sides, f"{row['perplexity']:.4g}", f"{row['kl']:.4f}")


def _line(
    run: RefusalInputs, known: Results, prompts: str, pairs: Sequence[Pair], one: Measured, chosen: bool
) -> dict[str, object]:
    setting = one.setting
    row = _without(run, known, (setting.method, setting.vector, setting.domain), prompts, pairs)
    before = run.rates(known, UNEDITED, pairs)
    return row | {
        "setting": setting.name,
        "strength": float(setting.strength),
        **(one.rates.columns("edited") if one.rates else {}),
        "edited_nll": one.nll,
        "perplexity": perplexity(one.nll),
        **{f"{side}_unfinished": one.rates and getattr(one.rates, side).unfinished for side in ("malign", "benign")},
        "feasible": one.rates is not None and run.feasible(known, one.nll, one.rates, before),
        "chosen": chosen,
    }


def _without(run: RefusalInputs, known: Results, way: Way, prompts: str, pairs: Sequence[Pair]) -> dict[str, object]:
    """The line of a way without a setting: what is known is the unedited model."""
    return {
        "model": run.loaded.id, **dict(zip(("method", "vector", "domain"), way, strict=True)), "prompts": prompts,
        "pairs": len(pairs), **run.rates(known, UNEDITED, pairs).columns("unedited"),
        "unedited_nll": known[run.nll(UNEDITED)].nats_per_token, "feasible": False, "chosen": False,
    }  # fmt: skip
