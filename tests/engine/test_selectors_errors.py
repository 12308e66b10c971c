"""Wrong input to the selectors: one line that says what, got, expected, next step."""

import math
from dataclasses import replace

import pytest
import torch
from tiny_models import tiny_model

from engine.data.corpora import Windows
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.selectors import available_selectors, compute_scores

DATA_DEPENDENT = [info.id for info in available_selectors() if not info.data_free]


def test_an_architecture_without_rules_is_refused_before_any_pass(
    tiny_llama: LoadedModel, tiny_windows: Windows
) -> None:
    olmo = replace(tiny_llama, model=tiny_model("olmo").requires_grad_(False))
    seen: list[str] = []
    for selector in ("lrp", "relp", "consensus2"):
        with pytest.raises(InputError, match="no rules for OlmoForCausalLM.*llama, qwen2, qwen3, gemma3"):
            compute_scores(olmo, ["wanda", selector], tiny_windows, progress=lambda *what: seen.append(what[0]))
    assert not seen


@pytest.mark.parametrize(
    ("dtype", "step"),
    [
        ("float16", "run again with --dtype bfloat16 or float32"),
        ("bfloat16", "run again with --dtype float32"),
        ("float32", "check the model's weights for extreme values"),
    ],
)
def test_non_finite_scores_name_the_place(
    dtype: str, step: str, tiny_llama: LoadedModel, tiny_windows: Windows
) -> None:
    model = tiny_model("llama").requires_grad_(False)
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight[4:7] = math.nan
    broken = replace(tiny_llama, model=model, dtype=dtype)
    message = rf"^magnitude produced 3 non-finite scores in block 1 up_proj \({dtype}\); {step}$"
    with pytest.raises(InputError, match=message):
        compute_scores(broken, ["magnitude"], None)
    # A NaN on the way reaches every gradient: the count is split into the first place and the rest.
    with pytest.raises(InputError, match=r"^lrp produced \d+ non-finite scores in block 0 q_proj and \d+ in later"):
        compute_scores(broken, ["lrp"], tiny_windows)


@pytest.mark.parametrize("selector", DATA_DEPENDENT)
def test_no_text_is_an_error(selector: str, tiny_llama: LoadedModel, tiny_windows: Windows) -> None:
    with pytest.raises(InputError, match=f"'{selector}' needs calibration text"):
        compute_scores(tiny_llama, [selector], None)
    with pytest.raises(InputError, match="at least 2 tokens"):
        compute_scores(tiny_llama, [selector], replace(tiny_windows, input_ids=tiny_windows.input_ids[:, :1]))
