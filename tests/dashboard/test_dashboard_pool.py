"""The pool of models when one takes long, and downloads that sessions share."""

import random
import threading
import time
from types import SimpleNamespace

import pytest

from dashboard.chat import fetching, live
from dashboard.chat.fetching import Download, Downloads
from engine.records import locks
from engine.records.errors import InputError


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(live, "POLL_S", 0.01)
    monkeypatch.setattr(locks, "POLL_S", 0.01)
    monkeypatch.setattr(live, "_clean_up", lambda: None)  # would load torch, which these tests do without


class Slow:
    """Loads models; those in `held` only when they are let go."""

    def __init__(self, *names):
        self.held = {name: threading.Event() for name in names}
        self.loaded = []
        self.begun = threading.Semaphore(0)

    def __call__(self, name):
        self.loaded.append(name)
        self.begun.release()
        if name in self.held:
            assert self.held[name].wait(20)
        return SimpleNamespace(id=name, lock=threading.RLock())


class Session(threading.Thread):
    """Uses a model once, as long as it is not let go."""

    def __init__(self, pool, name, *, stay=False, on_wait=locks.patient):
        super().__init__(daemon=True)
        self.pool, self.model, self.on_wait = pool, name, on_wait
        self.inside, self.let_go = threading.Event(), threading.Event()
        self.entry = None
        if not stay:
            self.let_go.set()
        self.start()

    def run(self):
        with self.pool.use(self.model, self.on_wait) as self.entry:
            self.inside.set()
            assert self.let_go.wait(20)

    def end(self):
        self.let_go.set()
        self.join(20)
        assert not self.is_alive()
        return self.entry


@pytest.mark.parametrize("loaded_before", [True, False])
def test_the_shipped_model_answers_while_another_is_loaded(loaded_before):
    load = Slow("b")
    pool = live.ModelPool(load)
    if loaded_before:
        with pool.use(live.DEMO):
            pass
    other = Session(pool, "b")
    while "b" not in load.loaded:
        assert load.begun.acquire(timeout=20)
    assert Session(pool, live.DEMO).end().loaded.id == live.DEMO
    assert not other.inside.is_set()
    load.held["b"].set()
    assert other.end().loaded.id == "b"
    assert set(pool._entries) == {live.DEMO, "b"}  # it takes no place


@pytest.mark.parametrize("name", ["b", live.DEMO])
def test_who_asks_for_a_model_that_is_being_loaded_waits_for_that_load(name):
    load, waits = Slow(name), []
    pool = live.ModelPool(load)
    first = Session(pool, name)
    assert load.begun.acquire(timeout=20)
    second = Session(pool, name, on_wait=waits.append)
    deadline = time.monotonic() + 20
    while not waits and time.monotonic() < deadline:
        time.sleep(0.01)
    load.held[name].set()
    assert first.end() is second.end()
    assert load.loaded == [name]
    assert waits


def test_a_load_that_fails_leaves_the_pool_usable():
    def load(name):
        if name == "broken":
            raise InputError("broken cannot be loaded")
        return SimpleNamespace(id=name)

    pool = live.ModelPool(load)
    for _ in range(2):
        with pytest.raises(InputError, match="broken cannot"), pool.use("broken"):
            pass
    with pool.use("a") as entry:
        assert (entry.loaded.id, entry.users) == ("a", 1)
    assert entry.users == 0


def test_a_model_whose_place_was_wanted_in_vain_stays():
    class Stopped(BaseException):
        pass

    def give_up(_):
        raise Stopped

    load = Slow()
    pool = live.ModelPool(load)
    with pool.use("a") as entry:
        with pytest.raises(Stopped), pool.use("b", give_up):
            pass
        assert not entry.leaving
        assert Session(pool, "a").end() is entry
    assert load.loaded == ["a"]


