"""S1 to S5 and E9: who may work on a session, who comes second, and how a handle ends."""

from __future__ import annotations

import gc
import os
import socket
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

import pytest

from hansard.errors import AlreadyExists, Closed, HansardError, SessionBusy, SessionNotFound
from hansard.store import Store
from hansard.testing.chat import assistant, texts, user, users
from hansard.testing.world import Elsewhere, World, hear, say

LONG = 60.0
"""Seconds that nothing here takes: a test that waits so long has failed."""


def _begun(store: Store, *ids: str) -> None:
    for id in ids:
        store.append(id, user("Hello"), create=True)


def _busy(store: Store, id: str) -> bool:
    """Whether somebody has the session open."""
    try:
        store.open(id, activate=False).close()
    except SessionBusy:
        return True
    return False


def _hold(store: Store, id: str) -> None:
    """In another process: has a session open until it is told to close it."""
    with store.open(id):
        say()
        hear()


# -- taking a lease


@pytest.mark.rule("S1")
def test_a_session_that_was_created_is_leased_before_anything_is_written(world: World) -> None:
    store, other = world.store(), world.other()
    with store.create("a"):
        with pytest.raises((SessionBusy, AlreadyExists)):
            other.create("a")
        with pytest.raises(SessionBusy):
            other.open("a", create=True)


@pytest.mark.rule("S1")
def test_a_session_that_was_opened_is_leased(world: World) -> None:
    store, other = world.store(), world.other()
    _begun(store, "a")
    with store.open("a"):
        with pytest.raises(SessionBusy):
            other.open("a")
        with pytest.raises(SessionBusy):
            other.resume("a")
    with other.open("a"):
        pass


@pytest.mark.rule("S1")
def test_a_session_that_was_resumed_is_leased(world: World) -> None:
    store, other = world.store(), world.other()
    _begun(store, "a")
    with store.resume("a"):
        assert _busy(other, "a")


@pytest.mark.rule("S1")
def test_the_same_process_cannot_open_a_session_twice(world: World) -> None:
    store = world.store()
    _begun(store, "a")
    with store.open("a"):
        with pytest.raises(SessionBusy):
            store.open("a")
        with pytest.raises(SessionBusy):
            store.resume("a")


@pytest.mark.rule("S1")
def test_a_session_that_is_not_there_is_not_leased(world: World) -> None:
    store = world.store()
    for take in (store.open, store.resume):
        with pytest.raises(SessionNotFound):
            take("nothing")
    assert store.locks() == []


@pytest.mark.rule("S1", "W12")
def test_a_shared_handle_and_a_reader_need_no_lease_and_take_none(world: World) -> None:
    store, other = world.store(), world.other()
    _begun(store, "a")
    with store.open("a"):
        other.read("a").history()
        with other.open("a", exclusive=False) as shared:
            shared.append(user("beside"))
    with other.open("a", exclusive=False):
        assert not _busy(store, "a")


@pytest.mark.rule("S1")
def test_whoever_comes_second_is_told_who_has_it_and_since_when(world: World) -> None:
    store = world.store()
    _begun(store, "a")
    before = datetime.now(UTC)
    with world.beside(_hold, "a") as process:
        process.hear()
        with pytest.raises(SessionBusy) as caught:
            store.open("a")
        busy = caught.value
        assert busy.id == "a"
        assert (busy.holder.session, busy.holder.pid) == ("a", process.pid)
        assert busy.holder.host == socket.gethostname()
        assert busy.holder.user
        assert busy.holder.command
        assert before <= busy.holder.since <= datetime.now(UTC)
        for part in ("'a'", str(process.pid), busy.holder.host, busy.holder.user, busy.holder.command):
            assert part in str(busy)


@pytest.mark.rule("S1")
def test_the_second_in_the_same_process_is_told_so_too(world: World) -> None:
    store = world.store()
    _begun(store, "a")
    with store.open("a"):
        with pytest.raises(SessionBusy) as caught:
            store.open("a")
    assert caught.value.holder.pid == os.getpid()


# -- waiting for one


