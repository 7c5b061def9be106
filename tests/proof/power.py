"""Running a workload on a simulated machine, and judging what a power cut or a fault has left of it.

What must be there is known from what each step had done when it returned. It is read by a store that shares
nothing with the one that wrote: another process on another machine, with the platter of the first.
"""

from __future__ import annotations

import json
import os
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from zlib import crc32

from hansard.engines.files import Files, HansardWarning
from hansard.errors import HansardError, NotAStore
from hansard.records import encode
from hansard.store import Store
from hansard.testing.chat import user
from hansard.views.head import Query
from tests.proof.simulated import ROOT, Cut, Image, Machine, Simulated, Sync, Write

Component = tuple[str, ...]
"""One thing that is there wholly as it was before a call, or wholly as after it: `("session", id)` …"""

Seen = dict[Component, Any]

START = datetime(2026, 5, 1, 12, tzinfo=UTC)


@dataclass
class Ack:
    """A step that has returned: where the journal stood, and what may be found from then on."""

    at: int
    allowed: dict[Component, list[Any]]
    seen: Seen


@dataclass
class Story:
    """A workload on a machine. Its steps are acknowledged one by one."""

    machine: Machine = field(default_factory=Machine)
    acks: list[Ack] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)  # calls to the disk, at the end of each step
    steady: list[int] = field(default_factory=list)  # where no power cut is looked at
    now: datetime = START
    known: list[Ack] | None = None  # what each step did when nothing went wrong: then nobody looks again

    def __post_init__(self) -> None:
        self.disk = Simulated(self.machine)
        self.acks.append(Ack(0, {}, {}))
        self._open: Store | None = None

    @property
    def store(self) -> Store:
        """The store of the process that writes, opened by the first who asks."""
        if self._open is None:
            self._open = Store(Files(ROOT, disk=self.disk), clock=self._clock)
        return self._open

    def _clock(self) -> datetime:
        return self.now

    def step(self, work: Callable[[], Any], *, loose: bool = False, firm: str = "") -> Any:
        before = self.acks[-1]
        self.now += timedelta(milliseconds=1)
        given = work()
        if self.known is not None:
            self._as_known()
            return given
        with quiet(self.machine):
            seen = look(self.machine)
        allowed = dict(before.allowed)
        for part in {*before.seen, *seen}:
            value = seen.get(part)
            if value != before.seen.get(part):
                allowed[part] = [*allowed.get(part, [None]), value] if loose else [value]
            if part[0] == "session" and part[1] == firm:
                allowed[part] = [value]
        self.acks.append(Ack(len(self.machine.journal), allowed, seen))
        self.marks.append(len(self.machine.calls))
        return given

    def _as_known(self) -> None:
        ack = self.known[len(self.acks)]  # type: ignore[index]
        self.acks.append(Ack(len(self.machine.journal), ack.allowed, ack.seen))
        self.marks.append(len(self.machine.calls))

    def later(self, by: timedelta) -> None:
        self.now += by

    def reopen(self, *, lost: bool = False) -> None:
        if self._open is not None and not lost:
            self._open.close()
        if lost and self._open is not None:
            die(self._open)
        self._open = None
        self.disk = Simulated(self.machine)

    def spoil(self, path: str, change: Callable[[bytes], bytes]) -> None:
        where = f"{ROOT}/{path}"
        begin = len(self.machine.journal)
        with quiet(self.machine):
            fd = self.disk.open(where, write=True, create=True)
            inode, _ = self.disk.fds[fd]
            raw = change(self.machine.now.files[inode])
            self.machine.do(Cut(inode, 0))
            self.machine.do(Write(inode, 0, raw))
            self.machine.do(Sync(inode))
            self.machine.do(Sync(self.machine.find(f"{ROOT}/sessions")))
            self.disk.close(fd)
            if self.known is not None:
                return self._as_known()
            seen = look(self.machine)
        allowed = {**self.acks[-1].allowed}
        for part in {*seen, *allowed}:
            if seen.get(part) != self.acks[-1].seen.get(part):
                allowed[part] = [seen.get(part)]
        # no process does this, so no power cut comes in between
        self.steady += range(begin + 1, len(self.machine.journal))
        self.acks.append(Ack(len(self.machine.journal), allowed, seen))
        self.marks.append(len(self.machine.calls))
        return None


@contextmanager
def quiet(machine: Machine) -> Iterator[None]:
    """What is asked of the disk meanwhile is not counted, and nothing fails."""
    calls, fault, most = list(machine.calls), machine.fault, machine.most
    machine.fault = machine.most = None
    try:
        yield
    finally:
        machine.calls[:], machine.fault, machine.most = calls, fault, most


