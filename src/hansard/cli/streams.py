"""The outputs of the command, whatever they are: closed, full, left by the reader, or without UTF-8."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import click


def colour() -> bool | None:
    """False where somebody has declined colours; None leaves it to what the output is."""
    return False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None


def told(text: str, *, newline: bool = True) -> None:
    """Says something beside the output. Where nobody can hear it, that is no reason to end otherwise."""
    try:
        click.echo(text, nl=newline, err=True, color=colour())
    except OSError:
        hush()


def hush() -> None:
    """What an output has not taken goes nowhere, so that the end of the process does not fail over it."""
    for stream in (sys.stdout, sys.stderr):
        if stream is None:
            continue
        try:
            stream.flush()
        except OSError:
            with suppress(OSError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)


@contextmanager
def every_text_has_a_form() -> Iterator[None]:
    """A terminal without UTF-8 gets an escape for what it cannot show, not an error."""
    found = [s for s in (sys.stdout, sys.stderr) if hasattr(s, "reconfigure")]
    before = [(s, s.errors) for s in found if s.errors in ("strict", "surrogateescape")]
    for stream, _ in before:
        stream.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        with suppress(OSError):  # reconfiguring flushes
            for stream, errors in before:
                stream.reconfigure(errors=errors)
