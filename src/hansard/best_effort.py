"""Writing that never stops the caller: what fails is logged and kept, and nothing is raised.

For agents that would rather go on than know. Everything else in this package returns its errors.
"""

from __future__ import annotations

import logging
import time as clocks
from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from hansard.errors import Conflict, NoSessions, SessionBusy, SessionNotFound
from hansard.views.history import History
from hansard.views.usage import Usage

if TYPE_CHECKING:
    from hansard.session import Session
    from hansard.store import Store

log = logging.getLogger("hansard")

KEPT = 1000
"""Failures that `dropped` remembers, the newest."""

WAIT = 2.0
"""Seconds that a change of the history waits while others change it, or have the session open."""


class Dropped(msgspec.Struct, frozen=True, kw_only=True):
    """A call that failed: which, of which session, with what, and why."""

    session: str
    call: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    error: Exception
    at: datetime


class _Failures:
    def __init__(self, now: Callable[[], datetime], place: str) -> None:
        self._now = now
        self._place = place
        self.dropped: deque[Dropped] = deque(maxlen=KEPT)
        """What was not written, oldest first."""

    def _try(
        self, session: str, name: str, call: Callable[..., Any], arguments: Any, options: dict[str, Any]
    ) -> Any:
        try:  # what can be gone through once is kept for a second try, and for `dropped`
            arguments = [list(one) if isinstance(one, Iterator) else one for one in arguments]
            return call(*arguments, **options)
        except Exception as error:  # also what a payload of the caller raises
            log.error("%s of session %r in %s failed: %s", name, session, self._place, error)
            try:
                now = self._now()
            except Exception:
                now = datetime.min
            self.dropped.append(
                Dropped(
                    session=session,
                    call=name,
                    arguments=tuple(arguments),
                    options=options,
                    error=error,
                    at=now,
                )
            )
            return None


_WRITES = frozenset(
    "append extend flush save checkpoint truncate set_history pop clear rewind set_summary rename pin label "
    "update add_usage event output close".split()
)
_READS: dict[str, Callable[..., Any]] = {
    "history": lambda *_, **__: History(),
    "records": lambda *_, **__: iter(()),
    "get": lambda *_, **__: None,
    "summary": str,
    "subs": list,
    "usage": lambda by=None: Usage() if by is None else [],
}
"""The reads, and what each gives where it fails."""


class BestEffortSession(_Failures):
    """A session whose calls never raise; reads that fail are empty."""

    def __init__(self, session: Session) -> None:
        super().__init__(session._store._now, session._store.url)
        self._session = session
        self.id = session.id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r}, {len(self.dropped)} dropped>"

    def __getattr__(self, name: str) -> Any:
        if name not in _WRITES and name not in _READS:
            return getattr(self._session, name)
        call = getattr(self._session, name)

        def tried(*arguments: Any, **options: Any) -> Any:
            found = self._try(self.id, name, call, arguments, options)
            if found is None and name in _READS:
                return _READS[name](*arguments, **options)
            return self._as_far_as_it_goes(found, name) if isinstance(found, Iterator) else found

        return tried

    def _as_far_as_it_goes(self, found: Iterator[Any], name: str) -> Iterator[Any]:
        """What is read while it is used: where that fails, it ends."""
        while True:
            one = self._try(self.id, name, lambda: next(found, None), (), {})
            if one is None:
                return
            yield one

    def __enter__(self) -> BestEffortSession:
        return self

    def __exit__(self, *exc: object) -> None:
        self._try(self.id, "close", self._session.close, (), {})


