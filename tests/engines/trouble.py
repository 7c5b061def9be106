"""A real disk that refuses what a test tells it to refuse, and remembers what was asked of it."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from hansard.engines.disk import Disk, Stat


@dataclass
class Refusal:
    """From the `skip`-th matching call on, `times` of them fail (None: all)."""

    calls: frozenset[str]
    code: int
    path: str
    skip: int
    times: int | None


class Trouble(Disk):
    """Calls are named as the methods of `Disk`; opening for writing is `open-to-write`."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, str]] = []
        self.room: int | None = None  # bytes that may still be written
        self.most: int | None = None  # bytes that one write takes at most
        self.paths: dict[int, str] = {}
        self._refusals: list[Refusal] = []

    def refuse(
        self, calls: str, code: int = errno.EIO, *, path: str = "", skip: int = 0, times: int | None = None
    ) -> None:
        """Some calls fail from now on, on paths that have `path` in them."""
        self._refusals.append(Refusal(frozenset(calls.split()), code, path, skip, times))

    def heal(self) -> None:
        """All is well from now on."""
        self._refusals.clear()
        self.room = self.most = None

    def times(self, call: str, path: str = "") -> int:
        """How often something was asked of it."""
        return sum(1 for name, where in self.asked if name == call and path in where)

    def _meet(self, call: str, path: str) -> None:
        self.asked.append((call, path))
        for refusal in self._refusals:
            if (call in refusal.calls or "any" in refusal.calls) and refusal.path in path:
                if refusal.skip:
                    refusal.skip -= 1
                elif refusal.times is None or refusal.times > 0:
                    refusal.times = None if refusal.times is None else refusal.times - 1
                    raise OSError(refusal.code, os.strerror(refusal.code), path)

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        if create or not write or os.path.lexists(path):  # the kernel looks for the file first
            self._meet("open-to-write" if write else "open", path)
        fd = super().open(path, write=write, create=create)
        self.paths[fd] = path
        return fd

    def read(self, fd: int, size: int, offset: int) -> bytes:
        self._meet("read", self.paths[fd])
        return super().read(fd, size, offset)

    def put(self, fd: int, data: bytes) -> int:
        self._meet("put", self.paths[fd])
        if self.most is not None:
            data = data[: self.most]
        if self.room is not None and data:
            data = data[: self.room]
            if not data:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.paths[fd])
            self.room -= len(data)
        return super().put(fd, data)

    def truncate(self, fd: int, size: int) -> None:
        self._meet("truncate", self.paths[fd])
        super().truncate(fd, size)

    def rewrite(self, path: str, offset: int, data: bytes) -> None:
        self._meet("rewrite", path)
        super().rewrite(path, offset, data)

    def sync(self, fd: int) -> None:
        self._meet("sync", self.paths[fd])
        super().sync(fd)

    def stat(self, fd: int) -> Stat:
        self._meet("stat", self.paths[fd])
        return super().stat(fd)

    def extent(self, fd: int) -> tuple[int, int]:
        self._meet("stat", self.paths[fd])
        return super().extent(fd)

    def look(self, path: str) -> Stat | None:
        self._meet("look", path)
        return super().look(path)

    def names(self, folder: str) -> list[str]:
        self._meet("names", folder)
        return super().names(folder)

    def make_folder(self, path: str) -> None:
        if not self.is_folder(path):
            self._meet("make_folder", path)
        super().make_folder(path)

    def sync_folder(self, path: str) -> None:
        self._meet("sync_folder", path)
        super().sync_folder(path)

    def rename(self, path: str, to: str) -> None:
        self._meet("rename", path)
        super().rename(path, to)

    def unlink(self, path: str) -> None:
        self._meet("unlink", path)
        super().unlink(path)
