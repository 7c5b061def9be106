"""What the file engine promises beside the contract: its folder, its catalog, damaged logs, lock files."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest

import hansard
from hansard.engines import Holder
from hansard.engines.catalog import Catalog
from hansard.engines.disk import Disk, file_system
from hansard.engines.files import OPEN_FILES, Files, HansardWarning
from hansard.errors import (
    AlreadyExists,
    Damaged,
    HansardError,
    NewerFormat,
    NotAStore,
    ReadOnlyStore,
    SessionBusy,
    SessionNotFound,
    StoreUnavailable,
    Unsupported,
)
from hansard.ids import file_key
from hansard.records import Draft, Record, frame, last, scan, seal, state_after
from hansard.session import Session
from hansard.store import Store, iterate
from hansard.testing import World, hear, say
from hansard.testing.chat import texts, user, users
from hansard.testing.leases import contend, one_winner, rounds
from hansard.views import head as heads
from hansard.views.head import Head
from tests.engines.trouble import Trouble


class Open(Protocol):
    """Opens a store at the place of the test."""

    def __call__(self, **options: Any) -> Store: ...


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def opened(place: Path) -> Iterator[Open]:
    stores: list[Store] = []

    def open(*, clock: Callable[[], datetime] | None = None, **options: Any) -> Store:
        stores.append(Store(Files(str(place), **options), clock=clock))
        return stores[-1]

    yield open
    for store in reversed(stores):
        store.close()


@pytest.fixture
def world(place: Path) -> Iterator[World]:
    with World(Files, str(place)) as world:
        yield world


def _log(place: Path, id: str = "a") -> Path:
    return place / "sessions" / f"{file_key(id)}.jsonl"


def _told(store: Store, id: str = "a") -> list[Any]:
    return texts(store.read(id).history())


def _listed(store: Store) -> dict[str, tuple[int, str]]:
    return {head.id: (head.messages, head.preview) for head in store.list(limit=None, empty=True)}


def _tree(place: Path) -> dict[str, tuple[Any, ...]]:
    """All that is in a folder but the catalog: what could have been changed."""
    found: dict[str, tuple[Any, ...]] = {}
    for path in sorted(place.rglob("*")):
        if not path.name.startswith("catalog."):
            about = path.lstat()
            content = path.read_bytes() if path.is_file() else b""
            found[str(path)] = (about.st_mode, about.st_ino, about.st_mtime_ns if content else 0, content)
    return found


def _kinds(store: Store, session: str | None = None) -> list[str]:
    """What the doctor finds."""
    return [found.kind for found in store.doctor().findings if session in (None, found.session)]


# -- the folder


@pytest.mark.rule("C5")
@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_files_and_folders_are_private_whatever_the_umask(opened: Open, place: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        store = opened()
        with store.create("A/b") as session:
            session.append(user("x"))
            store.list()
            log = _log(place, "A/b")
            with log.open("ab") as file:
                file.write(b"torn")
            store.append("A/b", user("y"))  # sets the torn tail aside
            found = [place, *place.rglob("*")]
            assert {path.name for path in found} >= {"hansard.json", "aside", "catalog.db", "names", "locks"}
            for path in found:
                assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    finally:
        os.umask(before)


def test_a_log_is_lines_of_json_under_the_name_of_its_session(opened: Open, place: Path) -> None:
    ids = ["plain", "Upper", "a/b:c", "ü", ".hidden", "x" * 500]
    store = opened()
    for id in ids:
        store.append(id, user("Grüße\n\u2028 \0 </script>"), create=True)
    assert sorted(path.name for path in (place / "sessions").iterdir()) == sorted(
        f"{file_key(id)}.jsonl" for id in ids
    )
    for id in ids:
        session, message = map(json.loads, _log(place, id).read_text("utf-8").split("\n")[:-1])
        assert (session["kind"], session["data"]["id"], session["seq"]) == ("session", id, 0)
        assert message["data"] == user("Grüße\n\u2028 \0 </script>")
    assert sorted(_listed(opened())) == sorted(ids)


@pytest.mark.rule("C5")
def test_a_folder_with_other_things_in_it_is_no_store_and_is_left_alone(opened: Open, place: Path) -> None:
    place.mkdir()
    (place / "thesis.txt").write_text("years of work")
    (place / "sessions").mkdir()
    before = _tree(place)
    for options in ({}, {"create": False}, {"readonly": True}):
        with pytest.raises(NotAStore, match=r"thesis\.txt"):
            opened(**options)
    assert _tree(place) == before


@pytest.mark.rule("C5")
def test_a_file_is_no_store(opened: Open, place: Path) -> None:
    place.write_text("a file")
    with pytest.raises(NotAStore):
        opened()
    assert place.read_text() == "a file"


@pytest.mark.rule("C5")
@pytest.mark.parametrize("options", [{"create": False}, {"readonly": True}])
def test_a_store_that_is_not_there_is_not_made_by_whoever_only_looks(
    opened: Open, place: Path, options: dict[str, bool]
) -> None:
    with pytest.raises(NotAStore):
        opened(**options)
    assert not place.exists()


@pytest.mark.rule("C5")
@pytest.mark.parametrize("left", [[], ["hansard.json~tmp"], [".DS_Store"], ["lost+found"]])
def test_an_empty_folder_becomes_a_store(opened: Open, place: Path, left: list[str]) -> None:
    place.mkdir()
    for name in left:
        (place / name).write_bytes(b"half")
    opened().append("a", user("x"), create=True)
    assert _told(opened()) == ["x"]


@pytest.mark.rule("W14")
def test_a_store_of_a_newer_format_can_only_be_read(opened: Open, place: Path) -> None:
    with opened() as store:
        store.append("a", user("x"), create=True)
    facts = json.loads((place / "hansard.json").read_bytes())
    (place / "hansard.json").write_text(json.dumps({**facts, "format": 2, "more": True}))
    before = _tree(place)
    with pytest.raises(NewerFormat):
        opened()
    assert _told(opened(readonly=True)) == ["x"]
    assert _tree(place) == before


@pytest.mark.rule("C4")
@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 60, b"{", b"[]", b"null", b'{"format":"1","store":"x"}', b'{"format":1}', b"\xff"],
)
def test_a_store_that_cannot_be_understood_is_left_as_it_is(
    opened: Open, place: Path, content: bytes
) -> None:
    with opened() as store:
        store.append("a", user("x"), create=True)
    (place / "hansard.json").write_bytes(content)
    before = _tree(place)
    for options in ({}, {"readonly": True}):
        with pytest.raises(Damaged, match=r"hansard\.json"):
            opened(**options)
    assert _tree(place) == before


@pytest.mark.rule("C4", "C5")
def test_a_store_that_lost_its_facts_is_not_begun_anew(opened: Open, place: Path) -> None:
    with opened() as store:
        store.append("a", user("x"), create=True)
    facts = (place / "hansard.json").read_bytes()
    (place / "hansard.json").unlink()
    with pytest.raises(NotAStore, match=r"hansard\.json"):
        opened()
    assert not (place / "hansard.json").exists()
    (place / "hansard.json").write_bytes(facts)
    assert _told(opened()) == ["x"]


# -- network file systems


MOUNTS = "\n".join(
    [
        "22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw",
        "30 22 0:25 / /home rw shared:5 - nfs4 server:/home rw,vers=4.2",
        "31 30 0:26 / /home/me/local rw - xfs /dev/vdb rw",
        "32 22 0:27 / /mnt/with\\040space rw - fuse.sshfs me@host: rw",
        "33 22 0:28 / /mnt/twice rw - tmpfs tmpfs rw",
        "34 22 0:29 / /mnt/twice rw - cifs //host/share rw",
        "35 22 0:30 / /homes rw master:1 - ext4 /dev/vdc rw",
        "a line that is none",
        "",
    ]
)


@pytest.mark.rule("C6")
@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/srv/store", "ext4"),
        ("/home", "nfs4"),
        ("/home/me/store", "nfs4"),
        ("/home/me/local/store", "xfs"),
        ("/home/me/localhost", "nfs4"),
        ("/homes/me", "ext4"),
        ("/mnt/with space/store", "fuse.sshfs"),
        ("/mnt/twice/store", "cifs"),
    ],
)
def test_the_file_system_under_a_path_is_the_one_mounted_nearest(path: str, kind: str) -> None:
    assert file_system(path, MOUNTS) == kind


class Elsewhere(Disk):
    """A disk that is in another machine."""

    def network(self, path: str) -> str | None:
        return "nfs4"


@pytest.mark.rule("C6")
def test_a_network_file_system_is_refused_unless_it_is_asked_for(opened: Open, place: Path) -> None:
    with pytest.raises(Unsupported, match="nfs4") as caught:
        opened(disk=Elsewhere())
    assert "network=yes" in str(caught.value)
    assert not place.exists()
    opened(disk=Elsewhere(), network=True).append("a", user("x"), create=True)
    with hansard.open(f"file:{place}?network=yes") as store:
        assert _told(store) == ["x"]


# -- the catalog


def _three(opened: Open) -> dict[str, tuple[int, str]]:
    """A store with three sessions, closed; what its list says."""
    with opened() as store:
        for n in (1, 2, 3):
            with store.create(f"s{n}") as session:
                session.append(user("first"), id="once")
                session.extend(users(*[f"{n}.{i}" for i in range(n)]))
        return _listed(store)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def _scribble(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for start in range(100, len(data), 1000):
        data[start : start + 300] = b"\xa5" * len(data[start : start + 300])
    path.write_bytes(data)


def _older(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE sessions (id TEXT, size INTEGER)")
        db.execute("INSERT INTO sessions VALUES ('ghost', 1)")
    db.close()


def _without_a_table(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("DROP TABLE ids")
    db.close()


def _without_rows(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM sessions")
        db.execute("DELETE FROM facts")
    db.close()


RUIN: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "zeros": lambda path: path.write_bytes(b"\0" * 8192),
    "text": lambda path: path.write_text("this is no database " * 100),
    "cut": _cut,
    "scribbled": _scribble,
    "older": _older,
    "without a table": _without_a_table,
    "without rows": _without_rows,
    "without its lock": lambda path: path.with_suffix(".lock").unlink(),
    "with another's log beside it": lambda path: Path(f"{path}-wal").write_bytes(b"\x37\x7f\x06\x82" * 999),
}


@pytest.mark.rule("C3", "C4")
@pytest.mark.parametrize("ruin", RUIN)
@pytest.mark.parametrize("first", ["list", "append and get"])
def test_a_catalog_in_whatever_state_hides_no_session_and_changes_no_answer(
    opened: Open, place: Path, ruin: str, first: str
) -> None:
    expected = _three(opened)
    RUIN[ruin](place / "catalog.db")
    store = opened()
    if first == "append and get":
        assert store.append("s2", user("first"), id="once").seq == 1
        assert store.read("s2").get("once").seq == 1  # type: ignore[union-attr]
    assert _listed(store) == expected
    assert store.append("s3", user("first"), id="once").seq == 1
    store.append("s1", user("more"))
    expected["s1"] = (expected["s1"][0] + 1, "more")
    assert _listed(store) == _listed(opened()) == expected
    assert set(_kinds(store)) <= {"aside"}


@pytest.mark.rule("C4")
def test_a_corrupt_catalog_is_set_aside_and_the_doctor_tells(opened: Open, place: Path) -> None:
    _three(opened)
    (place / "catalog.db").write_bytes(b"no database" * 1000)
    store = opened()
    store.list()
    (aside,) = (place / "aside").iterdir()
    assert "catalog.db" in aside.name
    assert aside.name[:8] == f"{datetime.now(UTC):%Y%m%d}"
    assert aside.read_bytes() == b"no database" * 1000
    assert _kinds(store) == ["aside"]


@pytest.mark.rule("C3")
def test_an_old_copy_of_the_catalog_that_is_brought_back_is_known_for_one(opened: Open, place: Path) -> None:
    _three(opened)
    shutil.copy(place / "catalog.db", place.parent / "copy")
    with opened() as store:
        store.append("s1", user("later"))
        store.append("s4", user("new"), create=True)
        store.delete("s2")
        expected = _listed(store)
    shutil.copy(place.parent / "copy", place / "catalog.db")
    store = opened()
    assert _listed(store) == expected
    with pytest.raises(SessionNotFound):
        store.resolve("s2")


@pytest.mark.rule("C3")
def test_an_old_copy_that_is_brought_back_under_an_open_store_is_known_too(opened: Open, place: Path) -> None:
    _three(opened)
    shutil.copy(place / "catalog.db", place.parent / "copy")
    store = opened()
    store.append("s1", user("later"))
    store.delete("s2")
    expected = _listed(store)
    for suffix in ("-wal", "-shm"):
        Path(f"{place / 'catalog.db'}{suffix}").unlink(missing_ok=True)
    os.replace(place.parent / "copy", place / "catalog.db")
    assert _listed(store) == expected
    store.append("s4", user("new"), create=True)
    assert _listed(opened()) == {**expected, "s4": (1, "new")}


@pytest.mark.rule("C3")
def test_a_catalog_that_is_taken_away_under_open_stores_comes_back(opened: Open, place: Path) -> None:
    expected = _three(opened)
    store, other = opened(), opened()
    with store.open("s1") as session:
        session.append(user("before"))
        assert _listed(other) == {**expected, "s1": (3, "before")}
        for path in place.glob("catalog.*"):
            path.unlink()
        session.append(user("after"))
        assert _listed(other) == {**expected, "s1": (4, "after")}
        session.append(user("once more"))
        assert _listed(store) == {**expected, "s1": (5, "once more")}
        assert _listed(other) == {**expected, "s1": (5, "once more")}
    assert _listed(opened()) == {**expected, "s1": (5, "once more")}


def _lock_catalog(store: Store, path: str) -> None:
    """In another process: keeps everybody out of the catalog until it is told to let go."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA locking_mode = EXCLUSIVE")
    db.execute("BEGIN EXCLUSIVE")
    db.execute("CREATE TABLE mine (n)")
    say()
    hear()
    db.execute("ROLLBACK")
    db.close()


