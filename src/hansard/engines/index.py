"""The full-text index: which words stand in which record, in an SQLite database that can always be made anew.

It has the words and their places, not the texts. A log is known by how far it was indexed, as in the catalog;
the number of a record's entry grows with the time at which it was said, so that the newest are found first.
What words are, what matches and how it ranks is settled in `hansard.views.search`; what is to be indexed, by
the engine that owns the logs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

from hansard.views.search import ROLES, WEIGHTS, Item, Query, Terms, microseconds

SCHEMA = 1

_TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE logs (
    n INTEGER PRIMARY KEY AUTOINCREMENT,    -- never given twice: entries of what is gone are left behind
    id TEXT NOT NULL UNIQUE,
    uid TEXT NOT NULL,
    length INTEGER NOT NULL,                -- the bytes of the log that are indexed
    state INTEGER NOT NULL,                 -- the checksum's state after them
    seq INTEGER NOT NULL,                   -- the last record in them
    entries INTEGER NOT NULL,
    agent TEXT NOT NULL,
    workspace TEXT NOT NULL,
    title TEXT NOT NULL                     -- folded
);
CREATE TABLE entries (
    entry INTEGER PRIMARY KEY,              -- no less than the second in which it was said
    n INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,                    -- in microseconds
    start INTEGER NOT NULL,                 -- where in the log its line stands, and how long it is
    size INTEGER NOT NULL,
    role INTEGER NOT NULL
);
CREATE VIRTUAL TABLE words USING fts5 (prose, input, output, content = '', tokenize = 'ascii');
INSERT INTO words (words, rank) VALUES ('hashsize', 16777216);
INSERT INTO words (words, rank) VALUES ('automerge', 8);
"""


class Known(NamedTuple):
    """How far a log is indexed."""

    n: int
    uid: str
    length: int
    state: int
    seq: int


class Entry(NamedTuple):
    """A record on its way into the index, its texts folded."""

    at: int
    seq: int
    start: int
    size: int
    role: int
    prose: str
    input: str
    output: str


class Part(NamedTuple):
    """What a log says from where it was indexed on (`known`; None: from its beginning) to a place in it."""

    id: str
    known: Known | None
    uid: str
    length: int
    state: int
    seq: int
    agent: str
    workspace: str
    title: str
    entries: Sequence[Entry]


class Match(NamedTuple):
    """An entry that matches; the better its words, the less is `rank`."""

    number: int
    rank: float
    at: int
    seq: int
    start: int
    size: int
    n: int
    session: str
    uid: str
    title: str


Row = tuple[Any, ...]
"""What will be a `Match`, if it is one of those that are wanted: there may be thousands."""


