"""The file engine against the disk: appending, growing, resuming, listing."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import msgspec

import hansard
from benchmarks.measure import Figure, alternate, best, folder, messages, spread, timed
from hansard.session import Session

ONE = {"role": "user", "content": "What does the log say about line 40 of this file? " * 26}


def append() -> Iterator[Figure]:
    """One writer, one message at a time, beside a raw write and sync of the same bytes."""
    with folder() as place, hansard.open(place / "store") as store, store.create(agent="bench") as session:
        session.append(ONE)
        log = next((place / "store" / "sessions").iterdir())
        line = log.read_bytes().splitlines(keepends=True)[1]
        raw = os.open(place / "raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

        def write(n: int, sync: bool) -> float:
            def loop() -> None:
                for _ in range(n):
                    os.write(raw, line)
                    if sync:
                        os.fdatasync(raw)

            return timed(loop) / n

        def ours(n: int, durable: bool) -> float:
            def loop() -> None:
                for _ in range(n):
                    session.append(ONE, durable=durable)

            return timed(loop) / n

        limit, took = alternate(lambda: write(200, True), lambda: ours(200, True), 25)
        a, b = statistics.median(limit), statistics.median(took)
        yield Figure("Append", "durable, one writer", 1 / b, "/s", 1 / a, a / b, 0.90, spread=spread(took))
        limit, took = alternate(lambda: write(300, False), lambda: ours(300, False), 40)
        a, b = statistics.median(limit), statistics.median(took)
        yield Figure("Append", "durable=False", 1 / b, "/s", 1 / a, a / b, 0.17, spread=spread(took))

        many = list(messages(1000))

        def raw_batch() -> float:
            def once() -> None:
                os.write(raw, b"".join(msgspec.json.encode(m) + b"\n" for m in many))
                os.fdatasync(raw)

            return timed(once)

        limit, took = alternate(raw_batch, lambda: timed(lambda: session.extend(many)), 9)
        a, b = statistics.median(limit), statistics.median(took)
        yield Figure(
            "Append", "extend of 1,000 messages", 1000 / b, "/s", 1000 / a, a / b, 0.30, spread=spread(took)
        )
        os.close(raw)


def together() -> Iterator[Figure]:
    """Eight sessions written by eight threads, beside eight raw appenders."""
    with folder() as place, hansard.open(place / "store") as store, ExitStack() as held:
        sessions = [held.enter_context(store.create(f"s{n}", activate=False)) for n in range(8)]
        for session in sessions:
            session.append(ONE)
        line = (place / "store" / "sessions" / "s0.jsonl").read_bytes().splitlines(keepends=True)[1]
        files = [os.open(place / f"raw{n}", os.O_WRONLY | os.O_CREAT | os.O_APPEND) for n in range(8)]
        pool = held.enter_context(ThreadPoolExecutor(8))

        def raw(file: int) -> None:
            for _ in range(30):
                os.write(file, line)
                os.fdatasync(file)

        def ours(session: Session) -> None:
            for _ in range(30):
                session.append(ONE)

        limit, took = alternate(
            lambda: timed(lambda: list(pool.map(raw, files))) / 240,
            lambda: timed(lambda: list(pool.map(ours, sessions))) / 240,
            15,
        )
        a, b = statistics.median(limit), statistics.median(took)
        yield Figure("Append", "8 sessions, 8 threads", 1 / b, "/s", 1 / a, a / b, 0.70, spread=spread(took))
        for file in files:
            os.close(file)


def stops(full: bool) -> Iterator[Figure]:
    """Whether any append waits for something else than its own sync."""
    times = 20_000 if full else 4_000
    with folder() as place, hansard.open(place / "store") as store, store.create() as session:
        session.append(ONE)
        log = next((place / "store" / "sessions").iterdir())
        line = log.read_bytes().splitlines(keepends=True)[1]
        raw = os.open(place / "raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

        def write() -> None:
            os.write(raw, line)
            os.fdatasync(raw)

        limit, took = alternate(lambda: timed(write), lambda: timed(lambda: session.append(ONE)), times)
        os.close(raw)
        middle = statistics.median(limit)
        worst = sorted(took)[int(times * 0.999)]
        of_raw = sorted(limit)[int(times * 0.999)]
        yield Figure(
            "Cost growth",
            "the slowest of 1,000 appends, in raw syncs",
            worst / middle,
            "×",
            None,
            None,
            5.0,
            False,
        )
        yield Figure("Cost growth", "the slowest of 1,000 raw syncs, in raw syncs", of_raw / middle, "×")


def growth(full: bool) -> Iterator[Figure]:
    """The same append late in a long session, and in a store of many sessions."""
    length, count = (100_000, 100_000) if full else (20_000, 2_000)
    with folder() as place, hansard.open(place / "store") as store, hansard.open(place / "small") as small:
        with store.create() as short, store.create() as long:
            short.append(ONE)
            fill(long, length)
            early, late = alternate(lambda: appends(short), lambda: appends(long), 12)
        ratio = statistics.median(late) / statistics.median(early)
        name = f"append at message {length:,} against the first"
        yield Figure("Cost growth", name, ratio, "×", None, None, 1.1, False)
        for i in range(count):
            with store.create(f"s{i}", activate=False) as session:
                session.append(ONE, durable=False)
        with small.create() as one, store.create() as other:
            few, many = alternate(lambda: appends(one), lambda: appends(other), 12)
        ratio = statistics.median(many) / statistics.median(few)
        name = f"append among {count:,} sessions against one"
        yield Figure("Cost growth", name, ratio, "×", None, None, 1.1, False)
        few, many = alternate(
            lambda: timed(lambda: one_more(small)), lambda: timed(lambda: one_more(store)), 80
        )
        ratio = statistics.median(many) / statistics.median(few)
        yield Figure("Cost growth", f"a session of one message among {count:,}", ratio, "×", more=False)


def appends(session: Session, n: int = 100) -> float:
    def loop() -> None:
        for _ in range(n):
            session.append(ONE)

    return timed(loop) / n


def one_more(store: hansard.Store) -> None:
    with store.create() as session:
        session.append(ONE)


def fill(session: Session, n: int) -> None:
    part: list[object] = []
    for message in messages(n):
        part.append(message)
        if len(part) == 500:
            session.extend(part, durable=False)
            part = []
    session.extend(part, durable=False)
    session.flush()


def resume(full: bool) -> Iterator[Figure]:
    """What the model sees after a checkpoint, in a short and in a long session; and loading everything."""
    length = 1_000_000 if full else 50_000
    with folder() as place:
        took = {}
        for n in (1_000, length):
            with hansard.open(place / "store") as store, store.create(f"s{n}") as session:
                fill(session, n)
                session.truncate(200, pairs=False)
        with hansard.open(place / "store") as store:
            for n in (1_000, length):

                def history(n: int = n) -> None:
                    with store.open(f"s{n}", activate=False) as session:
                        assert len(session.history()) == 200

                history()
                took[n] = best(history, 15)
            yield Figure(
                "Resume",
                f"open and history, 200 live of {length:,}",
                took[length] * 1e3,
                "ms",
                None,
                None,
                3.0,
                False,
            )
            yield Figure(
                "Resume",
                "the same against 200 live of 1,000",
                took[length] / took[1_000],
                "×",
                None,
                None,
                1.2,
                False,
            )
            view = store.read(f"s{length}")
            last = best(lambda: list(view.records(limit=50, reverse=True)), 15)
            yield Figure("Resume", "the last 50 records", last * 1e3, "ms", None, None, 2.0, False)
        with hansard.open(place / "store") as store:
            with store.open(f"s{length}") as session:
                session.rewind(session.seq - 1)
            view = store.read(f"s{length}")
            log = (place / "store" / "sessions" / f"s{length}.jsonl").read_bytes()
            lines = msgspec.json.Decoder()
            limit, ours = alternate(
                lambda: timed(lambda: lines.decode_lines(log)), lambda: timed(view.history), 3 if full else 5
            )
            a, b = statistics.median(limit), statistics.median(ours)
            size = len(log) / 1e6
            yield Figure("Resume", f"load {length:,} messages", size / b, "MB/s", size / a, a / b, 0.7)


def lists(full: bool) -> Iterator[Figure]:
    """The newest 50, among few and among many; in a new process; and the catalog from nothing."""
    many = 100_000 if full else 5_000
    took = {}
    for n in (1_000, many):
        with folder() as place:
            write_sessions(place / "store", n)
            build = timed(lambda: newest(place / "store"))
            if n == many:
                yield Figure(
                    "Lists",
                    f"catalog of {n:,} sessions from their logs",
                    n / build,
                    "sessions/s",
                    None,
                    None,
                    10_000,
                )
            with hansard.open(place / "store") as store:
                store.list()
                took[n] = best(store.list, 31)
            if n == many:
                yield Figure("Lists", f"newest 50 of {n:,}", took[n] * 1e3, "ms", None, None, 3.0, False)
                code = (
                    "import hansard,hansard.engines.files,sys,time; hansard.open('memory:').close();"
                    "t=time.perf_counter();"
                    f"hansard.open({str(place / 'store')!r}).list(); print(time.perf_counter()-t)"
                )
                fresh = [
                    float(
                        subprocess.run(
                            [sys.executable, "-c", code], capture_output=True, check=True, text=True
                        ).stdout
                    )
                    for _ in range(9)
                ]
                yield Figure(
                    "Lists",
                    "the same, first call of a new process",
                    statistics.median(fresh) * 1e3,
                    "ms",
                    None,
                    None,
                    10.0,
                    False,
                )
    yield Figure(
        "Lists", f"among {many:,} against among 1,000", took[many] / took[1_000], "×", None, None, 1.3, False
    )


def newest(path: Path) -> None:
    with hansard.open(path) as store:
        store.list()


def write_sessions(path: Path, n: int) -> None:
    """Logs as the engine writes them, without its catalog and without a sync for each."""
    from datetime import UTC, datetime, timedelta

    from hansard.records import Draft, encode, frame, utc

    hansard.open(path).close()
    (path / "catalog.db").unlink(missing_ok=True)
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    for i in range(n):
        id = f"s{i:06d}"
        at = utc(begin + timedelta(seconds=i))
        head = {"id": id, "uid": f"{i:016x}", "format": 1, "agent": f"agent{i % 7}"}
        lines, state = frame([Draft(kind="session", data=msgspec.Raw(encode(head)), at=at)], 0, 0)
        more, _ = frame([Draft(kind="message", data=msgspec.Raw(encode(ONE)), at=at)], 1, state)
        (path / "sessions" / f"{id}.jsonl").write_bytes(lines + more)


def starting() -> Iterator[Figure]:
    """What an import and an open store cost."""

    def run(code: str) -> float:
        return timed(lambda: subprocess.run([sys.executable, "-c", code], check=True))

    bare = statistics.median(run("pass") for _ in range(9))
    imported = statistics.median(run("import hansard") for _ in range(9))
    yield Figure("Start", "python -c 'import hansard' against 'pass'", imported / bare, "×")
    code = PEAK + "a=peak()\nimport hansard\ns=hansard.open({!r})\ns.list()\nprint((peak()-a)/1e6)"
    with folder() as place:
        program = [sys.executable, "-c", code.format(str(place / "store"))]
        grown = float(subprocess.run(program, capture_output=True, check=True, text=True).stdout)
    yield Figure("Memory", "an open store, above the interpreter", grown, "MB", None, None, 30, False)


PEAK = """
import resource, sys
def peak():  # in bytes; what getrusage tells on Linux is that of the parent too
    try:
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) * 1024
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
"""

READING = (
    PEAK
    + """
