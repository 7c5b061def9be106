"""A session that is open: what was said, what the model sees of it, and how it stands.

`View` reads, as of one moment. `Session` writes too. What the words mean is decided in the views, where
the bytes go in the engines; here a call becomes a record, and a repeat or a conflict is told apart.
"""

from __future__ import annotations

import gc
import re
import sys
import warnings
from _thread import RLock as _RLock  # the type itself: what `threading` has is a function
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from hansard import messages
from hansard.engines import reentered
from hansard.errors import (
    AlreadyExists,
    Closed,
    Conflict,
    HansardError,
    InvalidPayload,
    SessionNotFound,
)
from hansard.records import Damage, Draft, Record, encode, encodes, freeze, utc
from hansard.views import head as heads
from hansard.views import history as views
from hansard.views import turns, vacuum
from hansard.views.head import Head
from hansard.views.history import Entry, History, Part
from hansard.views.turns import TurnView
from hansard.views.usage import MOST, Usage, understand
from hansard.views.usage import add as add_usage

if TYPE_CHECKING:
    from hansard.best_effort import BestEffortSession
    from hansard.documents import Documents
    from hansard.engines import Engine, Lease
    from hansard.store import Store


_TRIES = 50
"""How often a change of the history is computed anew when others write meanwhile, on an engine that cannot
keep them out."""