class Index:
    """One connection, for one thread at a time. Any error of SQLite's is left to the caller."""

    def __init__(self, path: str, *, like: str | None = None) -> None:
        """`like` names an index that cannot be written, to begin with a copy of it."""
        self.path = path
        self._db = sqlite3.connect(path, timeout=5, isolation_level=None, check_same_thread=False)
        try:
            if like is not None:
                self._copy(like)
            self._db.execute("PRAGMA auto_vacuum = INCREMENTAL")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            if self._schema() != SCHEMA:
                with self._changing():
                    if self._schema() != SCHEMA:  # else somebody else came first
                        self._begin()
        except BaseException:
            self._db.close()
            raise

    def _schema(self) -> int:
        return int(self._db.execute("PRAGMA user_version").fetchone()[0])

    def _begin(self) -> None:
        for table in ("words", "entries", "logs", "facts"):
            self._db.execute(f"DROP TABLE IF EXISTS {table}")
        for statement in _TABLES.split(";\n"):
            self._db.execute(statement)
        self._db.execute(f"PRAGMA user_version = {SCHEMA}")

    def _copy(self, path: str) -> None:
        from urllib.parse import quote

        try:
            with closing(sqlite3.connect(f"file:{quote(path)}?mode=ro&immutable=1", uri=True)) as other:
                other.backup(self._db)
        except sqlite3.Error:  # it only would have saved time
            self._db.close()
            self._db = sqlite3.connect("", isolation_level=None, check_same_thread=False)

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    # -- keeping it

    def position(self, catalog: str) -> int:
        """Up to where in the changes of a catalog all is indexed."""
        with self._moment():
            if self._fact("catalog") != catalog:
                return 0
            return int(self._fact("position") or 0)

    def _fact(self, name: str) -> str | None:
        found = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return None if found is None else found[0]

    def _state_fact(self, name: str, value: str | int) -> None:
        self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, str(value)))

    def known(self, id: str) -> Known | None:
        """How far a log is indexed; None where nothing of it is."""
        found = self._db.execute("SELECT n, uid, length, state, seq FROM logs WHERE id = ?", (id,)).fetchone()
        return None if found is None else Known(*_sound(found, _KNOWN))

    def add(self, parts: Sequence[Part], catalog: str, position: int) -> None:
        """Takes in what logs say, and that the changes of a catalog are indexed up to there. A log of which
        somebody else has taken in more meanwhile stays as it is."""
        with self._changing():
            new: list[tuple[int, Entry]] = []
            for part in parts:
                known = self.known(part.id)
                if part.known is not None and part.known != known:
                    continue
                if known is not None and part.known is None:
                    self._drop(known.n)
                    known = None
                n = self._put(part, known)
                new += ((n, entry) for entry in part.entries)
            self._put_entries(new)
            if self._fact("catalog") != catalog:
                self._state_fact("catalog", catalog)
                self._state_fact("position", position)
            elif position > int(self._fact("position") or 0):
                self._state_fact("position", position)

    def _put(self, part: Part, known: Known | None) -> int:
        told = (part.uid, part.length, part.state, part.seq, part.agent, part.workspace, part.title)
        if known is None:
            done = self._db.execute(
                "INSERT INTO logs (uid, length, state, seq, agent, workspace, title, entries, id) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*told, len(part.entries), part.id),
            )
            return int(done.lastrowid or 0)
        self._db.execute(
            "UPDATE logs SET uid = ?, length = ?, state = ?, seq = ?, agent = ?, workspace = ?, title = ?, "
            "entries = entries + ? WHERE n = ?",
            (*told, len(part.entries), known.n),
        )
        return known.n

    def _put_entries(self, new: list[tuple[int, Entry]]) -> None:
        new.sort(key=lambda one: one[1].at)  # FTS5 takes numbers in order many at a time
        last = -1
        top = self._db.execute("SELECT max(entry) FROM entries").fetchone()[0] or 0
        rows = []
        words = []
        for n, one in new:
            last = max(one.at // 1_000_000, last + 1, 0)
            last = last if last > top else self._free(last)
            rows.append((last, n, one.seq, one.at, one.start, one.size, one.role))
            words.append((last, one.prose, one.input, one.output))
        self._db.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        self._db.executemany("INSERT INTO words (rowid, prose, input, output) VALUES (?, ?, ?, ?)", words)

    def _free(self, number: int) -> int:
        """A number that no entry has, not far behind this one."""
        step = 1
        while self._db.execute("SELECT 1 FROM entries WHERE entry = ?", (number,)).fetchone():
            number += step
            step *= 2
        return number

    def drop(self, ids: Iterable[str]) -> None:
        """Nothing of these logs is found any more."""
        with self._changing():
            for id in ids:
                known = self.known(id)
                if known is not None:
                    self._drop(known.n)

    def _drop(self, n: int) -> None:
        """Its words stay behind, as those of nobody."""
        gone = self._db.execute("SELECT entries FROM logs WHERE n = ?", (n,)).fetchone()[0]
        self._db.execute("DELETE FROM logs WHERE n = ?", (n,))
        self._state_fact("left", int(self._fact("left") or 0) + gone)

    def ids(self) -> list[str]:
        """The logs of which anything is indexed."""
        return [id for (id,) in self._db.execute("SELECT id FROM logs")]

    def left(self) -> int:
        """How many entries nobody can find any more."""
        return int(self._fact("left") or 0)

    def size(self) -> tuple[int, int]:
        """How many entries somebody can find, and of how many bytes of logs."""
        found = self._db.execute("SELECT total(entries), total(length) FROM logs").fetchone()
        return int(found[0]), int(found[1])

    def empty(self) -> None:
        """Nothing is indexed."""
        with self._changing():
            self._begin()
        self._db.executescript("PRAGMA incremental_vacuum")

    def tidy(self) -> bool:
        """Gives some of the room back in which nothing stands; whether there is more of it. What was written
        apart FTS5 joins by itself, eight pieces at a time."""
        free, pages = (
            self._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_count")
        )
        if free > 1000 and free > pages // 20:
            self._db.executescript("PRAGMA incremental_vacuum(2000)")
            return True
        return False

    def check(self) -> str:
        """What is wrong with it; "" where nothing is."""
        for (told,) in self._db.execute("PRAGMA quick_check(1)"):
            if told != "ok":
                return str(told)
        self._db.execute("INSERT INTO words (words) VALUES ('integrity-check')")
        entries, words = (
            self._db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("entries", "words_docsize")
        )
        return "" if entries == words else f"{entries} entries and {words} that have words"

    # -- asking it

    @contextmanager
    def _moment(self) -> Iterator[None]:
        """What is read within is of one moment."""
        self._db.execute("BEGIN")
        try:
            yield
        finally:
            self._db.execute("ROLLBACK")

    def newest(self, query: Query, limit: int | None, place: tuple[Any, ...] | None = None) -> list[Row]:
        """The newest entries that match, behind a place in that order. Not in order where these are all."""
        where, values = _narrowed(query)
        if place is not None:
            where, values = [*where, "entry.at <= ?"], [*values, -place[0]]
        weights = ", ".join(map(str, WEIGHTS))
        sql = (
            f"SELECT words.rowid, bm25(words, {weights}), entry.at, entry.seq, entry.start, entry.size, "
            "entry.n, log.id, log.uid, log.title FROM words "
            "CROSS JOIN entries AS entry ON entry.entry = words.rowid "
            "CROSS JOIN logs AS log ON log.n = entry.n "
            f"WHERE words MATCH ? {''.join(f'AND {one} ' for one in where)}ORDER BY words.rowid DESC"
        )
        found: list[Row] = []
        with closing(self._db.execute(sql, (expression(query.terms, query.tools), *values))) as rows:
            step = 1 << 62 if limit is None else limit + 1
            while some := rows.fetchmany(min(step, 10_000)):
                found += some if place is None else [row for row in some if _newness(row) > place]
                # what comes from here on was said in this second at the latest
                if limit is not None and len(found) > limit:
                    found.sort(key=_newness)
                    if found[limit - 1][2] // 1_000_000 > some[-1][0]:
                        break
                step *= 2
        return found if limit is None or len(found) <= limit else found[:limit]


_KNOWN = [int, str, int, int, int]
_MATCH = [int, float, int, int, int, int, int, str, str, str]


def _newness(row: Row) -> tuple[int, str, int]:
    return -row[2], row[7], -row[3]


def matched(row: Row) -> Match:
    """One that is wanted, if it is as it was written."""
    return Match(*_sound(row, _MATCH))


def _sound(found: Sequence[Any], types: list[type]) -> Sequence[Any]:
    """What was read of a row, if it is of the types that were written."""
    if list(map(type, found)) != types:
        raise sqlite3.DatabaseError("a row is malformed")
    return found


def expression(terms: Terms, tools: bool) -> str:
    """What is wanted, as FTS5 says it. Words have nothing in them that means anything to it."""
    of = "" if tools else "prose : "
    wanted = " AND ".join(of + _phrase(item) for item in terms.wanted)
    unwanted = " OR ".join(of + _phrase(item) for item in terms.excluded)
    return f"({wanted}) NOT ({unwanted})" if unwanted else wanted


def _phrase(item: Item) -> str:
    return f'"{" ".join(item.words)}"' + (" *" if item.prefix else "")


def _narrowed(query: Query) -> tuple[list[str], list[Any]]:
    where: list[str] = []
    values: list[Any] = []
    for column, value in (
        ("log.id = ?", query.session),
        ("log.agent = ?", query.agent),
        ("log.workspace = ?", query.workspace),
        ("entry.role = ?", None if query.role is None else ROLES.get(query.role, -1)),
        ("entry.at >= ?", None if query.since is None else microseconds(query.since)),
        ("entry.at < ?", None if query.until is None else microseconds(query.until)),
    ):
        if value is not None:
            where.append(column)
            values.append(value)
    if query.since is not None:
        where.append("words.rowid >= ?")
        values.append(max(0, microseconds(query.since) // 1_000_000))
    return where, values
