"""Following: records as they are committed, by anyone.

An engine only says that something changed; what is new is read back by seq, so that a record is given once
however often somebody is woken, and no log is locked while its reader thinks. Where a log was cut back (a
failed sync takes away what was not durable), what was written there instead is given too: a seq that is not
greater than the one before says that the records from there on were taken back.
"""

from __future__ import annotations

import re
import threading
import time
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict, deque
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol
from zlib import crc32

from hansard.engines import Engine
from hansard.errors import Closed, Damaged, HansardError, NewerFormat, SessionNotFound
from hansard.records import Record, decode, encode
from hansard.views.head import Query, rank

if TYPE_CHECKING:
    from hansard.store import Store

LAST = 1 << 62
"""More records than any session has."""

MANY, MUCH = 500, 1 << 20
"""Records, and bytes of them, that are read at once."""

REMEMBERED = 500
"""Records of a session of which a follower knows what they said, to find where a log was cut back."""

BEFORE = 64
"""Records before its beginning of which it knows that."""

PAGE = 500
"""Heads that are looked at together."""


class Cursor:
    """A place to go on from: `str(cursor)` is text that can be kept, and `follow(after=…)` takes both.

    That of one session is short. That of a whole store has the place in each session, and is put together
    only when the text is asked for.
    """

    __slots__ = ("_of", "_text")

    def __init__(self, text: str = "", of: tuple[Places, Step] | None = None) -> None:
        self._text = text
        self._of = of

    def __str__(self) -> str:
        of = self._of
        if of is not None:
            places, step = of
            self._text = places.packed(step)
            self._of = None
        return self._text

    def __repr__(self) -> str:
        return f"<Cursor {str(self)[:40]}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cursor) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


Told = tuple[str, Record, Cursor]
"""What a follower yields: the session's id, the record, and where to go on after it."""


def checksum(record: Record) -> tuple[int, int]:
    """What tells a record from another one with its seq, and about how long it is. Not its `sum`: that
    changes with what stands before it, when a log is vacuumed."""
    said = encode((record.seq, record.kind, record.id, record.at, record.data))
    return crc32(said), len(said)


def stamp(at: datetime | None) -> int | None:
    """What tells a record of which only the head was seen from another one with its seq: when it was written.
    Never equal to a checksum."""
    return None if at is None else (1 << 32) + crc32(encode(at))


def _is(record: Record, mark: int | None) -> bool:
    """Whether a record is the one that was marked."""
    return mark == (stamp(record.at) if mark is not None and mark >> 32 else checksum(record)[0])


# -- one session ------------------------------------------------------------------------------------


class Trail:
    """The records of one session that were given last, as far as they are remembered."""

    __slots__ = ("_marks", "seq", "stamp", "uid")

    def __init__(self, uid: str, marks: list[tuple[int, int | None]], seq: int = -1) -> None:
        """The marks are seqs with their checksums; of a record that was only counted there is none."""
        self.uid = uid
        self.seq = marks[-1][0] if marks else seq
        self.stamp: int | None = None  # of the last record, where it was read
        self._marks = marks

    @property
    def mark(self) -> int | None:
        """The checksum of the last record, where it is known."""
        return self._marks[-1][1] if self._marks else None

    def news(self, engine: Engine, session: str) -> Iterator[tuple[Record, int, int]]:
        """The records after the last one, each with its checksum and length; it moves on as they are taken.
        Where the log was cut back meanwhile, from the last record that is there still."""
        found = self._from_here(engine, session)
        if found is None:
            self._step_back(engine, session)
            found = self._from_here(engine, session) or iter(())
        for record in found:
            mark, length = checksum(record)
            if len(self._marks) > 2 * REMEMBERED:
                del self._marks[:-REMEMBERED]
            self._marks.append((record.seq, mark))
            self.seq, self.stamp = record.seq, stamp(record.at)
            yield record, mark, length

    def _from_here(self, engine: Engine, session: str) -> Iterator[Record] | None:
        """What follows the last record; None where that is not what it was."""
        mark = self.mark
        begin = self.seq + 1 if mark is None else self.seq
        found = engine.read(session, spans=[(begin, LAST)], uid=self.uid)
        first = next(found, None)
        if mark is None:
            if first is None and self._marks and engine.head(session).seq < self.seq:
                return None
            return found if first is None else chain((first,), found)
        if first is None:
            return None
        if first.seq > self.seq:  # it was vacuumed away, or damaged: a log that was cut has every seq
            return chain((first,), found)
        return found if _is(first, mark) or _stands_for(first, self.seq) else None

    def _step_back(self, engine: Engine, session: str) -> None:
        """To the newest record that is as it was given; to the beginning where none is: better twice than
        not at all."""
        marks = self._marks
        there: dict[int, Record] = {}
        stretches: list[Record] = []
        for record in engine.read(session, spans=[(marks[0][0], marks[-1][0])], uid=self.uid):
            there[record.seq] = record
            if record.kind == "compacted":
                stretches.append(record)
        while marks:
            seq, mark = marks[-1]
            found = there.get(seq)
            if (found is not None and _is(found, mark)) or any(_stands_for(one, seq) for one in stretches):
                break
            marks.pop()
        self.seq, self.stamp = (marks[-1][0] if marks else -1), None


