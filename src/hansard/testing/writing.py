"""W2 to W6: all or nothing, what `durable` promises, the id of a record, and `expect`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from itertools import count as numbers
from typing import Any

import pytest

from hansard.errors import (
    Closed,
    Conflict,
    HansardError,
    InvalidPayload,
    NewerFormat,
    ReadOnlyStore,
    SessionNotFound,
)
from hansard.records import Record
from hansard.session import Session, View
from hansard.store import Store
from hansard.testing.chat import assistant, count, state, texts, user, users
from hansard.testing.world import World, hear, say


def _records(session: View) -> list[Record]:
    return list(session.records(after=0))


def _texts(store: Store, id: str) -> list[Any]:
    return texts(store.read(id).history())


def _append(store: Store, id: str, payload: Any, **how: Any) -> int:
    return store.append(id, payload, **how).seq


def _append_twice(store: Store, id: str, payload: Any, key: str) -> list[int]:
    return [store.append(id, payload, id=key).seq, store.append(id, payload, id=key).seq]


def _append_and_wait(store: Store, id: str, durable: bool) -> None:
    with store.open(id, create=True) as session:
        for i in range(5):
            say(session.append(user(f"{i}"), durable=durable).seq)
        hear()


def _extend_over_and_over(store: Store, id: str, times: int, n: int) -> None:
    session = store.open(id, exclusive=False)
    for i in range(times):
        session.extend(users(*(f"{i}.{j}" for j in range(n))))
    session.close()


# -- W2


@pytest.mark.rule("W2")
def test_what_was_appended_is_there_for_everybody_when_the_call_returns(world: World) -> None:
    other = world.other()
    with world.store().create("s") as session:
        for i in range(20):
            session.append(user(str(i)))
            assert texts(other.read("s").history()) == [str(j) for j in range(i + 1)]
    assert len(world.reopened().read("s").history()) == 20


@pytest.mark.rule("W2")
def test_what_was_appended_is_there_for_another_process_when_the_call_returns(world: World) -> None:
    with world.store().create("s") as session:
        session.append(user("a"))
        assert world.elsewhere(_texts, "s") == ["a"]
        session.extend(users("b", "c"))
        assert world.elsewhere(_texts, "s") == ["a", "b", "c"]


@pytest.mark.rule("W2")
def test_records_have_consecutive_numbers_in_the_order_of_the_calls(world: World) -> None:
    with world.store().create("s") as session:
        assert session.append(user("a")).seq == 1
        assert [record.seq for record in session.extend(users("b", "c"))] == [2, 3]
        assert session.rename("Title").seq == 4
        assert session.append({"x": 1}, kind="mine.own").seq == 5
        assert session.seq == 5
        assert [record.seq for record in session.records()] == [0, 1, 2, 3, 4, 5]
        assert [record.kind for record in session.records()] == [
            "session",
            "message",
            "message",
            "message",
            "meta",
            "mine.own",
        ]


@pytest.mark.rule("W2")
def test_the_order_is_that_of_the_calls_although_the_clock_goes_backwards(world: World) -> None:
    moments = (datetime(2026, 5, 1, tzinfo=UTC) - timedelta(seconds=i) for i in numbers())
    with world.store(clock=lambda: next(moments)).create("s") as session:
        for i in range(10):
            session.append(user(str(i)))
        session.extend(users("10", "11"))
        assert texts(session.history()) == [str(i) for i in range(12)]
    assert texts(world.reopened().read("s").history()) == [str(i) for i in range(12)]


@pytest.mark.rule("W2")
def test_the_time_of_a_record_is_the_same_at_every_reading(world: World) -> None:
    then = datetime(2020, 2, 29, 12, 0, 0, 123456, tzinfo=UTC)
    with world.store().create("s") as session:
        told = session.append(user("a"), time=then)
        stamped = session.append(user("b"))
        assert told.time == told.when == then
        assert stamped.time is None
        assert stamped.when == stamped.at
        assert abs(stamped.at - datetime.now(UTC)) < timedelta(hours=1)
    again = _records(world.reopened().read("s"))
    assert [(record.at, record.time) for record in again] == [(told.at, then), (stamped.at, None)]


@pytest.mark.rule("W2")
def test_an_instant_in_another_zone_is_the_same_instant(world: World) -> None:
    then = datetime(2026, 5, 1, 14, tzinfo=timezone(timedelta(hours=2)))
    with world.store().create("s") as session:
        record = session.append(user("a"), time=then)
        assert record.time == datetime(2026, 5, 1, 12, tzinfo=UTC)
        assert str(record.time) == "2026-05-01 12:00:00+00:00"
        with pytest.raises(ValueError):
            session.append(user("b"), time=datetime(2026, 5, 1))


@pytest.mark.rule("W2")
def test_what_is_returned_is_what_is_read_back(world: World) -> None:
    store = world.store()
    with store.create("s", model="gpt-5") as session:
        told: list[Any] = [
            session.append(user("a"), id="x", shape="openai", turn="t1", usage={"input_tokens": 1}),
            session.append(assistant("b"), model="gpt-6", time=datetime(2026, 5, 1, tzinfo=UTC)),
            *session.extend([user("c"), assistant("d")], ids=["y", None], usages=[None, {"cost": 0.5}]),
            session.append({"x": 1}, kind="mine.own", blobs=["00" * 32]),
            session.rename("Title"),
            session.add_usage({"input_tokens": 1}),
            session.checkpoint([user("e")], summary="So far", token_count=7),
            store.append("s", user("f"), id="z"),
            *store.extend("s", users("g", "h")),
        ]
        for view in (session, store.read("s"), world.other().read("s")):
            read = _records(view)
            for one in (
                "kind",
                "data",
                "id",
                "turn",
                "model",
                "usage",
                "shape",
                "time",
                "blobs",
                "at",
                "seq",
            ):
                assert [getattr(r, one) for r in read] == [getattr(r, one) for r in told], one
            assert [record.batch for record in read] == [record.batch for record in told]
    assert [record.batch for record in told] == [*[None] * 2, (3, 2), (3, 2), *[None] * 5, (10, 2), (10, 2)]


@pytest.mark.rule("W2")
def test_an_assistant_message_is_marked_with_its_model(world: World) -> None:
    store = world.store()
    with store.create("s", model="gpt-5") as session:
        session.extend([user("a"), assistant("b"), {**assistant("c"), "model": "claude"}])
        session.append(assistant("d"), model="mine")
        store.append("s", assistant("e"))
        session.update(model="gpt-6")
        session.append(assistant("f"))
        models = [record.model for record in session.records(kinds="message")]
        assert models == [None, "gpt-5", "claude", "mine", "gpt-5", "gpt-6"]


@pytest.mark.rule("W2")
@pytest.mark.parametrize("bad", [0, 1, 2], ids=["first", "middle", "last"])
def test_of_several_payloads_none_is_stored_where_one_is_refused(world: World, bad: int) -> None:
    store = world.store()
    payloads: list[Any] = users("a", "b", "c")
    payloads[bad] = {"at": b"bytes"}
    with store.create("s") as session:
        session.append(user("before"))
        attempts: tuple[Callable[[], Any], ...] = (
            lambda: session.extend(payloads),
            lambda: store.extend("s", payloads),
        )
        for attempt in attempts:
            with pytest.raises(InvalidPayload):
                attempt()
        assert texts(session.history()) == ["before"]
        assert session.append(user("after")).seq == 2


@pytest.mark.rule("W2", "W5")
@pytest.mark.parametrize("bad", [0, 1, 2], ids=["first", "middle", "last"])
def test_of_several_payloads_none_is_stored_where_the_id_of_one_is_taken(world: World, bad: int) -> None:
    ids: list[str | None] = ["a", "b", "c"]
    ids[bad] = "taken"
    with world.store().create("s") as session:
        first = session.append(user("before"), id="taken")
        with pytest.raises(Conflict) as caught:
            session.extend(users("a", "b", "c"), ids=ids)
        assert caught.value.first == first
        assert _records(session) == [first]


@pytest.mark.rule("W2")
def test_several_payloads_may_come_from_anything_that_can_be_iterated(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        session.extend(user(text) for text in "ab")
        store.extend("s", iter(users("c", "d")))
        session.extend({"x": user("e")}.values())
        assert texts(session.history()) == ["a", "b", "c", "d", "e"]


@pytest.mark.rule("W2")
def test_an_iterator_that_fails_stores_nothing(world: World) -> None:
    def failing() -> Any:
        yield user("a")
        raise KeyError("mine")

    store = world.store()
    with store.create("s") as session:
        for attempt in (
            lambda: session.extend(failing()),
            lambda: session.checkpoint(failing()),
            lambda: session.set_history(failing()),
            lambda: store.extend("new", failing(), create=True),
        ):
            with pytest.raises(KeyError):
                attempt()
    assert store.list(empty=True) == []


@pytest.mark.rule("W2", "W8")
def test_extending_by_nothing_writes_nothing(world: World) -> None:
    store = world.store()
    assert store.extend("new", [], create=True) == []
    with store.create("s") as session:
        assert session.extend([]) == []
        assert session.extend(iter(()), ids=[]) == []
        assert store.list(empty=True) == []
        session.append(user("a"))
        before = state(session)
        assert session.extend([]) == []
        assert store.extend("s", []) == []
        assert state(session) == before


@pytest.mark.rule("W2", "W4")
def test_as_many_ids_and_usages_as_payloads_are_wanted(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        attempts: tuple[Callable[[], Any], ...] = (
            lambda: session.extend(users("a", "b"), ids=["x"]),
            lambda: session.extend(users("a"), ids=["x", "y"]),
            lambda: session.extend(users("a", "b"), usages=[{"cost": 1}]),
            lambda: session.extend([], ids=["x"]),
            lambda: store.extend("new", users("a"), ids=[], create=True),
        )
        for attempt in attempts:
            with pytest.raises(ValueError):
                attempt()
    assert store.list(empty=True) == []


@pytest.mark.rule("W2")
def test_a_reader_sees_all_of_a_write_or_nothing(world: World) -> None:
    store, other = world.store(), world.other()
    store.extend("s", users(*"abcde"), create=True)
    writer = threading.Thread(target=_extend_over_and_over, args=(other, "s", 60, 5))
    writer.start()
    lengths = [5]
    while writer.is_alive():
        lengths.append(len(store.read("s").history()))
        lengths.append(count(store.read("s")) - 1)
        lengths.append(store.head("s").messages)
    writer.join()
    assert {length % 5 for length in lengths} == {0}
    assert lengths == sorted(lengths)
    assert len(store.read("s").history()) == 305


@pytest.mark.rule("W2")
def test_a_reader_in_another_process_sees_all_of_a_write_or_nothing(world: World) -> None:
    store = world.store()
    store.extend("s", users(*"abcde"), create=True)
    with world.beside(_extend_over_and_over, "s", 60, 5):
        lengths = [5]
        while lengths[-1] < 305:
            lengths.append(len(store.read("s").history()))
    assert {length % 5 for length in lengths} == {0}
    assert lengths == sorted(lengths)


@pytest.mark.rule("W2")
def test_appends_of_many_threads_are_each_there_once(world: World) -> None:
    store = world.store()
    store.append("s", user("begin"), create=True)
    stores = [store, store, world.other(), world.other()]

    def work(number: int) -> None:
        for i in range(25):
            if i % 2:
                stores[number].append("s", user(f"{number}.{i}"))
            else:
                stores[number].extend("s", users(f"{number}.{i}", f"{number}.{i}+"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = texts(store.read("s").history())
    assert len(found) == len(set(found)) == 1 + 4 * (13 * 2 + 12)
    for number in range(4):
        mine = [text for text in found if text.startswith(f"{number}.")]
        assert mine == sorted(mine, key=lambda text: (int(text.split(".")[1].rstrip("+")), text))
    for i, text in enumerate(found):
        if text.endswith("+"):
            assert found[i - 1] == text[:-1]
    assert [record.seq for record in store.read("s").records()] == list(range(len(found) + 1))


@pytest.mark.rule("W2")
def test_one_handle_serves_several_threads(world: World) -> None:
    with world.store().create("s") as session:
        threads = [
            threading.Thread(
                target=lambda n: [session.append(user(f"{n}.{i}")) for i in range(20)], args=(n,)
            )
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = texts(session.history())
        assert len(found) == len(set(found)) == 80


@pytest.mark.rule("W2", "W3")
@pytest.mark.parametrize("durable", [True, False], ids=["durable", "not durable"])
def test_what_was_acknowledged_survives_the_death_of_the_process(world: World, durable: bool) -> None:
    with world.beside(_append_and_wait, "s", durable) as process:
        told = [process.hear() for _ in range(5)]
        process.kill()
    assert told == [1, 2, 3, 4, 5]
    assert texts(world.store().read("s").history()) == ["0", "1", "2", "3", "4"]
    with world.store().open("s") as session:
        assert session.append(user("after")).seq == 6


# -- W3


@pytest.mark.rule("W3")
def test_what_is_not_durable_yet_is_seen_by_all_at_once(world: World) -> None:
    store, other = world.store(), world.other()
    with store.create("s") as session:
        session.append(user("a"), durable=False)
        session.extend(users("b", "c"), durable=False)
        store.append("s", user("d"), durable=False)
        for view in (session, store.read("s"), other.read("s")):
            assert texts(view.history()) == ["a", "b", "c", "d"]
            assert view.head.messages == 4
            assert [record.seq for record in view.records()] == [0, 1, 2, 3, 4]
        assert other.append("s", user("e")).seq == 5


@pytest.mark.rule("W3")
def test_what_is_not_durable_yet_is_seen_by_another_process(world: World) -> None:
    with world.store().create("s") as session:
        session.append(user("a"), durable=False)
        assert world.elsewhere(_texts, "s") == ["a"]


@pytest.mark.rule("W3")
def test_flush_and_save_write_no_record(world: World) -> None:
    with world.store().create("s") as session:
        session.append(user("a"), durable=False)
        before = state(session)
        session.flush()
        session.save()
        session.flush()
        assert state(session) == before


@pytest.mark.rule("W3", "W8")
def test_flush_does_not_begin_a_session(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        session.flush()
        session.save()
        assert store.list(empty=True) == []


@pytest.mark.rule("W3")
def test_closing_and_reopening_keeps_what_was_not_durable(world: World) -> None:
    with world.store().create("s") as session:
        session.append(user("a"))
        session.append(user("b"), durable=False)
    assert texts(world.reopened().read("s").history()) == ["a", "b"]


@pytest.mark.rule("W3")
def test_a_session_that_is_closed_writes_and_reads_no_more(world: World) -> None:
    session = world.store().create("s")
    session.append(user("a"))
    session.close()
    for attempt in (
        lambda: session.append(user("b")),
        lambda: session.extend(users("b")),
        lambda: session.history(),
        lambda: session.records(),
        lambda: session.clear(),
        lambda: session.rename("x"),
        lambda: session.flush(),
    ):
        with pytest.raises(Closed):
            attempt()
    assert _texts(world.store(), "s") == ["a"]


# -- W4


@pytest.mark.rule("W4")
def test_a_call_that_was_refused_has_stored_nothing(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        session.extend(users("a", "b"), ids=["a", "b"])
        session.checkpoint([user("c")], summary="So far", token_count=3)
        before = state(session)
        refused: list[tuple[type[Exception], Callable[[], Any]]] = [
            (InvalidPayload, lambda: session.append({1})),
            (InvalidPayload, lambda: session.append(user("d"), kind="message2")),
            (InvalidPayload, lambda: session.append(user("d"), kind="history")),
            (InvalidPayload, lambda: session.append(user("d"), kind="!mine.own")),
            (InvalidPayload, lambda: session.append(user("d"), usage={"nothing": 1})),
            (InvalidPayload, lambda: session.append(user("d"), id="")),
            (InvalidPayload, lambda: session.add_usage({"nothing": 1})),
            (Conflict, lambda: session.append(user("d"), id="a")),
            (Conflict, lambda: session.append(user("d"), expect=1)),
            (Conflict, lambda: session.extend(users("d", "e"), expect=1)),
            (Conflict, lambda: store.append("s", user("d"), expect=-1, create=True)),
            (Conflict, lambda: session.checkpoint([], upto=1)),
            (ValueError, lambda: session.checkpoint([], upto=99)),
            (ValueError, lambda: session.rewind(99)),
            (ValueError, lambda: session.pop(-1)),
            (ValueError, lambda: session.update(unset=["nothing"])),
            (TypeError, lambda: session.checkpoint([], token_count="many")),  # type: ignore[arg-type]
            (TypeError, lambda: session.truncate("all")),  # type: ignore[arg-type]
            (TypeError, lambda: session.pop(True)),
            (TypeError, lambda: session.rewind("start")),  # type: ignore[arg-type]
        ]
        for error, attempt in refused:
            with pytest.raises(error) as caught:
                attempt()
            assert not getattr(caught.value, "outcome_unknown", False)
            assert state(session) == before
            assert state(store.read("s")) == before
        assert session.append(user("d")).seq == 4


@pytest.mark.rule("W4")
def test_a_store_that_is_opened_for_reading_writes_nothing(world: World) -> None:
    world.needs("survives")
    with world.store().create("s") as session:
        session.append(user("a"))
        session.extend(users("b", "c"))
    store = Store(world.new_engine(readonly=True))
    before = state(store.read("s"))
    for attempt in (
        lambda: store.append("s", user("d")),
        lambda: store.append("new", user("d"), create=True),
        lambda: store.extend("s", users("d")),
        lambda: store.create("new"),
        lambda: store.open("s"),
        lambda: store.delete("s"),
        lambda: store.activate(None),
        lambda: store.open("s", exclusive=False).append(user("d")),
        lambda: store.open("s", exclusive=False).clear(),
    ):
        with pytest.raises(ReadOnlyStore):
            attempt()
    assert state(store.read("s")) == before
    assert [head.id for head in store.list()] == ["s"]
    assert state(world.store().read("s")) == before


# -- W5

CALLS: dict[str, tuple[Callable[[Session], Any], Callable[[Session], Any]]] = {
    "append": (
        lambda session: session.append(user("x"), id="k"),
        lambda session: session.append(user("y"), id="k"),
    ),
    "append of a kind": (
        lambda session: session.append({"x": 1}, kind="mine.own", id="k"),
        lambda session: session.append({"x": 1}, kind="mine.other", id="k"),
    ),
    "extend": (
        lambda session: session.extend([user("x")], ids=["k"])[0],
        lambda session: session.extend([user("y")], ids=["k"])[0],
    ),
    "store.append": (
        lambda session: session._store.append(session.id, user("x"), id="k"),
        lambda session: session._store.append(session.id, user("y"), id="k"),
    ),
    "store.extend": (
        lambda session: session._store.extend(session.id, [user("x")], ids=["k"])[0],
        lambda session: session._store.extend(session.id, [user("y")], ids=["k"])[0],
    ),
    "add_usage": (
        lambda session: session.add_usage({"input_tokens": 1}, id="k"),
        lambda session: session.add_usage({"input_tokens": 2}, id="k"),
    ),
    "rename": (
        lambda session: session.rename("x", id="k"),
        lambda session: session.rename("y", id="k"),
    ),
    "pin": (
        lambda session: session.pin(id="k"),
        lambda session: session.pin(False, id="k"),
    ),
    "label": (
        lambda session: session.label("x", id="k"),
        lambda session: session.label("y", id="k"),
    ),
    "update": (
        lambda session: session.update(model="x", meta={"a": 1}, unset=["meta.b"], id="k"),
        lambda session: session.update(model="x", meta={"a": 2}, unset=["meta.b"], id="k"),
    ),
    "set_summary": (
        lambda session: session.set_summary("x", id="k"),
        lambda session: session.set_summary("y", id="k"),
    ),
    "checkpoint": (
        lambda session: session.checkpoint([user("x")], summary="s", token_count=1, id="k"),
        lambda session: session.checkpoint([user("x")], summary="s", token_count=2, id="k"),
    ),
    "truncate": (
        lambda session: session.truncate(2, id="k"),
        lambda session: session.truncate(1, id="k"),
    ),
    "set_history": (
        lambda session: session.set_history([user("x")], id="k"),
        lambda session: session.set_history([user("y")], id="k"),
    ),
    "clear": (
        lambda session: session.clear(id="k"),
        lambda session: session.truncate(0, id="k"),
    ),
    "rewind": (
        lambda session: session.rewind(2, id="k"),
        lambda session: session.rewind(1, id="k"),
    ),
}
"""Calls that write, and others under the same id."""


def _ready(world: World, name: str = "s") -> Session:
    session = world.store().create(name)
    session.extend(users("a", "b", "c", "d"))
    return session


@pytest.mark.rule("W5")
@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_is_repeated_with_its_id_is_stored_once(world: World, name: str) -> None:
    call, _ = CALLS[name]
    with _ready(world) as session:
        first = call(session)
        assert first.id == "k"
        before = state(session)
        assert call(session) == first
        assert state(session) == before
        assert session.get("k") == first
    with world.reopened().open("s") as again:
        assert call(again) == first
        assert state(again) == before


@pytest.mark.rule("W5")
@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_is_repeated_later_is_still_known_and_changes_nothing(world: World, name: str) -> None:
    call, _ = CALLS[name]
    with _ready(world) as session:
        first = call(session)
        session.clear()
        session.append(user("later"))
        world.other().append("s", user("by another"))
        before = state(session)
        assert call(session) == first
        assert state(session) == before


@pytest.mark.rule("W5")
@pytest.mark.parametrize("name", CALLS)
def test_another_call_under_the_same_id_is_a_conflict_that_has_the_first(world: World, name: str) -> None:
    call, other = CALLS[name]
    with _ready(world) as session:
        first = call(session)
        before = state(session)
        with pytest.raises(Conflict) as caught:
            other(session)
        assert caught.value.first == first
        assert state(session) == before
    with world.reopened().open("s") as again, pytest.raises(Conflict) as caught:
        other(again)
    assert caught.value.first == first


@pytest.mark.rule("W5")
@pytest.mark.parametrize("name", CALLS)
def test_an_id_is_taken_for_every_kind_of_call(world: World, name: str) -> None:
    call, _ = CALLS[name]
    with _ready(world) as session:
        first = session.append({"not": "the same"}, kind="mine.kind", id="k")
        before = state(session)
        with pytest.raises(Conflict) as caught:
            call(session)
        assert caught.value.first == first
        assert state(session) == before


@pytest.mark.rule("W5", "H6")
def test_a_pop_that_is_repeated_with_its_id_gives_the_same_messages_and_takes_no_more(world: World) -> None:
    with _ready(world) as session:
        assert texts(session.pop(2, id="k")) == ["c", "d"]
        assert texts(session.pop(2, id="k")) == ["c", "d"]
        session.append(user("e"))
        assert texts(session.pop(2, id="k")) == ["c", "d"]
        assert texts(session.history()) == ["a", "b", "e"]
        with pytest.raises(Conflict):
            session.pop(1, id="k")
    with world.reopened().open("s") as again:
        assert texts(again.pop(2, id="k")) == ["c", "d"]
        assert texts(again.history()) == ["a", "b", "e"]


@pytest.mark.rule("W5")
def test_an_equal_payload_is_one_whose_members_stand_in_another_order(world: World) -> None:
    with world.store().create("s") as session:
        first = session.append({"role": "user", "content": [{"a": 1, "b": 2}]}, id="k")
        repeat = session.append({"content": ({"b": 2, "a": 1},), "role": "user"}, id="k")
        assert repeat == first
        assert count(session) == 2


@pytest.mark.rule("W5")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (0, False),
        (0, None),
        ("1", 1),
        ([], {}),
        ("", None),
        ("é", "e\u0301"),
        (2**64, 2**64 + 1),
        ([1, 2], [2, 1]),
    ],
    ids=repr,
)
def test_payloads_that_are_nearly_the_same_are_not_equal(world: World, one: Any, other: Any) -> None:
    with world.store().create("s") as session:
        first = session.append({"x": one}, id="k")
        with pytest.raises(Conflict) as caught:
            session.append({"x": other}, id="k")
        assert caught.value.first == first
        with pytest.raises(Conflict):
            session.extend([{"x": one}, {"x": other}], ids=["new", "new"])
        assert count(session) == 2


@pytest.mark.rule("W5")
def test_equal_data_of_another_kind_is_not_equal(world: World) -> None:
    with world.store().create("s") as session:
        first = session.append({"input_tokens": 1}, kind="mine.own", id="k")
        attempts: tuple[Callable[[], Any], ...] = (
            lambda: session.append({"input_tokens": 1}, id="k"),
            lambda: session.add_usage({"input_tokens": 1}, id="k"),
        )
        for attempt in attempts:
            with pytest.raises(Conflict) as caught:
                attempt()
            assert caught.value.first == first


@pytest.mark.rule("W5")
def test_without_an_id_the_same_content_is_as_many_records(world: World) -> None:
    with world.store().create("s") as session:
        session.append(user("continue"))
        session.append(user("continue"))
        session.extend(users("continue", "continue"))
        session.append(user("continue"), id="a")
        session.append(user("continue"), id="b")
        assert texts(session.history()) == ["continue"] * 6
    assert texts(world.reopened().read("s").history()) == ["continue"] * 6


@pytest.mark.rule("W5")
@pytest.mark.parametrize("begun", [True, False], ids=["begun", "not begun"])
def test_the_same_id_twice_in_one_call_is_one_record(world: World, begun: bool) -> None:
    with world.store().create("s", eager=begun) as session:
        records = session.extend(users("a", "b", "a", "c"), ids=["x", "y", "x", None])
        assert [record.seq for record in records] == [1, 2, 1, 3]
        assert texts(session.history()) == ["a", "b", "c"]
        assert [record.id for record in session.records(after=0)] == ["x", "y", None]
        assert [record.batch for record in session.records(after=0)] == [(1, 3)] * 3
    assert texts(world.reopened().read("s").history()) == ["a", "b", "c"]


@pytest.mark.rule("W5")
def test_the_same_id_twice_in_a_call_that_begins_a_session_is_one_record(world: World) -> None:
    store = world.store()
    records = store.extend("s", users("a", "a"), ids=["x", "x"], create=True)
    assert [record.seq for record in records] == [1, 1]
    assert [record.batch for record in records] == [None, None]
    assert _texts(store, "s") == ["a"]


@pytest.mark.rule("W5", "W8")
@pytest.mark.parametrize("begun", [True, False], ids=["begun", "not begun"])
def test_the_same_id_for_two_payloads_in_one_call_is_a_conflict(world: World, begun: bool) -> None:
    store = world.store()
    with store.create("s", eager=begun) as session:
        with pytest.raises(Conflict):
            session.extend(users("a", "b"), ids=["x", "x"])
        assert session.get("x") is None
        assert session.history() == []
        assert len(store.list(empty=True)) == begun
        session.append(user("b"), id="x")
        assert texts(session.history()) == ["b"]


@pytest.mark.rule("W5")
def test_of_a_call_that_is_partly_repeated_only_the_rest_is_stored(world: World) -> None:
    with world.store().create("s") as session:
        first = session.extend(users("a", "b"), ids=["a", "b"])
        records = session.extend(users("c", "b", "d", "a"), ids=["c", "b", None, "a"])
        assert [record.seq for record in records] == [3, 2, 4, 1]
        assert [records[1], records[3]] == [first[1], first[0]]
        assert texts(session.history()) == ["a", "b", "c", "d"]
        assert [record.batch for record in session.records(after=2)] == [(3, 2), (3, 2)]


@pytest.mark.rule("W5", "W6")
def test_a_repeat_is_known_before_anything_is_expected(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        first = session.append(user("a"), id="a", expect=-1)
        session.append(user("b"))
        for expect in (-1, 0, 1, 2, 99):
            assert session.append(user("a"), id="a", expect=expect).seq == first.seq
            assert [r.seq for r in session.extend(users("a"), ids=["a"], expect=expect)] == [first.seq]
            assert store.append("s", user("a"), id="a", expect=expect, create=True).seq == first.seq
        with pytest.raises(Conflict) as caught:
            session.append(user("other"), id="a", expect=99)
        assert caught.value.first == first
        with pytest.raises(Conflict) as caught:
            session.extend(users("a", "new"), ids=["a", "new"], expect=1)
        assert caught.value.seq == 2
        assert count(session) == 3


@pytest.mark.rule("W5")
def test_an_id_is_known_to_other_handles_and_engines(world: World) -> None:
    with world.store().create("s") as session:
        first = session.append(user("a"), id="k", durable=False)
        for store in (world.store(), world.other()):
            assert store.append("s", user("a"), id="k") == first
            assert store.read("s").get("k") == first
            with pytest.raises(Conflict):
                store.append("s", user("b"), id="k")
            with store.open("s", exclusive=False) as shared:
                assert shared.append(user("a"), id="k") == first
        assert count(session) == 2


@pytest.mark.rule("W5")
def test_an_id_is_known_to_another_process(world: World) -> None:
    with world.store().create("s") as session:
        session.append(user("a"), id="k")
        assert world.elsewhere(_append_twice, "s", user("a"), "k") == [1, 1]
        assert world.elsewhere(_append_twice, "s", user("b"), "new") == [2, 2]
        assert session.append(user("b"), id="new").seq == 2
        assert count(session) == 3


@pytest.mark.rule("W5")
def test_an_id_is_known_after_many_others_and_after_reopening(world: World) -> None:
    store = world.store()
    for start in range(0, 400, 100):
        store.extend(
            "s",
            users(*(str(i) for i in range(start, start + 100))),
            ids=[f"id {i}" for i in range(start, start + 100)],
            create=True,
        )
    for opened in (world.store, world.other, world.reopened):
        again = opened()
        for i in (0, 1, 99, 100, 250, 399):
            assert again.append("s", user(str(i)), id=f"id {i}").seq == i + 1
            with pytest.raises(Conflict):
                again.append("s", user("new"), id=f"id {i}")
            found = again.read("s").get(f"id {i}")
            assert found is not None
            assert found.seq == i + 1
        assert again.read("s").get("id 400") is None
        assert count(again.read("s")) == 401


KEYS = ["a", "A", "a ", " a", "é", "e\u0301", "\x00", "a\nb", "🦊", "0", "x" * 5000, '"', "%"]


@pytest.mark.rule("W5")
@pytest.mark.parametrize("id", KEYS, ids=lambda id: repr(id)[:12])
def test_any_text_may_be_the_id_of_a_record_and_is_compared_exactly(world: World, id: str) -> None:
    with world.store().create("s") as session:
        first = session.append(user(id), id=id)
        rest = [other for other in KEYS if other != id]
        session.extend(users(*rest), ids=rest)
        assert session.append(user(id), id=id) == first
        found = world.other().read("s").get(id)
        assert found == first
        assert count(session) == len(KEYS) + 1


@pytest.mark.rule("W5")
def test_an_id_belongs_to_its_session(world: World) -> None:
    store = world.store()
    for name in ("one", "two"):
        assert store.append(name, user(name), id="k", create=True).seq == 1
    assert store.delete("one")
    assert store.append("one", user("new"), id="k", create=True).seq == 1
    assert _texts(store, "one") == ["new"]


@pytest.mark.rule("W5")
def test_of_many_who_send_the_same_id_at_once_one_is_stored(world: World) -> None:
    stores = [world.store(), world.store(), world.other(), world.other()]
    found: list[list[int]] = []

    def work(store: Store) -> None:
        found.append([store.append("s", user(str(i)), id=f"{i}", create=True).seq for i in range(20)])

    threads = [threading.Thread(target=work, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(seqs == found[0] for seqs in found)
    assert _texts(stores[0], "s") == [str(i) for i in range(20)]


@pytest.mark.rule("W5")
def test_a_record_is_found_by_its_seq_or_its_id(world: World) -> None:
    with world.store().create("s") as session:
        first, second = session.extend(users("a", "b"), ids=["k", None])
        for view in (session, world.store().read("s"), world.other().read("s")):
            assert view.get(1) == view.get("k") == first
            assert view.get(2) == second
            assert view.get(0).kind == "session"  # type: ignore[union-attr]
            assert view.get(3) is view.get(-1) is view.get("1") is view.get("nobody") is None


# -- W6


@pytest.mark.rule("W6")
def test_what_is_expected_is_the_last_record(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        seq = session.append(user("a")).seq
        assert seq == 1
        assert session.append(user("b"), expect=seq).seq == 2
        assert session.extend(users("c", "d"), expect=2)[-1].seq == 4
        assert store.append("s", user("e"), expect=4).seq == 5
        assert store.extend("s", users("f"), expect=5)[0].seq == 6
        session.rename("Title")
        assert session.append(user("g"), expect=7).seq == 8


@pytest.mark.rule("W6")
@pytest.mark.parametrize("expect", [-1, 0, 1, 3, 99])
def test_anything_else_is_a_conflict_that_says_where_it_stands(world: World, expect: int) -> None:
    store = world.store()
    with store.create("s") as session:
        session.extend(users("a", "b"))
        for attempt in (
            lambda: session.append(user("c"), expect=expect),
            lambda: session.extend(users("c", "d"), expect=expect),
            lambda: store.append("s", user("c"), expect=expect),
            lambda: store.extend("s", users("c"), expect=expect),
            lambda: store.append("s", user("c"), expect=expect, create=True),
        ):
            with pytest.raises(Conflict) as caught:
                attempt()
            assert caught.value.seq == 2
            assert caught.value.first is None
        assert session.append(user("c")).seq == 3


@pytest.mark.rule("W6")
def test_minus_one_expects_that_there_is_no_session(world: World) -> None:
    store = world.store()
    assert store.append("s", user("a"), expect=-1, create=True).seq == 1
    with pytest.raises(Conflict):
        store.append("s", user("b"), expect=-1, create=True)
    assert _texts(store, "s") == ["a"]
    with store.create("t") as session:
        assert session.append(user("a"), expect=-1).seq == 1
        with pytest.raises(Conflict):
            session.append(user("b"), expect=-1)


@pytest.mark.rule("W6", "W8")
def test_a_session_that_is_not_written_yet_has_no_last_record(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        assert session.seq == -1
        for expect in (0, 1):
            with pytest.raises(Conflict):
                session.append(user("a"), expect=expect)
        assert store.list(empty=True) == []
        assert session.append(user("a"), expect=session.seq).seq == 1


@pytest.mark.rule("W6")
def test_zero_expects_a_session_in_which_nothing_is_written(world: World) -> None:
    with world.store().create("s", eager=True) as session:
        assert session.seq == 0
        assert session.append(user("a"), expect=0).seq == 1


@pytest.mark.rule("W6")
@pytest.mark.parametrize("create", [True, False])
def test_a_record_that_is_expected_in_a_session_that_is_not_there_creates_nothing(
    world: World, create: bool
) -> None:
    store = world.store()
    for expect in (0, 5):
        with pytest.raises((Conflict, SessionNotFound)):
            store.append("s", user("a"), expect=expect, create=create)
        with pytest.raises((Conflict, SessionNotFound)):
            store.extend("s", users("a"), expect=expect, create=create)
    assert store.list(empty=True) == []


@pytest.mark.rule("W6", "W11")
def test_a_message_by_somebody_else_fails_what_was_expected(world: World) -> None:
    with world.store().create("s") as session:
        session.append(user("a"))
        world.other().append("s", user("b"))
        with pytest.raises(Conflict) as caught:
            session.append(user("c"), expect=session.seq)
        assert caught.value.seq == 2
        assert texts(session.history()) == ["a", "b"]
        assert session.append(user("c"), expect=session.seq).seq == 3


@pytest.mark.rule("W6")
def test_of_many_who_expect_the_same_record_one_wins(world: World) -> None:
    stores = [world.store(), world.store(), world.other(), world.other()]
    stores[0].append("s", user("begin"), create=True)
    barrier = threading.Barrier(len(stores))
    wins: list[tuple[int, int]] = []
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for seq in range(1, 16):
                barrier.wait()
                with suppress(Conflict):
                    wins.append((stores[number].append("s", user(f"{number}"), expect=seq).seq, number))
                barrier.wait()
        except BaseException as error:
            barrier.abort()
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(stores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert sorted(seq for seq, _ in wins) == list(range(2, 17))
    assert _texts(stores[0], "s")[1:] == [str(number) for _, number in sorted(wins)]


@pytest.mark.rule("W4", "W6")
def test_our_errors_are_one_family_and_say_that_nothing_was_stored(world: World) -> None:
    store = world.store()
    store.append("s", user("a"), create=True)
    with pytest.raises(HansardError) as caught:
        store.append("s", user("b"), expect=7)
    assert caught.value.outcome_unknown is False
    assert isinstance(caught.value, RuntimeError)


# -- W13, what may be put


AT = datetime(2026, 5, 1, 12, tzinfo=UTC)

MADE_UP: dict[str, dict[str, Any]] = {
    "a time without a zone": {"at": datetime(2026, 5, 1, 12)},
    "another time without a zone": {"time": datetime(2026, 5, 1, 12)},
    "a time that is text": {"time": "2026"},
    "a kind that is a number": {"kind": 7},
    "no kind": {"kind": ""},
    "a kind that is nobody's": {"kind": "line"},
    "a model that is a number": {"model": 3},
    "an id that is a number": {"id": 5},
    "an empty id": {"id": ""},
    "a turn that is a number": {"turn": 4},
    "usage that nobody understands": {"usage": {"foo": 1}},
    "usage that is text": {"usage": "x"},
    "bytes": {"data": {"role": "user", "content": b"x"}},
}


@pytest.mark.rule("W13", "W1", "W4")
@pytest.mark.parametrize("name", MADE_UP)
def test_a_record_that_nobody_could_read_again_is_not_put(world: World, name: str) -> None:
    store = world.store()
    good: dict[str, Any] = {"kind": "message", "data": user("Hello"), "seq": 1, "at": AT}
    records = [Record(**good), Record(**{**good, "seq": 2, **MADE_UP[name]})]
    with pytest.raises(InvalidPayload) as refused:
        store.put("s", records)
    assert "records[1]" in str(refused.value)
    assert store.list(empty=True) == []
    assert store.put("s", records[:1]).messages == 1
    assert not store.doctor()


@pytest.mark.rule("W14", "W4")
def test_what_a_newer_version_wrote_is_not_put(world: World) -> None:
    store = world.store()
    begin = {"id": "s", "uid": "x", "format": 99}
    for records in (
        [Record(kind="session", data=begin, seq=0, at=AT), Record(kind="message", data="a", seq=1, at=AT)],
        [Record(kind="message", data="a", seq=1, at=AT), Record(kind="!x", data="b", seq=2, at=AT)],
    ):
        with pytest.raises(NewerFormat):
            store.put("s", records)
        assert store.list(empty=True) == []


@pytest.mark.rule("W13")
@pytest.mark.parametrize("one", [user("Hello"), "Hello", b"Hello"], ids=["message", "text", "bytes"])
def test_one_message_alone_is_not_put_piece_by_piece(world: World, one: Any) -> None:
    store = world.store()
    with pytest.raises(TypeError, match="put it in a list"):
        store.put("s", one)
    assert store.list(empty=True) == []


@pytest.mark.rule("W13")
def test_times_are_kept_in_utc_and_a_session_is_no_younger_than_its_first_message(world: World) -> None:
    store = world.store()
    early = datetime(2020, 1, 1, 13, tzinfo=timezone(timedelta(hours=1)))
    store.put("s", [Record(kind="message", data=user("Hello"), seq=1, at=early)])
    head = store.head("s")
    assert head.created_at == head.updated_at == early
    assert [record.when.tzinfo for record in store.read("s").records()] == [UTC, UTC]


@pytest.mark.rule("W2")
def test_several_messages_may_have_their_times(world: World) -> None:
    with world.store().create("s") as session:
        one, other = session.extend(users("a", "b"), times=[AT, None])
        assert (one.time, one.when, other.time) == (AT, AT, None)
        with pytest.raises(ValueError, match="times"):
            session.extend(users("c"), times=[])
        assert session.head.messages == 2
