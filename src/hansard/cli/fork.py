"""A session that goes on elsewhere: `fork`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from hansard.cli import screen
from hansard.cli.options import Asked, Refused, asks, by_id, meant, open_store, sessions
from hansard.cli.progress import Progress
from hansard.errors import HansardError

if TYPE_CHECKING:
    from hansard.cli import outputs


@click.command(
    epilog="""\b
Examples:
  hansard fork 7k2m
  hansard fork 7k2m --at 12 --title "With the other library"
  hansard show "$(hansard fork @active)"
"""
)
@click.argument("ref", required=False, default="", shell_complete=sessions)
@click.option(
    "--at",
    type=click.IntRange(min=0),
    metavar="SEQ",
    help="As it was just after this record; see `hansard show --records`.  [default: as it is]",
)
@click.option("--as", "name", metavar="ID", help="The id of the fork.  [default: a new one]")
@click.option("--title", metavar="TEXT", help="A title of its own.")
@click.option("--agent", metavar="NAME", help="Another agent.")
@click.option("--model", metavar="NAME", help="Another model.")
@click.option("--workspace", metavar="FOLDER", help="Another folder.")
@click.option("--label", "labels", metavar="LABEL", multiple=True, help="Other labels; repeatable.")
@by_id
@asks
def fork(
    asked: Asked,
    *,
    ref: str,
    id: str | None,
    at: int | None,
    name: str | None,
    labels: Sequence[str],
    **fields: Any,
) -> None:
    """Begin a session with the history of another one, and print its id.

    It stands by itself: the other one stays as it is, and may go. It becomes the active one. What is not said
    of it is as it is there.
    """
    fields |= {"labels": list(labels) or None}
    with open_store(asked) as store:
        exact = meant(store, ref, id, needed=True)
        try:
            with Progress("copying"), store.fork(exact, at=at, id=name, **fields) as session:
                head = session.head
        except HansardError:
            raise
        except ValueError as error:  # there is no such record
            raise Refused(str(error)) from None
        if asked.json:
            forked: outputs.Changed = {"store": store.url, "session": head.id, "head": screen.head_json(head)}
            screen.print_json(forked)
        else:
            click.echo(screen.safe(head.id))
