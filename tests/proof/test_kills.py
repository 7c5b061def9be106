"""A writer is killed with SIGKILL, wherever it is, and what it had been told was stored is there.

What is left on the disk is read twice: by a reader that shares nothing with the library, before anybody else
has touched it, and by the library. A plain model says what has to be there.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

import hansard
from tests.proof import reader
from tests.proof.actors import WORKS, message, numbers
from tests.proof.nursery import Nursery

LIVES = 5
"""Writers that die in the same store, one after the other."""


@dataclass
class Story:
    """One session as it has to be."""

    said: dict[int, int] = field(default_factory=dict)
    """The number of the record of each message, and which message it is."""
    gone: set[int] = field(default_factory=set)
    """Records that a vacuum has taken out."""
    seen: list[int] = field(default_factory=list)
    """The messages that the model sees."""
    last: int = 0
    changed: int = -1

    def say(self, numbers: list[int]) -> list[int]:
        for n in numbers:
            self.last += 1
            self.said[self.last] = n
            self.seen.append(n)
        return list(range(self.last - len(numbers) + 1, self.last + 1))

    def show(self, numbers: list[int]) -> None:
        self.last += 1
        self.seen, self.changed = numbers, self.last

    def vacuum(self) -> None:
        self.gone |= {seq for seq, n in self.said.items() if seq < self.changed and n not in self.seen}

    def differs(self, log: reader.Log) -> str:
        """How a log is not this."""
        messages = log.messages()
        there = {seq: n for seq, n in self.said.items() if seq not in self.gone}
        if {seq: payload["n"] for seq, payload in messages.items()} != there:
            return f"messages {[(seq, payload['n']) for seq, payload in messages.items()]} and not {there}"
        if any(payload != message(payload["n"]) for payload in messages.values()):
            return "a message is not as it was"
        if log.last != self.last:
            return f"{log.last} is the last record and not {self.last}"
        if numbers(log.history()) != self.seen:
            return f"the model sees {numbers(log.history())} and not {self.seen}"
        taken = log.taken_out()
        if not all(any(seq in stretch for stretch in taken) for seq in self.gone):
            return f"{self.gone} are gone without a word: {taken}"
        return ""


Sessions = dict[str, Story]


def after(sessions: Sessions, op: dict[str, Any]) -> tuple[Sessions, Any]:
    """The sessions when an operation is done, and what it answers."""
    then = deepcopy(sessions)
    what, id = op["op"], op["session"]
    answer: Any = None
    if what == "fork":
        then[id] = Story()
        then[id].say(then["main"].seen)
    elif what == "delete":
        del then[id]
    elif what == "checkpoint":
        then[id].show(op["numbers"])
    elif what == "truncate":
        if len(then[id].seen) > op["keep"]:
            then[id].show(then[id].seen[-op["keep"] :])
    elif what == "vacuum":
        then[id].vacuum()
    else:
        answer = then[id].say(op["numbers"])
    return then, answer


def differs(logs: dict[str, reader.Log], sessions: Sessions) -> str:
    """How the logs of a store are not these sessions."""
    if logs.keys() != sessions.keys():
        return f"sessions {sorted(logs)} and not {sorted(sessions)}"
    told = ((id, story.differs(logs[id])) for id, story in sessions.items())
    return "; ".join(f"{id}: {wrong}" for id, wrong in told if wrong)


def duration(op: dict[str, Any]) -> float:
    """Seconds that an operation takes, about: it is to be met in its middle."""
    size = sum(len(message(n)["content"]) for n in op.get("numbers", ()))
    return 0.0005 + size * 1e-8 if size else 0.01


def await_growth(root: Path, session: str, seconds: float) -> None:
    """Waits until the file that an operation writes begins to grow, but not for long. Of a write of megabytes
    that is well before its end."""
    paths = [f"{root}/sessions/{session}.jsonl", f"{root}/sessions/{session}.jsonl~tmp"]
    before, until = [_size(path) for path in paths], time.monotonic() + seconds
    while [_size(path) for path in paths] == before and time.monotonic() < until:
        pass


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


@pytest.mark.rule("W2", "W3", "H7", "H8", "C1")
def test_whoever_is_killed_has_lost_nothing_that_was_acknowledged(
    tmp_path: Path, request: pytest.FixtureRequest, figures: Callable[..., None]
) -> None:
    """All that was acknowledged is there exactly once and in order, no half batch is shown, a fork and a
    vacuum are whole or not at all, and the next append works. What stood in the torn tail is kept."""
    kills = 5000 if request.config.getoption("--full") else 200
    met: Counter[str] = Counter()
    works = cycle(WORKS)
    with Nursery(patience=60 + kills) as nursery:
        for seed in range(kills):
            if seed % LIVES == 0:
                root, work = tmp_path / f"{seed}", next(works)
                with hansard.open(root) as store, store.create("main", activate=False) as session:
                    session.append(message(0))
                sessions = {"main": Story()}
                sessions["main"].say([0])
            sessions = _live_and_die(nursery, root, work, seed, sessions, met)
            if seed % LIVES == LIVES - 1:
                shutil.rmtree(root)
    figures("kills", **met)
    assert met["with a torn tail"]
    assert met["with an unacknowledged operation"]
    assert met["with a file half written beside"]


def _live_and_die(
    nursery: Nursery, root: Path, work: str, seed: int, sessions: Sessions, met: Counter[str]
) -> Sessions:
    """Begins a writer, kills it, and looks at what it has left. Gives the sessions as they are then."""
    rng = random.Random(seed)
    first = 1 + seed * 1000  # of each life its own messages
    forks = sorted(set(sessions) - {"main"})
    writer = nursery.begin("write", str(root), work, seed, first, forks)
    told: list[Any] = []
    for _ in range(rng.randrange(1, 6)):
        told.append(writer.hear())
    aimed = rng.random() < 0.5
    while "op" not in told[-1] or (aimed and duration(told[-1]) < 0.005 and len(told) < 8):
        told.append(writer.hear())
    if aimed:
        await_growth(root, told[-1]["session"], 2 * duration(told[-1]))
    else:
        time.sleep(rng.uniform(0, duration(told[-1])))
    writer.kill()
    told += writer.rest()
    met["kills"] += 1

    op = None
    for line in told:
        if "op" in line:
            op = line
        else:
            sessions, answer = after(sessions, op)
            assert line["done"] == answer
            met["operations acknowledged"] += 1
            op = None

    logs = reader.logs(root)
    torn = {id: log.torn for id, log in logs.items() if log.torn}
    wrong = differs(logs, sessions)
    if wrong and op is not None:  # what was not acknowledged may be there, wholly
        sessions, _ = after(sessions, op)
        still = differs(logs, sessions)
        wrong = f"{wrong}; after {op}: {still}" if still else ""
        met["with an unacknowledged operation"] += 1
    assert not wrong, f"{work}, seed {seed}: {wrong}"
    met["with a torn tail"] += bool(torn)
    met["with half a batch"] += any(b"\n" in tail for tail in torn.values())
    met["with a file half written beside"] += any((root / "sessions").glob("*~tmp"))

    with hansard.open(root) as store:
        for id, story in sessions.items():
            assert numbers(store.read(id).history()) == story.seen
            n = first + 900 + len(story.said)
            assert store.append(id, message(n)).seq == story.say([n])[0]
        assert {head.id: head.messages for head in store.list(limit=None)} == {
            id: len(story.said) for id, story in sessions.items()
        }
        report = store.doctor()
        assert {finding.kind for finding in report.findings} <= {"aside", "unborn"}, report
    logs = reader.logs(root)
    assert not differs(logs, sessions), f"{work}, seed {seed}, after one more append"
    kept = [path.read_bytes() for path in (root / "aside").glob("*.torn")]
    assert all(tail in kept for tail in torn.values())
    return sessions
