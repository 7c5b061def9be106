"""L5: what `cleanup` takes away, what it never does, and what happens when something comes in between."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hansard.engines import Lease
from hansard.errors import ReadOnlyStore, StoreUnavailable
from hansard.store import Store
from hansard.testing.chat import user
from hansard.testing.world import World, hear, say

NOW = datetime(2030, 6, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def _spoken(world: World, **ages: float) -> Store:
    """A store in which each of these sessions was last spoken in so many days ago. It is `NOW` there."""
    moment = NOW
    store = world.store(clock=lambda: moment)
    for id, age in sorted(ages.items(), key=lambda item: -item[1]):
        moment = NOW - age * DAY
        store.append(id, user(f"I am {id}"), create=True)
    moment = NOW
    return store


def _left(store: Store) -> list[str]:
    return sorted(head.id for head in store.list(empty=True, limit=None))


def _hold(store: Store, id: str) -> None:
    with store.open(id, activate=False):
        say()
        hear()


@pytest.mark.rule("L5")
def test_without_a_criterion_nothing_is_cleaned_up(world: World) -> None:
    store = _spoken(world, a=100)
    for wrong in ({}, {"dry_run": True}, {"keep_last": -1}, {"max_bytes": -1}, {"older_than": -DAY}):
        with pytest.raises(ValueError):
            store.cleanup(**wrong)
    for nonsense in ({"keep_last": 1.5}, {"keep_last": True}, {"max_bytes": "1"}, {"older_than": 30}):
        with pytest.raises(TypeError):
            store.cleanup(**nonsense)
    assert _left(store) == ["a"]


@pytest.mark.rule("L5")
def test_what_was_last_spoken_in_long_ago_goes_and_is_counted(world: World) -> None:
    store = _spoken(world, a=90, b=31, c=30, d=1)
    sizes = {id: world.engine.size(id) for id in "ab"}
    done = store.cleanup(older_than=30 * DAY)
    assert (done.count, done.ids, done.failed, done.dry_run) == (2, ["a", "b"], [], False)
    assert done.bytes == sum(sizes.values())
    assert done
    assert _left(store) == _left(world.other()) == ["c", "d"]
    again = store.cleanup(older_than=NOW - 30 * DAY)
    assert (again.count, again.ids, again.bytes) == (0, [], 0)
    assert not again
    assert store.cleanup(older_than=NOW).ids == ["c", "d"]


@pytest.mark.rule("L5")
def test_the_newest_stay_however_old_they_are(world: World) -> None:
    store = _spoken(world, a=90, b=60, c=45, d=1)
    assert store.cleanup(older_than=30 * DAY, keep_last=3).ids == ["a"]
    assert store.cleanup(older_than=30 * DAY, keep_last=9).ids == []
    assert store.cleanup(keep_last=2).ids == ["b"]
    assert store.cleanup(keep_last=0).ids == ["c", "d"]


@pytest.mark.rule("L5")
def test_the_oldest_go_until_all_fit(world: World) -> None:
    store = _spoken(world, a=4, b=3, c=2, d=1)
    total = sum(world.engine.size(id) for id in "abcd")
    assert store.cleanup(max_bytes=total).ids == []
    assert store.cleanup(max_bytes=total - 1).ids == ["a"]
    assert store.cleanup(max_bytes=world.engine.size("d") + 1).ids == ["b", "c"]
    assert store.cleanup(max_bytes=0).ids == ["d"]


@pytest.mark.rule("L5")
def test_pinned_and_named_sessions_stay(world: World) -> None:
    store = _spoken(world, a=9, b=8, c=7, d=6)
    with store.open("a", exclusive=False) as session:
        session.pin()
    store.names.set("agent/coder/current", "b")
    store.activate("d")  # what was opened last was not said to be kept
    assert store.cleanup(keep_last=0).ids == ["c", "d"]
    assert store.active() is None
    assert store.cleanup(max_bytes=0).ids == []
    store.names.delete("agent/coder/current")
    assert store.cleanup(keep_last=0).ids == ["b"]


@pytest.mark.rule("L5")
def test_what_somebody_has_open_stays(world: World) -> None:
    store = _spoken(world, a=9, b=8)
    with store.open("a", activate=False):
        assert store.cleanup(keep_last=0, max_bytes=0).ids == ["b"]
    assert store.cleanup(keep_last=0).ids == ["a"]


@pytest.mark.rule("L5")
def test_what_another_process_has_open_stays_until_that_is_gone(world: World) -> None:
    store = _spoken(world, a=9)
    with world.beside(_hold, "a") as holder:
        holder.hear()
        assert store.cleanup(keep_last=0).ids == []
    assert store.cleanup(keep_last=0).ids == ["a"]


@pytest.mark.rule("L5", "E4")
def test_children_go_with_their_parent_and_keep_it_while_they_are_needed(world: World) -> None:
    store = _spoken(world, a=9)
    with store.open("a", exclusive=False) as session:
        with session.sub("worker") as child, child.sub("helper") as below:
            below.append(user("Hello"))
            below.documents.put("screen", b"x" * 1000)
            assert store.cleanup(keep_last=0).ids == []
            ids = ["a", child.id, below.id]
    sizes = [world.engine.size(id) for id in ids]
    with store.open(ids[2], activate=False, exclusive=False) as below:
        below.pin()
    assert store.cleanup(keep_last=0).ids == []
    with store.open(ids[2], activate=False, exclusive=False) as below:
        below.pin(False)
    done = store.cleanup(keep_last=0)
    assert done.ids == ["a"]
    assert done.bytes >= sum(sizes) > 1000
    assert [world.engine.size(id) for id in ids] == [0, 0, 0]


@pytest.mark.rule("L5")
def test_a_dry_run_says_what_would_go_and_takes_nothing(world: World) -> None:
    store = _spoken(world, a=9, b=8, c=1)
    for criteria in ({"older_than": 5 * DAY}, {"keep_last": 1}, {"max_bytes": world.engine.size("c")}):
        would = store.cleanup(dry_run=True, **criteria)
        assert (would.ids, would.dry_run, bool(would)) == (["a", "b"], True, True)
    assert _left(store) == ["a", "b", "c"]
    done = store.cleanup(older_than=5 * DAY)
    assert (done.ids, done.bytes, done.count) == (would.ids, would.bytes, would.count)


@pytest.mark.rule("L5", "W8")
def test_what_a_crash_left_before_anything_was_said_goes_after_an_hour(world: World) -> None:
    moment = NOW
    store = world.store(clock=lambda: moment)
    store.append("spoken", user("Hello"), create=True)
    left = store.create("left", eager=True)
    with store.create("of an application", eager=True) as session:
        session.append({"step": 1}, kind="app.step")
    world.engine.release("left", left._lease)  # as a process that died
    assert store.cleanup(keep_last=9).ids == []
    moment = NOW + timedelta(hours=2)
    assert store.cleanup(keep_last=9).ids == ["left"]
    assert _left(store) == ["of an application", "spoken"]


def _coming_between(monkeypatch: pytest.MonkeyPatch, world: World, id: str, what: Callable[[], Any]) -> None:
    """Just before the lease of a session is taken, something else happens."""
    take = world.engine.lease

    def lease(session: str, *, force: bool = False) -> Lease:
        if session == id:
            what()
        return take(session, force=force)

    monkeypatch.setattr(world.engine, "lease", lease)


@pytest.mark.rule("L5")
def test_a_session_that_somebody_went_on_with_meanwhile_stays(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = _spoken(world, a=9, b=8, c=7), world.store()
    _coming_between(monkeypatch, world, "b", lambda: other.append("b", user("Wait!")))
    assert store.cleanup(older_than=5 * DAY).ids == ["a", "c"]
    assert _left(store) == ["b"]


@pytest.mark.rule("L5")
def test_a_session_that_somebody_named_meanwhile_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    store, other = _spoken(world, a=9, b=8), world.store()
    _coming_between(monkeypatch, world, "a", lambda: other.names.set("mine", "a"))
    assert store.cleanup(older_than=5 * DAY).ids == ["b"]


@pytest.mark.rule("L5")
def test_a_session_that_somebody_deleted_meanwhile_is_no_failure(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = _spoken(world, a=9, b=8), world.store()
    _coming_between(monkeypatch, world, "a", lambda: other.delete("a"))
    done = store.cleanup(older_than=5 * DAY)
    assert (done.ids, done.failed) == (["b"], [])
    assert _left(store) == []


@pytest.mark.rule("L5")
def test_one_that_cannot_go_does_not_keep_the_others(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    store = _spoken(world, a=9, b=8, c=7)

    def refuse() -> None:
        raise StoreUnavailable("the disk does not answer")

    with monkeypatch.context() as patch:
        _coming_between(patch, world, "b", refuse)
        done = store.cleanup(older_than=5 * DAY)
    assert done.ids == ["a", "c"]
    assert [(kept.id, kept.reason) for kept in done.failed] == [("b", "the disk does not answer")]
    assert done
    assert _left(store) == ["b"]
    assert store.cleanup(older_than=5 * DAY).ids == ["b"]


@pytest.mark.rule("L5")
def test_in_a_store_that_is_only_read_nothing_is_cleaned_up(world: World) -> None:
    _spoken(world, a=9)
    if "survives" not in world.capabilities:
        pytest.skip("a store that is gone with its engine is not opened again")
    engine = world.new_engine(readonly=True)
    store = Store(engine, let_go=lambda: None, clock=lambda: NOW)
    with pytest.raises(ReadOnlyStore):
        store.cleanup(keep_last=0)
    assert store.cleanup(keep_last=0, dry_run=True).ids == ["a"]
    assert _left(store) == ["a"]


@pytest.mark.rule("L5", "E4")
def test_a_session_is_as_new_as_what_is_a_part_of_it(world: World) -> None:
    moment = NOW - 30 * DAY
    store = world.store(clock=lambda: moment)
    for id in ("old", "parent"):
        store.append(id, user("Hello"), create=True)
    moment = NOW
    with store.open("parent", exclusive=False) as parent, parent.sub("research") as child:
        child.append(user("Look"))
    store.append("new", user("Hello"), create=True)
    assert store.cleanup(older_than=DAY, dry_run=True).ids == ["old"]
    assert store.cleanup(keep_last=2, dry_run=True).ids == ["old"]


@pytest.mark.rule("L5")
def test_nothing_is_older_than_all_time(world: World) -> None:
    store = _spoken(world, a=100)
    assert not store.cleanup(older_than=timedelta.max)
    assert _left(store) == ["a"]
