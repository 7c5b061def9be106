"""What a person sees in a terminal: times, columns, tables, colours, and JSON for programs.

A transcript is hostile input. Whatever comes from one goes through `safe` or `line` (of `views/words.py`)
before it is shown.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

import click

from hansard.records import encode, encodes
from hansard.views.words import line as line
from hansard.views.words import plural as plural
from hansard.views.words import safe as safe
from hansard.views.words import size as size
from hansard.views.words import size_of as size_of
from hansard.views.words import tokens as tokens

if TYPE_CHECKING:
    from hansard import Head, Usage
    from hansard.cli import outputs

_NOT_IN_JSON = "[\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"


def word(text: str) -> str:
    """A text as one word of a command to copy. What cannot be shown is escaped as bash and zsh read it.

    >>> print(word("my store"), word("a\\u202eb"))
    'my store' $'a\\u202eb'
    """
    if safe(text) == text:
        return shlex.quote(text)
    return "$'" + "".join(_escaped(character) for character in text) + "'"


def _escaped(character: str) -> str:
    code = ord(character)
    if 0x20 <= code < 0x7F:
        return f"\\{character}" if character in "'\\" else character
    if code < 0x80 or 0xDC80 <= code <= 0xDCFF:  # the latter stand for bytes that are not UTF-8
        return f"\\x{code & 0xFF:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


# -- words ------------------------------------------------------------------------------------------


def ago(moment: datetime, now: datetime | None = None) -> str:
    """How long ago that was, as people say it.

    >>> ago(datetime(2026, 5, 1, 12, 0, tzinfo=UTC), datetime(2026, 5, 1, 12, 3, tzinfo=UTC))
    '3 min ago'
    """
    seconds = int(((now or datetime.now(UTC)) - moment).total_seconds())
    if -5 < seconds < 5:
        return "just now"
    n = abs(seconds)
    if n < 60:
        span = f"{n} s"
    elif n < 3600:
        span = f"{n // 60} min"
    elif n < 86400:
        span = f"{n // 3600} h"
    elif n < 14 * 86400:
        span = plural(n // 86400, "day")
    elif n < 60 * 86400:
        span = plural(n // (7 * 86400), "week")
    elif n < 730 * 86400:
        span = plural(n // (30 * 86400), "month")
    else:
        span = plural(n // (365 * 86400), "year")
    return f"{span} ago" if seconds > 0 else f"in {span}"


# -- columns ----------------------------------------------------------------------------------------


def width() -> int | None:
    """The columns there are, or None where nobody counts them: in a pipe or a file."""
    if not sys.stdout.isatty() and not os.environ.get("COLUMNS", "").isdigit():
        return None
    return max(20, shutil.get_terminal_size().columns)


def cells(text: str) -> int:
    """How many columns a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # only where a text needs it

    return cell_len(text)


def fit(text: str, room: int) -> str:
    """A text of one line that takes no more than so many columns.

    >>> fit("Build a login page", 8)
    'Build a…'
    """
    text = text[: room * 16]  # more characters than that only pile up on one another
    if cells(text) <= room:
        return text
    if text.isascii():
        return text[: room - 1].rstrip() + "…"
    from rich.cells import set_cell_size

    return set_cell_size(text, room - 1).rstrip() + "…"


def wrap(text: str, room: int | None) -> Iterator[str]:
    """The lines of a text, the long ones broken between words where that can be; indents stay."""
    for whole in text.expandtabs(4).split("\n"):
        rest = whole.rstrip()
        if room is None or cells(rest) <= room:
            yield rest
        else:
            yield from _broken(rest, room)


