"""Passes of the engine on a card that is not there: which tensor lies on the wrong device, and how much is held.

    python pretend_device.py FOLDER                     every pass of a checkpoint, a line of JSON for each
    python pretend_device.py FOLDER --fault scoring     the same with a tensor of the host in the middle of the model

Run as a process of its own, since a backend cannot be taken back and an error in a backward pass ends the process.
Tensors have shapes, types and devices but no numbers (torch's FakeTensor). A fake `cuda` will not do where torch was
built without CUDA: a product works, but gradients and some ways to index ask for the device's stream, and torch 2.13
ends the process or refuses. `pretend` is a backend that torch lets Python declare, and has all that is needed but a
kernel that makes tensors of lists, which come from the host here. It has no fused attention, which is replaced by a
function that keeps what such a kernel keeps.
"""

import argparse
import json
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves
from window_nll import window_nll

from engine.data.corpora import Windows
from engine.edits.edit import UNEDITED, Edit, edit_of
from engine.interventions import at_outputs as outputs_module
from engine.interventions.at_outputs import applied, edited_outputs
from engine.measures.fidelity import Fidelity
from engine.measures.generation import _Decoder
from engine.measures.nll import Nll, predicted_nll
from engine.measures.predictions import LOGIT_BUDGET, in_pieces, predictions
from engine.models.loading import LoadedModel, load_sketch
from engine.run.audit_plan import AuditPlan, ScorePlan
from engine.run.edited_passes import ENOUGH_TOKENS, token_values_under
from engine.run.refusal_plan import RefusalPlan
from engine.run.run_estimate import estimate
from engine.selectors.gradients import relevances
from engine.selectors.passes import objective_gradient
from engine.selectors.window_sums import window_statistics

KIND = "pretend"
WINDOWS, LENGTH = 4, 48
# What `estimate` calls a pass -> what is asked of it here.
GRADIENTS = {"lrp": ["lrp"], "plain gradients": ["grad_x_input"], "integrated gradients": ["ig"]}


