"""Windows begin as the tokenizer begins a text: what stands before each is read, never predicted, and in no mean."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import reference
import torch
from tiny_models import in_float64, save_tiny, text, tiny_tokenizer
from tokenizers.processors import TemplateProcessing
from torch import Tensor

import engine.measures.predictions
from dashboard.pages.curves.curves_page import _starts
from dashboard.state.results import Curves, before_windows, describe_run
from engine.cli import main
from engine.data.corpora import Windows, disjoint_draws, windows
from engine.data.window_starts import text_prefix, without_starts
from engine.edits.edit import UNEDITED, edit_of
from engine.interventions.at_outputs import applied
from engine.interventions.kinds import prepare
from engine.measures.fidelity import Fidelity
from engine.measures.logit_bits import LogitBits
from engine.measures.nll import Nll, negative_log_likelihood
from engine.models.loading import LoadedModel, load_model, load_sketch
from engine.records.errors import InputError
from engine.records.manifest import read_manifest
from engine.run.audit_plan import TEXT
from engine.run.edited_passes import measured
from engine.run.recorded_plan import audit_plan
from engine.run.runner import Cell
from engine.selectors import available_selectors, compute_scores
from engine.selectors.scoring_run import nested_scores
from engine.studies.comparison import departures

BOS, EOS, USER = 0, 1, 3
BEGINNINGS = {  # how a tokenizer frames a text -> what stands before it
    "$A": (),
    "$A <eos>": (),
    "<bos> $A": (BOS,),  # Llama 3, Gemma
    "<bos> $A <eos>": (BOS,),
    "<bos> <|user|> $A": (BOS, USER),  # GLM-4 has two
}
BY_DATA = [info.id for info in available_selectors() if not info.data_free]
TWO = (BOS, USER)


def beginning(frame: str) -> Any:
    tokenizer = tiny_tokenizer()
    specials = [(f"{one}", tokenizer.convert_tokens_to_ids(one)) for one in ("<bos>", "<eos>", "<|user|>")]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single=frame, special_tokens=specials)
    return tokenizer


def saved(family: str, folder: Path, frame: str = "<bos> $A", **changes: Any) -> str:
    save_tiny(family, folder, **changes)
    beginning(frame).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A small Gemma 3 whose tokenizer puts a BOS before a text."""
    return load_model(saved("gemma3_text", tmp_path_factory.mktemp("gemma")), dtype="float32", device="cpu")


@pytest.fixture(scope="module")
def begun(model: LoadedModel, tiny_text: Path) -> Windows:
    """Five windows of 12 tokens behind a BOS."""
    return cut(tiny_text, model.tokenizer, samples=5, length=12)


def cut(source: Path, tokenizer: Any, **more: Any) -> Windows:
    return windows(str(source), tokenizer, **{"role": "evaluation", "samples": 4, "length": 16, **more})


def slow_nll(model: Any, read: Tensor, before: int) -> list[float]:
    """Nats of each window: token by token, each from a pass of its own over what stands before it."""
    sums = []
    for row in read:
        nats = 0.0
        for t in range(before + 1, len(row)):
            with torch.no_grad():
                logits = model(input_ids=row[None, :t]).logits[0, -1].double()
            nats -= logits.log_softmax(-1)[row[t]].item()
        sums.append(nats)
    return sums


# The windows


@pytest.mark.parametrize("frame", BEGINNINGS)
def test_every_window_begins_as_the_tokenizer_begins_a_text(frame: str, tiny_text: Path) -> None:
    tokenizer = beginning(frame)
    prefix = BEGINNINGS[frame]
    assert text_prefix(tokenizer) == prefix
    got, plain = cut(tiny_text, tokenizer), cut(tiny_text, tiny_tokenizer())
    assert torch.equal(
        got.input_ids, plain.input_ids
    )  # nothing of it takes the place of a token, nothing stands behind
    assert got.read_ids.tolist() == [[*prefix, *row] for row in plain.input_ids.tolist()]
    assert got.part(1, 2).read_ids.tolist() == got.read_ids[1:3].tolist()
    whole = cut(tiny_text, tokenizer, samples=10**6)  # up to the end of the text
    assert not (whole.input_ids == EOS).any()


