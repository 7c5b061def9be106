"""Writing that never stops the caller: what fails is logged and kept, and nothing is raised.

For agents that would rather go on than know. Everything else in this package returns its errors.
"""

from __future__ import annotations

import copy
import logging
import time as clocks
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from hansard.errors import Conflict, SessionBusy, SessionNotFound
from hansard.records import freeze
from hansard.views import head as heads
from hansard.views.head import Head
from hansard.views.history import History
from hansard.views.usage import Usage

if TYPE_CHECKING:
    from hansard.documents import Document, Documents
    from hansard.records import Record
    from hansard.session import Session, View
    from hansard.store import Store
    from hansard.views.turns import TurnView

log = logging.getLogger("hansard")

KEPT = 1000
"""Failures that `dropped` remembers, the newest."""

WAIT = 2.0
"""Seconds that a call by key waits while others change the history, or have the session open."""

Call = TypeVar("Call", bound=Callable[..., Any])
T = TypeVar("T")


class Dropped(msgspec.Struct, frozen=True, kw_only=True):
    """A call that failed: which, of which session, with what, and why. The arguments are copies, so that
    the call can be made again as it was, whatever became of the caller's objects."""

    session: str
    call: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    error: Exception
    at: datetime


class Attempt:
    """A call on its way, until it is done or given up. Nobody tries a call again that returns no error, so
    those that meet take turns."""

    def __init__(
        self,
        of: _Failures,
        session: Any,
        name: str,
        call: Callable[..., Any],
        arguments: tuple[Any, ...],
        options: Mapping[str, Any],
    ) -> None:
        self._of = of
        self._session = session
        self._name = name
        self._call = call
        self._arguments = arguments
        self._options = dict(options)
        self.patience = of._patience()
        self._until = clocks.monotonic() + self.patience

    def once(self) -> Any:
        """What the call gives, or what stands for it where it failed. `SessionBusy` where it may be tried
        again."""
        try:  # what can be gone through once is kept for a second try, and for `dropped`
            self._arguments = tuple(map(_listed, self._arguments))
            self._options = {name: _listed(value) for name, value in self._options.items()}
            while True:
                try:
                    found = self._call(*self._arguments, **self._options)
                    break
                except Conflict as error:
                    if self._theirs(error) or clocks.monotonic() >= self._until:
                        raise
        except SessionBusy as error:
            if self.patience <= 0:
                return self.failed(error)
            raise
        except Exception as error:  # also what a payload of the caller raises
            return self.failed(error)
        return self._as_far_as_it_goes(found) if isinstance(found, Iterator) else found

    def patiently(self) -> Any:
        """The same, again and again for a while, in this thread."""
        pause = 0.002
        while True:
            try:
                return self.once()
            except SessionBusy as error:
                if clocks.monotonic() + pause > self._until:
                    return self.failed(error)
            clocks.sleep(pause)
            pause = min(pause * 1.5, 0.05)

    def failed(self, error: Exception) -> Any:
        """Logs it and keeps it; what stands for a result."""
        of, session = self._of, self._session
        session = session.id if isinstance(session, Head) else session
        log.error("%s of session %r in %s failed: %s", self._name, session, of._place, error)
        try:
            now = of._now()
        except Exception:
            now = datetime.min
        of.dropped.append(
            Dropped(
                session=session,
                call=self._name,
                arguments=_own(self._arguments),
                options=_own(self._options),
                error=error,
                at=now,
            )
        )
        if self._name == "usage":
            return Usage() if not self._arguments[of._named :] and self._options.get("by") is None else []
        return _EMPTY.get(self._name, _nothing)()

    def _theirs(self, error: Conflict) -> bool:
        """Whether the caller asked for what is in the way, and only the caller can decide anew."""
        asked = any(self._options.get(name) is not None for name in ("expect", "upto"))
        return asked or error.first is not None

    def _as_far_as_it_goes(self, found: Iterator[Any]) -> Iterator[Any]:
        """What is read while it is used: where that fails, it ends."""
        while True:
            try:
                one = next(found)
            except StopIteration:
                return
            except Exception as error:
                self.failed(error)
                return
            yield one


def _nothing() -> None:
    """What a write that failed gives."""


