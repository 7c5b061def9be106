"""Followers: how soon they see what another process writes, and what that costs."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import hansard
from benchmarks.measure import Figure, folder
from hansard import aio

WRITER = """
import sys, time, hansard
path, records, rate = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
session = hansard.open(path).open("s", exclusive=False)
sys.stdin.readline()
due = time.monotonic()
for _ in range(records):
    text = f"{time.time():020.6f} " + "x" * 1000
    session.append({"role": "user", "content": text}, durable=False)
    due += 1 / rate
    time.sleep(max(0, due - time.monotonic()))
"""


def follow(full: bool) -> Iterator[Figure]:
    """One follower, and a thousand in one event loop, of a session that grows by 100 records a second."""
    records = 1_000 if full else 300
    with folder() as place:
        begin(place / "store")
        with hansard.open(place / "store") as store, store.follow("s") as follower:
            with writer(place / "store", records) as process:
                go(process)
                took = sorted(age(next(follower)[1]) for _ in range(records))
        yield Figure("Follow", "one follower, median", statistics.median(took) * 1e3, "ms")
    with folder() as place:
        begin(place / "store")
        took, busy = asyncio.run(many(place / "store", records, 1_000))
        took.sort()
        name = "1,000 followers, 100 records/s"
        yield Figure("Follow", f"{name}, median", took[len(took) // 2] * 1e3, "ms")
        late = took[int(len(took) * 0.99)]
        yield Figure("Follow", f"{name}, 99 of 100 within", late * 1e3, "ms", None, None, 100, False)
        yield Figure("Follow", f"{name}, all within", took[-1] * 1e3, "ms")
        yield Figure("Follow", f"{name}, of one core", busy * 100, "%")


async def many(path: Path, records: int, followers: int) -> tuple[list[float], float]:
    """How old each record was when each follower saw it, and the share of a core that it took."""
    took: list[float] = []
    async with aio.open(path) as store:

        async def see() -> None:
            seen = 0
            async for _, record, _ in store.follow("s"):
                took.append(age(record))
                seen += 1
                if seen == records:
                    return

        tasks = [asyncio.create_task(see()) for _ in range(followers)]
        with writer(path, records) as process:
            await asyncio.sleep(0)
            await store.follow("s")  # those before it have begun
            began, used = time.monotonic(), time.process_time()
            go(process)
            await asyncio.gather(*tasks)
            busy = (time.process_time() - used) / (time.monotonic() - began)
    return took, busy


def begin(path: Path) -> None:
    with hansard.open(path) as store:
        store.append("s", {"role": "user", "content": "begin"}, create=True)


def writer(path: Path, records: int) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", WRITER, str(path), str(records), "100"]
    return subprocess.Popen(arguments, stdin=subprocess.PIPE, text=True)


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def age(record: hansard.Record) -> float:
    return time.time() - float(record.data["content"][:20])
