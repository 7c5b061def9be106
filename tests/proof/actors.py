"""What the processes of the proofs do. They say what they are about to do, and what was acknowledged."""

from __future__ import annotations

import asyncio
import faulthandler
import fcntl
import json
import os
import random
import re
import signal
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import hansard
from hansard import aio
from hansard.errors import AlreadyExists, Closed, Conflict, HansardError, SessionBusy, SessionNotFound
from tests.proof import reader
from tests.proof.nursery import Link

# -- what is said -----------------------------------------------------------------------------------

SIZES = (10, 200, 4_000, 60_000, 600_000, 1_500_000)
"""Characters of a message. A kill hardly ever meets a small write in its middle."""


def message(n: int) -> dict[str, Any]:
    """The message number n: whoever finds it can tell whether all of it is there."""
    rng = random.Random(n)
    size = int(rng.choice(SIZES) * rng.uniform(0.5, 1.5))
    unit = f'{n} "über" \\ \n' if size < 1000 else f"{n} and so on. "
    return {"role": "user", "content": unit * (size // len(unit) + 1), "n": n}


def numbers(history: Any) -> list[int]:
    """The messages of a history, each found to be whole."""
    for payload in history:
        assert payload == message(payload["n"])
    return [payload["n"] for payload in history]


def tokens(who: str, call: int, of: int) -> list[dict[str, Any]]:
    """The messages of one call: each is said only once, and knows how many belong together."""
    return [{"role": "user", "content": f"{who} {call} {i}/{of}"} for i in range(of)]


TOKEN = re.compile(r"(\S+ \d+) (\d+)/(\d+)")


def find_whole(payloads: Iterable[Any]) -> None:
    """Fails where only a part of what one call said is there, or in another order."""
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    for payload in payloads:
        match = TOKEN.fullmatch(payload["content"])
        if match:
            found[match[1], int(match[3])].append(int(match[2]))
    for (call, of), parts in found.items():
        assert parts == list(range(of)), f"of call {call} there are {parts} of {of}"


# -- one writer that is going to be killed ----------------------------------------------------------

WORKS = {
    "appends": "append",
    "extends": "extend",
    "checkpoints": "append checkpoint truncate",
    "vacuums": "append extend checkpoint vacuum",
    "forks": "append fork append-to-fork delete",
    "a mixture": "append extend checkpoint truncate vacuum fork append-to-fork delete",
}


def write(link: Link, path: str, work: str, seed: int, first: int, forks: list[str]) -> None:
    """Goes on for ever: says what it is about to do, does it, says that it is done."""
    rng = random.Random(seed)
    fresh = iter(range(first, first + 1_000_000))
    with hansard.open(path) as store:
        # who takes records out must not be kept out by a handle of his own
        main = store.open(
            "main", exclusive="vacuum" not in WORKS[work] and rng.random() < 0.5, activate=False
        )
        while True:
            op: dict[str, Any] = {"op": rng.choice(WORKS[work].split()), "session": "main"}
            what = op["op"]
            if what in ("append-to-fork", "delete"):
                if not forks:
                    continue
                op["session"] = rng.choice(forks)
            if what in ("append", "extend", "append-to-fork", "checkpoint"):
                several = rng.randrange(2, 7) if what == "extend" else 1
                op["numbers"] = [next(fresh) for _ in range(several)]
            if what == "truncate":
                op["keep"] = rng.randrange(1, 6)
            if what == "fork":
                op["session"] = f"fork-{next(fresh)}"
            durable = rng.random() < 0.4
            said = [message(n) for n in op.get("numbers", ())]
            link.say(op)
            done: Any = None
            if what == "append":
                done = [main.append(*said, durable=durable).seq]
            elif what == "append-to-fork":
                done = [store.append(op["session"], *said, durable=durable).seq]
            elif what == "extend":
                done = [record.seq for record in main.extend(said, durable=durable)]
            elif what == "checkpoint":
                main.history(limit=1)
                main.checkpoint(said)
            elif what == "truncate":
                main.history(limit=1)
                main.truncate(op["keep"], pairs=False)
            elif what == "vacuum":
                store.vacuum("main", drop_history=True)
            elif what == "fork":
                store.fork("main", id=op["session"]).close()
                forks.append(op["session"])
            elif what == "delete":
                store.delete(op["session"])
                forks.remove(op["session"])
            link.say({"done": done})


# -- steps ------------------------------------------------------------------------------------------

Steps = Generator[Callable[[], Any], Any, None]
"""Calls of a store, one by one, each sent what it gave or thrown what it raised. The same steps go over a
store of either kind: whoever drives them waits for what has to be waited for."""

Cancelled = asyncio.CancelledError
REFUSALS = (SessionNotFound, SessionBusy, AlreadyExists, Conflict)


def drive(steps: Steps) -> None:
    """Takes the steps over a store."""
    try:
        step = next(steps)
        while True:
            try:
                value = step()
            except HansardError as error:
                step = steps.throw(error)
            else:
                step = steps.send(value)
    except StopIteration:
        pass


async def drive_cancelling(steps: Steps, rng: random.Random) -> None:
    """Takes them over an asynchronous store, and cancels some on their way."""

    async def awaited(step: Callable[[], Any]) -> Any:
        return await step()

    try:
        step = next(steps)
        while True:
            call = asyncio.ensure_future(awaited(step))
            if rng.random() < 0.3:
                after = rng.choice([0, rng.expovariate(2000), rng.expovariate(200)])
                asyncio.get_running_loop().call_later(after, call.cancel)
            try:
                value = await call
            except (HansardError, Cancelled) as error:
                step = steps.throw(error)
            else:
                step = steps.send(value)
    except StopIteration:
        pass


def in_threads(works: list[Callable[[], None]]) -> None:
    """Each in a thread of its own."""
    failed: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=[work]) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


# -- many writers, one session ----------------------------------------------------------------------


def appending(
    store: Any, shared: Any, who: str, rng: random.Random, calls: int, acks: list[dict[str, Any]]
) -> Steps:
    """Says things in one session, in every way that there is."""
    for call in range(calls):
        said = tokens(who, call, rng.choice([1, 1, 1, 2, 3, 7]))
        if rng.random() < min(0.01, 3 / calls):  # a write that takes so long that somebody may look on
            said = [{**payload, "padding": "x" * 30_000} for payload in tokens(who, call, 30)]
        contents = [payload["content"] for payload in said]
        ids = contents if rng.random() < 0.4 else None
        durable = rng.random() < 0.5
        if rng.random() < 0.5:
            work = partial(store.extend, "main", said, ids=ids, durable=durable)
        else:
            work = partial(shared.extend, said, ids=ids, durable=durable)
        for again in count():
            try:
                records = yield work
            except Cancelled:
                if ids is None:
                    acks.append({"maybe": contents})
                    break
                continue  # nobody knows whether it was done, and with the same ids it is safe to say it again
            acks.append({"said": contents, "seqs": [record.seq for record in records], "again": again})
            break


def append_in_threads(link: Link, path: str, who: str, seed: int, calls: int) -> None:
    """Two threads that share a store and a session."""
    acks: list[dict[str, Any]] = []
    with hansard.open(path) as store, store.open("main", exclusive=False) as shared:
        link.say()
        link.hear()
        rngs = [random.Random(f"{seed} {i}") for i in range(2)]
        works = [appending(store, shared, f"{who}.{i}", rngs[i], calls, acks) for i in range(2)]
        in_threads([partial(drive, work) for work in works])
    link.say(acks)


def append_in_tasks(link: Link, path: str, who: str, seed: int, calls: int) -> None:
    """Four tasks, cancelled now and then."""
    acks: list[dict[str, Any]] = []

    async def run() -> None:
        async with aio.open(path) as store, store.open("main", exclusive=False) as shared:
            link.say()
            await asyncio.to_thread(link.hear)
            rngs = [random.Random(f"{seed} {i}") for i in range(4)]
            works = [appending(store, shared, f"{who}.{i}", rngs[i], calls, acks) for i in range(4)]
            await asyncio.gather(*[drive_cancelling(work, rngs[i]) for i, work in enumerate(works)])

    asyncio.run(run())
    link.say(acks)


def look_on(link: Link, path: str) -> None:
    """Reads the one session again and again, in three ways, while others write."""
    met = dict.fromkeys(("read", "followed", "read raw"), 0)
    followed: list[Any] = []
    main = Path(path, "sessions/main.jsonl")

    def follow() -> None:
        with store.follow("main", after=-1) as follower:
            for _, record, _ in follower:
                followed.append([record.seq, record.data.get("content")])
                if followed[-1][1] == "the end":
                    break

    with hansard.open(path) as store:
        thread = threading.Thread(target=follow)
        thread.start()
        link.say()
        while not link.told():
            log = reader.read(main.read_bytes())
            find_whole(log.messages().values())
            met["read raw"] += 1
            view = store.read("main")
            there = list(view.records())
            assert [record.seq for record in there] == list(range(view.seq + 1))
            find_whole(record.data for record in there if record.kind == "message")
            find_whole(view.history())
            met["read"] += 1
        thread.join()
    met["followed"] = len(followed)
    link.say({"met": met, "followed": followed})


def look_closely(link: Link, path: str) -> None:
    """Looks at what is new in the one log all the time, for only the moment when a write has begun shows a
    half of it."""
    met = {"looks": 0, "with a write under way": 0}
    end, seed, last = 0, 0, -1
    with Path(path, "sessions/main.jsonl").open("rb") as file:
        link.say()
        while not link.told():
            raw = os.pread(file.fileno(), 1 << 24, end)
            if raw.startswith(b"\n"):  # the last line counted without it
                raw, end = raw[1:], end + 1
            if raw:
                new = reader.read(raw, seed, last)
                find_whole(new.messages().values())
                met["looks"] += 1
                met["with a write under way"] += bool(new.torn)
                end, seed, last = end + new.end, new.seed, new.last if new.records else last
            time.sleep(0.0001)
    link.say({"met": met})


# -- many writers, many sessions --------------------------------------------------------------------

SESSIONS = [f"s{n:03}" for n in range(500)]


def picked(rng: random.Random) -> str:
    """Half of what happens happens to a few."""
    return rng.choice(SESSIONS[:12] if rng.random() < 0.5 else SESSIONS)


def storming(store: Any, who: str, rng: random.Random, calls: int, acks: list[dict[str, Any]]) -> Steps:
    """Does anything to any session. Of each call it notes what was asked, and what came of it."""
    for call in range(calls):
        op = rng.choices(list(OPS), [weight for _, weight in OPS.values()])[0]
        ack: dict[str, Any] = {"op": op, "id": picked(rng), "call": f"{who} {call}"}
        ack["began"] = time.monotonic_ns()
        try:
            yield from OPS[op][0](store, ack["id"], rng, ack)
        except REFUSALS as error:
            ack["refused"] = type(error).__name__
        except Cancelled:
            ack["unknown"] = True
        ack["ended"] = time.monotonic_ns()
        acks.append(ack)


def closing(session: Any) -> Steps:
    """It is closed even if nobody waits for it."""
    with suppress(Cancelled):
        yield session.close


def saying(work: Any, ack: dict[str, Any], of: int, **more: Any) -> Steps:
    who, call = ack["call"].split()
    said = tokens(who, int(call), of)
    ack["said"] = [payload["content"] for payload in said]
    records = yield partial(work, said, **more)
    ack["seqs"] = [record.seq for record in records]


def create(store: Any, id: str, rng: random.Random, ack: dict[str, Any]) -> Steps:
    session = yield partial(store.create, id, activate=False)
    try:
        ack["uid"] = session.head.uid
        yield from saying(session.extend, ack, rng.choice([1, 3]))
    finally:
        yield from closing(session)


def begin(store: Any, id: str, rng: random.Random, ack: dict[str, Any]) -> Steps:
    yield from saying(partial(store.extend, id), ack, rng.choice([1, 3]), create=True)


def append(store: Any, id: str, rng: random.Random, ack: dict[str, Any]) -> Steps:
    head = yield partial(store.head, id)
    ack["uid"] = head.uid
    yield from saying(partial(store.extend, head), ack, rng.choice([1, 1, 3, 6]), durable=rng.random() < 0.5)


def rename(store: Any, id: str, rng: random.Random, ack: dict[str, Any]) -> Steps:
    head = yield partial(store.head, id)
    session = yield partial(store.open, head, exclusive=False)
    try:
        ack["uid"], ack["title"] = head.uid, f"called {ack['call']}"
        record = yield partial(session.rename, ack["title"])
        ack["seq"] = record.seq
    finally:
        yield from closing(session)


def checkpoint(store: Any, id: str, rng: random.Random, ack: dict[str, Any]) -> Steps:
    head = yield partial(store.head, id)
    session = yield partial(store.open, head, activate=False, timeout=rng.choice([0, 0.02]))
    try:
        history = yield session.history
        so_far = {"role": "user", "content": f"{ack['call']} so far"}
        yield partial(session.checkpoint, [so_far, *history[-2:]])
    finally:
        yield from closing(session)


def truncate(store: Any, id: str, rng: random.Random, ack: dict[str, Any]) -> Steps:
    head = yield partial(store.head, id)
    session = yield partial(store.open, head, exclusive=False)
    try:
        yield session.history
        yield partial(session.truncate, 3)
    finally:
        yield from closing(session)


def delete(store: Any, id: str, rng: random.Random, ack: dict[str, Any]) -> Steps:
    head = yield partial(store.head, id)
    ack["uid"] = head.uid
    ack["gone"] = yield partial(store.delete, head)


def vacuum(store: Any, id: str, rng: random.Random, ack: dict[str, Any]) -> Steps:
    head = yield partial(store.head, id)
    yield partial(store.vacuum, head, drop_history=True)


def fork(store: Any, id: str, rng: random.Random, ack: dict[str, Any]) -> Steps:
    head = yield partial(store.head, id)
    ack["from"], ack["id"] = head.uid, picked(rng)
    session = yield partial(store.fork, head, id=ack["id"])
    ack["uid"], ack["at"] = session.head.uid, session.head.forked_at
    yield from closing(session)


OPS: dict[str, tuple[Callable[..., Steps], int]] = {
    "create": (create, 10),
    "begin": (begin, 10),
    "append": (append, 30),
    "rename": (rename, 8),
    "checkpoint": (checkpoint, 14),
    "truncate": (truncate, 5),
    "delete": (delete, 6),
    "vacuum": (vacuum, 12),
    "fork": (fork, 7),
}


def storm(link: Link, path: str, who: str, seed: int, calls: int) -> None:
    """One process of the storm."""
    acks: list[dict[str, Any]] = []
    with hansard.open(path) as store:
        link.say()
        link.hear()
        drive(storming(store, who, random.Random(seed), calls, acks))
    link.say(acks)


def storm_in_tasks(link: Link, path: str, who: str, seed: int, calls: int) -> None:
    """The same in four tasks, cancelled now and then."""
    acks: list[dict[str, Any]] = []

    async def run() -> None:
        async with aio.open(path) as store:
            link.say()
            await asyncio.to_thread(link.hear)
            rngs = [random.Random(f"{seed} {i}") for i in range(4)]
            works = [storming(store, f"{who}.{i}", rngs[i], calls, acks) for i in range(4)]
            await asyncio.gather(*[drive_cancelling(work, rngs[i]) for i, work in enumerate(works)])

    asyncio.run(run())
    link.say(acks)


def list_all(link: Link, path: str, still: list[str]) -> None:
    """Lists again and again; some sessions are there all the time."""
    met = {"lists": 0, "pages": 0}
    with hansard.open(path) as store:
        link.say()
        while not link.told():
            ids = [head.id for head in store.list(limit=None)]
            assert len(ids) == len(set(ids))
            assert set(still) <= set(ids), f"not listed: {set(still) - set(ids)}"
            met["lists"] += 1
            page = store.list(limit=20)
            while page.next and not link.told():
                page = store.list(limit=20, after=page.next)
                assert len({head.id for head in page}) == len(page) <= 20
                assert all(head.messages and head.title for head in page)
                met["pages"] += 1
    link.say({"met": met})


def read_all(link: Link, path: str, seed: int) -> None:
    """Reads any session, with the library and without it."""
    rng = random.Random(seed)
    met = {"read": 0, "read raw": 0}
    with hansard.open(path) as store:
        link.say()
        while not link.told():
            id = picked(rng)
            try:
                raw = Path(path, f"sessions/{id}.jsonl").read_bytes()
            except FileNotFoundError:
                continue
            reader.read(raw)
            met["read raw"] += 1
            try:
                view = store.read(id)
                there = list(view.records())
                history = view.history()
            except REFUSALS:  # it was deleted, or vacuumed, between two looks
                continue
            met["read"] += 1
            assert not view.damage, view.damage
            assert there[-1].seq == view.seq == history.seq
            batches: dict[tuple[int, int], list[int]] = defaultdict(list)
            for record in there:
                if record.batch is not None:
                    batches[record.batch].append(record.seq)
            for (first, n), seqs in batches.items():
                assert seqs == list(range(first, first + n)), f"{id}: {seqs} of the batch {first}, {n}"
            if not any(record.kind == "compacted" for record in there):
                assert [record.seq for record in there] == list(range(view.seq + 1))
                own = [record for record in there if record.kind == "message" and record.origin is None]
                find_whole(record.data for record in own)
    link.say({"met": met})


def follow_all(link: Link, path: str) -> None:
    """Follows all sessions, until each of those that are left at the end has said so."""
    told: list[Any] = []
    left: set[str] | None = None
    with hansard.open(path) as store, store.follow() as follower:
        link.say()
        for id, record, _ in follower:
            uid = record.data["uid"] if record.kind == "session" else None
            content = record.data.get("content") if record.kind == "message" else None
            told.append([id, record.seq, uid, content])
            if left is None and link.told():
                left = set(link.hear())
            if left is not None and content == "the end":
                left.discard(id)
                if not left:
                    break
    link.say({"told": told})


# -- contenders for a lease -------------------------------------------------------------------------


class Marker:
    """What just one may have at a time, by means of the kernel that leases know nothing of."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT)
        self._mine = False

    def take(self) -> None:
        assert not self._mine, "two of this process hold the lease at once"
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise AssertionError("somebody else holds the lease too") from error
        self._mine = True

    def give(self) -> None:
        self._mine = False
        fcntl.lockf(self._fd, fcntl.LOCK_UN)


def contend(link: Link, path: str) -> None:
    """In each round, tries once to get the lease; who has it holds it for a moment, or dies with it."""
    marker = Marker(f"{path}.marker")  # before the store, for the kernel to let go of it before the lease
    with hansard.open(path) as store:
        link.say()
        while True:
            try:
                asked = link.hear()
            except EOFError:
                return
            try:
                session = store.open("main", timeout=asked["timeout"], activate=False)
            except SessionBusy:
                link.say(None)
                continue
            held = [time.monotonic_ns(), 0, None]
            marker.take()
            time.sleep(asked["hold"])
            if asked["append"]:
                held[2] = session.append({"role": "user", "content": "held"}, durable=False).seq
            held[1] = time.monotonic_ns()
            marker.give()
            if asked["die"]:
                link.say(held)
                os.kill(os.getpid(), signal.SIGKILL)
            session.close()
            link.say(held)


def contend_in_tasks(link: Link, path: str) -> None:
    """The same for several tasks of one process, some of which stop waiting."""
    marker = Marker(f"{path}.marker")

    async def one(store: Any, asked: dict[str, Any]) -> Any:
        async with store.open("main", timeout=asked["timeout"], activate=False) as session:
            held = [time.monotonic_ns(), 0, None]
            marker.take()
            try:
                await asyncio.sleep(asked["hold"])
                if asked["append"]:
                    say = session.append({"role": "user", "content": "held"}, durable=False)
                    held[2] = (await asyncio.shield(asyncio.ensure_future(say))).seq
            finally:
                held[1] = time.monotonic_ns()
                marker.give()
        return held

    async def tried(store: Any, asked: dict[str, Any]) -> Any:
        call = asyncio.ensure_future(one(store, asked))
        if asked["cancel"] is not None:
            asyncio.get_running_loop().call_later(asked["cancel"], call.cancel)
        try:
            return await call
        except SessionBusy:
            return None
        except Cancelled:
            return "cancelled"

    async def run() -> None:
        async with aio.open(path) as store:
            link.say()
            while True:
                try:
                    round = await asyncio.to_thread(link.hear)
                except EOFError:
                    return
                link.say(await asyncio.gather(*[tried(store, asked) for asked in round]))

    asyncio.run(run())


# -- children that inherit everything ---------------------------------------------------------------


def fork_off(link: Link, path: str, who: str, seed: int, children: int, calls: int) -> None:
    """Forks while its threads are writing. The children find all that they have inherited closed, open the
    store anew, and write to the same session."""
    acks: list[dict[str, Any]] = []
    rng = random.Random(seed)
    with (
        hansard.open(path) as store,
        store.create(f"own-{who}", activate=False) as own,
        store.open("main", exclusive=False) as shared,
        store.follow("main", after=-1) as follower,
    ):
        own.append({"role": "user", "content": "mine"})
        view = store.read("main")
        link.say()
        link.hear()
        over = threading.Event()

        def talk(i: int) -> None:
            for n in count():
                if over.is_set():
                    break
                once = random.Random(f"{seed} {i} {n}")
                drive(appending(store, shared, f"{who}.{i}.{n}", once, 3, acks))
                time.sleep(once.uniform(0, 0.005))

        def fork_children() -> None:
            try:
                for n in range(children):
                    time.sleep(rng.uniform(0, 0.01))
                    mine, its = os.pipe()
                    pid = os.fork()
                    if not pid:
                        inherited = (own, shared, store, follower, view)
                        _inherit(its, path, f"{who}.child{n}", rng, calls, *inherited)
                    os.close(its)
                    with open(mine) as pipe:
                        told = pipe.read()  # ends with the child
                    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, told
                    acks.extend(json.loads(told))
            finally:
                over.set()

        in_threads([partial(talk, 0), partial(talk, 1), fork_children])
        own.append({"role": "user", "content": "still mine"})
    link.say(acks)


def _inherit(
    out: int,
    path: str,
    who: str,
    rng: random.Random,
    calls: int,
    own: Any,
    shared: Any,
    store: Any,
    follower: Any,
    view: Any,
) -> None:
    """In the child: never comes back."""
    code = 1
    faulthandler.dump_traceback_later(60, exit=True, file=out)  # where it waits for what nobody gives back
    try:
        for call in (
            partial(own.append, {"content": "not mine"}),
            own.history,
            partial(shared.append, {"content": "not mine"}),
            partial(store.append, "main", {"content": "not mine"}),
            partial(store.delete, "main"),
            store.list,
            store.locks,
            view.history,
            partial(next, follower),
        ):
            with suppress(Closed):
                raise AssertionError(f"{call} gave {call()}")
        for handle in (own, shared, follower, store):
            handle.close()
        acks: list[dict[str, Any]] = []
        with hansard.open(path) as anew, anew.open("main", exclusive=False) as again:
            holders = {holder.session: holder.pid for holder in anew.locks()}
            assert holders[f"own-{who.partition('.')[0]}"] == os.getppid(), "the parent has lost its lease"
            drive(appending(anew, again, who, rng, calls, acks))
        os.write(out, json.dumps(acks).encode())
        code = 0
    except BaseException:
        os.write(out, traceback.format_exc().encode())
    finally:
        os._exit(code)
