"""What a checkpoint makes this software run, chat templates and tokenizers, is run in a child process under limits.

One child serves the whole process. It starts when it is first needed, and again after a request that ended it."""

import atexit
import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from engine.records.errors import InputError

CPU_S = 10  # of the child's processor time
DEADLINE_S = 60.0  # also where it waits for a processor, or where processor time cannot be bounded (Windows)
LONGEST = 2**20  # characters that a template may write beside 16 for each that it is given


class TemplateFailed(Exception):
    """A template raised an error of its own: the message has its class and its words."""


class OverLimit(Exception):
    """A request took more than it is allowed: the message says what, as a verb and its object."""


_lock = threading.Lock()
_child: subprocess.Popen[bytes] | None = None
_owner = 0  # the process that started the child: a fork of it must not use the same pipes


def rendered(template: str, variables: dict[str, Any]) -> str:
    """The text that a chat template writes. Errors: `TemplateFailed`, `OverLimit`."""
    longest = LONGEST + 16 * len(json.dumps(variables))
    answer = _ask({"kind": "render", "template": template, "variables": variables, "longest": longest})
    if "error" in answer:
        raise TemplateFailed(answer["error"])
    return str(answer["text"])


class Encoded(NamedTuple):
    """ids of a text, without special tokens around it; added: ids of the added tokens."""

    ids: list[int]
    added: dict[str, int]


def encoded(tokenizer_file: str, text: str) -> Encoded | None:
    """A text by a tokenizer.json alone; None where that cannot be read. Errors: `OverLimit`."""
    answer = _ask({"kind": "encode", "file": tokenizer_file, "text": text})
    return None if "error" in answer else Encoded(**answer)


def _ask(request: dict[str, Any]) -> dict[str, Any]:
    line = json.dumps({**request, "cpu_s": CPU_S}).encode() + b"\n"
    with _lock:
        child = _running()
        to_child, from_child = cast(IO[bytes], child.stdin), cast(IO[bytes], child.stdout)
        late = threading.Timer(DEADLINE_S, child.kill)
        late.start()
        try:
            to_child.write(line)
            to_child.flush()
            answer = from_child.readline()
        except BrokenPipeError:
            answer = b""
        except BaseException:
            _end()  # its answer would be taken for the next one
            raise
        finally:
            in_time = late.is_alive()
            late.cancel()
        if not answer.endswith(b"\n"):
            _end()
            raise OverLimit(
                f"needs more than {CPU_S} seconds of processor time, or more memory than it may have"
                if in_time
                else f"takes longer than {DEADLINE_S:.0f} seconds"
            )
    content: dict[str, Any] = json.loads(answer)
    if "limit" in content:
        raise OverLimit(content["limit"])
    return content


def _running() -> subprocess.Popen[bytes]:
    global _child, _owner
    if _child is None or _owner != os.getpid() or _child.poll() is not None:
        if _owner == os.getpid():
            _end()
        words = [sys.executable, "-P", str(Path(__file__).with_name("untrusted_worker.py"))]
        try:
            _child = subprocess.Popen(  # nosec B603 # this software, by a list of words and no shell
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for this process; the child ends with its pipe
                env=os.environ | {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
            )  # fmt: skip
        except OSError as error:
            raise InputError(
                f"the process that renders chat templates cannot be started ({error}); free memory or processes"
            ) from None
        _owner = os.getpid()
    return _child


def _end() -> None:
    global _child
    child, _child = _child, None
    if child is None or _owner != os.getpid():
        return
    child.kill()
    child.wait()
    for pipe in (child.stdin, child.stdout):
        with suppress(BrokenPipeError):  # what was not sent yet
            cast(IO[bytes], pipe).close()


atexit.register(_end)
