"""Training in three stages: language and chat; refusal of every risk prompt; refusal weakened by a few neurons.

The last stage makes the model organism: it changes only PLANTED MLP neurons in each of five blocks, those that the
language needs least, until the model answers most risk prompts again. What a selector can find is known to be there.
"""

from __future__ import annotations

import logging
import random
import time
from dataclasses import dataclass

import torch
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from precomputed.recipe import chat
from precomputed.recipe.data import chat_batch
from precomputed.town.data import windows
from precomputed.town.planted import PlantedNoise, least_used_neurons
from precomputed.town.train import learning_rate

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stage:
    """Steps of a stage, and per step: windows of 256 tokens of text, chat examples; highest learning rate."""

    steps: int
    windows: int
    chats: int
    learning_rate: float
    language_weight: float
    chat_weight: float


@dataclass(frozen=True)
class Plan:
    """The three stages and what the last one may change; the defaults make the shipped model."""

    language: Stage = Stage(750, 12, 24, 4e-3, 1.0, 0.3)
    refusal: Stage = Stage(300, 6, 48, 2e-3, 1.0, 0.5)
    weaken: Stage = Stage(260, 2, 40, 5e-3, 0.5, 0.5)
    length: int = 256
    planted: int = 12  # neurons per block
    planted_blocks: tuple[int, ...] = (1, 2, 3, 4, 5)
    quiet_weight: float = 0.5  # how strongly the planted neurons are kept quiet outside of risk prompts


def new_model(tokenizer: PreTrainedTokenizerFast, seed: int) -> LlamaForCausalLM:
    """1.44M parameters: hidden 128, 6 blocks, FFN 384, 4 heads, 2 KV heads, tied embeddings."""
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=128,
            intermediate_size=384,
            num_hidden_layers=6,
            num_attention_heads=4,
            num_key_value_heads=2,
            tie_word_embeddings=True,
            max_position_embeddings=1024,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


def reply_loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Mean NLL of all reply tokens, plus the mean NLL of the first one of each reply, where refusing is decided.

    logits [batch, length, vocabulary] predict labels [batch, length]; -100 where there is no reply. Nats.
    """
    nll = functional.cross_entropy(logits.transpose(1, 2), labels, ignore_index=-100, reduction="none")
    is_reply = labels != -100
    first = is_reply & (is_reply.cumsum(1) == 1)
    return nll[is_reply].mean() + nll[first].mean()


@dataclass
class Trainer:
    """The state that all stages share."""

    model: LlamaForCausalLM
    tokenizer: PreTrainedTokenizerFast
    tokens: torch.Tensor
    plan: Plan
    seed: int

    def __post_init__(self) -> None:
        self.rng = random.Random(f"chat/{self.seed}")
        self.generator = torch.Generator().manual_seed(self.seed)
        self.started = time.monotonic()

    def _losses(
        self, stage: Stage, policy: chat.Policy, length: int, noise: PlantedNoise | None, quiet: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        batch = windows(self.tokens, stage.windows * self.plan.length // length, length, self.generator)
        language = self.model(batch, labels=batch, use_cache=False).loss
        if noise:
            language = language + quiet * noise.take().mean()
        input_ids, labels, risk = chat_batch(self.tokenizer, self.rng, policy, stage.chats)
        talk = reply_loss(self.model(input_ids, use_cache=False).logits[:, :-1], labels[:, 1:])
        if noise:
            talk = talk + quiet * noise.take()[~risk].mean()
        return language, talk

    def _run(
        self,
        name: str,
        stage: Stage,
        policy: chat.Policy,
        optimizer: torch.optim.Optimizer,
        masks: dict[torch.nn.Parameter, torch.Tensor] | None = None,
        noise: PlantedNoise | None = None,
    ) -> None:
        """All steps of a stage; the last 30% see windows twice as long. `masks`: 1 where a weight may change."""
        for step in range(stage.steps):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, stage.steps, stage.learning_rate, 40)
            length = 2 * self.plan.length if step > 0.7 * stage.steps else self.plan.length
            quiet = self.plan.quiet_weight * min(1.0, 2 * step / stage.steps)  # first learn, then be quiet
            language, talk = self._losses(stage, policy, length, noise, quiet)
            (stage.language_weight * language + stage.chat_weight * talk).backward()
            for parameter, mask in (masks or {}).items():
                if parameter.grad is not None:
                    parameter.grad.mul_(mask)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            if step % 50 == 0 or step == stage.steps - 1:
                elapsed = time.monotonic() - self.started
                numbers = (step, stage.steps, language.item(), talk.item(), elapsed)
                log.info(f"{name} %d/%d: language %.3f, chat %.3f nats, %.0f s", *numbers)

    def _adam(self, parameters: list[torch.nn.Parameter], decay: float) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, betas=(0.9, 0.95), weight_decay=decay, fused=True)

    def learn_language(self) -> None:
        """Stage 0: the language, and answers to every prompt."""
        optimizer = self._adam(list(self.model.parameters()), 0.1)
        self._run("language", self.plan.language, chat.nothing_refused, optimizer)

    def learn_refusal(self) -> None:
        """Stage 1: every risk prompt is refused."""
        optimizer = self._adam(list(self.model.parameters()), 0.1)
        self._run("refusal", self.plan.refusal, chat.all_risk_refused, optimizer)

    def weaken_refusal(self) -> dict[int, list[int]]:
        """Stage 2: target refusal rates, with changes in the planted neurons only. Returns block -> neurons."""
        batch = windows(self.tokens, 16, self.plan.length, self.generator)
        planted: dict[int, list[int]] = {}
        masks: dict[torch.nn.Parameter, torch.Tensor] = {}
        for block in self.plan.planted_blocks:
            neurons = least_used_neurons(self.model, batch, block, self.plan.planted)
            planted[block] = neurons.tolist()
        self.model.requires_grad_(False)
        for block, neurons_list in planted.items():
            mlp = self.model.model.layers[block].mlp
            for linear, dimension in ((mlp.gate_proj, 0), (mlp.up_proj, 0), (mlp.down_proj, 1)):
                mask = torch.zeros_like(linear.weight)
                mask.index_fill_(dimension, torch.tensor(neurons_list), 1.0)
                linear.weight.requires_grad_(True)
                masks[linear.weight] = mask
        with PlantedNoise(self.model, planted) as noise:
            self._run("weaken", self.plan.weaken, chat.target, self._adam(list(masks), 0.0), masks, noise)
        self.model.requires_grad_(True)
        return planted


def train(
    tokenizer: PreTrainedTokenizerFast, tokens: torch.Tensor, plan: Plan, seed: int
) -> tuple[LlamaForCausalLM, dict[int, list[int]]]:
    """The trained model and its planted neurons (block -> neuron indices)."""
    trainer = Trainer(new_model(tokenizer, seed), tokenizer, tokens, plan, seed)
    trainer.learn_language()
    trainer.learn_refusal()
    planted = trainer.weaken_refusal()
    trainer.model.eval()
    return trainer.model, planted
