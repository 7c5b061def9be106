"""What was said in a session: `show`."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, cast

import click
import msgspec

from hansard import messages
from hansard.cli import screen
from hansard.cli.options import Asked, Count, asks, by_id, end_with, meant, open_store, sessions
from hansard.cli.screen import line, paint, plural, safe, size_of
from hansard.views.history import inline
from hansard.views.turns import items
from hansard.views.words import changed, gone

if TYPE_CHECKING:
    from hansard import Head, Record, TurnItem, TurnView, View
    from hansard.cli import outputs

FOLDED = 160
"""Characters of a tool's input or output that are shown where nobody counts columns."""


@click.command(
    epilog="""\b
Examples:
  hansard show                  the session opened last
  hansard show 7k2m --limit 3   its newest three turns, by the beginning of its id
  hansard show --live           what the model sees of it now
  hansard show --records        everything that was written, record by record
  hansard show --json | jq -r '.turns[].request[].text'
"""
)
@click.argument("ref", required=False, default="", shell_complete=sessions)
@by_id
@click.option("--live", is_flag=True, help="Only what the model sees now; in JSON its messages as they are.")
@click.option("--records", is_flag=True, help="Every record as it was written, in place of turns.")
@click.option(
    "--limit", type=Count(), metavar="N", help="Only the newest N turns, or records.  [default: all]"
)
@asks
def show(asked: Asked, *, ref: str, id: str | None, live: bool, records: bool, limit: int | None) -> None:
    """Read a session: what it is, and what was said in it, turn by turn: what somebody put in, and what
    followed, tool calls with their results.

    REF is an id, the beginning of one, or a name (@active). Without it: the session opened last, else the
    newest.
    """
    if live and records:
        raise click.UsageError("give --live or --records, not both")
    with open_store(asked, reading=True) as store:
        view = store.read(meant(store, ref, id))
        if asked.json and records:
            _print_json(view, "records", map(record_json, newest(view, limit)))
        elif asked.json and live:
            _print_json(view, "messages", view.history(limit))
        elif asked.json:
            _print_json(view, "turns", map(turn_json, view.turns(limit=limit)))
        else:
            room = screen.width()
            body = _records(view, limit, room) if records else _turns(view, live, limit, room)
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


# -- turns ------------------------------------------------------------------------------------------


def _turns(view: View, live: bool, limit: int | None, room: int | None) -> Iterator[str]:
    head = view.head
    if live:
        yield ""
        yield paint("(What the model sees now; without --live all that was said.)", "quiet")
    shown = 0
    for turn in view.turns(live=live, limit=limit):
        if not shown and limit is not None and turn.number not in (0, 1):
            yield ""
            yield paint(f"(The newest {limit:,}; without --limit all.)", "quiet")
        shown += 1
        yield ""
        yield _heading(turn, head, room)
        yield from _said(turn.items, room)
    if not shown and limit != 0:
        yield ""
        yield "The model sees no messages." if head.messages else "No messages yet."


def _heading(turn: TurnView, head: Head, room: int | None) -> str:
    """Which turn it is, when it was, who answered where that is not as everywhere, and what it cost."""
    told = [f"from record {turn.first}" if turn.number is None else f"turn {turn.number}"]
    told += [screen.ago(turn.began)] if turn.began else []
    told += [line(model, 60) for model in turn.models if model != head.model]
    told += [cost] if (cost := screen.tokens(turn.usage)) else []
    text = " · ".join(told)
    if room is not None and 2 * len(text) > room:  # else it fits, however wide its characters are
        text = screen.fit(text, room)
    return paint(text, "quiet")


def _said(items: Iterable[TurnItem], room: int | None) -> Iterator[str]:
    """What was said, under the names of those who said it. What tools gave back stands below the call."""
    role, place, first = "", (-1, -1), True
    for item in items:
        new = place != (item.seq, item.inner)
        place = item.seq, item.inner
        if item.kind in ("change", "gone"):
            if not first:
                yield ""
            yield from _note(item, room)
            role = ""
        else:
            if new and (not role or role != item.role) and (item.role, role) != ("tool", "assistant"):
                if not first:
                    yield ""
                role = item.role
                style = {"user": "user", "assistant": "assistant"}.get(role, "tool")
                yield paint(role or "message", style)
            elif new and item.kind == "text":
                yield ""
            yield from _item(item, {}, room)
        first = False


def _note(item: TurnItem, room: int | None) -> Iterator[str]:
    """A change of what the model sees, or of what is there at all."""
    told = gone(item.data) if item.kind == "gone" else changed(item.name)
    for part in screen.wrap(f"({told})", room):
        yield paint(part, "quiet")
    if item.text:
        yield from _folded("", item.text, "quiet", room, name="summary")
    yield from (f"  {text}".rstrip() for text in _said(item.items, room and room - 2))


def _item(item: TurnItem, tools: dict[str, str], room: int | None) -> Iterator[str]:
    """Text whole, tools folded to a line each. `tools` learns which call had which name."""
    match item.kind:
        case "text" if not item.text:
            yield from _folded("", "empty", "", room)
        case "other" if not item.text:
            yield from _folded("", screen.json_text(item.data), "", room)
        case "text" | "other":
            yield from _text(item.text, room)
        case "reasoning":
            yield from _folded("~ ", item.text, "quiet", room, name="reasoning")
        case "call":
            tools[item.id] = item.name
            yield from _folded("→ ", item.text, "tool", room, name=item.name or "call")
        case "result":
            name = item.name or tools.get(item.id, "") or "result"
            style = "bad" if item.error else "tool"
            yield from _folded("← ", item.text, style, room, name=f"{name} failed" if item.error else name)
        case _:
            what = " ".join(filter(None, (item.kind, item.name, item.mime)))
            inside = item.media.startswith("data:")
            where = f"({size_of(item.media)})" if inside else item.media or item.text
            yield from _folded("", where, "quiet", room, name=what)
    for inner in item.items:
        yield from _item(inner, tools, room)


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
        for item in items(data, record.shape):
            yield from _item(item, tools, room)
    elif record.kind == "history" and isinstance(data, dict):
        parts = data.get("parts")
        yield f"  {line(str(data.get('op', 'changed')))}: {_seen_after(parts)}"
        for i, payload in enumerate(inline(record)):
            yield from (
                f"  {text}" for text in _said(items(payload, place=(record.seq, i)), room and room - 2)
            )
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


def _print_json(view: View, name: str, found: Iterable[Any]) -> None:
    """One object, a line for each thing in it: however many there are, they pass through one by one."""
    out: list[str] = [f'{{"head":{screen.json_text(screen.head_json(view.head))},"{name}":[']
    separator = "\n"
    for item in found:
        out.append(separator + screen.json_text(item))
        separator = ",\n"
        if len(out) > 500:
            click.echo("".join(out).encode(), nl=False)
            out.clear()
    click.echo(("".join(out) + "\n]}").encode())


def turn_json(turn: TurnView) -> outputs.Turn:
    """A turn for programs; what an item has not, it does not show."""
    found = msgspec.to_builtins(turn) | {"usage": screen.usage_json(turn.usage)}
    return cast("outputs.Turn", found)


def record_json(record: Record) -> dict[str, Any]:
    """A record as it was written: what it has not, it does not show."""
    found = {name: getattr(record, name) for name in record.__struct_fields__ if name not in ("extra", "sum")}
    kept = {name: value for name, value in found.items() if name in _ALWAYS or value not in (None, (), {})}
    return kept | record.extra


_ALWAYS = ("kind", "data", "at", "seq")
