"""Chat in the terminal: the replies of `generate_batch` before and after, and weights that come back."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.cli import main
from engine.evaluation.generation import generate_batch
from engine.evaluation.judge import embedded_version, judge
from engine.evaluation.judges import open_judges
from engine.intervention import zeroed
from engine.maskfile import write_mask
from engine.models import LoadedModel
from engine.refusal.dialogue import answers, plain_text
from engine.refusal.margin import margins

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


def chat(monkeypatch: pytest.MonkeyPatch, typed: str, *arguments: object) -> int:
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    return main(["refusal", "chat", *map(str, arguments), "--max-new-tokens", "8", "--dtype", "float32"])


def test_piped_prompts_as_json(
    tiny_llama: LoadedModel,
    mask_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    typed = "\n".join(["", *PROMPTS, "  "])
    assert chat(monkeypatch, typed, tiny_llama.id, "--mask", mask_file, "--device", "cpu", "--json") == 0
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
            assert line[side]["refusal"] == judge(replies[i].text).refusal
            # Float32, and batches of one against two.
            assert line[side]["margin"] == pytest.approx(expected[i].item(), abs=1e-4)


def test_text_for_people(
    tiny_llama: LoadedModel,
    mask_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert chat(monkeypatch, PROMPTS[0] + "\n", tiny_llama.id, "--mask", mask_file) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"> {PROMPTS[0]}\nbefore: ")
    assert "\nafter: " in out
    assert out.count("margin ") == 2
    assert "\x1b" not in out


def test_interactive_errors_do_not_end_the_chat(
    tiny_llama: LoadedModel,
    mask_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
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
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert "exceed the model's context" in " ".join(captured.err.split())
    assert "after: " in captured.out


def test_wrong_input(
    tiny_llama: LoadedModel,
    mask_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for arguments, message in (
        ([], "no edit given"),
        (["--mask", mask_file, "--judge", "nobody"], "unknown judge"),
        (["--mask", mask_file, "--judge", "embedded,embedded,x"], "unknown judge"),
    ):
        assert chat(monkeypatch, "hello\n", tiny_llama.id, *arguments) == 2
        assert message in " ".join(capsys.readouterr().err.split())
    assert chat(monkeypatch, "word " * 300 + "\n", tiny_llama.id, "--mask", mask_file) == 2
    assert "exceed the model's context" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("stopped_on", ["before", "after"])
def test_weights_come_back_when_the_reader_stops(tiny_llama: LoadedModel, stopped_on: str) -> None:
    bits = {name: tensor.clone() for name, tensor in tiny_llama.model.state_dict().items()}

    def stop(side: str, _: str) -> None:
        if side == stopped_on:
            raise KeyboardInterrupt

    mask = np.arange(0, tiny_llama.rows.n_rows, 7)
    with pytest.raises(KeyboardInterrupt):
        list(answers(tiny_llama, mask, PROMPTS[0], open_judges("embedded")[0], 8, stop))
    both = answers(tiny_llama, mask, PROMPTS[0], open_judges("embedded")[0], 8)
    assert [next(both).side, next(both).side] == ["before", "after"]
    both.close()
    for name, tensor in tiny_llama.model.state_dict().items():
        assert torch.equal(tensor, bits[name])
    assert tiny_llama.lock.acquire(blocking=False)
    tiny_llama.lock.release()


def test_plain_text() -> None:
    assert plain_text("a\x1b[31mb\x07\u202ec\n\td é 👩‍🚀") == "a[31mbc\n\td é 👩‍🚀"
