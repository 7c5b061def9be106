"""Searching a folder of logs: the index is brought up to date with what the catalog says has changed, asked,
and what it answers is read back from the logs and looked at once more.

An index that is missing, broken or behind costs time and changes no answer. Where it cannot be written, one
of this process's own begins as a copy of it.
"""

from __future__ import annotations

import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from hansard.engines import reentered
from hansard.engines.catalog import Catalog
from hansard.engines.catalog import Row as CatalogRow
from hansard.engines.index import Entry, Index, Known, Match, Part, Row, matched
from hansard.errors import Closed, Damaged, NewerFormat, SessionNotFound, StoreUnavailable
from hansard.records import Record, Scan, parse
from hansard.views import search
from hansard.views.folding import WORDS, fold, indexed
from hansard.views.head import Head
from hansard.views.search import Found, Query

if TYPE_CHECKING:
    from hansard.engines.files import Files

T = TypeVar("T")

OWN = ""
"""What SQLite calls a database in a temporary file of this process's own."""

STEP = 1 << 23
"""Bytes of logs that are indexed in one transaction."""

PIECE = 1 << 18
"""Bytes read at once."""

ROWS = 64
"""Rows of the catalog that are looked at at once."""

PATIENCE = 5.0
"""Seconds without progress after which another process that brings the index up to date is not waited for."""

AGAIN = 30.0
"""Seconds after which an index that could not be used is tried again."""

FEW = 8_000_000
"""Bytes of logs that are indexed anew without much ado, for words of what is gone to be gone."""

_ends = re.compile(rb'"seq":(\d+),"sum":"[0-9a-f]{8}"\}\r?\n').finditer


