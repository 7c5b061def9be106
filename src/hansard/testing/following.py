"""E7: records as they are committed, by anyone, each once and soon."""

from __future__ import annotations

import gc
import os
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from hansard.errors import Closed, SessionNotFound
from hansard.store import Store
from hansard.testing.chat import user, users
from hansard.testing.world import World, hear, say

SOON = 0.1
"""Seconds within which a record is to be seen."""

LONG = 60.0
"""Seconds that nothing here takes."""

WHILE = 0.3
"""Seconds after which nothing more comes."""


def _begun(store: Store, *ids: str) -> None:
    for id in ids:
        store.append(id, user("begin"), create=True)


def _texts(told: Iterator[Any]) -> list[Any]:
    """What was said, as it is told until nothing more comes."""
    return [record.data["content"] for _, record, _ in told if record.kind == "message"]


def _take(follower: Iterator[Any], n: int) -> list[Any]:
    return [next(follower) for _ in range(n)]


# -- what is told


@pytest.mark.rule("E7")
def test_a_follower_tells_what_is_committed_from_the_call_on(world: World) -> None:
    store, other = world.store(), world.other()
    _begun(store, "a", "b")
    follower = store.follow("a", timeout=WHILE)
    with store.open("a") as session:
        first = session.append(user("1"))
        other.append("a", user("2"))
        store.append("b", user("of another session"))
        batch = session.extend(users("3", "4"))
        renamed = session.rename("A title")
    told = list(follower)
    assert {id for id, _, _ in told} == {"a"}
    assert [record.seq for _, record, _ in told] == [2, 3, 4, 5, 6]
    assert [told[0][1], *(told[n][1] for n in (2, 3)), told[4][1]] == [first, *batch, renamed]
    assert _texts(iter(told)) == ["1", "2", "3", "4"]


@pytest.mark.rule("E7")
def test_what_was_written_before_the_call_is_not_told(world: World) -> None:
    store = world.store()
    _begun(store, "a")
    follower, everywhere = store.follow("a", timeout=0), store.follow(timeout=0)
    assert list(follower) == list(everywhere) == []


@pytest.mark.rule("E7")
@pytest.mark.parametrize("after", [-1, 0, 2, 3, 99])
def test_a_follower_may_begin_after_any_record(world: World, after: int) -> None:
    store = world.store()
    _begun(store, "a")
    store.extend("a", users("1", "2"))
    with store.follow("a", after=after, timeout=0) as follower:
        assert [record.seq for _, record, _ in follower] == list(range(after + 1, 4))


@pytest.mark.rule("E7")
def test_a_follower_goes_on_after_a_cursor_or_its_text(world: World) -> None:
    store = world.store()
    _begun(store, "a")
    store.extend("a", users(*"123456"))
    told = list(store.follow("a", after=-1, timeout=0))
    for n, (_, record, cursor) in enumerate(told):
        for after in (cursor, str(cursor)):
            rest = list(world.other().follow("a", after=after, timeout=0))
            assert rest == told[n + 1 :], record.seq


@pytest.mark.rule("E7")
def test_a_follower_knows_where_it_stands_before_and_after_a_record(world: World) -> None:
    store = world.store()
    _begun(store, "a")
    for which in ("a", None):
        follower = store.follow(which, timeout=0)
        before = str(follower.cursor)
        said = store.append("a", user(str(which))).seq
        _, _, cursor = next(follower)
        assert follower.cursor == cursor
        assert [r.seq for _, r, _ in store.follow(which, after=before, timeout=0)] == [said]
        assert list(store.follow(which, after=cursor, timeout=0)) == []


@pytest.mark.rule("E7", "W2")
def test_a_write_of_several_records_is_told_whole(world: World) -> None:
    store, other = world.store(), world.other()
    _begun(store, "a")
    follower = store.follow("a", timeout=LONG)
    writer = threading.Thread(
        target=lambda: [other.extend("a", users(*(f"{i}.{j}" for j in range(5)))) for i in range(40)]
    )
    writer.start()
    told = _take(follower, 5)
    while len(told) < 200:
        behind = world.store().head("a").seq  # all of a write is there as soon as a part of it is told
        assert behind >= (told[-1][1].batch or (0, 0))[0] + 4
        told += _take(follower, 1)
    writer.join()
    assert [record.seq for _, record, _ in told] == list(range(2, 202))


@pytest.mark.rule("E7", "W3")
def test_what_is_not_durable_yet_is_told_too(world: World) -> None:
    with world.store().create("a", eager=True) as session:
        follower = world.other().follow("a", timeout=LONG)
        session.append(user("delta"), durable=False)
        assert _texts(iter(_take(follower, 1))) == ["delta"]


