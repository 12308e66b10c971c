"""Plug-ins that end the program, print, fail while they are imported, or give something of another kind or shape:
one line that names them, and nothing of others is lost."""

import json
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

from engine.cli import main
from engine.interventions.at_outputs import edited_outputs
from engine.interventions.kinds import INTERVENTIONS, Intervention, register_intervention
from engine.judges.base import Exchange, Verdict, verdicts_on
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.selectors import available_selectors, base, register_selector


@pytest.fixture(autouse=True)
def own_registries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a test registers or breaks is forgotten."""
    available_selectors()
    for registry in (base.REGISTRY, INTERVENTIONS):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
        monkeypatch.setattr(registry, "broken", dict(registry.broken))
    return


def scored(answer: Callable[[Any], Any], loaded: LoadedModel, tmp_path: Path, *more: str) -> int:
    """`score` with a data-free selector that answers so."""

    class Rude:
        def score(self, run: Any) -> Any:
            return answer(run)

    register_selector("rude", data_free=True)(Rude)
    return main(["score", loaded.id, "--selectors", "rude", "--store", str(tmp_path / "s"), *more])


ANSWERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "sys.exit": (lambda run: sys.exit(3), "selector 'rude' ended the program"),
    "sys.exit of a text": (lambda run: sys.exit("bye"), "'bye'"),
    "quit": (lambda run: quit(), "ended the program"),
    "nothing": (lambda run: None, "gave a NoneType; expected a torch tensor"),
    "a list": (lambda run: [0.0] * run.rows.n_rows, "gave a list"),
    "numpy": (lambda run: torch.zeros(run.rows.n_rows).numpy(), "gave a ndarray"),
    "complex numbers": (lambda run: torch.zeros(run.rows.n_rows, dtype=torch.complex64), "torch.complex64"),
    "one too few": (lambda run: torch.zeros(run.rows.n_rows - 1), "shape [287]; expected [288]"),
    "a column": (lambda run: torch.zeros(run.rows.n_rows, 1), "shape [288, 1]; expected [288]"),
    "a single number": (lambda run: torch.zeros(()), "shape []; expected [288]"),
    "nan": (lambda run: torch.full((run.rows.n_rows,), torch.nan), "non-finite"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_selector_that_answers_something_else_is_one_line(
    name: str, tiny_llama: LoadedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer, says = ANSWERS[name]
    assert scored(answer, tiny_llama, tmp_path) == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert says in told[-1]
    assert "Traceback" not in "".join(told)


def test_what_a_plug_in_prints_is_no_part_of_the_json(
    tiny_llama: LoadedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def loud(run: Any) -> torch.Tensor:
        print("hello from the plug-in")  # noqa: T201
        return torch.arange(run.rows.n_rows).float()

    assert scored(loud, tiny_llama, tmp_path, "--json") == 0
    out, err = capsys.readouterr()
    assert "rude" in json.dumps(json.loads(out))
    assert "hello from the plug-in" in err


@pytest.mark.parametrize("ending", [SystemExit(5), RuntimeError("no"), ImportError("gone"), SyntaxError("bad")])
def test_a_plug_in_that_fails_or_exits_while_imported_is_left_out(
    ending: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    class Ending(EntryPoint):
        def load(self) -> object:
            print("importing")  # noqa: T201
            raise ending

    with pytest.warns(UserWarning, match="selector 'norm' is left out"):
        base.REGISTRY.load_plug_in(Ending(name="norm", value="third", group=base.REGISTRY.group))
    assert capsys.readouterr().out == ""
    with pytest.raises(InputError, match="cannot be used"):
        base.get_selector("norm")


@pytest.mark.parametrize(
    ("verdicts", "says"),
    [
        (lambda exchanges: sys.exit(1), "judge 'rude' ended the program"),
        (lambda exchanges: [], "gave 0 verdicts"),
        (lambda exchanges: [Verdict(True, "")] * 3, "gave 3 verdicts"),
        (lambda exchanges: [True, False], "(bool) on 2 replies"),
    ],
)
def test_a_judge_that_answers_something_else_is_one_line(verdicts: Callable[[Any], Any], says: str) -> None:
    class Rude:
        id, version = "rude", "1"

        def judge(self, exchanges: Any, progress: Any = None) -> Any:
            return verdicts(exchanges)

    with pytest.raises(InputError) as told:
        verdicts_on(Rude(), [Exchange("a", "b"), Exchange("c", "d")])
    assert says in str(told.value)


@pytest.mark.parametrize("answer", [lambda out: None, lambda out: out[:, :1], lambda out: out.sum()])
def test_an_intervention_of_another_shape_names_itself_and_the_layer(
    answer: Callable[[torch.Tensor], Any], tiny_llama: LoadedModel
) -> None:
    from dataclasses import replace

    from engine.edits.edit import edit_of

    class Rude(Intervention):
        """Something else."""

        def apply(self, output: torch.Tensor, units: torch.Tensor, layer: Any) -> Any:
            return answer(output)

    register_intervention("rude")(Rude)
    edit = replace(edit_of([0, 1], tiny_llama.rows.n_rows), intervention="rude")
    says = r"the intervention Rude gave .* expected a tensor of its shape"
    with edited_outputs(tiny_llama, [edit]) as outputs, outputs.sequences([0]), pytest.raises(InputError, match=says):
        tiny_llama.model(torch.ones(1, 4, dtype=torch.int64))
    assert not any(module._forward_hooks for module in tiny_llama.model.modules())


def test_a_panic_in_a_command_is_one_line(
    tiny_llama: LoadedModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def panics(run: Any) -> Any:
        raise pl.exceptions.PanicException("index out of bounds")

    assert scored(panics, tiny_llama, tmp_path) == 1
    told = capsys.readouterr().err
    assert "failed: PanicException: index out of bounds" in told
    assert "Traceback" not in told


@pytest.mark.parametrize("threads", ["0", "00", " 0", "+0", "4096", "99999999999"])
def test_a_number_of_threads_at_which_polars_panics(
    threads: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POLARS_MAX_THREADS", threads)
    assert main(["rows", "demo"]) == 2
    assert f"POLARS_MAX_THREADS must be in 1 to 1,024, got {threads}" in capsys.readouterr().err
