"""The store: where sessions are begun, found, listed and deleted.

What a reference, a prefix or a name means is settled here, above the engines.
"""

from __future__ import annotations

import os
import threading
import time as clocks
import warnings
import weakref
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from hansard._version import __version__
from hansard.engines import STATE, Engine, Finding, Holder, Lease, Shelf, schemes
from hansard.errors import (
    AlreadyExists,
    AmbiguousSession,
    Closed,
    Conflict,
    Damaged,
    HansardError,
    InvalidId,
    InvalidPayload,
    NewerFormat,
    NoSessions,
    NotAStore,
    ReadOnlyStore,
    SessionBusy,
    SessionNotFound,
    StoreUnavailable,
    Unsupported,
)
from hansard.ids import PREFIX, check_id, child_id
from hansard.ids import new_id as random_id
from hansard.names import ACTIVE, Names
from hansard.records import (
    FORMAT,
    KINDS,
    Draft,
    Record,
    decode,
    encode,
    encodes,
    freeze,
    parse,
    redrafted,
    stored,
    understood,
    utc,
)
from hansard.session import (
    Session,
    View,
    checked_usage,
    head_fields,
    message,
    message_list,
    record_id,
    several,
)
from hansard.views import head as heads
from hansard.views import history as histories
from hansard.views import vacuum
from hansard.views.head import Head, Query, rank

if TYPE_CHECKING:
    from types import TracebackType

    from hansard.best_effort import BestEffortStore
    from hansard.blobs import Blobs
    from hansard.following import Cursor, Follower
    from hansard.retention import Cleanup
    from hansard.state import State
    from hansard.views.search import Hit

_List = list  # the class has a method of that name

Ref = str | Head
"""What names a session exactly: its id, or a head of it."""

STORE = "HANSARD_STORE"
"""The environment variable that says which store is meant when nothing else does."""


class Page(list[Head]):
    """Heads in order. `next` is where the next page begins (`after=`), or None at the end."""

    next: str | None = None


class Hits(list["Hit"]):
    """What a search found, in order. `next` is where the next page begins (`after=`), or None at the end."""

    next: str | None = None


class Report(msgspec.Struct):
    """What `doctor` found; falsy when all is well. `sessions` says how many it looked at."""

    findings: list[Finding]
    sessions: int = 0

    def __bool__(self) -> bool:
        return bool(self.findings)


class Vacuumed(msgspec.Struct, kw_only=True):
    """What `vacuum` took out: `count` records of the sessions `ids`, and the bytes that this saved."""

    count: int = 0
    ids: list[str] = []
    bytes: int = 0

    def __bool__(self) -> bool:
        return bool(self.count)