@pytest.mark.rule("C3")
def test_a_catalog_that_another_program_has_locked_stands_in_nobodys_way(opened: Open, place: Path) -> None:
    expected = _three(opened)
    with World(Files, str(place.parent / "unused")) as world:
        with world.beside(_lock_catalog, str(place / "catalog.db")) as other:
            other.hear()
            with opened() as store:  # goes on with a catalog in memory
                assert _listed(store) == expected
                store.append("s1", user("meanwhile"))
                expected["s1"] = (expected["s1"][0] + 1, "meanwhile")
                assert _listed(store) == expected
                assert "catalog" in _kinds(store)
            other.tell()
            other.result()
    store = opened()
    assert _listed(store) == expected
    assert _kinds(store) == []


class NoCatalog(Disk):
    """A disk on which SQLite finds no place."""

    def database(self, path: str) -> str:
        return path + "/nowhere/catalog.db"


@pytest.mark.rule("C3")
def test_what_was_written_by_somebody_who_had_no_catalog_is_listed_by_all(opened: Open, place: Path) -> None:
    expected = _three(opened)
    before = opened()
    assert _listed(before) == expected
    writer = opened(disk=NoCatalog())
    for n in range(3):  # a reader in between changes nothing
        writer.append("s1", user(f"more {n}"))
        expected["s1"] = (expected["s1"][0] + 1, f"more {n}")
        assert _listed(before) == _listed(writer) == expected
    writer.append("s5", user("new"), create=True)
    expected["s5"] = (1, "new")
    assert _listed(before) == _listed(opened()) == expected
    with writer.open("s2") as session:
        session.append(user("leased"))
        expected["s2"] = (expected["s2"][0] + 1, "leased")
        assert _listed(before) == expected
        session.append(user("leased again"))
        expected["s2"] = (expected["s2"][0] + 1, "leased again")
        assert _listed(before) == _listed(opened()) == expected


class Watched(Disk):
    """A disk on which somebody looks as soon as bytes of a log are there."""

    look_then: Callable[[], object] | None = None

    def put(self, fd: int, data: bytes) -> int:
        written = super().put(fd, data)
        if self.look_then is not None and data.startswith(b'{"kind":'):
            self.look_then()
        return written