@pytest.mark.rule("S1")
def test_a_timeout_is_waited_for_and_no_longer(world: World) -> None:
    store, other = world.store(), world.other()
    _begun(store, "a")
    with store.open("a"):
        began = time.monotonic()
        with pytest.raises(SessionBusy):
            other.open("a", timeout=0.1)
        assert 0.1 <= time.monotonic() - began < LONG / 2


@pytest.mark.rule("S1")
@pytest.mark.parametrize("timeout", [LONG, None])
@pytest.mark.parametrize("way", ["open", "resume"])
def test_whoever_waits_gets_the_lease_when_it_is_given_back(
    world: World, timeout: float | None, way: str
) -> None:
    store, other = world.store(), world.other()
    _begun(store, "a")
    session = store.open("a")
    opened = threading.Event()

    def wait() -> None:
        with getattr(other, way)("a", timeout=timeout):
            opened.set()

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    assert not opened.wait(0.05)
    session.close()
    assert opened.wait(LONG)
    waiting.join(LONG)
    assert not _busy(store, "a")


def _wait(store: Store, id: str) -> None:
    say()
    with store.open(id, timeout=None):
        say()


@pytest.mark.rule("S1", "S3")
def test_whoever_waits_gets_the_lease_of_a_holder_that_is_killed(world: World) -> None:
    _begun(world.store(), "a")
    with world.beside(_hold, "a") as holder:
        holder.hear()
        with world.beside(_wait, "a") as waiting:
            waiting.hear()
            holder.kill()
            waiting.hear()
            waiting.result()


# -- contention


def contend(store: Store) -> None:
    """In another process: round by round tries to open what it is told, and keeps it until it may let go."""
    while (id := hear()) is not None:
        try:
            session = store.open(id, activate=False)
        except SessionBusy as busy:
            say(["busy", busy.holder.pid])
            hear()
        else:
            with session:
                say(["won", os.getpid()])
                hear()
        say()


def _sweep(store: Store) -> int:
    """In another process: lists and sweeps leases all the time, until it is killed."""
    say()
    while True:
        store.locks()


def one_winner(contenders: list[Elsewhere], id: str, round: object = "") -> None:
    """A round of contenders has one winner, and whoever lost says that it was that one."""
    for contender in contenders:
        contender.tell(id)
    told = [contender.hear() for contender in contenders]
    winners = [pid for outcome, pid in told if outcome == "won"]
    assert len(winners) == 1, f"round {round}: {told}"
    assert {pid for _, pid in told} <= {winners[0], None}, f"round {round}: {told}"
    for contender in contenders:
        contender.tell()
    for contender in contenders:
        contender.hear()


def rounds(request: pytest.FixtureRequest) -> int:
    """How many rounds a test takes."""
    return 1000 if request.config.getoption("--full", default=False) else 40


@pytest.mark.rule("S2", "S5")
def test_each_round_of_contenders_has_just_one_winner(world: World, request: pytest.FixtureRequest) -> None:
    _begun(world.store(), "a")
    contenders = [world.begin(contend) for _ in range(12)]
    for n in range(rounds(request)):
        one_winner(contenders, "a", n)


@pytest.mark.rule("S2", "S5")
def test_each_round_has_just_one_winner_while_others_sweep(
    world: World, request: pytest.FixtureRequest
) -> None:
    _begun(world.store(), "a")
    contenders = [world.begin(contend) for _ in range(4)]
    with world.beside(_sweep) as sweeper:
        sweeper.hear()
        for n in range(rounds(request)):
            one_winner(contenders, "a", n)


@pytest.mark.rule("S2", "S3")
def test_contenders_for_the_lease_of_a_dead_holder_have_just_one_winner(world: World) -> None:
    _begun(world.store(), "a")
    contenders = [world.begin(contend) for _ in range(6)]
    for _ in range(4):
        with world.beside(_hold, "a") as holder:
            holder.hear()
            holder.kill()
        one_winner(contenders, "a")


def _count_up(store: Store, id: str, times: int) -> None:
    """In another process: adds one to the last number, with nothing but the lease to keep others out."""
    for _ in range(times):
        with store.open(id, timeout=None, activate=False) as session:
            last = session.history(limit=1)[0]["content"]
            session.append(user(str(int(last) + 1)), durable=False)


