"""C1 to C5, as far as they hold on any engine: what is left after a crash, and what reading may not do."""

from __future__ import annotations

import pytest

from hansard.errors import ReadOnlyStore, SessionNotFound
from hansard.store import Store
from hansard.testing.chat import assistant, texts, user, users
from hansard.testing.world import World, hear, say

BIG = 50_000_000
"""Characters of a record that is far larger than any other."""


def _append_on(store: Store, id: str, durable: bool) -> None:
    """In another process: appends for ever, saying each time what is written by now."""
    with store.open(id) as session:
        n = 0
        while True:
            n += 1
            session.append(user(str(n)), durable=durable)
            say(n)


@pytest.mark.rule("C1", "W2", "W3", "S3")
@pytest.mark.parametrize("durable", [True, False])
def test_a_writer_that_is_killed_loses_nothing_that_was_acknowledged(world: World, durable: bool) -> None:
    store = world.store()
    store.append("a", user("0"), create=True)
    for killed_after in (1, 7, 40):
        before = store.head("a").messages
        with world.beside(_append_on, "a", durable) as writer:
            while writer.hear() < killed_after:
                pass
            writer.kill()
        read = texts(store.read("a").history())
        written = read[before:]
        assert len(written) >= killed_after
        assert written == [str(n + 1) for n in range(len(written))]
        assert store.append("a", user("after")).seq == len(read) + 1
        assert texts(store.read("a").history()) == [*read, "after"]
    assert not [found for found in store.doctor().findings if found.kind == "damage"]


def _extend_on(store: Store, id: str, n: int) -> None:
    with store.open(id, exclusive=False) as session:
        while True:
            session.extend(users(*["x" * 500] * n))
            say()


@pytest.mark.rule("C1", "W2")
def test_a_writer_that_is_killed_leaves_whole_batches(world: World) -> None:
    store = world.store()
    with store.create("a") as session:
        session.append(user("first"))
        for _ in range(3):
            with world.beside(_extend_on, "a", 50) as writer:
                writer.hear()
                seen = [len(session.history()) for _ in range(20)]
                writer.kill()
            assert {count % 50 for count in [*seen, len(session.history())]} == {1}
            assert session.head.messages == len(session.history())


def _create_on(store: Store) -> None:
    n = 0
    while True:
        n += 1
        session = store.create(f"s{n}", title=str(n), activate=False)
        session.extend([user("Hello"), assistant("Yes?")])
        say(n)


@pytest.mark.rule("C1", "C3", "L1")
def test_a_writer_that_is_killed_leaves_only_whole_sessions(world: World) -> None:
    store = world.store()
    with world.beside(_create_on) as writer:
        while writer.hear() < 10:
            pass
        writer.kill()
    listed = {head.id: head for head in store.list(limit=None, empty=True)}
    assert set(listed) == {f"s{n + 1}" for n in range(len(listed))}
    assert len(listed) >= 10
    for id, head in listed.items():
        assert (head.title, head.messages) in {(id[1:], 2), (id[1:], 0)}
        assert texts(store.read(id).history()) == ["Hello", "Yes?"][: head.messages]
    following = f"s{len(listed) + 1}"  # of which there may be a beginning that is no session
    with store.create(following) as session:
        session.append(user("taken over"))
    assert texts(store.read(following).history()) == ["taken over"]


def _write_and_wait(store: Store, id: str, exclusive: bool) -> None:
    with store.open(id, exclusive=exclusive) as session:
        session.append(user("2"), durable=False)
        say()
        hear()


@pytest.mark.rule("C1", "C3", "L3", "S3")
@pytest.mark.parametrize("exclusive", [True, False])
def test_a_list_is_right_after_a_writer_was_killed(world: World, exclusive: bool) -> None:
    store = world.store()
    with store.create("a") as session:
        session.append(user("1"))
    assert [(head.messages, head.preview) for head in store.list()] == [(1, "1")]
    with world.beside(_write_and_wait, "a", exclusive) as writer:
        writer.hear()
        writer.kill()
    for listed in (store.list(), world.other().list(), world.reopened().list()):
        assert [(head.messages, head.preview) for head in listed] == [(2, "2")]


def _seen_whole(store: Store, id: str, n: int) -> list[int]:
    """In another process: reads until it sees the end, and tells the sizes of the history that it saw."""
    seen = set()
    while True:
        found = len(store.read(id).history())
        seen.add(found)
        if found >= n:
            return sorted(seen)