_EMPTY: dict[str, Callable[[], Any]] = {
    "history": History,
    "records": lambda: iter(()),
    "turns": lambda: iter(()),
    "summary": str,
    "subs": list,
    "delete": bool,
    "documents.list": list,
    "documents.delete": bool,
}
"""What stands for the result of a call that failed, where that is not None."""


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, Iterator) else value


def _own(value: Any, known: dict[int, Any] | None = None) -> Any:
    """A copy of what the caller gave, part by part: one part that cannot be copied is kept as its JSON, or
    else as it is, and spoils no other."""
    if value is None or isinstance(value, str | int | float | bytes):
        return value
    known = {} if known is None else known
    if id(value) in known:
        return known[id(value)]
    kind = type(value)
    try:
        if kind is dict:
            own = known[id(value)] = {}
            own.update((key, _own(item, known)) for key, item in value.items())
            return own
        if kind is list:
            items = known[id(value)] = []
            items.extend(_own(item, known) for item in value)
            return items
        if kind is tuple:
            return tuple(_own(item, known) for item in value)
        if kind is memoryview:
            return bytes(value)
        return copy.deepcopy(value)
    except Exception:
        pass
    try:
        return freeze(value)[1]
    except Exception:
        return value


def _tried(call: Call) -> Call:
    """The same call, which raises nothing."""

    @wraps(call)
    def tried(self: _Failures, *arguments: Any, **options: Any) -> Any:
        return self._attempt(call.__name__, arguments, options).patiently()

    return cast("Call", tried)