@pytest.mark.rule("E7", "W7")
def test_what_is_told_is_the_followers_own(world: World) -> None:
    store = world.store()
    _begun(store, "a")
    followers = [store.follow("a", timeout=0), store.follow("a", timeout=0)]
    store.append("a", {"role": "user", "content": ["x"]}, usage={"input_tokens": 1})
    for follower in followers:
        _, record, _ = next(follower)
        assert (record.data["content"], record.usage) == (["x"], {"input_tokens": 1})
        record.data["content"].clear()
        record.usage.clear()


@pytest.mark.rule("E7")
def test_a_long_session_is_told_from_its_beginning(world: World) -> None:
    store = world.store()
    with store.create("a") as session:
        for i in range(5):
            session.extend(users(*(f"{i}.{j}: {'x' * 400}" for j in range(700))), durable=False)
        told = [record.seq for _, record, _ in store.follow("a", after=-1, timeout=0)]
        assert told == list(range(3501))
        session.append(user("y" * 3_000_000))
        session.append(user("z"))
        assert _texts(store.follow("a", after=3500, timeout=0))[1] == "z"


# -- all sessions


@pytest.mark.rule("E7")
def test_following_the_store_takes_in_sessions_that_begin_later(world: World) -> None:
    store, other = world.store(), world.other()
    _begun(store, "old", "Other/ü", "x" * 300)
    follower = store.follow(timeout=WHILE)
    _begun(other, "new", "y" * 300)
    for id in ("old", "Other/ü", "x" * 300, "new"):
        other.append(id, user(id))
    told: dict[str, list[int]] = {}
    for id, record, _ in follower:
        told.setdefault(id, []).append(record.seq)
    assert told == {
        "old": [2],
        "Other/ü": [2],
        "x" * 300: [2],
        "new": [0, 1, 2],
        "y" * 300: [0, 1],
    }


@pytest.mark.rule("E7")
def test_following_the_store_from_the_beginning_tells_everything(world: World) -> None:
    store = world.store()
    _begun(store, *(f"s{i}" for i in range(30)))
    told = [(id, record.seq) for id, record, _ in store.follow(after=-1, timeout=0)]
    assert sorted(told) == sorted((f"s{i}", seq) for i in range(30) for seq in (0, 1))


@pytest.mark.rule("E7")
def test_a_cursor_of_the_store_loses_nothing_and_repeats_nothing(world: World) -> None:
    store, other = world.store(), world.other()
    _begun(store, *(f"s{i}" for i in range(6)))
    follower = store.follow(timeout=LONG)
    for i in range(4):
        _begun(other, f"new{i}")
        for j in range(6):
            other.append(f"s{j}", user(f"{i}.{j}"))
    told = _take(follower, 4 * 8)
    everything = {(id, record.seq) for id, record, _ in told}
    assert len(everything) == len(told)
    other.delete("s5")
    other.append("s5", user("another session of that id"), create=True)
    again = {("s5", 0), ("s5", 1)}
    for n, (_, _, cursor) in reversed([*enumerate(told)]):  # an old cursor, put into text late
        rest = [(id, record.seq) for id, record, _ in store.follow(after=str(cursor), timeout=0)]
        assert len(rest) == len(set(rest))
        later = {(id, record.seq) for id, record, _ in told[n + 1 :] if id != "s5"}
        assert set(rest) == later | again


@pytest.mark.rule("E7")
def test_a_session_that_was_deleted_and_begun_anew_is_told_from_its_beginning(world: World) -> None:
    store, other = world.store(), world.other()
    _begun(store, "a", "b")
    follower = store.follow(timeout=LONG)
    store.append("a", user("1"))
    assert _texts(iter(_take(follower, 1))) == ["1"]
    other.delete("a")
    _begun(other, "a")
    other.append("a", user("2"))
    other.append("b", user("3"))
    told = _take(follower, 4)
    assert sorted((id, record.seq) for id, record, _ in told) == [("a", 0), ("a", 1), ("a", 2), ("b", 2)]


# -- how soon, and at what cost


def _say_the_time(store: Store, id: str, times: int) -> None:
    """In another process."""
    hear()
    with store.open(id, exclusive=False) as session:
        for _ in range(times):
            session.append(user(str(time.time())), durable=False)
            time.sleep(0.02)