def test_a_saved_tokenizer_is_asked_not_its_settings(tmp_path: Path) -> None:
    """A BOS that is named, and put before a text only when asked for, is not put before windows."""
    assert text_prefix(load_sketch(str(save_tiny("llama", tmp_path / "none"))).tokenizer) == ()
    assert text_prefix(load_sketch(saved("llama", tmp_path / "bos")).tokenizer) == (BOS,)


def test_a_tokenizer_that_cannot_be_told_from_what_it_adds() -> None:
    def odd(_text: str, *, add_special_tokens: bool, **_more: Any) -> dict[str, list[int]]:
        return {"input_ids": [0, 7, 9] if add_special_tokens else [8, 9]}

    with pytest.raises(InputError, match="without its special ones as .*--window-start stream"):
        text_prefix(odd)
    with pytest.raises(InputError, match="unknown window start 'steam'; did you mean 'stream'"):
        windows("demo", odd, role="evaluation", samples=1, length=4, window_start="steam")


def test_documents_and_draws_are_those_of_the_text(tmp_path: Path) -> None:
    lines = tmp_path / "a.jsonl"
    lines.write_text("".join(json.dumps({"text": one}) + "\n" for one in text(documents=60).strip().split("\n\n")))
    plain, framed = tiny_tokenizer(), beginning("<bos> $A <eos>")
    documents = [cut(lines, one, samples=30).documents for one in (plain, framed)]
    assert documents[0] is not None
    assert documents[1] is not None
    assert torch.equal(documents[0], documents[1])
    drawn = [disjoint_draws(str(lines), one, draws=2, size=3, least=2, length=16, seed=0) for one in (plain, framed)]
    for first, second in zip(drawn[0].sets, drawn[1].sets, strict=True):
        assert torch.equal(first.input_ids, second.input_ids)
        assert second.read_ids[:, 0].tolist() == [BOS] * 3
        assert first.token_hash != second.token_hash
    assert drawn[1].record()["window_prefix"] == [BOS]


def test_keys_change_only_where_something_stands_before_a_window(tiny_text: Path, tiny_llama: LoadedModel) -> None:
    """Without a prefix a key is what it was before there was a choice: written out here, so that stores stay good."""
    plain = cut(tiny_text, tiny_tokenizer())
    tokens = plain.input_ids.numpy().astype("<i8")
    assert plain.token_hash == hashlib.sha256(b"(4, 16)" + tokens.tobytes()).hexdigest()
    assert plain.token_hash == cut(tiny_text, tiny_tokenizer(), window_start="stream").token_hash
    framed = {frame: cut(tiny_text, beginning(frame)) for frame in ("<bos> $A", "<bos> <|user|> $A")}
    stream = cut(tiny_text, beginning("<bos> $A"), window_start="stream")
    # A stream that happens to have the tokens which are read of another text is no such text.
    alike = replace(framed["<bos> $A"], input_ids=framed["<bos> $A"].read_ids, prefix=())
    every = [plain, stream, alike, *framed.values()]
    assert len({one.token_hash for one in every}) == len(every)
    assert len({Cell(tiny_llama, UNEDITED, Nll(one)).key for one in every}) == len(every)


# What is measured


@pytest.mark.parametrize("prefix", [(BOS,), TWO])
def test_nll_is_the_slow_loop_behind_a_bos(prefix: tuple[int, ...], model: LoadedModel, begun: Windows) -> None:
    begun = replace(begun, prefix=prefix)
    found = negative_log_likelihood(model, begun, 2)
    assert found.window_nats == pytest.approx(slow_nll(model.model, begun.read_ids, len(prefix)), rel=1e-5)
    assert found.window_tokens == (11,) * 5  # as many as in the stream: first tokens are not predicted
    without = negative_log_likelihood(model, replace(begun, prefix=()), 2)
    assert abs(found.nats_per_token - without.nats_per_token) > 1e-3


