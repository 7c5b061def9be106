"""What stands beside the messages of a session: documents, names, state, forks, and writing a log again."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from pathlib import Path

import msgspec

import hansard
from benchmarks.core import ONE, fill
from benchmarks.measure import Figure, alternate, best, folder, messages, spread, timed

SNAPSHOT = msgspec.json.encode(list(messages(12)))
"""What a screen looks like: 16 KB."""


def documents() -> Iterator[Figure]:
    """Whole files that are replaced, beside the least that replaces one so that it lasts."""
    with folder() as place, hansard.open(place / "store") as store:

        def raw() -> None:
            for _ in range(20):
                fd = os.open(place / "raw.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                os.write(fd, SNAPSHOT)
                os.fsync(fd)
                os.close(fd)
                os.rename(place / "raw.tmp", place / "raw")
                sync_folder(place)

        with store.create("s") as session:
            session.append(ONE)

            def put() -> None:
                for _ in range(20):
                    session.documents.put("screen.json", SNAPSHOT)

            limit, took = alternate(lambda: timed(raw) / 20, lambda: timed(put) / 20, 15)
            a, b = statistics.median(limit), statistics.median(took)
            yield Figure("Documents", "put of 16 KB", 1 / b, "/s", 1 / a, a / b, 0.5, spread=spread(took))
            read = best(lambda: [session.documents.get("screen.json") for _ in range(200)]) / 200
            yield Figure("Documents", "get of 16 KB", 1 / read, "/s")
        settings = store.state("settings")
        n = iter(range(10**9))
        limit, took = alternate(
            lambda: timed(raw) / 20,
            lambda: timed(lambda: [settings.set("n", next(n)) for _ in range(20)]) / 20,
            15,
        )
        a, b = statistics.median(limit), statistics.median(took)
        yield Figure("Documents", "a value of a state", 1 / b, "/s", 1 / a, a / b, 0.5, spread=spread(took))


def sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(fd)
    os.close(fd)


def whole(full: bool) -> Iterator[Figure]:
    """A session that is copied, and one that is written again without what nobody sees any more."""
    length = 100_000 if full else 10_000
    with folder() as place, hansard.open(place / "store") as store:
        with store.create("s") as session:
            fill(session, length)
            size = log(place).stat().st_size / 1e6

        def fork() -> None:
            with store.fork("s") as copy:
                assert copy.head.messages == length

        took = best(fork, 3)
        yield Figure("Whole sessions", f"fork of {length:,} messages", size / took, "MB/s")
        many = list(messages(length))
        numbers = iter(range(10**9))
        took = best(lambda: store.put(f"put{next(numbers)}", many), 3)
        yield Figure("Whole sessions", f"put of {length:,} messages", length / took, "messages/s")
        with store.open("s") as session:
            session.truncate(200, pairs=False)
        took = timed(lambda: store.vacuum("s", drop_history=True))
        yield Figure("Whole sessions", f"vacuum of {length:,} messages", size / took, "MB/s")
        left = log(place).stat().st_size / 1e6
        yield Figure("Whole sessions", "what it leaves of the log, 200 live", left / size, "×", more=False)


def log(place: Path) -> Path:
    return place / "store" / "sessions" / "s.jsonl"


def many() -> Iterator[Figure]:
    """Forgetting by age, among sessions that stay."""
    with folder() as place, hansard.open(place / "store") as store:
        for i in range(500):
            store.append(f"s{i}", ONE, create=True, durable=False)
        store.list()
        took = timed(lambda: store.cleanup(keep_last=250))
        yield Figure("Whole sessions", "cleanup: deletions of 250 among 500", 250 / took, "/s")
