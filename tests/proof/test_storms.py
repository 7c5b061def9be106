"""Many processes at once, and nothing is lost, doubled, out of order or seen by halves.

Each process notes what it asked for and what came of it. At the end the logs are read by a reader that shares
nothing with the library, and have to say what all of the notes say together.
"""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import hansard
from tests.proof import reader
from tests.proof.nursery import Child, Nursery

Acks = list[dict[str, Any]]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


def more(request: pytest.FixtureRequest, usual: int, full: int) -> int:
    """How much of it there is to be."""
    return full if request.config.getoption("--full") else usual


def begun_together(children: list[Child]) -> None:
    for child in children:
        child.hear()
    for child in children:
        child.tell()


def begin_main(root: Path) -> None:
    with hansard.open(root) as store:
        store.append("main", {"role": "user", "content": "the beginning"}, create=True)


def say_the_end(root: Path, *ids: str) -> None:
    with hansard.open(root) as store:
        for id in ids:
            store.append(id, {"role": "user", "content": "the end"})


# -- one session ------------------------------------------------------------------------------------


def find_all_said(root: Path, acks: Acks) -> dict[str, int]:
    """What was acknowledged is there once, in its place and in order; what was cancelled wholly or not at
    all; and nothing else is."""
    log = reader.logs(root)["main"]
    there = {seq: payload["content"] for seq, payload in log.messages().items()}
    assert list(there) == list(range(1, log.last + 1))
    assert not log.torn
    done = [ack for ack in acks if "said" in ack]
    for ack in done:
        first = ack["seqs"][0]
        assert ack["seqs"] == list(range(first, first + len(ack["said"])))
        assert [there[seq] for seq in ack["seqs"]] == ack["said"]
    unknown = [ack["maybe"] for ack in acks if "maybe" in ack]
    counted = Counter(there.values())
    for contents in unknown:
        assert [counted[content] for content in contents] in ([0] * len(contents), [1] * len(contents))
    told = [content for ack in done for content in ack["said"]] + [one for lost in unknown for one in lost]
    assert set(there.values()) - set(told) <= {"the beginning", "the end"}
    assert max(counted.values()) == 1

    writers: dict[str, list[int]] = defaultdict(list)  # each says one thing after the other
    for ack in done:
        writers[ack["said"][0].split()[0]] += ack["seqs"]
    for who, seqs in writers.items():
        assert seqs == sorted(seqs), f"what {who} said is there in another order"

    with hansard.open(root) as store:
        assert [record.seq for record in store.read("main").records()] == list(range(log.last + 1))
        assert not store.doctor()
    return {
        "writers": len(writers),
        "calls acknowledged": len(done),
        "messages": len(there),
        "calls cancelled and repeated": sum(bool(ack.get("again")) for ack in done),
        "calls cancelled": len(unknown),
        "of those stored": sum(counted[contents[0]] for contents in unknown),
    }


def find_all_followed(told: dict[str, Any], root: Path) -> None:
    """The follower was told all that is there, each once and in order."""
    log = reader.logs(root)["main"]
    there = [[line["seq"], line["data"].get("content")] for line in log.records]
    assert told["followed"] == there


@pytest.mark.rule("W2", "W3", "W5", "W12", "E7")
def test_eight_processes_of_two_threads_append_to_one_session_and_all_of_it_is_there_in_order(
    root: Path, request: pytest.FixtureRequest, figures: Callable[..., None]
) -> None:
    begin_main(root)
    calls = more(request, 150, 3000)
    with Nursery(patience=90 + calls) as nursery:
        onlookers = [nursery.begin(look, str(root)) for look in ("look_on", "look_closely")]
        for onlooker in onlookers:
            onlooker.hear()
        writers = [nursery.begin("append_in_threads", str(root), f"p{n}", n, calls) for n in range(8)]
        begun_together(writers)
        acks = [ack for writer in writers for ack in writer.result()]
        say_the_end(root, "main")
        for onlooker in onlookers:
            onlooker.tell()
        told, closely = [onlooker.result() for onlooker in onlookers]
    counted = find_all_said(root, acks)
    find_all_followed(told, root)
    seen = {"onlooker": told["met"], "close onlooker": closely["met"]}
    figures("storm-appends", processes=8, threads=2, **counted, **seen)


