"""Recording a session from a script: `new` and `append`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from hansard.cli import screen, streams
from hansard.cli.options import (
    Asked,
    Refused,
    asks,
    first_session,
    meant,
    moment,
    open_store,
    pairs,
    sessions,
)
from hansard.cli.progress import Progress

if TYPE_CHECKING:
    from hansard import Record, Store
    from hansard.cli import outputs


@click.command(
    epilog="""\b
Examples:
  hansard new --agent nightly --workspace .
  id=$(hansard new --title "Nightly build" --label ci --meta run=4711)
  hansard new --id build/4711
"""
)
@click.option("--id", metavar="ID", help="An id of your own.  [default: a new one]")
@click.option("--title", metavar="TEXT", help="A title.  [default: the first thing that is said]")
@click.option("--agent", metavar="NAME", help="Which agent it is of.")
@click.option("--model", metavar="NAME", help="Which model answers.")
@click.option("--vendor", metavar="NAME", help="Whose model that is.")
@click.option("--endpoint", metavar="URL", help="Where the model is.")
@click.option("--workspace", metavar="FOLDER", help="The folder that it is about.")
@click.option("--label", "labels", metavar="LABEL", multiple=True, help="A label; repeatable.")
@click.option(
    "--meta",
    metavar="KEY=VALUE",
    multiple=True,
    help="Kept with it: JSON, else text; repeatable.",
)
@click.option("--no-activate", is_flag=True, help="Leave the active session what it is.")
@asks
def new(
    asked: Asked,
    *,
    id: str | None,
    labels: Sequence[str],
    meta: Sequence[str],
    no_activate: bool,
    **fields: str | None,
) -> None:
    """Begin a session, and print its id.

    It is there at once, and becomes the active one. `hansard ls` shows it once something was said in it;
    with --all before.
    """
    given: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
    given |= {"id": id, "labels": list(labels), "meta": pairs(meta, "--meta")}
    with open_store(asked, create=True) as store:
        head = store.put(given, [])
        if not no_activate:
            store.activate(head)
        if asked.json:
            begun: outputs.Changed = {"store": store.url, "session": head.id, "head": screen.head_json(head)}
            screen.print_json(begun)
        else:
            click.echo(screen.safe(head.id))


@click.command(
    epilog="""\b
Examples:
  hansard append 7k2m "Build a login page"
  make 2>&1 | hansard append @active --role tool
  hansard append 7k2m --payload '{"role": "assistant", "content": "Done."}' --id answer-1
  hansard append 7k2m --jsonl < messages.jsonl
  seq=$(hansard append job/4711 --create "Begun"); hansard append job/4711 --expect "$seq" "Done"
"""
)
@click.argument("words", metavar="REF [TEXT]...", nargs=-1, shell_complete=first_session)
@click.option("--role", metavar="ROLE", help="Who says it.  [default: user]")
@click.option("--payload", "as_payload", is_flag=True, help="What is given is a message in JSON, not a text.")
@click.option("--jsonl", is_flag=True, help="It is several, one in each line: all are stored, or none.")
@click.option("--id", metavar="ID", help="What it is called: a repeat is stored once. Lines: ID/1, ID/2 …")
@click.option(
    "--expect",
    type=click.IntRange(min=-1),
    metavar="SEQ",
    help="Only if SEQ is the last record; -1: if there is no such session yet.",
)
@click.option("--create", is_flag=True, help="Begin the session REF, an exact id, if there is none.")
@click.option("--model", metavar="NAME", help="Which model said it.")
@click.option("--usage", metavar="JSON", help="What it cost, in the words of its provider.")
@click.option("--time", callback=moment, metavar="TIME", help="When it was said.  [default: now]")
@click.option(
    "--session",
    metavar="ID",
    shell_complete=sessions,
    help="The session of just this id, in place of REF; also one like @x or -x.",
)
@asks
def append(
    asked: Asked,
    *,
    words: Sequence[str],
    session: str | None,
    role: str | None,
    as_payload: bool,
    jsonl: bool,
    create: bool,
    usage: str | None,
    time: datetime | None,
    **how: Any,
) -> None:
    """Add what was said to a session, and print the number of its record.

    REF is an id, the beginning of one, or a name (@active). The text is what follows, else what comes in; a
    text that begins with - stands behind --. When the command ends with 0, it is safe on the disk. Whoever
    has the session open sees it at the next read.
    """
    if role is not None and (as_payload or jsonl):
        raise click.UsageError("a message in JSON says itself who speaks; leave --role out")
    if jsonl and usage is not None:
        raise click.UsageError("--usage is of one message; leave it out with --jsonl")
    paid = None if usage is None else _json(usage, "--usage")
    ref, texts = ("", list(words)) if session is not None or not words else (words[0], list(words[1:]))
    if session is None and not ref.strip():
        raise click.UsageError("no session is named; give a REF: an id, the beginning of one, or @active")
    with open_store(asked, create=create) as store:
        exact = session if session is not None else ref if create else meant(store, ref, needed=True)
        text = ("\n" if jsonl else " ").join(texts) if texts else _came_in(nothing=jsonl)
        how |= {"create": create}
        if jsonl:
            with Progress("writing"):
                records = _lines(store, exact, text, time=time, **how)
        else:
            payload = _json(text, "what came") if as_payload else {"role": role or "user", "content": text}
            records = [store.append(exact, payload, usage=paid, time=time, **how)]
        if asked.json:
            written: outputs.Appended = {
                "store": store.url,
                "session": exact,
                "records": [{"seq": record.seq, "id": record.id, "at": record.at} for record in records],
            }
            screen.print_json(written)
        elif records:
            click.echo(str(records[-1].seq))


def _came_in(*, nothing: bool) -> str:
    """The input as text, without the newline at its end. Whether there may be nothing is up to the caller."""
    if sys.stdin is None:
        raise Refused("nothing was stored: there is no text, and no input to take it from")
    if sys.stdin.isatty():
        streams.told("What was said, then Ctrl-D:")
    raw = sys.stdin.buffer.read()
    try:
        text = raw.decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise Refused(f"nothing was stored: byte {error.start:,} of the input is no text in UTF-8") from None
    if not raw and not nothing:
        raise Refused('nothing was stored: nothing came in; "" behind the REF is a text without a word')
    return text


def _json(text: str, what: str) -> Any:
    from hansard.records import decode

    try:
        return decode(text.encode())
    except (ValueError, RecursionError) as error:
        raise Refused(f"nothing was stored: {what} is no JSON: {error}") from None


def _lines(
    store: Store, exact: str, text: str, *, id: str | None, time: datetime | None, **how: Any
) -> list[Record]:
    """Stores a message for each line. With an id they are ID/1, ID/2 …, so that all can be repeated."""
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    payloads = [_json(line, f"line {number:,}") for number, line in lines]
    if id is not None:
        how["ids"] = [f"{id}/{n}" for n in range(1, len(payloads) + 1)]
    if time is not None:
        how["times"] = [time] * len(payloads)
    return store.extend(exact, payloads, **how)
