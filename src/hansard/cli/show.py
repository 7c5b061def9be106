"""What was said in a session: `show`."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import click

from hansard import messages
from hansard.cli import screen
from hansard.cli.options import Asked, Count, asks, by_id, end_with, meant, open_store, sessions
from hansard.cli.screen import line, paint, plural, safe, size_of

if TYPE_CHECKING:
    from hansard import Head, Record, View

FOLDED = 160
"""Characters of a tool's input or output that are shown where nobody counts columns."""


@click.command(
    epilog="""\b
Examples:
  hansard show                  the session opened last
  hansard show 7k2m --limit 10  its newest ten messages, by the beginning of its id
  hansard show --records        everything that was written, also what the model no longer sees
  hansard show --json | jq -r '.messages[] | select(.role == "user").content'
"""
)
@click.argument("ref", required=False, default="", shell_complete=sessions)
@by_id
@click.option(
    "--records", "everything", is_flag=True, help="Every record, also what the model no longer sees."
)
@click.option("--limit", type=Count(), metavar="N", help="Only the newest N.  [default: all]")
@asks
def show(asked: Asked, *, ref: str, id: str | None, everything: bool, limit: int | None) -> None:
    """Read a session: what it is, and what the model sees of it.

    REF is an id, the beginning of one, or a name (@active). Without it: the session opened last, else the
    newest.
    """
    with open_store(asked, reading=True) as store:
        view = store.read(meant(store, ref, id))
        if asked.json:
            _print_json(view, everything, limit)
        else:
            room = screen.width()
            body = _records(view, limit, room) if everything else _history(view, limit, room)
            _print(chain(_facts(view.head), body))
        damage = view.damage
    end_with(damage)


# -- the head ---------------------------------------------------------------------------------------


def _facts(head: Head) -> Iterator[str]:
    room = screen.width()
    status = [head.status, *(["pinned"] if head.pinned else []), *(["archived"] if head.archived else [])]
    facts = {
        "id": head.id,
        "agent": head.agent,
        "model": " · ".join(filter(None, (head.model, head.vendor, head.endpoint))),
        "workspace": head.workspace,
        "status": ", ".join(status),
        "labels": ", ".join(head.labels),
        "parent": head.parent or "",
        "active": f"{screen.ago(head.updated_at)}, begun {screen.ago(head.created_at)}",
        "messages": f"{head.messages:,}",
        "tokens": screen.tokens(head.usage),
        "meta": screen.json_text(head.meta) if head.meta else "",
        "summary": head.summary,
    }
    for part in screen.wrap(line(head.title) or "(no title)", room):
        yield paint(part, "strong")
    for name, fact in facts.items():
        first = True
        for part in screen.wrap(line(fact), room and room - 13) if fact else ():
            yield f"  {paint((name if first else '').ljust(9), 'quiet')}  {part}"
            first = False


# -- messages ---------------------------------------------------------------------------------------


def _history(view: View, limit: int | None, room: int | None) -> Iterator[str]:
    head = view.head
    seen = view.history(limit)
    if head.base.after >= 0:
        yield ""
        yield paint("(What the model sees now; --records has everything that was written.)", "quiet")
    if limit and limit == len(seen) < head.messages:
        yield ""
        yield paint(f"(The newest {limit:,}; without --limit all.)", "quiet")
    tools: dict[str, str] = {}
    for payload in seen:
        yield ""
        yield from _message(payload, None, tools, room)
    if not seen and limit != 0:
        yield ""
        yield "The model sees no messages." if head.messages else "No messages yet."


def _message(
    payload: Any, shape: str | None, tools: dict[str, str], room: int | None, *, headed: bool = True
) -> Iterator[str]:
    """A message, its text whole, tools folded to a line each. `tools` learns which call had which name."""
    message = messages.read(payload, shape)
    if headed:
        style = {"user": "user", "assistant": "assistant"}.get(message.role, "tool")
        yield paint(message.role or "message", style)
    if not message.parts:
        yield from _folded("", "empty" if message.shape else screen.json_text(payload), "", room)
    for part in message.parts:
        match part.kind:
            case "text" | "other":
                yield from _text(part.text, room)
            case "reasoning":
                yield from _folded("~ ", part.text, "quiet", room, name="reasoning")
            case "call":
                tools[part.id] = part.name
                yield from _folded("→ ", part.text, "tool", room, name=part.name or "call")
            case "result":
                name = part.name or tools.get(part.id, "") or "result"
                style = "bad" if part.error else "tool"
                yield from _folded(
                    "← ", part.text, style, room, name=f"{name} failed" if part.error else name
                )
            case _:
                what = " ".join(filter(None, (part.kind, part.name, part.mime)))
                inline = part.media.startswith("data:")
                where = f"({size_of(part.media)})" if inline else part.media or part.text
                yield from _folded("", where, "quiet", room, name=what)


def _text(text: str, room: int | None) -> Iterator[str]:
    for part in screen.wrap(safe(text), room and room - 2):
        yield f"  {part}".rstrip()


