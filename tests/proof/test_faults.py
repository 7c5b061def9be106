"""Every call to the disk fails once: with EIO, ENOSPC, EACCES or EMFILE, or by doing less than was asked.
What was acknowledged stays, what raised did nothing or cannot know, and work goes on afterwards."""

from __future__ import annotations

import errno
import os
import random
import warnings
from collections.abc import Callable
from datetime import timedelta

import pytest

from hansard.engines.files import Files
from hansard.errors import HansardError
from hansard.store import Store
from hansard.testing.chat import user
from tests.proof.power import START, Ack, Story, judge, look, predicted, quiet, same_dice, seen_in
from tests.proof.simulated import ROOT, Simulated
from tests.proof.workloads import WORKLOADS, Run

ROUNDS = 130
"""How many faults of one workload are tried, where not all are wanted."""

FAULTS = {
    errno.EIO: "open open-to-write create read write truncate sync stat look names make_one remove_one "
    "sync_folder rename unlink touch",
    errno.ENOSPC: "create write make_one rename",
    errno.EACCES: "open open-to-write create names make_one remove_one rename unlink touch",
    errno.EMFILE: "open open-to-write create",
}


class Stopped(Exception):
    """A step met the fault."""


class Faulty(Story):
    """A story of which one call to the disk fails."""

    error: HansardError | None = None

    def step(self, work: Callable[[], object], *, loose: bool = False, firm: str = "") -> object:
        try:
            return super().step(work, loose=loose, firm=firm)
        except HansardError as error:
            self.error = error
            raise Stopped from error


def tell(workload: Callable[[Run], None], known: list[Ack] | None = None, **fault: object) -> Faulty:
    """The story of a workload, up to the step that met the fault."""
    story = Faulty(known=known)
    for name, what in fault.items():
        setattr(story.machine, name, what)
    with same_dice(7), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            workload(story)
        except Stopped:
            pass
        except HansardError as error:  # while the store was opened, or closed
            story.error = error
    return story


def wrong_after(story: Faulty, known: list[Ack]) -> list[str]:
    """What is wrong after the fault is over: with what is there, and with what happens next."""
    machine = story.machine
    machine.fault = machine.most = None
    done = len(story.acks) - 1
    # nobody knows what comes after the fault but the step under way
    story.acks[done].at = len(machine.journal)
    story.acks.append(Ack(len(machine.journal) + 1, {}, known[min(done + 1, len(known) - 1)].seen))
    seen = look(machine)
    # to be the active session is a side effect, of which a failure is only warned
    active = ("name", "active")
    seen.pop(active, None)
    for ack in story.acks:
        ack.allowed = {part: value for part, value in ack.allowed.items() if part != active}
        ack.seen = {part: value for part, value in ack.seen.items() if part != active}
    wrong = judge(story, len(machine.journal), seen, _damaged(machine.now))
    if story.error is not None and not story.error.outcome_unknown:
        story.acks[-1].seen = story.acks[done].seen
        strict = judge(story, len(machine.journal), seen, _damaged(machine.now))
        wrong += [f"it raised, and yet it was done: {one}" for one in strict if _counts(one)]
    try:
        wrong += _goes_on(story)
    except (HansardError, OSError) as error:
        wrong.append(f"work does not go on: {type(error).__name__}: {error}")
    return wrong


def _counts(told: str) -> bool:
    """Whether it is said of a session or a document: what stands beside them is put right on the way."""
    return told.startswith(("('session'", "('document'"))


def _damaged(image: object) -> set[str]:
    return {
        path.rpartition("/")[2].removesuffix(".jsonl") for kind, path in predicted(image) if kind == "damage"
    }


def _goes_on(story: Faulty) -> list[str]:
    """The process that met the fault goes on, and what it does then survives a power cut."""
    machine, store = story.machine, story.store
    before = look(machine)
    sessions = [part[1] for part in before if part[0] == "session"]
    for id in sessions:
        store.append(id, user("after the fault"))
    store.append("new after the fault", user("Hello"), create=True)
    store.state("settings").set("after", True)
    with quiet(machine):
        after = look(machine)
    wrong = [
        f"{part} changed while more was said"
        for part, value in before.items()
        if part[0] == "session" and after.get(part, ())[:-1] != value
    ]
    listed = {head.id: head.seq for head in store.list(empty=True, limit=None)}
    there = {part[1]: len(lines) for part, lines in after.items() if part[0] == "session"}
    wrong += [f"the list lacks {set(there) - set(listed)}"] if not set(listed) <= set(there) else []
    store.close()
    rebooted = machine.rebooted()
    fresh = Store(Files(ROOT, disk=Simulated(rebooted)), clock=lambda: START + timedelta(days=9))
    with fresh:
        survived = seen_in(fresh)
    unsure = story.error is not None and story.error.outcome_unknown
    known = story.acks[-2].seen
    kept = [
        part
        for part, value in after.items()
        if part[0] == "session" or (part[0] == "document" and not (unsure and value != known.get(part)))
    ]
    lost = [part for part in kept if survived.get(part) != after[part]]
    return wrong + ([f"a power cut after all was closed has taken {lost}"] if lost else [])


@pytest.mark.rule("C3", "W4", "W2", "W3")
@pytest.mark.filterwarnings("ignore::hansard.engines.files.HansardWarning")
@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.__name__)
def test_whatever_call_fails_nothing_acknowledged_is_lost(
    workload: Callable[[Run], None], request: pytest.FixtureRequest, figures: Callable[..., None]
) -> None:
    sound = tell(workload)
    assert sound.error is None
    calls = sound.machine.calls
    faults = [
        (n, code)
        for n, (call, _, _) in enumerate(calls)
        for code, which in FAULTS.items()
        if call in which.split()
    ]
    faults += [(n, 0) for n, (call, _, size) in enumerate(calls) if call == "write" and size > 1]
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    possible = len(faults)
    if not request.config.getoption("--full"):
        weights = {"sync": 4, "sync_folder": 2, "write": 3, "rename": 3, "truncate": 4, "unlink": 3}
        faults.sort(key=lambda fault: dice.random() ** (1 / weights.get(calls[fault[0]][0], 1)), reverse=True)
        faults = faults[:ROUNDS]
    met = 0
    for n, code in faults:
        refused = OSError(code, os.strerror(code) if code else "")
        fault = {
            "fault": lambda i, call, path, n=n, refused=refused, code=code: (
                refused if i == n and code else None
            ),
            "most": lambda i, n=n, code=code: 1 + calls[n][2] // 2 if i == n and not code else None,
        }
        story = tell(workload, sound.acks, **fault)
        met += story.error is not None
        wrong = wrong_after(story, sound.acks)
        assert not wrong, (
            f"seed {seed}, call {n} {calls[n]}: {errno.errorcode.get(code, 'a short write')} → "
            f"{story.error!r} after step {len(story.acks) - 2}:\n" + "\n".join(wrong)
        )
    figures(f"faults-{workload.__name__}", calls=len(calls), faults=possible, tried=len(faults), raised=met)
