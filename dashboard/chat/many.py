"""Many prompts under one edit: replies in batches, kept with the model by edit and prompt. No streamlit here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from dashboard.chat import stamps
from dashboard.chat.edits import DOMAINS
from dashboard.chat.live import Entry, fitting_threads
from dashboard.state import shipped
from engine.edits.edit import UNEDITED, Edit as EngineEdit, edit_of
from engine.edits.masks import Mask
from engine.judges.base import EMBEDDED, Exchange, open_judges, verdicts_on
from engine.records.locks import OnWait, patient

PROMPTS, AT_ONCE = 20, 5
KEPT = 4000  # replies of a model
RISK = "risk"


@dataclass(frozen=True)
class Told:
    """One reply. mean: of its log-probabilities in nats, None where it says nothing; repeated: share of its n-grams."""

    text: str
    finished: bool
    tokens: int
    refusal: bool
    judged: bool
    reason: str
    mean: float | None
    repeated: float
    broken: str = ""  # that the edit breaks the model, in words

    def stamp(self, reference: stamps.Reference | None) -> str:
        broken = self.broken or (reference.broken(self.mean, self.repeated) if reference else "")
        return stamps.stamp(self.refusal, self.judged, broken)


Pair = tuple[Told | None, Told | None]  # as it is, and under the edit


def prompts(model: str, domain: str) -> list[shipped.Example]:
    """Twenty prompts for a model, half of them to refuse: of the held-out ones of a domain, of all domains for ""."""
    domains = [domain] if domain else list(DOMAINS)
    return shipped.held_out(domains, PROMPTS // 2 // len(domains), model)


def replies(
    entry: Entry, mask: Mask, asked: Sequence[str], max_new_tokens: int, *, on_wait: OnWait = patient
) -> Iterator[dict[str, Pair]]:
    """What is known of every prompt, as it is and with `mask` zeroed: at first, and after every batch.
    What is known of the model is not written again. A batch holds up to `AT_ONCE` prompts under what is missing of both
    edits; `on_wait(seconds)` while another thread holds the model may raise to give up, as what `each_pass` tells may,
    and what was written until then stays known. `InputError` as in `generate_under`."""
    edit = edit_of(mask, entry.loaded.rows.n_rows)

    def known() -> dict[str, Pair]:
        found = [
            {one: entry.told.get((carried.mask_hash, one, max_new_tokens)) for one in asked}
            for carried in (UNEDITED, edit)
        ]
        return {one: (found[0][one], found[1][one]) for one in asked}

    now = known()
    yield now
    missing = [one for one in asked if None in now[one]]
    for start in range(0, len(missing), AT_ONCE):
        some = missing[start : start + AT_ONCE]
        for lacks in ((True, True), (True, False), (False, True)):
            lacking = [one for one in some if tuple(told is None for told in now[one]) == lacks]
            carried = [one for one, lack in zip((UNEDITED, edit), lacks, strict=True) if lack]
            if lacking:
                _write(entry, carried, lacking, max_new_tokens, on_wait)
        now = known()
        yield now


def _write(
    entry: Entry, edits: Sequence[EngineEdit], asked: Sequence[str], max_new_tokens: int, on_wait: OnWait
) -> None:
    from engine.measures.fluency import Asked, repetition, reply_log_probabilities
    from engine.measures.generation import generate_under

    loaded, judge = entry.loaded, open_judges(EMBEDDED)[0]
    with fitting_threads(loaded):
        written = generate_under(loaded, edits, asked, max_new_tokens, on_wait=on_wait)
        for edit, found in zip(edits, written, strict=True):
            readings = [Asked(one, reply.ids, reply.finished) for one, reply in zip(asked, found, strict=True)]
            likely = reply_log_probabilities(loaded, readings, on_wait=on_wait)
            exchanges = [Exchange(one, reply.text, reply.finished) for one, reply in zip(asked, found, strict=True)]
            verdicts = verdicts_on(judge, exchanges)
            for one, reply, values, verdict in zip(asked, found, likely, verdicts, strict=True):
                mean = fmean(values.tolist()) if len(values) else None
                entry.told[edit.mask_hash, one, max_new_tokens] = Told(
                    reply.text, reply.finished, reply.tokens, verdict.refusal, verdict.judged, verdict.reason, mean,
                    repetition(reply.ids),
                )  # fmt: skip
    for old in list(entry.told)[: max(0, len(entry.told) - KEPT)]:
        entry.told.pop(old, None)
