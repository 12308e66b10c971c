"""What a checkpoint makes us run is bounded in time, memory and size, and the next request is answered as before."""

import json
import os
import threading
import time
from pathlib import Path

import pytest
from tiny_models import tiny_tokenizer
from tokenizers import normalizers

from engine.models import untrusted

PLAIN = "{% for m in messages %}{{ m.content }}{% endfor %}"
HELLO = {"messages": [{"role": "user", "content": "hello"}]}
LARGE = (
    '{{ "x" * 3000000000 }}', "{{ 'x'.ljust(3000000000) }}", "{{ 'x' | center(3000000000) }}",
    "{{ '%3000000000d' | format(1) }}", "{{ '{:>3000000000}'.format(1) }}",
    "{% set ns = namespace(x='x') %}{% for i in range(40) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
    "{{ range(99999) | join('x' * 100000) }}", "{{ messages[0].content * 1000000 }}",
    "{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
)  # fmt: skip
LONG = (
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% if i * j == 7 %}x{% endif %}{% endfor %}{% endfor %}",
)


@pytest.fixture(autouse=True)
def answers_afterwards():
    yield
    assert untrusted.rendered(PLAIN, HELLO) == "hello"


@pytest.mark.parametrize("template", LARGE)
def test_what_grows_is_stopped(template):
    start = time.perf_counter()
    with pytest.raises(untrusted.OverLimit, match=r"memory|writes \d[\d,]+ characters"):
        untrusted.rendered(template, HELLO)
    assert time.perf_counter() - start < 10


@pytest.mark.long
@pytest.mark.parametrize("template", LONG)
def test_what_takes_long_is_stopped_by_its_processor_time(monkeypatch, template):
    monkeypatch.setattr(untrusted, "CPU_S", 1)
    with pytest.raises(untrusted.OverLimit, match="more than 1 seconds of processor time"):
        untrusted.rendered(template, HELLO)


@pytest.mark.long
def test_what_takes_long_is_stopped_by_the_clock_also_in_a_thread(monkeypatch):
    monkeypatch.setattr(untrusted, "DEADLINE_S", 0.3)
    failed = []

    def ask():
        try:
            untrusted.rendered(LONG[0], HELLO)
        except untrusted.OverLimit as error:
            failed.append(str(error))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert failed == ["takes longer than 0 seconds"] * 2
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ raise_exception('no') }}", r"^no$"),
        ("{{ 1 / 0 }}", "ZeroDivisionError: division by zero"),
        ("{{ 'a' + 1 }}", "TypeError"),
        ("{{ nothing.at.all }}", "UndefinedError"),
        ("{{ 'a' | nofilter }}", "TemplateAssertionError: No filter named 'nofilter'"),
        ("{% for %}", "TemplateSyntaxError"),
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        ("{% include 'x' %}", "TypeError|TemplateNotFound"),
        ("{{ messages[0].content.encode('latin-9').decode() | int(base=99) + [] }}", "Error"),
        ("{{ '\\ud800' }}", "UnicodeEncodeError"),
    ],
)
def test_an_error_of_any_class_is_said(template, said):
    with pytest.raises(untrusted.TemplateFailed, match=said):
        untrusted.rendered(template, HELLO)


def test_a_template_that_calls_itself_without_end():
    endless = "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"
    with pytest.raises(untrusted.OverLimit, match="calls itself without end|memory"):
        untrusted.rendered(endless, HELLO)


def test_an_interrupt_while_waiting_does_not_mix_up_answers(monkeypatch):
    untrusted.rendered(PLAIN, HELLO)
    child = untrusted._child

    class Interrupted:
        close = child.stdout.close

        def readline(self):
            raise KeyboardInterrupt

    monkeypatch.setattr(child, "stdout", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        untrusted.rendered("of an earlier question", HELLO)
    assert child.poll() is not None


def test_a_child_that_was_killed_is_started_again():
    untrusted.rendered(PLAIN, HELLO)
    assert untrusted._child is not None
    untrusted._child.kill()
    untrusted._child.wait()


def test_threads_get_their_own_answers():
    found = {}

    def ask(number):
        for _ in range(20):
            text = untrusted.rendered(PLAIN, {"messages": [{"role": "user", "content": f"{number} "}]})
            found.setdefault(number, set()).add(text)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: {f"{number} "} for number in range(6)}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fork_does_not_use_the_same_pipes():
    untrusted.rendered(PLAIN, HELLO)
    ours = untrusted._child.pid
    read, write = os.pipe()
    child = os.fork()
    if not child:
        text = untrusted.rendered(PLAIN, HELLO)
        os.write(write, json.dumps([text, untrusted._child.pid]).encode())
        untrusted._end()
        os._exit(0)
    os.waitpid(child, 0)
    text, theirs = json.loads(os.read(read, 1000))
    os.close(read)
    os.close(write)
    assert text == "hello"
    assert theirs != ours == untrusted._child.pid


# Tokenizers


def saved(folder: Path, normalizer=None, change=lambda _: None) -> str:
    backend = tiny_tokenizer().backend_tokenizer
    if normalizer is not None:
        backend.normalizer = normalizer
    kept = json.loads(backend.to_str())
    change(kept)
    (folder / "tokenizer.json").write_text(json.dumps(kept), encoding="utf-8")
    return str(folder / "tokenizer.json")


def chain(first: str, stages: int, times: int) -> normalizers.Normalizer:
    return normalizers.Sequence([normalizers.Replace(first, first * times) for _ in range(stages)])


@pytest.mark.parametrize(
    "normalizer",
    [
        chain(" ", 8, 10),
        chain("e", 30, 10),  # beyond all memory
        chain("q", 3, 10),
        chain("\N{SNOWMAN}", 3, 10),  # in no text of ours but the rule's own
        normalizers.Replace("A", "x" * 65),
        normalizers.Prepend("x" * 100),
    ],
)
def test_a_normalizer_that_grows_a_text_is_refused(tmp_path, normalizer):
    with pytest.raises(untrusted.OverLimit, match="makes more than 64 characters of one|more memory than it may"):
        untrusted.encoded(saved(tmp_path, normalizer), "A text, as any other.")


@pytest.mark.parametrize(
    "normalizer",
    [
        normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
        normalizers.NFKC(),
        normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()]),
        normalizers.Replace("\N{HORIZONTAL ELLIPSIS}", "..."),
    ],
)
def test_usual_normalizers_are_none_of_these(tmp_path, normalizer):
    ids, added = untrusted.encoded(saved(tmp_path, normalizer), "A text.")
    assert ids
    assert added == {"<bos>": 0, "<eos>": 1, "<pad>": 2, "<|user|>": 3, "<|assistant|>": 4}
