"""The engine that keeps everything in memory: for tests, and for sessions that nobody wants to keep."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from datetime import UTC, datetime
from typing import Any

from hansard.engines import Finding, Holder, once, reentered, repeated, unexpected
from hansard.engines.disk import Disk
from hansard.errors import AlreadyExists, Closed, ReadOnlyStore, SessionBusy, SessionNotFound
from hansard.records import Damage, Draft, Record, decode, encode, parse, understood
from hansard.views import head as heads
from hansard.views.head import Head, Query


class MemoryLease:
    """A note that somebody works on a session."""

    def __init__(self, holder: Holder) -> None:
        self.holder = holder
        self.released = False


class Log:
    """A session: its records as JSON, so that nobody shares an object with the store, and its head."""

    def __init__(self, drafts: Sequence[Draft]) -> None:
        self.lines: list[bytes] = []
        self.kinds: list[str] = []
        self.ids: dict[str, int] = {}
        self.head: Head | None = None
        self.busy = False
        self.add(drafts)

    def add(self, drafts: Sequence[Draft]) -> None:
        if self.busy:
            raise reentered("" if self.head is None else self.head.id)
        self.busy = True
        try:
            self._add(drafts)
        finally:
            self.busy = False

    def _add(self, drafts: Sequence[Draft]) -> None:
        batch = (len(self.lines), len(drafts)) if len(drafts) > 1 else None
        for draft in drafts:
            draft.seq = len(self.lines)
            draft.batch = batch
            self.lines.append(encode(draft))
            self.kinds.append(draft.kind)
            record = parse(self.lines[-1])
            if record.id is not None:
                self.ids[record.id] = record.seq
            if self.head is None:
                self.head = heads.begin(record)
            else:
                heads.advance(self.head, record)

    def record(self, seq: int) -> Record:
        """A record of the caller's own."""
        return understood(parse(self.lines[seq]))


class Memory:
    """The engine for `memory:`. It lives as long as somebody in this process has it open."""

    capabilities = frozenset({"alone"})

    def __init__(self, name: str = "", *, readonly: bool = False) -> None:
        self.url = f"memory:{name}"
        self.readonly = readonly
        self._mutex = threading.RLock()
        self._logs: dict[str, Log] = {}
        self._leases: dict[str, MemoryLease] = {}
        self._names: dict[str, tuple[bytes, int]] = {}
        self._watches: dict[object, tuple[str | None, Callable[[str | None], None]]] = {}
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
            for draft, seq in zip(new, seqs, strict=True):
                if seq is not None:
                    repeated(session, draft, log.record(seq))
            missing = [draft for draft, seq in zip(new, seqs, strict=True) if seq is None]
            last = len(log.lines) - 1
            if missing and expect is not None and expect != last:
                raise unexpected(session, expect, last)
            log.add(missing)
            seqs = [draft.seq if seq is None else seq for draft, seq in zip(new, seqs, strict=True)]
            records = [log.record(seqs[place] or 0) for place in places]
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

    def damage(self, session: str) -> list[Damage]:
        self._alive()
        with self._mutex:
            self._log(session)
        return []

    def find(self, session: str, id: str) -> Record | None:
        self._alive()
        with self._mutex:
            log = self._log(session)
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
            count = len(log.lines)
        seqs = range(count)
        wanted: list[int] = []
        for a, b in [(0, count - 1)] if spans is None else spans:
            wanted += seqs[bisect_left(seqs, a) : bisect_right(seqs, b)]
        if reverse:
            wanted.reverse()
        chosen = [seq for seq in wanted if kinds is None or log.kinds[seq] in kinds]
        return map(log.record, chosen[:limit])

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
            if unless_input and log.head is not None and log.head.has_user_input:
                return False
            del self._logs[session]
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

    # -- names

    def names(self, group: str) -> tuple[dict[str, Any], str]:
        self._alive()
        with self._mutex:
            raw, version = self._names.get(group, (b"{}", 0))
            return decode(raw), str(version or "")

    def set_names(self, group: str, names: dict[str, Any], *, expect: str) -> bool:
        self._writable()
        with self._mutex:
            version = self._names.get(group, (b"", 0))[1]
            if str(version or "") != expect:
                return False
            self._names[group] = (encode(names), version + 1)
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

    # -- health and the end

    def doctor(self, told: Callable[[int], None] | None = None) -> Iterator[Finding]:
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
        if not self.closed:
            self._closed = True
            self._tell(None)
