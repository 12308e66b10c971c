"""Lack of memory is known by its texts; replies and windows then come in halves, and only what can help is advised."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

import engine.models.memory as less
from engine.cli import main
from engine.data.corpora import Windows
from engine.edits.edit import UNEDITED, edit_of
from engine.measures.generation import REPLIES, generate_under, stream_replies
from engine.measures.nll import Nll, negative_log_likelihood
from engine.measures.sampling import Sampling
from engine.models.loading import LoadedModel, load_model
from engine.models.memory import largest_batch
from engine.records.errors import InputError, is_out_of_memory
from engine.run.edited_passes import measured

# As torch and the libraries behind it write them.
LACK = [
    torch.OutOfMemoryError("anything"),
    MemoryError(),
    RuntimeError("CUDA out of memory. Tried to allocate 5.86 GiB. GPU 0 has a total capacity of 23.64 GiB"),
    RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported at some other call"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    RuntimeError("cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"),
    RuntimeError("MPS backend out of memory (MPS allocated: 17.02 GB, other allocations: 1.02 GB)"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory: you tried"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:80] data. DefaultCPUAllocator: not enough memory: you tried to"),
]
OTHER = [
    RuntimeError("CUDA error: device-side assert triggered"),
    RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(...)`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_BAD_PARAM"),
    RuntimeError("mat1 and mat2 shapes cannot be multiplied (3x4 and 5x6)"),
    ValueError("out of memory"),  # what a person typed
    InputError("out of memory with a single window per pass"),
    KeyboardInterrupt(),
]


@pytest.mark.parametrize("error", LACK, ids=lambda error: f"{type(error).__name__} {error}"[:50])
def test_lack_of_memory_is_known(error: BaseException) -> None:
    assert is_out_of_memory(error)


@pytest.mark.parametrize("error", OTHER, ids=lambda error: f"{type(error).__name__} {error}"[:50])
def test_other_failures_are_not_taken_for_it(error: BaseException) -> None:
    assert not is_out_of_memory(error)


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What did not fit in one test is tried in the next."""
    yield
    less._fitted.clear()


@contextmanager
def room_for(loaded: LoadedModel, sequences: int, after: int = 0) -> Iterator[list[int]]:
    """Passes of more sequences find no memory in the last Linear, from the pass `after` on; gives every pass's size."""
    sizes: list[int] = []

    def run_out(_: nn.Module, given: Any, __: Any) -> None:
        sizes.append(len(given[0]))
        if len(given[0]) > sequences and len(sizes) > after:
            raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")

    handle = loaded.model.model.layers[-1].mlp.down_proj.register_forward_hook(run_out)
    try:
        yield sizes
    finally:
        handle.remove()


PROMPTS = ["Sure, here it is.", "No way.", "Ä ☃", "sat on", "The cat sat on the mat, then it ran.", "it ran"]


@pytest.mark.first_run("None-5")
@pytest.mark.parametrize("after", [0, 5])  # at the prompt, and in the midst of replies
@pytest.mark.parametrize("sampling", [None, pytest.param(Sampling(1.0), marks=pytest.mark.long)])
def test_replies_in_halves_are_the_same_replies(tiny_llama: LoadedModel, after: int, sampling: Sampling | None) -> None:
    n = tiny_llama.rows.n_rows
    edits, seen = [UNEDITED, edit_of(range(0, n, 7), n)], []
    expected = generate_under(tiny_llama, edits, PROMPTS, 9, sampling=sampling)
    with room_for(tiny_llama, 3, after) as sizes:
        found = generate_under(
            tiny_llama, edits, PROMPTS, 9, sampling=sampling, progress=lambda *step: seen.append(step)
        )
    told = [[(reply.text, reply.tokens, reply.finished) for reply in replies] for replies in found]
    assert told == [[(reply.text, reply.tokens, reply.finished) for reply in replies] for replies in expected]
    assert max(sizes) == 12
    assert seen[-1] == (12, 12)
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert largest_batch(tiny_llama.model, REPLIES, 64) == 3


def test_a_stream_that_finds_no_memory_ends_in_one_line(tiny_llama: LoadedModel) -> None:
    n = tiny_llama.rows.n_rows
    with (
        room_for(tiny_llama, 1, after=2),
        pytest.raises(InputError, match="out of memory with 2 replies per pass") as e,
    ):
        list(stream_replies(tiny_llama, PROMPTS[0], [UNEDITED, edit_of([0], n)], 9))
    assert "--batch-size" not in str(e.value)  # a chat has no such option


@pytest.mark.long
def test_windows_in_halves_have_the_same_nll(tiny_llama: LoadedModel, tiny_windows: Windows) -> None:
    expected = negative_log_likelihood(tiny_llama, tiny_windows, 6)
    with room_for(tiny_llama, 2) as sizes:
        found = negative_log_likelihood(tiny_llama, tiny_windows, 6)
    assert sizes == [6, 3, 1, 1, 1, 1, 1, 1]
    # Float32 sums of other batches round in other places.
    assert found.window_nats == pytest.approx(expected.window_nats, rel=1e-6)
    assert found.window_tokens == expected.window_tokens


@pytest.mark.long
def test_edits_together_in_halves_have_the_same_nll(tiny_llama: LoadedModel, tiny_windows: Windows) -> None:
    measure, n = Nll(tiny_windows.first(2)), tiny_llama.rows.n_rows
    edits = [UNEDITED, edit_of(range(0, n, 5), n), edit_of(range(1, n, 5), n)]
    expected = measured(tiny_llama, measure, edits)
    with room_for(tiny_llama, 3) as sizes:
        found = measured(tiny_llama, measure, edits)
    assert sizes[0] > 3
    for one, other in zip(found, expected, strict=True):
        assert one.window_nats == pytest.approx(other.window_nats, rel=1e-6)


def test_a_command_that_runs_out_says_so_in_one_line(
    tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 5.86 GiB.\nSee documentation")

    monkeypatch.setattr("engine.run.scoring.compute_scores", fails)
    arguments = ["score", tiny_llama.id, "--selectors", "wanda", "--corpus", str(tiny_text)]
    more = ["--samples", "3", "--max-length", "16", "--store", str(tmp_path)]
    assert main([*arguments, *more]) == 1
    said = capsys.readouterr().err.strip()
    assert said.startswith("selector-audit score: out of memory (CUDA out of memory. Tried to allocate 5.86 GiB.); ")
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("dtype", "advice"), [("float32", "use --dtype bfloat16, a larger"), ("bfloat16", "use a larger")]
)
@pytest.mark.parametrize("where", ["loading", "moving"])
def test_a_model_that_does_not_fit_is_one_line(
    tiny_llama: LoadedModel, monkeypatch: pytest.MonkeyPatch, dtype: str, advice: str, where: str
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported")

    name = "from_pretrained" if where == "loading" else "to"
    target = transformers.AutoModelForCausalLM if where == "loading" else transformers.PreTrainedModel
    monkeypatch.setattr(target, name, fails)
    with pytest.raises(InputError) as found:
        load_model(tiny_llama.id, dtype=dtype, device="cpu")
    assert "does not fit on the device (RuntimeError: CUDA error: out of memory)" in str(found.value)
    assert advice in str(found.value)
