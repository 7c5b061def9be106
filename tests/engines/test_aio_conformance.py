"""The contract once more, through `hansard.aio`: every call of the suite runs in an event loop.

The suite is written for the synchronous store. `Face` gives it one: behind each call a coroutine is run to
its end in a loop that another thread has; what is iterated or entered asynchronously is so there.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from hansard import aio
from hansard.aio.twins import Twin
from hansard.engines import Engine
from hansard.engines.files import Files
from hansard.engines.memory import Memory
from hansard.store import Store
from hansard.testing import World, conformance

globals().update(conformance())


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="loop", daemon=True)
        self._thread.start()

    def run(self, awaitable: Any) -> Any:
        async def work() -> Any:
            return await awaitable

        return asyncio.run_coroutine_threadsafe(work(), self._loop).result()

    def call(self, function: Any, args: Any, given: Any) -> Any:
        """A call is made in the loop, since some are made before they are awaited."""

        async def work() -> Any:
            found = function(*args, **given)
            if inspect.isawaitable(found):
                return await found
            return found

        return asyncio.run_coroutine_threadsafe(work(), self._loop).result()


loop = Loop()


class Face:
    """Something asynchronous as if it were not."""

    def __init__(self, it: Any) -> None:
        self._behind = it

    def __getattr__(self, name: str) -> Any:
        it = self._behind
        if name == "_store":
            return Face(aio.Store(it._root, it._root.store, None))
        if name.startswith("_"):
            return getattr(it._it, name)
        value = getattr(it, name)
        if not callable(value):
            return faced(value)

        def call(*args: Any, **given: Any) -> Any:
            return faced(loop.call(value, args, given))

        return call

    def __repr__(self) -> str:
        return repr(self._behind)

    def __enter__(self) -> Any:
        return faced(loop.run(self._behind.__aenter__()))

    def __exit__(self, *exc: Any) -> Any:
        return loop.run(self._behind.__aexit__(*exc))


class Iteration(Face):
    """What is iterated asynchronously."""

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            return faced(loop.run(self._behind.__anext__()))
        except StopAsyncIteration:
            raise StopIteration from None


def faced(value: Any) -> Any:
    if isinstance(value, AsyncIterator):
        return Iteration(value)
    return Face(value) if isinstance(value, Twin) else value


class AsyncWorld(World):
    """A world whose stores are asynchronous behind a face."""

    def _over(self, engine: Engine, options: dict[str, Any]) -> Any:
        tenant = options.pop("namespace", "")
        over = engine.namespace(tenant) if tenant else engine
        store = Face(aio.over(Store(over, let_go=lambda: None, **options)))
        self._stores.append(store)  # type: ignore[arg-type]
        return store


@pytest.fixture(params=[Memory, Files], ids=["memory", "files"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with AsyncWorld(request.param, str(tmp_path / "store")) as world:
        yield world
