"""The state of an application: JSON objects under names, of which every write is durable and none is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hansard.engines import STATE
from hansard.errors import (
    Closed,
    Damaged,
    HansardError,
    InvalidId,
    InvalidPayload,
    NewerFormat,
    ReadOnlyStore,
    Unsupported,
)
from hansard.records import decode, encode
from hansard.store import Store
from hansard.testing.identity import INVALID, ODD
from hansard.testing.world import World, hear, say

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


class _Clock:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now


def _increment(store: Store, name: str, key: str, times: int) -> int:
    state = store.state(name)

    def one_more(values: dict[str, Any]) -> None:
        values[key] = values.get(key, 0) + 1

    for _ in range(times):
        state.update(one_more)
    return int(state.get(key))


def _set_and_wait(store: Store, name: str) -> None:
    store.state(name).set("theme", "dark")
    say("set")
    hear()


def _get(store: Store, name: str, key: str) -> Any:
    return store.state(name).get(key)


@pytest.mark.rule("W1", "W7")
def test_a_value_is_any_json_and_comes_back_as_it_was(world: World) -> None:
    values: list[Any] = [None, True, False, 0, 1, 1.0, -0.5, 2**70, "", "\x00\u2028🦊", []]
    values += [{}, {"a": [1, {"b": None}]}]
    settings = world.store().state("settings")
    for i, value in enumerate(values):
        settings.set(f"{i}", value)
    for opened in (world.store, world.other, world.reopened):
        again = opened().state("settings")
        assert repr([again.get(f"{i}") for i in range(len(values))]) == repr(values)
        assert repr(again.all()) == repr({f"{i}": value for i, value in enumerate(values)})


@pytest.mark.rule("W7")
def test_nobody_shares_an_object_with_the_state(world: World) -> None:
    settings = world.store().state("settings")
    given = {"a": [1]}
    settings.set("x", given)
    given["a"].append(2)
    found = settings.get("x")
    found["a"].append(3)
    settings.all()["x"]["a"].append(4)
    told = settings.update({"y": given})
    told["y"]["a"].append(5)
    assert settings.all() == {"x": {"a": [1]}, "y": {"a": [1, 2]}}


def test_what_was_never_set_is_the_default(world: World) -> None:
    settings = world.store().state("settings")
    assert settings.get("theme") is None
    assert settings.get("theme", "dark") == "dark"
    assert settings.all() == settings.load() == {}
    settings.set("theme", None)
    assert settings.get("theme", "dark") is None
    assert settings.all() == {"theme": None}


def test_a_key_is_set_replaced_and_taken_away(world: World) -> None:
    settings = world.store().state("settings")
    settings.set("theme", {"dark": True, "n": 1})
    settings.set("theme", {"n": 2})
    settings.set("font", "mono")
    assert settings.all() == {"theme": {"n": 2}, "font": "mono"}
    assert settings.delete("theme") is True
    assert settings.delete("theme") is False
    assert settings.delete("nobody") is False
    assert world.other().state("settings").all() == {"font": "mono"}


def test_several_keys_change_in_one_write(world: World) -> None:
    settings = world.store().state("settings")
    settings.update({"a": 1, "b": 2, "c": 3})
    versions = [world.engine.document(STATE, "settings")]
    assert settings.update({"a": 10, "d": 4}, unset=["b", "nobody"]) == {"a": 10, "c": 3, "d": 4}
    assert settings.update(unset="c") == {"a": 10, "d": 4}
    versions.append(world.engine.document(STATE, "settings"))
    assert versions[0] != versions[1]
    assert world.reopened().state("settings").all() == {"a": 10, "d": 4}


def test_what_changes_nothing_writes_nothing(world: World) -> None:
    settings = world.store().state("settings")
    settings.update({})
    assert world.engine.documents(STATE) == []
    settings.update({"a": 1, "b": {"x": 1}})
    before = world.engine.document(STATE, "settings")
    settings.update({"a": 1, "b": {"x": 1}}, unset=["c"])
    settings.update(lambda values: None)
    settings.update(lambda values: values.update(a=1))
    settings.delete("c")
    settings.save()
    assert world.engine.document(STATE, "settings") == before


@pytest.mark.parametrize(
    ("old", "new"),
    [(True, 1), (1, True), (1, 1.0), (0, False), ([1], [True]), ("1", 1), (None, "")],
    ids=repr,
)
@pytest.mark.parametrize("how", ["set", "a function"])
def test_a_value_that_is_nearly_the_same_is_another(world: World, how: str, old: Any, new: Any) -> None:
    settings = world.store().state("settings")
    settings.set("x", old)
    if how == "set":
        settings.set("x", new)
    else:
        settings.update(lambda values: values.update(x=new))
    assert repr(world.other().state("settings").get("x")) == repr(new)


def test_a_function_changes_everything_in_place_in_one_write(world: World) -> None:
    settings = world.store().state("settings")
    settings.update({"n": 1, "list": [1], "gone": True})

    def change(values: dict[str, Any]) -> None:
        values["n"] += 1
        values["list"].append(2)
        del values["gone"]
        values["new"] = {"a": None}

    assert settings.update(change) == {"n": 2, "list": [1, 2], "new": {"a": None}}
    assert world.reopened().state("settings").all() == {"n": 2, "list": [1, 2], "new": {"a": None}}


@pytest.mark.rule("W4")
def test_a_function_that_fails_changes_nothing(world: World) -> None:
    settings = world.store().state("settings")
    settings.set("n", 1)

    def fail(values: dict[str, Any]) -> None:
        values["n"] = 2
        raise KeyError("mine")

    with pytest.raises(KeyError):
        settings.update(fail)
    with pytest.raises(InvalidPayload):
        settings.update(lambda values: values.update(n=b"bytes"))
    with pytest.raises(InvalidPayload):
        settings.update(lambda values: values.update({7: 1}))  # type: ignore[dict-item]
    assert settings.all() == {"n": 1}


@pytest.mark.rule("W1", "W4")
@pytest.mark.parametrize(
    "value", [b"x", float("nan"), {1: 2}, "\ud800", {"a"}, datetime(2026, 5, 1)], ids=ascii
)
def test_what_json_cannot_carry_is_refused_and_changes_nothing(world: World, value: Any) -> None:
    settings = world.store().state("settings")
    settings.set("a", 1)
    attempts: tuple[Callable[[], Any], ...] = (
        lambda: settings.set("b", value),
        lambda: settings.update({"c": 1, "b": value}),
        lambda: settings.update({"c": 1, "\ud800": 1}),
    )
    for attempt in attempts:
        with pytest.raises(InvalidPayload):
            attempt()
    for key in (None, 7, b"a"):
        with pytest.raises(InvalidPayload):
            settings.get(key)  # type: ignore[arg-type]
        with pytest.raises(InvalidPayload):
            settings.delete(key)  # type: ignore[arg-type]
    with pytest.raises(InvalidPayload):
        settings.update([("a", 2)])  # type: ignore[arg-type]
    assert settings.all() == {"a": 1}


@pytest.mark.rule("I2")
def test_states_of_different_names_do_not_mix(world: World) -> None:
    store = world.store()
    for name in ODD:
        store.state(name).set("name", name)
    store = world.reopened()
    assert [store.state(name).all() for name in ODD] == [{"name": name} for name in ODD]
    assert store.list(empty=True) == []
    assert store.names.list() == {}


@pytest.mark.rule("I2")
@pytest.mark.parametrize("name", INVALID, ids=lambda name: ascii(name)[:20])
def test_a_state_is_named_as_a_session_may_be(world: World, name: Any) -> None:
    with pytest.raises(InvalidId):
        world.store().state(name)


def test_any_text_may_be_a_key(world: World) -> None:
    settings = world.store().state("settings")
    keys = ["", " ", "\x00", "a/b", "é", "e\u0301", "x" * 5000, "format", "name", "data", "expires"]
    settings.update(dict.fromkeys(keys, 1))
    settings.update({key: key for key in keys})
    assert world.reopened().state("settings").all() == {key: key for key in keys}


@pytest.mark.rule("W2")
def test_every_handle_reads_what_is_stored_now(world: World) -> None:
    one, other = world.store().state("settings"), world.other().state("settings")
    for i in range(5):
        one.set("n", i)
        assert other.get("n") == other.load()["n"] == i
        other.set("m", i)
        assert one.all() == {"n": i, "m": i}


@pytest.mark.rule("W2")
def test_what_was_set_survives_the_death_of_the_process(world: World) -> None:
    with world.beside(_set_and_wait, "settings") as process:
        assert process.hear() == "set"
        process.kill()
    assert world.store().state("settings").get("theme") == "dark"


def test_of_what_several_threads_change_nothing_is_lost(world: World) -> None:
    stores = [world.store(), world.store(), world.other(), world.other()]
    failed: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for i in range(20):
                _increment(stores[number], "settings", "n", 1)
                stores[number].state("settings").set(f"{number}.{i}", i)
        except HansardError as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    found = stores[0].state("settings").all()
    assert found.pop("n") == 80
    assert found == {f"{number}.{i}": i for number in range(4) for i in range(20)}


def test_of_what_several_processes_change_nothing_is_lost(world: World) -> None:
    processes = [world.begin(_increment, "settings", "n", 25) for _ in range(3)]
    _increment(world.store(), "settings", "n", 25)
    for process in processes:
        process.result()
    assert world.store().state("settings").get("n") == 100
    assert world.elsewhere(_get, "settings", "n") == 100


# -- expiry


def test_a_value_is_gone_when_its_time_is_over(world: World) -> None:
    clock = _Clock()
    settings = world.store(clock=clock).state("settings")
    settings.set("token", "t", expires=HOUR)
    settings.update({"a": 1, "b": 2}, expires=NOON + 2 * HOUR)
    settings.set("theme", "dark")
    assert len(settings.all()) == 4
    clock.now = NOON + HOUR
    assert settings.get("token", "gone") == "gone"
    assert settings.all() == {"a": 1, "b": 2, "theme": "dark"}
    assert settings.delete("token") is False
    assert world.other(clock=clock).state("settings").get("token") is None
    clock.now = NOON + 2 * HOUR
    seen: list[dict[str, Any]] = []
    settings.update(lambda values: seen.append(dict(values)))
    assert seen == [{"theme": "dark"}]
    clock.now = NOON
    assert settings.all() == {"theme": "dark"}  # what had expired went with that write


def test_a_value_that_is_set_anew_has_the_time_that_it_is_given_then(world: World) -> None:
    clock = _Clock()
    settings = world.store(clock=clock).state("settings")
    settings.update({"a": 1, "b": 1, "c": 1}, expires=HOUR)
    settings.set("a", 1)
    settings.set("b", 1, expires=3 * HOUR)
    settings.update(lambda values: values.update(d=1))
    clock.now = NOON + 2 * HOUR
    assert settings.all() == {"a": 1, "b": 1, "d": 1}
    clock.now = NOON + 3 * HOUR
    assert settings.all() == {"a": 1, "d": 1}


@pytest.mark.rule("W4")
def test_a_state_whose_time_means_no_moment_is_refused(world: World) -> None:
    settings = world.store().state("settings")
    for wrong in (datetime(2026, 5, 1), 7, "tomorrow"):
        with pytest.raises((ValueError, InvalidPayload)):
            settings.set("a", 1, expires=wrong)  # type: ignore[arg-type]
    assert settings.all() == {}


@pytest.mark.rule("L5")
def test_cleanup_takes_away_values_and_documents_that_have_expired(world: World) -> None:
    clock = _Clock()
    store = world.store(clock=clock)
    store.state("settings").set("token", "t", expires=HOUR)
    store.state("settings").set("theme", "dark")
    with store.create("s") as session:
        session.append({"role": "user", "content": "a"})
        session.documents.put("screen", b"x", expires=HOUR)
        session.documents.put("other", b"y")
        clock.now = NOON + 2 * HOUR
        store.cleanup(keep_last=9, dry_run=True)
        assert len(_documents(world, "s")) == 2
        store.cleanup(keep_last=9)
        assert _documents(world, "s") == ["other"]
    raw, _ = world.engine.document(STATE, "settings") or (b"", "")
    assert decode(raw)["data"] == {"theme": "dark"}


def _documents(world: World, id: str) -> list[str]:
    from hansard.engines import Shelf

    return world.engine.documents(Shelf("documents", id))


# -- what cannot be understood

ILLEGIBLE = [b"", b"{", b"[]", b"\xff", b'{"data":[]}', b'{"format":1,"data":{},"expires":7}', b"null"]


@pytest.mark.rule("C4")
@pytest.mark.parametrize("raw", ILLEGIBLE, ids=repr)
def test_a_state_that_cannot_be_understood_is_told_and_left_as_it_is(world: World, raw: bytes) -> None:
    store = world.store()
    world.engine.put_document(STATE, "settings", raw)
    settings = store.state("settings")
    attempts: tuple[Callable[[], Any], ...] = (
        settings.all,
        settings.load,
        lambda: settings.get("a"),
        lambda: settings.delete("a"),
        lambda: settings.update({}),
        lambda: settings.update(unset=["a"]),
    )
    for attempt in attempts:
        with pytest.raises(Damaged, match="settings"):
            attempt()
    store.cleanup(keep_last=9)
    assert (world.engine.document(STATE, "settings") or (b"?", ""))[0] == raw
    store.state("other").set("a", 1)
    assert store.state("other").get("a") == 1


@pytest.mark.rule("C4", "W14")
@pytest.mark.parametrize("written", [2, 99, "2", None, 1.5], ids=repr)
def test_a_state_of_a_newer_version_is_never_changed(world: World, written: Any) -> None:
    store = world.store()
    raw = encode({"format": written, "data": {"a": 1}, "more": [1]})
    world.engine.put_document(STATE, "settings", raw)
    settings = store.state("settings")
    attempts: tuple[Callable[[], Any], ...] = (
        settings.all,
        lambda: settings.set("a", 2),
        lambda: settings.delete("a"),
        lambda: settings.update(lambda values: values.clear()),
    )
    for attempt in attempts:
        with pytest.raises(NewerFormat):
            attempt()
    store.cleanup(keep_last=9)
    assert (world.engine.document(STATE, "settings") or (b"?", ""))[0] == raw


@pytest.mark.rule("C4")
def test_members_that_a_newer_version_has_written_stay(world: World) -> None:
    settings = world.store().state("settings")
    world.engine.put_document(STATE, "settings", b'{"format":1,"data":{"a":1},"more":[1]}')
    settings.set("b", 2)
    raw, _ = world.engine.document(STATE, "settings") or (b"", "")
    assert decode(raw)["more"] == [1]
    assert settings.all() == {"a": 1, "b": 2}


# -- the rest


def test_there_is_no_secret_state_without_encryption(world: World) -> None:
    with pytest.raises(Unsupported, match="nothing was read"):
        world.store().state("credentials", secret=True)
    assert world.engine.documents(STATE) == []


@pytest.mark.rule("E9")
def test_the_state_of_a_closed_store_is_closed(world: World) -> None:
    store = world.store()
    settings = store.state("settings")
    settings.set("a", 1)
    store.close()
    attempts: tuple[Callable[[], Any], ...] = (
        lambda: settings.get("a"),
        settings.all,
        lambda: settings.set("a", 2),
        lambda: settings.delete("a"),
        settings.save,
        lambda: store.state("settings"),
    )
    for attempt in attempts:
        with pytest.raises(Closed):
            attempt()


def test_in_a_store_that_is_only_read_the_state_is_only_read(world: World) -> None:
    world.needs("survives")
    world.store().state("settings").set("a", 1)
    store = Store(world.new_engine(readonly=True), let_go=lambda: None)
    assert store.state("settings").all() == {"a": 1}
    with pytest.raises(ReadOnlyStore):
        store.state("settings").set("a", 2)