@pytest.mark.rule("S2")
def test_holders_never_overlap(world: World) -> None:
    store = world.store()
    store.append("a", user("0"), create=True)
    processes = [world.begin(_count_up, "a", 10) for _ in range(4)]
    for process in processes:
        process.result()
    assert texts(store.read("a").history()) == [str(n) for n in range(41)]


@pytest.mark.rule("S2")
def test_of_many_threads_just_one_opens_a_session(world: World) -> None:
    store = world.store()
    _begun(store, "a")
    for _ in range(10):
        start, asked = threading.Barrier(8), threading.Barrier(8)
        won: list[bool] = []

        def contend(
            start: threading.Barrier = start, asked: threading.Barrier = asked, won: list[bool] = won
        ) -> None:
            start.wait(LONG)
            try:
                with store.open("a", activate=False):
                    won.append(True)
                    asked.wait(LONG)
            except SessionBusy:
                asked.wait(LONG)

        threads = [threading.Thread(target=contend, daemon=True) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG)
        assert won == [True]


# -- holders that died


@pytest.mark.rule("S3")
def test_a_holder_that_was_killed_frees_the_lease_at_once(world: World) -> None:
    store = world.store()
    _begun(store, "a")
    with world.beside(_hold, "a") as holder:
        holder.hear()
        assert _busy(store, "a")
        holder.kill()
        with store.open("a") as session:
            session.append(user("after"))
    assert texts(store.read("a").history()) == ["Hello", "after"]


def _leave(store: Store, id: str) -> None:
    store.open(id)
    say()
    os._exit(0)


@pytest.mark.rule("S3")
def test_a_holder_that_left_without_a_word_frees_the_lease(world: World) -> None:
    store = world.store()
    _begun(store, "a")
    with world.beside(_leave, "a") as holder:
        holder.hear()
        with store.open("a", timeout=LONG):
            pass


@pytest.mark.rule("S4")
def test_force_does_not_end_a_live_holder_but_says_which_process_it_is(world: World) -> None:
    if "expiry" in world.capabilities:
        pytest.skip("leases of this engine expire: force takes them over")
    store = world.store()
    _begun(store, "a")
    with world.beside(_hold, "a") as holder:
        holder.hear()
        with pytest.raises(SessionBusy, match=f"end that process .{holder.pid}.") as caught:
            store.open("a", force=True)
        assert caught.value.holder.pid == holder.pid
        holder.kill()
        store.open("a", force=True).close()


# -- giving back


@pytest.mark.rule("S5", "E9")
def test_closing_twice_frees_nothing_that_somebody_else_has(world: World) -> None:
    store, other = world.store(), world.other()
    _begun(store, "a")
    first = store.open("a")
    first.close()
    with other.open("a"):
        first.close()
        assert _busy(store, "a")
        assert _busy(other, "a")


@pytest.mark.rule("S5")
def test_a_lease_that_was_given_back_twice_frees_nothing(world: World) -> None:
    _begun(world.store(), "a")
    engine = world.engine
    first = engine.lease("a")
    engine.release("a", first)
    second = engine.lease("a")
    engine.release("a", first)
    with pytest.raises(SessionBusy):
        engine.lease("a")
    engine.release("a", second)
    engine.release("a", engine.lease("a"))


@pytest.mark.rule("S5")
def test_a_loser_frees_nothing_when_it_goes(world: World) -> None:
    store, other = world.store(), world.other()
    _begun(store, "a")
    with store.open("a") as session:
        for _ in range(3):
            assert _busy(other, "a")
        other.close()
        assert _busy(world.other(), "a")
        session.append(user("still"))


@pytest.mark.rule("S5")
def test_a_loser_that_is_killed_frees_nothing(world: World) -> None:
    store = world.store()
    _begun(store, "a")
    with store.open("a"):
        with world.beside(contend) as loser:
            loser.tell("a")
            assert loser.hear() == ["busy", os.getpid()]
            loser.kill()
        assert world.elsewhere(_busy, "a") is True


