"""Live edits without a page: the pool, the lock around an edit, stopping, masks from settings."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dashboard.charts import palette
from dashboard.chat import edits, live
from dashboard.state import shipped_models as shipped
from engine import selectors
from engine.edits.contrasts import Contrast, refusal_mask
from engine.edits.masks import removed_rows
from engine.models.loading import LoadedModel
from engine.records import locks
from engine.records.errors import InputError

PROMPT, LENGTH = "The cat sat on the mat.", 12


@pytest.fixture(scope="module")
def loaded(tmp_path_factory) -> LoadedModel:
    from tiny_models import load_tiny

    return load_tiny("llama", tmp_path_factory.mktemp("live"), max_position_embeddings=512)


@pytest.fixture
def entry(loaded):
    return live.Entry(loaded)


def weights(loaded):
    return {name: value.clone() for name, value in loaded.model.state_dict().items()}


def same_weights(loaded, before):
    return all(torch.equal(value, before[name]) for name, value in loaded.model.state_dict().items())


def masks(loaded):
    """Two masks that change the reply differently."""
    half = loaded.rows.n_rows // 2
    return np.arange(0, half), np.arange(half, loaded.rows.n_rows)


def edited(mask):
    return {"before": mask[:0], "after": mask}


def texts(loaded, mask):
    outcomes = [
        event for event in live.replies(loaded, edited(mask), PROMPT, LENGTH) if isinstance(event, live.Outcome)
    ]
    return {outcome.side: outcome.text for outcome in outcomes}


def test_both_replies_are_those_of_batch_generation(loaded):
    from engine.interventions.in_weights import zeroed
    from engine.measures.generation import generate_batch

    mask, _ = masks(loaded)
    events = list(live.replies(loaded, edited(mask), PROMPT, LENGTH))
    outcomes = [event for event in events if isinstance(event, live.Outcome)]
    assert [outcome.side for outcome in outcomes] == ["before", "after"]
    (before,) = generate_batch(loaded, [PROMPT], LENGTH)
    with zeroed(loaded, mask):
        (after,) = generate_batch(loaded, [PROMPT], LENGTH)
    assert [outcome.text for outcome in outcomes] == [before.text, after.text]
    assert before.text != after.text
    for outcome, reply in zip(outcomes, (before, after), strict=True):
        pieces = [event.text for event in events if isinstance(event, live.Piece) and event.side == outcome.side]
        assert "".join(pieces) == outcome.text
        assert (outcome.tokens, outcome.finished) == (reply.tokens, reply.finished)
        assert outcome.margin is not None


@pytest.mark.parametrize("events_seen", [1, 5, LENGTH + 3])
def test_a_stopped_edit_leaves_weights_and_lock_as_they_were(loaded, events_seen):
    before = weights(loaded)
    mask, _ = masks(loaded)
    with closing(live.replies(loaded, edited(mask), PROMPT, LENGTH)) as events:
        for _ in range(events_seen):
            next(events)
    assert same_weights(loaded, before)
    with ThreadPoolExecutor(1) as other:  # its own thread may take the lock always
        assert other.submit(loaded.lock.acquire, blocking=False).result()
        other.submit(loaded.lock.release).result()


def test_a_small_model_writes_on_one_thread_and_the_setting_comes_back(loaded):
    mask, _ = masks(loaded)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with closing(live.replies(loaded, edited(mask), PROMPT, LENGTH)) as events:
            next(events)
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_the_setting_of_threads_comes_back_when_sessions_overlap(loaded):
    """The second begins while the first computes on one thread, and ends after it."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    found = []
    try:
        with closing(live.replies(loaded, edited(masks(loaded)[0]), PROMPT, LENGTH)) as second:
            with closing(live.replies(loaded, edited(masks(loaded)[1]), PROMPT, LENGTH)) as first:
                next(first)
                next(second)
            next(second)
        found.append(torch.get_num_threads())
        thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        assert found == [2, 2]
    finally:
        torch.set_num_threads(before)


def test_nothing_is_left_when_the_reader_fails(loaded):
    before = weights(loaded)
    mask, _ = masks(loaded)

    def read_until_interrupted():
        with closing(live.replies(loaded, edited(mask), PROMPT, LENGTH)) as events:
            for event in events:
                if isinstance(event, live.Piece) and event.side == "after":
                    raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read_until_interrupted()
    assert same_weights(loaded, before)


