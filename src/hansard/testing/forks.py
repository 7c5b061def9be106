"""H7: a fork begins with the history of another session, and stands by itself."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count as numbers
from typing import Any

import pytest

from hansard.errors import (
    AlreadyExists,
    Conflict,
    InvalidId,
    ReadOnlyStore,
    SessionBusy,
    SessionNotFound,
)
from hansard.session import Session
from hansard.store import Store
from hansard.testing.chat import answer, assistant, call, state, texts, user, users
from hansard.testing.world import World
from hansard.views import history as views
from hansard.views.usage import Usage


def _branched(store: Store, id: str = "s") -> Session:
    """A session whose history consists of parts of every kind, with two abandoned branches."""
    session = store.create(id, agent="coder", model="gpt-5", labels=["red"], meta={"n": 1})
    session.extend(users(*"abcdef"), ids=[f"id {text}" for text in "abcdef"])
    session.append(assistant("g"), usage={"input_tokens": 10, "cost": 1.5})
    session.set_summary("First")
    session.truncate(4)  # d e f g
    session.append(user("h"))
    session.checkpoint(
        [user("A"), *session.history()[1:3], user("B")], summary="So far", token_count=7
    )  # A e f B
    session.rename("Title")
    session.extend([call("1"), answer("1")])
    session.pop(1, pairs=True)
    session.rewind(3)
    session.append(user("i"))
    session.clear()
    session.append(user("j"))
    session.rewind(session.seq - 6)
    session.append({"x": 1}, kind="mine.own")
    session.append(user("k"), shape="openai")
    return session


def _histories(session: Session) -> list[tuple[list[Any], str, int | None]]:
    """What the model saw just after each record: history, summary and token count."""
    seen: list[tuple[list[Any], str, int | None]] = []
    records = []
    summary, count = "", None
    for record in session.records():
        records.append(record)
        data = record.data
        if record.kind == "meta":
            summary = data.get("set", {}).get("summary", summary)
        if record.kind == "history":
            summary, count = data.get("summary", summary), data.get("token_count")
        seen.append((views.fold(records), summary, count))
    return seen


def _fork_elsewhere(store: Store, id: str, new: str) -> list[Any]:
    with store.fork(id, id=new) as fork:
        return texts(fork.history())


@pytest.mark.rule("H7", "W8")
def test_a_fork_begins_with_the_history_of_its_parent_and_is_there_at_once(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        session.extend([user("a"), assistant("b")])
        with store.fork("s", id="f") as fork:
            assert fork.id == "f"
            assert fork.history() == session.history()
            assert world.other().read("f").history() == session.history()
            fork.append(user("c"))
            session.append(user("d"))
            assert texts(fork.history()) == ["a", "b", "c"]
            assert texts(session.history()) == ["a", "b", "d"]
    assert texts(world.reopened().read("f").history()) == ["a", "b", "c"]


@pytest.mark.rule("H7")
def test_a_fork_names_its_parent_and_the_point(world: World) -> None:
    store = world.store()
    with _branched(store) as session:
        for at in (None, 0, 5, session.seq):
            with store.fork("s", at=at) as fork:
                point = session.seq if at is None else at
                for head in (fork.head, world.other().head(fork.id)):
                    assert (head.parent, head.path, head.forked_at) == ("s", None, point)


@pytest.mark.rule("H7", "H6", "H9")
def test_a_fork_may_begin_after_any_record_on_whatever_branch_it_lies(world: World) -> None:
    store = world.store()
    with _branched(store) as session:
        for at, (seen, summary, count) in enumerate(_histories(session)):
            with store.fork("s", at=at, id=f"f{at}") as fork:
                for view in (fork, world.other().read(f"f{at}")):
                    history = view.history()
                    assert (list(history), history.summary, history.token_count) == (seen, summary, count)
                    assert view.history(limit=2) == seen[-2:]
                    assert views.fold(view.records()) == seen


@pytest.mark.rule("H7", "H9")
def test_a_fork_that_was_reopened_has_the_same_history(world: World) -> None:
    with _branched(world.store()) as session:
        wanted = list(session.history())
        world.store().fork("s", id="f").close()
    assert world.reopened().read("f").history() == wanted


@pytest.mark.rule("H7")
def test_messages_of_a_fork_say_where_they_came_from(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        session.extend(users("a", "b", "c"))
        session.checkpoint([user("A"), session.history()[2]])
        session.append(user("d"))
        with store.fork("s") as fork:
            told = [(record.data["content"], record.origin) for record in fork.records(kinds="message")]
            assert told == [("A", ("s", 4)), ("c", ("s", 3)), ("d", ("s", 5))]
            assert fork.append(user("e")).origin is None
            with store.fork(fork.id) as second:
                origins = [record.origin for record in second.records(kinds="message")]
                assert origins == [(fork.id, seq) for seq in (1, 2, 3, 4)]


@pytest.mark.rule("H7")
def test_a_fork_keeps_what_a_message_is_and_not_what_it_cost(world: World) -> None:
    store = world.store()
    then = datetime(2026, 5, 1, tzinfo=UTC)
    with store.create("s", model="gpt-5") as session:
        digest = "ab" * 32
        session.append(user("a"), shape="openai", time=then, blobs=[digest], turn="t", id="k")
        session.append(assistant("b"), model="claude", usage={"input_tokens": 10, "cost": 2})
        session.add_usage({"input_tokens": 5})
        written = session.get(2)
        assert written is not None
        with store.fork("s") as fork:
            first, second = fork.records(kinds="message")
            assert (first.shape, first.when, first.blobs) == ("openai", then, (digest,))
            assert (first.id, first.turn, first.usage, second.usage) == (None, None, None, None)
            assert (second.model, second.when) == ("claude", written.at)
            assert fork.usage() == fork.head.usage == Usage()
            assert fork.head.messages == 2
            assert session.usage().total_tokens == 15


@pytest.mark.rule("H7", "W5")
def test_ids_of_records_are_not_inherited(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        session.append(user("a"), id="k")
        session.event("delta", event_id="e")
        session.set_summary("S", id="sum")
        with store.fork("s") as fork:
            assert fork.get("k") is fork.get("e") is fork.get("sum") is None
            assert fork.append(user("other"), id="k").seq == 2
            assert fork.event("end", event_id="e").seq == 3
        assert session.append(user("a"), id="k").seq == 1


@pytest.mark.rule("H7")
def test_a_fork_is_as_its_parent_is_but_for_what_is_said_of_it(world: World) -> None:
    store = world.store()
    facts: dict[str, Any] = {
        "agent": "coder",
        "model": "gpt-5",
        "vendor": "openai",
        "endpoint": "https://example.com",
        "workspace": "/w/one",
        "labels": ["red"],
        "meta": {"n": 1},
    }
    with store.create("s", **facts) as session:
        session.append(user("What I said"))
        session.update(model="gpt-6", meta={"m": None}, status="done", pinned=True)
        with store.fork("s") as fork:
            head = fork.head
            assert [getattr(head, name) for name in facts if name not in ("model", "meta")] == [
                facts[name] for name in facts if name not in ("model", "meta")
            ]
            assert (head.model, head.meta) == ("gpt-6", {"n": 1, "m": None})
            assert (head.status, head.ended_at, head.pinned) == ("active", None, False)
            assert (head.title, head.titled, head.preview) == ("What I said", False, "What I said")
        with store.fork("s", agent="writer", labels=[], meta={"x": 1}, title="Mine") as fork:
            head = world.other().head(fork.id)
            assert (head.agent, head.labels, head.meta, head.title) == ("writer", [], {"x": 1}, "Mine")
            assert head.model == "gpt-6"
        session.rename("Chosen")
        with store.fork("s") as fork:
            assert (fork.head.title, fork.head.titled) == ("Chosen", True)


@pytest.mark.rule("H7", "L1")
def test_copying_is_no_activity_of_what_was_said(world: World) -> None:
    hours = numbers()
    store = world.store(clock=lambda: datetime(2026, 5, 1, tzinfo=UTC) + timedelta(hours=next(hours)))
    with store.create("s") as session:
        session.append(user("a"))
        said = session.head.updated_at
    store.fork("s", id="f").close()
    head = store.head("f")
    assert head.updated_at == head.created_at > said
    assert [found.id for found in store.list()] == ["f", "s"]


@pytest.mark.rule("H7", "E4")
def test_a_fork_is_listed_by_itself_and_among_the_forks_of_its_parent(world: World) -> None:
    store = world.store()
    store.append("s", user("a"), create=True)
    store.fork("s", id="f").close()
    assert {head.id for head in store.list()} == {"s", "f"}
    assert [head.id for head in store.list(parent="s")] == ["f"]
    assert store.read("s").subs() == []


@pytest.mark.rule("H7", "H6")
def test_the_summary_is_copied_and_goes_its_own_way(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        session.append(user("a"))
        session.set_summary("First")
        session.append(user("b"))
        session.set_summary("Second")
        with store.fork("s", at=2) as fork, store.fork("s") as last:
            assert (fork.summary(), last.summary()) == ("First", "Second")
            assert fork.history().summary == fork.head.summary == "First"
            fork.append(user("c"))
            fork.set_summary("Mine")
            assert (fork.summary(), session.summary()) == ("Mine", "Second")
            fork.rewind(1)
            assert (fork.summary(), texts(fork.history())) == ("First", ["a"])
            with store.fork(fork.id, at=1) as second, store.fork(fork.id, at=0) as empty:
                assert (second.summary(), texts(second.history())) == ("First", ["a"])
                assert (empty.summary(), texts(empty.history())) == ("First", [])
            fork.clear()
            assert fork.summary() == ""


@pytest.mark.rule("H7", "E3")
def test_documents_are_copied_and_go_their_own_way(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        session.append(user("a"))
        session.documents.put("screen/ü", b"\x00\xff")
        before = session.documents.get("screen/ü")
        with store.fork("s", id="f") as fork:
            assert fork.documents.list() == ["screen/ü"]
            copied = fork.documents.get("screen/ü")
            assert copied is not None
            assert before is not None
            assert (copied.data, copied.time) == (before.data, before.time)
            fork.documents.put("screen/ü", b"mine")
            session.documents.put("later", b"x")
            assert fork.documents.list() == ["screen/ü"]
            kept = session.documents.get("screen/ü")
            assert kept is not None
            assert kept.data == b"\x00\xff"
        assert store.delete("s")
    found = world.reopened().read("f").documents.get("screen/ü")
    assert found is not None
    assert found.data == b"mine"


@pytest.mark.rule("H7")
def test_a_fork_outlives_its_parent_and_so_does_a_fork_of_the_fork(world: World) -> None:
    store = world.store()
    with _branched(store) as session:
        wanted = list(session.history())
    store.fork("s", id="f").close()
    assert store.delete("s")
    store = world.reopened()
    with store.open("f") as fork:
        assert fork.history() == wanted
        assert fork.head.parent == "s"
        fork.append(user("new"))
        with store.fork("f", id="g") as second:
            assert second.history() == [*wanted, user("new")]
            assert second.head.parent == "f"
    assert store.delete("f")
    assert world.reopened().read("g").history() == [*wanted, user("new")]


@pytest.mark.rule("H7", "W6")
def test_a_fork_works_like_any_other_session(world: World) -> None:
    store = world.store()
    with _branched(store) as session, store.fork("s", id="f") as fork:
        wanted = list(session.history())
        assert fork.append(user("new"), expect=fork.seq).seq == fork.seq
        fork.truncate(2, pairs=False)
        assert fork.history() == [wanted[-1], user("new")]
        fork.rewind(0)
        assert fork.history() == []
        fork.rewind(fork.seq - 3)
        assert fork.history() == wanted
        assert fork.set_history(wanted) is None
        assert fork.pop() == [wanted[-1]]
        assert session.history() == wanted


@pytest.mark.rule("H7", "W11", "S1")
def test_a_fork_is_leased_and_active_and_its_parent_need_not_be_free(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        session.append(user("a"))
        with world.other().fork("s", id="f") as fork:
            assert [holder.session for holder in store.locks()] == ["f", "s"]
            assert store.active() == "f"
            with pytest.raises(SessionBusy):
                store.open("f")
            session.append(user("b"))
            assert texts(fork.history()) == ["a"]
    assert store.locks() == []


@pytest.mark.rule("H7", "W11")
def test_another_process_forks_beside_the_holder(world: World) -> None:
    with world.store().create("s") as session:
        session.extend(users("a", "b"))
        assert world.elsewhere(_fork_elsewhere, "s", "f") == ["a", "b"]
        session.append(user("c"))
    assert texts(world.store().read("f").history()) == ["a", "b"]


@pytest.mark.rule("H7", "H1")
@pytest.mark.parametrize("at", [-1, 3, 99])
def test_a_record_that_there_is_not_is_no_point_to_fork_at(world: World, at: int) -> None:
    store = world.store()
    store.extend("s", users("a", "b"), create=True)
    with pytest.raises(ValueError, match="no record"):
        store.fork("s", at=at, id="f")
    with pytest.raises(TypeError):
        store.fork("s", at=True, id="f")
    with pytest.raises(TypeError):
        store.fork("s", at="2", id="f")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        store.fork("s", id="f", color="red")
    assert [head.id for head in store.list(empty=True)] == ["s"]
    assert store.locks() == []


@pytest.mark.rule("H7", "W9", "I2")
def test_a_fork_takes_over_nobodys_id(world: World) -> None:
    store = world.store()
    store.append("s", user("a"), create=True)
    store.append("t", user("b"), create=True)
    for id, error in (("t", AlreadyExists), ("s", AlreadyExists), ("", InvalidId), ("a\n", InvalidId)):
        with pytest.raises(error):
            store.fork("s", id=id)
    with pytest.raises(SessionNotFound):
        store.fork("nobody", id="f")
    with store.create("busy"), pytest.raises(SessionBusy):
        store.fork("s", id="busy")
    assert texts(store.read("t").history()) == ["b"]
    assert store.locks() == []


@pytest.mark.rule("H7", "I3")
def test_a_head_is_forked_only_while_it_is_the_same_session(world: World) -> None:
    store = world.store()
    store.append("s", user("a"), create=True)
    head = store.head("s")
    store.fork(head, id="f").close()
    store.delete("s")
    store.append("s", user("b"), create=True)
    with pytest.raises(SessionNotFound):
        store.fork(head, id="g")
    assert texts(store.read("f").history()) == ["a"]


@pytest.mark.rule("H7")
def test_nothing_is_forked_in_a_store_that_is_only_read(world: World) -> None:
    world.needs("survives")
    world.store().append("s", user("a"), create=True)
    store = Store(world.new_engine(readonly=True), let_go=lambda: None)
    with pytest.raises(ReadOnlyStore):
        store.fork("s", id="f")
    assert [head.id for head in world.store().list()] == ["s"]


@pytest.mark.rule("H7")
def test_an_empty_history_is_forked_too(world: World) -> None:
    store = world.store()
    with store.create("s", agent="coder") as session:
        session.append(user("a"))
        session.clear()
        with store.fork("s", id="f") as fork:
            assert fork.history() == []
            assert [record.kind for record in fork.records()] == ["session"]
            assert fork.head.agent == "coder"
            fork.append(user("b"))
            assert texts(fork.history()) == ["b"]
    assert texts(world.reopened().read("f").history()) == ["b"]


@pytest.mark.rule("H7", "W8")
def test_a_fork_stays_when_it_is_closed_whatever_is_in_it(world: World) -> None:
    store = world.store()
    with store.create("s", eager=True):
        store.fork("s", id="f").close()
    assert [head.id for head in store.list(empty=True)] == ["f"]


@pytest.mark.rule("H7", "W2")
def test_a_fork_of_what_somebody_is_writing_has_whole_writes(world: World) -> None:
    store = world.store()
    store.append("s", user("begin"), create=True)
    with world.beside(_extend, "s", 30, 3):
        for i in range(10):
            with store.fork("s", id=f"f{i}") as fork:
                assert len(fork.history()) % 3 == 1
                assert fork.head.forked_at is not None
                assert fork.head.forked_at % 3 == 1


def _extend(store: Store, id: str, times: int, n: int) -> None:
    for i in range(times):
        store.extend(id, users(*(f"{i}.{j}" for j in range(n))))


@pytest.mark.rule("H7", "H8", "W4")
@pytest.mark.parametrize("how", ["fork", "history", "limit"])
def test_what_a_vacuum_takes_away_meanwhile_is_missed_and_never_left_out(world: World, how: str) -> None:
    store = world.store()
    store.extend("s", users("a", "b", "c"), create=True)
    view = store.read("s")
    with store.open("s") as session:
        session.truncate(1)
        session.append(user("d"))
    store.vacuum("s", drop_history=True)
    attempts: dict[str, Callable[[], Any]] = {
        "fork": lambda: store.fork("s", at=3, id="f"),
        "history": view.history,
        "limit": lambda: view.history(limit=2),
    }
    with pytest.raises((Conflict, ValueError)):
        attempts[how]()
    assert [head.id for head in store.list(empty=True)] == ["s"]
    assert store.locks() == []
    view.refresh()
    assert texts(view.history()) == ["c", "d"]


@pytest.mark.rule("H7", "W7")
def test_a_fork_of_a_handle_that_was_never_written_is_refused(world: World) -> None:
    store = world.store()
    with store.create("s"), pytest.raises(SessionNotFound):
        store.fork("s")
    assert store.list(empty=True) == []


@pytest.mark.rule("H7")
def test_forking_changes_nothing_in_the_parent(world: World) -> None:
    store = world.store()
    with _branched(store) as session:
        before = state(session)
        store.fork("s").close()
        store.fork("s", at=3).close()
        assert state(session) == before
