"""The thinking switch of Live edit: there where the chat template has one, and what is asked is what is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from app_pages import run_live_edit
from tiny_models import save_tiny, tiny_tokenizer

from dashboard.chat import live, stamps, thinking, tries
from engine.data.prompts import prompt_ids, thinking_mode

SWITCH = (
    "{{ bos_token }}{% for message in messages %}<|{{ message.role }}|>{{ message.content }}{{ eos_token }}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
BEGUN = SWITCH.partition("{% if enable_thinking")[0] + "<think>\n{% endif %}"  # as DeepSeek-R1's
# Thinking parts of turns before are cut out by the template, and nothing turns thinking on or off.
SILENT = (
    "{{ bos_token }}{% for message in messages %}<|{{ message.role }}|>{{ message.content.split('</think>')[-1] }}"
    "{{ eos_token }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
PROMPT = "The cat sat."


def saved(place: Path, template: str | None) -> str:
    save_tiny("llama", place, max_position_embeddings=512)
    if template is not None:
        tokenizer = tiny_tokenizer()
        tokenizer.chat_template = template
        tokenizer.save_pretrained(place)
    return str(place)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    templates = {"switch": SWITCH, "begun": BEGUN, "silent": SILENT, "none": None}
    return {name: saved(tmp_path_factory.mktemp(name), template) for name, template in templates.items()}


@pytest.fixture(autouse=True)
def _own_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "POOL", live.ModelPool(live._load))
    monkeypatch.setattr(stamps, "reference_of", lambda *_: None)  # the model's own replies take longer than the rest


def page(folder: str, **parameters: str) -> Any:
    return run_live_edit(folder, **{"prompt": PROMPT, **parameters})


def run(app: Any) -> tries.Try:
    app.button(key="run").click().run()
    assert not app.exception
    found: tries.Try = app.session_state["live-shown"]
    return found


def switches(app: Any) -> list[str]:
    return [one.value for one in app.segmented_control if one.key == "thinking"]


def prompts_read(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The token ids of every prompt that a reply is written to."""
    from engine.measures import generation

    read: list[list[int]] = []
    usual = generation.pad_left

    def watched(sequences: Any) -> Any:
        read.extend(list(ids) for ids in sequences)
        return usual(sequences)

    monkeypatch.setattr(generation, "pad_left", watched)
    return read


def test_the_switch_is_there_before_and_after_the_model_is_loaded(models: dict[str, str]) -> None:
    app = page(models["switch"])
    assert switches(app) == ["off"]
    assert run(app).complete
    assert models["switch"] in live.POOL
    assert switches(app) == ["off"]
    for name in ("begun", "silent", "none"):
        assert switches(page(models[name])) == [], name


@pytest.mark.parametrize("on", [True, False])
def test_what_is_chosen_is_what_the_model_reads(
    models: dict[str, str], on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = prompts_read(monkeypatch)
    app = page(models["switch"])
    if on:
        app.segmented_control(key="thinking").set_value("on").run()
    one = run(app)
    assert one.complete
    tokenizer = live.POOL.tokenizer(models["switch"])
    expected = prompt_ids(tokenizer, PROMPT, thinking=on)
    assert expected != prompt_ids(tokenizer, PROMPT, thinking=not on)
    assert read == [expected] * 2
    assert one.request.thinking is on
    assert ("as the thinking part begins" in one.outcomes["before"].margin_note) is on
    assert one.request.describe().endswith(", thinking on") is on
    assert tries.record(one)["thinking"] is on
    assert json.loads(tries.session_json([one]))["tries"][0]["thinking"] is on


def test_thinking_is_part_of_what_was_asked(models: dict[str, str]) -> None:
    """A try without is none about the same request with it, and an earlier one puts its switch back."""
    app = page(models["switch"], thinking="on")
    assert switches(app) == ["on"]
    first = run(app)
    app.segmented_control(key="thinking").set_value("off").run()
    assert not app.exception
    assert not first.about(tries.Request(**{**vars(first.request), "thinking": False}))
    assert app.session_state["live-shown"] is first  # on the page until Run is pressed
    second = run(app)
    assert second is not first
    assert second.request.thinking is False
    reopen = app.selectbox(key="reopen")
    reopen.set_value(reopen.options[-1]).run()
    assert not app.exception
    assert switches(app) == ["on"]


@pytest.mark.long
def test_a_model_that_thinks_without_a_switch_is_told_of_in_words(models: dict[str, str]) -> None:
    app = page(models["begun"])
    run(app)
    app.run()
    tokenizer = live.POOL.tokenizer(models["begun"])
    assert f"Thinking: {thinking_mode(tokenizer)}." in [one.value for one in app.caption]
    assert switches(app) == []
    plain = page(models["none"])
    run(plain)
    plain.run()
    assert not any("Thinking" in one.value for one in plain.caption)


@pytest.mark.long
def test_a_link_may_ask_before_anybody_can_tell(models: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a model that was never downloaded: the run says in one line what it has not."""
    monkeypatch.setattr(thinking, "switch_of", lambda _: thinking.Switch(None))
    one = run(page(models["none"], thinking="on"))
    assert one.request.thinking
    assert "no thinking mode" in one.problem
    assert run(page(models["switch"], thinking="on")).complete
    assert run(page(models["none"])).complete


def test_what_is_not_on_this_machine_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("org/never-fetched", "not an id/at all/", ""):
        assert thinking.switch_of(name).there is None
    assert thinking.switch_of(live.DEMO) == (False, "")
