"""A machine with a disk of its own, in memory, of which the power can be cut.

`Machine` is the kernel and the platter: files, folders, locks, and a journal of everything that was asked of
the disk. What was not synced may be lost, kept or torn, each piece by itself. `Simulated` is the disk that a
process on it sees. From one journal every machine that a power cut could have left behind can be made.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hansard.engines.disk import Disk, Stat

ROOT = "/store"
SECTOR = 512

LONG_AGO = time.time() - 7200
"""When every file was last written: leftovers count as such."""


class Write(NamedTuple):
    """Bytes that were put somewhere in a file."""

    inode: int
    offset: int
    data: bytes


class Cut(NamedTuple):
    """A file that was made shorter, or longer."""

    inode: int
    size: int


class Entry(NamedTuple):
    """A name that was given to a file (`inode`), or taken away (None). `source` is the name that it had
    before, where it was renamed."""

    folder: int
    name: str
    inode: int | None
    source: tuple[int, str] | None = None


class Sync(NamedTuple):
    """A file, or a folder, all of whose changes last from here on."""

    inode: int


class Lost(NamedTuple):
    """A sync that failed: nobody will ever write what was not on the disk before."""

    inode: int


Step = Write | Cut | Entry | Sync | Lost

Fates = tuple[bool | tuple[tuple[int, int], ...], ...]
"""What becomes of each pending step: False lost, True kept, or the stretches of a write that arrive."""


@dataclass
class Image:
    """What is on the platter: files with their bytes, folders with their names."""

    files: dict[int, bytes] = field(default_factory=dict)
    folders: dict[int, dict[str, int]] = field(default_factory=dict)

    def copy(self) -> Image:
        return Image(dict(self.files), {inode: dict(names) for inode, names in self.folders.items()})

    def tree(self) -> tuple[tuple[str, bytes | None], ...]:
        """Every path with the bytes of its file, None for a folder: what can be reached from the root."""
        found: list[tuple[str, bytes | None]] = []

        def walk(inode: int, path: str) -> None:
            for name, child in sorted(self.folders[inode].items()):
                if child in self.folders:
                    found.append((f"{path}/{name}", None))
                    walk(child, f"{path}/{name}")
                else:
                    found.append((f"{path}/{name}", self.files.get(child, b"")))

        walk(0, "")
        return tuple(found)

    def take(self, step: Step, kept: Sequence[tuple[int, int]] | None = None) -> None:
        """A step reaches the platter; of a write only the stretches `kept`, and the length that they give
        the file."""
        match step:
            case Write(inode, offset, data):
                old = bytearray(self.files.get(inode, b""))
                for start, stop in [(0, len(data))] if kept is None else kept:
                    end = offset + stop
                    old.extend(bytes(max(0, end - len(old))))
                    old[offset + start : end] = data[start:stop]
                self.files[inode] = bytes(old)
            case Cut(inode, size):
                old_bytes = self.files.get(inode, b"")
                self.files[inode] = old_bytes[:size].ljust(size, b"\0")
            case Entry(folder, name, inode, source):
                if source is not None:
                    self.folders.setdefault(source[0], {}).pop(source[1], None)
                if inode is None:
                    self.folders.setdefault(folder, {}).pop(name, None)
                else:
                    self.folders.setdefault(folder, {})[name] = inode


@dataclass(frozen=True)
class PowerCut:
    """A moment in a journal, and what of the unsynced steps before it reached the platter."""

    at: int
    fates: Fates

    def __str__(self) -> str:
        return f"before step {self.at}, pending: {list(self.fates)}"


class Machine:
    """What outlives a process. `fault` is asked before each call what goes wrong with it."""

    def __init__(self, image: Image | None = None, *, boot: str = "boot-1") -> None:
        self.platter = image or Image(folders={0: {}})
        for names in self.platter.folders.values():
            for inode in names.values():
                if inode not in self.platter.folders:
                    self.platter.files.setdefault(inode, b"")
        self.now = self.platter.copy()
        self.boot = boot
        self.journal: list[Step] = []
        self.calls: list[tuple[str, str, int]] = []
        self.fault: Callable[[int, str, str], OSError | None] | None = None
        self.most: Callable[[int], int | None] | None = None  # bytes that a write takes at most
        self.locks: dict[int, dict[int, bool]] = {}
        self.inodes = itertools.count(1 + max([0, *self.now.files, *self.now.folders]))
        self.files = itertools.count(1_000_000)

    # -- what power cuts leave

    def pending(self, at: int) -> tuple[Image, list[Step]]:
        """What is on the platter for sure just before a step, and what may be."""
        image, waiting = self.platter.copy(), []
        for step in self.journal[:at]:
            waiting = _advance(image, waiting, step)
        return image, waiting

    def cuts(
        self, *, dice: random.Random, subsets: int = 256, tears: int | None = None
    ) -> Iterator[PowerCut]:
        """Every power cut, before each step and after the last one: all subsets of at most 8 unsynced steps;
        of more all lost, all kept, each one lost, each one kept, and seeded subsets; and each write torn at
        several places, with what came before it kept and what came after it lost, and with all others
        kept."""
        image, waiting = self.platter.copy(), []
        seen: tuple[Step, ...] | None = None
        for at in range(len(self.journal) + 1):
            if seen != tuple(waiting):
                seen = tuple(waiting)
                for fates in _fates(waiting, dice, subsets, tears):
                    yield PowerCut(at, fates)
            if at < len(self.journal):
                before = len(waiting)
                waiting = _advance(image, waiting, self.journal[at])
                if len(waiting) < before:
                    seen = None  # what is on the platter for sure has changed

    def after(self, cut: PowerCut) -> Image:
        """What a power cut leaves on the platter."""
        image, waiting = self.pending(cut.at)
        for step, fate in zip(waiting, cut.fates, strict=True):
            if fate is True:
                image.take(step)
            elif fate is not False:
                image.take(step, fate)
        return image

    def rebooted(self, cut: PowerCut | None = None) -> Machine:
        """The machine after a power cut; by default all that was not synced is lost."""
        if cut is None:
            image, _ = self.pending(len(self.journal))
        else:
            image = self.after(cut)
        return Machine(image, boot=f"{self.boot}+")

    # -- paths

    def find(self, path: str) -> int:
        """The inode at a path."""
        inode = 0
        for name in _names(path):
            folder = self.now.folders.get(inode)
            if folder is None:
                raise _error(errno.ENOTDIR, path)
            if name not in folder:
                raise _error(errno.ENOENT, path)
            inode = folder[name]
        return inode

    def place(self, path: str) -> tuple[int, str]:
        """The folder that a path is in, and its name there."""
        *above, name = _names(path)
        folder = self.find("/" + "/".join(above))
        if folder not in self.now.folders:
            raise _error(errno.ENOTDIR, path)
        return folder, name

    def do(self, step: Step) -> None:
        """Something changes: at once for all who look, on the platter later."""
        self.journal.append(step)
        self.now.take(step)

    def meet(self, call: str, path: str, size: int = 0) -> None:
        """A call comes in, and may fail."""
        n = len(self.calls)
        self.calls.append((call, path, size))
        if self.fault is not None:
            error = self.fault(n, call, path)
            if error is not None:
                raise error


class Simulated(Disk):
    """The disk as one process on the machine sees it."""

    def __init__(self, machine: Machine, *, catalog: str = ":memory:") -> None:
        super().__init__()
        self.machine = machine
        self.catalog = catalog  # SQLite keeps its files itself: in memory, or on a real disk
        self.fds: dict[int, tuple[int, str]] = {}

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        if path == self.catalog:
            return super().open(path, write=write, create=create)
        machine = self.machine
        machine.meet("create" if create else "open-to-write" if write else "open", path)
        try:
            inode = machine.find(path)
        except FileNotFoundError:
            if not create:
                raise
            folder, name = machine.place(path)
            inode = next(machine.inodes)
            machine.now.files[inode] = b""
            machine.do(Entry(folder, name, inode))
        if write and inode in machine.now.folders:
            raise _error(errno.EISDIR, path)
        fd = next(machine.files)
        self.fds[fd] = (inode, path)
        return fd

    def close(self, fd: int) -> None:
        if fd in self._open:
            super().close(fd)
        elif fd in self.fds:
            inode, _ = self.fds.pop(fd)
            self.machine.locks.get(inode, {}).pop(fd, None)

    def read(self, fd: int, size: int, offset: int) -> bytes:
        inode, path = self.fds[fd]
        self.machine.meet("read", path, size)
        return self.machine.now.files[inode][offset : offset + size]

    def put(self, fd: int, data: bytes) -> int:
        inode, path = self.fds[fd]
        machine = self.machine
        machine.meet("write", path, len(data))
        most = machine.most(len(machine.calls) - 1) if machine.most is not None else None
        data = bytes(data if most is None else data[:most])
        machine.do(Write(inode, len(machine.now.files[inode]), data))
        return len(data)

    def truncate(self, fd: int, size: int) -> None:
        inode, path = self.fds[fd]
        self.machine.meet("truncate", path, size)
        if size != len(self.machine.now.files[inode]):
            self.machine.do(Cut(inode, size))

    def rewrite(self, path: str, offset: int, data: bytes) -> None:
        self.machine.meet("rewrite", path, len(data))
        self.machine.do(Write(self.machine.find(path), offset, data))

    def sync(self, fd: int) -> None:
        inode, path = self.fds[fd]
        try:
            self.machine.meet("sync", path)
        except OSError:
            self.machine.do(Lost(inode))
            raise
        self.machine.do(Sync(inode))

    def stat(self, fd: int) -> Stat:
        inode, path = self.fds[fd]
        self.machine.meet("stat", path)
        return self._stat(inode)

    def extent(self, fd: int) -> tuple[int, int]:
        stat = self.stat(fd)
        return stat.links, stat.size

    def _stat(self, inode: int) -> Stat:
        now = self.machine.now
        if inode in now.folders:
            return Stat(0, 2, inode, LONG_AGO)
        links = sum(inode in names.values() for names in now.folders.values())
        return Stat(len(now.files[inode]), links, inode, LONG_AGO)

    def look(self, path: str) -> Stat | None:
        if path == self.catalog:
            return super().look(path)
        self.machine.meet("look", path)
        try:
            return self._stat(self.machine.find(path))
        except FileNotFoundError:
            return None

    def names(self, folder: str) -> list[str]:
        self.machine.meet("names", folder)
        try:
            inode = self.machine.find(folder)
        except FileNotFoundError:
            return []
        if inode not in self.machine.now.folders:
            raise _error(errno.ENOTDIR, folder)
        return list(self.machine.now.folders[inode])

    def is_folder(self, path: str) -> bool:
        try:
            return self.machine.find(path) in self.machine.now.folders
        except OSError:
            return False

    def make_one(self, path: str) -> None:
        machine = self.machine
        machine.meet("make_one", path)
        folder, name = machine.place(path)
        if name in machine.now.folders[folder]:
            raise _error(errno.EEXIST, path)
        inode = next(machine.inodes)
        machine.platter.folders[inode] = {}  # an empty folder, as soon as it can be reached
        machine.now.folders[inode] = {}
        machine.do(Entry(folder, name, inode))

    def remove_one(self, path: str) -> None:
        machine = self.machine
        machine.meet("remove_one", path)
        inode = machine.find(path)
        if machine.now.folders[inode]:
            raise _error(errno.ENOTEMPTY, path)
        machine.do(Entry(*machine.place(path), None))

    def sync_folder(self, path: str) -> None:
        self.machine.meet("sync_folder", path)
        inode = self.machine.find(path)
        self.machine.do(Sync(inode))

    def rename(self, path: str, to: str) -> None:
        self.machine.meet("rename", path)
        inode = self.machine.find(path)
        self.machine.do(Entry(*self.machine.place(to), inode, self.machine.place(path)))

    def unlink(self, path: str) -> None:
        if path.startswith(self.catalog):
            return super().unlink(path)
        self.machine.meet("unlink", path)
        self.machine.find(path)
        self.machine.do(Entry(*self.machine.place(path), None))
        return None

    def touch(self, path: str) -> None:
        self.machine.meet("touch", path)
        self.machine.find(path)

    def lock(self, fd: int, *, shared: bool = False) -> bool:
        inode, _ = self.fds[fd]
        held = self.machine.locks.setdefault(inode, {})
        if any(other != fd and not (shared and both) for other, both in held.items()):
            return False
        held[fd] = shared
        return True

    def unlock(self, fd: int) -> None:
        self.machine.locks.get(self.fds[fd][0], {}).pop(fd, None)

    def absolute(self, path: str) -> str:
        return path

    def watch(self, folder: str) -> None:
        return None

    def network(self, path: str) -> str | None:
        return None

    def database(self, path: str) -> str:
        return self.catalog

    def boot(self) -> str:
        return self.machine.boot

    def forget(self) -> None:
        super().forget()
        self.fds.clear()


def _advance(image: Image, waiting: list[Step], step: Step) -> list[Step]:
    """What is pending after one more step; what a sync has made to last goes to the platter."""
    match step:
        case Sync(inode):
            for one in waiting:
                if _of(one) == inode:
                    image.take(one)
            return [one for one in waiting if _of(one) != inode]
        case Lost(inode):
            return [one for one in waiting if _of(one) != inode or isinstance(one, Cut)]
        case _:
            return [*waiting, step]


def _of(step: Step) -> int:
    return step.folder if isinstance(step, Entry) else step.inode


def _fates(waiting: list[Step], dice: random.Random, subsets: int, tears: int | None) -> Iterator[Fates]:
    n = len(waiting)
    if n <= 8:
        yield from itertools.product((True, False), repeat=n)
    else:
        yield (True,) * n
        yield (False,) * n
        for i in range(n):
            yield tuple(j == i for j in range(n))
            yield tuple(j != i for j in range(n))
        for _ in range(subsets):
            yield tuple(dice.random() < 0.5 for _ in range(n))
    for i, step in enumerate(waiting):
        if isinstance(step, Write) and step.data:
            torn = list(_torn(step, dice))
            for kept in torn if tears is None else dice.sample(torn, min(tears, len(torn))):
                yield tuple(True if j < i else False if j > i else kept for j in range(n))
                if i < n - 1:
                    yield tuple(kept if j == i else True for j in range(n))


def _torn(step: Write, dice: random.Random) -> Iterator[tuple[tuple[int, int], ...]]:
    """The stretches of a write that arrive: a front, some sectors, or nothing but its length."""
    size = len(step.data)
    lengths = {1, size // 2, size - 1, size - 20, dice.randrange(1, size) if size > 1 else 1}
    for length in sorted(length for length in lengths if 0 < length < size):
        yield ((0, length),)
    edges = [0, *range(SECTOR - step.offset % SECTOR, size, SECTOR), size]
    sectors = list(itertools.pairwise(edges))
    yield ((size, size),)  # the file is as long as it would be, and nothing has arrived
    if len(sectors) > 1:
        yield (sectors[0],)
        yield tuple(sectors[1:])
        yield (sectors[-1],)
        yield (*sectors[:-1], (size, size))
        some = tuple(sector for sector in sectors if dice.random() < 0.5)
        yield (*some, (size, size))


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name]


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)
