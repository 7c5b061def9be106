"""What every command takes and does alike: `--store`, `--json`, opening the store, naming a session."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from hansard.cli import streams
from hansard.errors import HansardError, NewerFormat, NotAStore

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from hansard.store import Store


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


def sessions(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The ids that begin as typed, with their titles, for the shell; the newest first."""
    from click.shell_completion import CompletionItem

    from hansard.cli.screen import line

    exact = isinstance(param, click.Option)
    with suppress(Exception), open_store(asked_of(ctx, ctx.params.get("store"))) as store:
        if incomplete.startswith("@") and not exact:
            return [CompletionItem("@active", help="the session opened last")]
        found = store.list(limit=200, empty=True)
        return [
            CompletionItem(head.id, help=line(head.title) or "(no title)")
            for head in found
            if (exact or not head.id.startswith(("@", "-")))
            and (head.id.startswith(incomplete) or head.id.startswith(f"sess_{incomplete}"))
        ]
    return []
