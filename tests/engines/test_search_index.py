"""The full-text index of the file engine: that it finds what looking at every record finds, and that nothing
that happens to it changes an answer."""

from __future__ import annotations

import os
import random
import sqlite3
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import hansard
from hansard.engines import searching
from hansard.engines.files import Files
from hansard.testing.chat import assistant, user
from hansard.testing.world import World, hear, say
from hansard.views import search
from hansard.views.folding import WORDS, fold

NOON = datetime(2026, 5, 1, 12, 0, 0, tzinfo=UTC)

rule = pytest.mark.rule("L4")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(Files, str(tmp_path / "store")) as world:
        yield world


def _index(world: World) -> Path:
    return Path(world.place) / "search.db"


def _fill(store: hansard.Store, sessions: int = 3, messages: int = 5) -> None:
    for s in range(sessions):
        with store.create(f"s{s}", activate=False) as session:
            session.extend([user(f"a needle number{s}x{n} in the hay") for n in range(messages)])


def _count(store: hansard.Store, query: str = "needle") -> int:
    return len(store.search(query, limit=None, order="newest"))


def _scanned(store: hansard.Store, query: search.Query) -> list[search.Found]:
    """What looking at every record finds."""
    engine = store._engine
    return search.scan(((engine.head(id), engine.read(id)) for id in sorted(engine.sessions())), query)


# -- the same as looking at every record

PIECES = [
    "needle", "Needle", "NEEDLE", "needles", "hay", "stack", "haystack", "café", "cafe\u0301", "CAFÉ",
    "Straße", "strasse", "İ", "i\u0307", "ı", "I", "ΟΔΟΣ",
    "οδος", "ﬁ", "fi", "½", "Ⅷ", "数据库", "数据", "据", "데이터", "ガイド",
    "ｶﾞｲﾄﾞ", "ข้อ", "नमस्ते", "🚀", "👨‍👩‍👧", "a", "b", "ab", "x_y", "x-y", "x.y",
    "x", "y", "1", "12", "ß", "™",
    "\u00ad", "\u200b", "\u0301", "_", "-", "*", '"', "(", ")", ":", "\0", "'", "…", "│", "\u2028",
    "Ａ", "Æ", "ø",
    "AND", "OR", "NOT", "NEAR", "prose", "ᎠᎠ", "ꭰ", "שָׁלוֹם", "ـمَر", "\U00016b00", "é" * 3, "\n",
]  # fmt: skip

said = st.lists(st.sampled_from(PIECES), max_size=12).flatmap(
    lambda pieces: st.sampled_from([" ".join(pieces), "".join(pieces)])
)
asked = st.one_of(said, st.text(max_size=20), st.lists(st.sampled_from(PIECES), max_size=3).map(" ".join))


@rule
@settings(max_examples=40)
@given(
    st.lists(st.tuples(said, said, said), min_size=1, max_size=12), st.lists(asked, min_size=5, max_size=20)
)
@example([("a b a b a", "", ""), ("b", "a", "")], ['"a b a"', "a b", "a*", "a -b", '"b a b a"'])
def test_the_index_finds_what_looking_at_every_record_finds(
    tmp_path_factory: pytest.TempPathFactory, texts: list[tuple[str, str, str]], queries: list[str]
) -> None:
    with hansard.open(tmp_path_factory.mktemp("store")) as store:
        for n, (prose, given_, gave) in enumerate(texts):
            call = {"type": "tool_use", "id": "t", "name": "x", "input": {"q": given_}}
            result = {"type": "tool_result", "tool_use_id": "t", "content": gave}
            blocks = [{"type": "text", "text": prose}, call, result]
            message = {"role": "assistant", "content": blocks}
            at = NOON - timedelta(days=n % 5, seconds=n % 2)
            store.append(f"s{n % 3}", message, create=True, time=at)
        for asked_for in queries:
            for order in search.ORDERS:
                for tools in (True, False):
                    query = search.Query(
                        terms=search.parse(asked_for), tools=tools, order=order, limit=None, now=NOON
                    )
                    found = store._engine.search(query)
                    wanted = _scanned(store, query)
                    assert {_place(one) for one in found} == {_place(one) for one in wanted}, asked_for
                    scores = {_place(one): one.score for one in wanted}
                    for one in found:
                        assert one.score == pytest.approx(scores[_place(one)], rel=1e-9), asked_for
                    if order == "newest":
                        assert [_place(one) for one in found] == [_place(one) for one in wanted]


def _place(found: search.Found) -> tuple[str, int]:
    return found.head.id, found.record.seq