@pytest.mark.rule("E7")
@pytest.mark.parametrize("which", ["one", "all"])
def test_what_another_process_writes_is_told_soon(world: World, which: str) -> None:
    store = world.store()
    _begun(store, "a")
    with world.beside(_say_the_time, "a", 30) as writer:
        with store.follow("a" if which == "one" else None, timeout=LONG) as follower:
            writer.tell()
            took = []
            for _, record, _ in follower:
                took.append(time.time() - float(record.data["content"]))
                if len(took) == 30:
                    break
    assert statistics.median(took) < SOON


@pytest.mark.rule("E7")
def test_what_a_thread_writes_is_told_soon(world: World) -> None:
    store, other = world.store(), world.other()
    _begun(store, "a")
    follower = store.follow("a", timeout=LONG)

    def write() -> None:
        for _ in range(30):
            other.append("a", user(str(time.time())), durable=False)
            time.sleep(0.01)

    writer = threading.Thread(target=write)
    writer.start()
    took = [time.time() - float(next(follower)[1].data["content"]) for _ in range(30)]
    writer.join()
    assert statistics.median(took) < SOON


@pytest.mark.rule("E7")
def test_a_follower_waits_without_spinning(world: World) -> None:
    store = world.store()
    _begun(store, "a")
    for which in ("a", None):
        with store.follow(which, timeout=0.5) as follower:
            before = time.process_time()
            assert list(follower) == []
            assert time.process_time() - before < 0.2


