"""The file engine: one log a session, in a folder that can be read with a text editor.

FORMAT: see docs/format.md. All that touches the operating system goes through `disk.py`; all that is derived
stands in the catalog and is used only where the log agrees with it.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
import warnings
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, TypeVar
from zlib import crc32

import msgspec

from hansard.engines import Finding, Holder
from hansard.engines.catalog import Catalog, Row
from hansard.engines.disk import Disk, Stat, problem
from hansard.errors import (
    AlreadyExists,
    Closed,
    Conflict,
    Damaged,
    HansardError,
    NewerFormat,
    NotAStore,
    ReadOnlyStore,
    SessionBusy,
    SessionNotFound,
    StoreUnavailable,
    Unsupported,
)
from hansard.ids import file_key, id_of, new_id
from hansard.records import (
    FORMAT,
    TAIL,
    Damage,
    Draft,
    Record,
    Scan,
    encode,
    equal,
    frame,
    last,
    scan,
    state_after,
    stored,
)
from hansard.views import head as heads
from hansard.views.head import Head, Query

T = TypeVar("T")

PIECE = 1 << 18
"""Bytes read at once."""

MARK = 1 << 16
"""Bytes of log between two places that the catalog knows."""

REFRESH = 1 << 20
"""Bytes that a log may grow before its catalog row is refreshed."""

OPEN_FILES = 64
"""Logs that are kept open."""

GRACE = 0.2
"""Seconds that a contender waits for the holder of a lease to say who it is."""

IGNORED = frozenset({"hansard.json.tmp", ".DS_Store", "lost+found"})


class HansardWarning(UserWarning):
    """Something was set aside or could not be done, and nothing was lost by it."""


class FileLease:
    """A lock file that this process has locked."""

    def __init__(self, session: str, path: str, fd: int, holder: Holder) -> None:
        self.session = session
        self.path = path
        self.fd = fd
        self.holder = holder
        self.marked = False  # whether the catalog knows that the log may grow
        self.released = False


class Log:
    """What this process knows of one log. All of it is guarded by `mutex`."""

    def __init__(self, session: str, path: str) -> None:
        self.session = session
        self.path = path
        self.mutex = threading.RLock()
        self.fd: int | None = None
        self.inode = 0
        self.writable = True
        self.depth = 0  # how often this process has the append lock
        self.forget()

    def forget(self) -> None:
        """Nothing is known any more."""
        self.end = 0  # where a writer goes on: place, checksum, last seq
        self.state = 0
        self.seq = -1
        self.floor = 0  # a failed sync never cuts below this
        self.synced = -1  # the length as of the last sync by this process
        self.unfold()

    def unfold(self) -> None:
        """Nothing is known any more of what the log says."""
        self.generation = -1
        self.n: int | None = None  # its row in the catalog
        self.head: Head | None = None
        self.loose: Record | None = None  # a last record that lacks its newline
        self.folded = 0  # how far the head goes: place, checksum, last seq
        self.folded_state = 0
        self.folded_seq = -1
        self.saved = -1  # how far the catalog's row goes
        self.anew = True  # the row in the catalog, if there is one, does not count
        self.damage: list[Damage] = []
        self.ids: dict[str, int] = {}  # not yet in the catalog
        self.marks: list[tuple[int, int]] = []  # not yet in the catalog
        self.marked = 0


class Files:
    """The engine for `file:` and plain paths."""

    capabilities = frozenset({"survives", "shared", "alone", "files"})

    def __init__(
        self,
        path: str,
        *,
        disk: Disk | None = None,
        readonly: bool = False,
        create: bool = True,
        network: bool = False,
    ) -> None:
        self.disk = disk or Disk()
        self.readonly = readonly
        self.root = self.disk.absolute(path)
        self.url = "file:" + self.root
        self._closed = False
        self._mutex = threading.RLock()
        self._logs: OrderedDict[str, Log] = OrderedDict()
        self._leases: dict[str, FileLease] = {}
        self._catalog: Catalog | None = None
        self._catalog_inode = 0
        self._catalog_lock: int | None = None
        self._in_memory = False
        self._checked = False
        self._generation = 0
        try:
            self.store_id = self._open_root(create=create, network=network)
        except OSError as error:
            raise problem(error, self.root) from error

    # -- the root

    def _open_root(self, *, create: bool, network: bool) -> str:
        kind = self.disk.network(self.root)
        if kind is not None and not network:
            raise Unsupported(
                f"{self.root} lies on a network file system ({kind}), whose locks and syncs cannot be trusted "
                "between machines; use a local folder or the server, or add ?network=yes to the URL if only one "
                "machine ever opens it"
            )
        if self.disk.look(self.root) is not None and not self.disk.is_folder(self.root):
            raise NotAStore(f"{self.root} is a file, not a folder; a store is a folder of its own")
        raw = self.disk.read_file(self._path("hansard.json"))
        if raw is None:
            others = sorted(set(self.disk.names(self.root)) - IGNORED)
            if others:
                listed = ", ".join(others[:3]) + (" …" if len(others) > 3 else "")
                raise NotAStore(
                    f"{self.root} has no hansard.json but other things in it ({listed}); it was left as it is. Choose "
                    "an empty or new folder, or bring hansard.json back if this was a store"
                )
            if self.readonly or not create:
                raise NotAStore(f"there is no store at {self.root}; open it without readonly or create=False to begin one")
            raw = self._begin_root()
        try:
            facts = json.loads(raw)
            version, store = facts["format"], facts["store"]
            if type(version) is not int or type(store) is not str:
                raise ValueError
        except (ValueError, KeyError, TypeError):
            raise Damaged(
                f"{self._path('hansard.json')} cannot be understood; it was left as it is. It should read "
                f'{{"format":{FORMAT},"store":"…"}}; bring it back from a copy'
            ) from None
        if version > FORMAT and not self.readonly:
            raise NewerFormat(
                f"{self.root} was written in format {version}; this version of hansard writes {FORMAT}. Install a newer "
                "version, or open it with readonly=True"
            )
        return store

    def _begin_root(self) -> bytes:
        for folder in ("", "sessions", "names", "locks"):
            self.disk.make_folder(self._path(folder) if folder else self.root)
        with self.disk.locked(self._path("locks/.root")):  # two processes may begin the same store
            path = self._path("hansard.json")
            raw = self.disk.read_file(path)
            if raw is None:
                raw = json.dumps({"format": FORMAT, "store": "store_" + new_id()[5:]}).encode() + b"\n"
                self.disk.replace(path, raw)
        return raw

    def _path(self, *parts: str) -> str:
        return "/".join((self.root, *parts))

    def _log_path(self, session: str) -> str:
        return f"{self.root}/sessions/{file_key(session)}.jsonl"

    def _lock_path(self, session: str) -> str:
        return f"{self.root}/locks/{file_key(session)}.lock"

    def _alive(self) -> None:
        if self.disk.inherited:
            raise Closed(f"the store {self.url} was inherited through fork(); open it anew in this process")
        if self._closed:
            raise Closed(f"the store {self.url} is closed")

    def _writable(self) -> None:
        self._alive()
        if self.readonly:
            raise ReadOnlyStore(f"the store {self.url} was opened with readonly=True")

    # -- writing

    def create(self, session: str, drafts: Sequence[Draft], *, lease: Any = None) -> list[Record]:
        self._writable()
        with self._using(session) as log, self._told(log.path):
            self._with(lambda catalog: catalog.mark_open(session), writing=True)
            if lease is not None:
                lease.marked = True
            fd = self._take_new(log)
            try:
                records = self._first(log, drafts)
                self.disk.sync_folder(self._path("sessions"))
            except BaseException:
                with suppress(OSError):
                    self.disk.truncate(fd, 0)
                    self.disk.unlink(log.path)
                self._detach(log)
                raise
            self._let_go(log)
            return records

    def _take_new(self, log: Log) -> int:
        """Opens a log that nobody has begun, with its append lock held."""
        self._detach(log)
        while True:
            self.disk.make_folder(self._path("sessions"))
            log.fd = fd = self.disk.open(log.path, write=True, create=True)
            self.disk.wait_lock(fd, log.path)
            stat = self.disk.stat(fd)
            if stat.links:
                break
            self._detach(log)
        log.inode, log.depth, log.writable = stat.inode, 1, True
        if stat.size:
            try:
                self._fold(log, stat.size)
            except SessionNotFound:  # a log without a whole first line does not exist
                self._set_aside(log, 0, stat.size, "torn")
                self.disk.truncate(fd, 0)
                log.forget()
            else:
                self._let_go(log)
                raise AlreadyExists(log.session)
        return fd

    def _first(self, log: Log, drafts: Sequence[Draft]) -> list[Record]:
        """The session record stands alone, so that a batch that follows it can be torn without it."""
        fd = log.fd
        assert fd is not None
        line, state = frame(drafts[:1], 0, 0)
        rest, state = frame(drafts[1:], 1, state) if len(drafts) > 1 else (b"", state)
        self.disk.write(fd, line + rest)
        self.disk.sync(fd)
        log.end = log.floor = log.synced = len(line) + len(rest)
        log.state, log.seq = state, len(drafts) - 1
        return [stored(draft) for draft in drafts]

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
        self._writable()
        if lease is not None and lease.released:
            raise Closed(f"the lease of session {session!r} was given back")
        log = self._acquire(session)
        try:
            self._grab(log, uid)
            try:
                repeats = self._repeats(log, drafts)
                new = [d for i, d in enumerate(drafts) if i not in repeats] if repeats else drafts
                if new and expect is not None and expect != log.seq:
                    raise Conflict(
                        f"session {session!r} is at record {log.seq}, not {expect}; read what is new and try again",
                        seq=log.seq,
                    )
                if new:
                    self._will_grow(log, lease)
                    self._write(log, new, durable)
                elif durable:
                    self._sync(log)
                if not repeats:
                    return [stored(draft) for draft in drafts]
                return self._merged(drafts, repeats)
            finally:
                self._let_go(log)
        finally:
            log.mutex.release()

    def _write(self, log: Log, drafts: Sequence[Draft], durable: bool) -> None:
        disk, fd, end = self.disk, log.fd, log.end
        assert fd is not None
        data, state = frame(drafts, log.seq + 1, log.state)
        log.end = -1  # whatever interrupts this, the next one looks at what is there
        try:
            disk.write(fd, data)
        except OSError as error:
            raise self._cut_back(log, end, error, "writing") from error
        if durable:
            try:
                disk.sync(fd)
            except OSError as error:
                raise self._cut_back(log, log.floor, error, "syncing") from error
            log.floor = log.synced = end + len(data)
        log.end, log.state = end + len(data), state
        log.seq += len(drafts)
        if log.end - max(log.saved, 0) > REFRESH and log.generation == self._generation:
            self._fold(log, log.end)
            self._save(log)

    def _cut_back(self, log: Log, end: int, error: OSError, doing: str) -> HansardError:
        """What a failed write left is taken away. After a failed sync nobody knows what the disk has of all
        that was not synced before, so that goes too, and whoever wrote it opens the session anew."""
        fd = log.fd
        assert fd is not None
        told = problem(error, f"{doing} {log.path}")
        try:
            self.disk.truncate(fd, end)
            if doing == "syncing":
                self.disk.sync(fd)
        except OSError:
            told.outcome_unknown = True
        log.forget()
        if doing == "syncing" or told.outcome_unknown:
            told.closes = True
            self._let_go(log, all=True)
            self._detach(log)
        return told

    def flush(self, session: str) -> None:
        self._writable()
        with self._using(session) as log:
            self._grab(log, None)
            try:
                self._sync(log)
            finally:
                self._let_go(log)

    def _sync(self, log: Log) -> None:
        """Everything in the log is durable. Called under the append lock."""
        if log.synced == log.end:
            return
        assert log.fd is not None
        try:
            self.disk.sync(log.fd)
        except OSError as error:
            raise self._cut_back(log, log.floor, error, "syncing") from error
        log.floor = log.synced = log.end

    def _repeats(self, log: Log, drafts: Sequence[Draft]) -> dict[int, Record | int]:
        """Which drafts are there already: by their place the record, or the place of an equal draft."""
        found: dict[int, Record | int] = {}
        if all(draft.id is None for draft in drafts):
            return found
        self._fold(log, log.end)
        firsts: dict[str, int] = {}
        for i, draft in enumerate(drafts):
            if draft.id is None:
                continue
            if draft.id in firsts:
                other = drafts[firsts[draft.id]]
                if other.kind != draft.kind or not equal(other.data, draft.data):
                    raise Conflict(f"the id {draft.id!r} is given to two different payloads of one call")
                found[i] = firsts[draft.id]
                continue
            firsts[draft.id] = i
            first = self._by_id(log, draft.id)
            if first is None:
                continue
            if draft.kind != first.kind or not equal(draft.data, encode(first.data)):
                raise Conflict(
                    f"record {first.seq} of session {log.session!r} has the id {draft.id!r} already, and says something "
                    "else; use a new id for a new record",
                    first=first,
                )
            found[i] = first
        return found

    def _merged(self, drafts: Sequence[Draft], repeats: dict[int, Record | int]) -> list[Record]:
        records: list[Record] = []
        for i, draft in enumerate(drafts):
            repeat = repeats.get(i)
            if repeat is None:
                records.append(stored(draft))
            else:
                records.append(records[repeat] if isinstance(repeat, int) else repeat)
        return records

    def _will_grow(self, log: Log, lease: FileLease | None) -> None:
        """Lets the catalog know, before the first byte, that its row will be behind. Under the append lock."""
        session = log.session
        if lease is None:
            if not self._with(lambda catalog: catalog.is_open(session)):
                self._with(lambda catalog: catalog.mark_open(session), writing=True)
        elif not lease.marked:
            self._with(lambda catalog: catalog.mark_open(session), writing=True)
            lease.marked = True

    @contextmanager
    def alone(self, session: str) -> Iterator[None]:
        self._writable()
        with self._using(session) as log:
            self._grab(log, None)
            try:
                yield
            finally:
                self._let_go(log)

    # -- the append lock

    def _grab(self, log: Log, uid: str | None) -> None:
        """Takes the append lock, and knows the log's end when it has it."""
        if not log.depth:
            with self._told(log.path):
                while True:
                    self._attach(log)
                    fd = log.fd
                    assert fd is not None
                    if not log.writable:
                        raise ReadOnlyStore(f"{log.path} cannot be written; see to its permissions")
                    self.disk.wait_lock(fd, log.path)
                    stat = self.disk.stat(fd)
                    if stat.links:
                        break
                    self._detach(log)
                log.depth = 1
                try:
                    if stat.size != log.end or log.head is None:
                        self._catch_up(log, stat.size)
                except BaseException:
                    self._let_go(log)
                    raise
        else:
            log.depth += 1
        if uid is not None and log.head is not None and log.head.uid != uid:
            self._let_go(log)
            raise SessionNotFound(log.session, f"session {log.session!r} was deleted; another one has its id now")

    def _let_go(self, log: Log, *, all: bool = False) -> None:
        if not log.depth:
            return
        log.depth = 0 if all else log.depth - 1
        if not log.depth and log.fd is not None:
            with suppress(OSError):
                self.disk.unlock(log.fd)

    def _catch_up(self, log: Log, size: int) -> None:
        """Learns where the log ends, and takes away what a crash left of a write. Under the append lock."""
        fd = log.fd
        assert fd is not None
        if log.head is not None and 0 < log.end < size:
            found = last(self.disk.read(fd, TAIL, max(0, size - TAIL)))
            if found is not None and found[0] > log.seq:
                log.seq, log.state = found
                log.end = log.floor = size
                return
        self._fold(log, size)
        if log.loose is not None:
            self.disk.write(fd, b"\n")
            size += 1
            self._fold(log, size)
        if log.folded < size:
            self._set_aside(log, log.folded, size, "torn")
            self.disk.truncate(fd, log.folded)
        log.end, log.state, log.seq = log.folded, log.folded_state, log.folded_seq
        log.floor = log.end

    def _set_aside(self, log: Log, start: int, stop: int, why: str) -> None:
        """Keeps a copy of bytes that are about to go. Bytes that are all zero say nothing and are not kept."""
        assert log.fd is not None
        pieces = []
        while start < stop:
            piece = self.disk.read(log.fd, min(PIECE, stop - start), start)
            if not piece:
                break
            pieces.append(piece)
            start += len(piece)
        if any(piece.strip(b"\0") for piece in pieces):
            self.disk.make_folder(self._path("aside"))
            key = file_key(log.session)
            self.disk.replace(self._aside(f"{key}.{why}"), b"".join(pieces))

    def _aside(self, name: str) -> str:
        """A path for something set aside, which says when and why."""
        stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
        return self._path("aside", f"{stamp}.{name}")

    # -- files

    def _acquire(self, session: str) -> Log:
        """What is known of a log, with its mutex taken; the caller gives that back."""
        while True:
            log = self._log(session)
            log.mutex.acquire()
            if self._logs.get(session) is log:
                return log
            log.mutex.release()  # it was put out of the cache in between

    @contextmanager
    def _using(self, session: str) -> Iterator[Log]:
        log = self._acquire(session)
        try:
            yield log
        finally:
            log.mutex.release()

    def _log(self, session: str) -> Log:
        """What is known of a log, kept among those used last."""
        with self._mutex:
            self._alive()
            log = self._logs.get(session)
            if log is None:
                log = self._logs[session] = Log(session, self._log_path(session))
                if len(self._logs) > OPEN_FILES:
                    self._evict()
            else:
                self._logs.move_to_end(session)
            return log

    def _evict(self) -> None:
        for session, log in list(self._logs.items())[:-1]:
            if len(self._logs) <= OPEN_FILES:
                return
            if log.mutex.acquire(blocking=False):
                try:
                    if log.depth == 0:
                        if log.folded > max(log.saved, 0) and log.generation == self._generation:
                            self._save(log)
                        self._detach(log)
                        del self._logs[session]
                finally:
                    log.mutex.release()

    def _attach(self, log: Log) -> Stat:
        """Has the log open, and forgets what was known if it is not the file that it was."""
        self._alive()
        if log.fd is not None:
            stat = self.disk.stat(log.fd)
            if stat.links:
                return stat
            self._detach(log)
        try:
            log.fd = self.disk.open(log.path, write=not self.readonly)
            log.writable = not self.readonly
        except FileNotFoundError:
            log.forget()
            raise SessionNotFound(log.session) from None
        except PermissionError:
            log.fd = self.disk.open(log.path)
            log.writable = False
        except OSError as error:
            if isinstance(problem(error, log.path), ReadOnlyStore):
                log.fd = self.disk.open(log.path)
                log.writable = False
            else:
                raise
        stat = self.disk.stat(log.fd)
        log.forget()
        log.inode = stat.inode
        return stat

    def _detach(self, log: Log) -> None:
        if log.fd is not None:
            self.disk.close(log.fd)
        log.fd = None
        log.depth = 0
        log.forget()

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """The kernel's errors as ours."""
        try:
            yield
        except HansardError:
            raise
        except OSError as error:
            raise problem(error, what) from error

    # -- folding

    def _fold(self, log: Log, size: int) -> Head:
        """Takes the head past all that is in the log up to `size`; `SessionNotFound` if that is no session."""
        fd = log.fd
        assert fd is not None
        if log.generation != self._generation or size < log.folded:
            log.unfold()
            log.generation = self._generation
            self._begin_fold(log, size)
            log.generation = self._generation  # the catalog may have been made anew meanwhile
        log.loose = None
        if size > log.folded:
            reader = Scan(log.folded, log.folded_state, log.folded_seq)
            at = log.folded
            while at < size:
                piece = self.disk.read(fd, min(PIECE, size - at), at)
                if not piece:
                    break
                at += len(piece)
                for record in reader.feed(piece):
                    self._advance(log, record)
                if reader.end - log.marked >= MARK:
                    log.marks.append((-1 if reader.seq is None else reader.seq + 1, reader.end))
                    log.marked = reader.end
                log.folded, log.folded_state = reader.end, reader.state or 0
                log.folded_seq = -1 if reader.seq is None else reader.seq
            log.damage += reader.damage
            loose = reader.finish()
            if loose and reader.unterminated:
                log.loose = loose[-1]
        if log.head is None:
            raise SessionNotFound(log.session)
        return log.head

    def _begin_fold(self, log: Log, size: int) -> None:
        """Where folding can begin: behind what the catalog knows, if the log agrees, else at the start."""
        row: Row | None = self._with(lambda catalog: catalog.row(log.session))
        if row is None or row.head is None:
            return
        log.n = row.n
        if self._agrees(log, row, size):
            log.head = row.head
            log.folded = log.saved = log.marked = row.length
            log.folded_state, log.folded_seq = row.state, row.head.seq
            log.damage = row.damage
            log.anew = False

    def _agrees(self, log: Log, row: Row, size: int) -> bool:
        assert log.fd is not None
        if not 19 < row.length <= size:
            return False
        return state_after(self.disk.read(log.fd, 19, row.length - 19)) == row.state

    def _advance(self, log: Log, record: Record) -> None:
        if log.head is None:
            if record.kind == "session":
                log.head = heads.begin(record)
                if log.head.id != log.session:
                    found, log.head = log.head.id, None
                    raise Damaged(
                        f"{log.path} is the log of session {found!r} under another name; rename it to "
                        f"{file_key(found)}.jsonl, or move it out of the store"
                    )
            else:  # the first line is illegible; what follows it stays readable
                log.head = Head(
                    id=log.session, seq=record.seq, created_at=record.when, updated_at=record.when
                )
                heads.advance(log.head, record)
        else:
            heads.advance(log.head, record)
        if record.id is not None:
            log.ids[record.id] = record.seq

    def _save(self, log: Log, *, open: bool = False) -> None:
        """Writes what was folded to the catalog."""
        head = log.head
        if head is None or (log.saved == log.folded and not open):
            return

        def work(catalog: Catalog) -> Row | None:
            catalog.save(
                head,
                length=log.folded,
                state=log.folded_state,
                damage=log.damage,
                ids=log.ids.items(),
                marks=log.marks,
                anew=log.anew,
                open=open,
            )
            return catalog.row(log.session) if log.n is None else None

        generation = self._generation
        row = self._with(work)
        if self._generation != generation:
            return  # the catalog was made anew and knows nothing; the next fold begins at the start
        if row is not None:
            log.n = row.n
        log.saved, log.anew = log.folded, False
        log.ids.clear()
        log.marks.clear()

    def _current(self, log: Log, *, save: bool = False) -> Head:
        """The head as of now. The caller has the log's mutex."""
        with self._told(log.path):
            stat = self._attach(log)
            head = self._fold(log, stat.size)
        if (save and log.saved != log.folded) or log.folded - max(log.saved, 0) > REFRESH:
            self._save(log)
        return head

    # -- reading

    def head(self, session: str) -> Head:
        self._alive()
        with self._using(session) as log:
            head = self._current(log)
            found = heads.copy(head)
            if log.loose is not None:
                heads.advance(found, log.loose)
            return found

    def damage(self, session: str) -> list[Damage]:
        self._alive()
        with self._using(session) as log:
            self._current(log)
            return list(log.damage)

    def find(self, session: str, id: str) -> Record | None:
        self._alive()
        with self._using(session) as log:
            self._current(log)
            return self._by_id(log, id)

    def _by_id(self, log: Log, id: str) -> Record | None:
        """The record with this id, read back from the log."""
        if log.loose is not None and log.loose.id == id:
            return log.loose
        seq = log.ids.get(id)
        n = log.n
        if seq is None and n is not None and not log.anew:
            seq = self._with(lambda catalog: catalog.seq_of(n, id))
        if seq is None:
            return None
        found = next(self.read(log.session, spans=[(seq, seq)]), None)
        return found if found is not None and found.id == id else None

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
        self._alive()
        with self._using(session) as log, self._told(log.path):
            head = self._current(log)
            if uid is not None and head.uid != uid:
                raise SessionNotFound(session, f"session {session!r} was deleted; another one has its id now")
            fd = self.disk.open(log.path)
            stat = self.disk.stat(fd)
            if stat.inode != log.inode:  # it was replaced between two looks
                self.disk.close(fd)
                self._detach(log)
                return self.read(
                    session, spans=spans, kinds=kinds, limit=limit, reverse=reverse, uid=uid, damage=damage
                )
            last_seq = head.seq if log.loose is None else log.loose.seq
        wanted = [(0, last_seq)] if spans is None else list(spans)
        found = self._wanted(log, fd, stat.size, wanted, reverse, damage)
        return _Stream(self, fd, log.path, found, kinds, limit)

    def _wanted(
        self,
        log: Log,
        fd: int,
        size: int,
        spans: Sequence[tuple[int, int]],
        reverse: bool,
        damage: list[Damage] | None,
    ) -> Iterator[Record]:
        if reverse:
            for a, b in reversed(spans):
                yield from self._backwards(log, fd, size, a, b, damage)
            return
        reader: Scan | None = None
        at = 0
        ready: deque[Record] = deque()
        for a, b in spans:
            while True:
                while ready and ready[0].seq < a:
                    ready.popleft()
                if ready:
                    if ready[0].seq > b:
                        break
                    yield ready.popleft()
                    continue
                if reader is not None and at >= size:
                    break
                if reader is None or (reader.seq is not None and reader.seq + 1 < a):
                    seq, offset = self._marks(log, a, 1)[0]
                    if reader is None or offset > at:
                        reader, at = self._reader(fd, seq, offset), offset
                elif reader.seq is not None and reader.seq >= b:
                    break
                seen = len(reader.damage)
                # a short span wants a short piece
                piece = self.disk.read(fd, min(PIECE if b - a > 100 else MARK, size - at), at)
                at = at + len(piece) if piece else size
                ready += reader.feed(piece)
                if at >= size:
                    ready += reader.finish()
                if damage is not None:
                    damage += reader.damage[seen:]

    def _backwards(
        self, log: Log, fd: int, size: int, a: int, b: int, damage: list[Damage] | None
    ) -> Iterator[Record]:
        stop = size
        while True:
            marks = self._marks(log, b, 16)
            for seq, offset in marks:
                reader = self._reader(fd, seq, offset)
                records: list[Record] = []
                at = offset
                while at < stop:
                    piece = self.disk.read(fd, min(PIECE, stop - at), at)
                    if not piece:
                        break
                    at += len(piece)
                    records += reader.feed(piece)
                    if reader.seq is not None and reader.seq >= b:
                        break
                else:
                    records += reader.finish()
                if damage is not None:
                    damage += reader.damage
                for record in reversed(records):
                    if record.seq < a:
                        return
                    if record.seq <= b:
                        yield record
                stop = offset
                if seq <= a or offset == 0:
                    return
                b = min(b, seq - 1)

    def _reader(self, fd: int, seq: int, offset: int) -> Scan:
        if offset == 0:
            return Scan()
        return Scan(offset, state_after(self.disk.read(fd, 19, offset - 19)), seq - 1)

    def _marks(self, log: Log, seq: int, limit: int) -> list[tuple[int, int]]:
        """Places at or before a record, nearest first; the last is the beginning of the log."""
        with log.mutex:
            near = [mark for mark in reversed(log.marks) if mark[0] <= seq][:limit]
            n = log.n
            if len(near) < limit and n is not None and not log.anew:
                near += self._with(lambda catalog: catalog.marks(n, seq, limit - len(near)))
        return near if len(near) == limit else [*near, (0, 0)]

    # -- lists

    def heads(self, query: Query) -> list[Head]:
        return self._listed(lambda catalog: catalog.heads(query))

    def count(self, query: Query) -> int:
        return self._listed(lambda catalog: catalog.count(query))

    def _listed(self, work: Callable[[Catalog], T]) -> T:
        while True:
            self._settle()
            generation = self._generation
            found = self._with(work)
            if generation == self._generation:
                return found  # else the catalog broke under it, and another one is to be filled first

    def _settle(self) -> None:
        """Brings every row that may be behind up to date."""
        self._alive()
        self._with(lambda catalog: None)  # opens it, and finds out whether it is to be trusted
        if not self._checked or self._in_memory:
            self._check()
        for session, touched in self._with(lambda catalog: catalog.open_ids()):
            with self._using(session) as log:
                try:
                    self._current(log, save=True)
                except SessionNotFound:
                    self._gone(session, touched)
                except (Damaged, NewerFormat, StoreUnavailable, ReadOnlyStore):
                    continue  # `doctor` says what is wrong with it
                else:
                    self._close_row(log)

    def _gone(self, session: str, touched: float) -> None:
        """A row without a log: a delete that was cut short, or a create that has not come so far yet."""
        if abs(time.time() - touched) > 60:
            self._with(lambda catalog: catalog.drop(session))
        else:
            self._with(lambda catalog: catalog.hide(session))

    def _close_row(self, log: Log) -> None:
        """The row is exact if nobody is writing: no lock file, and the append lock is free."""
        fd = log.fd
        if self.readonly or fd is None or not log.writable or log.depth or log.session in self._leases:
            return
        if log.loose is not None or not self.disk.lock(fd):
            return
        try:
            stat = self.disk.stat(fd)
            if self.disk.look(self._lock_path(log.session)) is None and stat.size == log.saved:
                self._with(lambda catalog: catalog.mark_closed(log.session, stat.size))
        finally:
            self.disk.unlock(fd)

    def _check(self) -> None:
        """Compares every row with its log, once after a reboot or when the catalog may be behind."""
        with self._told(self._path("sessions")):
            self._sweep()
            flag = self.disk.look(self._path("catalog.check"))
            known = self._with(lambda catalog: catalog.known())
            leased = set(self.disk.names(self._path("locks")))
            for session in self._sessions():
                log = Log(session, self._log_path(session))
                try:
                    with self._told(log.path):
                        stat = self._attach(log)
                        length, state = known.pop(session, (0, 0))
                        held = f"{file_key(session)}.lock" in leased
                        if not (
                            19 < length == stat.size
                            and log.fd is not None
                            and state_after(self.disk.read(log.fd, 19, length - 19)) == state
                        ):
                            self._fold(log, stat.size)
                            self._save(log, open=held)
                        elif held:
                            self._with(lambda catalog, id=session: catalog.mark_open(id))  # type: ignore[misc]
                except (SessionNotFound, Damaged, NewerFormat, StoreUnavailable, ReadOnlyStore):
                    continue
                finally:
                    self._detach(log)
            for session in known:
                if self.disk.look(self._log_path(session)) is None:
                    self._with(lambda catalog, id=session: catalog.drop(id))  # type: ignore[misc]
            if not self._in_memory:
                self._with(lambda catalog: catalog.state_fact("boot", self.disk.boot()))
                if flag is not None and not self.readonly:
                    with suppress(OSError):
                        self.disk.unlink(self._path("catalog.check"))
        self._checked = True

    def _sessions(self) -> Iterator[str]:
        """The ids of all logs in the folder; what is not ours is passed over."""
        for name in self.disk.names(self._path("sessions")):
            if not name.endswith(".jsonl"):
                continue
            key = name[:-6]
            id = id_of(key)
            if id is None and "=~" in key:
                id = self._written_id(self._path("sessions", name))
            if id is not None and file_key(id) == key:
                yield id

    def _written_id(self, path: str) -> str | None:
        """The id that a log itself gives, where its name is a hash."""
        fd = self.disk.open(path)
        try:
            first = next(iter(scan([self.disk.read(fd, MARK, 0)])), None)
        finally:
            self.disk.close(fd)
        return heads.begin(first).id if first is not None and first.kind == "session" else None

    # -- the catalog

    def _with(self, work: Callable[[Catalog], T], *, writing: bool = False) -> T:
        """Does something with the catalog; where it cannot be used, with one in memory. With `writing` a log
        is about to grow: if the catalog cannot know, a file tells everybody to compare."""
        while True:
            catalog = self._open_catalog()
            try:
                if writing and self._in_memory and not self.readonly:
                    self._leave_flag()
                return work(catalog)
            except sqlite3.Error as error:
                with self._mutex:
                    if self._in_memory and catalog is self._catalog:
                        raise StoreUnavailable(f"the catalog of {self.url}: {error}") from error
                    if catalog is self._catalog:
                        self._replace_catalog(error)

    def _leave_flag(self) -> None:
        path = self._path("catalog.check")
        if self.disk.look(path) is None:
            with self._told(path):
                self.disk.replace(path, b"")

    def _open_catalog(self) -> Catalog:
        with self._mutex:
            self._alive()
            path = self.disk.database(self._path("catalog.db"))
            if self._catalog is not None:
                if self._in_memory or path == ":memory:":
                    return self._catalog
                found = self.disk.look(path)
                if found is not None and found.inode == self._catalog_inode:
                    return self._catalog
                self._catalog.close()  # somebody took it away
                self._catalog = None
                self._generation += 1
            try:
                return self._try_catalog(path)
            except sqlite3.Error as error:
                return self._replace_catalog(error)

    def _try_catalog(self, path: str) -> Catalog:
        if path == ":memory:":
            self._catalog = Catalog(path)
            self._checked = False
            return self._catalog
        try:
            if self._catalog_lock is None:
                self._catalog_lock = self.disk.open(self._path("catalog.lock"), write=True, create=True)
                if not self.disk.lock(self._catalog_lock, shared=True):
                    self.disk.wait_lock(self._catalog_lock, "the catalog")
                    self.disk.lock(self._catalog_lock, shared=True)
            if self.disk.look(path) is None:
                self._fresh_catalog(path)
        except OSError as error:
            raise sqlite3.OperationalError(str(error)) from error
        catalog = Catalog(path)
        try:
            same = self._turn_over(catalog)
            found = self.disk.look(path)
        except BaseException:
            catalog.close()
            raise
        self._catalog, self._catalog_inode = catalog, 0 if found is None else found.inode
        self._checked = (
            same
            and catalog.fact("boot") == self.disk.boot()
            and self.disk.look(self._path("catalog.check")) is None
        )
        return catalog

    def _fresh_catalog(self, path: str) -> None:
        """An empty file, private from the beginning, and nothing beside it that belongs to an older one."""
        with self.disk.locked(self._path("locks/.root")):
            if self.disk.look(path) is not None:
                return
            for suffix in ("-wal", "-shm"):
                if self.disk.look(path + suffix) is not None:
                    self.disk.unlink(path + suffix)
            self.disk.close(self.disk.open(path, write=True, create=True))

    def _turn_over(self, catalog: Catalog) -> bool:
        """Whether this is the catalog that was used last: it and its lock file have the same token. Both get
        a new one, so that an old copy that somebody brings back is known."""
        fd = self._catalog_lock
        assert fd is not None
        with catalog.changing():
            same = self.disk.read(fd, 64, 0).decode("ascii", "replace") == catalog.fact("token")
            token = new_id()
            catalog.state_fact("token", token)
            self.disk.truncate(fd, 0)
            self.disk.write(fd, token.encode())
        return same

    def _replace_catalog(self, error: sqlite3.Error) -> Catalog:
        """Sets a catalog aside that cannot be understood and begins a new one, if nobody else has it open;
        else, and where it cannot be written or waited for, goes on with one in memory."""
        if self._catalog is not None:
            with suppress(sqlite3.Error):
                self._catalog.close()
            self._catalog = None
        self._generation += 1
        self._checked = False
        path = self._path("catalog.db")
        if _corrupt(error) and not self.readonly and self._catalog_lock is not None:
            try:
                if self.disk.lock(self._catalog_lock):
                    self.disk.make_folder(self._path("aside"))
                    if self.disk.look(path) is not None:
                        self.disk.rename(path, self._aside("catalog.db.corrupt"))
                    self._fresh_catalog(path)
                    self.disk.lock(self._catalog_lock, shared=True)
                    return self._try_catalog(path)
                self.disk.lock(self._catalog_lock, shared=True)
            except (OSError, sqlite3.Error):
                pass
        self._in_memory = True
        self._catalog = Catalog(":memory:", like=None if _corrupt(error) else path)
        return self._catalog

    # -- deleting

    def delete(self, session: str, *, uid: str | None = None, unless_input: bool = False) -> bool:
        self._writable()
        with self._using(session) as log:
            try:
                self._grab(log, uid)
            except SessionNotFound:
                if self.disk.look(log.path) is None:
                    self._with(lambda catalog: catalog.drop(session))
                return False
            try:
                if unless_input and self._fold(log, log.end).has_user_input:
                    return False
                with self._told(log.path):
                    self._with(lambda catalog: catalog.mark_open(session), writing=True)
                    self.disk.unlink(log.path)
                    self.disk.sync_folder(self._path("sessions"))
            finally:
                self._let_go(log)
            self._detach(log)
            self._with(lambda catalog: catalog.drop(session))
            return True

    # -- leases

    def lease(self, session: str, *, force: bool = False) -> FileLease:
        self._writable()
        path = self._lock_path(session)
        with self._mutex:
            mine = self._leases.get(session)
            if mine is not None:
                raise self._busy(session, mine.holder, force)
        deadline = time.monotonic() + GRACE
        with self._told(path):
            while True:
                fd = self.disk.open(path, write=True, create=True)
                try:
                    if self.disk.lock(fd):
                        found = self.disk.look(path)
                        if found is not None and found.inode == self.disk.stat(fd).inode:
                            return self._hold(session, path, fd)
                        continue  # it was given back between two looks
                    holder = self._holder_in(fd, session)
                finally:
                    if self._leases.get(session) is None or self._leases[session].fd != fd:
                        self.disk.close(fd)
                # whoever has just taken it writes in it who it is; who was there before may be dead
                if holder is not None or time.monotonic() > deadline:
                    raise self._busy(session, holder or Holder(session=session), force)
                time.sleep(0.001)

    def _hold(self, session: str, path: str, fd: int) -> FileLease:
        holder = Holder(session=session, since=datetime.now(UTC), **self.disk.process())
        with suppress(OSError):  # it only informs
            self.disk.truncate(fd, 0)
            self.disk.write(fd, msgspec.json.encode(holder) + b"\n")
        lease = FileLease(session, path, fd, holder)
        with self._mutex:
            self._leases[session] = lease
        return lease

    def _busy(self, session: str, holder: Holder, force: bool) -> SessionBusy:
        detail = f"it cannot be forced; end that process ({holder.pid}) to free it" if force else ""
        return SessionBusy(session, holder, detail)

    def _holder_in(self, fd: int, session: str | None) -> Holder | None:
        """Who says to hold a lock file; None where that is nobody who can be alive."""
        try:
            holder = msgspec.json.decode(self.disk.read(fd, 4096, 0), type=Holder)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        if session is not None and holder.session != session:
            return None
        here = self.disk.process()["host"]
        if holder.host == here and holder.pid is not None and not self.disk.alive(holder.pid, holder.started):
            return None
        return holder

    def release(self, session: str, lease: Any) -> None:
        if self.closed:
            return
        if lease is None:
            return self._make_exact(session)
        if lease.released:
            return
        lease.released = True
        try:
            if lease.marked:
                self._make_exact(session)
        finally:
            with self._mutex:
                if self._leases.get(session) is lease:
                    del self._leases[session]
            with suppress(OSError):
                found = self.disk.look(lease.path)
                if found is not None and found.inode == self.disk.stat(lease.fd).inode:
                    self.disk.unlink(lease.path)
            self.disk.close(lease.fd)

    def _make_exact(self, session: str) -> None:
        """The log is synced, and the catalog's row says all that is in it."""
        with self._using(session) as log:
            try:
                self._grab(log, None)
            except (SessionNotFound, ReadOnlyStore):
                return
            try:
                self._sync(log)
                self._fold(log, log.end)
                self._save(log)
                length = log.end
                self._with(lambda catalog: catalog.mark_closed(session, length))
            finally:
                self._let_go(log)

    def leases(self) -> list[Holder]:
        self._alive()
        return self._sweep()

    def _sweep(self) -> list[Holder]:
        """Who has what open; lock files that nobody holds are taken away."""
        held: list[Holder] = []
        folder = self._path("locks")
        for name in sorted(self.disk.names(folder)):
            if not name.endswith(".lock"):
                continue
            path = f"{folder}/{name}"
            session = id_of(name[:-5])
            with self._mutex:
                mine = next((lease for lease in self._leases.values() if lease.path == path), None)
            if mine is not None:
                held.append(mine.holder)
                continue
            try:
                fd = self.disk.open(path, write=not self.readonly)
            except OSError:
                continue
            try:
                if not self.readonly and self.disk.lock(fd):
                    found = self.disk.look(path)
                    if found is not None and found.inode == self.disk.stat(fd).inode:
                        self.disk.unlink(path)  # while it is held, so that nobody else's is meant
                    continue
                holder = self._holder_in(fd, session)
                if holder is None:
                    with suppress(msgspec.DecodeError, UnicodeDecodeError):
                        holder = msgspec.json.decode(self.disk.read(fd, 4096, 0), type=Holder)
                held.append(holder or Holder(session=session or name[:-5]))
            finally:
                self.disk.close(fd)
        return held

    # -- names

    def names(self, group: str) -> tuple[dict[str, Any], str]:
        self._alive()
        path = self._path("names", file_key(group) + ".json")
        with self._told(path):
            raw = self.disk.read_file(path)
        if raw is None:
            return {}, ""
        try:
            return _names_in(raw), f"{crc32(raw):08x}{len(raw)}"
        except ValueError:
            raise Damaged(
                f"{path} cannot be understood; it was left as it is. Set a name to begin it anew (the old file is "
                "then kept under aside/)"
            ) from None

    def set_names(self, group: str, names: dict[str, Any], *, expect: str) -> bool:
        self._writable()
        path = self._path("names", file_key(group) + ".json")
        with self._told(path):
            self.disk.make_folder(self._path("names"))
            with self.disk.locked(self._path("locks/.names")):
                raw = self.disk.read_file(path)
                version = "" if raw is None else f"{crc32(raw):08x}{len(raw)}"
                if raw is not None:
                    try:
                        _names_in(raw)
                    except ValueError:
                        self.disk.make_folder(self._path("aside"))
                        to = self._aside(f"names.{file_key(group)}.json.illegible")
                        self.disk.rename(path, to)
                        version = ""
                        warnings.warn(
                            f"{path} could not be understood and was set aside as {to}", HansardWarning, stacklevel=2
                        )
                if version != expect:
                    return False
                self.disk.replace(path, json.dumps({"names": names}, ensure_ascii=False).encode() + b"\n")
        return True

    # -- health

    def doctor(self) -> Iterator[Finding]:
        self._alive()
        with self._told(self.root):
            yield from self._examine()

    def _examine(self) -> Iterator[Finding]:
        self._settle()
        yield from self._foreign()
        for session in sorted(self._sessions()):
            log = Log(session, self._log_path(session))
            try:
                yield from self._examine_log(log)
            except (HansardError, OSError) as error:
                yield Finding(
                    kind="unreadable", session=session, place=log.path, detail=str(error),
                    remedy="the file was left as it is; bring it back from a copy, or move it out of the store",
                )
            finally:
                self._detach(log)
        if self._in_memory:
            yield Finding(
                kind="catalog", place=self._path("catalog.db"),
                detail="it cannot be used; lists are made from the logs each time",
                remedy="see that the folder can be written and that no other program has the file locked",
            )
        for name in sorted(self.disk.names(self._path("aside"))):
            yield Finding(
                kind="aside", place=self._path("aside", name),
                detail="was set aside because it could not be understood, or was left by a crash",
                remedy="look at it, and remove it when nothing in it is missed",
            )

    def _examine_log(self, log: Log) -> Iterator[Finding]:
        stat = self._attach(log)
        fd = log.fd
        assert fd is not None
        reader = Scan()
        head: Head | None = None
        at = 0
        while piece := self.disk.read(fd, min(PIECE, stat.size - at), at) if at < stat.size else b"":
            at += len(piece)
            for record in reader.feed(piece):
                if log.head is None:
                    self._advance(log, record)
                else:
                    heads.advance(log.head, record)
        length, state = reader.end, reader.state
        loose = reader.finish()
        head = log.head
        for wrong in reader.damage:
            yield Finding(
                kind="damage", session=log.session, place=f"{log.path}:{wrong.offset}", detail=str(wrong),
                remedy="what can be read is shown; bring the log back from a copy if one has what is missing",
            )
        if head is None:
            yield Finding(
                kind="unborn", session=log.session, place=log.path,
                detail="a log without a whole first line, left by a crash; it is no session",
                remedy="nothing was acknowledged; it is taken over when the session is created again",
            )
            return
        if loose or reader.torn:
            yield Finding(
                kind="torn", session=log.session, place=f"{log.path}:{reader.end}",
                detail="the last line lacks its newline" if loose else f"{reader.torn} bytes of a write that was cut short",
                remedy="nothing: the next write mends it",
            )
        row = self._with(lambda catalog: catalog.row(log.session))
        if row is None or row.head is None:
            yield self._wrong_row(log, "it does not list the session")
        elif not row.open and (row.length, row.state) != (length, state):
            yield self._wrong_row(log, f"it reflects {row.length} bytes of {length}")
        elif row.length == length and heads.dump(row.head) != heads.dump(head):
            yield self._wrong_row(log, "what it says of the session is not what the log says")

    def _wrong_row(self, log: Log, detail: str) -> Finding:
        return Finding(
            kind="catalog", session=log.session, place=self._path("catalog.db"), detail=detail,
            remedy="close what has the store open and delete catalog.db; it comes back",
        )

    def _foreign(self) -> Iterator[Finding]:
        ours = {"hansard.json", "sessions", "archive", "documents", "blobs", "names", "state", "locks", "aside",
                "namespaces", "catalog.db", "catalog.db-wal", "catalog.db-shm", "catalog.lock", "catalog.check"}
        for name in sorted(set(self.disk.names(self.root)) - ours - IGNORED):
            yield Finding(kind="foreign", place=self._path(name), detail="not ours; it was left as it is",
                          remedy="move it elsewhere, a store is a folder of its own")
        known = {file_key(session) + ".jsonl" for session in self._sessions()}
        for name in sorted(set(self.disk.names(self._path("sessions"))) - known - IGNORED):
            yield Finding(kind="foreign", place=self._path("sessions", name), detail="no log of ours; it was left as it is",
                          remedy="move it elsewhere, or give it its right name if it is a log")

    # -- the end

    @property
    def closed(self) -> bool:
        return self._closed or self.disk.inherited

    def close(self) -> None:
        if self.closed:
            return
        for lease in list(self._leases.values()):
            self.release(lease.session, lease)
        with self._mutex:
            logs = list(self._logs.values())
        for log in logs:
            with log.mutex:
                with suppress(HansardError, OSError):
                    if log.folded > max(log.saved, 0) and log.generation == self._generation:
                        self._save(log)
                self._detach(log)
        with self._mutex:
            self._logs.clear()
            self._closed = True
            if self._catalog is not None:
                with suppress(sqlite3.Error, OSError):
                    if not self._in_memory and self._catalog_lock is not None and self._checked:
                        self._turn_over(self._catalog)
                with suppress(sqlite3.Error):
                    self._catalog.close()
                self._catalog = None
            if self._catalog_lock is not None:
                self.disk.close(self._catalog_lock)
                self._catalog_lock = None


class _Stream(Iterator[Record]):
    """Records on their way out. The file is closed when they are through, or when nobody wants them."""

    def __init__(
        self, engine: Files, fd: int, path: str, records: Iterator[Record],
        kinds: Sequence[str] | None, limit: int | None,
    ) -> None:
        self._engine = engine
        self._fd: int | None = fd
        self._path = path
        self._records = records
        self._kinds = None if kinds is None else frozenset(kinds)
        self._left = limit

    def __next__(self) -> Record:
        if self._left == 0 or self._fd is None:
            self.close()
            raise StopIteration
        try:
            for record in self._records:
                if self._kinds is None or record.kind in self._kinds:
                    if self._left is not None:
                        self._left -= 1
                    return record
        except OSError as error:
            self.close()
            raise problem(error, self._path) from error
        self.close()
        raise StopIteration

    def close(self) -> None:
        if self._fd is not None:
            self._engine.disk.close(self._fd)
            self._fd = None

    def __del__(self) -> None:
        self.close()


def _names_in(raw: bytes) -> dict[str, Any]:
    names = json.loads(raw)["names"] if raw.strip() else None
    if not isinstance(names, dict):
        raise ValueError("no names in it")
    return names


def _corrupt(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) or 0
    return code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or "no such" in str(error)
