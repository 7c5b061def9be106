"""The same store for asyncio: the same names, with `await`.

>>> import asyncio
>>> from hansard import aio
>>> async def main():
...     async with aio.open("memory:") as store, store.create() as session:
...         await session.append({"role": "user", "content": "Hello"})
...         return await session.history()
>>> asyncio.run(main())
[{'role': 'user', 'content': 'Hello'}]

What does I/O runs in worker threads of the store, so there is one implementation of every rule. The types are
in `__init__.pyi`, which `scripts/aio.py` writes from the synchronous classes.
"""

from __future__ import annotations

from hansard.aio.faces import Session, Store, View, open, over
from hansard.aio.following import Follower
from hansard.aio.twins import Opening, Stream

__all__ = ["Follower", "Opening", "Session", "Store", "Stream", "View", "open", "over"]
