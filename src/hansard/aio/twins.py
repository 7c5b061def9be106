"""How the asynchronous twin of a class is made: the same names and signatures, run in worker threads.

A method becomes a coroutine method; one that gives an iterator gives a `Stream`; one that opens something
gives an `Opening`, to be awaited or entered. What comes back and lives (a session, its documents) is a twin
in its turn. Only what differs from that is written by hand.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import is_dataclass
from functools import partial
from itertools import islice
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

import msgspec

from hansard.aio.calls import Calls, Line, Turns
from hansard.aio.following import Hub
from hansard.following import Cursor
from hansard.views.head import Head

T = TypeVar("T")
Class = TypeVar("Class", bound=type)

MANY = 1000
"""Items that a stream fetches at once, at most."""

A_WHILE = 0.01
"""Seconds that it takes for that, about."""

OPENED = ("Session", "Store", "Turn", "BestEffortSession | None")
"""What is opened: to be awaited, or entered with `async with`."""

AT_ONCE = frozenset({"state", "agent", "best_effort", "documents"})
"""Methods that only give an object and do nothing yet."""

NAMING = (["ref"], ["key"])
"""First parameters that say which session is meant."""

ITERATORS = ("Iterator[", "Iterable[", "Generator[")


class Opening(Generic[T]):
    """Something that is about to be opened: `await` it, or enter it with `async with`."""

    def __init__(self, opening: Coroutine[Any, Any, T]) -> None:
        self._opening = opening
        self._opened: Any = None

    def __await__(self) -> Generator[Any, None, T]:
        return self._opening.__await__()

    async def __aenter__(self) -> T:
        self._opened = await self._opening
        return self._opened  # type: ignore[no-any-return]

    async def __aexit__(self, *exc: Any) -> Any:
        return await self._opened.__aexit__(*exc)


class Stream(AsyncIterator[T]):
    """What a call gives bit by bit, fetched in pieces. The call itself is made already, as of then; who wants
    to know whether it could be made may `await` it."""

    def __init__(
        self,
        make: Callable[[Callable[[], Any]], Future[Any]],
        call: Callable[[], Any],
        check: Callable[[], Any] = lambda: None,
    ) -> None:
        self._make = make
        self._check = check
        self._from: Iterator[T] | None = None
        self._ready: deque[T] = deque()
        self._error: BaseException | None = None
        self._over = False
        self._coming: Future[list[T]] | None = make(partial(self._begin, call))

    def _begin(self, call: Callable[[], Any]) -> list[T]:
        self._from = iter(call())
        return self._piece()

    def _piece(self) -> list[T]:
        """In a worker: the next items, as many as come in a short while."""
        items: list[T] = []
        until = time.monotonic() + A_WHILE
        iterator = self._from or iter(())
        try:
            while len(items) < MANY and time.monotonic() < until:
                before = len(items)
                items.extend(islice(iterator, 50))  # what came before an error stays
                if len(items) < before + 50:
                    self._over = True
                    break
        except Exception as error:
            self._error, self._over = error, True
        return items

    def __aiter__(self) -> Stream[T]:
        return self

    def __await__(self) -> Generator[Any, None, Stream[T]]:
        return self._arrive().__await__()

    async def _arrive(self) -> Stream[T]:
        coming = self._coming
        if coming is not None:
            if not coming.done():
                self._check()  # in a forked child there is nobody who fetches it
            items = await asyncio.shield(asyncio.wrap_future(coming))  # whoever asks again wants it too
            if self._coming is coming:
                self._coming = None
                self._ready.extend(items)
        return self

    async def __anext__(self) -> T:
        while not self._ready:
            if self._coming is None:
                if self._over:
                    error, self._error, self._from = self._error, None, None
                    if error is not None:
                        raise error
                    raise StopAsyncIteration
                self._coming = self._make(self._piece)
            await self._arrive()
        return self._ready.popleft()

    async def aclose(self) -> None:
        """Lets go of what it reads from."""
        self._ready.clear()
        self._coming = self._from = self._error = None
        self._over = True


class Root:
    """What all twins of one store share."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.calls = Calls()
        self.turns = Turns()
        self.hub = Hub(self)
        self.lines: WeakValueDictionary[str, Line] = WeakValueDictionary()


