"""An engine for hansard in one SQLite database: `hansard.open("shelf:folder")`.

A model for engines of your own, so it is as short as an honest one can be. A record is a row, a session's
head is kept beside it, and every call is one transaction; the connections are in `database`. What records
mean is left to `hansard.views`.
"""

from __future__ import annotations

import secrets
import sqlite3
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from tempfile import SpooledTemporaryFile
from typing import Any
from urllib.parse import quote

import hansard
from hansard.engines import Blob, Finding, Holder, Shelf, once, repeated, unexpected
from hansard.engines.disk import Disk, problem
from hansard.engines.leases import FileLease, Leases
from hansard.engines.schemes import split
from hansard.errors import (
    AlreadyExists,
    Closed,
    Damaged,
    HansardError,
    NewerFormat,
    SessionNotFound,
    Unsupported,
)
from hansard.records import Damage, Draft, Record, encode, parse, redrafted, understood
from hansard.views import head as heads
from hansard.views import search as searching
from hansard.views import vacuum
from hansard.views.head import Head, Query
from hansard_shelf.database import Database


def open_shelf(url: str, *, readonly: bool, create: bool) -> ShelfEngine:
    """What the entry point names: `shelf:folder`, or with `?network=yes` one on a network file system that
    only one machine ever opens."""
    _, folder, options = split(url)
    network = options.pop("network", "no") == "yes"
    if options:
        raise ValueError(f"{url!r}: there is no option {next(iter(options))!r}; there is 'network'")
    if not folder.strip("/ "):
        raise ValueError(f"{url!r} names no folder")
    return ShelfEngine(folder, readonly=readonly, create=create, network=network)


