"""Whatever is given, found by hypothesis: an option's text, lines of pairs and corpora, replies, values of a config."""

import contextlib
import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from bad_inputs import LONGEST, changed, model_copy, run
from hypothesis import HealthCheck, given, settings, strategies as st
from tiny_models import save_tiny

from engine.data.corpora import Pair, contrast_pairs, windows
from engine.models.loading import LoadedModel
from engine.records.errors import InputError
from engine.run.audit_plan import AuditPlan
from engine.run.field_types import Setting, settings_of
from engine.run.refusal_plan import RefusalPlan

pytestmark = pytest.mark.usefixtures("one_parser")

# Derandomized: the same examples each time, so that a build ends as it did before.
always = partial(
    settings, derandomize=True, deadline=None, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
SHORT, LONG = 12, 120
COMMANDS: dict[str, tuple[tuple[str, ...], type[Any]]] = {
    "sweep": (("sweep",), AuditPlan),
    "analyze": (("analyze",), AuditPlan),
    "refusal": (("refusal", "run"), RefusalPlan),
}
# Texts as people mistype them, beside any.
TEXTS = st.one_of(
    st.text(max_size=40),
    st.from_regex(r"-?[0-9.,:% e+-]{0,12}", fullmatch=True),
    st.sampled_from(
        ("nan", "-1", "1e9", "30 %", "0", "", "lrp,lrp", "all", "none", "inf", "1/0", "\u202e30%", "𝟛", "-0.0")
    ),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda some: st.lists(some, max_size=3) | st.dictionaries(st.text(max_size=8), some, max_size=3),
    max_leaves=6,
)


def one_line(words: list[str]) -> str:
    """The line on stderr of a command that cannot run."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(*words)
    assert (code, out.getvalue()) == (2, ""), (words, err.getvalue())
    lines = err.getvalue().rstrip("\n").split("\n")
    assert len(lines) == 1, (words, lines)
    assert lines[0].startswith("selector-audit")
    assert lines[0].isprintable(), repr(lines[0])
    assert len(lines[0]) < LONGEST
    return lines[0]


def options(command: str) -> list[Setting]:
    return [one for one in settings_of(COMMANDS[command][1]) if one.option and one.kind is not bool]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("examples", [SHORT, pytest.param(LONG, marks=pytest.mark.long)])
def test_any_text_in_any_option_is_read_or_refused_in_one_line(command: str, examples: int, tmp_path: Path) -> None:
    """The folder of the model is not there, so that what is read well ends in one line too."""
    words = [*COMMANDS[command][0], str(tmp_path / "no model"), "--store", str(tmp_path / "store")]

    @always(max_examples=examples)
    @given(st.sampled_from(options(command)), TEXTS)
    def check(setting: Setting, text: str) -> None:
        line = one_line([*words, f"{setting.option}={text}"])
        with contextlib.suppress(InputError, ValueError):
            setting.of(setting.kind(text))
            return
        assert setting.option in line or setting.field in line or "no model" not in line, line

    check()


@always(max_examples=100)
@given(
    st.lists(
        VALUES | st.fixed_dictionaries({"risk": VALUES, "base": VALUES}, optional={"domain": VALUES, "split": VALUES}),
        max_size=4,
    )
)
def test_any_lines_of_pairs(tmp_path: Path, lines: list[Any]) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    try:
        found = contrast_pairs(str(path))
    except InputError:
        return
    assert len(found) == len(lines)
    assert all(isinstance(text, str) and text.strip() for pair in found for text in Pair(*pair))


@pytest.mark.parametrize("suffix", ["txt", "jsonl"])
def test_any_text_of_a_corpus(tiny_llama: LoadedModel, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"text.{suffix}"

    @always(max_examples=60)
    @given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode) | VALUES.map(json.dumps).map(str.encode))
    def check(content: bytes) -> None:
        path.write_bytes(content)
        with contextlib.suppress(InputError):
            found = windows(str(path), tiny_llama.tokenizer, role="calibration", samples=2, length=4)
            assert found.input_ids.shape[1] == 4
            assert 0 <= int(found.input_ids.min()) <= int(found.input_ids.max()) < 300

    check()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny("llama", tmp_path_factory.mktemp("saved"))


@pytest.mark.parametrize("examples", [10, pytest.param(150, marks=pytest.mark.long)])
def test_any_value_in_a_config(examples: int, saved: Path, tmp_path: Path) -> None:
    folder = model_copy(saved, tmp_path)
    original = (folder / "config.json").read_bytes()

    @always(max_examples=examples)
    @given(st.sampled_from(sorted(json.loads(original))), VALUES)
    def check(key: str, value: Any) -> None:
        (folder / "config.json").write_bytes(original)
        changed(folder, "config.json", **{key: value})
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = run("rows", folder, "--json")
        assert code in (0, 2), err.getvalue()
        if code == 0:
            assert json.loads(out.getvalue())
        else:
            assert out.getvalue() == ""
            assert "Traceback" not in err.getvalue()
            assert err.getvalue().splitlines()[-1].startswith("selector-audit")

    check()