@pytest.mark.rule("W2", "W4", "W5", "E7")
def test_tasks_that_are_cancelled_at_any_point_append_to_one_session_wholly_or_not_at_all(
    root: Path, request: pytest.FixtureRequest, figures: Callable[..., None]
) -> None:
    begin_main(root)
    calls = more(request, 100, 2000)
    with Nursery(patience=90 + calls) as nursery:
        onlooker = nursery.begin("look_on", str(root))
        onlooker.hear()
        writers = [nursery.begin("append_in_tasks", str(root), f"p{n}", n, calls) for n in range(4)]
        begun_together(writers)
        acks = [ack for writer in writers for ack in writer.result()]
        say_the_end(root, "main")
        onlooker.tell()
        told = onlooker.result()
    counted = find_all_said(root, acks)
    find_all_followed(told, root)
    assert counted["calls cancelled"]
    assert counted["calls cancelled and repeated"]
    figures("storm-appends-cancelled", processes=4, tasks=4, **counted, onlooker=told["met"])


@pytest.mark.rule("E9", "W2", "S3")
def test_forked_children_find_what_they_inherited_closed_and_write_beside_their_parents(
    root: Path, request: pytest.FixtureRequest, figures: Callable[..., None]
) -> None:
    """They are forked while other threads of their parents are writing."""
    begin_main(root)
    children = more(request, 20, 300)
    with Nursery(patience=90 + children) as nursery:
        parents = [nursery.begin("fork_off", str(root), f"p{n}", n, children, 6) for n in range(4)]
        begun_together(parents)
        acks = [ack for parent in parents for ack in parent.result()]
    counted = find_all_said(root, acks)
    for n in range(4):
        own = reader.logs(root)[f"own-p{n}"].messages().values()
        assert [payload["content"] for payload in own] == ["mine", "still mine"]
    figures("storm-forks", processes=4, threads=2, children=4 * children, **counted)


# -- many sessions ----------------------------------------------------------------------------------

STILL = [f"still-{n}" for n in range(10)]
"""Sessions that nobody touches."""


def begin_still(root: Path) -> None:
    with hansard.open(root) as store:
        for id in STILL:
            store.append(id, {"role": "user", "content": f"{id} 0 0/1"}, create=True)