@contextmanager
def same_dice(seed: int) -> Iterator[None]:
    """Ids and the like come out the same in each run."""
    dice, urandom = random.Random(seed), os.urandom
    os.urandom = dice.randbytes
    try:
        yield
    finally:
        os.urandom = urandom


def die(store: Store) -> None:
    """The process of a store is killed: the kernel closes its files, and nobody says goodbye."""
    disk = store._engine.disk  # type: ignore[attr-defined]
    for fd in list(disk.fds):
        disk.close(fd)
    disk.forget()


# -- what is there -----------------------------------------------------------------------------------


def look(machine: Machine) -> Seen:
    """All that a new process finds, without changing anything."""
    try:
        store = Store(Files(ROOT, disk=Simulated(machine), readonly=True), clock=lambda: START)
    except NotAStore:
        return {}
    with store:
        return seen_in(store)


def seen_in(store: Store) -> Seen:
    """All that a store has, each part by itself."""
    engine = store._engine
    found: Seen = {}
    listed = {head.id: head for head in engine.heads(Query(anywhere=True, empty=True, now=START))}
    for id, head in listed.items():
        records = list(engine.read(id))
        lines = tuple(encode(plain(record)) for record in records)
        assert head.seq == records[-1].seq, f"the list knows {head.seq} of {id}, the log {records[-1].seq}"
        found["session", id] = lines
        shelf = store.read(id).documents
        for name in shelf.list():
            held = shelf.get(name)
            found["document", id, name] = None if held is None else bytes(held.data)
    for name, id in store.names.list().items():
        found["name", name] = id
    for state in store._states():
        for key, value in state.all().items():
            found["state", state.name, key] = encode(value)
    for blob in engine.blobs():  # type: ignore[attr-defined]
        found["blob", blob.digest] = store.blobs.get(blob.digest)
    return found


def plain(record: Any) -> dict[str, Any]:
    """A record without what rewriting a log changes."""
    fields = {name: getattr(record, name) for name in record.__struct_fields__}
    del fields["sum"], fields["batch"]
    return fields


# -- what may be there -------------------------------------------------------------------------------


def judge(story: Story, at: int, seen: Seen, damaged: set[str]) -> list[str]:
    """What is wrong with what was found after the journal was cut short at a place."""
    done = max(i for i, ack in enumerate(story.acks) if ack.at <= at)
    ack = story.acks[done]
    under_way = story.acks[done + 1].seen if done + 1 < len(story.acks) else ack.seen
    wrong = []
    for part in {*seen, *ack.allowed, *under_way}:
        value = seen.get(part)
        allowed = [*ack.allowed.get(part, [None]), under_way.get(part)]
        if value in allowed:
            continue
        if part[0] == "session":
            firm, newest = allowed[0] or (), under_way.get(part) or ack.seen.get(part) or ()
            if firm == () and value == newest[:1]:
                continue  # the session record is a write of its own
            # of what was not synced a piece may be missing before another; then it is told
            inside = value is not None and value[: len(firm)] == firm and _in_order(value, newest)
            if inside and (value == newest[: len(value)] or part[1] in damaged):
                continue
        if part[0] == "document" and value is None and ("session", part[1]) not in seen:
            continue  # it goes with its session
        if part[0] == "name" and value is None and ("session", str(ack.seen.get(part))) not in seen:
            continue  # what it pointed at is gone
        wrong.append(f"{part}: {_short(value)} is none of {[_short(one) for one in allowed]}")
    return wrong


def _in_order(some: tuple[bytes, ...], of: tuple[bytes, ...]) -> bool:
    rest = iter(of)
    return all(one in rest for one in some)


def _short(value: Any) -> str:
    return repr([line[:90] for line in value] if isinstance(value, tuple) else value)[:700]


# -- what `doctor` must say --------------------------------------------------------------------------


def predicted(image: Image) -> Counter[tuple[str, str]]:
    """The findings, by kind and file, that follow from the bytes on the platter."""
    found: Counter[tuple[str, str]] = Counter()
    tree = dict(image.tree())
    for path, raw in tree.items():
        _, top, *rest = path.removeprefix(ROOT).split("/") if path != ROOT else ["", ""]
        name = rest[-1] if rest else ""
        if top == "aside" and rest:
            found["aside", path] += 1
        elif top in ("sessions", "names", "state", "documents", "blobs") and (
            name.endswith("~tmp")
            or (top == "documents" and len(rest) == 1 and f"{ROOT}/sessions/{name}.jsonl" not in tree)
        ):
            found["leftover", path] += 1
        elif top == "sessions" and name.endswith(".jsonl") and raw is not None:
            for kind in _of_log(raw):
                found[kind, path] += 1
    return found