@pytest.mark.rule("L1", "C3")
def test_whoever_lists_while_a_write_is_under_way_has_what_is_there_of_it(opened: Open) -> None:
    """So a writer that dies just then leaves no list that lacks what it has written."""
    disk, reader = Watched(), opened()
    store = opened(disk=disk)
    assert _listed(reader) == _listed(store) == {}
    seen: list[dict[str, tuple[int, str]]] = []
    disk.look_then = lambda: seen.append(_listed(reader))
    store.append("a", user("1"), create=True)
    assert seen.pop() == {"a": (1, "1")}
    for n in ("2", "3"):
        assert _listed(reader)["a"][1] != n
        store.append("a", user(n))
        assert seen.pop() == {"a": (int(n), n)}
    with store.open("a") as session:
        for n in ("4", "5"):
            session.append(user(n))
            assert seen.pop() == {"a": (int(n), n)}


class Rebooted(Disk):
    """A disk of a machine that was started again."""

    def boot(self) -> str:
        return "another boot"


@pytest.mark.rule("C3", "C1")
def test_a_list_is_right_after_a_power_cut_took_the_end_of_a_log(opened: Open, place: Path) -> None:
    expected = _three(opened)
    log = _log(place, "s3").read_bytes()
    _log(place, "s3").write_bytes(log[: len(log) - 30])  # within the batch
    _log(place, "s2").unlink()
    store = opened(disk=Rebooted())
    assert _listed(store) == {"s1": expected["s1"], "s3": (1, "first")}
    store.append("s3", user("again"))
    assert _listed(store) == _listed(opened()) == {"s1": expected["s1"], "s3": (2, "again")}


@pytest.mark.rule("C3")
@pytest.mark.parametrize("id", ["x" * 300, "Ünicode/" * 40])
def test_a_session_with_a_long_id_and_a_large_head_is_found_without_the_catalog(
    opened: Open, place: Path, id: str
) -> None:
    with opened() as store:
        store.create(id, meta={"big": "y" * 200_000}, eager=True, title="large").append(user("x"))
    (place / "catalog.db").unlink()
    assert _listed(opened()) == {id: (1, "x")}


@pytest.mark.rule("C3", "W14")
@pytest.mark.parametrize("id", ["short", "l" * 300])
def test_one_session_that_cannot_be_understood_hides_no_other(opened: Open, place: Path, id: str) -> None:
    expected = _three(opened)
    line = b'{"kind":"session","data":{"id":"%s","uid":"1","format":99},"at":"2026-05-01T12:00:00Z","seq":0}'
    _log(place, id).write_bytes(seal(line % id.encode(), 0)[0])
    (place / "catalog.db").unlink()
    before = _log(place, id).read_bytes()
    store = opened()
    assert {found: of for found, of in _listed(store).items() if found != id} == expected
    with pytest.raises(NewerFormat):
        store.read(id)
    with pytest.raises(NewerFormat):
        store.append(id, user("x"))
    with pytest.raises((NewerFormat, AlreadyExists)):
        store.create(id, eager=True)
    assert "unreadable" in _kinds(store)
    assert _log(place, id).read_bytes() == before


# -- torn tails


def _written(opened: Open, place: Path) -> tuple[bytes, list[int]]:
    """A log whose last writes are a single record and a batch, and where its writes end."""
    ends = []
    with opened() as store:
        with store.create("a", title="Torn") as session:
            for write in (
                lambda: session.append(user("one"), id="once"),
                lambda: session.extend(users("two", "three", "four")),
                lambda: session.append(user("five"), id="last"),
                lambda: session.extend(users("six", "seven")),
            ):
                write()
                ends.append(_log(place).stat().st_size)
    return _log(place).read_bytes(), ends


@pytest.mark.rule("C1", "W2", "W5", "L3")
@pytest.mark.parametrize("catalog", ["as it was", "gone"])
def test_a_log_cut_at_any_byte_reads_and_is_appended_to(opened: Open, place: Path, catalog: str) -> None:
    data, ends = _written(opened, place)
    words = ["one", "two", "three", "four", "five", "six", "seven"]
    known = {ends[0]: 1, ends[1]: 4, ends[2]: 5, ends[3]: 7}
    if catalog == "gone":
        (place / "catalog.db").unlink()
    store, reader = opened(), opened(readonly=True)
    every = 1 if catalog == "as it was" else 7
    for cut in sorted({*range(ends[1], len(data) + 1, every), *ends[1:], *(end - 1 for end in ends[1:])}):
        whole = max(end for end in ends if end <= cut or end - 1 == cut)
        expected = words[: known[whole]]
        scratch = place / "scratch"
        scratch.write_bytes(data[:cut])
        os.replace(scratch, _log(place))
        assert _told(reader) == expected, cut
        head = reader.head("a")
        assert (head.messages, head.preview, head.title) == (len(expected), expected[-1], "Torn"), cut
        assert reader.read("a").damage == [], cut
        assert _log(place).read_bytes() == data[:cut]  # a reader mends nothing
        if "five" in expected:
            assert store.append("a", user("five"), id="last").seq == 5
        store.append("a", user("after"), durable=False)
        assert _told(store) == _told(reader) == [*expected, "after"], cut
        assert _log(place).read_bytes().startswith(data[: min(whole, cut)])
        assert [record.seq for record in store.read("a").records()] == list(range(len(expected) + 2))
    assert all("torn" in path.name for path in (place / "aside").iterdir())


@pytest.mark.rule("C1", "W9")
def test_a_log_without_a_whole_first_line_does_not_exist(opened: Open, place: Path) -> None:
    with opened() as store:
        store.append("b", user("x"), create=True)
        store.append("a", user("x"), create=True)
    first = _log(place).read_bytes().splitlines(keepends=True)[0]
    for cut in (0, 1, 20, len(first) - 2):
        _log(place).write_bytes(first[:cut])
        (place / "catalog.db").unlink()
        store = opened()
        assert set(_listed(store)) == {"b"}
        with pytest.raises(SessionNotFound):
            store.read("a")
        with pytest.raises(SessionNotFound):
            store.append("a", user("x"))
        assert _log(place).read_bytes() == first[:cut]
        with store.create("a") as session:
            session.append(user(f"taken over {cut}"))
        assert _listed(opened()) == {"a": (1, f"taken over {cut}"), "b": (1, "x")}
        store.close()


@pytest.mark.rule("C1")
@pytest.mark.parametrize(
    "tail", [b"\0" * 5000, b"{", b'{"kind":"message","data":', b"\n", b"\xff\xfe", b"x\ny\n"]
)
def test_a_torn_tail_is_set_aside_before_it_is_cut(opened: Open, place: Path, tail: bytes) -> None:
    with opened() as store:
        store.append("a", user("1"), create=True)
    with _log(place).open("ab") as log:
        log.write(tail)
    store = opened()
    assert _told(store) == ["1"]
    assert "torn" in _kinds(store, "a")
    store.append("a", user("2"))
    assert _told(opened()) == ["1", "2"]
    kept = [path.read_bytes() for path in (place / "aside").glob("*")]
    assert kept == ([tail] if tail.strip(b"\0") else [])
    assert set(_kinds(store)) <= {"aside"}


# -- damage


def _damaged(opened: Open, place: Path, change: Callable[[list[bytes]], object]) -> None:
    """A session of a hundred messages whose log somebody changed."""
    with opened() as store:
        with store.create("a") as session:
            for n in range(1, 51):
                session.append(user(f"message {n}"), durable=False)
            session.rename("Title")
            for n in range(51, 101):
                session.append(user(f"message {n}"), id=f"id {n}", durable=False)
    lines = _log(place).read_bytes().splitlines(keepends=True)
    change(lines)
    _log(place).write_bytes(b"".join(lines))


def _put(n: int, change: Callable[[bytes], bytes]) -> Callable[[list[bytes]], object]:
    """Changes one line."""
    return lambda lines: lines.__setitem__(n, change(lines[n]))


def _add(line: bytes) -> Callable[[list[bytes]], object]:
    """Puts a line between two others."""
    return lambda lines: lines.insert(20, line)


