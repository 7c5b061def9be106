"""Written by scripts/aio.py (`make docs`) from the synchronous classes. Not to be edited."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Self

import hansard.store
from hansard.aio.following import Follower as Follower
from hansard.aio.twins import Opening as Opening
from hansard.aio.twins import Stream as Stream
from hansard.best_effort import Dropped
from hansard.documents import Document
from hansard.engines import Blob, Holder
from hansard.following import Cursor
from hansard.records import Damage, Record
from hansard.retention import Cleanup
from hansard.state import Expiry
from hansard.store import Hits, Page, Ref, Report, Vacuumed
from hansard.views.head import Head
from hansard.views.history import History
from hansard.views.turns import TurnView

_List = list

class View:
    """A session as it was at one moment; `refresh()` moves on to now. It holds nothing open."""

    @property
    def id(self) -> str:
        """The session's id."""

    @property
    def seq(self) -> int:
        """The last record that this view knows of; -1 where nothing is written yet."""

    @property
    def head(self) -> Head:
        """How the session stands: a snapshot, the caller's own."""

    @property
    def damage(self) -> list[Damage]:
        """What is not as it was written, as far as it was met. See also `store.doctor()`."""

    async def refresh(self) -> None:
        """Goes on to how the session stands now."""

    async def history(self, limit: int | None = None, *, repair: bool = False) -> History:
        """What the model sees, oldest first; with `limit` the newest so many. With `repair` it is mended to
        what providers accept; nothing is written."""

    def records(
        self,
        *,
        after: int | None = None,
        before: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        kinds: str | Sequence[str] | None = None,
        limit: int | None = None,
        reverse: bool = False,
    ) -> Stream[Record]:
        """Everything that was written, in order: with a seq greater than `after` and less than `before`,
        from `since` on and earlier than `until`, of these kinds, at most `limit`;
        the newest first with `reverse`."""

    def turns(self, *, live: bool = False, limit: int | None = None) -> Stream[TurnView]:
        """What was said, as turns: what somebody put in, and what followed until the next time, tool calls
        with their results. All of it, in order; with `live` only what the model sees now, numbered by
        itself; with `limit` the newest so many, without numbers where not all of them are read."""

    async def get(self, ref: int | str) -> Record | None:
        """The record with this seq or this id, or None."""

    @property
    def documents(self) -> Documents:
        """The documents of the session."""

    async def subs(self) -> list[Head]:
        """The heads of its children, by path."""

    async def summary(self) -> str:
        """The summary, or `""`."""

    async def usage(self, by: str | None = None) -> Any:
        """What it cost: a `Usage`, or with `by` ("record", "turn", "model") a list of `UsageLine`."""

