"""The asynchronous store, session and view: what is not simply the same call in a worker thread."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from hansard import best_effort, following
from hansard import session as sessions
from hansard import store as stores
from hansard.aio.calls import Line
from hansard.aio.following import Follower
from hansard.aio.twins import Opening, Root, Twin, close, known_twin, method_of, twin
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
        best = BestEffortSession(self._root, self._it.best_effort(), self._line)
        best._session = self
        return best

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


@twin(best_effort.BestEffortSession)
class BestEffortSession(Twin):
    _session: Session

    def _call(self, name: str, args: tuple[Any, ...], given: dict[str, Any]) -> Callable[[], Any]:
        return partial(self._session._and_look, super()._call(name, args, given))

    def __getattr__(self, name: str) -> Any:
        known = getattr(sessions.Session, name, None)
        if inspect.isfunction(known) and not name.startswith("_"):
            return method_of(name, known).__get__(self)
        return getattr(self._session, name) if name in ("head", "seq") else super().__getattr__(name)

    async def close(self) -> Any:
        return await self._ask("close", (), {})


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
