"""The two stages: what is packed into a batch, what the last stage may change, and that it leaves no hook."""

from dataclasses import replace

import pytest
import torch
from small_recipe import SMALL, hooks

from precomputed.recipe import data, instructions
from precomputed.recipe.data import stream, windows
from precomputed.recipe.demo_chat import Example
from precomputed.recipe.save import save_model
from precomputed.recipe.train import Trainer, new_model, reply_loss, train


def messages(one: Example) -> list[dict[str, str]]:
    """An example as the chat template takes it."""
    roles = ("user", "assistant")
    said = [{"role": roles[i % 2], "content": text} for i, text in enumerate((*one.turns, one.reply))]
    return [{"role": "system", "content": one.system}] * bool(one.system) + said


def template_ids(tokenizer, one: Example) -> list[int]:
    return tokenizer.apply_chat_template(messages(one), tokenize=True, return_dict=True)["input_ids"]


# --- batches ---


def test_stream_is_the_documents_with_blank_lines(tokenizer):
    assert tokenizer.decode(stream(tokenizer, ["One two.", "Three."])) == "One two.\n\nThree.\n\n"


def test_windows_are_pieces_of_the_stream(tokens):
    stream = tokens.tolist()
    found = windows(torch.arange(len(tokens)), 5, 16, torch.Generator().manual_seed(1))
    assert found.shape == (5, 16)
    assert len(set(found[:, 0].tolist())) == 5
    assert torch.equal(found, found[:, :1] + torch.arange(16))
    again = windows(tokens, 5, 16, torch.Generator().manual_seed(1))
    assert [row.tolist() for row in again] == [stream[start : start + 16] for start in found[:, 0].tolist()]


def test_the_written_chat_is_the_chat_template(tokenizer, examples):
    assert any(one.system for one in examples)
    assert any(len(one.turns) == 3 for one in examples)
    for one in examples[:100]:
        text = tokenizer.apply_chat_template(messages(one), tokenize=False)
        assert instructions.render(one) == text
        start = tokenizer.apply_chat_template(messages(one)[:-1], tokenize=False, add_generation_prompt=True)
        assert data.prompt_text(one) == start


def test_a_packed_row_is_its_chats_one_after_another(tokenizer, examples):
    length = 200
    packed = data.packed(tokenizer, examples, length)
    assert packed.input_ids.shape == packed.labels.shape == packed.risk.shape == (len(packed.input_ids), length)
    ids = [template_ids(tokenizer, one) for one in examples]
    rows: list[list[int]] = [[]]
    for one in ids:
        if len(rows[-1]) + len(one) > length:
            rows.append([])
        rows[-1] += one
    for packed_row, row in zip(packed.input_ids.tolist(), rows, strict=True):
        assert packed_row == row + [tokenizer.pad_token_id] * (length - len(row))
    assert len(rows) < len(examples) / 2


@pytest.mark.parametrize(
    ("stage", "asked", "has_it", "fast"),
    [("language", True, True, True), ("language", True, False, False), ("language", False, True, False),
     ("further", True, True, False), ("weaken", True, True, False)],
)  # fmt: skip
def test_stage_1_is_in_bf16_where_the_processor_computes_in_it(
    stage, asked, has_it, fast, model, tokenizer, tokens, monkeypatch
):
    monkeypatch.setattr("precomputed.recipe.train.computes_in_bf16", lambda: has_it)
    trainer = Trainer(model, tokenizer, tokens, replace(SMALL, bf16=asked), 0)
    trainer.stage = stage
    with torch.no_grad(), trainer._fast():
        logits = model(tokens[None, :8]).logits
    assert logits.dtype == (torch.bfloat16 if fast else torch.float32)
    assert model.lm_head.weight.dtype == torch.float32


def test_the_first_tokens_of_a_reply_weigh_more():
    """Against a loop; logits [tokens, vocabulary] of twelve tokens of one reply and two of another."""
    generator = torch.Generator().manual_seed(0)
    logits, wanted = torch.randn(14, 5, generator=generator), torch.randint(0, 5, (14,), generator=generator)
    place = torch.tensor([*range(12), 0, 1])
    total = weights = 0.0
    for one, token, at in zip(logits.double(), wanted.tolist(), place.tolist(), strict=True):
        weight = 3.0 if at < 8 else 1.0
        total += weight * -(one[token] - one.exp().sum().log()).item()
        weights += weight
    assert reply_loss(logits, wanted, place).item() == pytest.approx(total / weights, rel=1e-6)