class BestEffortStore(_Failures):
    """Sessions by key, for a loop that only ever says "add this to that". Writing begins what is missing;
    what is unknown reads as empty.

    >>> import hansard
    >>> sessions = hansard.open("memory:").best_effort()
    >>> _ = sessions.append("telegram:1", {"role": "user", "content": "Hello"})
    >>> sessions.history("telegram:1"), sessions.history("telegram:2")
    ([{'role': 'user', 'content': 'Hello'}], [])
    >>> sessions.append("", "no key"), sessions.dropped[0].error
    (None, InvalidId("invalid session id '': it is blank"))
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store._now, store.url)
        self._store = store

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._store.url}, {len(self.dropped)} dropped>"

    # -- writing

    def append(self, key: str, payload: Any, **record: Any) -> Any:
        """Adds a message; None where that failed."""
        return self._try(key, "append", self._store.append, (key, payload), {"create": True, **record})

    def extend(self, key: str, payloads: Any, **records: Any) -> Any:
        """Adds several messages, all or none."""
        return self._try(key, "extend", self._store.extend, (key, payloads), {"create": True, **records})

    def set_history(self, key: str, messages: Any, *, id: str | None = None) -> Any:
        """Makes the history these messages."""
        return self._change(key, "set_history", messages, id=id)

    def truncate(self, key: str, keep: int, *, pairs: bool = True, id: str | None = None) -> Any:
        """From now on the model sees the last `keep` messages. An unknown session stays unknown."""
        return self._change(key, "truncate", keep, create=False, pairs=pairs, id=id)

    def set_summary(self, key: str, text: str, *, id: str | None = None) -> Any:
        """Sets the summary."""
        return self._change(key, "set_summary", text, id=id)

    def checkpoint(self, key: str, messages: Any, **options: Any) -> Any:
        """From now on the model sees these messages, then what follows."""
        return self._change(key, "checkpoint", messages, **options)

    def clear(self, key: str, *, id: str | None = None) -> Any:
        """From now on the model sees nothing of what was said. An unknown session stays unknown."""
        return self._change(key, "clear", create=False, id=id)

    def _change(self, key: str, name: str, *arguments: Any, create: bool = True, **options: Any) -> Any:
        def once(*given: Any, **more: Any) -> Any:
            try:
                session = self._store.open(key, create=create, exclusive=False)
            except SessionNotFound:
                if create:
                    raise
                return None
            with session:
                session._born = False  # a summary alone is worth keeping here
                return getattr(session, name)(*given, **more)

        def call(*given: Any, **more: Any) -> Any:
            """Nobody tries a call again that returns no error, so those that meet take turns."""
            deadline, pause = clocks.monotonic() + WAIT, 0.002
            while True:
                try:
                    return once(*given, **more)
                except (SessionBusy, Conflict) as error:
                    theirs = isinstance(error, Conflict) and (error.first is not None or "upto" in more)
                    if theirs or clocks.monotonic() + pause > deadline:
                        raise
                clocks.sleep(pause)
                pause = min(pause * 1.5, 0.05)

        return self._try(key, name, call, arguments, options)

    def delete(self, key: str) -> bool:
        """Takes a session away; False where there is none or that failed."""
        return bool(self._try(key, "delete", self._store.delete, (key,), {}))

    def save(self, key: str) -> None:
        """Everything that was acknowledged is safe already; this makes safe what was written with
        `durable=False`."""
        self._try(key, "save", self._flush, (key,), {})

    def _flush(self, key: str) -> None:
        try:
            self._store._engine.flush(self._store.head(key).id)
        except SessionNotFound:
            return

    # -- reading

    def history(self, key: str, limit: int | None = None) -> History:
        """What the model sees; empty where there is nothing, or it cannot be read."""
        return self._read(key, "history", History(), limit)  # type: ignore[no-any-return]

    def summary(self, key: str) -> str:
        """The summary, or ""."""
        return self._read(key, "summary", "")  # type: ignore[no-any-return]

    def _read(self, key: str, name: str, empty: Any, *arguments: Any) -> Any:
        def call(*given: Any) -> Any:
            try:
                return getattr(self._store.read(key), name)(*given)
            except (SessionNotFound, NoSessions):
                return empty

        found = self._try(key, name, call, arguments, {})
        return empty if found is None else found

    def close(self) -> None:
        """The store goes on; whoever opened it closes it."""
