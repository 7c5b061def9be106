"""The file engine: one log a session, in a folder that can be read with a text editor.

What is written is specified in docs/format.md. All that touches the operating system goes through
`disk.py`; all that is derived stands in the catalog and is used only where the log agrees with it.
"""

from __future__ import annotations

import re
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from errno import EISDIR, ELOOP, ENOENT, ENXIO
from itertools import chain, count, islice
from typing import TYPE_CHECKING, Any, TypeVar
from zlib import crc32

from hansard.engines import Blob, Finding, Holder, Shelf, once, reentered, repeated, unexpected
from hansard.engines.catalog import Catalog
from hansard.engines.catalog_file import CatalogFile
from hansard.engines.disk import TEMPORARY, Disk, UnsureError, problem
from hansard.engines.leases import FileLease, Leases
from hansard.engines.logs import MARK, REFRESH, Log
from hansard.engines.watching import Watcher
from hansard.errors import (
    AlreadyExists,
    Closed,
    Damaged,
    HansardError,
    NewerFormat,
    NotAStore,
    ReadOnlyStore,
    SessionNotFound,
    StoreUnavailable,
    Unsupported,
)
from hansard.ids import file_key, id_of, is_hashed, new_id
from hansard.records import (
    FORMAT,
    TAIL,
    Damage,
    Draft,
    Record,
    Scan,
    decode,
    encode,
    frame,
    last,
    parse,
    seal,
    sealed_anew,
    stored,
)
from hansard.views import head as heads
from hansard.views import vacuum
from hansard.views.head import Head, Query

if TYPE_CHECKING:
    from hansard.engines.searching import Searcher
    from hansard.views import search as searching

T = TypeVar("T")

TOGETHER = 100
"""Logs that are entered into the catalog at once."""

SEALED = 19
"""Bytes at the end of a line that tell it from any other: its checksum, and what closes it."""

OPEN_FILES = 64
"""Logs that are kept open."""

BEGINNING = b'{"kind":"session","data":{'
"""How each log begins."""

NO_FILE = (EISDIR, ELOOP, ENXIO)
"""What the kernel says where a folder, a link or a pipe stands in the place of a file."""

IGNORED = frozenset({"hansard.json" + TEMPORARY, ".DS_Store", "lost+found"})
"""What may stand in a folder before it becomes a store."""


