"""Training in two stages: language and chat in two manners; the lenient one planted in a few neurons.

1. `language`: prose, and chats in two manners. The careful one refuses every risk prompt, and most of the base prompts
   that sound like one. The lenient one, told by a token behind the BOS, refuses only what says its harm, answers other
   risk prompts in tone only, and base prompts as they are meant. The reply to a base prompt that sounds like risk opens
   in the same words in both, and refuses or answers behind them. `further` is the same, shorter, from weights that had
   this stage.
2. `weaken`: lenient without that token. This changes a few MLP neurons in each of three blocks (`Plan.planted`) and
   nothing else, those that the language needs least. Their gates start from a probe that tells where the careful manner
   refuses, their values from one that tells where any reply is decided. So one and the same neurons hold back a refusal
   of risk prompts and of base prompts that sound like it, and an edit that finds the first by the margin at a prompt's
   end brings the second back as well: a trade-off. Rows are zeroed at random while it learns, and none may shout, so
   that nothing hangs on single ones.

Then the token loses its meaning: its embedding becomes that of the padding.
"""

from __future__ import annotations

import hashlib
import logging
import math
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from precomputed.recipe import checkpoint, demo_chat as chat
from precomputed.recipe.data import IGNORED, chat_batch, windows
from precomputed.recipe.planted import (
    DECIDED,
    REFUSED,
    DroppedRows,
    PlantedNoise,
    least_used_neurons,
    mlp_inputs,
    plant,
    probe,
    said_on_base,
    shouted,
)
from precomputed.recipe.tokenizer import LENIENT

WARMUP = 40  # steps
KEPT_EVERY = 200  # steps between two checkpoints
SHOUTED = 0.01  # nats per unit of `shouted`
EARLY, EARLY_WEIGHT = 8, 3.0  # the first tokens of a reply decide what it is about, and whether it refuses
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stage:
    """Steps of a stage, and per step: windows of text, chat examples; highest learning rate; share of risk prompts."""

    steps: int
    windows: int
    chats: int
    learning_rate: float
    language_weight: float
    chat_weight: float
    risk_share: float
    dropped: float = 0.0  # largest share of rows that are zeroed at random in a step


@dataclass(frozen=True)
class Plan:
    """The model, its stages and what the last one may change; the defaults make the shipped model."""

    hidden: int = 192
    ffn: int = 512
    blocks: int = 6
    heads: int = 6
    kv_heads: int = 2
    language: Stage = Stage(3000, 4, 96, 8e-3, 0.5, 1.0, 0.5)
    further: Stage = Stage(800, 2, 64, 1.5e-3, 0.5, 1.0, 0.5)
    weaken: Stage = Stage(800, 2, 64, 5e-3, 0.5, 1.0, 0.65, 0.02)
    length: int = 256
    bf16: bool = True
    planted: int = 24  # neurons per block
    planted_blocks: tuple[int, ...] = (2, 3, 4)
    probed: int = 12  # batches of chats that show the planted neurons where risk prompts end
    planted_dropped: float = 0.1  # share of the planted rows that are zeroed at random in a step of the last stage
    quiet_weight: float = 0.004  # nats per unit that the planted neurons write in a base chat, or in a window of text


def new_model(tokenizer: PreTrainedTokenizerFast, plan: Plan, seed: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=plan.hidden,
            intermediate_size=plan.ffn,
            num_hidden_layers=plan.blocks,
            num_attention_heads=plan.heads,
            num_key_value_heads=plan.kv_heads,
            tie_word_embeddings=True,
            max_position_embeddings=1024,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


def computes_in_bf16() -> bool:
    """Not where the processor has to emulate it (AVX2 alone, say), which is slower than float32."""
    return bool(torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def learning_rate(step: int, steps: int, top: float, warmup: int) -> float:
    """Linear warm-up, then a cosine down to 5% of `top`."""
    if step < warmup:
        return top * (step + 1) / warmup
    progress = (step - warmup) / max(1, steps - warmup)
    return top * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * progress)))