class ShelfEngine:
    """The engine for `shelf:`."""

    capabilities = frozenset({"survives", "shared"})

    def __init__(
        self, folder: str, *, readonly: bool = False, create: bool = True, network: bool = False
    ) -> None:
        self.readonly = readonly
        self._disk = Disk()
        self._root = self._disk.absolute(folder)
        self.url = "shelf:" + quote(self._root)
        if not network and self._disk.network(self._root):
            raise Unsupported(f"{self._root} lies on a network file system; see ?network=yes")
        self._mutex = threading.Lock()
        self._namespaces: dict[str, ShelfEngine] = {}
        try:
            self._db = Database(self._disk, self._root, readonly=readonly, create=create and not readonly)
        except OSError as error:
            raise problem(error, self._root) from error
        self._leases = Leases(self._disk, f"{self._root}/locks", readonly=readonly)

    # -- sessions and their records, within a transaction

    def _find(self, db: sqlite3.Connection, session: str, uid: str | None = None) -> tuple[int, Head]:
        """The number and the head of a session."""
        row = db.execute("SELECT number, head, folded_by FROM sessions WHERE id = ?", (session,)).fetchone()
        if row is None:
            raise SessionNotFound(session)
        head = self._head(db, *row)
        if uid is not None and head.uid != uid:
            raise SessionNotFound(session, f"session {session!r} was deleted; another one has its id now")
        return row[0], head

    def _head(self, db: sqlite3.Connection, number: int, raw: bytes | None, folded_by: str) -> Head:
        """A head as it was kept, or folded anew where another version of hansard may have meant other things
        by it: it is no truth, only a cache."""
        if raw is not None and folded_by == hansard.__version__:
            return heads.load(raw)
        head = heads.fold(_records(db, number))
        if head is None:
            raise Damaged(f"{self._db.path}: a session has no records")
        return head

    def _begin(self, db: sqlite3.Connection, session: str) -> int:
        if db.execute("SELECT 1 FROM sessions WHERE id = ?", (session,)).fetchone():
            raise AlreadyExists(session)
        return db.execute("INSERT INTO sessions (id) VALUES (?)", (session,)).lastrowid or 0

    def _add(self, db: sqlite3.Connection, number: int, head: Head | None, lines: Iterable[bytes]) -> Head:
        """Adds lines to a session, and takes its head on. Each is a record's JSON, with its seq in it."""
        for line in lines:
            record = understood(parse(line))
            if head is None:
                head = heads.begin(record)
            else:
                heads.advance(head, record)
            _insert(db, number, record, line)
        assert head is not None
        kept = (heads.dump(head), hansard.__version__, number)
        db.execute("UPDATE sessions SET head = ?, folded_by = ? WHERE number = ?", kept)
        return head

    def _by_id(self, db: sqlite3.Connection, number: int, id: str) -> Record | None:
        found = db.execute("SELECT seq FROM ids WHERE session = ? AND id = ?", (number, id)).fetchone()
        return None if found is None else next(_records(db, number, [(found[0], found[0])]), None)

    # -- writing

    def create(self, session: str, drafts: Sequence[Draft], *, lease: Any = None) -> list[Record]:
        new, places = once(drafts)
        lines = _lines(new[:1], 0) + _lines(new[1:], 1)
        with self._db.writing(session) as db:
            self._add(db, self._begin(db, session), None, lines)
        return [parse(lines[place]) for place in places]

    def append(
        self,
        session: str,
        drafts: Sequence[Draft],
        *,
        expect: int | None = None,
        durable: bool = True,
        lease: Any = None,
        uid: str | None = None,
    ) -> list[Record]:
        if lease is not None and lease.released:
            raise Closed(f"the lease of session {session!r} was given back")
        new, places = once(drafts)
        with self._db.writing(session, durable=durable) as db:
            number, head = self._find(db, session, uid)
            firsts = [None if draft.id is None else self._by_id(db, number, draft.id) for draft in new]
            known = [
                first and repeated(session, draft, first) for draft, first in zip(new, firsts, strict=True)
            ]
            missing = [draft for draft, first in zip(new, known, strict=True) if first is None]
            if missing and expect is not None and expect != head.seq:
                raise unexpected(session, expect, head.seq)
            lines = _lines(missing, head.seq + 1)
            if lines:
                self._add(db, number, head, lines)
            elif durable:
                db.execute("UPDATE flushes SET n = n + 1")
        added = map(parse, lines)
        stored = [next(added) if first is None else first for first in known]
        return [stored[place] for place in places]

    def put(
        self,
        session: str,
        drafts: Iterable[Draft],
        *,
        documents: Mapping[str, bytes] | None = None,
        lease: Any = None,
    ) -> int:
        with SpooledTemporaryFile(1 << 20) as spool:  # before the lock: who knows how long they take to come
            seq = -1
            for draft in drafts:
                draft.seq = seq = seq + 1 if draft.seq is None else draft.seq
                spool.write(encode(draft) + b"\n")
            spool.seek(0)
            with self._db.writing(session) as db:
                self._add(db, self._begin(db, session), None, map(bytes.rstrip, spool))
                for name, data in (documents or {}).items():
                    _place(db, Shelf("documents", session), name, data)
        return seq

    def rewrite(
        self, session: str, stretches: Sequence[Draft], *, expect: int, uid: str | None = None
    ) -> int:
        with self._db.writing(session) as db:
            number, head = self._find(db, session, uid)
            if head.seq != expect:
                raise unexpected(session, expect, head.seq)
            before = self._size(db, number)
            for draft in stretches:
                span = (number, vacuum.first(draft), draft.seq)
                db.execute("DELETE FROM records WHERE session = ? AND seq BETWEEN ? AND ?", span)
                db.execute("DELETE FROM ids WHERE session = ? AND seq BETWEEN ? AND ?", span)
                line = encode(draft)
                _insert(db, number, parse(line), line)
            _unframe(db, number)
            db.execute("UPDATE sessions SET head = NULL WHERE number = ?", (number,))
            self._add(db, number, self._find(db, session)[1], ())
            return before - self._size(db, number)

    def flush(self, session: str) -> None:
        with self._db.writing() as db:
            self._find(db, session)
            db.execute("UPDATE flushes SET n = n + 1")  # only what writes is synced

    def alone(self, session: str) -> AbstractContextManager[None]:
        raise Unsupported("this engine keeps nobody out; write with expect=")

    # -- reading

    def head(self, session: str) -> Head:
        with self._db.reading() as db:
            return self._find(db, session)[1]

    def find(self, session: str, id: str, *, uid: str | None = None) -> Record | None:
        with self._db.reading() as db:
            return self._by_id(db, self._find(db, session, uid)[0], id)

    def read(
        self,
        session: str,
        *,
        spans: Sequence[tuple[int, int]] | None = None,
        kinds: Sequence[str] | None = None,
        limit: int | None = None,
        reverse: bool = False,
        uid: str | None = None,
        damage: list[Damage] | None = None,
    ) -> Iterator[Record]:
        def stream() -> Iterator[Any]:
            with self._db.reading() as db:
                number, head = self._find(db, session, uid)
                yield
                wanted = [(0, head.seq)] if spans is None else spans
                left = sys.maxsize if limit is None else limit
                for span in reversed(wanted) if reverse else wanted:
                    if left <= 0:
                        break
                    for record in _records(db, number, [span], kinds, left, reverse):
                        left -= 1
                        yield record
                        if self._disk.inherited:
                            self._db.check()

        records = stream()
        next(records)  # from here on it sees the session as it is now, though nobody may have asked for one
        return records

    def size(self, session: str) -> int:
        with self._db.reading() as db:
            found = db.execute("SELECT number FROM sessions WHERE id = ?", (session,)).fetchone()
            length = "SELECT total(length(data)) FROM documents WHERE kind = 'documents' AND session = ?"
            documents = int(db.execute(length, (session,)).fetchone()[0])
            return documents + (self._size(db, found[0]) if found else 0)

    def _size(self, db: sqlite3.Connection, number: int) -> int:
        length = "SELECT total(length(line)) FROM records WHERE session = ?"
        return int(db.execute(length, (number,)).fetchone()[0])

    def damage(self, session: str) -> list[Damage]:
        self.head(session)
        return []  # SQLite either reads a row or fails; `doctor` looks deeper

    # -- lists: all heads, or records, are looked at, so they take as long as there are any

    def heads(self, query: Query) -> list[Head]:
        found = [(heads.rank(head, query), head.id, head) for head in self._matching(query)]
        found.sort(key=lambda item: item[:2])
        if query.place is not None:
            found = [item for item in found if item[:2] > query.place]
        return [head for _, _, head in found[: query.limit]]

    def count(self, query: Query) -> int:
        return sum(1 for _ in self._matching(query))

    def search(
        self, query: searching.Query, told: Callable[[int, int], None] | None = None
    ) -> list[searching.Found]:
        with self._db.reading() as db:
            return searching.scan(self._said(db), query)

    def _said(self, db: sqlite3.Connection) -> Iterator[tuple[Head, Iterator[Record]]]:
        for row in db.execute("SELECT number, head, folded_by FROM sessions").fetchall():
            with suppress(Damaged, NewerFormat):
                yield self._head(db, *row), _records(db, row[0], kinds=searching.SEARCHED)

    def sessions(self) -> Iterator[str]:
        with self._db.reading() as db:
            return iter([id for (id,) in db.execute("SELECT id FROM sessions")])

    def _matching(self, query: Query) -> Iterator[Head]:
        with self._db.reading() as db:
            for row in db.execute("SELECT number, head, folded_by FROM sessions"):
                with suppress(Damaged, NewerFormat):  # `doctor` says what is wrong with it
                    head = self._head(db, *row)
                    if heads.matches(head, query):
                        yield head

    # -- deleting

    def delete(self, session: str, *, uid: str | None = None, unless_input: bool = False) -> bool:
        shelf = Shelf("documents", session)
        with self._db.writing(session) as db:
            row = db.execute("SELECT number FROM sessions WHERE id = ?", (session,)).fetchone()
            if row is None:
                return False
            if uid is not None or unless_input:  # else what cannot be read goes too
                try:
                    head = self._find(db, session, uid)[1]
                except SessionNotFound:
                    return False
                if unless_input and not (heads.is_bare(head) and not _names(db, shelf)):
                    return False
            for table in ("sessions WHERE number", "records WHERE session", "ids WHERE session"):
                db.execute(f"DELETE FROM {table} = ?", row)
            db.execute("DELETE FROM documents WHERE kind = ? AND session = ?", shelf)
            return True

    # -- leases: lock files, which the kernel frees when their holder dies

    def lease(self, session: str, *, force: bool = False) -> FileLease:
        self._db.check_writable()
        try:
            return self._leases.take(session, force=force)
        except OSError as error:
            raise problem(error, f"{self._root}/locks") from error

    def release(self, session: str, lease: Any) -> None:
        if lease is not None and not lease.released and not self.closed:
            lease.released = True
            self._leases.give_back(lease)

    def leases(self) -> list[Holder]:
        self._db.check()
        return self._leases.sweep()

    # -- documents

    def document(self, shelf: Shelf, name: str) -> tuple[bytes, str] | None:
        with self._db.reading() as db:
            return _document(db, shelf, name)

    def documents(self, shelf: Shelf) -> list[str]:
        with self._db.reading() as db:
            return _names(db, shelf)

    def put_document(
        self,
        shelf: Shelf,
        name: str,
        data: bytes,
        *,
        expect: str | None = None,
        uid: str | None = None,
        aside: str = "",
    ) -> str | None:
        with self._db.writing() as db:
            if shelf.kind == "documents":
                self._find(db, shelf.session, uid)
            before = _document(db, shelf, name)
            if expect is not None and expect != ("" if before is None else before[1]):
                return None
            if before is not None and aside:
                kept = (*shelf, name, before[0], aside, str(datetime.now(UTC)))
                db.execute("INSERT INTO aside VALUES (?, ?, ?, ?, ?, ?)", kept)
            version = _place(db, shelf, name, data)
        if before is not None and aside:
            told = (
                f"{name!r} could not be understood; it was set aside in the table `aside` of {self._db.path}"
            )
            warnings.warn(told, hansard.HansardWarning, stacklevel=2)
        return version

    def drop_document(
        self, shelf: Shelf, name: str, *, expect: str | None = None, uid: str | None = None
    ) -> bool:
        with self._db.writing() as db:
            if shelf.kind == "documents":
                self._find(db, shelf.session, uid)
            before = _document(db, shelf, name)
            if before is None or (expect is not None and expect != before[1]):
                return False
            which = "kind = ? AND session = ? AND name = ?"
            db.execute(f"DELETE FROM documents WHERE {which}", (*shelf, name))
            return True

    # -- blobs

    def put_blob(self, data: bytes) -> str:
        digest = sha256(data).hexdigest()
        with self._db.writing() as db:
            row = (digest, data, heads.microseconds(datetime.now(UTC)))
            db.execute("INSERT OR REPLACE INTO blobs VALUES (?, ?, ?)", row)
        return digest

    def blob(self, digest: str) -> bytes | None:
        with self._db.reading() as db:
            row = db.execute("SELECT data FROM blobs WHERE digest = ?", (digest,)).fetchone()
        if row is not None and sha256(row[0]).hexdigest() != digest:
            raise Damaged(f"the blob {digest} of {self._db.path} is not what its name says; put it again")
        return None if row is None else bytes(row[0])

    def sweep_blobs(
        self, before: datetime, needed: Callable[[set[str]], set[str]], *, dry_run: bool = False
    ) -> list[Blob]:
        with self._db.writing() as db:
            rows = db.execute(
                "SELECT digest, length(data), touched FROM blobs WHERE touched < ? ORDER BY digest",
                (heads.microseconds(before),),
            )
            old = {digest: Blob(digest, size, _moment(touched)) for digest, size, touched in rows}
            swept = sorted(set(old) - needed(set(old))) if old else []
            if not dry_run:
                db.executemany("DELETE FROM blobs WHERE digest = ?", [(digest,) for digest in swept])
        return [old[digest] for digest in swept]

    # -- who looks on

    def watch(
        self, changed: Callable[[str | None], None], *, session: str | None = None
    ) -> Callable[[], None]:
        return self._db.watch(changed, session)

    # -- tenants, health and the end

    def namespace(self, name: str, *, create: bool = True) -> ShelfEngine:
        self._db.check()
        with self._mutex:
            found = self._namespaces.get(name)
            if found is None or found.closed:
                folder = f"{self._root}/namespaces/{sha256(name.encode()).hexdigest()}"  # no name is a path
                found = ShelfEngine(folder, readonly=self.readonly, create=create, network=True)
                self._namespaces[name] = found
            return found

    def doctor(self, told: Callable[[int], None] | None = None, *, repair: bool = False) -> Iterator[Finding]:
        copy = "bring shelf.db back from a copy"
        with self._db.reading() as db:
            for (line,) in db.execute("PRAGMA integrity_check"):
                if line != "ok":
                    yield Finding(kind="damage", place=self._db.path, detail=line, remedy=copy)
            rows = db.execute("SELECT number, id, head, folded_by FROM sessions ORDER BY id")
            for n, (number, id, raw, by) in enumerate(rows):
                if told is not None:
                    told(n)
                try:
                    same = heads.fold(_records(db, number)) == self._head(db, number, raw, by)
                    detail = "" if same else "its head is not what its records say"
                except (HansardError, ValueError) as error:
                    detail = str(error)
                if detail:
                    yield Finding(kind="damage", session=id, place=self._db.path, detail=detail, remedy=copy)

    @property
    def closed(self) -> bool:
        return self._db.closed

    def close(self) -> None:
        if self.closed:
            return
        for tenant in self._namespaces.values():
            tenant.close()
        for lease in self._leases.mine():
            self.release(lease.session, lease)
        self._db.close()


