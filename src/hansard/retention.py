"""What is to go: sessions chosen by age, number or size, and taken away one by one.

Chosen from the heads, and looked at once more when it comes to it: somebody may have gone on with one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from hansard.documents import expired
from hansard.engines import Shelf
from hansard.errors import HansardError, ReadOnlyStore, SessionBusy, SessionNotFound
from hansard.records import ago, utc
from hansard.views.head import Head, Query, below, is_bare, rank

if TYPE_CHECKING:
    from hansard.store import Store

GRACE = timedelta(hours=1)
"""How long a session in which nobody has said anything is left alone: its agent may be about to begin."""


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A session that was to go and could not, and why; without an id what stands beside the sessions."""

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
    if not dry_run and store._engine.readonly:
        raise ReadOnlyStore(f"the store {store.url} was opened with readonly=True; nothing was deleted")
    now = store._now()
    before = _moment(older_than, now)
    done = Cleanup(ids=[], failed=[], dry_run=dry_run)
    query = Query(anywhere=True, empty=True, now=now)
    heads = [head for head in store._engine.heads(query) if not head.archived]
    tops, children = _families(heads)
    newest = {head.id: min(rank(one, query) for one in _family(head, children)) for head in tops}
    tops.sort(key=lambda head: (newest[head.id], head.id))  # a session is as new as what is a part of it
    safe = _exempt(store, heads)
    sizes = _Sizes(store, children)
    left_over = {head.id for head in tops if _is_left_over(store, head, children, now)}
    old = {
        head.id
        for head in tops
        if before is None or all(one.updated_at < before for one in _family(head, children))
    }
    by_age = old if before is not None or keep_last is not None else set()
    for head in _chosen(tops, by_age, keep_last, max_bytes, left_over, sizes, safe):
        family = list(_family(head, children))
        try:
            size = sizes.of(head)
            if not dry_run and not _take(store, family, unless_input=head.id in left_over):
                continue
        except SessionBusy:
            continue  # somebody opened it meanwhile: it is exempt
        except HansardError as error:
            done.failed.append(Kept(id=head.id, reason=str(error)))
            continue
        done.count += 1
        done.ids.append(head.id)
        done.bytes += size
    if not dry_run:
        try:
            _forget_expired(store, now)
        except HansardError as error:
            done.failed.append(Kept(id="", reason=str(error)))
        with suppress(HansardError):  # something cannot be read: its blobs may be needed
            store.blobs.sweep()
    return done


def _families(heads: list[Head]) -> tuple[list[Head], dict[str, list[Head]]]:
    """The sessions that stand for themselves, and the children of each session. A child whose parent is not
    there stands for itself."""
    there = {head.id for head in heads}
    children: dict[str, list[Head]] = {}
    tops: list[Head] = []
    for head in heads:
        above = below(head)
        if above in there:
            children.setdefault(above, []).append(head)
        else:
            tops.append(head)
    return tops, children


def _family(head: Head, children: dict[str, list[Head]]) -> Iterator[Head]:
    """A session, and all that is a part of it."""
    yield head
    for child in children.get(head.id, ()):
        yield from _family(child, children)


def _is_left_over(store: Store, head: Head, children: dict[str, list[Head]], now: datetime) -> bool:
    """Whether a crash has left it: it is empty, and its agent has had time enough to begin."""
    if not is_bare(head) or head.id in children or now - head.created_at <= GRACE:
        return False
    try:
        return not store._engine.documents(Shelf("documents", head.id))
    except HansardError:
        return False  # nobody knows what it has


def _moment(older_than: datetime | timedelta | None, now: datetime) -> datetime | None:
    if older_than is None:
        return None
    if isinstance(older_than, timedelta):
        if older_than < timedelta(0):
            raise ValueError(f"older_than={older_than!r} lies ahead")
        return ago(now, older_than)
    if isinstance(older_than, datetime):
        return utc(older_than)
    raise TypeError(f"older_than is a datetime or a timedelta, not {type(older_than).__name__}")


def _exempt(store: Store, heads: list[Head]) -> set[str]:
    """Pinned, open and named sessions, and all above them."""
    named = set(store.names._pointers())
    safe = {h.id for h in heads if h.pinned or (h.id, h.uid) in named or (h.id, "") in named}
    safe.update(holder.session for holder in store._engine.leases())
    above = {head.id: below(head) for head in heads}
    for id in list(safe):
        parent = above.get(id)
        while parent and parent not in safe:
            safe.add(parent)
            parent = above.get(parent)
    return safe


def _chosen(
    tops: list[Head],
    old: set[str],
    keep_last: int | None,
    max_bytes: int | None,
    left_over: set[str],
    sizes: _Sizes,
    safe: set[str],
) -> Iterator[Head]:
    """The oldest first, of which the last stand at the end. What a crash has left always goes."""
    gone = set(left_over)
    place = 0
    for head in tops:
        if head.id in old and (keep_last is None or place >= keep_last):
            gone.add(head.id)
        place += not is_bare(head)  # an empty session is none of the newest that somebody wants to keep
    gone -= safe
    if max_bytes is not None:
        total = sum(sizes.guess(head) for head in tops if head.id not in gone)
        for head in reversed(tops):
            if total <= max_bytes:
                break
            if head.id not in gone and head.id not in safe:
                gone.add(head.id)
                total -= sizes.guess(head)
    for head in reversed(tops):
        if head.id in gone:
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

    def guess(self, head: Head) -> int:
        """The same, and 0 where it cannot be told."""
        try:
            return self.of(head)
        except HansardError:
            return 0


def _take(store: Store, family: list[Head], *, unless_input: bool) -> bool:
    """Takes a session away with its children, if all are still as they were when it was chosen. Nobody can
    open one of them meanwhile."""
    engine = store._engine
    with ExitStack() as held:
        for head in family:
            held.callback(engine.release, head.id, engine.lease(head.id))
        for head in family:
            try:
                now = engine.head(head.id)
            except SessionNotFound:
                return False
            if (now.seq, now.uid) != (head.seq, head.uid) or store.names._points_at(head):
                return False
            if any(child.id not in {one.id for one in family} for child in store._children(head.id)):
                return False
        return store._remove(family[0], unless_input=unless_input)


def _forget_expired(store: Store, now: datetime) -> None:
    """Documents and values whose time is over."""
    engine = store._engine
    for head in engine.heads(Query(anywhere=True, empty=True, now=now)):
        shelf = Shelf("documents", head.id)
        with suppress(HansardError):  # one that cannot be listed, or read
            for name in engine.documents(shelf):
                with suppress(HansardError):
                    found = engine.document(shelf, name)
                    if found is not None and expired(engine, shelf, name, now):
                        engine.drop_document(shelf, name, expect=found[1], uid=head.uid)
    for state in store._states():
        with suppress(HansardError):
            state.update()