def find_storm(root: Path, acks: Acks) -> dict[str, int]:
    """The logs say what all the calls together say, and so does the list."""
    met: Counter[str] = Counter()
    logs = reader.logs(root)
    by_uid = {log.uid: log for log in logs.values()}
    assert not any(log.torn for log in logs.values())
    removals = defaultdict(list)
    deleted, maybe_deleted = set(), set()
    for ack in acks:
        if ack["op"] == "delete" and "uid" in ack and "refused" not in ack:
            removals[ack["id"]].append(ack)
            if "unknown" in ack:
                maybe_deleted.add(ack["uid"])
            elif ack["gone"]:
                deleted.add(ack["uid"])
    assert not deleted & set(by_uid), "what was deleted is there"

    own = {  # what was said there, and not copied from another session
        log.uid: {
            line["seq"]: line["data"]["content"]
            for line in log.records
            if line["kind"] == "message" and "origin" not in line
        }
        for log in logs.values()
    }
    where: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for uid, contents in own.items():
        for seq, content in contents.items():
            where[content].append((uid, seq))
    assert {content for content, places in where.items() if len(places) > 1} <= {"the end"}, "stored twice"

    known = {f"{id} 0 0/1" for id in STILL} | {"the end"}
    for ack in acks:
        met["calls"] += 1
        outcome = "refused" if "refused" in ack else "cancelled" if "unknown" in ack else "done"
        met[outcome] += 1
        known.update(ack.get("said", ()))
        if "seqs" in ack:
            _find_said(ack, logs, by_uid, own, where, removals, deleted | maybe_deleted)
            met["messages acknowledged"] += len(ack["said"])
        elif "unknown" in ack:
            _find_whole_or_not(ack, by_uid, where)
        elif "refused" in ack:
            assert not any(where[content] for content in ack.get("said", ())), (
                f"{ack} was refused, and is there"
            )
        if ack["op"] == "fork" and "at" in ack:
            met["forks compared"] += _find_forked(ack, by_uid, deleted | maybe_deleted)
    assert set(where) <= known

    titles: dict[str, tuple[int, str]] = {}
    unsure = {ack["uid"] for ack in acks if "title" in ack and "unknown" in ack}
    for ack in acks:
        if "seq" in ack:
            titles[ack["uid"]] = max(titles.get(ack["uid"], (-1, "")), (ack["seq"], ack["title"]))
    for uid, log in by_uid.items():
        if uid not in unsure:
            wanted = titles.get(uid, (-1, ""))[1]
            assert not wanted or log.title() == wanted

    with hansard.open(root) as store:
        heads = {head.id: head for head in store.list(limit=None, empty=True)}
        assert heads.keys() == logs.keys()
        for id, log in logs.items():
            head = heads[id]
            assert (head.uid, head.seq, head.messages) == (log.uid, log.last, log.count())
            assert not log.title() or head.title == log.title()
            assert store.read(id).history() == log.history()
        assert store.locks() == []
        report = store.doctor()
        assert not report, report
    met["sessions at the end"] = len(logs)
    met["sessions deleted"] = len(deleted)
    met["sessions vacuumed"] = sum(bool(log.taken_out()) for log in logs.values())
    return dict(met)


def _find_said(
    ack: dict[str, Any],
    logs: dict[str, reader.Log],
    by_uid: dict[str, reader.Log],
    own: dict[str, dict[int, str]],
    where: dict[str, list[tuple[str, int]]],
    removals: dict[str, Acks],
    gone: set[str],
) -> None:
    """What was acknowledged is there, or was vacuumed, or was deleted with its session."""
    log = by_uid.get(ack["uid"]) if "uid" in ack else logs.get(ack["id"])
    for seq, content in zip(ack["seqs"], ack["said"], strict=True):
        if log is not None and own[log.uid].get(seq) == content:
            continue
        assert not where[content], f"{content} of {ack} is at {where[content]}"
        if log is not None and any(seq in stretch for stretch in log.taken_out()):
            continue
        if "uid" in ack:
            assert ack["uid"] in gone, f"{content} of {ack} is nowhere"
        else:
            assert any(removal["ended"] > ack["began"] for removal in removals[ack["id"]]), (
                f"{ack} is nowhere"
            )


def _find_whole_or_not(
    ack: dict[str, Any], by_uid: dict[str, reader.Log], where: dict[str, list[tuple[str, int]]]
) -> None:
    """Of what was cancelled all is there, but for what was vacuumed, or nothing."""
    said = ack.get("said", [])
    places = {i: where[content][0] for i, content in enumerate(said) if where[content]}
    for uid, first in {(uid, seq - i) for i, (uid, seq) in places.items()}:
        taken = by_uid[uid].taken_out()
        for i in set(range(len(said))) - set(places):
            assert any(first + i in stretch for stretch in taken), f"a half of {ack} is there"


