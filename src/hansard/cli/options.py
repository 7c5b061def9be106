"""What every command takes and does alike: `--store`, `--json`, opening the store, naming a session."""

from __future__ import annotations

import os
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from hansard.cli import streams
from hansard.errors import AmbiguousSession, HansardError, NewerFormat, NotAStore, SessionNotFound

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from hansard.store import Store


DAMAGED = 4


class Refused(click.ClickException):
    """What is not done, in a line that says why. It ends with 1."""

    def show(self, file: Any = None) -> None:
        from hansard.cli.screen import safe

        streams.told(click.style("hansard: ", fg="red") + safe(self.message))


class Unknown(SessionNotFound):
    """No session is named so; with those that may have been meant, as (id, title)."""

    def __init__(self, ref: str, detail: str, candidates: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(ref, detail)
        self.candidates = list(candidates)


class Asked(NamedTuple):
    """What was asked of a command beside its own options. `store` is None where nothing was said."""

    store: str | None
    json: bool


def command_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The two options of every command, and of `hansard` itself."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs."),
        click.option(
            "--store", metavar="URL", help="The store: a folder or a URL. [default: $HANSARD_STORE]"
        ),
    ):
        function = option(function)
    return function


def asks(function: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command its `Asked`; what was given before the command's name counts too."""

    @command_options
    @wraps(function)
    def command(*, store: str | None, as_json: bool, **rest: Any) -> Any:
        return function(asked_of(click.get_current_context(), store, as_json), **rest)

    return command


def asked_of(ctx: click.Context, store: str | None = None, as_json: bool = False) -> Asked:
    """What was asked, here or at the root of the command."""
    above = ctx.find_root().params
    return Asked(store if store is not None else above.get("store"), as_json or above.get("as_json", False))


class Count(click.IntRange):
    """How many at most. More than a store can have means all."""

    def __init__(self) -> None:
        super().__init__(min=0)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return min(super().convert(value, param, ctx), sys.maxsize - 1)


_SPAN = r"(\d+)\s*(s|m|min|h|d|w)"
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def moment(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """A time: how long ago (`30m`, `2h`, `3d`, `1w`), `today`, or a date in ISO 8601, maybe local."""
    if value is None:
        return None
    text = value.strip().lower()
    span = re.fullmatch(_SPAN, text)
    try:
        if span:
            return datetime.now(UTC) - timedelta(seconds=int(span[1]) * _SECONDS[span[2]])
        if text == "today":
            return datetime.now().astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
        return datetime.fromisoformat(text.upper()).astimezone()
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{value!r} is no time; give one like 30m, 2h, 3d, 1w, today or 2026-05-01"
        ) from None


_BYTES = r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?"


def byte_count(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """A number of bytes: `5GB`, `500M`, `1.5GiB`, `1000`."""
    if value is None:
        return None
    found = re.fullmatch(_BYTES, value.strip(), re.IGNORECASE)
    if found is None or (found[3] and not found[2]):
        raise click.BadParameter(f"{value!r} is no size; give one like 500MB, 5GB or 2GiB")
    power = "kmgt".index(found[2].lower()) + 1 if found[2] else 0
    return int(float(found[1]) * (1024 if found[3] else 1000) ** power)


def pairs(given: Sequence[str], option: str) -> dict[str, Any]:
    """What was given as KEY=VALUE. A value that is JSON is that, every other one is text."""
    from hansard.records import decode

    found: dict[str, Any] = {}
    for one in given:
        key, equals, value = one.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{one!r} is not KEY=VALUE", param_hint=option)
        try:
            found[key] = decode(value.encode())
        except (ValueError, RecursionError):
            found[key] = value
    return found


def by_id(function: Callable[..., Any]) -> Callable[..., Any]:
    """The option for an id that an argument cannot be, because it looks like a name or an option."""
    return click.option(
        "--id",
        metavar="ID",
        shell_complete=sessions,
        help="The session of just this id, also one like @x or -x.",
    )(function)


def says_yes(function: Callable[..., Any]) -> Callable[..., Any]:
    """The option of commands that destroy something."""
    return click.option("--yes", "-y", is_flag=True, help="Do not ask.")(function)


def confirm(question: str, *, yes: bool) -> None:
    """Asks before something is destroyed. Where nobody can be asked and nobody has said yes, it is not."""
    if yes:
        return
    if not all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr)):
        raise Refused("nothing was done: there is no terminal to ask at; add --yes if you mean it")
    streams.told(f"{question} [y/N] ", newline=False)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Refused("nothing was done")


