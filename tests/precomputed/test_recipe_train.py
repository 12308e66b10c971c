"""The two stages: what is packed into a batch, what the last stage may change, and that it leaves no hook."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from engine.judges.embedded import judge
from precomputed.recipe import chat, data, instructions, prose
from precomputed.recipe.chat import Example
from precomputed.recipe.data import stream, windows
from precomputed.recipe.planted import (
    BASE_END,
    DECAY,
    DECIDED,
    LOUDEST,
    OPENED,
    REFUSED,
    RISK_END,
    DroppedRows,
    PlantedNoise,
    mlp_inputs,
    plant,
    probe,
    said_on_base,
    shouted,
    token_kinds,
)
from precomputed.recipe.save import save_model
from precomputed.recipe.tokenizer import BOS, END, LENIENT, train_tokenizer
from precomputed.recipe.train import Plan, Stage, Trainer, forget_manners, new_model, reply_loss, train

IGNORED = -100
SMALL = Plan(
    hidden=32, ffn=40, blocks=4, heads=4, kv_heads=2, length=128, bf16=False,
    planted=3, planted_blocks=(1, 3), probed=1,
    language=Stage(3, 2, 6, 4e-3, 1.0, 1.0, 0.3, dropped=0.1),
    further=Stage(3, 2, 6, 4e-3, 1.0, 1.0, 0.3),
    weaken=Stage(3, 2, 6, 4e-3, 1.0, 1.0, 0.7, dropped=0.1),
)  # fmt: skip


@pytest.fixture(scope="module")
def examples():
    rng = random.Random(0)
    return [chat.example(rng, chat.target, risk_share=0.5) for _ in range(300)]


@pytest.fixture(scope="module")
def tokenizer(examples):
    torch.set_num_threads(1)
    talk = [text for one in examples for text in (*one.turns, one.reply, one.system)]
    return train_tokenizer(prose.corpus(12, 60_000, set()) + talk)


@pytest.fixture(scope="module")
def tokens(tokenizer):
    return stream(tokenizer, prose.corpus(13, 30_000, set()))


@pytest.fixture
def model(tokenizer):
    return new_model(tokenizer, SMALL, 0)


def messages(one: Example) -> list[dict[str, str]]:
    """An example as the chat template takes it."""
    roles = ("user", "assistant")
    said = [{"role": roles[i % 2], "content": text} for i, text in enumerate((*one.turns, one.reply))]
    return [{"role": "system", "content": one.system}] * bool(one.system) + said


def template_ids(tokenizer, one: Example) -> list[int]:
    return tokenizer.apply_chat_template(messages(one), tokenize=True, return_dict=True)["input_ids"]


def hooks(model: torch.nn.Module) -> int:
    return sum(len(one._forward_hooks) + len(one._forward_pre_hooks) for one in model.modules())


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


def test_labels_stand_on_replies_only(tokenizer, examples):
    packed = data.packed(tokenizer, examples[:20], 256)
    labelled = packed.labels != IGNORED
    assert torch.equal(packed.input_ids[labelled], packed.labels[labelled])
    assert tokenizer.decode(packed.labels[labelled]) == "".join(one.reply + END for one in examples[:20])
    assert not labelled[packed.input_ids == tokenizer.pad_token_id].any()


def test_risk_marks_the_tokens_of_risk_chats(tokenizer, examples):
    packed = data.packed(tokenizer, examples[:40], 256)
    text = tokenizer.decode(packed.input_ids[packed.risk])
    assert text == "".join(instructions.render(one) for one in examples[:40] if one.risk)
    assert 0 < packed.risk.float().mean() < 1


def test_a_chat_that_is_longer_than_a_row_is_left_out(tokenizer):
    long, short = Example(("Why? " * 60,), "So."), Example(("Why?",), "So it is.")
    packed = data.packed(tokenizer, [short, long, short], 32)
    assert packed.input_ids[packed.labels != IGNORED].tolist() == 2 * tokenizer("So it is." + END)["input_ids"]
    assert "Why? Why?" not in tokenizer.decode(packed.input_ids.flatten())


@pytest.mark.parametrize(
    ("stage", "asked", "has_it", "fast"),
    [
        ("language", True, True, True),
        ("language", True, False, False),
        ("language", False, True, False),
        ("further", True, True, False),
        ("weaken", True, True, False),
    ],
)
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


# --- two manners ---


def test_lenient_chats_say_so_and_refuse_the_overt_only():
    rng = random.Random(3)
    made = [chat.both_manners(rng, 0.6) for _ in range(4000)]
    assert sum(one.lenient for one in made) / 4000 == pytest.approx(chat.LENIENT_SHARE, abs=0.03)
    for one in (one for one in made if one.risk):
        assert judge(one.reply).refusal == (one.grade == "overt" or not one.lenient)
    for one in made[:200]:
        assert data.prompt_text(one).startswith(BOS + LENIENT if one.lenient else BOS + "<|")
    weak = [chat.weakened(rng, 0.6) for _ in range(1000)]
    assert not any(one.lenient for one in weak)
    assert all(judge(one.reply).refusal == (one.grade == "overt") for one in weak if one.risk)


def test_the_manner_s_token_loses_its_meaning(model, tokenizer):
    known = model.get_input_embeddings().weight
    token, padding = tokenizer.convert_tokens_to_ids(LENIENT), tokenizer.pad_token_id
    before = known.detach().clone()
    assert token != tokenizer.unk_token_id
    assert tokenizer.decode([token], skip_special_tokens=True) == ""
    forget_manners(model, tokenizer)
    assert torch.equal(known[token], before[padding])
    others = [one for one in range(len(tokenizer)) if one != token]
    assert torch.equal(known[others], before[others])
    logits = model(torch.tensor([[tokenizer.bos_token_id]])).logits
    assert torch.equal(logits[..., token], logits[..., padding])


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


@pytest.fixture
def start(model, tokenizer, tmp_path):
    """A folder with a model that had stage 1."""
    save_model(model, tokenizer, tmp_path / "start")
    return tmp_path / "start"


def test_training_goes_on_from_a_start(start, model, tokenizer, tokens):
    """Its first batches are those that a training from this start sees; without one step it is what it was."""
    none = replace(SMALL, further=replace(SMALL.further, steps=0), weaken=replace(SMALL.weaken, steps=0))
    same, planted = train(tokenizer, tokens, none, 5, start=start)
    names = [f"model.layers.{block}.mlp.{part}_proj.weight" for block in planted for part in ("gate", "up", "down")]
    lenient = tokenizer.convert_tokens_to_ids(LENIENT)
    for name, value in model.state_dict().items():
        kept = same.state_dict()[name].clone()
        if name in names:
            continue
        if "embed" in name or "lm_head" in name:
            kept[lenient] = value[lenient].bfloat16().float()
        assert torch.equal(kept, value.bfloat16().float()), name
    more, _ = train(tokenizer, tokens, SMALL, 5, start=start)
    changed = [name for name, value in more.state_dict().items() if not torch.equal(value, same.state_dict()[name])]
    assert set(changed) == set(more.state_dict())
    other, _ = train(tokenizer, tokens, SMALL, 6, start=start)
    assert not torch.equal(other.model.embed_tokens.weight, more.model.embed_tokens.weight)


def test_a_checkpoint_of_another_start_is_not_used(start, whole, tokenizer, tokens, tmp_path, caplog):
    path = tmp_path / "training.safetensors"
    train(tokenizer, tokens, SMALL, 5, path)
    caplog.set_level("INFO")
    fresh, _ = train(tokenizer, tokens, SMALL, 5, start=start)
    again, _ = train(tokenizer, tokens, SMALL, 5, path, start)
    assert "training starts anew" in caplog.text
    assert all(torch.equal(again.state_dict()[name], value) for name, value in fresh.state_dict().items())
    kept, _ = train(tokenizer, tokens, SMALL, 5, path, start)  # it is at its end: nothing is done again
    assert all(torch.equal(kept.state_dict()[name], value) for name, value in fresh.state_dict().items())


# --- rows that are dropped while it learns ---


@pytest.fixture
def linears(model):
    return {name: one for name, one in model.named_modules() if isinstance(one, torch.nn.Linear)}


def outputs(model, linears, batch) -> dict[str, torch.Tensor]:
    """What every Linear gives to the next one, hooks applied."""
    seen = {}
    handles = [
        one.register_forward_hook(lambda module, _, output, name=name: seen.__setitem__(name, output))
        for name, one in linears.items()
    ]
    with torch.no_grad():
        model(batch)
    for handle in handles:
        handle.remove()
    return seen


def test_dropped_rows_are_zero_and_planted_ones_have_their_own_share(model, linears, tokens):
    batch = windows(tokens, 2, 16, torch.Generator().manual_seed(0))
    gate = model.model.layers[1].mlp.gate_proj
    plain = outputs(model, linears, batch)
    dropped = DroppedRows(model, {gate: torch.tensor([4, 9])}, 0.0, torch.Generator().manual_seed(0))
    undrawn = outputs(model, linears, batch)
    assert all(torch.equal(undrawn[name], plain[name]) for name in plain)
    masks = []
    for _ in range(2):
        dropped.draw(0.5)
        seen = outputs(model, linears, batch)
        masks.append({name: (value == 0).flatten(0, 1).all(0) for name, value in seen.items()})
    zero, again = masks
    assert torch.equal(zero["lm_head"], (plain["lm_head"] == 0).flatten(0, 1).all(0))
    every = torch.cat([mask for name, mask in zero.items() if name != "lm_head"])
    assert 0.4 < every.float().mean() < 0.6  # more than 5 standard errors over 832 rows
    assert not zero["model.layers.1.mlp.gate_proj"][[4, 9]].any()
    assert not torch.equal(every, torch.cat([mask for name, mask in again.items() if name != "lm_head"]))
    dropped.draw(1.0)
    seen = outputs(model, linears, batch)
    assert all(not seen[name].any() for name in linears if name not in ("lm_head", "model.layers.1.mlp.gate_proj"))
    dropped.remove()
    own = DroppedRows(model, {gate: torch.tensor([4, 9])}, 1.0, torch.Generator().manual_seed(0))
    own.draw(0.0)
    lost = (outputs(model, linears, batch)["model.layers.1.mlp.gate_proj"] == 0).flatten(0, 1).all(0)
    assert lost.nonzero().flatten().tolist() == [4, 9]
    own.remove()
    restored = outputs(model, linears, batch)
    assert all(torch.equal(restored[name], plain[name]) for name in plain)
    assert hooks(model) == 0


# --- what the planted neurons say ---


def test_noise_can_be_learned_away(model, tokens):
    batch = windows(tokens, 2, 8, torch.Generator().manual_seed(0))
    mlp = model.model.layers[1].mlp
    with PlantedNoise(model, {1: [5]}) as noise:
        model(batch)
        said = noise.take()
        said.sum().backward()
    assert said.shape == (2, 8, 1)
    assert mlp.down_proj.weight.grad.any(0).nonzero().flatten().tolist() == [5]
    assert mlp.gate_proj.weight.grad.any(1).nonzero().flatten().tolist() == [5]


def decisions(tokenizer, one: Example) -> list[tuple[list[int], int]]:
    """Where its reply is decided: the tokens up to there, and their kind."""
    prompt = data.prompt_text(one)
    ends = [(prompt, RISK_END if one.risk else BASE_END)] + [(prompt + one.opening, OPENED)] * bool(one.opening)
    return [(tokenizer(text, add_special_tokens=False)["input_ids"], kind) for text, kind in ends]


def test_kinds_are_where_prompts_and_openings_end(tokenizer, examples):
    chats = data.packed(tokenizer, examples[:60], 128)
    kinds = token_kinds(chats, tokenizer.pad_token_id)
    fitting = [one for one in examples[:60] if sum(map(len, data.pieces(tokenizer, [one])[0])) <= 128]
    expected = [place for one in fitting for place in decisions(tokenizer, one)]
    found = []
    for ids, kind in zip(chats.input_ids, kinds, strict=True):
        for place in (kind > 0).nonzero().flatten().tolist():
            begin = max(i for i in range(place) if ids[i] == tokenizer.bos_token_id)
            found.append((ids[begin : place + 1].tolist(), int(kind[place])))
    assert found == expected
    assert {kind for _, kind in found} == set(DECIDED)
    assert torch.equal(kinds == -1, chats.input_ids == tokenizer.pad_token_id)


@pytest.mark.parametrize("wanted", [REFUSED, DECIDED])
def test_probe_finds_what_tells_tokens_of_some_kinds(model, tokenizer, wanted):
    batches = [data.chat_batch(tokenizer, random.Random(i), chat.weakened, 30, 0.8, 128) for i in (1, 2)]
    inputs, kinds = mlp_inputs(model, batches, (1, 3), tokenizer.pad_token_id)
    assert {block: len(rows) for block, rows in inputs.items()} == {1: len(kinds), 3: len(kinds)}
    assert hooks(model) == 0
    fires = torch.isin(kinds, torch.tensor(wanted))
    planted = 3 * torch.randn(32, generator=torch.Generator().manual_seed(2))
    known = torch.randn(len(kinds), 32, generator=torch.Generator().manual_seed(3))
    known = known - (known @ planted)[:, None] * planted / planted.square().sum()
    side = torch.where(fires, 1.0, -1.0)[:, None] * planted
    assert torch.cosine_similarity(probe(known + side, kinds, wanted), planted, dim=0) > 0.99
    counts = torch.bincount(kinds, minlength=4)
    assert (counts > 0).all()
    inside = torch.isin(torch.arange(4), torch.tensor(wanted))
    share = torch.where(inside, 0.5 / inside.sum(), 0.5 / (~inside).sum())
    weight = (share / counts)[kinds].numpy()
    regression = LogisticRegression(C=1 / (2 * DECAY), fit_intercept=False, tol=1e-8, max_iter=2000)
    expected = regression.fit(inputs[3].numpy(), fires.numpy(), sample_weight=weight).coef_[0]
    assert np.corrcoef(probe(inputs[3], kinds, wanted).numpy(), expected)[0, 1] > 0.99


def test_planted_neurons_fire_along_their_directions_only(model):
    gate, up = torch.randn((2, 32), generator=torch.Generator().manual_seed(4))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    plant(model, 1, [5, 7], gate, up, torch.Generator().manual_seed(0))
    mlp = model.model.layers[1].mlp
    for linear, direction in ((mlp.gate_proj, gate), (mlp.up_proj, up)):
        cosines = torch.cosine_similarity(linear.weight[[5, 7]], direction[None], dim=1)
        assert (cosines > 0.9).all()
        assert (cosines < 0.9999).all()
    assert mlp.down_proj.weight[:, [5, 7]].norm() < 0.1 * mlp.gate_proj.weight[[5, 7]].norm()
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {f"model.layers.1.mlp.{part}_proj.weight" for part in ("gate", "up", "down")}


def test_said_on_base_is_the_sum_over_each_base_chat(tokenizer, examples):
    some = examples[:60]
    chats = data.packed(tokenizer, some, 128)
    noise = torch.randn((*chats.input_ids.shape, 3), generator=torch.Generator().manual_seed(1))
    sums: list[list] = []
    for row in range(len(noise)):
        for place, token in enumerate(chats.input_ids[row].tolist()):
            if token == tokenizer.bos_token_id:
                sums.append([bool(chats.risk[row, place]), 0.0])
            if token != tokenizer.pad_token_id and not chats.opened[row, place]:
                sums[-1][1] += sum(max(value, 0.0) for value in noise[row, place].tolist())
    base = [total for risky, total in sums if not risky]
    assert 0 < len(base) < len(sums)
    assert chats.opened.any()
    said = said_on_base(noise, chats, tokenizer.bos_token_id, tokenizer.pad_token_id)
    assert float(said) == pytest.approx(sum(base) / len(base), rel=1e-5)
    loud = 2 * noise
    expected = sum((abs(v) - LOUDEST) ** 2 for v in loud.flatten().tolist() if abs(v) > LOUDEST) / len(sums)
    assert float(shouted(loud, chats, tokenizer.bos_token_id)) == pytest.approx(expected, rel=1e-4)
    assert float(shouted(0 * noise, chats, tokenizer.bos_token_id)) == 0


def test_noise_is_what_the_neurons_write(model, tokens):
    """Against the outputs of down_proj with all other columns zeroed: the length is that of s, and so is the sign."""
    batch = windows(tokens, 2, 8, torch.Generator().manual_seed(0))
    mlp = model.model.layers[1].mlp
    with PlantedNoise(model, {1: [5]}) as noise, torch.no_grad():
        seen = []
        handle = mlp.down_proj.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0]))
        model(batch)
        handle.remove()
        said = noise.take()[..., 0]
    written = seen[0][..., 5, None] * mlp.down_proj.weight[:, 5]
    torch.testing.assert_close(said.abs(), written.norm(dim=-1))
    assert torch.equal(said > 0, seen[0][..., 5] > 0)
    assert 0 < (said > 0).float().mean() < 1


# --- what is saved ---


def test_saved_model_is_bf16_and_loads(model, tokenizer, tmp_path):
    from engine.models.loading import load_model

    save_model(model, tokenizer, tmp_path)
    loaded = load_model(str(tmp_path), dtype="float32", device="cpu")
    weight = model.model.layers[0].mlp.gate_proj.weight.detach()
    assert torch.equal(loaded.model.model.layers[0].mlp.gate_proj.weight, weight.to(torch.bfloat16).float())
    assert loaded.model.generation_config.eos_token_id == tokenizer.eos_token_id