def _of_log(raw: bytes) -> set[str]:
    """What is to be said of a log, from the rules of the format alone."""
    good, rest = chain(raw)
    later = list(_records(rest))
    if not good and not later:
        return {"unborn"}
    if not rest:
        return set() if raw.endswith(b"\n") else {"torn"}
    write = later[0].get("batch") if later else None
    if not later or (write is not None and all(record.get("batch") == write for record in later)):
        return {"torn"}  # nothing but an incomplete write
    whole = rest.endswith(b"\n") and list(_records(rest[:-1].rpartition(b"\n")[2]))
    return {"damage"} if whole else {"damage", "torn"}


def _records(raw: bytes) -> Iterator[dict[str, Any]]:
    """What reads as a record, also behind one that has lost its end."""
    for line in raw.split(b"\n"):
        found = _record(line) or _record(line[max(0, line.rfind(b'{"kind":')) :])
        if found is not None:
            yield found


def chain(raw: bytes) -> tuple[list[dict[str, Any]], bytes]:
    """The records of a log up to where its checksums stop, whole writes only, and the bytes after them."""
    good: list[dict[str, Any]] = []
    open_batch: list[dict[str, Any]] = []
    state, at, end = 0, 0, 0
    while at < len(raw):
        stop = raw.find(b"\n", at)
        line = raw[at : stop + 1] if stop >= 0 else raw[at:] + b"\n"
        record = _record(line[:-1])
        body, _, tail = line.rpartition(b',"sum":"')
        if record is None or crc32(body, state) != int(tail[:8], 16):
            break
        state, at = crc32(line, state), at + len(line)
        batch = record.get("batch")
        if batch is None:
            good.append(record)
        else:
            open_batch.append(record)
            if len(open_batch) < batch[1]:
                continue
            good += open_batch
            open_batch = []
        end = at
    return good, raw[end:]


def _record(line: bytes) -> dict[str, Any] | None:
    with suppress(ValueError):
        found = json.loads(line)
        if isinstance(found, dict) and {"kind", "at", "seq", "sum"} <= set(found):
            return found
    return None


# -- after a power cut -------------------------------------------------------------------------------


def recovered(story: Story, machine: Machine, at: int, *, repair: bool = False) -> list[str]:
    """What is wrong with a machine after a power cut: what is found, what `doctor` says, and what happens
    when work goes on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HansardWarning)
        wanted = predicted(machine.platter)
        try:
            store = Store(Files(ROOT, disk=Simulated(machine)), clock=lambda: START + timedelta(days=9))
        except HansardError as error:
            return [f"the store does not open: {error!r}"]
        try:
            with store:
                return _recovered(story, store, at, wanted, repair)
        except (HansardError, OSError, AssertionError) as error:
            return [f"{type(error).__name__}: {error}"]


def _recovered(
    story: Story, store: Store, at: int, wanted: Counter[tuple[str, str]], repair: bool
) -> list[str]:
    told = Counter(_place(found) for found in store.doctor().findings)
    wrong = []
    if set(told) != set(wanted):
        wrong.append(f"doctor says {sorted(set(told))}, not {sorted(set(wanted))}")
    seen = seen_in(store)
    damaged = {path.rpartition("/")[2].removesuffix(".jsonl") for kind, path in wanted if kind == "damage"}
    wrong += judge(story, at, seen, damaged)
    if repair:
        store.doctor(repair=True)
        rest = [found for found in store.doctor().findings if found.kind != "aside"]
        if rest:
            wrong.append(f"after a repair doctor says {rest}")
    # work goes on: in every session that is there, in a new one, and with what stands beside them
    sessions = [part[1] for part in seen if part[0] == "session"]
    before = seen_in(store)
    for id in sessions:
        store.append(id, user("after the crash"))
    for id in ("a", "n", "new"):
        if id not in sessions:
            store.append(id, user("begun after the crash"), create=True)
    store.state("settings").set("after", True)
    store.names.set("after/x", "a")
    after = seen_in(store)
    for part, value in before.items():
        if part[0] == "session":
            ok = after.get(part, ())[:-1] == value
        else:
            ok = after.get(part) == value or part == ("name", "active")
        if not ok:
            wrong.append(f"{part} was {_short(value)} and is {_short(after.get(part))} after more was said")
    machine = store._engine.disk.machine  # type: ignore[attr-defined]
    again = look(machine.rebooted())
    if again != after:
        lost = [part for part in {*after, *again} if again.get(part) != after.get(part)]
        wrong.append(f"a second power cut has taken what was acknowledged: {lost}")
    return wrong


def _place(found: Any) -> tuple[str, str]:
    place = found.place.rpartition(":")[0] if found.kind in ("damage", "torn") else found.place
    return found.kind, place