DAMAGE: dict[str, tuple[Callable[[list[bytes]], object], set[int]]] = {
    "garbage line": (_add(b"some garbage\n"), set()),
    "blank line": (_add(b"\n"), set()),
    "line of NULs": (_add(b"\0" * 4096 + b"\n"), set()),
    "line of no UTF-8": (_add(b"\xff\xc0\n"), set()),
    "CRLF": (_put(20, lambda line: line[:-1] + b"\r\n"), set()),
    "NULs over a record": (_put(20, lambda line: b"\0" * (len(line) - 1) + b"\n"), {20}),
    "altered record": (_put(20, lambda line: line.replace(b"message 20", b"message 00")), {20}),
    "no newline": (_put(20, lambda line: line[:-1]), set()),
    "doubled line": (lambda lines: lines.insert(20, lines[20]), set()),
    "missing line": (lambda lines: lines.pop(20), {20}),
    "swapped lines": (lambda lines: lines.insert(21, lines.pop(20)), {20, 21}),
    "first line altered": (_put(0, lambda line: line.replace(b"session", b"sessiom", 1)), set()),
    "first line illegible": (_put(0, lambda line: b"x" * 99 + b"\n"), set()),
    "first line with a byte order mark": (_put(0, lambda line: b"\xef\xbb\xbf" + line), set()),
}


@pytest.mark.rule("C2", "C3")
@pytest.mark.parametrize("catalog", ["as it was", "gone"])
@pytest.mark.parametrize("what", DAMAGE)
def test_damage_costs_what_it_hit_is_located_and_spreads_to_nothing_new(
    opened: Open, place: Path, what: str, catalog: str
) -> None:
    change, lost = DAMAGE[what]
    _damaged(opened, place, change)
    if catalog == "gone":
        (place / "catalog.db").unlink()
    before = _log(place).read_bytes()
    store = opened()
    view = store.read("a")
    wanted = [f"message {n}" for n in range(1, 101)]
    found = _told(store)
    missing = [text for text in wanted if text not in found]
    assert found == [text for text in wanted if text not in missing]
    assert {int(text.split()[1]) for text in missing} <= lost
    list(view.records())
    place_of = 0 if "first" in what else sum(map(len, before.split(b"\n")[:20])) + 20
    assert view.damage
    assert any(abs(wrong.offset - place_of) < 600 for wrong in view.damage)
    assert any(
        str(_log(place)) in finding.place for finding in store.doctor().findings if finding.kind == "damage"
    )
    assert store.append("a", user("message 100"), id="id 100").seq == 101  # a repeat
    store.append("a", user("after"))
    assert _told(opened()) == _told(store) == [*found, "after"]
    assert _log(place).read_bytes().startswith(before)
    assert list(_listed(opened())) == ["a"]
    backwards = [record.seq for record in store.read("a").records(reverse=True)]
    assert backwards == [record.seq for record in store.read("a").records()][::-1]


@pytest.mark.rule("C2", "C3")
def test_a_log_with_a_flipped_bit_reads_the_same_for_everybody_and_is_appended_to(
    opened: Open, place: Path
) -> None:
    data, _ = _written(opened, place)
    chance = random.Random(11)
    store, reader = opened(), opened(readonly=True)
    for _ in range(150):
        at, bit = chance.randrange(len(data)), chance.randrange(8)
        flipped = bytearray(data)
        flipped[at] ^= 1 << bit
        (place / "scratch").write_bytes(flipped)
        os.replace(place / "scratch", _log(place))
        expected = [r.data["content"] for r in scan([bytes(flipped)]) if r.kind == "message"]
        where = f"bit {bit} of byte {at}: {bytes(flipped[max(0, at - 30) : at + 30])!r}"
        assert _told(reader) == expected, where
        store.append("a", user("after"), durable=False)
        assert _told(store) == _told(reader) == [*expected, "after"], where


@pytest.mark.rule("C2")
def test_a_bit_of_a_batch_that_flips_costs_that_write_alone(opened: Open, place: Path) -> None:
    data, ends = _written(opened, place)
    at = data.index(b"three")
    flipped = bytearray(data)
    flipped[at] ^= 1
    _log(place).write_bytes(flipped)
    view = opened().read("a")
    assert texts(view.history()) == ["one", "five", "six", "seven"]
    assert any(ends[0] <= wrong.offset <= at for wrong in view.damage)


@pytest.mark.rule("C2")
def test_a_log_in_which_an_editor_changed_all_line_ends_loses_nothing(opened: Open, place: Path) -> None:
    with opened() as store:
        store.extend("a", users("1", "2", "3"), create=True)
    _log(place).write_bytes(_log(place).read_bytes().replace(b"\n", b"\r\n"))
    store = opened(disk=Rebooted())
    assert _told(store) == ["1", "2", "3"]
    store.append("a", user("4"))
    assert _told(opened()) == ["1", "2", "3", "4"]
    assert {wrong.kind for wrong in store.read("a").damage} == {"line-end"}


@pytest.mark.rule("C1")
def test_a_last_line_that_lacks_its_newline_counts(opened: Open, place: Path) -> None:
    with opened() as store:
        store.append("a", user("1"), create=True)
        store.append("a", user("2"), id="once")
    whole = _log(place).read_bytes()
    _log(place).write_bytes(whole[:-1])
    store = opened(disk=Rebooted())
    assert _told(store) == ["1", "2"]
    assert _listed(store) == {"a": (2, "2")}
    assert store.read("a").get("once").seq == 2  # type: ignore[union-attr]
    assert _log(place).read_bytes() == whole[:-1]
    assert store.append("a", user("2"), id="once").seq == 2
    store.append("a", user("3"))
    assert _log(place).read_bytes().startswith(whole)
    assert _told(opened()) == ["1", "2", "3"]


@pytest.mark.rule("C1", "L3")
def test_a_last_batch_that_lacks_its_newline_counts_wholly(opened: Open, place: Path) -> None:
    with opened() as store:
        store.append("a", user("1"), create=True)
        store.extend("a", users("2", "3", "4"))
    _log(place).write_bytes(_log(place).read_bytes()[:-1])
    store = opened(disk=Rebooted())
    assert _told(store) == ["1", "2", "3", "4"]
    assert store.head("a").messages == 4
    assert _listed(store) == {"a": (4, "4")}


@pytest.mark.rule("C2", "C3")
def test_a_sound_long_session_is_read_from_any_place(opened: Open, place: Path) -> None:
    """Places in the middle of a long log come from the catalog; without it the answers are the same."""
    with opened() as store:
        with store.create("a") as session:
            for n in range(1, 401):
                session.append(user(f"{n} " + "x" * 1000), id=f"id {n}", durable=False)
    for ruin in (False, True):
        if ruin:
            (place / "catalog.db").unlink()
        view = opened().read("a")
        for seq in (1, 63, 64, 65, 200, 399, 400):
            assert view.get(seq).id == view.get(f"id {seq}").id == f"id {seq}"  # type: ignore[union-attr]
            assert [record.seq for record in view.records(after=seq, limit=3)] == [
                n for n in (seq + 1, seq + 2, seq + 3) if n <= 400
            ]
            assert [record.seq for record in view.records(before=seq, limit=3, reverse=True)] == [
                n for n in (seq - 1, seq - 2, seq - 3) if n >= 0
            ]
        assert view.damage == []


# -- what is not ours


@pytest.mark.rule("C4")
def test_files_that_are_not_ours_are_never_imported_changed_or_deleted(opened: Open, place: Path) -> None:
    expected = _three(opened)
    session_line = _log(place, "s1").read_bytes()
    foreign = {
        "notes.txt": b"mine",
        "sessions/README.md": b"mine",
        "sessions/s1.jsonl.bak": session_line,
        "sessions/Copy of s1.jsonl": session_line,
        "sessions/S1.jsonl": session_line,
        "sessions/transcript.jsonl": b'{"type":"user","message":"of another program"}\n' * 9,
        "sessions/empty.jsonl": b"",
        "sessions/s1.json": b"{}",
        "sessions/.hidden.jsonl": session_line,
        "sessions/x=~00.jsonl": b"nothing of ours",
        "locks/My notes.lock": b"mine",
        "locks/README": b"mine",
        "names/notes.txt": b"mine",
    }
    for name, content in foreign.items():
        (place / name).write_bytes(content)
    (place / "sessions" / "folder.jsonl").mkdir()
    (place / "sessions" / "link.jsonl").symlink_to(place / "notes.txt")
    (place / "catalog.db").unlink()
    store = opened()
    assert _listed(store) == expected
    store.locks()
    findings = store.doctor().findings
    store.append("s1", user("more"))
    store.delete("s2")
    store.close()
    for name, content in foreign.items():
        assert (place / name).read_bytes() == content, name
    assert (place / "sessions" / "link.jsonl").is_symlink()
    told = " ".join(found.place for found in findings)
    for name in ("notes.txt", "README.md", "s1.jsonl.bak", "Copy of s1.jsonl", "transcript.jsonl"):
        assert name in told, name


