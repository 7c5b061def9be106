"""What runs here: `version`."""

from __future__ import annotations

import click

from hansard.cli import screen
from hansard.cli.options import Asked, asks, place
from hansard.errors import HansardError


@click.command(
    epilog="""\b
Examples:
  hansard version
  hansard version --json | jq -r .store
"""
)
@asks
def version(asked: Asked) -> None:
    """Show the versions of what runs, and where the store is."""
    from hansard.store import versions

    found = {**versions(), "store": _store(asked)}
    if asked.json:
        screen.print_json(found)
        return
    room = max(map(len, found))
    for name, value in found.items():
        shown = "not known; set $HANSARD_STORE" if value is None else screen.safe(value)
        click.echo(f"{screen.paint(name.ljust(room), 'quiet')}  {shown}")


def _store(asked: Asked) -> str | None:
    """Where the store is, as text; None where nothing says so."""
    try:
        return place(asked).encode(errors="surrogateescape").decode(errors="replace")
    except HansardError:
        return None
