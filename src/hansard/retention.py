"""What is to go: sessions chosen by age, number or size, and taken away one by one.

Chosen from the heads, and looked at once more when it comes to it: somebody may have gone on with one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from hansard.documents import expired
from hansard.engines import Shelf
from hansard.errors import HansardError, SessionBusy, SessionNotFound
from hansard.records import utc
from hansard.views.head import Head, Query, is_bare, rank

if TYPE_CHECKING:
    from hansard.store import Store

GRACE = timedelta(hours=1)
"""How long a session in which nobody has said anything is left alone: its agent may be about to begin."""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A session that was to go and could not, and why."""

    id: str
    reason: str


class Cleanup(msgspec.Struct, kw_only=True):
    """What `cleanup` took away, or would. `failed` are those that had to go and could not; falsy when nothing
    was to be done."""

    count: int = 0
    ids: list[str] = []
    bytes: int = 0
    failed: list[Kept] = []
    dry_run: bool = False

    def __bool__(self) -> bool:
        return bool(self.count or self.failed)


def cleanup(
    store: Store,
    *,
    older_than: datetime | timedelta | None,
    keep_last: int | None,
    max_bytes: int | None,
    dry_run: bool,
) -> Cleanup:
    """See `Store.cleanup`."""
    now = store._now()
    before = _moment(older_than, now)
    done = Cleanup(ids=[], failed=[], dry_run=dry_run)
    query = Query(anywhere=True, empty=True, now=now)
    heads = [head for head in store._engine.heads(query) if not head.archived]
    heads.sort(key=lambda head: (rank(head, query), head.id))
    children: dict[str, list[Head]] = {}
    tops: list[Head] = []
    for head in heads:
        if head.path is not None and head.parent is not None:
            children.setdefault(head.parent, []).append(head)
        else:
            tops.append(head)
    safe = _exempt(store, heads)
    sizes = _Sizes(store, children)
    for head in _chosen(tops, before, keep_last, max_bytes, now, sizes, safe):
        size = sizes.of(head)
        try:
            if not dry_run and not _take(store, head):
                continue
        except SessionBusy:
            continue  # somebody opened it meanwhile: it is exempt
        except (HansardError, OSError) as error:
            done.failed.append(Kept(id=head.id, reason=str(error)))
            continue
        done.count += 1
        done.ids.append(head.id)
        done.bytes += size
    if not dry_run:
        _forget_expired(store, now)
        with suppress(HansardError):  # something cannot be read: its blobs may be needed
            store.blobs.sweep()
    return done


def _moment(older_than: datetime | timedelta | None, now: datetime) -> datetime | None:
    if older_than is None:
        return None
    if isinstance(older_than, timedelta):
        if older_than < timedelta(0):
            raise ValueError(f"older_than={older_than!r} lies ahead")
        return now - older_than
    if isinstance(older_than, datetime):
        return utc(older_than)
    raise TypeError(f"older_than is a datetime or a timedelta, not {type(older_than).__name__}")


def _exempt(store: Store, heads: list[Head]) -> set[str]:
    """Pinned, open and named sessions, and all above them."""
    safe = {head.id for head in heads if head.pinned}
    safe.update(holder.session for holder in store._engine.leases())
    safe.update(store.names._pointed())
    above = {head.id: head.parent for head in heads if head.path is not None}
    for id in list(safe):
        parent = above.get(id)
        while parent is not None and parent not in safe:
            safe.add(parent)
            parent = above.get(parent)
    return safe


def _chosen(
    tops: list[Head],
    before: datetime | None,
    keep_last: int | None,
    max_bytes: int | None,
    now: datetime,
    sizes: _Sizes,
    safe: set[str],
) -> Iterator[Head]:
    """The newest stand first. Empty ones that nobody has open are left over from a crash, and always go."""
    left = [head for head in tops if not (is_bare(head) and now - head.created_at > GRACE)]
    gone = {head.id for head in tops} - {head.id for head in left}
    if before is not None or keep_last is not None:
        for place, head in enumerate(left):
            old = before is None or head.updated_at < before
            many = keep_last is None or place >= keep_last
            if old and many:
                gone.add(head.id)
    if max_bytes is not None:
        total = sum(sizes.of(head) for head in tops if head.id not in gone or head.id in safe)
        for head in reversed(left):
            if total <= max_bytes:
                break
            if head.id not in gone and head.id not in safe:
                gone.add(head.id)
                total -= sizes.of(head)
    for head in reversed(tops):
        if head.id in gone and head.id not in safe:
            yield head


class _Sizes:
    """The bytes that sessions take, with their children and documents."""

    def __init__(self, store: Store, children: dict[str, list[Head]]) -> None:
        self._engine = store._engine
        self._children = children
        self._known: dict[str, int] = {}

    def of(self, head: Head) -> int:
        found = self._known.get(head.id)
        if found is None:
            found = self._engine.size(head.id) + sum(map(self.of, self._children.get(head.id, ())))
            self._known[head.id] = found
        return found


def _take(store: Store, head: Head) -> bool:
    """Takes one away, if it is still as it was when it was chosen."""
    lease = store._engine.lease(head.id)
    try:
        now = store._engine.head(head.id)
        if now.seq != head.seq or now.uid != head.uid:
            return False
        return store._remove(now, unless_input=is_bare(head))
    except SessionNotFound:
        return False
    finally:
        store._engine.release(head.id, lease)


def _forget_expired(store: Store, now: datetime) -> None:
    """Documents and values whose time is over."""
    engine = store._engine
    for head in engine.heads(Query(anywhere=True, empty=True, now=now)):
        shelf = Shelf("documents", head.id)
        for name in engine.documents(shelf):
            found = engine.document(shelf, name)
            if found is not None and expired(engine, shelf, name, now):
                with suppress(HansardError):
                    engine.drop_document(shelf, name, expect=found[1], uid=head.uid)
    for state in store._states():
        with suppress(HansardError):
            state.update()