def _stands_for(record: Record, seq: int) -> bool:
    """Whether a vacuum has put this record in the place of the one with that seq."""
    if record.kind != "compacted" or not isinstance(record.data, dict):
        return False
    first = record.data.get("first")
    return isinstance(first, int) and first <= seq <= record.seq


class Feed(Protocol):
    """What is new, read whenever somebody asks. One thread reads at a time; any may say what changed."""

    session: str | None
    over: bool
    """Whether there is no more to come: the session is gone."""

    @property
    def more(self) -> bool:
        """Whether the last `read` left something unread."""
        ...

    @property
    def cursor(self) -> Cursor:
        """Where it stands."""
        ...

    def begin(self, after: Cursor | str | int | None) -> None:
        """Takes its place. Changes may be told before."""
        ...

    def changed(self, session: str | None) -> None:
        """Somebody wrote there (None: maybe anywhere)."""
        ...

    def read(self) -> list[Told]:
        """What is new, at most a bounded part of it; nothing when all was read."""
        ...

    def stands_with(self, other: Any) -> bool:
        """Whether the two have given the same records."""
        ...


class OneSession:
    """The feed of one session."""

    def __init__(self, engine: Engine, session: str, uid: str) -> None:
        self.session: str | None = session
        self.over = False
        self.more = False
        self._id = session
        self._engine = engine
        self._trail = Trail(uid, [])

    @property
    def cursor(self) -> Cursor:
        trail = self._trail
        return Cursor(f"{trail.seq}" if trail.mark is None else f"{trail.seq}.{trail.mark:08x}")

    def begin(self, after: Cursor | str | int | None) -> None:
        trail = self._trail
        if after is None:
            last = self._engine.head(self._id).seq
            found = self._engine.read(self._id, spans=[(max(0, last - BEFORE), LAST)], uid=trail.uid)
            marks: list[tuple[int, int | None]] = [(record.seq, checksum(record)[0]) for record in found]
            self._trail = Trail(trail.uid, marks[-REMEMBERED:])
        elif isinstance(after, int) and not isinstance(after, bool):
            if after < -1:
                raise ValueError(f"after={after}: a record is named by its seq; -1 is before the first")
            self._trail = Trail(trail.uid, [], after)
        elif isinstance(after, str | Cursor):
            self._trail = _unpacked_one(str(after), trail.uid)
        else:
            raise TypeError(f"after={after!r}: it is a cursor, its text, or a seq")

    def changed(self, session: str | None) -> None:
        """Whatever it was, `read` looks."""

    def read(self) -> list[Told]:
        told: list[Told] = []
        size = 0
        self.more = False
        try:
            for record, mark, length in self._trail.news(self._engine, self._id):
                told.append((self._id, record, Cursor(f"{record.seq}.{mark:08x}")))
                size += length
                if len(told) >= MANY or size >= MUCH:
                    self.more = True
                    break
        except SessionNotFound:
            self.over = True
        except HansardError:
            self.more = True
            if not told:  # else it comes again, after these
                raise
        return told

    def stands_with(self, other: Any) -> bool:
        mine, its = self._trail, other._trail
        return mine.seq == its.seq and (mine.mark == its.mark or None in (mine.mark, its.mark))


# -- all sessions -----------------------------------------------------------------------------------

Place = tuple[str, int, int | None]
"""How far a session was followed: its uid, the last seq, and the checksum of that record."""


class Step:
    """A change of the places: which session, and where it stood before. It leads to the next one."""

    __slots__ = ("id", "next", "was")

    def __init__(self, id: str = "", was: Place | None = None) -> None:
        self.id = id
        self.was = was
        self.next: Step | None = None


