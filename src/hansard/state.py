"""The state of an application: JSON objects under names (settings, providers …), each replaced whole.

Every read is of what is stored now, by whatever process; every write is durable when it returns. There is
nothing to load and nothing to save.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from hansard.engines import STATE
from hansard.errors import InvalidPayload
from hansard.ids import check_id
from hansard.records import after, encode, freeze, utc
from hansard.sheets import Sheet

if TYPE_CHECKING:
    from hansard.store import Store

Expiry = datetime | timedelta | None
"""When something is gone: at a moment, or some time after it was written; None: never."""


def expiry(given: Expiry, now: datetime) -> datetime | None:
    """The moment at which something expires."""
    if given is None:
        return None
    if isinstance(given, timedelta):
        return after(now, given)
    if isinstance(given, datetime):
        return utc(given)
    raise InvalidPayload("expires", f"{type(given).__name__}; it is an aware datetime or a timedelta")


class State:
    """One JSON object of keys and values. Threads and processes may share it.

    >>> import hansard
    >>> settings = hansard.open("memory:").state("settings")
    >>> settings.set("theme", "dark")
    >>> settings.get("theme"), settings.get("font", "mono"), settings.all()
    ('dark', 'mono', {'theme': 'dark'})
    """

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self.name = check_id(name)
        self._sheet = Sheet(store._engine, STATE, self.name)

    def __repr__(self) -> str:
        return f"<State {self.name!r} of {self._store.url}>"

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, the caller's own; the default where there is none, or it has expired."""
        return self.all().get(_key(key), default)

    def all(self) -> dict[str, Any]:
        """Every key that has a value now."""
        self._store._check()
        return _alive(self._sheet.read(), self._store._now())

    def set(self, key: str, value: Any, *, expires: Expiry = None) -> None:
        """Gives a key a value, any JSON, maybe for a time."""
        self.update({key: value}, expires=expires)

    def delete(self, key: str) -> bool:
        """Takes a key away; False where there is none."""
        self._store._check()
        name, gone = _key(key), False

        def work(members: dict[str, Any]) -> bool:
            nonlocal gone
            gone = name in _alive(members, self._store._now())
            return self._written(members, {}, [name], None)

        self._sheet.change(work)
        return gone

    def update(
        self,
        changes: Mapping[str, Any] | Callable[[dict[str, Any]], Any] = {},  # noqa: B006  # it is not changed
        *,
        unset: Iterable[str] = (),
        expires: Expiry = None,
    ) -> dict[str, Any]:
        """Sets several keys and takes others away, in one write; gives everything as it is then. A function
        gets all of it and changes it in place; it is called again where somebody else writes meanwhile."""
        self._store._check()
        gone = [_key(key) for key in ([unset] if isinstance(unset, str) else unset)]
        given = {} if callable(changes) else _frozen(changes)
        after: dict[str, Any] = {}

        def work(members: dict[str, Any]) -> bool:
            now = self._store._now()
            wanted, missing = given, gone
            if callable(changes):
                before = _alive(members, now)
                mine = freeze(before)[1]
                changes(mine)
                mine = _frozen(mine)
                wanted = {key: value for key, value in mine.items() if not _holds(before, key, value)}
                missing = [*gone, *(key for key in before if key not in mine)]
            changed = self._written(members, wanted, missing, expiry(expires, now))
            after.clear()
            after.update(_alive(members, now))
            return changed

        self._sheet.change(work)
        return after

    def load(self) -> dict[str, Any]:
        """The same as `all()`: nothing is kept in memory."""
        return self.all()

    def save(self) -> None:
        """Nothing is left to do: every write was durable when it returned."""
        self._store._check()

    def _written(
        self, members: dict[str, Any], wanted: Mapping[str, Any], gone: Iterable[str], until: datetime | None
    ) -> bool:
        """Changes the members; what has expired goes on the way. Whether anything is different then."""
        now = self._store._now()
        data = _alive(members, now)
        expires = {key: moment for key, moment in _expiries(members).items() if key in data}
        before = (_object(members, "data"), _expiries(members))
        for key in gone:
            data.pop(key, None)
            expires.pop(key, None)
        for key, value in wanted.items():
            data[key] = value
            expires.pop(key, None)
            if until is not None:
                expires[key] = until
        members["data"] = data
        members["expires"] = {key: moment.isoformat() for key, moment in expires.items()}
        if not expires:
            del members["expires"]
        return freeze(before[0])[0] != freeze(data)[0] or before[1] != expires


def _holds(members: Mapping[str, Any], key: str, value: Any) -> bool:
    """Whether a key has just this value: True is not 1."""
    return key in members and encode(members[key]) == encode(value)


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise InvalidPayload("$", f"a key that is {type(key).__name__}, not text")
    return key


def _frozen(changes: Any) -> dict[str, Any]:
    if not isinstance(changes, Mapping):
        raise InvalidPayload("$", f"{type(changes).__name__}; state is an object of keys and values")
    own = freeze(dict(changes))[1]
    assert isinstance(own, dict)
    return own


def _object(members: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = members.get(name)
    return found if isinstance(found, dict) else {}


def _expiries(members: Mapping[str, Any]) -> dict[str, datetime]:
    found = {}
    for key, moment in _object(members, "expires").items():
        try:
            found[key] = utc(datetime.fromisoformat(moment))
        except (TypeError, ValueError):
            continue  # a moment that nobody can read never comes
    return found


def _alive(members: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    expires = _expiries(members)
    return {
        key: value
        for key, value in _object(members, "data").items()
        if key not in expires or expires[key] > now
    }
