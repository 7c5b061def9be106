"""The asynchronous store, session and view: what is not simply the same call in a worker thread."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

from hansard import best_effort, following
from hansard import session as sessions
from hansard import store as stores
from hansard.aio.calls import Line
from hansard.aio.following import Follower
from hansard.aio.twins import Opening, Root, Twin, at_once, close, known_twin, method_of, plain, twin
from hansard.errors import Closed, HansardError
from hansard.views import head as heads
from hansard.views.head import Head

known_twin(following.Follower, Follower)


@twin(sessions.View)
class View(Twin):
    def __init__(self, root: Root, it: Any, line: Line | None = None) -> None:
        super().__init__(root, it, deque())  # its calls in the order in which they were made


@twin(sessions.Session)
class Session(View):
    _seen: Head | None = None

    def _call(self, name: str, args: tuple[Any, ...], given: dict[str, Any]) -> Callable[[], Any]:
        return partial(self._and_look, super()._call(name, args, given))

    def _and_look(self, call: Callable[[], Any]) -> Any:
        """In a worker: the call, and then how the session stands, since `head` must not do I/O. The session
        itself does not look: what others wrote meanwhile was not seen by its owner."""
        try:
            return call()
        finally:
            it = self._it
            if it._stale and not it._closed and it._begin is None and len(self._line or ()) <= 1:
                with suppress(HansardError):
                    head = it._engine.head(it.id)
                    self._seen = head if head.uid == it._head.uid else self._seen

    @property
    def head(self) -> Head:
        it = self._it
        return heads.copy(self._seen if it._stale and self._seen is not None else it._head)

    def best_effort(self) -> Any:
        return BestEffortSession(self._root, self._it.best_effort(), session=self)

    async def close(self) -> None:
        root, it = self._root, self._it
        if root.store.closed:
            it.close()
            return
        try:
            with suppress(Closed):  # the store is about to be closed, and closes it
                await root.calls.run_to_its_end(it.close, self._line)
        finally:
            root.turns.freed(it.id)


@twin(best_effort._Failures)
class _Failures(Twin):
    """What raises nothing. A call that waits for others is tried again and again, as those are that open
    something, for no thread to be kept waiting."""

    async def _ask(self, name: str, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        return self._wrapped(await self._tried(name, args, given))

    async def _opened(self, name: str, args: tuple[Any, ...], given: dict[str, Any], timeout: Any) -> Any:
        return self._wrapped(await self._tried(name, args, given, undo=close))

    async def _tried(
        self,
        name: str,
        args: tuple[Any, ...],
        given: dict[str, Any],
        undo: Callable[[Any], Any] | None = None,
    ) -> Any:
        root = self._root
        attempt = self._it._attempt(name, *plain(args, given))
        if root.store.closed:
            return attempt.patiently()  # it fails at once
        once, line = self._once(attempt), self._line_of(name, args, given)
        try:
            return await root.turns.take(lambda: root.calls.run(once, line, undo=undo), attempt.patience)
        except HansardError as error:  # somebody is still at it, or the store is about to be closed
            return attempt.failed(error)

    def _once(self, attempt: best_effort.Attempt) -> Callable[[], Any]:
        return attempt.once

    def _make(self, line: Line | None, work: Callable[[], Any]) -> Future[Any]:
        try:
            return super()._make(line, work)
        except Closed:
            return at_once(work)


@twin(best_effort.BestEffortSession)
class BestEffortSession(_Failures):
    def __init__(self, root: Root, it: Any, line: Line | None = None, session: Session | None = None) -> None:
        self._session = Session(root, it._session) if session is None else session
        super().__init__(root, it, self._session._line)

    def _once(self, attempt: best_effort.Attempt) -> Callable[[], Any]:
        return partial(self._session._and_look, attempt.once)

    def __getattr__(self, name: str) -> Any:
        known = getattr(sessions.Session, name, None)
        if inspect.isfunction(known) and not name.startswith("_"):
            return method_of(name, known).__get__(self)
        return super().__getattr__(name)

    @property
    def head(self) -> Head:
        return self._session.head

    def best_effort(self) -> Any:
        return self

    async def close(self) -> Any:
        try:
            return await self._ask("close", (), {})
        finally:
            self._root.turns.freed(self._it.id)


@twin(stores.Store)
class Store(Twin):
    def follow(self, ref: Any = None, *, after: Any = None, timeout: float | None = None) -> Follower:
        root = self._root
        root.store._check()
        if root.store.closed:
            raise Closed(
                f"the store {self._it.url} is closed, or was inherited through fork(); open it again"
            )
        if after is not None:
            return Follower(root.hub, ref, after=after, timeout=timeout)
        root.calls.hold()  # what is written after this call is to be told
        try:
            follower = Follower(root.hub, ref, after=after, timeout=timeout)
        except BaseException:
            root.calls.let_go()
            raise
        follower.begun.add_done_callback(lambda _: root.calls.let_go())
        return follower

    async def close(self) -> None:
        root = self._root
        if root.store.closed and not root.store._closed:  # inherited: there are no threads any more
            root.store.close()
            return
        root.hub.close()
        await asyncio.shield(asyncio.wrap_future(root.calls.end(root.store.close)))


def over(store: stores.Store) -> Store:
    """The asynchronous side of a store that is open already. Close either; that closes both."""
    return Store(Root(store), store, None)


def open(*args: Any, **given: Any) -> Opening[Store]:
    """Opens a store; see `hansard.open`. To be awaited, or entered with `async with`."""
    return Opening(_open(partial(stores.open, *args, **given)))


async def _open(opening: Callable[[], stores.Store]) -> Store:
    root = Root(None)
    try:
        root.store = await root.calls.run(opening, undo=close)
    except BaseException:
        root.calls.end(lambda: None)
        raise
    return Store(root, root.store, None)


open.__signature__ = inspect.signature(stores.open)  # type: ignore[attr-defined]  # the same as its
