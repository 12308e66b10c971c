"""Scores, masks, interventions and their evaluation, for neuron rows of decoder-only language models.

The names below are the Python API. They load on first use, so that `import engine` stays light."""
# ruff: noqa: F401 - the imports are for type checkers and editors, and the list of the names

import ast
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.data.corpora import Pair, Windows, windows
    from engine.data.pairs import read_pairs
    from engine.edits.contrasts import Contrast, load_contrasts, read_mask, refusal_mask, save_contrasts, write_mask
    from engine.edits.control_edits import layer_matched
    from engine.edits.edit import Edit, edit_of
    from engine.edits.exporting import export_masked
    from engine.edits.masks import removed_rows
    from engine.interventions import Intervention, register_intervention
    from engine.interventions.at_outputs import applied, edited_outputs
    from engine.interventions.in_weights import zeroed
    from engine.judges.base import Exchange, register_judge
    from engine.judges.embedded import EmbeddedJudge, judge
    from engine.measures.base import Derived, Measure, TokenMeasure, register_measure
    from engine.measures.nll import NegativeLogLikelihood, Nll, negative_log_likelihood
    from engine.measures.replies import Replies
    from engine.models.attnlrp import attn_lrp
    from engine.models.loading import LoadedModel, load_model, load_rows, load_sketch
    from engine.models.row_index import RowIndex
    from engine.models.rows_of_modules import row_index
    from engine.records.errors import InputError
    from engine.results.store import Store
    from engine.run.audit_plan import AuditPlan, ScorePlan
    from engine.run.refusal_plan import RefusalPlan
    from engine.run.run_estimate import Estimate, estimate
    from engine.run.runner import Cell, LocalRunner, masked_nll
    from engine.run.scoring import score_model
    from engine.selectors import available_selectors, compute_scores, register_selector
    from engine.stats.removal_order import removal_order
    from engine.studies.audit.audit_inputs import AuditInputs
    from engine.studies.audit.sweeps import sweep_model
    from engine.studies.audit_scores import audit_scores
    from engine.studies.base import conduct, register_study
    from engine.studies.conduct import run_studies
    from engine.studies.refusal.algorithm import contrasts
    from engine.studies.refusal.operating_point import operating_points
    from engine.studies.refusal.refusal_inputs import RefusalInputs
    from engine.studies.replayed import replay

_MODULES = {
    one.name: node.module or ""
    for node in ast.walk(ast.parse(Path(__file__).read_bytes()))
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("engine.")
    for one in node.names
}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'engine' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
