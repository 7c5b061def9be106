"""Formats: a session as a document that people, or other programs, read without Hansard.

A format is something to call with `(head, records)` that yields the pieces of a text; or an object, such as a
module, that has it as `pieces`. Those of other packages stand in the entry point group `hansard.formats`,
under their names; none of them can take the name of one that stands here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hansard.errors import Unsupported
from hansard.views.words import line

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

    from hansard.views.head import Head

GROUP = "hansard.formats"

Format = Callable[["Head | None", Iterable[Any]], Iterable[str]]
"""Takes a head, or None where nobody knows it, and records or plain messages; yields pieces of text."""

_BUILT_IN = {"markdown": "hansard.formats.markdown"}


def names() -> list[str]:
    """The formats there are, those of installed packages among them."""
    return sorted({*_BUILT_IN, *_installed().names})


def render(head: Head | None, records: Iterable[Any], format: str = "markdown") -> str:
    """A session as one text. `records` are records, or the messages of a session that was never saved.

    >>> print(render(None, [{"role": "user", "content": "Build a login page"}]))
    # Untitled session
    <BLANKLINE>
    ## User
    <BLANKLINE>
    > Build a login page
    <BLANKLINE>
    """
    return "".join(pieces(head, records, format))


def pieces(head: Head | None, records: Iterable[Any], format: str = "markdown") -> Iterator[str]:
    """The same piece by piece, for a session that is longer than the memory. A format that is not there, or
    cannot be loaded, is `Unsupported`."""
    return iter(_find(format)(head, records))


def _find(format: str) -> Format:
    if format in _BUILT_IN:
        built_in: Format = import_module(_BUILT_IN[format]).pieces
        return built_in
    for entry in _installed().select(name=format):
        return _load(entry)
    raise Unsupported(f"there is no format {line(format, 60)!r}; there are: {line(', '.join(names()))}")


def _installed() -> EntryPoints:
    from importlib.metadata import entry_points  # takes longer than all else here, and is seldom needed

    return entry_points(group=GROUP)


def _load(entry: EntryPoint) -> Format:
    whose = f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "an unknown package"
    told = f"the format {entry.name!r} of {whose} ({entry.value})"
    try:
        loaded = entry.load()
    except Exception as error:  # whatever a module does when it is imported
        raise Unsupported(
            f"{told} cannot be loaded: {type(error).__name__}: {error}; update or uninstall that package"
        ) from error
    found = getattr(loaded, "pieces", loaded)
    if not callable(found):
        raise Unsupported(f"{told} is no format: it cannot be called, and has no `pieces` that can")
    format: Format = found
    return format


__all__ = ["GROUP", "Format", "names", "pieces", "render"]
