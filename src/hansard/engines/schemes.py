"""What the part of a URL before its colon means where it is none of ours: engines of other distributions.

They are found by the entry point group `hansard.engines`. The name of an entry point is the scheme (letters,
digits and `+`), its value a callable that opens a store:

    make(url: str, *, readonly: bool, create: bool) -> Engine

`url` is what `hansard.open` was given, whole and as it stands, options and all: what is to be unquoted in it
only the engine knows. `split` takes it apart as it is done for our own. Where there is no store yet and
`create` is False, or `readonly` is True, `make` raises `NotAStore` with `missing=True`; an option that it
does not know is a `ValueError`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from hansard.engines import Engine
from hansard.errors import Unsupported

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "hansard.engines"
"""The entry point group."""

OURS = {"file": "file: (or a plain path)", "memory": "memory:"}
"""The schemes that are built in, and cannot be given another meaning."""


class Url(NamedTuple):
    """A URL taken apart: what stands before the colon, after it, and after the question mark."""

    scheme: str
    rest: str
    options: dict[str, str]


def split(url: str) -> Url:
    """Takes a URL apart. What is none is a path, and stays as it is.

    >>> split("shelf:/srv/my%20agents?network=yes")
    Url(scheme='shelf', rest='/srv/my agents', options={'network': 'yes'})
    >>> split("/srv/what?")
    Url(scheme='file', rest='/srv/what?', options={})
    >>> split("file://localhost/srv/agents")
    Url(scheme='file', rest='/srv/agents', options={})
    """
    scheme, colon, rest = url.partition(":")
    if not colon or not scheme.isascii() or not scheme.replace("+", "").isalnum() or len(scheme) < 2:
        return Url("file", url, {})
    from urllib.parse import parse_qsl, unquote

    rest, _, query = rest.partition("?")
    rest = unquote(_here(rest) if scheme == "file" else rest)
    return Url(scheme, rest, dict(parse_qsl(query, keep_blank_values=True)))


def _here(rest: str) -> str:
    """The path in what follows `file:`, which may name a host, if only this one."""
    if not rest.startswith("//"):
        return rest
    host, _, path = rest[2:].partition("/")
    if host.lower() not in ("", "localhost"):
        raise ValueError(
            f"file:{rest} lies on a host called {host!r}; a folder is opened where it is: write "
            f"file:/{host}/{path} if that was meant for a path"
        )
    return "/" + path.lstrip("/") if path else ""


def engine(url: str, *, readonly: bool = False, create: bool = True) -> Engine:
    """An engine of its own, made by the distribution that has the scheme of this URL."""
    scheme = url.partition(":")[0]
    point = _point(scheme)
    try:
        make = point.load()
    except Exception as error:
        raise _useless(scheme, point, f"it cannot be loaded ({_told(error)})") from error
    wrong = _misfit(make, url, readonly=readonly, create=create)
    if wrong:
        raise _useless(scheme, point, f"{point.value} does not make an engine: {wrong}")
    made = make(url, readonly=readonly, create=create)
    wrong = ", ".join(_lacks(made))
    if wrong:
        with suppress(Exception):  # what it is nobody knows
            made.close()
        raise _useless(scheme, point, f"its {type(made).__name__} is no engine of this version: {wrong}")
    return made  # type: ignore[no-any-return]  # it was looked at


def known() -> str:
    """The schemes that there are, for a person to read."""
    found = list(OURS.values())
    found += [f"{name}: (from {_distribution(point)})" for name, point in sorted(_installed())]
    return " and ".join(filter(None, (", ".join(found[:-1]), found[-1])))


def _installed() -> Iterator[tuple[str, EntryPoint]]:
    from importlib.metadata import entry_points  # takes longer than to open a store

    return ((point.name, point) for point in entry_points(group=GROUP) if point.name not in OURS)


def _point(scheme: str) -> EntryPoint:
    found = [point for name, point in _installed() if name == scheme]
    if not found:
        raise Unsupported(f"no engine for {scheme}: is known; there are {known()}")
    if len(found) > 1:
        several = " and ".join(sorted(map(_distribution, found)))
        raise Unsupported(f"{scheme}: is the scheme of {several}; remove all of them but one")
    return found[0]


def _misfit(call: Any, *arguments: Any, **named: Any) -> str:
    """What is wrong with a callable that is to take these arguments; "" where nothing is."""
    import inspect

    if not callable(call):
        return f"{type(call).__name__} cannot be called"
    try:
        inspect.signature(call).bind(*arguments, **named)
    except TypeError as error:
        return str(error)
    except ValueError:
        pass  # it does not tell
    return ""


def _lacks(engine: Any) -> Iterator[str]:
    """What an engine has to have and does not."""
    import inspect

    for name in Engine.__annotations__:
        if not hasattr(engine, name):
            yield f"it has no {name!r}"
    for name, wanted in vars(Engine).items():
        if name.startswith("_"):
            continue
        if not hasattr(engine, name):
            yield f"it has no {name!r}"
        elif inspect.isfunction(wanted):
            taken = list(inspect.signature(wanted).parameters.values())[1:]
            alone = [p.name for p in taken if p.kind is not p.KEYWORD_ONLY]
            named = {p.name: None for p in taken if p.kind is p.KEYWORD_ONLY}
            wrong = _misfit(getattr(engine, name), *alone, **named)
            if wrong:
                yield f"{name}(): {wrong}"


def _useless(scheme: str, point: EntryPoint, why: str) -> Unsupported:
    return Unsupported(
        f"the engine for {scheme}: comes from {_distribution(point)}, and {why}; install a version of it "
        "that goes with this hansard, or remove it"
    )


def _distribution(point: EntryPoint) -> str:
    return "an unknown distribution" if point.dist is None else f"{point.dist.name} {point.dist.version}"


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
