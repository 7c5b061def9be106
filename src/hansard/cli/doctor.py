"""Whether all is well: `doctor`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import click

from hansard.cli import screen
from hansard.cli.options import Asked, asks, open_store
from hansard.cli.progress import Progress
from hansard.cli.screen import paint, plural

if TYPE_CHECKING:
    from hansard import Finding

DAMAGED = 4

LOSS = frozenset(("damage", "unreadable", "blob", "document"))
"""Kinds of findings that mean that something which was written cannot be read, or not be trusted."""

HEADINGS = {
    "damage": ("damaged place", "damaged places"),
    "unreadable": ("log that cannot be read", "logs that cannot be read"),
    "torn": ("write cut short by a crash", "writes cut short by a crash"),
    "unborn": ("session whose beginning was cut short", "sessions whose beginning was cut short"),
    "catalog": ("place where the catalog is behind", "places where the catalog is behind"),
    "index": ("search index that is broken", "search indexes that are broken"),
    "foreign": ("thing that is not ours", "things that are not ours"),
    "blob": ("blob that is missing or altered", "blobs that are missing or altered"),
    "document": ("document that cannot be read", "documents that cannot be read"),
    "leftover": ("thing that a crash left", "things that a crash left"),
    "aside": ("piece set aside", "pieces set aside"),
}
"""What a kind is called, in the order of their weight; others come last under their own name."""


@click.command(
    epilog="""\b
Examples:
  hansard doctor
  hansard doctor --repair
  hansard doctor --store /srv/agents --json | jq '.findings[].place'

\b
Exit code: 4 where something that was written is lost or cannot be trusted, else 0.
"""
)
@click.option("--repair", is_flag=True, help="Mend what can be mended; a copy of it is kept first.")
@asks
def doctor(asked: Asked, repair: bool) -> None:
    """Check every session: what is wrong, where, and what to do.

    Nothing is changed without --repair. With it, what can be read of a damaged log becomes a sound one, what
    a crash left is taken away, and everything that is replaced is kept under aside/.
    """
    with open_store(asked, reading=not repair) as store:
        with Progress("looking", unit="session") as progress:
            report = store.doctor(repair, told=progress)
    lost = [finding for finding in report.findings if finding.kind in LOSS and not finding.repaired]
    if asked.json:
        fields = ("kind", "session", "place", "detail", "remedy", "repaired")
        screen.print_json(
            {
                "store": store.url,
                "sessions": report.sessions,
                "ok": not report,
                "damaged": bool(lost),
                "findings": [{name: getattr(f, name) for name in fields} for f in report.findings],
            }
        )
    else:
        for text in _told(report.findings):
            click.echo(text)
        looked = f"{plural(report.sessions, 'session')} looked at"
        if lost:
            sessions = {finding.session for finding in lost}
            click.echo(paint(f"{looked}; {plural(len(sessions), 'session')} damaged.", "bad"))
        elif report:
            click.echo(paint(f"{looked}; nothing is lost.", "good"))
        else:
            click.echo(paint(f"All is well: {looked}.", "good"))
    if lost:
        click.get_current_context().exit(DAMAGED)


def _told(findings: Sequence[Finding]) -> Iterator[str]:
    order = list(HEADINGS)
    room = screen.width()

    def weight(finding: Finding) -> int:
        return order.index(finding.kind) if finding.kind in order else len(order)

    for kind, group in groupby(sorted(findings, key=lambda f: (weight(f), f.kind)), key=lambda f: f.kind):
        found = list(group)
        heading = plural(
            len(found), *HEADINGS.get(kind, (f"finding of kind {kind}", f"findings of kind {kind}"))
        )
        yield paint(screen.safe(heading), "bad" if kind in LOSS else "strong")
        remedies = [finding.remedy for finding in found]
        for finding, following in zip(found, [*remedies[1:], None], strict=True):
            yield f"  {screen.line(finding.place)}"
            yield from (f"    {part}" for part in screen.wrap(screen.line(finding.detail), room and room - 4))
            if finding.remedy and finding.remedy != following:  # the same advice once, below the last
                advice = screen.wrap("→ " + screen.line(finding.remedy), room and room - 2)
                yield from (f"  {part}" for part in advice)
        yield ""
