"""What the whole thing is for, in a few seconds: `demo`."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from hansard import messages
from hansard.cli import screen
from hansard.cli.options import Asked, asks, open_store
from hansard.cli.screen import line, paint, plural, size

if TYPE_CHECKING:
    from hansard import Finding, Store

FAILED = 4

AFTER = {"role": "user", "content": "The machine went down. Please go on where you were."}
"""What is said once the session is resumed."""


class Death(NamedTuple):
    """What the recorder had told when it was killed, and how far it had come with the last write."""

    pid: int
    session: str
    safe: list[Any]
    written: int
    of: int


@click.command(
    epilog="""\b
Examples:
  hansard demo
  hansard demo --store ~/try-hansard
"""
)
@asks
def demo(asked: Asked) -> None:
    """Kill a process in the middle of a write, and see what is left.

    Another process records a session and is killed with SIGKILL while half of a message is on disk. Then the
    session is resumed. It is kept in --store or $HANSARD_STORE, else in a new folder that is named.
    """
    chosen = asked.store or os.environ.get("HANSARD_STORE", "").strip()
    where = Asked(chosen or tempfile.mkdtemp(prefix="hansard-demo-"), asked.json)
    with open_store(where, create=True) as store:
        if not store.url.startswith("file:"):
            raise click.BadParameter(
                "the demonstration needs a store in files: a folder", param_hint="--store"
            )
        folder = store.url.removeprefix("file:")
        tell = (lambda _="": None) if asked.json else click.echo
        _perform(store, folder, kept=bool(chosen), asked=asked, tell=tell)
