"""Defaults stand in plans only: options and help are made from them, and parsing nothing gives the plan."""

import argparse
import inspect
import math
from dataclasses import replace
from functools import reduce
from pathlib import Path

import pytest

from engine import cli
from engine.cli import build_parser, main
from engine.commands import options
from engine.records.errors import InputError
from engine.run import audit_plan, refusal_plan
from engine.run.audit_plan import AuditPlan, InvariancePlan, ProtocolsPlan, ScorePlan, for_model
from engine.run.field_types import option, rates, settings_of, sizes
from engine.run.refusal_plan import RefusalPlan, demo_plan

OTHER = "org/model"  # any model but the shipped one
MODELS = (OTHER, "demo")
STAGES = ("run", "calibrate", "sweep", "select", "control", "evaluate", "structure", "compose")
PAPER = AuditPlan()
COMMANDS = {
    ("score",): lambda model: for_model(PAPER, model).scoring,
    ("mask", "--selector=lrp", "--rate=0.1", "--out=m"):
        lambda model: replace(for_model(PAPER, model).scoring, selectors=("lrp",)),
    ("sweep",): lambda model: for_model(PAPER, model),
    ("analyze",): lambda model: audit_plan.preset("demo") if model == "demo" else PAPER,
    **{("analyze", f"--preset={n}"): lambda model, n=n: for_model(audit_plan.preset(n), model)
       for n in audit_plan.PRESETS},
    **{("refusal", stage, "--pairs=demo"): lambda model, stage=stage: replace(
        refusal_plan.default_plan(model), domains=refusal_plan.COMPOSED_DOMAINS if stage == "compose" else None)
       for stage in STAGES},
}  # fmt: skip
WHERE = pytest.mark.parametrize("words", COMMANDS, ids=" ".join)


class FoundError(BaseException):
    """Carries the plan out of a command before the work begins."""


@pytest.fixture
def plan_of(monkeypatch):
    """The plan with which a command would begin to work."""
    real = options.plan_from

    def caught(args, base):
        raise FoundError(real(args, base))

    def call(words, model, *more):
        monkeypatch.setattr(options, "plan_from", caught)
        monkeypatch.setattr(cli, "build_parser", lambda _: PARSER)  # made once for some thousand calls
        command = words[:2] if words[0] == "refusal" else words[:1]
        with pytest.raises(FoundError) as found:
            main([*command, model, *words[len(command) :], *more])
        return found.value.args[0]

    return call


def parsers(parser=None, words=()):
    """Every command with its parser."""
    parser = parser or build_parser()
    inner = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    if not inner:
        yield words, parser
    for group in inner:
        for name, one in group.choices.items():
            yield from parsers(one, (*words, name))


PARSER = build_parser()
ALL = dict(parsers(PARSER))


def parser_of(words):
    return ALL[words[:2] if words[0] == "refusal" else words[:1]]


@WHERE
@pytest.mark.parametrize("model", MODELS)
def test_nothing_given_is_the_plan(plan_of, words, model):
    assert plan_of(words, model) == COMMANDS[words](model)


@WHERE
def test_help_tells_the_default_of_every_case(words):
    """What stands in help is what the plan would be, for the shipped model and for others."""
    parser = parser_of(words)
    later = {one: text for action in parser._actions for one, text in getattr(action, "later", {}).items()}
    told = {one.dest: " ".join((later.get(one) or one.help or "").split()) for one in parser._actions}
    for dest, setting in parser.get_default("plan_options").items():
        if setting.kind is bool:
            assert not any(setting.value(COMMANDS[words](model)) for model in MODELS)  # a flag that is off
            continue
        said = told[dest].replace("%%", "%").partition(" (default: ")[2].removesuffix(")")
        cases = [said] if setting.said else said.split("; ")
        for model in MODELS:
            default = setting.default(COMMANDS[words](model))
            assert default in (cases[0], *(one.partition(": ")[2] for one in cases[1:])), (dest, model)
        if len(words) == 1 or words[0] == "refusal":
            assert cases[0] == setting.default(COMMANDS[words](OTHER))


def test_no_option_of_a_plan_has_a_default_of_its_own():
    walked = 0
    for words, parser in ALL.items():
        kept = parser.get_default("plan_options") or {}
        walked += len(kept)
        for action in parser._actions:
            if action.dest in kept:
                own = words == ("refusal", "compose") and action.dest == "domains"
                nothing = False if kept[action.dest].kind is bool else None
                assert action.default == (",".join(refusal_plan.COMPOSED_DOMAINS) if own else nothing)
            elif action.default not in (None, False, [], argparse.SUPPRESS):
                text = action.default[0] if isinstance(action.default, list) else str(action.default)
                assert text in action.help, (words, action.dest)
    assert walked > 100


