"""W8 to W10: when a session comes into being, who wins, and that what is deleted stays away."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from hansard.errors import AlreadyExists, Closed, Conflict, SessionBusy, SessionNotFound
from hansard.session import Session
from hansard.store import Store
from hansard.testing.chat import answer, assistant, call, count, item_answer, texts, use, used, user, users
from hansard.testing.world import World, hear, say

FIRST: dict[str, Callable[[Session], Any]] = {
    "append": lambda session: session.append(user("a")),
    "append of a kind": lambda session: session.append({"x": 1}, kind="mine.own"),
    "append that is not durable": lambda session: session.append(user("a"), durable=False),
    "extend": lambda session: session.extend(users("a", "b")),
    "add_usage": lambda session: session.add_usage({"input_tokens": 1}),
    "rename": lambda session: session.rename("Title"),
    "update": lambda session: session.update(meta={"a": 1}),
    "pin": lambda session: session.pin(),
    "label": lambda session: session.label("x"),
    "set_summary": lambda session: session.set_summary("So far"),
    "checkpoint": lambda session: session.checkpoint([user("a")]),
    "set_history": lambda session: session.set_history(users("a", "b")),
}
"""Calls that may be the first of a session."""

NOTHING: dict[str, Callable[[Session], Any]] = {
    "extend": lambda session: session.extend([]),
    "truncate": lambda session: session.truncate(0),
    "truncate to more": lambda session: session.truncate(5, pairs=False),
    "set_history": lambda session: session.set_history([]),
    "pop": lambda session: session.pop(),
    "pop of several": lambda session: session.pop(3, pairs=True),
    "clear": lambda session: session.clear(),
    "update": lambda session: session.update(),
    "label": lambda session: session.label(),
    "removing a label": lambda session: session.label(remove="x"),
    "flush": lambda session: session.flush(),
    "refresh": lambda session: session.refresh(),
}
"""Calls that change nothing where there is nothing."""

INPUT: dict[str, Any] = {
    "text": user("Hello"),
    "a list of text": {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
    "an image": {
        "role": "user",
        "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}],
    },
    "an image of Anthropic's": {
        "role": "user",
        "content": [{"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}],
    },
    "a file": {"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]},
    "something new": {"role": "user", "content": [{"type": "hologram", "of": "a"}]},
    "a result and text": {
        "role": "user",
        "content": [*used("c")["content"], {"type": "text", "text": "And?"}],
    },
    "Gemini's text": {"role": "user", "parts": [{"text": "Hello"}]},
    "a shape that nobody knows": {"utterance": "Hello"},
    "plain text": "Hello",
    "a number": 7,
}
"""Payloads with which a person has said something."""

NO_INPUT: dict[str, Any] = {
    "the model": assistant("Hello"),
    "the system": {"role": "system", "content": "Be kind"},
    "the developer": {"role": "developer", "content": "Be kind"},
    "a call": call("c"),
    "a result": answer("c"),
    "a result of Anthropic's": used("c"),
    "a call of Anthropic's": use("c"),
    "a result of OpenAI's responses": item_answer("c"),
    "Gemini's model": {"role": "model", "parts": [{"text": "Hello"}]},
}
"""Payloads with which nobody has."""


def _ids(store: Store, **which: Any) -> list[str]:
    return [head.id for head in store.list(**which)]


def _there(store: Store, id: str) -> bool:
    try:
        store.head(id)
    except SessionNotFound:
        return False
    return True


def _win(store: Store, ids: list[str]) -> list[str]:
    say("ready")
    hear()
    won, held = [], []
    for id in ids:
        try:
            session = store.create(id, eager=True)
        except (AlreadyExists, SessionBusy):
            continue
        session.append(user("mine"))
        held.append(session)
        won.append(id)
    say(won)
    hear()
    for session in held:
        session.close()
    return won


def _delete(store: Store, id: str) -> bool:
    return store.delete(id)


# -- W8


@pytest.mark.rule("W8")
def test_creating_a_session_writes_nothing(world: World) -> None:
    store = world.store()
    with store.create("s", agent="coder", title="Title", meta={"a": 1}) as session:
        for other in (store, world.other()):
            assert _ids(other, empty=True) == []
            assert other.active() is None
            for attempt in (other.head, other.read):
                with pytest.raises(SessionNotFound):
                    attempt("s")
        assert session.id == session.head.id == "s"
        assert session.head.agent == "coder"
        assert session.head.title == "Title"
        assert session.head.meta == {"a": 1}
    assert _ids(store, empty=True) == []


@pytest.mark.rule("W8")
def test_creating_a_session_writes_nothing_that_another_process_sees(world: World) -> None:
    with world.store().create("s") as session:
        assert world.elsewhere(_there, "s") is False
        session.append(user("a"))
        assert world.elsewhere(_there, "s") is True


@pytest.mark.rule("W8", "H6")
def test_a_session_that_is_not_written_yet_reads_as_empty(world: World) -> None:
    with world.store().create() as session:
        assert session.history() == []
        assert session.history(limit=3, repair=True) == []
        assert list(session.records()) == list(session.records(reverse=True)) == []
        assert session.summary() == ""
        assert session.usage().total_tokens == 0
        assert session.usage(by="model") == []
        assert session.get(0) is session.get("x") is None
        assert session.seq == session.head.seq == -1
        assert session.damage == []


@pytest.mark.rule("W8")
@pytest.mark.parametrize("name", FIRST)
def test_the_first_record_of_any_kind_writes_the_session(world: World, name: str) -> None:
    store = world.store()
    with store.create("s", agent="coder", model="gpt-5", labels=["b", "a"], meta={"a": 0}) as session:
        FIRST[name](session)
        head = world.other().head("s")
        assert (head.agent, head.model, head.created_at) == ("coder", "gpt-5", session.head.created_at)
        kinds = [record.kind for record in store.read("s").records()]
        assert kinds[0] == "session"
        assert len(kinds) >= 2
        assert [record.seq for record in session.records()] == list(range(len(kinds)))
        assert store.active() == "s"


@pytest.mark.rule("W8", "W4")
@pytest.mark.parametrize("name", NOTHING)
def test_a_call_that_changes_nothing_does_not_begin_a_session(world: World, name: str) -> None:
    store = world.store()
    with store.create("s") as session:
        NOTHING[name](session)
        assert _ids(store, empty=True) == []
        session.append(user("a"))
        assert texts(session.history()) == ["a"]


@pytest.mark.rule("W8")
def test_a_session_may_be_written_at_once(world: World) -> None:
    store = world.store()
    with store.create("s", eager=True) as session:
        assert session.seq == 0
        assert _ids(world.other(), empty=True) == ["s"]
        assert [record.kind for record in session.records()] == ["session"]
        assert store.active() == "s"


@pytest.mark.rule("W8")
def test_appending_to_a_session_that_is_not_there_creates_it_only_where_asked(world: World) -> None:
    store = world.store()
    for attempt in (
        lambda: store.append("s", user("a")),
        lambda: store.extend("s", users("a")),
        lambda: store.open("s"),
        lambda: store.open("s", exclusive=False),
    ):
        with pytest.raises(SessionNotFound):
            attempt()
    assert _ids(store, empty=True) == []
    assert store.append("s", user("a"), create=True).seq == 1
    assert store.head("s").created_at == store.head("s").updated_at
    assert [record.seq for record in store.extend("t", users("a", "b"), create=True)] == [1, 2]
    assert sorted(_ids(world.other())) == ["s", "t"]
    assert store.append("s", user("b"), create=True).seq == 2


@pytest.mark.rule("W8")
def test_the_first_records_of_a_session_are_one_write(world: World) -> None:
    with world.store().create("s") as session:
        session.extend(users("a", "b", "c"))
        assert [record.batch for record in session.records(after=0)] == [(1, 3)] * 3


@pytest.mark.rule("W8")
@pytest.mark.parametrize("name", INPUT)
def test_a_session_in_which_a_person_said_something_is_listed_and_stays(world: World, name: str) -> None:
    store = world.store()
    with store.create("s") as session:
        session.append(INPUT[name])
        assert _ids(store) == ["s"]
    assert _ids(store) == _ids(world.other()) == ["s"]
    assert store.head("s").has_user_input


@pytest.mark.rule("W8")
@pytest.mark.parametrize("name", NO_INPUT)
def test_a_session_in_which_nobody_said_anything_is_left_out_of_lists_and_removed_at_close(
    world: World, name: str
) -> None:
    store = world.store()
    with store.create("s") as session:
        session.append(NO_INPUT[name])
        session.rename("Title")
        session.add_usage({"input_tokens": 1})
        assert _ids(store) == []
        assert _ids(store, empty=True) == ["s"]
        assert store.latest() is None
    assert _ids(store, empty=True) == _ids(world.other(), empty=True) == []
    assert not _there(store, "s")
    assert store.active() is None
    with store.create("s") as again:
        again.append(user("a"))
        assert count(again) == 2


@pytest.mark.rule("W8")
@pytest.mark.parametrize("name", NO_INPUT)
def test_a_session_that_is_appended_to_without_a_handle_stays_without_input(world: World, name: str) -> None:
    store = world.store()
    store.append("s", NO_INPUT[name], create=True)
    assert _ids(store) == []
    assert _ids(world.reopened(), empty=True) == ["s"]
    store = world.store()
    with store.open("s") as session:
        session.append(assistant("More"))
    assert _there(store, "s")


@pytest.mark.rule("W8")
@pytest.mark.parametrize("exclusive", [True, False], ids=["leased", "shared"])
def test_a_handle_that_creates_by_opening_removes_what_it_created_in_vain(
    world: World, exclusive: bool
) -> None:
    store = world.store()
    with store.open("s", create=True, exclusive=exclusive, agent="coder") as session:
        assert _ids(store, empty=True) == []
        session.append(assistant("Hello"))
        assert store.head("s").agent == "coder"
    assert _ids(store, empty=True) == []
    with store.open("s", create=True, exclusive=exclusive) as session:
        session.append(user("Hello"))
    assert _ids(store) == ["s"]
    with store.open("s", create=True, exclusive=exclusive, agent="other") as session:
        assert texts(session.history()) == ["Hello"]
        assert session.head.agent == ""


@pytest.mark.rule("W8")
def test_input_that_the_history_shows_no_more_is_input(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        session.append(user("a"))
        session.clear()
    assert _ids(store) == ["s"]


@pytest.mark.rule("W8", "W11")
def test_input_by_somebody_else_keeps_a_session(world: World) -> None:
    store = world.store()
    with store.create("s", eager=True) as session:
        world.other().append("s", user("a"))
        assert session.seq == 0
    assert _ids(store) == ["s"]


@pytest.mark.rule("W8")
def test_closing_the_store_removes_sessions_that_were_created_in_vain(world: World) -> None:
    store, other = world.store(), world.other()
    kept, vain = store.create("kept"), store.create("vain", eager=True)
    kept.append(user("a"))
    store.close()
    assert _ids(other, empty=True) == ["kept"]
    assert other.locks() == []
    for session in (kept, vain):
        with pytest.raises(Closed):
            session.append(user("b"))
    with pytest.raises(Closed):
        store.list()
    store.close()


@pytest.mark.rule("W8")
def test_an_error_inside_a_with_block_closes_the_session_too(world: World) -> None:
    store = world.store()
    with pytest.raises(KeyError):
        with store.create("s") as session:
            session.append(user("a"))
            raise KeyError("mine")
    assert store.locks() == []
    assert texts(store.read("s").history()) == ["a"]


# -- W9


@pytest.mark.rule("W9")
def test_creating_a_session_that_is_there_is_refused(world: World) -> None:
    store = world.store()
    store.append("s", user("a"), create=True)
    for other in (store, world.other()):
        for eager in (False, True):
            with pytest.raises(AlreadyExists) as caught:
                other.create("s", eager=eager, title="New")
            assert caught.value.id == "s"
    assert texts(store.read("s").history()) == ["a"]
    assert store.head("s").title == "a"
    assert store.locks() == []


@pytest.mark.rule("W9")
def test_creating_a_session_that_is_open_is_refused(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        with pytest.raises(SessionBusy):
            world.other().create("s")
        session.append(user("a"))
        for other in (store, world.other()):
            with pytest.raises((AlreadyExists, SessionBusy)):
                other.create("s", eager=True)
        assert texts(session.history()) == ["a"]


@pytest.mark.rule("W9", "W8")
def test_a_session_that_somebody_else_wrote_before_its_creator_did_is_not_taken_over(world: World) -> None:
    store = world.store()
    with store.create("s", title="Mine") as session:
        world.other().append("s", user("theirs"), create=True)
        attempts: tuple[Callable[[], Any], ...] = (
            lambda: session.append(user("mine")),
            lambda: session.rename("Mine"),
            lambda: session.checkpoint([]),
        )
        for attempt in attempts:
            with pytest.raises(AlreadyExists):
                attempt()
    assert texts(store.read("s").history()) == ["theirs"]
    assert store.head("s").title == "theirs"


@pytest.mark.rule("W9", "W8")
def test_a_session_that_somebody_else_wrote_is_opened_by_who_would_open_or_create_it(world: World) -> None:
    with world.store().open("s", create=True) as session:
        world.other().append("s", user("theirs"), create=True)
        session.append(user("mine"))
        assert texts(session.history()) == ["theirs", "mine"]
    with world.store().open("t", create=True) as session:
        world.other().append("t", assistant("theirs"), create=True)
        session.rename("Title")
    assert world.store().head("t").title == "Title"  # who did not create it does not remove it


@pytest.mark.rule("W9", "W6")
def test_of_many_threads_that_create_a_session_one_wins(world: World) -> None:
    stores = [world.store(), world.store(), world.other(), world.other()]
    barrier = threading.Barrier(len(stores))
    won: dict[str, list[int]] = {f"s{i}": [] for i in range(12)}
    held: list[Session] = []
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for i, id in enumerate(won):
                barrier.wait()
                try:
                    if i % 3 == 0:
                        session = stores[number].create(id, eager=True)
                        session.append(user(f"{number}"))
                        held.append(session)
                    elif i % 3 == 1:
                        stores[number].append(id, user(f"{number}"), create=True, expect=-1)
                    else:
                        session = stores[number].create(id)
                        held.append(session)
                        session.extend(users(f"{number}"))
                    won[id].append(number)
                except (AlreadyExists, SessionBusy, Conflict):
                    pass
        except BaseException as error:
            barrier.abort()
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(stores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    for id, winners in won.items():
        assert len(winners) == 1, id
        assert texts(stores[0].read(id).history()) == [str(winners[0])]


@pytest.mark.rule("W9")
def test_of_many_processes_that_create_a_session_one_wins(world: World) -> None:
    world.store()
    ids = [f"s{i}" for i in range(15)]
    processes = [world.begin(_win, ids) for _ in range(3)]
    for process in processes:
        assert process.hear() == "ready"
    for process in processes:
        process.tell("go")
    won = [process.hear() for process in processes]
    for process in processes:
        process.tell("end")
        process.result()
    assert sorted(id for ids in won for id in ids) == sorted(ids)
    assert sorted(_ids(world.store())) == sorted(ids)


@pytest.mark.rule("W9")
def test_of_many_who_open_or_create_a_session_each_writes_to_the_same(world: World) -> None:
    stores = [world.store(), world.store(), world.other(), world.other()]
    barrier = threading.Barrier(len(stores))
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for i in range(8):
                barrier.wait()
                with stores[number].open(f"s{i}", create=True, exclusive=False) as session:
                    session.append(user(f"{number}"))
        except BaseException as error:
            barrier.abort()
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(stores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    for i in range(8):
        view = stores[0].read(f"s{i}")
        assert sorted(texts(view.history())) == ["0", "1", "2", "3"]
        assert [record.kind for record in view.records()] == ["session", *["message"] * 4]


# -- W10

WRITES: dict[str, Callable[[Session], Any]] = {
    **FIRST,
    "truncate": lambda session: session.truncate(1),
    "pop": lambda session: session.pop(),
    "clear": lambda session: session.clear(),
    "rewind": lambda session: session.rewind(1),
    "append with an id": lambda session: session.append(user("a"), id="k"),
    "append expecting": lambda session: session.append(user("a"), expect=3),
}


@pytest.mark.rule("W10")
@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("exclusive", [True, False], ids=["leased", "shared"])
def test_an_open_handle_of_a_deleted_session_writes_no_more_and_the_session_stays_away(
    world: World, name: str, exclusive: bool
) -> None:
    store = world.store()
    store.extend("s", users("a", "b", "c"), create=True, ids=["k", None, None])
    with store.open("s", exclusive=exclusive) as session:
        session.append(user("d"))
        assert world.other().delete("s")
        with pytest.raises(SessionNotFound):
            WRITES[name](session)
        assert not _there(store, "s")
    assert _ids(store, empty=True) == _ids(world.reopened(), empty=True) == []


@pytest.mark.rule("W10")
@pytest.mark.parametrize("name", WRITES)
def test_an_open_handle_of_a_deleted_session_does_not_write_to_another_that_has_its_id(
    world: World, name: str
) -> None:
    store, other = world.store(), world.other()
    store.extend("s", users("a", "b", "c"), create=True)
    with store.open("s") as session:
        assert other.delete("s")
        other.extend("s", users("new", "newer", "newest", "last"), create=True)
        with pytest.raises(SessionNotFound):
            WRITES[name](session)
        for read in (session.history, session.refresh, lambda: list(session.records()), session.summary):
            with pytest.raises(SessionNotFound):
                read()
    assert texts(store.read("s").history()) == ["new", "newer", "newest", "last"]
    assert count(store.read("s")) == 5


@pytest.mark.rule("W10", "W8")
def test_closing_the_handle_of_a_deleted_session_leaves_another_that_has_its_id(world: World) -> None:
    store = world.store()
    with store.create("s", eager=True):
        store.delete("s")
        store.append("s", assistant("new"), create=True)
    assert texts(store.read("s").history()) == ["new"]


@pytest.mark.rule("W10")
def test_a_deleted_session_is_gone_for_every_reader(world: World) -> None:
    store, other = world.store(), world.other()
    store.extend("s", users("a", "b"), create=True, ids=["k", None])
    views = [store.read("s"), other.read("s")]
    assert store.delete("s")
    for view in views:
        for read in (view.refresh, view.history, lambda view=view: list(view.records())):
            with pytest.raises(SessionNotFound):
                read()
    for place in (store, other):
        assert _ids(place, empty=True) == []
        for attempt in (place.head, place.read, place.open, place.resolve):
            with pytest.raises(SessionNotFound):
                attempt("s")
    assert not _there(world.reopened(), "s")


@pytest.mark.rule("W10")
def test_a_session_that_another_process_deleted_is_gone(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        session.append(user("a"))
        assert world.elsewhere(_delete, "s") is True
        with pytest.raises(SessionNotFound):
            session.append(user("b"))
    assert world.elsewhere(_there, "s") is False
    assert _ids(store, empty=True) == []


@pytest.mark.rule("W10")
def test_deleting_what_is_not_there_says_so(world: World) -> None:
    store = world.store()
    assert store.delete("s") is False
    store.append("s", user("a"), create=True)
    assert store.delete("s") is True
    assert store.delete("s") is False
    assert world.other().delete("s") is False
    with store.create("s"):  # not written yet
        assert store.delete("s") is False


@pytest.mark.rule("W10", "W9")
def test_a_deleted_id_is_free_and_its_new_session_inherits_nothing(world: World) -> None:
    store = world.store()
    with store.create("s", title="Old", labels=["x"], meta={"a": 1}) as session:
        session.append(user("a"), id="k", usage={"input_tokens": 5})
        session.checkpoint([user("b")], summary="So far", token_count=3)
        old = session.head
    store.delete("s")
    with store.create("s") as session:
        session.append(user("new"))
    for place in (store, world.other()):
        view = place.read("s")
        head = view.head
        assert head.uid != old.uid
        assert (head.title, head.labels, head.meta, head.summary) == ("new", [], {}, "")
        assert (head.messages, head.usage.total_tokens, head.token_count) == (1, 0, None)
        assert view.get("k") is None
        assert texts(view.history()) == ["new"]


@pytest.mark.rule("W10")
def test_deleting_one_session_leaves_the_others(world: World) -> None:
    store = world.store()
    for i in range(10):
        store.append(f"s{i}", user(f"{i}"), create=True)
    for i in range(0, 10, 2):
        assert store.delete(f"s{i}")
    for place in (store, world.other(), world.reopened()):
        if not place.closed:
            assert sorted(_ids(place)) == [f"s{i}" for i in range(1, 10, 2)]
