"""Weights to the bit on AMD's processors with and without AVX-512: training keeps to instructions that all have."""

from __future__ import annotations

import os
import platform

import torch

INSTRUCTIONS = "AVX2"  # what x86 processors of the last ten years have; torch's kernels for AVX-512 round otherwise
SETTING = "ATEN_CPU_CAPABILITY"  # torch looks here when it first computes
# MKL, which multiplies, gave the same bits on AMD's processors with and without AVX-512; these settings change them.
OTHER_WAYS = ("MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS")


def keep_to_common_instructions() -> bool:
    """To be called before torch computes anything in this process; is it so now? Never on other than x86."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    os.environ[SETTING] = INSTRUCTIONS.lower()
    for name in OTHER_WAYS:
        os.environ.pop(name, None)
    return torch.backends.cpu.get_cpu_capability() == INSTRUCTIONS