def test_the_api_has_the_same_defaults():
    from engine.selectors.scoring_run import OBJECTIVES, ScoringRun, compute_scores, nested_scores
    from engine.studies.audit.sweeps import sweep_model

    for function in (compute_scores, nested_scores, ScoringRun):
        found = inspect.signature(function).parameters
        assert found["seeds"].default is ScorePlan().seeds
        assert found["objective"].default is OBJECTIVES[0] is ScorePlan().objective
    found = inspect.signature(sweep_model).parameters
    assert found["rates"].default is AuditPlan().sweep_rates
    assert found["seeds"].default is ScorePlan().seeds
    assert tuple(found["orders"].default) == AuditPlan().orders


OWN = Path(__file__).parents[1] / "data" / "own_scores.csv"
OTHERS = {  # a value for every option, none of them a default
    "--parts-windows": ("3", 3), "--parts-rates": ("0.2", (0.2,)), "--parts-orders": ("morf", ("morf",)),
    "--matched-seeds": ("7,8", (7, 8)), "--specific-rates": ("0.07", (0.07,)), "--budget-factor": ("3", 3.0),
    "--selectors": ("lrp,random", ("lrp", "random")), "--corpus": ("c4", "c4"), "--samples": ("9", 9),
    "--max-length": ("7", 7), "--objective": ("logit", "logit"), "--batch-size": ("3", 3),
    "--skip-first": ("2", 2), "--window-start": ("stream", "stream"),
    "--eval-corpus": ("c4", "c4"), "--eval-samples": ("5", 5), "--eval-length": ("6", 6),
    "--orders": ("morf", ("morf",)), "--rates": ("10%,0.3", (0.1, 0.3)), "--sizes": ("4,2,2", (2, 4)),
    "--control-rates": ("0:0.2:0.1", (0.0, 0.1, 0.2)),
    "--domain-corpus": ("wikitext2", "wikitext2"), "--domain-draws": ("3", 3), "--dangerous-draws": ("4", 4),
    "--downstream-items": ("8", 8), "--downstream-tasks": (".", "."),
    "--pairs": ("my.jsonl", "my.jsonl"), "--domains": ("hate, adult", ("hate", "adult")),
    "--pairs-per-domain": ("4", 4), "--heldout-pairs": ("0", None), "--lambdas": ("20%,0.4", (0.2, 0.4)),
    "--ks": ("1%", (0.01,)), "--reply-tokens": ("10", 10), "--benign-limit": ("0.2", 0.2),
    "--max-perplexity": ("50", 50.0), "--longer-replies": ("3", 3), "--system": ("Be brief.", "Be brief."),
    "--reply-samples": ("3", 3), "--temperature": ("0.7", 0.7), "--sampling-seed": ("7", 7),
    "--follow-up": ("Please go on.", "Please go on."),
    "--perplexity-factor": ("2.5", 2.5), "--judge": ("rejection-model", "rejection-model"), "--seeds": ("2,1", (2, 1)),
    "--draws": ("7", 7), "--splits": ("6", 6), "--judge-quality": (".", "."),
    "--coefficients": ("0.3,3", (0.3, 3.0)), "--depths": ("0,0.9", (0.0, 0.9)),
    "--widen": ("1", 1),
    "--singles-rows": ("40", 40), "--singles-neurons": ("0", 0), "--singles-windows": ("2", 2),
    "--singles-seed": ("5", 5),
    "--intervention": ("mean", "mean"), "--protocol-interventions": ("mean,zero", ("mean", "zero")),
    "--protocol-units": ("head", ("head",)), "--protocol-metrics": ("kl", ("kl",)),
    "--protocol-orders": ("morf", ("morf",)),
    "--protocol-rates": ("20%,0.4", (0.2, 0.4)), "--protocol-windows": ("5", 5), "--resample-windows": ("3", 3),
    "--resample-seed": ("4", 4), "--resample-draws": ("2", 2), "--more-interventions": ("mean,zero", ("mean", "zero")),
    "--more-rates": ("20%,0.4", (0.2, 0.4)),
    "--replies-prompts": ("Why?| Where?", ("Why?", "Where?")),
    "--replies-tokens": ("9", 9),
    "--faithful-damage": ("0.4", 0.4), "--invalid-damage": ("0.9", 0.9), "--log-gap": ("0.5", 0.5),
    "--verdict-level": ("0.01", 0.01), "--draw-spearman": ("0.9", 0.9), "--draw-jaccard": ("0.7", 0.7),
    "--specific-orders": ("lerf", ("lerf",)),
    "--calibration-draws": ("7", 7), "--draws-seed": ("5", 5),
    "--rewrites": ("neurons,decoys", ("neurons", "decoys")), "--invariance-samples": ("11", 11),
    "--scores": (f"mine={OWN}", (f"mine={OWN}",)), "--scores-reduce": ("abs-sum", "abs-sum"),
    "--rewrite-seed": ("5", 5), "--rescaling-power": ("3", 3), "--decoys": ("2", 2), "--decoy-power": ("6", 6),
}  # fmt: skip


