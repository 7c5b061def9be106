"""The catalog of the file engine: that damage to it is noticed, and that a page of a list costs a page."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import hansard
from hansard.engines import catalog as catalogs
from hansard.engines.catalog import Catalog
from hansard.engines.chain import Chain, Ruined
from hansard.testing.chat import user
from hansard.views.head import Head, Query, matches, rank

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


# -- damage


SESSIONS = 60


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose catalog has several pages of each table; closed."""
    place = tmp_path_factory.mktemp("sound") / "store"
    with hansard.open(place) as store:
        for n in range(SESSIONS):
            labels = ["red"] if n % 2 else []
            with store.create(f"s{n:02}", agent=f"agent {n % 3}", labels=labels, activate=False) as session:
                session.append(user(f"title {n}"), durable=False, id=f"request-{n:04}")
        with store.create("long") as session:
            for n in range(200):
                session.append(user(f"{n} " + "x" * 2000), durable=False, id=f"request-{n:04}")
            session.truncate(20)
        store.list()
    return place


def _told(place: Path) -> list[Any]:
    """What the catalog has a part in, asked of a store."""
    lists: list[dict[str, Any]] = [
        {},
        {"order": "created"},
        {"agent": "agent 1"},
        {"labels": "red"},
        {"status": "active", "empty": True},
    ]
    with hansard.open(place) as store:
        found: list[Any] = [
            [(head.id, head.title, head.messages) for head in store.list(limit=None, **which)]
            for which in lists
        ]
        found.append(store.resolve("lon"))
        view = store.read("long")
        found.append([message["content"][:4] for message in view.history()])
        found.append([record.seq for record in view.records(after=150)])
        found.append(view.damage)
        repeated = [store.append("s07", user("title 7"), id="request-0007").seq]
        for n in range(0, 200, 23):
            repeated.append(store.append("long", user(f"{n} " + "x" * 2000), id=f"request-{n:04}").seq)
        return [*found, repeated]


def _flip(chance: random.Random, raw: bytearray) -> None:
    at = chance.randrange(100, len(raw))
    while not raw[at]:
        at = chance.randrange(100, len(raw))
    raw[at] ^= 1 << chance.randrange(8)


