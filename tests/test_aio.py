"""The asynchronous side: what the contract, which runs through it too, cannot ask of it."""

from __future__ import annotations

import asyncio
import gc
import inspect
import random
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import hansard
from hansard import aio
from hansard.aio import calls as calling
from hansard.aio import following as channels
from hansard.aio.twins import AT_ONCE, ITERATORS, OPENED, Twin, at_once, twin_of
from hansard.best_effort import BestEffortDocuments, BestEffortSession, BestEffortStore
from hansard.following import Follower
from hansard.session import Session, View
from hansard.store import Store
from hansard.testing.chat import texts, user, users

LONG = 60.0
ROOT = Path(__file__).parent.parent


@pytest.fixture(params=["memory", "files"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory:{tmp_path.name}-{id(request)}" if request.param == "memory" else str(tmp_path / "store")


def run(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Runs it in a loop of its own, and not for ever."""

    async def bounded() -> Any:
        return await asyncio.wait_for(work(), LONG)

    return asyncio.run(bounded())


# -- the same names and signatures


def living() -> list[type]:
    """The classes that have an asynchronous twin, as far as one leads to another."""
    found: list[type] = [Store, Session, View, Follower]
    found += [BestEffortStore, BestEffortSession, BestEffortDocuments]
    for kind in found:
        for name, member in vars(kind).items():
            function = member.fget if isinstance(member, property) else member
            if name.startswith("_") or not inspect.isfunction(function):
                continue
            gives = str(function.__annotations__.get("return", "")).partition(" | ")[0]
            other = vars(sys.modules[function.__module__]).get(gives)
            if isinstance(other, type) and twin_of(other) is not None and other not in found:
                found.append(other)
    return found


@pytest.mark.parametrize("kind", living(), ids=lambda kind: kind.__name__)
def test_everything_public_is_there_with_the_same_signature(kind: type) -> None:
    twin = twin_of(kind)
    assert twin is not None
    for name, member in vars(kind).items():
        if name.startswith("_"):
            continue
        own = getattr(twin, name, None)
        assert own is not None, f"{kind.__name__}.{name} has no asynchronous twin"
        if isinstance(member, property):
            assert isinstance(own, property), name
        elif inspect.isfunction(member):
            mine, its = inspect.signature(own), inspect.signature(member)
            assert mine.parameters == its.parameters, name
            gives = str(member.__annotations__.get("return", ""))
            waits = not gives.startswith(ITERATORS) and gives not in (*OPENED, "Follower")
            if waits and name not in AT_ONCE:
                assert inspect.iscoroutinefunction(own), f"{kind.__name__}.{name} is not to be awaited"


@pytest.mark.parametrize("kind", living(), ids=lambda kind: kind.__name__)
def test_what_python_calls_by_itself_has_its_asynchronous_form(kind: type) -> None:
    known = {
        "__enter__": "__aenter__",
        "__exit__": "__aexit__",
        "__iter__": "__aiter__",
        "__next__": "__anext__",
        "__getattr__": "__getattr__",
    }
    same = {
        "__init__",
        "__del__",
        "__repr__",
        "__module__",
        "__doc__",
        "__dict__",
        "__weakref__",
        "__slots__",
    }
    for name in vars(kind):
        if name.startswith("__") and name not in same and not name.startswith("__annot"):
            assert name in known, f"{kind.__name__}.{name}: say in hansard.aio.twins what it is there"
            assert hasattr(twin_of(kind), known[name])


def test_opening_a_store_has_the_same_signature() -> None:
    assert inspect.signature(aio.open).parameters == inspect.signature(hansard.open).parameters


def test_the_types_are_those_of_the_synchronous_classes() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "aio.py"), "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


# -- opening and closing


def test_whatever_is_opened_can_be_awaited_or_entered(url: str) -> None:
    async def work() -> None:
        async with aio.open(url) as store, store.create("a") as session:
            await session.append(user("1"))
        store = await aio.open(url)
        if url.startswith("memory"):
            await store.append("a", user("1"), create=True)
        async with store:
            session = await store.open("a")
            async with session as same:
                assert same is session
                await session.append(user("2"))
            async with store.resume("a") as session:
                assert texts(await session.history()) == ["1", "2"]
                assert isinstance(session, aio.Session)
                assert isinstance(session, aio.View)
            async with await store.open("a") as session:
                assert (session.id, session.seq, session.head.messages) == ("a", 2, 2)
            async with store.follow("a", after=0, timeout=0) as follower:
                assert [record.seq async for _, record, _ in follower] == [1, 2]
        assert store.closed
        await store.close()

    run(work)


def test_what_cannot_be_opened_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        before = threading.active_count()
        (tmp_path / "notes").write_text("mine")
        with pytest.raises(hansard.NotAStore):
            await aio.open(tmp_path)
        with pytest.raises(hansard.Unsupported):
            async with aio.open("nothing:"):
                pass
        async with aio.open("memory:") as store:
            for opening in (store.open("a"), store.resume("a"), store.open("a", timeout=LONG)):
                with pytest.raises(hansard.SessionNotFound):
                    await opening
            with pytest.raises(hansard.SessionNotFound):
                await store.follow("a")
            with pytest.raises(hansard.SessionNotFound):
                async for _ in store.follow("a"):
                    pass
            assert await store.locks() == []
        gc.collect()
        await _until(lambda: threading.active_count() <= before)

    run(work)


async def _until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.005)


def test_a_store_that_is_open_already_has_an_asynchronous_side(url: str) -> None:
    store = hansard.open(url)
    store.append("a", user("1"), create=True)

    async def work() -> None:
        async with aio.over(store) as other:
            assert other.url == store.url
            await other.append("a", user("2"))
            assert texts((await asyncio.to_thread(store.read, "a")).history()) == ["1", "2"]

    run(work)
    assert store.closed


def test_closing_the_store_while_calls_are_under_way_is_safe(url: str) -> None:
    async def work() -> None:
        async with aio.open(url) as keeper:
            for n in range(12):
                store = await aio.open(url)
                session = await store.create(f"s{n}")
                made = [asyncio.create_task(session.append(user(str(i)))) for i in range(8)]
                made += [asyncio.create_task(store.append(f"t{n}", user("x"), create=True))]
                made += [asyncio.create_task(_all(store.follow(timeout=LONG)))]
                made += [asyncio.create_task(_all(session.records()))]
                for _ in range(n):
                    await asyncio.sleep(0)
                await asyncio.gather(store.close(), store.close())
                done = await asyncio.gather(*made, return_exceptions=True)
                assert all(not isinstance(e, Exception) or isinstance(e, hansard.Closed) for e in done)
                written = [record for record in done[:8] if isinstance(record, hansard.Record)]
                there = [] if not written else texts(await (await keeper.read(f"s{n}")).history())
                assert there == [str(i) for i in range(len(written))]
                for call in (lambda s=session: s.append(user("x")), lambda s=store: s.list()):
                    with pytest.raises(hansard.Closed):
                        await call()
                await session.close()
            assert await keeper.locks() == []

    run(work)


async def _all(stream: Any) -> list[Any]:
    return [one async for one in stream]


def test_a_session_that_nobody_closed_warns_and_frees_its_lease(url: str) -> None:
    async def forgotten(sessions: list[Any], told: Any) -> None:
        sessions.clear()
        await _until(lambda: len(told) > 0)  # the worker that opened it may have it for a moment more

    async def work() -> None:
        async with aio.open(url) as store:
            sessions = [await store.create("a")]
            await sessions[0].append(user("1"))
            with pytest.warns(ResourceWarning, match="'a'") as told:
                await forgotten(sessions, told)
            async with store.open("a", timeout=LONG):
                pass

    run(work)


def test_an_opening_that_nobody_waits_for_is_pythons_to_tell_of() -> None:
    async def work() -> None:
        async with aio.open("memory:") as store:
            with pytest.warns(RuntimeWarning, match="never awaited"):
                store.create("a")
            assert await store.locks() == []

    run(work)


# -- order


def test_calls_on_one_session_are_run_in_the_order_in_which_they_were_made(url: str) -> None:
    async def work() -> None:
        async with aio.open(url) as store, store.create("a") as session:
            records = await asyncio.gather(*(session.append(user(str(n))) for n in range(100)))
            assert [record.seq for record in records] == list(range(1, 101))
            same = [store.append("a", user(str(n))) for n in range(100)]
            assert [record.seq for record in await asyncio.gather(*same)] == list(range(101, 201))
            found, _, last = await asyncio.gather(
                session.history(), session.clear(), session.append(user("last"))
            )
            assert len(found) == 200
            assert texts(await session.history()) == ["last"]
            assert session.seq == last.seq == session.head.seq == 202
            stream = session.records(after=200)  # as of the call
            await session.append(user("later"))
            assert [record.seq async for record in stream] == [201, 202]

    run(work)


def test_what_is_written_after_a_follower_was_begun_is_told(url: str) -> None:
    async def work() -> None:
        async with aio.open(url) as store, store.create("a") as session:
            await session.append(user("before"))
            for n in range(20):
                one, every = store.follow("a", timeout=0.02), store.follow(timeout=0.02)
                record = await session.append(user(str(n)))
                for follower in (one, every):
                    assert [told.seq async for _, told, _ in follower] == [record.seq]

    run(work)


def test_the_head_is_at_hand_after_each_call(url: str) -> None:
    async def work() -> None:
        async with aio.open(url) as store, store.create("a") as session:
            assert session.head.messages == 0
            for n in range(1, 5):
                await session.append(user(str(n)), durable=False)
                assert (session.head.messages, session.head.preview) == (n, str(n))
            known = session.seq
            await store.append("a", user("by somebody else"))
            await session.rename("A title")
            assert (session.head.title, session.head.messages) == ("A title", 5)
            head = session.head
            head.labels.append("mine")
            assert session.head.labels == []
            with pytest.raises(hansard.Conflict):  # to look at the head is not to have seen the message
                await session.append(user("x"), expect=known)

    run(work)


# -- cancellation


def test_a_call_that_is_cancelled_stores_its_record_wholly_or_not_at_all(url: str) -> None:
    dice = random.Random(1)

    async def work() -> None:
        done: set[str] = set()
        made = 0
        async with aio.open(url) as store, store.create("a") as session:
            for _ in range(60):
                tasks = {}
                for _ in range(dice.randint(1, 4)):
                    ids = [f"{made}.{n}" for n in range(dice.choice((1, 3)))]
                    made += 1
                    tasks[asyncio.create_task(session.extend(users(*ids), ids=ids))] = ids
                for task in tasks:
                    if dice.random() < 0.7:
                        for _ in range(dice.randint(0, 3)):
                            await asyncio.sleep(dice.choice((0, 0, 0.0002)))
                        task.cancel()
                for task, ids in tasks.items():
                    with suppress(asyncio.CancelledError):
                        await task
                        done.update(ids)
                if dice.random() < 0.2:
                    await session.history(limit=1)
            found = texts(await session.history())
        assert done <= set(found)
        assert len(found) == len(set(found))
        for text in found:
            if text.endswith((".1", ".2")):
                assert f"{text[:-2]}.0" in found
        whole = {text[:-2] for text in found if text.endswith(".1")}
        assert whole == {text[:-2] for text in found if text.endswith(".2")}

    run(work)


def test_a_lease_that_comes_when_nobody_waits_for_it_any_more_is_given_back(url: str) -> None:
    dice = random.Random(2)

    async def work() -> None:
        async with aio.open(url) as store:
            await store.append("a", user("1"), create=True)
            for n in range(80):
                way = (
                    lambda: store.open("a", timeout=LONG),
                    lambda: store.resume("a", timeout=1),
                    lambda n=n: store.create(f"new{n}", eager=True),
                    lambda n=n: store.open(f"other{n}", create=True),
                )[n % 4]

                async def opened(way: Callable[[], Any] = way) -> Any:
                    return await way()

                task = asyncio.create_task(opened())
                for _ in range(dice.randint(0, 4)):
                    await asyncio.sleep(dice.choice((0, 0.0003)))
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await (await task).close()
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                gc.collect()
            async with asyncio.timeout(LONG):
                while await store.locks():
                    await asyncio.sleep(0.005)
            assert [head.id for head in await store.list(empty=True)] == ["a"]

    run(work)


def test_whoever_stops_waiting_for_a_follower_or_a_stream_misses_nothing(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hansard.aio.twins.MANY", 50)
    dice = random.Random(3)

    async def impatient(stream: Any, n: int) -> list[int]:
        seqs: list[int] = []
        while len(seqs) < n:
            try:
                async with asyncio.timeout(dice.choice((0, 0.0005, 0.05))):
                    told = await anext(stream)
            except TimeoutError:
                continue
            seqs.append(told[1].seq if isinstance(told, tuple) else told.seq)
        return seqs

    async def work() -> None:
        async with aio.open(url) as store, store.create("a") as session:
            for _ in range(10):
                await session.extend(users(*map(str, range(100))))
            streams = [(store.follow("a", after=-1), 1021), (store.follow(after=-1), 1021)]
            streams += [(session.records(), 1001)]
            tasks = [asyncio.create_task(impatient(stream, n)) for stream, n in streams]
            for _ in range(20):
                await session.append(user("more"))
                await asyncio.sleep(0.005)
            one, every, records = await asyncio.gather(*tasks)
            assert one == every == list(range(1021))
            assert records == list(range(1001))

    run(work)


def test_closing_is_done_even_if_nobody_waits_for_it(url: str) -> None:
    async def work() -> None:
        async with aio.open(url) as store:
            for n in range(10):
                session = await store.create(f"s{n}", eager=True)
                made = [asyncio.create_task(session.append(user(str(i)))) for i in range(3)]
                closing = asyncio.create_task(session.close())
                for _ in range(n % 4):
                    await asyncio.sleep(0)
                closing.cancel()
                with suppress(asyncio.CancelledError):
                    await closing
                await asyncio.gather(*made, return_exceptions=True)
            async with asyncio.timeout(LONG):
                while len(await store.locks()) > 3:  # those whose closing had not even begun
                    await asyncio.sleep(0.005)

    run(work)


# -- waiting keeps no thread


@pytest.fixture
def one_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling, "WORKERS", 1)


@pytest.mark.usefixtures("one_worker")
def test_waiting_for_a_lease_keeps_no_worker(url: str) -> None:
    async def work() -> None:
        async with aio.open(url) as store:
            holder = await store.create("a")
            await holder.append(user("1"))
            order: list[int] = []

            async def wait(n: int) -> None:
                async with store.open("a", timeout=None if n % 2 else LONG) as session:
                    order.append(n)
                    await session.append(user(str(n)))

            waiting = [asyncio.create_task(wait(n)) for n in range(20)]
            impatient = asyncio.create_task(_busy(store, 0.1))
            followers = [asyncio.create_task(_all(store.follow("a", timeout=0.5))) for _ in range(50)]
            for n in range(50):  # the only worker is there for this
                await store.append("b", user(str(n)), create=True)
            assert await impatient
            assert not order
            await asyncio.sleep(0.1)
            assert store._root.calls._out == 0
            await holder.append(user("2"))
            await holder.close()
            await asyncio.gather(*waiting)
            assert order == list(range(20))  # in the order in which they came
            assert all(len(told) == 21 for told in await asyncio.gather(*followers))

    run(work)


async def _busy(store: Any, timeout: float) -> bool:
    try:
        await (await store.open("a", timeout=timeout)).close()
    except hansard.SessionBusy:
        return True
    return False


@pytest.mark.usefixtures("one_worker")
def test_a_best_effort_call_that_waits_for_a_lease_keeps_no_worker(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hansard.best_effort.WAIT", LONG)

    async def work() -> None:
        async with aio.open(url) as store:
            holder = await store.create("a")
            await holder.append(user("1"))
            sessions = store.best_effort()
            waiting = [asyncio.create_task(sessions.checkpoint("a", users(str(n)))) for n in range(20)]
            for n in range(50):  # the only worker is there for this
                await store.append("b", user(str(n)), create=True)
            assert not any(task.done() for task in waiting)
            assert await sessions.append("a", user("beside the lease")) is not None
            waiting[0].cancel()
            await holder.close()
            done = await asyncio.gather(*waiting, return_exceptions=True)
            assert isinstance(done[0], asyncio.CancelledError)
            assert [record.kind for record in done[1:]] == ["history"] * 19  # type: ignore[union-attr]
            assert not sessions.dropped
            assert store._root.turns._waiting == {}

    run(work)


def test_a_best_effort_call_waits_for_a_lease_no_longer_than_it_may(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hansard.best_effort.WAIT", 0.05)

    async def work() -> None:
        async with aio.open(url) as store, store.create("a") as holder:
            await holder.append(user("1"))
            sessions = store.best_effort()
            assert await sessions.truncate("a", 0) is None
            (dropped,) = sessions.dropped
            assert isinstance(dropped.error, hansard.SessionBusy)
            assert (dropped.call, dropped.arguments) == ("truncate", ("a", 0))

    run(work)


def test_best_effort_calls_of_a_store_that_is_closed_meanwhile_raise_nothing(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hansard.best_effort.WAIT", LONG)

    async def work() -> None:
        store = await aio.open(url)
        holder = await store.create("a")
        await holder.append(user("1"))
        sessions, best = store.best_effort(), holder.best_effort()
        waiting = asyncio.create_task(sessions.clear("a"))
        await asyncio.sleep(0.02)
        calls = [
            sessions.append("a", user("2")),
            best.append(user("3")),
            best.documents.list(),
            store.close(),
        ]
        await asyncio.gather(*calls)
        assert await waiting is None
        assert [one async for one in best.records()] == []
        assert await best.sub("child") is None
        assert {type(one.error) for one in (*sessions.dropped, *best.dropped)} == {hansard.Closed}

    run(work)


def test_who_stops_waiting_for_a_lease_leaves_his_place_to_the_next(url: str) -> None:
    async def work() -> None:
        async with aio.open(url) as store:
            holder = await store.create("a")
            await holder.append(user("1"))

            async def wait() -> None:
                async with store.open("a", timeout=LONG):
                    pass

            waiting = [asyncio.create_task(wait()) for _ in range(6)]
            await asyncio.sleep(0.05)
            for task in waiting[::2]:
                task.cancel()
            await asyncio.sleep(0)
            await holder.close()
            done = await asyncio.gather(*waiting, return_exceptions=True)
            assert [isinstance(one, asyncio.CancelledError) for one in done] == [True, False] * 3
            assert store._root.turns._waiting == {}
            assert await store.locks() == []

    run(work)


def test_a_lease_is_had_soon_after_another_process_gave_it_back(tmp_path: Path) -> None:
    program = (
        "import sys, hansard\n"
        f"session = hansard.open({str(tmp_path / 'store')!r}).open('a')\n"
        "print('open', flush=True); sys.stdin.readline(); session.close(); print('closed', flush=True)\n"
        "sys.stdin.readline()\n"
    )

    async def work() -> None:
        async with aio.open(tmp_path / "store") as store:
            await store.append("a", user("1"), create=True)
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            other = await asyncio.create_subprocess_exec(sys.executable, "-c", program, **pipes)
            assert other.stdin is not None
            assert other.stdout is not None
            await other.stdout.readline()

            async def wait() -> float:
                async with store.open("a", timeout=LONG):
                    return time.monotonic()

            waiting = asyncio.create_task(wait())
            await asyncio.sleep(0.3)
            other.stdin.write(b"\n")
            await other.stdout.readline()
            closed = time.monotonic()
            assert await waiting - closed < 1
            other.stdin.write(b"\n")
            await other.wait()

    run(work)


# -- followers


@pytest.mark.rule("E7")
def test_a_thousand_followers_see_each_record_once_and_soon(url: str) -> None:
    followers, records = 1000, 40

    async def work() -> None:
        async with aio.open(url) as store, store.create("a") as session:
            await session.append(user("begin"))
            threads = threading.active_count()
            took: list[float] = []

            async def follow(which: str | None) -> list[int]:
                seqs = []
                async for _, record, _ in store.follow(which, timeout=LONG):
                    took.append(time.monotonic() - float(record.data["content"]))
                    seqs.append(record.seq)
                    if len(seqs) == records:
                        break
                return seqs

            tasks = [asyncio.create_task(follow(None if n % 10 == 0 else "a")) for n in range(followers)]
            for which in ("a", None):
                await store.follow(which)  # those before it have begun
            for _ in range(records):
                await session.append(user(str(time.monotonic())), durable=False)
                await asyncio.sleep(0.01)
            assert threading.active_count() - threads <= 2  # one that watches, one that reads
            for seqs in await asyncio.gather(*tasks):
                assert seqs == list(range(2, records + 2))
            took.sort()
            assert took[len(took) // 2] < 0.1

    run(work)


@pytest.mark.rule("E7")
def test_a_follower_that_falls_behind_catches_up_by_itself(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "KEPT", 10)
    monkeypatch.setattr(channels, "NOBODY", 5)

    async def work() -> None:
        async with aio.open(url) as store, store.create("a") as session:
            await session.append(user("begin"))

            async def follow(which: str | None, pause: float) -> list[int]:
                seqs = []
                async for _, record, _ in store.follow(which, timeout=1):
                    seqs.append(record.seq)
                    if len(seqs) < 20:
                        await asyncio.sleep(pause)
                return seqs

            slow = [asyncio.create_task(follow(which, 0.02)) for which in ("a", None)]
            quick = [asyncio.create_task(follow(which, 0)) for which in ("a", None)]
            await asyncio.sleep(0.05)
            for _ in range(300):
                await session.append(user("x"), durable=False)
            for seqs in await asyncio.gather(*slow, *quick):
                assert seqs == list(range(2, 302))

    run(work)


@pytest.mark.rule("E7")
def test_followers_that_began_elsewhere_end_up_reading_together(url: str) -> None:
    async def work() -> None:
        async with aio.open(url) as store, store.create("a") as session:
            for _ in range(5):
                await session.extend(users(*map(str, range(300))))
            followers = [store.follow(which, after=-1, timeout=LONG) for which in ("a", None)]
            followers += [store.follow("a", after=n, timeout=LONG) for n in (700, 1499)]

            async def take(follower: Any, upto: int) -> list[int]:
                seqs = []
                async for _, record, _ in follower:
                    seqs.append(record.seq)
                    if record.seq == upto:
                        break
                return seqs

            begins = (0, 0, 701, 1500)
            for upto in (1500, 1501, 1502):
                if upto > 1500:
                    await session.append(user("more"))
                found = await asyncio.gather(*(take(follower, upto) for follower in followers))
                wanted = begins if upto == 1500 else (upto,) * 4
                assert found == [list(range(begin, upto + 1)) for begin in wanted]
            writer = asyncio.create_task(_write(session, 40))
            for n, follower in enumerate(followers):
                seqs = await take(follower, 1542)
                assert seqs == list(range(1503, 1543)), n
            await writer
            assert all(follower._feed is None for follower in followers)

    run(work)


async def _write(session: Any, n: int) -> None:
    for _ in range(n):
        await session.append(user("x"), durable=False)
        await asyncio.sleep(0.002)


@pytest.mark.rule("E7")
def test_what_followers_are_told_is_the_own_of_each(url: str) -> None:
    async def work() -> None:
        async with aio.open(url) as store, store.create("a") as session:
            await session.append(user("begin"))
            followers = [store.follow("a", timeout=LONG) for _ in range(3)]
            await session.append({"role": "user", "content": ["x"]}, usage={"input_tokens": 1})
            for follower in followers:
                _, record, _ = await anext(follower)
                assert (record.data["content"], record.usage) == (["x"], {"input_tokens": 1})
                record.data.clear()
                record.usage.clear()
            assert record == (await session.get(2)).__class__(
                **{name: getattr(record, name) for name in record.__struct_fields__}
            )

    run(work)


@pytest.mark.rule("E7")
def test_followers_that_are_forgotten_or_closed_leave_nothing_behind(url: str) -> None:
    async def work() -> None:
        async with aio.open(url) as store, store.create("a") as session:
            await session.append(user("begin"))
            hub = store._root.hub
            for _ in range(3):
                followers = [
                    store.follow(which, after=after) for which in ("a", None) for after in (None, -1)
                ]
                for follower in followers:
                    await follower
                assert len(hub._channels) == 2
                waiting = [asyncio.create_task(_all(follower)) for follower in followers]
                await asyncio.sleep(0.02)
                for task in waiting[:2]:
                    task.cancel()
                for follower in followers[2:]:
                    await follower.close()
                await asyncio.wait(waiting)
                del follower, followers, waiting, task
                gc.collect()
                assert hub._channels == {}

    run(work)


# -- loops and threads


@pytest.mark.rule("E9")
def test_whatever_a_forked_child_inherits_is_closed_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    program = """
import asyncio, os, sys, warnings
from hansard import aio
from hansard.aio import twins

async def met(*waits):
    found = []
    for wait in waits:
        try:
            found.append(repr(await asyncio.wait_for(wait, 20)))
        except Exception as error:
            found.append(type(error).__name__)
    return found

async def main():
    async with aio.open(sys.argv[1]) as store:
        await store.append("a", "1", create=True)
        behind, beside = await store.follow("a", after=-1), await store.follow("a")
        timed, closed = await store.follow(timeout=60), await store.follow("a")
        begun = store.follow("a", after=-1)
        session = await store.open("a", exclusive=False)
        await closed.close()
        twins.MANY = 1
        records = session.records()
        await anext(records)
        child = os.fork()
        if child == 0:
            warnings.simplefilter("ignore")
            asyncio.events._set_running_loop(None)
            loop = asyncio.new_event_loop()
            followers = map(anext, (behind, beside, timed, closed))
            told = met(*followers, begun, anext(begun), session.append("2"), store.close())
            os.write(1, " ".join(loop.run_until_complete(told)).encode() + b"\\n")
            os._exit(0)
        os.waitpid(child, 0)
        await session.append("2")
        print((await anext(beside))[1].seq, (await anext(timed))[1].seq, (await anext(behind))[1].seq)
        await session.close()

asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "store")],
        capture_output=True,
        text=True,
        timeout=LONG,
    )
    assert done.stdout.splitlines() == [
        "Closed Closed Closed StopAsyncIteration Closed Closed Closed None",
        "2 2 0",
    ], done.stderr