@pytest.mark.first_run("^org|demo-analyze$|demo-refusal run")
@WHERE
@pytest.mark.parametrize("model", MODELS)
def test_an_option_changes_its_field_and_nothing_else(plan_of, words, model):
    before = COMMANDS[words](model)
    for setting in parser_of(words).get_default("plan_options").values():
        if setting.option not in OTHERS:
            continue
        text, value = OTHERS[setting.option]
        after = plan_of(words, model, f"{setting.option}={text}")
        changed = {
            one.path: one.value(after) for one in settings_of(type(after)) if one.value(after) != one.value(before)
        }
        expected = {setting.path: value}
        if setting.field == "corpus" and hasattr(before, "eval_corpus"):
            expected[("eval_corpus",)] = value
        if setting.field == "sweep_rates" and hasattr(before, "more_rates"):
            expected[("more_rates",)] = value
        if setting.field == "score_files":  # beside the baselines where --selectors could say otherwise
            path = (*setting.path[:-1], "selectors")
            asked = any(one.path == path for one in parser_of(words).get_default("plan_options").values())
            others = ("random", "magnitude", "wanda") if asked else reduce(getattr, path, before)
            expected[path] = (*others, "mine")
        if setting.field == "max_perplexity" and before.perplexity_factor is not None:
            expected[("perplexity_factor",)] = None
        assert changed == expected


