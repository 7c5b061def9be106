"""Leases as lock files: who works on a session, and whoever comes second.

The kernel's lock alone decides. What stands in the file says who has it, and may be missing or wrong.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from weakref import WeakValueDictionary

import msgspec

from hansard.engines import Holder
from hansard.engines.disk import Disk
from hansard.errors import SessionBusy
from hansard.ids import file_key, id_of

GRACE = 0.2
"""Seconds that a contender waits for the holder to say who it is."""


class FileLease:
    """A lock file that this process has locked."""

    def __init__(self, session: str, path: str, fd: int, holder: Holder, disk: Disk) -> None:
        self.session = session
        self.path = path
        self.fd = fd
        self.holder = holder
        self.marked = False  # whether the catalog knows that the log may grow
        self.released = False
        self._disk = disk

    def close(self) -> None:
        """Lets go of the file, and of its lock."""
        fd, self.fd = self.fd, -1  # its number may soon be another file's
        self._disk.close(fd)

    def __del__(self) -> None:
        """Nobody refers to it any more, who would have given it back: it was taken in vain."""
        if self._disk is not None:  # else the interpreter is at its end
            self.close()


class Leases:
    """The leases of one store, those of this process and those of others."""

    def __init__(self, disk: Disk, folder: str, *, readonly: bool) -> None:
        self._disk = disk
        self._folder = folder
        self._readonly = readonly
        self._mutex = threading.RLock()
        self._mine: WeakValueDictionary[str, FileLease] = WeakValueDictionary()

    def mine(self) -> list[FileLease]:
        """What this process holds."""
        with self._mutex:
            return list(self._mine.values())

    def free(self, session: str) -> bool:
        """Whether nobody can have it: there is not even a lock file."""
        with self._mutex:
            return session not in self._mine and self._disk.look(self._path(session)) is None

    def take(self, session: str, *, force: bool) -> FileLease:
        """Takes it, or raises `SessionBusy` with whoever has it."""
        path = self._path(session)
        with self._mutex:
            mine = self._mine.get(session)
            if mine is not None:
                raise SessionBusy(
                    session, mine.holder, "that is this process: use the handle that it has, or close it"
                )
        deadline = time.monotonic() + GRACE
        while True:
            # the lease has the file from the beginning: whatever interrupts this, it is closed with it
            holder = Holder(session=session, since=datetime.now(UTC), **self._disk.process())
            lease = FileLease(session, path, self._open(path), holder, self._disk)
            other = None
            held = False
            try:
                if self._disk.lock(lease.fd):
                    found = self._disk.look(path)
                    if found is not None and found.inode == self._disk.stat(lease.fd).inode:
                        held = True
                        return self._hold(lease)
                    continue  # it was given back between two looks
                other = self._holder_in(lease.fd, session)
            finally:
                if not held:
                    lease.close()
            # whoever has just taken it writes in it who it is; who was there before may be dead
            if other is not None or time.monotonic() > deadline:
                raise _busy(session, other or Holder(session=session), force)
            time.sleep(0.001)

    def _open(self, path: str) -> int:
        try:
            return self._disk.open(path, write=True, create=True)
        except FileNotFoundError:  # somebody has tidied up: all locks, and the folder with them
            self._disk.make_folder(self._folder)
            return self._disk.open(path, write=True, create=True)

    def give_back(self, lease: FileLease) -> None:
        """Unlinks the lock file while it is held, so that nobody else's is meant, and lets go."""
        with self._mutex:
            if self._mine.get(lease.session) is lease:
                del self._mine[lease.session]
        with suppress(OSError):
            found = self._disk.look(lease.path)
            if found is not None and found.inode == self._disk.stat(lease.fd).inode:
                self._disk.unlink(lease.path)
        lease.close()

    def sweep(self) -> list[Holder]:
        """Who has what open; lock files that nobody holds are taken away."""
        with self._mutex:
            mine = {lease.path: lease.holder for lease in self._mine.values()}
        held: list[Holder] = []
        for name in sorted(self._disk.names(self._folder)):
            path, key = f"{self._folder}/{name}", name.removesuffix(".lock")
            session = id_of(key)
            if key == name or (session is None and "=~" not in key):
                continue  # not ours
            holder = mine.get(path) or self._look_at(path, session or key)
            if holder is not None:
                held.append(holder)
        return held

    def _path(self, session: str) -> str:
        return f"{self._folder}/{file_key(session)}.lock"

    def _hold(self, lease: FileLease) -> FileLease:
        with suppress(OSError):  # it only informs
            self._disk.truncate(lease.fd, 0)
            self._disk.write(lease.fd, msgspec.json.encode(lease.holder) + b"\n")
        with self._mutex:
            self._mine[lease.session] = lease
        return lease

    def _look_at(self, path: str, session: str) -> Holder | None:
        """Who holds a lock file; a file that nobody holds goes."""
        try:
            fd = self._disk.open(path, write=not self._readonly)
        except OSError:
            return None
        try:
            if self._disk.lock(fd):
                found = self._disk.look(path)
                if not self._readonly and found is not None and found.inode == self._disk.stat(fd).inode:
                    self._disk.unlink(path)
                return None
            return _written(self._disk.read(fd, 4096, 0)) or Holder(session=session)
        finally:
            self._disk.close(fd)

    def _holder_in(self, fd: int, session: str) -> Holder | None:
        """Who says to hold a lock file; None where that is nobody who can be alive."""
        holder = _written(self._disk.read(fd, 4096, 0))
        if holder is None or holder.session != session:
            return None
        here = self._disk.process()["host"]
        if (
            holder.host == here
            and holder.pid is not None
            and not self._disk.alive(holder.pid, holder.started)
        ):
            return None
        return holder


def _written(raw: bytes) -> Holder | None:
    try:
        return msgspec.json.decode(raw, type=Holder)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _busy(session: str, holder: Holder, force: bool) -> SessionBusy:
    return SessionBusy(session, holder, f"end that process ({holder.pid}) to free it" if force else "")
