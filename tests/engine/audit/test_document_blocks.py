"""Blocks of documents: what documents a text has, which window is whose, and what the intervals cover."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import scipy.stats
import torch
from tiny_audits import differences, tiny_audit

from engine.data.corpora import windows
from engine.data.texts import read_text
from engine.measures.nll import NegativeLogLikelihood
from engine.models.loading import LoadedModel
from engine.results.store import Store
from engine.stats.blocks import (
    block_difference,
    block_error,
    block_stderr,
    document_blocks,
    ratio_stderr,
    window_blocks,
    with_documents,
)
from engine.stats.layer_matched import against_controls
from engine.stats.protocol_harm import Harm, text_part
from engine.stats.uncertainty import estimate, text_part as part_of
from engine.studies.estimate_words import paired_over, units_in_words

LENGTH = 40  # tokens of a made-up window


def json_lines(path: Path, documents: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": one}) + "\n" for one in documents), encoding="utf-8")
    return path


def letters(count: int, longest: int, seed: int = 0) -> list[str]:
    """Documents of one letter each, which the next does not have."""
    generator = np.random.default_rng(seed)
    return [" ".join(["abcdefgh"[place % 8] * 3] * int(generator.integers(2, longest))) for place in range(count)]


# Which documents


def test_documents_are_known_of_json_lines_and_not_of_plain_text(tmp_path: Path) -> None:
    documents = ["first of all", "", "a second\n\nwith a paragraph", "third"]
    text = read_text(str(json_lines(tmp_path / "some.jsonl", documents)), "evaluation")
    assert text.documents is not None
    ends = [start + len(one) for start, one in zip(text.documents, documents, strict=True)]
    assert [text.text[start:end] for start, end in zip(text.documents, ends, strict=True)] == documents
    (tmp_path / "some.txt").write_text("one\n\ntwo\n")
    assert read_text(str(tmp_path / "some.txt"), "evaluation").documents is None
    sections = ["= First =", "one . \n two .", "= = Section = =", "= no title = \n more", "= Second =", "end"]
    (tmp_path / "wiki.txt").write_text("".join(f" \n {one} \n" for one in sections))
    text = read_text(str(tmp_path / "wiki.txt"), "evaluation")
    assert [text.text[start:].split("\n")[0] for start in text.documents or ()] == ["= First =", "= Second ="]


def test_every_token_is_of_its_document(tiny_llama: LoadedModel, tmp_path: Path) -> None:
    """Against the letter that the token is made of."""
    file = json_lines(tmp_path / "letters.jsonl", letters(12, 60))
    text = windows(str(file), tiny_llama.tokenizer, role="evaluation", samples=20, length=16, skip_tokens=7)
    assert text.documents is not None
    assert text.documents.shape == text.input_ids.shape
    checked = 0
    for token, document in zip(text.input_ids.flatten().tolist(), text.documents.flatten().tolist(), strict=True):
        said = tiny_llama.tokenizer.decode([token]).strip()
        if said and said[0] in "abcdefgh":
            assert said[0] == "abcdefgh"[document % 8]
            checked += 1
    assert checked > 100
    assert torch.equal(text.part(3, 5).documents, text.documents[3:8])  # type: ignore[arg-type]


# Blocks of them


def tokens_of(lengths: list[int]) -> np.ndarray:
    """[windows, LENGTH] document numbers of documents of so many tokens, cut where a window is not full."""
    flat = np.repeat(np.arange(len(lengths)), lengths)
    return flat[: len(flat) // LENGTH * LENGTH].reshape(-1, LENGTH)


def test_whole_documents_of_one_size_give_the_t_test_over_documents() -> None:
    blocks = document_blocks(tokens_of([4 * LENGTH] * 22))
    assert blocks is not None
    assert (blocks.number, blocks.documents, blocks.widening) == (22, 22, pytest.approx(1.0))
    values = np.random.default_rng(0).normal(0.2, 1, 88)
    error, count = block_stderr(values.tolist(), [1] * 88, blocks)
    found = estimate(float(values.mean()), [part_of([error], [count])])
    test = scipy.stats.ttest_1samp(values.reshape(22, 4).mean(1), 0)
    assert found.p_differs == pytest.approx(test.pvalue, rel=1e-9)


def test_the_widening_is_what_the_matrix_of_all_windows_says() -> None:
    """Documents with an effect of their own: covariance of windows = shared tokens; expectations by matrices."""
    lengths = np.random.default_rng(1).integers(10, 5 * LENGTH, 40).tolist()
    documents = tokens_of(lengths)
    blocks = document_blocks(documents)
    assert blocks is not None
    inside = np.stack([(documents == one).sum(1) for one in range(len(lengths))], axis=1)  # [windows, documents]
    whole = (inside @ inside.T).astype(float)
    sums = np.zeros((blocks.number, len(documents)))
    for number in range(blocks.number):
        sums[number, blocks.edges[number] : blocks.edges[number + 1]] = 1
    residual = sums - np.outer(sums.sum(1) / len(documents), np.ones(len(documents)))
    expected = np.trace(residual @ whole @ residual.T) * blocks.number / (blocks.number - 1)
    assert blocks.widening == pytest.approx(whole.sum() / expected, rel=1e-12)
    assert blocks.widening > 1


def test_a_block_begins_where_the_documents_change_and_has_a_25th_of_the_windows() -> None:
    documents = tokens_of(np.random.default_rng(2).integers(10, 2 * LENGTH, 300).tolist())
    blocks = document_blocks(documents)
    assert blocks is not None
    assert blocks.edges[0] == 0
    assert blocks.edges[-1] == len(documents)
    assert min(np.diff(blocks.edges)) >= math.ceil(len(documents) / 25)
    assert 20 <= blocks.number <= 25
    for edge in blocks.edges[1:-1]:
        before, after = (np.bincount(documents[place]).argmax() for place in (edge - 1, edge))
        assert before < after


def test_few_documents_or_one_that_is_most_of_the_text_leave_blocks_of_windows() -> None:
    assert document_blocks(tokens_of([4 * LENGTH] * 19)) is None
    assert document_blocks(tokens_of([LENGTH] * 19 + [400 * LENGTH])) is None
    assert document_blocks(tokens_of([LENGTH] * 20)) is not None


def layouts(generator: np.random.Generator, count: int, mean: float, sigma: float) -> np.ndarray:
    """Documents of log-normal length, `mean` windows on average, until there are `count` windows."""
    lengths: list[int] = []
    while sum(lengths) < count * LENGTH:
        lengths.append(max(4, int(mean * LENGTH * generator.lognormal(-(sigma**2) / 2, sigma))))
    return tokens_of(lengths)[:count]


@pytest.mark.long  # about 4 s each
@pytest.mark.parametrize("noise", [0.0, 1.0])
@pytest.mark.parametrize(("count", "mean", "sigma"), [(64, 0.3, 1.1), (64, 1, 0.6), (256, 1, 1.1), (256, 4, 0.6)])
def test_intervals_over_documents_hold_the_truth(count: int, mean: float, sigma: float, noise: float) -> None:
    """Every document has an effect on its tokens; noise: of each window beside it, in units of the effects'."""
    generator, hits, naive, trials = np.random.default_rng(count), 0, 0, 0
    for _ in range(30):
        documents = layouts(generator, count, mean, sigma)
        blocks = document_blocks(documents)
        if blocks is None:
            continue
        numbers = documents.max() + 1
        inside = np.stack([np.bincount(one, minlength=numbers) for one in documents]) / LENGTH
        size = math.sqrt(np.square(inside).sum(1).mean())
        for _ in range(80):
            values = inside @ generator.normal(size=numbers) + noise * size * generator.normal(size=count)
            error, blocks_used = block_stderr(values.tolist(), [1] * count, blocks)
            found = estimate(float(values.mean()), [part_of([error], [blocks_used])])
            loose = estimate(float(values.mean()), [part_of([ratio_stderr(values.tolist(), [1] * count)], [None])])
            for one in (found, loose):
                assert one.low is not None
                assert one.high is not None
            hits += found.low <= 0 <= found.high  # type: ignore[operator]
            naive += loose.low <= 0 <= loose.high  # type: ignore[operator]
            trials += 1
    assert trials >= 1600
    assert 0.93 <= hits / trials <= 0.97
    assert naive < hits