def _find_forked(ack: dict[str, Any], by_uid: dict[str, reader.Log], gone: set[str]) -> bool:
    """A fork has the history of its parent as it was then. Whether both are there still, to be compared."""
    fork, parent = by_uid.get(ack["uid"]), by_uid.get(ack["from"])
    assert fork is not None or ack["uid"] in gone
    if fork is None or parent is None or fork.taken_out() or parent.taken_out():
        return False
    assert fork.records[0]["data"]["forked_at"] == ack["at"]
    copied = [line["data"] for line in fork.records if "origin" in line]
    assert copied == parent.history(ack["at"])
    return True


def find_followed(root: Path, told: list[tuple[str, int, str | None, Any]]) -> None:
    """The follower was told of every message that is there once, in order."""
    heard: dict[str, list[tuple[int, Any]]] = {}
    now: dict[str, str] = {}  # which session of that id it is
    for id, seq, uid, content in told:
        if uid is not None:
            assert uid not in heard, f"session {id} began twice"
            now[id] = uid
        records = heard.setdefault(now.get(id, id), [])
        assert not records or records[-1][0] < seq, f"record {seq} of {id} came after {records[-1][0]}"
        records.append((seq, content))
    for id, log in reader.logs(root).items():
        messages = {seq: payload["content"] for seq, payload in log.messages().items()}
        known = dict(heard[log.uid if id not in STILL else id])
        for seq, content in messages.items():
            if id not in STILL or content == "the end":
                assert known.get(seq) == content, f"record {seq} of {id} was never told"


@pytest.mark.rule("W2", "W9", "W10", "W11", "W12", "H2", "H7", "H8", "L3", "L1", "E7", "C3", "S2")
@pytest.mark.parametrize("work", ["storm", "storm_in_tasks"])
def test_a_storm_over_five_hundred_sessions_leaves_what_all_of_it_says_and_nobody_sees_a_half(
    work: str, root: Path, request: pytest.FixtureRequest, figures: Callable[..., None]
) -> None:
    """Created, appended to, renamed, checkpointed, truncated, deleted, forked, vacuumed, while others list,
    follow and read; and the same through `hansard.aio` by tasks that are cancelled at random points."""
    begin_still(root)
    processes = 8 if work == "storm" else 4
    calls = more(request, 500, 8000) if work == "storm" else more(request, 250, 3000)
    with Nursery(patience=90 + calls) as nursery:
        lister = nursery.begin("list_all", str(root), STILL)
        onlooker = nursery.begin("read_all", str(root), 0)
        follower = nursery.begin("follow_all", str(root))
        for child in (lister, onlooker, follower):
            child.hear()
        stormers = [nursery.begin(work, str(root), f"p{n}", n, calls) for n in range(processes)]
        begun_together(stormers)
        acks = [ack for stormer in stormers for ack in stormer.result()]
        left = sorted(reader.logs(root))
        follower.tell(left)
        say_the_end(root, *left)
        lister.tell()
        onlooker.tell()
        seen = {"lister": lister.result()["met"], "onlooker": onlooker.result()["met"]}
        followed = follower.result()["told"]
    counted = find_storm(root, acks)
    find_followed(root, followed)
    seen["follower"] = {"records": len(followed)}
    figures(f"storm-sessions{'-cancelled' * (work != 'storm')}", processes=processes, **counted, **seen)


# -- leases -----------------------------------------------------------------------------------------

LEFT = [
    b"",
    b'{"session":"main","pid":1,"started":"1"}\n',
    b'{"session":"main","pid":4194303,"started":"77"}\n',
    b"\xff{" * 3000,
]
"""What a holder that died may have left in the lock file."""


def find_apart(held: list[list[int]], root: Path) -> None:
    """No two held the lease at once, and what they said while they held it stands in that order."""
    held.sort()
    for before, behind in pairwise(held):
        assert before[1] < behind[0], f"one held it until {before[1]}, another from {behind[0]}"
    said = [seq for _, _, seq in held if seq is not None]
    assert said == sorted(said)
    log = reader.logs(root)["main"]
    there = [seq for seq, payload in log.messages().items() if payload["content"] == "held"]
    assert set(said) <= set(there)


