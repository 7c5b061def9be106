"""Another process that has the same store open, driven over pipes: one line of JSON asked, one answered."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import hansard


class Neighbour:
    """The process as seen from here. What fails there is raised here as an error of the same class."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )

    def ask(self, what: str, now: datetime | None = None, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"what": what, "now": now and now.isoformat(), **arguments}
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise _told(answer)
        return answer["value"]

    def close(self) -> None:
        self._process.communicate(timeout=10)


def _told(answer: dict[str, Any]) -> Exception:
    kind = getattr(hansard, answer["error"], None)
    if kind is None:
        return RuntimeError(f"{answer['error']}: {answer['text']}")
    error: Exception = kind.__new__(kind)
    error.args = (answer["text"],)
    return error


class _House:
    """What the other process does."""

    def __init__(self) -> None:
        self.store: hansard.Store | None = None
        self.now = datetime.now(UTC)

    def open(self, url: str) -> None:
        self.close()
        self.store = hansard.open(url, clock=lambda: self.now)

    def close(self) -> None:
        if self.store is not None:
            self.store.close()
        self.store = None

    def append(self, ref: str, payload: Any, id: str | None, create: bool) -> int:
        assert self.store is not None
        return self.store.append(ref, payload, id=id, create=create).seq

    def history(self, ref: str) -> list[Any]:
        assert self.store is not None
        return list(self.store.read(ref).history())

    def rename(self, ref: str, title: str) -> int:
        assert self.store is not None
        with self.store.open(ref, exclusive=False) as session:
            return session.rename(title).seq

    def list(self) -> list[str]:
        assert self.store is not None
        return [head.id for head in self.store.list(limit=None, empty=True)]


def main() -> None:
    house = _House()
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        what, now = asked.pop("what"), asked.pop("now")
        if now is not None:
            house.now = datetime.fromisoformat(now)
        try:
            answer = {"value": getattr(house, what)(**asked)}
        except Exception as error:
            answer = {"error": type(error).__name__, "text": str(error)}
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()
    house.close()


if __name__ == "__main__":
    main()
