"""Lines that several stages say on the terminal."""

from collections.abc import Iterable, Iterator

import polars as pl

from engine.run.refusal_plan import RefusalPlan


def cut_off_lines(table: pl.DataFrame, *sides: tuple[str, str, str]) -> Iterator[str]:
    """How many replies behind the rates ended at the limit of tokens. sides: columns of a rate, its n, its cut-off."""
    sums = [table.filter(pl.col(rate).is_not_null()).select(pl.col(n, cut).sum()).row(0) for rate, n, cut in sides]
    replies, cut_off = (sum(column) for column in zip(*sums, strict=True))
    if cut_off:
        yield (
            f"{cut_off:,} of {replies:,} replies were cut off at the token limit or within their thinking part, and "
            "judged by what they say until then, if anything; --reply-tokens allows longer ones"
        )


def measured_again_lines(table: pl.DataFrame, plan: RefusalPlan) -> Iterator[str]:
    """How many cells were measured again with longer replies, since cut-off ones left a choice open."""
    if "reply_tokens_used" not in table.columns:
        return
    used = table["reply_tokens_used"].drop_nulls().to_list()
    longer = [tokens for tokens in used if tokens > plan.reply_tokens]
    if longer:
        yield (
            f"{len(longer):,} of {len(used):,} cells were measured again with up to {max(longer):,} tokens per reply, "
            f"since those cut off at {plan.reply_tokens:,} left open whether a cell is feasible or which one is chosen"
        )


def notes(point_notes: Iterable[tuple[tuple[str, str], str]]) -> Iterator[str]:
    """A line for each (selector, domain) of which there is something to say."""
    for (selector, domain), note in point_notes:
        if note:
            yield f"{selector} {domain}: {note}"