class _Failures:
    _group = ""
    """What stands before the name of a call in `dropped`."""

    _named = 0
    """Arguments that say which session is meant."""

    def __init__(
        self, now: Callable[[], datetime], place: str, dropped: deque[Dropped] | None = None
    ) -> None:
        self._now = now
        self._place = place
        self.dropped: deque[Dropped] = deque(maxlen=KEPT) if dropped is None else dropped
        """What was not written, oldest first."""

    def _patience(self) -> float:
        """Seconds that a call waits for others."""
        return 0.0

    def _session_of(self, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        """Which session a call means."""
        raise NotImplementedError

    def _plain(self, name: str) -> Callable[..., Any]:
        """The call as it is when it may raise."""
        return partial(getattr(type(self), name).__wrapped__, self)

    def _attempt(self, name: str, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Attempt:
        session = self._session_of(arguments, options)
        return Attempt(self, session, self._group + name, self._plain(name), arguments, options)


class BestEffortDocuments(_Failures):
    """The documents of a session, with calls that never raise; what cannot be read is not there."""

    _group = "documents."

    def __init__(
        self,
        of: _Failures,
        session: str,
        read: Callable[[Callable[[Documents], Any]], Any],
        write: Callable[[Callable[[Documents], Any], bool], Any],
    ) -> None:
        super().__init__(of._now, of._place, of.dropped)
        self._session = session
        self._read = read
        self._write = write
        self._patience = of._patience  # type: ignore[method-assign]

    def _session_of(self, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> str:
        return self._session

    @_tried
    def put(self, name: str, data: bytes | bytearray | memoryview, **options: Any) -> Document | None:
        """Replaces the document of this name; None where that failed."""
        return self._write(lambda documents: documents.put(name, data, **options), True)  # type: ignore[no-any-return]

    @_tried
    def get(self, name: str) -> Document | None:
        """The document of this name, or None."""
        return self._read(lambda documents: documents.get(name))  # type: ignore[no-any-return]

    @_tried
    def delete(self, name: str, *, expect: str | None = None) -> bool:
        """Takes a document away; False where there is none or that failed."""
        return bool(self._write(lambda documents: documents.delete(name, expect=expect), False))

    @_tried
    def list(self) -> list[str]:
        """The names of all documents, in order."""
        return self._read(lambda documents: documents.list()) or []


class BestEffortSession(_Failures):
    """A session whose calls never raise; reads that fail are empty."""

    def __init__(self, session: Session, dropped: deque[Dropped] | None = None) -> None:
        super().__init__(session._store._now, session._store.url, dropped)
        self._session = session
        self.id = session.id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r}, {len(self.dropped)} dropped>"

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._session, name)
        if name.startswith("_") or not callable(found):
            return found
        return lambda *arguments, **options: self._attempt(name, arguments, options).patiently()

    def _session_of(self, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> str:
        return self.id

    def _plain(self, name: str) -> Callable[..., Any]:
        return super()._plain(name) if hasattr(type(self), name) else getattr(self._session, name)

    @property
    def head(self) -> Head:
        """How the session stands, or stood when that could be seen last."""
        session = self._session
        found = Attempt(self, self.id, "head", lambda: session.head, (), {}).once()
        return heads.copy(session._head) if found is None else found

    @property
    def documents(self) -> BestEffortDocuments:
        """The documents of the session."""

        def use(work: Callable[[Documents], Any], create: bool = True) -> Any:
            return work(self._session.documents)

        return BestEffortDocuments(self, self.id, use, use)

    @_tried
    def sub(self, path: str, **head: Any) -> BestEffortSession | None:
        """The child of this path, open; None where that failed. What it drops is in `dropped` here too."""
        return BestEffortSession(self._session.sub(path, **head), self.dropped)

    def best_effort(self) -> BestEffortSession:
        """It is that already."""
        return self

    def __enter__(self) -> BestEffortSession:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


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
    (None, InvalidId("invalid session id '': it is blank"))
    """

    _named = 1

    def __init__(self, store: Store) -> None:
        super().__init__(store._now, store.url)
        self._store = store

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._store.url}, {len(self.dropped)} dropped>"

    def _patience(self) -> float:
        return WAIT

    def _session_of(self, arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        return arguments[0] if arguments else options.get("key")

    # -- writing

    @_tried
    def append(self, key: str, payload: Any, **record: Any) -> Record | None:
        """Adds a message; None where that failed."""
        return self._store.append(key, payload, **{"create": True, **record})

    @_tried
    def extend(self, key: str, payloads: Any, **records: Any) -> list[Record] | None:
        """Adds several messages, all or none."""
        return self._store.extend(key, payloads, **{"create": True, **records})

    @_tried
    def event(
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
        return self._in(
            key,
            lambda session: session.event(
                type, data, event_id=event_id, stream_id=stream_id, durable=durable
            ),
        )

    @_tried
    def output(
        self,
        key: str,
        line: str | bytes | bytearray | memoryview,
        *,
        id: str | None = None,
        durable: bool = True,
    ) -> Record | None:
        """Keeps a line of the agent's raw output; nothing of an empty one."""
        return self._in(key, lambda session: session.output(line, id=id, durable=durable))

    @_tried
    def add_usage(
        self, key: str, usage: Mapping[str, Any], *, model: str | None = None, id: str | None = None
    ) -> Record | None:
        """Records usage that belongs to no message."""
        return self._in(key, lambda session: session.add_usage(usage, model=model, id=id))

    @_tried
    def set_history(self, key: str, messages: Any, *, id: str | None = None) -> Record | None:
        """Makes the history these messages."""
        return self._in(key, lambda session: session.set_history(messages, id=id))

    @_tried
    def truncate(self, key: str, keep: int, *, pairs: bool = True, id: str | None = None) -> Record | None:
        """From now on the model sees the last `keep` messages. An unknown session stays unknown."""
        return self._in(key, lambda session: session.truncate(keep, pairs=pairs, id=id), create=False)

    @_tried
    def set_summary(self, key: str, text: str, *, id: str | None = None) -> Record | None:
        """Sets the summary."""
        return self._in(key, lambda session: session.set_summary(text, id=id))

    @_tried
    def checkpoint(self, key: str, messages: Any, **options: Any) -> Record | None:
        """From now on the model sees these messages, then what follows."""
        return self._in(key, lambda session: session.checkpoint(messages, **options))

    @_tried
    def pop(self, key: str, n: int = 1, *, pairs: bool = False, id: str | None = None) -> list[Any] | None:
        """Takes the newest `n` messages out of the history and gives them; None where that failed. An unknown
        session stays unknown, and gives none."""
        found = self._in(key, lambda session: session.pop(n, pairs=pairs, id=id), create=False)
        return [] if found is None else found

    @_tried
    def clear(self, key: str, *, id: str | None = None) -> Record | None:
        """From now on the model sees nothing of what was said. An unknown session stays unknown."""
        return self._in(key, lambda session: session.clear(id=id), create=False)

    @_tried
    def rewind(self, key: str, seq: int, *, id: str | None = None) -> Record | None:
        """The history as it was just after a record. Where there is no such record, that failed."""
        with self._store.open(key, exclusive=False) as session:
            return session.rewind(seq, id=id)

    @_tried
    def rename(self, key: str, title: str, *, id: str | None = None) -> Record | None:
        """Gives it a title, which stays whatever is said later."""
        return self._in(key, lambda session: session.rename(title, id=id))

    @_tried
    def update(self, key: str, **fields: Any) -> Record | None:
        """Replaces whole values of the head; what is not named stays."""
        return self._in(key, lambda session: session.update(**fields))

    @_tried
    def label(self, key: str, *add: str, remove: Any = (), id: str | None = None) -> Record | None:
        """Adds and removes labels."""
        return self._in(key, lambda session: session.label(*add, remove=remove, id=id))

    @_tried
    def pin(self, key: str, on: bool = True, *, id: str | None = None) -> Record | None:
        """A pinned session is never cleaned up."""
        return self._in(key, lambda session: session.pin(on, id=id))

    @_tried
    def sub(self, key: str, path: str, **head: Any) -> BestEffortSession | None:
        """The child of this path, open; None where that failed. What it drops is in `dropped` here too."""
        return self._in(key, lambda session: BestEffortSession(session.sub(path, **head), self.dropped))

    @_tried
    def delete(self, key: str) -> bool:
        """Takes a session away; False where there is none or that failed."""
        return self._store.delete(key)

    @_tried
    def flush(self, key: str) -> None:
        """Makes safe what was written with `durable=False`; everything else is, since it was acknowledged."""
        self._of(key, lambda view: self._store._engine.flush(view.id), None)

    @_tried
    def save(self, key: str) -> None:
        """The same; there is nothing else to save."""
        self._of(key, lambda view: self._store._engine.flush(view.id), None)

    def _in(self, key: str, work: Callable[[Session], T], *, create: bool = True) -> T | None:
        """Does something in a session that nobody has to have opened."""
        try:
            session = self._store.open(key, create=create, exclusive=False)
        except SessionNotFound:
            if create:
                raise
            return None
        with session:
            session._born = False  # a summary alone is worth keeping here
            return work(session)

    # -- reading

    @_tried
    def history(self, key: str, limit: int | None = None, *, repair: bool = False) -> History:
        """What the model sees; empty where there is nothing, or it cannot be read."""
        return self._of(key, lambda view: view.history(limit, repair=repair), History())

    @_tried
    def records(self, key: str, **which: Any) -> Iterator[Record]:
        """Everything that was written, in order."""
        return self._of(key, lambda view: view.records(**which), iter(()))

    @_tried
    def turns(self, key: str, **which: Any) -> Iterator[TurnView]:
        """What was said, as turns."""
        return self._of(key, lambda view: view.turns(**which), iter(()))

    @_tried
    def get(self, key: str, ref: int | str) -> Record | None:
        """The record with this seq or this id, or None."""
        return self._of(key, lambda view: view.get(ref), None)

    @_tried
    def summary(self, key: str) -> str:
        """The summary, or ""."""
        return self._of(key, lambda view: view.summary(), "")

    @_tried
    def usage(self, key: str, by: str | None = None) -> Any:
        """What it cost: a `Usage`, or with `by` a list."""
        return self._of(key, lambda view: view.usage(by), Usage() if by is None else [])

    @_tried
    def head(self, key: str) -> Head | None:
        """How a session stands, or None."""
        return self._of(key, lambda view: view.head, None)

    @_tried
    def subs(self, key: str) -> list[Head]:
        """The heads of its children, by path."""
        return self._of(key, lambda view: view.subs(), [])

    def _of(self, key: str, read: Callable[[View], T], empty: T) -> T:
        try:
            return read(self._store.read(key))
        except SessionNotFound:
            return empty

    def documents(self, key: str) -> BestEffortDocuments:
        """The documents of a session; putting one begins it."""

        def read(work: Callable[[Documents], Any]) -> Any:
            return self._of(key, lambda view: work(view.documents), None)

        def write(work: Callable[[Documents], Any], create: bool) -> Any:
            return self._in(key, lambda session: work(session.documents), create=create)

        return BestEffortDocuments(self, key, read, write)

    def close(self) -> None:
        """The store goes on; whoever opened it closes it."""
