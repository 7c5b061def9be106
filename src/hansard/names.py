"""Names that point at sessions: `agent/coder/current`. Each is one small atomic write.

The part of a name before its first slash is its group; names of one group move together in one write. A
name remembers which session it meant, so that it never means a later one of the same id.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hansard.engines import NAMES
from hansard.errors import Conflict, HansardError, InvalidId, SessionNotFound
from hansard.ids import check_id
from hansard.sheets import Sheet

if TYPE_CHECKING:
    from hansard.store import Ref, Store

ACTIVE = "active"
"""The name of the session that was created, opened or resumed last."""


class Names:
    """The names of a store.

    >>> import hansard
    >>> store = hansard.open("memory:")
    >>> _ = store.append("s", {"role": "user", "content": "Hello"}, create=True)
    >>> store.names.set("agent/coder/current", "s")
    >>> store.names.get("agent/coder/current"), store.resolve("@agent/coder/current")
    ('s', 's')
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, name: str) -> str | None:
        """The id of the session that a name points at; None where there is none, or it is gone."""
        self._store._check()
        return self._there(*_pointer(self._sheet(name).read(), name))

    def set(self, name: str, ref: Ref, *, expect: str | type[Any] | None = Any) -> None:
        """Points a name at a session. With `expect` only if it points there now (None: at nothing), else
        `Conflict`."""
        self.move({name: ref}, expect={} if expect is Any else {name: expect})

    def delete(self, name: str) -> bool:
        """Takes a name away; False where there is none. The session stays."""
        self._store._check()
        gone = False

        def work(members: dict[str, Any]) -> bool:
            nonlocal gone
            gone = _pointer(members, name)[0] is not None
            _point(members, name, None, "")
            return gone

        self._sheet(name).change(work)
        return gone

    def move(self, changes: Mapping[str, Ref | None], *, expect: Mapping[str, Any] | None = None) -> None:
        """Points several names of one group at sessions (None: at nothing) in one write: all or none."""
        self._store._check()
        targets: dict[str, tuple[str | None, str]] = {}
        for name, ref in changes.items():
            if ref is None:
                targets[_checked(name)] = (None, "")
                continue
            head = self._store.head(ref)
            self._store._engine.flush(head.id)  # a name that survives points at what survives
            targets[_checked(name)] = (head.id, head.uid)
        groups = {_group(name) for name in (*targets, *(expect or ()))}
        if len(groups) > 1:
            raise ValueError(f"the names of one call belong to one group, not to {sorted(groups)}")
        if targets:
            self._write(next(iter(targets)), targets, expect or {})

    def _write(
        self, any_name: str, targets: Mapping[str, tuple[str | None, str]], expect: Mapping[str, Any]
    ) -> None:
        def work(members: dict[str, Any]) -> bool:
            for name, wanted in expect.items():
                found = self._there(*_pointer(members, name))
                if found != wanted:
                    raise Conflict(f"the name {name!r} points at {found!r}, not at {wanted!r}")
            before = {name: _pointer(members, name) for name in targets}
            for name, (id, uid) in targets.items():
                _point(members, name, id, uid)
            return before != dict(targets)

        self._sheet(any_name).change(work)

    def list(self, prefix: str = "") -> dict[str, str]:
        """All names that begin so, and the ids of the sessions that they point at; none that point at
        nothing."""
        self._store._check()
        groups = [_group(prefix)] if "/" in prefix else self._store._engine.documents(NAMES)
        found = {}
        for group in groups:
            if not group.startswith(prefix) and not prefix.startswith(group):
                continue
            members = self._sheet(group).read()
            names = members.get("names")
            for name in sorted(names) if isinstance(names, dict) else ():
                id = self._there(*_pointer(members, name)) if name.startswith(prefix) else None
                if id is not None:
                    found[name] = id
        return found

    def _there(self, id: str | None, uid: str) -> str | None:
        if id is not None:
            with suppress(SessionNotFound, InvalidId):
                head = self._store._engine.head(check_id(id))
                return head.id if not uid or head.uid == uid else None
        return None

    def _sheet(self, name: str) -> Sheet:
        return Sheet(self._store._engine, NAMES, _group(_checked(name)))

    # -- the active session: wherever it points, sessions can be opened

    def _activate(self, id: str | None, uid: str) -> None:
        self._write(ACTIVE, {ACTIVE: (id, uid)}, {})

    def _forget(self, id: str) -> None:
        """A session is gone. A name that still points at it means nothing; the active one is put right."""
        with suppress(HansardError):
            if _pointer(self._sheet(ACTIVE).read(), ACTIVE)[0] == id:
                self._activate(None, "")

    def _pointed(self) -> frozenset[str]:
        """The ids of all sessions that have a name of somebody's choice."""
        named: set[str] = set()
        for group in self._store._engine.documents(NAMES):
            names = self._sheet(group).read().get("names")
            if isinstance(names, dict):
                named.update(id for name, id in names.items() if name != ACTIVE and isinstance(id, str))
        return frozenset(named)


def _checked(name: str) -> str:
    return check_id(name)


def _group(name: str) -> str:
    return name.partition("/")[0] or name


def _pointer(members: Mapping[str, Any], name: str) -> tuple[str | None, str]:
    """What a name points at: an id, and which session of that id ("": any)."""
    names, uids = members.get("names"), members.get("uids")
    id = names.get(name) if isinstance(names, dict) else None
    uid = uids.get(name) if isinstance(uids, dict) else None
    return (id if isinstance(id, str) else None), (uid if isinstance(uid, str) else "")


def _point(members: dict[str, Any], name: str, id: str | None, uid: str) -> None:
    for member, value in (("names", id), ("uids", uid or None)):
        there = members.get(member)
        there = dict(there) if isinstance(there, dict) else {}
        there.pop(name, None)
        if value is not None:
            there[name] = value
        members[member] = there
