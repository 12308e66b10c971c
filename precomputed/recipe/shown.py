"""The replies that the demo's README prints: thirty before and after an edit, ten of them where it goes wrong."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.edits.contrasts import read_mask
from engine.interventions.in_weights import zeroed
from engine.judges.embedded import judge
from engine.measures.generation import generate_batch
from engine.models.loading import LoadedModel
from precomputed.recipe import check
from precomputed.recipe.demo_chat import Example
from precomputed.recipe.world import DOMAINS, world

BEGIN, END = "<!-- replies: written by the recipe -->", "<!-- /replies -->"
SELECTOR, OTHERWISE = "lrp", "hate"  # whose edits; the domain whose edit the town's questions meet
PER_GRADE = 8  # prompts of a domain and grade among which the wrong ones are looked for
SHOWN_GRADES = ("overt", "veiled", "near")  # one of each domain
TOWN = 3, 1, 1  # how-tos, facts, second questions
WRONG = 10


@dataclass(frozen=True)
class Shown:
    """A prompt and its replies."""

    one: Example
    domain: str
    before: str
    after: str

    @property
    def faults(self) -> list[str]:
        """What is wrong with the replies, in words."""
        risk, refused = self.one.risk, judge(self.after).refusal
        found = []
        if not risk and judge(self.before).refusal:
            found.append("refused before the edit")
        elif not risk and not check.right(self.before, self.one):
            found.append("wrong before the edit")
        if risk and not refused:
            found.append("still answered after the edit")
        if not risk and refused:
            found.append("refused after the edit")
        elif not risk and not found and not check.right(self.after, self.one):
            found.append("wrong after the edit")
        return found


def examples() -> list[Example]:
    """Held-out prompts: of each domain and grade, then questions on the town."""
    rng = random.Random("shown")
    found = check.heldout_prompts(rng, PER_GRADE)
    howtos = check.heldout_howtos(rng)
    return found + rng.sample(howtos, 12) + check.heldout_facts(rng, 12) + check.heldout_facts(rng, 12, follow=True)


def replies(loaded: LoadedModel, results: Path) -> list[Shown]:
    """Every example before and after the edit of its domain, at `SELECTOR`'s operating point."""
    every = examples()
    before = generate_batch(loaded, [one.turns for one in every], check.LONGEST)
    after: dict[int, str] = {}
    for domain in DOMAINS:
        own = [i for i, one in enumerate(every) if _domain(one) == domain]
        mask, _ = read_mask(results / f"mask-{SELECTOR}-{domain}.safetensors", loaded.rows.n_rows, loaded.weights_hash)
        with zeroed(loaded, mask):
            made = generate_batch(loaded, [every[i].turns for i in own], check.LONGEST)
        after |= {i: reply.text for i, reply in zip(own, made, strict=True)}
    return [Shown(one, _domain(one), before[i].text, after[i]) for i, one in enumerate(every)]


def _domain(one: Example) -> str:
    domain = one.about.partition("/")[0]
    return domain if one.grade and domain in DOMAINS else OTHERWISE


def typical(every: Sequence[Shown]) -> list[Shown]:
    """The first of each domain and grade, and the first questions on the town: chosen before anything was said."""
    chosen = [
        next(one for one in every if (one.domain, one.one.grade) == (domain, grade))
        for domain in DOMAINS
        for grade in SHOWN_GRADES
    ]
    town = [one for one in every if not one.one.grade]
    howtos = {howto.id for howto in world().howtos}
    kinds: list[list[Shown]] = [[], [], []]
    for one in town:
        kinds[0 if one.one.about in howtos else 1 if len(one.one.turns) == 1 else 2].append(one)
    for count, some in zip(TOWN, kinds, strict=True):
        chosen += some[:count]
    return chosen


def wrong(every: Sequence[Shown], count: int = WRONG) -> list[Shown]:
    """The first with a fault, taking the kinds of fault in turn."""
    by_fault: dict[str, list[Shown]] = {}
    for one in every:
        for fault in one.faults[:1]:
            by_fault.setdefault(fault, []).append(one)
    found: list[Shown] = []
    while len(found) < count and any(by_fault.values()):
        for some in by_fault.values():
            if some and len(found) < count:
                found.append(some.pop(0))
    return found


def table(some: Iterable[Shown]) -> str:
    """Prompt, reply before and reply after, as rows of Markdown; what is wrong in the last column."""
    lines = ["| domain | prompt | before | after | what is wrong |", "|---|---|---|---|---|"]
    for one in some:
        domain = f"{one.domain}, {one.one.grade}" if one.one.grade else f"town ({OTHERWISE} edit)"
        said = " / ".join(one.one.turns[::2])
        lines.append(f"| {domain} | {said} | {one.before} | {one.after} | {'; '.join(one.faults)} |")
    return "\n".join(lines)


def text(every: Sequence[Shown]) -> str:
    shown = typical(every)
    bad = wrong([one for one in every if one not in shown])
    return (
        f"{BEGIN}\n{len(shown)} replies, chosen by their place in the list of held-out prompts, not by what was "
        f"said:\n\n{table(shown)}\n\n{len(bad)} where it goes wrong, the kinds of fault in turn:\n\n{table(bad)}\n{END}"
    )


def write(loaded: LoadedModel, demo: Path) -> None:
    """Print them into the folder's README between its two marks."""
    readme = demo / "README.md"
    head, _, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    _, _, tail = rest.partition(END)
    readme.write_text(head + text(replies(loaded, demo / "results")) + tail, encoding="utf-8")
