"""Documents of a session: bytes under a name, replaced whole (a snapshot of a screen, a draft).

A document stands behind one line of JSON that says what is known of it, so that it explains itself:
name, time, length and checksum, and when it expires.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec

from hansard.engines import Engine, Shelf
from hansard.errors import Conflict, Damaged, HansardError, ReadOnlyStore, SessionNotFound
from hansard.ids import check_id
from hansard.records import Instant, encode
from hansard.state import Expiry, expiry

if TYPE_CHECKING:
    from collections.abc import Callable


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A document as it stands. `version` is a text that changes with each `put`, to be given as `expect`."""

    name: str
    data: bytes
    time: datetime
    version: str
    expires: datetime | None = None


class _Title(msgspec.Struct, omit_defaults=True):
    """The line before the bytes."""

    name: str
    time: Instant
    length: int
    sum: str
    expires: Instant | None = None


class Documents:
    """The documents of one session.

    >>> import hansard
    >>> store = hansard.open("memory:")
    >>> with store.create("s") as session:
    ...     _ = session.documents.put("screen.json", b'{"nodes": []}')
    ...     session.documents.get("screen.json").data, session.documents.list()
    (b'{"nodes": []}', ['screen.json'])
    """

    def __init__(
        self,
        engine: Engine,
        session: Callable[[], tuple[str, str]],
        now: Callable[[], datetime],
        exist: Callable[[], None] | None,
    ) -> None:
        self._engine = engine
        self._session = session
        self._now = now
        self._exist = exist  # begins the session, where it may be written

    def put(
        self,
        name: str,
        data: bytes | bytearray | memoryview,
        *,
        expires: Expiry = None,
        expect: str | None = None,
    ) -> Document:
        """Replaces the document of this name, wholly and durably, and all that the session said before is
        durable then too. With `expect` only if that is its version ("": there is none), else `Conflict`."""
        exist = self._writable()
        name = check_id(name)
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"a document is bytes, not {type(data).__name__}; encode it first")
        data, now = bytes(data), self._now()
        title = _Title(
            name=name, time=now, length=len(data), sum=f"{crc32(data):08x}", expires=expiry(expires, now)
        )
        exist()
        id, uid = self._session()
        shelf = Shelf("documents", id)
        aside = ""
        found = self._engine.document(shelf, name)
        if found is not None:
            try:
                before = _opened(found, name)
            except HansardError:
                aside = "illegible"
            else:
                if expect == "" and before.expires is not None and before.expires <= now:
                    expect = before.version
        version = self._engine.put_document(
            shelf, name, encode(title) + b"\n" + data, expect=expect, uid=uid, aside=aside
        )
        if version is None:
            raise Conflict(f"the document {name!r} of session {id!r} is not of version {expect!r} any more")
        return Document(name=name, data=data, time=now, version=version, expires=title.expires)

    def get(self, name: str) -> Document | None:
        """The document of this name; None where there is none, or it has expired."""
        id, uid = self._session()
        name = check_id(name)
        if not id:
            return None
        found = self._engine.document(Shelf("documents", id), name)
        self._same(id, uid)
        if found is None:
            return None
        document = _opened(found, name)
        return document if document.expires is None or document.expires > self._now() else None

    def delete(self, name: str, *, expect: str | None = None) -> bool:
        """Takes a document away; False where there is none, or its version is not the one expected."""
        self._writable()
        name = check_id(name)
        id, uid = self._session()
        return bool(id) and self._engine.drop_document(Shelf("documents", id), name, expect=expect, uid=uid)

    def list(self) -> list[str]:
        """The names of all documents, in order; one that cannot be read is among them."""
        id, uid = self._session()
        if not id:
            return []
        shelf, now = Shelf("documents", id), self._now()
        names = [
            name for name in self._engine.documents(shelf) if not expired(self._engine, shelf, name, now)
        ]
        self._same(id, uid)
        return names

    def _same(self, id: str, uid: str) -> None:
        """What was just read belongs to this session, not to a later one that has its id."""
        if self._engine.head(id).uid != uid:
            raise SessionNotFound(id, f"session {id!r} was deleted; another one has its id now")

    def _writable(self) -> Any:
        if self._exist is None:
            raise ReadOnlyStore("this is a view; open the session to write its documents")
        return self._exist


def expired(engine: Engine, shelf: Shelf, name: str, now: datetime) -> bool:
    """Whether a document is past its time. One that cannot be read is not."""
    found = engine.document(shelf, name)
    if found is None:
        return True
    try:
        document = _opened(found, name)
    except HansardError:
        return False
    return document.expires is not None and document.expires <= now


_title = msgspec.json.Decoder(_Title).decode


def _opened(found: tuple[bytes, str], name: str) -> Document:
    raw, version = found
    line, _, data = raw.partition(b"\n")
    try:
        title = _title(line)
        if title.length != len(data) or title.sum != f"{crc32(data):08x}" or title.name != name:
            raise ValueError
    except (ValueError, RecursionError):
        raise Damaged(
            f"the document {name!r} cannot be understood and was left as it is; put it anew (a copy of it is "
            "kept under aside/ then), or bring it back from a copy"
        ) from None
    return Document(name=name, data=data, time=title.time, version=version, expires=title.expires)


def sound(raw: bytes, name: str) -> bool:
    """Whether a document is as it was written."""
    try:
        _opened((raw, ""), name)
    except Damaged:
        return False
    return True
