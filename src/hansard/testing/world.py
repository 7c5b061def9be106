"""The engine under test, and the world around it: other stores, other engines, other processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from types import TracebackType
from typing import Any

import pytest

from hansard.engines import Engine
from hansard.store import Store

Make = Callable[..., Engine]
"""Opens an engine at a place; keywords such as `readonly` are handed on."""


class World:
    """One engine at one place. Whatever is opened through it is closed with it.

    `store()` is what most tests need. `other()` is a store over an engine of its own on the same sessions,
    `reopened()` one after everything was closed, and `elsewhere()` runs a function in another process.
    """

    def __init__(self, make: Make, place: str = "") -> None:
        self.make = make
        self.place = place
        self._engines: list[Engine] = []
        self._stores: list[Store] = []
        self._processes: list[Elsewhere] = []

    # -- in this process

    @property
    def engine(self) -> Engine:
        """The first engine of this world, opened when it is first asked for."""
        return self._engines[0] if self._engines else self.new_engine()

    @property
    def url(self) -> str:
        """Where it is, as `hansard.open` takes it."""
        return self.engine.url

    @property
    def capabilities(self) -> frozenset[str]:
        """What the engine claims to be able to do; see `hansard.engines.Engine`."""
        return self.engine.capabilities

    def needs(self, *capabilities: str) -> None:
        """Skips the test where the engine does not claim all of these."""
        missing = [name for name in capabilities if name not in self.capabilities]
        if missing:
            pytest.skip(f"{type(self.engine).__name__} has no capability {' '.join(missing)!r}")

    def new_engine(self, **options: Any) -> Engine:
        """Another engine object at the same place."""
        engine = self.make(self.place, **options)
        self._engines.append(engine)
        return engine

    def store(self, **options: Any) -> Store:
        """A store over the first engine: what one process has. `clock` and `new_id` are handed on; with
        `namespace` it is that of a tenant."""
        return self._over(self.engine, options)

    def other(self, **options: Any) -> Store:
        """A store that shares nothing with `store()` but the sessions, where the engine `survives`."""
        return self._over(self.new_engine() if "survives" in self.capabilities else self.engine, options)

    def reopened(self, **options: Any) -> Store:
        """Closes all stores, and all engines where sessions outlive them, and opens a store anew."""
        survives = "survives" in self.capabilities
        self._close_stores()
        if survives:
            self._close_engines()
        return self.store(**options)

    def _over(self, engine: Engine, options: dict[str, Any]) -> Store:
        tenant = options.pop("namespace", "")
        store = Store(engine.namespace(tenant) if tenant else engine, let_go=_nothing, **options)
        self._stores.append(store)
        return store

    # -- in other processes

    def elsewhere(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """What `work(store, *arguments)` returns in another process; arguments and result are JSON. Skips
        the test where the engine is not `shared`."""
        with self.beside(work, *arguments) as process:
            return process.result()

    def begin(self, work: Callable[..., Any], *arguments: Any) -> Elsewhere:
        """Begins `work(store, *arguments)` in another process, which may `say()` and `hear()` meanwhile."""
        self.needs("shared")
        process = Elsewhere(self, work, arguments)
        self._processes.append(process)
        return process

    @contextmanager
    def beside(self, work: Callable[..., Any], *arguments: Any) -> Iterator[Elsewhere]:
        """As `begin`, for the length of a `with` block."""
        process = self.begin(work, *arguments)
        try:
            yield process
        finally:
            process.kill()

    # -- the end

    def close(self) -> None:
        """Ends every process and closes every store and engine that was opened through this world."""
        for process in self._processes:
            process.kill()
        self._close_stores()
        self._close_engines()

    def _close_stores(self) -> None:
        while self._stores:
            self._stores.pop().close()

    def _close_engines(self) -> None:
        while self._engines:
            self._engines.pop().close()

    def __enter__(self) -> World:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _nothing() -> None:
    """A world closes its engines itself: several of its stores stand over one."""


class Elsewhere:
    """A function that runs in another process, over a store of the same world."""

    def __init__(self, world: World, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        call = {"make": _found_at(world.make), "place": world.place, "work": _found_at(work)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BEGIN, json.dumps({**call, "arguments": arguments})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def hear(self) -> Any:
        """The next thing that the function says; waits for it."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(
                f"process {self.pid} ended with {self._process.wait()} and said nothing more"
            )
        told = json.loads(line)
        if "error" in told:
            raise AssertionError(f"in process {self.pid}: {told['error']}")
        return told.get("said", told.get("result"))

    def tell(self, value: Any = None) -> None:
        """Something that the function can `hear()`."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(value) + "\n")
        self._process.stdin.flush()

    def result(self) -> Any:
        """What the function returned; waits until the process is gone."""
        found = self.hear()
        self._process.wait()
        return found

    def kill(self) -> None:
        """Ends the process at once, wherever it is (SIGKILL), and waits until it is gone."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):  # what was told to it and not heard
                    stream.close()


def say(value: Any = None) -> None:
    """In the other process: tells something to who began it."""
    _report({"said": value})


def hear() -> Any:
    """In the other process: what it was told next; waits for it."""
    line = sys.stdin.readline()
    if not line:
        raise EOFError("who began this process is gone")
    return json.loads(line)


def _report(told: dict[str, Any]) -> None:
    sys.__stdout__.write(json.dumps(told) + "\n")  # type: ignore[union-attr]
    sys.__stdout__.flush()  # type: ignore[union-attr]


def _found_at(thing: Callable[..., Any]) -> list[str]:
    """Where another process finds a class or a function: module, file and name."""
    name = thing.__qualname__
    if "<" in name:
        raise ValueError(f"{name} stands inside a function, where another process does not find it")
    return [thing.__module__, sys.modules[thing.__module__].__file__ or "", name]


def _find(module: str, file: str, name: str) -> Any:
    try:
        found: Any = import_module(module)
    except ImportError:  # a test module that is on no path
        spec = spec_from_file_location(module, file)
        assert spec is not None
        assert spec.loader is not None
        found = sys.modules[module] = module_from_spec(spec)
        spec.loader.exec_module(found)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _answer() -> None:
    """What runs in the other process."""
    call = json.loads(sys.argv[1])
    work, make = _find(*call["work"]), _find(*call["make"])
    try:
        with World(make, call["place"]) as world:
            _report({"result": work(world.store(), *call["arguments"])})
    except Exception as error:
        _report({"error": f"{type(error).__name__}: {error}"})
        raise


_BEGIN = f"from {__name__} import _answer; _answer()"
