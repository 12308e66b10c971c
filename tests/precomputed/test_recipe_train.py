"""The three stages: labels, planted neurons, and that the last stage changes nothing else."""

from __future__ import annotations

import random

import pytest
import torch

from precomputed.recipe import behaviour, chat, data, language
from precomputed.recipe.chat import Example
from precomputed.recipe.train import Plan, Stage, Trainer, new_model
from precomputed.town.data import stream, windows
from precomputed.town.planted import PlantedNoise, least_used_neurons
from precomputed.town.save import save_model
from precomputed.town.tokenizer import END, train_tokenizer


@pytest.fixture(scope="module")
def tokenizer():
    torch.set_num_threads(1)
    documents = language.corpus(12, 60_000, behaviour.subjects(), set())
    rng = random.Random(0)
    talk = [e.prompt + e.reply for e in (chat.example(rng, chat.target) for _ in range(300))]
    return train_tokenizer(documents + talk)


@pytest.fixture(scope="module")
def tokens(tokenizer):
    return stream(tokenizer, language.corpus(13, 30_000, behaviour.subjects(), set()))


def test_stream_is_the_documents_with_blank_lines(tokenizer):
    assert tokenizer.decode(stream(tokenizer, ["One two.", "Three."])) == "One two.\n\nThree.\n\n"


def test_labels_stand_on_the_reply_only(tokenizer):
    input_ids, labels = data.encode(
        tokenizer, [Example("Why?", "Sure, so it is."), Example("A longer prompt here?", "No.")]
    )
    for row, reply in zip(range(2), ("Sure, so it is.", "No."), strict=True):
        kept = labels[row] != -100
        assert torch.equal(input_ids[row][kept], labels[row][kept])
        assert tokenizer.decode(labels[row][kept]) == reply + END


def test_training_text_is_the_chat_template(tokenizer):
    (ids,), _ = data.encode(tokenizer, [Example("Why?", "So.")])
    turns = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}]
    assert tokenizer.apply_chat_template(turns, tokenize=True, return_dict=True)["input_ids"] == ids.tolist()


def test_least_used_neurons_are_those_without_effect(tokenizer, tokens):
    model = new_model(tokenizer, 0)
    idle = [3, 50, 200]
    with torch.no_grad():
        model.model.layers[2].mlp.down_proj.weight[:, idle] = 0
    batch = windows(tokens, 2, 32, torch.Generator().manual_seed(0))
    assert least_used_neurons(model, batch, 2, 3).tolist() == idle


def test_weakening_changes_planted_neurons_only(tokenizer, tokens):
    plan = Plan(weaken=Stage(2, 2, 2, 4e-3, 1.0, 1.0), length=32, planted=4, planted_blocks=(1, 3))
    trainer = Trainer(new_model(tokenizer, 0), tokenizer, tokens, plan, 0)
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    planted = trainer.weaken_refusal()
    assert set(planted) == {1, 3}
    changed = set()
    for name, value in trainer.model.state_dict().items():
        difference = value != before[name]
        if not difference.any():
            continue
        block, projection = int(name.split(".")[2]), name.split(".")[4]
        changed.add((block, projection))
        axis = difference.any(0) if projection == "down_proj" else difference.any(1)
        assert axis.nonzero().flatten().tolist() == planted[block]
    assert changed == {(block, p) for block in (1, 3) for p in ("gate_proj", "up_proj", "down_proj")}


def test_saved_model_is_bf16_and_loads(tokenizer, tmp_path):
    from engine.models.loading import load_model

    model = new_model(tokenizer, 0)
    save_model(model, tokenizer, tmp_path)
    loaded = load_model(str(tmp_path), dtype="float32", device="cpu")
    weight = model.model.layers[0].mlp.gate_proj.weight.detach()
    assert torch.equal(loaded.model.model.layers[0].mlp.gate_proj.weight, weight.to(torch.bfloat16).float())
    assert loaded.model.generation_config.eos_token_id == tokenizer.eos_token_id


def test_noise_is_what_the_planted_neurons_write(tokenizer, tokens):
    model = new_model(tokenizer, 0)
    batch = windows(tokens, 2, 8, torch.Generator().manual_seed(0))
    inputs = []
    mlp = model.model.layers[2].mlp
    mlp.down_proj.register_forward_pre_hook(lambda module, args: inputs.append(args[0]))
    hooks = len(mlp.down_proj._forward_pre_hooks)
    with PlantedNoise(model, {2: [1, 7], 4: [3]}) as noise:
        model(batch)
        other = model.model.layers[4].mlp
        found = noise.take()
    expected = sum(inputs[0][..., j].abs() * mlp.down_proj.weight[:, j].norm() for j in (1, 7))
    assert found.shape == (2, 8)
    assert (found >= expected - 1e-6).all()  # block 4 adds to it
    assert not torch.allclose(found, expected)
    assert len(mlp.down_proj._forward_pre_hooks) == hooks
    assert not other.down_proj._forward_pre_hooks


def test_the_first_reply_token_counts_twice():
    from precomputed.recipe.train import reply_loss

    logits = torch.zeros(1, 3, 4)
    labels = torch.tensor([[-100, 1, 2]])
    logits[0, 1, 1] = 2.0  # the first reply token is likelier
    nll = torch.logsumexp(logits[0], -1) - logits[0, range(3), [0, 1, 2]]
    assert reply_loss(logits, labels).item() == pytest.approx(((nll[1] + nll[2]) / 2 + nll[1]).item())
