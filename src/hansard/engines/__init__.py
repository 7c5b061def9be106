"""The protocol that a storage engine fulfils, and what engines share of it.

An engine keeps logs, documents, blobs and leases. It knows no meaning beyond folding a head: what truncating
does, what a title is or what stands in a document is settled above it, in the views and the store. Places are
seqs, never byte offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from hansard.errors import Conflict, SessionBusy
from hansard.records import Damage, Draft, Record, decode, encode, equal
from hansard.views import vacuum
from hansard.views.head import Head, Query

if TYPE_CHECKING:
    from hansard.views import search as searching


class Holder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who has a session open, as far as is known. It informs; the lock alone decides."""

    session: str
    pid: int | None = None
    started: str | None = None
    host: str | None = None
    user: str | None = None
    command: str | None = None
    since: datetime | None = None

    def __str__(self) -> str:
        told = [f"process {self.pid}" if self.pid is not None else "another process"]
        told += [f"of {self.user}"] if self.user else []
        told += [f"on {self.host}"] if self.host else []
        told += [f"({self.command})"] if self.command else []
        told += [f"since {self.since:%Y-%m-%d %H:%M:%S} UTC"] if self.since else []
        return " ".join(told)


class Lease(Protocol):
    """The right to work on a session. Opaque: whoever has it passes it on."""

    @property
    def holder(self) -> Holder: ...


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that `doctor` found: what, where, and what to do about it."""

    kind: str
    session: str | None = None
    place: str = ""
    detail: str = ""
    remedy: str = ""
    repaired: bool = False


class Shelf(NamedTuple):
    """Where documents stand side by side: `names`, `state`, or the `documents` of a session."""

    kind: str
    session: str = ""


NAMES, STATE = Shelf("names"), Shelf("state")


class Blob(NamedTuple):
    """What is known of a blob without reading it. `touched` is when somebody last put it."""

    digest: str
    size: int
    touched: datetime


def once(drafts: Sequence[Draft]) -> tuple[list[Draft], list[int]]:
    """The drafts without those that repeat the id of one before, and for each draft given which of them it
    is; `Conflict` where one id is given to two payloads."""
    if len(drafts) == 1:
        return list(drafts), [0]
    if all(draft.id is None for draft in drafts):
        return list(drafts), list(range(len(drafts)))
    new: list[Draft] = []
    places: list[int] = []
    firsts: dict[str, int] = {}
    for draft in drafts:
        first = firsts.get(draft.id) if draft.id is not None else None
        if first is None:
            if draft.id is not None:
                firsts[draft.id] = len(new)
            places.append(len(new))
            new.append(draft)
        elif same(draft, new[first].kind, new[first].data):
            places.append(first)
        else:
            raise Conflict(f"the id {draft.id!r} is given to two different payloads of one call")
    return new, places


def same(draft: Draft, kind: str, data: bytes | msgspec.Raw) -> bool:
    """Whether a draft says what a record says, of this kind and with this JSON as its data."""
    return draft.kind == kind and equal(draft.data, data)


def repeated(session: str, draft: Draft, first: Record) -> Record:
    """The record that has a draft's id already, if it says the same; else `Conflict`."""
    if first.kind == "compacted":
        before = vacuum.remembered(first, draft.id)
        if before is not None and before.digest == vacuum.digest(draft.kind, draft.data):
            return Record(kind=draft.kind, data=decode(draft.data), id=draft.id, at=before.at, seq=before.seq)
    elif same(draft, first.kind, encode(first.data)):
        return first
    raise Conflict(
        f"record {first.seq} of session {session!r} has the id {draft.id!r} already, and says something "
        "else; use a new id for a new record",
        first=first,
    )


def unexpected(session: str, expect: int, last: int) -> Conflict:
    """The error for a caller who has not seen the last record."""
    return Conflict(
        f"session {session!r} is at record {last}, not {expect}; read what is new and try again", seq=last
    )


def reentered(session: str) -> SessionBusy:
    """The error for a signal handler, or a finalizer, that comes between the steps of a write."""
    return SessionBusy(
        session,
        None,
        "it is being written by this very thread, which a signal handler or a finalizer has interrupted; "
        "nothing was stored: note it there, and write it when the call that was interrupted is through",
    )


