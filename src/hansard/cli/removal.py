"""What takes something away for good: `rm`, `cleanup` and `vacuum`. Each asks first."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

import click

from hansard.cli import screen, streams
from hansard.cli.options import (
    Asked,
    asks,
    by_id,
    byte_count,
    confirm,
    meant,
    moment,
    open_store,
    says_yes,
    sessions,
)
from hansard.cli.progress import Progress
from hansard.cli.screen import line, paint, plural, safe, size
from hansard.cli.sessions import rows
from hansard.errors import Damaged, HansardError, NewerFormat, SessionNotFound

if TYPE_CHECKING:
    from hansard import Cleanup, Head, Store
    from hansard.cli import outputs

FAILED = 1

SHOWN = 20
"""How many sessions that are to go are named."""


@click.command(
    epilog="""\b
Examples:
  hansard rm 7k2m
  hansard rm --yes build/4711 build/4712
  hansard ls --label scratch --json | jq -r '.sessions[].id' | xargs hansard rm --yes
"""
)
@click.argument("refs", metavar="REF...", nargs=-1, shell_complete=sessions)
@click.option(
    "--id",
    "ids",
    metavar="ID",
    multiple=True,
    shell_complete=sessions,
    help="The session of just this id, also one like @x or -x; repeatable.",
)
@says_yes
@asks
def rm(asked: Asked, *, refs: Sequence[str], ids: Sequence[str], yes: bool) -> None:
    """Delete sessions for good, with their sub-sessions and documents.

    Where one of them is not found, none is deleted. It asks first; what is open is deleted too, and whoever
    has it open is told at the next write.
    """
    if not refs and not ids:
        raise click.UsageError("no session is named; give a REF: an id, the beginning of one, or @active")
    with open_store(asked) as store:
        chosen = list(dict.fromkeys([*(_deletable(store, ref) for ref in refs), *ids]))
        heads = {id: _head(store, id) for id in chosen}
        if not yes:
            _ask(store, heads)
        gone: list[str] = []
        missing: list[str] = []
        try:
            with Progress("deleting", unit="session", total=len(chosen)) as progress:
                for done, id in enumerate(chosen):
                    progress(done)
                    (gone if store.delete(id) else missing).append(id)
        finally:  # if one cannot be deleted, the others are gone all the same
            for id in () if asked.json else gone:
                click.echo(f"Deleted {_named(id, heads[id])}")
        if asked.json:
            removed: outputs.Removed = {"store": store.url, "deleted": gone, "missing": missing}
            screen.print_json(removed)
    for id in missing:
        streams.told(click.style("hansard: ", fg="yellow") + f"{line(id)} was gone already")


def _deletable(store: Store, ref: str) -> str:
    try:
        return meant(store, ref, needed=True)
    except (Damaged, NewerFormat):  # what cannot be read has been found
        return ref


def _head(store: Store, id: str) -> Head | None:
    """The head of a session; None where it cannot be read, which is no reason to keep it."""
    try:
        return store.head(id)
    except SessionNotFound:
        raise
    except HansardError:
        return None


def _named(id: str, head: Head | None) -> str:
    title = "cannot be read" if head is None else line(head.title, 60) or "(no title)"
    return f"{line(id)}  {title}"


def _ask(store: Store, heads: dict[str, Head | None]) -> None:
    holders = {holder.session: holder for holder in store.locks()}
    _table([head for head in heads.values() if head is not None], beside=True)
    for id, head in heads.items():
        if head is None:
            streams.told(_named(id, head))
        if id in holders:
            streams.told(paint(f"{line(id)} is open by {safe(str(holders[id]))}", "bad"))
    them = "it" if len(heads) == 1 else f"these {len(heads):,} sessions"
    confirm(f"Delete {them} for good?", yes=False)


@click.command(
    epilog="""\b
Examples:
  hansard cleanup --older-than 90d --dry-run
  hansard cleanup --older-than 30d --keep-last 100
  hansard cleanup --max-bytes 5GB --yes
