"""Which rows pushed a model towards each token of a text, and which pushed it away."""

from dataclasses import dataclass
from typing import Any

import polars as pl
import torch
from torch import Tensor

from engine.models.loading import LoadedModel
from engine.records.errors import InputError, unknown
from engine.selectors.attribution import Method, relevance
from engine.selectors.checks import check_finite
from engine.selectors.passes import BatchSize, in_batches, wide, windows_per_pass

TOKEN_METHODS: tuple[Method, ...] = ("lrp", "grad_x_input", "ig", "ig_conductance")
TOWARDS, AWAY = "towards", "away"
TOKENS = {
    "position": pl.Int64,  # in the text, from 0
    "token_id": pl.Int64,
    "token": pl.String,  # what it adds to the text
    "log_probability": pl.Float64,  # nats, given all tokens before it; null for the first, which nothing predicts
}
ROWS = {
    "position": pl.Int64,  # of the token that is pushed
    "side": pl.String,  # TOWARDS or AWAY
    "place": pl.Int64,  # 1 = the row that pushes hardest to that side
    "row_id": pl.Int64,
    "relevance": pl.Float64,  # signed: above 0 towards the token
}


@dataclass(frozen=True)
class TokenRows:
    """tokens: a line per token, `TOKENS`. rows: of every token but the first the rows that push hardest, `ROWS`."""

    tokens: pl.DataFrame
    rows: pl.DataFrame


def token_rows(
    loaded: LoadedModel, token_ids: list[int], *, method: Method = "lrp", top: int = 5, batch_size: BatchSize = "auto"
) -> TokenRows:
    """Relevance of every row to every token of a text: R_i(t) = sum over s < t of r_i(s), r = relevance to F_t.

    F_t = log p(x_t | x_0 .. x_{t-1}) in nats, s the positions that are read before token t. lrp: r = h * dF_t/dh at the
    Linear's output h under AttnLRP's rules, Achtibat et al. 2024, arXiv:2402.05602; the other methods as in
    `engine.selectors.attribution`. The sign is that of the log-probability: a row above 0 made the token likelier.
    grad_x_input is exact to first order: it is the rate at which log p falls as the row's outputs are scaled down.
    **Choice:** log p, as in the scores (whose F is its negative); published per-token maps often take the logit alone.

    One forward and backward pass (ig, ig_conductance: 16) per token, several tokens of the text in a batch, under the
    model's lock. Kept are the `top` rows with the largest and the `top` with the smallest relevance of each token, as
    far as it is above and below 0; of equal ones the lower row id comes first.

    token_ids [T >= 2]; returns `TokenRows`
    Errors: InputError for a text of fewer than two tokens, top < 1, an unknown method, an architecture without rules
    under lrp, and relevance that is not finite.
    """
    if method not in TOKEN_METHODS:
        raise unknown("attribution method of tokens", method, TOKEN_METHODS)
    if top < 1 or len(token_ids) < 2:
        raise InputError(
            f"rows behind tokens need top >= 1 and a text of at least 2 tokens, got top {top} and {len(token_ids)} "
            "token(s); write a longer text"
        )
    ids = torch.tensor([token_ids], dtype=torch.int64)
    likely: list[float | None] = [None]
    lines: list[tuple[int, str, int, int, float]] = []
    size = windows_per_pass(batch_size, loaded.model, loaded.rows, len(token_ids))
    for part, found in in_batches(lambda part: _relevance(loaded, ids, part, method), len(token_ids) - 1, size):
        check_finite(method, found[:, :-1], loaded.rows, loaded.dtype)
        likely += found[:, -1].tolist()
        for number, values in enumerate(found[:, :-1]):
            lines += _strongest(part.start + number + 1, values, top)
    texts = pieces(loaded.tokenizer, token_ids)
    tokens = pl.DataFrame(
        list(zip(range(len(token_ids)), token_ids, texts, likely, strict=True)), schema=TOKENS, orient="row"
    )
    return TokenRows(tokens, pl.DataFrame(lines, schema=ROWS, orient="row"))


def pieces(tokenizer: Any, token_ids: list[int]) -> list[str]:
    """What each token adds to the decoded text; a token that only begins a letter of several bytes adds nothing, the
    one that ends it adds all of it. Where a tokenizer writes earlier letters anew, each token is decoded alone."""
    found: list[str] = []
    done = ""
    for end in range(1, len(token_ids) + 1):
        whole = str(tokenizer.decode(token_ids[:end]))
        if not whole.startswith(done):
            return [str(tokenizer.decode([token])) for token in token_ids]
        if whole.endswith("\ufffd") and end < len(token_ids):
            whole = done
        found.append(whole[len(done) :])
        done = whole
    return found


def _relevance(loaded: LoadedModel, ids: Tensor, part: slice, method: Method) -> Tensor:
    """Relevance of every row to tokens part.start + 1 .. part.stop of one text, and their log-probability behind it.

    The text once for every token: a token's F has no gradient at or behind its own position. ids [1, T]; returns
    [tokens, N + 1] float32 on the CPU
    """
    count = part.stop - part.start
    several = ids.expand(count, -1)
    sums = [torch.zeros(count, layer.rows) for layer in loaded.rows.layers]
    likely = torch.zeros(count)

    def gradient_of(logits: Tensor) -> Tensor:
        gradient = torch.zeros_like(logits)
        for number in range(count):
            place = part.start + number
            said = torch.log_softmax(wide(logits[number, place]), dim=-1)
            target = int(ids[0, place + 1])
            likely[number] = float(said[target])
            gradient[number, place] = -said.exp()
            gradient[number, place, target] += 1.0
        return gradient

    def reduce(layer: int, values: Tensor) -> None:
        sums[layer] = values.sum(1).cpu().float()

    with loaded.lock:
        relevance(method, loaded.model, loaded.rows, several, gradient_of, reduce)
    return torch.cat([*sums, likely[:, None]], dim=1)


def _strongest(target: int, values: Tensor, top: int) -> list[tuple[int, str, int, int, float]]:
    """Lines of `ROWS` of one token. values [N]"""
    lines = []
    for side, sign in ((TOWARDS, 1.0), (AWAY, -1.0)):
        order = (sign * values).sort(descending=True, stable=True).indices[:top]
        pushing = [(int(row), float(values[row])) for row in order if sign * float(values[row]) > 0]
        lines += [(target, side, place, row, value) for place, (row, value) in enumerate(pushing, 1)]
    return lines
