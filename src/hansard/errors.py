"""Every error a caller can meet. Each says what to do about it and carries what a program needs.

All stand below `HansardError`, and each also inherits the built-in exception that a Python reader
expects, so that `except LookupError` or `except OSError` does what it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class HansardError(Exception):
    """The root of them all. With `outcome_unknown` the write may or may not have been stored, wholly."""

    outcome_unknown: bool = False
    closes: bool = False
    """Whether the handle that met it can go on no more and has to be opened anew."""

    def __reduce__(self) -> tuple[Any, ...]:
        """As it is: the message was made once, from what `__init__` was given, and is not made again."""
        return _again, (type(self), self.args, self.__dict__)


class InvalidId(HansardError, ValueError):
    """An id that no session can have. Nothing was written."""

    def __init__(self, id: object, reason: str) -> None:
        super().__init__(f"invalid session id {_short(id)}: {reason}")
        self.id = id
        self.reason = reason


class InvalidPayload(HansardError, ValueError):
    """A payload that JSON cannot carry unchanged. `path` says where. Nothing was written."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class SessionNotFound(HansardError, LookupError):
    """No session by that id, prefix or name (any more)."""

    def __init__(self, ref: str, detail: str = "") -> None:
        super().__init__(detail or f"no session {_short(ref)}; list what there is with `hansard ls`")
        self.ref = ref


class NoSessions(HansardError, LookupError):
    """There is nothing to resume."""


class AmbiguousSession(HansardError, LookupError):
    """A prefix of several sessions: `total` of them, the first ten as `candidates` (id, title)."""

    def __init__(self, text: str, total: int, candidates: Sequence[tuple[str, str]]) -> None:
        listed = "; ".join(f"{id} ({title})" if title else id for id, title in candidates)
        more = "" if total <= len(candidates) else f"; and {total - len(candidates)} more"
        super().__init__(f"{_short(text)} begins {total} session ids: {listed}{more}. Give more of the id")
        self.text = text
        self.total = total
        self.candidates = list(candidates)


class AlreadyExists(HansardError, ValueError):
    """A session by that id is there already, maybe archived."""

    def __init__(self, id: str) -> None:
        super().__init__(f"session {_short(id)} exists already; open it, or choose another id")
        self.id = id


class SessionBusy(HansardError, RuntimeError):
    """Somebody else has the session open. `holder` says who, as far as is known."""

    def __init__(self, id: str, holder: Any = None, detail: str = "") -> None:
        who = f" by {holder}" if holder is not None else ""
        hint = detail or (
            "close it there, wait with timeout=, read it with read(), "
            "or append beside it with open(…, exclusive=False)"
        )
        super().__init__(f"session {_short(id)} is open{who}; {hint}")
        self.id = id
        self.holder = holder


class LeaseLost(HansardError, RuntimeError):
    """The lease of this handle was taken over; nothing it does is written any more."""


class Conflict(HansardError, RuntimeError):
    """The session is not as the caller believed. Carries `first` (the record that has the id) or `seq`."""

    def __init__(self, message: str, *, first: Any = None, seq: int | None = None) -> None:
        super().__init__(message)
        self.first = first
        self.seq = seq


class TurnInProgress(HansardError, RuntimeError):
    """A turn is still open in this session."""


class Damaged(HansardError, OSError):
    """A file that cannot be understood. It is left as it is, or set aside, never overwritten."""


class NotAStore(HansardError, OSError):
    """There is no store. With `missing` there is nothing at all; else there are other things, and nothing of
    them was touched."""

    def __init__(self, message: str, *, path: str = "", missing: bool = False) -> None:
        super().__init__(message)
        self.path = path
        self.missing = missing


class NewerFormat(HansardError, RuntimeError):
    """Written by a newer version in a way that this one must not guess at."""


class ReadOnlyStore(HansardError, OSError):
    """The store was opened for reading, or its disk cannot be written."""


class StoreFull(HansardError, OSError):
    """No space is left. What was there is intact; writing works again once there is space."""


class StoreUnavailable(HansardError, OSError):
    """The disk or the server did not do what was asked."""


class Closed(HansardError, ValueError):
    """The handle or the store is closed, or was inherited through fork()."""


class Unsupported(HansardError, ValueError):
    """This engine or platform cannot do that."""


class WrongKey(HansardError, ValueError):
    """The key does not open what is encrypted here."""


class Unauthorized(HansardError, PermissionError):
    """The server does not know who is asking."""


class Forbidden(HansardError, PermissionError):
    """The server knows who is asking, and that is not allowed."""


def _again(kind: type[HansardError], args: tuple[Any, ...], fields: dict[str, Any]) -> HansardError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(fields)
    return error


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:60] + "…" + text[-16:]
