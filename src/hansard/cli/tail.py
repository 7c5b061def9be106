"""What is said last, and what is said from now on: `tail`."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, cast

import click

from hansard import messages
from hansard.cli import screen, streams
from hansard.cli.options import Asked, Count, asks, by_id, end_with, meant, open_store, sessions
from hansard.cli.screen import line, paint
from hansard.cli.show import newest, record_json, record_lines
from hansard.errors import HansardError, SessionNotFound

if TYPE_CHECKING:
    from hansard import Record, Store
    from hansard.cli import outputs


@click.command(
    epilog="""\b
Examples:
  hansard tail                 the last records of the session opened last
  hansard tail 7k2m -f         and what comes, as it comes, from whichever process
  hansard tail --all -f        what comes in any session
  hansard tail -f -n 0 --json | jq -r 'select(.record.kind == "message").record.data.content'
"""
)
@click.argument("ref", required=False, default="", shell_complete=sessions)
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written from now on, until Ctrl-C.")
@click.option(
    "-n", "--limit", type=Count(), default=10, metavar="N", help="Begin with the newest N.  [default: 10]"
)
@click.option("--all", "everywhere", is_flag=True, help="Follow every session, also those begun from now on.")
@by_id
@asks
def tail(asked: Asked, *, ref: str, id: str | None, follow: bool, limit: int, everywhere: bool) -> None:
    """Show the newest records of a session, and follow it.

    REF is an id, the beginning of one, or a name (@active). Without it: the session opened last, else the
    newest. With --json each record is a line. Following ends when the session is deleted.
    """
    if everywhere and (ref or id is not None or not follow):
        raise click.UsageError("--all goes with -f, and without a REF")
    with open_store(asked, reading=True) as store:
        told = _Teller(store, asked, many=everywhere)
        if everywhere:
            with store.follow() as coming:
                told.tell((session, record) for session, record, _ in coming)
            return
        view = store.read(meant(store, ref, id))
        told.tell((view.id, record) for record in newest(view, limit))
        damage = view.damage
        if follow:
            with suppress(SessionNotFound), store.follow(view.head, after=view.seq) as coming:
                told.tell((session, record) for session, record, _ in coming)
            streams.told(f"{paint('hansard: ', 'quiet')}{line(view.id)} was deleted")
    if not follow:
        end_with(damage)


class _Teller:
    """Prints records as they come. It remembers which tools were called, and whose record was the last."""

    def __init__(self, store: Store, asked: Asked, *, many: bool) -> None:
        self._store = store
        self._json = asked.json
        self._many = many
        self._last = ""
        self._begun = False
        self._tools: dict[str, dict[str, str]] = {}

    def tell(self, records: Iterable[tuple[str, Record]]) -> None:
        for session, record in records:
            if self._json:
                told: outputs.Told = {
                    "session": session,
                    "record": cast("outputs.Record", record_json(record)),
                }
                click.echo(screen.json_text(told).encode())
            else:
                click.echo("\n".join(self._lines(session, record)))

    def _lines(self, session: str, record: Record) -> list[str]:
        room = screen.width()
        lines = [""] if self._begun else []
        self._begun = True
        if self._many and session != self._last:
            lines.append(paint(screen.fit(f"{line(session)}  {self._title(session)}", room or 200), "id"))
        self._last = session
        role = messages.read(record.data, record.shape).role if record.kind == "message" else record.kind
        style = {"user": "user", "assistant": "assistant"}.get(role, "tool")
        when = record.when.astimezone()
        facts = f"#{record.seq} · {when:%H:%M:%S} · {screen.ago(record.when)}"
        lines.append(f"{paint(line(role or 'message', 60), style)}  {paint(facts, 'quiet')}")
        lines += record_lines(record, self._tools.setdefault(session, {}), room)
        return lines

    def _title(self, session: str) -> str:
        try:
            return line(self._store.head(session).title, 60)
        except SessionNotFound:
            return ""
        except HansardError:
            return "(cannot be read)"
