"""What is asked through a chat template: the prompt's words, in a turn of the user's, up to where the reply begins."""

import json
from datetime import datetime
from pathlib import Path

import pytest
from bad_inputs import refused
from tiny_models import CHAT_TEMPLATE, save_tiny, tiny_tokenizer
from tokenizers import processors
from transformers import AddedToken

from engine.data.chat_template import render, stands, turn_ends
from engine.data.prompts import check_chat, prompt_ids, turns_of
from engine.models import untrusted
from engine.models.loading import load_tokenizer
from engine.records.errors import InputError

ASKED = "Where did the Cat sit, on the mat or out there?"
HEAD, ENDS = "<|{{ m.role }}|>", "{{ eos_token }}{% endfor %}"
BEGIN = "{% if add_generation_prompt %}<|assistant|>{% endif %}"
FOR = "{% for m in messages %}"


def template(content: str, head: str = HEAD, end: str = ENDS, begin: str = BEGIN) -> str:
    return FOR + head + content + end + begin


def asked(source: str | None, prompt: str | tuple[str, ...] = ASKED) -> str:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = source
    return str(tokenizer.decode(prompt_ids(tokenizer, prompt)))


PARTS = "{% for part in m.content %}{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}"
USABLE = {
    "plain": template("{{ m.content }}"),
    "parts": template(PARTS),
    "parts by index": template("{{ m['content'][0]['text'] }}"),
    "either": template("{% if m.content is string %}{{ m.content }}{% else %}" + PARTS + "{% endif %}"),
    "trimmed": template("{{ m.content | trim }}"),
    "lower case": template("{{ m.content | lower }}"),
    "twice": template("{{ m.content }} {{ m.content }}"),
    "as JSON": template("{{ m.content | tojson }}"),
    "one space before": template(" {{ m.content }}"),
    "alternating roles": "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}" + HEAD + "{{ m.content }}" + ENDS + BEGIN,
    "always begins the reply": template("{{ m.content }}", begin="<|assistant|>"),
    "reply right behind": "{% for m in messages %}{% if m.role == 'user' %}[ {{ m.content }} ]{% else %}"
    "{{ m.content }}{{ eos_token }}{% endif %}{% endfor %}",
    "refuses an assistant": "{% for m in messages %}{% if m.role != 'user' %}{{ raise_exception('no') }}{% endif %}"
    "{{ m.content }}\n{% endfor %}",
    "thinking written": template("{{ m.content }}", begin=BEGIN.replace("<|assistant|>", "<|assistant|><think>\n")),
    "generation block": "{% for m in messages %}" + HEAD + "{% generation %}{{ m.content }}{% endgeneration %}" + ENDS
    + BEGIN,
}  # fmt: skip


@pytest.mark.parametrize("name", USABLE)
def test_the_text_is_the_one_that_transformers_renders_and_the_words_stand_in_it(name):
    assert stands(ASKED, asked(USABLE[name]))
    assert stands("the cat sat", asked(USABLE[name], "The CAT sat."))
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = USABLE[name]
    parts = name.startswith("parts")
    turns = [{"role": "user", "content": [{"type": "text", "text": ASKED}] if parts else ASKED}]
    wanted = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False, enable_thinking=False)
    assert render(tokenizer, [{"role": "user", "content": ASKED}], enable_thinking=False) == wanted
    ids = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=True, return_dict=True)["input_ids"]
    assert prompt_ids(tokenizer, ASKED) == ids


def test_functions_and_filters_are_those_of_transformers():
    source = (
        "{{ bos_token }}{% set ns = namespace(n=0) %}"
        "{% for m in messages %}{% if loop.index > 9 %}{% break %}{% endif %}"
        "{% set ns.n = ns.n + 1 %}{{ ns.n }}{{ dict(a=m.content)['a'] }}{{ strftime_now('%Y') }}"
        "{{ {'ü': [1, 'a<b']} | tojson(indent=2) }}{{ [3, 1] | tojson }}{{ date_string }}"
        "{{ tools is none }}{% endfor %}\n"
        "  {% if add_generation_prompt %}\n  <|assistant|>\n  {% endif %}\nend"
    )
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = source
    turns = [{"role": "user", "content": ASKED}]
    wanted = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False, date_string="x")
    assert f"{datetime.now():%Y}" in wanted
    assert render(tokenizer, turns, date_string="x") == wanted


