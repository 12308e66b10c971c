"""The registry of judges: one file and one registration; help, errors, and the version that shipped tables name."""

import sys
from pathlib import Path

import polars as pl
import pytest
from judge_plug_in import install_judge
from relatives import relatives

from engine.cli import main
from engine.judges.base import JUDGES, Exchange, Verdict, judge_choices, open_judges
from engine.judges.classifier import LABEL_FILE
from engine.judges.served import KEY_VARIABLE
from engine.records.errors import InputError
from engine.records.manifest import read_manifest
from precomputed import demo_dir

BUILT_IN = ("embedded", "rejection-model", "minos", "wildguard", "strongreject")


def test_a_plug_in_is_a_judge_like_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install_judge(tmp_path, monkeypatch)
    assert judge_choices().startswith(f"{', '.join(BUILT_IN)}, fake, or a folder")
    assert "fake_judge" not in sys.modules  # the help of a command imports no judge
    assert JUDGES.names() == [*BUILT_IN, "fake"]
    assert JUDGES.get("fake").title == "Sees a refusal in whatever was cut off"
    (fake,) = open_judges("fake")
    asked = [Exchange("p", "r", False), Exchange("q", "s"), Exchange("q", "s", True)]
    assert fake.judge(asked) == [
        Verdict(True, "asked 'p', ended False"),
        Verdict(False, "asked 'q', ended None"),
        Verdict(False, "asked 'q', ended True"),
    ]
    with pytest.raises(InputError, match="did you mean 'fake'"):
        open_judges("fak")
    for command in (["judge"], ["chat"], ["sweep"]):
        with pytest.raises(SystemExit):
            main(["refusal", *command, "--help"])
        assert f"{', '.join(BUILT_IN)}, fake" in " ".join(capsys.readouterr().out.replace("-\n", "-").split())


def test_a_broken_plug_in_is_named_and_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_judge(tmp_path, monkeypatch, "import no_such_module")
    with pytest.warns(UserWarning, match="judge 'fake' is left out"):
        assert open_judges("embedded")[0].id == "embedded"
    with pytest.raises(InputError, match="judge 'fake' cannot be used: .*no_such_module"):
        open_judges("fake")


def test_every_judge_is_listed_in_reference_and_says_what_it_judges() -> None:
    text = (Path(__file__).parents[2] / "dashboard/pages/reference/refusal.md").read_text(encoding="utf-8")
    section = text.partition("## Judges of replies")[2].partition("\n## ")[0]
    lines = {line.split("`")[1].partition(":")[0]: line for line in section.splitlines() if line.startswith("| `")}
    assert lines.keys() - {"--judge", "FOLDER"} == set(BUILT_IN)
    assert LABEL_FILE in lines["FOLDER"]
    assert KEY_VARIABLE in section


@pytest.mark.parametrize("every", relatives([1, 7], [7]))
def test_the_embedded_judge_gives_the_shipped_verdicts(every: int) -> None:
    """The results may have been measured with an earlier version, which they name; every verdict is still the same."""
    results = demo_dir() / "results"
    shipped = pl.read_parquet(results / "refusal_replies.parquet")
    spec = read_manifest(results)["files"]["refusal_replies.parquet"]["spec"]
    assert shipped["judge"].unique().to_list() == [f"embedded {spec['judge_version']}"]
    (embedded,) = open_judges("embedded")
    shipped = shipped.gather_every(every)
    asked = [Exchange(*row) for row in shipped.select("prompt", "reply").iter_rows()]
    verdicts = embedded.judge(asked)
    assert [verdict.refusal for verdict in verdicts] == shipped["refused"].to_list()
    assert all(verdict.judged for verdict in verdicts)