class HansardWarning(UserWarning):
    """Something was set aside or could not be done, and nothing was lost by it."""


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
        self.url = "file:" + _quoted(self.root)
        self._closed = False
        self._leased = False
        self._mutex = threading.RLock()
        self._logs: dict[str, Log] = {}
        self._namespaces: dict[str, Files] = {}
        self._uses = count()
        self._unread: set[str] = set()  # sessions of which somebody was told that they cannot be read
        with self._told(self.root):
            version = self._open_root(create=create, network=network)
        self.catalog = CatalogFile(self.disk, self.root, readonly=readonly, newer=version > FORMAT)
        self._searcher: Searcher | None = None
        self._leases = Leases(self.disk, self.path("locks"), readonly=readonly)
        self._watcher = Watcher(self.disk, self.path("sessions"), self.session_of)

    # -- the root

    def _open_root(self, *, create: bool, network: bool) -> int:
        """Sees that there is a store, and gives the version of its format."""
        kind = self.disk.network(self.root)
        if kind is not None and not network:
            raise Unsupported(
                f"{self.root} lies on a network file system ({kind}), whose locks and syncs cannot be "
                "trusted between machines; use a local folder or the server, or add ?network=yes to the "
                "URL (file:…?network=yes) if only one machine ever opens it"
            )
        if self.disk.look(self.root) is not None and not self.disk.is_folder(self.root):
            raise NotAStore(f"{self.root} is a file; a store is a folder of its own", path=self.root)
        raw = self.disk.read_file(self.path("hansard.json"))
        if raw is None:
            others = sorted(set(self.disk.names(self.root)) - IGNORED)
            raw = self.disk.read_file(self.path("hansard.json"))  # somebody may have begun it in between
        if raw is None:
            if others and not self._half_begun(others):
                listed = ", ".join(others[:3]) + (" …" if len(others) > 3 else "")
                raise NotAStore(
                    f"{self.root} has no hansard.json but other things in it ({listed}); it was left as it "
                    "is. Choose an empty or new folder, or bring hansard.json back if this was a store",
                    path=self.root,
                )
            if self.readonly or not create:
                raise NotAStore(
                    f"there is no store at {self.root} yet; the first session begins one",
                    path=self.root,
                    missing=True,
                )
            raw = self._begin_root()
        try:
            facts = decode(raw)
            version = facts["format"]
            if type(version) is not int or version < 1 or type(facts["store"]) is not str:
                raise ValueError
        except (ValueError, KeyError, TypeError, RecursionError):
            raise Damaged(
                f"{self.path('hansard.json')} cannot be understood; it was left as it is. It reads "
                f'{{"format":{FORMAT},"store":"…"}} in a sound store; bring it back from a copy'
            ) from None
        if version > FORMAT and not self.readonly:
            raise NewerFormat(
                f"{self.root} was written in format {version}; this version of hansard writes {FORMAT}. "
                "Install a newer version, or open it with readonly=True"
            )
        return version

    def _half_begun(self, names: list[str]) -> bool:
        """Whether a process died while it began a store here: our folders, and nothing in them."""
        ours = {"sessions", "names", "locks"}
        return set(names) <= ours and not any(
            set(self.disk.names(self.path(name))) - {".root"} for name in names
        )

    def _begin_root(self) -> bytes:
        for folder in ("", "sessions", "names", "locks"):
            self.disk.make_folder(self.path(folder) if folder else self.root)
        with self.disk.locked(self.path("locks/.root")):  # two processes may begin the same store
            path = self.path("hansard.json")
            raw = self.disk.read_file(path)
            if raw is None:
                raw = encode({"format": FORMAT, "store": "store_" + new_id()[5:]}) + b"\n"
                self.disk.replace(path, raw)
        return raw

    def path(self, *parts: str) -> str:
        """A path in the store."""
        return "/".join((self.root, *parts))

    def _log_path(self, session: str) -> str:
        return f"{self.root}/sessions/{file_key(session)}.jsonl"

    def new_log(self, session: str) -> Log:
        """A log of which nothing is known yet."""
        path = self._log_path(session)
        return Log(session, path, self.disk, self.catalog, readonly=self.readonly)

    def _alive(self) -> None:
        if self.disk.inherited:
            raise Closed(f"the store {self.url} was inherited through fork(); open it anew in this process")
        if self._closed:
            raise Closed(f"the store {self.url} is closed")

    def _may_write(self) -> None:
        if self._closed or self.disk.inherited:
            self._alive()
        if self.readonly:
            raise ReadOnlyStore(f"the store {self.url} was opened with readonly=True")

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """The kernel's errors as ours."""
        try:
            yield
        except HansardError:
            raise
        except OSError as error:
            raise problem(error, what) from error

    # -- writing

    def create(self, session: str, drafts: Sequence[Draft], *, lease: Any = None) -> list[Record]:
        self._may_write()
        named = any(draft.blobs for draft in drafts)
        with self._blobs_locked(shared=True) if named else nullcontext(), self._using(session) as log:
            self.catalog.use(lambda catalog: catalog.mark_open(session), writing=True)
            if lease is not None:
                lease.marked = True
            fd = self._take_new(log)
            try:
                records = self._write_first(log, fd, drafts)
                self.disk.sync_folder(self.path("sessions"))
            except BaseException as error:
                gone = self._undo(fd, log)
                if isinstance(error, OSError):
                    told = problem(error, log.path)
                    told.outcome_unknown = not gone
                    raise told from error
                raise
            return records

    def _undo(self, fd: int, log: Log) -> bool:
        """Takes away a log whose first write failed; whether it is gone, emptied at the least."""
        gone = False
        with suppress(OSError):
            self.disk.truncate(fd, 0)
            gone = True
        with suppress(OSError):
            self.disk.unlink(log.path)
            gone = True
        log.detach()
        return gone

    def put(
        self,
        session: str,
        drafts: Iterable[Draft],
        *,
        documents: Mapping[str, bytes] | None = None,
        lease: Any = None,
    ) -> int:
        self._may_write()
        with self._using(session) as log:
            self.catalog.use(lambda catalog: catalog.mark_open(session), writing=True)
            if lease is not None:
                lease.marked = True
            fd = self._take_new(log)  # an empty log does not exist, but keeps others from beginning it
            beside = log.path + TEMPORARY
            try:
                for name, data in (documents or {}).items():
                    self._replace(self._document_path(Shelf("documents", session), name), data)
                seq = self._write_beside(beside, drafts)
                self.disk.rename(beside, log.path)
                self.disk.sync_folder(self.path("sessions"))
            except BaseException as error:
                self._forget(beside)
                gone = self._undo(fd, log)
                with suppress(OSError):
                    self._drop_documents(session)
                if isinstance(error, OSError):
                    told = problem(error, log.path)
                    told.outcome_unknown = not gone
                    raise told from error
                raise
            log.detach()
            return seq

    def _write_beside(self, path: str, drafts: Iterable[Draft]) -> int:
        """A whole log in a file of its own, synced. Gives the last seq."""
        fd = self.disk.open(path, write=True, create=True)
        try:
            self.disk.truncate(fd, 0)
            seq, state, lines, size = -1, 0, [], 0
            for draft in drafts:
                seq = seq + 1 if draft.seq is None else draft.seq
                draft.seq, draft.sum = seq, None
                line, state = seal(encode(draft), state)
                lines.append(line)
                size += len(line)
                if size > REFRESH:
                    self.disk.write(fd, b"".join(lines))
                    lines, size = [], 0
            self.disk.write(fd, b"".join(lines))
            self.disk.sync(fd)
        finally:
            self.disk.close(fd)
        return seq

    def _forget(self, path: str) -> None:
        with suppress(OSError):
            self.disk.unlink(path)

    def rewrite(
        self, session: str, stretches: Sequence[Draft], *, expect: int, uid: str | None = None
    ) -> int:
        self._may_write()
        with self._using(session) as log:
            self._grab(log, uid)
            if log.seq != expect:
                raise unexpected(session, expect, log.seq)
            log.fold(log.end)
            if log.damage:
                raise Damaged(
                    f"{log.path} is damaged ({log.damage[0]}); nothing is taken out of it before that is "
                    "mended: see `hansard doctor --repair`"
                )
            if not stretches:
                return 0
            self.catalog.use(lambda catalog: catalog.mark_open(session), writing=True)
            beside = log.path + TEMPORARY
            before = log.end
            try:
                after = self._copy_but(log, stretches, beside)
                self.disk.rename(beside, log.path)
            except BaseException:
                self._forget(beside)
                raise
            try:
                self._sync_names("sessions")
            finally:
                log.detach()
            return before - after

    def _copy_but(self, log: Log, stretches: Sequence[Draft], path: str) -> int:
        """Writes a log again, line by line as it is, with one line for each stretch. Gives its length."""
        gone = [(vacuum.first(draft), draft) for draft in stretches]
        split = self._split(log, gone)
        fd = self.disk.open(path, write=True, create=True)
        try:
            self.disk.truncate(fd, 0)
            was = state = size = 0
            lines: list[bytes] = []
            for line in log.lines(log.end):
                found = last(line) or (parse(line).seq, 0)
                seq = found[0]
                if sealed_anew(line, was)[0] != line:
                    raise Damaged(f"{log.path}: record {seq} is not as it was written; nothing was changed")
                was = crc32(line, was)
                while gone and (gone[0][1].seq or 0) < seq:
                    gone.pop(0)
                if not gone or seq < gone[0][0]:
                    new, state = sealed_anew(line, state, alone=seq in split)
                elif seq == gone[0][1].seq:
                    draft = gone[0][1]
                    draft.at = parse(line).at
                    new, state = seal(encode(draft), state)
                else:
                    continue
                lines.append(new)
                size += len(new)
                if len(lines) > 1000 or len(new) > REFRESH:
                    self.disk.write(fd, b"".join(lines))
                    lines.clear()
            self.disk.write(fd, b"".join(lines))
            self.disk.sync(fd)
        finally:
            self.disk.close(fd)
        return size

    def _split(self, log: Log, gone: Sequence[tuple[int, Draft]]) -> set[int]:
        """The records that stay of batches of which some go."""
        touched: dict[tuple[int, int], list[bool]] = {}
        spans = [(first, draft.seq or 0) for first, draft in gone]
        for record in self._read(log, [(0, log.seq)]):
            if record.batch is not None and record.batch[1] > 1:
                goes = any(a <= record.seq <= b for a, b in spans)
                touched.setdefault(record.batch, []).append(goes)
        return {
            batch[0] + i
            for batch, going in touched.items()
            if any(going) and not all(going)
            for i, goes in enumerate(going)
            if not goes
        }

    def _take_new(self, log: Log) -> int:
        """Opens a log that nobody has begun, with its append lock held, and nothing beside it."""
        fd = self.take_unborn(log)
        self._drop_documents(log.session)  # a deletion was cut short
        return fd

    def take_unborn(self, log: Log) -> int:
        """The same, whatever stands beside it. What is in it is set aside."""
        while True:
            log.detach()
            self.disk.make_folder(self.path("sessions"))
            try:
                log.fd = fd = self.disk.open(log.path, write=True, create=True)
            except OSError as error:
                if error.errno in NO_FILE:
                    raise _in_the_way(log.path) from None
                raise
            log.depth = 1
            self.disk.wait_lock(fd, log.path)
            stat = self.disk.stat(fd)
            if not stat.plain:
                log.detach()
                raise _in_the_way(log.path)
            if stat.links:
                break
        log.inode, log.writable = stat.inode, True
        if stat.size:
            try:
                log.fold(stat.size)
            except SessionNotFound:  # a log without a whole first line does not exist
                raw = log.stretch(0, stat.size)
                if raw.strip(b"\0") and not raw.startswith(BEGINNING[: len(raw)]):
                    self._keep_aside(log.path, raw, "foreign")
                else:
                    self._set_aside(log, 0, stat.size)
                self.disk.truncate(fd, 0)
                log.forget()
            else:
                raise AlreadyExists(log.session)
        return fd

    def _drop_documents(self, session: str) -> None:
        """Takes the documents of a session away, so that none comes back to a later one of the same id."""
        path = self._shelf_path(Shelf("documents", session))
        if self.disk.look(path) is not None:
            self.disk.remove_folder(path)
            self.disk.sync_folder(self.path("documents"))

    def _write_first(self, log: Log, fd: int, drafts: Sequence[Draft]) -> list[Record]:
        """The session record stands alone, so that a batch behind it can be torn without it."""
        new, places = once(drafts)
        line, state = frame(new[:1], 0, 0)
        rest, state = frame(new[1:], 1, state) if len(new) > 1 else (b"", state)
        self.disk.write(fd, line + rest)
        self.disk.sync(fd)
        log.end = log.floor = log.synced = len(line) + len(rest)
        log.state, log.seq, log.tail = state, len(new) - 1, (line + rest)[-SEALED:]
        return [stored(new[i]) for i in places]

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
        if self._closed or self.readonly or self.disk.inherited:
            self._may_write()
        if lease is not None and lease.released:
            raise Closed(f"the lease of session {session!r} was given back")
        for draft in drafts:
            if draft.blobs:
                with self._blobs_locked(shared=True):  # no sweep has gone past the log and still goes on
                    return self._append(session, drafts, expect, durable, lease, uid)
        return self._append(session, drafts, expect, durable, lease, uid)

    def _append(
        self,
        session: str,
        drafts: Sequence[Draft],
        expect: int | None,
        durable: bool,
        lease: FileLease | None,
        uid: str | None,
    ) -> list[Record]:
        while True:  # as `_using` does it, without what a generator costs: most calls come here
            log = self._log(session)
            with log.mutex:
                if not self._may_use(log, session):
                    continue
                depth = log.depth
                try:
                    log.busy = True
                    return self._add(log, drafts, expect, durable, lease, uid)
                except HansardError:
                    raise
                except OSError as error:
                    raise problem(error, log.path) from error
                finally:
                    self._leave(log, depth)

    def _add(
        self,
        log: Log,
        drafts: Sequence[Draft],
        expect: int | None,
        durable: bool,
        lease: FileLease | None,
        uid: str | None,
    ) -> list[Record]:
        self._grab(log, uid)
        if len(drafts) == 1 and drafts[0].id is None:
            new, places, found = drafts, [0], {}
        else:
            new, places = once(drafts)
            found = self._found(log, new)
        missing = [draft for i, draft in enumerate(new) if i not in found] if found else new
        if missing:
            if expect is not None and expect != log.seq:
                raise unexpected(log.session, expect, log.seq)
            if lease is None or not lease.marked:
                self._will_grow(log, lease)
            before = log.end
            self._write(log, missing, durable)
            if not found:
                records = [stored(draft) for draft in missing]
                log.follow(records, before)
                self._keep_up(log)
                return records if len(places) == len(records) else [records[i] for i in places]
            self._keep_up(log)
        elif durable:
            self._sync(log)
        return [found[i] if i in found else stored(new[i]) for i in places]

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
                raise self._cut_back(log, end, error, "syncing") from error
            log.floor = log.synced = end + len(data)
        log.end, log.state, log.tail = end + len(data), state, data[-SEALED:]
        log.seq += len(drafts)

    def _keep_up(self, log: Log) -> None:
        """What is known of the log goes on with it, a little at a time, so that no append waits for much and
        no list finds much to read. The records are written, whatever comes of it."""
        if log.end - log.folded > MARK:
            with suppress(HansardError):
                log.fold(log.end)
        if log.unsaved > REFRESH:
            with suppress(HansardError):
                log.save()

    def _cut_back(self, log: Log, end: int, error: OSError, doing: str) -> HansardError:
        """What a failed write left is taken away. After a failed sync nobody knows what the disk has of all
        that was not synced before, so whoever wrote it opens the session anew."""
        fd = log.fd
        assert fd is not None
        told = problem(error, f"{doing} {log.path}")
        try:
            self.disk.truncate(fd, end)
            if doing == "syncing":
                self._sync_anew(log, end)
        except OSError:
            told.outcome_unknown = True
        if doing == "syncing" or told.outcome_unknown:
            told.closes = True
            log.detach()
        else:
            log.end = -1
        return told

    def _sync_anew(self, log: Log, end: int) -> None:
        """After a failed sync the kernel may take what it could not write for written. What is not known to
        be synced is written once more, so that the next sync is an honest one: another process may have
        synced it, and told somebody. Where that fails too, it goes."""
        fd, floor = log.fd, log.floor
        assert fd is not None
        try:
            if floor < end:
                self.disk.rewrite(log.path, floor, log.stretch(floor, end))
            self.disk.sync(fd)
        except OSError:
            self.disk.truncate(fd, floor)
            self.disk.sync(fd)

    def flush(self, session: str) -> None:
        self._may_write()
        with self._using(session) as log:
            self._grab(log, None)
            self._sync(log)

    def _sync(self, log: Log) -> None:
        """Everything in the log is durable. Called under the append lock."""
        if log.synced == log.end:
            return
        assert log.fd is not None
        try:
            self.disk.sync(log.fd)
        except OSError as error:
            raise self._cut_back(log, log.end, error, "syncing") from error
        log.floor = log.synced = log.end

    def _found(self, log: Log, drafts: Sequence[Draft]) -> dict[int, Record]:
        """The records that are there already under the ids of drafts, read back from the log."""
        found: dict[int, Record] = {}
        for i, draft in enumerate(drafts):
            if draft.id is not None:
                log.fold(log.end)
                first = self._by_id(log, draft.id)
                if first is not None:
                    found[i] = repeated(log.session, draft, first)
        return found

    def _will_grow(self, log: Log, lease: FileLease | None) -> None:
        """Tells the catalog, before the first byte, that its row will be behind. Under the append lock,
        so that nobody can find it exact meanwhile."""
        session = log.session
        if lease is None:
            known = self.catalog.use(lambda catalog: catalog.is_open(session))
            if not known or self.catalog.in_memory:
                self.catalog.use(lambda catalog: catalog.mark_open(session), writing=True)
        elif not lease.marked:
            self.catalog.use(lambda catalog: catalog.mark_open(session), writing=True)
            lease.marked = True

    @contextmanager
    def alone(self, session: str) -> Iterator[None]:
        self._may_write()
        with self._using(session) as log:
            self._grab(log, None)
            try:
                log.busy = False  # whoever is alone with it goes on to use it
                yield
            finally:
                log.busy = True

    # -- the append lock

    def _grab(self, log: Log, uid: str | None) -> None:
        """Takes the append lock, and knows the log's end when it has it."""
        if log.depth:
            log.depth += 1
        else:
            self._lock(log)
        if uid is not None and log.head is not None and log.head.uid != uid:
            raise _replaced(log.session)

    def _lock(self, log: Log) -> None:
        while True:
            if log.fd is None:
                log.attach()
            if not log.writable:
                log.detach()  # it may be by now
                log.attach()
            fd = log.fd
            assert fd is not None
            if not log.writable:
                raise ReadOnlyStore(f"{log.path} cannot be written; see to its permissions")
            log.depth = 1  # before it is so: to give back what one does not have is harmless
            if not self.disk.lock(fd):
                self.disk.wait_lock(fd, log.path)
            links, size = self.disk.extent(fd)
            if links:
                break
            log.detach()
        end = log.end
        if size != end or log.head is None or self.disk.read(fd, SEALED, end - SEALED) != log.tail:
            self._catch_up(log, size)
            log.tail = self.disk.read(fd, SEALED, log.end - SEALED)

    def _let_go(self, log: Log, depth: int) -> None:
        """Gives the append lock back, but for those who had it before."""
        if log.depth > depth:
            log.depth = depth
            if not depth and log.fd is not None:
                try:  # noqa: SIM105  # every append comes here
                    self.disk.unlock(log.fd)
                except OSError:
                    pass

    def _catch_up(self, log: Log, size: int) -> None:
        """Learns where the log ends, and takes away what a crash left. Under the append lock."""
        fd = log.fd
        assert fd is not None
        if log.head is not None and log.end < size and log.agrees(log.end, log.state, size):
            found = last(self.disk.read(fd, TAIL, max(0, size - TAIL)))
            if found is not None and found[0] > log.seq:
                log.seq, log.state = found
                log.end = log.floor = size
                return
        log.fold(size)
        if log.folded < size:
            self._set_aside(log, log.folded, size)
        if (
            log.folded and self.disk.read(fd, 1, log.folded - 1) != b"\n"
        ):  # the last line is whole but for that
            if size >= log.folded:
                self.disk.truncate(fd, log.folded - 1)
            self.disk.write(fd, b"\n")
        elif log.folded < size:
            self.disk.truncate(fd, log.folded)
        log.end = log.floor = log.folded
        log.state, log.seq = log.folded_state, log.folded_seq

    def _set_aside(self, log: Log, start: int, stop: int) -> None:
        """Keeps a copy of what a crash left of a write. Bytes that are all zero say nothing."""
        torn = log.stretch(start, stop)
        if torn.strip(b"\0"):
            self.disk.make_folder(self.path("aside"))
            self.disk.replace(self.aside(f"{file_key(log.session)}.torn"), torn)

    def aside(self, name: str) -> str:
        """A path for something set aside, which says when and why."""
        return self.path("aside", f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}.{name}")

    # -- the logs that are known

    @contextmanager
    def _using(self, session: str) -> Iterator[Log]:
        """What is known of a log, with its mutex taken. Whatever interrupts the caller, Ctrl-C included, the
        append lock is given back at the end."""
        while True:
            log = self._log(session)
            with log.mutex:
                if not self._may_use(log, session):
                    continue
                depth = log.depth
                try:
                    log.busy = True
                    yield log
                    return
                except HansardError:
                    raise
                except OSError as error:
                    raise problem(error, log.path) from error
                finally:
                    self._leave(log, depth)

    def _may_use(self, log: Log, session: str) -> bool:
        """Whether it is still the log that is known under this name; it may have been put out of the cache in
        between. Who has its mutex asks, and must not be a signal handler of who is at it."""
        if log.busy:
            raise reentered(session)
        return self._logs.get(session) is log

    def _leave(self, log: Log, depth: int) -> None:
        """The append lock is given back, but for those who had it before."""
        log.busy = False
        try:
            self._let_go(log, depth)
        except BaseException:  # the same again: Ctrl-C may come here too
            self._let_go(log, depth)
            raise

    def _log(self, session: str) -> Log:
        """What is known of a log, kept among those used last."""
        if self._closed or self.disk.inherited:
            self._alive()
        if self.catalog.users and self.catalog.busy:
            # who waits for the catalog has a log, so who has the catalog must not wait for a log
            raise reentered(session)
        log = self._logs.get(session)
        if log is None:
            with self._mutex:
                log = self._logs.setdefault(session, self.new_log(session))
                if len(self._logs) > OPEN_FILES:
                    self._put_out(log)
        log.used = next(self._uses)
        return log

    def _put_out(self, but: Log) -> None:
        """Closes logs that nobody has used for long. Only those that no thread is at."""
        for session, log in sorted(self._logs.items(), key=lambda known: known[1].used):
            if len(self._logs) <= OPEN_FILES:
                return
            if log is not but and log.depth == 0 and log.mutex.acquire(blocking=False):
                try:
                    with suppress(HansardError):
                        if log.unsaved > MARK:
                            log.save()
                    log.detach()
                    del self._logs[session]
                finally:
                    log.mutex.release()

    def _current(self, log: Log, *, save: bool = False) -> Head:
        """The head as of now. The caller has the log's mutex."""
        head = log.fold(log.attach().size)
        if log.unsaved and (save or log.unsaved > REFRESH):
            log.save()
        return head

    # -- reading

    def head(self, session: str) -> Head:
        with self._using(session) as log:
            return heads.copy(self._current(log))

    def damage(self, session: str) -> list[Damage]:
        with self._using(session) as log:
            self._current(log)
            return list(log.damage)

    def find(self, session: str, id: str, *, uid: str | None = None) -> Record | None:
        with self._using(session) as log:
            if uid is not None and self._current(log).uid != uid:
                raise _replaced(session)
            self._current(log)
            return self._by_id(log, id)

    def size(self, session: str) -> int:
        self._alive()
        path = self._shelf_path(Shelf("documents", session))
        with self._told(path):
            found = [self.disk.look(self._log_path(session))]
            found += [self.disk.look(f"{path}/{name}") for name in self.disk.names(path)]
        return sum(stat.size for stat in found if stat is not None)

    def _by_id(self, log: Log, id: str) -> Record | None:
        """The record with this id, read back from the log."""
        seq = log.seq_of(id)
        if seq is None:
            return None
        try:
            found = next(self._read(log, [(seq, seq)]), None)
        except (FileNotFoundError, _ReplacedError):
            raise SessionNotFound(log.session) from None
        return found if found is not None and id in vacuum.ids(found) else None

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
        while True:
            with self._using(session) as log:
                head = self._current(log)
                if uid is not None and head.uid != uid:
                    raise _replaced(session)
                wanted = [(0, head.seq)] if spans is None else spans
                try:
                    found = self._read(log, wanted, kinds=kinds, reverse=reverse, damage=damage)
                except FileNotFoundError:
                    raise SessionNotFound(session) from None
                except _ReplacedError:
                    log.detach()
                    continue
            return found if limit is None else islice(found, limit)

    def _read(
        self,
        log: Log,
        spans: Sequence[tuple[int, int]],
        *,
        kinds: Sequence[str] | None = None,
        reverse: bool = False,
        damage: list[Damage] | None = None,
    ) -> Iterator[Record]:
        """Streams records from a file of its own, so that no lock is held meanwhile."""
        fd = self.disk.open(log.path)
        stat = self.disk.stat(fd)
        file = _File(self.disk, fd, log.path)
        if stat.inode != log.inode:
            raise _ReplacedError
        way = log.backwards if reverse else log.forwards
        return chain.from_iterable(_through(file, way(fd, stat.size, spans, damage), kinds))

    # -- lists

    def heads(self, query: Query) -> list[Head]:
        return self._listed(lambda catalog: catalog.heads(query))

    def count(self, query: Query) -> int:
        return self._listed(lambda catalog: catalog.count(query))

    def _listed(self, work: Callable[[Catalog], T]) -> T:
        while True:
            generation = self.catalog.generation
            self.settle()
            found = self.catalog.use(work)
            if generation == self.catalog.generation:
                return found  # else the catalog broke under it, and another one is to be filled first

    def settle(self) -> None:
        """Brings every row that may be behind up to date."""
        self._alive()
        if self.catalog.behind():
            with self._told(self.path("sessions")):
                self._check()
        for session, touched in self.catalog.use(lambda catalog: catalog.open_ids()):
            try:
                with self._using(session) as log:
                    self._current(log, save=True)
                    self._close_row(log)
            except SessionNotFound:
                self._gone(session, touched)
            except (Damaged, NewerFormat, StoreUnavailable, ReadOnlyStore) as error:
                self._warn_unread(session, error)

    def _warn_unread(self, session: str, error: HansardError) -> None:
        """A list goes on without a session that cannot be read, or shows how it was; that is said once."""
        if session not in self._unread:
            self._unread.add(session)
            told = f"session {session!r} cannot be read, and lists show at most how it once was: {error}"
            warnings.warn(f"{told} (`hansard doctor` says more)", HansardWarning, stacklevel=2)

    def _gone(self, session: str, touched: float) -> None:
        """A row without a log: a delete that was cut short, or a create that has not come so far yet."""
        if abs(time.time() - touched) > 60:
            self.catalog.use(lambda catalog: catalog.drop(session, touched=touched))
        else:
            self.catalog.use(lambda catalog: catalog.hide(session, touched=touched))

    def _close_row(self, log: Log) -> None:
        """The row is exact if nobody is writing: no lock file, and the append lock is free."""
        fd = log.fd
        if self.readonly or fd is None or not log.writable or log.depth:
            return
        if not self.disk.lock(fd):
            return
        try:
            stat = self.disk.stat(fd)
            if stat.size == log.saved and self._leases.free(log.session):
                self.catalog.use(lambda catalog: catalog.mark_closed(log.session, stat.size))
        finally:
            self.disk.unlock(fd)

    def _check(self) -> None:
        """Compares every row with its log: after a reboot, and whenever the catalog may be behind."""
        generation = self.catalog.checking()
        known = self.catalog.use(lambda catalog: catalog.known())
        folded: list[tuple[Log, bool]] = []
        for session in self.sessions():
            log = self.new_log(session)
            try:
                with self._told(log.path):
                    stat = log.attach()
                    length, state, _ = known.pop(session, (0, 0, 0.0))
                    held = not self._leases.free(session)
                    if length != stat.size or not log.agrees(length, state, stat.size):
                        log.fold(stat.size)
                        folded.append((log, held))
                        if len(folded) == TOGETHER:
                            self._save(folded)
                    elif held:
                        self.catalog.use(lambda catalog, id=session: catalog.mark_open(id))  # type: ignore[misc]
            except SessionNotFound:
                continue
            except Damaged as error:
                self._warn_unread(session, error)
            except (NewerFormat, StoreUnavailable, ReadOnlyStore) as error:
                self._warn_unread(session, error)
                # the next list tries again
                self.catalog.use(lambda catalog, id=session: catalog.mark_open(id))  # type: ignore[misc]
            finally:
                if not folded or folded[-1][0] is not log:
                    log.detach()
        self._save(folded)
        for session, (_, _, touched) in known.items():
            if self.disk.look(self._log_path(session)) is None:
                self._gone(session, touched)
        self.catalog.checked(generation)

    def _save(self, folded: list[tuple[Log, bool]]) -> None:
        """Writes the rows of several logs in one transaction: that is what one of them alone takes longest
        for. Nothing is left in the list."""

        def work(catalog: Catalog) -> None:
            with catalog.together():
                for log, held in folded:
                    with self._told(log.path):
                        log.save(open=held)

        try:
            self.catalog.use(work)
        finally:
            for log, _ in folded:
                log.detach()
            folded.clear()

    def search(
        self, query: searching.Query, told: Callable[[int, int], None] | None = None
    ) -> list[searching.Found]:
        self._alive()
        with self._told(self.path("search.db")):
            return self.searcher().search(query, told)

    def searcher(self) -> Searcher:
        """What searches the logs."""
        with self._mutex:
            if self._searcher is None:
                from hansard.engines.searching import Searcher  # it takes a while, and few ask for it

                self._searcher = Searcher(self)
            return self._searcher

    def sessions(self) -> Iterator[str]:
        self._alive()
        with self._told(self.path("sessions")):
            names = self.disk.names(self.path("sessions"))
        for name in sorted(names):  # what is not ours is passed over
            if not name.endswith(".jsonl"):
                continue
            id = self.session_of(name)
            if id is not None:
                yield id

    def session_of(self, name: str) -> str | None:
        """The session whose log has this name; None where it is not ours."""
        key = name.removesuffix(".jsonl")
        id = id_of(key)
        if id is None and is_hashed(key):
            id = self._written_id(self.path("sessions", name), key) or self._known_id(key)
        return id if id is not None and file_key(id) == key else None

    def _written_id(self, path: str, key: str) -> str | None:
        """The id that a log itself gives in its first record, where its name is a hash."""
        try:
            fd = self.disk.open(path)
        except OSError as error:
            if error.errno in (ENOENT, *NO_FILE):
                return None  # it was deleted in between, or is none of ours
            raise
        try:
            if not self.disk.stat(fd).plain:
                return None
            piece = self.disk.read(fd, MARK, 0)
            with suppress(ValueError, RecursionError):
                id = _id_in(parse(piece[: piece.find(b"\n") + 1]))
                if id is not None and file_key(id) == key:
                    return id
            reader, at = Scan(), 0  # it may stand behind something illegible
            records: list[Record] = []
            while piece and not records:
                at += len(piece)
                records = reader.feed(piece)
                piece = self.disk.read(fd, MARK, at)
            id = next(map(_id_in, records or reader.finish()), None)
            if id is not None and file_key(id) == key:
                return id
        except NewerFormat:
            pass
        finally:
            self.disk.close(fd)
        return None

    def _known_id(self, key: str) -> str | None:
        """The id behind a hashed name that the log does not say any more, if it was listed before."""
        with suppress(HansardError):
            known = self.catalog.use(lambda catalog: catalog.known())
            return next((id for id in known if file_key(id) == key), None)
        return None

    # -- deleting

    def delete(self, session: str, *, uid: str | None = None, unless_input: bool = False) -> bool:
        self._may_write()
        with self._using(session) as log:
            try:
                self._grab(log, uid)
            except SessionNotFound:
                return False
            except (Damaged, NewerFormat):
                if uid is not None or unless_input or log.fd is None or not log.depth:
                    raise  # else it is deleted as it is, whatever it says
            shelf = Shelf("documents", session)
            if unless_input and not (heads.is_bare(log.fold(log.end)) and not self.documents(shelf)):
                return False
            touched = self.catalog.use(lambda catalog: catalog.mark_open(session), writing=True)
            self.disk.unlink(log.path)
            self._sync_names("sessions")
            log.detach()
            with suppress(OSError):  # whoever begins a session of that id takes away what is left
                if self.disk.look(log.path) is None:
                    self._drop_documents(session)
            # not if somebody has begun a session of that id meanwhile
            self.catalog.use(lambda catalog: catalog.drop(session, touched=touched))
            return True

    # -- leases

    def lease(self, session: str, *, force: bool = False) -> FileLease:
        self._may_write()
        self._leased = True
        with self._told(self.path("locks")):
            return self._leases.take(session, force=force)

    def release(self, session: str, lease: Any) -> None:
        if self.closed or (lease is not None and lease.released):
            return
        try:
            if lease is None or lease.marked:
                self._make_exact(session)
        finally:
            if lease is not None:
                lease.released = True
                self._leases.give_back(lease)

    def _make_exact(self, session: str) -> None:
        """The log is synced, and the catalog's row says all that is in it."""
        with self._using(session) as log:
            try:
                self._grab(log, None)
            except (SessionNotFound, ReadOnlyStore):
                return
            self._sync(log)
            log.fold(log.end)
            log.save()
            # a lease that another process has keeps the row open: it may write without a look at it
            mine = [lease for lease in self._leases.mine() if lease.session == session]
            if mine or self._leases.free(session):
                length = log.end
                for lease in mine:  # whoever goes on with it says so again before the next write
                    lease.marked = False
                self.catalog.use(lambda catalog: catalog.mark_closed(session, length))

    def leases(self) -> list[Holder]:
        self._alive()
        with self._told(self.path("locks")):
            return self._leases.sweep()

    # -- documents

    def _shelf_path(self, shelf: Shelf) -> str:
        key = f"/{file_key(shelf.session)}" if shelf.kind == "documents" else ""
        return f"{self.root}/{shelf.kind}{key}"

    def _document_path(self, shelf: Shelf, name: str) -> str:
        end = "" if shelf.kind == "documents" else ".json"
        return f"{self._shelf_path(shelf)}/{file_key(name)}{end}"

    def document(self, shelf: Shelf, name: str) -> tuple[bytes, str] | None:
        self._alive()
        path = self._document_path(shelf, name)
        with self._told(path):
            raw = self.disk.read_file(path)
        return None if raw is None else (raw, _version(raw))

    def documents(self, shelf: Shelf) -> list[str]:
        self._alive()
        folder = self._shelf_path(shelf)
        end = "" if shelf.kind == "documents" else ".json"
        found: list[str] = []
        with self._told(folder):
            for file in self.disk.names(folder):
                key = file[: len(file) - len(end)]
                if not file.endswith(end) or file.endswith(TEMPORARY):
                    continue
                name = id_of(key)
                if name is None and "=~" in key:
                    name = self._written_name(f"{folder}/{file}")
                if name is not None and file_key(name) == key:
                    found.append(name)
        return sorted(found)

    def _written_name(self, path: str) -> str | None:
        """The name that a document itself gives in its first line, where that of its file is a hash."""
        try:
            first = decode((self.disk.read_file(path) or b"").split(b"\n", 1)[0])
        except (ValueError, RecursionError):
            return None
        name = first.get("name") if isinstance(first, dict) else None
        return name if isinstance(name, str) else None

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
        path = self._document_path(shelf, name)
        self._may_write()
        named = self._blobs_locked(shared=True) if _names_blob(data) else nullcontext()
        with named, self._shelf_locked(shelf, uid):
            raw = self.disk.read_file(path) if expect is not None or aside else None
            if expect is not None and expect != ("" if raw is None else _version(raw)):
                return None
            if raw is not None and aside:
                self._keep_aside(path, raw, aside)
            self._replace(path, data)
        return _version(data)

    def drop_document(
        self, shelf: Shelf, name: str, *, expect: str | None = None, uid: str | None = None
    ) -> bool:
        path = self._document_path(shelf, name)
        with self._shelf_locked(shelf, uid):
            if self.disk.look(path) is None:
                return False
            if expect is not None and expect != _version(self.disk.read_file(path) or b""):
                return False
            self.disk.unlink(path)
            self._sync_names(self._shelf_path(shelf).removeprefix(self.root + "/"))
        return True

    def _sync_names(self, folder: str) -> None:
        """Makes a change of names last that was made already."""
        try:
            self.disk.sync_folder(self.path(folder))
        except OSError as error:
            raise UnsureError(error.errno, error.strerror, self.path(folder)) from error

    @contextmanager
    def _shelf_locked(self, shelf: Shelf, uid: str | None) -> Iterator[None]:
        """Nobody else writes there meanwhile. For documents of a session that is its append lock, under which
        it is known to exist, and all that it said before is made durable."""
        self._may_write()
        if shelf.kind == "documents":
            with self._using(shelf.session) as log:
                self._grab(log, uid)
                if uid is not None and log.fold(log.end).uid != uid:
                    raise _replaced(shelf.session)
                self._sync(log)
                yield
            return
        with self._told(self._shelf_path(shelf)):
            self.disk.make_folder(self.path("locks"))
            with self.disk.locked(self.path(f"locks/.{shelf.kind}")):
                yield

    def _replace(self, path: str, data: bytes) -> None:
        self.disk.make_folder(path.rpartition("/")[0])
        self.disk.replace(path, data)

    def _keep_aside(self, path: str, raw: bytes, why: str) -> None:
        """A copy of what is about to be replaced because it could not be understood."""
        self.disk.make_folder(self.path("aside"))
        to = self.aside(f"{path.removeprefix(self.root + '/').replace('/', '.')}.{why}")
        self.disk.replace(to, raw)
        told = f"{path} could not be understood; a copy of it was set aside as {to}"
        warnings.warn(told, HansardWarning, stacklevel=2)

    # -- blobs

    def blob_path(self, digest: str) -> str:
        return f"{self.root}/blobs/{digest[:2]}/{digest}"

    def put_blob(self, data: bytes) -> str:
        from hashlib import sha256

        self._may_write()
        digest = sha256(data).hexdigest()
        path = self.blob_path(digest)
        with self._told(path), self._blobs_locked(shared=True):
            if self.disk.look(path) is not None and self.disk.read_file(path) == data:
                self.disk.touch(path)
                self.disk.sync_folder(path.rpartition("/")[0])  # who put it may not have come so far yet
            else:
                beside = f"{path}.{new_id()[5:]}{TEMPORARY}"  # several may put the same at once
                self.disk.make_folder(path.rpartition("/")[0])
                self.disk.replace(path, data, beside=beside)
        return digest

    @contextmanager
    def _blobs_locked(self, *, shared: bool) -> Iterator[None]:
        with ExitStack() as held:
            with self._told(self.path("blobs")):
                self.disk.make_folder(self.path("blobs"))
                held.enter_context(self.disk.locked(self.path("blobs/.lock"), shared=shared))
            yield

    def blob(self, digest: str) -> bytes | None:
        from hashlib import sha256

        self._alive()
        path = self.blob_path(digest)
        with self._told(path):
            data = self.disk.read_file(path)
        if data is not None and sha256(data).hexdigest() != digest:
            raise Damaged(f"{path} is not what its name says; put the same bytes again, and it is mended")
        return data

    def blobs(self) -> Iterator[Blob]:
        """All of them, in order."""
        for folder in sorted(self.disk.names(self.path("blobs"))):
            if len(folder) == 2:
                for name in sorted(self.disk.names(self.path("blobs", folder))):
                    found = self.disk.look(self.blob_path(name)) if _is_digest(name) else None
                    if found is not None:
                        yield Blob(name, found.size, datetime.fromtimestamp(found.changed, UTC))

    def sweep_blobs(
        self, before: datetime, needed: Callable[[set[str]], set[str]], *, dry_run: bool = False
    ) -> list[Blob]:
        self._may_write()
        with self._told(self.path("blobs")):
            if self.disk.look(self.path("blobs")) is None:
                return []
            with self._blobs_locked(shared=False):
                old = {blob.digest: blob for blob in self.blobs() if blob.touched < before}
                swept = sorted(set(old) - needed(set(old))) if old else []
                for digest in () if dry_run else swept:
                    self.disk.unlink(self.blob_path(digest))
        return [old[digest] for digest in swept]

    # -- tenants

    def namespace(self, name: str, *, create: bool = True) -> Files:
        self._alive()
        with self._mutex:
            found = self._namespaces.get(name)
            if found is None or found.closed:
                path = self.path("namespaces", file_key(name))
                found = Files(path, disk=self.disk, readonly=self.readonly, create=create, network=True)
                self._namespaces[name] = found
            return found

    # -- following

    def watch(
        self, changed: Callable[[str | None], None], *, session: str | None = None
    ) -> Callable[[], None]:
        self._alive()
        with self._told(self.path("sessions")):
            return self._watcher.watch(changed, session)

    # -- health and the end

    def keep_copy(self, log: Log, why: str) -> None:
        """A copy of a whole log under aside/."""
        self.disk.make_folder(self.path("aside"))
        self._write_lines(self.aside(f"{file_key(log.session)}.{why}"), log.lines(log.end))
        self.disk.sync_folder(self.path("aside"))

    def replace_log(self, log: Log, lines: Iterable[bytes]) -> None:
        """Puts another log in the place of one. Under the append lock and the lease."""
        self.catalog.use(lambda catalog: catalog.mark_open(log.session), writing=True)
        beside = log.path + TEMPORARY
        try:
            self._write_lines(beside, lines)
            self.disk.rename(beside, log.path)
        except BaseException:
            self._forget(beside)
            raise
        log.detach()
        self.disk.sync_folder(self.path("sessions"))

    def _write_lines(self, path: str, lines: Iterable[bytes]) -> None:
        fd = self.disk.open(path, write=True, create=True)
        try:
            self.disk.truncate(fd, 0)
            for line in lines:
                self.disk.write(fd, line)
            self.disk.sync(fd)
        finally:
            self.disk.close(fd)

    def doctor(self, told: Callable[[int], None] | None = None, *, repair: bool = False) -> Iterator[Finding]:
        from hansard.engines.examination import examine

        self._alive()
        with self._told(self.root):
            yield from examine(self, told, repair=repair)

    @property
    def closed(self) -> bool:
        return self._closed or self.disk.inherited

    def close(self) -> None:
        if self.closed:
            return
        for tenant in self._namespaces.values():
            tenant.close()
        for lease in self._leases.mine():
            with suppress(HansardError):
                self.release(lease.session, lease)
        if self._leased:  # what others left behind is taken away by those who leave lock files themselves
            with suppress(OSError):
                self._leases.sweep()
        with self._mutex:
            logs = list(self._logs.values())
        for log in logs:
            with log.mutex:
                with suppress(HansardError):
                    if log.unsaved:
                        log.save()
                log.detach()
        with self._mutex:
            self._logs.clear()
            self._closed = True
            if self._searcher is not None:
                self._searcher.close()
            self.catalog.close()
        self._watcher.close()