class Session(View):
    """An open session. With a lease (the default) nobody else changes its history meanwhile; a shared one
    takes the lease for each such change. Its threads may share it. Close it, or use it in a `with` block."""

    @property
    def head(self) -> Head:
        """How the session stands after the last call of this handle: a snapshot, the caller's own."""

    async def refresh(self) -> None:
        """Takes in what others have written."""

    async def append(
        self,
        payload: Any,
        *,
        id: str | None = None,
        kind: str = "message",
        shape: str | None = None,
        model: str | None = None,
        usage: Mapping[str, Any] | None = None,
        time: datetime | None = None,
        turn: str | None = None,
        blobs: Sequence[str] = ...,
        durable: bool = True,
        expect: int | None = None,
    ) -> Record:
        """Adds one message, and returns when it is safe. With `id` a repeat is stored once; with `expect`
        the last record must be the one named. With `durable=False` a power cut may take it."""

    async def extend(
        self,
        payloads: Iterable[Any],
        *,
        ids: Sequence[str | None] | None = None,
        usages: Sequence[Mapping[str, Any] | None] | None = None,
        times: Sequence[datetime | None] | None = None,
        shape: str | None = None,
        model: str | None = None,
        durable: bool = True,
        expect: int | None = None,
    ) -> list[Record]:
        """Adds several messages, all or none."""

    async def flush(self) -> None:
        """Makes everything so far durable."""

    async def save(self) -> None:
        """Makes everything so far durable; there is nothing else to save."""

    async def checkpoint(
        self,
        messages: Iterable[Any],
        *,
        token_count: int | None = None,
        summary: str | None = None,
        upto: int | None = None,
        id: str | None = None,
    ) -> Record | None:
        """From now on the model sees these messages, then what followed `upto` (by default what this handle
        has not given out). Nothing is deleted: `records()` has it all, and `rewind()` leads back."""

    async def set_history(self, messages: Iterable[Any], *, id: str | None = None) -> Record | None:
        """Makes the history these messages, writing only what differs: nothing, the new ones at the end, or a
        history record that names what stays. For callers that keep the whole list themselves."""

    async def truncate(self, keep: int, *, pairs: bool = True, id: str | None = None) -> Record | None:
        """From now on the model sees the last `keep` messages: none for 0 or less. With `pairs` a tool call
        is never separated from its results; rather fewer are kept."""

    async def pop(self, n: int = 1, *, pairs: bool = False, id: str | None = None) -> list[Any]:
        """Takes the newest `n` messages out of the history and returns them, the newest last."""

    async def clear(self, *, id: str | None = None) -> Record | None:
        """From now on the model sees nothing of what was said, and there is no summary."""

    async def rewind(self, seq: int, *, id: str | None = None) -> Record | None:
        """The history and the summary as they were just after a record, on whatever branch it lies."""

    async def set_summary(self, text: str, *, id: str | None = None) -> Record:
        """Sets the summary; it is no message."""

    async def rename(self, title: str, *, id: str | None = None) -> Record:
        """Gives it a title, which stays whatever is said later."""

    async def pin(self, on: bool = True, *, id: str | None = None) -> Record:
        """A pinned session is never cleaned up."""

    async def label(
        self, *add: str, remove: Sequence[str] | str = ..., id: str | None = None
    ) -> Record | None:
        """Adds and removes labels; None where that changes nothing."""

    async def update(
        self,
        *,
        title: Any = ...,
        agent: Any = ...,
        model: Any = ...,
        vendor: Any = ...,
        endpoint: Any = ...,
        workspace: Any = ...,
        status: Any = ...,
        labels: Any = ...,
        pinned: Any = ...,
        meta: Mapping[str, Any] | None = None,
        unset: Sequence[str] | str = ...,
        id: str | None = None,
    ) -> Record | None:
        """Replaces whole values, keys of `meta` one by one; what is not named stays. `unset` takes names of
        fields and of keys (`meta.key`). None where nothing is asked for."""

    async def add_usage(
        self, usage: Mapping[str, Any], *, model: str | None = None, id: str | None = None
    ) -> Record:
        """Records usage that belongs to no message."""

    async def event(
        self,
        type: str,
        data: Any = None,
        *,
        event_id: str,
        stream_id: str | None = None,
        durable: bool = True,
    ) -> Record:
        """Keeps an event of a live stream; the same `event_id` is stored once."""

    async def output(
        self, line: str | bytes | bytearray | memoryview, *, id: str | None = None, durable: bool = True
    ) -> Record | None:
        """Keeps a line of the agent's raw output, without its last newline; nothing of an empty one."""

    @property
    def documents(self) -> Documents:
        """The documents of the session; putting one begins it."""

    def sub(self, path: str, **head: Any) -> Opening[Session]:
        """The child of this path, open: the one that is there, or a new one. What is not said of it
        (agent, model, vendor, endpoint, workspace) is as it is here. It is deleted with this session."""

    def best_effort(self) -> BestEffortSession:
        """This session with calls that never raise; what fails is logged, and kept in `.dropped`."""

    async def close(self) -> None:
        """Makes everything durable and gives the lease back; twice is once. A session that this handle
        created and in which no person said anything is removed."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exc: object) -> None: ...

class Store:
    """An open store. Threads may share it. Close it, or use it in a `with` block."""

    names: Names

    @property
    def url(self) -> str:
        """Where it is, as `hansard.open` takes it."""

    @property
    def closed(self) -> bool:
        """Whether it was closed, or inherited by a forked process."""

    def create(
        self,
        id: str | None = None,
        *,
        agent: str | None = None,
        model: str | None = None,
        title: str | None = None,
        workspace: str | os.PathLike[str] | None = None,
        vendor: str | None = None,
        endpoint: str | None = None,
        labels: Sequence[str] | None = None,
        meta: Mapping[str, Any] | None = None,
        eager: bool = False,
        activate: bool = True,
    ) -> Opening[Session]:
        """A new session, open and leased. Nothing is written before its first record, unless `eager`."""

    def open(
        self,
        ref: Ref,
        *,
        create: bool = False,
        exclusive: bool = True,
        timeout: float | None = 0,
        force: bool = False,
        activate: bool | None = None,
        **head: Any,
    ) -> Opening[Session]:
        """An open session. With `exclusive` it is leased: waits up to `timeout` seconds (None: for ever) for
        whoever has it, else `SessionBusy`. Without, it is shared with others. With `create` it is begun if
        there is none."""

    def resume(
        self,
        text: str | None = None,
        *,
        workspace: str | os.PathLike[str] | None = None,
        agent: str | None = None,
        create: bool = False,
        timeout: float | None = 0,
    ) -> Opening[Session]:
        """The session that a text means (an id, the beginning of one, a name), or else the active one, or the
        newest that matches. With nothing to resume: `NoSessions`, or with `create` a new one."""

    async def read(self, ref: Ref) -> View:
        """A session as it is now, to be read without a lease."""

    async def append(
        self,
        ref: Ref,
        payload: Any,
        *,
        create: bool = False,
        expect: int | None = None,
        durable: bool = True,
        **record: Any,
    ) -> Record:
        """Adds one message without opening the session, beside whoever has it open."""

    async def extend(
        self,
        ref: Ref,
        payloads: Iterable[Any],
        *,
        create: bool = False,
        expect: int | None = None,
        durable: bool = True,
        **records: Any,
    ) -> _List[Record]:
        """Adds several messages, all or none, without opening the session."""

    async def head(self, ref: Ref) -> Head:
        """How a session stands."""

    async def resolve(self, text: str) -> str:
        """The id that a text means: an exact id, else the beginning of just one (with or without `sess_`),
        or with a leading `@` a name. A blank text means what `resume()` takes."""

    async def latest(
        self, *, workspace: str | os.PathLike[str] | None = None, agent: str | None = None
    ) -> Head | None:
        """The session with the newest activity that matches, or None."""

    async def list(
        self,
        *,
        agent: str | None = None,
        model: str | None = None,
        workspace: str | os.PathLike[str] | None = None,
        status: str | None = None,
        labels: str | Sequence[str] = ...,
        meta: Mapping[str, Any] | None = None,
        parent: Ref | None = None,
        pinned: bool | None = None,
        archived: bool = False,
        since: datetime | None = None,
        until: datetime | None = None,
        empty: bool = False,
        order: str = "activity",
        limit: int | None = 50,
        after: str | None = None,
    ) -> Page:
        """A page of heads, newest activity first; sessions without user input only with `empty`.
        `page.next` is the `after` of the next page."""

    async def search(
        self,
        query: str,
        *,
        agent: str | None = None,
        workspace: str | os.PathLike[str] | None = None,
        role: str | None = None,
        session: Ref | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        tools: bool = True,
        order: str = "rank",
        limit: int | None = 20,
        after: str | None = None,
        told: Callable[[int, int], None] | None = None,
    ) -> Hits:
        """A page of the messages in which all words of the query stand, also those that the model does not
        see any more: `"side by side"`, `begin*`, `-without`; see docs/search.md. Without `tools` what tools
        were given and gave does not count. The best come first, or with `order="newest"` the newest.
        `page.next` is the `after` of the next page; `told` hears how many bytes of how many were read, where
        much is new since the last search.

        >>> with open("memory:") as store, store.create() as session:
        ...     _ = session.append({"role": "user", "content": "Why is the café closed?"})
        ...     store.search("cafe")[0].marked()
        'Why is the [café] closed?'"""

    async def delete(self, ref: Ref) -> bool:
        """Takes a session away for good, with its children and documents; False where there is none."""

    def fork(
        self, ref: Ref, *, at: int | None = None, id: str | None = None, **head: Any
    ) -> Opening[Session]:
        """A new session, open, that begins with the history of another one as it is, or as it was just after
        the record `at`. It stands by itself: the other one may go. What is not said of it (agent, model,
        workspace, labels …) is as it is there, and so are its documents."""

    async def put(
        self, head: Head | Mapping[str, Any] | str | None, records: Iterable[Record | Mapping[str, Any] | str]
    ) -> Head:
        """Writes a whole session at once, all or nothing, in bounded memory; gives its head. `head` says what
        it is: an id, fields of a head (`id`, `agent`, `title` …), or the head of another store. `records` are
        records, which keep their times, ids and usage, or plain messages. A whole log, from its `session`
        record on, is taken as it is; from a part of one no `history` record can be taken, for it names
        records by their number. `AlreadyExists` for an id that is taken."""

    async def vacuum(self, ref: Ref, *, drop_history: bool = False) -> Vacuumed:
        """The one call that takes out what was said: with `drop_history` the messages that the newest history
        does not show, and how they once were shown. Title, counts, usage, cost and ids stay as they are; a
        `rewind` behind the newest history is over. Without it nothing goes that anybody could miss."""

    async def cleanup(
        self,
        *,
        older_than: datetime | timedelta | None = None,
        keep_last: int | None = None,
        max_bytes: int | None = None,
        archive: bool = False,
        dry_run: bool = False,
    ) -> Cleanup:
        """Takes away sessions whose last activity is older than that, and that are not among the newest so
        many; and the oldest ones until all take no more than so many bytes. Pinned, open and named sessions
        stay, and those that they are part of. Sessions in which nobody said anything, left over from a
        crash, go too, and so do documents and values that have expired and blobs that nothing names. With
        `dry_run` nothing goes, and the report says what would."""

    async def active(self) -> str | None:
        """The id of the session that was last created, opened or resumed, if it is there still."""

    async def activate(self, ref: Ref | None) -> None:
        """Makes a session the active one, or with None none."""

    def follow(
        self, ref: Ref | None = None, *, after: Cursor | str | int | None = None, timeout: float | None = None
    ) -> Follower:
        """Yields `(session id, record, cursor)` as records are committed, by anyone: those of one session, or
        of all. By default what is committed from this call on; `after` a cursor (or its text) goes on where
        that was given out, -1 begins with the first record, and for one session any seq will do. It ends when
        no record has come for `timeout` seconds, when the session is deleted, and with the store."""

    def state(self, name: str, secret: bool = False) -> State:
        """The state of this name: a JSON object of keys and values."""

    @property
    def blobs(self) -> Blobs:
        """Bytes that are kept once, whoever needs them."""

    def best_effort(self) -> BestEffortStore:
        """This store by key, with calls that never raise; what fails is logged, and kept in `.dropped`."""

    async def locks(self) -> _List[Holder]:
        """Who has which session open."""

    async def doctor(self, repair: bool = False, *, told: Callable[[int], None] | None = None) -> Report:
        """Goes through everything and reports each problem with its place and what to do about it. With
        `repair` what can be mended is, and a copy of what was there is kept under aside/ first. `told` is
        called now and then with the number of sessions that were looked at."""

    async def workspace(self, path: str | os.PathLike[str]) -> str:
        """A folder as sessions know it: see `hansard.workspace`."""

    async def close(self) -> None:
        """Closes its sessions and lets go of everything; twice is once."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exc: object) -> None: ...