@pytest.mark.rule("S5")
def test_switching_sessions_locks_the_new_one_and_frees_the_old(world: World) -> None:
    store, other = world.store(), world.other()
    _begun(store, "old", "new")
    session = store.open("old")
    successor = store.open("new")
    session.close()
    assert (_busy(other, "old"), _busy(other, "new")) == (False, True)
    successor.close()
    assert not _busy(other, "new")


@pytest.mark.rule("S5")
def test_an_open_that_fails_leaves_no_lease(world: World) -> None:
    store, other = world.store(), world.other()
    _begun(store, "a")
    with pytest.raises(AlreadyExists):
        store.create("a")
    with pytest.raises(TypeError):
        store.open("a", colour="red")
    with pytest.raises(HansardError):
        store.open("b", create=True, title=b"bytes")
    assert other.locks() == []
    assert not _busy(other, "a")


@pytest.mark.rule("S5")
def test_locks_lists_who_has_what_open(world: World) -> None:
    store, other = world.store(), world.other()
    assert store.locks() == []
    ids = ["a", "B/c", "ü" * 300]
    sessions = [store.create(id) for id in ids]
    for listed in (store.locks(), other.locks()):
        assert sorted(holder.session for holder in listed) == sorted(ids)
        assert {holder.pid for holder in listed} == {os.getpid()}
    for session in sessions:
        session.close()
    assert store.locks() == other.locks() == []


@pytest.mark.rule("S5")
def test_locks_lists_those_of_other_processes_until_they_die(world: World) -> None:
    store = world.store()
    _begun(store, "a")
    with world.beside(_hold, "a") as holder:
        holder.hear()
        assert [(held.session, held.pid) for held in store.locks()] == [("a", holder.pid)]
        holder.kill()
        assert store.locks() == []


@pytest.mark.rule("S5")
def test_sweeping_never_frees_a_live_lease(world: World) -> None:
    store, other = world.store(), world.other()
    _begun(store, "a")
    with store.open("a") as session:
        for _ in range(5):
            other.locks()
            store.locks()
            other.doctor()
            other.list()
        assert _busy(other, "a")
        assert world.capabilities.isdisjoint({"shared"}) or world.elsewhere(_busy, "a")
        session.append(user("still mine"))


# -- the end of a handle


@pytest.mark.rule("E9")
def test_close_frees_the_lease_and_twice_is_once(world: World) -> None:
    store, other = world.store(), world.other()
    session = store.create("a")
    session.append(user("Hello"))
    session.close()
    session.close()
    assert not _busy(other, "a")


@pytest.mark.rule("E9")
def test_a_handle_is_closed_by_an_exception_too(world: World) -> None:
    store, other = world.store(), world.other()
    with pytest.raises(KeyboardInterrupt):
        with store.create("a") as session:
            session.append(user("Hello"))
            raise KeyboardInterrupt
    assert not _busy(other, "a")
    assert texts(other.read("a").history()) == ["Hello"]


@pytest.mark.rule("E9")
def test_a_closed_handle_reads_and_writes_no_more(world: World) -> None:
    store = world.store()
    with store.create("a") as session:
        session.append(user("Hello"))
    calls: list[Callable[[], object]] = [
        lambda: session.append(user("x")),
        lambda: session.extend(users("x", "y")),
        lambda: session.history(),
        lambda: list(session.records()),
        lambda: session.checkpoint([]),
        lambda: session.rename("x"),
        lambda: session.flush(),
        lambda: session.add_usage({"input_tokens": 1}),
    ]
    for call in calls:
        with pytest.raises(Closed):
            call()
    assert store.head("a").messages == 1


@pytest.mark.rule("E9")
def test_closing_the_store_closes_its_sessions(world: World) -> None:
    store, other = world.store(), world.other()
    sessions = [store.create(id) for id in ("a", "b")]
    for session in sessions:
        session.append(user("Hello"), durable=False)
    store.close()
    store.close()
    for session in sessions:
        with pytest.raises(Closed):
            session.append(user("x"))
    with pytest.raises(Closed):
        store.list()
    assert other.locks() == []
    assert {head.id: head.messages for head in other.list()} == {"a": 1, "b": 1}