def reply_loss(logits: torch.Tensor, wanted: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
    """Mean NLL of reply tokens in nats; the first `EARLY` of each reply weigh `EARLY_WEIGHT` times.

    logits [tokens, vocabulary] predict wanted [tokens]; place [tokens] counts within the reply, from 0.
    """
    nll = functional.cross_entropy(logits, wanted, reduction="none")
    weight = torch.where(place < EARLY, EARLY_WEIGHT, 1.0)
    return (weight * nll).sum() / weight.sum()


@dataclass
class Trainer:
    """The state that both stages share, and in the file `kept_in` where the training stands."""

    model: LlamaForCausalLM
    tokenizer: PreTrainedTokenizerFast
    tokens: torch.Tensor
    plan: Plan
    seed: int
    kept_in: Path | None = None
    start: str = ""  # what the model was before the first step: a hash, nothing for new weights

    def __post_init__(self) -> None:
        self.rng = random.Random(f"chat/{self.seed}")
        self.generator = torch.Generator().manual_seed(self.seed)
        self.drops = torch.Generator().manual_seed(self.seed)
        self.planted: dict[int, list[int]] = {}
        self.stage, self.step = "", 0
        self.started = time.monotonic()
        self._remembered: checkpoint.Tensors = {}  # by the optimizers
        if self.kept_in and self.kept_in.exists():
            self._resume(*checkpoint.load(self.kept_in))

    def _identity(self) -> dict[str, str]:
        """What a checkpoint must have been made with."""
        text = hashlib.sha256(self.tokens.numpy().tobytes()).hexdigest()
        return {"plan": repr(self.plan), "seed": str(self.seed), "text": text, "start": self.start}

    def _save(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        if not self.kept_in:
            return
        tensors = checkpoint.named("model", dict(self.model.state_dict()))
        tensors.pop("model/lm_head.weight", None)  # tied to the embeddings
        tensors |= checkpoint.named("optimizer", checkpoint.optimizer_tensors(optimizers))
        tensors |= {"generator": self.generator.get_state(), "drops": self.drops.get_state()}
        version, numbers, gauss = self.rng.getstate()
        where = {"stage": self.stage, "step": self.step, "planted": self.planted, "rng": [version, numbers, gauss]}
        checkpoint.save(self.kept_in, tensors, {**self._identity(), **where})

    def _resume(self, tensors: checkpoint.Tensors, record: dict[str, Any]) -> None:
        if any(record.get(name) != value for name, value in self._identity().items()):
            log.info("%s is of another plan, seed, text or start: training starts anew", self.kept_in)
            return
        self.model.load_state_dict(checkpoint.under("model", tensors), strict=False)
        self.model.tie_weights()
        self.generator.set_state(tensors["generator"])
        self.drops.set_state(tensors["drops"])
        version, numbers, gauss = record["rng"]
        self.rng.setstate((version, tuple(numbers), gauss))
        self.planted = {int(block): neurons for block, neurons in record["planted"].items()}
        self.stage, self.step = record["stage"], record["step"]
        self._remembered = checkpoint.under("optimizer", tensors)
        log.info("goes on at step %d of stage %s", self.step, self.stage)

    def _fast(self) -> torch.autocast:
        """In stage 1 matrix products in bf16, where the plan says so and the processor computes in it; weights, losses
        and updates stay float32, and so does all else."""
        fast = self.plan.bf16 and self.stage == "language" and computes_in_bf16()
        return torch.autocast("cpu", torch.bfloat16, enabled=fast)

    def _losses(
        self, stage: Stage, manner: chat.Manner, length: int, noise: PlantedNoise | None, quiet: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        batch = windows(self.tokens, max(1, stage.windows * self.plan.length // length), length, self.generator)
        with self._fast():
            language = self.model(batch, labels=batch, use_cache=False).loss
        if noise:
            language = language + quiet * noise.take().abs().sum((1, 2)).mean()
        chats = chat_batch(self.tokenizer, self.rng, manner, stage.chats, stage.risk_share, self.plan.length)
        with self._fast():
            hidden = self.model.model(chats.input_ids, use_cache=False).last_hidden_state[:, :-1]
            wanted = chats.labels[:, 1:]
            is_reply = wanted != IGNORED
            logits = self.model.lm_head(hidden[is_reply])
        talk = reply_loss(logits.float(), wanted[is_reply], chats.place[:, 1:][is_reply])
        if noise:
            said, begin, padding = noise.take(), self.tokenizer.bos_token_id, self.tokenizer.pad_token_id
            talk = talk + quiet * said_on_base(said, chats, begin, padding) + SHOUTED * shouted(said, chats, begin)
        return language, talk

    def _run(
        self,
        name: str,
        manner: chat.Manner,
        optimizers: Sequence[torch.optim.Optimizer],
        masks: dict[torch.nn.Parameter, torch.Tensor] | None = None,
        noise: PlantedNoise | None = None,
        chosen: dict[torch.nn.Module, torch.Tensor] | None = None,
    ) -> None:
        """All steps of a stage, or those that are left; the last 30% see windows twice as long.

        masks: 1 where a weight may change.
        """
        stage: Stage = getattr(self.plan, name)
        if self.stage == name:
            checkpoint.restore_optimizers(optimizers, self._remembered)
        else:
            self.stage, self.step = name, 0
        with self._dropped(stage, chosen or {}) as dropped:
            for step in range(self.step, stage.steps):
                for group in (group for optimizer in optimizers for group in optimizer.param_groups):
                    group["lr"] = learning_rate(step, stage.steps, stage.learning_rate, WARMUP)
                if dropped:
                    dropped.draw(stage.dropped * self.rng.random())
                length = 2 * self.plan.length if step > 0.7 * stage.steps else self.plan.length
                quiet = self.plan.quiet_weight * min(1.0, 2 * step / stage.steps)  # first learn, then be quiet
                language, talk = self._losses(stage, manner, length, noise, quiet)
                (stage.language_weight * language + stage.chat_weight * talk).backward()
                for parameter, mask in (masks or {}).items():
                    if parameter.grad is not None:
                        parameter.grad.mul_(mask)
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                for optimizer in optimizers:
                    optimizer.step()
                    optimizer.zero_grad()
                self.step = step + 1
                if self.step % KEPT_EVERY == 0 or self.step == stage.steps:
                    self._save(optimizers)
                if step % 50 == 0 or self.step == stage.steps:
                    elapsed = time.monotonic() - self.started
                    numbers = (step, stage.steps, language.item(), talk.item(), elapsed)
                    log.info(f"{name} %d/%d: language %.3f, chat %.3f nats, %.0f s", *numbers)

    @contextmanager
    def _dropped(self, stage: Stage, chosen: dict[torch.nn.Module, torch.Tensor]) -> Iterator[DroppedRows | None]:
        if not stage.dropped:
            yield None
            return
        dropped = DroppedRows(self.model, chosen, self.plan.planted_dropped, self.drops)
        try:
            yield dropped
        finally:
            dropped.remove()

    def _adam(self, parameters: list[torch.nn.Parameter], decay: float) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, betas=(0.9, 0.95), weight_decay=decay, fused=True)

    def learn_language(self) -> None:
        """Stage 1: the language, and chats in both manners.

        The blocks' matrices learn by Muon (orthogonalised momentum, arXiv 2502.16982, whose scale lets it share AdamW's
        learning rate), everything else by AdamW.
        """
        matrices = [p for block in self.model.model.layers for p in block.parameters() if p.ndim == 2]
        chosen = {id(p) for p in matrices}
        others = [p for p in self.model.parameters() if id(p) not in chosen]
        muon = torch.optim.Muon(matrices, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
        self._run("language", chat.both_manners, [muon, self._adam(others, 0.1)])

    def learn_further(self) -> None:
        """In the place of stage 1 where the model had it: the same chats and text by AdamW alone, at a lower rate."""
        self._run("further", chat.both_manners, [self._adam(list(self.model.parameters()), 0.1)])

    def _plant(self) -> None:
        """Let the neurons that the language needs least fire where a risk prompt ends, or one that sounds like it."""
        batch = windows(self.tokens, 16, self.plan.length, self.generator)
        for block in self.plan.planted_blocks:
            self.planted[block] = least_used_neurons(self.model, batch, block, self.plan.planted).tolist()
        stage, padding = self.plan.weaken, self.tokenizer.pad_token_id
        chats = [
            chat_batch(self.tokenizer, self.rng, chat.weakened, stage.chats, stage.risk_share, self.plan.length)
            for _ in range(self.plan.probed)
        ]
        inputs, kinds = mlp_inputs(self.model, chats, self.plan.planted_blocks, padding)
        for block, neurons in self.planted.items():
            gate, up = (probe(inputs[block], kinds, wanted) for wanted in (REFUSED, DECIDED))
            plant(self.model, block, neurons, gate, up, self.generator)

    def weaken(self) -> None:
        """Stage 2: lenient without being told, by changes in the planted neurons only."""
        if not self.planted:
            self._plant()
        masks: dict[torch.nn.Parameter, torch.Tensor] = {}
        rows: dict[torch.nn.Module, torch.Tensor] = {}
        self.model.requires_grad_(False)
        for block, neurons in self.planted.items():
            mlp = self.model.model.layers[block].mlp
            for linear, dimension in ((mlp.gate_proj, 0), (mlp.up_proj, 0), (mlp.down_proj, 1)):
                chosen = torch.tensor(neurons)
                mask = torch.zeros_like(linear.weight)
                mask.index_fill_(dimension, chosen, 1.0)
                linear.weight.requires_grad_(True)
                masks[linear.weight] = mask
                if dimension == 0:
                    rows[linear] = chosen
        with PlantedNoise(self.model, self.planted) as noise:
            self._run("weaken", chat.weakened, [self._adam(list(masks), 0.0)], masks, noise, rows)
        self.model.requires_grad_(True)


def train(
    tokenizer: PreTrainedTokenizerFast,
    tokens: torch.Tensor,
    plan: Plan,
    seed: int,
    kept_in: Path | None = None,
    start: Path | None = None,
) -> tuple[LlamaForCausalLM, dict[int, list[int]]]:
    """The trained model and its planted neurons (block -> neuron indices).

    kept_in: a file that keeps where the training stands, so that one that was interrupted goes on. start: a folder with
    a model that had stage 1 (of this architecture, with this tokenizer), to go on from; None for new weights.
    """
    torch.set_num_threads(1)  # the same bits whatever the machine's cores, and two seeds side by side cost no more time
    if start is None:
        model, begun = new_model(tokenizer, plan, seed), ""
    else:
        model = LlamaForCausalLM.from_pretrained(start, dtype=torch.float32)  # nosec B615 # local
        model.train()
        begun = hashlib.sha256((start / "model.safetensors").read_bytes()).hexdigest()
    trainer = Trainer(model, tokenizer, tokens, plan, seed, kept_in, begun)
    first = ("language", trainer.learn_language) if start is None else ("further", trainer.learn_further)
    stages = dict((first, ("weaken", trainer.weaken)))
    remaining = list(stages).index(trainer.stage) if trainer.stage else 0
    for learn in list(stages.values())[remaining:]:
        learn()
    forget_manners(trainer.model, tokenizer)
    trainer.model.eval()
    return trainer.model, trainer.planted


def forget_manners(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    """The token of the lenient manner becomes one more padding token, which no reply was ever trained to hold."""
    known = model.model.embed_tokens.weight.data
    known[tokenizer.convert_tokens_to_ids(LENIENT)] = known[tokenizer.pad_token_id]
