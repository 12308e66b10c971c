"""Scores, masks, interventions and their evaluation, for neuron rows of decoder-only language models.

The names below are the Python API. They load on first use, so that `import engine` stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_API = {
    "Contrast": "refusal.contrast",
    "EmbeddedJudge": "evaluation.judges",
    "InputError": "errors",
    "LoadedModel": "models",
    "NegativeLogLikelihood": "evaluation.perplexity",
    "Pair": "corpora",
    "RefusalPlan": "refusal.plan",
    "RefusalRun": "refusal.run",
    "RowIndex": "rows",
    "ScorePlan": "scores",
    "Store": "store",
    "Windows": "corpora",
    "attn_lrp": "attnlrp",
    "available_selectors": "selectors",
    "compute_scores": "selectors",
    "contrasts": "refusal.algorithm",
    "export_masked": "export",
    "judge": "evaluation.judge",
    "layer_matched": "masks",
    "load_contrasts": "refusal.contrast",
    "load_model": "models",
    "load_rows": "models",
    "masked_nll": "sweep",
    "negative_log_likelihood": "evaluation.perplexity",
    "operating_points": "refusal.operating_point",
    "read_mask": "maskfile",
    "read_pairs": "refusal.pairs",
    "refusal_mask": "refusal.contrast",
    "register_selector": "selectors",
    "removal_order": "ranking",
    "removed_rows": "masks",
    "row_index": "rows",
    "run_experiment": "refusal.experiment",
    "save_contrasts": "refusal.contrast",
    "score_model": "scores",
    "sweep_model": "sweep",
    "sweep_refusal": "refusal.grid",
    "windows": "corpora",
    "write_mask": "maskfile",
    "zeroed": "intervention",
}

if TYPE_CHECKING:
    from engine.attnlrp import attn_lrp as attn_lrp
    from engine.corpora import Pair as Pair, Windows as Windows, windows as windows
    from engine.errors import InputError as InputError
    from engine.evaluation.judge import judge as judge
    from engine.evaluation.judges import EmbeddedJudge as EmbeddedJudge
    from engine.evaluation.perplexity import (
        NegativeLogLikelihood as NegativeLogLikelihood,
        negative_log_likelihood as negative_log_likelihood,
    )
    from engine.export import export_masked as export_masked
    from engine.intervention import zeroed as zeroed
    from engine.maskfile import read_mask as read_mask, write_mask as write_mask
    from engine.masks import layer_matched as layer_matched, removed_rows as removed_rows
    from engine.models import LoadedModel as LoadedModel, load_model as load_model, load_rows as load_rows
    from engine.ranking import removal_order as removal_order
    from engine.refusal.algorithm import contrasts as contrasts
    from engine.refusal.contrast import (
        Contrast as Contrast,
        load_contrasts as load_contrasts,
        refusal_mask as refusal_mask,
        save_contrasts as save_contrasts,
    )
    from engine.refusal.experiment import run_experiment as run_experiment
    from engine.refusal.grid import sweep_refusal as sweep_refusal
    from engine.refusal.operating_point import operating_points as operating_points
    from engine.refusal.pairs import read_pairs as read_pairs
    from engine.refusal.plan import RefusalPlan as RefusalPlan
    from engine.refusal.run import RefusalRun as RefusalRun
    from engine.rows import RowIndex as RowIndex, row_index as row_index
    from engine.scores import ScorePlan as ScorePlan, score_model as score_model
    from engine.selectors import (
        available_selectors as available_selectors,
        compute_scores as compute_scores,
        register_selector as register_selector,
    )
    from engine.store import Store as Store
    from engine.sweep import masked_nll as masked_nll, sweep_model as sweep_model

__all__ = list(_API)


def __getattr__(name: str) -> Any:
    if name not in _API:
        raise AttributeError(f"module 'engine' has no attribute {name!r}")
    return getattr(importlib.import_module(f"engine.{_API[name]}"), name)