class Documents:
    """The documents of one session.

    >>> import hansard
    >>> store = hansard.open("memory:")
    >>> with store.create("s") as session:
    ...     _ = session.documents.put("screen.json", b'{"nodes": []}')
    ...     session.documents.get("screen.json").data, session.documents.list()
    (b'{"nodes": []}', ['screen.json'])"""

    async def put(
        self,
        name: str,
        data: bytes | bytearray | memoryview,
        *,
        expires: Expiry = None,
        expect: str | None = None,
    ) -> Document:
        """Replaces the document of this name, wholly and durably, and all that the session said before is
        durable then too. With `expect` only if that is its version ("": there is none), else `Conflict`."""

    async def get(self, name: str) -> Document | None:
        """The document of this name; None where there is none, or it has expired."""

    async def delete(self, name: str, *, expect: str | None = None) -> bool:
        """Takes a document away; False where there is none, or its version is not the one expected."""

    async def list(self) -> list[str]:
        """The names of all documents, in order; one that cannot be read is among them."""

class BestEffortSession(_Failures):
    """A session whose calls never raise; reads that fail are empty."""

    id: Any

    def __getattr__(self, name: str) -> Any: ...
    @property
    def head(self) -> Head:
        """How the session stands, or stood when that could be seen last."""

    @property
    def documents(self) -> BestEffortDocuments:
        """The documents of the session."""

    def sub(self, path: str, **head: Any) -> Opening[BestEffortSession | None]:
        """The child of this path, open; None where that failed. What it drops is in `dropped` here too."""

    def best_effort(self) -> BestEffortSession:
        """It is that already."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exc: object) -> None: ...

class Names:
    """The names of a store.

    >>> import hansard
    >>> store = hansard.open("memory:")
    >>> _ = store.append("s", {"role": "user", "content": "Hello"}, create=True)
    >>> store.names.set("agent/coder/current", "s")
    >>> store.names.get("agent/coder/current"), store.resolve("@agent/coder/current")
    ('s', 's')"""

    async def get(self, name: str) -> str | None:
        """The id of the session that a name points at; None where there is none, or it is gone."""

    async def set(self, name: str, ref: Ref, *, expect: str | type[Any] | None = ...) -> None:
        """Points a name at a session. With `expect` only if it points there now (None: at nothing), else
        `Conflict`."""

    async def delete(self, name: str) -> bool:
        """Takes a name away; False where there is none. The session stays."""

    async def move(
        self, changes: Mapping[str, Ref | None], *, expect: Mapping[str, Any] | None = None
    ) -> None:
        """Points several names of one group at sessions (None: at nothing) in one write: all or none."""

    async def list(self, prefix: str = "") -> dict[str, str]:
        """All names that begin so, and the ids of the sessions that they point at; none that point at
        nothing."""

class State:
    """One JSON object of keys and values. Threads and processes may share it.

    >>> import hansard
    >>> settings = hansard.open("memory:").state("settings")
    >>> settings.set("theme", "dark")
    >>> settings.get("theme"), settings.get("font", "mono"), settings.all()
    ('dark', 'mono', {'theme': 'dark'})"""

    name: Any

    async def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, the caller's own; the default where there is none, or it has expired."""

    async def all(self) -> dict[str, Any]:
        """Every key that has a value now."""

    async def set(self, key: str, value: Any, *, expires: Expiry = None) -> None:
        """Gives a key a value, any JSON, maybe for a time."""

    async def delete(self, key: str) -> bool:
        """Takes a key away; False where there is none."""

    async def update(
        self,
        changes: Mapping[str, Any] | Callable[[dict[str, Any]], Any] = ...,
        *,
        unset: Iterable[str] = ...,
        expires: Expiry = None,
    ) -> dict[str, Any]:
        """Sets several keys and takes others away, in one write; gives everything as it is then. A function
        gets all of it and changes it in place; it is called again where somebody else writes meanwhile."""

    async def load(self) -> dict[str, Any]:
        """The same as `all()`: nothing is kept in memory."""

    async def save(self) -> None:
        """Nothing is left to do: every write was durable when it returned."""

