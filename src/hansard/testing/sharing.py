"""W11 and W12: what is allowed beside somebody who has a session open, and what a shared handle is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from hansard.errors import Conflict, SessionBusy, SessionNotFound
from hansard.session import Session
from hansard.store import Store
from hansard.testing.chat import assistant, state, texts, user, users
from hansard.testing.world import World, hear, say

BESIDE: dict[str, Callable[[Session], Any]] = {
    "append": lambda shared: shared.append(user("x")),
    "append of a kind": lambda shared: shared.append({"x": 1}, kind="mine.own"),
    "extend": lambda shared: shared.extend(users("x", "y")),
    "add_usage": lambda shared: shared.add_usage({"input_tokens": 7}),
    "rename": lambda shared: shared.rename("Theirs"),
    "label": lambda shared: shared.label("theirs"),
    "pin": lambda shared: shared.pin(),
    "update": lambda shared: shared.update(model="theirs", meta={"a": 1}),
}
"""What others may write while somebody has the lease."""

CHANGES: dict[str, Callable[[Session], Any]] = {
    "checkpoint": lambda shared: shared.checkpoint([user("x")]),
    "truncate": lambda shared: shared.truncate(1),
    "truncate to nothing": lambda shared: shared.truncate(0),
    "set_history": lambda shared: shared.set_history(users("x", "y")),
    "pop": lambda shared: shared.pop(),
    "clear": lambda shared: shared.clear(),
    "rewind": lambda shared: shared.rewind(1),
}
"""What changes the history."""


def _hold(store: Store, id: str) -> None:
    with store.open(id) as session:
        session.history()
        say("open")
        while (asked := hear()) != "end":
            say(texts(session.history()) if asked == "history" else session.append(user(asked)).seq)


def _busy_elsewhere(store: Store, id: str) -> list[str]:
    """Which of the calls that need the lease are refused here."""
    refused = []
    with store.open(id, exclusive=False) as shared:
        for name, change in CHANGES.items():
            try:
                change(shared)
            except SessionBusy:
                refused.append(name)
    for name, attempt in (("open", store.open), ("resume", store.resume)):
        try:
            attempt(id).close()
        except SessionBusy:
            refused.append(name)
    return refused


def _beside_elsewhere(store: Store, id: str) -> int:
    with store.open(id, exclusive=False) as shared:
        for write in BESIDE.values():
            write(shared)
        return shared.seq


# -- W11


@pytest.mark.rule("W11")
@pytest.mark.parametrize("name", BESIDE)
def test_others_may_write_beside_the_holder_who_sees_it_at_the_next_read(world: World, name: str) -> None:
    with world.store().create("s") as holder:
        holder.append(user("a"))
        known = holder.seq
        with world.other().open("s", exclusive=False) as shared:
            BESIDE[name](shared)
            head = shared.head
            new = list(shared.records(after=known))
        assert new
        assert holder.seq == known  # it has not looked yet
        with pytest.raises(Conflict):
            holder.append(user("b"), expect=known)
        assert list(holder.records(after=known)) == new
        assert holder.head == head
        assert holder.history() == world.store().read("s").history()
        assert holder.append(user("b"), expect=holder.seq).seq == new[-1].seq + 1


@pytest.mark.rule("W11")
def test_others_may_append_without_a_handle_beside_the_holder(world: World) -> None:
    other = world.other()
    with world.store().create("s") as holder:
        holder.append(user("a"))
        other.append("s", user("b"))
        other.extend("s", users("c", "d"))
        other.append("s", user("e"), create=True)
        assert texts(holder.history()) == ["a", "b", "c", "d", "e"]
        assert holder.head.messages == 5


@pytest.mark.rule("W11")
def test_others_may_read_and_list_beside_the_holder(world: World) -> None:
    other = world.other()
    with world.store().create("s") as holder:
        holder.extend(users("a", "b"))
        holder.checkpoint([user("so far")], summary="So far")
        view = other.read("s")
        assert texts(view.history()) == ["so far"]
        assert view.summary() == "So far"
        assert [record.seq for record in view.records()] == [0, 1, 2, 3]
        assert [head.id for head in other.list()] == ["s"]
        assert other.head("s") == holder.head
        assert other.resolve("s") == "s"


@pytest.mark.rule("W11")
@pytest.mark.parametrize("name", CHANGES)
def test_others_may_not_change_the_history_beside_the_holder(world: World, name: str) -> None:
    with world.store().create("s") as holder:
        holder.extend(users("a", "b"))
        before = state(holder)
        for store in (world.store(), world.other()):
            with store.open("s", exclusive=False) as shared:
                with pytest.raises(SessionBusy) as caught:
                    CHANGES[name](shared)
                assert caught.value.id == "s"
                assert caught.value.holder is not None
        assert state(holder) == before
        CHANGES[name](holder)
        assert state(holder) != before


@pytest.mark.rule("W11")
def test_others_may_not_open_or_resume_beside_the_holder(world: World) -> None:
    with world.store().create("s") as holder:
        holder.append(user("a"))
        for store in (world.store(), world.other()):
            attempts: tuple[Callable[[], Any], ...] = (
                partial(store.open, "s"),
                partial(store.open, "s", create=True),
                partial(store.open, holder.head),
                partial(store.resume, "s"),
                store.resume,
            )
            for attempt in attempts:
                with pytest.raises(SessionBusy):
                    attempt()
        holder.append(user("b"))
        assert texts(holder.history()) == ["a", "b"]


@pytest.mark.rule("W11", "W10")
def test_others_may_delete_beside_the_holder(world: World) -> None:
    with world.store().create("s") as holder:
        holder.append(user("a"))
        assert world.other().delete("s") is True
        with pytest.raises(SessionNotFound):
            holder.append(user("b"))


@pytest.mark.rule("W11")
def test_another_process_may_write_beside_the_holder_and_not_change_the_history(world: World) -> None:
    store = world.store()
    with store.create("s") as holder:
        holder.extend(users("a", "b"))
        assert world.elsewhere(_busy_elsewhere, "s") == [*CHANGES, "open", "resume"]
        assert texts(holder.history()) == ["a", "b"]
        last = world.elsewhere(_beside_elsewhere, "s")
        assert texts(holder.history()) == ["a", "b", "x", "x", "y"]
        assert holder.seq == last
        assert holder.head.title == "Theirs"
        assert holder.append(user("c"), expect=last).seq == last + 1


@pytest.mark.rule("W11")
def test_a_holder_in_another_process_sees_what_is_written_here(world: World) -> None:
    store = world.store()
    store.append("s", user("a"), create=True)
    with world.beside(_hold, "s") as process:
        assert process.hear() == "open"
        attempts: tuple[Callable[[], Any], ...] = (
            lambda: store.open("s"),
            lambda: store.open("s", exclusive=False).clear(),
        )
        for attempt in attempts:
            with pytest.raises(SessionBusy) as caught:
                attempt()
            assert caught.value.holder.pid == process.pid
        assert store.append("s", user("b")).seq == 2
        process.tell("history")
        assert process.hear() == ["a", "b"]
        process.tell("c")
        assert process.hear() == 3
        assert texts(store.read("s").history()) == ["a", "b", "c"]
        process.tell("end")
        process.result()
    with store.open("s") as session:
        assert session.append(user("d"), expect=3).seq == 4


# -- W12


@pytest.mark.rule("W12")
def test_a_shared_handle_takes_no_lease(world: World) -> None:
    store = world.store()
    store.append("s", user("a"), create=True)
    with store.open("s", exclusive=False) as one, world.other().open("s", exclusive=False) as two:
        assert store.locks() == []
        one.append(user("b"))
        with store.open("s") as holder:
            assert [h.session for h in store.locks()] == ["s"]
            two.append(user("c"))
            assert texts(holder.history()) == ["a", "b", "c"]
        assert store.locks() == []
        two.append(user("d"))
        assert texts(one.history()) == texts(two.history()) == ["a", "b", "c", "d"]


@pytest.mark.rule("W12", "W8")
def test_a_shared_handle_creates_a_session_without_a_lease(world: World) -> None:
    store = world.store()
    with pytest.raises(SessionNotFound):
        store.open("s", exclusive=False)
    with store.open("s", create=True, exclusive=False, title="Title") as shared:
        assert store.locks() == []
        shared.append(user("a"))
        assert store.head("s").title == "Title"
        with store.open("s") as holder:
            assert texts(holder.history()) == ["a"]


@pytest.mark.rule("W12")
@pytest.mark.parametrize("name", CHANGES)
def test_a_history_call_of_a_shared_handle_has_the_lease_only_for_its_duration(
    world: World, name: str
) -> None:
    store = world.store()
    store.extend("s", users("a", "b", "c"), create=True)
    with store.open("s", exclusive=False) as shared, world.other().open("s", exclusive=False) as other:
        before = shared.history()
        CHANGES[name](shared)
        assert shared.history() != before
        assert store.locks() == []
        with store.open("s") as holder:
            assert holder.history() == shared.history() == other.history()
        CHANGES[name](other)
        assert store.locks() == []


@pytest.mark.rule("W12")
def test_a_history_call_of_a_shared_handle_that_fails_leaves_no_lease(world: World) -> None:
    store = world.store()
    store.extend("s", users("a", "b"), create=True)
    with store.open("s", exclusive=False) as shared:
        attempts: tuple[Callable[[], Any], ...] = (
            lambda: shared.checkpoint([], upto=99),
            lambda: shared.rewind(99),
            lambda: shared.checkpoint([b""]),
        )
        for attempt in attempts:
            with pytest.raises(ValueError):
                attempt()
            assert store.locks() == []
        store.open("s").close()


@pytest.mark.rule("W12", "H2")
@pytest.mark.parametrize("name", [name for name in CHANGES if name != "rewind"])
def test_a_shared_handle_does_not_change_a_history_that_was_changed_since_it_read_it(
    world: World, name: str
) -> None:
    store = world.store()
    store.extend("s", users("a", "b", "c"), create=True)
    with store.open("s", exclusive=False) as one, world.other().open("s", exclusive=False) as two:
        one.history()
        two.history()
        two.checkpoint([user("so far"), user("now")])
        before = state(two)
        with pytest.raises(Conflict) as caught:
            CHANGES[name](one)
        assert caught.value.seq == 4
        assert state(two) == before
        assert store.locks() == []
        assert texts(one.history()) == ["so far", "now"]
        CHANGES[name](one)
        assert state(one) != before


@pytest.mark.rule("W12")
def test_each_call_of_many_shared_handles_is_atomic(world: World) -> None:
    stores = [world.store(), world.other(), world.other()]
    stores[0].append("s", user("begin"), create=True)
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with stores[number].open("s", exclusive=False) as shared:
                for i in range(15):
                    shared.extend([user(f"{number}.{i}"), assistant(f"{number}.{i}+")])
                    shared.label(f"{number}.{i}")
                    shared.update(meta={f"{number}.{i}": True})
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(stores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    view = stores[0].read("s")
    found = texts(view.history())
    assert len(found) == 1 + 3 * 30
    assert all(found[i + 1] == f"{found[i]}+" for i in range(1, len(found), 2))
    every = {f"{number}.{i}" for number in range(3) for i in range(15)}
    assert set(view.head.labels) == every
    assert set(view.head.meta) == every


@pytest.mark.rule("W12", "H2")
def test_messages_are_not_lost_while_shared_handles_change_the_history(world: World) -> None:
    stores = [world.store(), world.other(), world.other()]
    stores[0].append("s", user("begin"), create=True)
    shared = stores[2].open("s", exclusive=False)
    done = threading.Event()
    failed: list[BaseException] = []

    def write(number: int) -> None:
        try:
            for i in range(25):
                stores[number].append("s", user(f"{number}.{i}"))
        except BaseException as error:
            failed.append(error)

    def change() -> None:
        try:
            while not done.is_set():
                shared.checkpoint([user("so far")])  # it never reads what the others said
        except BaseException as error:
            failed.append(error)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    changer = threading.Thread(target=change)
    for thread in (*writers, changer):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    changer.join()
    shared.close()
    assert not failed
    found = texts(stores[0].read("s").history())
    assert sorted(text for text in found if "." in text) == sorted(
        f"{number}.{i}" for number in range(2) for i in range(25)
    )
    for number in range(2):
        mine = [text for text in found if text.startswith(f"{number}.")]
        assert mine == [f"{number}.{i}" for i in range(25)]


@pytest.mark.rule("L3", "W11")
@pytest.mark.parametrize("beside", [False, True], ids=["beside it", "elsewhere"])
def test_a_list_has_what_the_holder_writes_after_a_shared_handle_was_closed(
    world: World, beside: bool
) -> None:
    store = world.store()
    store.list()
    with (world.other() if beside else store).create("s") as holder:
        holder.append(user("a"))
        with store.open("s", exclusive=False) as shared:
            shared.rename("Theirs")
        holder.append(user("b"))
        assert [(head.seq, head.messages) for head in store.list()] == [(3, 2)]
        assert [(head.seq, head.messages) for head in world.other().list()] == [(3, 2)]
