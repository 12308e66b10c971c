"""Is a reply still language: log-probabilities of its tokens, its repetition, and where a model's own replies lie."""

import numpy as np
import pytest
import torch

from engine.data.prompts import prompt_ids
from engine.edits.edit import UNEDITED, edit_of
from engine.interventions.at_outputs import edited_outputs
from engine.judges.base import open_judges
from engine.measures import fluency
from engine.measures.fluency import Asked, reference_of, repetition, reply_log_probabilities
from engine.measures.generation import end_tokens, generate_batch, generate_under
from engine.models.loading import LoadedModel
from engine.records.progress import each_pass
from engine.studies.refusal.dialogue import Outcome, dialogue

PROMPTS = ["The cat sat on", "Is there a way out?", "No"]
REPLIES = [(70, 5, 5, 9, 120), (33,), ()]


def one_at_a_time(loaded: LoadedModel, prompt: str, tokens: tuple[int, ...], finished: bool) -> list[float]:
    """Without padding, batch or cache, every token by a pass of its own, the softmax written out in float64."""
    ids, found = list(prompt_ids(loaded.tokenizer, prompt)), []
    for token in [*tokens, None]:
        with torch.no_grad():
            logits = loaded.model(torch.tensor([ids])).logits[0, -1].double()
        shares = torch.exp(logits - logits.max())
        shares = shares / shares.sum()
        if token is None:
            ends = end_tokens(loaded.model, loaded.tokenizer)
            if finished:
                found.append(float(torch.log(shares[sorted(ends)].sum())))
        else:
            found.append(float(torch.log(shares[token])))
            ids.append(token)
    return found


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_log_probabilities_are_those_of_a_slow_loop(
    tiny_llama: LoadedModel, finished: bool, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fluency, "logits_that_fit", lambda *_: at_once)
    asked = [Asked(prompt, tokens, finished) for prompt, tokens in zip(PROMPTS, REPLIES, strict=True)]
    found = reply_log_probabilities(tiny_llama, asked)
    for one, values in zip(asked, found, strict=True):
        expected = one_at_a_time(tiny_llama, str(one.prompt), tuple(one.tokens), finished)
        assert values.tolist() == pytest.approx(expected, abs=1e-4)  # float32, and padding


def test_they_are_of_the_unedited_model_also_while_another_edit_is_at_hand(tiny_llama: LoadedModel) -> None:
    asked = [Asked(PROMPTS[0], REPLIES[0], True)]
    alone = reply_log_probabilities(tiny_llama, asked)[0]
    edit = edit_of(np.arange(0, tiny_llama.rows.n_rows, 2), tiny_llama.rows.n_rows)
    with edited_outputs(tiny_llama, [edit]) as outputs:
        assert torch.equal(reply_log_probabilities(tiny_llama, asked)[0], alone)
        with outputs.sequences([0]):
            assert not torch.equal(reply_log_probabilities(tiny_llama, asked)[0], alone)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [("", 0), ("abc", 0), ("abcd", 0), ("abcde", 0), ("abcdabcd", 1 / 5), ("aaaaaaaa", 4 / 5), ("abababababab", 7 / 9)],
)
def test_repetition_counts_n_grams_that_came_before(tokens: str, expected: float) -> None:
    ids = [ord(letter) for letter in tokens]
    before = sum(ids[i : i + 4] in [ids[j : j + 4] for j in range(i)] for i in range(len(ids) - 3))
    assert repetition(ids) == pytest.approx(expected)
    assert repetition(ids) == pytest.approx(before / max(len(ids) - 3, 1))


def test_a_reference_is_the_quantile_of_the_models_own_replies_under_every_prompt(tiny_llama: LoadedModel) -> None:
    passes: list[None] = []
    with each_pass(lambda: passes.append(None)):
        found = reference_of(tiny_llama, PROMPTS, 6)
    assert found is not None
    replies = generate_batch(tiny_llama, PROMPTS, 6)
    means = [
        np.mean(one_at_a_time(tiny_llama, prompt, reply.ids, reply.finished))
        for prompt in PROMPTS  # three prompts: the shifts are all there are
        for reply in replies
    ]
    assert found.lowest == pytest.approx(np.quantile(means, 0.01), abs=1e-4)
    assert (found.replies, found.readings, found.reply_tokens) == (3, 9, 6)
    assert found.most == pytest.approx(max(0.5, np.quantile([repetition(one.ids) for one in replies], 0.99)))
    assert len(passes) == max(one.tokens + one.finished for one in replies) + 3
    assert reference_of(tiny_llama, [], 6) is None


def test_its_own_replies_under_prompts_of_its_own_are_broken_as_often_as_the_quantile_says() -> None:
    """Means of the same kind as those the limit was set by: drawn anew, one in a hundred lies below it."""
    generator = np.random.default_rng(0)
    rates = []
    for _ in range(300):
        own, fresh = generator.standard_normal(150) - 1.4, generator.standard_normal(400) - 1.4
        one = fluency.Reference(float(np.quantile(own, fluency.QUANTILE)), 0.5, 30, 150, 40)
        rates.append(np.mean([bool(one.broken(value, 0.0)) for value in fresh]))
    # The sample quantile of 150 lies between the first and the third of them: expected share 1 to 2 of 151.
    assert 1 / 151 < np.mean(rates) < 3 / 151


def test_replies_know_their_tokens_and_a_pass_can_be_given_up(tiny_llama: LoadedModel) -> None:
    class Stopped(BaseException):
        pass

    edits = [UNEDITED, edit_of(np.arange(0, 288, 7), tiny_llama.rows.n_rows)]
    for of_edit in generate_under(tiny_llama, edits, PROMPTS, 6):
        for reply in of_edit:
            assert len(reply.ids) == reply.tokens
            assert tiny_llama.tokenizer.decode(list(reply.ids), skip_special_tokens=True) == reply.text
    passes: list[None] = []

    def give_up() -> None:
        passes.append(None)
        if len(passes) == 3:
            raise Stopped

    with pytest.raises(Stopped), each_pass(give_up):
        generate_under(tiny_llama, edits, PROMPTS, 6)
    assert not any(module._forward_hooks for module in tiny_llama.model.modules())
    assert tiny_llama.lock.acquire(blocking=False)
    tiny_llama.lock.release()


def test_a_dialogue_tells_pieces_and_log_probabilities_where_asked(tiny_llama: LoadedModel) -> None:
    mask = np.arange(0, tiny_llama.rows.n_rows, 7)
    edits = {"before": UNEDITED, "after": edit_of(mask, tiny_llama.rows.n_rows)}
    judge = open_judges("embedded")[0]
    for asked in (True, False):
        events = dialogue(tiny_llama, PROMPTS[0], edits, judge, 8, likelihoods=asked)
        ended = {event.side: event for event in events if isinstance(event, Outcome)}
        replies = [of_edit[0] for of_edit in generate_under(tiny_llama, list(edits.values()), PROMPTS[:1], 8)]
        for one, reply in zip((ended["before"], ended["after"]), replies, strict=True):
            assert "".join(one.pieces) == one.text
            assert len(one.pieces) == one.tokens
            if not asked:
                assert (one.log_probabilities, one.repeated) == ((), None)
                continue
            expected = one_at_a_time(tiny_llama, PROMPTS[0], reply.ids, reply.finished)
            assert list(one.log_probabilities) == pytest.approx(expected, abs=1e-4)
            assert one.repeated == repetition(reply.ids)
