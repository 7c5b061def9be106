"""E4: the children of a session."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from hansard.errors import (
    Closed,
    HansardError,
    InvalidId,
    InvalidPayload,
    SessionBusy,
    SessionNotFound,
)
from hansard.ids import child_id
from hansard.session import Session
from hansard.store import Store
from hansard.testing.chat import assistant, texts, user
from hansard.testing.world import World, hear, say


def _ids(store: Store, **which: Any) -> set[str]:
    return {head.id for head in store.list(limit=None, empty=True, **which)}


def _begun(world: World) -> Session:
    session = world.store().create("s", agent="coder", model="gpt-5", workspace="/w", labels=["red"])
    session.append(user("Hello"))
    return session


def _say_in_child(store: Store, id: str, path: str, text: str) -> str:
    with store.open(id, exclusive=False, activate=False) as parent, parent.sub(path) as child:
        child.append(user(text))
        return child.id


def _hold_child(store: Store, id: str, path: str) -> None:
    with store.open(id, exclusive=False, activate=False) as parent, parent.sub(path):
        say("open")
        hear()


@pytest.mark.rule("E4", "W8")
def test_a_child_is_there_at_once_and_names_its_parent_and_its_path(world: World) -> None:
    with _begun(world) as session, session.sub("research/1") as child:
        assert child.id.startswith("sess_")
        for head in (child.head, world.other().head(child.id)):
            assert (head.parent, head.path, head.forked_at) == ("s", "research/1", None)
            assert (head.agent, head.model, head.workspace, head.labels) == ("coder", "gpt-5", "/w", [])
        assert child.history() == []
        child.append(assistant("Hi"))
        assert child.get(1).model == "gpt-5"  # type: ignore[union-attr]
        assert texts(session.history()) == ["Hello"]


@pytest.mark.rule("E4")
def test_the_child_of_a_path_is_opened_where_there_is_one(world: World) -> None:
    with _begun(world) as session:
        with session.sub("research") as child:
            child.append(user("Look"))
            first = child.id
        with session.sub("research", agent="other") as child:
            assert child.id == first
            assert child.head.agent == "coder"
            assert texts(child.history()) == ["Look"]
            child.append(user("More"))
        with session.sub("Research") as other, session.sub("research/") as third:
            assert len({first, other.id, third.id}) == 3
    with world.reopened().open("s") as session, session.sub("research") as child:
        assert texts(child.history()) == ["Look", "More"]


@pytest.mark.rule("E4")
def test_what_is_said_of_a_child_is_its_own(world: World) -> None:
    with _begun(world) as session, session.sub("a", agent="finder", title="Mine", meta={"n": 1}) as child:
        head = child.head
        assert (head.agent, head.title, head.meta, head.model) == ("finder", "Mine", {"n": 1}, "gpt-5")
        with pytest.raises(TypeError):
            session.sub("b", color="red")
        with pytest.raises(TypeError):
            session.sub("b", parent="x")
        assert [head.path for head in session.subs()] == ["a"]


@pytest.mark.rule("E4", "L1")
def test_a_child_is_listed_only_with_its_parent(world: World) -> None:
    with _begun(world) as session:
        with session.sub("a") as child, child.sub("b") as grandchild:
            child.append(user("x"))
            grandchild.append(user("y"))
        store = world.other()
        assert _ids(store) == {"s"}
        assert _ids(store, parent="s") == {child.id}
        assert _ids(store, parent=child.id) == {grandchild.id}
        assert [head.id for head in store.list(parent=store.head("s"))] == [child.id]
        latest = store.latest()
        assert latest is not None
        assert latest.id == "s"


@pytest.mark.rule("E4")
def test_the_children_of_a_session_stand_in_the_order_of_their_paths(world: World) -> None:
    with _begun(world) as session:
        for path in ("b", "a", "ü", "a/b"):
            session.sub(path).close()
        for view in (session, world.other().read("s")):
            assert [head.path for head in view.subs()] == ["a", "a/b", "b", "ü"]
        assert world.reopened().read("s").subs()[0].parent == "s"


@pytest.mark.rule("E4")
def test_any_text_may_be_a_path(world: World) -> None:
    paths = ["a", "a ", "A", "é", "e\u0301", "../x", "/", "line\nbreak", "\x00", "x" * 5000, "🦊", "."]
    with _begun(world) as session:
        ids = set()
        for path in paths:
            with session.sub(path) as child:
                ids.add(child.id)
                assert child.head.path == path
        assert len(ids) == len(paths)
        assert [head.path for head in session.subs()] == sorted(paths)


@pytest.mark.rule("E4", "W4")
@pytest.mark.parametrize("path", ["", " ", "\n", None, 7, "\ud800"], ids=ascii)
def test_a_path_that_says_nothing_is_refused(world: World, path: Any) -> None:
    with _begun(world) as session:
        with pytest.raises((InvalidId, InvalidPayload)):
            session.sub(path)
        assert session.subs() == []


@pytest.mark.rule("E4", "W8")
def test_a_child_begins_its_parent(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        session.sub("a").close()
        assert session.seq == 0
        assert _ids(store) == {"s"}
    assert _ids(store) == {"s"}
    assert len(store.read("s").subs()) == 1


@pytest.mark.rule("E4", "W8")
def test_an_empty_child_stays_when_it_is_closed(world: World) -> None:
    with _begun(world) as session:
        with session.sub("a") as child:
            pass
        assert [head.id for head in session.subs()] == [child.id]


@pytest.mark.rule("E4", "S1")
def test_a_child_is_leased_and_never_the_active_session(world: World) -> None:
    with _begun(world) as session:
        with session.sub("a") as child:
            assert sorted(holder.session for holder in world.store().locks()) == sorted([child.id, "s"])
            with pytest.raises(SessionBusy):
                session.sub("a")
            with session.sub("b"):
                pass
        with session.sub("a"):
            pass
        assert world.store().active() == "s"
    assert world.store().locks() == []


@pytest.mark.rule("E4", "W12")
def test_a_shared_handle_has_children_too(world: World) -> None:
    with _begun(world) as session, world.other().open("s", exclusive=False) as shared:
        with shared.sub("a") as child:
            child.append(user("x"))
        with session.sub("a") as child:
            assert texts(child.history()) == ["x"]


@pytest.mark.rule("E4", "W10")
@pytest.mark.parametrize("how", ["the store", "another engine"])
def test_children_are_deleted_with_their_parent(world: World, how: str) -> None:
    store = world.store()
    with _begun(world) as session:
        with session.sub("a") as child, child.sub("b") as grandchild:
            grandchild.append(user("x"))
            child.documents.put("screen", b"x")
        ids = {child.id, grandchild.id}
    store.append("t", user("stays"), create=True)
    assert (store if how == "the store" else world.other()).delete("s")
    assert store.list(parent="s", empty=True) == []
    for id in ids:
        with pytest.raises(SessionNotFound):
            store.head(id)
    assert _ids(world.reopened()) == {"t"}


@pytest.mark.rule("E4", "W10")
def test_an_open_child_whose_parent_was_deleted_writes_no_more(world: World) -> None:
    store = world.store()
    session = _begun(world)
    child = session.sub("a")
    child.append(user("x"))
    assert world.other().delete("s")
    with pytest.raises(SessionNotFound):
        child.append(user("y"))
    with pytest.raises(SessionNotFound):
        session.sub("b")
    child.close()
    with pytest.raises(SessionNotFound):
        session.sub("a")
    session.close()
    assert _ids(store) == set()


@pytest.mark.rule("E4")
def test_a_new_session_of_the_same_id_has_children_of_its_own(world: World) -> None:
    store = world.store()
    with _begun(world) as session, session.sub("a") as child:
        child.append(user("old"))
    store.delete("s")
    with _begun(world) as session:
        assert session.subs() == []
        with session.sub("a") as again:
            assert again.history() == []
            assert again.id != child.id


@pytest.mark.rule("E4")
def test_deleting_a_child_leaves_its_parent_and_the_path_free(world: World) -> None:
    store = world.store()
    with _begun(world) as session:
        with session.sub("a") as child:
            child.append(user("old"))
        assert store.delete(child.id)
        assert session.subs() == []
        with session.sub("a") as again:
            assert again.history() == []
        assert texts(session.history()) == ["Hello"]


@pytest.mark.rule("E4", "E9")
def test_a_closed_session_has_no_new_children(world: World) -> None:
    session = _begun(world)
    session.close()
    with pytest.raises(Closed):
        session.sub("a")
    assert world.store().read("s").subs() == []


@pytest.mark.rule("E4", "W9")
def test_of_many_threads_that_open_or_create_a_child_each_gets_the_same(world: World) -> None:
    stores = [world.store(), world.store(), world.other(), world.other()]
    stores[0].append("s", user("Hello"), create=True)
    ids: list[str] = []
    failed: list[BaseException] = []

    def work(store: Store) -> None:
        try:
            done = 0
            while done < 5:
                try:
                    ids.append(_say_in_child(store, "s", "a", "x"))
                    done += 1
                except SessionBusy:
                    continue
        except HansardError as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert len(set(ids)) == 1
    assert texts(stores[0].read(ids[0]).history()) == ["x"] * 20
    assert len(stores[0].read("s").subs()) == 1


@pytest.mark.rule("E4", "S1")
def test_another_process_opens_the_same_child(world: World) -> None:
    with _begun(world) as session:
        id = world.elsewhere(_say_in_child, "s", "a", "theirs")
        with session.sub("a") as child:
            assert (child.id, texts(child.history())) == (id, ["theirs"])
        with world.beside(_hold_child, "s", "a") as process:
            assert process.hear() == "open"
            with pytest.raises(SessionBusy) as caught:
                session.sub("a")
            assert caught.value.holder.pid == process.pid
            process.tell("end")
            process.result()


@pytest.mark.rule("E4", "W13")
def test_a_child_that_came_with_its_parent_from_another_store_is_found_by_its_path(world: World) -> None:
    there, here = world.store(namespace="there"), world.store()
    with there.create("s") as session:
        session.append(user("Hello"))
        with session.sub("a") as child:
            child.append(user("x"))
        for id in ("s", child.id):
            here.put(there.head(id), there.read(id).records())
    with here.open("s") as session:
        assert [head.id for head in session.subs()] == [child.id]
        with session.sub("a") as found:
            assert (found.id, texts(found.history())) == (child.id, ["x"])
    assert here.delete("s")
    assert _ids(here, parent="s") == set()


@pytest.mark.rule("E4", "I1")
def test_the_id_of_a_child_follows_from_its_parent_and_its_path(world: World) -> None:
    with _begun(world) as session, session.sub("a") as child:
        assert child.id == child_id(session.head.uid, "a")


@pytest.mark.rule("E4", "H7")
def test_a_fork_of_a_session_has_none_of_its_children_and_a_fork_of_a_child_is_none(world: World) -> None:
    store = world.store()
    with _begun(world) as session, session.sub("a") as child:
        child.append(user("x"))
        with store.fork("s") as fork, store.fork(child.id) as second:
            assert fork.subs() == []
            assert (second.head.parent, second.head.path) == (child.id, None)
            assert texts(second.history()) == ["x"]
            ids = {fork.id, second.id}
    assert store.delete("s")
    assert _ids(store) == ids