class Searcher:
    """`search.db` and `search.lock`, which is held shared by all who have the index open; `search.turn` is
    held by who brings it up to date."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._disk = files.disk
        self._turn = threading.RLock()  # for a thread that brings it up to date
        self._mutex = threading.RLock()  # for a step of SQLite's
        self._users: set[int] = set()
        self._index: Index | None = None
        self._inode = 0
        self._lock: int | None = None
        self._left = 0  # as many entries of nobody's are no reason to make the index anew
        self._again = 0.0
        self._closed = False
        self._disk.rest_in_forks(self._rest)

    # -- a search

    def search(self, query: Query, told: Callable[[int, int], None] | None = None) -> list[Found]:
        """What `views.search.scan` would find."""
        if not query.terms.wanted or query.limit == 0:
            return []
        thread = threading.get_ident()
        if thread in self._users or self._files.catalog.busy:  # a signal handler came in between
            raise reentered("")
        self._users.add(thread)
        try:
            for attempt in range(4):
                self._catch_up(told)
                found = self._ask(query, last=attempt == 3)
                if found is not None:
                    return found
            raise AssertionError("the last attempt takes what there is")
        finally:
            self._users.discard(thread)

    def _ask(self, query: Query, *, last: bool) -> list[Found] | None:
        """What the index knows; None where something in it was not so, and it knows better now."""
        scored = self._use(lambda index: _chosen(index, query))
        found: list[Found] = []
        wrong: set[str] = set()
        heads = self._heads({match.session for _, match in scored})
        with ExitStack() as opened:
            fds: dict[str, int | None] = {}
            for score, match in scored:
                head = heads.get(match.session)
                if match.session not in fds:
                    fds[match.session] = self._open_log(match.session, opened)
                record = None
                if head is not None and head.uid == match.uid:
                    record = self._read(match, fds[match.session], query)
                if head is None or record is None:
                    wrong.add(match.session)
                else:
                    found.append(Found(head, record, score))
        if not wrong:
            return found
        gone = wrong - set(heads)
        if gone:  # where one is gone, more may be
            there = self._files.catalog.use(lambda catalog: catalog.known())
            wrong |= set(self._use(lambda index: index.ids())) - set(there)
        self._use(lambda index: index.drop(wrong))
        self._again_from(wrong - gone)
        return found if last else None

    def _again_from(self, sessions: set[str]) -> None:
        """Has logs indexed from their beginnings, of which the index says what they do not."""
        rows = [self._files.catalog.use(lambda catalog, id=id: catalog.row(id)) for id in sessions]  # type: ignore[misc]
        made, position = self._place()
        for _ in self._taken([row for row in rows if row is not None], made, position, again=True):
            pass

    def _heads(self, sessions: set[str]) -> dict[str, Head]:
        def work(catalog: Catalog) -> dict[str, Head]:
            rows = {id: catalog.row(id) for id in sessions}
            return {id: row.head for id, row in rows.items() if row is not None and row.head is not None}

        return self._files.catalog.use(work)

    def _open_log(self, session: str, opened: ExitStack) -> int | None:
        try:
            fd = self._disk.open(self._files._log_path(session))
        except OSError:
            return None
        opened.callback(self._disk.close, fd)
        return fd

    def _read(self, match: Match, fd: int | None, query: Query) -> Record | None:
        """The record that an entry means, if it is there and matches; else None."""
        record = None
        if fd is not None and match.size:
            with suppress(OSError, ValueError, RecursionError):
                record = parse(self._disk.read(fd, match.size, match.start))
        if record is None or record.seq != match.seq:
            try:  # something illegible may stand before it
                span = [(match.seq, match.seq)]
                record = next(self._files.read(match.session, spans=span, uid=match.uid), None)
            except (SessionNotFound, Damaged, NewerFormat):
                return None
        if record is None or record.seq != match.seq:
            return None
        texts, _ = search.read(record)
        given = [fold(text) for text in (texts if query.tools else texts[:1])]
        return record if search.matches(given, query.terms) else None

    # -- bringing the index up to date

    def _catch_up(self, told: Callable[[int, int], None] | None) -> None:
        self._files.settle()
        with self._turn:
            self._sweep()
            waited = None
            seen = self._place()
            while self._behind():
                with self._my_turn() as mine:
                    if mine or (waited is not None and time.monotonic() - waited > PATIENCE):
                        self._advance(told)
                        return
                now = self._place()
                waited = time.monotonic() if waited is None or now != seen else waited
                seen = now
                time.sleep(0.01)

    def _place(self) -> tuple[str, int]:
        """Which catalog there is, and up to where in its changes all is indexed."""
        made = self._files.catalog.use(lambda catalog: catalog.fact("made")) or ""
        return made, self._use(lambda index: index.position(made))

    def _changed(self, position: int, count: int) -> list[CatalogRow]:
        return self._files.catalog.use(
            lambda catalog: list(islice(catalog.changed(position, step=min(count, 8)), count))
        )

    def _behind(self) -> bool:
        return bool(self._changed(self._place()[1], 1))

    @contextmanager
    def _my_turn(self) -> Iterator[bool]:
        """Whether no other process is at it. Where nobody can tell, it is not waited for."""
        try:
            fd = self._disk.open(self._files.path("search.turn"), write=True, create=True)
        except OSError:
            yield True
            return
        try:
            yield self._disk.lock(fd)
        finally:
            self._disk.close(fd)

    def _advance(self, told: Callable[[int, int], None] | None) -> None:
        made, position = self._place()
        total = done = much = 0
        while rows := self._changed(position, ROWS):
            for size in self._taken(rows, made, position):
                done += size
                much += size
                if told is not None and much >= STEP:
                    total = total or sum(length for length, _, _ in self._files.catalog.use(_known).values())
                    told(min(done, total), total)
            position = rows[-1].saved
        if much > STEP:
            while self._use(lambda index: index.tidy()):
                pass

    def _taken(
        self, rows: list[CatalogRow], made: str, position: int, *, again: bool = False
    ) -> Iterator[int]:
        """Indexes what is new in some logs; says how many bytes it went through now and then. What cannot be
        read is passed over: `doctor` says what is wrong with it."""
        parts: list[Part] = []
        size = 0
        for row in rows:
            before = position
            position = position if again else row.saved
            known = self._use(lambda index, id=row.head.id if row.head else "": index.known(id))  # type: ignore[misc]
            if row.head is None or (known and known[1:4] == (row.uid, row.length, row.state)):
                yield row.length
                continue
            with suppress(SessionNotFound, Damaged, NewerFormat, StoreUnavailable, OSError):
                for part, bytes in self._parts(row, row.head, known):
                    parts.append(part)
                    size += bytes
                    if size >= STEP:
                        # this row may not be through
                        self._use(lambda index, p=parts, at=before: index.add(p, made, at))  # type: ignore[misc]
                        yield size
                        parts, size = [], 0
        self._use(lambda index: index.add(parts, made, position))
        yield size

    def _parts(self, row: CatalogRow, head: Head, known: Known | None) -> Iterator[tuple[Part, int]]:
        """What a log says that is not indexed yet, a bounded part at a time."""
        log = self._files.new_log(head.id)
        try:
            size = log.attach().size
            if known is not None and (
                known.uid != row.uid or not log.agrees(known.length, known.state, size)
            ):
                known = None
            begin = (0, 0, -1) if known is None else (known.length, known.state, known.seq)
            if begin[0] > size:  # the last line lacked its newline, and still does
                begin = (begin[0] - 1, begin[1], begin[2])
            reader = Scan(*begin)
            at, stop = begin[0], min(size, row.length)
            told: dict[int, tuple[int, int]] = {}
            entries: list[Entry] = []
            unfinished: list[bytes] = []
            read = 0
            while True:
                piece = log.stretch(at, min(at + PIECE, stop))
                if piece:
                    _note_places(piece, at, unfinished, told)
                    at += len(piece)
                    read += len(piece)
                    records = reader.feed(piece)
                ended = not piece or at >= stop
                if ended:
                    records = (records if piece else []) + (reader.finish() if stop == size else [])
                entries += _entries(records, told)
                if ended or read >= STEP:
                    place = (reader.end, reader.state or 0)
                    if ended and reader.end + reader.unterminated == row.length:
                        place = (row.length, row.state)
                    last = -1 if reader.seq is None else reader.seq
                    texts = (head.agent, head.workspace, fold(head.title))
                    yield Part(head.id, known, row.uid, *place, last, *texts, entries), read
                    if ended:
                        return
                    known = self._use(lambda index: index.known(head.id))
                    if known is None or known[1:4] != (row.uid, *place):
                        return  # somebody else is at it, or it is gone
                    entries, read = [], 0
        finally:
            log.detach()

    def _sweep(self) -> None:
        """Words of what is gone stay in the index until it is made anew: soon where that is little work, and
        where they are a quarter of it."""
        left = self._use(lambda index: index.left())
        if left == self._left:
            return
        there, size = self._use(lambda index: index.size())
        if left and (size < FEW or left > there // 3):
            self._use(lambda index: index.empty())
            left = 0
        self._left = left

    # -- the database

    def _use(self, work: Callable[[Index], T]) -> T:
        """Does something with the index. One that is broken is made anew."""
        for attempt in range(6):
            with self._mutex:
                index = self._open()
                try:
                    return work(index)
                except (sqlite3.Error, ValueError, TypeError) as met:
                    # where a table is garbled, what is in it may be of any type
                    error = (
                        met if isinstance(met, sqlite3.Error) else sqlite3.DatabaseError(f"malformed: {met}")
                    )
                    if attempt == 5 or not (_is_broken(error) or _is_out_of_reach(error)):
                        raise StoreUnavailable(f"the index of {self._files.root}: {error}") from error
                    self._replace(error)
        raise AssertionError("the last attempt ends in an error")

    def _open(self) -> Index:
        if self._closed or self._disk.inherited:
            raise Closed(f"the store in {self._files.root} is closed")
        path = self._disk.database(self._files.path("search.db"))
        index = self._index
        if index is not None:
            if index.path != OWN and self._is_there(path):
                return index
            if index.path == OWN and (self._files.catalog.newer or time.monotonic() < self._again):
                return index
            index.close()
            self._index = None
        if self._files.catalog.newer:  # a newer version has its own idea of an index
            self._index = Index(OWN)
            return self._index
        try:
            self._index = self._open_file(path)
        except sqlite3.Error as error:
            self._replace(error)
        except OSError:
            self._own(path)
        assert self._index is not None
        return self._index

    def _open_file(self, path: str) -> Index:
        if self._lock is None:
            fd = self._disk.open(self._files.path("search.lock"), write=True, create=True)
            if not self._disk.lock(fd, shared=True):  # somebody is replacing it
                self._disk.wait_lock(fd, "the index")
                self._disk.lock(fd, shared=True)
            self._lock = fd
        found = self._disk.look(path)
        if found is None:
            self._disk.close(self._disk.open(path, write=True, create=True))  # for nobody else to read
            found = self._disk.look(path)
        index = Index(path)
        self._inode = 0 if found is None else found.inode
        return index

    def _is_there(self, path: str) -> bool:
        with suppress(OSError):
            found = self._disk.look(path)
            return found is not None and found.inode == self._inode
        return False

    def _replace(self, error: sqlite3.Error) -> None:
        """Takes away an index that is broken, if nobody else has it open; where that cannot be, and where it
        cannot be written or waited for, goes on with one of this process's own."""
        own = self._index is not None and self._index.path == OWN
        if self._index is not None:
            with suppress(sqlite3.Error):
                self._index.close()
            self._index = None
        path = self._disk.database(self._files.path("search.db"))
        if _is_broken(error) and not own and self._lock is not None:
            try:
                if self._disk.lock(self._lock):
                    for suffix in ("", "-wal", "-shm", "-journal"):
                        if self._disk.look(path + suffix) is not None:
                            self._disk.unlink(path + suffix)
                    self._index = self._open_file(path)
                self._disk.lock(self._lock, shared=True)
            except (OSError, sqlite3.Error):
                self._index = None
        if self._index is None:
            self._own(None if _is_broken(error) else path)

    def _own(self, like: str | None) -> None:
        try:
            self._index = Index(OWN, like=like)
        except sqlite3.Error:  # what was copied is of no use
            self._index = Index(OWN)
        self._again = time.monotonic() + AGAIN

    def check(self) -> str:
        """What is wrong with the index; "" where nothing is, or there is none."""
        if self._disk.look(self._disk.database(self._files.path("search.db"))) is None:
            return ""
        with self._mutex:
            try:
                index = self._open()
                return "" if index.path == OWN else index.check()
            except sqlite3.Error as error:
                return str(error)

    def renew(self) -> None:
        """Makes the index anew."""
        with self._mutex:
            self._replace(sqlite3.DatabaseError("no such index is of use"))

    def _rest(self) -> Callable[[], None]:
        """Before a fork, as the catalog does it: SQLite knows by process what it has locked."""
        with ExitStack() as held:
            held.enter_context(self._mutex)
            if self._index is not None and self._index.path != OWN:
                self._index.close()
                self._index = None
            return held.pop_all().close

    def close(self) -> None:
        with self._mutex:
            if self._index is not None:
                with suppress(sqlite3.Error):
                    self._index.close()
                self._index = None
            if self._lock is not None:
                self._disk.close(self._lock)
                self._lock = None
            self._closed = True


