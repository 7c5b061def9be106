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
from heapq import merge
from itertools import islice, takewhile
from operator import itemgetter
from typing import Any, NamedTuple
from zlib import crc32

from msgspec.structs import replace

from hansard.engines import reentered
from hansard.engines.chain import Chain
from hansard.engines.chain import Ruined as Ruined
from hansard.ids import new_id
from hansard.records import Damage, decode, encode
from hansard.views.head import Head, Query, below, dump, load, matches, microseconds, rank

SCHEMA = 4

FEW = 1000
"""Sessions that are sorted when they are asked for, where there is no list that has them in order."""

_TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE sessions (
    n INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    open INTEGER NOT NULL,                  -- 1: the log may have grown since
    touched REAL NOT NULL,
    noted INTEGER NOT NULL,                 -- CRC-32 of the four before: SQLite's pages have none
    uid TEXT NOT NULL DEFAULT '',
    length INTEGER NOT NULL DEFAULT 0,      -- the bytes of the log that the row reflects
    state INTEGER NOT NULL DEFAULT 0,       -- the checksum's state after them
    damage TEXT NOT NULL DEFAULT '[]',
    saved INTEGER NOT NULL DEFAULT 0,       -- when the row was last made to reflect more; no two are alike
    head TEXT,
    sum INTEGER NOT NULL DEFAULT 0          -- CRC-32 of n, id, and all from uid on
);
CREATE TABLE places (
    list INTEGER NOT NULL,                  -- which list; see _places
    rank INTEGER NOT NULL,
    id TEXT NOT NULL,
    n INTEGER NOT NULL,
    link INTEGER NOT NULL,                  -- see engines/chain.py
    PRIMARY KEY (list, rank, id)
) WITHOUT ROWID;
CREATE TABLE ids (
    n INTEGER NOT NULL, id TEXT NOT NULL, seq INTEGER NOT NULL, link INTEGER NOT NULL,
    PRIMARY KEY (n, id)
) WITHOUT ROWID;
CREATE TABLE marks (
    n INTEGER NOT NULL, seq INTEGER NOT NULL, offset INTEGER NOT NULL, sum INTEGER NOT NULL,
    PRIMARY KEY (n, seq)
) WITHOUT ROWID;
"""

_COLUMNS = "n id open touched noted uid length state damage saved head sum".split()
_SAVED, _HEAD, _SUM = 9, 10, 11

_ALL, _OPEN = -1, -2
"""The list of all sessions by their ids, and of those whose logs may have grown."""

_CHANGED = 1 << 32
"""The list of all sessions in the order in which their rows were last saved."""

_FIRST = (-(1 << 63), "")  # no place on a list comes before
_MANY = 500  # entries that are read at once at most, so that nobody waits long for who reads a long list
_DAY = 86_400_000_000


class Row(NamedTuple):
    """What the catalog knows of one log."""

    n: int
    uid: str
    length: int
    state: int
    open: bool
    damage: list[Damage]
    head: Head | None
    touched: float
    saved: int


class Catalog:
    """One connection, shared by the threads of a process. Any error of SQLite's is left to the caller."""

    def __init__(self, path: str, *, like: str | None = None) -> None:
        """`like` names a catalog that cannot be written and is copied, so that only what changed is read."""
        self.path = path
        self._mutex = threading.RLock()
        self._reading = False
        self._db = sqlite3.connect(path, timeout=5, isolation_level=None, check_same_thread=False)
        try:
            if like is not None:
                self._copy(like)
            self._waiting: list[tuple[int, int, str, int]] | None = None
            self._given = 0  # the last moment that a row was saved at
            self._places = Chain(
                self._db, "places", ("list", "rank", "id"), "n", origin=(-3, 0, ""), beside=_COLUMNS
            )
            self._ids = Chain(self._db, "ids", ("n", "id"), "seq", origin=(0, ""))
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute("PRAGMA temp_store = MEMORY")
            if self._schema() != SCHEMA:
                with self.changing():
                    if self._schema() != SCHEMA:  # else somebody else came first
                        self._begin()
        except BaseException:
            self._db.close()
            raise

    def _schema(self) -> int:
        return int(self._db.execute("PRAGMA user_version").fetchone()[0])

    def _begin(self) -> None:
        """Makes the tables, in the place of those of another version."""
        for table in ("sessions", "places", "ids", "marks", "facts"):
            self._db.execute(f"DROP TABLE IF EXISTS {table}")
        for statement in _TABLES.split(";\n"):
            self._db.execute(statement)
        self._places.begin()
        self._ids.begin()
        self.state_fact("made", new_id())  # another catalog, another count of what was saved
        self._db.execute(f"PRAGMA user_version = {SCHEMA}")

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
    def at_rest(self) -> Iterator[None]:
        """Nobody is at it meanwhile."""
        with self._mutex:
            yield

    @contextmanager
    def together(self) -> Iterator[None]:
        """One transaction for the rows of several sessions, which are entered into their lists at its end:
        side by side, many of them at once."""
        with self.changing():
            self._waiting = []
            try:
                yield
                self._enter(self._waiting)
            finally:
                self._waiting = None

    @contextmanager
    def changing(self) -> Iterator[None]:
        """One transaction: all of it or nothing."""
        with self._mutex:
            if self._reading:
                raise reentered("")
            if self._db.in_transaction:  # a signal handler, within a change of its own thread
                yield
                return
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException as error:
                self._db.execute("ROLLBACK")
                if isinstance(error, sqlite3.IntegrityError):
                    raise Ruined(str(error)) from error
                raise
            self._db.execute("COMMIT")

    @contextmanager
    def _moment(self) -> Iterator[None]:
        """What is read within is of one moment."""
        with self._mutex:
            if self._db.in_transaction:  # a signal handler again
                yield
                return
            self._db.execute("BEGIN")
            self._reading = True
            try:
                yield
            finally:
                self._reading = False
                self._db.execute("ROLLBACK")

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
                f"SELECT {', '.join(_COLUMNS)} FROM sessions WHERE id = ?", (id,)
            ).fetchone()
        return None if found is None else _row(id, found)

    def is_open(self, id: str) -> bool:
        found = self._noted(id)
        return found is not None and found[1]

    def mark_open(self, id: str) -> float:
        """From here on the log may be longer than the row says. Gives the moment that the row has for it."""
        touched = time.time()
        with self.changing():
            found = self._noted(id)
            n = self._new() if found is None else found[0]
            self._note(n, id, True, touched, new=found is None)
            self._move(n, id, _places(None, found is not None and found[1]), _places(None, True))
        return touched

    def mark_closed(self, id: str, length: int) -> None:
        """The row is exact: the log was synced and has this length."""
        with self.changing():
            row = self.row(id)
            if row is not None and row.open and row.length == length:
                self._note(row.n, id, False, row.touched)
                self._move(row.n, id, _places(None, True), set())

    def _noted(self, id: str) -> tuple[int, bool, float] | None:
        """The number of a session's row, whether it is open, and when it was last touched."""
        with self._mutex:
            found = self._db.execute(
                "SELECT n, id, open, touched, noted FROM sessions WHERE id = ?", (id,)
            ).fetchone()
        return None if found is None else _noted(id, found)

    def _new(self) -> int:
        """A number for a new row."""
        found = self._db.execute("SELECT max(n) FROM sessions").fetchone()
        return (found[0] or 0) + 1

    def _note(self, n: int, id: str, open: bool, touched: float, *, new: bool = False) -> None:
        said = (n, id, int(open), touched)
        if new:
            self._db.execute(
                "INSERT INTO sessions (n, id, open, touched, noted) VALUES (?, ?, ?, ?, ?)",
                (*said, _sum(said)),
            )
        else:
            self._change("open = ?, touched = ?, noted = ?", (*said[2:], _sum(said)), n)

    def _change(self, setting: str, values: Sequence[object], n: int) -> None:
        if self._db.execute(f"UPDATE sessions SET {setting} WHERE n = ?", (*values, n)).rowcount != 1:
            raise Ruined("a row is not where it was found")

    def _move(self, n: int, id: str, before: set[tuple[int, int]], after: set[tuple[int, int]]) -> None:
        """Takes a session from where it stands in lists to where it belongs."""
        if self._waiting and before - after:  # it may be among those that are not entered yet
            waiting, self._waiting = self._waiting, []
            self._enter(waiting)
        for place in before - after:
            if not self._places.cut((*place, id), (*place, _next(id))):
                raise Ruined("a session is not in its list")
        new = [(*place, id, n) for place in after - before]
        if self._waiting is None:
            self._enter(new)
        else:
            self._waiting += new

    def _enter(self, places: list[tuple[int, int, str, int]]) -> None:
        if self._places.add(sorted(places)) < len(places):
            raise Ruined("a session is in a list twice")

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
            row = self.row(head.id)
            known = None if row is None or row.head is None else row
            if (None if known is None else (known.length, known.state)) != expect:
                return None
            n = self._new() if row is None else row.n
            grows = (row is None if open is None else open) or (row is not None and row.open)
            self._note(n, head.id, grows, time.time(), new=row is None)
            saved = self._next_saved()
            said = (head.uid, length, state, encode(damage).decode(), saved, dump(head).decode())
            self._change(
                "uid = ?, length = ?, state = ?, damage = ?, saved = ?, head = ?, sum = ?",
                (*said, _sum((n, head.id, *said))),
                n,
            )
            self._move(n, head.id, _places_of(row), _places(head, grows, saved))
            if row is not None and (anew or row.uid != head.uid):
                self._forget(n)
            self._ids.add(sorted((n, id, seq) for id, seq in dict(ids).items()))
            self._db.executemany(
                "INSERT OR REPLACE INTO marks VALUES (?, ?, ?, ?)",
                [(n, *mark, _sum((n, *mark))) for mark in marks],
            )
            return n

    def _next_saved(self) -> int:
        """The moment, or what comes behind the last one where the clock was set back."""
        last = self._db.execute("SELECT max(rank) FROM places WHERE list = ?", (_CHANGED,)).fetchone()[0]
        self._given = max(time.time_ns() // 1000, (last or 0) + 1, self._given + 1)
        return self._given

    def _forget(self, n: int) -> None:
        """What is in a log, and where, does not count any more."""
        self._ids.cut((n, ""), (n + 1, ""))
        self._db.execute("DELETE FROM marks WHERE n = ?", (n,))

    def drop(self, id: str, *, touched: float) -> None:
        """The session is gone, unless its row was touched since."""
        with self.changing():
            row = self.row(id)
            if row is not None and row.touched == touched:
                self._move(row.n, id, _places_of(row), set())
                self._forget(row.n)
                self._db.execute("DELETE FROM sessions WHERE n = ?", (row.n,))

    def hide(self, id: str, *, touched: float) -> None:
        """There is no log just now; no list has it until there is one again."""
        with self.changing():
            row = self.row(id)
            if row is not None and row.touched == touched:
                self._move(row.n, id, _places_of(row), _places(None, True))
                self._note(row.n, id, True, touched)
                self._change("head = NULL", (), row.n)

    def open_ids(self) -> list[tuple[str, float]]:
        """The sessions whose rows may be behind, and when each was last touched."""
        return [(id, _noted(id, row)[2]) for _, id, row in self._entries(_OPEN)]

    def changed(self, since: int = 0, step: int = 8) -> Iterator[Row]:
        """The rows that were saved after a moment, in that order. `Row.saved` is the moment of each."""
        for _, id, row in self._entries(_CHANGED, (since + 1, ""), step=step):
            yield _row(id, row)

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
            found = self._ids.stretch((n, id), 1)
        return found[0][2] if found and found[0][:2] == (n, id) else None

    def marks(self, n: int, seq: int, limit: int) -> list[tuple[int, int]]:
        """The places (seq, offset) that stand at or before a record, the nearest first. One that is missing
        costs time, no more."""
        with self._mutex:
            found = self._db.execute(
                "SELECT n, seq, offset, sum FROM marks WHERE n = ? AND seq <= ? ORDER BY seq DESC LIMIT ?",
                (n, seq, limit),
            ).fetchall()
        places = [
            mark[1:3] for mark in found if mark[0] == n and mark[1] <= seq and _sum(mark[:3]) == mark[3]
        ]
        if len(places) < len(found) or places != sorted(places, reverse=True):
            raise Ruined("a place is not what was written")
        return places

    # -- lists

    def heads(self, query: Query) -> list[Head]:
        """As `views.head.matches` and `rank` have it."""
        if query.limit is None:  # nobody else is to wait for all of it; what moves meanwhile may come twice
            return list({head.id: head for head in self._found(query)}.values())
        with self._moment():
            return list(islice(self._found(query), query.limit))

    def count(self, query: Query) -> int:
        """How many match, whatever the limit."""
        if query == Query(anywhere=True, empty=True, prefix=query.prefix, limit=query.limit, now=query.now):
            return sum(1 for _ in self._alike(query.prefix or "", heads=False))
        return sum(1 for _ in self._found(replace(query, limit=None, place=None)))

    def _found(self, query: Query) -> Iterator[Head]:
        """The heads that match, in order."""
        if query.prefix is not None and self._few(_ALL, (0, query.prefix), (0, query.prefix + "\U0010ffff")):
            return self._sorted((_head(id, row) for _, id, row in self._alike(query.prefix)), query)
        if query.parent is not None:
            return self._sorted(self._on([_list("parent", query.parent)]), query)
        scopes = _scopes(query)
        choices = [[_list(scope, *told) for scope in scopes] for told in _told(query)]
        created = query.order == "created"
        if created or len(choices) > 1:
            few = next((lists for lists in choices if all(map(self._few, lists))), None)
            if few is not None:
                return self._sorted(self._on(few), query)
        lists = choices[0] if choices and not created else [_list(scope, query.order) for scope in scopes]
        ways = [self._in_order(list, query) for list in lists]
        return (head for *_, head in merge(*ways, key=itemgetter(0, 1)))

    def _sorted(self, heads: Iterable[Head], query: Query) -> Iterator[Head]:
        """The heads that match, in order, where they do not come so."""
        return (head for *_, head in _ordered(heads, query))

    def _in_order(self, list: int, query: Query) -> Iterator[tuple[int, str, Head]]:
        """The heads on a list that match, each behind its place. Those that lie ahead of now stand elsewhere
        than the list has them; there are few."""
        latest = -microseconds(query.now) - _DAY
        begin, end = (latest, ""), None
        if query.place is not None:
            begin = max(begin, (query.place[0], _next(query.place[1])))
        if query.order == "activity":
            end = None if query.since is None else -microseconds(query.since)
            if query.until is not None:
                begin = max(begin, (-microseconds(query.until) + 1, ""))
        ahead = takewhile(lambda entry: entry[0] < latest, self._entries(list, step=1))
        odd = _ordered((_head(id, row) for _, id, row in ahead), query)
        step = _MANY if query.limit is None else min(query.limit, _MANY)
        heads = ((at, _head(id, row)) for at, id, row in self._entries(list, begin, end=end, step=step))
        even = ((at, head.id, head) for at, head in heads if matches(head, query))
        return merge(odd, even, key=itemgetter(0, 1)) if odd else even

    def _on(self, lists: Iterable[int]) -> Iterator[Head]:
        return (_head(id, row) for list in lists for _, id, row in self._entries(list))

    def _alike(self, prefix: str, *, heads: bool = True) -> Iterator[tuple[int, str, Sequence[Any]]]:
        """The sessions whose ids begin so, by their ids."""
        entries = self._entries(_ALL, (0, prefix), heads=heads)
        return takewhile(lambda entry: entry[1].startswith(prefix), entries)

    def _entries(
        self,
        list: int,
        begin: tuple[int, str] = _FIRST,
        *,
        end: int | None = None,
        step: int = 8,
        heads: bool = True,
    ) -> Iterator[tuple[int, str, Sequence[Any]]]:
        """What stands on a list from one place to another: rank, id, and with `heads` the session's row. A
        bounded part at a time; the first of them are small, as most lists are."""
        at = (list, *begin)
        while True:
            with self._mutex:
                found = self._places.stretch(at, step, beside=heads)
            for here, place, id, _, _, *row in found:
                if here != list or (end is not None and place > end):
                    return
                yield place, id, row
            if len(found) < step:
                return
            at = (list, place, _next(id))
            step = min(8 * step, _MANY)

    def _few(self, list: int, begin: tuple[int, str] = _FIRST, end: tuple[int, str] | None = None) -> bool:
        """Whether so few stand on a list that they can be sorted. It only settles which way is taken."""
        with self._mutex:
            found = self._db.execute(
                "SELECT count(*) FROM (SELECT 1 FROM places WHERE (list, rank, id) >= (?, ?, ?) "
                "AND (list, rank, id) < (?, ?, ?) LIMIT ?)",
                (list, *begin, *((list + 1, *_FIRST) if end is None else (list, *end)), FEW + 1),
            ).fetchone()
        return bool(found[0] <= FEW)


# -- which lists there are


def _places_of(row: Row | None) -> set[tuple[int, int]]:
    return set() if row is None else _places(row.head, row.open, row.saved)


def _places(head: Head | None, open: bool, saved: int = 0) -> set[tuple[int, int]]:
    """The lists that a session is on, and where: the one of all, those of its scope (children, or whether it
    is archived and has user input), and with each of these those of its fields; and when it was saved."""
    found = {(_OPEN, 0)} if open else set()
    if head is not None:
        found.add((_CHANGED, saved))
        newest, scope = -microseconds(head.updated_at), _scope(head)
        found |= {(_ALL, 0), (_list(scope, "activity"), newest)}
        found.add((_list(scope, "created"), -microseconds(head.created_at)))
        found |= {(_list(scope, *told), newest) for told in _told(head)}
        if head.parent is not None:
            found.add((_list("parent", head.parent), newest))
    return found


def _told(what: Head | Query) -> list[tuple[str, str]]:
    """What a head says, or a query asks for, that there are lists for; mostly the shortest first."""
    found = [("label", label) for label in what.labels]
    found += [(name, getattr(what, name)) for name in ("workspace", "agent", "model", "status")]
    found += [("pinned", "yes")] if what.pinned else []
    return [told for told in found if told[1]]


def _scope(head: Head) -> str:
    return "part" if below(head) else f"{head.archived:d}{head.has_user_input:d}"


def _scopes(query: Query) -> list[str]:
    """Each session is in one of them."""
    if query.anywhere:
        return ["00", "01", "10", "11", "part"]
    return [f"{query.archived:d}{input:d}" for input in ((0, 1) if query.empty else (1,))]


def _list(*told: str) -> int:
    """The number of a list. Where two have the same, whoever reads one meets what does not match."""
    return crc32(ascii(told).encode())


def _next(id: str) -> str:
    """What comes first behind an id."""
    return id + "\0"


# -- rows


def _row(id: str, found: Sequence[Any]) -> Row:
    n, open, touched = _noted(id, found)
    if found[_HEAD] is None:
        return Row(n, found[5], found[6], found[7], open, [], None, touched, found[_SAVED])
    head = _head(id, found)
    wrong = [] if found[8] == "[]" else [Damage(**fields) for fields in decode(found[8])]
    return Row(n, found[5], found[6], found[7], open, wrong, head, touched, found[_SAVED])


def _head(id: str, found: Sequence[Any]) -> Head:
    if found[1] != id or _sum((*found[:2], *found[5:_SUM])) != found[_SUM]:
        raise Ruined("a row is not what was written")
    return load(found[_HEAD])


def _noted(id: str, found: Sequence[Any]) -> tuple[int, bool, float]:
    """The number of a row, whether it is open, and when it was touched."""
    if found[1] != id or _sum(found[:4]) != found[4]:
        raise Ruined("a row is not what was written")
    return found[0], bool(found[2]), found[3]


def _sum(said: Sequence[Any]) -> int:
    return crc32(encode(said))


def _ordered(heads: Iterable[Head], query: Query) -> list[tuple[int, str, Head]]:
    """The heads that match, each behind its place, in order."""
    found = [(rank(head, query), head.id, head) for head in heads if matches(head, query)]
    found.sort(key=itemgetter(0, 1))
    return found if query.place is None else [entry for entry in found if entry[:2] > query.place]
