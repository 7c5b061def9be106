"""Followers that wait in an event loop: one reader for all who follow the same.

A `Channel` reads each record once and keeps the newest; its followers only count how far they are. Who
begins elsewhere than now, or falls behind what is kept, reads for himself until he has caught up.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hansard.errors import Closed, HansardError
from hansard.following import MANY, Cursor, Feed, Told, feed_of
from hansard.records import encode, parse

if TYPE_CHECKING:
    from hansard.aio.twins import Root

KEPT, KEPT_BYTES = 4096, 16 << 20
"""Records, and bytes of them, that a channel keeps at most for those who are a little behind."""

FEW = 50
"""Who finds no more than this to read has nearly caught up."""

NOBODY = 64
"""Records after which a channel looks whether anybody needs those that it keeps."""

Loop = asyncio.AbstractEventLoop


class Item:
    """A record that was read. Each who follows gets one of his own."""

    __slots__ = ("_cursor", "_fresh", "_session", "raw")

    def __init__(self, told: Told) -> None:
        self._session, record, self._cursor = told
        self._fresh = [record]
        self.raw = encode(record)

    def told(self) -> Told:
        """What its follower gets."""
        try:
            record = self._fresh.pop()
        except IndexError:
            record = parse(self.raw)
        return self._session, record, self._cursor


class Seat:
    """How far a follower is in its channel."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at = 0


class Channel:
    """What is new in one session, or in all, for everybody who follows it. It is read in the hub's thread."""

    def __init__(self, hub: Hub, key: tuple[str, str] | None) -> None:
        self.key = key
        self.users = 0
        self.count = 0
        self.kept: tuple[int, list[Item]] = (0, [])  # the number of the first, and they
        self.over = False
        self.error: HansardError | None = None
        self.errors = 0
        self.seats: set[Seat] = set()
        self.others: list[Feed] = []  # of those who read for themselves
        self.waiting: dict[Loop, dict[asyncio.Future[None], None]] = {}
        self.feed = self.new_feed(hub)
        self._hub = hub
        self._asked = False
        self._size = 0
        self._look = NOBODY
        self.end = hub.root.store._engine.watch(self._changed, session=self.feed.session)
        try:
            self.feed.begin(None)
        except BaseException:
            self.end()
            raise

    def new_feed(self, hub: Hub) -> Feed:
        """What a follower reads who reads for himself."""
        return feed_of(hub.root.store._engine, *(self.key or (None, "")))

    def _changed(self, session: str | None) -> None:
        self.feed.changed(session)
        for feed in list(self.others):
            feed.changed(session)
        self.ask()

    def ask(self) -> None:
        """Has it read soon. Any thread may."""
        if not self._asked:
            self._asked = True
            with suppress(Closed):
                self._hub.make(self._read_once)

    def _read_once(self) -> None:
        self._asked = False
        self._read()
        if self.feed.more and self.error is None:
            self.ask()

    def catch_up(self) -> None:
        """In the hub's thread: reads all that there is."""
        self._read()
        while self.feed.more and self.error is None:
            self._read()

    def _read(self) -> None:
        try:
            told = self.feed.read()
        except HansardError as error:
            self.errors += 1
            self.error = error
        else:
            self.error = None
            self._publish([Item(one) for one in told])
            self.over = self.over or self.feed.over
            if not told and not self.over:
                return
        self.wake()

    def _publish(self, items: list[Item]) -> None:
        first, kept = self.kept
        kept.extend(items)
        self.count += len(items)
        self._size += sum(len(item.raw) for item in items)
        if len(kept) > self._look or self._size > KEPT_BYTES:
            needed = min((seat.at for seat in list(self.seats)), default=self.count)
            begin = max(first, needed, self.count - KEPT)
            rest = kept[begin - first :]
            size = sum(len(item.raw) for item in rest)
            while size > KEPT_BYTES:
                half = len(rest) // 2 + 1
                begin, rest = begin + half, rest[half:]
                size = sum(len(item.raw) for item in rest)
            self.kept = (begin, rest)  # whoever reads just now has the old list
            self._size = size
            self._look = len(rest) + NOBODY

    def wake(self) -> None:
        """All who wait look again."""
        for loop in list(self.waiting):
            try:
                loop.call_soon_threadsafe(self._wake_in, loop)
            except RuntimeError:  # it is closed, and nobody waits there
                self.waiting.pop(loop, None)

    def _wake_in(self, loop: Loop) -> None:
        for future in self.waiting.pop(loop, ()):
            if not future.done():
                future.set_result(None)


