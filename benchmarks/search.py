"""Full-text search: how soon something is found, how fast logs are indexed, and whom that holds up."""

from __future__ import annotations

import itertools
import random
import resource
import sqlite3
import statistics
import string
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

import hansard
from benchmarks.core import ONE
from benchmarks.measure import Figure, folder, timed
from hansard.records import Draft, encode, frame

LONG = 100
"""Messages of a session."""


class Language:
    """Words as often as people use them, a third of them in lines of code; the same at each run."""

    def __init__(self, words: int = 40_000) -> None:
        self.dice = dice = random.Random(1)
        self.words = sorted(
            {
                "".join(dice.choices(string.ascii_lowercase, k=n))
                for n in range(2, 11)
                for _ in range(words // 8)
            }
        )
        dice.shuffle(self.words)
        weights = list(itertools.accumulate(1 / (n + 3) for n in range(len(self.words))))
        self.prose = [" ".join(dice.choices(self.words, cum_weights=weights, k=500)) for _ in range(400)]
        self.code = ["\n".join(self._line(weights) for _ in range(120)) for _ in range(400)]

    def _line(self, weights: list[float]) -> str:
        one, two, three = self.dice.choices(self.words, cum_weights=weights, k=3)
        begin = " " * self.dice.choice((4, 8, 12))
        return begin + self.dice.choice(
            (f"def {one}_{two}(self) -> None:", f"self.{one} = {two}.{three}[0]", f"if {one} is not None:",
             f"return {one}({two}, {three}=1)", f"# {one} {two} {three}", f"from {one}.{two} import {three}")
        )  # fmt: skip

    def said(self, pool: list[str], size: int) -> str:
        text = self.dice.choice(pool)
        at = self.dice.randrange(max(1, len(text) - size))
        return text[at : at + size]

    def message(self, n: int) -> dict[str, Any]:
        """1.3 KB on average, as of a coding agent."""
        match n % 4:
            case 0:
                return {"role": "user", "content": self.said(self.prose, 140)}
            case 1:
                given = msgspec.json.encode({"command": self.said(self.prose, 80)}).decode()
                call = {
                    "id": f"call_{n}",
                    "type": "function",
                    "function": {"name": "bash", "arguments": given},
                }
                return {"role": "assistant", "content": self.said(self.prose, 300), "tool_calls": [call]}
            case 2:
                text = self.said(self.code, self.dice.randint(600, 4000)) + self.said(self.prose, 1000)
                return {"role": "tool", "tool_call_id": f"call_{n - 1}", "content": text}
            case _:
                return {"role": "assistant", "content": self.said(self.prose, self.dice.randint(200, 800))}


def write(path: Path, messages: int, language: Language) -> tuple[int, int]:
    """Logs of sessions, without a store; gives the bytes of the messages and those of the logs."""
    with hansard.open(path):
        pass
    plain = logs = 0
    for s in range(0, messages, LONG):
        begin = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=17 * s // LONG)
        head = {"id": f"s{s // LONG:06d}", "uid": f"{s:016x}", "format": 1, "agent": f"agent{s // LONG % 7}"}
        drafts = [Draft(kind="session", data=msgspec.Raw(encode(head)), at=begin)]
        for n in range(min(LONG, messages - s)):
            data = encode(language.message(s + n))
            plain += len(data)
            drafts.append(Draft(kind="message", data=msgspec.Raw(data), at=begin + timedelta(seconds=9 * n)))
        state, lines = 0, []
        for seq, draft in enumerate(drafts):
            line, state = frame([draft], seq, state)
            lines.append(line)
        raw = b"".join(lines)
        logs += len(raw)
        (path / "sessions" / f"{head['id']}.jsonl").write_bytes(raw)
    return plain, logs


FRESH = """
import sys, time, hansard
store = hansard.open(sys.argv[1])
begun = time.perf_counter()
store.search(sys.argv[2])
print(time.perf_counter() - begun)
"""


def search(full: bool) -> Iterator[Figure]:
    """A store of many messages, from its logs on."""
    messages = 1_000_000 if full else 100_000
    language = Language()
    with folder() as place:
        path = place / "store"
        plain, logs = write(path, messages, language)
        with hansard.open(path) as store:
            store.list()
            before, peak = _cpu(), _peak()
            took = timed(lambda: store.search("nothing"))
            busy = _cpu() - before
            name = f"indexing {messages:,} messages"
            yield Figure("Search", name, logs / 1e6 / took, "MB/s of log", target=40.0)
            yield Figure("Search", f"{name}, of a core's time", logs / 1e6 / busy, "MB/s of log")
            limit = raw(place, path)
            yield Figure("Search", "the same, FTS5 alone", logs / 1e6 / limit, "MB/s of log")
            grown = (_peak() - peak) / 1e6
            yield Figure("Search", f"{name}, memory", grown, "MB", target=100.0, more=False)
        size = sum(file.stat().st_size for file in path.glob("*.db*"))
        yield Figure(
            "Disk", "log, catalog and search index", (logs + size) / plain, "×", target=1.7, more=False
        )
        yield Figure(
            "Disk", "search index alone", (path / "search.db").stat().st_size / plain, "×", more=False
        )
        yield from queries(path, messages, language)
    yield from meanwhile()


def queries(path: Path, messages: int, language: Language) -> Iterator[Figure]:
    dice = random.Random(7)
    words = language.words

    def pair() -> str:
        text = dice.choice(language.prose).split()
        at = dice.randrange(len(text) - 2)
        return f'"{text[at]} {text[at + 1]}"'

    kinds = {
        "a word": lambda: words[dice.randrange(20, 20_000)],
        "one of the 20 most frequent words": lambda: words[dice.randrange(20)],
        "two words": lambda: f"{words[dice.randrange(200)]} {words[dice.randrange(2000)]}",
        "a phrase": pair,
        "the beginning of a word": lambda: f"{words[dice.randrange(20_000)][:4]}*",
    }
    target = 15.0 if messages <= 100_000 else 40.0
    with hansard.open(path) as store:
        store.search("nothing")
        for kind, make in kinds.items():
            asked = [make() for _ in range(40)]
            took = [timed(lambda query=query: store.search(query)) for query in asked]  # type: ignore[misc]
            median = statistics.median(took) * 1e3
            name = f"{kind}, among {messages:,} messages"
            yield Figure("Search", name, median, "ms", target=target, more=False)
        newest = [timed(lambda query=query: store.search(query, order="newest")) for query in asked]  # type: ignore[misc]
        yield Figure("Search", "the same, newest first", statistics.median(newest) * 1e3, "ms")
    fresh = []
    for _ in range(7):
        program = [sys.executable, "-c", FRESH, str(path), words[dice.randrange(20, 20_000)]]
        fresh.append(float(subprocess.run(program, capture_output=True, check=True, text=True).stdout))
    name = "the first word in a new process"
    yield Figure("Search", name, statistics.median(fresh) * 1e3, "ms", target=60.0, more=False)


def raw(place: Path, path: Path) -> float:
    """Seconds that FTS5 takes to index the bare texts of the logs, in memory, unsorted and in one piece."""
    from hansard.engines.searching import _entries
    from hansard.records import Scan

    db = sqlite3.connect(place / "raw.db", isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = OFF")
    db.execute(
        "CREATE VIRTUAL TABLE words USING fts5 (prose, input, output, content = '', tokenize = 'ascii')"
    )
    took = 0.0
    for log in sorted((path / "sessions").iterdir())[:200]:
        reader = Scan()
        texts = [entry[5:] for entry in _entries(reader.feed(log.read_bytes()), {})]
        begun = time.perf_counter()
        db.execute("BEGIN")
        db.executemany("INSERT INTO words (prose, input, output) VALUES (?, ?, ?)", texts)
        db.execute("COMMIT")
        took += time.perf_counter() - begun
    db.close()
    return took * max(1, sum(1 for _ in (path / "sessions").iterdir()) / 200)


def meanwhile() -> Iterator[Figure]:
    """Whether appends wait while a thread of the same process, or another process, indexes."""
    with folder() as place:
        path = place / "store"
        write(path, 100_000, Language(8_000))
        with hansard.open(path) as store, store.create("live") as session:
            store.list()
            session.append(ONE)

            def appends(until: Any) -> list[float]:
                took = []
                while not until(len(took)):
                    took.append(timed(lambda: session.append(ONE)))
                return sorted(took)

            idle = appends(lambda n: n == 10_000)
            thread = threading.Thread(target=lambda: store.search("nothing"))
            thread.start()
            busy = appends(lambda n: not thread.is_alive())
            for file in path.glob("search.db*"):
                file.unlink()
            other = subprocess.Popen(
                [sys.executable, "-c", FRESH, str(path), "nothing"], stdout=subprocess.DEVNULL
            )
            beside = appends(lambda n: other.poll() is not None)
            still = _late(idle)
            for name, took in (("another process", beside), ("a thread", busy)):
                yield Figure(
                    "Search",
                    f"the slowest of 1,000 appends while {name} indexes",
                    _late(took) * 1e3,
                    "ms",
                    still * 1e3,
                    _late(took) / still,
                    2.0,
                    False,
                )


def _late(took: list[float]) -> float:
    return took[int(len(took) * 0.999)]


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
