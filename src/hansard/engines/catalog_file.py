"""The catalog of a folder: opened when it is first wanted, replaced when it is broken, and kept in memory
where it cannot be written. Whoever asks always gets one; `trusted` says whether it may be behind.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from hansard.engines.catalog import Catalog, Ruined
from hansard.engines.disk import TEMPORARY, Disk, problem
from hansard.errors import Closed, StoreUnavailable
from hansard.ids import new_id

T = TypeVar("T")

IN_MEMORY = ":memory:"

PATIENCE = 30.0
"""Seconds after which a catalog that could not be used is tried again."""


class CatalogFile:
    """`catalog.db` and what stands beside it: `catalog.lock`, held shared by all who have the catalog open,
    and `catalog.check`, left by a writer who could not tell it that a log grows."""

    def __init__(self, disk: Disk, root: str, *, readonly: bool, newer: bool = False) -> None:
        """The catalog of a `newer` version is left to it."""
        self._disk = disk
        self._root = root
        self._readonly = readonly
        self._mutex = threading.RLock()
        self._catalog: Catalog | None = None
        self._inode = 0
        self._lock: int | None = None
        self._closed = False
        self._again = 0.0
        self._flag: bytes | None = None  # what stood in catalog.check when a comparison began
        self.users: set[int] = set()  # threads that are at it
        self.generation = 0  # changes with every catalog: what was known of an older one is void
        self.newer = newer
        self.in_memory = newer
        self._copied = False  # whether the one in memory began as a copy of one that could not be used
        self.trusted = False
        disk.rest_in_forks(self._rest)

    def use(self, work: Callable[[Catalog], T], *, writing: bool = False) -> T:
        """Does something with the catalog. With `writing` a log is about to grow: where the catalog cannot
        keep that, a file tells everybody to compare."""
        while True:
            with self._at_it():
                catalog = self._open()
                try:
                    if writing and self.in_memory and not self._readonly:
                        self._leave_flag()
                    return work(catalog)
                except (sqlite3.Error, msgspec.MsgspecError, UnicodeError, TypeError) as met:
                    error = met if isinstance(met, sqlite3.Error) else Ruined(str(met))
                    with self._mutex:
                        # one in memory is at fault if what was copied is
                        fault = self._copied and _corrupt(error) if self.in_memory else _unusable(error)
                        if catalog is self._catalog and not fault:
                            raise StoreUnavailable(f"the catalog of {self._root}: {error}") from error
                        if catalog is self._catalog:
                            self._replace(error)

    @property
    def busy(self) -> bool:
        """Whether this very thread is at it: a signal handler or a finalizer has come in between."""
        return threading.get_ident() in self.users

    @contextmanager
    def _at_it(self) -> Iterator[None]:
        thread = threading.get_ident()
        outer = thread in self.users
        try:
            self.users.add(thread)
            yield
        finally:
            if not outer:
                self.users.discard(thread)

    def behind(self) -> bool:
        """Whether rows may say less than their logs without being marked."""
        with self._at_it():
            self._open()
        return not self.trusted or self.in_memory or self._flagged()

    def checking(self) -> int:
        """Every row is about to be compared with its log; what a writer flags from now on is a new file.
        Gives the generation of the catalog that they are in."""
        generation = self.generation
        self._flag = None
        with suppress(OSError):  # what cannot be read cannot be taken away either: it is compared each time
            self._flag = self._disk.read_file(self._path("catalog.check"))
        return generation

    def checked(self, generation: int) -> None:
        """Every row has been compared with its log, if the catalog is still the one that it was."""
        if generation != self.generation:
            return  # it broke meanwhile, and another one knows of some logs only
        if not self.in_memory:
            self.use(lambda catalog: catalog.state_fact("boot", self._disk.boot()))
            with suppress(OSError, sqlite3.Error):
                self.use(lambda catalog: self._turn_over(catalog, always=True))
            if self._flag is not None and not self._readonly:
                with suppress(OSError):
                    path = self._path("catalog.check")
                    if self._disk.read_file(path) == self._flag:
                        self._disk.unlink(path)
        self.trusted = generation == self.generation

    def _flagged(self) -> bool:
        """Whether a writer could not tell the catalog, as far as can be seen."""
        try:
            return self._disk.look(self._path("catalog.check")) is not None
        except OSError:
            return True

    def _rest(self) -> Callable[[], None]:
        """Before a fork: SQLite knows by process what it has locked, so a child that opened the catalog anew
        would take this process's locks for its own. Whoever asks next opens it again."""
        with ExitStack() as held:
            held.enter_context(self._mutex)
            if self._catalog is not None and not self.in_memory and self._lock is not None:
                self._catalog.close()
                self._catalog = None
                self.generation += 1
            elif self._catalog is not None:  # no thread is inside SQLite meanwhile, and leaves a lock behind
                held.enter_context(self._catalog.at_rest())
            return held.pop_all().close

    def close(self) -> None:
        with self._mutex:
            if self._catalog is not None:
                with suppress(sqlite3.Error, OSError):
                    if self.trusted and not self.in_memory:
                        self._turn_over(self._catalog)
                with suppress(sqlite3.Error):
                    self._catalog.close()
                self._catalog = None
            if self._lock is not None:
                self._disk.close(self._lock)
                self._lock = None
            self._closed = True

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _leave_flag(self) -> None:
        path = self._path("catalog.check")
        token = new_id()[5:]  # several may leave it at once
        try:
            self._disk.replace(path, token.encode(), beside=f"{path}.{token}{TEMPORARY}")
        except OSError as error:
            raise problem(error, path) from error

    def _open(self) -> Catalog:
        with self._mutex:
            if self._closed or self._disk.inherited:
                raise Closed(f"the store in {self._root} is closed")
            path = IN_MEMORY if self.newer else self._disk.database(self._path("catalog.db"))
            if self._catalog is not None:
                if path == IN_MEMORY or (self.in_memory and time.monotonic() < self._again):
                    return self._catalog
                if not self.in_memory and self._is_there(path):
                    return self._catalog
                self._catalog.close()  # somebody took it away, or it may be of use again
                self._catalog = None
                self.in_memory = False
                self.generation += 1
            try:
                return self._try(path)
            except sqlite3.Error as error:
                return self._replace(error)

    def _is_there(self, path: str) -> bool:
        try:
            found = self._disk.look(path)
        except OSError:
            return False
        return found is not None and found.inode == self._inode

    def _try(self, path: str) -> Catalog:
        if path == IN_MEMORY:
            self._catalog = Catalog(path)
            return self._catalog
        try:
            if self._lock is None:
                self._lock = self._disk.open(self._path("catalog.lock"), write=True, create=True)
                if not self._disk.lock(self._lock, shared=True):  # somebody is replacing it
                    self._disk.wait_lock(self._lock, "the catalog")
                    self._disk.lock(self._lock, shared=True)
            found = self._disk.look(path)
            while found is None:
                self._begin(path)
                found = self._disk.look(path)
        except OSError as error:
            raise sqlite3.OperationalError(str(error)) from error
        if not found.plain:  # SQLite would wait for ever for who writes into a pipe
            raise sqlite3.OperationalError(f"{path} is a folder, a link or a pipe")
        try:
            catalog = Catalog(path)
        except UnicodeError as error:  # what SQLite would say quotes what cannot be read
            raise Ruined(str(error)) from error
        try:
            same = self._turn_over(catalog)
            boot = catalog.fact("boot")
        except BaseException:
            catalog.close()
            raise
        self._catalog, self._inode = catalog, found.inode
        self.trusted = same and boot == self._disk.boot() and not self._flagged()
        return catalog

    def _begin(self, path: str) -> None:
        """An empty file, private from the beginning, and nothing beside it that belongs to an older one."""
        self._disk.make_folder(self._path("locks"))
        with self._disk.locked(self._path("locks/.root")):
            if self._disk.look(path) is not None:
                return
            for suffix in ("-wal", "-shm", "-journal"):
                if self._disk.look(path + suffix) is not None:
                    self._disk.unlink(path + suffix)
            self._disk.close(self._disk.open(path, write=True, create=True))

    def _turn_over(self, catalog: Catalog, *, always: bool = False) -> bool:
        """Whether this is the catalog that was used last: it and its lock file have the same token. Both get
        a new one then, so that an old copy that somebody brings back is known for one; else only when it has
        been compared with the logs (`always`)."""
        fd = self._lock
        if fd is None or catalog.path == IN_MEMORY:
            return False
        token = new_id()
        try:
            with catalog.changing():
                same = self._disk.read(fd, 64, 0).decode("ascii", "replace") == catalog.fact("token")
                if not same and not always:
                    return False
                catalog.state_fact("token", token)
                self._disk.truncate(fd, 0)
                self._disk.write(fd, token.encode())
        except OSError as error:
            raise sqlite3.OperationalError(str(error)) from error
        return same

    def _replace(self, error: sqlite3.Error) -> Catalog:
        """Sets a catalog aside that cannot be understood and begins a new one, if nobody else has it open;
        else, and where it cannot be written or waited for, goes on with one in memory."""
        if self._catalog is not None:
            with suppress(sqlite3.Error):
                self._catalog.close()
            self._catalog = None
        self.generation += 1
        self.trusted = False
        path = self._path("catalog.db")
        if _corrupt(error) and not self._readonly and self._lock is not None:
            try:
                if self._disk.lock(self._lock):
                    self._disk.make_folder(self._path("aside"))
                    if self._disk.look(path) is not None:
                        stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
                        self._disk.rename(path, self._path(f"aside/{stamp}.catalog.db.illegible"))
                    self._begin(path)
                    self._disk.lock(self._lock, shared=True)
                    return self._try(path)
                self._disk.lock(self._lock, shared=True)
            except (OSError, sqlite3.Error):
                pass
        self.in_memory = True
        self._again = time.monotonic() + PATIENCE
        found = None
        with suppress(OSError):
            found = self._disk.look(path)
        useful = found is not None and found.plain and not _corrupt(error)
        try:
            self._catalog = Catalog(IN_MEMORY, like=path if useful else None)
        except (sqlite3.Error, UnicodeError):  # what was copied is not what was written
            useful = False
            self._catalog = Catalog(IN_MEMORY)
        self._copied = useful
        return self._catalog


def _unusable(error: sqlite3.Error) -> bool:
    """Whether the catalog is at fault, and not what was asked of it."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is None or _corrupt(error) or code & 0xFF in _REFUSALS


_REFUSALS = frozenset(
    (
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOLFS,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_SCHEMA,
    )
)


def _corrupt(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) or 0
    told = str(error)
    return (
        isinstance(error, Ruined)
        or code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
        or "no such" in told
        or "decode to UTF-8" in told
    )