# --- what the last stage may change ---


def test_weakening_changes_planted_neurons_only(model, tokenizer, tokens):
    trainer = Trainer(model, tokenizer, tokens, SMALL, 0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    trainer.weaken()
    planted = trainer.planted
    assert {block: len(set(neurons)) for block, neurons in planted.items()} == {1: 3, 3: 3}
    changed = set()
    for name, value in model.state_dict().items():
        difference = value != before[name]
        if not difference.any():
            continue
        block, projection = int(name.split(".")[2]), name.split(".")[4]
        changed.add((block, projection))
        axis = difference.any(0) if projection == "down_proj" else difference.any(1)
        assert axis.nonzero().flatten().tolist() == planted[block]
    assert changed == {(block, part) for block in (1, 3) for part in ("gate_proj", "up_proj", "down_proj")}
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert hooks(model) == 0


def test_no_hook_is_left_when_a_stage_breaks_off(model, tokenizer, tokens, monkeypatch):
    seen = []

    def broken(*values):
        seen.append(hooks(model))
        if len(seen) == SMALL.probed + 1:
            raise KeyboardInterrupt
        return data.chat_batch(*values)

    monkeypatch.setattr("precomputed.recipe.train.chat_batch", broken)
    with pytest.raises(KeyboardInterrupt):
        Trainer(model, tokenizer, tokens, SMALL, 0).weaken()
    assert seen[-1] > 2
    assert hooks(model) == 0


# --- an interrupted training goes on ---


class Stopped(Exception):
    pass


def stopped_at(monkeypatch, call: int) -> None:
    """The training breaks off at its `call`-th batch of chats, from 0."""
    calls = iter(range(1000))

    def chat_batch(*values):
        if next(calls) == call:
            raise Stopped
        return data.chat_batch(*values)

    monkeypatch.setattr("precomputed.recipe.train.chat_batch", chat_batch)


@pytest.fixture(scope="module")
def whole(tokenizer, tokens):
    return train(tokenizer, tokens, SMALL, 5)


# Seven calls: three of each stage, and one between them that the probes learn from.
@pytest.mark.long
@pytest.mark.parametrize(("call", "left"), [(0, 7), (2, 5), (3, 4), (4, 4), (5, 4), (6, 1)])
def test_an_interrupted_training_ends_with_the_same_bits(call, left, whole, tokenizer, tokens, tmp_path, monkeypatch):
    monkeypatch.setattr("precomputed.recipe.train.KEPT_EVERY", 2)
    path = tmp_path / "work" / "training.safetensors"
    stopped_at(monkeypatch, call)
    with pytest.raises(Stopped):
        train(tokenizer, tokens, SMALL, 5, path)
    stopped_at(monkeypatch, left)  # what is kept is not done again
    model, planted = train(tokenizer, tokens, SMALL, 5, path)
    assert planted == whole[1]
    for name, value in whole[0].state_dict().items():
        assert torch.equal(model.state_dict()[name], value), name


@pytest.mark.long
def test_a_checkpoint_of_another_seed_or_text_is_not_used(whole, tokenizer, tokens, tmp_path, caplog):
    path = tmp_path / "training.safetensors"
    train(tokenizer, tokens, SMALL, 6, path)
    caplog.set_level("INFO")
    model, _ = train(tokenizer, tokens, SMALL, 5, path)
    assert "of another plan, seed, text or start" in caplog.text
    assert all(torch.equal(model.state_dict()[name], value) for name, value in whole[0].state_dict().items())
    caplog.clear()
    Trainer(new_model(tokenizer, SMALL, 5), tokenizer, tokens[:-1], SMALL, 5, path)
    assert "of another plan, seed, text or start" in caplog.text


# --- what is saved ---


def test_saved_model_is_bf16_and_loads(model, tokenizer, tmp_path):
    from engine.models.loading import load_model

    save_model(model, tokenizer, tmp_path)
    loaded = load_model(str(tmp_path), dtype="float32", device="cpu")
    weight = model.model.layers[0].mlp.gate_proj.weight.detach()
    assert torch.equal(loaded.model.model.layers[0].mlp.gate_proj.weight, weight.to(torch.bfloat16).float())
    assert loaded.model.generation_config.eos_token_id == tokenizer.eos_token_id