@pytest.mark.rule("S1", "S2", "S3", "S5", "W3")
def test_twelve_contenders_never_hold_a_lease_at_once_and_each_round_has_a_winner(
    root: Path, request: pytest.FixtureRequest, figures: Callable[..., None]
) -> None:
    """For a lease that is free, one whose lock file was left behind, and one whose holder was killed; some
    are killed while they hold it, some wherever they are."""
    rounds = more(request, 1000, 20_000)
    begin_main(root)
    lock = root / "locks" / "main.lock"
    rng = random.Random(5)
    met: Counter[str] = Counter()
    held: list[list[int]] = []
    with Nursery(patience=90 + rounds) as nursery:
        contenders = [nursery.begin("contend", str(root)) for _ in range(12)]
        for contender in contenders:
            contender.hear()
        for n in range(rounds):
            dies, killed = n % 20 == 3, rng.randrange(12) if n % 25 == 7 else None
            if n % 3 == 0:
                lock.write_bytes(LEFT[n % len(LEFT)])
            met["rounds with a lock file left behind" if lock.exists() else "rounds with none"] += 1
            asked = {"hold": rng.choice([0, 0, 0.0005]), "append": rng.random() < 0.2, "die": dies}
            patient = set(rng.sample(range(12), 2)) - {killed}
            for i, contender in enumerate(contenders):
                long = 60 if killed is not None else 0.004
                contender.tell({**asked, "timeout": long if i in patient else 0})
            if killed is not None:
                time.sleep(rng.uniform(0, 0.003))
                contenders[killed].kill()
                met["killed wherever they were"] += 1
            winners = []
            for i, contender in enumerate(contenders):
                said = contender.rest() if i == killed else [contender.hear()]
                won = [one for one in said if one is not None]
                winners += won
                if i == killed or (dies and won):
                    met["killed while they held it"] += i != killed
                    contender.wait()
                    contenders[i] = nursery.begin("contend", str(root))
                    contenders[i].hear()
            assert winners, f"round {n} has no winner"
            met["won"] += len(winners)
            held += winners
    find_apart(held, root)
    figures("storm-leases", contenders=12, rounds=rounds, overlaps=0, **met)


@pytest.mark.rule("S1", "S2", "S5", "W4")
def test_contenders_that_stop_waiting_leave_the_lease_to_the_others(
    root: Path, request: pytest.FixtureRequest, figures: Callable[..., None]
) -> None:
    """Twelve tasks in four processes, through `hansard.aio`, cancelled at random points."""
    rounds = more(request, 300, 5000)
    begin_main(root)
    rng = random.Random(6)
    met: Counter[str] = Counter()
    held: list[list[int]] = []
    with Nursery(patience=90 + rounds) as nursery:
        processes = [nursery.begin("contend_in_tasks", str(root)) for _ in range(4)]
        for process in processes:
            process.hear()
        for n in range(rounds):
            for process in processes:
                tasks = [{"timeout": 60, "cancel": None}]
                for _ in range(2):
                    soon = rng.choice([None, 0, rng.uniform(0, 0.005), rng.uniform(0, 0.005)])
                    tasks.append({"timeout": rng.choice([0, 0, 0.005]), "cancel": soon})
                for task in tasks:
                    task |= {"hold": rng.choice([0, 0.0005]), "append": rng.random() < 0.2}
                process.tell(tasks)
            told = [one for process in processes for one in process.hear()]
            winners = [one for one in told if isinstance(one, list)]
            assert len(winners) >= 4, f"round {n}: who waits long enough gets it"
            met["cancelled"] += told.count("cancelled")
            met["won"] += len(winners)
            held += winners
        with hansard.open(root) as store, store.open("main", timeout=60):
            pass
    find_apart(held, root)
    figures("storm-leases-cancelled", contenders=12, rounds=rounds, overlaps=0, **met)
