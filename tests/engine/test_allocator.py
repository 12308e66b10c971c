"""Memory that a pass frees stays with the process; whoever set the allocator up is not overruled."""

import subprocess
import sys

import pytest

from engine.models import memory

needs_glibc = pytest.mark.skipif(memory.glibc() is None, reason="another C library")
# Two blocks at a time, as a pass has several tensors; 48 MiB are above glibc's own largest limit.
COUNTED = """
import resource, sys
import torch
from engine.models.memory import give_back_freed_memory, keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        blocks = [torch.full((12 * 2**20,), 1.0) for _ in range(2)]
        del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    return next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") if line.startswith("VmRSS"))

plain = faults()
kept = keep_freed_memory({"GLIBC_TUNABLES": "glibc.malloc.check=0"} if "told" in sys.argv else {})
for _ in range(4):  # the heap grows until freed blocks lie side by side: how soon hangs on where it begins
    faults()
full = resident()
again = faults()
give_back_freed_memory()
print(plain, kept, again, full - resident())
"""


def counted(*arguments: str) -> list[str]:
    found = subprocess.run([sys.executable, "-c", COUNTED, *arguments], capture_output=True, text=True, check=True)
    return found.stdout.split()


@pytest.mark.long  # a fresh process that imports torch
@needs_glibc
def test_freed_memory_is_used_again_and_can_be_given_back() -> None:
    plain, kept, again, given_back = counted()
    assert kept == "True"
    assert int(plain) > 100 * int(again), "no page is cleared again"
    assert int(given_back) > 80, "MiB, of the 96 that were kept"


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_"])
def test_a_variable_of_the_users_is_a_setting(name: str) -> None:
    assert not memory.keep_freed_memory({name: "1"})
