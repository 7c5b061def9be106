"""The command `hansard`: a thin skin over the store, one file for each group of commands.

Here stand the list of commands and how an error ends one; what is common to them is in `options`, how
things are drawn in `screen`. A command is imported when it is called.
"""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EBADF
from importlib import import_module
from typing import Any

import click

from hansard._version import __version__
from hansard.cli import streams
from hansard.cli.options import Unknown, command_options, when_missing
from hansard.errors import (
    AmbiguousSession,
    Damaged,
    HansardError,
    NoSessions,
    SessionBusy,
    TurnInProgress,
)

REFUSED, BUSY, DAMAGED, INTERRUPTED = 1, 3, 4, 130

NARROW = 52
"""Columns below which click would let help texts be wider than the terminal."""

TRACEBACK = "HANSARD_TRACEBACK"
"""The environment variable that lets an error that nobody foresaw end as Python ends it."""

COMMANDS = {
    "ls": "sessions",
    "show": "show",
    "search": "search",
    "tail": "tail",
    "new": "writing",
    "append": "writing",
    "rename": "changes",
    "label": "changes",
    "pin": "changes",
    "fork": "fork",
    "rm": "removal",
    "cleanup": "removal",
    "export": "export",
    "locks": "locks",
    "doctor": "doctor",
    "vacuum": "removal",
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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            from hansard.cli.guesses import command

            close = command(args[0], list(COMMANDS))
            ctx.fail(f"No such command {args[0]!r}." + (f" Did you mean `hansard {close}`?" if close else ""))
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, **options: Any) -> Any:
        options["standalone_mode"] = False  # how it ends is settled here
        with streams.every_text_has_a_form(), warnings.catch_warnings():
            warnings.showwarning = _note
            code = self._run(*args, **options)
            streams.hush()
        sys.exit(code)

    def _run(self, *args: Any, **options: Any) -> int:
        """Does what was asked, and gives the exit code."""
        try:
            if sys.stdout is None:
                raise OSError(EBADF, "it is closed")
            return super().main(*args, **options) or 0
        except HansardError as error:
            _tell(error)
            return _exit_code(error)
        except click.ClickException as error:
            if sys.stderr is not None:
                with suppress(OSError):
                    error.show()
            return error.exit_code
        except OSError as error:
            return _stopped(error)
        except KeyboardInterrupt:
            return _interrupted()
        except Exception as error:
            if os.environ.get(TRACEBACK):
                raise
            return _unforeseen(error)

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        columns = shutil.get_terminal_size().columns
        if columns < NARROW:
            options.setdefault("terminal_width", max(20, columns - 1))
        with _ended_from_outside():
            return super().make_context(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:
        ctx.color = streams.colour()
        with _ended_from_outside():
            return super().invoke(ctx)


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  hansard ls --since 2d        the sessions of the last two days
  hansard show 7k2m            one of them, by the beginning of its id
  hansard show                 the one you worked on last
  hansard search migration     where something was said
  hansard tail -f              what is said in it, as it is said

The store is the one of --store, else of $HANSARD_STORE, else in your data folder.

Exit codes: 0 done, 1 refused or not found, 2 wrong usage, 3 busy, 4 damaged.

\b
Completion, in bash, zsh and fish:
  eval "$(_HANSARD_COMPLETE=bash_source hansard)"
  eval "$(_HANSARD_COMPLETE=zsh_source hansard)"
  _HANSARD_COMPLETE=fish_source hansard | source
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
    elif isinstance(error, Unknown):
        text = str(error)
        below = [f"  {line(id)}  {line(title, 60)}" for id, title in error.candidates]
    elif isinstance(error, SessionBusy) and error.holder is not None:
        text = f"session {error.id!r} is open by {error.holder}; try again when it is closed there"
    elif isinstance(error, NoSessions):
        text = "there is no session yet; `hansard demo` shows how one is kept"
    else:
        text = when_missing(error) or str(error)
    streams.told("\n".join([click.style("hansard: ", fg="red") + safe(text), *below]))


def _note(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """A warning of the library, for people."""
    from hansard.cli.screen import safe

    streams.told(click.style("hansard: ", fg="yellow") + safe(str(message)))


def _stopped(error: OSError) -> int:
    """What the system refused: mostly to take the output, the only thing here that has no file name."""
    from hansard.cli.screen import safe

    if isinstance(error, BrokenPipeError):  # whoever was reading has seen enough
        return 0
    what = "the output cannot be written" if error.filename is None else os.fsdecode(error.filename)
    streams.told(click.style("hansard: ", fg="red") + safe(f"{what}: {error.strerror or error}"))
    return REFUSED


def _unforeseen(error: Exception) -> int:
    """A mistake of ours, or of a package that adds something."""
    from hansard.cli.screen import line

    told = line(f"{type(error).__name__}: {error}", 300)
    advice = f"that should not have happened; {TRACEBACK}=1 in front of the command shows where it did"
    streams.told(click.style("hansard: ", fg="red") + f"{told} ({advice})")
    return REFUSED


def _interrupted() -> int:
    if sys.stderr is not None and sys.stderr.isatty():
        streams.told("")
    return INTERRUPTED


@contextmanager
def _ended_from_outside() -> Iterator[None]:
    """Comes before click, which has something to say about an interrupt and calls a closed pipe a failure."""
    try:
        yield
    except BrokenPipeError as error:
        raise click.exceptions.Exit(_stopped(error)) from None
    except KeyboardInterrupt:
        raise click.exceptions.Exit(_interrupted()) from None
