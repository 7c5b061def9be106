"""Blobs: bytes kept once under the SHA-256 of them, and swept when nothing names them any more.

A blob is named by the digests in `blobs=` of a record, or by its digest standing anywhere in a record, a
document or a state: what might be meant is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from hansard.engines import STATE, Shelf
from hansard.errors import Damaged, SessionNotFound
from hansard.records import Damage, ago, encode

if TYPE_CHECKING:
    from hansard.engines import Blob
    from hansard.store import Store

DAY = timedelta(days=1)
"""How long a blob is safe that nothing names yet: it is put before the record that needs it."""

is_digest = re.compile(r"[0-9a-f]{64}").fullmatch
_runs = re.compile(rb"[0-9a-f]{64,}").findall


class Blobs:
    """The blobs of a store.

    >>> import hansard
    >>> blobs = hansard.open("memory:").blobs
    >>> digest = blobs.put(b"a picture")
    >>> blobs.get(digest), blobs.put(b"a picture") == digest, blobs.get("0" * 64)
    (b'a picture', True, None)
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def put(self, data: bytes | bytearray | memoryview) -> str:
        """Keeps bytes, durably, and gives their digest. What is there already is safe for another day."""
        self._store._check()
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"a blob is bytes, not {type(data).__name__}; encode it first")
        return self._store._engine.put_blob(bytes(data))

    def get(self, digest: str) -> bytes | None:
        """The bytes of a digest, or None."""
        self._store._check()
        if not isinstance(digest, str):
            raise TypeError(f"a blob is named by its digest, a text, not by {type(digest).__name__}")
        return self._store._engine.blob(digest) if is_digest(digest) else None

    def sweep(self, *, older_than: timedelta = DAY, dry_run: bool = False) -> list[Blob]:
        """Takes away what nothing names and was not put for a while. Reads all there is; where something
        cannot be read, nothing is taken."""
        self._store._check()
        before = ago(self._store._now(), older_than)
        return self._store._engine.sweep_blobs(before, self._needed, dry_run=dry_run)

    def _needed(self, old: set[str]) -> set[str]:
        needed: set[str] = set()
        for text in self._texts():
            for run in _runs(text):
                needed.update(
                    digest for i in range(len(run) - 63) if (digest := run[i : i + 64].decode("ascii")) in old
                )
            if len(needed) == len(old):
                break
        return needed

    def _texts(self) -> Iterator[bytes]:
        """Everything that may name a blob."""
        engine = self._store._engine
        for name in engine.documents(STATE):
            found = engine.document(STATE, name)
            if found is not None:
                yield found[0]
        for session in engine.sessions():
            shelf = Shelf("documents", session)
            for name in engine.documents(shelf):
                found = engine.document(shelf, name)
                if found is not None:
                    yield found[0]
            damage: list[Damage] = []
            with suppress(SessionNotFound):  # it was deleted meanwhile, or never begun
                for record in engine.read(session, damage=damage):
                    yield encode(record)
            if damage:
                raise Damaged(
                    f"session {session!r} is damaged ({damage[0]}), and may need blobs that nothing else "
                    "names; nothing was swept. See `hansard doctor`"
                )