@pytest.mark.rule("C4")
def test_a_log_under_the_name_of_another_session_is_not_taken_for_it(opened: Open, place: Path) -> None:
    expected = _three(opened)
    shutil.copy(_log(place, "s1"), _log(place, "other"))
    shutil.copy(_log(place, "s1"), _log(place, "y" * 300))
    before = _log(place, "other").read_bytes()
    (place / "catalog.db").unlink()
    store = opened()
    assert _listed(store) == expected
    for call in (
        lambda: store.read("other"),
        lambda: store.append("other", user("x")),
        lambda: store.append("other", user("x"), create=True),
        lambda: store.open("other"),
        lambda: store.create("other", eager=True),
    ):
        with pytest.raises((Damaged, AlreadyExists)):
            call()
    assert _log(place, "other").read_bytes() == before
    assert "unreadable" in _kinds(store, "other")
    assert store.locks() == []


@pytest.mark.rule("C4")
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\0" * 50, b'{"names":[]}', b"\xff"])
def test_names_that_cannot_be_understood_are_set_aside_and_the_caller_is_told(
    opened: Open, place: Path, content: bytes
) -> None:
    with opened() as store:
        store.append("a", user("x"), create=True)
        store.activate("a")
    (place / "names" / "active.json").write_bytes(content)
    store = opened()
    with pytest.raises(Damaged, match="names 'active'"):
        store.active()
    assert (place / "names" / "active.json").read_bytes() == content
    with pytest.warns(HansardWarning, match="set aside"):
        store.activate("a")
    assert store.active() == "a"
    (aside,) = (place / "aside").iterdir()
    assert "active.json" in aside.name
    assert aside.read_bytes() == content


@pytest.mark.rule("C4", "I5")
def test_what_a_crash_left_of_a_whole_file_is_written_over(opened: Open, place: Path) -> None:
    store = opened()
    store.append("a", user("x"), create=True)
    left = place / "names" / "active.json~tmp"
    left.write_bytes(b"half of a longer file than the one that is written now" * 9)
    store.activate("a")
    assert opened().active() == "a"
    assert not left.exists()


# -- reading


@pytest.mark.rule("C5")
@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize("state", ["sound", "torn", "no newline", "damaged", "unborn"])
def test_reading_changes_nothing_on_disk_but_the_catalog(
    opened: Open, place: Path, readonly: bool, state: str
) -> None:
    _written(opened, place)
    data = _log(place).read_bytes()
    changed = {
        "sound": data,
        "torn": data[:-50],
        "no newline": data[:-1],
        "damaged": data.replace(b"three", b"thrae"),
        "unborn": data[:30],
    }
    _log(place, "a").write_bytes(changed[state])
    with opened() as store:
        store.append("b", user("x"), create=True)
    (place / "catalog.db").unlink()
    before = _tree(place)
    store = opened(readonly=readonly)
    for id in ("a", "b"):
        try:
            view = store.read(id)
        except SessionNotFound:
            assert state == "unborn"
            continue
        view.history(repair=True)
        list(view.records(reverse=True))
        view.get("once")
        view.usage(by="model")
        store.head(id)
    store.list()
    store.latest()
    store.active()
    store.locks()
    store.doctor()
    with pytest.raises(SessionNotFound):
        store.resolve("nothing")
    store.close()
    assert _tree(place) == before


# -- many


@pytest.mark.rule("L1", "C3")
def test_two_hundred_sessions_are_listed_page_by_page_while_others_are_written(world: World) -> None:
    store = world.store()
    ids = [f"s{n:03}" for n in range(200)]
    for id in ids:
        store.append(id, user(f"in {id}"), create=True)
    with world.beside(_add_on) as other:
        other.hear()
        found = [head.id for head in iterate(store, limit=7) if not head.id.startswith("new")]
        other.kill()
    assert found == ids[::-1]
    assert len(os.listdir("/proc/self/fd") if sys.platform == "linux" else []) < OPEN_FILES + 60
    for id in ids:
        store.append(id, user("more"), durable=False)
    listed = _listed(world.other())
    assert all(listed[id] == (2, "more") for id in ids)
    assert not store.doctor()


def _add_on(store: Store) -> None:
    """In another process: creates sessions until it is killed."""
    n = 0
    while True:
        store.append(f"new {n}", user("x"), create=True)
        n += 1
        if n == 1:
            say()


# -- lock files


def _locks(place: Path) -> list[str]:
    return sorted(path.name for path in (place / "locks").glob("*.lock"))


def _plant(place: Path, content: bytes, id: str = "a") -> None:
    """What a holder that died has left."""
    (place / "locks" / f"{file_key(id)}.lock").write_bytes(content)


def _holder(**about: Any) -> bytes:
    here = {
        "host": Disk().process()["host"],
        "user": "somebody",
        "command": "agent",
        "since": datetime.now(UTC),
    }
    return msgspec.json.encode(Holder(session="a", **{**here, **about}))


