"""H8: the one call that takes out what was said, and all that stays as it was."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count as numbers
from typing import Any

import msgspec
import pytest

from hansard.errors import (
    Conflict,
    HansardError,
    ReadOnlyStore,
    SessionBusy,
    SessionNotFound,
)
from hansard.session import Session, View
from hansard.store import Store
from hansard.testing.chat import answer, assistant, call, state, texts, user, users
from hansard.testing.world import World, hear, say
from hansard.views import head as heads
from hansard.views import history as views
from hansard.views.usage import Usage


def _spent(n: int) -> dict[str, Any]:
    return {"input_tokens": n, "output_tokens": 1, "cost": n / 7}


def _lived(store: Store, id: str = "s") -> Session:
    """A session with a past: batches, usage of two models, several changes of the history and a summary that
    only a history record has."""
    hours = numbers()
    store._clock = lambda: datetime(2026, 5, 1, tzinfo=UTC) + timedelta(hours=next(hours))
    session = store.create(id, agent="coder", model="gpt-5", labels=["red"], meta={"n": 1})
    session.extend(users(*"abcd"), ids=["a", None, "c", None])
    session.append(assistant("e"), usage=_spent(3), id="e")
    session.add_usage(_spent(5), model="claude", id="cost")
    session.truncate(3)
    session.extend(
        [assistant("f"), user("g"), assistant("h")], usages=[_spent(7), None, _spent(11)], ids=["f", "g", "h"]
    )
    session.event("delta", {"x": 1}, event_id="event")
    session.label("green", id="label")
    session.checkpoint([user("A"), *session.history()[2:5], user("B")], summary="So far", id="check")
    session.append(call("1"))
    session.append(answer("1"))
    session.append(user("i"), turn="t", shape="openai", id="i")
    session.output("raw")
    session.pop(2, id="pop")
    session.append(user("j"), id="j")
    session.append({"x": 1}, kind="mine.own", id="own")
    session.append(user("k"))
    return session


def _told(view: View) -> dict[str, Any]:
    """All that a vacuum leaves as it is."""
    history = view.history()
    return {
        "head": msgspec.structs.replace(view.head, reach=0),
        "history": (list(history), history.seq, history.summary, history.token_count),
        "newest": [view.history(limit=n) for n in range(8)],
        "usage": view.usage(),
        "by model": {line.model: _rounded(line.usage) for line in view.usage(by="model")},
        "summary": view.summary(),
        "others": [
            (record.seq, record.kind, record.data, record.id, record.at)
            for record in view.records()
            if record.kind not in ("message", "history", "compacted")
        ],
    }


def _rounded(usage: Usage) -> Usage:
    """Sums of money in another order may differ in the last digit."""
    return msgspec.structs.replace(
        usage, cost=None if usage.cost is None else round(usage.cost, 9), models={}
    )


def _known(store: Store, id: str) -> Any:
    view = store.read(id)
    return [texts(view.history()), view.head.title, view.head.messages, view.usage().total_tokens]


def _read_and_hold(store: Store, id: str) -> None:
    view, session = store.read(id), store.open(id, exclusive=False)
    say(texts(view.history()))
    hear()
    view.refresh()
    say(
        [
            texts(view.history()),
            texts(session.history()),
            session.append(user("theirs"), expect=session.seq).seq,
        ]
    )
    session.close()


def _hold(store: Store, id: str) -> None:
    with store.open(id):
        say("open")
        hear()


def _vacuum(store: Store, id: str) -> list[Any]:
    done = store.vacuum(id, drop_history=True)
    return [done.count, done.ids]


@pytest.mark.rule("H8", "H9")
def test_what_a_session_is_stays_as_it_was(world: World) -> None:
    store = world.store()
    with _lived(store) as session:
        before = _told(session)
    done = store.vacuum("s", drop_history=True)
    assert done
    for opened in (world.store, world.other, world.reopened):
        view = opened().read("s")
        assert _told(view) == before
        assert view.head.reach > 0
        assert views.fold(view.records()) == list(view.history())
        assert heads.fold(view.records()) == view.head
    assert [head.id for head in world.store().list()] == ["s"]
    assert msgspec.structs.replace(world.store().list()[0], reach=0) == before["head"]


@pytest.mark.rule("H8")
def test_what_stays_are_just_the_records_that_somebody_can_miss(world: World) -> None:
    store = world.store()
    long = "x" * 1000
    with store.create("s") as session:
        session.extend(users(*(text + long for text in "abcde")))  # 1 to 5
        session.truncate(2)  # 6: d e
        session.append(user("f" + long))  # 7
        session.pop()  # 8: d e
        session.append(user("g"))  # 9
        before = sum(len(record.data.get("content", "")) for record in session.records(kinds="message"))
    done = store.vacuum("s", drop_history=True)
    assert (done.count, done.ids) == (5, ["s"])
    assert done.bytes > 3000
    view = world.reopened().read("s")
    assert [(record.seq, record.kind) for record in view.records()] == [
        (0, "session"),
        (3, "compacted"),
        (4, "message"),
        (5, "message"),
        (7, "compacted"),
        (8, "history"),
        (9, "message"),
    ]
    assert sum(len(record.data.get("content", "")) for record in view.records()) < before / 2
    for seq in (1, 2, 6):
        assert view.get(seq) is None
    assert [record.seq for record in view.records(reverse=True)] == [9, 8, 7, 5, 4, 3, 0]
    assert [record.seq for record in view.records(after=1, before=8, limit=3)] == [3, 4, 5]
    with world.store().open("s") as session:
        assert session.append(user("h")).seq == 10


@pytest.mark.rule("H8")
def test_without_drop_history_nothing_goes_that_was_said(world: World) -> None:
    store = world.store()
    with _lived(store) as session:
        before = state(session)
    done = store.vacuum("s")
    assert (done.count, done.ids, done.bytes, bool(done)) == (0, [], 0, False)
    with store.open("s") as session:
        assert state(session) == before


@pytest.mark.rule("H8")
def test_where_the_history_was_never_changed_nothing_goes(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        session.extend(users("a", "b"))
        session.rename("Title")
        before = state(session)
    assert not store.vacuum("s", drop_history=True)
    with store.open("s") as session:
        assert state(session) == before
        session.checkpoint([*session.history(), user("c")])
        before = state(session)
    assert not store.vacuum("s", drop_history=True)
    with store.open("s") as session:
        assert state(session) == before


@pytest.mark.rule("H8", "W5")
def test_ids_are_known_for_ever(world: World) -> None:
    store = world.store()
    with _lived(store) as session:
        firsts = {
            id: record
            for id in ("a", "c", "e", "f", "g", "h", "i", "j")
            if (record := session.get(id)) is not None
        }
        checkpoint, label = session.get("check"), session.get("label")
        assert checkpoint is not None
        assert label is not None
        seen = session.history()
    store.vacuum("s", drop_history=True)
    with world.reopened().open("s") as session:
        before = state(session)
        for id, first in firsts.items():
            again = session.append(first.data, id=id)
            assert (again.seq, again.at, again.id, again.data) == (first.seq, first.at, id, first.data)
            assert again.kind == "message"
            with pytest.raises(Conflict):
                session.append(user("other"), id=id)
            with pytest.raises(Conflict):
                session.clear(id=id)
        repeat = session.extend(users("c", "a"), ids=["c", "a"])
        assert [record.seq for record in repeat] == [firsts["c"].seq, firsts["a"].seq]
        messages = [user("A"), *(firsts[id].data for id in "efg"), user("B")]
        again_check = session.checkpoint(messages, summary="So far", id="check")
        assert again_check is not None
        assert (again_check.seq, again_check.kind, again_check.at) == (
            checkpoint.seq,
            "history",
            checkpoint.at,
        )
        with pytest.raises(Conflict):
            session.checkpoint(messages, summary="Another", id="check")
        again_label = session.label("green", id="label")
        assert again_label is not None
        assert (again_label.seq, again_label.data, again_label.at) == (label.seq, label.data, label.at)
        assert session.event("delta", {"x": 1}, event_id="event").id == "event"
        assert session.add_usage(_spent(5), model="claude", id="cost").id == "cost"
        assert session.append({"x": 1}, kind="mine.own", id="own").id == "own"
        assert state(session) == before
        assert session.history() == seen
        assert session.append(user("new"), id="new").seq == session.seq


@pytest.mark.rule("H8", "W5", "W2")
def test_a_call_that_is_partly_repeated_stores_the_rest(world: World) -> None:
    store = world.store()
    with _lived(store):
        pass
    store.vacuum("s", drop_history=True)
    with store.open("s") as session:
        last = session.seq
        records = session.extend(users("a", "new", "c"), ids=["a", "new", "c"])
        assert [record.seq for record in records] == [1, last + 1, 3]
        with pytest.raises(Conflict):
            session.extend(users("newer", "other"), ids=["newer", "c"])
        assert session.seq == last + 1


@pytest.mark.rule("H8", "W5")
def test_of_a_pop_that_is_repeated_nobody_makes_up_what_it_took_out(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        session.extend(users("a", "b", "c"))
        assert session.pop(2, id="first") == users("b", "c")
        session.append(user("d"))
        assert session.pop(id="second") == users("d")
        assert session.pop(2, id="first") == users("b", "c")
    store.vacuum("s", drop_history=True)
    with store.open("s") as session:
        before = state(session)
        for n, id in ((2, "first"), (1, "second")):
            with pytest.raises(ValueError, match="vacuumed"):
                session.pop(n, id=id)
        with pytest.raises(Conflict):
            session.pop(1, id="first")
        assert state(session) == before


@pytest.mark.rule("H8", "W5")
def test_very_many_ids_are_known_for_ever(world: World) -> None:
    store = world.store()
    ids: list[str | None] = [f"id {i}" for i in range(350)]
    with store.create("s") as session:
        for start in range(0, 350, 70):
            session.extend(users(*(str(i) for i in range(start, start + 70))), ids=ids[start : start + 70])
        session.truncate(3)
        before = session.head
    done = store.vacuum("s", drop_history=True)
    assert done.count == 347
    store = world.reopened()
    records = list(store.read("s").records())
    assert all(len(repr(record.data)) < 25_000 for record in records)
    assert msgspec.structs.replace(store.head("s"), reach=0) == before
    for i in (0, 1, 69, 99, 100, 101, 199, 200, 346, 347, 349):
        assert store.append("s", user(str(i)), id=f"id {i}").seq == i + 1
    with pytest.raises(Conflict):
        store.append("s", user("other"), id="id 150")
    assert texts(store.read("s").history()) == ["347", "348", "349"]
    assert not store.vacuum("s", drop_history=True)


@pytest.mark.rule("H8", "W2")
def test_of_a_write_that_is_partly_dropped_the_rest_stands_alone(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        session.extend(users(*"abcde"))  # 1 to 5
        session.extend(users("f", "g"))  # 6, 7
        session.truncate(4)  # d e f g
        session.append(user("h"))
    store.vacuum("s", drop_history=True)
    view = world.reopened().read("s")
    assert view.damage == []
    assert not world.store().doctor()
    assert [(record.seq, record.batch) for record in view.records(kinds="message")] == [
        (4, None),
        (5, None),
        (6, (6, 2)),
        (7, (6, 2)),
        (9, None),
    ]
    assert texts(view.history()) == ["d", "e", "f", "g", "h"]


@pytest.mark.rule("H8")
def test_a_second_vacuum_takes_what_the_first_could_not_and_says_only_that(world: World) -> None:
    store = world.store()
    with _lived(store) as session:
        wanted = list(session.history())
    first = store.vacuum("s", drop_history=True)
    assert first.count > 5
    again = store.vacuum("s", drop_history=True)
    assert (again.count, again.ids, again.bytes) == (0, [], 0)
    with store.open("s") as session:
        session.append(user("l"), id="l")
        session.truncate(2)
        session.append(user("m"))
        before = _told(session)
    left = [record for record in store.read("s").records() if record.kind in ("message", "history")]
    second = store.vacuum("s", drop_history=True)
    assert (
        second.count == len(left) - 4
    )  # two that the history shows, the one after it, and the record itself
    view = world.reopened().read("s")
    assert _told(view) == before
    assert heads.fold(view.records()) == view.head
    assert [*wanted[-1:], *users("l", "m")] == view.history()
    store = world.store()
    assert store.append("s", user("a"), id="a").seq == 1
    assert store.append("s", user("l"), id="l").seq < view.seq
    assert store.append("s", assistant("e"), id="e").seq == 5


@pytest.mark.rule("H8", "H6")
def test_the_way_back_ends_at_the_newest_history(world: World) -> None:
    store = world.store()
    with _lived(store) as session:
        session.truncate(3)
        point, wanted = session.seq, list(session.history())
        assert session.summary() == "So far"
        session.append(user("l"))
        session.append(user("m"))
        later = list(session.history())
    store.vacuum("s", drop_history=True)
    with world.reopened().open("s") as session:
        before = state(session)
        for seq in (0, 1, 5, point - 1):
            with pytest.raises(ValueError, match="vacuumed"):
                session.rewind(seq)
            with pytest.raises(ValueError, match="vacuumed"):
                world.store().fork("s", at=seq)
        assert state(session) == before
        with world.store().fork("s", at=point) as fork:
            assert (list(fork.history()), fork.summary()) == (wanted, "So far")
        session.rewind(point)
        assert (list(session.history()), session.summary()) == (wanted, "So far")
        session.rewind(point + 2)
        assert (list(session.history()), session.summary()) == (later, "So far")
        assert world.store().fork("s").history() == later


@pytest.mark.rule("H8")
def test_what_was_cleared_goes_and_what_it_was_called_stays(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        session.append(user("What I said first"))
        session.append(user("What I said last"), usage=_spent(3))
        session.set_summary("S")
        session.clear()
        before = _told(session)
    assert store.vacuum("s", drop_history=True).count == 2
    view = world.reopened().read("s")
    assert _told(view) == before
    assert (view.head.title, view.head.preview, view.head.messages) == (
        "What I said first",
        "What I said last",
        2,
    )
    assert view.head.has_user_input
    with world.store().open("s") as session:
        session.append(user("New"))
        assert texts(session.history()) == ["New"]
        assert session.head.title == "What I said first"
        assert session.head.messages == 3


@pytest.mark.rule("H8")
def test_messages_written_within_a_change_stay_as_long_as_they_are_seen(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        session.extend(users("a", "b"))
        session.checkpoint([*users("A", "B", "C"), session.history()[1]])  # 3
        session.append(user("c"))  # 4
        session.truncate(3)  # 5: C b c
        session.append(user("d"))
        assert texts(session.history()) == ["C", "b", "c", "d"]
        session.history()
    assert store.vacuum("s", drop_history=True).count == 1
    assert [record.seq for record in store.read("s").records()] == [0, 1, 2, 3, 4, 5, 6]
    assert [r.kind for r in store.read("s").records()][1] == "compacted"
    with store.open("s") as session:
        assert texts(session.history()) == ["C", "b", "c", "d"]
        session.set_history(session.history()[1:])
        wanted = texts(session.history())
    store.vacuum("s", drop_history=True)
    assert texts(world.reopened().read("s").history()) == wanted == ["b", "c", "d"]


# -- who else is there


@pytest.mark.rule("H8", "W11")
def test_whoever_has_it_open_keeps_a_vacuum_out(world: World) -> None:
    store = world.store()
    with _lived(store) as session:
        for one in (store, world.other()):
            for drop in (True, False):
                with pytest.raises(SessionBusy):
                    one.vacuum("s", drop_history=drop)
        before = _told(session)
        assert session.head.reach == 0
    assert store.vacuum("s", drop_history=True)
    assert store.locks() == []
    with store.open("s") as session:
        assert _told(session) == before


@pytest.mark.rule("H8", "W11")
def test_whoever_has_it_open_in_another_process_keeps_a_vacuum_out(world: World) -> None:
    store = world.store()
    _lived(store).close()
    with world.beside(_hold, "s") as process:
        assert process.hear() == "open"
        with pytest.raises(SessionBusy) as caught:
            store.vacuum("s", drop_history=True)
        assert caught.value.holder.pid == process.pid
        process.tell("end")
        process.result()
    assert store.vacuum("s", drop_history=True)


@pytest.mark.rule("H8", "W12")
def test_a_shared_handle_works_on_across_a_vacuum(world: World) -> None:
    store = world.store()
    _lived(store).close()
    for number, opened in enumerate((store, world.other())):
        with opened.open("s", exclusive=False) as shared:
            seen = list(shared.history())
            other = world.other()
            with other.open("s") as session:
                session.truncate(3)
            other.vacuum("s", drop_history=True)
            assert shared.get("a") is shared.get(1) is None
            assert list(shared.history()) == seen[-3:]
            written = shared.append(user(f"{number}"), expect=shared.seq)
            assert written.seq == shared.seq
            shared.set_history([*shared.history()[1:], user("x")])
            shared.truncate(2)
            assert texts(shared.history()) == [f"{number}", "x"]
            assert list(other.read("s").history()) == list(shared.history())
            with opened.open("s") as session:
                session.extend(users("l", "m"))


@pytest.mark.rule("H8", "W12")
def test_what_a_shared_handle_had_seen_is_still_told_from_what_it_had_not(world: World) -> None:
    store, other = world.store(), world.other()
    with store.create("s") as session:
        session.extend(users("a", "b", "c"))
        session.truncate(2)
    with store.open("s", exclusive=False) as shared:
        assert texts(shared.history()) == ["b", "c"]
        other.append("s", user("unseen"))
        other.vacuum("s", drop_history=True)
        shared.truncate(1)
        assert texts(shared.history()) == ["c", "unseen"]


@pytest.mark.rule("H8", "H9")
def test_another_process_reads_on_across_a_vacuum(world: World) -> None:
    store = world.store()
    with _lived(store) as session:
        wanted = texts(session.history())
        last = session.seq
    with world.beside(_read_and_hold, "s") as process:
        assert process.hear() == wanted
        assert store.vacuum("s", drop_history=True)
        process.tell("go on")
        assert process.hear() == [wanted, wanted, last + 1]
        process.result()
    assert texts(store.read("s").history()) == [*wanted, "theirs"]
    assert world.elsewhere(_known, "s") == _known(world.other(), "s")


@pytest.mark.rule("H8")
def test_another_process_vacuums(world: World) -> None:
    store = world.store()
    with _lived(store) as session:
        before = _told(session)
    with store.open("s", exclusive=False) as shared:
        count, ids = world.elsewhere(_vacuum, "s")
        assert (count > 5, ids) == (True, ["s"])
        assert _told(shared) == before
        assert world.elsewhere(_vacuum, "s") == [0, []]
        assert shared.append(user("a"), id="a").seq == 1
        shared.append(user("new"))
    assert texts(world.reopened().read("s").history())[-1] == "new"


@pytest.mark.rule("H8")
def test_records_that_are_being_read_are_all_there(world: World) -> None:
    store = world.store()
    _lived(store).close()
    whole = list(store.read("s").records())
    found = store.read("s").records()
    first = next(found)
    store.vacuum("s", drop_history=True)
    rest = list(found)
    assert [first, *rest] in (whole, list(store.read("s").records()))


@pytest.mark.rule("H8", "W2")
def test_nothing_is_lost_that_others_write_meanwhile(world: World) -> None:
    store, other = world.store(), world.other()
    with store.create("s") as session:
        session.extend(users("a", "b"))
        session.truncate(1)
    failed: list[BaseException] = []

    def write() -> None:
        try:
            for i in range(60):
                other.append("s", user(f"{i}"), id=f"id {i}")
        except HansardError as error:
            failed.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    done = 0
    said = 0
    while writer.is_alive() or not done:
        with store.open("s") as session:
            session.truncate(len(session.history()) - 1)
            session.append(user("mine"))
            said += 1
        done += store.vacuum("s", drop_history=True).count
    writer.join()
    assert not failed
    assert done > 0
    head = store.head("s")
    assert head.messages == 2 + 60 + said
    for i in range(60):
        assert store.append("s", user(f"{i}"), id=f"id {i}").id == f"id {i}"
    assert store.head("s") == head == heads.fold(store.read("s").records())


@pytest.mark.rule("H8", "W4")
def test_what_cannot_be_vacuumed_is_left_as_it_is(world: World) -> None:
    store = world.store()
    _lived(store).close()
    old = store.head("s")
    attempts: list[tuple[type[Exception], Callable[[], Any]]] = [
        (SessionNotFound, lambda: store.vacuum("nobody", drop_history=True)),
    ]
    if "survives" in world.capabilities:
        reader = Store(world.new_engine(readonly=True), let_go=lambda: None)
        attempts.append((ReadOnlyStore, lambda: reader.vacuum("s", drop_history=True)))
    before = list(store.read("s").records())
    for error, attempt in attempts:
        with pytest.raises(error):
            attempt()
    assert list(store.read("s").records()) == before
    store.delete("s")
    store.append("s", user("another"), create=True)
    with pytest.raises(SessionNotFound):
        store.vacuum(old, drop_history=True)
    assert store.locks() == []


@pytest.mark.rule("H8", "H7", "W13")
def test_a_vacuumed_session_is_put_into_another_store_and_forked_as_it_is(world: World) -> None:
    store, other = world.store(), world.store(namespace="other")
    with _lived(store) as session:
        before = _told(session)
    store.vacuum("s", drop_history=True)
    other.put("s", store.read("s").records())
    copy = other.read("s")
    told = _told(copy)
    assert told["history"] == before["history"]
    assert told["usage"] == before["usage"]
    assert copy.head.messages == before["head"].messages
    assert other.append("s", user("a"), id="a").seq == 1
    assert [r.seq for r in copy.records()] == [r.seq for r in store.read("s").records()]
    with store.fork("s", id="f") as fork:
        assert list(fork.history()) == before["history"][0]


@pytest.mark.rule("H8", "L1", "L3")
def test_lists_are_as_they_were(world: World) -> None:
    store = world.store()
    _lived(store, "s").close()
    store.append("t", user("newer"), create=True)
    before = [msgspec.structs.replace(head, reach=0) for head in store.list()]
    store.vacuum("s", drop_history=True)
    for opened in (store, world.other()):
        assert [msgspec.structs.replace(head, reach=0) for head in opened.list()] == before
    assert store.resume("s").id == "s"


@pytest.mark.rule("H8")
def test_what_it_cost_is_the_same_to_the_last_digit_by_model_too(world: World) -> None:
    store = world.store()
    with store.create("s", model="m") as session:
        session.append(user("Hello"))
        for cents in (10, 20, 30, 70, 1, 3, 11, 7):
            session.append(assistant("x"), usage={"input_tokens": 1, "cost": cents / 100})
        session.checkpoint([user("So far")])
        for cents in (10, 20, 33):
            session.append(assistant("y"), usage={"input_tokens": 1, "cost": cents / 100})
        session.truncate(1)
        before = (session.usage(), session.usage("model"))
    assert before[0].cost == 2.15
    store.vacuum("s", drop_history=True)
    after = store.read("s")
    assert (after.usage(), [line.usage for line in after.usage("model")]) == (
        before[0],
        [line.usage for line in before[1]],
    )
