"""What runs here: `version`."""

from __future__ import annotations

import click

from hansard.cli import screen
from hansard.cli.options import Asked, asks, place


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

    found = {**versions(), "store": place(asked)}
    if asked.json:
        screen.print_json(found)
        return
    room = max(map(len, found))
    for name, value in found.items():
        click.echo(f"{screen.paint(name.ljust(room), 'quiet')}  {screen.safe(value)}")