def open_store(asked: Asked, *, create: bool = False, reading: bool = False) -> Store:
    """The store that was asked for; it is begun only with `create`. Who is only `reading` also gets one of a
    newer version, as far as this one understands it."""
    from hansard.cli.screen import safe
    from hansard.store import STORE, open

    try:
        try:
            return open(asked.store, create=create)
        except NewerFormat:
            if not reading:
                raise
            store = open(asked.store, readonly=True)
            told = f"{safe(place(asked))} was written by a newer version; this is what can be read of it"
            streams.told(click.style("hansard: ", fg="yellow") + told)
            return store
    except HansardError:
        raise
    except ValueError as error:
        hint = f"${STORE}" if asked.store is None else "--store"
        raise click.BadParameter(str(error), param_hint=hint) from None


def open_if_there(asked: Asked) -> AbstractContextManager[Store | None]:
    """The store, or None where nobody has begun one yet; a store that was named must be there."""
    try:
        return open_store(asked, reading=True)
    except NotAStore as error:
        if asked.store is not None or not error.missing:
            raise
        return nullcontext()


def when_missing(error: HansardError) -> str:
    """What to say where there is no store at all, "" where that is not what is wrong."""
    if not isinstance(error, NotAStore) or not error.missing:
        return ""
    return f"there is no store at {error.path}; check the path (a store begins with its first session)"


def place(asked: Asked) -> str:
    """Where the store is, or would be."""
    from hansard.store import STORE, default_path

    return asked.store or os.environ.get(STORE, "").strip() or default_path()


def meant(store: Store, ref: str, id: str | None = None, *, needed: bool = False) -> str:
    """The id of the session that was asked for: a REF or an --id. Without any it is the one opened last, but
    where something is written or deleted (`needed`): a variable of a script may have been empty."""
    if id is not None:
        if ref:
            raise click.UsageError("give a REF or an --id, not both")
        return id
    if needed and not ref.strip():
        raise click.UsageError("no session is named; give a REF: an id, the beginning of one, or @active")
    try:
        return store.resolve(ref)
    except SessionNotFound as error:
        from hansard.cli.guesses import guessed

        raise guessed(store, ref, error) from None


def end_with(damage: Sequence[object]) -> None:
    """Says of a session that was shown that not all of it could be, if that is so, and ends with 4."""
    from hansard.cli.screen import plural

    if damage:
        what = f"{plural(len(damage), 'place')} of this session {'is' if len(damage) == 1 else 'are'} damaged"
        streams.told(click.style("hansard: ", fg="red") + f"{what}; see `hansard doctor`")
        click.get_current_context().exit(DAMAGED)


def first_of(words: Sequence[str], id: str | None) -> tuple[str, list[str]]:
    """The REF among the arguments, and the others; with an --id all of them are others."""
    return ("", list(words)) if id is not None or not words else (words[0], list(words[1:]))


def sessions(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The ids that begin as typed, with their titles, for the shell; the newest first. A shell says nothing
    where this fails, and none puts an id into the line that it would read as something else."""
    from hansard.store import open

    url = asked_of(ctx, ctx.params.get("store")).store
    try:
        with warnings.catch_warnings(action="ignore"), open(url, readonly=True) as store:
            return list(_offered(store, incomplete, exact=isinstance(param, click.Option)))
    except Exception:
        return []


def _offered(store: Store, incomplete: str, *, exact: bool) -> Iterator[CompletionItem]:
    from click.shell_completion import CompletionItem

    from hansard.cli.screen import line

    if incomplete.startswith("@") and not exact:
        names = {"active": store.active() or "", **store.names.list(incomplete[1:].partition("/")[0])}
        for name, id in names.items():
            if name.startswith(incomplete[1:]) and shlex.quote(name) == name:
                told = "the session opened last" if name == "active" else line(id)
                yield CompletionItem(f"@{name}", help=told)
        return
    found = {
        head.id: head.title
        for head in store.list(limit=NEWEST, empty=True)
        if head.id.startswith((incomplete, f"sess_{incomplete}"))
    }
    if incomplete and len(found) < 10:  # an older one
        with suppress(SessionNotFound):
            try:
                id = store.resolve(incomplete)
                found.setdefault(id, store.head(id).title)
            except AmbiguousSession as several:
                found = dict(several.candidates) | found
    for id, title in found.items():
        if (exact or not id.startswith(("@", "-"))) and shlex.quote(id) == id:
            yield CompletionItem(id, help=line(title) or "(no title)")


def first_session(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The same for the first of several arguments."""
    return [] if ctx.params.get(param.name or "") else sessions(ctx, param, incomplete)


NEWEST = 100
"""How many sessions a shell is offered without looking further."""
