"""E8: writing that never stops the caller, of a session and of a store by key."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from hansard.errors import Closed, Conflict, InvalidId, InvalidPayload, SessionBusy, SessionNotFound
from hansard.testing.chat import texts, user, users
from hansard.testing.world import World


@pytest.mark.rule("E8")
def test_a_best_effort_write_by_key_begins_what_is_missing(world: World) -> None:
    sessions = world.store().best_effort()
    sessions.append("a", user("1"))
    sessions.extend("b", users("1", "2"))
    sessions.set_history("c", users("1", "2", "3"))
    sessions.set_summary("d", "So far")
    sessions.checkpoint("e", users("0"))
    assert not sessions.dropped
    store = world.other()
    assert [texts(store.read(key).history()) for key in "abcde"] == [
        ["1"],
        ["1", "2"],
        ["1", "2", "3"],
        [],
        ["0"],
    ]
    assert store.read("d").summary() == "So far"


@pytest.mark.rule("E8")
def test_a_best_effort_read_of_an_unknown_key_is_empty_and_begins_nothing(world: World) -> None:
    store = world.store()
    sessions = store.best_effort()
    assert (sessions.history("x"), sessions.summary("x"), sessions.delete("x")) == ([], "", False)
    assert sessions.truncate("x", 1) is None
    assert sessions.clear("x") is None
    sessions.save("x")
    assert not sessions.dropped
    assert store.list(empty=True) == []


@pytest.mark.rule("E8")
def test_a_best_effort_failure_is_logged_with_session_and_place_and_kept(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    sessions = world.store().best_effort()
    with caplog.at_level(logging.ERROR, logger="hansard"):
        assert sessions.append("shop", {"role": "user", "content": {1, 2}}, id="r") is None
    (dropped,) = sessions.dropped
    assert (dropped.session, dropped.call) == ("shop", "append")
    assert dropped.arguments == ("shop", {"role": "user", "content": {1, 2}})
    assert dropped.options["id"] == "r"
    assert isinstance(dropped.error, InvalidPayload)
    assert "'shop'" in caplog.text
    assert world.url in caplog.text
    assert sessions.history("shop") == []


@pytest.mark.rule("E8")
@pytest.mark.parametrize("key", ["", "\n", "x" * 513, "\ud800", None, 7], ids=ascii)
def test_a_best_effort_call_with_an_impossible_key_raises_nothing(world: World, key: Any) -> None:
    store = world.store()
    sessions = store.best_effort()
    assert sessions.append(key, user("1")) is None
    assert sessions.extend(key, users("1")) is None
    assert sessions.set_history(key, users("1")) is None
    assert (sessions.history(key), sessions.summary(key), sessions.delete(key)) == ([], "", False)
    assert len(sessions.dropped) == 6
    assert all(isinstance(dropped.error, InvalidId | TypeError) for dropped in sessions.dropped)
    assert store.list(empty=True) == []


@pytest.mark.rule("E8")
def test_what_was_dropped_can_be_written_later(world: World) -> None:
    store = world.store()
    sessions = store.best_effort()
    with store.create("a") as session:
        session.append(user("1"))
        session.history()
        sessions.append("a", user("2"))  # beside the lease
        sessions.extend("a", iter([user("3"), {"role": "user", "content": float("nan")}]))
    dropped = sessions.dropped.popleft()
    key, given = dropped.arguments
    given[1]["content"] = "4"
    sessions.extend(key, given)
    assert texts(store.read("a").history()) == ["1", "2", "3", "4"]


@pytest.mark.rule("E8")
def test_a_best_effort_session_goes_on_when_its_session_is_gone(world: World) -> None:
    store = world.store()
    with store.create("a") as session:
        session.append(user("1"))
        best = session.best_effort()
        assert best.append(user("2")).seq == 2
        store.delete("a")
        assert best.append(user("3")) is None
        assert best.checkpoint(users("0")) is None
        assert best.rename("Other") is None
        assert best.event("ping", event_id="e") is None
        assert [dropped.call for dropped in best.dropped] == ["append", "checkpoint", "rename", "event"]
        assert all(isinstance(dropped.error, SessionNotFound) for dropped in best.dropped)
    assert store.list(empty=True) == []


@pytest.mark.rule("E8")
def test_reads_of_a_best_effort_session_that_fail_are_empty(world: World) -> None:
    store = world.store()
    with store.create("a") as session:
        session.append(user("1"), usage={"input_tokens": 3})
        best = session.best_effort()
        assert texts(best.history()) == ["1"]
        assert best.usage().input_tokens == 3
        store.delete("a")
        assert best.append(user("2")) is None  # now it knows
        assert best.history() == []
        assert list(best.records()) == []
        assert best.get(1) is None
        assert best.subs() == []
        assert best.summary() == ""
        assert best.usage().input_tokens == 0
        assert best.usage(by="model") == []


@pytest.mark.rule("E8")
def test_a_best_effort_session_of_a_closed_store_raises_nothing(world: World) -> None:
    store = world.store()
    session = store.create("a")
    session.append(user("1"))
    best = session.best_effort()
    store.close()
    assert best.append(user("2")) is None
    best.close()
    assert isinstance(best.dropped[0].error, Closed)
    assert texts(
        world.reopened().read("a").history() if "survives" in world.capabilities else [user("1")]
    ) == ["1"]


@pytest.mark.rule("E8")
def test_a_best_effort_change_beside_a_lease_is_dropped_at_last(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hansard.best_effort.WAIT", 0.02)
    store = world.store()
    sessions = store.best_effort()
    with store.create("a") as session:
        session.append(user("1"))
        assert sessions.clear("a") is None
        assert isinstance(sessions.dropped[0].error, SessionBusy)
    assert sessions.clear("a") is not None
    assert sessions.history("a") == []


@pytest.mark.rule("E8")
def test_whatever_a_session_can_be_told_can_be_told_by_key(world: World) -> None:
    store = world.store()
    sessions: Any = store.best_effort()
    sessions.event("event", "text", {"x": 1}, event_id="e", stream_id="s")
    sessions.output("output", "a line\n")
    sessions.add_usage("usage", {"input_tokens": 3}, model="m")
    sessions.rename("rename", "Login")
    sessions.update("update", model="m", meta={"color": "red"})
    sessions.label("label", "a", "b")
    sessions.pin("pin")
    sessions.documents("documents").put("screen", b"1")
    with sessions.sub("parent", "research", agent="scout") as child:
        child.append(user("found"))
        child.append(float("nan"))
    assert [dropped.session for dropped in sessions.dropped] == [child.id]
    other = world.other()
    assert {head.id for head in other.list(empty=True)} == set(
        "event output usage rename update label pin documents parent".split()
    )
    assert [(record.id, record.data["data"]) for record in other.read("event").records(kinds="event")] == [
        ("e", {"x": 1})
    ]
    assert [record.data for record in other.read("output").records(kinds="output")] == ["a line"]
    assert other.read("usage").usage().input_tokens == 3
    assert other.head("rename").title == "Login"
    assert (other.head("update").model, other.head("update").meta) == ("m", {"color": "red"})
    assert other.head("label").labels == ["a", "b"]
    assert other.head("pin").pinned
    document = other.read("documents").documents.get("screen")
    assert document is not None
    assert document.data == b"1"
    assert [(head.path, head.agent) for head in other.read("parent").subs()] == [("research", "scout")]


@pytest.mark.rule("E8")
def test_whatever_a_session_can_be_asked_can_be_asked_by_key(world: World) -> None:
    sessions: Any = world.store().best_effort()
    sessions.extend("a", users("1", "2", "3"), usages=[{"input_tokens": 3}, None, None])
    assert [record.seq for record in sessions.records("a", kinds="message", limit=2)] == [1, 2]
    assert sessions.get("a", 1).data == user("1")
    assert sessions.usage("a").input_tokens == 3
    assert [line.seq for line in sessions.usage("a", by="record")] == [1]
    assert sessions.head("a").messages == 3
    assert sessions.pop("a", 2) == users("2", "3")
    assert sessions.rewind("a", 2) is not None
    assert texts(sessions.history("a")) == ["1", "2"]
    assert texts(sessions.history("a", 1)) == ["2"]
    assert sessions.documents("a").put("screen", b"1").data == b"1"
    assert sessions.documents("a").get("screen").data == b"1"
    assert sessions.documents("a").list() == ["screen"]
    assert sessions.documents("a").delete("screen") is True
    assert sessions.subs("a") == []
    sessions.flush("a")
    assert not sessions.dropped


@pytest.mark.rule("E8")
def test_what_is_asked_of_an_unknown_key_is_empty_whatever_it_is(world: World) -> None:
    store = world.store()
    sessions = store.best_effort()
    documents = sessions.documents("x")
    assert (list(sessions.records("x")), sessions.get("x", 1), sessions.head("x")) == ([], None, None)
    assert (sessions.usage("x").calls, sessions.usage("x", by="model"), sessions.subs("x")) == (0, [], [])
    assert (documents.get("a"), documents.list(), documents.delete("a")) == (None, [], False)
    assert sessions.pop("x") == []
    sessions.flush("x")
    assert not sessions.dropped
    assert sessions.rewind("x", 1) is None
    assert [dropped.call for dropped in sessions.dropped] == ["rewind"]  # there is no such record
    assert store.list(empty=True) == []


WRONG: dict[str, Callable[[Any], Any]] = {
    "sub": lambda best: best.sub(""),
    "sub of no text": lambda best: best.sub(7),
    "documents.put": lambda best: best.documents.put("\0", b""),
    "documents.put of text": lambda best: best.documents.put("a", "text"),
    "documents.get": lambda best: best.documents.get(""),
    "append": lambda best: best.append({1, 2}),
    "append of nothing": lambda best: best.append(),
    "extend": lambda best: best.extend("text"),
    "refresh": lambda best: best.refresh(1),
    "pop": lambda best: best.pop(-1),
    "get": lambda best: best.get(1.5),
    "truncate": lambda best: best.truncate("2"),
}
EMPTY: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "history": (lambda best: best.history(-1), []),
    "summary": (lambda best: best.summary("zz"), ""),
    "subs": (lambda best: best.subs(3), []),
    "records": (lambda best: list(best.records(limit=-1)), []),
    "usage": (lambda best: best.usage(by="nothing"), []),
    "usage of too much": (lambda best: best.usage(1, 2, 3), []),
    "documents.list": (lambda best: best.documents.list(1), []),
    "documents.delete": (lambda best: best.documents.delete(""), False),
}


@pytest.mark.rule("E8")
@pytest.mark.parametrize("call", [*WRONG, *EMPTY])
def test_a_wrong_call_of_a_best_effort_session_raises_nothing(world: World, call: str) -> None:
    with world.store().create("a") as session:
        session.append(user("1"))
        best = session.best_effort()
        if call in WRONG:
            assert WRONG[call](best) is None
        else:
            ask, empty = EMPTY[call]
            assert ask(best) == empty
        (dropped,) = best.dropped
        assert (dropped.session, dropped.call) == ("a", call.partition(" ")[0])
        assert texts(session.history()) == ["1"]


@pytest.mark.rule("E8")
def test_whatever_is_asked_of_a_best_effort_session_that_is_gone_raises_nothing(world: World) -> None:
    store = world.store()
    with store.create("a") as session:
        best = session.best_effort()
        best.append(user("1"))
        store.delete("a")
        assert best.head.id == "a"  # as it was when it could be seen last
        best.refresh()
        assert best.sub("child") is None
        assert (best.documents.list(), best.documents.get("x"), best.documents.put("x", b"")) == (
            [],
            None,
            None,
        )
        calls = [dropped.call for dropped in best.dropped if dropped.call != "head"]
        assert calls == ["refresh", "sub", "documents.list", "documents.get", "documents.put"]
        assert all(isinstance(dropped.error, SessionNotFound) for dropped in best.dropped)
        assert best.best_effort().dropped is best.dropped
    assert store.list(empty=True) == []


@pytest.mark.rule("E8")
def test_the_child_of_a_best_effort_session_is_one_too(world: World) -> None:
    store = world.store()
    with store.create("a") as session:
        best: Any = session.best_effort()
        with best.sub("child", agent="scout") as child:
            child.append(user("1"))
            child.documents.put("screen", b"1")
            child.append({1, 2})
        assert [(dropped.session, dropped.call) for dropped in best.dropped] == [(child.id, "append")]
        assert best.documents.put("screen", b"2").data == b"2"
        assert [(head.path, head.agent) for head in best.subs()] == [("child", "scout")]
    assert texts(world.other().read(child.id).history()) == ["1"]
    assert [held.session for held in store.locks()] == []


class Odd:
    """What can neither be written nor copied."""

    def __deepcopy__(self, known: object) -> object:
        raise ZeroDivisionError


@pytest.mark.rule("E8", "W7")
def test_what_was_dropped_is_kept_as_it_was_then(world: World) -> None:
    odd = Odd()
    message = {"role": "user", "content": [{"type": "text", "text": "1"}]}
    round: list[Any] = []
    round.append(round)
    meta = {"color": ["red"]}
    sessions = world.store().best_effort()
    sessions.append("", message, usage=meta)
    sessions.extend("", [message, {"odd": odd, "said": [message]}])
    sessions.append("a", round)
    with world.store().create("b") as session:
        best = session.best_effort()
        best.update(status=7, meta=meta)
        best.documents.put("", memoryview(data := bytearray(b"1")))
    message["content"].append("changed")  # type: ignore[attr-defined]
    meta["color"].append("changed")
    data[0] = 0
    said = {"role": "user", "content": [{"type": "text", "text": "1"}]}
    one, several, endless = sessions.dropped
    assert (one.arguments, one.options) == (("", said), {"usage": {"color": ["red"]}})
    assert several.arguments[1] == [said, {"odd": odd, "said": [said]}]
    assert endless.arguments[1] is not round
    assert endless.arguments[1][0] is endless.arguments[1]
    assert best.dropped[0].options == {"status": 7, "meta": {"color": ["red"]}}
    assert best.dropped[1].arguments == ("", b"1")


@pytest.mark.rule("E8")
def test_a_call_that_was_dropped_can_be_made_again_as_it_was(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hansard.best_effort.WAIT", 0.02)
    store = world.store()
    sessions = store.best_effort()
    with store.create("a") as session:
        session.append(user("1"))
        session.set_summary("So far")
        assert sessions.checkpoint("a", users("2"), upto=session.seq, id="c") is None
    (dropped,) = sessions.dropped
    assert isinstance(dropped.error, SessionBusy)
    assert getattr(sessions, dropped.call)(*dropped.arguments, **dropped.options) is not None
    assert texts(sessions.history("a")) == ["2"]


@pytest.mark.rule("E8", "W6")
def test_a_best_effort_call_that_expects_something_else_is_dropped(world: World) -> None:
    store = world.store()
    sessions = store.best_effort()
    sessions.append("a", user("1"), id="one")
    assert sessions.append("a", user("2"), expect=0) is None
    assert sessions.append("a", user("2"), id="one") is None
    assert sessions.set_history("a", users("3"), id="one") is None
    assert sessions.documents("a").put("screen", b"", expect="another") is None
    assert [type(dropped.error) for dropped in sessions.dropped] == [Conflict] * 4
    assert texts(sessions.history("a")) == ["1"]