class Blobs:
    """The blobs of a store.

    >>> import hansard
    >>> blobs = hansard.open("memory:").blobs
    >>> digest = blobs.put(b"a picture")
    >>> blobs.get(digest), blobs.put(b"a picture") == digest, blobs.get("0" * 64)
    (b'a picture', True, None)"""

    async def put(self, data: bytes | bytearray | memoryview) -> str:
        """Keeps bytes, durably, and gives their digest. What is there already is safe for another day."""

    async def get(self, digest: str) -> bytes | None:
        """The bytes of a digest, or None."""

    async def sweep(self, *, older_than: timedelta = ..., dry_run: bool = False) -> list[Blob]:
        """Takes away what nothing names and was not put for a while. Reads all there is; where something
        cannot be read, nothing is taken."""

class BestEffortStore(_Failures):
    """Sessions by key, for a loop that only ever says "add this to that". Writing begins what is missing;
    what is unknown reads as empty. While somebody has the session open, what only they may do waits for two
    seconds, and is given up then.

    >>> import hansard
    >>> sessions = hansard.open("memory:").best_effort()
    >>> _ = sessions.append("telegram:1", {"role": "user", "content": "Hello"})
    >>> sessions.history("telegram:1"), sessions.history("telegram:2")
    ([{'role': 'user', 'content': 'Hello'}], [])
    >>> sessions.append("", "no key"), sessions.dropped[0].error
    (None, InvalidId("invalid session id '': it is blank"))"""

    async def append(self, key: str, payload: Any, **record: Any) -> Record | None:
        """Adds a message; None where that failed."""

    async def extend(self, key: str, payloads: Any, **records: Any) -> list[Record] | None:
        """Adds several messages, all or none."""

    async def event(
        self,
        key: str,
        type: str,
        data: Any = None,
        *,
        event_id: str,
        stream_id: str | None = None,
        durable: bool = True,
    ) -> Record | None:
        """Keeps an event of a live stream; the same `event_id` is stored once."""

    async def output(
        self,
        key: str,
        line: str | bytes | bytearray | memoryview,
        *,
        id: str | None = None,
        durable: bool = True,
    ) -> Record | None:
        """Keeps a line of the agent's raw output; nothing of an empty one."""

    async def add_usage(
        self, key: str, usage: Mapping[str, Any], *, model: str | None = None, id: str | None = None
    ) -> Record | None:
        """Records usage that belongs to no message."""

    async def set_history(self, key: str, messages: Any, *, id: str | None = None) -> Record | None:
        """Makes the history these messages."""

    async def truncate(
        self, key: str, keep: int, *, pairs: bool = True, id: str | None = None
    ) -> Record | None:
        """From now on the model sees the last `keep` messages. An unknown session stays unknown."""

    async def set_summary(self, key: str, text: str, *, id: str | None = None) -> Record | None:
        """Sets the summary."""

    async def checkpoint(self, key: str, messages: Any, **options: Any) -> Record | None:
        """From now on the model sees these messages, then what follows."""

    async def pop(
        self, key: str, n: int = 1, *, pairs: bool = False, id: str | None = None
    ) -> list[Any] | None:
        """Takes the newest `n` messages out of the history and gives them; None where that failed. An unknown
        session stays unknown, and gives none."""

    async def clear(self, key: str, *, id: str | None = None) -> Record | None:
        """From now on the model sees nothing of what was said. An unknown session stays unknown."""

    async def rewind(self, key: str, seq: int, *, id: str | None = None) -> Record | None:
        """The history as it was just after a record. Where there is no such record, that failed."""

    async def rename(self, key: str, title: str, *, id: str | None = None) -> Record | None:
        """Gives it a title, which stays whatever is said later."""

    async def update(self, key: str, **fields: Any) -> Record | None:
        """Replaces whole values of the head; what is not named stays."""

    async def label(self, key: str, *add: str, remove: Any = ..., id: str | None = None) -> Record | None:
        """Adds and removes labels."""

    async def pin(self, key: str, on: bool = True, *, id: str | None = None) -> Record | None:
        """A pinned session is never cleaned up."""

    def sub(self, key: str, path: str, **head: Any) -> Opening[BestEffortSession | None]:
        """The child of this path, open; None where that failed. What it drops is in `dropped` here too."""

    async def delete(self, key: str) -> bool:
        """Takes a session away; False where there is none or that failed."""

    async def flush(self, key: str) -> None:
        """Makes safe what was written with `durable=False`; everything else is, since it was acknowledged."""

    async def save(self, key: str) -> None:
        """The same; there is nothing else to save."""

    async def history(self, key: str, limit: int | None = None, *, repair: bool = False) -> History:
        """What the model sees; empty where there is nothing, or it cannot be read."""

    def records(self, key: str, **which: Any) -> Stream[Record]:
        """Everything that was written, in order."""

    def turns(self, key: str, **which: Any) -> Stream[TurnView]:
        """What was said, as turns."""

    async def get(self, key: str, ref: int | str) -> Record | None:
        """The record with this seq or this id, or None."""

    async def summary(self, key: str) -> str:
        """The summary, or ""."""

    async def usage(self, key: str, by: str | None = None) -> Any:
        """What it cost: a `Usage`, or with `by` a list."""

    async def head(self, key: str) -> Head | None:
        """How a session stands, or None."""

    async def subs(self, key: str) -> list[Head]:
        """The heads of its children, by path."""

    def documents(self, key: str) -> BestEffortDocuments:
        """The documents of a session; putting one begins it."""

    async def close(self) -> None:
        """The store goes on; whoever opened it closes it."""

