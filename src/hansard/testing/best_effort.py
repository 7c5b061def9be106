"""E8: writing that never stops the caller, of a session and of a store by key."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from hansard.errors import Closed, InvalidId, InvalidPayload, SessionBusy, SessionNotFound
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