class _ReplacedError(Exception):
    """The file is another one than a moment ago."""


class _File:
    """An open file that is closed at the latest when nobody refers to it any more."""

    def __init__(self, disk: Disk, fd: int, path: str) -> None:
        self.disk = disk
        self.path = path
        self._fd = fd

    def close(self) -> None:
        fd, self._fd = self._fd, -1  # its number may soon be another file's
        self.disk.close(fd)

    def __del__(self) -> None:
        self.close()  # who reads to the end has done so where Ctrl-C is heard


def _through(
    file: _File, pieces: Iterator[list[Record]], kinds: Sequence[str] | None
) -> Iterator[list[Record]]:
    """Records of some kinds, a list at a time; the file stays open as long as they are wanted."""
    wanted = None if kinds is None else frozenset(kinds)
    try:
        for piece in pieces:
            yield piece if wanted is None else [record for record in piece if record.kind in wanted]
            if file.disk.inherited:
                raise Closed(f"what was read of {file.path} was inherited through fork(); read it again")
    except OSError as error:
        raise problem(error, file.path) from error
    finally:
        file.close()


def _in_the_way(path: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"{path} is no file but a folder, a link or a pipe, and none of ours; it was left as it is. Move it "
        "out of the store"
    )


def _replaced(session: str) -> SessionNotFound:
    return SessionNotFound(session, f"session {session!r} was deleted; another one has its id now")


def _quoted(path: str) -> str:
    """A path as a URL has it. What two slashes begin would be a host there."""
    path = "/" + path.lstrip("/")
    if path.isascii() and path.replace("/", "").replace("-", "").replace("_", "").replace(".", "").isalnum():
        return path  # the usual case costs no import
    from urllib.parse import quote

    return quote(path)


def _version(raw: bytes) -> str:
    return f"{crc32(raw):08x}{len(raw)}"


def _id_in(record: Record) -> str | None:
    """The id of the session that begins with this record."""
    id = record.data.get("id") if record.kind == "session" and isinstance(record.data, dict) else None
    return id if isinstance(id, str) else None


_digest = re.compile("[0-9a-f]{64}").fullmatch
_names_blob = re.compile(rb"[0-9a-f]{64}").search


def _is_digest(name: str) -> bool:
    return _digest(name) is not None
