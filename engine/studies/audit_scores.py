"""`audit_scores`: a verdict on scores of one's own from a notebook, as `analyze --scores` gives it from files."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

import numpy.typing as npt
import polars as pl
from rich.console import Console
from safetensors.torch import save
from torch import Tensor, as_tensor

from engine.models.loading import LoadedModel, load_model
from engine.records.errors import InputError
from engine.records.files import make_folder, same_bytes
from engine.records.progress import Progress, progress_bars
from engine.results.store import Store
from engine.run.audit_plan import AuditPlan, for_model, preset
from engine.run.runner import LocalRunner
from engine.selectors import own_scores
from engine.selectors.base import REGISTRY
from engine.studies.audit.agreement import spearman_table
from engine.studies.audit.audit_inputs import AuditInputs
from engine.studies.audit.verdicts import ANSWERS
from engine.studies.base import AUDIT, Tables, whole_plan
from engine.studies.conduct import run_studies
from engine.studies.estimate_words import nearly_ours

Values = Tensor | npt.NDArray[Any]  # [N] or [seeds, N] in the order of the row index, higher = more important
Given = Values | Mapping[str, Values]  # the latter: module -> [rows]


@dataclass(frozen=True, eq=False, repr=False)
class Audited:
    """What came out. tables: every table by its stem; folder: where they lie with scores and manifest, for
    `selector-audit dashboard`. alike: by NAME, in words, which of the other selectors ranks the rows nearly as it."""

    tables: Tables
    folder: Path
    alike: Mapping[str, str]

    @property
    def verdict(self) -> pl.DataFrame:
        """A line per selector: selector, validity, specific, stability, reasons."""
        return self.tables["verdicts"].select("selector", "validity", "specific", "stability", "reasons")

    def __repr__(self) -> str:
        lines = [f"{', '.join(self.tables)} in {self.folder}"]
        for row in self.verdict.iter_rows(named=True) if "verdicts" in self.tables else ():
            validity, alike = ANSWERS.get(row["validity"], row["validity"]), self.alike.get(row["selector"])
            words = [f"{row['selector']}: {validity}", row["reasons"].split("; ")[0].removesuffix(".")]
            words += [f"specific: {row['specific']}", f"stability: {row['stability']}"]
            lines.append("; ".join([*words, *filter(None, [alike])]))
        return "\n".join([*lines, 'in full: .verdict["reasons"]'] if lines[1:] else lines)

    def _repr_html_(self) -> str:
        """The verdicts as a table, where a notebook asks for one, and what ranks the rows nearly alike; escaped."""
        table = self.verdict if "verdicts" in self.tables else pl.DataFrame({"table": list(self.tables)})
        with pl.Config(fmt_str_lengths=10_000):
            html = table._repr_html_()
        return html + "".join(f"<p>{escape(sentence)}.</p>" for sentence in self.alike.values())

    def plot(self) -> Any:
        """Perplexity over removed rows, lowest and highest scores first: a plotly figure, as the app draws it.
        Errors: InputError where the curves were not among the analyses: `analyses=("sweep", "verdict")`."""
        from dashboard.report.html_report import curves_figure

        if "sweep" not in self.tables:
            raise InputError('the curves were not measured; ask for them: analyses=("sweep", "verdict")')
        return curves_figure(self.folder)


def audit_scores(
    model: str | Path | LoadedModel, scores: Mapping[str, Given | list[Given]],
    analyses: Sequence[str] | str = ("verdict",), *, plan: AuditPlan | None = None, store: Path | str | None = None,
    folder: Path | str | None = None, reduce: str | None = None, progress: Progress | None = None,
) -> Audited:  # fmt: skip
    """Do these scores find the rows that matter? Removes rows and measures, beside random, magnitude and wanda.

    model: a Hugging Face id, a folder, `demo`, or what `load_model` gave. scores: NAME -> a tensor or array, or module
    -> one of them; a list of these: disjoint draws of calibration text, of which the first is judged. reduce: `abs-sum`
    for a number per weight [rows, columns]. plan: of `analyze`, by default the preset `quick`; its selectors stand
    beside the scores where it names others than a default. store, folder: as --store and --out. progress: called with
    (stage, done, total); by default bars on stderr, or a line now and then where no terminal or notebook draws them.

    The scores are kept in the store, under their hash, so that `replay` finds them. Errors: InputError as
    `--scores`."""
    loaded = load_model(str(model)) if isinstance(model, str | Path) else model
    if not isinstance(loaded, LoadedModel):
        raise InputError(
            f"audit_scores takes a Hugging Face id, a folder or what load_model gave, got {type(model).__name__}; "
            "write a model with model.save_pretrained(folder), its tokenizer too, and give the folder"
        )
    if not isinstance(scores, Mapping) or not scores:
        raise InputError('audit_scores takes scores by name, got none; give {"mine": a tensor [rows]}')
    analyses = (analyses,) if isinstance(analyses, str) else analyses
    base = whole_plan(for_model(preset("quick"), loaded.id), AUDIT)
    plan = whole_plan(plan, AUDIT) if plan is not None else base
    usual = plan.scoring.selectors in (AuditPlan().scoring.selectors, base.scoring.selectors)
    tables: Tables = {}

    with ExitStack() as open_until_done:
        opened = open_until_done.enter_context(Store(store))
        open_until_done.enter_context(REGISTRY.only_here())
        report = progress or open_until_done.enter_context(progress_bars(Console(stderr=True)))
        files = tuple(
            f"{name}={own_scores.keep(opened.folder, f'{name}.safetensors', _content(name, one))}"
            for name, given in scores.items()
            for one in ((given or [{}]) if isinstance(given, list) else [given])
        )
        selectors = own_scores.BASELINES if usual else plan.scoring.selectors
        scoring = replace(plan.scoring, selectors=selectors, score_files=files, scores_reduce=reduce)
        audit = AuditInputs(loaded, replace(plan, scoring=scoring), opened, report)
        out = Path(folder or opened.results_dir(loaded.id))
        for name in scores:
            own_scores.draws(name, loaded.rows)
        make_folder(out)
        runner = LocalRunner(opened, report)
        run_studies(audit, analyses, out, runner, finished=lambda _, study, made, seconds: tables.update(made))
        return Audited(tables, out, nearly_ours(spearman_table(audit), scores))


def _content(name: str, given: Given) -> bytes:
    named = given if isinstance(given, Mapping) else {"scores": given}
    try:
        if isinstance(given, int | float):
            raise TypeError("a list is one of draws")
        tensors = {module: as_tensor(values).detach().cpu().clone().contiguous() for module, values in named.items()}
        return same_bytes(save(tensors))
    except (TypeError, ValueError, RuntimeError, KeyError) as error:
        raise InputError(
            f"the scores {name!r} are no tensors ({error}); give a tensor [rows], or a dict of module name -> tensor"
        ) from None
