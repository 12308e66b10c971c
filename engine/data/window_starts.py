"""How windows of text begin: as the tokenizer begins a text, or wherever the stream of tokens was cut. No torch."""

from typing import Any, Literal, cast, get_args

from engine.records.errors import InputError, unknown
from engine.records.hashing import Json

WindowStart = Literal["text", "stream"]
WINDOW_STARTS: tuple[WindowStart, ...] = get_args(WindowStart)  # the first is the default
_PROBE = "The cat sat."


def text_prefix(tokenizer: Any) -> tuple[int, ...]:
    """The tokens that the tokenizer puts before a text (a BOS, of some two), none for many. Errors: InputError where
    its tokens with special ones do not hold those without as they are."""
    whole, bare = (cast("list[int]", tokenizer(_PROBE, add_special_tokens=add)["input_ids"]) for add in (True, False))
    for start in range(len(whole) - len(bare) + 1):
        if whole[start : start + len(bare)] == bare:
            return tuple(whole[:start])
    raise InputError(
        f"the tokenizer reads {_PROBE!r} as the tokens {whole}, without its special ones as {bare}, so that it is not "
        "known how it begins a text; give --window-start stream"
    )


def before_each(tokenizer: Any, window_start: str) -> tuple[int, ...]:
    """The tokens before every window: `text_prefix`, nothing under `stream`."""
    if window_start not in WINDOW_STARTS:
        raise unknown("window start", window_start, WINDOW_STARTS)
    return text_prefix(tokenizer) if window_start == "text" else ()


def start_record(window_start: str, prefix: tuple[int, ...]) -> Json:
    """What manifests say: the choice, and the tokens before each window where there are any; without any, both choices
    give the same windows."""
    return {"window_start": window_start, **({"window_prefix": list(prefix)} if prefix else {})}


def recorded_start(record: Json | None) -> str:
    """The choice by a text's record. Results made before there was one are `stream`."""
    return str((record or {}).get("window_start", "stream"))


def start_in_words(record: Json | None) -> str:
    """For protocols and the foot of a page."""
    behind = " ".join(map(str, (record or {}).get("window_prefix", ())))
    return recorded_start(record) + (f" (each behind the token{'s' * (' ' in behind)} {behind})" if behind else "")


def without_starts(value: Any) -> Any:
    """A manifest's spec without `window_start`, for comparisons: its effect, `window_prefix`, stays."""
    if isinstance(value, dict):
        return {name: without_starts(one) for name, one in value.items() if name != "window_start"}
    return [without_starts(one) for one in value] if isinstance(value, list) else value
