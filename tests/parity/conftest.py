"""A store of files, and other processes that look at it: what they see is what is stored."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest

import hansard


class Ask(Protocol):
    """What an expression about `store` gives in a process that has just begun, as JSON."""

    def __call__(self, expression: str, **names: Any) -> Any: ...


@pytest.fixture
def place(tmp_path: Path) -> str:
    """The folder of the store."""
    return str(tmp_path / "store")


@pytest.fixture
def store(place: str) -> Iterator[hansard.Store]:
    with hansard.open(place) as store:
        yield store


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

def answer(line):
    place, expression, names = json.loads(line)
    with hansard.open(place, create=False) as store:
        names |= {"hansard": hansard, "store": store, "refused": refused}
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