@pytest.mark.rule("E9", "W3")
def test_what_was_written_without_a_sync_is_there_after_close(world: World) -> None:
    with world.store().create("a") as session:
        session.append(user("1"), durable=False)
        session.extend([user("2"), assistant("3")], durable=False)
    store = world.reopened()
    assert texts(store.read("a").history()) == ["1", "2", "3"]
    assert [(head.messages, head.title, head.preview) for head in store.list()] == [(3, "1", "2")]


def _told_of(id: str, warned: list[warnings.WarningMessage]) -> bool:
    return any(one.category is ResourceWarning and id in str(one.message) for one in warned)


@pytest.mark.rule("E9")
def test_a_handle_that_nobody_closed_warns_and_frees_its_lease(world: World) -> None:
    store, other = world.store(), world.other()
    sessions = [store.create("forgotten")]
    sessions[0].append(user("Hello"))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ResourceWarning)
        sessions.clear()
        deadline = time.monotonic() + 10
        while not _told_of("forgotten", warned) and time.monotonic() < deadline:
            gc.collect()  # the thread that has worked for it may have it for a moment more
            time.sleep(0.001)
    assert _told_of("forgotten", warned)
    assert not _busy(other, "forgotten")
    assert texts(other.read("forgotten").history()) == ["Hello"]


@pytest.mark.rule("E9")
def test_a_handle_that_was_closed_does_not_warn(world: World) -> None:
    store = world.store()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session = store.create("a")
        session.append(user("Hello"))
        session.close()
        del session
        gc.collect()


# -- fork


def _fork(store: Store, id: str) -> None:
    """In another process: forks with everything open, and tells what the child met."""
    session, shared = store.open(id), store.open("shared", exclusive=False)
    view = store.read(id)
    session.append(user("before"))
    mine, its = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            calls: dict[str, Callable[[], object]] = {
                "append": lambda: session.append(user("child")),
                "history": lambda: session.history(),
                "shared": lambda: shared.append(user("child")),
                "view": lambda: view.history(),
                "list": lambda: store.list(),
                "create": lambda: store.create("child"),
                "store append": lambda: store.append(id, user("child")),
                "delete": lambda: store.delete(id),
            }
            for name, call in calls.items():
                try:
                    call()
                    os.write(its, f"{name}: went through\n".encode())
                except Closed:
                    os.write(its, f"{name}: Closed\n".encode())
                except Exception as error:
                    os.write(its, f"{name}: {type(error).__name__}\n".encode())
            session.close()
            shared.close()
            store.close()
            del session, shared, view, store
            gc.collect()
            os.write(its, b"gone: Closed\n")
        finally:
            os._exit(0)
    os.close(its)
    with open(mine) as told:
        say(told.read().splitlines())  # ends when the child does
    os.waitpid(child, 0)
    hear()
    session.append(user("after"))
    session.close()
    shared.close()


@pytest.mark.rule("E9")
def test_a_forked_child_finds_its_handles_closed_and_the_parent_keeps_its_lease(world: World) -> None:
    store = world.store()
    _begun(store, "a", "shared")
    with world.beside(_fork, "a") as parent:
        told = parent.hear()
        assert len(told) == 9
        assert [line for line in told if not line.endswith(": Closed")] == []
        assert _busy(store, "a")
        parent.tell()
        parent.result()
    assert texts(store.read("a").history()) == ["Hello", "before", "after"]
    assert texts(store.read("shared").history()) == ["Hello"]
    assert not _busy(store, "a")
    assert not store.doctor()


def _outlive(store: Store, id: str) -> None:
    """In another process: leaves a child behind that has inherited everything and holds nothing."""
    session = store.open(id)
    session.append(user("before"))
    ready, its = os.pipe()
    if os.fork() == 0:
        os.write(its, b".")
        with suppress(EOFError):
            hear()  # until who began this is gone
        os._exit(0)
    os.read(ready, 1)
    say()
    os._exit(0)


@pytest.mark.rule("E9", "S3")
def test_a_child_does_not_hold_the_lease_of_a_parent_that_is_gone(world: World) -> None:
    store = world.store()
    _begun(store, "a")
    with world.beside(_outlive, "a") as parent:
        parent.hear()
        with store.open("a", timeout=LONG) as session:
            session.append(user("after"))
