"""Chat in the terminal: the replies of `generate_batch` before and after, and weights that come back."""

import io
import json
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.cli import main
from engine.edits.contrasts import write_mask
from engine.edits.edit import UNEDITED, edit_of
from engine.interventions.in_weights import zeroed
from engine.judges.base import open_judges
from engine.judges.embedded import embedded_version, judge
from engine.measures.generation import generate_batch
from engine.measures.margin import margins
from engine.models.loading import LoadedModel
from engine.studies.refusal.dialogue import Outcome, dialogue

PROMPTS = ["The cat sat on", "Is there a way out?"]


@pytest.fixture
def mask_file(tiny_llama: LoadedModel, tmp_path: Path) -> Path:
    mask = np.arange(0, tiny_llama.rows.n_rows, 7)
    write_mask(
        tmp_path / "mask.safetensors",
        mask,
        tiny_llama.fingerprint,
        {"selector": "random", "order": "lerf", "rate": 1 / 7},
    )
    return tmp_path / "mask.safetensors"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all: what the edit does to refusal is measured once."""
    return tmp_path_factory.mktemp("chat")


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch, asked: list[str], store: Path) -> Callable[..., int]:
    def run(typed: str, *arguments: object) -> int:
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        more = ["--max-new-tokens", "8", "--dtype", "float32", "--store", str(store)]
        return main(["refusal", "chat", *map(str, arguments), *asked, *more])

    return run


@pytest.mark.long
def test_piped_prompts_as_json(
    tiny_llama: LoadedModel, mask_file: Path, chat: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    typed = "\n".join(["", *PROMPTS, "  "])
    assert chat(typed, tiny_llama.id, "--mask", mask_file, "--device", "cpu", "--json") == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["prompt"] for line in printed] == PROMPTS
    mask = np.arange(0, tiny_llama.rows.n_rows, 7)
    before, before_margins = generate_batch(tiny_llama, PROMPTS, 8), margins(tiny_llama, PROMPTS)
    with zeroed(tiny_llama, mask):
        after, after_margins = generate_batch(tiny_llama, PROMPTS, 8), margins(tiny_llama, PROMPTS)
    assert [reply.text for reply in before] != [reply.text for reply in after]
    for i, line in enumerate(printed):
        assert (line["judge"], line["judge_version"]) == ("embedded", embedded_version())
        for side, replies, expected in (("before", before, before_margins), ("after", after, after_margins)):
            assert line[side]["reply"] == replies[i].text
            assert (line[side]["tokens"], line[side]["finished"]) == (replies[i].tokens, replies[i].finished)
            assert line[side]["refusal"] == judge(replies[i].text).refusal
            # Float32, and batches of one against two.
            assert line[side]["margin"] == pytest.approx(expected[i].item(), abs=1e-4)


def test_text_for_people(
    tiny_llama: LoadedModel, mask_file: Path, chat: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert chat(PROMPTS[0] + "\n", tiny_llama.id, "--mask", mask_file) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"> {PROMPTS[0]}\nbefore: ")
    assert "\nafter: " in out
    assert out.count("margin ") == 2
    assert out.count("; cut off at 8 tokens]") == 2
    assert "\x1b" not in out


@pytest.mark.long
def test_interactive_errors_do_not_end_the_chat(
    tiny_llama: LoadedModel, mask_file: Path, monkeypatch: pytest.MonkeyPatch, asked: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    lines = iter(["word " * 300, PROMPTS[0]])

    def typed(_: str) -> str:
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", typed)
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stdin", terminal)
    arguments = ["refusal", "chat", tiny_llama.id, "--mask", str(mask_file), "--max-new-tokens", "8"]
    assert main([*arguments, *asked]) == 0
    captured = capsys.readouterr()
    assert "exceed the model's context" in " ".join(captured.err.split())
    assert "after: " in captured.out


def test_wrong_input(
    tiny_llama: LoadedModel, mask_file: Path, chat: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments, message in (
        ([], "no edit given"),
        (["--mask", mask_file, "--judge", "nobody"], "unknown judge"),
        (["--mask", mask_file, "--judge", "embedded,embedded,x"], "unknown judge"),
    ):
        assert chat("hello\n", tiny_llama.id, *arguments) == 2
        assert message in " ".join(capsys.readouterr().err.split())
    assert chat("word " * 300 + "\n", tiny_llama.id, "--mask", mask_file) == 2
    assert "exceed the model's context" in " ".join(capsys.readouterr().err.split())


def test_margins_along_a_reply_are_those_of_the_edited_model(tiny_llama: LoadedModel) -> None:
    mask = np.arange(0, tiny_llama.rows.n_rows, 7)
    edits = {"before": UNEDITED, "after": edit_of(mask, tiny_llama.rows.n_rows)}
    events = dialogue(tiny_llama, PROMPTS[0], edits, open_judges("embedded")[0], 8, margins_along=True)
    ended = {event.side: event for event in events if isinstance(event, Outcome)}
    for side, removed in (("before", []), ("after", mask)):
        with zeroed(tiny_llama, removed):
            expected = margins(tiny_llama, PROMPTS[:1]).item()
        outcome = ended[side]
        # Float32, and other batches.
        assert outcome.margin == pytest.approx(expected, abs=1e-4)
        assert outcome.along[0][1] == pytest.approx(expected, abs=1e-4)
        assert len(outcome.along) == outcome.tokens + 1


@pytest.mark.parametrize("stopped_after", [1, 4])
def test_nothing_is_left_when_the_reader_stops(tiny_llama: LoadedModel, stopped_after: int) -> None:
    bits = {name: tensor.clone() for name, tensor in tiny_llama.model.state_dict().items()}
    edits = {"before": UNEDITED, "after": edit_of(np.arange(0, 288, 7), tiny_llama.rows.n_rows)}

    def read() -> None:
        with closing(dialogue(tiny_llama, PROMPTS[0], edits, open_judges("embedded")[0], 8)) as events:
            for number, _ in enumerate(events, start=1):
                if number == stopped_after:
                    raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read()
    for name, tensor in tiny_llama.model.state_dict().items():
        assert torch.equal(tensor, bits[name])
    assert not any(module._forward_hooks for module in tiny_llama.model.modules())
    assert tiny_llama.lock.acquire(blocking=False)
    tiny_llama.lock.release()