def _folded(mark: str, text: str, style: str, room: int | None, *, name: str = "") -> Iterator[str]:
    """One line for what may be megabytes: its name, its beginning, its size if not all of it is there."""
    named = mark + line(name, 60)
    start = line(text, FOLDED if room is None else room)
    gap = "  " if named and start else ""
    told = ""
    if start.endswith("…") or (room is not None and screen.cells(f"  {named}{gap}{start}") > room):
        told = f"  ({size_of(text)})"
        if room is not None:
            named = screen.fit(named, max(8, room - 10 - screen.cells(told)))
            start = screen.fit(start, max(4, room - screen.cells(f"  {named}{gap}{told}")))
    yield f"  {paint(named, style)}{gap}{start}{paint(told, 'quiet')}"


# -- records ----------------------------------------------------------------------------------------


def newest(view: View, limit: int | None) -> Iterable[Record]:
    """The newest records, the oldest of them first."""
    if limit is None:
        return view.records()
    return reversed(list(view.records(limit=limit, reverse=True)))


def _records(view: View, limit: int | None, room: int | None) -> Iterator[str]:
    head = view.head
    seen = [part for part in head.base.parts if len(part) == 2]
    tools: dict[str, str] = {}
    for record in newest(view, limit):
        what = record.kind
        if record.kind == "message":
            what = messages.read(record.data, record.shape).role or "message"
            if record.seq <= head.base.after and not any(a <= record.seq <= b for a, b in seen):
                what += ", no longer seen"
        told = [f"#{record.seq}", line(what), screen.ago(record.when)]
        told += [line(record.id, 60)] if record.id else []
        yield ""
        yield paint(" · ".join(told), "quiet" if "no longer" in what else "strong")
        yield from record_lines(record, tools, room)


def record_lines(record: Record, tools: dict[str, str], room: int | None) -> Iterator[str]:
    """What a record says, whatever its kind. `tools` learns which call had which name."""
    data = record.data
    if record.kind == "message":
        yield from _message(data, record.shape, tools, room, headed=False)
    elif record.kind == "history" and isinstance(data, dict):
        parts = data.get("parts")
        yield f"  {line(str(data.get('op', 'changed')))}: {_seen_after(parts)}"
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, dict):
                said = _message(part.get("message"), None, tools, room and room - 2)
                yield from (f"  {text}" for text in said)
        if data.get("summary"):
            yield from _folded("", str(data["summary"]), "quiet", room, name="summary")
    else:
        yield from _folded("", screen.json_text(data), "", room)
    if isinstance(record.usage, dict):
        yield from _folded("", screen.json_text(record.usage), "quiet", room, name="usage")


def _seen_after(parts: Any) -> str:
    """What the model sees after a history record, in words."""
    told = []
    new = 0
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, list) and len(part) == 2:
            told.append(f"record {part[0]}" if part[0] == part[1] else f"records {part[0]} to {part[1]}")
        elif isinstance(part, list) and len(part) == 3:
            told.append(f"{plural(part[2] - part[1] + 1, 'message')} of record {part[0]}")
        elif isinstance(part, dict):
            new += 1
    told += [f"{plural(new, 'message')} written here"] if new else []
    return f"the model sees {', '.join(told)}" if told else "the model sees nothing of what came before"


# -- printing ---------------------------------------------------------------------------------------


def _print(lines: Iterable[str]) -> None:
    """To a pager where it does not fit a terminal."""
    texts = (f"{text}\n" for text in lines)
    if sys.stdout.isatty():
        page = list(islice(texts, max(1, shutil.get_terminal_size().lines - 1)))
        rest = next(texts, None)
        if rest is None:
            click.echo("".join(page), nl=False)
        else:
            whole = chain(page, [rest], texts)
            if _pager():
                click.echo_via_pager(whole)
            else:
                for text in whole:
                    click.echo(text, nl=False)
        return
    while some := "".join(islice(texts, 500)):
        click.echo(some, nl=False)


def _pager() -> bool:
    """Whether $PAGER, if anything is in it, is a command at all."""
    try:
        shlex.split(os.environ.get("PAGER", ""))
    except ValueError:
        return False
    return True


def _print_json(view: View, everything: bool, limit: int | None) -> None:
    """One object, a line for each message or record: however many there are, they pass through one by one."""
    found: Iterable[Any] = map(record_json, newest(view, limit)) if everything else view.history(limit)
    name = "records" if everything else "messages"
    out: list[str] = [f'{{"head":{screen.json_text(screen.head_json(view.head))},"{name}":[']
    separator = "\n"
    for item in found:
        out.append(separator + screen.json_text(item))
        separator = ",\n"
        if len(out) > 500:
            click.echo("".join(out).encode(), nl=False)
            out.clear()
    click.echo(("".join(out) + "\n]}").encode())


def record_json(record: Record) -> dict[str, Any]:
    """A record as it was written: what it has not, it does not show."""
    found = {name: getattr(record, name) for name in record.__struct_fields__ if name not in ("extra", "sum")}
    kept = {name: value for name, value in found.items() if name in _ALWAYS or value not in (None, (), {})}
    return kept | record.extra


_ALWAYS = ("kind", "data", "at", "seq")
