"""E7 on files: logs that are cut back, rewritten, moved, and what tells of it all."""

from __future__ import annotations

import errno
import os
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest

import hansard.following
from hansard.engines.disk import Disk, FolderWatch
from hansard.engines.files import Files
from hansard.errors import HansardError
from hansard.following import Follower
from hansard.records import Draft, encode, frame, scan, utc
from hansard.store import Store
from hansard.testing.chat import user, users
from tests.engines.trouble import Trouble

LONG = 60.0


class Silent(Disk):
    """A disk whose kernel does not tell what changes."""

    def watch(self, folder: str) -> FolderWatch | None:
        return None


class Refusing(Disk):
    """A disk whose kernel has no watch left, for as long as it is told so."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self.code: int | None = code
        self.asked = 0

    def watch(self, folder: str) -> FolderWatch | None:
        self.asked += 1
        return None if self.code is not None else super().watch(folder)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture(params=[Disk, Silent], ids=["told", "looking"])
def store(request: pytest.FixtureRequest, place: Path) -> Iterator[Store]:
    if request.param is Disk and sys.platform != "linux":
        pytest.skip("only Linux tells")
    with Store(Files(str(place), disk=request.param())) as store:
        yield store


@pytest.fixture
def other(place: Path) -> Iterator[Store]:
    with Store(Files(str(place))) as other:
        yield other


def _log(place: Path, id: str = "a") -> Path:
    return place / "sessions" / f"{id}.jsonl"


def _seqs(told: Iterator[Any]) -> list[int]:
    return [record.seq for _, record, _ in told]


def _next(follower: Follower, n: int) -> list[Any]:
    return [next(follower) for _ in range(n)]


def _rewrite(path: Path, drop: tuple[int, int]) -> None:
    """What a vacuum does: a stretch of records becomes one that stands for them, in a new file."""
    records = list(scan([path.read_bytes()]))
    first, last = drop
    data, state = b"", 0
    for record in records:
        if first <= record.seq < last:
            continue
        kind, said = record.kind, record.data
        if record.seq == last:
            kind, said = "compacted", {"first": first, "last": last}
        draft = Draft(kind=kind, data=msgspec.Raw(encode(said)), id=record.id, at=utc(record.at))
        line, state = frame([draft], record.seq, state)
        data += line
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(data)
    os.replace(temporary, path)


# -- vacuum


@pytest.mark.rule("E7")
@pytest.mark.parametrize("which", ["a", None], ids=["one", "all"])
def test_a_follower_goes_on_across_a_vacuum(
    store: Store, other: Store, place: Path, which: str | None
) -> None:
    other.extend("a", users(*"12345678"), create=True)
    follower = store.follow(which, timeout=LONG)
    cursors = [cursor for _, _, cursor in store.follow(which, after=-1, timeout=0)]
    other.append("a", user("9"))
    assert _seqs(iter(_next(follower, 1))) == [9]
    _rewrite(_log(place), (2, 5))
    other.append("a", user("10"))
    assert _seqs(iter(_next(follower, 1))) == [10]
    for seq, cursor in enumerate(cursors):  # also after what is there no more
        rest = [n for n in (0, 1, 5, 6, 7, 8, 9, 10) if n > seq]
        assert _seqs(store.follow(which, after=str(cursor), timeout=0)) == rest, seq


@pytest.mark.rule("E7")
def test_a_vacuum_that_takes_the_very_last_record_that_was_told(store: Store, place: Path) -> None:
    store.extend("a", users(*"1234"), create=True)
    follower = store.follow("a", after=3, timeout=0.3)
    assert _seqs(iter(_next(follower, 1))) == [4]
    store.extend("a", users("5", "6"))
    _rewrite(_log(place), (3, 4))
    assert _seqs(follower) == [5, 6]


# -- logs that are cut back


@pytest.mark.rule("E7", "W4")
@pytest.mark.parametrize("which", ["a", None], ids=["one", "all"])
@pytest.mark.parametrize("meanwhile", [True, False], ids=["seen", "not seen"])
def test_what_stands_where_a_log_was_cut_back_is_told_too(
    store: Store, other: Store, place: Path, which: str | None, meanwhile: bool
) -> None:
    other.append("a", user("begin"), create=True)
    follower = store.follow(which, timeout=0.3)
    disk = Trouble()
    with Store(Files(str(place), disk=disk)) as writer:
        session = writer.open("a", exclusive=False)
        session.append(user("synced"))
        for n in range(3):
            session.append(user(f"lost {n}"), durable=False)
        assert _seqs(iter(_next(follower, 4))) == [2, 3, 4, 5]
        cursor = str(follower.cursor)
        disk.refuse("sync", errno.EIO, path=".jsonl", times=2)
        with pytest.raises(HansardError):
            session.append(user("lost too"))
    if meanwhile:
        follower._fill()  # it looks while nothing is there instead
    new = ["w", "x", "y", "z", "zz"]
    other.extend("a", users(*new))  # the same seqs, and more
    told = [record.data["content"] for _, record, _ in follower]
    assert told == new
    # who comes with a cursor of what was cut away is told all that it cannot have seen, and maybe more
    told = [record.data.get("content") for _, record, _ in store.follow(which, after=cursor, timeout=0)]
    assert told[-5:] == new


@pytest.mark.rule("E7", "W4")
def test_a_log_that_became_shorter_is_followed_from_where_it_was_cut(
    store: Store, other: Store, place: Path
) -> None:
    other.extend("a", users(*"12345"), create=True)
    one, all = store.follow("a", timeout=0.3), store.follow(timeout=0.3)
    lines = _log(place).read_bytes().splitlines(keepends=True)
    with _log(place).open("r+b") as log:
        log.truncate(sum(map(len, lines[:4])) - len(lines[3]))
    other.append("a", user("instead"))
    for follower in (one, all):
        assert [record.data.get("content") for _, record, _ in follower][-1:] == ["instead"]


# -- what tells of it


@pytest.mark.rule("E7")
def test_followers_of_logs_that_are_only_looked_at_are_told_soon(store: Store, other: Store) -> None:
    other.append("a", user("begin"), create=True)
    took: list[float] = []
    for which in ("a", None):
        with store.follow(which, timeout=LONG) as follower:
            time.sleep(0.3)  # it has become slow
            for _ in range(10):
                other.append("a", user(str(time.monotonic())))
                took.append(time.monotonic() - float(next(follower)[1].data["content"]))
                time.sleep(0.03)
    assert statistics.median(took) < 0.1


@pytest.mark.rule("E7")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has such limits")
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE])
def test_where_the_kernel_has_no_watch_left_followers_look_until_it_has(place: Path, code: int) -> None:
    disk = Refusing(code)
    with Store(Files(str(place), disk=disk)) as store, Store(Files(str(place))) as other:
        other.append("a", user("begin"), create=True)
        with store.follow("a", timeout=LONG) as follower:
            other.append("a", user("1"))
            assert _seqs(iter(_next(follower, 1))) == [2]
            disk.code, asked = None, disk.asked
            while disk.asked == asked:
                time.sleep(0.02)
            for seq in range(3, 9):
                other.append("a", user("2"))
                assert next(follower)[1].seq == seq


@pytest.mark.rule("E7")
@pytest.mark.parametrize("what", ["sessions", "root"])
def test_a_folder_that_is_put_in_the_place_of_another_is_followed(
    store: Store, other: Store, place: Path, tmp_path: Path, what: str
) -> None:
    other.append("a", user("begin"), create=True)
    one, all = store.follow("a", timeout=LONG), store.follow(timeout=LONG)
    other.append("a", user("1"))
    assert next(one)[1].seq == next(all)[1].seq == 2
    moved = place / "sessions" if what == "sessions" else place
    shutil.copytree(moved, tmp_path / "copy")
    os.rename(moved, tmp_path / "old")
    os.rename(tmp_path / "copy", moved)
    with Store(Files(str(place))) as new:
        new.append("a", user("2"))
        assert next(one)[1].seq == next(all)[1].seq == 3
        for seq in range(4, 8):
            new.append("a", user("3"))
            assert next(one)[1].seq == next(all)[1].seq == seq


@pytest.mark.rule("E7")
def test_a_folder_that_is_not_there_yet_is_followed_when_it_is(store: Store, place: Path) -> None:
    os.rmdir(place / "sessions")
    follower = store.follow(timeout=LONG)
    time.sleep(0.1)
    with Store(Files(str(place))) as other:
        other.extend("a", users("1", "2"), create=True)
        assert _seqs(iter(_next(follower, 3))) == [0, 1, 2]
        for seq in range(3, 6):
            other.append("a", user("3"))
            assert next(follower)[1].seq == seq


@pytest.mark.rule("E7")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a queue")
def test_nothing_is_lost_when_the_kernel_forgets_what_it_had_to_tell(place: Path) -> None:
    class Overflowing(Disk):
        """A disk whose kernel forgets all the time."""

        def watch(self, folder: str) -> FolderWatch | None:
            watch = super().watch(folder)
            if watch is not None:
                wait = watch.wait
                watch.wait = lambda seconds: None if wait(seconds) else set()  # type: ignore[method-assign]
            return watch

    with Store(Files(str(place), disk=Overflowing())) as store, Store(Files(str(place))) as other:
        other.append("a", user("begin"), create=True)
        one, all = store.follow("a", timeout=LONG), store.follow(timeout=LONG)
        for n in range(5):
            other.append(f"s{n}", user("x"), create=True)
            other.append("a", user("x"))
        assert _seqs(iter(_next(one, 5))) == [2, 3, 4, 5, 6]
        assert len({(id, record.seq) for id, record, _ in _next(all, 15)}) == 15


@pytest.mark.rule("E7")
def test_other_files_among_the_logs_are_nobodys_business(store: Store, other: Store, place: Path) -> None:
    other.append("a", user("begin"), create=True)
    follower = store.follow(timeout=0.3)
    (place / "sessions" / "notes.txt").write_text("mine")
    (place / "sessions" / "Not A Key.jsonl").write_text("{}\n")
    (place / "sessions" / "empty.jsonl").write_text("")
    (place / "sessions" / f"{'x' * 90}=~{'0' * 64}.jsonl").write_text("garbage\n")
    (place / "sessions" / "folder.jsonl").mkdir()
    other.append("a", user("1"))
    assert _seqs(follower) == [2]


@pytest.mark.rule("E7")
def test_a_session_that_cannot_be_understood_keeps_no_other_from_being_told(
    store: Store, other: Store, place: Path
) -> None:
    other.append("a", user("begin"), create=True)
    other.append("b", user("begin"), create=True)
    follower = store.follow(timeout=0.3)
    shutil.copy(_log(place, "b"), _log(place, "c"))  # the log of another session
    other.append("a", user("1"))
    assert [(id, record.seq) for id, record, _ in follower] == [("a", 2)]


@pytest.mark.rule("E7")
def test_a_follower_that_could_not_read_goes_on_when_it_can(place: Path) -> None:
    disk = Trouble()
    with Store(Files(str(place), disk=disk)) as store, Store(Files(str(place))) as other:
        other.append("a", user("begin"), create=True)
        followers = [store.follow(which, timeout=LONG) for which in ("a", None)]
        disk.refuse("read", errno.EIO, path=".jsonl")
        other.append("a", user("1"))
        for follower in followers:
            with pytest.raises(HansardError):
                next(follower)
        disk.heal()
        assert [next(follower)[1].seq for follower in followers] == [2, 2]


@pytest.mark.rule("E7")
def test_one_thread_watches_for_all_followers_of_an_engine(store: Store) -> None:
    def watching() -> int:
        return sum(thread.name == "hansard-watch" for thread in threading.enumerate())

    deadline = time.monotonic() + LONG
    while watching():  # of tests before
        assert time.monotonic() < deadline
        time.sleep(0.01)
    store.append("a", user("begin"), create=True)
    followers = [store.follow(which) for which in ("a", None, "a", None)]
    assert watching() == 1
    for follower in followers:
        follower.close()
    while watching():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with store.follow("a", timeout=LONG) as follower:
        store.append("a", user("1"))
        assert next(follower)[1].seq == 2


@pytest.mark.rule("E7")
def test_a_cursor_that_is_kept_holds_no_other_session_back() -> None:
    steps = 200_000
    places = hansard.following.Places()
    for n in range(1000):
        places.now[f"s{n}"] = ("uid", 0, None)
    first = places.cursor
    began = time.monotonic()
    for n in range(steps):
        places.step(f"s{n % 7}", ("uid", n, n))
    assert time.monotonic() - began < 5
    assert first == hansard.following.Cursor(str(first))
    assert str(first) != str(places.cursor)


@pytest.mark.rule("E7", "C4")
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_a_watch_that_is_over_writes_to_no_file_that_has_its_number_now(tmp_path: Path) -> None:
    watch = FolderWatch(Disk(), str(tmp_path))
    watch.wake()
    assert watch.wait(LONG) == set()
    watch.close()
    disk = Disk()
    logs = [disk.open(str(tmp_path / f"{n}.jsonl"), write=True, create=True) for n in range(5)]
    watch.wake()
    assert [disk.stat(log).size for log in logs] == [0] * 5
    for log in logs:
        disk.close(log)


@pytest.mark.rule("E7")
def test_changes_may_be_told_while_others_are_read(store: Store) -> None:
    feed = hansard.following.AllSessions(store._engine)
    feed.begin(None)
    store.append("a", user("x"), create=True)
    others = iter(range(100))

    def tell(*_: Any) -> None:
        """Between any two steps, as another thread may."""
        for n in islice(others, 1):
            feed.changed(f"nothing {n}")

    feed.changed("a")
    told = []
    sys.setprofile(tell)
    try:
        while feed.more:
            told += feed.read()
    finally:
        sys.setprofile(None)
    assert next(others, None) is None
    assert [record.kind for _, record, _ in told] == ["session", "message"]