class UsageLine(msgspec.Struct, frozen=True, kw_only=True):
    """What one record, turn or model cost. `seq` is the record, or the first of them."""

    seq: int
    turn: str | None = None
    model: str | None = None
    usage: Usage


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keeps the garbage collector from going through a list that grows by a hundred thousand messages, again
    and again: that takes a third of the time of loading them."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Guard(_RLock):  # type: ignore[misc]  # only the stubs say that it is final
    """A mutex that a forked child does not wait for: whoever holds it may not exist there."""

    __slots__ = ("_engine",)

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __enter__(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._engine.closed:
            raise Closed(
                f"the store {self._engine.url} is closed, or was inherited through fork(); open it again"
            )
        return self.acquire(blocking, timeout)


class View:
    """A session as it was at one moment; `refresh()` moves on to now. It holds nothing open."""

    def __init__(self, engine: Engine, head: Head, clock: Callable[[], datetime]) -> None:
        self._mutex = Guard(engine)
        self._engine = engine
        self._clock = clock
        self._head = head
        self._seq = head.seq
        self._damage: list[Damage] = engine.damage(head.id)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r} at record {self.seq}>"

    @property
    def id(self) -> str:
        """The session's id."""
        return self._head.id

    @property
    def seq(self) -> int:
        """The last record that this view knows of; -1 where nothing is written yet."""
        return self._seq

    @property
    def head(self) -> Head:
        """How the session stands: a snapshot, the caller's own."""
        return heads.copy(self._head)

    @property
    def damage(self) -> list[Damage]:
        """What is not as it was written, as far as it was met. See also `store.doctor()`."""
        return list(dict.fromkeys(self._damage))

    def refresh(self) -> None:
        """Goes on to how the session stands now."""
        with self._mutex:
            self._renew()

    def _renew(self) -> None:
        head = self._engine.head(self.id)
        if head.uid != self._head.uid:
            raise SessionNotFound(self.id, f"session {self.id!r} was deleted; another one has its id now")
        self._head, self._seq = head, head.seq

    def _look(self) -> Head:
        """The head that a reading call goes by."""
        return self._head

    def _give_out(self, head: Head) -> None:
        """The history as of this head was given out."""

    def history(self, limit: int | None = None, *, repair: bool = False) -> History:
        """What the model sees, oldest first; with `limit` the newest so many. With `repair` it is mended to
        what providers accept; nothing is written."""
        if limit is not None and limit < 0:
            raise ValueError(f"limit is {limit}; it must be 0 or more, or None for all")
        with self._mutex:
            head = self._look()
            seen = self._history(head, limit, repair)
            self._still_whole(head.seq)
            self._give_out(head)
            return seen

    def _still_whole(self, seq: int) -> None:
        """The history just after this record was all there when it was read. `vacuum` may have taken a part
        of it meanwhile, and a short history must never pass for a whole one."""
        if seq < 0:
            return
        now = self._engine.head(self.id)
        if now.uid != self._head.uid:
            raise SessionNotFound(self.id, f"session {self.id!r} was deleted; another one has its id now")
        if now.reach > seq:
            raise Conflict(
                f"session {self.id!r} was vacuumed after record {seq}, and what its history was then is "
                "gone; refresh() and read it again",
                seq=seq,
            )

    def _history(self, head: Head, limit: int | None, repair: bool) -> History:
        base, last = head.base, head.seq
        if limit is None or repair:
            with collector_paused():
                seen = views.payloads(base, last, self._read)
            if repair:
                seen = messages.repair(seen)
            if limit is not None:
                seen = seen[len(seen) - limit :] if limit < len(seen) else seen
        else:
            seen = views.newest(base, last, limit, self._backwards)
        return History(seen, seq=last, token_count=head.token_count, summary=head.summary)

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
    ) -> Iterator[Record]:
        """Everything that was written, in order: with a seq greater than `after` and less than `before`,
        from `since` on and earlier than `until`, of these kinds, at most `limit`;
        the newest first with `reverse`."""
        if limit is not None and limit < 0:
            raise ValueError(f"limit is {limit}; it must be 0 or more, or None for all")
        since = None if since is None else utc(since)
        until = None if until is None else utc(until)
        with self._mutex:
            newest = self._look().seq
        a = 0 if after is None else max(0, after + 1)
        b = newest if before is None else min(newest, before - 1)
        if a > b or limit == 0:
            return iter(())
        found = self._engine.read(
            self.id,
            spans=[(a, b)],
            kinds=(kinds,) if isinstance(kinds, str) else kinds,
            limit=None if limit is None or since or until else min(limit, sys.maxsize),
            reverse=reverse,
            uid=self._head.uid,
            damage=self._damage,
        )
        if since is None and until is None:
            return found
        return _between(found, since, until, limit)

    def turns(self, *, live: bool = False, limit: int | None = None) -> Iterator[TurnView]:
        """What was said, as turns: what somebody put in, and what followed until the next time, tool calls
        with their results. All of it, in order; with `live` only what the model sees now, numbered by
        itself; with `limit` the newest so many, without numbers where not all of them are read."""
        if limit is not None and limit < 0:
            raise ValueError(f"limit is {limit}; it must be 0 or more, or None for all")
        with self._mutex:
            head = self._look()
        if live:
            seen = self._till_whole(turns.live(head.base, head.seq, self._read), head.seq)
            return seen if limit is None else turns.latest(seen, limit)
        if head.seq < 0:
            return iter(())
        spans = [(0, head.seq)]
        if limit is None:
            return turns.fold(self._read(spans, turns.KINDS))
        return turns.newest(self._backwards(spans, turns.KINDS), limit)

    def _till_whole(self, seen: Iterator[TurnView], seq: int) -> Iterator[TurnView]:
        """What the model sees, if all of it was there until it was read."""
        yield from seen
        self._still_whole(seq)

    def get(self, ref: int | str) -> Record | None:
        """The record with this seq or this id, or None."""
        if isinstance(ref, bool) or not isinstance(ref, int | str):
            raise TypeError(f"a record is named by its seq or its id, not by {type(ref).__name__}")
        if isinstance(ref, int):
            return next(self.records(after=ref - 1, before=ref + 1), None) if ref >= 0 else None
        with self._mutex:
            newest = self._look().seq
        found = self._engine.find(self.id, ref, uid=self._head.uid) if newest >= 0 and encodes(ref) else None
        return found if found is not None and found.seq <= newest and found.id == ref else None

    @property
    def documents(self) -> Documents:
        """The documents of the session."""
        from hansard.documents import Documents

        return Documents(self._engine, self._identity, self._now, None)

    def _identity(self) -> tuple[str, str]:
        return self.id, self._head.uid

    def _now(self) -> datetime:
        return self._clock()

    def subs(self) -> list[Head]:
        """The heads of its children, by path."""
        with self._mutex:
            self._look()
        query = heads.Query(parent=self.id, anywhere=True, empty=True, now=self._now())
        found = [head for head in self._engine.heads(query) if head.path is not None]
        return sorted(found, key=lambda head: head.path or "")

    def summary(self) -> str:
        """The summary, or `""`."""
        with self._mutex:
            return self._look().summary

    def usage(self, by: str | None = None) -> Any:
        """What it cost: a `Usage`, or with `by` ("record", "turn", "model") a list of `UsageLine`."""
        if by is None:
            with self._mutex:
                return heads.copy(self._look()).usage
        if by not in ("record", "turn", "model"):
            raise ValueError(f"usage(by={by!r}): it is 'record', 'turn' or 'model'")
        lines: dict[Any, UsageLine] = {}
        for record in self.records(kinds=("message", "usage", "compacted")):
            for model, usage in vacuum.usages(record):
                key = {"record": record.seq, "turn": record.turn, "model": model}[by]
                line = lines.get(key)
                lines[key] = UsageLine(
                    seq=record.seq if line is None else line.seq,
                    turn=record.turn if by != "model" else None,
                    model=model if by != "turn" else None,
                    usage=add_usage(Usage() if line is None else line.usage, usage, model),
                )
        return list(lines.values())

    def _as_of(self, seq: int) -> Head:
        """What decides the history just after a record: base, summary, token count."""
        then = Head(id=self.id, seq=seq, created_at=self._head.created_at, updated_at=self._head.updated_at)
        based = told = False
        for record in self._backwards([(0, seq)], ("history", "meta", "compacted", "session")):
            one = Head(
                id=self.id, seq=0, created_at=then.created_at, updated_at=then.updated_at, summary="\0"
            )
            if record.kind == "session":  # that of a fork has a summary
                one = heads.begin(record)
            else:
                heads.advance(one, record)
            if record.kind == "history" and not based:
                then.base, then.token_count, based = one.base, one.token_count, True
            if one.summary != "\0" and not told:
                then.summary, told = one.summary, True
            if based and told:
                break
        return then

    def _reached(self, seq: int) -> int:
        """A record just after which the history is still known."""
        if seq < self._head.reach:
            raise ValueError(
                f"the history of session {self.id!r} just after record {seq} is gone: it was vacuumed; the "
                f"earliest that is known is that after record {self._head.reach}"
            )
        return seq

    def _read(self, spans: Sequence[tuple[int, int]], kinds: tuple[str, ...]) -> Iterable[Record]:
        return self._engine.read(self.id, spans=spans, kinds=kinds, uid=self._head.uid, damage=self._damage)

    def _backwards(self, spans: Sequence[tuple[int, int]], kinds: tuple[str, ...]) -> Iterable[Record]:
        return self._engine.read(
            self.id, spans=spans, kinds=kinds, reverse=True, uid=self._head.uid, damage=self._damage
        )


