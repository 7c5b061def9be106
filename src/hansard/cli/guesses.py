"""What may have been meant, where nothing is named as was typed."""

from __future__ import annotations

from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING

import click

from hansard.cli.options import Unknown
from hansard.cli.screen import word
from hansard.errors import HansardError, SessionNotFound

if TYPE_CHECKING:
    from hansard import Store

LOOKED_AT = 500
"""How many of the newest sessions are looked at."""

OTHERWISE = {
    "list": "ls", "sessions": "ls", "cat": "show", "view": "show", "read": "show", "open": "show",
    "grep": "search", "find": "search", "log": "tail", "follow": "tail", "watch": "tail", "create": "new",
    "add": "append", "write": "append",
    "title": "rename", "mv": "rename", "tag": "label", "star": "pin", "branch": "fork", "cp": "fork",
    "delete": "rm", "remove": "rm", "del": "rm", "prune": "cleanup", "clean": "cleanup", "gc": "cleanup",
    "who": "locks", "leases": "locks", "check": "doctor", "fsck": "doctor", "repair": "doctor",
    "compact": "vacuum", "markdown": "export", "help": "--help",
}  # fmt: skip
"""What commands are called elsewhere."""


def command(typed: str, names: list[str]) -> str:
    """The command that is called most alike, or ""."""
    other = OTHERWISE.get(typed)
    if other in names or other == "--help":
        return other
    return next(iter(get_close_matches(typed, names, n=1)), "")


def guessed(store: Store, ref: str, error: SessionNotFound) -> SessionNotFound:
    """An error for a text that means no session, with sessions that it may have been meant to mean."""
    with suppress(HansardError):
        if ref.startswith("@"):
            return _name(store, ref, error)
        found = _sessions(store, ref)
        if found:
            return Unknown(ref, f"no session {_short(ref)}; did you mean:", found)
    return error


def _name(store: Store, ref: str, error: SessionNotFound) -> SessionNotFound:
    with suppress(HansardError):
        store.head(ref)
        call = click.get_current_context().command
        option = "--session" if any(param.name == "session" for param in call.params) else "--id"
        way = f"hansard {call.name} {word(f'{option}={ref}')}"
        return SessionNotFound(ref, f"no session is named {ref!r}; it is the id of one: `{way}`")
    names = ["active", *store.names.list()]
    close = next(iter(get_close_matches(ref[1:], names, n=1)), None)
    if close is None or close == ref[1:]:
        return error
    return SessionNotFound(ref, f"no session is named {_short(ref)}; did you mean `@{close}`?")


def _sessions(store: Store, text: str) -> list[tuple[str, str]]:
    """Sessions whose id begins almost so, or whose title has it."""
    heads = store.list(limit=LOOKED_AT, empty=True)
    bare = {head.id.removeprefix("sess_"): head for head in heads}
    typed = text.removeprefix("sess_")
    beginnings: dict[str, list[str]] = {}
    for id in bare:
        beginnings.setdefault(id[: max(4, len(typed))], []).append(id)
    close = get_close_matches(typed, list(beginnings), n=3, cutoff=0.75)
    found = [bare[id] for beginning in close for id in beginnings[beginning]]
    folded = text.casefold()
    found += [head for head in heads if head not in found and folded in head.title.casefold()]
    return [(head.id, head.title) for head in found[:5]]


def _short(text: str) -> str:
    told = repr(text)
    return told if len(told) <= 80 else told[:79] + "…"
