"""Tables of the catalog in which what was lost, altered or moved is noticed by whoever comes by.

SQLite's pages have no checksums: a bit that flips in one can hide a stretch of a table without a sign. So
each entry here has a `link`, a checksum over itself and the key of the entry behind it. Two neighbours that
fit prove that nothing stands between them, so that what is found and what is not found are both certain, at
the cost of one entry more on either side. The first entry of a table is no entry of anybody's.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from zlib import crc32

from hansard.engines import reentered
from hansard.records import encode


class Ruined(sqlite3.DatabaseError):
    """The database is one, but what is in it is not what was written."""


class Chain:
    """A table with a key of several columns, one value and a `link`. Every call is one transaction, or a part
    of one. `beside` are columns of the session that the value is the number of."""

    def __init__(
        self,
        db: sqlite3.Connection,
        table: str,
        key: Sequence[str],
        value: str,
        *,
        origin: tuple[Any, ...],
        beside: Sequence[str] = (),
    ) -> None:
        self._db = db
        self._width = len(key)
        self._origin = origin
        self._busy = False
        keys, places = ", ".join(key), ", ".join("?" * len(key))
        down = ", ".join(f"{name} DESC" for name in key)
        entry = f"SELECT {keys}, {value}, link FROM {table} WHERE ({keys})"
        before = f"SELECT * FROM ({entry} < ({places}) ORDER BY {down} LIMIT 1)"
        behind = f"SELECT * FROM ({entry} >= ({places}) ORDER BY {keys} LIMIT ?)"
        # one statement, so that all of it is of one moment
        self._around = f"{before} UNION ALL {behind}"
        self._within = (
            f"{before} UNION ALL {entry} >= ({places}) AND ({keys}) < ({places}) UNION ALL {behind}"
        )
        columns = ", ".join(f"session.{name}" for name in beside)
        self._beside = (
            f"SELECT entry.*, {columns} FROM ({self._around}) AS entry "
            f"LEFT JOIN sessions AS session ON session.n = entry.{value}"
        )
        self._put = f"INSERT OR REPLACE INTO {table} VALUES ({places}, ?, ?)"
        self._cut = f"DELETE FROM {table} WHERE ({keys}) >= ({places}) AND ({keys}) < ({places})"

    def begin(self) -> None:
        """An empty table gets the entry that stands before all others."""
        self._put_between((*self._origin, 0), (), None)

    def stretch(self, first: tuple[Any, ...], limit: int, *, beside: bool = False) -> list[tuple[Any, ...]]:
        """The entries whose key is `first` or greater, in order, as many as the limit says; fewer only where
        the table ends. Each is its key, its value, its link, and what stands beside it."""
        with self._alone():
            sql = self._beside if beside else self._around
            rows = self._db.execute(sql, (*first, *first, limit + 1)).fetchall()
        self._check(rows, first, ended=len(rows) < limit + 2)
        return rows[1 : limit + 1]

    def add(self, entries: Sequence[tuple[Any, ...]]) -> int:
        """Puts in entries (their key and their value), in order, no key twice. What is there already stays as
        it is. Gives how many were new."""
        k = self._width
        at = new = 0
        while at < len(entries):
            key = entries[at][:k]
            with self._alone():
                rows = self._db.execute(self._around, (*key, *key, 1)).fetchall()
                self._check(rows, key, ended=len(rows) < 2)
                behind = rows[1][:k] if len(rows) > 1 else None
                stop = at
                if behind != key:
                    while stop < len(entries) and (behind is None or entries[stop][:k] < behind):
                        stop += 1
                    self._put_between(rows[0][: k + 1], entries[at:stop], behind)
            new += stop - at
            at = max(stop, at + 1)
        return new

    def cut(self, first: tuple[Any, ...], last: tuple[Any, ...]) -> int:
        """Takes out the entries from `first` on that come before `last`. Gives how many there were."""
        k = self._width
        with self._alone():
            rows = self._db.execute(self._within, (*first, *first, *last, *last, 1)).fetchall()
            ended = not rows or rows[-1][:k] < last
            self._check(rows, first, ended=ended)
            inside = len(rows) - (1 if ended else 2)
            if inside:
                if self._db.execute(self._cut, (*first, *last)).rowcount != inside:
                    raise Ruined("entries are not where they were found")
                self._put_between(rows[0][: k + 1], (), None if ended else rows[-1][:k])
        return inside

    def _put_between(
        self, before: tuple[Any, ...], entries: Sequence[tuple[Any, ...]], behind: tuple[Any, ...] | None
    ) -> None:
        all = [before, *entries]
        nexts = [*(entry[: self._width] for entry in entries), behind]
        linked = [(*entry, _link(entry, next)) for entry, next in zip(all, nexts, strict=True)]
        self._db.executemany(self._put, linked)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keeps a signal handler out that comes in between, and would see or leave what does not fit."""
        if self._busy:
            raise reentered("")
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    def _check(self, rows: list[tuple[Any, ...]], first: tuple[Any, ...], *, ended: bool) -> None:
        """Raises where rows are not neighbours, the first of them before `first` and the others behind it.
        Where the table ended with them, nothing may have come after the last."""
        k = self._width
        rows.sort(key=lambda row: row[:k])
        if not rows or rows[0][:k] >= first or (len(rows) > 1 and rows[1][:k] < first):
            raise Ruined("an entry is not where it belongs")
        nexts = [row[:k] for row in rows[1:]]
        for row, behind in zip(rows, [*nexts, None] if ended else nexts, strict=False):
            if row[k + 1] != _link(row[: k + 1], behind):
                raise Ruined("an entry is not what was written, or the one behind it is gone")


def _link(entry: tuple[Any, ...], behind: tuple[Any, ...] | None) -> int:
    return crc32(encode((entry, behind)))
