"""Namespaces, and names: what belongs to one tenant of a store, and what points at its sessions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import hansard
from hansard.engines import NAMES
from hansard.errors import (
    Closed,
    Conflict,
    HansardError,
    InvalidId,
    NotAStore,
    ReadOnlyStore,
    SessionNotFound,
)
from hansard.store import Store
from hansard.testing.chat import texts, user
from hansard.testing.identity import INVALID, ODD
from hansard.testing.world import World

TENANTS = ["", "acme", "ACME", "acme/eu", "../acme", "default"]


def _begin(store: Store, *ids: str) -> None:
    for id in ids:
        store.append(id, user(f"I am {id}"), create=True)


def _move_over_and_over(store: Store, times: int) -> None:
    for i in range(times):
        one, other = ("a", "b") if i % 2 else ("b", "a")
        store.names.move({"agent/current": one, "agent/before": other})


def _said_in(store: Store, id: str) -> list[Any]:
    return texts(store.read(id).history())


# -- namespaces


def test_a_tenant_has_sessions_names_state_documents_and_blobs_of_its_own(world: World) -> None:
    stores = {name: world.store(namespace=name) for name in TENANTS}
    held = []
    for name, store in stores.items():
        with store.create("s") as session:
            session.append(user(f"of {name!r}"), id="k")
            session.documents.put("screen", name.encode())
        store.names.set("agent/current", "s")
        store.state("settings").set("name", name)
        store.blobs.put(f"of {name!r}".encode())
        held.append(store.create(f"own {name}"))
        held[-1].append(user("x"))
    digests = {name: store.blobs.put(f"of {name!r}".encode()) for name, store in stores.items()}
    for name, store in stores.items():
        assert _said_in(store, "s") == [f"of {name!r}"]
        found = store.read("s").documents.get("screen")
        assert found is not None
        assert found.data == name.encode()
        assert {head.id for head in store.list()} == {"s", f"own {name}"}
        assert store.names.list("agent/") == {"agent/current": "s"}
        assert store.state("settings").all() == {"name": name}
        assert store.active() == f"own {name}"
        assert [other for other in TENANTS if store.blobs.get(digests[other])] == [name]
        assert [holder.session for holder in store.locks()] == [f"own {name}"]
    assert stores["acme"].delete("s")
    assert [name for name, store in stores.items() if not store.list(limit=1)] == []
    with pytest.raises(SessionNotFound):
        stores["acme"].head("s")
    assert _said_in(stores["ACME"], "s") == ["of 'ACME'"]


def test_what_a_tenant_keeps_is_there_after_reopening(world: World) -> None:
    world.needs("survives")
    for name in TENANTS:
        _begin(world.store(namespace=name), f"s of {name}")
    world.reopened()
    for name in TENANTS:
        assert [head.id for head in world.store(namespace=name).list()] == [f"s of {name}"]


def test_the_same_session_is_open_once_for_each_tenant(world: World) -> None:
    with world.store().create("s") as one, world.store(namespace="acme").create("s") as other:
        one.append(user("a"))
        other.append(user("b"))
        assert (texts(one.history()), texts(other.history())) == (["a"], ["b"])


@pytest.mark.rule("L5")
def test_cleanup_touches_no_other_tenant(world: World) -> None:
    one, other = world.store(), world.store(namespace="acme")
    _begin(one, "a", "b")
    _begin(other, "a", "b")
    assert sorted(one.cleanup(keep_last=0).ids) == ["a", "b"]
    assert len(other.list()) == 2
    assert sorted(other.cleanup(max_bytes=0).ids) == ["a", "b"]


@pytest.mark.rule("W13")
def test_sessions_go_from_one_tenant_to_another(world: World) -> None:
    one, other = world.store(), world.store(namespace="acme")
    with one.create("s", agent="coder") as session:
        session.append(user("a"), id="k")
        session.checkpoint([user("A")], summary="S")
        session.append(user("b"))
    other.put(one.head("s"), one.read("s").records())
    assert other.read("s").history() == one.read("s").history()
    assert other.read("s").summary() == "S"


@pytest.mark.rule("I2")
@pytest.mark.parametrize("name", INVALID[1:], ids=lambda name: ascii(name)[:20])
def test_a_tenant_is_named_as_a_session_may_be(name: Any) -> None:
    with pytest.raises(InvalidId):
        hansard.open("memory:", namespace=name)


def test_all_tenants_of_a_url_share_one_engine_in_a_process(world: World) -> None:
    url = world.url if "survives" in world.capabilities else "memory:tenants"
    with hansard.open(url) as main, hansard.open(url, namespace="acme") as one:
        again = hansard.open(url, namespace="acme")
        assert one._engine is again._engine is main._engine.namespace("acme")
        _begin(one, "s")
        assert [head.id for head in again.list()] == ["s"]
        assert main.list() == []
        again.close()
        assert [head.id for head in one.list()] == ["s"]  # the last to close lets go
    with pytest.raises(Closed):
        one.list()


def test_a_tenant_of_a_store_that_is_only_read_is_only_read(world: World) -> None:
    world.needs("survives")
    _begin(world.store(namespace="acme"), "s")
    engine = world.new_engine(readonly=True)
    store = Store(engine.namespace("acme"), let_go=lambda: None)
    assert _said_in(store, "s") == ["I am s"]
    with pytest.raises(ReadOnlyStore):
        store.append("s", user("x"))


# -- I5


@pytest.mark.rule("I5")
def test_a_name_is_moved_and_taken_away_and_its_session_stays(world: World) -> None:
    store = world.store()
    _begin(store, "a", "b")
    store.names.set("agent/current", "a")
    assert store.names.get("agent/current") == store.resolve("@agent/current") == "a"
    store.names.set("agent/current", store.head("b"))
    assert world.other().names.get("agent/current") == "b"
    assert store.names.delete("agent/current") is True
    assert store.names.delete("agent/current") is False
    assert store.names.get("agent/current") is None
    assert {head.id for head in store.list()} == {"a", "b"}


@pytest.mark.rule("I5")
def test_names_are_listed_by_how_they_begin(world: World) -> None:
    store = world.store()
    _begin(store, "a")
    names = ["agent", "agent/coder/current", "agent/writer", "agents/x", "/abs", "/abs/x", "x", "//"]
    for name in names:
        store.names.set(name, "a")
    for prefix in ("", "a", "agent", "agent/", "agent/coder", "agents/", "/", "/abs", "/abs/", "//", "none"):
        wanted = {name: "a" for name in names if name.startswith(prefix)}
        found = store.names.list(prefix)
        found.pop("active", None)
        assert found == wanted, prefix


@pytest.mark.rule("I5", "I4")
def test_a_name_means_the_session_that_it_was_given_to_and_no_later_one(world: World) -> None:
    store = world.store()
    _begin(store, "a")
    store.names.set("agent/current", "a")
    store.delete("a")
    _begin(store, "a")
    assert store.names.get("agent/current") is None
    assert store.names.list("agent/") == {}
    with pytest.raises(SessionNotFound):
        store.resolve("@agent/current")
    store.names.set("agent/current", "a", expect=None)
    assert store.names.get("agent/current") == "a"


@pytest.mark.rule("I5", "W4")
def test_a_move_that_is_refused_moves_nothing(world: World) -> None:
    store = world.store()
    _begin(store, "a", "b")
    store.names.move({"g/one": "a", "g/two": "a"})
    attempts: tuple[tuple[type[Exception], Callable[[], Any]], ...] = (
        (Conflict, lambda: store.names.move({"g/one": "b", "g/two": "b"}, expect={"g/two": "b"})),
        (SessionNotFound, lambda: store.names.move({"g/one": "b", "g/two": "nobody"})),
        (InvalidId, lambda: store.names.move({"g/one": "b", "g/\n": "b"})),
        (InvalidId, lambda: store.names.move({"g/one": "b", "g/two": ""})),
        (ValueError, lambda: store.names.move({"g/one": "b", "h/two": "b"})),
        (ValueError, lambda: store.names.move({"g/one": "b"}, expect={"h/two": None})),
    )
    for error, attempt in attempts:
        with pytest.raises(error):
            attempt()
        assert store.names.list("g/") == {"g/one": "a", "g/two": "a"}
    store.names.move({})
    store.names.move({"g/one": "b", "g/two": None}, expect={"g/one": "a", "g/two": "a", "g/three": None})
    assert store.names.list("g/") == {"g/one": "b"}


@pytest.mark.rule("I5")
def test_a_move_that_changes_nothing_writes_nothing(world: World) -> None:
    store = world.store()
    _begin(store, "a")
    store.names.delete("g/one")
    store.names.move({"g/one": None})
    assert "g" not in world.engine.documents(NAMES)
    store.names.set("g/one", "a")
    before = world.engine.document(NAMES, "g")
    store.names.set("g/one", "a")
    store.names.set("g/one", "a", expect="a")
    assert world.engine.document(NAMES, "g") == before


@pytest.mark.rule("I5")
def test_names_that_move_together_are_seen_together(world: World) -> None:
    store, other = world.store(), world.other()
    _begin(store, "a", "b")
    store.names.move({"agent/current": "a", "agent/before": "b"})
    writer = threading.Thread(target=_move_over_and_over, args=(other, 60))
    writer.start()
    seen = set()
    while writer.is_alive():
        names = store.names.list("agent/")
        seen.add((names["agent/current"], names["agent/before"]))
    writer.join()
    assert seen <= {("a", "b"), ("b", "a")}


@pytest.mark.rule("I5")
def test_names_that_move_together_are_seen_together_by_another_process(world: World) -> None:
    store = world.store()
    _begin(store, "a", "b")
    store.names.move({"agent/current": "a", "agent/before": "b"})
    seen = set()
    process = world.begin(_move_over_and_over, 60)
    for _ in range(200):
        names = store.names.list("agent/")
        seen.add((names["agent/current"], names["agent/before"]))
    process.result()
    assert seen <= {("a", "b"), ("b", "a")}


@pytest.mark.rule("I5")
def test_of_many_who_expect_the_same_just_one_moves_a_name(world: World) -> None:
    stores = [world.store(), world.store(), world.other(), world.other()]
    _begin(stores[0], *"abcd")
    barrier = threading.Barrier(4)
    won: list[str] = []
    failed: list[BaseException] = []

    def work(store: Store, id: str) -> None:
        barrier.wait()
        try:
            store.names.set("agent/current", id, expect=None)
            won.append(id)
        except Conflict:
            pass
        except HansardError as error:
            failed.append(error)

    threads = [
        threading.Thread(target=work, args=(store, id)) for store, id in zip(stores, "abcd", strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert len(won) == 1
    assert stores[0].names.get("agent/current") == won[0]


@pytest.mark.rule("I5", "I2")
def test_any_valid_text_is_a_name(world: World) -> None:
    store = world.store()
    _begin(store, "a")
    for name in ODD:
        store.names.set(name, "a")
        assert store.resolve(f"@{name}") == "a"
    for name in ODD:
        assert store.names.delete(name) is True
    assert store.names.list() == {}


@pytest.mark.rule("I5", "W3")
def test_a_name_is_given_only_to_what_is_durable(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        with pytest.raises(SessionNotFound):
            store.names.set("agent/current", "s")
        session.append(user("a"), durable=False)
        store.names.set("agent/current", "s")
        assert world.other().names.get("agent/current") == "s"
    assert world.reopened().names.get("agent/current") == "s"


@pytest.mark.rule("C5")
def test_a_tenant_that_must_be_there_is_not_begun(world: World) -> None:
    engine = world.engine
    with pytest.raises(NotAStore):
        engine.namespace("nobody", create=False)
    engine.namespace("somebody")
    assert engine.namespace("somebody", create=False) is engine.namespace("somebody")


@pytest.mark.rule("E9")
def test_the_engine_of_a_tenant_is_closed_with_the_last_store_of_it(world: World) -> None:
    world.needs("survives")
    with hansard.open(world.url):
        one, other = (hansard.open(world.url, namespace="acme") for _ in range(2))
        engine = one._engine
        assert other._engine is engine
        one.append("s", user("Hello"), create=True)
        one.close()
        assert other.head("s").messages == 1
        other.close()
        assert engine.closed
        with hansard.open(world.url, namespace="acme") as again:
            assert again.head("s").messages == 1