@rule
@given(said, asked)
def test_every_match_has_its_marks(text: str, query: str) -> None:
    terms = search.parse(query)
    line, marks = search.snippet([text], terms)
    assert len(line) <= search.WIDTH * 2
    if search.matches([fold(text)], terms):
        assert marks
    for a, b in marks:
        assert 0 <= a < b <= len(line)
        assert WORDS.search(fold(line[a:b]))


@rule
@pytest.mark.parametrize("order", search.ORDERS)
def test_the_newest_are_those_that_were_said_last_wherever_and_whenever_they_were_indexed(
    world: World, order: str
) -> None:
    dice = random.Random(3)
    store = world.store()
    for n in range(300):
        at = NOON - timedelta(seconds=dice.choice([0, 0, 0, 1, 5, 60, 86400, 10**9, 3 * 10**9]))
        store.append(f"s{n % 7}", user(f"needle {'hay ' * (n % 4)}"), create=True, time=at)
        if n % 50 == 0:
            store.search("needle")
    terms = search.parse("needle")
    query = search.Query(terms=terms, order=order, limit=60, now=NOON)
    assert [_place(one) for one in store._engine.search(query)] == [
        _place(one) for one in _scanned(store, query)
    ]
    seen: list[tuple[str, int]] = []
    page = store.search("needle", order=order, limit=37)
    while page:
        seen += [(hit.session, hit.seq) for hit in page]
        page = store.search("needle", order=order, limit=37, after=page.next) if page.next else hansard.Hits()
    assert len(seen) == len(set(seen)) == 300


@rule
def test_only_the_newest_are_ranked_and_all_are_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "RANKED", 10)
    store = world.store(clock=lambda: NOON)
    for n in range(30):
        store.append("s", user("needle " * (1 + n % 3)), create=True, time=NOON - timedelta(days=n))
    assert {hit.seq for hit in store.search("needle", limit=None)} == set(range(1, 11))
    assert len(store.search("needle", limit=None, order="newest")) == 30


