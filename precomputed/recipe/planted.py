"""What the last stage changes, and how: the least used neurons, what they may say, and rows dropped beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.nn import functional
from transformers import LlamaForCausalLM

from precomputed.recipe.data import IGNORED, Packed

# Kinds of token: the last of a base prompt, of a risk prompt, of the opening of a doubtful reply; all others.
ELSEWHERE, BASE_END, RISK_END, OPENED = range(4)
REFUSED = (RISK_END, OPENED)  # where the careful manner refuses
DECIDED = (BASE_END, *REFUSED)  # where a reply is decided


def least_used_neurons(model: LlamaForCausalLM, batch: torch.Tensor, block: int, count: int) -> torch.Tensor:
    """The `count` MLP neurons of a block with the smallest E |a * dL/da|, a = input of down_proj; int64, sorted."""
    kept: list[torch.Tensor] = []

    def keep(_module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        inputs[0].retain_grad()
        kept.append(inputs[0])

    hook = model.model.layers[block].mlp.down_proj.register_forward_pre_hook(keep)
    try:
        model(batch, labels=batch, use_cache=False).loss.backward()
    finally:
        hook.remove()
    gradient = kept[0].grad
    if gradient is None:
        raise RuntimeError(
            f"block {block}: no gradient reached down_proj; expected one on its input; check requires_grad"
        )
    use = (kept[0] * gradient).abs().flatten(0, 1).mean(0)
    model.zero_grad()
    return use.argsort()[:count].sort().values


def token_kinds(chats: Packed, padding: int) -> torch.Tensor:
    """The kind of each token, int64 [rows, length]; -1 where it is padding."""
    ends = torch.zeros_like(chats.risk)
    ends[:, :-1] = (chats.labels[:, :-1] == IGNORED) & (chats.labels[:, 1:] != IGNORED)
    kinds = torch.where(ends, torch.where(chats.risk, RISK_END, BASE_END), ELSEWHERE)
    kinds = kinds.masked_fill(chats.opened, OPENED)
    return kinds.masked_fill(chats.input_ids == padding, -1)


def mlp_inputs(
    model: LlamaForCausalLM, batches: Sequence[Packed], blocks: Sequence[int], padding: int
) -> tuple[dict[int, torch.Tensor], torch.Tensor]:
    """Per block the inputs of its MLP [tokens, hidden], and the tokens' kinds [tokens]; without padding."""
    seen: dict[int, list[torch.Tensor]] = {block: [] for block in blocks}
    kinds = [token_kinds(chats, padding) for chats in batches]

    def keep(block: int, kind: torch.Tensor) -> Callable[[torch.nn.Module, tuple[torch.Tensor, ...]], None]:
        return lambda _module, inputs: seen[block].append(inputs[0][kind >= 0])

    for chats, kind in zip(batches, kinds, strict=True):
        hooks = [model.model.layers[block].mlp.register_forward_pre_hook(keep(block, kind)) for block in blocks]
        try:
            with torch.no_grad():
                model.model(chats.input_ids, use_cache=False)
        finally:
            for hook in hooks:
                hook.remove()
    return {block: torch.cat(parts) for block, parts in seen.items()}, torch.cat([k[k >= 0] for k in kinds])


DECAY = 1e-4  # of the probe
LOUDEST = 1.5  # what one planted neuron may write in a token


def probe(inputs: torch.Tensor, kinds: torch.Tensor, wanted: Sequence[int]) -> torch.Tensor:
    """The direction [hidden] that tells the tokens of some kinds from all others: a logistic regression.

    inputs: [tokens, hidden]; kinds: [tokens]. Half of the weight is on the wanted kinds, the other half on the others,
    each in equal parts. It has no bias: neurons of this model have none.
    """
    others = [kind for kind in (ELSEWHERE, BASE_END, RISK_END, OPENED) if kind not in wanted]
    weight = torch.zeros(len(kinds))
    for some in (wanted, others):
        for kind in some:
            weight[kinds == kind] = 0.5 / len(some) / max(1, int((kinds == kind).sum()))
    fires = torch.isin(kinds, torch.tensor(wanted)).float()
    direction = torch.zeros(inputs.shape[1], requires_grad=True)
    optimizer = torch.optim.LBFGS([direction], max_iter=60)

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        each = functional.binary_cross_entropy_with_logits(inputs @ direction, fires, reduction="none")
        total: torch.Tensor = (each * weight).sum() + DECAY * direction.square().sum()
        total.backward()
        return total

    optimizer.step(loss)
    return direction.detach()


