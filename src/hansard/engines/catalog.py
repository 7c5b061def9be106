"""The catalog: what lists need to know of all sessions, in an SQLite database that can always be made anew.

A row says what part of a log it reflects; it counts only while the log agrees. This module keeps and
finds rows. Whether one is right, and what is folded into it, is decided by the engine that owns the logs.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple
from zlib import crc32

from hansard.records import Damage, decode, encode
from hansard.views.head import Head, Query, below, dump, load, matches_tags, microseconds

SCHEMA = 2

_COVERED = (
    "id uid length state damage head rank born agent model workspace status below parent "
    "pinned archived input"
).split()
"""What the checksum of a row covers, in this order."""

_TABLES = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sessions (
    n INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    uid TEXT NOT NULL DEFAULT '',
    length INTEGER NOT NULL DEFAULT 0,      -- the bytes of the log that the row reflects
    state INTEGER NOT NULL DEFAULT 0,       -- the checksum's state after them
    open INTEGER NOT NULL DEFAULT 0,        -- 1: the log may have grown since
    touched REAL NOT NULL DEFAULT 0,
    damage TEXT NOT NULL DEFAULT '[]',
    head TEXT,
    rank INTEGER NOT NULL DEFAULT 0,        -- newest activity first
    born INTEGER NOT NULL DEFAULT 0,        -- newest first
    agent TEXT NOT NULL DEFAULT '',
    model TEXT NOT NULL DEFAULT '',
    workspace TEXT NOT NULL DEFAULT '',
    status TEXT NOT NULL DEFAULT '',
    below TEXT NOT NULL DEFAULT '',         -- the parent of a child, nothing for a fork
    parent TEXT NOT NULL DEFAULT '',        -- the parent of both
    pinned INTEGER NOT NULL DEFAULT 0,
    archived INTEGER NOT NULL DEFAULT 0,
    input INTEGER NOT NULL DEFAULT 0,
    sum INTEGER NOT NULL DEFAULT 0          -- CRC-32 of the rest: SQLite's pages have none
);
CREATE INDEX IF NOT EXISTS by_activity ON sessions (archived, below, input, rank, id);
CREATE INDEX IF NOT EXISTS by_agent ON sessions (archived, below, input, agent, rank, id);
CREATE INDEX IF NOT EXISTS by_workspace ON sessions (archived, below, input, workspace, rank, id);
CREATE INDEX IF NOT EXISTS by_birth ON sessions (archived, below, input, born, id);
CREATE INDEX IF NOT EXISTS by_parent ON sessions (parent, rank, id) WHERE parent <> '';
CREATE INDEX IF NOT EXISTS by_rank ON sessions (rank, id);
CREATE INDEX IF NOT EXISTS born ON sessions (born);
CREATE INDEX IF NOT EXISTS by_open ON sessions (open) WHERE open = 1;
CREATE TABLE IF NOT EXISTS ids (
    n INTEGER NOT NULL, id TEXT NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (n, id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS marks (
    n INTEGER NOT NULL, seq INTEGER NOT NULL, offset INTEGER NOT NULL, PRIMARY KEY (n, seq)
) WITHOUT ROWID;
"""


class Row(NamedTuple):
    """What the catalog knows of one log."""

    n: int
    uid: str
    length: int
    state: int
    open: bool
    damage: list[Damage]
    head: Head | None