@pytest.mark.rule("E7")
def test_each_of_many_followers_is_told_each_record_once(world: World) -> None:
    store, other = world.store(), world.other()
    _begun(store, "a", "b")
    followers = [place.follow(which, timeout=LONG) for place in (store, other) for which in ("a", "b", None)]
    found: list[list[Any]] = [[] for _ in followers]

    def follow(n: int) -> None:
        wanted = 120 if n % 3 == 2 else 60
        for id, record, _ in followers[n]:
            found[n].append((id, record.seq))
            if len(found[n]) == wanted:
                break

    def write(place: Store) -> None:
        for i in range(10):
            for id in ("a", "b"):
                place.append(id, user(str(i)), durable=False)
                place.extend(id, users("x", "y"))

    threads = [threading.Thread(target=follow, args=(n,)) for n in range(len(followers))]
    threads += [threading.Thread(target=write, args=(place,)) for place in (store, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    one = [[(id, seq) for seq in range(2, 62)] for id in ("a", "b")]
    for n, told in enumerate(found):
        if n % 3 < 2:
            assert told == one[n % 3]
        else:
            assert [x for x in told if x[0] == "a"] == one[0]
            assert [x for x in told if x[0] == "b"] == one[1]


# -- the end


@pytest.mark.rule("E7")
def test_a_follower_ends_when_no_record_has_come_for_so_long(world: World) -> None:
    store = world.store()
    _begun(store, "a")
    follower = store.follow("a", timeout=0.15)
    said = [threading.Timer(0.08 * n, store.append, ("a", user(str(n)))) for n in range(1, 6)]
    for timer in said:
        timer.start()
    assert _texts(follower) == list("12345")  # longer than its timeout, but never without a record
    began = time.monotonic()
    assert list(store.follow("a", timeout=0.1)) == []
    assert 0.1 <= time.monotonic() - began < LONG / 2
    store.append("a", user("later"))
    assert list(follower) == []  # it has ended


@pytest.mark.rule("E7")
@pytest.mark.parametrize("how", ["the store", "itself"])
def test_closing_ends_a_follower_that_waits(world: World, how: str) -> None:
    store = world.store()
    _begun(store, "a")
    followers = [store.follow("a"), store.follow()]
    told: list[list[Any]] = []
    threads = [threading.Thread(target=lambda f=f: told.append(list(f))) for f in followers]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    if how == "the store":
        store.close()
    else:
        for follower in followers:
            follower.close()
    for thread in threads:
        thread.join(LONG)
    assert told == [[], []]
    if how == "the store":
        with pytest.raises(Closed):
            store.follow("a")


@pytest.mark.rule("E7")
def test_what_was_not_taken_before_the_end_is_not_told_after_it(world: World) -> None:
    store, other = world.store(), world.other()
    _begun(store, "a")
    follower = store.follow("a", timeout=LONG)
    other.extend("a", users("1", "2", "3"))
    assert _texts(iter(_take(follower, 1))) == ["1"]
    store.close()
    assert list(follower) == []


@pytest.mark.rule("E7", "W10")
@pytest.mark.parametrize("anew", [False, True], ids=["gone", "begun anew"])
def test_a_follower_ends_when_its_session_is_deleted(world: World, anew: bool) -> None:
    store, other = world.store(), world.other()
    _begun(store, "a")
    follower = store.follow("a", timeout=LONG)
    other.append("a", user("1"))
    assert _texts(iter(_take(follower, 1))) == ["1"]
    other.delete("a")
    if anew:
        other.append("a", user("of another session"), create=True)
    began = time.monotonic()
    assert list(follower) == []
    assert time.monotonic() - began < LONG / 2


@pytest.mark.rule("E7")
def test_a_session_that_is_not_there_cannot_be_followed(world: World) -> None:
    store = world.store()
    with pytest.raises(SessionNotFound):
        store.follow("nothing")
    _begun(store, "a")
    old = store.head("a")
    store.delete("a")
    _begun(store, "a")
    with pytest.raises(SessionNotFound):
        store.follow(old)


@pytest.mark.rule("E7")
def test_a_place_that_is_none_is_refused(world: World) -> None:
    store = world.store()
    _begun(store, "a")
    mine = str(next(store.follow("a", after=-1, timeout=0))[2])
    its = str(next(store.follow(after=-1, timeout=0))[2])
    for which, after in (
        ("a", "nonsense"),
        ("a", -2),
        ("a", its),
        (None, 1),
        (None, mine),
        (None, its[:-5]),
        (None, ""),
    ):
        with pytest.raises(ValueError):
            store.follow(which, after=after)
    for which in ("a", None):
        with pytest.raises(TypeError):
            store.follow(which, after=1.5)  # type: ignore[arg-type]


@pytest.mark.rule("E7")
def test_followers_that_nobody_closed_leave_nothing_running(world: World) -> None:
    store = world.store()
    _begun(store, "a")
    before = set(threading.enumerate())
    for which in ("a", None):
        follower = store.follow(which)
        store.append("a", user("1"))
        next(follower)
        del follower
    gc.collect()
    deadline = time.monotonic() + LONG
    while {t for t in set(threading.enumerate()) - before if t.name == "hansard-watch"}:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _fork(store: Store) -> None:
    """In another process: forks with a follower, and tells what the child met."""
    store.append("a", user("begin"), create=True)
    followers = [store.follow("a"), store.follow()]
    store.append("a", user("1"))
    next(followers[0])
    mine, its = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            for follower in followers:
                try:
                    next(follower)
                except Closed:
                    os.write(its, b"Closed\n")
                follower.close()
            followers.clear()
            gc.collect()
            os.write(its, b"gone\n")
        finally:
            os._exit(0)
    os.close(its)
    with open(mine) as told:
        say(told.read().split())
    os.waitpid(child, 0)
    store.append("a", user("2"))
    say([next(followers[0])[1].seq, next(followers[1])[1].seq, next(followers[1])[1].seq])


@pytest.mark.rule("E7", "E9")
def test_the_follower_of_a_forked_child_is_closed_and_the_parents_goes_on(world: World) -> None:
    with world.beside(_fork) as parent:
        assert parent.hear() == ["Closed", "Closed", "gone"]
        assert parent.hear() == [3, 2, 3]
        with suppress(AssertionError):
            parent.result()


# -- vacuum


@pytest.mark.rule("E7", "H8")
@pytest.mark.parametrize("which", ["a", None], ids=["one", "all"])
def test_a_follower_goes_on_after_its_last_record_across_a_vacuum(world: World, which: str | None) -> None:
    store, other = world.store(), world.other()
    with other.create("a") as session:
        for i in range(6):
            session.checkpoint(users(f"{i}", f"{i}+"))
        behind = store.follow(which, after=-1, timeout=LONG)
        assert [record.seq for _, record, _ in _take(behind, 3)] == [0, 1, 2]
        follower = store.follow(which, timeout=WHILE)
        session.append(user("1"))
        assert [record.seq for _, record, _ in _take(follower, 1)] == [7]
        cursor = str(follower.cursor)
    other.vacuum("a", drop_history=True)
    other.append("a", user("2"))
    left = [record.seq for record in store.read("a").records()]
    assert left[0] == 0
    assert len(left) < 9
    assert left[-2:] == [7, 8]
    assert [record.seq for _, record, _ in follower] == [8]
    assert [record.seq for _, record, _ in store.follow(which, after=cursor, timeout=0)] == [8]
    # one that was behind is told what is left of the rest; or it had read it before
    rest = [record.seq for _, record, _ in _take(behind, 1)]
    while rest[-1] < 8:
        rest += [record.seq for _, record, _ in _take(behind, 1)]
    assert rest in ([seq for seq in left if seq > 2], list(range(3, 9)))
