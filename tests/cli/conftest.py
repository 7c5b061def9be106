"""The command as people and programs run it: in this process, as one of its own, and in a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import hansard
from hansard.cli import main

COMMAND = [sys.executable, "-m", "hansard"]
TIMEOUT = 30


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home, a folder and a store that nobody has used."""
    for name in ("COLUMNS", "NO_COLOR", "PAGER", "LESS", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("HANSARD_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("PYTHONPATH", str(Path(hansard.__file__).parent.parent))


@pytest.fixture
def store() -> Iterator[hansard.Store]:
    """The store that the command uses too."""
    with hansard.open() as store:
        yield store


@pytest.fixture
def begin(store: hansard.Store) -> Callable[..., str]:
    """Records a session, closes it, and gives its id."""

    def begin(*said: Any, id: str | None = None, **head: Any) -> str:
        with store.create(id, activate=False, **head) as session:
            session.extend([{"role": "user", "content": m} if isinstance(m, str) else m for m in said])
            return session.id

    return begin


@pytest.fixture
def run() -> Callable[..., Result]:
    """Runs the command in this process; `json=True` gives what it prints as a value."""
    return lambda *args, **options: CliRunner().invoke(
        main, [str(a) for a in args], prog_name="hansard", **options
    )


@pytest.fixture
def printed(run: Callable[..., Result]) -> Callable[..., Any]:
    """What the command prints with `--json`."""

    def printed(*args: object, code: int = 0) -> Any:
        done = run(*args, "--json")
        assert done.exit_code == code, done.output
        return json.loads(done.stdout)

    return printed


@pytest.fixture
def process() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the command as a process of its own, its output in a pipe."""

    def process(*args: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*COMMAND, *args], capture_output=True, text=True, timeout=TIMEOUT, **options)

    return process


@dataclass
class Shown:
    """What stood on the terminal, both outputs together, and how the command ended."""

    text: str
    code: int


@pytest.fixture
def terminal() -> Callable[..., Shown]:
    """Runs the command in a terminal of so many columns, where something is typed once it asks."""

    def terminal(
        *args: str,
        columns: int = 80,
        lines: int = 24,
        typed: str = "",
        when: str = "[y/N]",
        command: Sequence[str] = COMMAND,
        **environment: str,
    ) -> Shown:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        child = subprocess.Popen(
            [*command, *args],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=(lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)) if typed else None,
            env={**os.environ, "TERM": "xterm", **environment},
        )
        os.close(theirs)
        pieces = []
        deadline = time.monotonic() + TIMEOUT
        while select.select([ours], [], [], max(0.0, deadline - time.monotonic()))[0]:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            pieces.append(piece)
            if typed and when.encode() in b"".join(pieces):
                os.write(ours, typed.encode())
                typed = ""
        else:
            child.kill()
        os.close(ours)
        return Shown(b"".join(pieces).decode().replace("\r\n", "\n"), child.wait(TIMEOUT))

    return terminal