@pytest.mark.parametrize("plan", [*(one.plan for one in audit_plan.PRESETS.values()), RefusalPlan(), demo_plan()])
def test_what_help_shows_can_be_typed(plan):
    for setting in settings_of(type(plan)):
        value = setting.value(plan)
        if setting.option and value is not None and setting.field not in ("phrases", "all_cells", "thinking"):
            text = setting.shown(value)
            assert setting.of(text if setting.read else setting.kind(text)) == value, setting.option
            if setting.read:
                assert setting.of(setting.default(plan) if not setting.said else text) == value


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ScorePlan(samples=0), "samples must be at least 1, got 0"),
        (lambda: ScorePlan(length=1), "length must be at least 2"),
        (lambda: ScorePlan(skip_first=-1), "skip first must be at least 0"),
        (lambda: ScorePlan(length=8, skip_first=7), "a window of 8 tokens has none left .* skip at most 6"),
        (lambda: ScorePlan(seeds=(1, -1)), "seeds must be at least 0, got -1"),
        (lambda: ScorePlan(objective="lose"), "unknown objective 'lose'; did you mean 'loss'"),
        (lambda: ScorePlan(selectors=("lpr",)), "unknown selector 'lpr'; did you mean 'lrp'"),
        (lambda: AuditPlan(sweep_rates=(0.1, 30)), r"sweep rates must be in \[0, 1\], got 30"),
        (lambda: AuditPlan(gap_rates=(math.nan,)), "gap rates must be in"),
        (lambda: AuditPlan(orders=("lerv",)), "unknown order 'lerv'; did you mean 'lerf'"),
        (lambda: AuditPlan(measures=("nl",)), "unknown measure 'nl'; did you mean 'nll'"),
        (lambda: AuditPlan(intervention="zeros"), "unknown intervention 'zeros'; did you mean 'zero'"),
        (lambda: InvariancePlan(rewrites=("norm",)), "unknown rewrite 'norm'; did you mean 'norms'"),
        (lambda: ProtocolsPlan(protocol_units=("rows",)), "unknown kind of unit 'rows'; did you mean 'row'"),
        (lambda: ProtocolsPlan(protocol_metrics=("nl",)), "unknown metric 'nl'; did you mean 'nll'"),
        (lambda: InvariancePlan(rescaling_power=17), r"rescaling power must be in \[1, 16\], got 17"),
        (lambda: AuditPlan(downstream_items=0), "downstream items must be at least 1"),
        (lambda: RefusalPlan(benign_limit=2), "benign limit must be in"),
        (lambda: RefusalPlan(max_perplexity=1), "perplexity cap must be above 1"),
        (lambda: RefusalPlan(perplexity_factor=0.5), "perplexity factor must be at least 1"),
        (lambda: RefusalPlan(heldout_pairs=0), "heldout pairs must be at least 1"),
        (lambda: RefusalPlan(lambdas=(2.0,)), "lambda must be in"),
        (lambda: RefusalPlan(lambdas=()), "at least one lambda"),
        (lambda: RefusalPlan(control_seeds=(1, 1)), "each once"),
        # What only a file can hold: other kinds of numbers, and sizes that no machine would ever be done with.
        (lambda: ScorePlan(samples=1e308), "samples must be a whole number, got 1e\\+308"),
        (lambda: ScorePlan(seeds=(1, 10**30)), "seeds must be a number below 2\\^63"),
        (lambda: ScorePlan(seeds=(1, 2.0)), r"seeds must be a whole number, got 2\.0"),
        (lambda: ScorePlan(seeds=tuple(range(1_001))), "seeds takes at most 1,000 values, got 1,001"),
        (lambda: ScorePlan(samples=True), "samples must be a whole number, got True"),
        (lambda: AuditPlan(sweep_rates=tuple(n / 2_000 for n in range(2_000))), "at most 1,000 values, got 2,000"),
        (lambda: AuditPlan(calibration_draws=10**6), r"calibration draws must be in \[0, 10,000\], got 1,000,000"),
        (lambda: AuditPlan(singles_windows=math.inf), "singles windows must be a whole number, got inf"),
        (lambda: InvariancePlan(decoys=10**9), "decoys must be in"),
        (lambda: ProtocolsPlan(resample_draws=10**9), "resample draws must be in"),
        (lambda: RefusalPlan(draws=10**9), "draws must be in"),
        (lambda: sizes("8", "--sizes"), "--sizes needs at least two sizes"),
        (lambda: rates("1:0:0.1", "--control-rates"), "--control-rates FROM:TO:STEP needs FROM <= TO"),
    ],
)
def test_a_plan_that_cannot_be_is_one_line(make, says):
    with pytest.raises(InputError, match=says) as told:
        make()
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["sweep", "demo", "--measures", "nl"], "unknown measure 'nl'; did you mean 'nll'"),
        (["sweep", "demo", "--intervention", "zeroo"], "unknown intervention 'zeroo'; did you mean 'zero'"),
        (["sweep", "demo", "--eval-samples", "0"], "--eval-samples must be at least 1, got 0"),
        (["sweep", "demo", "--eval-corpus", "nowhere.txt"], "there is no nowhere.txt"),
        (["analyze", "demo", "--sizes", "8"], "--sizes needs at least two sizes"),
        (["analyze", "demo", "--domain-corpus", "nowhere.txt"], "there is no nowhere.txt"),
        (["analyze", "demo", "--downstream-tasks", "nowhere"], "there is no folder nowhere; give hub, demo, or"),
        (["analyze", "demo", "--downstream-tasks", __file__], "there is no folder"),
        (["sweep", "demo", "--rates", "30"], "rate must be in [0, 1], got 30; write 0.3 or 30%"),
        (["mask", "demo", "--selector", "lpr", "--rate", "0.1", "--out", "m"], "did you mean 'lrp'"),
        (["refusal", "sweep", "demo", "--reply-tokens", "0"], "--reply-tokens must be at least 1, got 0"),
        (["refusal", "sweep", "demo", "--ks", "2"], "k must be in (0, 1), got 2"),
    ],
)
def test_an_error_names_the_option(arguments, says, capsys):
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1


def test_a_field_says_all_that_an_option_needs():
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Plan:
        warmth: float = option(0.5, "how warm: a share", least=0, most=1)
        deep: bool = option(False, "go deep")
        unseen: int = option(3, "", name=None)

    parser = argparse.ArgumentParser()
    options.add_options(parser, {"": Plan(), "night": Plan(0.1)})
    assert "how warm: a share (default: 0.5; night: 0.1)" in " ".join(parser.format_help().split())
    assert options.plan_from(parser.parse_args([]), Plan(0.2)) == Plan(0.2)
    assert options.plan_from(parser.parse_args(["--warmth=0", "--deep"]), Plan()) == Plan(0.0, True)
    with pytest.raises(InputError, match=r"--warmth must be in \[0, 1\], got 2"):
        options.plan_from(parser.parse_args(["--warmth=2"]), Plan())