def test_sessions_write_at_once_and_never_see_each_others_mask(loaded):
    first_mask, second_mask = masks(loaded)
    alone = {"first": texts(loaded, first_mask), "second": texts(loaded, second_mask)}
    assert alone["first"]["after"] != alone["second"]["after"]
    found, order = {"first": [], "second": []}, []

    def session(name, mask, rounds=6):
        for _ in range(rounds):
            outcomes = {}
            for event in live.replies(loaded, edited(mask), PROMPT, LENGTH):
                order.append(name)
                if isinstance(event, live.Outcome):
                    outcomes[event.side] = event.text
            found[name].append(outcomes)

    threads = [threading.Thread(target=session, args=pair) for pair in (("first", first_mask), ("second", second_mask))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == {name: [alone[name]] * 6 for name in alone}
    turns = sum(one != other for one, other in pairwise(order))
    assert turns > 12  # within replies, not only between them


def test_a_session_that_has_to_wait_is_told_and_may_give_up(loaded, monkeypatch):
    """Another one has rows zeroed in the weights, as a measurement of NLL does."""
    from engine.interventions.in_weights import zeroed

    monkeypatch.setattr(locks, "POLL_S", 0.01)
    mask, other_mask = masks(loaded)
    alone = texts(loaded, mask)
    inside, release = threading.Event(), threading.Event()

    def hold():
        with zeroed(loaded, other_mask):
            inside.set()
            release.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    inside.wait(60)

    class Stopped(BaseException):
        """What Streamlit raises to end a script run."""

    def give_up(_):
        raise Stopped

    with pytest.raises(Stopped):
        list(live.replies(loaded, edited(mask), PROMPT, LENGTH, on_wait=give_up))
    waits = []

    def let_go(seconds):
        waits.append(seconds)
        release.set()

    events = list(live.replies(loaded, edited(mask), PROMPT, LENGTH, on_wait=let_go))
    holder.join(60)
    assert waits
    assert {event.side: event.text for event in events if isinstance(event, live.Outcome)} == alone


def test_three_sides_are_one_batch(loaded):
    sizes = []
    handle = loaded.model.register_forward_pre_hook(
        lambda _, __, inputs: sizes.append(len(inputs["input_ids"])), with_kwargs=True
    )
    mask, control = masks(loaded)
    try:
        events = list(live.replies(loaded, edited(mask) | {"control": control}, PROMPT, LENGTH))
    finally:
        handle.remove()
    ended = {event.side: event for event in events if isinstance(event, live.Outcome)}
    assert set(ended) == set(live.SIDES)
    longest = max(one.tokens + one.finished for one in ended.values())
    assert len(sizes) <= longest + 2  # with the margins' pass, and the one that tells whether edits may be mixed
    sides = [event.side for event in events]
    assert sides.index("control") < len(sides) - 1 - sides[::-1].index("before")


def fake_model(name):
    return SimpleNamespace(id=name, lock=threading.RLock())


def test_the_pool_drops_the_old_model_before_it_loads_the_new_one():
    there, most = [], []

    def load(name):
        most.append(len(pool._entries) + 1)
        there.append(name)
        return fake_model(name)

    pool = live.ModelPool(load)
    with pool.use("a") as first:
        pass
    with pool.use("a") as again:
        assert again is first
    with pool.use("b") as other:
        assert other.loaded.id == "b"
    with pool.use("a") as again:
        assert again is not first
    assert there == ["a", "b", "a"]
    assert max(most) == 1


def test_the_pool_waits_for_the_user_of_the_old_model(monkeypatch):
    monkeypatch.setattr(live, "POLL_S", 0.01)
    monkeypatch.setattr(locks, "POLL_S", 0.01)
    pool = live.ModelPool(fake_model)
    waits = []

    def take_the_other():
        with pool.use("b", waits.append):
            pass

    thread = threading.Thread(target=take_the_other)
    with pool.use("a"):  # between two uses of the model's lock it is in use as well
        thread.start()
        while not waits and thread.is_alive():
            thread.join(0.01)
        assert list(pool._entries) == ["a"]
    thread.join(10)
    assert list(pool._entries) == ["b"]
    assert waits


def test_two_sessions_have_the_same_model_at_once_and_both_keep_it(monkeypatch):
    monkeypatch.setattr(live, "POLL_S", 0.01)
    monkeypatch.setattr(locks, "POLL_S", 0.01)
    pool = live.ModelPool(fake_model)
    inside, release = threading.Event(), threading.Event()

    def stay():
        with pool.use("a"):
            inside.set()
            release.wait(10)

    thread = threading.Thread(target=stay)
    with pool.use("a") as entry:
        thread.start()
        assert inside.wait(10)
        assert entry.users == 2

    def take_the_other():
        with pool.use("b"):
            pass

    other = threading.Thread(target=take_the_other)
    other.start()
    other.join(0.1)
    assert list(pool._entries) == ["a"]
    release.set()
    thread.join(10)
    other.join(10)
    assert list(pool._entries) == ["b"]


def test_a_waiter_that_gives_up_leaves_the_pool_usable(monkeypatch):
    monkeypatch.setattr(live, "POLL_S", 0.01)
    monkeypatch.setattr(locks, "POLL_S", 0.01)
    pool = live.ModelPool(fake_model)

    class Stopped(BaseException):
        """What Streamlit raises to end a script run."""

    def give_up(_):
        raise Stopped

    release = threading.Event()
    inside = threading.Event()

    def hold():
        with pool.use("a"):
            inside.set()
            release.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    inside.wait(10)
    with pytest.raises(Stopped), pool.use("b", give_up):
        pass
    release.set()
    holder.join(10)
    with pool.use("b") as entry:
        assert entry.loaded.id == "b"


def test_masks_of_both_modes_use_shipped_arrays_of_these_weights(entry, monkeypatch):
    n = entry.loaded.rows.n_rows
    generator = np.random.default_rng(0)
    scores, c_comply, lm_rank = (generator.random(n, dtype=np.float32) for _ in range(3))
    contrast = Contrast("lrp", "hate", c_comply, lm_rank)
    arrays = {"lrp": scores, "random": scores[::-1]}
    monkeypatch.setattr(shipped, "scores_of", lambda _weights, selector, _rows: arrays[selector])
    monkeypatch.setattr(shipped, "demo_contrasts", lambda: {("lrp", "hate"): contrast})
    monkeypatch.setattr(shipped, "weights_hash_of", lambda _: entry.loaded.weights_hash)
    by_rate = edits.Edit("language model", "lrp", order="morf", rate=0.3)
    assert (edits.mask_of(entry, by_rate, fail) == removed_rows(scores, "morf", 0.3)).all()
    first_seed = edits.Edit("language model", "random", order="lerf", rate=0.1)
    assert (edits.mask_of(entry, first_seed, fail) == removed_rows(scores[::-1], "lerf", 0.1)).all()
    refusal = edits.Edit("refusal", "lrp", domain="hate", lam=0.5, k=0.05)
    expected = refusal_mask(contrast, 0.5, 0.05)
    assert (edits.mask_of(entry, refusal, fail) == expected).all()


def fail(*_):
    raise AssertionError("scores were computed although they ship")


def test_refusal_selectors_are_those_of_the_registry(monkeypatch):
    assert edits.refusal_selectors() == palette.in_order(selectors.base.contrast_selectors())
    monkeypatch.setattr(edits, "_plug_ins", lambda: ["mine"])
    monkeypatch.setattr(edits, "contrast_selectors", lambda: ["mine", "random", "lrp"])
    assert edits.refusal_selectors() == ["lrp", "random", "mine"]


def test_ranking_selectors_are_those_that_score_text():
    assert edits.ranking_selectors() == palette.in_order([one.id for one in selectors.available_selectors()])


def test_what_contrasts_prompts_only_is_protected_by_anothers_scores(entry, monkeypatch):
    protecting = np.linspace(0, 1, entry.loaded.rows.n_rows, dtype=np.float32)
    given = []

    def contrasts(loaded, names, pairs, lm_scores, **_):
        given.append((names, lm_scores))
        return [Contrast(names[0], "hate", np.zeros_like(protecting), protecting)]

    monkeypatch.setattr(shipped, "weights_hash_of", lambda _: entry.loaded.weights_hash)
    monkeypatch.setattr(shipped, "scores_of", lambda *of: protecting if of[1] == "grad_x_input" else None)
    monkeypatch.setattr(shipped, "demo_contrasts", dict)
    monkeypatch.setattr("engine.studies.refusal.algorithm.contrasts", contrasts)
    edits.mask_of(entry, edits.Edit("refusal", "effect_size", domain="hate", lam=0.5, k=0.05), lambda *_: None)
    [(names, lm_scores)] = given
    assert names == ["effect_size"]
    assert list(lm_scores) == ["effect_size"]
    assert (lm_scores["effect_size"] == protecting).all()


def test_shipped_arrays_of_other_weights_are_not_used(entry, monkeypatch):
    with pytest.raises(InputError, match="the model has 1 rows"):  # those of these weights are looked at
        shipped.scores_of(str(shipped.weights_hash_of(live.DEMO)), "magnitude", 1)
    monkeypatch.setattr(shipped, "demo_contrasts", fail)
    edit = edits.Edit("language model", "magnitude", order="lerf", rate=0.3)
    mask = edits.mask_of(entry, edit, lambda *_: None)
    assert len(mask) == round(0.3 * entry.loaded.rows.n_rows)
    linear = entry.loaded.model.get_submodule(entry.loaded.rows.layers[0].name)
    expected = linear.weight.abs().mean(1).numpy()
    assert entry.scores["magnitude"][: len(expected)] == pytest.approx(expected)


def test_removed_rows_are_counted_per_projection(entry):
    layers = entry.loaded.rows.layers
    mask = np.array([layers[0].start, layers[0].start + 1, layers[-1].start])
    counts = edits.removed_per_projection(entry, mask)
    assert counts["rows"].sum() == entry.loaded.rows.n_rows
    by_name = dict(counts.select("projection", "removed").rows())
    assert by_name["q_proj"] == 2
    assert by_name["down_proj"] == 1
    assert sum(by_name.values()) == 3