class Catalog:
    """One connection, shared by the threads of a process. Any error of SQLite's is left to the caller."""

    def __init__(self, path: str, *, like: str | None = None) -> None:
        """`like` names a catalog that cannot be written and is copied, so that only what changed is read."""
        self.path = path
        self._mutex = threading.RLock()
        self._db = sqlite3.connect(path, timeout=5, isolation_level=None, check_same_thread=False)
        try:
            if like is not None:
                self._copy(like)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute("PRAGMA temp_store = MEMORY")
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version != SCHEMA:
                with self.changing():
                    for table in ("sessions", "ids", "marks", "facts"):
                        self._db.execute(f"DROP TABLE IF EXISTS {table}")
                    for statement in _TABLES.split(";\n"):
                        self._db.execute(statement)
                    self._db.execute(f"PRAGMA user_version = {SCHEMA}")
        except BaseException:
            self._db.close()
            raise

    def _copy(self, path: str) -> None:
        from urllib.parse import quote

        try:
            other = sqlite3.connect(f"file:{quote(path)}?mode=ro&immutable=1", uri=True)
        except sqlite3.Error:
            return
        try:
            other.backup(self._db)
        except sqlite3.Error:  # it only would have saved time
            self._db.close()
            self._db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        finally:
            other.close()

    def close(self) -> None:
        with self._mutex:
            self._db.close()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """One transaction: all of it or nothing."""
        with self._mutex:
            if self._db.in_transaction:  # a signal handler, within a change of its own thread
                yield
                return
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    # -- facts about the catalog itself

    def fact(self, name: str) -> str | None:
        with self._mutex:
            found = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return None if found is None else found[0]

    def state_fact(self, name: str, value: str) -> None:
        with self._mutex:
            self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    # -- rows

    def row(self, id: str) -> Row | None:
        with self._mutex:
            found = self._db.execute(
                f"SELECT n, open, sum, {', '.join(_COVERED)} FROM sessions WHERE id = ?", (id,)
            ).fetchone()
        if found is None:
            return None
        n, open_, total, *said = found
        _, uid, length, state, damage, head, *_ = said
        if head is None:
            return Row(n, uid, length, state, bool(open_), [], None)
        _verify(total, said)
        wrong = [] if damage == "[]" else [Damage(**fields) for fields in decode(damage)]
        return Row(n, uid, length, state, bool(open_), wrong, load(head))

    def is_open(self, id: str) -> bool:
        with self._mutex:
            found = self._db.execute("SELECT open FROM sessions WHERE id = ?", (id,)).fetchone()
        return bool(found and found[0])

    def mark_open(self, id: str) -> float:
        """From here on the log may be longer than the row says. Gives the moment that the row has for it."""
        touched = time.time()
        with self._mutex:
            self._db.execute(
                "INSERT INTO sessions (id, open, touched) VALUES (?, 1, ?) "
                "ON CONFLICT (id) DO UPDATE SET open = 1, touched = excluded.touched",
                (id, touched),
            )
        return touched

    def mark_closed(self, id: str, length: int) -> None:
        """The row is exact: the log was synced and has this length."""
        with self._mutex:
            self._db.execute("UPDATE sessions SET open = 0 WHERE id = ? AND length = ?", (id, length))

    def save(
        self,
        head: Head,
        *,
        expect: tuple[int, int] | None,
        length: int,
        state: int,
        damage: Sequence[Damage],
        ids: Iterable[tuple[str, int]],
        marks: Iterable[tuple[int, int]],
        anew: bool,
        open: bool | None,
    ) -> int | None:
        """What a log says up to `length`, if the row still says what is expected (length and state; None: it
        says nothing); else None. With `anew` nothing that was known of the log before counts."""
        with self.changing():
            found = self._db.execute(
                "SELECT n, uid, length, state, head IS NOT NULL FROM sessions WHERE id = ?", (head.id,)
            ).fetchone()
            if (found[2:4] if found is not None and found[4] else None) != expect:
                return None
            columns = {
                "uid": head.uid,
                "length": length,
                "state": state,
                "open": int(found is None if open is None else open),
                "touched": time.time(),
                "damage": encode(damage).decode(),
                "head": dump(head).decode(),
                "rank": -microseconds(head.updated_at),
                "born": -microseconds(head.created_at),
                "agent": head.agent,
                "model": head.model,
                "workspace": head.workspace,
                "status": head.status,
                "below": below(head),
                "parent": head.parent or "",
                "pinned": int(head.pinned),
                "archived": int(head.archived),
                "input": int(head.has_user_input),
            }
            columns["sum"] = _sum([head.id, *(columns[name] for name in _COVERED[1:])])
            if found is None:
                names = ", ".join(columns)
                places = ", ".join("?" * len(columns))
                n = self._db.execute(
                    f"INSERT INTO sessions (id, {names}) VALUES (?, {places})", (head.id, *columns.values())
                ).lastrowid
            else:
                n = found[0]
                setting = ", ".join(
                    f"{name} = max(open, ?)" if name == "open" else f"{name} = ?" for name in columns
                )
                self._db.execute(f"UPDATE sessions SET {setting} WHERE n = ?", (*columns.values(), n))
                if anew or found[1] != head.uid:
                    self._db.execute("DELETE FROM ids WHERE n = ?", (n,))
                    self._db.execute("DELETE FROM marks WHERE n = ?", (n,))
            self._db.executemany(
                "INSERT OR IGNORE INTO ids VALUES (?, ?, ?)", ((n, id, seq) for id, seq in ids)
            )
            self._db.executemany(
                "INSERT OR IGNORE INTO marks VALUES (?, ?, ?)", ((n, seq, offset) for seq, offset in marks)
            )
            assert n is not None
            return int(n)

    def drop(self, id: str, *, touched: float) -> None:
        """The session is gone, unless its row was touched since."""
        with self.changing():
            found = self._db.execute(
                "SELECT n FROM sessions WHERE id = ? AND touched = ?", (id, touched)
            ).fetchone()
            if found is not None:
                self._db.execute("DELETE FROM ids WHERE n = ?", found)
                self._db.execute("DELETE FROM marks WHERE n = ?", found)
                self._db.execute("DELETE FROM sessions WHERE n = ?", found)

    def hide(self, id: str, *, touched: float) -> None:
        """There is no log just now; no list has it until there is one again."""
        with self._mutex:
            self._db.execute(
                "UPDATE sessions SET head = NULL, open = 1 WHERE id = ? AND touched = ?", (id, touched)
            )

    def open_ids(self) -> list[tuple[str, float]]:
        """The sessions whose rows may be behind, and when each was last touched."""
        with self._mutex:
            return self._db.execute("SELECT id, touched FROM sessions WHERE open = 1").fetchall()

    def known(self) -> dict[str, tuple[int, int, float]]:
        """Of every session the length that its row reflects, the checksum's state there, and when it was
        last touched."""
        with self._mutex:
            rows = self._db.execute("SELECT id, length, state, touched FROM sessions").fetchall()
        return {id: (length, state, touched) for id, length, state, touched in rows}

    # -- places

    def seq_of(self, n: int, id: str) -> int | None:
        """Where the record with this id stands."""
        with self._mutex:
            found = self._db.execute("SELECT seq FROM ids WHERE n = ? AND id = ?", (n, id)).fetchone()
        return None if found is None else found[0]

    def marks(self, n: int, seq: int, limit: int) -> list[tuple[int, int]]:
        """The places (seq, offset) that stand at or before a record, the nearest first."""
        with self._mutex:
            return self._db.execute(
                "SELECT seq, offset FROM marks WHERE n = ? AND seq <= ? ORDER BY seq DESC LIMIT ?",
                (n, seq, limit),
            ).fetchall()

    # -- lists

    def heads(self, query: Query) -> list[Head]:
        """As `views.head.matches` and `rank` have it."""
        return list(self._select(query))

    def count(self, query: Query) -> int:
        where, values, _ = self._where(query)
        if query.labels or query.meta:
            return sum(1 for _ in self._select(query))
        with self._mutex:
            found = self._db.execute(f"SELECT count(*) FROM sessions WHERE {where}", values).fetchone()
        return int(found[0])

    def _where(self, query: Query) -> tuple[str, list[object], str]:
        clauses: list[str] = ["head IS NOT NULL"]
        values: list[object] = []

        def demand(clause: str, *given: object) -> None:
            clauses.append(clause)
            values.extend(given)

        if not query.anywhere:
            demand("archived = ?", int(query.archived))
            if query.parent is None:
                demand("below = ''")
            if not query.empty:
                demand("input = 1")
        if query.parent is not None:
            demand("parent = ? AND parent <> ''", query.parent)
        for field in ("agent", "model", "workspace", "status"):
            wanted = getattr(query, field)
            if wanted is not None:
                demand(f"{field} = ?", wanted)
        if query.pinned is not None:
            demand("pinned = ?", int(query.pinned))
        if query.prefix is not None:
            demand("id >= ? AND substr(id, 1, ?) = ?", query.prefix, len(query.prefix), query.prefix)
        if query.since is not None:
            demand("rank <= ?", -microseconds(query.since))
        if query.until is not None:
            demand("rank > ?", -microseconds(query.until))
        latest = -microseconds(query.now) - 86_400_000_000
        place = "born" if query.order == "created" else "rank"
        with self._mutex:
            ahead = self._db.execute(
                f"SELECT 1 FROM sessions WHERE {place} < ? LIMIT 1", (latest,)
            ).fetchone()
        if ahead is not None:
            born = f"CASE WHEN born < {latest} THEN 0 ELSE born END"
            place = born if place == "born" else f"CASE WHEN rank < {latest} THEN {born} ELSE rank END"
        if query.place is not None:
            demand(f"({place}, id) > (?, ?)", *query.place)
        return " AND ".join(clauses), values, place

    def _select(self, query: Query) -> Iterator[Head]:
        where, values, place = self._where(query)
        picky = bool(query.labels or query.meta)
        limit = "" if picky or query.limit is None else f" LIMIT {query.limit:d}"
        left = query.limit
        if left == 0:
            return
        at: tuple[object, ...] = ()
        columns = ", ".join(_COVERED)
        while True:
            # a bounded part at a time, so that no reader stands in the way of a writer for long
            more = f" AND ({place}, id) > (?, ?)" if at else ""
            step = limit if not picky and query.limit is not None else " LIMIT 500"
            with self._mutex:
                rows = self._db.execute(
                    f"SELECT {place}, sum, {columns} FROM sessions WHERE {where}{more} "
                    f"ORDER BY {place}, id{step}",
                    (*values, *at),
                ).fetchall()
            for found in rows:
                _verify(found[1], found[2:])
                head = load(found[2 + _COVERED.index("head")])
                if not picky or matches_tags(head, query):
                    yield head
                    if left is not None:
                        left -= 1
                        if left == 0:
                            return
            if step == limit or len(rows) < 500:
                return
            at = (rows[-1][0], rows[-1][2])


def _sum(said: Sequence[object]) -> int:
    return crc32(encode(said))


def _verify(total: int, said: Sequence[object]) -> None:
    """Raises what SQLite raises where a row is not what was written."""
    if _sum(said) != total:
        raise Ruined("a row is not what was written")


class Ruined(sqlite3.DatabaseError):
    """The database is one, but what is in it is not what was written."""