def test_batches_edits_and_pieces_say_the_same(
    model: LoadedModel, begun: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    edits = [UNEDITED, edit_of([3, 40, 200], model.rows.n_rows)]
    alone = []
    for edit in edits:
        with applied(model, edit):
            alone.append(negative_log_likelihood(model, begun).window_nats)
    assert [one.window_nats for one in measured(model, Nll(begun), edits)] == [pytest.approx(one) for one in alone]
    for batch in (1, 3, 5):
        assert negative_log_likelihood(model, begun, batch).window_nats == pytest.approx(alone[0], rel=1e-5)
    monkeypatch.setitem(engine.measures.predictions.LOGIT_BUDGET, "cpu", 300)
    assert negative_log_likelihood(model, begun, 2).window_nats == pytest.approx(alone[0], rel=1e-5)


def test_fidelity_and_logit_bits_leave_it_out_too(model: LoadedModel, begun: Windows) -> None:
    edit = edit_of([3, 40, 200], model.rows.n_rows)
    with torch.no_grad():
        before = model.model(input_ids=begun.read_ids).logits.double().log_softmax(-1)
        with applied(model, edit):
            after = model.model(input_ids=begun.read_ids).logits.double().log_softmax(-1)
    p, q = before[:, 1:-1], after[:, 1:-1]
    [found] = measured(model, Fidelity(begun), [edit])
    assert found.window_kl == pytest.approx((p.exp() * (p - q)).sum((1, 2)).tolist(), abs=1e-4)
    assert found.window_same == tuple((p.argmax(-1) == q.argmax(-1)).sum(1).tolist())
    assert found.window_tokens == (11,) * 5
    nats = negative_log_likelihood(model, begun).window_nats
    bits = LogitBits(begun).measure(model, UNEDITED)
    assert (bits.nats, bits.tokens) == (pytest.approx(nats, rel=1e-5), 55)


@pytest.mark.parametrize("family", ["gemma3_text", pytest.param("llama", marks=pytest.mark.long)])
def test_scores_are_the_slow_loops_without_its_position(family: str, model: LoadedModel, begun: Windows) -> None:
    loaded, few = in_float64(model, family), begun.first(2)
    scores = compute_scores(loaded, BY_DATA, few, batch_size=1)
    of_loss = (
        "mean_activation", "wanda", "activation_std", "flap", "ria", "grad_x_input", "fisher", "lrp", "relp", "ig",
    )  # fmt: skip
    for name in of_loss:
        expected = torch.tensor(getattr(reference, name)(loaded.model, loaded.rows, few.read_ids, skip=1))
        torch.testing.assert_close(scores[name].double(), expected.double(), rtol=1e-5, atol=1e-7)
    further = compute_scores(loaded, ["wanda", "lrp"], few, batch_size=1, skip_first=2)  # of the window's own positions
    for name in further:
        expected = torch.tensor(getattr(reference, name)(loaded.model, loaded.rows, few.read_ids, skip=3))
        torch.testing.assert_close(further[name].double(), expected.double(), rtol=1e-5, atol=1e-7)


def test_what_the_bos_predicts_is_in_no_score(model: LoadedModel, begun: Windows) -> None:
    """F here has no term for a window's first token; the engine's has, which reaches no later position."""
    loaded, few = in_float64(model, "gemma3_text"), begun.first(2)
    sums = torch.zeros(loaded.rows.n_rows, dtype=torch.float64)
    for window in few.read_ids:
        kept: dict[str, Tensor] = {}

        def keep(_m: Any, _a: Any, output: Tensor, name: str, kept: dict[str, Tensor] = kept) -> None:
            output.retain_grad()
            kept[name] = output

        handles = [
            loaded.model.get_submodule(one.name).register_forward_hook(partial(keep, name=one.name))
            for one in loaded.rows.layers
        ]
        embedded = loaded.model.get_input_embeddings()(window[None]).detach().requires_grad_()
        logits = loaded.model(inputs_embeds=embedded, use_cache=False).logits[0]
        torch.nn.functional.cross_entropy(logits[1:-1], window[2:], reduction="sum").backward()
        for handle in handles:
            handle.remove()
        values = [kept[one.name].detach()[0] * kept[one.name].grad[0] for one in loaded.rows.layers]  # type: ignore[index]
        sums += torch.cat([one[1:-1].abs().sum(0) for one in values])
    found = compute_scores(loaded, ["grad_x_input"], few)["grad_x_input"]
    torch.testing.assert_close(found.double(), sums / 22, rtol=1e-5, atol=1e-7)


def test_nested_sizes_and_batches_give_the_same_scores(model: LoadedModel, begun: Windows) -> None:
    names = ["wanda", "mean_activation", "grad_x_input"]
    nested = nested_scores(model, names, begun, [2, 4], batch_size=2)
    for size, scores in nested.items():
        alone = compute_scores(model, names, begun.first(size), batch_size=2)
        one_by_one = compute_scores(model, names, begun.first(size), batch_size=1)
        for name in names:
            assert torch.equal(scores[name], alone[name])
            torch.testing.assert_close(alone[name], one_by_one[name], rtol=1e-4, atol=1e-6)


def test_routed_experts_leave_out_its_tokens(tmp_path: Path, tiny_text: Path) -> None:
    loaded = load_model(saved("mixtral", tmp_path), dtype="float32", device="cpu")
    few = cut(tiny_text, loaded.tokenizer, samples=3, length=12)
    seen: dict[Any, tuple[Tensor, Tensor]] = {}
    hooks = [
        loaded.model.get_submodule(one.name).register_forward_hook(
            lambda _m, args, output, one=one: seen.update({one: (args[1] % 13, output)})
        )
        for one in loaded.rows.layers
        if "expert" in one.name
    ]
    with torch.no_grad():
        loaded.model(input_ids=few.read_ids, use_cache=False)
    for hook in hooks:
        hook.remove()
    layer = next(one for one, (position, _) in seen.items() if (position == 0).any())  # the BOS goes to this expert
    position, output = seen[layer]
    rows = slice(layer.start, layer.start + layer.rows)
    found = compute_scores(loaded, ["mean_activation"], few)["mean_activation"][rows]
    torch.testing.assert_close(found, output[(position > 0) & (position < 12)].abs().mean(0), rtol=1e-4, atol=1e-6)
    prepare(loaded, "mean", few)
    edit = edit_of([layer.start], loaded.rows.n_rows, intervention="mean")
    put: list[Tensor] = []
    with applied(loaded, edit), torch.no_grad():
        hook = loaded.model.get_submodule(layer.name).register_forward_hook(
            lambda _m, _a, after: put.append(after[:, 0])
        )
        loaded.model(input_ids=few.read_ids, use_cache=False)
        hook.remove()
    expected = output[position > 0][:, 0].mean()
    torch.testing.assert_close(put[0], expected.expand_as(put[0]), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("family", ["llama", "gpt_neox"])
def test_mean_is_over_the_text_and_resample_meets_positions(family: str, tmp_path: Path, tiny_text: Path) -> None:
    loaded = load_model(saved(family, tmp_path), dtype="float32", device="cpu")
    calibration = cut(tiny_text, loaded.tokenizer, role="calibration", samples=3, length=12)
    evaluated = cut(tiny_text, loaded.tokenizer, samples=2, length=12, skip_tokens=48)
    layer = loaded.rows.layers[1]
    linear = loaded.model.get_submodule(layer.name)
    said: list[Tensor] = []
    hook = linear.register_forward_hook(lambda _m, _a, output: said.append(output.view(len(output), 13, -1)))
    with torch.no_grad():
        loaded.model(input_ids=calibration.read_ids, use_cache=False)
    hook.remove()
    replaced = {"mean": said[0][:, 1:].mean((0, 1))[0].expand(13), "resample": said[0][0, :, 0]}
    for intervention, values in replaced.items():
        given = calibration if intervention == "mean" else calibration.first(1)
        prepare(loaded, intervention, given)
        edit = edit_of([layer.start], loaded.rows.n_rows, intervention=intervention)
        [found] = [one.window_nats for one in measured(loaded, Nll(evaluated, 2), [edit])]

        def put(_m: Any, _a: Any, output: Tensor, values: Tensor = values) -> Tensor:
            changed = output.clone()
            changed[..., 0] = values
            return changed

        hook = linear.register_forward_hook(put)
        expected = slow_nll_in_one(loaded.model, evaluated.read_ids)
        hook.remove()
        assert found == pytest.approx(expected, rel=1e-4)


def slow_nll_in_one(model: Any, read: Tensor) -> list[float]:
    with torch.no_grad():
        logits = torch.cat([model(input_ids=row[None]).logits for row in read]).double()
    nats = -logits.log_softmax(-1)[:, 1:-1].gather(-1, read[:, 2:, None])[..., 0]
    return [float(one) for one in nats.sum(1)]


# Commands, records and pages


def test_commands_write_it_down_and_old_results_are_streams(
    model: LoadedModel, tiny_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "sweep", model.id, "--selectors", "wanda", "--corpus", str(tiny_text), "--eval-corpus", str(tiny_text),
        "--samples", "2", "--max-length", "8", "--eval-samples", "3", "--eval-length", "12", "--rates", "0,0.5",
        "--orders", "lerf", "--store", str(tmp_path / "store"),
    ]  # fmt: skip
    assert main([*words, "--out", str(tmp_path / "text")]) == 0
    assert main([*words, "--out", str(tmp_path / "stream"), "--window-start", "stream"]) == 0
    specs = [read_manifest(tmp_path / name)["files"]["sweep.parquet"]["spec"] for name in ("text", "stream")]
    assert [spec["evaluation"].get("window_prefix") for spec in specs] == [[BOS], None]
    plans = [audit_plan(spec, [TEXT], [tiny_text])[0] for spec in specs]
    assert [one.scoring.window_start for one in plans] == ["text", "stream"]
    specs[1] = without_starts(specs[1])  # as it was written before there was a choice
    assert audit_plan(specs[1], [TEXT], [tiny_text])[0].scoring.window_start == "stream"
    old = without_starts(read_manifest(tmp_path / "stream"))
    (tmp_path / "stream" / "manifest.json").write_text(json.dumps(old))
    for name in ("text", "stream"):
        capsys.readouterr()
        words = ["replay", str(tmp_path / name), "--text", str(tiny_text), "--store", str(tmp_path / f"again-{name}")]
        assert main(words) == 0, capsys.readouterr()
    entries = [{"spec": spec} for spec in specs]
    assert "window start text (each behind the token 0)" in describe_run({}, entries[0])
    assert "window start stream" in describe_run({}, entries[1])
    assert [before_windows({}, one) for one in (*entries, {})] == [(BOS,), (), None]
    assert before_windows({"published": True}, entries[0]) is None


def test_two_starts_are_not_compared_in_silence() -> None:
    of: Callable[[Any], Any] = partial(SimpleNamespace, spec=Curves)
    shown = [("A", of(before_windows=(BOS,))), ("B", of(before_windows=())), ("Paper", of(before_windows=None))]
    (note,) = _starts(shown)
    assert note.startswith("Windows do not begin alike (A: behind the tokens [0]; B: with nothing before them):")
    assert _starts(shown[1:]) == _starts([shown[0], shown[0], shown[2]]) == []
    run = {"files": {"sweep.parquet": {"spec": {"evaluation": {"window_start": "text", "window_prefix": [BOS]}}}}}
    assert departures(run, {}) == (
        "window start text (each behind the token 0), the paper does not tell its own (sweep)",
    )
    run["files"]["sweep.parquet"]["spec"]["evaluation"] = {"window_start": "text"}
    assert departures(run, {}) == ()