class Store:
    """An open store. Threads may share it. Close it, or use it in a `with` block."""

    def __init__(
        self,
        engine: Engine,
        *,
        clock: Callable[[], datetime] | None = None,
        new_id: Callable[[], str] | None = None,
        let_go: Callable[[], None] | None = None,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._new_id = new_id or random_id
        self._let_go = let_go or engine.close
        self._mutex = threading.RLock()
        self._closing = False
        self._closed = False
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()
        self._followers: weakref.WeakSet[Follower] = weakref.WeakSet()
        self.names = Names(self)
        """Names that point at sessions."""

    def __repr__(self) -> str:
        return f"<Store {self.url}{' (closed)' if self.closed else ''}>"

    @property
    def url(self) -> str:
        """Where it is, as `hansard.open` takes it."""
        return self._engine.url

    @property
    def closed(self) -> bool:
        """Whether it was closed, or inherited by a forked process."""
        return self._closed or self._engine.closed

    def _check(self) -> None:
        if self.closed:
            raise Closed(
                f"the store {self.url} is closed, or was inherited through fork(); open it again with "
                "hansard.open()"
            )

    def _now(self) -> datetime:
        return datetime.now(UTC) if self._clock is None else utc(self._clock())

    # -- sessions

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
    ) -> Session:
        """A new session, open and leased. Nothing is written before its first record, unless `eager`."""
        self._check()
        fields = _given(
            agent=agent,
            model=model,
            title=title,
            workspace=workspace,
            vendor=vendor,
            endpoint=endpoint,
            labels=labels,
            meta=meta,
        )
        name, lease = self._free(id)
        return self._new(name, fields, lease=lease, eager=eager, activate=activate)

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
    ) -> Session:
        """An open session. With `exclusive` it is leased: waits up to `timeout` seconds (None: for ever) for
        whoever has it, else `SessionBusy`. Without, it is shared with others. With `create` it is begun if
        there is none."""
        self._check()
        name, uid = self._exact(ref)
        active = exclusive if activate is None else activate
        _known_fields("open", head)
        if not create:
            self._head(name, uid)  # before a lock file is made for it
        lease = self._lease(name, timeout=timeout, force=force) if exclusive else None
        try:
            try:
                found = self._head(name, uid)
            except SessionNotFound:
                if not create:
                    raise
                fields = _given(**head)
                return self._new(name, fields, lease=lease, eager=False, activate=active, get_or_create=True)
            session = Session(self, found, lease=lease, born=False)
        except BaseException:
            self._release(name, lease)
            raise
        self._sessions.add(session)
        if active:
            self._activate(name, found.uid)
        return session

    def resume(
        self,
        text: str | None = None,
        *,
        workspace: str | os.PathLike[str] | None = None,
        agent: str | None = None,
        create: bool = False,
        timeout: float | None = 0,
    ) -> Session:
        """The session that a text means (an id, the beginning of one, a name), or else the active one, or the
        newest that matches. With nothing to resume: `NoSessions`, or with `create` a new one."""
        self._check()
        if text is not None and not isinstance(text, str):
            raise InvalidId(text, f"it is {type(text).__name__}, not text")
        if text is not None and text.strip():
            return self.open(self.resolve(text), timeout=timeout)
        found = self._latest(workspace=workspace, agent=agent)
        if found is not None:
            return self.open(found, timeout=timeout)
        if create:
            return self.create(workspace=workspace, agent=agent)
        where = "".join(
            f" for {name} {value!r}" for name, value in (("agent", agent), ("workspace", workspace)) if value
        )
        raise NoSessions(
            f"there is no session to resume{where}; begin one with create(), or resume(create=True)"
        )

    def read(self, ref: Ref) -> View:
        """A session as it is now, to be read without a lease."""
        self._check()
        return View(self._engine, self._head(*self._exact(ref)), self._now)

    def append(
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
        return self._append(
            ref,
            [message(payload, default_model=self._model(ref, record), **record)],
            create=create,
            expect=expect,
            durable=durable,
        )[0]

    def extend(
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
        drafts = message_list(payloads, default_model=self._model(ref, records), **records)
        return self._append(ref, drafts, create=create, expect=expect, durable=durable)

    def _model(self, ref: Ref, given: Mapping[str, Any]) -> str:
        """The session's model, which an assistant message is marked with when it says nothing itself."""
        if given.get("model") is not None:
            return ""
        with suppress(SessionNotFound):
            return self._head(*self._exact(ref)).model
        return ""

    def _append(
        self, ref: Ref, drafts: _List[Draft], *, create: bool, expect: int | None, durable: bool
    ) -> _List[Record]:
        self._check()
        name, uid = self._exact(ref)
        if not drafts:
            return []
        now = self._now()
        for draft in drafts:
            draft.at = now
        missing = not create or (expect is not None and expect >= 0)
        while True:
            try:
                return self._engine.append(name, drafts, expect=expect, durable=durable, uid=uid)
            except SessionNotFound:
                if missing:
                    raise
            begin = self._begin(name, {})
            begin.at = now  # nothing is said before the session is there
            try:
                return self._engine.create(name, [begin, *drafts])[1:]
            except AlreadyExists:
                uid = None  # somebody was quicker

    def head(self, ref: Ref) -> Head:
        """How a session stands."""
        self._check()
        return self._head(*self._exact(ref))

    def resolve(self, text: str) -> str:
        """The id that a text means: an exact id, else the beginning of just one (with or without `sess_`),
        or with a leading `@` a name. A blank text means what `resume()` takes."""
        self._check()
        if not isinstance(text, str):
            raise InvalidId(text, f"it is {type(text).__name__}, not text")
        if not text.strip():
            latest = self._latest()
            if latest is None:
                raise NoSessions("there is no session yet; begin one with create()")
            return latest.id
        if text.startswith("@"):
            return self._named(text)
        for candidate in (text, PREFIX + text):
            with suppress(InvalidId, SessionNotFound):
                return self._engine.head(check_id(candidate)).id
        found: dict[str, str] = {}
        total = 0
        if not encodes(text):
            raise SessionNotFound(text)
        # a text that `sess_` itself begins with already stands for all that begins with `sess_`
        for prefix in (text,) if PREFIX.startswith(text) else (text, PREFIX + text):
            query = Query(prefix=prefix, anywhere=True, empty=True, limit=10, now=self._now())
            some = self._engine.heads(query)
            total += len(some) if len(some) < 10 else self._engine.count(query)
            found.update((head.id, head.title) for head in some)
        if not found:
            raise SessionNotFound(text)
        if total > 1:
            raise AmbiguousSession(text, total, list(found.items())[:10])
        return next(iter(found))

    def latest(
        self, *, workspace: str | os.PathLike[str] | None = None, agent: str | None = None
    ) -> Head | None:
        """The session with the newest activity that matches, or None."""
        return next(iter(self.list(workspace=workspace, agent=agent, limit=1)), None)

    def list(
        self,
        *,
        agent: str | None = None,
        model: str | None = None,
        workspace: str | os.PathLike[str] | None = None,
        status: str | None = None,
        labels: str | Sequence[str] = (),
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
        self._check()
        if limit is not None and limit < 0:
            raise ValueError(f"limit is {limit}; it must be 0 or more, or None for all")
        if order not in heads.ORDERS:
            raise ValueError(f"order is {order!r}; there are {', '.join(heads.ORDERS)}")
        folder = None if workspace is None else self.workspace(workspace)
        if not all(encodes(text) for text in (agent, model, folder, status) if text is not None):
            return Page()  # no session has such a text
        now = self._now()
        place = None
        if after is not None:
            place, begun = _place(after, order)
            now = max(begun, now - timedelta(days=1))  # what lies ahead of now is settled by the first page
        query = Query(
            agent=agent,
            model=model,
            workspace=folder,
            status=status,
            labels=(labels,) if isinstance(labels, str) else tuple(labels),
            meta={} if meta is None else freeze(dict(meta))[1],
            parent=None if parent is None else self._exact(parent)[0],
            pinned=pinned,
            archived=archived,
            since=None if since is None else utc(since),
            until=None if until is None else utc(until),
            empty=empty,
            order=order,
            limit=None if limit is None else min(limit, _MOST) + 1,
            place=place,
            now=now,
        )
        page = Page(self._engine.heads(query) if limit != 0 else ())
        if limit is not None and len(page) > limit:
            del page[limit:]
            page.next = _cursor(order, rank(page[-1], query), page[-1].id, now)
        return page

    def search(
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
        'Why is the [café] closed?'
        """
        from hansard.views import search as searching

        self._check()
        if limit is not None and limit < 0:
            raise ValueError(f"limit is {limit}; it must be 0 or more, or None for all")
        if order not in searching.ORDERS:
            raise ValueError(f"order is {order!r}; there are {', '.join(searching.ORDERS)}")
        folder = None if workspace is None else self.workspace(workspace)
        wanted = searching.Query(
            terms=searching.parse(query),
            agent=agent,
            workspace=folder,
            role=role,
            session=None if session is None else self._exact(session)[0],
            since=None if since is None else utc(since),
            until=None if until is None else utc(until),
            tools=tools,
            order=order,
            limit=None if limit is None else min(limit, _MOST) + 1,
            now=self._now(),
        )
        if after is not None:
            place, now = searching.place_of(after, wanted)
            wanted = msgspec.structs.replace(wanted, place=place, now=now)
        hits = Hits()
        if limit == 0 or not wanted.terms.wanted:
            return hits
        if not all(encodes(text) for text in (agent, folder, role) if text is not None):
            return hits  # no session has such a text
        found = self._engine.search(wanted, told)
        if limit is not None and len(found) > limit:
            del found[limit:]
            hits.next = searching.cursor(found[-1], wanted)
        hits += [searching.hit(one, wanted) for one in found]
        return hits

    def delete(self, ref: Ref) -> bool:
        """Takes a session away for good, with its children and documents; False where there is none."""
        self._check()
        try:
            head = self._head(*self._exact(ref))
        except SessionNotFound:
            return False
        except (Damaged, NewerFormat):  # what cannot be read can be deleted all the same
            name = self._exact(ref)[0]
            for child in self._children(name):
                self._remove(child, unless_input=False)
            return self._engine.delete(name)
        return self._remove(head, unless_input=False)

    def _remove(self, head: Head, *, unless_input: bool) -> bool:
        """Children first, so that none is left without its parent; and once more, for one that was begun
        meanwhile. With `unless_input` one that somebody may miss stays."""
        if unless_input and self._children(head.id):
            return False
        children = [] if unless_input else self._children(head.id)
        for child in children:
            self._remove(child, unless_input=False)
        with _done() if children else nullcontext():
            gone = self._engine.delete(head.id, uid=head.uid, unless_input=unless_input)
        if gone:
            with _done():
                for child in self._children(head.id):
                    self._remove(child, unless_input=False)
            self.names._forget(head.id)
        return gone

    def _children(self, id: str) -> _List[Head]:
        query = Query(parent=id, anywhere=True, empty=True, now=self._now())
        return [head for head in self._engine.heads(query) if head.path is not None]

    def fork(self, ref: Ref, *, at: int | None = None, id: str | None = None, **head: Any) -> Session:
        """A new session, open, that begins with the history of another one as it is, or as it was just after
        the record `at`. It stands by itself: the other one may go. What is not said of it (agent, model,
        workspace, labels …) is as it is there, and so are its documents."""
        self._check()
        _known_fields("fork", head)
        parent = self.read(ref)
        if at is not None and (isinstance(at, bool) or not isinstance(at, int)):
            raise TypeError(f"fork(at={at!r}): a record is named by its seq")
        point = parent.seq if at is None else at
        if not 0 <= point <= parent.seq:
            raise ValueError(f"session {parent.id!r} has no record {at}; its last is {parent.seq}")
        then = parent.head if at is None else parent._as_of(parent._reached(point))
        fields = {
            **{name: getattr(parent.head, name) for name in (*_INHERITED, "labels", "meta")},
            **({"title": parent.head.title} if parent.head.titled else {}),
            **_given(**head),
        }
        name, lease = self._free(id)
        try:
            extra = {"parent": parent.id, "forked_at": point, "summary": then.summary}
            begin = self._begin(name, fields, **extra)
            documents = self._copied_documents(parent)
            self._engine.put(name, self._forked(parent, then, point, begin), documents=documents, lease=lease)
            with _done():
                session = Session(self, self._head(name), lease=lease, born=False)
        except BaseException:
            self._release(name, lease)
            raise
        self._sessions.add(session)
        self._activate(name, session._head.uid)
        return session

    def _forked(self, parent: View, then: Head, point: int, begin: Draft) -> Iterator[Draft]:
        yield begin
        seq = 0
        for (place, _), payload, record in histories.shown(then.base, point, parent._read):
            seq += 1
            draft = Draft(kind="message", data=msgspec.Raw(encode(payload)), at=begin.at)
            if record is not None:
                draft = redrafted(record)
                draft.at, draft.time = begin.at, record.when
                draft.id = draft.usage = draft.batch = draft.seq = draft.turn = None
            draft.origin = (parent.id, place)
            yield draft
        if then.token_count is not None:
            data = {
                "op": "fork",
                "parts": [[1, seq]] if seq else [],
                "summary": then.summary,
                "token_count": then.token_count,
            }
            yield Draft(kind="history", data=msgspec.Raw(encode(data)), at=begin.at)
        parent._still_whole(point)

    def _copied_documents(self, parent: View) -> dict[str, bytes]:
        shelf = Shelf("documents", parent.id)
        found = {name: self._engine.document(shelf, name) for name in self._engine.documents(shelf)}
        return {name: held[0] for name, held in found.items() if held is not None}

    def put(
        self, head: Head | Mapping[str, Any] | str | None, records: Iterable[Record | Mapping[str, Any] | str]
    ) -> Head:
        """Writes a whole session at once, all or nothing, in bounded memory; gives its head. `head` says what
        it is: an id, fields of a head (`id`, `agent`, `title` …), or the head of another store. `records` are
        records, which keep their times, ids and usage, or plain messages. A whole log, from its `session`
        record on, is taken as it is; from a part of one no `history` record can be taken, for it names
        records by their number. `AlreadyExists` for an id that is taken."""
        self._check()
        fields: dict[str, Any] = {}
        id: str | None = None
        extra: dict[str, Any] = {}
        told: Mapping[str, Any] = {}  # what the caller says beside the records
        if isinstance(head, str):
            id = check_id(head)
        elif isinstance(head, Head):
            id = head.id
            fields = {name: getattr(head, name) for name in (*_INHERITED, "labels", "meta")}
            fields |= {"title": head.title} if head.titled else {}
            for name in ("status", "pinned", "parent", "path", "forked_at", "summary"):
                extra[name] = getattr(head, name)
        elif head is not None:
            fields = dict(head)
            id = fields.pop("id", None)
            _known_fields("put", fields)
            told = fields
        name, lease = self._free(id)
        try:
            begin = self._begin(name, _given(**fields), **extra)
            if isinstance(head, Head):
                begin.time = head.created_at
            self._engine.put(name, _whole(begin, records, fields.get("model") or "", told), lease=lease)
            with _done():
                return self._head(name)
        finally:
            self._release(name, lease)

    def _sub(self, parent: Session, path: str, head: Mapping[str, Any]) -> Session:
        """The id of a child follows from its parent and its path, so that of two who begin it one wins."""
        _known_fields("sub", head)
        if not path.strip():
            raise InvalidId(path, "the path of a child is blank")
        above = parent.head
        # one that came with its parent from another store has the id that it had there
        there = (child.id for child in self._children(above.id) if child.path == path)
        name = next(there, child_id(above.uid, path))
        for _ in range(8):
            with suppress(SessionNotFound):
                return self.open(name, activate=False)
            fields = {**{field: getattr(above, field) for field in _INHERITED}, **_given(**head)}
            lease = self._engine.lease(name)
            try:
                begin = self._begin(name, fields, parent=above.id, path=path)
                self._engine.create(name, [begin], lease=lease)
                with _done():
                    found = self._head(name)
                    try:
                        self._head(above.id, above.uid)
                    except SessionNotFound:  # it went meanwhile, and must not leave a child behind
                        self._engine.delete(name, uid=found.uid)
                        raise
                    session = Session(self, found, lease=lease, born=False)
            except AlreadyExists:
                self._release(name, lease)
                continue
            except BaseException:
                self._release(name, lease)
                raise
            self._sessions.add(session)
            return session
        raise SessionBusy(
            name, None, f"the child {path!r} of session {above.id!r} is begun and deleted by turns"
        )

    def vacuum(self, ref: Ref, *, drop_history: bool = False) -> Vacuumed:
        """The one call that takes out what was said: with `drop_history` the messages that the newest history
        does not show, and how they once were shown. Title, counts, usage, cost and ids stay as they are; a
        `rewind` behind the newest history is over. Without it nothing goes that anybody could miss."""
        self._check()
        name, uid = self._exact(ref)
        done = Vacuumed(ids=[])
        self._head(name, uid)
        lease = self._engine.lease(name)
        try:
            while drop_history:
                head = self._head(name, uid)
                planned = list(vacuum.plan(self._engine.read(name), head.base, head.seq))
                if not planned:
                    break
                stretches = [draft for draft, _ in planned]
                try:
                    done.bytes = self._engine.rewrite(name, stretches, expect=head.seq, uid=head.uid)
                except Conflict:
                    continue  # somebody said something meanwhile
                done.count, done.ids = sum(count for _, count in planned), [name]
                return done
            self._engine.flush(name)
        finally:
            self._release(name, lease)
        return done

    def cleanup(
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
        self._check()
        if older_than is None and keep_last is None and max_bytes is None:
            raise ValueError("cleanup() needs older_than=, keep_last= or max_bytes=; nothing was deleted")
        for what, number in (("keep_last", keep_last), ("max_bytes", max_bytes)):
            if number is not None and (isinstance(number, bool) or not isinstance(number, int)):
                raise TypeError(f"{what} is {number!r}; it must be a whole number")
            if number is not None and number < 0:
                raise ValueError(f"{what} is {number}; it must be 0 or more")
        if archive:
            raise Unsupported("there is no archive yet; without archive=True sessions are deleted")
        from hansard.retention import cleanup

        return cleanup(self, older_than=older_than, keep_last=keep_last, max_bytes=max_bytes, dry_run=dry_run)

    # -- the active session

    def active(self) -> str | None:
        """The id of the session that was last created, opened or resumed, if it is there still."""
        return self.names.get(ACTIVE)

    def activate(self, ref: Ref | None) -> None:
        """Makes a session the active one, or with None none."""
        self._check()
        head = None if ref is None else self._head(*self._exact(ref))
        self.names._activate(*((None, "") if head is None else (head.id, head.uid)))

    def _activate(self, name: str, uid: str) -> None:
        """As a side effect of opening: the session is open whether this works or not."""
        try:
            self.names._activate(name, uid)
        except HansardError as error:
            warnings.warn(f"session {name!r} could not be made the active one: {error}", stacklevel=4)

    def _named(self, text: str) -> str:
        name = text[1:]
        if not encodes(name):
            raise SessionNotFound(text, f"no session is named {text!r}")
        found = None
        with suppress(InvalidId):
            found = self.names.get(name)
        if found is None:
            raise SessionNotFound(text, f"no session is named {text!r}")
        return found

    # -- following

    def follow(
        self, ref: Ref | None = None, *, after: Cursor | str | int | None = None, timeout: float | None = None
    ) -> Follower:
        """Yields `(session id, record, cursor)` as records are committed, by anyone: those of one session, or
        of all. By default what is committed from this call on; `after` a cursor (or its text) goes on where
        that was given out, -1 begins with the first record, and for one session any seq will do. It ends when
        no record has come for `timeout` seconds, when the session is deleted, and with the store."""
        from hansard.following import Follower, feed_of

        self._check()
        head = None if ref is None else self._head(*self._exact(ref))
        feed = feed_of(self._engine, None, "") if head is None else feed_of(self._engine, head.id, head.uid)
        follower = Follower(self, feed, after=after, timeout=timeout)
        self._followers.add(follower)
        return follower

    # -- the rest

    def state(self, name: str, secret: bool = False) -> State:
        """The state of this name: a JSON object of keys and values."""
        self._check()
        if secret:
            raise Unsupported("secret state needs encryption, which is not there yet; nothing was read")
        from hansard.state import State

        return State(self, name)

    def _states(self) -> _List[State]:
        return [self.state(name) for name in self._engine.documents(STATE)]

    @property
    def blobs(self) -> Blobs:
        """Bytes that are kept once, whoever needs them."""
        from hansard.blobs import Blobs

        return Blobs(self)

    def best_effort(self) -> BestEffortStore:
        """This store by key, with calls that never raise; what fails is logged, and kept in `.dropped`."""
        from hansard.best_effort import BestEffortStore

        return BestEffortStore(self)

    def locks(self) -> _List[Holder]:
        """Who has which session open."""
        self._check()
        return self._engine.leases()

    def doctor(self, repair: bool = False, *, told: Callable[[int], None] | None = None) -> Report:
        """Goes through everything and reports each problem with its place and what to do about it. With
        `repair` what can be mended is, and a copy of what was there is kept under aside/ first. `told` is
        called now and then with the number of sessions that were looked at."""
        self._check()
        if repair and self._engine.readonly:
            raise ReadOnlyStore(f"the store {self.url} was opened with readonly=True; nothing was mended")
        from hansard.health import documents

        findings = [*self._engine.doctor(told, repair=repair), *documents(self._engine)]
        everything = Query(anywhere=True, empty=True, now=self._now())
        return Report(findings, self._engine.count(everything))

    def workspace(self, path: str | os.PathLike[str]) -> str:
        """A folder as sessions know it: see `hansard.workspace`."""
        return workspace(path)

    def close(self) -> None:
        """Closes its sessions and lets go of everything; twice is once."""
        with self._mutex:
            if self._closing:
                return
            self._closing = True
        with ExitStack() as ending:  # the first that fails is told, and keeps none of the others from it
            ending.callback(self._end)
            for session in list(self._sessions):
                ending.callback(session.close)
            for follower in list(self._followers):
                ending.callback(follower.close)

    def _end(self) -> None:
        self._closed = True
        self._let_go()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- inside

    def _exact(self, ref: Ref) -> tuple[str, str | None]:
        """The id that a ref names, and which session of that id where it is a head."""
        if isinstance(ref, Head):
            return ref.id, ref.uid
        return check_id(ref), None

    def _head(self, name: str, uid: str | None = None) -> Head:
        head = self._engine.head(name)
        if uid is not None and head.uid != uid:
            raise SessionNotFound(name, f"session {name!r} was deleted; another one has its id now")
        return head

    def _absent(self, name: str) -> None:
        with suppress(SessionNotFound):
            self._engine.head(name)
            raise AlreadyExists(name)

    def _latest(
        self, *, workspace: str | os.PathLike[str] | None = None, agent: str | None = None
    ) -> Head | None:
        """The active session if it matches, else the newest that does."""
        name = None
        with suppress(Damaged):  # an illegible name means nothing, as one of a session that is gone
            name = self.active()
        if name is not None:
            with suppress(SessionNotFound):
                head = self._engine.head(name)
                if (agent is None or head.agent == agent) and (
                    workspace is None or head.workspace == self.workspace(workspace)
                ):
                    return head
        return self.latest(workspace=workspace, agent=agent)

    def _lease(self, name: str, *, timeout: float | None, force: bool) -> Lease:
        deadline = None if timeout is None else clocks.monotonic() + timeout
        pause = 0.002
        while True:
            try:
                return self._engine.lease(name, force=force)
            except SessionBusy:
                left = pause if deadline is None else deadline - clocks.monotonic()
                if left <= 0:
                    raise
                clocks.sleep(min(pause, left))
                pause = min(pause * 1.5, 0.05)

    def _release(self, name: str, lease: Lease | None) -> None:
        """Gives a lease back after a call that has done what it did, or has said why it could not: that the
        catalog could not be brought up to date is told to nobody, the next list does it."""
        if lease is not None:
            with suppress(HansardError):
                self._engine.release(name, lease)

    def _free(self, id: str | None) -> tuple[str, Lease]:
        """An id that no session has, the one given or a new one, and the lease of it."""
        for attempt in range(8):
            name = check_id(self._new_id() if id is None else id)
            try:
                self._absent(name)
                lease = self._engine.lease(name)
                try:
                    self._absent(name)
                except BaseException:
                    self._release(name, lease)
                    raise
                return name, lease
            except (AlreadyExists, SessionBusy):
                if id is not None or attempt == 7:
                    raise
        raise AssertionError("a loop that always ends within")

    def _begin(self, name: str, fields: Mapping[str, Any], **extra: Any) -> Draft:
        data = {"id": name, "uid": os.urandom(8).hex(), "format": FORMAT, **head_fields(fields, self)}
        data |= {field: value for field, value in extra.items() if value or type(value) is int}
        return Draft(kind="session", data=msgspec.Raw(encode(data)), at=self._now())

    def _new(
        self,
        name: str,
        fields: Mapping[str, Any],
        *,
        lease: Lease | None,
        eager: bool,
        activate: bool,
        get_or_create: bool = False,
    ) -> Session:
        try:
            begin = self._begin(name, fields)
            begin.seq = 0
            head = heads.begin(stored(begin))
            head.seq = -1
            begin.seq = None
            session = Session(
                self,
                head,
                lease=lease,
                born=True,
                begin=begin,
                get_or_create=get_or_create,
                activate=activate,
            )
            if eager:
                session._exist()
        except BaseException:
            self._release(name, lease)
            raise
        self._sessions.add(session)
        return session


_MOST = 1 << 31
"""More than anybody lists at once."""

_FIELDS = ("agent", "model", "title", "workspace", "vendor", "endpoint", "labels", "meta")
_INHERITED = ("agent", "model", "workspace", "vendor", "endpoint")


@contextmanager
def _done() -> Iterator[None]:
    """Something was written, and only what comes after it may fail."""
    try:
        yield
    except HansardError as error:
        error.outcome_unknown = error.outcome_unknown or not isinstance(error, SessionNotFound)
        raise


def _known_fields(call: str, head: Mapping[str, Any]) -> None:
    unknown = sorted(set(head) - set(_FIELDS))
    if unknown:
        raise TypeError(f"{call}() knows no field {unknown[0]!r}; there are {', '.join(_FIELDS)}")


def _whole(begin: Draft, records: Iterable[Any], model: str, told: Mapping[str, Any]) -> Iterator[Draft]:
    """The drafts of a log for what `put` was given."""
    taken: set[str] = set()
    last = 0
    as_it_is = False
    open_batch: tuple[int, int] | None = None  # a write of several records, until the last of them is there
    for place, given in enumerate(several(records)):
        if isinstance(given, Record):
            draft = _redrafted(given, place, as_it_is or place == 0)
            if place == 0 and given.kind == "session" and given.seq == 0:
                if told:
                    raise ValueError(
                        f"a whole log says itself what it is; put it under an id, without {sorted(told)}"
                    )
                as_it_is = True
                draft.data, draft.time = _identified(begin, given), given.time
                yield draft
                continue
            if as_it_is:
                gap = given.kind == "compacted" and vacuum.first(draft) == last + 1
                if given.seq != last + 1 and not gap:
                    raise ValueError(
                        f"record {given.seq} follows record {last}: a log is put whole, or without its "
                        "session record"
                    )
                open_batch = _batch_left(open_batch, given)
            elif given.kind in ("session", "history", "compacted"):
                raise ValueError(
                    f"a {given.kind} record can only be put with the whole log, its session record first"
                )
            else:
                draft.time = draft.time or draft.at
                if draft.time == begin.at:
                    draft.time = None
                draft.at, draft.seq, draft.batch = begin.at, None, None
        else:
            draft = message(given, default_model=model)
            draft.at = begin.at
        if place == 0:
            if draft.time is not None and begin.time is None and draft.time < begin.at:  # type: ignore[operator]
                begin.time = draft.time  # a session is no younger than what was said in it first
            yield begin
        if draft.id is not None:
            if draft.id in taken:
                raise Conflict(f"two records have the id {draft.id!r}")
            taken.add(draft.id)
        last = last + 1 if draft.seq is None else draft.seq
        yield draft
    if open_batch is not None:
        raise ValueError(
            f"record {last} was the last that was given, and is of a write of {open_batch[1]} records from "
            f"{open_batch[0]} on: a write is put with all of them"
        )
    if last == 0 and not as_it_is:
        yield begin


def _redrafted(given: Record, place: int, as_it_is: bool) -> Draft:
    """The draft of a record that somebody may have made up, if it can be read again as it is given."""
    draft = redrafted(given)
    try:
        draft.data = msgspec.Raw(freeze(given.data)[0])
        draft.at = utc(given.at)
        draft.time = None if given.time is None else utc(given.time)
        draft.id = record_id(given.id)
        if draft.usage is not None and not as_it_is:
            draft.usage = checked_usage(draft.usage)[1]
        understood(parse(encode(draft)))
        if given.kind == "session":
            heads.begin(given)
        elif given.kind not in KINDS and ("." not in given.kind if not as_it_is else not given.kind):
            raise ValueError(f"there is no kind {given.kind!r}; one of your own has a dot in it")
    except InvalidPayload as error:
        raise InvalidPayload(f"records[{place}].{error.path.removeprefix('$.')}", error.reason) from None
    except (TypeError, ValueError, RecursionError) as error:
        if isinstance(error, HansardError):
            raise
        raise InvalidPayload(f"records[{place}]", str(error)) from None
    return draft


def _batch_left(before: tuple[int, int] | None, record: Record) -> tuple[int, int] | None:
    """The write of several records that is not complete with this record. A log in which one lacks a part
    reads without the rest of it."""
    batch = None if record.batch is None or record.batch[1] < 2 else record.batch
    begins = batch is not None and batch[0] == record.seq
    if (batch != before) if before is not None else (batch is not None and not begins):
        raise ValueError(f"record {record.seq} is of a write of which a part is missing")
    return None if batch is None or record.seq == batch[0] + batch[1] - 1 else batch


def _identified(begin: Draft, given: Record) -> msgspec.Raw:
    """The session record of a log that gets another id and a uid of its own."""
    new = decode(begin.data)
    data = given.data if isinstance(given.data, dict) else {}
    return msgspec.Raw(encode({**data, "id": new["id"], "uid": new["uid"]}))


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _cursor(order: str, place: int, id: str, now: datetime) -> str:
    return urlsafe_b64encode(encode([order, place, id, now])).decode().rstrip("=")


def _place(cursor: str, order: str) -> tuple[tuple[int, str], datetime]:
    """Where the page before ended, and what was now for the first page."""
    try:
        asked, place, id, now = decode(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if asked != order or type(place) is not int or abs(place) >= 2**63 or type(id) is not str:
            raise ValueError
        begun = utc(datetime.fromisoformat(now))
    except (ValueError, TypeError, RecursionError, OverflowError):
        raise ValueError(f"after={cursor!r} is no cursor of this list; take it from page.next") from None
    return (place, id), begun


# -- opening ----------------------------------------------------------------------------------------


def workspace(path: str | os.PathLike[str] | None = None) -> str:
    """A folder as sessions know it: absolute, symbolic links resolved, no trailing slash; the current one
    by default. A blank path stays `""`.

    >>> workspace(""), workspace("/tmp/../tmp/") == workspace("/tmp")
    ('', True)
    """
    given = os.fspath("." if path is None else path)
    return _real(given) if given.strip() else ""


def default_path() -> str:
    """The folder of the store that is meant when nothing else is said: in the user's data folder."""
    import platformdirs

    with suppress(RuntimeError):  # nobody knows where the home folder is
        found = platformdirs.user_data_dir("hansard", appauthor=False)
        if not found.startswith("~"):
            return found
    raise StoreUnavailable(
        f"there is no data folder to keep a store in: ${STORE} is not set, and neither is $HOME; set ${STORE}"
    )


def _real(path: str) -> str:
    """The path itself, from the root, without symbolic links."""
    try:
        return os.path.realpath(path)
    except OSError as error:
        raise StoreUnavailable(
            f"{path!r} leads nowhere: the current folder cannot be told ({error.strerror}); "
            "go to one that exists, or give an absolute path"
        ) from error


def open(
    url: str | os.PathLike[str] | None = None,
    *,
    namespace: str = "",
    readonly: bool = False,
    create: bool = True,
    clock: Callable[[], datetime] | None = None,
    new_id: Callable[[], str] | None = None,
) -> Store:
    """Opens a store: the one named, else `$HANSARD_STORE`, else that in the user's data folder.

    A plain path or `file:…` is a folder, `memory:` is new each time, `memory:name` shared in the process;
    other distributions add schemes of their own: see `hansard.engines.schemes`.
    With `create=False` it must be there. A `namespace` is a tenant: ids, names and state of its own. `clock`
    and `new_id` are for tests.

    >>> with open("memory:") as store, store.create() as session:
    ...     session.append({"role": "user", "content": "Hello"}).seq
    1
    """
    given = os.fspath(url) if url is not None else os.environ.get(STORE, "").strip() or default_path()
    if not isinstance(given, str):
        raise TypeError(f"a store is named by a path or a URL, not by {type(given).__name__}")
    scheme, rest, options = schemes.split(given)
    if scheme == "file":
        path = rest[2:] if rest.startswith("///") else rest
        if not path.strip():
            raise ValueError("the path of the store is empty")
        network = options.pop("network", "no") in ("yes", "1", "true")
        if options:
            raise ValueError(f"{given!r}: there is no option {next(iter(options))!r}; there is 'network'")
        home = os.path.expanduser(path)
        if home.partition(os.sep)[0] == "~":
            raise StoreUnavailable(f"{path!r} is in no folder: $HOME is not set; give an absolute path")
        real = _real(home)
        if not encodes(real):
            raise ValueError(f"{real!r} is not text in UTF-8; the path of a store has to be")
        return _shared(
            ("file", real, readonly),
            lambda: _files(path, readonly=readonly, create=create, network=network),
            namespace,
            clock,
            new_id,
            create=create,
        )
    if scheme == "memory":
        from hansard.engines.memory import Memory

        if not rest:
            own = Memory(readonly=readonly)
            return Store(_tenant(own, namespace, create), clock=clock, new_id=new_id, let_go=own.close)
        store = _shared(("memory", rest), lambda: Memory(rest), namespace, clock, new_id, create=create)
        if readonly:
            store._engine = store._engine.reader()  # type: ignore[attr-defined]  # it is the memory engine
        return store
    return _shared(
        (given, readonly),
        lambda: schemes.engine(given, readonly=readonly, create=create),
        namespace,
        clock,
        new_id,
        create=create,
    )


def _files(path: str, *, readonly: bool, create: bool, network: bool) -> Engine:
    from hansard.engines.files import Files

    return Files(path, readonly=readonly, create=create, network=network)


_engines: dict[tuple[Any, ...], list[Any]] = {}
_engines_mutex = threading.RLock()  # a signal handler may open or close a store too


def _forget_engines() -> None:
    global _engines_mutex
    _engines_mutex = threading.RLock()  # another thread may have held it when this process was made
    _inherited.extend(_engines.values())  # SQLite's connections are not to be closed in a child
    _engines.clear()


_inherited: list[Any] = []
os.register_at_fork(after_in_child=_forget_engines)


def _shared(
    key: tuple[Any, ...],
    make: Callable[[], Engine],
    namespace: str,
    clock: Callable[[], datetime] | None,
    new_id: Callable[[], str] | None,
    *,
    create: bool,
) -> Store:
    """All stores of one URL in a process share one engine, which is closed with the last of them. So is that
    of a tenant with the last store of it, where what it has survives that."""
    with _engines_mutex:
        known = _engines.get(key)
        if known is None:
            known = _engines[key] = [make(), Counter()]
        engine, users = known
        users[namespace] += 1

    def let_go() -> None:
        with _engines_mutex:
            users[namespace] -= 1
            if not users[namespace]:
                del users[namespace]
                if namespace and "survives" in engine.capabilities and not engine.closed:
                    with suppress(InvalidId, NotAStore):
                        _tenant(engine, namespace, False).close()
            if not users and _engines.get(key) is known:
                del _engines[key]
                engine.close()

    try:
        return Store(_tenant(engine, namespace, create), clock=clock, new_id=new_id, let_go=let_go)
    except BaseException:
        let_go()
        raise


def _tenant(engine: Engine, namespace: str, create: bool) -> Engine:
    return engine.namespace(check_id(namespace), create=create) if namespace else engine


def versions() -> dict[str, str]:
    """What runs here: hansard, Python, SQLite and the platform."""
    import platform
    import sqlite3

    return {
        "hansard": __version__,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "platform": platform.platform(),
    }


def iterate(store: Store, **which: Any) -> Iterator[Head]:
    """All heads that a list has, page by page."""
    which.setdefault("limit", 200)
    page = store.list(**which)
    yield from page
    while page.next is not None:
        page = store.list(**{**which, "after": page.next})
        yield from page
