"""Processes that begin quickly, are talked to over a socket, and are killed.

They are children of one process that has everything imported and nothing open. What they run is a function
of `actors.py`; none shares anything with the test but what is on the disk.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).parents[2]


class Link:
    """One end of a connection: a line of JSON for each thing that is said. Threads may share it."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._heard = b""
        self._mutex = threading.Lock()

    def say(self, value: Any = None) -> None:
        """Tells the other side something."""
        with self._mutex:
            self._end.sendall(json.dumps(value).encode() + b"\n")

    def hear(self) -> Any:
        """What the other side says next; waits for it. `EOFError` when it is gone."""
        while b"\n" not in self._heard:
            try:
                more = self._end.recv(1 << 16)
            except ConnectionResetError:
                more = b""
            if not more:
                raise EOFError
            self._heard += more
        line, _, self._heard = self._heard.partition(b"\n")
        return json.loads(line)

    def told(self) -> bool:
        """Whether the other side has said something that was not heard yet."""
        return b"\n" in self._heard or bool(select.select([self._end], [], [], 0)[0])

    def close(self) -> None:
        """Lets go of it."""
        self._end.close()


class Child:
    """A process as the test sees it."""

    def __init__(self, nursery: Nursery, link: Link, name: str) -> None:
        self._nursery = nursery
        self._link = link
        self.name = name
        self.pid = 0
        self.gone = False

    def tell(self, value: Any = None) -> None:
        """Something that it can `hear()`; a dead one does not mind."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self._link.say(value)

    def hear(self) -> Any:
        """What it says next. `EOFError` when it is gone, `AssertionError` when it failed."""
        told = self._link.hear()
        if isinstance(told, dict) and "failed" in told:
            raise AssertionError(f"process {self.pid} ({self.name}): {told['failed']}")
        return told

    def rest(self) -> list[Any]:
        """Everything that it says until it is gone."""
        said = []
        with suppress(EOFError):
            while True:
                said.append(self.hear())
        self._link.close()
        return said

    def result(self) -> Any:
        """The last thing that it says; waits until it is gone."""
        said = self.rest()
        code = self.wait()
        assert code == 0, f"process {self.pid} ({self.name}) ended with {code}{self._nursery.why}"
        return said[-1] if said else None

    def kill(self) -> int:
        """Ends it at once, wherever it is, and waits until it is gone."""
        if not self.gone:
            os.killpg(self.pid, signal.SIGKILL)  # with the children that it may have
        return self.wait()

    def wait(self) -> int:
        """Waits until it is gone; its exit code, or minus the signal that ended it."""
        if self.gone:
            return 0
        self.gone = True
        return self._nursery._reap(self)


class Nursery:
    """Begins processes, and ends all of them at the end, or when they take too long."""

    def __init__(self, *, patience: float = 240.0) -> None:
        mine, its = socket.socketpair()
        self._children: list[Child] = []
        self._socket = mine
        self._link = Link(mine)
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from tests.proof.nursery import main; main()", str(its.fileno())],
            pass_fds=[its.fileno()],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])},
        )
        its.close()
        self.why = ""
        self._watch = threading.Timer(patience, self._despair, [patience])
        self._watch.daemon = True
        self._watch.start()

    def begin(self, work: str, *arguments: Any) -> Child:
        """A process that runs `work(link, *arguments)` of `actors.py`; arguments are JSON."""
        mine, its = socket.socketpair()
        child = Child(self, Link(mine), work)
        asked = json.dumps({"begin": work, "arguments": arguments}).encode() + b"\n"
        socket.send_fds(self._socket, [asked], [its.fileno()])
        its.close()
        child.pid = self._link.hear()
        self._children.append(child)
        return child

    def _reap(self, child: Child) -> int:
        self._children.remove(child)
        self._link.say({"reap": child.pid})
        return int(self._link.hear())

    def _despair(self, patience: float) -> None:
        """Whoever waits for one of them hears that it is gone."""
        self.why = f"; the processes were ended after {patience:.0f} s"
        for child in list(self._children):
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)

    def __enter__(self) -> Nursery:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watch.cancel()
        for child in list(self._children):
            child.kill()
            child._link.close()
        self._link.close()
        self._process.wait(30)


def main() -> None:
    """The process that begins the others."""
    from tests.proof import actors

    nursery = socket.socket(fileno=int(sys.argv[1]))
    running: set[int] = set()
    while True:
        raw, fds, _, _ = socket.recv_fds(nursery, 1 << 16, 1)
        if not raw:
            break
        asked = json.loads(raw)
        if "reap" in asked:
            running.discard(asked["reap"])
            answer = os.waitstatus_to_exitcode(os.waitpid(asked["reap"], 0)[1])
        else:
            answer = os.fork()
            os.setpgid(answer, answer)
            if not answer:
                nursery.close()
                _live(Link(socket.socket(fileno=fds[0])), getattr(actors, asked["begin"]), asked["arguments"])
            os.close(fds[0])
            running.add(answer)
        nursery.sendall(json.dumps(answer).encode() + b"\n")
    for pid in running:  # the test is gone
        os.killpg(pid, signal.SIGKILL)


def _live(link: Link, work: Any, arguments: list[Any]) -> None:
    code = 0
    try:
        work(link, *arguments)
    except BaseException:
        code = 1
        with suppress(OSError):
            link.say({"failed": traceback.format_exc()})
    finally:
        os._exit(code)