class Places:
    """How far each session of a store was followed, now and as of every cursor that somebody still has.

    A cursor keeps the step that led to it, and so those after it. Thus a record costs the same however many
    sessions there are, and steps that no cursor leads to go by themselves.
    """

    def __init__(self) -> None:
        self.now: dict[str, Place] = {}
        self._last = Step()

    @property
    def cursor(self) -> Cursor:
        """For what stands here now."""
        return Cursor(of=(self, self._last))

    def step(self, id: str, place: Place | None) -> None:
        """From here on a session stands elsewhere."""
        step = Step(id, self.now.get(id))
        self._last.next = step  # before the change: whoever reads meanwhile undoes it
        self._last = step
        if place is None:
            self.now.pop(id, None)
        else:
            self.now[id] = place

    def packed(self, step: Step) -> str:
        """The places after a step, as text. Any thread may ask."""
        places: dict[str, Place | None] = dict(self.now)
        undone = set()
        later = step.next
        while later is not None:
            if later.id not in undone:
                undone.add(later.id)
                places[later.id] = later.was
            later = later.next
        told = {}
        for id, place in places.items():
            if place is not None:
                uid, seq, mark = place
                told[id] = [crc32(uid.encode()), seq, *(() if mark is None else (mark,))]
        return _ALL + urlsafe_b64encode(zlib.compress(encode(told))).decode().rstrip("=")


class AllSessions:
    """The feed of a store: of each session the records in their order, of several as they are met."""

    def __init__(self, engine: Engine) -> None:
        self.session: str | None = None
        self.over = False
        self._engine = engine
        self._places = Places()
        self._trails: dict[str, Trail] = {}  # of those that something was read of
        self._new: OrderedDict[str, None] = OrderedDict()  # any thread adds to it
        self._anywhere = False

    @property
    def more(self) -> bool:
        return bool(self._new) or self._anywhere

    @property
    def cursor(self) -> Cursor:
        return self._places.cursor

    def begin(self, after: Cursor | str | int | None) -> None:
        now = self._places.now
        if after is None:
            now.update((id, (uid, seq, mark)) for id, uid, seq, mark in sessions(self._engine))
        elif isinstance(after, int) and not isinstance(after, bool):
            if after != -1:
                raise ValueError(f"after={after}: of all sessions there is no record {after}; give a cursor")
            self._anywhere = True
        elif isinstance(after, str | Cursor):
            known = _unpacked_all(str(after))
            for id, uid, seq, there in sessions(self._engine):
                of, last, mark = known.get(id, (-1, -1, None))
                if of == crc32(uid.encode()):
                    now[id] = uid, last, mark
                if id not in now or last != seq or mark != there:
                    self._new[id] = None
        else:
            raise TypeError(f"after={after!r}: it is a cursor, its text, or -1")

    def changed(self, session: str | None) -> None:
        if session is None:
            self._anywhere = True
        else:
            self._new[session] = None

    def read(self) -> list[Told]:
        told: list[Told] = []
        try:
            if self._anywhere:
                self._look_everywhere()
            while self._new and len(told) < MANY:
                id, _ = self._new.popitem(last=False)  # before it is read: what changes from now on is new
                more = True
                try:
                    more = self._read(id, told)
                except (Damaged, NewerFormat):
                    more = False  # one that cannot be understood must not keep the others away
                finally:
                    if more:
                        self._new[id] = None
                if more:
                    break
        except HansardError:
            if not told:  # else it comes again, after these
                raise
        return told

    def _look_everywhere(self) -> None:
        self._anywhere = False
        try:
            for id, uid, seq, mark in sessions(self._engine):
                place, trail = self._places.now.get(id), self._trails.get(id)
                if place is None or place[:2] != (uid, seq) or mark not in (place[2], trail and trail.stamp):
                    self._new[id] = None
        except BaseException:
            self._anywhere = True
            raise

    def _read(self, id: str, told: list[Told]) -> bool:
        """Reads on in one session; says whether there may be more."""
        while (trail := self._trail(id)) is not None:
            before, size = trail.seq, 0
            try:
                for record, mark, length in trail.news(self._engine, id):
                    self._trails[id] = trail
                    self._places.step(id, (trail.uid, record.seq, mark))
                    told.append((id, record, self._places.cursor))
                    size += length
                    if len(told) >= MANY or size >= MUCH:
                        return True
            except SessionNotFound:  # it was deleted; maybe another one has its id now
                self._trails.pop(id, None)
                self._places.step(id, None)
                continue
            if trail.seq < before:  # cut back, and nothing new yet
                self._places.step(id, (trail.uid, trail.seq, trail.mark))
            return False
        return False

    def _trail(self, id: str) -> Trail | None:
        trail = self._trails.get(id)
        if trail is not None:
            return trail
        place = self._places.now.get(id)
        if place is not None:
            uid, seq, mark = place
            return Trail(uid, [(seq, mark)] if seq >= 0 else [])
        try:
            return Trail(self._engine.head(id).uid, [])
        except SessionNotFound:
            return None

    def stands_with(self, other: Any) -> bool:
        if self.more or other.more:
            return False
        mine, its = self._places.now, other._places.now
        return len(mine) == len(its) and all(
            id in its and its[id][:2] == (uid, seq) for id, (uid, seq, _) in mine.items()
        )