# -- rows


def _lines(drafts: Sequence[Draft], seq: int) -> list[bytes]:
    """The JSON of drafts that are written at once, the first as the record `seq`."""
    batch = (seq, len(drafts)) if len(drafts) > 1 else None
    for place, draft in enumerate(drafts):
        draft.seq, draft.batch = seq + place, batch
    return [encode(draft) for draft in drafts]


def _insert(db: sqlite3.Connection, number: int, record: Record, line: bytes) -> None:
    db.execute("INSERT INTO records VALUES (?, ?, ?, ?)", (number, record.seq, record.kind, line))
    # its own id, and those of records that it stands for
    for id in vacuum.ids(record):
        db.execute("INSERT OR REPLACE INTO ids VALUES (?, ?, ?)", (number, id, record.seq))


def _unframe(db: sqlite3.Connection, number: int) -> None:
    """What stays of a write of which a part was taken out stands alone: nobody is to wait for the rest."""
    left = Counter(record.batch for record in _records(db, number) if record.batch is not None)
    broken = [batch for batch, n in left.items() if n < batch[1]]
    for first, n in broken:
        for record in list(_records(db, number, [(first, first + n - 1)])):
            draft = redrafted(record)
            draft.batch = None
            where = (encode(draft), number, record.seq)
            db.execute("UPDATE records SET line = ? WHERE session = ? AND seq = ?", where)


