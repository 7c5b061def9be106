"""The engine that keeps everything in memory: for tests, and for sessions that nobody wants to keep."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from datetime import UTC, datetime
from hashlib import sha256
from itertools import repeat
from typing import TYPE_CHECKING, Any

from hansard.engines import (
    Blob,
    Finding,
    Holder,
    Shelf,
    once,
    reentered,
    repeated,
    unexpected,
)
from hansard.engines.disk import Disk
from hansard.errors import AlreadyExists, Closed, NotAStore, ReadOnlyStore, SessionBusy, SessionNotFound
from hansard.records import Damage, Draft, Record, encode, parse, redrafted, understood
from hansard.views import head as heads
from hansard.views import vacuum
from hansard.views.head import Head, Query

if TYPE_CHECKING:
    from hansard.views import search as searching


class MemoryLease:
    """A note that somebody works on a session."""

    def __init__(self, holder: Holder) -> None:
        self.holder = holder
        self.released = False


class Log:
    """A session: its records as JSON, so that nobody shares an object with the store, and its head."""

    def __init__(self, drafts: Iterable[Draft]) -> None:
        self.lines: list[bytes] = []
        self.seqs: list[int] = []
        self.kinds: list[str] = []
        self.ids: dict[str, int] = {}
        self.head: Head | None = None
        self.busy = False
        for draft in drafts:
            self._take(draft)

    @property
    def last(self) -> int:
        return self.seqs[-1] if self.seqs else -1

    def add(self, drafts: Sequence[Draft]) -> None:
        """Adds the records of one write."""
        if self.busy:
            raise reentered("" if self.head is None else self.head.id)
        self.busy = True
        try:
            batch = (self.last + 1, len(drafts)) if len(drafts) > 1 else None
            for draft in drafts:
                draft.seq, draft.batch = None, batch
                self._take(draft)
        finally:
            self.busy = False

    def _take(self, draft: Draft) -> None:
        if draft.seq is None:
            draft.seq = self.last + 1
        line = encode(draft)
        record = understood(parse(line))
        if self.head is None:
            self.head = heads.begin(record)
        else:
            heads.advance(self.head, record)
        self.lines.append(line)
        self.seqs.append(record.seq)
        self.kinds.append(record.kind)
        for id in vacuum.ids(record):
            self.ids[id] = record.seq

    def record(self, seq: int) -> Record:
        """A record of the caller's own."""
        return understood(parse(self.lines[bisect_left(self.seqs, seq)]))


