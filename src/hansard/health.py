"""What `doctor` looks at above the engines: whether names, state and documents say anything at all."""

from __future__ import annotations

from collections.abc import Iterator

from hansard.documents import sound
from hansard.engines import NAMES, STATE, Engine, Finding, Shelf
from hansard.errors import Damaged, HansardError, NewerFormat
from hansard.sheets import Sheet


def documents(engine: Engine) -> Iterator[Finding]:
    """Each one that cannot be understood, or not be read."""
    for shelf in (NAMES, STATE):
        for name in _names(engine, shelf):
            try:
                Sheet(engine, shelf, name).read()
            except HansardError as error:
                yield _illegible(shelf, name, error)
    for session in sorted(engine.sessions()):
        shelf = Shelf("documents", session)
        for name in _names(engine, shelf):
            try:
                found = engine.document(shelf, name)
                if found is not None and not sound(found[0], name):
                    raise Damaged(f"the document {name!r} is not as it was written")
            except HansardError as error:
                yield _illegible(shelf, name, error)


def _names(engine: Engine, shelf: Shelf) -> list[str]:
    try:
        return engine.documents(shelf)
    except HansardError:
        return []  # a folder that cannot be listed: the engine has said so


def _illegible(shelf: Shelf, name: str, error: HansardError) -> Finding:
    place = f"{shelf.kind}/{name}" if not shelf.session else f"{shelf.kind}/{shelf.session}/{name}"
    if isinstance(error, NewerFormat):
        remedy = "install a newer version of hansard"
    elif shelf.session:
        remedy = "bring it back from a copy, or put it anew: what is there is kept under aside/ then"
    else:
        remedy = "bring it back from a copy, or set something in it: what is there is kept under aside/ then"
    return Finding(
        kind="document", session=shelf.session or None, place=place, detail=str(error), remedy=remedy
    )
