"""What a store is made to do on a simulated machine, step by step: everything that writes.

A workload is a function of a `Run`. Each `run.step` is one call of the library; when it returns, what it
did was acknowledged. `loose` says that it may be taken by a power cut: it was asked for with `durable=False`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

from hansard.errors import HansardError, StoreUnavailable
from hansard.retention import Cleanup
from hansard.session import Session
from hansard.store import Report, Store
from hansard.testing.chat import assistant, user, users
from tests.plain import openai_call, openai_result


class Run(Protocol):
    """What a workload works with."""

    store: Store

    def step(self, work: Callable[[], Any], *, loose: bool = False, firm: str = "") -> Any:
        """Does one thing. `firm` names a session of which everything said so far lasts after it."""

    def later(self, by: timedelta) -> None:
        """Time goes by."""

    def reopen(self, *, lost: bool = False) -> None:
        """Opens the store anew; with `lost` without a catalog, after its process was killed."""

    def spoil(self, path: str, change: Callable[[bytes], bytes]) -> None:
        """Somebody alters a file, and the disk keeps it so."""


def beginning(run: Run) -> None:
    """A store and its first sessions: lazily, eagerly, with one message and with several."""
    with run.step(lambda: run.store.create("a", agent="coder", title="First")) as session:
        run.step(lambda: session.append(user("Hello")))
        run.step(lambda: session.append(assistant("Yes?"), usage={"input_tokens": 3, "output_tokens": 1}))
    with run.step(lambda: run.store.create("b")) as session:
        run.step(lambda: session.extend(users("one", "two", "three")))
        run.step(session.close)
    session = run.step(lambda: run.store.create("c", eager=True))
    run.step(session.close)
    run.step(lambda: run.store.append("d", user("D"), create=True))


def talking(run: Run) -> None:
    """Appends, batches and unsynced appends, until a flush, a durable write, a name or the end."""
    session = _begun(run)
    run.step(lambda: session.append(user("durable")))
    run.step(
        lambda: session.extend([user("x" * 700), assistant("y" * 300), user("z")], ids=["i1", "i2", None])
    )
    for n in range(3):
        run.step(lambda n=n: session.append(user(f"loose {n} " + "l" * 400 * n), durable=False), loose=True)
    run.step(session.flush, firm="a")
    run.step(lambda: session.extend(users("loose", "batch"), durable=False), loose=True)
    run.step(lambda: session.append(assistant("durable again")), firm="a")
    run.step(lambda: session.append(user("once more"), id="i1x", durable=False), loose=True)
    run.step(lambda: session.append(user("once more"), id="i1x"), firm="a")
    run.step(lambda: session.output("raw line", durable=False), loose=True)
    run.step(lambda: session.event("delta", {"n": 1}, event_id="e1", durable=False), loose=True)
    run.step(session.close, firm="a")


def unsynced(run: Run) -> None:
    """Many unsynced appends, more than all subsets of them can be tried; then a name makes them last."""
    session = _begun(run)
    for n in range(10):
        run.step(lambda n=n: session.append(user(f"{n}" * 90), durable=False), loose=True)
    run.step(lambda: run.store.names.set("agent/coder/current", "a"), firm="a")
    run.step(lambda: session.append(user("loose"), durable=False), loose=True)
    run.step(lambda: session.documents.put("screen", b"what is seen"), firm="a")
    run.step(session.close)


def compacting(run: Run) -> None:
    """Every call that changes what the model sees."""
    session = _begun(run)
    run.step(lambda: session.extend(users(*"abcdef")))
    run.step(lambda: session.checkpoint([user("So far: a to d")], token_count=7, summary="a to d"))
    run.step(lambda: session.append(openai_call("k1")))
    run.step(lambda: session.extend([openai_result("k1"), assistant("done")]))
    run.step(lambda: session.truncate(3))
    run.step(lambda: session.pop())
    run.step(lambda: session.set_history([user("anew"), *session.history(), user("and more")]))
    run.step(lambda: session.rewind(4))
    run.step(lambda: session.set_summary("told"))
    run.step(lambda: session.clear())
    run.step(lambda: session.rename("A title"))
    run.step(lambda: session.update(status="done", meta={"k": [1, 2]}, unset=["summary"]))
    run.step(lambda: session.label("x", "y"))
    run.step(lambda: session.pin())
    run.step(lambda: session.add_usage({"input_tokens": 5}))
    run.step(session.close)


def branching(run: Run) -> None:
    """Forks with documents, children and theirs, a whole session put at once, and deleting with children."""
    session = _begun(run)
    run.step(lambda: session.extend(users("b", "c")))
    run.step(lambda: session.documents.put("screen", b"1" * 600))
    fork = run.step(lambda: run.store.fork("a", at=2, id="f"))
    run.step(lambda: fork.append(user("on the fork")))
    run.step(fork.close)
    child = run.step(lambda: session.sub("research"))
    run.step(lambda: child.append(user("look")))
    grandchild = run.step(lambda: child.sub("deeper"))
    run.step(grandchild.close)
    run.step(child.close)
    run.step(session.close)
    run.step(lambda: run.store.put("p", users(*"pqrs")))
    run.step(lambda: run.store.delete("a"))
    fork = run.step(lambda: run.store.fork("f", id="g"))
    run.step(fork.close)
    run.step(lambda: run.store.delete("f"))


def emptying(run: Run) -> None:
    """Vacuum, of a session with a long past and of one in which nothing may go; then more is said."""
    session = _begun(run)
    run.step(lambda: session.extend(users(*"bcdefgh"), ids=[f"id{n}" for n in range(7)]))
    run.step(lambda: session.checkpoint([user("So far")], token_count=4))
    run.step(lambda: session.append(user("now")))
    run.step(session.close)
    run.step(lambda: run.store.vacuum("a", drop_history=True))
    run.step(lambda: run.store.append("a", user("after")))
    run.step(lambda: run.store.append("a", user("c"), id="id1"))
    run.step(lambda: run.store.vacuum("a"))


def forgetting(run: Run) -> None:
    """Deleting, a session that nobody spoke in, cleanup, and an id that is used again."""
    for id in ("a", "b", "c", "d"):
        run.step(lambda id=id: run.store.append(id, user(id), create=True))
    run.step(lambda: run.store.delete("b"))
    run.step(lambda: run.store.append("b", user("another"), create=True))
    session = run.step(lambda: run.store.create("bare", eager=True))
    run.step(session.close)
    left_over = run.step(lambda: run.store.create("left over", eager=True))
    run.reopen(lost=True)
    del left_over  # nobody says goodbye
    session = run.step(lambda: run.store.open("a"))
    run.step(session.pin)
    run.step(session.close)
    run.later(timedelta(days=3))
    run.step(lambda: _wholly(run.store.cleanup(older_than=timedelta(days=1))))
    run.step(lambda: run.store.append("c", user("again"), create=True))


def keeping(run: Run) -> None:
    """Documents, blobs and their sweep, state, names."""
    session = _begun(run)
    run.step(lambda: session.documents.put("screen", b"one"))
    run.step(lambda: session.documents.put("screen", b"two" * 400))
    run.step(lambda: session.documents.put("a/hostile ../name", b"x"))
    run.step(lambda: session.documents.delete("screen"))
    needed = run.step(lambda: run.store.blobs.put(b"a picture" * 100))
    run.step(lambda: run.store.blobs.put(b"nobody needs this"))
    run.step(lambda: session.append(user("look"), blobs=[needed]))
    settings = run.store.state("settings")
    run.step(lambda: settings.set("theme", "dark"))
    run.step(lambda: settings.update({"theme": "light", "size": 12}))
    run.step(lambda: settings.delete("size"))
    run.step(lambda: run.store.names.set("agent/x/current", "a"))
    run.step(lambda: run.store.names.move({"agent/x/current": None, "agent/y/current": "a"}))
    run.step(session.close)
    run.later(timedelta(days=3))
    run.step(lambda: run.store.blobs.sweep())
    run.step(lambda: run.store.activate(None))


def after_a_crash(run: Run) -> None:
    """A torn tail, a log without a first line, a process that was killed: who comes next mends them."""
    session = _begun(run)
    run.step(lambda: session.append(user("whole")))
    run.step(session.close)
    run.reopen(lost=True)
    run.spoil("sessions/a.jsonl", lambda raw: raw + b'{"kind":"message","data":{"role":"us')
    run.spoil("sessions/n.jsonl", lambda raw: b'{"kind":"sess')
    run.step(lambda: run.store.append("a", user("after a torn tail")))
    run.step(lambda: run.store.append("n", user("taken over"), create=True))
    run.spoil("sessions/a.jsonl", lambda raw: raw[:-1])
    run.step(lambda: run.store.append("a", user("after a lost newline")))


def mending(run: Run) -> None:
    """`doctor --repair` of a log that is damaged in the middle, beside one that is not."""
    session = _begun(run)
    run.step(lambda: session.extend(users(*"bcdef")))
    run.step(session.close)
    run.step(lambda: run.store.append("b", user("sound"), create=True))
    run.reopen(lost=True)
    run.spoil("sessions/a.jsonl", lambda raw: raw.replace(b'"content":"c"', b'"content":"C"'))
    run.step(lambda: _mended(run.store.doctor(repair=True)))
    run.step(lambda: run.store.append("a", user("after")))


WORKLOADS: list[Callable[[Run], None]] = [
    beginning,
    talking,
    unsynced,
    compacting,
    branching,
    emptying,
    forgetting,
    keeping,
    after_a_crash,
    mending,
]


def _begun(run: Run) -> Session:
    """Session `a`, open, with one message."""
    session: Session = run.step(lambda: run.store.create("a", agent="coder"))
    run.step(lambda: session.append(user("Hello")))
    return session


def _wholly(done: Cleanup) -> None:
    """What could not be taken away is told, and does not keep the rest."""
    if done.failed:
        raise _in_part(done.failed)


def _mended(report: Report) -> None:
    left = [found for found in report.findings if not found.repaired and found.kind != "aside"]
    if left:
        raise _in_part(left)


def _in_part(told: object) -> HansardError:
    error = StoreUnavailable(str(told))
    error.outcome_unknown = True
    return error
