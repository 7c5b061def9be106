"""The database under the engine: its connections, its transactions, and who is told of a change.

Every call has a connection of its own while it lasts, so a reader sees the store as it was at the call,
whoever writes meanwhile, in this process or in another.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import quote

from hansard.engines import reentered
from hansard.engines.disk import Disk
from hansard.errors import (
    Closed,
    Damaged,
    HansardError,
    NewerFormat,
    NotAStore,
    ReadOnlyStore,
    StoreFull,
    StoreUnavailable,
)

OURS, FORMAT = 0x5E55, 1
SCHEMA = f"""
PRAGMA journal_mode = WAL;
BEGIN;
CREATE TABLE sessions (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, head BLOB, folded_by TEXT);
CREATE TABLE records (session INTEGER, seq INTEGER, kind TEXT, line BLOB, UNIQUE (session, seq));
CREATE TABLE ids (session INTEGER, id TEXT, seq INTEGER, PRIMARY KEY (session, id)) WITHOUT ROWID;
CREATE TABLE documents
    (kind TEXT, session TEXT, name TEXT, data BLOB, version TEXT, UNIQUE (kind, session, name));
CREATE TABLE aside (kind TEXT, session TEXT, name TEXT, data BLOB, why TEXT, at TEXT);
CREATE TABLE blobs (digest TEXT PRIMARY KEY, data BLOB, touched INTEGER);
CREATE TABLE flushes (n INTEGER);
INSERT INTO flushes VALUES (0);
PRAGMA application_id = {OURS};
PRAGMA user_version = {FORMAT};
COMMIT;
"""

PATIENCE = 60
"""Seconds to wait for other writers."""

GLANCE = 0.02
"""Seconds between two looks whether another process has written, while somebody watches."""

Changed = Callable[[str | None], None]


class Database:
    """One file. Threads and processes may share it."""

    def __init__(self, disk: Disk, folder: str, *, readonly: bool, create: bool) -> None:
        self.path = f"{folder}/shelf.db"
        self.readonly = readonly
        self._disk = disk
        self._mutex = threading.RLock()
        self._busy = False
        self._idle: list[sqlite3.Connection] = []
        self._watches: dict[object, tuple[str | None, Changed]] = {}
        self._unwatched = threading.Event()
        self._closed = False
        _databases.add(self)
        try:
            self._open(folder, create)
        except BaseException:
            self.close()
            raise

    def _open(self, folder: str, create: bool) -> None:
        """Sees that the file is there, and that it is one of ours."""
        disk = self._disk
        names = set(disk.names(folder))
        if "shelf.db" not in names and names - {"locks"}:
            raise NotAStore(f"{folder} has no shelf.db but other things in it", path=folder)
        if create:
            disk.make_folder(f"{folder}/locks")
            with disk.locked(f"{folder}/locks/.root"):  # two processes may begin the same store
                if disk.look(self.path) is None:
                    disk.close(disk.open(self.path, write=True, create=True))  # for nobody else to read
                    disk.sync_folder(folder)
                # not opened by us any more: to close the file would free SQLite's locks of it
                with self._connection() as db:
                    if not _pragma(db, "schema_version"):  # nothing is in it yet
                        db.executescript(SCHEMA)
        elif disk.look(self.path) is None:
            raise NotAStore(f"there is no store at {folder} yet", path=folder, missing=True)
        with self._connection() as db:
            if _pragma(db, "application_id") != OURS:
                raise NotAStore(f"{self.path} is not a database of hansard-shelf", path=folder)
            if _pragma(db, "user_version") > FORMAT:
                raise NewerFormat(f"{self.path} was made by a newer version of hansard-shelf; install that")

    def check(self) -> None:
        """It is open still, and this process's own."""
        if self._disk.inherited:
            raise Closed(f"{self.path} was inherited through fork(); use it in the process that opened it")
        if self._closed:
            raise Closed(f"{self.path} is closed")

    @property
    def closed(self) -> bool:
        return self._closed or self._disk.inherited

    # -- transactions

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection that sees the store as it is now."""
        with self._connection() as db:
            db.execute("BEGIN")
            yield db

    @contextmanager
    def writing(self, session: str = "", *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """A transaction, alone among all writers, committed at the end of the block; who watches the session
        is told."""
        self.check_writable()
        with self._mutex:
            if self._busy:  # a signal handler, or a finalizer, in the middle of a write
                raise reentered(session)
            try:
                self._busy = True
                with self._connection() as db:
                    # a commit that is synced takes along what was committed before it and was not
                    db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
                    db.execute("BEGIN IMMEDIATE")
                    yield db
                    try:
                        db.execute("COMMIT")
                    except sqlite3.Error as error:
                        told = problem(error, self.path)
                        told.outcome_unknown = True
                        raise told from error
            finally:
                self._busy = False
        if session:
            self._tell(session)

    def check_writable(self) -> None:
        self.check()
        if self.readonly:
            raise ReadOnlyStore(f"{self.path} was opened with readonly=True")

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """A connection of the caller's own. What is not committed at the end is rolled back."""
        self.check()
        db = None
        try:
            with suppress(IndexError):
                db = self._idle.pop()
            db = db or self._connect()
            yield db
        except sqlite3.Error as error:
            raise problem(error, self.path) from error
        finally:
            if db is not None:
                self._give_back(db)

    def _connect(self) -> sqlite3.Connection:
        if self.path in _forked:
            raise Closed(f"{self.path} was open when this process was forked: SQLite cannot open it here too")
        uri = f"file:{quote(self.path)}?mode={'ro' if self.readonly else 'rw'}"
        db = sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
        if sys.platform == "darwin":
            db.execute("PRAGMA fullfsync = 1")
        return db

    def _give_back(self, db: sqlite3.Connection) -> None:
        if self._disk.inherited:
            _kept.append(db)
            return
        with suppress(sqlite3.Error):
            db.rollback()
        if self._closed or db.in_transaction:
            db.close()
        else:
            self._idle.append(db)

    # -- who looks on

    def watch(self, changed: Changed, session: str | None) -> Callable[[], None]:
        """Calls `changed` until what this returns is called."""
        self.check()
        key = object()
        with self._mutex:
            if not self._watches:
                self._unwatched = threading.Event()
                threading.Thread(target=self._look, args=(self._unwatched,), daemon=True).start()
            self._watches[key] = (session, changed)

        def end() -> None:
            with self._mutex:
                self._watches.pop(key, None)
                if not self._watches:
                    self._unwatched.set()

        return end

    def _tell(self, session: str | None) -> None:
        for wanted, changed in list(self._watches.values()):
            if session is None or wanted is None or session == wanted:
                changed(session)

    def _look(self, unwatched: threading.Event) -> None:
        """The thread, from the first who watches to the last: SQLite says whether anybody has written."""
        with suppress(HansardError), self._connection() as db:
            seen = None
            while not unwatched.wait(GLANCE):
                with suppress(sqlite3.Error):  # the next look may go better
                    version = _pragma(db, "data_version")
                    if version != seen:
                        seen = version
                        self._tell(None)

    # -- the end

    def close(self) -> None:
        self._closed = True
        self._unwatched.set()
        while self._idle:
            self._idle.pop().close()


def _pragma(db: sqlite3.Connection, name: str) -> int:
    return int(db.execute(f"PRAGMA {name}").fetchone()[0])


def problem(error: sqlite3.Error, path: str) -> HansardError:
    """Our error for one of SQLite's."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return StoreFull(f"{path}: {error}; nothing was lost, free some space and try again")
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return ReadOnlyStore(f"{path}: {error}; see to its permissions")
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return Damaged(f"{path}: {error}; bring it back from a copy")
    return StoreUnavailable(f"{path}: {error}")


# After a fork SQLite's connections are the parent's alone: a child must not use them, nor so much as close
# them, nor open the same file anew, for SQLite would believe there that it holds the parent's locks.

_databases: weakref.WeakSet[Database] = weakref.WeakSet()
_kept: list[sqlite3.Connection | Database] = []
_forked: set[str] = set()


def _after_fork() -> None:
    for database in list(_databases):
        _kept.append(database)
        if not database._closed:
            _forked.add(database.path)


os.register_at_fork(after_in_child=_after_fork)