UNUSABLE = {
    "drops the content": (template(""), "leaves out or changes what the user says"),
    "drops the user": ("{% for m in messages if m.role == 'system' %}{{ m.content }}{% endfor %}" + BEGIN, "out"),
    "other key": (template("{{ m.text }}"), "leaves out"),
    "first ten characters": (template("{{ m.content[:10] }}"), "leaves out or changes"),
    "translated": (template("{{ m.content | replace('w', 'v') | replace('s', 'z') }}"), "leaves out or changes"),
    "reversed": (template("{{ m.content[::-1] }}"), "leaves out or changes"),
    "no generation prompt": (template("{{ m.content }}", begin=""), "does not write '<|assistant|>' where the reply"),
    "a blank one": (template("{{ m.content }}", begin="{% if add_generation_prompt %}\n{% endif %}"), "no g"),
    "over before it": (template("{{ m.content }}", begin=BEGIN.replace("nt|>", "nt|>{{ eos_token }}")), "puts .<eos>."),
    "over whoever asks": (template("{{ m.content }}", begin="<|assistant|>{{ eos_token }}\n"), "where the reply"),
    "raises": ("{{ raise_exception('never') }}", r"fails \(never\)"),
    "divides": (template("{{ 1 // 0 }}{{ m.content }}"), "ZeroDivisionError"),
    "undefined filter": (template("{{ m.content | shout }}"), "No filter named 'shout'"),
    "undefined": (template("{{ nothing.x }}{{ m.content }}"), "UndefinedError"),
    "wrong type": (template("{{ m.content + 1 }}"), "TypeError"),
    "no template": ("{% if %}", "TemplateSyntaxError"),
    "endless macro": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "calls itself|memory"),
    "endless text": ('{{ "x" * 3000000000 }}', "memory"),
    "much text": ('{{ messages[0].content * 100000 }}', "writes 3,"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_template_that_cannot_be_used_is_one_line(name):
    source, said = UNUSABLE[name]
    with pytest.raises(InputError, match=said) as error:
        asked(source)
    assert len(str(error.value).splitlines()) == 1
    assert str(error.value).endswith("correct the template, or give another model")


@pytest.mark.parametrize(
    ("content", "prompt"),
    [
        ("{{ m.content[:60] }}", "The cat sat on the mat, then it ran, and there it is, out there on the mat."),
        ("{{ m.content | e }}", "It's a cat & a mat"),
        ("{{ m.content.split('\\n')[0] }}", "The cat sat.\nThen it ran."),
        ("{{ m.content | replace('☃', '') }}", "☃"),
        ("{{ 'no' if 'ran' in m.content else m.content }}", "Then it ran."),
        ("{% if loop.last %}{{ m.content }}{% endif %}", ("The cat sat.", "Yes.", "Then it ran.")),
    ],
)
def test_a_prompt_that_the_template_changes_is_refused_itself(content, prompt):
    asked(template(content))  # others are well
    with pytest.raises(InputError, match="leaves out or changes what the user says"):
        asked(template(content), prompt)
    for turn in turns_of(prompt):
        assert turn in asked(template("{{ m.content }}"), prompt)


def test_a_prompt_on_which_the_template_grows_is_refused_itself(monkeypatch):
    monkeypatch.setattr(untrusted, "CPU_S", 1)
    source = template("{% if 'ran' in m.content %}{{ 'x' * 3000000000 }}{% endif %}{{ m.content }}")
    with pytest.raises(InputError, match="cannot write a prompt: it needs more than"):
        asked(source, "Then it ran.")
    assert "sat" in asked(source, "The cat sat.")


@pytest.mark.parametrize(("names", "usable"), [(("default", "tool_use"), True), (("rag", "tool_use"), False)])
def test_several_templates(names, usable):
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = {name: CHAT_TEMPLATE if name == "default" else "x" for name in names}
    if usable:
        assert ASKED in tokenizer.decode(prompt_ids(tokenizer, ASKED))
    else:
        with pytest.raises(InputError, match="the chat templates rag, tool_use and none called default"):
            prompt_ids(tokenizer, ASKED)
        assert turn_ends(tokenizer) == frozenset()


# Without a template


@pytest.mark.parametrize("single", ["$A <eos>", "<bos> $A <eos>", "$A <pad> <eos>", "<bos> $A <pad>"])
def test_a_tokenizer_that_ends_every_text_cannot_ask(single):
    tokenizer = tiny_tokenizer()
    special = [(token, tokenizer.convert_tokens_to_ids(token)) for token in ("<bos>", "<eos>", "<pad>")]
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(single=single, special_tokens=special)
    tokenizer.chat_template = CHAT_TEMPLATE
    assert tokenizer.convert_tokens_to_ids("<|assistant|>") == prompt_ids(tokenizer, ASKED)[-1]
    tokenizer.chat_template = None
    with pytest.raises(InputError, match=f"puts '{single.split()[-1]}' behind every text.*add_eos_token"):
        prompt_ids(tokenizer, ASKED)


@pytest.mark.parametrize("source", [CHAT_TEMPLATE, None])
def test_a_tokenizer_without_tokens_for_the_prompt_says_so(source):
    tokenizer = tiny_tokenizer()
    kept = json.loads(tokenizer.backend_tokenizer.to_str())
    kept["pre_tokenizer"] = kept["decoder"] = None  # no bytes: letters that it does not know are dropped
    tokenizer._tokenizer = tokenizer.backend_tokenizer.from_str(json.dumps(kept))
    tokenizer.chat_template = source
    prompt_ids(tokenizer, "cat on")
    for prompt in ("Где сидела кошка?", "猫はどこに座りましたか"):
        with pytest.raises(InputError, match="cannot write .* it keeps 0"):
            prompt_ids(tokenizer, prompt)


# Ends of turns

ENDING = {
    "eos": (CHAT_TEMPLATE, "<eos>"),
    "another token": (template("{{ m.content }}", end="<pad>\n{% endfor %}"), "<pad>"),
    "blanks before it": (template("{{ m.content }}", end=" \n<pad>{% endfor %}"), "<pad>"),
    "two tokens": (template("{{ m.content }}", end="<pad>{{ eos_token }}{% endfor %}"), "<pad>"),
    "a token added later": (template("{{ m.content }}", end="[end]\n{% endfor %}"), "[end]"),
    "between turns only": (
        template("{{ m.content }}", end="{% if not loop.last %}<pad>{% endif %}{% endfor %}"), "<pad>",
    ),
    "the last turn otherwise": (
        template("{{ m.content }}", end="{{ '<pad>' if loop.last else '<|user|>' }}{% endfor %}"), "<pad>",
    ),
    "the next turn's head": (template("{{ m.content }}", end="{% endfor %}"), "<|user|>"),
    "only after the assistant": (
        template("{{ m.content }}", end="{% if m.role == 'assistant' %}<pad>{% endif %}{% endfor %}"), "<pad>",
    ),
    "trimmed": (template("{{ m.content | trim }}", end="<pad>{% endfor %}"), "<pad>"),
    "parts": (template(PARTS, end="<pad>{% endfor %}"), "<pad>"),
    "plain text": (template("{{ m.content }}", head="{{ m.role }}: ", end="\n\n{% endfor %}"), None),
    "no assistant": (USABLE["refuses an assistant"], None),
    "none": (None, None),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDING)
def test_the_token_that_ends_a_turn(name):
    source, token = ENDING[name]
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([AddedToken("[end]", special=False)])
    tokenizer.chat_template = source
    wanted = set() if token is None else {tokenizer.convert_tokens_to_ids(token)}
    assert turn_ends(tokenizer) == wanted


def test_the_end_of_a_message_is_not_that_of_a_turn_with_several():
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["<|end|>", "<|channel|>", "<|message|>", "<|return|>"], special_tokens=True)
    harmony = template("<|channel|>final<|message|>{{ m.content }}", end="<|end|>{% endfor %}")
    tokenizer.chat_template = harmony
    assert turn_ends(tokenizer) == frozenset()
    tokenizer.chat_template = harmony.replace(
        "<|end|>", "{{ '<|return|>' if loop.last and m.role == 'assistant' else '<|end|>' }}"
    )
    assert turn_ends(tokenizer) == {tokenizer.convert_tokens_to_ids("<|return|>")}
    tokenizer.chat_template = template("{{ m.content }}", end="<|end|>{% endfor %}")  # as Phi-3's
    assert turn_ends(tokenizer) == {tokenizer.convert_tokens_to_ids("<|end|>")}


# Where it is said


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_tiny("llama", tmp_path_factory.mktemp("broken"))
    (folder / "chat_template.jinja").write_text(template("{{ 1 // 0 }}{{ m.content }}"), encoding="utf-8")
    return folder


def test_a_command_that_asks_ends_with_one_line(broken, tmp_path, capfd):
    pairs = tmp_path / "pairs.jsonl"
    rows = [{"domain": "legal", "risk": f"ask {n}", "base": f"tell {n}"} for n in range(4)]
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    line = refused(
        capfd, "refusal", "calibrate", broken, "--pairs", pairs, "--store", tmp_path / "s", "--out", tmp_path / "o"
    )
    assert "ZeroDivisionError" in line


def test_the_shipped_model_can_be_asked():
    tokenizer = load_tokenizer("demo")
    check_chat(tokenizer)
    assert tokenizer.convert_ids_to_tokens(sorted(turn_ends(tokenizer))) == ["<|end|>"]