def _broken(text: str, room: int) -> Iterator[str]:
    """The pieces of a line that is too long. One line may be megabytes: it is gone through once."""
    indent = text[: min(len(text) - len(text.lstrip()), room // 2)]
    if cells(indent) > room // 2:
        indent = ""
    start, before, left = 0, "", room
    while (stop := _stop(text, start, left)) < len(text):
        if text[stop] != " ":
            space = text.rfind(" ", max(start, len(indent)), stop)
            if space > start and text[start:space].strip():
                stop = space
        yield (before + text[start:stop]).rstrip()
        start, before, left = stop, indent, room - cells(indent)
        while start < len(text) and text[start].isspace():
            start += 1
    yield before + text[start:]


def _stop(text: str, start: int, room: int) -> int:
    """The first place behind `start` that has no room any more; one character always has."""
    if text.isascii():
        return min(start + room, len(text))
    from rich.cells import get_character_cell_size

    for stop in range(start, len(text)):
        room -= get_character_cell_size(text[stop])
        if room < 0 and stop > start:
            return stop
    return len(text)


@dataclass
class Column:
    """One column of a table. Where there is little room the one with the greatest `rank` is left out first;
    one of rank 0 never is, and the one that is `wide` gets shorter."""

    title: str
    cells: Sequence[str]
    right: bool = False
    wide: bool = False
    rank: int = 0
    longest: int = 24
    style: str = ""


GAP = 2


def table(columns: Sequence[Column], room: int | None) -> Iterator[str]:
    """The lines of a table that fits. Columns in which nothing stands are left out."""
    shown = [column for column in columns if any(column.cells)]
    wide = {
        id(column): max(map(cells, (column.title, *column.cells)), default=0)
        if room is None
        else min(
            room if column.wide else column.longest, max(map(cells, (column.title, *column.cells)), default=0)
        )
        for column in shown
    }
    if room is not None:
        enough = 16 if room < 60 else 22
        while True:
            rest = room - sum(wide[id(c)] for c in shown if not c.wide) - GAP * (len(shown) - 1)
            extra = max(shown, key=lambda column: column.rank)
            needed = min([enough, *(wide[id(c)] for c in shown if c.wide)])
            if rest >= needed or not extra.rank:
                break
            shown.remove(extra)
        for column in shown:
            if column.wide:
                wide[id(column)] = min(wide[id(column)], max(rest, 8))
    yield _row(shown, wide, [column.title for column in shown], head=True)
    for number in range(len(shown[0].cells) if shown else 0):
        yield _row(shown, wide, [column.cells[number] for column in shown])


def _row(columns: Sequence[Column], wide: dict[int, int], texts: Iterable[str], *, head: bool = False) -> str:
    pieces = []
    for column, text in zip(columns, texts, strict=True):
        room = wide[id(column)]
        shown = fit(text, room)
        space = " " * (room - cells(shown))
        last = column is columns[-1]
        drawn = click.style(shown, bold=True) if head else paint(shown, column.style)
        pieces.append(space + drawn if column.right else drawn + ("" if last else space))
    return (" " * GAP).join(pieces).rstrip()


STYLES: dict[str, dict[str, Any]] = {
    "": {},
    "quiet": {"dim": True},
    "strong": {"bold": True},
    "id": {"fg": "yellow"},
    "user": {"fg": "cyan", "bold": True},
    "assistant": {"fg": "green", "bold": True},
    "tool": {"fg": "magenta"},
    "bad": {"fg": "red"},
    "good": {"fg": "green"},
}


def paint(text: str, style: str) -> str:
    """Text in the colours of one meaning. `click.echo` takes them away where nobody looks."""
    return click.style(text, **STYLES[style]) if style and text else text


# -- programs ---------------------------------------------------------------------------------------


def json_text(value: Any) -> str:
    """A value as JSON of one line, in which nothing is left that a terminal would interpret."""
    try:
        raw = encode(value)
    except UnicodeEncodeError:
        raw = encode(_encodable(value))
    return re.sub(_NOT_IN_JSON, lambda m: f"\\u{ord(m[0]):04x}", raw.decode())


def _encodable(value: Any) -> Any:
    """A value whose texts JSON can have. The name of a file may have bytes that are not UTF-8; they are shown
    as everywhere here."""
    if isinstance(value, str):
        return value if encodes(value) else safe(value)
    if isinstance(value, dict):
        return {_encodable(name): _encodable(item) for name, item in value.items()}
    return [_encodable(item) for item in value] if isinstance(value, list | tuple) else value


def print_json(value: Any) -> None:
    """JSON for programs, that people can read too."""
    import msgspec

    click.echo(msgspec.json.format(json_text(value), indent=2).encode())


HEAD = (
    "id seq title preview agent model vendor endpoint workspace status labels meta parent path pinned "
    "archived created_at updated_at ended_at messages turns usage token_count summary has_user_input"
).split()


def head_json(head: Head) -> outputs.Head:
    """A head for programs: every field, also those that are empty."""
    found = {name: getattr(head, name) for name in HEAD}
    return cast("outputs.Head", found | {"usage": usage_json(head.usage)})


def usage_json(usage: Usage) -> outputs.Usage:
    """What it cost, for programs: every count."""
    models = {name: _fields(one) for name, one in usage.models.items()}
    return cast("outputs.Usage", {**_fields(usage), "models": models})


def _fields(usage: Usage) -> dict[str, Any]:
    return {name: getattr(usage, name) for name in usage.__struct_fields__ if name != "models"}