def _blank(chance: random.Random, raw: bytearray) -> None:
    at = chance.randrange(1, len(raw) // 512) * 512
    raw[at : at + 512] = bytes(512)


def _swap(chance: random.Random, raw: bytearray) -> None:
    one, other = (4096 * n for n in chance.sample(range(1, len(raw) // 4096), 2))
    raw[one : one + 4096], raw[other : other + 4096] = raw[other : other + 4096], raw[one : one + 4096]


@pytest.mark.rule("C3", "W5")
@pytest.mark.parametrize("damage", [_flip, _blank, _swap])
@pytest.mark.parametrize("seed", range(12))
def test_whatever_becomes_of_the_bytes_of_the_catalog_no_answer_changes(
    sound: Path, tmp_path: Path, damage: Callable[[random.Random, bytearray], None], seed: int
) -> None:
    place = tmp_path / "store"
    shutil.copytree(sound, place)
    expected = _told(place)
    path = place / "catalog.db"
    raw = bytearray(path.read_bytes())
    damage(random.Random(seed), raw)
    path.write_bytes(raw)
    assert _told(place) == expected


CHANGES = {
    "an id": "UPDATE ids SET id = 'reqAest-0007' WHERE id = 'request-0007'",
    "where an id stands": "UPDATE ids SET seq = seq + 1 WHERE id = 'request-0007'",
    "an id less": "DELETE FROM ids WHERE id = 'request-0007'",
    "no ids": "DELETE FROM ids WHERE n > 0",
    "marks": "UPDATE marks SET seq = seq - 15",
    "offsets": "UPDATE marks SET offset = offset + 1",
    "a list": "DELETE FROM places WHERE list >= 0 AND id = 's07'",
    "all lists": "DELETE FROM places WHERE list >= 0",
    "the order": "UPDATE places SET rank = rank + 1 WHERE list >= 0 AND id = 's07'",
    "another's place": "UPDATE places SET n = n + 1 WHERE id = 's07'",
    "a row": "DELETE FROM sessions WHERE id = 's07'",
    "a length": "UPDATE sessions SET length = length - 1 WHERE id = 's07'",
    "a title": "UPDATE sessions SET head = replace(head, 'title 7', 'title 8')",
    "an id of a session": "UPDATE sessions SET id = 's99' WHERE id = 's07'",
}


@pytest.mark.rule("C3", "W5")
@pytest.mark.parametrize("change", CHANGES)
def test_a_catalog_that_somebody_has_changed_changes_no_answer(
    sound: Path, tmp_path: Path, change: str
) -> None:
    place = tmp_path / "store"
    shutil.copytree(sound, place)
    expected = _told(place)
    with sqlite3.connect(place / "catalog.db") as db:
        assert db.execute(CHANGES[change]).rowcount
    db.close()
    assert _told(place) == expected


@pytest.mark.rule("C3")
def test_a_session_that_is_marked_as_growing_is_not_forgotten(tmp_path: Path) -> None:
    place = tmp_path / "store"
    store = hansard.open(place)
    store.append("a", user("one"), create=True)
    store.list()
    session = store.open("a")
    session.append(user("two"))
    db = sqlite3.connect(place / "catalog.db")
    assert db.execute("UPDATE sessions SET open = 0").rowcount
    db.execute("DELETE FROM places WHERE list = ?", (catalogs._OPEN,))
    db.commit()
    db.close()
    assert [head.messages for head in store.list()] == [2]
    session.close()
    store.close()


# -- chains


@pytest.fixture
def chain() -> Iterator[Chain]:
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.execute(
        "CREATE TABLE t (a INTEGER, b TEXT, c INTEGER, link INTEGER, PRIMARY KEY (a, b)) WITHOUT ROWID"
    )
    chain = Chain(db, "t", ("a", "b"), "c", origin=(0, ""))
    chain.begin()
    yield chain
    db.close()


def test_a_chain_has_what_was_put_in_and_not_taken_out(chain: Chain) -> None:
    chance = random.Random(5)
    known: dict[tuple[int, str], int] = {}
    for step in range(400):
        keys = {(chance.randrange(1, 5), f"{chance.randrange(40):x}") for _ in range(chance.randrange(6))}
        if chance.random() < 0.6:
            new = {key: step for key in keys if key not in known}
            assert chain.add(sorted((*key, step) for key in keys)) == len(new)
            known |= new
        else:
            first, last = sorted((chance.randrange(1, 6), f"{chance.randrange(40):x}") for _ in range(2))
            inside = [key for key in known if first <= key < last]
            assert chain.cut(first, last) == len(inside)
            for key in inside:
                del known[key]
        first = (chance.randrange(6), f"{chance.randrange(40):x}")
        expected = [(*key, value) for key, value in sorted(known.items()) if key >= max(first, (0, "0"))]
        limit = chance.randrange(1, 30)
        if first > (0, ""):
            assert [entry[:3] for entry in chain.stretch(first, limit)] == expected[:limit]


@pytest.mark.parametrize("call", ["stretch", "add", "cut"])
def test_a_chain_that_lacks_an_entry_says_so_where_it_stood(chain: Chain, call: str) -> None:
    chain.add([(1, name, 0) for name in "abcdefgh"])
    chain._db.execute("DELETE FROM t WHERE b = 'd'")
    calls: dict[str, Callable[[str], object]] = {
        "stretch": lambda name: chain.stretch((1, name), 1),
        "add": lambda name: chain.add([(1, name, 0)]),
        "cut": lambda name: chain.cut((1, name), (1, name + "\0")),
    }
    calls[call]("f")
    for name in ("cc", "d", "dd"):
        with pytest.raises(Ruined):
            calls[call](name)


# -- lists


def _heads(count: int) -> list[Head]:
    chance = random.Random(count)
    heads = []
    for n in range(count):
        created = NOW - timedelta(seconds=chance.randrange(count))
        ahead = timedelta(days=chance.choice([2, 400])) if chance.random() < 0.05 else timedelta()
        kind = chance.random()
        heads.append(
            Head(
                id=f"{chance.choice(['sess_', 'é', ''])}{n:05}",
                seq=1,
                created_at=created + (ahead if chance.random() < 0.5 else timedelta()),
                updated_at=created + timedelta(seconds=chance.randrange(100)) + ahead,
                agent=chance.choice(["", "coder", "writer"]),
                model=chance.choice(["m1", "m2"]),
                workspace=chance.choice(["", "/one", "/two"]),
                status="active" if n % 10 else "done",
                labels=sorted(chance.sample(["red", "green", "blue"], chance.randrange(3))),
                meta={"n": n % 7},
                parent=f"sess_{n % 20:05}" if kind < 0.3 else None,
                path="part" if kind < 0.2 else None,
                pinned=chance.random() < 0.05,
                archived=chance.random() < 0.1,
                has_user_input=chance.random() < 0.8,
            )
        )
    return heads


def _keep(catalog: Catalog, head: Head, expect: tuple[int, int] | None = None, state: int = 0) -> None:
    saved = catalog.save(
        head, expect=expect, length=1, state=state, damage=(), ids=(), marks=(), anew=False, open=False
    )
    assert saved is not None


def _queries() -> Iterator[Query]:
    chance = random.Random(3)
    ways: dict[str, list[Any]] = {
        "agent": ["coder", "", "nobody"],
        "model": ["m1", "m3"],
        "workspace": ["/one", ""],
        "status": ["active", "done"],
        "labels": [("red",), ("green", "red"), ("none",)],
        "meta": [{"n": 3}],
        "parent": ["sess_00003", "none"],
        "pinned": [True, False],
        "archived": [True],
        "since": [NOW - timedelta(seconds=200), NOW + timedelta(days=10)],
        "until": [NOW - timedelta(seconds=100), NOW],
        "prefix": ["sess_000", "é", "sess_00003", "nothing", ""],
        "empty": [True],
        "anywhere": [True],
        "order": ["created"],
    }
    yield Query(now=NOW)
    for _ in range(150):
        asked = {name: chance.choice(ways[name]) for name in chance.sample(list(ways), chance.randrange(4))}
        yield Query(**asked, now=NOW, limit=chance.choice([None, 1, 7, 50]))


@pytest.mark.rule("L1")
@pytest.mark.parametrize("few", [0, 1000])
def test_the_catalog_lists_what_matches_in_order_whatever_way_it_takes(
    monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(catalogs, "FEW", few)
    catalog = Catalog(":memory:")
    heads = _heads(300)
    for head in heads:
        _keep(catalog, head)
    for head in heads[::3]:  # some are somebody else by now
        head.agent, head.labels, head.pinned, head.status = "coder", ["blue"], not head.pinned, "done"
        head.updated_at += timedelta(seconds=1000)
        _keep(catalog, head, expect=(1, 0), state=0)
    for query in _queries():
        found = sorted((rank(h, query), h.id) for h in heads if matches(h, query))
        assert catalog.count(query) == len(found), query
        place = None
        for _ in range(5):
            page = catalog.heads(replace(query, place=place))
            expected = [one for one in found if place is None or one > place][: query.limit]
            assert [(rank(h, query), h.id) for h in page] == expected, query
            if query.limit is None or len(page) < query.limit:
                break
            place = expected[-1]
    catalog.close()


def _steps(catalog: Catalog, query: Query) -> int:
    """How much SQLite does for a page."""
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    catalog._db.set_progress_handler(step, 20)
    try:
        catalog.heads(query)
    finally:
        catalog._db.set_progress_handler(None, 20)
    return steps


@pytest.mark.rule("L1")
def test_a_page_costs_no_more_where_there_are_many_sessions() -> None:
    """Also with sessions from the future, and where nothing matches."""
    few, many = Catalog(":memory:"), Catalog(":memory:")
    for catalog, count in ((few, 150), (many, 3000)):
        with catalog.changing():
            for n in range(count):
                moment = NOW - timedelta(seconds=n)
                head = Head(
                    id=f"sess_{n:05}",
                    seq=1,
                    created_at=moment,
                    updated_at=moment + timedelta(days=400 if n % (count // 3) == 5 else 0),
                    agent="coder",
                    model="m1",
                    labels=["red"],
                    has_user_input=True,
                )
                _keep(catalog, head)
    asked: list[dict[str, Any]] = [
        {},
        {"order": "created"},
        {"empty": True},
        {"anywhere": True, "empty": True},
        {"agent": "coder"},
        {"labels": ("red",)},
        {"model": "none"},
        {"status": "done"},
        {"labels": ("none",)},
        {"pinned": True},
        {"agent": "coder", "workspace": "/none"},
        {"prefix": "sess_00100", "anywhere": True, "empty": True},
        {"until": NOW - timedelta(seconds=100)},
        {"place": (rank(few.heads(Query(now=NOW, limit=50))[-1], Query(now=NOW)), "sess_00049")},
    ]
    for which in asked:
        query = Query(now=NOW, limit=51, **which)
        assert _steps(many, query) < 1.5 * _steps(few, query) + 20, which
    few.close()
    many.close()
