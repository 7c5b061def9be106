"""Whatever happens to the files of a store, only our errors come out of it, and nothing sound is lost."""

from __future__ import annotations

import json
import os
import shutil
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from hansard import ids
from hansard.engines import Finding, logs
from hansard.engines.disk import Disk
from hansard.engines.files import Files
from hansard.errors import HansardError, NewerFormat
from hansard.ids import file_key
from hansard.records import Damage, Record, Scan
from hansard.store import Store
from hansard.testing.chat import user, users
from hansard.views.history import fold
from tests.proof import damages
from tests.proof import reader as strict


@pytest.fixture
def full(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--full"))


def each(seconds: float, at_most: int, work: Callable[[Random], None], *, first: int = 0) -> int:
    """Does something with as many seeds as there is time for. What fails says its seed."""
    until = time.monotonic() + seconds
    for seed in range(first, first + at_most):
        if time.monotonic() > until:
            return seed - first
        try:
            work(Random(seed))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    return at_most


# -- the reader


def told(text: str) -> tuple[str, object]:
    return ("message", {"role": "user", "content": text})


TALK = [
    [told("Jam * jelly")],
    [("app.note", {"any": 1})],
    [told("one"), told("two"), told("three")],
    [told("four – für 🙂")],
    [told("five"), ("history", {"op": "set", "parts": [[1, 4]]})],
    *[[told(f"message {n} " + "x" * (n % 7 * 9))] for n in range(20)],
    [told("six"), told("seven")],
    [("meta", {"set": {"title": "A title"}})],
    [told("the end")],
]
LOG = damages.written(TALK)
OTHER = damages.written([[told(f"another one {n}")] for n in range(60)], id="other")


def read(raw: bytes, cuts: list[int]) -> tuple[list[Record], Scan, str]:
    """What a reader gives that is fed with pieces, where it stands then, and whether it refused to go on."""
    reader, records, at = Scan(), [], 0
    try:
        for stop in [*cuts, len(raw)]:
            records += reader.feed(raw[at:stop])
            at = stop
        records += reader.finish()
    except NewerFormat as error:
        return records, reader, str(error)
    return records, reader, ""


def state(reader: Scan) -> tuple[object, ...]:
    return (reader.end, reader.state, reader.seq, reader.torn, reader.unterminated, reader.damage)


def located(places: list[tuple[int, int]], damage: list[Damage], end: int) -> list[tuple[int, int]]:
    """The places that no finding names and that are not in the torn tail."""
    return [
        (a, b)
        for a, b in places
        if b < end and not any(d.offset <= b and a <= d.offset + d.length for d in damage)
    ]


def facts(records: list[Record]) -> dict[int, tuple[str, object]]:
    return {record.seq: (record.kind, record.data) for record in records}


SOUND = facts(read(b"".join(LOG), [])[0])


def _look(rng: Random, sums: Counter[str]) -> None:
    log = damages.damaged(LOG, OTHER, rng)
    raw = log.raw
    records, reader, refused = read(raw, [])
    cuts = sorted(rng.randrange(len(raw) + 1) for _ in range(rng.choice([1, 3, 40])))
    again, other, _ = read(raw, cuts)
    said = (log.told, reader.damage)
    if not refused:
        assert again == records, said
        assert state(other) == state(reader), said
    given = facts(records)
    assert list(given) == sorted(given), said
    assert reader.end + reader.torn == len(raw), said
    wanted = {line["seq"]: (line["kind"], line.get("data")) for line in damages.readable(raw)}
    if not refused:
        assert not {seq for seq in wanted if given.get(seq) != wanted[seq]}, said
        assert not {seq for seq in log.safe() if given.get(seq) != SOUND[seq]}, said
        lost = located(log.places(), reader.damage, reader.end)
        shown_lines = {LOG[seq] for seq in given if SOUND.get(seq) == given[seq]}
        assert not [(a, b) for a, b in lost if a == b or raw[a:b] not in shown_lines], (lost, said)
    assert reader.damage or raw.startswith(OTHER[0]) or all(SOUND.get(seq) == given[seq] for seq in given), (
        said
    )
    sums["logs"] += 1
    sums["refused"] += bool(refused)
    sums["blows"] += len(log.told)
    sums["records hit"] += len(SOUND.keys() - given.keys())
    sums["untouched"] += len(log.safe())


def _look_at_strange(rng: Random) -> None:
    raw = damages.strange(rng)
    records, reader, refused = read(raw, [])
    cuts = sorted(rng.randrange(len(raw) + 1) for _ in range(rng.choice([1, 3, 40])))
    again, other, refused_too = read(raw, cuts)
    assert refused == refused_too
    if not refused:
        assert again == records
        assert state(other) == state(reader)
    assert [record.seq for record in records] == sorted({record.seq for record in records})


@pytest.mark.rule("C2", "W14")
def test_a_log_that_is_intact_and_strange_reads_the_same_in_pieces_of_any_size(full: bool) -> None:
    each(600 if full else 2, 10**9 if full else 1500, _look_at_strange)


@pytest.mark.rule("C1", "C2", "W2")
def test_a_reader_gives_all_that_is_sound_and_says_where_the_rest_is(
    full: bool, figures: Callable[..., None]
) -> None:
    """Fed with pieces of any size it gives the same."""
    sums: Counter[str] = Counter()

    def once(rng: Random) -> None:
        _look(rng, sums)

    each(1200 if full else 5, 10**9 if full else 3000, once)
    figures("fuzz-reading", **sums)


# -- the store


class QuickDisk(Disk):
    """A disk that is never told to write now: nobody cuts the power here."""

    def sync(self, fd: int) -> None:
        pass

    def sync_folder(self, path: str) -> None:
        pass


def opened(root: Path, **options: Any) -> Store:
    return Store(Files(str(root), disk=QuickDisk()), **options)


TALKED, VACUUMED, FAR = "talked", "vacuumed", "Übung/" + "x" * 250
SESSIONS = (TALKED, VACUUMED, FAR)
NEIGHBOUR = "neighbour"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A store in which there is something of everything, the same to the byte each time."""
    with pytest.MonkeyPatch.context() as patched:
        for module in (os, ids):
            patched.setattr(module, "urandom", Random(0).randbytes)
        yield begun(tmp_path_factory.mktemp("sound") / "store")


def begun(root: Path) -> Path:
    ticks = count()
    begin = datetime(2026, 5, 1, 12, tzinfo=UTC)
    with opened(root, clock=lambda: begin + timedelta(seconds=next(ticks))) as store:
        digest = store.blobs.put(b"a picture")
        for id in (*SESSIONS, NEIGHBOUR):
            with store.create(id, agent="coder", model="gpt-5") as session:
                for n in range(6):
                    session.append(user(f"message {n} of {id[:9]}"), id=f"key-{n}")
                session.extend(users("x", "y", "z"))
                session.append(
                    {"role": "assistant", "content": "yes"}, usage={"input_tokens": 8, "cost": 0.1}
                )
                session.checkpoint([user("so far")], token_count=7, summary="so far")
                session.event("progress", {"percent": 80}, event_id="event-1")
                session.output(b"\xff\xfe raw")
                session.update(meta={"ticket": 42}, labels=["web"])
                session.append(user("look"), blobs=[digest])
                session.extend(users(*(f"more {n}" for n in range(4))))
                session.truncate(3)
                session.append(user("last"))
                session.documents.put("screen.json", b'{"nodes": []}')
                session.documents.put("Ü" * 200, b"x" * 3000, expires=timedelta(days=9999))
        store.vacuum(VACUUMED, drop_history=True)
        with store.open(VACUUMED) as session:
            session.extend(users("after", "the vacuum"))
        with store.open(TALKED) as session:
            session.sub("research").close()
            store.fork(session.head, id="fork").close()
        store.names.set("agent/coder/current", TALKED)
        store.names.set("other", NEIGHBOUR)
        store.state("settings").set("theme", "dark", expires=timedelta(days=9999))
        store.state("U" * 300).set("a", {"b": [1, 2, 3]})
        store.list()
    return root


@contextmanager
def only_ours(into: dict[str, Any], call: str) -> Iterator[None]:
    """Whatever else than one of our errors comes out of a call is a fault of ours."""
    try:
        yield
    except HansardError as error:
        into[call] = type(error).__name__


def asked(store: Store, id: str, *, briefly: bool = False) -> dict[str, Any]:
    """What a store says when it is asked everything about a session, and about all; or only what is said in
    the session."""
    said: dict[str, Any] = {}

    def ask(call: str, of: Callable[[], Any]) -> None:
        with only_ours(said, call):
            said[call] = of()

    ask("head", lambda: store.head(id))
    ask("records", lambda: list(store.read(id).records()))
    ask("history", lambda: list(store.read(id).history()))
    ask("damage", lambda: store.read(id).damage)
    if briefly:
        return said
    ask("reversed", lambda: [record.seq for record in store.read(id).records(reverse=True)])
    ask("some", lambda: [record.seq for record in store.read(id).records(after=4, before=9, limit=3)])
    ask("mended history", lambda: list(store.read(id).history(repair=True)))
    ask("newest", lambda: list(store.read(id).history(2)))
    ask("usage", lambda: (store.read(id).usage(), store.read(id).usage(by="record")))
    ask("by seq", lambda: store.read(id).get(7))
    ask("by id", lambda: store.read(id).get("key-3"))
    ask("events", lambda: list(store.read(id).records(kinds="event")))
    ask("subs", lambda: [head.id for head in store.read(id).subs()])
    ask("documents", lambda: store.read(id).documents.list())
    ask("document", lambda: store.read(id).documents.get("screen.json"))
    ask("far document", lambda: store.read(id).documents.get("Ü" * 200))
    ask("followed", lambda: [record.seq for _, record, _ in store.follow(id, after=-1, timeout=0)])
    ask("all followed", lambda: len(list(store.follow(after=-1, timeout=0))))
    ask("list", lambda: [head.id for head in store.list(limit=None, empty=True)])
    ask("page", lambda: [head.id for head in store.list(limit=2, order="created", agent="coder")])
    ask("latest", lambda: store.latest())
    ask("resolve", lambda: store.resolve(id[:4]))
    ask("named", lambda: (store.names.get("agent/coder/current"), store.names.list(), store.active()))
    ask("state", lambda: (store.state("settings").all(), store.state("U" * 300).all()))
    ask("locks", lambda: store.locks())
    ask("cleanup", lambda: store.cleanup(older_than=timedelta(days=9), dry_run=True))
    return said


def shown(records: list[Record]) -> list[tuple[Any, ...]]:
    """What records say, without what only stands for something else."""
    return [
        (r.seq, r.kind, r.data, r.id, r.at, r.batch, r.usage, r.extra)
        for r in records
        if r.seq and not (r.kind == "compacted" and r.data.get("lost"))
    ]


def tree(root: Path) -> dict[str, bytes]:
    """All that is in a folder but the catalog, and what is set aside."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if not name.startswith(("catalog.", "aside")) and path.is_file() and not path.is_symlink():
            found[name] = path.read_bytes()
    return found


def log_of(root: Path, id: str) -> Path:
    return root / "sessions" / f"{file_key(id)}.jsonl"


def set_aside(root: Path, id: str, why: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((root / "aside").glob(f"*{file_key(id)}*.{why}"))]


def places(findings: list[Finding], id: str, kind: str) -> list[int]:
    """The bytes that findings name."""
    return [int(f.place.rpartition(":")[2]) for f in findings if f.session == id and f.kind == kind]


KINDS_THAT_STAY = {"aside", "foreign", "document", "unreadable", "blob"}
"""What no repair can do anything about."""


def _damage_a_log(rng: Random, root: Path, counted: Counter[str]) -> None:
    id = rng.choice(SESSIONS)
    path = log_of(root, id)
    other = log_of(root, NEIGHBOUR).read_bytes().splitlines(keepends=True)
    log = damages.damaged(path.read_bytes().splitlines(keepends=True), other, rng)
    raw = log.raw
    records, reader, refused = read(raw, [])
    known = facts(read(b"".join(log.sound), [])[0])
    about = (id[:9], log.told)
    anonymous = id == FAR and not (records and records[0].kind == "session")  # only its first line names it
    store = opened(root)
    live = opened(root) if rng.random() < 0.5 else None
    if live is not None:
        asked(live, id, briefly=True)
    if rng.random() < 0.5:
        path.write_bytes(raw)  # the very file that everybody has open
    else:
        path.with_name("x~tmp").write_bytes(raw)
        path.with_name("x~tmp").rename(path)
    before = tree(root)
    counted["logs"] += 1
    counted["blows"] += len(log.told)

    # -- what is read of it: by who had it open, by who comes, without the catalog
    bare = root.with_name("bare")
    shutil.rmtree(bare, ignore_errors=True)
    shutil.copytree(root, bare)
    for name in ("catalog.db", "catalog.db-wal", "catalog.db-shm"):
        (bare / name).unlink(missing_ok=True)
    whole = sorted(log.safe())
    excused = bool(refused or not records)
    excused |= bool(records) and records[0].kind == "session" and records[0].data.get("id") != id
    with opened(bare) as alone:
        for reads in (store, alone, *([] if live is None else [live])):
            said = asked(reads, id, briefly=reads is live)
            if not excused:
                assert not isinstance(said["records"], str), (said["records"], about)
                got = {record.seq for record in said["records"]}
                assert got >= {json.loads(log.sound[n])["seq"] for n in whole}, about
                assert shown(said["records"]) == shown(records), about
            if not excused and reads is not live:
                assert said["reversed"] == [record.seq for record in reversed(said["records"])], about
                assert said["followed"] == [record.seq for record in said["records"]], about
            if reads is alone and not excused:
                assert said["history"] in (fold(records), "Conflict"), about
                assert said["history"] != "Conflict" or said["head"].reach > said["head"].seq, about
                assert said["head"].messages == sum(record.kind == "message" for record in records) or any(
                    record.kind == "compacted" for record in records
                ), about
                assert anonymous or id in said["list"], about
            assert reads is live or NEIGHBOUR in said["list"], about
    assert tree(root) == before, about  # looking changes nothing

    # -- doctor
    findings = store.doctor().findings
    assert tree(root) == before, about
    kinds = {finding.kind for finding in findings if finding.session == id}
    if not excused:
        assert places(findings, id, "damage") == [wrong.offset for wrong in reader.damage], about
        assert ("torn" in kinds) == bool(reader.unterminated or reader.torn), about
    elif raw and not anonymous:
        assert kinds & {"unborn", "unreadable"}, about
    report = store.doctor(repair=True).findings
    counted["repaired"] += any(finding.repaired for finding in report)
    again = store.doctor().findings
    assert {finding.kind for finding in again} <= KINDS_THAT_STAY, (again, about)
    assert excused or "unreadable" not in {finding.kind for finding in again}, (again, about)
    after = tree(root)
    mine = str(path.relative_to(root))
    gone = f"documents/{file_key(id)}/"
    for name in before.keys() | after.keys():
        if name.startswith(gone) and name not in after:  # with its log, and set aside like that
            (there,) = (root / "aside").glob(f"*.documents.{file_key(id)}.left/{name.removeprefix(gone)}")
            assert mine not in after, about
            assert there.read_bytes() == before[name], about
        else:
            assert name == mine or before.get(name) == after.get(name), (name, about)

    # -- what was there is there, or aside
    new = after.get(mine)
    if new != raw:
        (kept,) = set_aside(root, id, "damaged") or [new or b""]
        (torn,) = set_aside(root, id, "torn") or set_aside(root, id, "foreign") or [b""]
        copies = [begin + torn for begin in (kept, kept.removesuffix(b"\n"))]  # a lost newline was put in
        assert raw.rstrip(b"\0") in [copy.rstrip(b"\0") for copy in copies], about
    if not excused:
        assert new is not None
        again_read = read(new, [])[1]
        assert not again_read.damage, about
        assert not again_read.torn, about
        if not [r for r in records if facts([r]) != {r.seq: known.get(r.seq)}]:
            assert not strict.read(new).torn, about
        with opened(root) as fresh:
            for reads in (store, fresh, *([] if live is None else [live])):
                said = asked(reads, id, briefly=True)
                assert shown(said["records"]) == shown(records), about
                assert said["history"] in (fold(said["records"]), "Conflict"), about
                assert said["damage"] == [], about

    # -- and it goes on
    for reads in (store, *([] if live is None else [live])):
        was = tree(root)
        try:
            last = reads.append(id, user("on"))
        except HansardError:
            assert excused, about
            assert tree(root) == was, about
        else:
            assert next(reads.read(id).records(reverse=True)) == last
            assert reads.read(id).get(last.seq) == last
    if live is not None:
        live.close()
    store.close()
    counted["records shown"] += len(records)
    counted["refused"] += excused


@pytest.mark.rule("C1", "C2", "C3", "C4", "C5", "W2", "H9")
def test_a_damaged_log_loses_nothing_sound_and_comes_out_of_a_repair_whole(
    sound: Path, tmp_path: Path, full: bool, figures: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: Counter[str] = Counter()

    def once(rng: Random) -> None:
        monkeypatch.setattr(logs, "MARK", rng.choice([300, 1 << 16]))
        monkeypatch.setattr(logs, "PIECE", rng.choice([100, 5000, 1 << 18]))
        root = tmp_path / "store"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(sound, root)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _damage_a_log(rng, root, counted)

    each(2400 if full else 8, 10**9 if full else 200, once)
    figures("fuzz-repairing", **counted)


# -- all that stands beside the logs

ABSURD: list[Any] = [None, True, 0, -1, 2, 10**30, 1e300, "", "x", "\0", "Ü" * 600, "a/b", [], [[]], {}]
ABSURD += [{"a": {"b": []}}, ["x"], {"": 1}, "2026-05-01", "2026-05-01T12:00:00", "0001-01-01T00:00:00+23:59"]
ABSURD += ["9999-12-31T23:59:59-23:59"]


def _spoiled_json(rng: Random, raw: bytes) -> bytes:
    """A JSON object in which something is of another type, or says something absurd."""
    first, _, rest = raw.partition(b"\n")
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        return b"{}"
    holder, key = {"": value}, ""
    while isinstance(holder[key], dict) and holder[key] and rng.random() < 0.8:
        holder = holder[key]
        key = rng.choice(list(holder))
    holder[key] = rng.choice(ABSURD)
    return json.dumps(value).encode() + b"\n" + rest


def _spoil(rng: Random, path: Path) -> str:
    """Something happens to a file, whatever it is."""
    raw = path.read_bytes() if path.is_file() else b""
    at = rng.randrange(len(raw) + 1)
    what = rng.choice(["bits", "cut", "insert", "zeros", "garbage", "deep", "json", "json", "json", "file"])
    if what == "file":
        what = rng.choice(["gone", "folder", "full folder", "dangling", "loop", "link", "pipe", "huge"])
        if path.exists() or path.is_symlink():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        if "folder" in what:
            path.mkdir()
            if what == "full folder":
                (path / "x").write_bytes(b"x")
        elif what == "pipe":
            os.mkfifo(path)
        elif what == "huge":
            path.write_bytes(b'{"x": "' + b"x" * 3_000_000)
        elif what != "gone":
            ends = {"dangling": "nowhere", "loop": path.name, "link": "/dev/null"}
            path.symlink_to(ends[what])
        return what
    if not path.is_file():
        return "nothing"
    cut = rng.choice([1, 20, len(raw)])
    path.write_bytes(
        {
            "bits": bytes(byte ^ (1 << rng.randrange(8)) if rng.random() < 1 / cut else byte for byte in raw),
            "cut": raw[:at],
            "insert": raw[:at] + rng.choice(damages.GARBAGE)(rng) + raw[at:],
            "zeros": raw[:at] + bytes(len(raw) - at),
            "garbage": rng.choice(damages.GARBAGE)(rng),
            "deep": rng.choice([b"[", b'{"names":', b'{"x":', b'{"session":['])
            * rng.choice([200, 3000, 60_000]),
            "json": _spoiled_json(rng, raw),
        }[what]
    )
    return what


def _leave_something(rng: Random, root: Path) -> str:
    """A file or a folder of somebody else's, with a name that nobody expects."""
    folder = root / rng.choice(
        ["", "sessions", "names", "state", "locks", "documents/" + TALKED, "blobs", "aside"]
    )
    name = rng.choice(
        [
            "x",
            "x.json",
            "x.jsonl",
            "x.lock",
            "X.jsonl",
            ".jsonl",
            ".json",
            ".lock",
            "=.jsonl",
            "=ff.jsonl",
            "..x",
            " ",
        ]
        + [
            "x.jsonl~tmp",
            "a.json~tmp",
            "catalog.db-journal",
            "catalog.check",
            "~tmp",
            "ü.json",
            "a=2F.json",
            "x\ny",
        ]
        + ["x" * 100 + "=~" + "0" * 64 + end for end in (".jsonl", ".json", ".lock", "")]
    )
    folder.mkdir(exist_ok=True)
    path = folder / name
    if path.exists():
        return "nothing"
    if rng.random() < 0.3:
        path.mkdir()
    else:
        path.write_bytes(
            rng.choice([b"", b"x", b"{}\n", b"[" * 5000, LOG[0], b"".join(LOG), rng.randbytes(99)])
        )
    return f"{folder.name}/{name[:9]}"


def _rewritten(store: Store, rng: Random) -> dict[str, Any]:
    """What becomes of it when all of it is written anew."""
    said: dict[str, Any] = {}
    deeds: dict[str, Callable[[], Any]] = {
        "state": lambda: store.state("settings").set("theme", "light"),
        "far state": lambda: store.state("U" * 300).update(lambda state: state.update(b=2)),
        "unset": lambda: store.state("settings").delete("theme"),
        "name": lambda: store.names.set("agent/coder/current", NEIGHBOUR),
        "no name": lambda: store.names.delete("other"),
        "activate": lambda: store.activate(NEIGHBOUR),
        "blob": lambda: store.blobs.put(b"a picture"),
        "get blob": lambda: store.blobs.get(store.blobs.put(b"another")),
        "append": lambda: store.append(TALKED, user("on")),
        "create": lambda: store.create("new", eager=True).close(),
        "fork": lambda: store.fork(TALKED, id="forked").close(),
        "vacuum": lambda: store.vacuum(TALKED),
        "delete": lambda: store.delete(VACUUMED),
    }

    def write(name: str) -> None:
        with only_ours(said, name):
            said[name] = deeds[name]()

    def with_lease() -> None:
        with store.open(TALKED) as session:
            for name in ("screen.json", "Ü" * 200, "new"):
                with only_ours(said, name):
                    session.documents.put(name, b"anew")
                    said[name] = session.documents.get(name)
                    session.documents.delete(name)
            session.clear()

    with only_ours(said, "lease"):
        with_lease()
    for name in rng.sample(sorted(deeds), len(deeds)):
        write(name)
    return said


def _damage_the_rest(rng: Random, root: Path, counted: Counter[str]) -> None:
    for id in (*SESSIONS, "x/Y"):  # what a crash left
        (root / "locks" / f"{file_key(id)}.lock").write_bytes(
            b'{"session":"x","pid":1,"since":"2026-05-01T12:00:00Z"}'
        )
    files = [path for path in sorted(root.rglob("*")) if path.parent.name != "sessions"]
    catalog = [path for path in files if path.name.startswith("catalog")]
    shelves = [path for path in files if path.parts[-3] == "documents" or path.suffix == ".json"]
    about = []
    for _ in range(rng.choice([1, 1, 2, 4])):
        path = rng.choice(rng.choice([files, catalog, shelves]))
        lost = not path.parent.is_dir() or path.parent.is_symlink() or path == root / "sessions"
        if not lost and not (path.name == "hansard.json" and rng.random() < 0.8):
            about.append((str(path.relative_to(root))[:40], _spoil(rng, path)))
    with suppress(OSError):  # what is no folder any more takes nothing in
        about.append(("left", _leave_something(rng, root)))
    said_by_logs = {log_of(root, id).name: log_of(root, id).read_bytes() for id in (*SESSIONS, NEIGHBOUR)}
    before = tree(root)
    counted["stores"] += 1
    counted["blows"] += len(about)
    try:
        store = opened(root)
    except HansardError:
        assert tree(root) == before, about
        counted["refused"] += 1
        return
    try:
        said = asked(store, TALKED)
        assert isinstance(said["records"], list), (said["records"], about)
        assert isinstance(said["history"], list), (said["history"], about)
        assert {TALKED, VACUUMED, FAR, NEIGHBOUR} <= set(said["list"]), (said["list"], about)
        for repair in (False, True, False):
            with only_ours(said, "doctor"):
                findings = store.doctor(repair=repair).findings
                assert not any(f.kind == "damage" for f in findings), (findings, about)
        left = {"locks", "namespaces"}  # lock files of nobody are swept
        after = tree(root)
        gone = {
            name
            for name in before.keys() - after.keys()
            if name.partition("/")[0] not in left and before[name]
        }
        kept = [path.read_bytes() for path in (root / "aside").rglob("*") if path.is_file()]
        assert all(before[name] in kept for name in gone), (gone, about)
        assert all(
            after[name] == before[name] for name in before.keys() & after.keys() if name[:5] != "locks"
        ), about
        assert all((root / "sessions" / name).read_bytes() == said_by_logs[name] for name in said_by_logs), (
            about
        )
        _rewritten(store, rng)
        kept = [path.read_bytes() for path in (root / "aside").rglob("*") if path.is_file()]
        for name in ("names/agent.json", "names/active.json", "state/settings.json"):
            raw = before.get(name, b"{}")
            with suppress(ValueError, RecursionError):
                json.loads(raw)
                continue
            now = tree(root).get(name)
            assert now in (raw, None) or raw in kept, (name, about)
            counted["illegible and rewritten"] += now != raw
        neighbour = log_of(root, NEIGHBOUR)
        assert neighbour.read_bytes() == said_by_logs[neighbour.name], about
    finally:
        store.close()
    with suppress(HansardError), opened(root) as fresh:
        asked(fresh, TALKED)


@pytest.mark.rule("C3", "C4", "C5", "S5", "E3")
def test_whatever_stands_beside_the_logs_only_our_errors_come_out_and_no_session_is_hidden(
    sound: Path, tmp_path: Path, full: bool, figures: Callable[..., None]
) -> None:
    counted: Counter[str] = Counter()

    def once(rng: Random) -> None:
        root = tmp_path / "store"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(sound, root)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _damage_the_rest(rng, root, counted)

    each(2400 if full else 8, 10**9 if full else 200, once)
    figures("fuzz-beside-the-logs", **counted)
