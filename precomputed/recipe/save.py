"""Write a trained model in the Hugging Face layout: bf16 safetensors, tokenizer, chat template, generation config."""

from __future__ import annotations

import copy
from pathlib import Path

from transformers import GenerationConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from precomputed.recipe.tokenizer import save_tokenizer


def save_model(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Save with weights rounded to bf16; everything that is measured is measured on these."""
    rounded = copy.deepcopy(model).bfloat16()
    rounded.config.use_cache = True
    rounded.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        do_sample=False,
        max_new_tokens=60,
    )
    folder.mkdir(parents=True, exist_ok=True)
    rounded.save_pretrained(folder, safe_serialization=True)
    save_tokenizer(tokenizer, folder)
