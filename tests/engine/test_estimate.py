"""What a run will take, from shapes alone, against what it takes: FLOPs by hand, memory by torch's allocator."""

import gc
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import save_tiny, tiny_model
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from engine.cli import main
from engine.data.corpora import Windows
from engine.edits.edit import edit_of
from engine.measures.base import MEASURES, Given
from engine.measures.nll import token_nll
from engine.measures.predictions import evaluation_batch_size
from engine.models import dry_passes, loading
from engine.models.dry_passes import dry
from engine.models.loading import load_sketch
from engine.models.memory import Room
from engine.models.rows_of_modules import decoder_blocks
from engine.records.errors import InputError
from engine.results.store import Store
from engine.run import run_estimate as fits_module
from engine.run.audit_plan import PRESETS, AuditPlan, ScorePlan
from engine.run.refusal_plan import RefusalPlan
from engine.run.run_estimate import SWEEP, Estimate, Work, estimate
from engine.run.runner import Cell, LocalRunner, Results
from engine.selectors.gradients import IG_STEPS, Inputs, Wanted, lrp, path
from engine.selectors.passes import objective_gradient, windows_per_pass
from engine.studies.audit.audit_inputs import AuditInputs
from engine.studies.audit.sweeps import Sweep

# Wide enough that tensors, not the allocator's grains, make the peak.
WIDE = {"hidden_size": 96, "intermediate_size": 224, "num_hidden_layers": 3, "head_dim": 24}
B, T = 4, 48


def linear_flops(model: Any, tokens: int) -> int:
    """Of one forward pass, by hand: 2 * tokens * d_in * d_out of every Linear, the LM head's among them."""
    sizes = [m.weight.numel() for m in model.modules() if isinstance(m, torch.nn.Linear)]
    return sum(2 * tokens * size for size in sizes)


def attention_flops(config: Any, batch: int, length: int) -> int:
    """QK' and AV of every layer and head."""
    text = config.get_text_config()
    return text.num_hidden_layers * 2 * 2 * batch * text.num_attention_heads * length * length * text.head_dim


def allocator_peak(work: Callable[[], object]) -> int:
    """Most bytes that torch's allocator held at once beyond those before, by its own record."""
    gc.collect()  # what earlier tests left is not to go meanwhile
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as found:
        work()
    now = most = 0
    events = [one for one in found.profiler.kineto_results.events() if one.name() == "[memory]"]
    for event in sorted(events, key=lambda one: one.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return most


def backward(model: Any, rows: Any, ids: torch.Tensor, one_pass: Any, methods: list[Any]) -> None:
    sums: dict[Any, torch.Tensor] = {}
    wanted = Wanted(methods, lambda method, layer, values: sums.update({(method, layer): values.abs().sum((0, 1))}))
    with torch.enable_grad():
        one_pass(model, rows, Inputs(model, ids, None), lambda logits: objective_gradient(logits, ids, "loss"), wanted)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny("llama", tmp_path_factory.mktemp("wide"), **WIDE)


@pytest.mark.parametrize("family", ["llama", pytest.param("qwen3", marks=pytest.mark.long), "gemma3_text"])
def test_flops_and_weights_are_those_counted_by_hand(family: str) -> None:
    model = tiny_model(family)
    expected = linear_flops(model, B * T) + attention_flops(model.config, B, T)
    size = sum(parameter.numel() for parameter in model.parameters())  # tied ones once
    ids = torch.zeros(B, T, dtype=torch.int64)
    with dry(model, torch.bfloat16) as found, torch.no_grad():
        cost = found.cost(lambda: found.model(input_ids=ids, use_cache=False))
        again = found.cost(lambda: found.model(input_ids=ids, use_cache=False))
    assert cost.flops == pytest.approx(expected, rel=0.02)  # rotary angles are a product too
    assert cost == again
    assert cost.left_bytes == 0
    assert found.weight_bytes == pytest.approx(2 * size, rel=0.02)  # and some buffers


DEEP = {"num_hidden_layers": 9, "layer_types": ["sliding_attention", "full_attention"] * 4 + ["sliding_attention"]}


@pytest.mark.parametrize(
    ("family", "changes", "passed"),
    [
        ("llama", {"num_hidden_layers": 7}, [2, 3]), ("gemma3_text", DEEP, [3, 5]),
        pytest.param("gpt_neox", {"num_hidden_layers": 7}, [2, 3], marks=pytest.mark.long),
        ("gemma3_text", {**DEEP, "layer_types": ["sliding_attention"] * 6 + ["full_attention"] * 3}, [9]),
    ],
)  # fmt: skip
def test_blocks_that_repeat_cost_what_all_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, changes: dict[str, Any], passed: list[int]
) -> None:
    folder = str(save_tiny(family, tmp_path, **changes))
    plan = plans(batch_size=B, selectors=("wanda", "ig") if family == "gpt_neox" else ("wanda", "consensus2"))
    sketch = load_sketch(folder, device="cpu")
    start, period = dry_passes._start_and_period(sketch.model, decoder_blocks(sketch.model))
    assert [start, start + period][: len(passed)] == passed

    def found() -> Estimate:
        return estimate(load_sketch(folder, device="cpu"), plan, RefusalPlan(reply_tokens=40))

    told = found()
    monkeypatch.setattr(dry_passes, "_start_and_period", lambda _, blocks: (len(blocks), 1))
    assert told == found()


