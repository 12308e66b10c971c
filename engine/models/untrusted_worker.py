"""The child process of `engine.models.untrusted`: renders chat templates and tries tokenizers, a request per line.

It imports nothing of ours and neither torch nor transformers, so that it starts at once. A request that needs more
processor time or memory than it allows ends in an answer that says so, or ends this process."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any

GROWTH = 64  # characters that one character may become, tokens that a text may get before and behind it
MEMORY = {"render": 2**30, "encode": 2**32}  # bytes of address space beyond what the process has


@lru_cache(16)
def _template(source: str) -> Any:
    """The template in the sandbox that transformers renders chat templates in, with the same filters and functions."""
    import jinja2
    import jinja2.ext
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(jinja2.ext.Extension):
        tags = {"generation"}  # noqa: RUF012 as jinja2 reads it

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    def tojson(value: Any, ensure_ascii: bool = False, **layout: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **layout)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment.from_string(source)


def _render(template: str, variables: dict[str, Any], longest: int) -> dict[str, Any]:
    text = _template(template).render(**variables)
    if len(text) > longest:
        return {"limit": f"writes {len(text):,} characters"}
    text.encode()  # a lone surrogate is an error of the template
    return {"text": text}


def _encode(file: str, text: str) -> dict[str, Any]:
    """Ids that a tokenizer.json itself gives for a text, and its added tokens."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(file)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    stages = list(_stages(tokenizer.normalizer))
    steps = [json.loads(stage.__getstate__()) for stage in stages]
    for piece in sorted({*map(chr, range(32, 127)), *text.split("\n"), "\n", *_texts(steps)} - {""}, key=len):
        grown = piece
        for stage in stages:  # one after the other, so that none is given what another has made too large
            grown = stage.normalize_str(grown)
            if len(grown) > GROWTH * len(piece):
                return {"limit": f"makes more than {GROWTH} characters of one ({piece[:20]!r})"}
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    if len(tokenizer.encode(text).ids) > len(ids) + GROWTH:
        return {"limit": f"puts more than {GROWTH} tokens around a text"}
    if len(tokenizer.decode(ids)) > GROWTH * len(text):
        return {"limit": f"makes more than {GROWTH} characters of one when it decodes"}
    added = tokenizer.get_added_tokens_decoder()
    return {"ids": ids, "added": {token.content: number for number, token in added.items()}}


def _stages(normalizer: Any) -> Iterator[Any]:
    """The steps of a normalizer, in their order."""
    from tokenizers.normalizers import Sequence

    if isinstance(normalizer, Sequence):
        for number in range(len(json.loads(normalizer.__getstate__())["normalizers"])):
            yield from _stages(normalizer[number])
    elif normalizer is not None:
        yield normalizer


def _texts(part: Any) -> set[str]:
    """Texts that the steps of a normalizer look for or write, wherever they stand in it."""
    if isinstance(part, dict):
        return {
            text for name, value in part.items()
            for text in ([value] if name in ("String", "content") and isinstance(value, str) else _texts(value))
        }  # fmt: skip
    return {text for one in part for text in _texts(one)} if isinstance(part, list) else set()


def _bound(cpu_s: int, memory: int) -> None:
    with suppress(ImportError, OSError, ValueError):  # Windows has none; macOS bounds no address space
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        soft = int(used.ru_utime + used.ru_stime) + cpu_s
        resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        with open("/proc/self/statm", encoding="ascii") as statm:
            held = int(statm.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + memory, resource.getrlimit(resource.RLIMIT_AS)[1]))


def main() -> None:
    work: dict[str, Callable[..., dict[str, Any]]] = {"render": _render, "encode": _encode}
    for line in sys.stdin.buffer:
        request = json.loads(line)
        kind = request.pop("kind")
        _bound(request.pop("cpu_s"), MEMORY[kind])
        try:
            answer = work[kind](**request)
        except MemoryError:
            answer = {"limit": f"needs more than {MEMORY[kind] >> 30} GiB of memory"}
        except RecursionError:
            answer = {"limit": "calls itself without end"}
        except BaseException as error:  # tokenizers' own failures are no Exceptions
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            kind = "" if type(error).__name__ == "TemplateError" else f"{type(error).__name__}: "  # its own words
            answer = {"error": f"{kind}{' '.join(str(error).split())[:240]}".rstrip(": ")}
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
