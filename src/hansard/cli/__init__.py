"""The command `hansard`: a thin skin over the store, one file for each group of commands.

Here stand the list of commands and how an error ends one; what is common to them is in `options`, how
things are drawn in `screen`. A command is imported when it is called.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

from hansard._version import __version__
from hansard.cli.options import command_options, when_missing
from hansard.errors import (
    AmbiguousSession,
    Damaged,
    HansardError,
    NoSessions,
    SessionBusy,
    TurnInProgress,
)

REFUSED, BUSY, DAMAGED, INTERRUPTED = 1, 3, 4, 130

COMMANDS = {
    "ls": "sessions",
    "show": "show",
    "doctor": "doctor",
    "demo": "demo",
    "version": "version",
}
"""Which module of this folder has which command, in the order of the help text."""


class Commands(click.Group):
    """Commands that are imported when they are asked for, and that end as docs promise: with one line."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        module = COMMANDS.get(name)
        if module is None:
            return None
        command = getattr(import_module(f"hansard.cli.{module}"), name)
        return command if isinstance(command, click.Command) else None

    def invoke(self, ctx: click.Context) -> Any:
        if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
            ctx.color = False
        with _every_text_has_a_form(), warnings.catch_warnings():
            warnings.showwarning = _note
            try:
                try:
                    return super().invoke(ctx)
                finally:
                    sys.stdout.flush()
            except HansardError as error:
                _tell(error)
                ctx.exit(_exit_code(error))
            except BrokenPipeError:  # whoever was reading has seen enough
                _say_no_more()
                ctx.exit(0)
            except KeyboardInterrupt:
                if sys.stderr.isatty():
                    click.echo(err=True)
                ctx.exit(INTERRUPTED)


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  hansard ls --since 2d        the sessions of the last two days
  hansard show 7k2m            one of them, by the beginning of its id
  hansard show                 the one you worked on last

\b
The store is the one of --store, else of $HANSARD_STORE, else in your data folder.
Exit codes: 0 done, 1 refused or not found, 2 wrong usage, 3 busy, 4 damaged.

\b
Completion of commands and session ids, for bash (zsh and fish likewise):
  eval "$(_HANSARD_COMPLETE=bash_source hansard)"
""",
)
@click.version_option(__version__, message="hansard %(version)s")
@command_options
@click.pass_context
def main(ctx: click.Context, /, **_: Any) -> None:
    """Keeps the sessions of AI agents, and shows them.

    Without a command: the newest sessions, and what to do next.
    """
    if ctx.invoked_subcommand is None:
        from hansard.cli.sessions import home

        ctx.invoke(home)


def _exit_code(error: HansardError) -> int:
    if isinstance(error, SessionBusy | TurnInProgress):
        return BUSY
    return DAMAGED if isinstance(error, Damaged) else REFUSED


def _tell(error: HansardError) -> None:
    """One line that says what is wrong and what to do; ids to choose from stand below it."""
    from hansard.cli.screen import line, plural, safe

    below: list[str] = []
    if isinstance(error, AmbiguousSession):
        text = f"{error.text!r} begins {plural(error.total, 'session id')}; give more of the one you mean:"
        below = [f"  {line(id)}  {line(title, 60)}" for id, title in error.candidates]
        if error.total > len(below):
            below.append(f"  and {error.total - len(below):,} more")
    elif isinstance(error, NoSessions):
        text = "there is no session yet; `hansard demo` shows how one is kept"
    else:
        text = when_missing(error) or str(error)
    click.echo(click.style("hansard: ", fg="red") + safe(text), err=True)
    for candidate in below:
        click.echo(candidate, err=True)


def _note(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """A warning of the library, for people."""
    from hansard.cli.screen import safe

    click.echo(click.style("hansard: ", fg="yellow") + safe(str(message)), err=True)


def _say_no_more() -> None:
    """What is left in the buffers goes nowhere, without a complaint at the end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


@contextmanager
def _every_text_has_a_form() -> Iterator[None]:
    """A terminal without UTF-8 gets an escape for what it cannot show, not an error."""
    streams = [s for s in (sys.stdout, sys.stderr) if hasattr(s, "reconfigure") and s.errors == "strict"]
    for stream in streams:
        stream.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        for stream in streams:
            stream.reconfigure(errors="strict")