class Session(View):
    """An open session. With a lease (the default) nobody else changes its history meanwhile; a shared one
    takes the lease for each such change. Its threads may share it. Close it, or use it in a `with` block."""

    def __init__(
        self,
        store: Store,
        head: Head,
        *,
        lease: Lease | None,
        born: bool,
        begin: Draft | None = None,
        get_or_create: bool = False,
        activate: bool = False,
    ) -> None:
        self._store = store
        self._closed = True  # as long as it is half made
        self._mutex = Guard(store._engine)
        self._lease = lease
        self._begin = begin  # the session record, as long as nothing is written
        self._born = born  # whether this handle creates it
        self._get_or_create = get_or_create
        self._activate = activate
        self._stale = False
        self._unsynced = False
        self._wrote = False
        self._writing = False
        self._doubtful = False  # whether the first write was interrupted, and may have been done
        self._engine = store._engine
        self._clock = store._now
        self._head = head
        self._damage = [] if begin is not None else self._engine.damage(head.id)
        self._seq = head.seq
        self._give_out(head)
        self._closed = False

    # -- reading

    @property
    def head(self) -> Head:
        """How the session stands after the last call of this handle: a snapshot, the caller's own."""
        with self._mutex:
            return heads.copy(self._look() if self._stale else self._head)

    def refresh(self) -> None:
        """Takes in what others have written."""
        with self._mutex:
            self._look()

    def _look(self) -> Head:
        """The head as of now."""
        self._check()
        if self._begin is None:
            self._renew()
        elif self._get_or_create or self._doubtful:
            with suppress(SessionNotFound):
                self._adopt(self._engine.head(self._head.id))
        self._stale = False
        return self._head

    def _still_whole(self, seq: int) -> None:
        if self._lease is None:  # else nobody takes anything out
            super()._still_whole(seq)

    def _give_out(self, head: Head) -> None:
        parts = list(head.base.parts)
        if head.seq > head.base.after:
            parts.append((head.base.after + 1, head.seq))
        self._known: list[Part] = parts
        self._after = head.base.after

    def _check(self) -> None:
        if self._closed:
            raise Closed(f"session {self._head.id!r} is closed; open it again")
        if self._store._closed:  # whether it was inherited has been seen to by who got the mutex
            self._store._check()

    # -- writing

    def append(
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
        blobs: Sequence[str] = (),
        durable: bool = True,
        expect: int | None = None,
    ) -> Record:
        """Adds one message, and returns when it is safe. With `id` a repeat is stored once; with `expect`
        the last record must be the one named. With `durable=False` a power cut may take it."""
        draft = message(
            payload,
            id=id,
            kind=kind,
            shape=shape,
            model=model,
            usage=usage,
            time=time,
            turn=turn,
            blobs=blobs,
            default_model=self._head.model,
        )
        return self._write([draft], expect=expect, durable=durable)[0]

    def extend(
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
        drafts = message_list(
            payloads,
            ids=ids,
            usages=usages,
            times=times,
            shape=shape,
            model=model,
            default_model=self._head.model,
        )
        return self._write(drafts, expect=expect, durable=durable) if drafts else []

    def flush(self) -> None:
        """Makes everything so far durable."""
        with self._mutex:
            self._check()
            if self._begin is None:
                try:
                    self._engine.flush(self._head.id)
                except HansardError as error:
                    self._met(error)
                    raise
                self._unsynced = False

    def save(self) -> None:
        """Makes everything so far durable; there is nothing else to save."""
        self.flush()

    def _write(self, drafts: list[Draft], *, expect: int | None = None, durable: bool = True) -> list[Record]:
        with self._mutex:
            self._check()
            if self._writing:  # only this very thread can get here
                raise reentered(self._head.id)
            try:
                self._writing = True
                return self._written(drafts, expect, durable)
            finally:
                self._writing = False

    def _written(self, drafts: list[Draft], expect: int | None, durable: bool) -> list[Record]:
        if expect is not None and expect >= 0 and self._begin is not None:
            self._look()  # somebody else may have begun it
        now = self._store._now()
        for draft in drafts:
            draft.at = now
        try:
            records = None if self._begin is None else self._create(drafts, expect)
            if records is None:
                records = self._engine.append(
                    self._head.id,
                    drafts,
                    expect=expect,
                    durable=durable,
                    lease=self._lease,
                    uid=self._head.uid,
                )
        except HansardError as error:
            self._doubtful = self._doubtful or error.outcome_unknown
            self._met(error)
            raise
        except BaseException:
            self._doubtful = True
            raise
        self._stale = self._wrote = True
        self._unsynced = not durable
        for record in records:
            if record.seq > self._seq:
                self._seq = record.seq
                self._add_known(record.seq)
            elif not views.covers(self._known, (record.seq, -1)):
                self._known.append((record.seq, record.seq))  # a repeat of what somebody else wrote
        return records

    def _add_known(self, seq: int) -> None:
        """A record that this handle wrote is known to it; what others wrote before it is not."""
        if self._known and len(self._known[-1]) == 2 and self._known[-1][1] == seq - 1:
            self._known[-1] = (self._known[-1][0], seq)
        else:
            self._known.append((seq, seq))

    def _create(self, drafts: list[Draft], expect: int | None = None) -> list[Record] | None:
        """Writes the session if it is not written yet, with its first records; None if it is there."""
        if self._begin is None:
            return None
        if expect is not None and expect != -1:
            raise Conflict(
                f"session {self._head.id!r} is not written yet, so record {expect} is not its last", seq=-1
            )
        begin, self._begin.at = self._begin, drafts[0].at if drafts else self._store._now()
        try:
            records = self._engine.create(self._head.id, [begin, *drafts], lease=self._lease)
        except AlreadyExists:
            if not self._adopt(self._engine.head(self._head.id)):
                raise
            return None
        self._begun()
        return records[1:]

    def _begun(self) -> None:
        self._begin, self._doubtful = None, False
        self._seq, self._known, self._after = 0, [(0, 0)], -1
        self._stale = self._wrote = True
        if self._activate:
            self._store._activate(self._head.id, self._head.uid)

    def _adopt(self, head: Head) -> bool:
        """The session is there: because a write of this handle was interrupted and yet done, or because
        somebody else has begun what it was to get or create. Of the latter nothing was given out here."""
        if head.uid == self._head.uid:
            self._begun()
            self._head = head
            return True
        if not self._get_or_create:
            return False
        self._begin, self._born, self._doubtful = None, False, False
        self._head, self._seq, self._known, self._after = head, head.seq, [], -1
        if self._activate:
            self._store._activate(head.id, head.uid)
        return True

    def _exist(self) -> None:
        """Writes the session itself, if nothing is written yet."""
        with self._mutex:
            self._check()
            try:
                self._create([])
            except HansardError as error:
                self._met(error)
                raise

    def _met(self, error: HansardError) -> None:
        """After a failed sync this handle cannot go on."""
        if error.closes:
            self._closed = True
            with suppress(HansardError):
                self._release()

    # -- what the model sees

    def checkpoint(
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
        wanted = _frozen(messages)
        if token_count is not None and (isinstance(token_count, bool) or not isinstance(token_count, int)):
            raise TypeError(f"token_count is {token_count!r}; it must be a whole number")
        if token_count is not None and abs(token_count) > MOST:
            raise ValueError("token_count is larger than any number of tokens")
        extra: dict[str, Any] = {} if token_count is None else {"token_count": token_count}
        if summary is not None:
            extra["summary"] = _text(summary, "$.summary")
        call = {"op": "checkpoint", "messages": wanted, "upto": upto, **extra}
        return self._change(
            call, lambda known, rest: views.composed(known, wanted), extra, upto=upto, id=id, always=True
        )

    def set_history(self, messages: Iterable[Any], *, id: str | None = None) -> Record | None:
        """Makes the history these messages, writing only what differs: nothing, the new ones at the end, or a
        history record that names what stays. For callers that keep the whole list themselves."""
        wanted = _frozen(messages)
        with self._mutex, self._steady():
            if id is None:
                while True:
                    known, _ = self._sight(None)
                    new = views.extension(known, wanted)
                    if new is None:
                        break
                    if not new:
                        return None
                    drafts = message_list(new, default_model=self._head.model)
                    # what others add meanwhile stays before these; what they change is a conflict
                    try:
                        return self._write(drafts, expect=self._seq if self._begin is None else None)[-1]
                    except Conflict as conflict:
                        if conflict.first is not None:
                            raise
            call = {"op": "set", "messages": wanted}
            return self._change(call, lambda known, rest: views.composed(known, wanted), {}, id=id, said=True)

    def truncate(self, keep: int, *, pairs: bool = True, id: str | None = None) -> Record | None:
        """From now on the model sees the last `keep` messages: none for 0 or less. With `pairs` a tool call
        is never separated from its results; rather fewer are kept."""
        if isinstance(keep, bool) or not isinstance(keep, int):
            raise TypeError(f"truncate({keep!r}): how many to keep is a whole number")

        def parts(known: Sequence[Entry], rest: list[Entry]) -> list[Any] | None:
            start = views.kept(known, keep, pairs=pairs)
            if pairs:
                rest[:] = views.answering(rest, known[:start], known[start:], first=True)
            return None if start == 0 else views.parts_of(known[start:])

        return self._change({"op": "truncate", "keep": keep, "pairs": pairs}, parts, {}, id=id)

    def pop(self, n: int = 1, *, pairs: bool = False, id: str | None = None) -> list[Any]:
        """Takes the newest `n` messages out of the history and returns them, the newest last."""
        if isinstance(n, bool) or not isinstance(n, int):
            raise TypeError(f"pop({n!r}): how many is a whole number")
        if n < 0:
            raise ValueError(f"pop({n}): it must be 0 or more")
        popped: list[Any] = []

        def parts(known: Sequence[Entry], rest: list[Entry]) -> list[Any] | None:
            stop = views.left(known, n, pairs=pairs)
            if pairs:
                rest[:] = views.answering(rest, known[stop:], known[:stop])
            popped[:] = [entry.payload for entry in known[stop:]]
            return views.parts_of(known[:stop]) if popped else None

        before = self._change({"op": "pop", "n": n, "pairs": pairs}, parts, {}, id=id)
        if before is not None and not popped:  # a repeat: what it took out then
            popped += self._popped(before)
        return popped

    def clear(self, *, id: str | None = None) -> Record | None:
        """From now on the model sees nothing of what was said, and there is no summary."""

        def parts(known: Sequence[Entry], rest: list[Entry]) -> list[Any] | None:
            return [] if known or self._head.summary else None

        return self._change({"op": "clear"}, parts, {"summary": ""}, id=id)

    def rewind(self, seq: int, *, id: str | None = None) -> Record | None:
        """The history and the summary as they were just after a record, on whatever branch it lies."""
        if isinstance(seq, bool) or not isinstance(seq, int):
            raise TypeError(f"rewind({seq!r}): a record is named by its seq")
        with self._mutex:
            if not 0 <= seq <= self._look().seq:
                raise ValueError(
                    f"session {self._head.id!r} has no record {seq}; its last is {self._head.seq}"
                )
            then = self._as_of(self._reached(seq))
            target = views.entries(then.base, seq, self._read)
            extra: dict[str, Any] = {"summary": then.summary}
            if then.token_count is not None:
                extra["token_count"] = then.token_count
            parts = views.parts_of(target)
            return self._change(
                {"op": "rewind", "to": seq},
                lambda known, rest: parts,
                extra,
                id=id,
                always=True,
                target={entry.place for entry in target},
            )

    def set_summary(self, text: str, *, id: str | None = None) -> Record:
        """Sets the summary; it is no message."""
        return self._set({"summary": _text(text, "$.summary")}, id=id)

    def _sight(self, upto: int | None) -> tuple[list[Entry], list[Entry]]:
        """The entries that a change applies to, and those that stay after it."""
        head = self._look()
        if upto is not None:
            if type(upto) is not int or not -1 <= upto <= head.seq:
                raise ValueError(f"session {head.id!r} has no record {upto!r}; its last is {head.seq}")
            if upto < head.base.after:
                raise Conflict(
                    f"the history of session {head.id!r} was changed by record {head.base.after}, after "
                    f"record {upto}; read it again and decide anew",
                    seq=head.base.after,
                )
        elif head.base.after != self._after:
            raise Conflict(
                f"the history of session {head.id!r} was changed by record {head.base.after} since this "
                "handle read it; call history() and decide anew",
                seq=head.base.after,
            )
        if self._begin is not None:
            return [], []
        found = views.entries(head.base, head.seq, self._read)
        if upto is None:
            mine = views.within(found, self._known)
        else:
            mine = [entry for entry in found if entry.place[0] <= upto]
        if len(mine) == len(found):
            return found, []
        places = {entry.place for entry in mine}
        return mine, [entry for entry in found if entry.place not in places]

    def _change(
        self,
        call: dict[str, Any],
        parts: Any,
        extra: dict[str, Any],
        *,
        upto: int | None = None,
        id: str | None = None,
        always: bool = False,
        target: set[tuple[int, int]] | None = None,
        said: bool = False,
    ) -> Record | None:
        """Writes one history record: what `parts` makes of what this handle knows, then what it does not.
        With `said` new messages at the end are records of their own, so that all that was said is one."""
        with self._mutex, self._steady():
            self._check()
            first = self._repeated(call, id)
            if first is not None:
                return first
            known, rest = self._sight(upto)
            for attempt in range(_TRIES):
                chosen = parts(known, rest)
                if chosen is None or (not always and chosen == views.parts_of(known) and not extra):
                    return None
                if self._begin is not None:
                    self._exist()
                    known, rest = self._sight(upto)
                    chosen = parts(known, rest)
                if target is not None:
                    rest = [entry for entry in rest if entry.place not in target]
                new: list[Any] = []
                while said and not rest and chosen and isinstance(chosen[-1], dict):
                    new.insert(0, chosen.pop()["message"])
                data = {"op": call["op"], "parts": [*chosen, *views.parts_of(rest)], **extra}
                if id is not None:
                    data["call"] = views.digest(call)
                draft = Draft(kind="history", data=msgspec.Raw(encode(data)), id=id)
                drafts = [draft, *message_list(new, default_model=self._head.model)]
                try:
                    record, *_ = written = self._write(drafts, expect=self._seq)
                except Conflict as conflict:
                    if conflict.first is not None:
                        return self._judge(conflict.first, call, id=id)
                    if attempt == _TRIES - 1:
                        raise
                    known, rest = self._sight(upto)
                    continue
                stays = views.within(rest, self._known)
                named = views.named(data["parts"][: len(chosen)], record.seq)
                self._known = [*named, *views.parts_of(stays)]
                self._after = record.seq
                for one in written[1:]:
                    self._add_known(one.seq)
                return record
            raise AssertionError("a loop that always ends within")

    @contextmanager
    def _steady(self) -> Iterator[None]:
        """The lease, for as long as the history is worked on, and no other writer where that can be had."""
        self._check()
        lent = None
        if self._lease is None:
            lent = self._lease = self._engine.lease(self._head.id)
        try:
            if self._begin is None and "alone" in self._engine.capabilities:
                with self._engine.alone(self._head.id):
                    yield
            else:
                yield
        finally:
            if lent is not None:
                self._lease = None
                self._store._release(self._head.id, lent)

    def _repeated(self, call: dict[str, Any], id: str | None, kind: str = "history") -> Record | None:
        if record_id(id) is None or self._begin is not None:
            return None
        first = self._engine.find(self._head.id, str(id), uid=self._head.uid)
        if first is None:
            return None
        found = self._judge(first, call, kind, id)
        self._engine.flush(self._head.id)
        return found

    def _judge(
        self, first: Record, call: dict[str, Any], kind: str = "history", id: str | None = None
    ) -> Record:
        """The record that an earlier call under the same id wrote, if it was the same call."""
        digest = views.digest(call)
        if first.kind == kind and isinstance(first.data, dict) and first.data.get("call") == digest:
            return first
        former = vacuum.remembered(first, id) if first.kind == "compacted" else None
        if former is not None and former.digest == digest:
            return Record(
                kind=kind, data={"op": call["op"], "call": digest}, id=id, seq=former.seq, at=former.at
            )
        raise Conflict(
            f"record {first.seq} of session {self._head.id!r} has the id {first.id!r} already, and is "
            "another call; use a new id for a new call",
            first=first,
        )

    def _popped(self, record: Record) -> list[Any]:
        """What a pop took out, from the histories just before and just after it."""
        before = self._as_of(self._reached(record.seq - 1))
        was = views.entries(before.base, record.seq - 1, self._read)
        parts = views.advance(views.Base(), record).parts
        return [entry.payload for entry in was if not views.covers(parts, entry.place)]

    # -- the head

    def rename(self, title: str, *, id: str | None = None) -> Record:
        """Gives it a title, which stays whatever is said later."""
        return self._set({"title": _text(title, "$.title")}, id=id)

    def pin(self, on: bool = True, *, id: str | None = None) -> Record:
        """A pinned session is never cleaned up."""
        return self._set({"pinned": bool(on)}, id=id)

    def label(self, *add: str, remove: Sequence[str] | str = (), id: str | None = None) -> Record | None:
        """Adds and removes labels; None where that changes nothing."""
        gone = {remove} if isinstance(remove, str) else set(remove)
        wanted = {_text(label, "$.labels") for label in add}
        call = {"op": "label", "add": sorted(wanted), "remove": sorted(gone)}
        with self._mutex:
            first = self._repeated(call, id, "meta")
            while first is None:
                head = self._look()
                labels = sorted((set(head.labels) | wanted) - gone)
                if labels == head.labels and id is None:
                    return None
                data: dict[str, Any] = {"set": {"labels": labels}}
                if id is not None:
                    data["call"] = views.digest(call)
                draft = Draft(kind="meta", data=msgspec.Raw(encode(data)), id=record_id(id))
                try:
                    return self._write([draft], expect=None if self._begin is not None else head.seq)[0]
                except Conflict as conflict:
                    if conflict.first is not None:
                        return self._judge(conflict.first, call, "meta")
            return first

    def update(
        self,
        *,
        title: Any = msgspec.UNSET,
        agent: Any = msgspec.UNSET,
        model: Any = msgspec.UNSET,
        vendor: Any = msgspec.UNSET,
        endpoint: Any = msgspec.UNSET,
        workspace: Any = msgspec.UNSET,
        status: Any = msgspec.UNSET,
        labels: Any = msgspec.UNSET,
        pinned: Any = msgspec.UNSET,
        meta: Mapping[str, Any] | None = None,
        unset: Sequence[str] | str = (),
        id: str | None = None,
    ) -> Record | None:
        """Replaces whole values, keys of `meta` one by one; what is not named stays. `unset` takes names of
        fields and of keys (`meta.key`). None where nothing is asked for."""
        given = {
            "title": title,
            "agent": agent,
            "model": model,
            "vendor": vendor,
            "endpoint": endpoint,
            "workspace": workspace,
            "status": status,
            "labels": labels,
            "pinned": pinned,
        }
        fields = head_fields(
            {name: value for name, value in given.items() if value is not msgspec.UNSET}, self._store
        )
        if meta is not None:
            fields["meta"] = frozen_meta(meta)
        gone: list[Any] = [unset] if isinstance(unset, str) else list(unset)
        for name in gone:
            if not isinstance(name, str) or not encodes(name):
                raise ValueError(f"update(unset=[{name!r}]): a field is named by text")
            if not name.startswith("meta.") and name not in (*given, "meta", "summary"):
                raise ValueError(
                    f"update(unset=[{name!r}]): there is no such field; a key of meta is 'meta.{name}'"
                )
        if not fields and not gone:
            return None
        return self._set(fields, unset=gone, id=id)

    def add_usage(
        self, usage: Mapping[str, Any], *, model: str | None = None, id: str | None = None
    ) -> Record:
        """Records usage that belongs to no message."""
        raw, _ = checked_usage(usage)
        named = _text(model, "model") if model is not None else self._head.model or None
        return self._write([Draft(kind="usage", data=msgspec.Raw(raw), id=record_id(id), model=named)])[0]

    # -- what an application keeps beside the messages

    def event(
        self,
        type: str,
        data: Any = None,
        *,
        event_id: str,
        stream_id: str | None = None,
        durable: bool = True,
    ) -> Record:
        """Keeps an event of a live stream; the same `event_id` is stored once."""
        said: dict[str, Any] = {} if stream_id is None else {"stream_id": _text(stream_id, "stream_id")}
        said["type"] = _text(type, "type")
        if data is not None:
            said["data"] = freeze(data)[1]
        draft = Draft(kind="event", data=msgspec.Raw(freeze(said)[0]), id=record_id(event_id))
        if draft.id is None:
            raise InvalidPayload("event_id", "None; an event is known by its id")
        return self._write([draft], durable=durable)[0]

    def output(
        self, line: str | bytes | bytearray | memoryview, *, id: str | None = None, durable: bool = True
    ) -> Record | None:
        """Keeps a line of the agent's raw output, without its last newline; nothing of an empty one."""
        if isinstance(line, str):
            said: Any = _text(line, "line").removesuffix("\n")
        else:
            raw = bytes(memoryview(line)).removesuffix(b"\n")  # TypeError for what is neither text nor bytes
            try:
                said = raw.decode()
            except UnicodeDecodeError:
                said = {"base64": b64encode(raw).decode()}
        if not said:
            return None
        draft = Draft(kind="output", data=msgspec.Raw(encode(said)), id=record_id(id))
        return self._write([draft], durable=durable)[0]

    @property
    def documents(self) -> Documents:
        """The documents of the session; putting one begins it."""
        from hansard.documents import Documents

        return Documents(self._engine, self._identity, self._now, self._exist)

    def _identity(self) -> tuple[str, str]:
        with self._mutex:
            self._check()
            if self._begin is not None:
                self._look()  # somebody else may have begun it
            return ("" if self._begin is not None else self._head.id), self._head.uid

    def sub(self, path: str, **head: Any) -> Session:
        """The child of this path, open: the one that is there, or a new one. What is not said of it
        (agent, model, vendor, endpoint, workspace) is as it is here. It is deleted with this session."""
        self._exist()
        return self._store._sub(self, _text(path, "path"), head)

    def best_effort(self) -> BestEffortSession:
        """This session with calls that never raise; what fails is logged, and kept in `.dropped`."""
        from hansard.best_effort import BestEffortSession

        return BestEffortSession(self)

    def _set(
        self,
        fields: dict[str, Any],
        *,
        unset: Sequence[str] = (),
        id: str | None = None,
        expect: int | None = None,
    ) -> Record:
        data: dict[str, Any] = {"set": fields} if fields or not unset else {}
        if unset:
            data["unset"] = list(unset)
        draft = Draft(kind="meta", data=msgspec.Raw(encode(data)), id=record_id(id))
        record = self._write([draft], expect=expect)[0]
        if "model" in fields or "model" in unset:
            self._head.model = fields.get("model") or ""  # what the next message is marked with
        return record

    # -- the end

    def close(self) -> None:
        """Makes everything durable and gives the lease back; twice is once. A session that this handle
        created and in which no person said anything is removed."""
        if self._store.closed:
            self._closed = True
            return
        with self._mutex:
            if self._closed:
                return
            self._closed = True
            gone = False
            try:
                if self._begin is None:
                    if self._unsynced:
                        with suppress(SessionNotFound):
                            self._engine.flush(self._head.id)
                    if self._born:
                        with suppress(SessionNotFound):
                            head = self._engine.head(self._head.id)
                            if head.uid == self._head.uid and heads.is_bare(head):
                                gone = self._store._remove(head, unless_input=True)
            finally:
                self._release(gone=gone)

    def _release(self, *, gone: bool = False) -> None:
        lease, self._lease = self._lease, None
        if gone:
            self._store._release(self._head.id, lease)
        elif lease is not None or self._wrote:
            self._engine.release(self._head.id, lease)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_closed", True) or sys.is_finalizing() or self._store.closed:
            return
        told = f"{self!r} was never closed; use it in a with block"
        try:
            warnings.warn(told, ResourceWarning, stacklevel=2, source=self)
        finally:  # a warning may be an error
            with suppress(Exception):
                self.close()


# -- drafts -----------------------------------------------------------------------------------------


def message(
    payload: Any,
    *,
    id: str | None = None,
    kind: str = "message",
    shape: str | None = None,
    model: str | None = None,
    usage: Mapping[str, Any] | None = None,
    time: datetime | None = None,
    turn: str | None = None,
    blobs: Sequence[str] = (),
    default_model: str = "",
) -> Draft:
    """The draft of one record that an application writes."""
    if kind != "message" and ("." not in _text(kind, "kind") or kind.startswith("!")):
        raise InvalidPayload("kind", f"{kind!r}; it is 'message', or a kind of your own with a dot in it")
    if blobs:
        for i, digest in enumerate(blobs):
            if not _digest(_text(digest, f"blobs[{i}]")):
                raise InvalidPayload(f"blobs[{i}]", f"{digest!r}; it is a SHA-256 in 64 hexadecimal digits")
    raw, own = freeze(payload)
    if shape is not None:
        _text(shape, "shape")
    if model is not None:
        _text(model, "model")
    if turn is not None:
        _text(turn, "turn")
    if model is None and kind == "message":
        model = _model_of(own, shape, default_model)
    if model is None and usage is not None:
        model = default_model or None  # whoever reads the record alone knows what was paid for
    draft = Draft(
        kind=kind,
        data=msgspec.Raw(raw),
        id=None if id is None else record_id(id),
        turn=turn,
        model=model,
        usage=None if usage is None else checked_usage(usage)[1],
        shape=shape,
        time=None if time is None else _moment(time),
        blobs=tuple(blobs),
    )
    draft.__dict__["own"] = own
    return draft


def message_list(
    payloads: Iterable[Any],
    *,
    ids: Sequence[str | None] | None = None,
    usages: Sequence[Mapping[str, Any] | None] | None = None,
    times: Sequence[datetime | None] | None = None,
    shape: str | None = None,
    model: str | None = None,
    default_model: str = "",
) -> list[Draft]:
    """The drafts of several messages."""
    given = list(several(payloads))
    for name, values in (("ids", ids), ("usages", usages), ("times", times)):
        if values is not None and len(values) != len(given):
            raise ValueError(f"{len(given)} payloads and {len(values)} {name}; there must be one for each")
    return [
        message(
            payload,
            id=None if ids is None else ids[i],
            usage=None if usages is None else usages[i],
            time=None if times is None else times[i],
            shape=shape,
            model=model,
            default_model=default_model,
        )
        for i, payload in enumerate(given)
    ]


def _model_of(payload: Any, shape: str | None, default: str) -> str | None:
    """The model behind an assistant message: as the message says, else the session's."""
    if not isinstance(payload, dict):
        return None
    role = payload.get("role")
    if role in ("user", "tool", "system", "developer"):
        return None
    if role not in ("assistant", "model") and messages.read(payload, shape).role != "assistant":
        return None
    return messages.model(payload) or default or None


def _moment(time: Any) -> datetime:
    if not isinstance(time, datetime):
        raise InvalidPayload("time", f"{type(time).__name__}; it is an aware datetime")
    return utc(time)


_digest = re.compile(r"[0-9a-f]{64}").fullmatch


def record_id(id: Any) -> str | None:
    """An idempotency key as it can be stored."""
    if id is None:
        return None
    if not isinstance(id, str) or not id:
        raise InvalidPayload("id", f"{id!r}; it is text of at least one character")
    return _text(id, "id")


def checked_usage(usage: Any) -> tuple[bytes, Any]:
    """A usage object as JSON and a copy of its own, if anything in it can be counted."""
    try:
        raw, own = freeze(msgspec.to_builtins(usage) if isinstance(usage, Usage) else usage)
    except InvalidPayload as error:
        raise InvalidPayload(f"usage{error.path[1:]}", error.reason) from None
    if not isinstance(own, dict):
        raise InvalidPayload("usage", f"it is {type(usage).__name__}, not an object")
    try:
        understand(own)
    except ValueError as error:
        raise InvalidPayload("usage", str(error)) from None
    return raw, own


def head_fields(given: Mapping[str, Any], store: Store) -> dict[str, Any]:
    """The fields of a head as they are written: checked, the workspace normalised."""
    fields: dict[str, Any] = {}
    for name, value in given.items():
        if name == "workspace" and value is not None:
            try:
                fields[name] = _text(store.workspace(value), "$.workspace")
            except (TypeError, ValueError) as error:
                raise InvalidPayload("$.workspace", str(error)) from None
        elif name == "labels":
            labels = [value] if isinstance(value, str) else list(value or ())
            fields[name] = sorted({_text(label, "$.labels") for label in labels})
        elif name == "meta":
            fields[name] = frozen_meta(value)
        elif name == "pinned":
            if not isinstance(value, bool | None):
                raise InvalidPayload("$.pinned", f"{type(value).__name__}; it is True or False")
            fields[name] = bool(value)
        else:
            fields[name] = None if value is None else _text(value, f"$.{name}")
    return fields


def frozen_meta(meta: Any) -> dict[str, Any]:
    """Metadata as it is kept: any JSON under names."""
    if not isinstance(meta, Mapping):
        raise InvalidPayload("$.meta", f"{type(meta).__name__}; it is an object")
    frozen = {}
    for name, value in meta.items():
        try:
            frozen[_text(name, "$.meta")] = freeze(value)[1]
        except InvalidPayload as error:
            raise InvalidPayload(f"$.meta.{name}{error.path[1:]}", error.reason) from None
    return frozen


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise InvalidPayload(path, f"{type(value).__name__}; it is text")
    if not encodes(value):
        raise InvalidPayload(path, f"{value!r} has a lone surrogate; it is no valid Unicode")
    return str.__str__(value)


def _frozen(payloads: Iterable[Any]) -> list[Any]:
    return [freeze(payload)[1] for payload in several(payloads)]


def several(payloads: Iterable[Any]) -> Iterable[Any]:
    """What was given, if it is several messages; one alone would be taken apart."""
    if isinstance(payloads, Mapping | str | bytes | bytearray | memoryview | Record):
        raise TypeError(f"a list of messages is wanted, not one {type(payloads).__name__}; put it in a list")
    return payloads


def _between(
    found: Iterator[Record], since: datetime | None, until: datetime | None, limit: int | None
) -> Iterator[Record]:
    for record in found:
        if (since is None or record.when >= since) and (until is None or record.when < until):
            yield record
            if limit is not None:
                limit -= 1
                if limit == 0:
                    return