def _chosen(index: Index, query: Query) -> list[tuple[float, Match]]:
    """The matches of the page that was asked for, in order, and their scores."""
    newest = query.order == "newest"
    rows = index.newest(query, query.limit, query.place) if newest else index.newest(query, search.RANKED)
    titled: dict[int, bool] = {}
    score_of = search.scoring(query.now)
    placed: list[tuple[tuple[Any, ...], float, Row]] = []
    for row in rows:
        _, rank, at, seq, _, _, n, session, _, title = row
        if n not in titled:
            titled[n] = search.is_titled(title, query.terms)
        score = score_of(-rank, at, titled[n])
        place = search.key(query.order, score, at, session, seq)
        if query.place is None or place > query.place:
            placed.append((place, score, row))
    placed.sort()
    return [(score, matched(row)) for _, score, row in placed[: query.limit]]


def _known(catalog: Catalog) -> dict[str, tuple[int, int, float]]:
    return catalog.known()


def _note_places(piece: bytes, at: int, unfinished: list[bytes], told: dict[int, tuple[int, int]]) -> None:
    """Where the lines of which records stand. `unfinished` is what a line before this piece begins with."""
    if b"\n" not in piece:
        unfinished.append(piece)
        return
    begun = sum(map(len, unfinished))
    block = b"".join((*unfinished, piece)) if begun else piece
    unfinished.clear()
    stop = 0
    for match in _ends(block):
        start = block.rfind(b"\n", stop, match.start()) + 1 or stop
        stop = match.end()
        told[int(match[1])] = (at - begun + start, stop - start)
    rest = block[block.rfind(b"\n") + 1 :]
    if rest:
        unfinished.append(rest)


def _entries(records: list[Record], told: dict[int, tuple[int, int]]) -> Iterator[Entry]:
    """What of some records is indexed."""
    for record in records:
        start, size = told.pop(record.seq, (0, 0))
        if record.kind in search.SEARCHED:
            texts, role = search.read(record)
            said = tuple(map(indexed, texts))
            if any(map(WORDS.search, said)):
                yield Entry(search.moment(record), record.seq, start, size, search.ROLES.get(role, 0), *said)


def _is_broken(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) or 0
    told = str(error)
    return (
        code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
        or "no such" in told
        or "malformed" in told
        or "UTF-8" in told
        or "datatype mismatch" in told
        or isinstance(error, sqlite3.IntegrityError)
    )


_REFUSALS = frozenset(
    (
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_SCHEMA,
    )
)


def _is_out_of_reach(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return code is None or code & 0xFF in _REFUSALS