def test_who_comes_while_the_place_is_wanted_has_to_wait_for_its_turn():
    """Otherwise sessions that take the old model in turns would keep the new one out for ever."""
    load = Slow()
    pool = live.ModelPool(load)
    first = Session(pool, "a", stay=True)
    assert first.inside.wait(20)
    other = Session(pool, "b", stay=True)
    while not pool._entries["a"].leaving:
        time.sleep(0.01)
    late = Session(pool, "a")
    assert not late.inside.wait(0.2)
    first.end()
    assert other.inside.wait(20)
    assert not late.inside.is_set()
    other.end()
    late.end()
    assert load.loaded == ["a", "b", "a"]


def test_there_are_never_more_models_than_places_whatever_the_order(monkeypatch):
    monkeypatch.setattr(live, "POLL_S", 0.0005)
    in_use, problems, lock = [], [], threading.Lock()

    def load(name):
        with lock:
            others = {one for one in in_use if one not in (live.DEMO, name)}
        if name != live.DEMO and others:
            problems.append((name, others))
        time.sleep(0.001)
        return SimpleNamespace(id=name)

    pool = live.ModelPool(load)

    def session(seed):
        pick = random.Random(seed)
        for _ in range(40):
            name = pick.choice([live.DEMO, "a", "b", "c"])
            with pool.use(name) as entry:
                with lock:
                    in_use.append(name)
                if entry.loaded.id != name or pool._entries[name] is not entry:
                    problems.append(name)
                time.sleep(pick.random() * 0.002)
                with lock:
                    in_use.remove(name)

    threads = [threading.Thread(target=session, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert problems == []
    assert not any(thread.is_alive() for thread in threads)
    assert all(entry.users == 0 for entry in pool._entries.values())


class Fetch:
    """Fetches in the place of a hub: until it is stopped, or let go."""

    def __init__(self, *, deaf=False):
        self.asked, self.let_go, self.deaf = [], threading.Event(), deaf

    def __call__(self, model, transfer):
        self.asked.append(model)
        transfer.expect(100, 20)
        while not self.let_go.wait(0.01):
            if transfer.stopping.is_set() and not self.deaf:
                raise InputError(f"{model} was stopped")


def test_sessions_share_a_download_and_other_models_have_their_own():
    fetch = Fetch()
    shared = Downloads(fetch)
    one, same, other = shared.start("org/a"), shared.start("org/a"), shared.start("org/b")
    assert one is same
    assert shared.under_way() == [one, other]
    one.stop()
    assert one.wait(20)
    with pytest.raises(InputError, match="^org/a was stopped$"):  # its own word, it was not left behind
        same.check()
    assert shared.under_way() == [other]
    fetch.let_go.set()
    assert other.wait(20)
    other.check()
    assert shared.start("org/a") is not one
    assert sorted(fetch.asked) == ["org/a", "org/a", "org/b"]


def test_a_download_that_does_not_end_when_stopped_is_left_behind(monkeypatch):
    monkeypatch.setattr(fetching, "GRACE_S", 0.1)
    fetch = Fetch(deaf=True)
    shared = Downloads(fetch)
    one = shared.start("org/a")
    one.stop()
    assert one.stopping
    assert shared.start("org/a") is not one  # not the one that is about to end
    while one.active:
        time.sleep(0.01)
    with pytest.raises(InputError, match="the download of org/a was stopped; what has come of its weights is kept"):
        one.check()
    fetch.let_go.set()


def test_a_download_that_breaks_in_an_unknown_way_ends_and_says_so(capsys):
    def broken(_model, _transfer):
        raise KeyError("unforeseen")

    one = Download("org/a", broken)
    assert one.wait(20)
    with pytest.raises(InputError, match="ended with KeyError; the terminal says more"):
        one.check()
    assert "unforeseen" in capsys.readouterr().err


def test_what_comes_from_a_hub(tmp_path):
    assert [fetching.comes_from_a_hub(name) for name in (live.DEMO, str(tmp_path), "org/m")] == [False, False, True]