class Twin:
    """The asynchronous side of an object."""

    _of: type = object
    _naming: Mapping[str, str] = {}

    def __init__(self, root: Root, it: Any, line: Line | None) -> None:
        self._root = root
        self._it = it
        self._line = line

    def __repr__(self) -> str:
        return f"{repr(self._it).rstrip('>')}, asynchronous>"

    def __getattr__(self, name: str) -> Any:
        """What only an object has, not its class."""
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        value = getattr(self._it, name)
        return method_of(name, value).__get__(self) if inspect.isroutine(value) else self._wrapped(value)

    async def _ask(self, name: str, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        call = self._call(name, args, given)
        if self._root.store.closed:
            return self._wrapped(call())  # it says so, and waits for nothing
        return self._wrapped(await self._root.calls.run(call, self._line_of(name, args, given)))

    def _call(self, name: str, args: tuple[Any, ...], given: dict[str, Any]) -> Callable[[], Any]:
        """The call as a worker makes it."""
        positional, named = plain(args, given)
        return partial(getattr(self._it, name), *positional, **named)

    def _line_of(self, name: str, args: tuple[Any, ...], given: dict[str, Any]) -> Line | None:
        """The calls that this one must not overtake: those of its object, or where a call says which session
        it means, those that mean the same."""
        naming = self._naming.get(name)
        if naming is None:
            return self._line
        ref = args[0] if args else given.get(naming)
        id = ref.id if isinstance(ref, Head) else ref
        if not isinstance(id, str):
            return self._line
        lines = self._root.lines
        line = lines.get(id)
        return lines.setdefault(id, Line()) if line is None else line

    def _wrapped(self, value: Any, line: Line | None = None) -> Any:
        kind = twin_of(type(value))
        return value if kind is None else kind(self._root, value, self._line if line is None else line)

    def _stream(self, name: str, args: tuple[Any, ...], given: dict[str, Any]) -> Stream[Any]:
        make = partial(self._make, self._line_of(name, args, given))
        return Stream(make, self._call(name, args, given), self._root.store._check)

    def _make(self, line: Line | None, work: Callable[[], Any]) -> Future[Any]:
        return at_once(work) if self._root.store.closed else self._root.calls.make(work, line)

    async def _opened(self, name: str, args: tuple[Any, ...], given: dict[str, Any], timeout: Any) -> Any:
        """Opens something, and closes it again where nobody waits for it any more. With a timeout it is tried
        again and again, for no thread to be kept waiting."""
        if timeout is not NO_TIMEOUT:
            timeout = given.get("timeout", timeout)
            given = {**given, "timeout": 0}
        call = self._call(name, args, given)
        if self._root.store.closed:
            return self._wrapped(call())
        line = self._line_of(name, args, given)

        async def attempt() -> Any:
            return await self._root.calls.run(call, line, undo=close)

        if timeout is NO_TIMEOUT:
            return self._wrapped(await attempt())
        return self._wrapped(await self._root.turns.take(attempt, timeout))


NO_TIMEOUT: Any = object()


def plain(args: tuple[Any, ...], given: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments as the synchronous side knows them."""
    named = {key: arg._it if isinstance(arg, Twin) else arg for key, arg in given.items()}
    return tuple(arg._it if isinstance(arg, Twin) else arg for arg in args), named


def at_once(work: Callable[[], Any]) -> Future[Any]:
    """What a call comes to, without a worker."""
    made: Future[Any] = Future()
    try:
        made.set_result(work())
    except Exception as error:
        made.set_exception(error)
    return made


def close(it: Any) -> None:
    """What nobody wants any more."""
    if it is not None:
        it.close()


# -- making a class ---------------------------------------------------------------------------------

_twins: dict[type, type[Twin] | None] = {}

_DATA = (msgspec.Struct, BaseException, Cursor, str, bytes, int, float, tuple, list, dict, set, frozenset)


def twin_of(kind: type) -> type[Twin] | None:
    """The twin of a class; None for what is data, which stays as it is."""
    try:
        return _twins[kind]
    except KeyError:
        pass
    plain = issubclass(kind, _DATA) or is_dataclass(kind)
    lives = kind.__module__.startswith("hansard.") and not plain
    made = None
    if lives:
        made = type(kind.__name__, (_twin_of_base(kind),), {"__module__": "hansard.aio"})
        fill(made, kind)
    _twins[kind] = made
    return made


def _twin_of_base(kind: type) -> type[Twin]:
    for base in kind.__bases__:
        twin = None if base is object or not base.__module__.startswith("hansard.") else twin_of(base)
        if twin is not None:
            return twin
    return Twin


def twin(kind: type) -> Callable[[Class], Class]:
    """Makes a class the twin of another: what it does not say itself is taken from there."""

    def make(own: Class) -> Class:
        _twins[kind] = own
        fill(own, kind)
        return own

    return make


def known_twin(kind: type, own: Any) -> None:
    """A twin that was written by hand altogether."""
    _twins[kind] = own


def fill(own: Any, kind: type) -> None:
    """Gives a class what the other one has, asynchronously."""
    own._of = kind
    own._naming = {
        name: next(iter(list(inspect.signature(member).parameters)[1:2]), "")
        for name, member in vars(kind).items()
        if inspect.isfunction(member) and list(inspect.signature(member).parameters)[1:2] in NAMING
    }
    own.__doc__ = own.__doc__ or kind.__doc__
    for name, member in vars(kind).items():
        if name in vars(own) or (name.startswith("_") and name not in _SPECIAL):
            continue
        if name == "__enter__":
            own.__aenter__, own.__aexit__ = _enter, _exit
        elif name == "__iter__":
            own.__aiter__ = _iterated
        elif isinstance(member, property):
            setattr(own, name, _property(name, member))
        elif inspect.isfunction(member):
            setattr(own, name, method_of(name, member))
    for name, member in vars(own).items():  # what was written by hand has the signature of the other too
        known = vars(kind).get(name)
        if not name.startswith("_") and inspect.isfunction(known) and member is not known:
            member.__signature__ = inspect.signature(known)
            member.__doc__ = member.__doc__ or known.__doc__


_SPECIAL = ("__enter__", "__iter__")


async def _enter(self: Any) -> Any:
    return self


async def _exit(self: Any, *exc: Any) -> None:
    await self.close()


def _iterated(self: Twin) -> Any:
    return self._stream("__iter__", (), {})


def _property(name: str, member: property) -> property:
    return property(lambda self: self._wrapped(getattr(self._it, name)), doc=member.__doc__)


def way_of(function: Any) -> str:
    """How a method is to be called: `ask`, `stream`, `open`, or `at once`."""
    gives = str(getattr(function, "__annotations__", {}).get("return", ""))
    if gives.startswith(ITERATORS):
        return "stream"
    if gives in OPENED:
        return "open"
    return "at once" if function.__name__ in AT_ONCE else "ask"


def method_of(name: str, function: Any) -> Any:
    """The asynchronous twin of a function, to be bound to an object."""
    way = way_of(function)
    if way == "stream":

        def stream(self: Twin, *args: Any, **given: Any) -> Any:
            return self._stream(name, args, given)

        made: Any = stream
    elif way == "open":
        known = inspect.signature(function).parameters.get("timeout")
        timeout = NO_TIMEOUT if known is None else known.default

        def open(self: Twin, *args: Any, **given: Any) -> Any:
            return Opening(self._opened(name, args, given, timeout))

        made = open
    elif way == "at once":

        def give(self: Twin, *args: Any, **given: Any) -> Any:
            return self._wrapped(self._call(name, args, given)(), self._line_of(name, args, given))

        made = give
    else:

        async def ask(self: Twin, *args: Any, **given: Any) -> Any:
            return await self._ask(name, args, given)

        made = ask
    made.__name__, made.__doc__ = name, function.__doc__
    made.__qualname__ = function.__qualname__
    made.__signature__ = inspect.signature(function)
    return made