# In results, keys, manifests and tables


def test_every_statistic_takes_the_blocks_of_its_results() -> None:
    blocks = document_blocks(tokens_of(np.random.default_rng(4).integers(10, 3 * LENGTH, 60).tolist()))
    assert blocks is not None
    count = blocks.edges[-1]
    generator = np.random.default_rng(5)
    a, b, c, d = (
        NegativeLogLikelihood(tuple(generator.normal(3, 1, count).tolist()), (1,) * count, blocks) for _ in range(4)
    )
    apart = [x - y for x, y in zip(a.window_nats, b.window_nats, strict=True)]
    expected = block_stderr(apart, a.window_tokens, blocks)
    assert expected != block_stderr(apart, a.window_tokens)
    assert block_difference(a, b) == expected
    assert block_error(a) == block_stderr(a.window_nats, a.window_tokens, blocks)
    one, other = (Harm(np.array([some.window_nats]), some.window_tokens, blocks) for some in (a, b))
    part = text_part(one - other)
    assert part is not None
    assert expected[0] is not None
    assert (math.sqrt(part.variance), part.degrees) == pytest.approx((expected[0], blocks.number - 1))
    found = against_controls([a], [[b]], [c, d], "lerf")
    assert (found.stderr_blocks, found.blocks) == (pytest.approx(expected[0]), blocks.number)


def test_a_table_says_how_many_documents(tiny_llama: LoadedModel, tiny_text: Path, tmp_path: Path) -> None:
    file = json_lines(tmp_path / "letters.jsonl", letters(80, 8))
    with Store(tmp_path / "store") as store:
        audit = tiny_audit(
            tiny_llama, tiny_text, store, scoring={"selectors": ("random", "magnitude"), "seeds": (7,)},
            gap_rates=(0.4,), eval_corpus=str(file), eval_samples=64, eval_length=16,
        )  # fmt: skip
        table = differences(audit)["differences"]
        blocks = audit.evaluation.blocks
    assert blocks.documents is not None
    assert set(table["documents"]) == {blocks.documents}
    assert set(table["blocks"]) == {blocks.number}
    assert paired_over(table) == "blocks of documents"
    said = f"{blocks.number} blocks of neighbouring documents ({blocks.documents} documents) of the evaluation text"
    assert units_in_words(table, numbers=True) == said
    plain = with_documents(table.drop("documents"), window_blocks(64))
    assert "documents" not in plain.columns
    assert units_in_words(plain, numbers=True) == f"{blocks.number} blocks of neighbouring evaluation windows"
    assert units_in_words(pl.DataFrame({"blocks": [3, 4]}), numbers=True) == "blocks of neighbouring evaluation windows"