@pytest.mark.parametrize("what", ["nll", "lrp", pytest.param("path", marks=pytest.mark.long)])
def test_peaks_are_those_of_torchs_allocator(wide: Path, what: str) -> None:
    loaded = loading.load_model(str(wide), dtype="float32", device="cpu")
    ids = torch.randint(5, 290, (B, T), generator=torch.Generator().manual_seed(0))

    def work(model: Any) -> None:
        if what == "nll":
            with torch.no_grad():
                logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
                token_nll(logits, ids[:, 1:])
        else:
            one, methods = {"plain": (path, ["grad_x_input"]), "lrp": (lrp, ["lrp"]), "path": (path, ["ig"])}[what]
            backward(model, loaded.rows, ids, one, methods)

    work(loaded.model)  # what a first pass sets up
    measured = allocator_peak(lambda: work(loaded.model))
    with dry(load_sketch(str(wide), dtype="float32", device="cpu").model, torch.float32) as found:
        told = found.cost(lambda: work(found.model))
    assert told.peak_bytes == pytest.approx(measured, rel=0.15)


def plans(**scoring: Any) -> AuditPlan:
    return AuditPlan(
        scoring=ScorePlan(**{"samples": 10, "length": T, "seeds": (1, 2)} | scoring),
        eval_samples=7, eval_length=T, sweep_rates=(0.0, 0.3, 0.6),
    )  # fmt: skip


def of_stage(found: Estimate, stage: str) -> dict[str, Work]:
    return {one.what: one for one in found.work if one.stage == stage}


@pytest.mark.long  # 16 steps of a path, traced
@pytest.mark.parametrize(("asked", "methods"), [("ig", ["ig"]), ("ig,ig_conductance", ["ig", "ig_conductance"])])
def test_what_igs_path_keeps_is_what_it_takes(wide: Path, asked: str, methods: list[str]) -> None:
    """The formula of the estimate against a trace of the path itself, all 16 steps."""
    plan = plans(selectors=tuple(asked.split(",")), batch_size=B)
    work = of_stage(estimate(load_sketch(str(wide), device="cpu"), plan, RefusalPlan(), ["score"]), "score")
    told = work["integrated gradients"]
    sketch = load_sketch(str(wide), device="cpu")
    with dry(sketch.model, torch.float32) as found:
        ids = torch.zeros(B, T, dtype=torch.int64)
        traced = found.cost(lambda: backward(found.model, sketch.rows, ids, path, methods))
    assert told.peak_bytes == pytest.approx(traced.peak_bytes, rel=0.15)
    assert told.flops * B // 10 == pytest.approx(traced.flops, rel=0.02)
    assert told.tokens == IG_STEPS * 10 * T + 3 * T  # three batches, each with h(0) of a window


