"""A table that a results folder lacks, as the run that makes it: for the same model and the settings of the rest."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dashboard.state import jobs, results, shipped_models as shipped
from engine.records.errors import InputError
from engine.records.manifest import read_manifest
from engine.results.folders import is_published
from engine.results.tables import TABLES
from engine.run import recorded_plan
from engine.run.audit_plan import OF_SWEEP, SHIPPED, TEXT, AuditPlan, default_preset, for_model, preset
from engine.run.recorded_plan import Typed, typed, typed_audit
from engine.run.refusal_plan import RefusalPlan, default_plan
from engine.selectors.own_scores import kept_beside
from engine.studies.base import AUDIT, STAGES, all_analyses, analyze_groups, plan_type, whole_plan

_NO_SETTINGS = "This folder does not tell its settings: the preset {} is taken."
_OTHER_PAIRS = "This folder has no refusal run yet: the shipped prompt pairs are taken; Live edit takes others."


@dataclass(frozen=True)
class Remake:
    """The run that makes a table. plan: its settings; notes: what it does otherwise than the rest of the folder."""

    stem: str
    request: jobs.Request
    plan: AuditPlan | RefusalPlan
    notes: tuple[str, ...] = ()

    @property
    def analyses(self) -> tuple[str, ...]:
        """Those of `analyze` that it runs; none for a stage of `refusal`."""
        written = {"sweep": ("sweep",), "analyze": self.request.words[2:]}.get(self.request.words[0], ())
        return tuple(all_analyses()) if written == ("all",) else written


def possible(folder: Path, stem: str) -> bool:
    """Can a run make this table here? Not what a paper printed, nor what needs files or judges that nobody named."""
    if stem not in TABLES:
        return False
    found = _words(stem, "model")
    named = all(not word.partition("=")[2].isupper() and not word.isupper() for word in found)
    return found[0] in _MAKERS and named and not is_published(folder)


def remake(folder: Path, stem: str, texts: Sequence[Path] = ()) -> Remake:
    """The run. It goes into the folder itself, of the shipped results into a run of one's own beside the others.
    texts: files and folders that the rest was made of, found by their names, where these are no corpus's.
    Errors: InputError for a table that no run makes, a broken manifest, and a text that is not among `texts`."""
    if not possible(folder, stem):
        raise InputError(f"no run that can be started here makes {stem}; its command is told above")
    manifest = read_manifest(folder)
    model = manifest.get("model") or {}
    model_id = str(model.get("id") or "")
    typed_words = _words(stem, model_id)
    loading = [(f"--{name}", str(model[name])) for name in ("revision", "dtype") if model.get(name)]
    plain, texts = _plain(typed_words), [*texts, *kept_beside(folder)]
    given = [(word.partition("=")[0], word.partition("=")[2]) for word in typed_words if word.startswith("--")]
    plan, said, notes = _MAKERS[plain[0]](manifest, model_id, plain, texts)
    own = {name for name, _ in given}
    options = (*loading, *(pair for pair in said.options if pair[0] not in own), *given)
    at = 2 if plain[0] == "refusal" else 1
    request = jobs.Request(plain, target(folder), options, results.store_dir(), model_at=at)
    if said.untold:
        notes = (*notes, f"Settings that no option can tell have their defaults: {', '.join(said.untold)}.")
    return Remake(stem, request, plan, notes)


def target(folder: Path) -> Path:
    """Where the run writes: the folder itself; of the shipped results a run of one's own."""
    model = shipped.model_of(folder)
    return results.results_dir() / model if model else folder


def words(folder: Path, stem: str) -> tuple[str, ...]:
    """The command without its options, as `remake` gives it. Errors: InputError for a broken manifest."""
    model = read_manifest(folder).get("model") or {}
    return _plain(_words(stem, str(model.get("id") or "")))


def _plain(found: Sequence[str]) -> tuple[str, ...]:
    return tuple(word for word in found if not word.startswith("--"))


def _words(stem: str, model_id: str) -> list[str]:
    """The command that writes a table, options with their values as one word."""
    found: list[str] = []
    for word in TABLES.get(stem).command.split():
        if found and found[-1].startswith("--") and "=" not in found[-1]:
            found[-1] += f"={word}"
        else:
            found.append(model_id if word == "{model}" else word)
    return found


def _specs(manifest: dict[str, Any], *needed: str) -> list[dict[str, Any]]:
    """The records of the folder's files that have these entries."""
    specs = [entry.get("spec") or {} for entry in manifest["files"].values() if isinstance(entry, dict)]
    return [spec for spec in specs if isinstance(spec, dict) and all(name in spec for name in needed)]


def _audit(
    manifest: dict[str, Any], model_id: str, words: tuple[str, ...], texts: Sequence[Path]
) -> tuple[AuditPlan, Typed, tuple[str, ...]]:
    names = words[2:] if words[0] == "analyze" else ()
    recorded = _specs(manifest, "settings", "scores")
    notes: tuple[str, ...] = ()
    if recorded:
        plan, told = recorded_plan.audit_plan(recorded[0], [TEXT, *names], texts, plan_type(AUDIT))
        notes = tuple(f"{note[0].upper()}{note[1:]}." for note in told)
    else:
        name = default_preset(model_id, first_look=True)
        plan, notes = whole_plan(for_model(preset(name), model_id), AUDIT), (_NO_SETTINGS.format(name),)
    if words[0] == "analyze":
        return plan, typed_audit(plan, model_id, analyze_groups()), notes
    base = whole_plan(for_model(AuditPlan(), model_id), AUDIT)
    if words[0] == "score":
        return plan, typed(plan.scoring, base.scoring), notes
    return plan, typed(plan, base, OF_SWEEP), notes


def _refusal(
    manifest: dict[str, Any], model_id: str, words: tuple[str, ...], texts: Sequence[Path]
) -> tuple[RefusalPlan, Typed, tuple[str, ...]]:
    base = default_plan(model_id)
    recorded = _specs(manifest, "pairs", "lambdas", "lm_scores", "evaluation", "reply_tokens")
    if recorded:
        plan = recorded_plan.refusal_plan(recorded[0], texts)
        options = typed(plan, base, reads=STAGES.get(words[1]).settings if words[1] in STAGES else ())
        if model_id != SHIPPED and not any(name == "--pairs" for name, _ in options.options):
            options = Typed((("--pairs", plan.pairs), *options.options), options.untold)  # which has no default there
        return plan, options, ()
    if model_id == SHIPPED:
        return base, Typed((), ()), ()
    return base, Typed((("--pairs", SHIPPED),), ()), (_OTHER_PAIRS,)


_MAKERS: dict[str, Any] = {"score": _audit, "sweep": _audit, "analyze": _audit, "refusal": _refusal}
