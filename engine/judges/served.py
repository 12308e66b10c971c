"""A judge's model behind an address: a server that speaks the OpenAI protocol (vLLM, llama.cpp, Ollama, a provider's).

The address ends where `/chat/completions` would follow, with `#NAME` behind it where the server has several models.
Greedy (temperature 0), at most 16 tokens. A key comes from the environment variable SELECTOR_AUDIT_JUDGE_KEY; it is
sent to that address only, as prompts and replies are, and never stored or shown. What a server runs cannot be checked:
the judge's version holds the model's name, not its weights."""

import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from engine.data.thinking import after_thinking
from engine.records.errors import InputError
from engine.records.progress import Progress

KEY_VARIABLE = "SELECTOR_AUDIT_JUDGE_KEY"
MAX_NEW_TOKENS = 16
TIMEOUT_S = 60.0
TRIES = 3
PAUSE_S = 0.5  # before the second try; twice as long before each further one
_LOCAL = {"localhost", "127.0.0.1", "::1"}
_FIRST_WORD = re.compile(r"^\W*(yes|no)\b", re.IGNORECASE)
_SHOWN = 80


@dataclass(frozen=True)
class Served:
    """A model of a server. url: without the model's name."""

    url: str
    name: str
    timeout_s: float = TIMEOUT_S

    @property
    def version(self) -> str:
        return f"served {self.name}"

    def yes_or_no(
        self, questions: Sequence[str], progress: Progress | None = None, stage: str = "judge"
    ) -> list[tuple[bool | None, str]]:
        """(is the first word after thinking yes?, the reply) for every question; None where it is neither yes nor no.
        Errors: InputError where the server cannot be reached, or says something that is no chat completion."""
        answers: list[tuple[bool | None, str]] = []
        for question in questions:
            reply = self.reply(question)
            after = after_thinking(reply).text
            word = _FIRST_WORD.match(after)
            reason = f"the judge answered {' '.join((after or reply).split())[:_SHOWN]!r}"
            answers.append((word[1].lower() == "yes" if word else None, reason))
            if progress:
                progress(stage, len(answers), len(questions))
        return answers

    def reply(self, question: str) -> str:
        answer = self._call(
            "/chat/completions",
            {"model": self.name, "messages": [{"role": "user", "content": question}], "temperature": 0,
             "max_tokens": MAX_NEW_TOKENS},
        )  # fmt: skip
        try:
            text = answer["choices"][0]["message"]["content"]
        except (LookupError, TypeError):
            raise InputError(f"{self.url} answered something other than a chat completion; is it an OpenAI server?") \
                from None  # fmt: skip
        return text if isinstance(text, str) else ""

    def models(self) -> list[str]:
        try:
            return [str(one["id"]) for one in self._call("/models")["data"]]
        except (LookupError, TypeError):
            raise InputError(f"{self.url} does not list its models; name one, as in {self.url}#NAME") from None

    def _call(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """The JSON that the server answers; tried again where it is busy, slow or away."""
        key = os.environ.get(KEY_VARIABLE, "")
        request = urllib.request.Request(
            self.url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {}),
        )
        problem = ""
        for attempt in range(TRIES):
            if attempt:
                time.sleep(PAUSE_S * 2 ** (attempt - 1))
            try:
                with _opener(self.url).open(request, timeout=self.timeout_s) as response:
                    return json.loads(response.read())
            except urllib.error.HTTPError as error:
                problem = f"answered {error.code} {error.reason}"
                error.close()
                if error.code < 500 and error.code not in (408, 429):
                    break
            except (TimeoutError, urllib.error.URLError) as error:
                why = getattr(error, "reason", error)
                slow = f"gave no answer within {self.timeout_s:g} s"
                problem = slow if isinstance(why, TimeoutError) else f"cannot be reached ({why})"
            except (OSError, ValueError) as error:
                problem = f"answered no JSON ({type(error).__name__})"
                break
        raise InputError(
            f"the judge's server {self.url} {problem}; start it, or check the address, the model's name and "
            f"{KEY_VARIABLE}"
        )


def is_address(model: str) -> bool:
    """Is this the address of a server, and no folder?"""
    return model.startswith(("http://", "https://"))


def of_address(address: str, timeout_s: float = TIMEOUT_S) -> Served:
    """The model of an address, `URL` or `URL#NAME`. Errors: InputError for an address with a password in it, for a key
    over an unencrypted line to another machine, and where the server has several models and none is named."""
    parts = urlsplit(address)
    url = address.partition("#")[0].rstrip("/")
    if parts.username or parts.password or parts.query or not parts.hostname:
        raise InputError(
            f"the address of a judge's server must be like http://localhost:8000/v1#NAME, without password or query; "
            f"put a key into {KEY_VARIABLE}"
        )
    if parts.scheme == "http" and parts.hostname not in _LOCAL and os.environ.get(KEY_VARIABLE):
        raise InputError(
            f"{parts.hostname} is another machine, and http would send {KEY_VARIABLE} there readable by all between; "
            "use https, or unset the variable"
        )
    served = Served(url, parts.fragment, timeout_s)
    if served.name:
        return served
    names = served.models()
    if len(names) != 1:
        raise InputError(f"{url} has {len(names)} models ({', '.join(names[:5])}); name one, as in {url}#NAME")
    return Served(url, names[0], timeout_s)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Neither prompts nor the key go anywhere else than to the address that was given."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def _opener(url: str) -> urllib.request.OpenerDirector:
    """Without redirects; to this machine without the proxy of the environment too."""
    handlers: list[Any] = [_NoRedirect]
    if urlsplit(url).hostname in _LOCAL:
        handlers.append(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(*handlers)