def _dead() -> int:
    """The number of a process that is gone."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


LEFT: dict[str, Callable[[], bytes]] = {
    "a dead process": lambda: _holder(pid=_dead(), started="1"),
    "a reused pid": lambda: _holder(pid=os.getpid(), started="1"),
    "a live process that let go": lambda: _holder(**Disk().process()),
    "another host": lambda: _holder(pid=1, host="elsewhere"),
    "nothing": lambda: b"",
    "garbage": lambda: b"\xff{" * 3000,
    "a number": lambda: b"4711\n",
    "a huge pid": lambda: _holder(pid=2**70),
    "NULs": lambda: b"\0" * 100,
}


@pytest.mark.rule("S2", "S3")
@pytest.mark.parametrize("left", LEFT)
def test_a_lock_file_that_nobody_holds_is_in_nobodys_way(opened: Open, place: Path, left: str) -> None:
    store = opened()
    store.append("a", user("x"), create=True)
    _plant(place, LEFT[left]())
    with store.open("a"):
        with pytest.raises(SessionBusy) as caught:
            opened().open("a")
        assert caught.value.holder.pid == os.getpid()
    assert _locks(place) == []


@pytest.mark.rule("S1", "S3")
@pytest.mark.parametrize("left", ["a dead process", "a reused pid", "nothing", "garbage", "a huge pid"])
def test_whatever_a_lock_file_says_the_kernels_lock_decides(opened: Open, place: Path, left: str) -> None:
    store = opened()
    store.append("a", user("x"), create=True)
    with store.open("a") as session:
        path = place / "locks" / "a.lock"
        inode = path.stat().st_ino
        path.write_bytes(LEFT[left]())
        assert path.stat().st_ino == inode
        other = opened()
        with pytest.raises(SessionBusy, match="'a'"):
            other.open("a")
        assert [holder.session for holder in other.locks()] == ["a"]
        session.append(user("still"))
    assert _locks(place) == []


@pytest.mark.rule("S2", "S3")
def test_contenders_for_a_lock_file_that_was_left_have_just_one_winner_each_round(
    world: World, place: Path, request: pytest.FixtureRequest
) -> None:
    world.store().append("a", user("x"), create=True)
    contenders = [world.begin(contend) for _ in range(12)]
    contents = [LEFT[left]() for left in ("a dead process", "a reused pid", "nothing", "garbage")]
    for n in range(rounds(request)):
        _plant(place, contents[n % len(contents)])
        one_winner(contenders, "a", n)
    assert _locks(place) == []


@pytest.mark.rule("S5")
def test_a_lock_file_goes_with_the_lease_and_not_with_a_loser(opened: Open, place: Path) -> None:
    store = opened()
    store.append("a", user("x"), create=True)
    session = store.open("a")
    (name,) = _locks(place)
    assert name == "a.lock"
    before = (place / "locks" / name).stat()
    with opened() as loser:
        with pytest.raises(SessionBusy):
            loser.open("a")
    assert (place / "locks" / name).stat().st_ino == before.st_ino
    session.close()
    assert _locks(place) == []


class Overtaken(Disk):
    """A disk on which something happens once, just before a lock is asked for, something is written or a file
    is replaced."""

    before_lock: Callable[[], object] | None = None
    before_writing: Callable[[], object] | None = None
    before_replacing: Callable[[], object] | None = None

    def lock(self, fd: int, *, shared: bool = False) -> bool:
        happens, self.before_lock = self.before_lock, None
        if happens is not None:
            happens()
        return super().lock(fd, shared=shared)

    def put(self, fd: int, data: bytes) -> int:
        happens, self.before_writing = self.before_writing, None
        if happens is not None:
            happens()
        return super().put(fd, data)

    def replace(self, path: str, data: bytes, *, beside: str | None = None) -> None:
        happens, self.before_replacing = self.before_replacing, None
        if happens is not None:
            happens()
        super().replace(path, data, beside=beside)


@pytest.mark.rule("S1", "S2")
def test_the_lock_of_a_lock_file_that_was_given_back_meanwhile_is_no_lease(opened: Open) -> None:
    store, other, disk = opened(), opened(), Overtaken()
    store.append("a", user("x"), create=True)
    late = opened(disk=disk)
    late.head("a")
    session = store.open("a")
    held: list[Session] = []

    def given_back_and_taken_by_another() -> None:
        session.close()
        held.append(other.open("a"))

    disk.before_lock = given_back_and_taken_by_another
    with pytest.raises(SessionBusy):
        late.open("a")
    held[0].append(user("alone"))
    held[0].close()
    late.open("a").close()


@pytest.mark.rule("W2", "W10")
@pytest.mark.parametrize("how", ["vacuumed", "deleted"])
def test_who_waits_for_the_lock_of_a_log_that_is_replaced_meanwhile_does_not_write_to_the_old_one(
    opened: Open, how: str
) -> None:
    store, disk = opened(), Overtaken()
    with store.create("a") as session:
        session.extend(users(*"xyz"))
        session.checkpoint(users("so far"))
    late = opened(disk=disk)
    late.append("a", user("1"))
    if how == "vacuumed":
        disk.before_lock = lambda: store.vacuum("a", drop_history=True)
        late.append("a", user("2"))
        assert _told(store) == _told(late) == ["so far", "1", "2"]
    else:
        disk.before_lock = lambda: store.delete("a")
        with pytest.raises(SessionNotFound):
            late.append("a", user("2"))


@pytest.mark.rule("W1", "W2", "W9")
@pytest.mark.parametrize("begun", [True, False], ids=["begun", "not begun"])
def test_who_writes_to_a_log_waits_for_who_is_about_to_write_there(opened: Open, begun: bool) -> None:
    store, disk = opened(), Overtaken()
    late = opened(disk=disk)
    store.append("a" if begun else "other", user("first"), create=True)
    late.list()
    other = threading.Thread(target=lambda: store.append("a", user("theirs"), create=True))

    def meanwhile() -> None:
        other.start()
        other.join(0.2)  # it must not come to an end

    disk.before_writing = meanwhile
    late.append("a", user("mine"), create=True)
    other.join()
    assert _told(opened()) == _told(store) == _told(late) == ["first", "mine", "theirs"][not begun :]
    assert _kinds(store) == []


@pytest.mark.rule("W2")
def test_who_changes_a_state_waits_for_who_is_about_to_write_it(opened: Open) -> None:
    store, disk = opened(), Overtaken()
    late = opened(disk=disk)
    late.state("settings").set("before", True)
    other = threading.Thread(target=lambda: store.state("settings").set("theirs", 1))

    def meanwhile() -> None:
        other.start()
        other.join(0.2)  # it must not come to an end

    disk.before_replacing = meanwhile
    late.state("settings").set("mine", 2)
    other.join()
    assert store.state("settings").all() == {"before": True, "theirs": 1, "mine": 2}


@pytest.mark.rule("S5")
def test_sweeping_takes_away_what_the_dead_left_and_nothing_else(opened: Open, place: Path) -> None:
    store, other = opened(), opened()
    store.append("a", user("x"), create=True)
    with store.open("a"):
        for id, left in (("b", "a dead process"), ("c", "garbage"), ("D/e", "nothing")):
            _plant(place, LEFT[left](), id)
        assert [holder.session for holder in other.locks()] == ["a"]
        assert _locks(place) == ["a.lock"]
        with pytest.raises(SessionBusy):
            other.open("a")


def _alive_as_nobody(store: Store, pid: int) -> bool:
    if os.geteuid() == 0:
        os.setuid(65534)
    return Disk().alive(pid, None)


@pytest.mark.rule("S3")
def test_a_live_process_of_another_user_is_alive(world: World) -> None:
    assert world.elsewhere(_alive_as_nobody, 1) is True


@pytest.mark.rule("S3")
def test_a_process_is_alive_until_it_is_gone_and_another_with_its_number_is_not_it() -> None:
    disk = Disk()
    mine = disk.process()
    assert disk.alive(mine["pid"], mine["started"])
    assert disk.alive(mine["pid"], None)
    assert not disk.alive(mine["pid"], "long ago")
    assert not disk.alive(_dead(), None)


# -- clocks


@pytest.mark.rule("L1")
def test_a_list_is_ordered_alike_with_and_without_the_catalog_whatever_the_clocks_did(
    opened: Open, place: Path
) -> None:
    noon = datetime(2026, 5, 1, 12, tzinfo=UTC)
    chance = random.Random(3)
    moments = [noon + timedelta(days=chance.choice([-4000, -1, 0, 0.5, 0.9, 1.1, 400])) for _ in range(30)]

    def listed(now: datetime) -> list[str]:
        store = Store(Files(str(place)), clock=lambda: now)
        try:
            return [head.id for head in iterate(store, limit=4)]
        finally:
            store.close()

    for n, moment in enumerate(moments):
        with Store(Files(str(place)), clock=lambda now=moment: now) as store:  # type: ignore[misc]
            store.append(f"s{n}", user("x"), create=True, durable=False)
            store.append(f"s{n}", user("y"), time=chance.choice([None, noon]), durable=False)
    for now in (noon, noon + timedelta(days=1000), noon - timedelta(days=9000)):
        first = listed(now)
        assert sorted(first) == sorted(f"s{n}" for n in range(30))
        (place / "catalog.db").unlink()
        assert listed(now) == first


# -- the end


@pytest.mark.rule("E9")
def test_a_store_that_was_closed_leaves_an_exact_catalog_and_no_lock(opened: Open, place: Path) -> None:
    expected = _three(opened)
    assert _locks(place) == []
    db = sqlite3.connect(f"file:{place / 'catalog.db'}?mode=ro", uri=True)
    rows = db.execute("SELECT id, length, open FROM sessions ORDER BY id").fetchall()
    db.close()
    assert rows == [(id, _log(place, id).stat().st_size, 0) for id in sorted(expected)]


@pytest.mark.rule("E9")
def test_nothing_is_left_open_by_a_store_that_was_closed(opened: Open, place: Path) -> None:
    if sys.platform != "linux":
        folder = "/dev/fd"
    else:
        folder = "/proc/self/fd"
    before = len(os.listdir(folder))
    store = opened()
    for n in range(5):
        with store.create(f"s{n}") as session:
            session.extend(users("1", "2"))
    next(store.read("s1").records())
    store.list()
    store.close()
    assert len(os.listdir(folder)) == before


@pytest.mark.rule("W10", "C4")
def test_a_session_deleted_by_hand_is_gone_for_an_open_handle(opened: Open, place: Path) -> None:
    store = opened()
    with store.create("a") as session:
        session.append(user("1"))
        _log(place).unlink()
        with pytest.raises(SessionNotFound):
            session.append(user("2"))
        with pytest.raises(SessionNotFound):
            session.history()
    assert not _log(place).exists()


@pytest.mark.rule("C3")
def test_a_line_that_another_program_appended_rightly_is_a_record(opened: Open, place: Path) -> None:
    """The format is enough: whoever follows it may write."""
    store = opened()
    store.append("a", user("1"), create=True)
    before = store.head("a")
    seq, state = last(_log(place).read_bytes()) or (0, 0)
    draft = Draft(kind="message", data=msgspec.Raw(b'{"role":"user","content":"2"}'), at=datetime.now(UTC))
    with _log(place).open("ab") as log:
        log.write(frame([draft], seq + 1, state)[0])
    assert _told(store) == ["1", "2"]
    assert store.append("a", user("3"), expect=2).seq == 3
    assert store.head("a").messages == before.messages + 2


# -- what comes in between


@pytest.mark.rule("L3", "C3")
def test_a_fold_that_is_interrupted_counts_nothing_twice(
    opened: Open, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened() as store:
        store.extend("a", users(*"abcdef"), create=True)
    (place / "catalog.db").unlink()
    store = opened()
    advance = heads.advance_all

    def interrupted(head: Head, records: Sequence[Record]) -> None:
        advance(head, records[:3])
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(heads, "advance_all", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.head("a")
    assert store.head("a").messages == 6
    assert store.list()[0].messages == 6
    assert not store.doctor()


@pytest.mark.rule("C3")
def test_an_old_catalog_that_somebody_brings_back_is_known_for_one_until_it_was_compared(
    opened: Open, place: Path
) -> None:
    with opened() as store:
        store.append("a", user("a"), create=True)
        store.list()
    shutil.copy(place / "catalog.db", place.parent / "copy")
    with opened() as store:
        store.append("b", user("b"), create=True)
        store.list()
    shutil.copy(place.parent / "copy", place / "catalog.db")
    for look in (lambda store: store.head("a"), lambda store: store.append("a", user("more"))):
        with opened() as store:
            look(store)  # no list, so nothing is compared
    assert set(_listed(opened())) == {"a", "b"}


def _sessions_elsewhere(store: Store) -> list[str]:
    return sorted(head.id for head in store.list())


@pytest.mark.rule("E9", "C3")
def test_a_child_that_opens_the_store_anew_has_a_catalog_of_its_own(world: World, place: Path) -> None:
    """SQLite knows by process what it has locked, and a forked child has what its parent knew."""
    store = world.store()
    store.append("a", user("a"), create=True)
    store.list()
    to_child, to_parent = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            os.close(to_child[1])  # else it would wait for ever for a parent that is gone
            own = hansard.open(place)
            own.list()
            os.write(to_parent[1], b".")
            os.read(to_child[0], 1)  # the parent has closed its store
            for i in range(3):
                own.append(f"child{i}", user("x"), create=True)
            os.write(to_parent[1], b".")
            os.read(to_child[0], 1)
        os._exit(0)
    os.read(to_parent[0], 1)
    world.close()
    with World(Files, str(place)) as other:
        assert other.elsewhere(_sessions_elsewhere) == ["a"]
        os.write(to_child[1], b".")
        os.read(to_parent[0], 1)
        everything = ["a", "child0", "child1", "child2"]
        assert other.elsewhere(_sessions_elsewhere) == everything
        os.write(to_child[1], b".")
        os.waitpid(pid, 0)
        assert other.elsewhere(_sessions_elsewhere) == everything
    for fd in (*to_child, *to_parent):
        os.close(fd)


@pytest.mark.rule("C3", "W4")
def test_many_write_while_the_catalog_cannot_be_used(opened: Open, place: Path) -> None:
    with opened() as store:
        store.append("a", user("a"), create=True)
    locked = sqlite3.connect(place / "catalog.db", isolation_level=None)
    locked.execute("PRAGMA locking_mode = EXCLUSIVE")
    locked.execute("BEGIN EXCLUSIVE")
    stores, failed = [opened() for _ in range(4)], []

    def write(store: Store, id: str) -> None:
        for i in range(25):
            try:
                store.append(id, user(f"{i}"), create=True)
            except HansardError as error:
                failed.append(error)

    threads = [threading.Thread(target=write, args=(store, f"s{n}")) for n, store in enumerate(stores)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    locked.close()
    assert not failed
    assert not list(place.glob("*~tmp"))
    assert {f"s{n}": 25 for n in range(4)}.items() <= {
        head.id: head.messages for head in opened().list()
    }.items()


@pytest.mark.rule("W4")
def test_a_signal_handler_does_not_wait_for_who_waits_for_its_own_thread(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened()
    store.append("a", user("a"), create=True)
    refused = []

    def handler(catalog: Catalog) -> list[tuple[str, float]]:  # as if a signal came in the middle of a list
        with pytest.raises(SessionBusy, match="interrupted"):
            store.append("a", user("b"))
        refused.append(True)
        return []

    with monkeypatch.context() as patched:
        patched.setattr(Catalog, "open_ids", handler)
        store.list()
    assert refused
    assert store.append("a", user("b")).seq == 2


# -- what is not ours, or not as we would write it


@pytest.mark.rule("C2", "C3")
def test_a_record_that_is_nested_deeper_than_anybody_reads_is_damage(opened: Open, place: Path) -> None:
    with opened() as store:
        for id in ("a", "b"):
            store.append(id, user("a"), create=True)
    log = _log(place)
    raw = log.read_bytes()
    body = b'{"kind":"message","data":%s,"at":"2026-05-01T12:00:00Z","seq":2' % (b"[" * 5000 + b"]" * 5000)
    log.write_bytes(raw + seal(body + b"}", state_after(raw[-19:]) or 0)[0])
    (place / "catalog.db").unlink()
    store = opened()
    assert set(_listed(store)) == {"a", "b"}
    assert _told(store) == ["a"]
    assert store.append("a", user("b")).seq == 2
    assert {finding.kind for finding in store.doctor().findings} <= {"aside", "damage"}


@pytest.mark.rule("C4", "C3")
@pytest.mark.parametrize("name", ["x=~y.jsonl", "foo.jsonl"])
@pytest.mark.parametrize("what", ["folder", "link", "pipe"])
def test_what_is_no_file_is_no_log_and_stays(opened: Open, place: Path, name: str, what: str) -> None:
    with opened() as store:
        store.append("a", user("a"), create=True)
    (place / "catalog.db").unlink()
    path = place / "sessions" / name
    {"folder": path.mkdir, "link": lambda: path.symlink_to("nowhere"), "pipe": lambda: os.mkfifo(path)}[
        what
    ]()
    store = opened()
    assert set(_listed(store)) == {"a"}
    assert {finding.kind for finding in store.doctor().findings} == {"foreign"}
    with pytest.raises((StoreUnavailable, SessionNotFound)):
        store.append("foo", user("x"))
    if name == "foo.jsonl":
        with pytest.raises(StoreUnavailable, match="Move it"):
            store.append("foo", user("x"), create=True)
    assert os.path.lexists(path)
    assert set(_listed(store)) == {"a"}


@pytest.mark.rule("C4")
def test_who_takes_over_a_file_that_is_none_of_ours_is_told(opened: Open, place: Path) -> None:
    store = opened()
    notes = place / "sessions" / "notes.jsonl"
    notes.write_text("shopping: milk\n")
    with pytest.warns(HansardWarning, match="foreign"):
        store.append("notes", user("x"), create=True)
    assert [path.read_text() for path in (place / "aside").iterdir()] == ["shopping: milk\n"]
    assert _told(store, "notes") == ["x"]


@pytest.mark.rule("C5")
def test_a_store_that_somebody_begins_at_the_same_moment_is_a_store(place: Path) -> None:
    class Slow(Disk):
        def names(self, folder: str) -> list[str]:
            if folder == str(place) and not (place / "hansard.json").exists():
                Files(str(place)).close()  # in between two looks
            return super().names(folder)

    Store(Files(str(place), disk=Slow())).close()


@pytest.mark.rule("C4")
@pytest.mark.parametrize("facts", ['{"format":0,"store":"x"}', '{"format":-5,"store":"x"}', "[" * 100_000])
def test_what_no_version_writes_is_left_as_it_is(opened: Open, place: Path, facts: str) -> None:
    opened().close()
    (place / "hansard.json").write_text(facts)
    with pytest.raises(Damaged, match=r"hansard\.json"):
        Files(str(place))
    assert (place / "hansard.json").read_text() == facts


@pytest.mark.rule("S1")
def test_all_locks_may_be_tidied_up_while_nobody_works(opened: Open, place: Path) -> None:
    with opened() as store:
        store.append("a", user("a"), create=True)
    shutil.rmtree(place / "locks")
    store = opened()
    with store.open("a") as session:
        session.append(user("b"))
    assert _told(store) == ["a", "b"]


@pytest.mark.rule("E3", "W10")
def test_documents_that_a_deletion_left_do_not_come_back(opened: Open, place: Path) -> None:
    store = opened()
    with store.create("a") as session:
        session.append(user("x"))
        session.documents.put("screen", b"what is seen")
    _log(place).unlink()  # and then its process was killed
    with opened().create("a") as session:
        session.append(user("another"))
        assert session.documents.list() == []
        assert session.documents.get("screen") is None
    assert _kinds(store) == []


@pytest.mark.rule("E4", "C3")
def test_a_session_whose_child_cannot_be_deleted_stays(opened: Open, place: Path) -> None:
    disk = Trouble()
    store = opened(disk=disk)
    with store.create("a") as session:
        session.append(user("x"))
        with session.sub("research") as child:
            child.append(user("y"))
            name = child.id
    disk.refuse("unlink", path=f"{name}.jsonl", times=1)
    with pytest.raises(StoreUnavailable):
        store.delete("a")
    assert [head.id for head in opened().read("a").subs()] == [name]
    assert store.delete("a")
    assert list((place / "sessions").iterdir()) == []


@pytest.mark.rule("E9", "S5")
def test_a_store_closes_all_its_sessions_though_one_of_them_fails(opened: Open, place: Path) -> None:
    store, other = opened(), opened()
    held = [store.create(id) for id in ("a", "b", "c")]
    for session in held:
        session.append(user(session.id))
    log = _log(place, "b")
    raw = _log(place, "a").read_bytes()
    log.unlink()
    log.write_bytes(raw)
    with pytest.raises(Damaged):
        store.close()
    assert other.locks() == []
    other.open("c").close()


@pytest.mark.rule("E9")
def test_who_has_read_to_the_end_leaves_no_file_open(opened: Open) -> None:
    store = opened()
    store.extend("a", users(*"abc"), create=True)
    disk = store._engine.disk  # type: ignore[attr-defined]
    store.read("a").history()
    before = len(disk._open)
    found = store.read("a").records()
    list(found)
    assert len(disk._open) == before  # though somebody refers to it still


# -- blobs


@pytest.mark.rule("E10", "C3")
@pytest.mark.parametrize("catalog", [True, False], ids=["with", "without"])
@pytest.mark.parametrize("how", ["damaged", "newer"])
def test_where_a_session_cannot_be_read_no_blob_is_swept(
    opened: Open, place: Path, how: str, catalog: bool
) -> None:
    with opened() as store:
        digest = store.blobs.put(b"a picture")
        store.append("a", user("look"), create=True, blobs=[digest])
        store.append("a", user("on"))
    log = _log(place)
    if how == "damaged":
        log.write_bytes(log.read_bytes().replace(b"look", b"l\xffok"))
    else:
        raw = log.read_bytes()
        body = b'{"kind":"!future","data":1,"at":"2026-05-01T12:00:00Z","seq":3}'
        log.write_bytes(raw + seal(body, state_after(raw[-19:]) or 0)[0])
    if not catalog:
        (place / "catalog.db").unlink()
    later = opened(clock=lambda: datetime.now(UTC) + timedelta(days=9))
    with pytest.raises((Damaged, NewerFormat)):
        later.blobs.sweep()
    assert later.blobs.get(digest) == b"a picture"


@pytest.mark.rule("E10", "W4")
def test_the_same_bytes_put_again_mend_a_blob(opened: Open, place: Path) -> None:
    store = opened()
    digest = store.blobs.put(b"a picture")
    path = next(path for path in (place / "blobs").glob("*/*") if path.name == digest)
    path.write_bytes(b"a pixture")
    with pytest.raises(Damaged, match="put the same bytes again"):
        store.blobs.get(digest)
    assert store.blobs.put(b"a picture") == digest
    assert store.blobs.get(digest) == b"a picture"


# -- what is done with what cannot be read


@pytest.mark.rule("W10")
@pytest.mark.parametrize("first", [b'"format":99', b'"format":0'])
def test_a_session_that_cannot_be_read_can_be_deleted(opened: Open, place: Path, first: bytes) -> None:
    with opened() as store:
        store.append("a", user("a"), create=True)
    raw = _log(place).read_bytes().split(b"\n")
    line, _ = seal(raw[0].replace(b'"format":1', first)[: -len(b',"sum":"01234567"}')] + b"}", 0)
    _log(place).write_bytes(line)
    (place / "catalog.db").unlink()
    store = opened()
    with pytest.raises((NewerFormat, Damaged)):
        store.head("a")
    assert store.delete("a")
    assert not _log(place).exists()
    assert not store.delete("a")


@pytest.mark.rule("L5")
def test_a_session_whose_documents_cannot_be_listed_does_not_keep_the_others(
    opened: Open, place: Path
) -> None:
    now = datetime.now(UTC)
    store = opened(clock=lambda: now)
    for id in ("a", "b", "c"):
        store.append(id, user(id), create=True)
    (place / "documents").mkdir(exist_ok=True)
    (place / "documents" / "b").write_text("no folder")
    now += timedelta(days=9)
    done = store.cleanup(older_than=timedelta(days=1))
    assert sorted(done.ids) == ["a", "c"]
    assert [kept.id for kept in done.failed] == ["b"]


@pytest.mark.rule("C4")
def test_doctor_finds_names_state_and_documents_that_say_nothing(opened: Open, place: Path) -> None:
    store = opened()
    with store.create("a") as session:
        session.append(user("a"))
        session.documents.put("screen", b"one")
    store.names.set("agent/x", "a")
    store.state("settings").set("theme", "dark")
    assert not store.doctor()
    for path in ("names/agent.json", "state/settings.json", "documents/a/screen"):
        (place / path).write_bytes(b"[" * 10_000)
    found = [finding for finding in store.doctor().findings if finding.kind == "document"]
    assert [finding.place for finding in found] == ["names/agent", "state/settings", "documents/a/screen"]
    with pytest.raises(Damaged):
        store.state("settings").get("theme")
    with pytest.warns(HansardWarning):
        store.state("settings").set("theme", "light")
    assert [f.place for f in store.doctor().findings if f.kind == "document"] == [
        "names/agent",
        "documents/a/screen",
    ]


@pytest.mark.rule("C5")
def test_who_only_reads_mends_nothing(opened: Open, place: Path) -> None:
    opened().append("a", user("a"), create=True)
    (place / "documents" / "gone").mkdir(parents=True)
    os.utime(place / "documents" / "gone", (0, 0))
    store = opened(readonly=True)
    with pytest.raises(ReadOnlyStore):
        store.doctor(repair=True)
    assert (place / "documents" / "gone").exists()
    assert [finding.kind for finding in store.doctor().findings] == ["leftover"]


@pytest.mark.rule("C4")
def test_a_foreign_file_is_no_leftover(opened: Open, place: Path) -> None:
    opened().append("a", user("a"), create=True)
    foreign = [place / "sessions" / "notes.tmp", place / "sessions" / "notes~tmp", place / "notes~tmp"]
    for path in foreign:
        path.write_text("mine")
        os.utime(path, (0, 0))
    found = opened().doctor(repair=True).findings
    assert {finding.kind for finding in found} == {"foreign"}
    assert [path.read_text() for path in foreign] == ["mine"] * 3


@pytest.mark.rule("C3")
@pytest.mark.filterwarnings("error")
def test_a_session_that_cannot_be_read_is_told_once_and_keeps_no_other_from_lists(
    opened: Open, place: Path
) -> None:
    with opened() as store:
        for id in ("a", "b"):
            store.append(id, user(id), create=True)
    first = _log(place).read_bytes().split(b"\n")[0].replace(b'"format":1', b'"format":9')
    _log(place).write_bytes(seal(first[: -len(b',"sum":"01234567"}')] + b"}", 0)[0])
    (place / "catalog.db").unlink()
    store = opened()
    with pytest.warns(HansardWarning, match="session 'a' cannot be read"):
        assert set(_listed(store)) == {"b"}
    assert set(_listed(store)) == {"b"}
