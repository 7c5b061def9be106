"""Which sessions there are: `ls`, and what `hansard` alone shows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import click
from click.core import ParameterSource

from hansard.cli import screen
from hansard.cli.options import (
    Asked,
    Count,
    asked_of,
    asks,
    meant,
    moment,
    open_if_there,
    pairs,
    place,
    sessions,
)
from hansard.cli.progress import Progress
from hansard.cli.screen import plural
from hansard.errors import AmbiguousSession, HansardError, SessionNotFound
from hansard.views.head import ORDERS

if TYPE_CHECKING:
    from hansard import Head, Page, Store

NEWEST = 8
"""How many sessions `hansard` alone shows."""

SHORT = 8
"""Characters of a generated id that are shown where there is little room; a prefix is enough to name it."""

FULL_IDS = 110
"""Columns from which on ids are shown whole."""


@click.command(
    epilog="""\b
Examples:
  hansard ls --agent coder --since 2d
  hansard ls --workspace . --limit 5
  hansard ls --json | jq -r '.sessions[].title'
"""
)
@click.option("--agent", metavar="NAME", help="Only sessions of this agent.")
@click.option("--workspace", metavar="FOLDER", help="Only sessions in this folder.")
@click.option("--model", metavar="NAME", help="Only sessions with this model.")
@click.option("--status", metavar="WORD", help="Only sessions with this status.")
@click.option("--label", "labels", metavar="LABEL", multiple=True, help="Only with this label; repeatable.")
@click.option(
    "--since", callback=moment, metavar="TIME", help="Active since: 30m, 2h, 3d, 1w, today, 2026-05-01."
)
@click.option("--until", callback=moment, metavar="TIME", help="Not active since: the same.")
@click.option("--meta", metavar="KEY=VALUE", multiple=True, help="Only with this in its meta; repeatable.")
@click.option("--parent", metavar="REF", shell_complete=sessions, help="The parts of this session.")
@click.option("--pinned/--not-pinned", default=None, help="Only those that are pinned, or are not.")
@click.option("--all", "empty", is_flag=True, help="Also sessions in which nobody has said anything.")
@click.option(
    "--order", type=click.Choice(ORDERS), default=ORDERS[0], help="Newest what first.  [default: activity]"
)
@click.option("--limit", type=Count(), default=20, metavar="N", help="At most N.  [default: 20]")
@click.option("--after", metavar="CURSOR", help="Go on where a page ended.")
@asks
def ls(asked: Asked, *, limit: int, after: str | None, meta: Sequence[str], **filters: Any) -> None:
    """List sessions, the newest activity first."""
    filters["meta"] = pairs(meta, "--meta")
    with open_if_there(asked) as store, Progress("looking for sessions"):
        found = None if store is None else _page(store, limit=limit, after=after, **filters)
        url = place(asked) if store is None else store.url
    heads: Sequence[Head] = found or ()
    following = None if found is None else found.next
    if asked.json:
        screen.print_json({"store": url, "sessions": list(map(screen.head_json, heads)), "next": following})
        return
    if heads:
        click.echo("\n".join(rows(heads)))
    else:
        click.echo(_nothing(url, filters, limit, after), err=True)
    if following is not None:
        click.echo(f"There are more:  {next_page(following)}", err=True)


def _page(store: Store, *, after: str | None, parent: str | None, **which: Any) -> Page:
    above = None if parent is None else meant(store, parent, needed=True)
    try:
        return store.list(after=after, parent=above, **which)
    except HansardError:
        raise
    except (ValueError, RecursionError):
        if after is None:
            raise
        raise click.BadParameter(
            f"{after!r} is no cursor of this list; take the one below the page before, with the same --order",
            param_hint="--after",
        ) from None


def rows(heads: Sequence[Head]) -> Iterator[str]:
    """Sessions as a table."""
    room = screen.width()
    now = datetime.now(UTC)
    full = room is None or room >= FULL_IDS
    ids = [screen.line(head.id) for head in heads] if full else short_ids([head.id for head in heads])
    longest = 36 if full else 12 if room is not None and room < 60 else 16
    return screen.table(
        [
            screen.Column("ID", ids, style="id", longest=longest),
            screen.Column("TITLE", [screen.line(h.title, 120) or "(no title)" for h in heads], wide=True),
            screen.Column("AGENT", [screen.line(h.agent) for h in heads], rank=2, longest=16),
            screen.Column("MODEL", [screen.line(h.model) for h in heads], rank=3, style="quiet"),
            screen.Column("MSGS", [f"{h.messages:,}" for h in heads], rank=1, right=True),
            screen.Column(
                "ACTIVE", [screen.ago(h.updated_at, now) for h in heads], right=True, style="quiet"
            ),
        ],
        room,
    )


def short_ids(ids: Sequence[str]) -> list[str]:
    """The beginnings of generated ids, as long as they must be to differ; others whole."""
    bare = [id.removeprefix("sess_") if re.fullmatch("sess_[0-9a-z]{16}", id) else "" for id in ids]
    length = SHORT
    while length < 16 and len({id[:length] for id in bare}) < len(set(bare)):
        length += 1
    return [short[:length] if short else screen.line(id) for short, id in zip(bare, ids, strict=True)]


def _nothing(url: str, filters: dict[str, Any], limit: int, after: str | None) -> str:
    asked_for = any(filters[name] not in (None, (), {}) for name in filters if name not in ("order", "empty"))
    if asked_for or after or not limit:
        return "No session matches."
    return f"No sessions yet in {screen.safe(url)}. `hansard demo` shows how one is kept."


def next_page(cursor: str) -> str:
    """The command that was given, going on."""
    ctx = click.get_current_context()
    words = ["hansard", ctx.command.name or ""]
    arguments: list[str] = []
    for param in ctx.command.params:
        value = ctx.params.get(param.name or "")
        if (
            param.name == "after"
            or ctx.get_parameter_source(param.name or "") is not ParameterSource.COMMANDLINE
        ):
            continue
        if isinstance(param, click.Argument):
            arguments += value or ()
            continue
        option = param.opts[-1]
        if isinstance(value, bool):
            words.append(option if value else param.secondary_opts[-1])
            continue
        for one in value if isinstance(value, tuple) else (value,):
            words.append(f"{option}={one.isoformat() if isinstance(one, datetime) else one}")
    store = asked_of(ctx).store
    if store is not None and ctx.params.get("store") is None:
        words.append(f"--store={store}")
    apart = ["--"] if any(one.startswith("-") for one in arguments) else []
    return " ".join(map(screen.word, [*words, f"--after={cursor}", *apart, *arguments]))


@click.command()
@click.pass_context
def home(ctx: click.Context) -> None:
    """The newest sessions, and what to do next."""
    asked = asked_of(ctx)
    with open_if_there(asked) as store, Progress("looking for sessions"):
        found = [] if store is None else store.list(limit=NEWEST)
        more = store is not None and getattr(found, "next", None) is not None
        url = place(asked) if store is None else store.url
        newest = _argument(store, found[0]) if store is not None and found else ""
        at_work = 0 if store is None else _at_work(store)
        here = store is not None and _here(store)
    if asked.json:
        screen.print_json({"store": url, "sessions": list(map(screen.head_json, found))})
        return
    option = "" if asked.store is None else f" --store {screen.word(asked.store)}"
    if not found:
        click.echo(_WELCOME.format(store=screen.safe(unquote(url.removeprefix("file:")))), nl=False)
        return
    click.echo("\n".join(rows(found)))
    click.echo()
    following = [
        (f"hansard show {newest}{option}", "read the newest"),
        (f"hansard tail -f {newest}{option}", "follow it"),
        *([(f"hansard locks{option}", f"who has {plural(at_work, 'session')} open")] if at_work else []),
        *([(f"hansard ls --workspace .{option}", "those of this folder")] if here and more else []),
        *([(f"hansard ls{option}", "list them all")] if more else []),
        (f"hansard doctor{option}", "look for damage"),
        ("hansard --help", "all commands"),
    ]
    space = max(len(command) for command, _ in following)
    for command, does in following:
        click.echo(f"  {command.ljust(space)}  {screen.paint(does, 'quiet')}")


def _at_work(store: Store) -> int:
    with suppress(HansardError):
        return len(store.locks())
    return 0


def _here(store: Store) -> bool:
    """Whether there is a session of the current folder."""
    with suppress(HansardError):
        return store.latest(workspace=".") is not None
    return False


def _argument(store: Store, head: Head) -> str:
    """What names this session to `show`: where there is little room the beginning of its id."""
    if head.id.startswith(("@", "-")):
        return screen.word(f"--id={head.id}")
    if screen.width() is not None:
        (short,) = short_ids([head.id])
        with suppress(AmbiguousSession, SessionNotFound):
            if store.resolve(short) == head.id:
                return screen.word(short)
    return screen.word(head.id)


_WELCOME = """\
No sessions yet. They will be kept in
  {store}

  hansard demo    kill a process in the middle of a write, and lose nothing
  hansard --help  all commands

In a script:

  id=$(hansard new --agent coder)
  hansard append $id "Build a login page"

In Python:

  import hansard

  with hansard.open() as store, store.create(agent="coder") as session:
      session.append({{"role": "user", "content": "Build a login page"}})
"""