def test_passes_and_batches_are_the_runs_own(wide: Path, tiny_text: Path, tmp_path: Path) -> None:
    plan = replace(plans(), eval_corpus=str(tiny_text))
    sketch = load_sketch(str(wide), device="cpu")
    ids = torch.zeros(7, T, dtype=torch.int64)
    evaluation = evaluation_batch_size(sketch, Windows("text", "", ids, tuple(range(7))))
    scoring = min(10, windows_per_pass("auto", sketch.model, sketch.rows, T))
    plan = replace(plan, more_interventions=("mean",), more_rates=(0.0, 0.5, 1.0))
    found = estimate(sketch, plan, RefusalPlan(), ["score", "sweep"])
    scores, sweep = of_stage(found, "score"), of_stage(found, "sweep")
    assert set(scores) == {"integrated gradients", "lrp"}  # whose last step gives the activations
    assert {one.batch for one in scores.values()} == {scoring}
    (whole,) = sweep.values()
    assert whole.batch == evaluation
    loaded = loading.load_model(str(wide), device="cpu")
    with Store(tmp_path) as store:
        audit = AuditInputs(loaded, replace(plan, scoring=replace(plan.scoring, corpus=str(tiny_text))), store)
        cells = {cell.key for cell in Sweep().cells(audit, Results())}
    assert whole.what == f"{len(cells)} cells"
    assert whole.tokens == len(cells) * 7 * T
    # seven windows of Linears, the LM head and attention
    one_cell = linear_flops(loaded.model, 7 * T) + attention_flops(loaded.model.config, 7, T)
    assert whole.flops == pytest.approx(len(cells) * one_cell, rel=0.02)


@pytest.mark.first_run("fluency")
@pytest.mark.parametrize(("name", "edits"), [("kl", 16), ("fluency", 16)])
def test_a_measure_costs_the_flops_that_torch_counts(
    wide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, edits: int
) -> None:
    """Of edits of the first block, at the outputs; prompts of one length, no reply ends before its last token."""
    for module in ("generation", "fluency"):
        monkeypatch.setattr(f"engine.measures.{module}.end_tokens", lambda *_: frozenset())
    monkeypatch.setattr("engine.models.products.LEAST", 1e12)  # oneDNN's products are not counted
    loaded = loading.load_model(str(wide), device="cpu")
    loaded.model.config._attn_implementation = "eager"  # nor is the CPU's fused attention
    text = Windows("text", "", torch.randint(5, 290, (2, T), generator=torch.Generator().manual_seed(0)), (0, 1))
    measure = MEASURES.get(name).make(Given(text, None, ("Why? " * 9,) * 3, 12))
    cells = [Cell(loaded, edit_of([row], loaded.rows.n_rows), measure) for row in range(edits)]
    with Store(tmp_path) as store, FlopCounterMode(display=False) as counter:
        LocalRunner(store).run(cells)
    cells_of = [(cells[0].base or cells[0]).measure, edits]
    (work,) = estimate(load_sketch(str(wide), device="cpu"), plans(), RefusalPlan(), [SWEEP], cells=[cells_of]).work
    assert work.flops == pytest.approx(counter.get_total_flops(), rel=0.02)


@pytest.mark.first_run("random|relp|consensus2|ig_conductance")
@pytest.mark.parametrize(
    ("selectors", "passes"),
    [
        ("random,magnitude", set()), ("wanda", {"activations"}), ("grad_x_input", {"plain gradients"}),
        ("relp", {"activations", "lrp"}), ("wanda,grad_x_input", {"plain gradients"}),
        ("consensus2", {"integrated gradients", "lrp"}), ("grad_x_input,ig_conductance", {"integrated gradients"}),
    ],
)  # fmt: skip
def test_selectors_cost_the_passes_that_they_ask_for(wide: Path, selectors: str, passes: set[str]) -> None:
    plan = plans(selectors=tuple(selectors.split(",")), batch_size=2)
    found = estimate(load_sketch(str(wide), device="cpu"), plan, RefusalPlan(), ["score"])
    assert set(of_stage(found, "score")) == passes
    assert all(one.passes == (5 if one.what != "integrated gradients" else 5 * (IG_STEPS + 1)) for one in found.work)