@pytest.mark.rule("W2")
def test_readers_see_a_batch_wholly_or_not_at_all(world: World) -> None:
    store = world.store()
    with store.create("a") as session:
        session.append(user("first"))
        readers = [world.begin(_seen_whole, "a", 1001) for _ in range(2)]
        for _ in range(100):
            session.extend(users(*["x" * 300] * 10))
        for reader in readers:
            assert {count % 10 for count in reader.result()} == {1}


@pytest.mark.rule("C2")
def test_a_record_of_fifty_megabytes_is_stored_and_harms_no_neighbour(world: World) -> None:
    with world.store().create("a") as session:
        session.append(user("before"))
        session.append(user("x" * BIG))
        session.append(user("after"), id="once")
    store = world.reopened()
    view = store.read("a")
    assert [len(text) for text in texts(view.history())] == [len("before"), BIG, len("after")]
    found = view.get("once")
    assert found is not None
    assert found.data == user("after")
    assert texts(view.history(limit=1)) == ["after"]
    assert [record.seq for record in view.records(reverse=True, limit=1)] == [3]
    assert (store.head("a").messages, store.head("a").preview) == (3, "after")
    assert view.damage == []


@pytest.mark.rule("C2", "C3")
def test_a_sound_store_gives_the_doctor_nothing_to_find(world: World) -> None:
    store = world.store()
    assert not store.doctor()
    with store.create("a") as session:
        session.append(user("1"), id="once")
        session.extend(users("2", "3"))
        session.checkpoint(users("all"), summary="all")
        session.append(user("4"), durable=False)
        assert session.damage == []
        assert not store.doctor()
        assert not world.other().doctor()
    assert not store.doctor()
    assert not world.reopened().doctor()


@pytest.mark.rule("C5")
def test_reading_changes_no_session(world: World) -> None:
    store = world.store()
    with store.create("a") as session:
        session.extend(users("1", "2"))
    before = store.head("a"), list(store.read("a").records())
    view = store.read("a")
    view.history(repair=True)
    view.history(limit=1)
    list(view.records(reverse=True))
    view.usage(by="model")
    view.refresh()
    store.list()
    store.resolve("a")
    store.active()
    store.locks()
    store.doctor()
    assert (store.head("a"), list(store.read("a").records())) == before


@pytest.mark.rule("C5", "W14")
def test_a_store_opened_for_reading_writes_nothing(world: World) -> None:
    world.needs("survives")
    store = world.store()
    with store.create("a") as session:
        session.append(user("1"))
    with Store(world.new_engine(readonly=True)) as reader:
        assert texts(reader.read("a").history()) == ["1"]
        assert [head.id for head in reader.list()] == ["a"]
        for write in (
            lambda: reader.append("a", user("2")),
            lambda: reader.create("b", eager=True),
            lambda: reader.open("a"),
            lambda: reader.delete("a"),
            lambda: reader.activate(None),
        ):
            with pytest.raises(ReadOnlyStore):
                write()
        assert texts(reader.read("a").history()) == ["1"]
    assert [head.id for head in store.list(empty=True)] == ["a"]


@pytest.mark.rule("W10", "C3")
def test_whoever_reads_a_session_that_is_deleted_has_all_of_it_or_is_told(world: World) -> None:
    store, other = world.store(), world.other()
    written = [f"{n} " + "x" * 1000 for n in range(500)]
    store.extend("a", users(*written), create=True)
    view = other.read("a")
    started, fresh = view.records(), view.records()
    first = next(started)
    assert first.seq == 0
    assert store.delete("a") is True
    for reading, expected in ((started, written), (fresh, written)):
        try:
            found = [record.data["content"] for record in reading if record.kind == "message"]
        except SessionNotFound:
            continue
        assert found == expected
    with pytest.raises(SessionNotFound):
        view.history()
    with pytest.raises(SessionNotFound):
        other.read("a")
    assert list(other.list()) == []


def _look_on(store: Store, id: str) -> str:
    """In another process: reads until the session is gone."""
    say()
    while True:
        try:
            history = store.read(id).history()
            store.list()
        except SessionNotFound:
            return "gone"
        assert len(history) == 200, f"a short history: {len(history)}"


@pytest.mark.rule("W10", "C3")
def test_no_reader_sees_a_part_of_a_session_that_is_being_deleted(world: World) -> None:
    store = world.store()
    store.extend("a", users(*["x" * 1000] * 200), create=True)
    readers = [world.begin(_look_on, "a") for _ in range(3)]
    for reader in readers:
        reader.hear()
    store.delete("a")
    assert [reader.result() for reader in readers] == ["gone"] * 3