class Engine(Protocol):
    """Blocking and thread-safe. `capabilities` says what an engine can do beside the common part:

    `survives` (what was written is there for a new process), `shared` (several processes at once),
    `alone` (writers can be kept out for a moment), `files` (one log is one file that can be cut).
    """

    url: str
    capabilities: frozenset[str]
    readonly: bool

    def create(self, session: str, drafts: Sequence[Draft], *, lease: Lease | None = None) -> list[Record]:
        """Begins a log with its session record and maybe more, durably; `AlreadyExists`."""
        ...

    def append(
        self,
        session: str,
        drafts: Sequence[Draft],
        *,
        expect: int | None = None,
        durable: bool = True,
        lease: Lease | None = None,
        uid: str | None = None,
    ) -> list[Record]:
        """Adds records, all or none. A draft whose id is there already gives the record that has it, or
        `Conflict` where that says something else; after that `expect` must be the last seq."""
        ...

    def put(
        self,
        session: str,
        drafts: Iterable[Draft],
        *,
        documents: Mapping[str, bytes] | None = None,
        lease: Lease | None = None,
    ) -> int:
        """Begins a log with any number of records, and a session with documents, in bounded memory: nothing
        of it is there before all of it is. Drafts that know their seq keep it. Gives the last one's seq;
        `AlreadyExists`."""
        ...

    def rewrite(
        self, session: str, stretches: Sequence[Draft], *, expect: int, uid: str | None = None
    ) -> int:
        """Takes stretches of records out, where `expect` is the last seq still. Each of the drafts,
        ascending, stands for the records from its `data.first` to its own seq. Gives the bytes that this
        saved."""
        ...

    def flush(self, session: str) -> None:
        """Everything in the log so far survives a power cut when this returns."""
        ...

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
        """Streams the records whose seq lies in one of the spans (both ends included; ascending, apart),
        all of them where there are none. What is met that is damaged is added to `damage`."""
        ...

    def find(self, session: str, id: str, *, uid: str | None = None) -> Record | None:
        """The record that has this id, whatever its kind; the `compacted` one where it was taken out."""
        ...

    def head(self, session: str) -> Head:
        """The head as of now, the caller's own; `SessionNotFound`."""
        ...

    def heads(self, query: Query) -> list[Head]:
        """The heads that match, in order, `query.limit` of them at most."""
        ...

    def count(self, query: Query) -> int:
        """How many heads match, whatever the limit."""
        ...

    def search(
        self, query: searching.Query, told: Callable[[int, int], None] | None = None
    ) -> list[searching.Found]:
        """The records that `hansard.views.search.scan` would find, in its order, `query.limit` of them at
        most. Where that takes a while, `told` hears how many bytes were gone through, and of how many."""
        ...

    def sessions(self) -> Iterator[str]:
        """The ids of all sessions in no order, those that cannot be read too."""
        ...

    def delete(self, session: str, *, uid: str | None = None, unless_input: bool = False) -> bool:
        """Takes the session and its documents away for good; False where there is none. With `unless_input`
        one that is not bare by now stays: somebody has put something in, or it has documents."""
        ...

    def size(self, session: str) -> int:
        """The bytes that a session and its documents take; 0 where there is none."""
        ...

    def damage(self, session: str) -> list[Damage]:
        """What is wrong with the log, as was found when it was last folded."""
        ...

    def lease(self, session: str, *, force: bool = False) -> Lease:
        """Takes the lease, or raises `SessionBusy` at once."""
        ...

    def release(self, session: str, lease: Lease | None) -> None:
        """Gives the lease back; twice is once. Who wrote leaves everything exact, with a lease or without."""
        ...

    def leases(self) -> list[Holder]:
        """Who has what open. Leases whose holder is gone are swept on the way."""
        ...

    def alone(self, session: str) -> AbstractContextManager[None]:
        """Keeps other writers out of a session for a moment, where the engine has `alone`."""
        ...

    def document(self, shelf: Shelf, name: str) -> tuple[bytes, str] | None:
        """What stands on a shelf under a name, and its version."""
        ...

    def documents(self, shelf: Shelf) -> list[str]:
        """The names on a shelf, in order."""
        ...

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
        """Replaces what stands under a name, wholly and durably, and gives its version; None where `expect`
        is given and is not the version any more ("": nothing stands there). With `aside`, which says why,
        what stood there is kept. What a session has said before is durable first; `SessionNotFound`."""
        ...

    def drop_document(
        self, shelf: Shelf, name: str, *, expect: str | None = None, uid: str | None = None
    ) -> bool:
        """Takes a document away, durably; False where there is none, or another than expected."""
        ...

    def put_blob(self, data: bytes) -> str:
        """Keeps bytes under the SHA-256 of them, durably, and marks them as put just now."""
        ...

    def blob(self, digest: str) -> bytes | None:
        """The bytes of this digest; `Damaged` where they are not."""
        ...

    def sweep_blobs(
        self, before: datetime, needed: Callable[[set[str]], set[str]], *, dry_run: bool = False
    ) -> list[Blob]:
        """Takes away what was last put before a moment and is not needed. Nothing is put meanwhile."""
        ...

    def namespace(self, name: str, *, create: bool = True) -> Engine:
        """The engine of another tenant in the same place, which is closed with this one. Without `create` it
        must be there, else `NotAStore`."""
        ...

    def watch(
        self, changed: Callable[[str | None], None], *, session: str | None = None
    ) -> Callable[[], None]:
        """Calls `changed(session)` soon after a session was written, replaced or deleted by anyone (None:
        maybe any), and now and then for nothing; with `session` only for that one. It must be quick, and is
        called in a thread of the engine's or of a writer. Returns what ends it."""
        ...

    def doctor(self, told: Callable[[int], None] | None = None, *, repair: bool = False) -> Iterator[Finding]:
        """Goes through everything and reports each problem with its place; `told` hears how far it is. With
        `repair` what can be mended is, and a copy of what was there is kept first."""
        ...

    @property
    def closed(self) -> bool:
        """Whether it was closed, or inherited by a forked process."""
        ...

    def close(self) -> None:
        """Leaves everything exact and lets go of it."""
        ...
