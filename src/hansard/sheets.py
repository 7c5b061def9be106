"""One JSON object under a name, changed by read, decide and write: what names and state are made of.

What cannot be understood is never overwritten: a copy of it is kept before it is begun anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hansard.engines import Engine, Shelf
from hansard.errors import Damaged, NewerFormat
from hansard.records import FORMAT, decode, encode

OBJECTS = ("names", "uids", "data", "expires")
"""Members that are objects, wherever they stand."""


class Sheet:
    """A JSON object on a shelf."""

    def __init__(self, engine: Engine, shelf: Shelf, name: str) -> None:
        self._engine = engine
        self._shelf = shelf
        self._name = name

    def read(self) -> dict[str, Any]:
        """Its members as of now; none where nothing was ever written."""
        found = self._engine.document(self._shelf, self._name)
        return {} if found is None else self._understood(found[0])

    def change(self, work: Callable[[dict[str, Any]], bool]) -> None:
        """Writes what `work` makes of the members, unless it says (False) that nothing changes. It is called
        anew where somebody else writes meanwhile."""
        while True:
            found = self._engine.document(self._shelf, self._name)
            version, illegible = "" if found is None else found[1], None
            try:
                members = {} if found is None else self._understood(found[0])
            except Damaged as error:
                members, illegible = {}, error
            if not work(members):
                if illegible is not None:  # it is begun anew only by who puts something in
                    raise illegible
                return
            raw = encode({"format": FORMAT, "name": self._name, **members}) + b"\n"
            aside = "" if illegible is None else "illegible"
            put = self._engine.put_document(self._shelf, self._name, raw, expect=version, aside=aside)
            if put is not None:
                return

    def _understood(self, raw: bytes) -> dict[str, Any]:
        try:
            members = decode(raw)
            if not isinstance(members, dict) or not all(
                isinstance(members.get(name, {}), dict) for name in OBJECTS
            ):
                raise ValueError
        except (ValueError, RecursionError):
            raise Damaged(
                f"the {self._shelf.kind} {self._name!r} of {self._engine.url} cannot be understood and was "
                "left as it is; bring it back from a copy, or set something in it to begin it anew: a copy "
                "is then kept under aside/"
            ) from None
        written = members.pop("format", FORMAT)
        if type(written) is not int or written > FORMAT:
            raise NewerFormat(
                f"the {self._shelf.kind} {self._name!r} of {self._engine.url} has the format {written!r}; "
                f"this version of hansard knows {FORMAT}. Install a newer version"
            )
        members.pop("name", None)
        return members