def _records(
    db: sqlite3.Connection,
    number: int,
    spans: Sequence[tuple[int, int]] = ((0, 1 << 62),),
    kinds: Sequence[str] | None = None,
    limit: int = -1,
    reverse: bool = False,
) -> Iterator[Record]:
    of_kind = "" if kinds is None else f"AND kind IN ({','.join('?' * len(kinds))})"
    order = "DESC" if reverse else "ASC"
    select = f"SELECT line FROM records WHERE session = ? AND seq BETWEEN ? AND ? {of_kind}"
    for first, last in spans:
        values = (number, first, last, *(kinds or ()), limit)
        for (line,) in db.execute(f"{select} ORDER BY seq {order} LIMIT ?", values):
            yield understood(parse(line))


def _document(db: sqlite3.Connection, shelf: Shelf, name: str) -> tuple[bytes, str] | None:
    which = "kind = ? AND session = ? AND name = ?"
    found = db.execute(f"SELECT data, version FROM documents WHERE {which}", (*shelf, name)).fetchone()
    return None if found is None else (bytes(found[0]), found[1])


def _names(db: sqlite3.Connection, shelf: Shelf) -> list[str]:
    found = db.execute("SELECT name FROM documents WHERE kind = ? AND session = ?", shelf)
    return sorted(name for (name,) in found)


def _place(db: sqlite3.Connection, shelf: Shelf, name: str, data: bytes) -> str:
    version = secrets.token_hex(8)
    db.execute("INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?, ?)", (*shelf, name, data, version))
    return version


def _moment(microseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