class Hub:
    """All that is followed in one store, and the one thread that reads it."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self.closed = False
        self._mutex = threading.RLock()
        self._channels: dict[tuple[str, str] | None, Channel] = {}
        self._reader: ThreadPoolExecutor | None = None

    def make(self, work: Callable[[], Any]) -> Future[Any]:
        """Has something done in the thread that reads."""
        with self._mutex:
            if self.closed:
                raise Closed("the store is closed; open it again with hansard.aio.open()")
            if self._reader is None:
                self._reader = ThreadPoolExecutor(1, thread_name_prefix="hansard-follow")
            return self._reader.submit(work)

    def channel(self, key: tuple[str, str] | None) -> Channel:
        """In the thread that reads: the one that is there, or a new one; it is the caller's to leave."""
        with self._mutex:
            channel = self._channels.get(key)
            if channel is not None:
                channel.users += 1
                return channel
        channel = Channel(self, key)
        with self._mutex:
            channel.users += 1
            if self.closed:
                channel.end()
            else:
                self._channels[key] = channel
        return channel

    def leave(self, channel: Channel, seat: Seat, feed: Feed | None) -> None:
        """Somebody follows no more."""
        with self._mutex:
            channel.seats.discard(seat)
            if feed is not None and feed in channel.others:
                channel.others.remove(feed)
            channel.users -= 1
            if channel.users or self._channels.get(channel.key) is not channel:
                return
            del self._channels[channel.key]
        channel.end()

    def close(self) -> None:
        """Ends all followers."""
        with self._mutex:
            if self.closed:
                return
            self.closed = True
            channels = list(self._channels.values())
            self._channels.clear()
            reader = self._reader
        for channel in channels:
            channel.end()
            channel.wake()
        if reader is not None:
            reader.shutdown(wait=False, cancel_futures=True)


