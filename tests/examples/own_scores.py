"""Three ways to scores of one's own, and a verdict on each: captum, a hook, tensors under names of TransformerLens.

    uv run python tests/examples/own_scores.py [FOLDER]

Every `# %%` begins a cell for editors that run scripts as notebooks. Nothing is downloaded; FOLDER (default
`own-scores`) gets the scores and what is measured of the shipped model. For a model of your own change the line with
`load_model`. Half a minute on one core; needs captum.
"""

# %% Load: a model and a few windows of text
from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import torch
from captum.attr import LayerIntegratedGradients
from safetensors.torch import save_file
from torch import Tensor

from engine import audit_scores, load_model, windows
from engine.run.audit_plan import preset

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "own-scores")
folder.mkdir(parents=True, exist_ok=True)
loaded = load_model("demo")
model, layers = loaded.model, loaded.rows.layers  # layers: the Linears of all decoder blocks, by name
text = windows("demo", loaded.tokenizer, role="calibration", samples=4, length=48).input_ids


# %% Captum: integrated gradients of every Linear's output, mean of absolute values over tokens
def loss(tokens: Tensor) -> Tensor:
    """Summed next-token loss of each window. [B, T] to [B]"""
    logits = model(input_ids=tokens, use_cache=False).logits[:, :-1]
    return torch.nn.functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none").sum(1)


def by_captum(tokens: Tensor) -> dict[str, Tensor]:
    found = {}
    for layer in layers:
        method = LayerIntegratedGradients(loss, model.get_submodule(layer.name))
        values = method.attribute(tokens, baselines=torch.zeros_like(tokens), n_steps=4)  # [B, T, rows]
        found[layer.name] = values.abs().mean((0, 1)).detach()
    return found


draws = [by_captum(text[:2]), by_captum(text[2:])]  # of disjoint windows: are the scores stable?
save_file(draws[0], folder / "captum.safetensors")  # for `selector-audit analyze demo --scores captum=FILE`

# %% A hook: the mean absolute output of every Linear, and its inputs' for below
by_hook: dict[str, Tensor] = {}
inputs_of: dict[str, Tensor] = {}


def keep(name: str, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    by_hook[name], inputs_of[name] = output.abs().mean((0, 1)), inputs[0].abs().mean((0, 1))


hooks = [
    model.get_submodule(layer.name).register_forward_hook(lambda _, *seen, name=layer.name: keep(name, *seen))
    for layer in layers
]
with torch.no_grad():
    model(input_ids=text, use_cache=False)
for hook in hooks:
    hook.remove()

# %% TransformerLens: activations under its names are taken as they are (`engine.selectors.other_names`)
MODULES = {
    "attn.hook_q": "self_attn.q_proj",
    "attn.hook_k": "self_attn.k_proj",
    "attn.hook_v": "self_attn.v_proj",
    "hook_attn_out": "self_attn.o_proj",
    "hook_mlp_out": "mlp.down_proj",
}
size = model.config.head_dim
cached = {}  # as `run_with_cache` would name them, from this model's own modules
for block in range(loaded.rows.n_blocks):
    part = f"model.layers.{block}"
    cached[f"blocks.{block}.mlp.hook_post"] = inputs_of[f"{part}.mlp.down_proj"]
    for hook, module in MODULES.items():
        values = by_hook[f"{part}.{module}"]
        cached[f"blocks.{block}.{hook}"] = values.view(-1, size) if hook.startswith("attn.") else values

# %% The verdict: rows are removed by these scores, and by random, magnitude and wanda
plan = preset("demo")
plan = replace(plan, scoring=replace(plan.scoring, samples=16, length=48), eval_samples=8, eval_length=48)
plan = replace(plan, stability_sizes=(4, 8), calibration_draws=2)
audited = audit_scores(loaded, {"captum": draws, "hook": by_hook, "lens": cached}, plan=plan, store=folder / "store")
print(audited)
for selector, reasons in audited.verdict.select("selector", "reasons").iter_rows():
    print(f"{selector}: {reasons}")