"""
)
@click.option(
    "--older-than", callback=moment, metavar="TIME", help="Without activity since: 30d, 12w, 2026-05-01."
)
@click.option("--keep-last", type=click.IntRange(min=0), metavar="N", help="Not the newest N.")
@click.option(
    "--max-bytes", callback=byte_count, metavar="SIZE", help="The oldest, until all take no more: 500MB, 5GB."
)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@says_yes
@asks
def cleanup(
    asked: Asked,
    *,
    older_than: datetime | None,
    keep_last: int | None,
    max_bytes: int | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Delete old sessions: by age, by number, by size.

    Pinned, open and named sessions stay, and those that they are a part of. What a crash left, and documents
    whose time is over, go as well. It says what is to go, and asks first.
    """
    if older_than is None and keep_last is None and max_bytes is None:
        raise click.UsageError("say what is to go: --older-than, --keep-last or --max-bytes")

    def clean(store: Store, *, dry_run: bool) -> Cleanup:
        with Progress("looking for what may go" if dry_run else "deleting"):
            return store.cleanup(
                older_than=older_than, keep_last=keep_last, max_bytes=max_bytes, dry_run=dry_run
            )

    with open_store(asked, reading=dry_run) as store:
        done = clean(store, dry_run=dry_run or not yes)
        if not dry_run and not yes:
            if done.count:
                _tell(store, done, beside=True)
                what = plural(done.count, "session")
                confirm(f"Delete {what} for good ({size(done.bytes)})?", yes=False)
                done = clean(store, dry_run=False)
            else:
                done.dry_run = False  # there was nothing to ask about
        if asked.json:
            cleaned: outputs.Cleaned = {
                "store": store.url,
                "dry_run": done.dry_run,
                "count": done.count,
                "ids": done.ids,
                "bytes": done.bytes,
                "failed": [{"id": kept.id, "reason": kept.reason} for kept in done.failed],
            }
            screen.print_json(cleaned)
        elif done.dry_run:
            _tell(store, done, beside=False)
            click.echo(f"{plural(done.count, 'session')} would go ({size(done.bytes)}).")
        elif done.count:
            click.echo(f"{plural(done.count, 'session')} deleted ({size(done.bytes)}).")
        else:
            click.echo("No session is to go.")
    for kept in done.failed:
        streams.told(click.style("hansard: ", fg="red") + f"{line(kept.id)} stays: {safe(kept.reason)}")
    if done.failed:
        click.get_current_context().exit(FAILED)


def _tell(store: Store, done: Cleanup, *, beside: bool) -> None:
    """The sessions that are to go, the oldest first."""
    heads = []
    for id in done.ids:
        with suppress(HansardError):
            heads.append(store.head(id))
    _table(heads, beside=beside)


def _table(heads: Sequence[Head], *, beside: bool) -> None:
    """Sessions as a list has them. Beside the output only the first of them."""
    shown = heads[:SHOWN] if beside else heads
    if shown:
        click.echo("\n".join(rows(shown)), err=beside, color=streams.colour())
    if len(heads) > len(shown):
        streams.told(f"and {len(heads) - len(shown):,} more")


@click.command(
    epilog="""\b
Examples:
  hansard vacuum 7k2m
  hansard vacuum 7k2m --drop-history
"""
)
@click.argument("ref", required=False, default="", shell_complete=sessions)
@click.option(
    "--drop-history",
    is_flag=True,
    help="Also what was said and is seen no more.",
)
@by_id
@says_yes
@asks
def vacuum(asked: Asked, *, ref: str, id: str | None, drop_history: bool, yes: bool) -> None:
    """Take out of a session what nobody can miss.

    With --drop-history also what the model no longer sees: that cannot be undone, and it asks first. Title,
    counts, usage and cost stay as they are.
    """
    with open_store(asked) as store:
        exact = meant(store, ref, id, needed=True)
        head = store.head(exact)
        if drop_history:
            confirm(f"Drop what {_named(exact, head)} no longer shows, for good?", yes=yes)
        with Progress("rewriting"):
            done = store.vacuum(exact, drop_history=drop_history)
        if asked.json:
            vacuumed: outputs.Vacuumed = {
                "store": store.url,
                "session": exact,
                "count": done.count,
                "bytes": done.bytes,
            }
            screen.print_json(vacuumed)
        elif done:
            click.echo(f"{plural(done.count, 'record')} taken out ({size(done.bytes)}).")
        else:
            click.echo("There is nothing to take out.")
