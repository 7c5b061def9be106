"""E3: bytes that belong to a session, each replaced whole."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from hansard.documents import Document
from hansard.engines import Shelf
from hansard.errors import (
    Closed,
    Conflict,
    Damaged,
    HansardError,
    InvalidId,
    InvalidPayload,
    ReadOnlyStore,
    SessionNotFound,
)
from hansard.session import Session, View
from hansard.store import Store
from hansard.testing.chat import count, texts, user
from hansard.testing.identity import INVALID, ODD
from hansard.testing.world import World, hear, say

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def _begun(world: World) -> Session:
    session = world.store().create("s")
    session.append(user("Hello"))
    return session


def _data(view: View, name: str) -> bytes | None:
    found = view.documents.get(name)
    return None if found is None else found.data


class _Clock:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


def _put(store: Store, id: str, name: str, text: str) -> str:
    with store.open(id, exclusive=False) as session:
        return session.documents.put(name, text.encode()).version


def _put_over_and_over(store: Store, id: str, name: str, size: int) -> None:
    with store.open(id, exclusive=False) as session:
        for i in range(1000):
            session.documents.put(name, bytes([i % 256]) * size)
            say(i)


def _append_then_put_and_wait(store: Store, id: str) -> None:
    with store.open(id) as session:
        session.append(user("b"), durable=False)
        session.documents.put("screen", b"x")
        say("done")
        hear()


@pytest.mark.rule("E3")
def test_a_document_is_what_was_put_last(world: World) -> None:
    with _begun(world) as session:
        assert session.documents.get("screen") is None
        for data in (b"", b"\x00\xff\n\n", b'{"nodes": []}', bytes(range(256)) * 5000, b"short"):
            told = session.documents.put("screen", data)
            assert told.data == data
            for view in (session, world.store().read("s"), world.other().read("s")):
                assert view.documents.get("screen") == told
        assert session.documents.list() == ["screen"]
    assert _data(world.reopened().read("s"), "screen") == b"short"


@pytest.mark.rule("E3")
def test_a_document_says_its_name_and_when_it_was_put(world: World) -> None:
    clock = _Clock()
    with world.store(clock=clock).create("s") as session:
        first = session.documents.put("screen", b"a")
        second = session.documents.put("screen", b"a")
        assert (first.name, first.expires) == ("screen", None)
        assert NOON < first.time < second.time <= clock.now
        assert first.version != second.version
    found = world.reopened().read("s").documents.get("screen")
    assert isinstance(found, Document)
    assert (found.time, found.version) == (second.time, second.version)


@pytest.mark.rule("E3")
@pytest.mark.parametrize("data", ["text", None, 7, ["a"], {"a": 1}], ids=repr)
def test_a_document_is_bytes(world: World, data: Any) -> None:
    store = world.store()
    with store.create("s") as session:
        with pytest.raises(TypeError):
            session.documents.put("screen", data)
        assert store.list(empty=True) == []
        session.documents.put("screen", bytearray(b"ab"))
        session.documents.put("other", memoryview(b"abcd")[::2])
        assert (_data(session, "screen"), _data(session, "other")) == (b"ab", b"ac")


@pytest.mark.rule("E3", "W7")
def test_a_document_does_not_change_with_the_buffer_that_it_came_from(world: World) -> None:
    with _begun(world) as session:
        buffer = bytearray(b"mine")
        told = session.documents.put("screen", buffer)
        buffer[:] = b"gone"
        assert told.data == _data(session, "screen") == b"mine"


@pytest.mark.rule("E3", "I2")
def test_names_of_documents_are_kept_apart_however_alike_they_are(world: World) -> None:
    with _begun(world) as session:
        for name in ODD:
            session.documents.put(name, name.encode())
        assert set(session.documents.list()) == set(ODD)
        assert session.documents.list() == sorted(ODD)
    view = world.reopened().read("s")
    assert view.documents.list() == sorted(ODD)
    assert {name: _data(view, name) for name in ODD} == {name: name.encode() for name in ODD}


HOSTILE = ["../../x", "../s", "/etc/passwd", "a/b", ".", "..", "con", "a\\b", "s.jsonl", "~", "%00"]


@pytest.mark.rule("E3", "I2")
@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_of_a_document_leads_elsewhere(world: World, name: str) -> None:
    store = world.store()
    store.append("other", user("stays"), create=True)
    with _begun(world) as session:
        session.documents.put(name, b"mine")
        assert session.documents.list() == [name]
        assert _data(session, name) == b"mine"
        assert texts(session.history()) == ["Hello"]
        assert session.documents.delete(name) is True
        assert session.documents.list() == []
    assert texts(world.reopened().read("other").history()) == ["stays"]


@pytest.mark.rule("E3", "I2", "W8")
@pytest.mark.parametrize("name", INVALID, ids=lambda name: ascii(name)[:20])
def test_a_name_that_no_id_may_have_is_refused_before_anything_is_written(world: World, name: Any) -> None:
    store = world.store()
    with store.create("s") as session:
        attempts: tuple[Callable[[], Any], ...] = (
            lambda: session.documents.put(name, b"x"),
            lambda: session.documents.get(name),
            lambda: session.documents.delete(name),
        )
        for attempt in attempts:
            with pytest.raises(InvalidId):
                attempt()
        assert store.list(empty=True) == []


@pytest.mark.rule("E3")
def test_documents_of_different_sessions_do_not_mix(world: World) -> None:
    store = world.store()
    for id in ("a", "A", "a/b", "a:b"):
        store.append(id, user("x"), create=True)
        with store.open(id) as session:
            session.documents.put("screen", id.encode())
    for id in ("a", "A", "a/b", "a:b"):
        assert _data(store.read(id), "screen") == id.encode()
        assert store.read(id).documents.list() == ["screen"]


@pytest.mark.rule("E3", "W8")
def test_putting_a_document_begins_the_session(world: World) -> None:
    store = world.store()
    with store.create("s", agent="coder") as session:
        assert session.documents.get("screen") is None
        assert session.documents.list() == []
        assert session.documents.delete("screen") is False
        assert store.list(empty=True) == []
        session.documents.put("screen", b"x")
        assert store.head("s").agent == "coder"
        assert count(session) == 1
    assert _data(world.reopened().read("s"), "screen") == b"x"


@pytest.mark.rule("E3")
def test_a_document_is_no_record_and_no_activity(world: World) -> None:
    with _begun(world) as session:
        before, n = session.head, count(session)
        session.documents.put("screen", b"x")
        session.documents.delete("screen")
        assert count(session) == n
        assert world.other().head("s") == before


@pytest.mark.rule("E3")
def test_a_document_is_deleted_and_can_be_put_again(world: World) -> None:
    with _begun(world) as session:
        session.documents.put("screen", b"x")
        session.documents.put("other", b"y")
        assert session.documents.delete("screen") is True
        assert session.documents.delete("screen") is False
        assert session.documents.get("screen") is None
        assert world.other().read("s").documents.list() == ["other"]
        session.documents.put("screen", b"again")
    assert _data(world.reopened().read("s"), "screen") == b"again"


@pytest.mark.rule("E3", "W6")
def test_a_document_that_somebody_else_replaced_is_replaced_only_by_who_has_seen_it(world: World) -> None:
    with _begun(world) as session, world.other().open("s", exclusive=False) as shared:
        first = session.documents.put("screen", b"1", expect="")
        second = shared.documents.put("screen", b"2", expect=first.version)
        for wrong in (first.version, "", "nothing"):
            with pytest.raises(Conflict):
                session.documents.put("screen", b"3", expect=wrong)
            assert session.documents.delete("screen", expect=wrong) is False
        assert session.documents.get("screen") == second
        assert session.documents.delete("screen", expect=second.version) is True
        with pytest.raises(Conflict):
            session.documents.put("screen", b"3", expect=second.version)
        session.documents.put("screen", b"3", expect="")
        assert _data(shared, "screen") == b"3"


@pytest.mark.rule("E3")
def test_a_reader_sees_a_whole_document_old_or_new(world: World) -> None:
    session = _begun(world)
    session.documents.put("screen", b"\0" * 70_000)
    seen: list[bytes] = []
    done = threading.Event()

    def work() -> None:
        with world.other().open("s", exclusive=False) as shared:
            for i in range(150):
                shared.documents.put("screen", bytes([i % 256]) * 70_000)
        done.set()

    writer = threading.Thread(target=work)
    writer.start()
    while not done.is_set():
        seen.append(_data(session, "screen") or b"")
    writer.join()
    assert {len(data) for data in seen} == {70_000}
    assert {len(set(data)) for data in seen} == {1}
    session.close()


@pytest.mark.rule("E3", "C1")
def test_a_writer_that_is_killed_leaves_a_whole_document(world: World) -> None:
    _begun(world).close()
    for _ in range(3):
        with world.beside(_put_over_and_over, "s", "screen", 200_000) as process:
            for _ in range(5):
                told = process.hear()
            process.kill()
        data = _data(world.store().read("s"), "screen")
        assert data is not None
        assert len(data) == 200_000
        assert len(set(data)) == 1
        assert data[0] >= told


@pytest.mark.rule("E3", "W3")
def test_what_the_session_said_before_is_there_with_the_document_after_a_crash(world: World) -> None:
    _begun(world).close()
    with world.beside(_append_then_put_and_wait, "s") as process:
        assert process.hear() == "done"
        process.kill()
    view = world.store().read("s")
    assert texts(view.history()) == ["Hello", "b"]
    assert _data(view, "screen") == b"x"


@pytest.mark.rule("E3", "W11")
def test_another_process_puts_documents_beside_the_holder(world: World) -> None:
    with _begun(world) as session:
        version = world.elsewhere(_put, "s", "screen", "theirs")
        found = session.documents.get("screen")
        assert found is not None
        assert (found.data, found.version) == (b"theirs", version)
        mine = session.documents.put("screen", b"mine", expect=version)
        assert world.elsewhere(_put, "s", "other", "x") != mine.version
        assert session.documents.list() == ["other", "screen"]


@pytest.mark.rule("E3")
def test_of_many_who_replace_what_they_have_seen_none_undoes_what_another_did(world: World) -> None:
    _begun(world).close()
    stores = [world.store(), world.store(), world.other(), world.other()]
    failed: list[BaseException] = []

    def work(store: Store) -> None:
        try:
            with store.open("s", exclusive=False) as session:
                for _ in range(10):
                    _increment(session)
        except HansardError as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert _data(stores[0].read("s"), "n") == b"40"


def _increment(session: Session) -> None:
    while True:
        found = session.documents.get("n")
        n, version = (0, "") if found is None else (int(found.data), found.version)
        try:
            session.documents.put("n", str(n + 1).encode(), expect=version)
        except Conflict:
            continue
        return


# -- expiry


@pytest.mark.rule("E3")
def test_a_document_is_gone_when_its_time_is_over(world: World) -> None:
    clock = _Clock()
    with world.store(clock=clock).create("s") as session:
        told = session.documents.put("in an hour", b"x", expires=HOUR)
        assert told.expires == told.time + HOUR
        local = (NOON + 2 * HOUR).astimezone(timezone(timedelta(hours=2)))
        assert session.documents.put("at two", b"y", expires=local).expires == NOON + 2 * HOUR
        session.documents.put("for ever", b"z")
        assert session.documents.get("in an hour") == told
        assert len(session.documents.list()) == 3
        clock.now = NOON + 1.5 * HOUR
        assert session.documents.get("in an hour") is None
        assert session.documents.list() == ["at two", "for ever"]
        assert world.other(clock=clock).read("s").documents.get("in an hour") is None
        clock.now = NOON + 2 * HOUR
        assert session.documents.list() == ["for ever"]
        clock.now = NOON + 1000 * HOUR
        assert _data(session, "for ever") == b"z"


@pytest.mark.rule("E3")
def test_what_has_expired_counts_as_not_there_for_who_puts_it_anew(world: World) -> None:
    clock = _Clock()
    with world.store(clock=clock).create("s") as session:
        session.documents.put("screen", b"old", expires=HOUR)
        with pytest.raises(Conflict):
            session.documents.put("screen", b"new", expect="")
        clock.now += 2 * HOUR
        told = session.documents.put("screen", b"new", expect="")
        assert told.expires is None
        clock.now += 1000 * HOUR
        assert session.documents.get("screen") == told


@pytest.mark.rule("E3", "W4")
def test_a_document_whose_time_means_no_moment_is_refused(world: World) -> None:
    with _begun(world) as session:
        for wrong in (datetime(2026, 5, 1), 7, "tomorrow"):
            with pytest.raises((ValueError, InvalidPayload)):
                session.documents.put("screen", b"x", expires=wrong)  # type: ignore[arg-type]
        assert session.documents.list() == []
        session.documents.put("screen", b"x", expires=-HOUR)
        assert session.documents.list() == []


# -- with the session


@pytest.mark.rule("E3", "W10")
def test_documents_are_deleted_with_their_session(world: World) -> None:
    store = world.store()
    with _begun(world) as session:
        session.documents.put("screen", b"x")
    assert store.delete("s")
    assert world.engine.documents(Shelf("documents", "s")) == []
    with _begun(world) as session:
        assert session.documents.list() == []
        assert session.documents.get("screen") is None


@pytest.mark.rule("E3", "W10", "W4")
@pytest.mark.parametrize("again", [False, True], ids=["deleted", "deleted and begun anew"])
@pytest.mark.parametrize("kind", ["leased", "shared", "view"])
def test_a_handle_of_a_deleted_session_has_no_documents(world: World, kind: str, again: bool) -> None:
    store, other = world.store(), world.other()
    with _begun(world) as session:
        session.documents.put("screen", b"old")
    handle: View
    handle = store.read("s") if kind == "view" else store.open("s", exclusive=kind == "leased")
    assert _data(handle, "screen") == b"old"
    assert other.delete("s")
    if again:
        other.append("s", user("new"), create=True)
        with other.open("s", exclusive=False) as theirs:
            theirs.documents.put("screen", b"theirs")
    attempts: list[Callable[[], Any]] = [
        lambda: handle.documents.get("screen"),
        handle.documents.list,
    ]
    if kind != "view":
        attempts += [
            lambda: handle.documents.put("screen", b"mine"),
            lambda: handle.documents.delete("screen"),
        ]
    for attempt in attempts:
        with pytest.raises(SessionNotFound):
            attempt()
    if isinstance(handle, Session):
        handle.close()
    if again:
        assert _data(other.read("s"), "screen") == b"theirs"
    else:
        assert other.list(empty=True) == []


@pytest.mark.rule("E3", "E9")
def test_a_closed_session_has_no_documents(world: World) -> None:
    session = _begun(world)
    documents = session.documents
    documents.put("screen", b"x")
    session.close()
    attempts: tuple[Callable[[], Any], ...] = (
        lambda: documents.put("screen", b"y"),
        lambda: documents.get("screen"),
        lambda: documents.delete("screen"),
        documents.list,
    )
    for attempt in attempts:
        with pytest.raises(Closed):
            attempt()
    assert _data(world.store().read("s"), "screen") == b"x"


@pytest.mark.rule("E3")
def test_a_view_reads_documents_and_writes_none(world: World) -> None:
    with _begun(world) as session:
        session.documents.put("screen", b"x")
    view = world.store().read("s")
    with pytest.raises(ReadOnlyStore):
        view.documents.put("screen", b"y")
    with pytest.raises(ReadOnlyStore):
        view.documents.delete("screen")
    assert _data(view, "screen") == b"x"


@pytest.mark.rule("E3", "C4")
def test_a_document_that_cannot_be_understood_is_said_to_be_so(world: World) -> None:
    with _begun(world) as session:
        good = session.documents.put("good", b"x")
        session.documents.put("screen", b"x" * 100)
        shelf = Shelf("documents", "s")
        raw, _ = world.engine.document(shelf, "screen") or (b"", "")
        for wrong in (raw[:-1], raw + b"x", raw.replace(b"xx", b"xy"), b"", b"{}\n", b"\xff\n", raw[10:]):
            world.engine.put_document(shelf, "screen", wrong)
            with pytest.raises(Damaged, match="screen"):
                session.documents.get("screen")
            assert session.documents.list() == ["good", "screen"]
            assert session.documents.get("good") == good


@pytest.mark.rule("E3")
def test_a_handle_that_gets_or_creates_sees_the_documents_of_who_was_quicker(world: World) -> None:
    with world.store().open("s", create=True, exclusive=False) as shared:
        other = world.other()
        other.append("s", user("a"), create=True)
        with other.open("s", exclusive=False) as theirs:
            theirs.documents.put("screen", b"theirs")
        assert shared.documents.list() == ["screen"]
        assert _data(shared, "screen") == b"theirs"


@pytest.mark.rule("E3", "I2")
def test_a_document_is_never_taken_for_one_that_is_being_written(world: World) -> None:
    with _begun(world) as session:
        for name in ("a.tmp", "a~tmp", "a"):
            session.documents.put(name, name.encode())
        session.documents.put("a", b"anew")
        assert session.documents.list() == ["a", "a.tmp", "a~tmp"]
        assert [_data(session, name) for name in ("a", "a.tmp", "a~tmp")] == [b"anew", b"a.tmp", b"a~tmp"]
    with world.store().fork("s", id="f") as fork:
        assert fork.documents.list() == ["a", "a.tmp", "a~tmp"]


@pytest.mark.rule("E3")
@pytest.mark.parametrize("lasts", [timedelta.max, timedelta(days=3_000_000)], ids=["max", "long"])
def test_a_document_may_last_longer_than_there_are_dates(world: World, lasts: timedelta) -> None:
    with _begun(world) as session:
        session.documents.put("a", b"x", expires=lasts)
        assert _data(session, "a") == b"x"
        session.documents.put("a", b"x", expires=timedelta.min)
        assert _data(session, "a") is None
