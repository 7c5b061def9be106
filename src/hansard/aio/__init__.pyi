"""Written by scripts/aio.py (`make docs`) from the synchronous classes. Not to be edited."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Self

import hansard.store
from hansard.aio.following import Follower as Follower
from hansard.aio.twins import Opening as Opening
from hansard.aio.twins import Stream as Stream
from hansard.engines import Holder
from hansard.following import Cursor
from hansard.records import Damage, Record
from hansard.store import Page, Ref, Report
from hansard.views.head import Head
from hansard.views.history import History

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

    async def get(self, ref: int | str) -> Record | None:
        """The record with this seq or this id, or None."""

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

    async def close(self) -> None:
        """Makes everything durable and gives the lease back; twice is once. A session that this handle
        created and in which no person said anything is removed."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exc: object) -> None: ...

class Store:
    """An open store. Threads may share it. Close it, or use it in a `with` block."""

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

    async def delete(self, ref: Ref) -> bool:
        """Takes a session away for good; False where there is none."""

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

    async def locks(self) -> _List[Holder]:
        """Who has which session open."""

    async def doctor(self, *, told: Callable[[int], None] | None = None) -> Report:
        """Goes through everything and reports each problem with its place and what to do about it. `told` is
        called now and then with the number of sessions that were looked at."""

    async def workspace(self, path: str | os.PathLike[str]) -> str:
        """A folder as sessions know it: see `hansard.workspace`."""

    async def close(self) -> None:
        """Closes its sessions and lets go of everything; twice is once."""

    async def __aenter__(self) -> Self: ...
    async def __aexit__(self, *exc: object) -> None: ...

def open(
    url: str | os.PathLike[str] | None = None,
    *,
    readonly: bool = False,
    create: bool = True,
    clock: Callable[[], datetime] | None = None,
    new_id: Callable[[], str] | None = None,
) -> Opening[Store]:
    """Opens a store: the one named, else `$HANSARD_STORE`, else that in the user's data folder.

    A plain path or `file:…` is a folder, `memory:` is new each time, `memory:name` shared in the process.
    With `create=False` it must be there. `clock` and `new_id` are for tests.

    >>> with open("memory:") as store, store.create() as session:
    ...     session.append({"role": "user", "content": "Hello"}).seq
    1"""

def over(store: hansard.store.Store) -> Store:
    """The asynchronous side of a store that is open already. Close either; that closes both."""

__all__ = ["Follower", "Opening", "Session", "Store", "Stream", "View", "open", "over"]
