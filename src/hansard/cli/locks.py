"""Who is at work: `locks`."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from hansard.cli import screen
from hansard.cli.options import Asked, asks, open_if_there, place
from hansard.errors import HansardError

if TYPE_CHECKING:
    from hansard import Store
    from hansard.cli import outputs


@click.command(
    epilog="""\b
Examples:
  hansard locks
  hansard locks --json | jq -r '.locks[] | "\\(.pid) \\(.session)"'
"""
)
@asks
def locks(asked: Asked) -> None:
    """Show who has which session open.

    A process that died has nothing open. One that hangs keeps its session until it is ended.
    """
    with open_if_there(asked) as store:
        held = [] if store is None else _held(store)
        url = place(asked) if store is None else store.url
    if asked.json:
        found: outputs.Locks = {"store": url, "locks": held}
        screen.print_json(found)
        return
    if not held:
        click.echo("No session is open.", err=True)
        return
    now = datetime.now(UTC)
    room = screen.width()
    longest = 26 if room is None or room >= 60 else 12
    columns = [
        screen.Column("ID", [screen.line(one["session"]) for one in held], style="id", longest=longest),
        screen.Column("TITLE", [screen.line(one["title"], 120) for one in held], wide=True),
        screen.Column("PID", ["" if one["pid"] is None else str(one["pid"]) for one in held], right=True),
        screen.Column("COMMAND", [screen.line(one["command"] or "") for one in held], rank=1),
        screen.Column("USER", [screen.line(one["user"] or "") for one in held], rank=3, longest=12),
        screen.Column("HOST", [screen.line(one["host"] or "") for one in held], rank=4, longest=16),
        screen.Column(
            "SINCE",
            [screen.ago(one["since"], now) if one["since"] else "" for one in held],
            rank=2,
            right=True,
            style="quiet",
        ),
    ]
    click.echo("\n".join(screen.table(columns, room)))


def _held(store: Store) -> list[outputs.Lock]:
    found: list[outputs.Lock] = []
    for holder in store.locks():
        title = ""
        with suppress(HansardError):  # one in which nothing was written yet
            title = store.head(holder.session).title
        found.append(
            {
                "session": holder.session,
                "title": title,
                "pid": holder.pid,
                "started": holder.started,
                "host": holder.host,
                "user": holder.user,
                "command": holder.command,
                "since": holder.since,
            }
        )
    return found
