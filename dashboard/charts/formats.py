"""Numbers for people. What is exact stands in the hover and in the downloads."""

import math
import re
from collections.abc import Callable, Iterable
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

import polars as pl

LN10 = math.log(10)
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_PLAIN_LIMIT = 4  # perplexities below 10^4 are written out
TASK_TITLES = {
    "arc_easy": "ARC-Easy", "arc_challenge": "ARC-Challenge", "hellaswag": "HellaSwag", "winogrande": "WinoGrande",
    "piqa": "PIQA", "boolq": "BoolQ", "lambada_openai": "LAMBADA (OpenAI)", "openbookqa": "OpenBookQA",
}  # fmt: skip


def shown(text: object) -> str:
    """A text or path as it can be shown: what is no Unicode of it becomes question marks."""
    return str(text).encode("utf-8", "replace").decode()


def texts(values: Iterable[Any], text: Callable[[Any], str]) -> pl.Series:
    """A column of texts, one of each value that is not null.
    Made by a loop of Python's. Inside an expression a thread of polars would wait for the interpreter, whose holder may
    wait for that thread: two sessions stop the server for good."""
    return pl.Series([None if value is None else text(value) for value in values], dtype=pl.String)


def perplexity(nll: float | None) -> str:
    """Perplexity of an NLL in nats: `37.7`, `1,234`, `1.31×10⁵`. Never overflows; `–` where there is none."""
    if nll is None or math.isnan(nll):
        return "–"
    if math.isinf(nll):
        return "∞" if nll > 0 else "0"
    log10 = nll / LN10
    if log10 < _PLAIN_LIMIT:
        return _three_digits(math.exp(nll))
    return _scientific(log10)


def perplexity_difference(upper_nll: float, lower_nll: float) -> str:
    """`exp(upper) - exp(lower)`, written without forming an exponential that overflows."""
    if not (math.isfinite(upper_nll) and math.isfinite(lower_nll)):
        return "–"
    if upper_nll == lower_nll:
        return "0"
    high, low = max(upper_nll, lower_nll), min(upper_nll, lower_nll)
    log10 = (high + math.log1p(-math.exp(low - high))) / LN10
    text = _three_digits(10**log10) if log10 < _PLAIN_LIMIT else _scientific(log10)
    return text if upper_nll > lower_nll else f"−{text}"


def power_tick(log10: float) -> str:
    """Axis label at a height of `log10`: `20`, `1,000`, `10<sup>6</sup>`."""
    if -3 <= log10 < _PLAIN_LIMIT:
        return f"{10**log10:,.6g}"
    if abs(log10 - round(log10)) < 1e-9:
        return f"10<sup>{round(log10)}</sup>".replace("-", "−")
    exponent = math.floor(log10)
    return f"{10 ** (log10 - exponent):.3g}×10<sup>{exponent}</sup>"


def count(number: int) -> str:
    """`950`, `7,680`, `1.4M`."""
    if number < 100_000:
        return f"{number:,}"
    return f"{number / 1e6:.3g}M" if number >= 1_000_000 else f"{number / 1e3:.3g}k"


def rate(fraction: float) -> str:
    """`30%`, `7.5%`."""
    return f"{fraction * 100:.4g}%"


def rounded(number: float | None) -> str:
    """`0.0692`, `1.23`; `–` where there is none."""
    return "–" if number is None or math.isnan(number) else f"{number:.3g}"


def model_title(model: str) -> str:
    """A model's name for titles and labels: of a folder's path its last part, a hub id as it is."""
    if re.match(r"[A-Za-z]:[\\/]|\\\\", model):
        return PureWindowsPath(model).name or model
    return (PurePosixPath(model).name or model) if re.match(r"[/~.]", model) else model


def task_title(task: str) -> str:
    return TASK_TITLES.get(task, task.replace("_", " "))


def seconds(elapsed_s: float) -> str:
    """`0.42 s`, `12.3 s`."""
    return f"{elapsed_s:.2f} s" if elapsed_s < 10 else f"{elapsed_s:.1f} s"


def duration(seconds: float) -> str:
    """`80 s`, `12 min`, `2.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _three_digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _scientific(log10: float) -> str:
    exponent = math.floor(log10)
    mantissa = round(10 ** (log10 - exponent), 2)
    if mantissa >= 10:
        mantissa, exponent = mantissa / 10, exponent + 1
    return f"{mantissa:.2f}×10{str(exponent).translate(_SUPERSCRIPT)}"