class Held(TorchDispatchMode):
    """Bytes of the storages that are alive on a kind of device, and their peak; how often the host asks for numbers."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.now, self.peak, self.asked = kind, 0, 0, 0
        self._alive: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor) and leaf.device.type == self.kind:
                self._add(leaf)
        there = any(isinstance(leaf, Tensor) and leaf.device.type == self.kind for leaf in tree_leaves((args, kwargs)))
        if there and any(isinstance(leaf, Tensor) and leaf.device.type == "cpu" for leaf in tree_leaves(out)):
            self.asked += 1  # the device is waited for
        return out

    def _add(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self._alive:
            return

        def gone(_: object) -> None:
            self._alive.pop(key, None)
            self.now -= size

        self._alive[key] = weakref.ref(storage, gone)
        self.now += size
        self.peak = max(self.peak, self.now)


class Attention(torch.autograd.Function):
    """Keeps what a fused kernel keeps for its backward pass."""

    @staticmethod
    def forward(context: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        out = query.new_empty(*query.shape[:-1], value.shape[-1])
        sums = query.new_empty(query.shape[:-1], dtype=torch.float32)
        context.save_for_backward(query, key, value, out, sums)
        return out

    @staticmethod
    def backward(context: Any, *_: Tensor) -> Any:
        return tuple(torch.empty_like(kept) for kept in context.saved_tensors[:3])


def attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, **_: Any) -> Any:
    places = {one.device for one in (query, key, value, attn_mask) if one is not None}
    if len(places) > 1:
        raise RuntimeError(f"Expected all tensors to be on the same device, got {places} in attention")
    return Attention.apply(query, key, value)


def from_the_host(*given: Any, device: Any = None, tensor: Any = torch.tensor, **more: Any) -> Tensor:
    made: Any = tensor(*given, **more)
    made.constant = None  # else torch computes with its numbers, on a device that has none
    moved: Tensor = made if device is None else made.to(device)
    return moved


def sketch_of(folder: str) -> LoadedModel:
    return load_sketch(folder, dtype="bfloat16", device="cpu")


@contextmanager
def pretended(folder: str) -> Iterator[tuple[LoadedModel, Held]]:
    """The model on the device that is not there."""
    sketch, held = sketch_of(folder), Held(KIND)
    shaped = sketch.model.to(torch.bfloat16)
    tied = shaped.config.get_text_config().tie_word_embeddings
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, held, masks_with_numbers(mode):
        model = shaped.to_empty(device=KIND)
        if tied:
            model.get_output_embeddings().weight = model.get_input_embeddings().weight
        names = ("id", "revision", "weights_hash", "config_hash", "tokenizer_hash")
        about = {name: getattr(sketch, name) for name in names}
        yield LoadedModel(model, sketch.tokenizer, sketch.rows, dtype="bfloat16", device=KIND, **about), held


@contextmanager
def masks_with_numbers(mode: FakeTensorMode) -> Iterator[None]:
    """Which Linears an edit touches is looked up in masks of the host, which have numbers; then they are as others."""
    usual = outputs_module._parts_of_layers

    def found(*given: Any) -> Any:
        with _disable_current_modes():
            layers = list(usual(*given))
        for _, parts in layers:
            for part in parts:
                part.edited = mode.from_tensor(part.edited)
        return layers

    outputs_module._parts_of_layers = found  # type: ignore[assignment]
    try:
        yield
    finally:
        outputs_module._parts_of_layers = usual


def put_a_fault(model: nn.Module, at: str) -> None:
    """Something of the host meets the output of a Linear, or the gradient there."""
    linear = model.get_submodule("model.layers.1.mlp.down_proj")

    def forward(_module: nn.Module, _args: Any, output: Tensor) -> Tensor:
        return output + torch.ones(output.shape[-1], dtype=output.dtype)

    def backward(_module: nn.Module, _args: Any, output: Tensor) -> None:
        if output.requires_grad:
            output.register_hook(lambda gradient: gradient * torch.ones(gradient.shape[-1], dtype=gradient.dtype))

    linear.register_forward_hook(backward if at == "backward" else forward)


def gradients(loaded: LoadedModel, ids: Tensor, methods: Sequence[Any]) -> None:
    sums: dict[int, Tensor] = {}

    def reduce(_: Any, layer: int, values: Tensor) -> None:
        sums[layer] = values.abs().sum((0, 1))

    def gradient_of(logits: Tensor) -> Tensor:
        return objective_gradient(logits, ids, "loss")

    mask = torch.ones_like(ids) if methods == ["gradient"] else None  # as prompts have one
    relevances(methods, loaded.model, loaded.rows, ids, gradient_of, reduce, mask)
    torch.cat([sums[layer.index].cpu() for layer in loaded.rows.layers])


def edits(loaded: LoadedModel) -> list[Edit]:
    n_rows = loaded.rows.n_rows
    return [edit_of(np.arange(0, n_rows, step), n_rows) for step in (2, 7)]


def sweep(loaded: LoadedModel, ids: Tensor) -> dict[str, Callable[[], object]]:
    def in_weights() -> None:
        with applied(loaded, edits(loaded)[0]):
            window_nll(loaded.model, ids)

    def at_outputs() -> None:
        with edited_outputs(loaded, edits(loaded)) as outputs, outputs.sequences([0, 1, 0, 1]):
            window_nll(loaded.model, ids)

    def pieces() -> None:
        usual = LOGIT_BUDGET["cpu"]
        LOGIT_BUDGET["cpu"] = ids.shape[1] * loaded.model.config.get_text_config().vocab_size // 2
        try:
            assert in_pieces(loaded.model, "cpu", ids.shape[1])
            with torch.no_grad():
                given = {"input_ids": ids.to(loaded.device)}
                predicted_nll(predictions(loaded.model, given, "cpu", check=False), ids[:, 1:])
        finally:
            LOGIT_BUDGET["cpu"] = usual

    def nll() -> None:  # as `window_nll` does, whose inference mode would hide parts of an operation from `Held`
        with torch.no_grad():
            predicted_nll(predictions(loaded.model, {"input_ids": ids.to(loaded.device)}), ids[:, 1:])

    tokens = Windows("pretended", "", ids, tuple(range(len(ids))))

    return {
        "nll": nll, "nll, windows": lambda: window_nll(loaded.model, ids),
        "nll, batches": lambda: token_values_under(loaded, Nll(tokens, 1), [UNEDITED]),
        "fidelity": lambda: token_values_under(loaded, Fidelity(tokens), edits(loaded)),
        "nll, rows removed in the weights": in_weights,
        "nll, rows removed at the outputs": at_outputs, "nll, logits in pieces": pieces,
    }  # fmt: skip


def replies(loaded: LoadedModel) -> None:
    """Prompts of several lengths under several edits: the first pass, steps with a cache, and fewer sequences."""
    with edited_outputs(loaded, edits(loaded)) as outputs:
        decoder = _Decoder(loaded, [[5] * 9, [6] * 4, [7] * 6], outputs, [0, 1, 0])
        for _ in range(3):
            decoder.next_tokens()
        decoder.keep_sequences([0, 2])
        decoder.next_tokens()


def told(folder: str) -> dict[str, int]:
    """What `estimate` says of passes of the same size."""
    peaks: dict[str, int] = {}
    # Beside ig, plain gradients and on the CPU activations have no pass of their own.
    for selectors in (("wanda", "lrp"), ("ig",), ("grad_x_input",)):
        scoring = ScorePlan(selectors=selectors, samples=WINDOWS, length=LENGTH, batch_size=WINDOWS)
        plan = AuditPlan(scoring=scoring, eval_samples=WINDOWS, eval_length=LENGTH, sweep_rates=(0.0,))
        found = estimate(sketch_of(folder), plan, RefusalPlan(), ["score", "sweep"])
        peaks |= {one.what if one.stage == "score" else "nll": one.peak_bytes for one in found.work}
    return peaks


def tell(found: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()  # before an error that ends the process


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--fault", choices=("scoring", "backward", "sweep", "generation"))
    parser.add_argument("--without", default="", help="comma-separated passes that are left out")
    args = parser.parse_args()
    # Before anything is differentiated: the autograd engine counts devices once.
    torch.utils.backend_registration._setup_privateuseone_for_python_backend(KIND)
    peaks = told(args.folder) if args.fault is None else {}
    torch.nn.functional.scaled_dot_product_attention = attention  # type: ignore[assignment]
    torch.tensor = from_the_host
    ENOUGH_TOKENS["cpu"] = 1024  # several edits in a pass: in the weights, whether an MLP keeps zero asks for a number

    def run(loaded: LoadedModel, held: Held, stage: str, passes: dict[str, Callable[[], object]]) -> None:
        for what, work in passes.items():
            if what in args.without.split(","):
                continue
            held.peak, held.asked = held.now, 0
            before = held.now
            try:
                work()
            except RuntimeError as error:
                tell({"stage": stage, "what": what, "error": str(error).splitlines()[0][:300]})
                continue
            found = {"stage": stage, "what": what, "peak_bytes": held.peak - before, "left_bytes": held.now - before}
            tell({**found, "estimate_bytes": peaks.get(what), "asked": held.asked})

    with pretended(args.folder) as (loaded, held):
        ids = torch.zeros(WINDOWS, LENGTH, dtype=torch.int64)
        if args.fault is not None:
            put_a_fault(loaded.model, args.fault)
        if args.fault in (None, "scoring", "backward"):
            scoring: dict[str, Callable[[], object]] = {"activations": lambda: window_statistics(loaded, ids)}
            scoring |= {name: partial(gradients, loaded, ids, asked) for name, asked in GRADIENTS.items()}
            scoring |= {"masked gradients": lambda: gradients(loaded, ids, ["gradient"])}
            run(loaded, held, "scoring", scoring)
        if args.fault in (None, "sweep"):
            run(loaded, held, "sweep", sweep(loaded, ids))
        if args.fault in (None, "generation"):
            run(loaded, held, "generation", {"replies": lambda: replies(loaded)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