class Follower:
    """Yields `(session id, record, cursor)` as records are committed; see `Store.follow`. It begins with the
    call; who wants to know when it has begun may `await` it. Leaving an `async with` block ends it."""

    def __init__(
        self, hub: Hub, ref: Any, *, after: Cursor | str | int | None, timeout: float | None
    ) -> None:
        self._hub = hub
        self._timeout = timeout
        self._closed = False
        self._channel: Channel | None = None
        self._seat = Seat()
        self._feed: Feed | None = None  # while it reads for itself
        self._near = False
        self._ready: deque[Told] = deque()
        self._cursor = Cursor()
        self._errors = 0
        self._waits: tuple[Loop, asyncio.Future[None]] | None = None
        self.begun = hub.make(lambda: self._begin(ref, after))
        self._coming: Future[Any] | None = self.begun

    def _begin(self, ref: Any, after: Cursor | str | int | None) -> None:
        """In the hub's thread."""
        store = self._hub.root.store
        key = None
        if ref is not None:
            head = store._head(*store._exact(ref))
            key = (head.id, head.uid)
        channel = self._hub.channel(key)
        try:
            if after is None:
                channel.catch_up()
                self._sit_down(channel)
                self._cursor = channel.feed.cursor
            else:
                self._read_for_itself(channel, after)
        except BaseException:
            self._hub.leave(channel, self._seat, self._feed)
            raise
        self._channel = channel

    def _sit_down(self, channel: Channel) -> None:
        self._seat.at = channel.count
        self._errors = channel.errors
        channel.seats.add(self._seat)

    def _read_for_itself(self, channel: Channel, after: Cursor | str | int) -> None:
        feed = channel.new_feed(self._hub)
        channel.others.append(feed)  # what changes from now on is told to it
        self._feed, self._near = feed, False
        feed.begin(after)
        self._cursor = feed.cursor

    @property
    def cursor(self) -> Cursor:
        """Where it stands: behind the last record that it gave."""
        return self._cursor

    def __await__(self) -> Generator[Any, None, Follower]:
        return self._arrive().__await__()

    async def _arrive(self) -> Follower:
        """Waits for what is done for it; whoever stops waiting may ask again."""
        coming = self._coming
        if coming is None:
            return self
        self._check()
        try:
            await asyncio.shield(asyncio.wrap_future(coming))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not coming.cancelled() or (task is not None and task.cancelling()):
                raise
        except HansardError:
            if not self._hub.closed:
                if coming is not self.begun:
                    self._coming = None
                raise
        if self._coming is coming:
            self._coming = None
        return self

    def _check(self) -> None:
        """A forked child has no thread that would tell it anything, and must not wait for one."""
        store = self._hub.root.store
        if store._engine.closed and not store._closed and not self._closed:
            raise Closed(f"the store {store.url} is closed, or was inherited through fork(); open it again")

    def __aiter__(self) -> Follower:
        return self

    async def __anext__(self) -> Told:
        deadline: float | None = None
        last = False
        if self._coming is not None:
            await self._arrive()
        while not self._closed and not self._hub.closed:
            self._check()
            if self._ready:
                told = self._ready.popleft()
                self._cursor = told[2]
                return told
            channel = self._channel
            assert channel is not None
            at = self._seat.at
            if self._feed is not None:
                if not self._near or channel.count > at:
                    await self._read_on(channel)
                    continue
                if self._feed.over:
                    break
            elif at < channel.count:
                first, kept = channel.kept
                if at >= first:
                    self._seat.at = at + 1
                    told = kept[at - first].told()
                    self._cursor = told[2]
                    return told
                await self._fall_behind(channel)
                continue
            elif channel.over:
                break
            if channel.error is not None:
                if self._errors != channel.errors:
                    self._errors = channel.errors
                    raise channel.error
                channel.ask()
            if last:
                break
            if self._timeout is not None and deadline is None:
                deadline = asyncio.get_running_loop().time() + self._timeout
            last = await self._wait(channel, at, deadline)
        self._check()
        self._close()
        raise StopAsyncIteration

    async def _wait(self, channel: Channel, at: int, deadline: float | None) -> bool:
        """Until there may be something; True when the time is over, and a last look was taken."""
        loop = asyncio.get_running_loop()
        left = None if deadline is None else deadline - loop.time()
        if left is not None and left <= 0:
            if self._feed is None:
                self._coming = self._hub.make(channel.catch_up)
            else:
                self._coming = self._hub.make(lambda: self._catch_up(channel))
            await self._arrive()
            return True
        waiting = channel.waiting.setdefault(loop, {})
        future: asyncio.Future[None] = loop.create_future()
        waiting[future] = None
        self._waits = (loop, future)
        timer = None
        try:
            # what came just before it was noted that somebody waits has woken nobody
            news = channel.count != at or channel.over or channel.errors != self._errors
            if not news and not self._hub.closed and not self._closed:
                timer = None if left is None else loop.call_later(left, _set, future)
                await future
        finally:
            self._waits = None
            waiting.pop(future, None)
            if timer is not None:
                timer.cancel()
        return False

    async def _read_on(self, channel: Channel) -> None:
        """The next piece of what it reads for itself: far behind in any worker, near the end in the hub's
        thread, where nothing can come in between."""
        if self._near:
            self._coming = self._hub.make(lambda: self._catch_up(channel))
        else:
            self._coming = self._hub.root.calls.make(self._read_piece)
        await self._arrive()

    def _read_piece(self) -> None:
        feed = self._feed
        assert feed is not None
        told = feed.read()
        self._ready.extend(told)
        self._near = len(told) <= FEW

    def _catch_up(self, channel: Channel) -> None:
        feed = self._feed
        assert feed is not None
        channel.catch_up()
        n = 0
        for _ in range(3):
            told = feed.read()
            self._ready.extend(told)
            n += len(told)
            if n > MANY:
                self._near = False
                break
            if not feed.more:
                if feed.stands_with(channel.feed):
                    channel.others.remove(feed)
                    self._sit_down(channel)
                    self._feed = None
                    return
                channel.catch_up()
        self._seat.at = channel.count

    async def _fall_behind(self, channel: Channel) -> None:
        def begin() -> None:
            channel.seats.discard(self._seat)
            self._read_for_itself(channel, self._cursor)

        self._coming = self._hub.root.calls.make(begin)
        await self._arrive()

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            if self._channel is not None and not self._hub.root.store._engine.closed:
                self._hub.leave(self._channel, self._seat, self._feed)
            if self._waits is not None:
                loop, future = self._waits
                with suppress(RuntimeError):  # the loop is closed, and nobody waits there
                    loop.call_soon_threadsafe(_set, future)

    async def close(self) -> None:
        """It yields no more; who waits for it, waits no longer."""
        self._close()

    aclose = close

    async def __aenter__(self) -> Follower:
        return await self._arrive()

    async def __aexit__(self, *exc: object) -> None:
        self._close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self._close()


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