def test_several_loops_in_several_threads_share_a_store(url: str) -> None:
    store = aio.over(hansard.open(url))
    found: dict[int, list[Any]] = {}
    failed: list[BaseException] = []

    async def work(n: int) -> None:
        async with store.open("mine", exclusive=False) as shared:
            follower = await store.follow("mine", timeout=LONG)
            started.wait()
            for i in range(10):
                await shared.append(user(f"{n}.{i}"))
            async with store.open("one at a time", timeout=LONG, create=True) as session:
                await session.append(user(str(n)))
            found[n] = [(await anext(follower))[1].data["content"] for _ in range(40)]

    def thread(n: int) -> None:
        try:
            run(lambda: work(n))
        except BaseException as error:
            failed.append(error)

    run(lambda: store.append("mine", user("begin"), create=True))
    started = threading.Barrier(4)
    threads = [threading.Thread(target=thread, args=(n,)) for n in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(LONG)
    assert not failed
    assert all(told == found[0] for told in found.values())
    assert sorted(found[0]) == sorted(f"{n}.{i}" for n in range(4) for i in range(10))

    async def end() -> None:
        assert len(await (await store.read("one at a time")).history()) == 4
        await store.close()

    run(end)


def test_a_long_stream_is_fetched_in_pieces(url: str) -> None:
    async def work() -> None:
        async with aio.open(url) as store, store.create("a") as session:
            for _ in range(10):
                await session.extend(users(*map(str, range(500))), durable=False)
            made = 0
            make = store._root.calls.make

            def counted(*args: Any) -> Any:
                nonlocal made
                made += 1
                return make(*args)

            store._root.calls.make = counted
            assert [record.seq async for record in session.records()] == list(range(5001))
            assert made <= 100
            view = await store.read("a")
            stream = view.records(reverse=True)
            assert (await anext(stream)).seq == 5000
            await stream.aclose()
            assert [record async for record in stream] == []
            assert isinstance(view, Twin)

    run(work)


def test_what_a_stream_meets_on_its_way_is_raised_after_what_came_before() -> None:
    def numbers() -> Any:
        yield from range(170)
        raise hansard.StoreUnavailable("the disk is gone")

    async def work() -> None:
        seen = []
        stream: aio.Stream[int] = aio.Stream(at_once, numbers)
        with pytest.raises(hansard.StoreUnavailable):
            async for number in stream:
                seen.append(number)
        assert seen == list(range(170))
        assert [number async for number in stream] == []

    run(work)