import hansard
view = hansard.open(sys.argv[1]).read(sys.argv[2])
next(view.records(limit=1))
before = peak()
if sys.argv[3] == "stream":
    for record in view.records():
        pass
else:
    kept = view.history()
print(peak() - before)
"""
)


def memory(full: bool) -> Iterator[Figure]:
    """What reading takes: a stream as much in a long session as in a short one, a load what it gives out."""
    length = 100_000 if full else 40_000
    with folder() as place:
        with hansard.open(place / "store") as store:
            for name, n in (("short", 5_000), ("long", length)):
                with store.create(name) as session:
                    fill(session, n)
            store.list()

        def took(name: str, how: str) -> float:
            program = [sys.executable, "-c", READING, str(place / "store"), name, how]
            return float(subprocess.run(program, capture_output=True, check=True, text=True).stdout)

        stream = took("long", "stream") / 1e6
        yield Figure("Memory", f"streaming {length:,} records", stream, "MB", None, None, 10, False)
        grown = stream - took("short", "stream") / 1e6
        yield Figure("Memory", "the same above streaming 5,000", grown, "MB", None, None, 2, False)
        plain = sum(len(msgspec.json.encode(message)) for message in messages(length))
        loaded = took("long", "load") / plain
        yield Figure(
            "Memory", f"loading {length:,} messages, of their JSON", loaded, "×", None, None, 3.0, False
        )


def disk() -> Iterator[Figure]:
    """Bytes of log for bytes of messages."""
    with folder() as place, hansard.open(place / "store") as store:
        with store.create("one") as session:
            fill(session, 5_000)
        size = (place / "store" / "sessions" / "one.jsonl").stat().st_size
        plain = sum(len(msgspec.json.encode(message)) for message in messages(5_000))
        catalog = sum(path.stat().st_size for path in (place / "store").glob("catalog.db*"))
        yield Figure(
            "Disk", "log against the JSON of its messages", size / plain, "×", None, None, 1.15, False
        )
        yield Figure("Disk", "log and catalog", (size + catalog) / plain, "×", None, None, 1.7, False)
