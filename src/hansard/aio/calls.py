"""Calls in worker threads: bounded, in order where order is asked for, and safe to be cancelled.

Nothing here knows what a call does.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from hansard.errors import Closed, SessionBusy

T = TypeVar("T")

WORKERS = 16
"""Threads of one store, at most; they are started when they are needed."""

SHORTEST, LONGEST = 0.002, 0.05
"""Seconds between two tries to get a lease that somebody else has."""

Line = deque["Call"]
"""Calls that run one after the other, in the order in which they were made; the first one runs."""


class Call:
    """One call on its way."""

    __slots__ = ("future", "line", "work")

    def __init__(self, work: Callable[[], Any], line: Line | None) -> None:
        self.work = work
        self.line = line
        self.future: Future[Any] = Future()


def _nothing() -> None:
    """What a call does that is done."""


class Calls:
    """The calls of one store. Any thread and any event loop may make them."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="hansard-aio")
        self._mutex = threading.RLock()
        self._out = 0  # made, and not done
        self._holds = 0
        self._held: list[Call] = []
        self._last: Call | None = None

    def make(self, work: Callable[[], T], line: Line | None = None) -> Future[T]:
        """Has something done in a worker, after all that was made before in the same line."""
        call = Call(work, line)
        with self._mutex:
            if self._last is not None:
                raise Closed("the store is closed; open it again with hansard.aio.open()")
            self._out += 1
            if self._holds:
                self._held.append(call)
            else:
                self._enter(call)
        return call.future

    def _enter(self, call: Call) -> None:
        if call.line is not None:
            call.line.append(call)
            if len(call.line) > 1:
                return  # it follows when the one before it is done
        self._pool.submit(self._do, call)

    def _do(self, call: Call) -> None:
        future, line = call.future, call.line
        try:
            if future.set_running_or_notify_cancel():
                try:
                    value = call.work()
                except BaseException as error:
                    call.work = _nothing
                    future.set_exception(error)
                else:
                    call.work = _nothing  # what it worked on must not live on here when the caller goes on
                    future.set_result(value)
        finally:
            with self._mutex:
                if line is not None:
                    line.popleft()
                    if line:
                        self._pool.submit(self._do, line[0])
                self._out -= 1
                self._end_if_done()

    async def run(
        self, work: Callable[[], T], line: Line | None = None, *, undo: Callable[[T], Any] | None = None
    ) -> T:
        """The same, waited for. Who stops waiting takes back what has not begun; what has begun is finished,
        and what came of it is given to `undo`."""
        made = self.make(work, line)
        try:
            return await asyncio.wrap_future(made)
        except asyncio.CancelledError:
            if undo is not None:
                made.add_done_callback(partial(self._undo, undo, line, threading.get_ident()))
            raise

    async def run_to_its_end(self, work: Callable[[], T], line: Line | None = None) -> T:
        """The same for what must be done even if nobody waits for it any more."""
        return await asyncio.shield(asyncio.wrap_future(self.make(work, line)))

    def _undo(self, undo: Callable[[Any], Any], line: Line | None, caller: int, made: Future[Any]) -> None:
        """In the worker that has done it, before the next call of the line; not in the caller's thread."""
        if made.cancelled() or made.exception() is not None:
            return
        if threading.get_ident() == caller:
            with suppress(Closed):
                self.make(partial(undo, made.result()), line)
                return
        undo(made.result())

    # -- holding everything for a moment

    def hold(self) -> None:
        """What is made from now on waits until it is let go."""
        with self._mutex:
            self._holds += 1

    def let_go(self) -> None:
        """The other half of `hold`."""
        with self._mutex:
            self._holds -= 1
            if not self._holds:
                held, self._held = self._held, []
                for call in held:
                    self._enter(call)

    # -- the end

    def end(self, work: Callable[[], None]) -> Future[None]:
        """Does one last thing when all others are done, and takes no more; twice is once."""
        with self._mutex:
            if self._last is None:
                self._last = Call(work, None)
                self._end_if_done()
            return self._last.future

    def _end_if_done(self) -> None:
        if self._last is not None and not self._out:
            self._out = -1
            self._pool.submit(self._do_last, self._last)

    def _do_last(self, call: Call) -> None:
        try:
            call.work()
        except BaseException as error:
            call.future.set_exception(error)
        else:
            call.future.set_result(None)
        self._pool.shutdown(wait=False)


class Turns:
    """Who waits for a lease: one try at a time for each session, in the order in which they came, and no
    thread is kept waiting."""

    def __init__(self) -> None:
        self._mutex = threading.RLock()
        self._waiting: dict[str, deque[_Turn]] = {}

    async def take(self, attempt: Callable[[], Any], timeout: float | None) -> Any:
        """What an attempt gives, as soon as one is not `SessionBusy`, or until the time is over."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        try:
            return await attempt()
        except SessionBusy as busy:
            if timeout is not None and timeout <= 0:
                raise
            session = busy.id
        turn = self._join(session)
        pause = SHORTEST
        try:
            while True:
                left = None if deadline is None else deadline - loop.time()
                first = self._waiting[session][0] is turn
                await turn.wait(left if not first else pause if left is None else min(pause, left))
                if self._waiting[session][0] is turn or (deadline is not None and loop.time() >= deadline):
                    try:
                        return await attempt()
                    except SessionBusy:
                        if deadline is not None and loop.time() >= deadline:
                            raise
                        pause = min(pause * 1.5, LONGEST) if first else SHORTEST
        finally:
            self._leave(session, turn)

    def freed(self, session: str) -> None:
        """Somebody of this store gave a lease back."""
        with self._mutex:
            waiting = self._waiting.get(session)
            if waiting:
                waiting[0].call()

    def _join(self, session: str) -> _Turn:
        turn = _Turn()
        with self._mutex:
            self._waiting.setdefault(session, deque()).append(turn)
        return turn

    def _leave(self, session: str, turn: _Turn) -> None:
        with self._mutex:
            waiting = self._waiting[session]
            waiting.remove(turn)
            if waiting:
                waiting[0].call()
            else:
                del self._waiting[session]


class _Turn:
    """The place of one in the queue."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._called = asyncio.Event()

    async def wait(self, seconds: float | None) -> None:
        """Until it is called, but not for long."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._called.wait(), None if seconds is None else max(seconds, 0))
        self._called.clear()

    def call(self) -> None:
        """Any thread may."""
        with suppress(RuntimeError):  # its loop is closed, and nobody waits there
            self._loop.call_soon_threadsafe(self._called.set)