@rule
@pytest.mark.parametrize("seed", range(4))
def test_no_query_of_thousands_is_an_error(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    with hansard.open(tmp_path) as store:
        store.append("s", user(" ".join(PIECES)), create=True)
        for _ in range(2500):
            pieces = [
                dice.choice(PIECES)
                if dice.random() < 0.7
                else chr(dice.choice([dice.randrange(0x250), dice.randrange(0x110000)]))
                for _ in range(dice.randint(0, 8))
            ]
            query = dice.choice(["", " "]).join(pieces)
            store.search(query, tools=dice.random() < 0.5, order=dice.choice(search.ORDERS), limit=3)


# -- what happens to it


@rule
def test_an_index_that_was_deleted_comes_back(world: World) -> None:
    _fill(world.store())
    assert _count(world.store()) == 15
    for name in ("search.db", "search.db-wal", "search.db-shm"):
        (Path(world.place) / name).unlink(missing_ok=True)
    assert _count(world.store()) == 15
    world.reopened()
    _index(world).unlink()
    assert _count(world.reopened()) == 15
    assert _index(world).exists()


@rule
@pytest.mark.parametrize("made", ["nothing", "garbage", "zeros", "half", "flipped", "other", "older"])
def test_an_index_that_is_broken_is_made_anew(world: World, made: str) -> None:
    _fill(world.store(), 5, 60)
    assert _count(world.store()) == 300
    world.close()
    path = _index(world)
    raw = path.read_bytes()
    match made:
        case "nothing":
            path.write_bytes(b"")
        case "garbage":
            path.write_bytes(random.Random(1).randbytes(len(raw)))
        case "zeros":
            path.write_bytes(bytes(len(raw)))
        case "half":
            path.write_bytes(raw[: len(raw) // 2])
        case "flipped":
            dice = random.Random(2)
            bad = bytearray(raw)
            for _ in range(len(raw) // 100):
                bad[dice.randrange(100, len(raw))] ^= 1 << dice.randrange(8)
            path.write_bytes(bad)
        case "other":
            path.unlink()
            db = sqlite3.connect(path)
            db.execute("CREATE TABLE words (x)")
            db.execute(f"PRAGMA user_version = {1}")
            db.commit()
            db.close()
        case "older":
            db = sqlite3.connect(path)
            db.execute("PRAGMA user_version = 0")
            db.close()
    with World(Files, world.place) as again:
        assert _count(again.store()) == 300
        assert _count(again.store(), "number2x7") == 1


@rule
def test_a_broken_index_that_another_has_open_is_left_to_it(world: World) -> None:
    _fill(world.store())
    assert _count(world.store()) == 15
    with world.beside(_hold) as process:
        process.hear()
        world.reopened()
        _index(world).write_bytes(b"garbage" * 1000)
        assert _count(world.store()) == 15
        world.store().append("s0", user("another needle"))
        assert _count(world.store()) == 16
        process.tell()
        assert process.result() == 16


def _hold(store: hansard.Store) -> int:
    store.search("needle")
    say()
    hear()
    return _count(store)


@rule
def test_an_index_of_another_catalog_is_compared(world: World) -> None:
    _fill(world.store())
    assert _count(world.store()) == 15
    world.reopened()
    for path in Path(world.place).glob("catalog.*"):
        path.unlink()
    store = world.store()
    store.append("s1", user("another needle"))
    assert _count(store) == 16


@rule
def test_an_older_copy_of_an_index_is_brought_up_to_date(world: World) -> None:
    _fill(world.store(), 2)
    assert _count(world.store()) == 10
    world.reopened()
    raw = _index(world).read_bytes()
    store = world.store()
    _fill_more(store)
    store.delete("s1")
    assert _count(store) == 6
    world.close()
    _index(world).write_bytes(raw)
    with World(Files, world.place) as again:
        assert _count(again.store()) == 6


def _fill_more(store: hansard.Store) -> None:
    store.append("s0", user("another needle"))


@rule
def test_a_log_that_was_replaced_is_indexed_anew(world: World) -> None:
    store = world.store()
    for n in range(5):
        store.append("s0", user(f"needle {n}"), create=True)
    assert _count(store) == 5
    world.close()
    (log,) = (Path(world.place) / "sessions").iterdir()
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:3]))  # somebody brings an older copy back
    with World(Files, world.place) as again:
        assert _count(again.store()) == 2
        again.store().append("s0", user("a new needle"))
        assert _count(again.store()) == 3


@rule
def test_a_log_that_is_damaged_in_the_middle_is_found_but_for_what_is_lost(world: World) -> None:
    store = world.store()
    with store.create("s") as session:
        for n in range(9):
            session.append(user(f"needle {n}"))
    world.close()
    (log,) = (Path(world.place) / "sessions").iterdir()
    lines = log.read_bytes().splitlines(keepends=True)
    lines[4] = b"\xff garbage\n"
    log.write_bytes(b"".join(lines))
    with World(Files, world.place) as again:
        store = again.store()
        assert [hit.seq for hit in store.search("needle", order="newest")] == [9, 8, 7, 6, 5, 3, 2, 1]
        store.append("s", user("needle 10"))
        assert _count(store) == 9
        assert store.search("needle", limit=1)[0].session == "s"


@rule
def test_a_last_line_without_its_newline_is_found(world: World) -> None:
    store = world.store()
    _fill(store, 1)
    world.close()
    (log,) = (Path(world.place) / "sessions").iterdir()
    log.write_bytes(log.read_bytes()[:-1])
    with World(Files, world.place) as again:
        assert _count(again.store()) == 5
        again.store().append("s0", user("another needle"))
        assert _count(again.store()) == 6


@rule
def test_what_says_another_thing_than_its_log_is_looked_at_again(world: World) -> None:
    store = world.store()
    _fill(store, 2)
    assert _count(store) == 10
    world.close()
    db = sqlite3.connect(_index(world))
    db.execute("UPDATE entries SET seq = seq + 1, start = start + 7 WHERE n = 1")
    db.commit()
    db.close()
    with World(Files, world.place) as again:
        assert _count(again.store()) == 10


@rule
def test_no_word_of_what_is_gone_stays_in_the_index(world: World) -> None:
    store = world.store()
    _fill(store, 2)
    store.append("secret", user("the password is xyzzyplugh"), create=True)
    assert _count(store, "xyzzyplugh") == 1
    store.delete("secret")
    assert _count(store, "xyzzyplugh") == 0
    assert _count(store) == 10
    world.reopened()
    assert _count(world.store()) == 10
    world.close()
    assert b"xyzzyplugh" not in _index(world).read_bytes()


@rule
def test_deleting_many_costs_one_look(world: World) -> None:
    store = world.store()
    _fill(store, 40, 1)
    assert _count(store) == 40
    for n in range(39):
        store.delete(f"s{n}")
    assert [hit.session for hit in store.search("needle", limit=3)] == ["s39"]


@rule
@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_searched(world: World) -> None:
    _fill(world.store())
    assert _count(world.store()) == 15
    world.close()
    root = Path(world.place)
    for place in (root, root / "sessions", *root.glob("search.*"), *root.glob("catalog.*")):
        place.chmod(0o500 if place.is_dir() else 0o400)
    try:
        with hansard.open(root, readonly=True) as store:
            assert _count(store) == 15
            assert _count(store, "number1x2") == 1
    finally:
        for place in (root, root / "sessions", *root.glob("search.*"), *root.glob("catalog.*")):
            place.chmod(0o700 if place.is_dir() else 0o600)


@rule
def test_a_store_of_which_the_index_was_never_written_is_searched_from_one_of_its_own(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fill(world.store())
    assert _count(world.store()) == 15
    world.reopened()

    def refused(*_: Any, **__: Any) -> int:
        raise PermissionError(13, "Permission denied")

    store = world.store()
    monkeypatch.setattr(world.engine.searcher(), "_open_file", refused)  # type: ignore[attr-defined]
    assert _count(store) == 15
    store.append("s0", user("another needle"))
    assert _count(store) == 16


# -- while it is made


@rule
def test_an_index_that_was_begun_by_a_process_that_died_is_finished(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fill(world.store(), 4, 50)
    with world.beside(_die_in_the_middle) as process:
        process.hear()
        process.kill()
    assert _count(world.store()) == 200


def _die_in_the_middle(store: hansard.Store) -> None:
    from hansard.engines.index import Index

    searching.STEP = searching.PIECE = 4096
    add, times = Index.add, []

    def stop(self: Index, *arguments: Any) -> None:
        add(self, *arguments)
        times.append(1)
        if len(times) == 5:
            say()
            hear()

    Index.add = stop  # type: ignore[method-assign]
    store.search("needle")


@rule
def test_a_long_log_is_indexed_a_part_at_a_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "STEP", 3000)
    monkeypatch.setattr(searching, "PIECE", 700)
    store = world.store()
    _fill(store, 3, 40)
    store.append("s1", user("needle " * 2000))
    store.append("s1", user("the last needle"))
    told: list[tuple[int, int]] = []
    found = store.search("needle", limit=None, order="newest", told=lambda *far: told.append(far))
    assert len(found) == 122
    assert told
    assert all(0 < done <= total for done, total in told)
    assert {hit.seq for hit in found if hit.session == "s1"} == set(range(1, 43))


@rule
def test_threads_and_processes_that_search_at_once_find_everything(world: World) -> None:
    _fill(world.store(), 6, 40)
    store = world.store()
    found: list[int] = []
    with world.beside(_count_elsewhere) as one, world.beside(_count_elsewhere) as other:
        threads = [threading.Thread(target=lambda: found.append(_count(store))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [240] * 4
        assert one.result() == other.result() == 240
    assert not store.doctor().findings


def _count_elsewhere(store: hansard.Store) -> int:
    return _count(store)


@rule
def test_a_session_that_goes_while_it_is_indexed_is_passed_over(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = world.store()
    _fill(store, 3, 5)
    real = searching.Searcher._parts

    def parts(self: searching.Searcher, row: Any, head: hansard.Head, known: Any) -> Any:
        if head.id == "s1":
            Path(world.place, "sessions", "s1.jsonl").unlink(missing_ok=True)
        yield from real(self, row, head, known)

    monkeypatch.setattr(searching.Searcher, "_parts", parts)
    assert _count(store) == 10


@rule
def test_a_search_after_a_fork_is_the_parents_alone(world: World) -> None:
    store = world.store()
    _fill(store)
    assert _count(store) == 15
    child = os.fork()
    if child == 0:
        try:
            store.search("needle")
        except hansard.Closed:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    store.append("s0", user("another needle"))
    assert _count(store) == 16


@rule
def test_the_index_is_private(world: World) -> None:
    _fill(world.store())
    world.store().search("needle")
    for path in Path(world.place).glob("search.*"):
        assert path.stat().st_mode & 0o077 == 0, path


@rule
def test_the_doctor_checks_the_index(world: World) -> None:
    store = world.store()
    _fill(store, 3, 50)
    assert _count(store) == 150
    assert not store.doctor().findings
    world.close()
    db = sqlite3.connect(_index(world))
    db.execute("DELETE FROM entries WHERE seq = 7")
    db.commit()
    db.close()
    with World(Files, world.place) as again:
        store = again.store()
        assert [(one.kind, one.repaired) for one in store.doctor().findings] == [("index", False)]
        assert [(one.kind, one.repaired) for one in store.doctor(repair=True).findings] == [("index", True)]
        assert not store.doctor().findings
        assert _count(store) == 150


def test_a_search_by_somebody_else_says_who_speaks(world: World) -> None:
    store = world.store()
    store.append("s", user("a needle"), create=True)
    store.append("s", assistant("a needle"))
    assert {hit.role for hit in store.search("needle")} == {"user", "assistant"}