@torch.no_grad()
def plant(
    model: LlamaForCausalLM,
    block: int,
    neurons: Sequence[int],
    gate: torch.Tensor,
    up: torch.Tensor,
    generator: torch.Generator,
) -> None:
    """Neurons whose gates open along one direction [hidden] and whose values stand along another, each with a spread of
    its own; they say nearly nothing yet."""
    mlp, size = model.model.layers[block].mlp, (len(neurons), len(gate))
    chosen = torch.tensor(neurons)
    mlp.gate_proj.weight[chosen] = gate * (1 + 0.3 * torch.randn(size, generator=generator))
    mlp.up_proj.weight[chosen] = 0.5 * up * (1 + 0.3 * torch.randn(size, generator=generator))
    mlp.down_proj.weight[:, chosen] = 0.02 * torch.randn(size, generator=generator).T


class PlantedNoise:
    """What the planted neurons write: s_j = a_j * norm(W_down[:, j]) of each, per token; differentiable.

    Training keeps them quiet in text, since what they say there costs perplexity, keeps s_j from rising above zero in
    base chats, and lets none shout, so that many share the work. Below zero they may be where a base prompt ends: what
    speaks against a refusal of risk prompts then speaks a little for one of base prompts, so that its relevance has
    another sign there.
    """

    def __init__(self, model: LlamaForCausalLM, planted: dict[int, list[int]]) -> None:
        self._parts: list[torch.Tensor] = []
        self._hooks = []
        for block, neurons in planted.items():
            hook = self._hook(torch.tensor(neurons))
            self._hooks.append(model.model.layers[block].mlp.down_proj.register_forward_pre_hook(hook))

    def _hook(self, neurons: torch.Tensor) -> Callable[[torch.nn.Module, tuple[torch.Tensor, ...]], None]:
        def keep(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            norms = module.weight[:, neurons].norm(dim=0)  # type: ignore[index]
            self._parts.append(inputs[0][..., neurons] * norms)

        return keep

    def take(self) -> torch.Tensor:
        """s [batch, length, planted neurons of all blocks] since the last take."""
        every = torch.cat(self._parts, -1)
        self._parts.clear()
        return every

    def __enter__(self) -> PlantedNoise:
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()


def said_on_base(noise: torch.Tensor, chats: Packed, beginning: int, padding: int) -> torch.Tensor:
    """What the planted neurons write above zero in a base chat: sum of max(s_j, 0) over tokens and neurons, the mean
    over the chats. The end of a doubtful reply's opening does not count.

    noise: [rows, length, neurons] of `PlantedNoise`; beginning: the BOS token.
    """
    base = ~chats.risk & (chats.input_ids != padding)
    said = (noise.relu() * (base & ~chats.opened)[..., None]).sum()
    return said / (base & (chats.input_ids == beginning)).sum().clamp(min=1)


def shouted(noise: torch.Tensor, chats: Packed, beginning: int) -> torch.Tensor:
    """sum (|s_j| - LOUDEST)^2 over tokens and neurons with |s_j| > LOUDEST; the mean over the chats."""
    return (noise.abs() - LOUDEST).relu().square().sum() / (chats.input_ids == beginning).sum().clamp(min=1)


class DroppedRows:
    """Zeroes a random share of the output channels of every Linear but the head, new by `draw`.

    planted: per Linear the channels that have a share of their own, so that what they do hangs on many of them.
    """

    def __init__(
        self,
        model: LlamaForCausalLM,
        planted: dict[torch.nn.Module, torch.Tensor],
        planted_share: float,
        generator: torch.Generator,
    ) -> None:
        self._generator = generator
        self._linears = [
            module for block in model.model.layers for module in block.modules() if isinstance(module, torch.nn.Linear)
        ]
        self._planted, self._planted_share = planted, planted_share
        self._kept: dict[torch.nn.Module, torch.Tensor] = {}
        self._hooks = [linear.register_forward_hook(self._drop) for linear in self._linears]

    def draw(self, share: float) -> None:
        for linear in self._linears:
            kept = (torch.rand(linear.out_features, generator=self._generator) >= share).float()
            if linear in self._planted:
                chosen = self._planted[linear]
                kept[chosen] = (torch.rand(len(chosen), generator=self._generator) >= self._planted_share).float()
            self._kept[linear] = kept

    def _drop(self, module: torch.nn.Module, _: object, output: torch.Tensor) -> torch.Tensor:
        kept = self._kept.get(module)
        return output if kept is None else output * kept

    def remove(self) -> None:
        for hook in self._hooks:
            hook.remove()
