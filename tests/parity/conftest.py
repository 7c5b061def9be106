"""A store of files, and other processes that look at it: what they see is what is stored."""

from __future__ import annotations

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


@pytest.fixture
def elsewhere(place: str) -> Ask:
    def ask(expression: str, **names: Any) -> Any:
        done = subprocess.run(
            [sys.executable, "-c", _ANSWER],
            input=msgspec.json.encode([sys.path, place, expression, names]),
            capture_output=True,
            timeout=60,
        )
        assert done.returncode == 0, f"{expression}: {done.stderr.decode()}"
        return msgspec.json.decode(done.stdout)

    return ask


_ANSWER = """
import json, sys
sys.path[:], place, expression, names = json.load(sys.stdin)
import hansard, msgspec
def refused(call, *arguments, **options):  # the name of the error that a call ends with
    try:
        call(*arguments, **options)
    except hansard.HansardError as error:
        return type(error).__name__
with hansard.open(place, create=False) as store:
    found = eval(expression, {"hansard": hansard, "store": store, "refused": refused, **names})
    sys.stdout.buffer.write(msgspec.json.encode(found))
"""
