"""Which command runs on which family: a Markdown table, from what the software itself says of each configuration.

    python families_table.py > data/families.md        (from this folder, with the project on the path)

A family is a `model_type` of the installed transformers that can be built with a causal language model's head from its
default configuration, two blocks of it, without weights. What is written down is what `rows`, `score` and `analyze`
say of it before any weight is fetched; no pass is run, so a model may still be refused later (a Linear that runs twice
in a pass, or only sometimes).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from engine.models.experts import gated_experts, has_experts
from engine.models.links import attentions, gated_mlps
from engine.models.loading import LoadedModel
from engine.models.rows_of_modules import row_index
from engine.models.skeletons import quiet
from engine.records.errors import InputError
from engine.run.scoring import impossible
from engine.selectors.base import BUILT_IN

# Selectors that ask something of an architecture, by what they ask; the others need rows and a pass.
GROUPS: dict[str, tuple[str, ...]] = {
    "`ig`, `ig_conductance`": ("ig", "ig_conductance"),
    "`lrp`, `relp`": ("lrp", "relp"),
    "`consensus2`": ("consensus2",),
}
REST = tuple(name for name in BUILT_IN if not any(name in names for names in GROUPS.values()))
MADE_WITH = f"Made with transformers {transformers.__version__}."
TRIED = (
    "`lrp` and `relp`: on random numbers, norms, MLPs and attention functions gave what AttnLRP's rules are written "
    "for, and all that stands between them was linear; before any score the rules are tried on the model's weights."
)
YES, NO = "yes", "–"
COLUMNS = (
    "family", "`rows`", "`score`: the other selectors", *GROUPS, "neurons", "heads", "routed experts",
)  # fmt: skip


class Family(NamedTuple):
    """refused: why there are no rows, "" where there are. Of the rest, what can be had."""

    name: str
    refused: str
    selectors: frozenset[str] = frozenset()
    neurons: bool = False
    heads: bool = False
    experts: bool = False

    @property
    def cells(self) -> tuple[str, ...]:
        if self.refused:
            return (self.name, NO, *[NO] * (len(COLUMNS) - 2))
        groups = [REST, *GROUPS.values()]
        scored = [YES if set(names) <= self.selectors else NO for names in groups]
        return (self.name, YES, *scored, *(YES if one else NO for one in (self.neurons, self.heads, self.experts)))


def families() -> Iterator[Any]:
    """A model of two blocks of every family that can be built from its default configuration, without weights."""
    for family in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        try:
            config = transformers.AutoConfig.for_model(family)
            text = config.get_text_config()
            for name in ("num_hidden_layers", "n_layer", "n_layers", "num_layers"):
                if hasattr(text, name):
                    setattr(text, name, 2)
            for name in ("layer_types", "mlp_layer_types", "layers_block_type"):
                kinds = list(dict.fromkeys(getattr(text, name, None) or []))
                if kinds:
                    setattr(text, name, (kinds * 2)[:2])
            if hasattr(text, "first_k_dense_replace"):
                text.first_k_dense_replace = 0
            with quiet(), torch.device("meta"):
                model = transformers.AutoModelForCausalLM.from_config(config)
        except Exception:  # its defaults do not fit together, which is nothing of ours
            continue
        yield family, model


def about(name: str, model: Any) -> Family:
    """What the software says of one."""
    try:
        rows = row_index(model)
    except InputError as error:
        return Family(name, str(error))
    sketch = LoadedModel(model, None, rows, name, None, "", "", "", "float32", "cpu")
    left_out = impossible(sketch, BUILT_IN)
    neurons = any(True for _ in chain(gated_mlps(model), gated_experts(model)))
    heads = bool(attentions(model, rows)[0])
    return Family(name, "", frozenset(BUILT_IN) - left_out.keys(), neurons, heads, has_experts(model))


def table(found: Sequence[Family]) -> str:
    """Markdown, a line per family by name, with the counts above it."""
    ordered = sorted(found)
    lines = [one.cells for one in ordered]
    counts = [f"{sum(line[place] == YES for line in lines)} of {len(lines)}" for place in range(1, len(COLUMNS))]
    rows = [COLUMNS, ("---",) * len(COLUMNS), (f"**{len(lines)} families**", *counts), *lines]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def whole() -> str:
    """The file."""
    return f"{table([about(name, model) for name, model in families()])}\n{TRIED} {MADE_WITH}\n"


if __name__ == "__main__":
    sys.stdout.write(whole())
