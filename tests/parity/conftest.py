"""A store of files, and other processes that look at it: what they see is what is stored."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest

import hansard


class Ask(Protocol):
    """What an expression about `store` gives in a process that has just begun, as JSON."""

    def __call__(self, expression: str, **names: Any) -> Any: ...


class Written(Protocol):
    """How many bytes a call writes, to whatever file."""

    def __call__(self, call: Callable[[], Any]) -> int: ...


@pytest.fixture
def place(tmp_path: Path) -> str:
    """The folder of the store."""
    return str(tmp_path / "store")


@pytest.fixture
def store(place: str) -> Iterator[hansard.Store]:
    with hansard.open(place) as store:
        yield store


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The files that were synced since the test began."""
    numbers: list[int] = []

    def count(call: Callable[[int], None], number: int) -> None:
        call(number)
        numbers.append(number)

    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, partial(count, getattr(os, name)))
    return numbers


@pytest.fixture
def written() -> Written:
    counts = Path("/proc/self/io")
    if not counts.exists():
        pytest.skip("this system does not count the bytes that a process writes")

    def count() -> int:
        return int(dict(line.split(": ") for line in counts.read_text().splitlines())["wchar"])

    def measure(call: Callable[[], Any]) -> int:
        before = count()
        call()
        return count() - before

    return measure


@pytest.fixture(scope="session")
def processes() -> Iterator[subprocess.Popen[bytes]]:
    """Begins a process for each line that it is told. It has loaded the code and never opened a store."""
    with subprocess.Popen(
        [sys.executable, "-c", _BEGIN],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def elsewhere(place: str, processes: subprocess.Popen[bytes]) -> Ask:
    def ask(expression: str, **names: Any) -> Any:
        assert processes.stdin is not None
        assert processes.stdout is not None
        processes.stdin.write(msgspec.json.encode([place, expression, names]) + b"\n")
        processes.stdin.flush()
        answer = msgspec.json.decode(processes.stdout.readline())
        assert "error" not in answer, f"{expression}: {answer['error']}"
        return answer["found"]

    return ask


_BEGIN = """
import json, os, sys, traceback
import hansard, hansard.engines.files, hansard.formats, hansard.retention, hansard.store, msgspec

def refused(call, *arguments, **options):  # the name of the error that a call ends with
    try:
        call(*arguments, **options)
    except hansard.HansardError as error:
        return type(error).__name__

def texts(view):  # what was said, as the model sees it
    return [message["content"] for message in view.history()]

def answer(line):
    place, expression, names = json.loads(line)
    with hansard.open(place, create=False) as store:
        names |= {"hansard": hansard, "store": store, "refused": refused, "texts": texts}
        return {"found": eval(expression, names)}

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        try:
            told = msgspec.json.encode(answer(line))
        except BaseException:
            told = msgspec.json.encode({"error": traceback.format_exc()})
        os.write(1, told + b"\\n")
        os._exit(0)
    os.waitpid(child, 0)
"""
