"""The contract, run against an engine of another distribution that is found by its entry point, and the few
things that are this engine's own."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

import hansard
from hansard.engines import STATE, Engine
from hansard.engines.schemes import engine
from hansard.errors import Closed, NewerFormat, NotAStore, Unsupported
from hansard.store import Store
from hansard.testing import World, conformance, hear, say

pytest.importorskip("hansard_shelf", reason="pip install -e tests/distributions/hansard-shelf")

globals().update(conformance())

LONG = 30.0
"""Seconds that nothing here takes."""


def shelf(place: str, *, readonly: bool = False) -> Engine:
    """What `hansard.open("shelf:…")` opens, but an engine of its own each time."""
    return engine(f"shelf:{quote(place)}", readonly=readonly)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(shelf, str(tmp_path / "store")) as world:
        yield world


def _say(store: Store, text: str) -> None:
    store.append("s", {"role": "user", "content": text}, create=True)


# -- by its URL


def test_a_shelf_is_opened_by_its_url_wherever_it_lies(tmp_path: Path) -> None:
    place = tmp_path / "my agents?"
    with hansard.open(f"shelf:{quote(str(place))}") as store:
        _say(store, "Hello")
        url = store.url
    with hansard.open(url) as store:
        assert store.url == url
        assert [head.title for head in store.list()] == ["Hello"]
    assert [path.name for path in tmp_path.iterdir()] == ["my agents?"]


def test_stores_of_one_shelf_share_an_engine_and_namespaces_are_apart(tmp_path: Path) -> None:
    url = f"shelf:{tmp_path / 'store'}"
    with hansard.open(url) as one, hansard.open(url) as two, hansard.open(url, namespace="../x") as tenant:
        assert one._engine is two._engine
        _say(one, "Hello")
        assert tenant.list() == []
        _say(tenant, "Other")
        assert [head.title for head in two.list()] == ["Hello"]
    with hansard.open(url, namespace="../x") as tenant:
        assert [head.title for head in tenant.list()] == ["Other"]
    assert os.listdir(tmp_path) == ["store"]


def test_a_shelf_knows_its_options(tmp_path: Path) -> None:
    hansard.open(f"shelf:{tmp_path / 'store'}?network=yes").close()
    with pytest.raises(ValueError, match="no option 'colour'"):
        hansard.open(f"shelf:{tmp_path / 'store'}?colour=red")
    with pytest.raises(ValueError, match="names no folder"):
        hansard.open("shelf:")


def test_what_is_no_shelf_is_left_as_it_is(tmp_path: Path) -> None:
    url = f"shelf:{tmp_path / 'store'}"
    for attempt in ({"create": False}, {"readonly": True}):
        with pytest.raises(NotAStore) as caught:
            hansard.open(url, **attempt)  # type: ignore[arg-type]
        assert caught.value.missing
    assert os.listdir(tmp_path) == []
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(NotAStore, match=r"mine|other things"):
        hansard.open(f"shelf:{tmp_path}")
    assert os.listdir(tmp_path) == ["mine.txt"]


def test_a_newer_shelf_is_refused(tmp_path: Path) -> None:
    hansard.open(f"shelf:{tmp_path}").close()
    with sqlite3.connect(tmp_path / "shelf.db") as db:
        db.execute("PRAGMA user_version = 2")
    db.close()
    with pytest.raises(NewerFormat):
        hansard.open(f"shelf:{tmp_path}")


def test_a_shelf_is_private(tmp_path: Path) -> None:
    with hansard.open(f"shelf:{tmp_path / 'store'}") as store:
        _say(store, "Hello")
        for path in (tmp_path / "store").rglob("*"):
            assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


# -- what it keeps


def test_a_head_that_another_version_folded_is_folded_anew(tmp_path: Path) -> None:
    url = f"shelf:{tmp_path}"
    with hansard.open(url) as store:
        _say(store, "Hello")
        head = store.head("s")
    with sqlite3.connect(tmp_path / "shelf.db") as db:
        db.execute("UPDATE sessions SET head = '{}', folded_by = '0.0'")
    db.close()
    with hansard.open(url) as store:
        assert store.head("s") == head
        assert store.list() == [head]
        assert not store.doctor()


def test_the_doctor_finds_a_record_that_is_gone(tmp_path: Path) -> None:
    with hansard.open(f"shelf:{tmp_path}") as store:
        _say(store, "Hello")
        _say(store, "and on")
        with sqlite3.connect(tmp_path / "shelf.db") as db:
            db.execute("DELETE FROM records WHERE seq = 1")
        db.close()
        assert [(found.kind, found.session) for found in store.doctor().findings] == [("damage", "s")]


def test_state_that_cannot_be_understood_is_set_aside(tmp_path: Path) -> None:
    with hansard.open(f"shelf:{tmp_path}") as store:
        store._engine.put_document(STATE, "settings", b"\0 nonsense")
        with pytest.warns(hansard.HansardWarning, match="set aside"):
            store.state("settings").set("colour", "red")
        assert store.state("settings").all() == {"colour": "red"}
    with sqlite3.connect(tmp_path / "shelf.db") as db:
        assert db.execute("SELECT name, data FROM aside").fetchall() == [("settings", b"\0 nonsense")]
    db.close()


def test_it_keeps_nobody_out(world: World) -> None:
    with pytest.raises(Unsupported):
        world.engine.alone("s")


# -- who looks on


def test_who_watches_is_told_of_what_is_written_here(world: World) -> None:
    store, told = world.store(), []
    end = world.engine.watch(told.append, session="s")  # type: ignore[attr-defined]
    _say(store, "Hello")
    assert "s" in told
    store.append("other", {"role": "user", "content": "Hello"}, create=True)
    assert "other" not in told
    store.delete("s")
    assert told.count("s") == 2
    end()
    end()
    _say(store, "Hello")
    assert told.count("s") == 2


def _write(store: Store) -> None:
    hear()
    _say(store, "Hello")
    say()


def test_who_watches_is_told_of_what_another_process_writes(world: World) -> None:
    changed = threading.Event()
    engine = world.engine
    end = engine.watch(lambda session: changed.set())  # type: ignore[attr-defined]
    with world.beside(_write) as process:
        assert changed.wait(LONG)  # it may be called for nothing, as it is in the beginning
        changed.clear()
        process.tell()
        assert changed.wait(LONG)
        assert engine.head("s").title == "Hello"
    end()


# -- fork


def _fork(store: Store, another: str) -> int:
    """In another process: what a child of it could open."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            hansard.open(store.url)
        except Closed:
            hansard.open(another).close()
            code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    _say(store, "and on")
    return code


def test_a_forked_process_cannot_open_what_its_parent_has_open(world: World, tmp_path: Path) -> None:
    _say(world.store(), "Hello")
    assert world.elsewhere(_fork, f"shelf:{tmp_path / 'another'}") == 0
    assert world.store().head("s").messages == 2