class _Failures:
    dropped: deque[Dropped]

class BestEffortDocuments(_Failures):
    """The documents of a session, with calls that never raise; what cannot be read is not there."""

    async def put(self, name: str, data: bytes | bytearray | memoryview, **options: Any) -> Document | None:
        """Replaces the document of this name; None where that failed."""

    async def get(self, name: str) -> Document | None:
        """The document of this name, or None."""

    async def delete(self, name: str, *, expect: str | None = None) -> bool:
        """Takes a document away; False where there is none or that failed."""

    async def list(self) -> list[str]:
        """The names of all documents, in order."""

def open(
    url: str | os.PathLike[str] | None = None,
    *,
    namespace: str = "",
    readonly: bool = False,
    create: bool = True,
    clock: Callable[[], datetime] | None = None,
    new_id: Callable[[], str] | None = None,
) -> Opening[Store]:
    """Opens a store: the one named, else `$HANSARD_STORE`, else that in the user's data folder.

    A plain path or `file:…` is a folder, `memory:` is new each time, `memory:name` shared in the process;
    other distributions add schemes of their own: see `hansard.engines.schemes`.
    With `create=False` it must be there. A `namespace` is a tenant: ids, names and state of its own. `clock`
    and `new_id` are for tests.

    >>> with open("memory:") as store, store.create() as session:
    ...     session.append({"role": "user", "content": "Hello"}).seq
    1"""

def over(store: hansard.store.Store) -> Store:
    """The asynchronous side of a store that is open already. Close either; that closes both."""

__all__ = [
    "BestEffortDocuments",
    "BestEffortSession",
    "BestEffortStore",
    "Blobs",
    "Documents",
    "Follower",
    "Names",
    "Opening",
    "Session",
    "State",
    "Store",
    "Stream",
    "View",
    "open",
    "over",
]