class Memory:
    """The engine for `memory:`. It lives as long as somebody in this process has it open."""

    capabilities = frozenset({"alone"})

    def __init__(self, name: str = "", *, readonly: bool = False) -> None:
        self.url = f"memory:{name}"
        self.readonly = readonly
        self._mutex = threading.RLock()
        self._logs: dict[str, Log] = {}
        self._leases: dict[str, MemoryLease] = {}
        self._watches: dict[object, tuple[str | None, Callable[[str | None], None]]] = {}
        self._shelves: dict[Shelf, dict[str, tuple[bytes, str]]] = {}
        self._versions = 0
        self._blobs: dict[str, tuple[bytes, datetime]] = {}
        self._namespaces: dict[str, Memory] = {}
        self._disk = Disk()  # knows whether this process is the one that opened it
        self._closed = False

    def _alive(self) -> None:
        if self._disk.inherited:
            raise Closed(f"the store {self.url} was inherited through fork(); open it anew in this process")
        if self._closed:
            raise Closed(f"the store {self.url} is closed")

    def _writable(self) -> None:
        self._alive()
        if self.readonly:
            raise ReadOnlyStore(f"the store {self.url} was opened with readonly=True")

    def _log(self, session: str, uid: str | None = None) -> Log:
        log = self._logs.get(session)
        if log is None or log.head is None:
            raise SessionNotFound(session)
        if uid is not None and log.head.uid != uid:
            raise SessionNotFound(session, f"session {session!r} was deleted; another one has its id now")
        return log

    # -- writing

    def create(self, session: str, drafts: Sequence[Draft], *, lease: Any = None) -> list[Record]:
        self._writable()
        with self._mutex:
            if session in self._logs:
                raise AlreadyExists(session)
            new, places = once(drafts)
            log = Log(new[:1])
            log.add(new[1:])
            self._logs[session] = log
            records = [log.record(seq) for seq in places]
        self._tell(session)
        return records

    def put(
        self,
        session: str,
        drafts: Iterable[Draft],
        *,
        documents: Mapping[str, bytes] | None = None,
        lease: Any = None,
    ) -> int:
        self._writable()
        log = Log(drafts)
        with self._mutex:
            self._writable()
            if session in self._logs:
                raise AlreadyExists(session)
            self._logs[session] = log
            for name, data in (documents or {}).items():
                self._place(Shelf("documents", session), name, data)
        self._tell(session)
        return log.last

    def rewrite(
        self, session: str, stretches: Sequence[Draft], *, expect: int, uid: str | None = None
    ) -> int:
        self._writable()
        with self._mutex:
            log = self._log(session, uid)
            if log.last != expect:
                raise unexpected(session, expect, log.last)
            gone = [(vacuum.first(draft), draft) for draft in stretches]
            kept: list[Draft] = []
            for seq in log.seqs:
                while gone and (gone[0][1].seq or 0) < seq:
                    kept.append(gone.pop(0)[1])
                if not gone or seq < gone[0][0]:
                    kept.append(redrafted(log.record(seq)))
            whole = Counter(draft.batch for draft in kept)
            for draft in kept:
                if draft.batch is not None and whole[draft.batch] < draft.batch[1]:
                    draft.batch = None  # others of that write were taken out
            before = sum(map(len, log.lines))
            self._logs[session] = log = Log(kept)
        self._tell(session)
        return before - sum(map(len, log.lines))

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
        with self._mutex:
            log = self._log(session, uid)
            new, places = once(drafts)
            seqs = [None if draft.id is None else log.ids.get(draft.id) for draft in new]
            found = {
                i: repeated(session, draft, log.record(seq))
                for i, (draft, seq) in enumerate(zip(new, seqs, strict=True))
                if seq is not None
            }
            missing = [draft for i, draft in enumerate(new) if i not in found]
            last = log.last
            if missing and expect is not None and expect != last:
                raise unexpected(session, expect, last)
            log.add(missing)
            records = [
                found[place] if place in found else log.record(new[place].seq or 0) for place in places
            ]
        self._tell(session)
        return records

    def flush(self, session: str) -> None:
        self._writable()
        with self._mutex:
            self._log(session)

    @contextmanager
    def alone(self, session: str) -> Iterator[None]:
        self._writable()
        with self._mutex:
            yield

    # -- reading

    def head(self, session: str) -> Head:
        self._alive()
        with self._mutex:
            head = self._log(session).head
            assert head is not None
            return heads.copy(head)

    def size(self, session: str) -> int:
        self._alive()
        with self._mutex:
            log = self._logs.get(session)
            documents = self._shelves.get(Shelf("documents", session), {})
            return sum(map(len, log.lines if log else ())) + sum(len(data) for data, _ in documents.values())

    def damage(self, session: str) -> list[Damage]:
        self._alive()
        with self._mutex:
            self._log(session)
        return []

    def find(self, session: str, id: str, *, uid: str | None = None) -> Record | None:
        self._alive()
        with self._mutex:
            log = self._log(session, uid)
            seq = log.ids.get(id)
            return None if seq is None else log.record(seq)

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
        with self._mutex:
            log = self._log(session, uid)
            seqs = log.seqs
            chosen: list[int] = []
            for a, b in [(0, log.last)] if spans is None else spans:
                places = range(bisect_left(seqs, a), bisect_right(seqs, b))
                chosen += [seqs[at] for at in places if kinds is None or log.kinds[at] in kinds]
        if reverse:
            chosen.reverse()
        return map(self._given, repeat(log), chosen[:limit])

    def _given(self, log: Log, seq: int) -> Record:
        self._alive()  # what is read may be inherited half way
        return log.record(seq)

    # -- lists

    def heads(self, query: Query) -> list[Head]:
        self._alive()
        with self._mutex:
            found = [(heads.rank(h, query), h.id, h) for h in self._matching(query)]
            found.sort(key=lambda item: item[:2])
            if query.place is not None:
                found = [item for item in found if item[:2] > query.place]
            return [heads.copy(head) for _, _, head in found[: query.limit]]

    def count(self, query: Query) -> int:
        self._alive()
        with self._mutex:
            return sum(1 for _ in self._matching(query))

    def search(
        self, query: searching.Query, told: Callable[[int, int], None] | None = None
    ) -> list[searching.Found]:
        from hansard.views import search as searching  # it takes a while, and few ask for it

        self._alive()
        with self._mutex:
            logs = [(heads.copy(log.head), log, log.last) for log in self._logs.values() if log.head]
        said = ((head, self._said(log, last, searching.SEARCHED)) for head, log, last in logs)
        return searching.scan(said, query)

    def _said(self, log: Log, last: int, kinds: Sequence[str]) -> Iterator[Record]:
        """The records of some kinds, as far as the log went when the search began."""
        for seq, kind in zip(list(log.seqs), list(log.kinds), strict=False):
            if kind in kinds and seq <= last:
                yield self._given(log, seq)

    def sessions(self) -> Iterator[str]:
        self._alive()
        with self._mutex:
            return iter(list(self._logs))

    def _matching(self, query: Query) -> Iterator[Head]:
        for log in self._logs.values():
            if log.head is not None and heads.matches(log.head, query):
                yield log.head

    # -- deleting

    def delete(self, session: str, *, uid: str | None = None, unless_input: bool = False) -> bool:
        self._writable()
        with self._mutex:
            try:
                log = self._log(session, uid)
            except SessionNotFound:
                return False
            shelf = Shelf("documents", session)
            if unless_input and log.head is not None and not heads.is_bare(log.head):
                return False
            if unless_input and self._shelves.get(shelf):
                return False
            del self._logs[session]
            self._shelves.pop(shelf, None)
        self._tell(session)
        return True

    # -- leases

    def lease(self, session: str, *, force: bool = False) -> MemoryLease:
        self._writable()
        with self._mutex:
            mine = self._leases.get(session)
            if mine is not None:
                raise SessionBusy(
                    session, mine.holder, "it cannot be forced; close it in this process" if force else ""
                )
            holder = Holder(session=session, since=datetime.now(UTC), **self._disk.process())
            lease = self._leases[session] = MemoryLease(holder)
            return lease

    def release(self, session: str, lease: Any) -> None:
        if self._disk.inherited or lease is None:
            return
        with self._mutex:
            lease.released = True
            if self._leases.get(session) is lease:
                del self._leases[session]

    def leases(self) -> list[Holder]:
        self._alive()
        with self._mutex:
            return [lease.holder for _, lease in sorted(self._leases.items())]

    # -- documents

    def document(self, shelf: Shelf, name: str) -> tuple[bytes, str] | None:
        self._alive()
        with self._mutex:
            return self._shelves.get(shelf, {}).get(name)

    def documents(self, shelf: Shelf) -> list[str]:
        self._alive()
        with self._mutex:
            return sorted(self._shelves.get(shelf, ()))

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
        self._writable()
        with self._mutex:
            if shelf.kind == "documents":
                self._log(shelf.session, uid)
            before = self._shelves.get(shelf, {}).get(name)
            if expect is not None and expect != ("" if before is None else before[1]):
                return None
            return self._place(shelf, name, data)

    def _place(self, shelf: Shelf, name: str, data: bytes) -> str:
        self._versions += 1
        self._shelves.setdefault(shelf, {})[name] = (bytes(data), str(self._versions))
        return str(self._versions)

    def drop_document(
        self, shelf: Shelf, name: str, *, expect: str | None = None, uid: str | None = None
    ) -> bool:
        self._writable()
        with self._mutex:
            if shelf.kind == "documents":
                self._log(shelf.session, uid)
            there = self._shelves.get(shelf, {})
            if name not in there or (expect is not None and there[name][1] != expect):
                return False
            del there[name]
            return True

    # -- following

    def watch(
        self, changed: Callable[[str | None], None], *, session: str | None = None
    ) -> Callable[[], None]:
        self._alive()
        key = object()
        self._watches[key] = (session, changed)

        def end() -> None:
            self._watches.pop(key, None)

        return end

    def _tell(self, session: str | None) -> None:
        for wanted, changed in list(self._watches.values()):
            if session is None or wanted is None or wanted == session:
                changed(session)

    # -- blobs

    def put_blob(self, data: bytes) -> str:
        self._writable()
        digest = sha256(data).hexdigest()
        with self._mutex:
            self._blobs[digest] = (bytes(data), datetime.now(UTC))
        return digest

    def blob(self, digest: str) -> bytes | None:
        self._alive()
        with self._mutex:
            found = self._blobs.get(digest)
        return None if found is None else found[0]

    def sweep_blobs(
        self, before: datetime, needed: Callable[[set[str]], set[str]], *, dry_run: bool = False
    ) -> list[Blob]:
        self._writable()
        with self._mutex:
            old = {digest for digest, (_, touched) in self._blobs.items() if touched < before}
            swept = [
                Blob(digest, len(self._blobs[digest][0]), self._blobs[digest][1])
                for digest in sorted(old - (needed(old) if old else old))
            ]
            if not dry_run:
                for blob in swept:
                    del self._blobs[blob.digest]
        return swept

    def namespace(self, name: str, *, create: bool = True) -> Memory:
        self._alive()
        with self._mutex:
            found = self._namespaces.get(name)
            if found is None:
                if not create:
                    raise NotAStore(
                        f"there is no namespace {name!r} in {self.url}", path=self.url, missing=True
                    )
                found = self._namespaces[name] = Memory(self.url[7:], readonly=self.readonly)
            return found

    # -- health and the end

    def doctor(self, told: Callable[[int], None] | None = None, *, repair: bool = False) -> Iterator[Finding]:
        self._alive()
        return iter(())

    def reader(self) -> Memory:
        """The same store, for reading only."""
        other = copy(self)
        other.readonly = True
        return other

    @property
    def closed(self) -> bool:
        return self._closed or self._disk.inherited

    def close(self) -> None:
        if self.closed:
            return
        self._closed = True
        self._tell(None)
        for engine in self._namespaces.values():
            engine.close()
