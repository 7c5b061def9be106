"""What the file engine does when the disk is full, broken or cannot be written."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import pytest
from msgspec import Raw

from hansard.engines.disk import Disk
from hansard.engines.files import Files
from hansard.errors import (
    Closed,
    Conflict,
    HansardError,
    ReadOnlyStore,
    SessionNotFound,
    StoreFull,
    StoreUnavailable,
)
from hansard.records import Draft
from hansard.session import Session
from hansard.store import Store
from hansard.testing import World
from hansard.testing.chat import texts, user, users
from tests.engines.trouble import Trouble


class Open(Protocol):
    """Opens a store at the place of the test."""

    def __call__(self, disk: Disk | None = None, **options: Any) -> Store: ...


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def opened(place: Path) -> Iterator[Open]:
    stores: list[tuple[Store, Disk | None]] = []

    def open(disk: Disk | None = None, **options: Any) -> Store:
        store = Store(Files(str(place), disk=disk, **options))
        stores.append((store, disk))
        return store

    yield open
    for store, disk in reversed(stores):
        if isinstance(disk, Trouble):
            disk.heal()
        store.close()


@pytest.fixture
def world(place: Path) -> Iterator[World]:
    with World(Files, str(place)) as world:
        yield world


def _log(place: Path, id: str = "a") -> Path:
    return place / "sessions" / f"{id}.jsonl"


def _told(store: Store, id: str = "a") -> list[Any]:
    return texts(store.read(id).history())


# -- full disks


@pytest.mark.rule("C3", "W4")
@pytest.mark.parametrize("room", [0, 1, 10, 60, 100, 120])
def test_a_disk_that_runs_full_in_the_middle_of_a_write_leaves_what_was_there(
    opened: Open, place: Path, room: int
) -> None:
    disk = Trouble()
    with opened(disk).create("a") as session:
        session.append(user("before"))
        before = _log(place).read_bytes()
        disk.room = room
        with pytest.raises(StoreFull) as caught:
            session.append(user("x" * 60), id="once")
        assert not caught.value.outcome_unknown
        assert _log(place).read_bytes() == before
        assert texts(session.history()) == ["before"]
        disk.heal()
        assert session.append(user("x" * 60), id="once").seq == 2
        assert texts(session.history()) == ["before", "x" * 60]
    assert not opened().doctor()


@pytest.mark.rule("C3", "W2", "W4")
def test_a_disk_that_runs_full_within_a_batch_leaves_none_of_it(opened: Open, place: Path) -> None:
    disk = Trouble()
    store = opened(disk)
    store.append("a", user("before"), create=True)
    before = _log(place).read_bytes()
    store.append("b", user("before"), create=True)
    store.extend("b", users("1", "2", "3"))
    size = len(_log(place, "b").read_bytes()) - len(before)
    for room in range(0, size, 7):
        disk.room = room
        with pytest.raises(StoreFull):
            store.extend("a", users("1", "2", "3"))
        assert _log(place).read_bytes() == before
    disk.heal()
    store.extend("a", users("1", "2", "3"))
    assert _told(opened()) == ["before", "1", "2", "3"]


@pytest.mark.rule("C3", "W4")
def test_a_disk_too_full_for_a_new_session_leaves_no_session(opened: Open, place: Path) -> None:
    disk = Trouble()
    store = opened(disk)
    store.append("other", user("x"), create=True)
    for room in (0, 1, 50, 150):
        session = store.create("a")
        disk.room = room
        with pytest.raises(StoreFull):
            session.append(user("Hello"))
        session.close()
        disk.heal()
        assert not _log(place).exists()
        with pytest.raises(SessionNotFound):
            store.read("a")
        assert [head.id for head in opened().list(empty=True)] == ["other"]
    with store.create("a") as session:
        session.append(user("Hello"))
    assert _told(opened()) == ["Hello"]


@pytest.mark.rule("C3", "W4", "C1")
def test_a_write_that_failed_and_could_not_be_cut_back_is_of_unknown_outcome_and_never_shown(
    opened: Open, place: Path
) -> None:
    disk = Trouble()
    session = opened(disk).create("a")
    session.append(user("before"))
    before = _log(place).read_bytes()
    disk.room = 50
    disk.refuse("truncate", path="a.jsonl")
    with pytest.raises(StoreFull) as caught:
        session.append(user("lost"), id="once")
    assert caught.value.outcome_unknown
    assert len(_log(place).read_bytes()) == len(before) + 50
    with pytest.raises(Closed):
        session.append(user("more"))
    assert _told(opened()) == ["before"]
    disk.heal()
    with opened().open("a", timeout=1) as again:
        again.append(user("lost"), id="once")
    assert _told(opened()) == ["before", "lost"]
    assert _log(place).read_bytes().startswith(before)


@pytest.mark.rule("C3", "W2")
@pytest.mark.parametrize("most", [1, 7, 64])
def test_a_disk_that_takes_a_little_at_a_time_gets_it_all(opened: Open, most: int) -> None:
    disk = Trouble()
    disk.most = most
    with opened(disk).create("a") as session:
        session.append(user("1"))
        session.extend(users("2", "3"))
        session.rename("Title")
    store = opened()
    assert _told(store) == ["1", "2", "3"]
    assert not store.doctor()


# -- failing syncs


@pytest.mark.rule("W4")
def test_a_failed_sync_takes_back_all_that_was_not_synced_and_closes_the_handle(
    opened: Open, place: Path
) -> None:
    disk = Trouble()
    store = opened(disk)
    session = store.create("a")
    session.append(user("safe"))
    session.append(user("perhaps"), durable=False)
    disk.refuse("sync", path="a.jsonl", times=2)  # and then it claims that all is well
    with pytest.raises(StoreUnavailable) as caught:
        session.append(user("lost"), id="once")
    assert not caught.value.outcome_unknown
    for call in (lambda: session.append(user("x")), lambda: session.flush(), lambda: session.history()):
        with pytest.raises(Closed):
            call()
    assert _told(opened()) == ["safe"]
    with store.open("a") as again:  # the lease is free
        assert again.append(user("lost"), id="once").seq == 2
    assert _told(opened()) == ["safe", "lost"]


@pytest.mark.rule("W4")
def test_a_sync_that_keeps_failing_is_never_a_success(opened: Open, place: Path) -> None:
    disk = Trouble()
    store = opened(disk)
    session = store.create("a")
    session.append(user("safe"))
    disk.refuse("sync", path="a.jsonl")
    with pytest.raises(StoreUnavailable) as caught:
        session.append(user("lost"), id="once")
    assert caught.value.outcome_unknown
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            store.append("a", user("lost"), id="once")
    disk.heal()
    assert _told(opened()) == ["safe"]
    store.append("a", user("lost"), id="once")
    assert _told(opened()) == ["safe", "lost"]


@pytest.mark.rule("W3", "W4")
@pytest.mark.parametrize("how", ["flush", "name"])
def test_a_failed_sync_takes_back_nothing_that_somebody_else_has_synced(opened: Open, how: str) -> None:
    disk = Trouble()
    failing, other = opened(disk), opened()
    failing.append("a", user("safe"), create=True)
    failing.append("a", user("told to last"), durable=False)
    if how == "flush":
        with other.open("a", exclusive=False) as session:
            session.flush()
    else:
        other.names.set("agent/current", "a")
    failing.append("a", user("perhaps"), durable=False)
    disk.refuse("sync", path="a.jsonl", times=1)
    with pytest.raises(StoreUnavailable) as caught:
        failing.append("a", user("lost"))
    assert not caught.value.outcome_unknown
    assert disk.times("rewrite") == 1  # the kernel may take for written what it could not write
    assert _told(failing) == _told(other) == ["safe", "told to last", "perhaps"]
    assert not opened().doctor()


@pytest.mark.rule("W4", "W5")
def test_a_repeat_after_a_failed_sync_is_synced_and_stored_once(opened: Open) -> None:
    disk = Trouble()
    store = opened(disk)
    store.append("a", user("safe"), create=True)
    store.append("a", user("mine"), id="once", durable=False)
    disk.refuse("sync", path="a.jsonl", times=1)
    with pytest.raises(StoreUnavailable):
        store.append("a", user("mine"), id="once")
    synced = disk.times("sync", "a.jsonl")
    store.append("a", user("mine"), id="once")
    assert disk.times("sync", "a.jsonl") > synced
    assert _told(opened()) == ["safe", "mine"]


@pytest.mark.rule("W4", "E9")
def test_a_close_that_cannot_sync_says_so_and_frees_the_lease_all_the_same(opened: Open) -> None:
    disk = Trouble()
    store = opened(disk)
    sessions = [store.create(id) for id in ("a", "b")]
    for session in sessions:
        session.append(user("safe"))
        session.append(user("perhaps"), durable=False)
    disk.refuse("sync", path=".jsonl")
    with pytest.raises(StoreUnavailable):
        sessions[0].close()
    assert [holder.session for holder in opened().locks()] == ["b"]
    with suppress(StoreUnavailable):
        store.close()
    assert opened().locks() == []
    assert store.closed


@pytest.mark.rule("W4", "W9")
@pytest.mark.parametrize("too", ["", "truncate", "unlink", "truncate unlink"])
def test_a_session_whose_first_sync_fails_is_not_there_or_of_unknown_outcome(opened: Open, too: str) -> None:
    disk = Trouble()
    store = opened(disk)
    session = store.create("a")
    disk.refuse(f"sync {too}", path="a.jsonl")
    with pytest.raises(StoreUnavailable) as caught:
        session.append(user("Hello"))
    disk.heal()
    there = [head.id for head in opened().list(empty=True)] == ["a"]
    assert not there or caught.value.outcome_unknown


@pytest.mark.rule("W4", "W9")
def test_a_session_whose_folder_cannot_be_synced_is_not_there(opened: Open, place: Path) -> None:
    disk = Trouble()
    store = opened(disk)
    session = store.create("a")
    disk.refuse("sync_folder", path="sessions")
    with pytest.raises(StoreUnavailable):
        session.append(user("Hello"))
    session.close()
    disk.heal()
    assert not _log(place).exists()
    with store.create("a") as session:
        session.append(user("Hello"))
    assert _told(opened()) == ["Hello"]


@pytest.mark.rule("W4", "C3")
def test_whoever_knows_the_log_as_it_was_before_a_cut_sees_that_it_was_cut(opened: Open) -> None:
    disk = Trouble()
    failing, other = opened(disk), opened()
    failing.append("a", user("safe"), create=True)
    failing.append("a", user("1111"), durable=False)
    assert _told(other) == ["safe", "1111"]
    disk.refuse("sync", path="a.jsonl", times=2)
    with pytest.raises(StoreUnavailable):
        failing.append("a", user("lost"))
    failing.append("a", user("2222"))  # as long as what was cut
    assert _told(other) == ["safe", "2222"]
    other.append("a", user("last"))
    assert _told(failing) == _told(other) == _told(opened()) == ["safe", "2222", "last"]
    assert not opened().doctor()


@pytest.mark.rule("W4", "C3")
def test_whoever_knows_the_log_as_it_was_before_a_cut_writes_on_from_what_is_there(opened: Open) -> None:
    disk = Trouble()
    failing, other = opened(disk), opened()
    failing.append("a", user("safe"), create=True)
    failing.append("a", user("1111"), durable=False)
    with pytest.raises(Conflict):  # it has found out where the log ends
        other.append("a", user("x"), expect=0)
    disk.refuse("sync", path="a.jsonl", times=2)
    with pytest.raises(StoreUnavailable):
        failing.append("a", user("lost"))
    failing.append("a", user("2222"))  # as long as what was cut
    other.append("a", user("last"))
    assert _told(failing) == _told(other) == _told(opened()) == ["safe", "2222", "last"]
    assert not opened().doctor()


@pytest.mark.rule("W2", "W3")
def test_a_write_of_several_records_costs_one_sync_and_one_that_is_not_durable_none(opened: Open) -> None:
    disk = Trouble()
    with opened(disk).create("a") as session:
        session.append(user("1"))
        costs = {}
        for name, call in (
            ("append", lambda: session.append(user("2"))),
            ("extend", lambda: session.extend(users(*"345"))),
            ("not durable", lambda: session.extend(users(*"67"), durable=False)),
            ("flush", lambda: session.flush()),
            ("flush again", lambda: session.flush()),
            ("checkpoint", lambda: session.checkpoint(users("all"))),
        ):
            before = disk.times("sync")
            call()
            costs[name] = disk.times("sync") - before
        session.append(user("8"), durable=False)
    assert costs == {
        "append": 1, "extend": 1, "not durable": 0, "flush": 1, "flush again": 0, "checkpoint": 1,
    }  # fmt: skip


@pytest.mark.rule("E9", "W3")
def test_close_syncs_what_was_not(opened: Open) -> None:
    disk = Trouble()
    with opened(disk).create("a") as session:
        session.append(user("1"))
        session.append(user("2"), durable=False)
        before = disk.times("sync", "a.jsonl")
    assert disk.times("sync", "a.jsonl") == before + 1


@pytest.mark.rule("E9", "W3")
def test_close_syncs_what_others_have_said_too(opened: Open) -> None:
    disk = Trouble()
    with opened(disk).create("a") as session:
        session.append(user("1"))
        opened().append("a", user("2"), durable=False)
        before = disk.times("sync", "a.jsonl")
    assert disk.times("sync", "a.jsonl") == before + 1


@pytest.mark.rule("W4", "S2")
def test_a_failed_sync_takes_back_nothing_that_others_have_said(opened: Open) -> None:
    disk = Trouble()
    failing, other = opened(disk), opened()
    failing.append("a", user("mine"), create=True)
    other.append("a", user("theirs"))
    failing.append("a", user("perhaps"), durable=False)
    disk.refuse("sync", path="a.jsonl", times=2)
    with pytest.raises(StoreUnavailable):
        failing.append("a", user("lost"))
    assert _told(failing) == _told(other) == ["mine", "theirs"]
    assert not opened().doctor()


# -- what cannot be read


READS: dict[str, Callable[[Store], Any]] = {
    "history": lambda store: list(store.read("a").history()),
    "last": lambda store: list(store.read("a").history(limit=1)),
    "records": lambda store: [record.seq for record in store.read("a").records()],
    "backwards": lambda store: [record.seq for record in store.read("a").records(reverse=True)],
    "get": lambda store: store.read("a").get("once").seq,  # type: ignore[union-attr]
    "head": lambda store: store.head("a"),
    "list": lambda store: [head.id for head in store.list(limit=None)],
    "resolve": lambda store: store.resolve("a"),
    "active": lambda store: store.active(),
}


@pytest.mark.rule("C3")
@pytest.mark.parametrize(
    ("what", "code"),
    [*((what, errno.EIO) for what in READS), ("history", errno.EACCES), ("list", errno.EMFILE)],
)
def test_what_cannot_be_read_raises_and_is_never_a_short_answer(
    opened: Open, place: Path, what: str, code: int
) -> None:
    """Every single call that the disk can refuse while something is read is refused once."""
    with opened() as store:
        with store.create("a") as session:
            session.append(user("0"), id="once")
            session.extend(users(*["x" * 1000] * 300))
        store.append("b", user("y"), create=True)
    with opened() as store:
        expected = READS[what](store)
    logs = {path: path.read_bytes() for path in (place / "sessions").iterdir()}
    raised = 0
    for skip in range(200):
        (place / "catalog.db").unlink(missing_ok=True)  # so that all has to be read
        disk = Trouble()
        store = opened(disk)
        asked = len(disk.asked)
        disk.refuse("open read stat look names", code, skip=skip, times=1)
        try:
            assert READS[what](store) == expected, f"call {skip}: {disk.asked[asked + skip]}"
        except (StoreUnavailable, ReadOnlyStore):
            raised += 1
        refused = len(disk.asked) - asked > skip
        disk.heal()
        assert READS[what](store) == expected, f"after call {skip}: {disk.asked[asked:][skip : skip + 1]}"
        store.close()
        assert {path: path.read_bytes() for path in (place / "sessions").iterdir()} == logs
        if not refused:
            break
    else:
        raise AssertionError("it never ended")
    assert raised


@pytest.mark.rule("C3", "L1")
def test_a_session_that_could_not_be_read_once_is_listed_when_it_can_be(opened: Open, place: Path) -> None:
    with opened() as store:
        for id in ("a", "b"):
            store.append(id, user("x"), create=True)
    (place / "catalog.db").unlink()
    disk = Trouble()
    store = opened(disk)
    disk.refuse("open open-to-write", path="a.jsonl")
    with suppress(StoreUnavailable):
        store.list()
    disk.heal()
    assert sorted(head.id for head in store.list()) == ["a", "b"]
    store.close()
    assert sorted(head.id for head in opened().list()) == ["a", "b"]


# -- what cannot be written


@pytest.mark.rule("C3", "C5")
@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES], ids=["EROFS", "EACCES"])
def test_a_store_that_cannot_be_written_can_be_read_and_says_why_it_cannot_be_written(
    opened: Open, place: Path, code: int
) -> None:
    with opened() as store:
        with store.create("a") as session:
            session.append(user("1"))
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    disk = Trouble()
    disk.refuse("open-to-write rename unlink make_folder put truncate", code)
    store = opened(disk)
    assert _told(store) == ["1"]
    assert [head.id for head in store.list()] == ["a"]
    assert store.active() == "a"
    for write in (
        lambda: store.append("a", user("2")),
        lambda: store.open("a"),
        lambda: store.create("b", eager=True),
        lambda: store.delete("a"),
        lambda: store.activate(None),
    ):
        with pytest.raises(ReadOnlyStore, match=r"readonly=True|permissions"):
            write()
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before


@pytest.mark.rule("C3")
def test_a_folder_that_cannot_be_made_is_said_to_be_so(opened: Open) -> None:
    for call in ("make_folder", "open-to-write", "rename", "sync"):
        disk = Trouble()
        disk.refuse(call, errno.EACCES)
        with pytest.raises(ReadOnlyStore):
            opened(disk)
        disk = Trouble()
        disk.refuse(call, errno.ENOSPC)
        with pytest.raises(StoreFull):
            opened(disk)
    assert opened().list() == []


# -- anything at all


def _continue(store: Store, session: Session, done: list[str]) -> None:
    session.append(user("1"), id="once")
    done.append("1")
    session.extend(users("2", "3"))
    done.extend(["2", "3"])
    session.append(user("4"))
    done.append("4")
    session.history()
    store.list()
    session.rename("Title")
    store.append(session.id, user("5"))
    done.append("5")


@pytest.mark.rule("W4", "C3")
@pytest.mark.filterwarnings("ignore:.*could not be made the active one")
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EACCES], ids=["EIO", "ENOSPC", "EACCES"])
def test_whatever_one_call_the_disk_refuses_what_was_acknowledged_is_there_and_nothing_else(
    opened: Open, place: Path, code: int
) -> None:
    for skip in range(400):
        id = f"s{skip}"
        disk = Trouble()
        disk.refuse("any", code, skip=skip, times=1)
        done: list[str] = []
        error: HansardError | None = None
        store: Store | None = None
        try:
            store = Store(Files(str(place), disk=disk))
            with store.create(id) as session:
                session.append(user("0"))
                done.append("0")
                _continue(store, session, done)
        except HansardError as met:
            error = met
        refused = len(disk.asked) > skip
        where = f"call {skip}, {disk.asked[skip] if refused else ''}: {error!r}"
        disk.heal()
        if store is not None:
            store.close()
        fresh = opened()
        try:
            found = _told(fresh, id)
        except SessionNotFound:
            found = []
        attempts = ([*done, *more] for more in (["0"], ["1"], ["2", "3"], ["4"], ["5"]))
        unknown = error is not None and error.outcome_unknown
        assert found == done or (unknown and found in attempts), f"{where}: {found}, not {done}"
        if done:
            listed = {head.id: head.messages for head in fresh.list(limit=None, empty=True)}
            assert listed[id] == len(found), where
            fresh.append(id, user("after"))
            assert _told(fresh, id) == [*found, "after"], where
        assert [holder for holder in fresh.locks() if holder.session == id] == [], where
        fresh.close()
        if not refused:
            assert error is None
            break
    else:
        raise AssertionError("it never ended")


@pytest.mark.rule("W9", "C4")
def test_a_create_that_fails_keeps_nobody_waiting(opened: Open, place: Path) -> None:
    """Another session's log in the place of this one is left alone, and its append lock is free."""
    with opened() as store:
        store.append("b", user("x"), create=True)
    before = _log(place, "b").read_bytes()
    os.rename(_log(place, "b"), _log(place))
    begin = Draft(kind="session", data=Raw(b'{"id":"a","uid":"0","format":1}'), at=datetime.now(UTC))
    engine = Files(str(place))
    with pytest.raises(HansardError):
        engine.create("a", [begin])
    fd = os.open(_log(place), os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(fd)
    assert _log(place).read_bytes() == before
    engine.close()


# -- fork


class Slow(Disk):
    """A disk that stays in a sync of a log until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()

    def sync(self, fd: int) -> None:
        super().sync(fd)
        self.inside.set()
        self.go_on.wait(60)


def _fork_in_the_middle(store: Store, place: str) -> list[str]:
    """In another process: forks while a thread is in the middle of a write."""
    disk = Slow()
    mine = Store(Files(place, disk=disk))
    session = mine.create("a")
    session.append(user("before"))
    disk.inside.clear()
    disk.go_on.clear()
    writing = threading.Thread(target=lambda: session.append(user("meanwhile")))
    writing.start()
    disk.inside.wait(60)
    ready, its = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        for name, call in (
            ("append", lambda: session.append(user("child"))),
            ("history", lambda: session.history()),
            ("list", lambda: mine.list()),
        ):
            try:
                call()
                os.write(its, f"{name}: went through\n".encode())
            except Closed:
                os.write(its, f"{name}: Closed\n".encode())
            except Exception as error:
                os.write(its, f"{name}: {type(error).__name__}\n".encode())
        session.close()
        mine.close()
        os.write(its, b"closed\n")
        os._exit(0)
    os.close(its)
    with open(ready) as told:
        lines = told.read().splitlines()
    os.waitpid(child, 0)
    disk.go_on.set()
    writing.join(60)
    session.close()
    mine.close()
    return lines


@pytest.mark.rule("E9")
def test_a_child_forked_in_the_middle_of_a_write_is_not_stuck(world: World) -> None:
    store = world.store()
    assert world.elsewhere(_fork_in_the_middle, world.place) == [
        "append: Closed",
        "history: Closed",
        "list: Closed",
        "closed",
    ]
    assert _told(store) == ["before", "meanwhile"]


def _fork_while_reading(store: Store, id: str) -> list[str]:
    """In another process: the child goes on with an iterator, after other files took the numbers of its."""
    reading = store.read(id).records()
    first = next(reading).seq
    ready, its = os.pipe()
    child = os.fork()
    if child == 0:
        others = [os.open(__file__, os.O_RDONLY) for _ in range(20)]
        try:
            told = f"{sum(1 for _ in reading)} records"
        except Closed:
            told = "Closed"
        except Exception as error:
            told = type(error).__name__
        os.write(its, f"{told}\n".encode())
        del reading
        os.write(its, f"{sum(1 for fd in others if os.fstat(fd))} files\n".encode())
        os._exit(0)
    os.close(its)
    with open(ready) as told_by_child:
        lines = told_by_child.read().splitlines()
    os.waitpid(child, 0)
    return [str(first), *lines, str(sum(1 for _ in reading))]


@pytest.mark.rule("E9")
def test_an_iterator_that_a_child_inherited_is_closed_and_the_parents_goes_on(world: World) -> None:
    store = world.store()
    store.extend("a", users(*["x" * 1000] * 2000), create=True)
    assert world.elsewhere(_fork_while_reading, "a") == ["0", "Closed", "20 files", "2000"]