def sessions(engine: Engine) -> Iterator[tuple[str, str, int, int | None]]:
    """All that there are: id, uid, last seq and the stamp of that record."""
    now = datetime.now(UTC)
    place = None
    while True:
        query = Query(anywhere=True, empty=True, order="created", limit=PAGE, place=place, now=now)
        found = engine.heads(query)
        yield from [(head.id, head.uid, head.seq, stamp(head.written_at)) for head in found]
        if len(found) < PAGE:
            return
        place = (rank(found[-1], query), found[-1].id)


# -- cursors as text --------------------------------------------------------------------------------

_ALL = "all."
_one = re.compile(r"(-1|\d{1,18})(?:\.([0-9a-f]{8}))?").fullmatch


def _unpacked_one(text: str, uid: str) -> Trail:
    found = _one(text)
    if found is None:
        raise ValueError(
            f"after={text[:40]!r} is no cursor of a session; take the one that came with a record"
        )
    seq = int(found[1])
    return Trail(uid, [], seq) if found[2] is None else Trail(uid, [(seq, int(found[2], 16))])


def _unpacked_all(text: str) -> dict[str, tuple[int, int, int | None]]:
    try:
        if not text.startswith(_ALL):
            raise ValueError
        packed = text.removeprefix(_ALL)
        places = decode(zlib.decompress(urlsafe_b64decode(packed + "=" * (-len(packed) % 4))))
        return {id: (of, seq, mark[0] if mark else None) for id, (of, seq, *mark) in places.items()}
    except (ValueError, TypeError, AttributeError, RecursionError, zlib.error):
        raise ValueError(
            f"after={text[:40]!r} is no cursor of a store; take the one that came with a record"
        ) from None


# -- waiting ----------------------------------------------------------------------------------------


class Follower:
    """Yields `(session id, record, cursor)` as records are committed; see `Store.follow`. Leaving a `with`
    block ends it, and so does forgetting it."""

    def __init__(
        self, store: Store, feed: Feed, *, after: Cursor | str | int | None, timeout: float | None
    ) -> None:
        self._closed = False
        self._store = store
        self._feed = feed
        self._timeout = timeout
        self._ready: deque[Told] = deque()
        self._signal = signal = threading.Event()

        def changed(session: str | None) -> None:
            feed.changed(session)
            signal.set()

        self._end = store._engine.watch(changed, session=feed.session)
        try:
            feed.begin(after)
        except BaseException:
            self._end()
            raise
        self._cursor = feed.cursor

    @property
    def cursor(self) -> Cursor:
        """Where it stands: behind the last record that it gave."""
        return self._cursor

    def __iter__(self) -> Follower:
        return self

    def __next__(self) -> Told:
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        while not self._closed:
            if self._store._engine.closed and not self._store._closed:
                raise Closed(
                    f"the store {self._store.url} is closed, or was inherited through fork(); open it again"
                )
            if not self._ready:
                self._fill()
            if self._ready and not self._closed:
                told = self._ready.popleft()
                self._cursor = told[2]
                return told
            left = None if deadline is None else deadline - time.monotonic()
            if self._feed.over or (left is not None and left <= 0):
                self.close()
            else:
                self._signal.wait(left)
        raise StopIteration

    def _fill(self) -> None:
        self._signal.clear()
        try:
            self._ready.extend(self._feed.read())
        except HansardError:
            if not self._closed:
                raise

    def close(self) -> None:
        """It yields no more; who waits for it, waits no longer."""
        if not self._closed:
            self._closed = True
            if not self._store._engine.closed:  # a forked child must not wait for what no thread gives back
                self._end()
                self._signal.set()

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True) and hasattr(self, "_end"):
            self.close()


def feed_of(engine: Engine, session: str | None, uid: str) -> Feed:
    """What is new in one session, or in all."""
    return AllSessions(engine) if session is None else OneSession(engine, session, uid)