@pytest.mark.long
def test_replies_hold_their_cache(wide: Path) -> None:
    """Keys and values of every layer, head, sequence and position, until the last token."""
    plan = RefusalPlan(reply_tokens=2000, batch_size=6)  # so many that the cache is most of it
    sketch = load_sketch(str(wide), device="cpu")
    (work,) = estimate(sketch, plans(), plan, ["replies"]).work
    config = sketch.model.config
    positions = work.tokens // (int(work.what.split()[2].replace(",", "")))  # of one reply, its prompt with it
    cache = 2 * config.num_hidden_layers * 6 * config.num_key_value_heads * positions * config.head_dim * 4
    assert work.batch == 6
    assert cache < work.peak_bytes < 1.5 * cache
    half = estimate(load_sketch(str(wide), device="cpu"), plans(), replace(plan, batch_size=3), ["replies"]).work[0]
    assert half.flops == pytest.approx(work.flops, rel=0.02)
    assert half.peak_bytes < 0.7 * work.peak_bytes


@pytest.mark.first_run("11-8")
@pytest.mark.parametrize(("batch_size", "sequences"), [(3, 3), (11, 8), (12, 12)])
def test_a_batch_of_replies_holds_those_of_as_many_whole_edits_as_fit(
    wide: Path, batch_size: int, sequences: int
) -> None:
    plan = RefusalPlan(domains=("hate",), calibration_pairs=2, reply_tokens=5, batch_size=batch_size)
    (work,) = estimate(load_sketch(str(wide), device="cpu"), plans(), plan, ["replies"]).work
    assert work.batch == sequences


# Where it fits: what is there, and what is a card, is forced


