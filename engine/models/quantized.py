"""Checkpoints whose config.json says that their weights are packed (fp8, bitsandbytes, …): loaded as the numbers that
they stand for, where transformers unpacks them itself."""

import inspect
from typing import Any

import torch
from torch import nn

from engine.models.skeletons import first_line, quiet
from engine.records.errors import InputError

Json = dict[str, Any]


def unpacking(packed: Json, model_id: str) -> Json:
    """The `quantization_config` under which transformers unpacks the weights. Errors: InputError where it cannot."""
    from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING, AUTO_QUANTIZER_MAPPING
    from transformers.quantizers.base import HfQuantizer

    method = str(packed.get("quant_method", "an unknown method"))
    name = f"bitsandbytes_{4 if packed.get('load_in_4bit') else 8}bit" if method == "bitsandbytes" else method
    quantizer: Any = AUTO_QUANTIZER_MAPPING.get(name)
    settings: Any = AUTO_QUANTIZATION_CONFIG_MAPPING.get(name)
    if quantizer is None or settings is None:
        raise _not_here(model_id, method, "the installed transformers does not know this way")
    if "dequantize" in inspect.signature(settings).parameters:
        return {**packed, "dequantize": True}
    if quantizer._dequantize is HfQuantizer._dequantize:
        raise _not_here(model_id, method, "transformers has no `dequantize` for it")
    return packed


def unpacked(model: Any, skeleton: nn.Module, dtype: torch.dtype, method: str, model_id: str) -> Any:
    """The model with its weights as numbers of `dtype`. Errors: InputError where one of them is not such a number."""
    if getattr(model, "is_quantized", False):
        try:
            with quiet():
                model = model.dequantize()
        except Exception as error:
            raise failed(model_id, method, error) from None
    model.to(dtype)
    expected = {name: weight.shape for name, weight in skeleton.named_parameters()}
    numbers = {name: weight.shape for name, weight in model.named_parameters() if weight.dtype == dtype}
    if odd := sorted(expected.items() ^ numbers.items()):
        raise _not_here(model_id, method, f"{odd[0][0]} stays packed")
    return model


def failed(model_id: str, method: str, error: Exception) -> InputError:
    """Loading failed, which it may not elsewhere: on another device, or with a package that is missing here."""
    elsewhere = ", or unpack it on another machine: model.dequantize(), then model.save_pretrained(FOLDER)"
    return _not_here(model_id, method, first_line(error), elsewhere)


def _not_here(model_id: str, method: str, why: str, elsewhere: str = "") -> InputError:
    return InputError(
        f"{model_id} is quantized ({method}), and its weights cannot be unpacked here: {why}; give the unquantized "
        f"checkpoint{elsewhere}"
    )