@pytest.fixture
def a_card(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sketches are for a card with this many bytes free."""

    def free(size: float) -> None:
        monkeypatch.setattr(loading, "checked_device", lambda _: torch.device("cuda"))
        monkeypatch.setattr(fits_module, "room_on", lambda _: Room(int(size), int(4 * size)))

    return free


def card(wide: Path, **more: Any) -> Estimate:
    return estimate(load_sketch(str(wide), dtype="bfloat16"), AuditPlan(), RefusalPlan(), **more)


@pytest.mark.long
def test_doctors_verdict_follows_the_memory_that_is_free(
    wide: Path, a_card: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    a_card(1)
    whole, single = card(wide), card(wide, batch=1)
    known = {None: whole, 1: single}  # traced once, not for every amount of memory
    monkeypatch.setattr(fits_module, "estimate", lambda *_, batch=None: known[batch])
    assert whole.device == "cuda"
    assert whole.peak_bytes > 1.2 * single.peak_bytes

    def verdict(free: float) -> fits_module.Fits:
        a_card(free)
        return fits_module.fits(str(wide), load_sketch(str(wide), dtype="bfloat16"))

    ample = verdict(2 * whole.peak_bytes + whole.host_bytes)
    assert (ample.state, ample.next_step) == ("ok", None)
    assert "GiB of weights in bfloat16" in ample.found
    assert "removed rows" not in ample.found
    tight = verdict(1.051 * whole.peak_bytes)
    assert tight.state == "ok"
    assert "of removed rows go to the host" in tight.found
    few = verdict(1.049 * whole.peak_bytes)
    assert few.state == "note"
    assert "with one sequence at a time" in few.found
    assert verdict(1.051 * single.peak_bytes).state == "note"
    none = verdict(1.049 * single.peak_bytes)
    assert none.state == "problem"
    assert none.next_step is not None
    assert "--dtype" not in none.next_step  # it is bfloat16 already


def test_removed_rows_stay_beside_the_weights_on_the_host_only(wide: Path, a_card: Callable[[float], None]) -> None:
    here = estimate(load_sketch(str(wide), device="cpu", dtype="bfloat16"), AuditPlan(), RefusalPlan(), ["sweep"])
    a_card(1)
    there = card(wide, stages=["sweep"])
    (one,), (other,) = here.work, there.work
    rows = 2 * sum(
        p.numel() for n, p in tiny_model("llama", **WIDE).named_parameters() if ".layers." in n and p.ndim == 2
    )
    assert there.host_bytes == other.kept_bytes == pytest.approx(0.9 * rows, abs=1)
    assert here.host_bytes == 0
    assert here.peak_bytes == here.weight_bytes + one.peak_bytes + one.kept_bytes
    assert there.peak_bytes == there.weight_bytes + other.peak_bytes


def test_smaller_copies_lie_on_the_card(wide: Path, a_card: Callable[[float], None]) -> None:
    """Of the three Linears of every gated MLP."""
    a_card(1)
    weights = [(n, p) for n, p in tiny_model("llama", **WIDE).named_parameters() if ".mlp." in n]
    copied = 2 * sum(p.numel() for _, p in weights)
    without, with_copies = (
        estimate(load_sketch(str(wide), dtype="bfloat16"), AuditPlan(sweep_rates=rates), RefusalPlan(), ["sweep"])
        for rates in ((0.0,), (0.0, 0.25, 0.9))
    )
    assert with_copies.work[0].peak_bytes - without.work[0].peak_bytes == round(0.75 * copied)


def test_a_model_that_cannot_be_traced_is_judged_by_its_weights(
    wide: Path, a_card: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: Any, **__: Any) -> None:
        raise InputError("it cannot be estimated")

    monkeypatch.setattr(fits_module, "estimate", refuses)
    weights = 2 * sum(parameter.numel() for parameter in tiny_model("llama", **WIDE).parameters())
    for free, state in ((weights, "note"), (weights - 1, "problem")):
        a_card(free)
        found = fits_module.fits(str(wide), load_sketch(str(wide), dtype="bfloat16"))
        assert found.state == state
        assert "it cannot be estimated" in found.found


@pytest.mark.long
def test_the_command(wide: Path, capsys: Any, tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    for file in wide.iterdir():
        if file.suffix != ".safetensors":  # nothing of it needs the weights
            (tmp_path / "bare" / file.name).write_bytes(file.read_bytes())
    given = ["estimate", str(tmp_path / "bare")]
    small = ["--samples", "4", "--eval-samples", "4", "--eval-length", "32"]
    assert main([*given, *small, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["fits"] is True
    assert {one["stage"] for one in said["work"]} == {"score", "sweep", "replies"}
    assert said["flops"] == sum(one["flops"] for one in said["work"])
    assert said["seconds"] == pytest.approx(said["flops"] / said["flops_per_second"])
    assert main([*given, "sweep", *small]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "cells" in told
    assert "GiB free: fits" in told
    assert "activations" not in told
    settings = ["--preset", "quick", "--rates", "0,0.5", "--json"]  # its windows, our rates
    assert main([*given, "score", "sweep", *settings]) == 0
    quick = json.loads(capsys.readouterr().out)
    plan = PRESETS["quick"].plan
    read = f"--samples {plan.scoring.samples} --eval-samples {plan.eval_samples} --eval-length {plan.eval_length}"
    assert main([*given, *f"score sweep {read} --rates 0,0.5 --json".split()]) == 0
    assert json.loads(capsys.readouterr().out)["work"] == quick["work"]
    assert quick["analyses"] == []
    assert main([*given, *settings, "--corpus", "demo", "--eval-corpus", "demo"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert whole["analyses"] == list(PRESETS["quick"].analyses)
    assert (whole["partly"], whole["skipped"]) == (["budget", "specific", "verdict"], {})
    scored, swept = ([[one for one in of["work"] if one["stage"] == stage] for of in (quick, whole)]
                     for stage in ("score", "sweep"))  # fmt: skip
    assert scored[0] == scored[1]
    assert sum(one["flops"] for one in swept[1]) > sum(one["flops"] for one in swept[0])  # both orders, for one
    assert main([*given, *settings, "--corpus", "demo", "--eval-corpus", "demo", "--selectors", "wanda"]) == 0
    without = json.loads(capsys.readouterr().out)  # `analyze` leaves out what it cannot do as well
    assert list(without["skipped"]) == ["verdict"]
    assert "random" in without["skipped"]["verdict"]
    assert main([*given, "--preset", "quik"]) == 2
    assert "did you mean 'quick'" in capsys.readouterr().err
    assert main([*given, *settings[:2], "--corpus", str(tmp_path / "none.txt")]) == 2
    assert "none.txt" in capsys.readouterr().err
    assert main([*given, "swep", *small]) == 2
    assert "did you mean 'sweep'" in capsys.readouterr().err
